//! Mixer: every output is a sum of inputs.

use super::Ramp;
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Fault, Given, Key, KeyKind, ValueForm, ValueUnit},
};

/// No strip is wider.
pub const MOST_CHANNELS: usize = 64;

/// A matrix of gains, a row an output.
pub struct Mix {
    gains: Vec<Ramp>,
    inputs: usize,
    outputs: usize,
    sums: Vec<f32>,
}

pub(crate) const MIX: KeyKind = KeyKind {
    name: "mix",
    what: "sums of its inputs; may change the number of channels",
    keys: &[Key {
        name: "matrix",
        what: "factors: a row an output, in it a factor an input",
        form: ValueForm::Rows {
            unit: ValueUnit::Factor,
            low: -1000.0,
            high: 1000.0,
            most: MOST_CHANNELS,
            live: true,
        },
    }],
    shape: |given, inputs| Ok(checked(given, inputs)?.len()),
    build: |given, room| {
        let rows = checked(given, room.inputs)?;
        Ok(Built::of(Mix::new(rows, room.setting)))
    },
};

fn checked(given: &Given, inputs: usize) -> Result<&[Vec<f64>], Fault> {
    let rows = given.rows("matrix");
    match rows.iter().find(|row| row.len() != inputs) {
        None => Ok(rows),
        Some(row) => Err(Fault::at(
            "matrix",
            format!("a row has {} factors for {inputs} inputs", row.len()),
            "every row needs a factor for each input; 0 where it takes nothing",
        )),
    }
}

impl Mix {
    /// `rows[output][input]`, all rows alike in length.
    pub fn new(rows: &[Vec<f64>], setting: ProcessSpec) -> Mix {
        let inputs = rows.first().map_or(0, Vec::len);
        Mix {
            gains: rows.iter().flatten().map(|g| Ramp::new(*g, setting.rate)).collect(),
            inputs,
            outputs: rows.len(),
            sums: vec![0.0; rows.len() * setting.block.0 as usize],
        }
    }
}

impl Stage for Mix {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        let sums = &mut self.sums[..self.outputs * frames];
        sums.fill(0.0);
        for output in 0..self.outputs {
            let sum = &mut sums[output * frames..][..frames];
            for input in 0..self.inputs {
                let gain = &mut self.gains[output * self.inputs + input];
                let from = &*block.channel(input);
                match gain.still() {
                    Some(0.0) => {}
                    Some(value) => {
                        let value = value as f32;
                        sum.iter_mut().zip(from).for_each(|(s, x)| *s += value * x);
                    }
                    None => {
                        sum.iter_mut().zip(from).for_each(|(s, x)| *s += gain.next() as f32 * x)
                    }
                }
            }
        }
        block.samples()[..self.outputs * frames].copy_from_slice(sums);
    }

    fn reset(&mut self) {
        self.gains.iter_mut().for_each(Ramp::jump);
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let Some(gain) = self.gains.get_mut(param) else { return false };
        gain.go(f64::from(value));
        true
    }
}
