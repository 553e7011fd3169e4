//! The flat row of numbers of a `.nam` file, and the convolutions in it.

use super::{
    super::{json::At, net::Conv},
    Error, Limits,
};

/// The flat row of weights, taken from the front.
pub(super) struct Weights {
    path: String,
    all: Vec<f32>,
    at: usize,
}

impl Weights {
    pub(super) fn new(path: String, all: Vec<f32>) -> Weights {
        Weights { path, all, at: 0 }
    }

    /// The same numbers, to be taken once more.
    pub(super) fn afresh(&self) -> Weights {
        Weights::new(self.path.clone(), self.all.clone())
    }

    pub(super) fn take(&mut self, count: usize, what: &str) -> Result<&[f32], Error> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.all.len());
        let Some(end) = end else {
            return Err(Error::key(
                &self.path,
                format!(
                    "has {} numbers, too few: {what} needs {count} more from number {} on",
                    self.all.len(),
                    self.at
                ),
            ));
        };
        let taken = &self.all[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        if self.at == self.all.len() {
            return Ok(());
        }
        Err(Error::key(
            &self.path,
            format!("has {} numbers; the configuration uses only {}", self.all.len(), self.at),
        ))
    }
}

/// A convolution as the file has it, and how much of it is kept.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) taps: usize,
    pub(super) dilation: usize,
    pub(super) groups: usize,
    pub(super) bias: bool,
    pub(super) keep: (usize, usize),
}

impl Shape {
    pub(super) fn one(inputs: usize, outputs: usize, bias: bool) -> Shape {
        let keep = (inputs, outputs);
        Shape { inputs, outputs, taps: 1, dilation: 1, groups: 1, bias, keep }
    }

    pub(super) fn keep(self, inputs: usize, outputs: usize) -> Shape {
        Shape { keep: (inputs, outputs), ..self }
    }

    pub(super) fn read(
        self,
        from: &mut Weights,
        limits: &mut Limits,
        at: &At<'_>,
        what: &str,
    ) -> Result<Conv, Error> {
        let Shape { inputs, outputs, taps, dilation, groups, bias, keep } = self;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            return Err(at.refuse(format!(
                "{what}: {inputs} inputs and {outputs} outputs cannot be shared out to {groups} groups"
            )));
        }
        limits.conv(keep.0, keep.1, taps, dilation, at)?;
        let (inputs_each, outputs_each) = (inputs / groups, outputs / groups);
        let file = from.take(inputs_each * outputs * taps, what)?;
        let mut weights = vec![0.0; taps * keep.0 * keep.1];
        let mut next = file.iter();
        for group in 0..groups {
            for o in 0..outputs_each {
                for i in 0..inputs_each {
                    for tap in 0..taps {
                        let (o, i) = (group * outputs_each + o, group * inputs_each + i);
                        let w = next.next().copied().unwrap_or_default();
                        if i < keep.0 && o < keep.1 {
                            weights[(tap * keep.0 + i) * keep.1 + o] = w;
                        }
                    }
                }
            }
        }
        let mut all = vec![0.0; keep.1];
        if bias {
            let file = from.take(outputs, what)?;
            all.copy_from_slice(&file[..keep.1]);
        }
        Ok(Conv { inputs: keep.0, outputs: keep.1, taps, dilation, weights, bias: all })
    }
}
