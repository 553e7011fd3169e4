//! Gain and polarity.

use super::{Ramp, factor};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Fault, Given, Key, KeyKind, Room, ValueForm, ValueUnit},
};

/// Gain of all channels alike, with ramps; negative for turned polarity.
pub struct Gain {
    gain: Ramp,
    decibels: f64,
    inverted: bool,
    mute: bool,
}

pub(crate) const GAIN: KeyKind = KeyKind {
    name: "gain",
    what: "level of all its channels",
    keys: &[
        Key::live("gain", "level", ValueUnit::Decibel, (-120.0, 60.0), 0.0),
        Key {
            name: "invert",
            what: "turns the polarity",
            form: ValueForm::Switch { default: false, live: true },
        },
        Key {
            name: "mute",
            what: "silences",
            form: ValueForm::Switch { default: false, live: true },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let (gain, invert) = (given.number("gain"), given.switch("invert"));
        let mut gain = Gain::new(gain, invert, room.setting);
        if given.switch("mute") {
            gain.mute = true;
            gain.gain = Ramp::new(0.0, room.setting.rate);
        }
        Ok(Built::of(gain))
    },
};

pub(crate) const POLARITY: KeyKind = KeyKind {
    name: "polarity",
    what: "turns the polarity of its channels",
    keys: &[Key {
        name: "invert",
        what: "turned, or not",
        form: ValueForm::Switch { default: true, live: true },
    }],
    shape: KeyKind::SAME,
    build: polarity,
};

fn polarity(given: &Given, room: &mut Room<'_>) -> Result<Built, Fault> {
    Ok(Built::of(Polarity(Gain::new(0.0, given.switch("invert"), room.setting))))
}

impl Gain {
    /// A level in dB.
    pub fn new(decibels: f64, inverted: bool, setting: ProcessSpec) -> Gain {
        let sign = if inverted { -1.0 } else { 1.0 };
        Gain {
            gain: Ramp::new(sign * factor(decibels), setting.rate),
            decibels,
            inverted,
            mute: false,
        }
    }

    fn go(&mut self) {
        let sign = if self.inverted { -1.0 } else { 1.0 };
        self.gain.go(if self.mute { 0.0 } else { sign * factor(self.decibels) });
    }
}

impl Stage for Gain {
    fn process(&mut self, block: &mut Block<'_>) {
        let mut after = self.gain;
        for channel in block.each() {
            after = self.gain.scale(channel);
        }
        self.gain = after;
    }

    fn reset(&mut self) {
        self.gain.jump();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        match param {
            0 => self.decibels = f64::from(value),
            1 => self.inverted = value >= 0.5,
            2 => self.mute = value >= 0.5,
            _ => return false,
        }
        self.go();
        true
    }
}

/// Polarity alone; a change passes through silence.
struct Polarity(Gain);

impl Stage for Polarity {
    fn process(&mut self, block: &mut Block<'_>) {
        self.0.process(block);
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        param == 0 && self.0.set(1, value)
    }
}
