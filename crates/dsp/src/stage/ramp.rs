use quiet_types::SampleRate;

/// A value on its way to another, a step a frame: changes do not click.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ramp {
    now: f64,
    target: f64,
    step: f64,
    left: u32,
    length: u32,
}

impl Ramp {
    /// How long a change takes.
    pub(crate) const MS: f64 = 20.0;

    pub(crate) fn new(value: f64, rate: SampleRate) -> Ramp {
        let length = (super::frames(Ramp::MS, rate) as u32).max(1);
        Ramp { now: value, target: value, step: 0.0, left: 0, length }
    }

    pub(crate) fn go(&mut self, target: f64) {
        self.target = target;
        self.left = self.length;
        self.step = (target - self.now) / f64::from(self.length);
    }

    /// Where it will be.
    pub(crate) fn target(&self) -> f64 {
        self.target
    }

    /// There at once.
    pub(crate) fn jump(&mut self) {
        self.now = self.target;
        self.left = 0;
    }

    /// The value, if it does not move.
    pub(crate) fn still(&self) -> Option<f64> {
        (self.left == 0).then_some(self.now)
    }

    pub(crate) fn next(&mut self) -> f64 {
        if self.left > 0 {
            self.left -= 1;
            self.now = if self.left == 0 { self.target } else { self.now + self.step };
        }
        self.now
    }

    /// Multiplies `samples` by the value of their frame. Every channel starts from a copy.
    pub(crate) fn scale(mut self, samples: &mut [f32]) -> Ramp {
        match self.still() {
            Some(1.0) => {}
            Some(value) => samples.iter_mut().for_each(|x| *x *= value as f32),
            None => samples.iter_mut().for_each(|x| *x *= self.next() as f32),
        }
        self
    }
}
