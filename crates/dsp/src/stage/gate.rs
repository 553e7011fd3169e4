//! Noise gate.

use super::{Ramp, factor, frames, settled, smoothing};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Key, KeyKind, ValueUnit},
};

pub(crate) const GATE: KeyKind = KeyKind {
    name: "gate",
    what: "silences what is below a level; its channels open and close together",
    keys: &[
        Key::live("threshold", "opens above this peak", ValueUnit::Decibel, (-120.0, 0.0), -60.0),
        Key::live("hysteresis", "closes so much below it", ValueUnit::Decibel, (0.0, 40.0), 6.0),
        Key::live("attack", "time to open", ValueUnit::Millisecond, (0.0, 1000.0), 1.0),
        Key::live("hold", "stays open at least", ValueUnit::Millisecond, (0.0, 10_000.0), 50.0),
        Key::live("release", "time to close", ValueUnit::Millisecond, (0.0, 10_000.0), 100.0),
        Key::live("range", "what is left when closed", ValueUnit::Decibel, (-120.0, 0.0), -80.0),
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let keys = ["threshold", "hysteresis", "attack", "hold", "release", "range"];
        Ok(Built::of(Gate::new(keys.map(|key| given.number(key)), room.setting)))
    },
};

/// Opens and closes all channels alike.
struct Gate {
    /// Threshold and hysteresis in dB, attack, hold and release in ms, range in dB.
    wanted: [f64; 6],
    opens: f64,
    closes: f64,
    attack: f64,
    release: f64,
    fall: f64,
    floor: Ramp,
    hold: u32,
    held: u32,
    peak: f64,
    open: bool,
    gain: f64,
    setting: ProcessSpec,
}

impl Gate {
    fn new(wanted: [f64; 6], setting: ProcessSpec) -> Gate {
        let mut gate = Gate {
            wanted,
            opens: 0.0,
            closes: 0.0,
            attack: 0.0,
            release: 0.0,
            fall: smoothing(5.0, setting.rate),
            floor: Ramp::new(factor(wanted[5]), setting.rate),
            hold: 0,
            held: 0,
            peak: 0.0,
            open: false,
            gain: 0.0,
            setting,
        };
        gate.derive();
        gate.gain = gate.floor.target();
        gate
    }

    fn derive(&mut self) {
        let [threshold, hysteresis, attack, hold, release, range] = self.wanted;
        self.opens = factor(threshold);
        self.closes = factor(threshold - hysteresis);
        self.attack = smoothing(attack, self.setting.rate);
        self.release = smoothing(release, self.setting.rate);
        self.hold = frames(hold, self.setting.rate) as u32;
        if self.floor.target() != factor(range) {
            self.floor.go(factor(range));
        }
    }
}

impl Stage for Gate {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        for frame in 0..frames {
            let samples = block.samples();
            let loudest =
                samples.iter().skip(frame).step_by(frames).fold(0.0f32, |m, x| m.max(x.abs()));
            self.peak = settled(f64::from(loudest).max(self.peak * self.fall));
            if self.peak > self.opens {
                self.open = true;
                self.held = self.hold;
            } else if self.peak < self.closes {
                self.held = self.held.saturating_sub(1);
                self.open &= self.held > 0;
            }
            let floor = self.floor.next();
            let (target, pace) = if self.open { (1.0, self.attack) } else { (floor, self.release) };
            self.gain = target + settled(pace * (self.gain - target));
            let gain = self.gain as f32;
            samples.iter_mut().skip(frame).step_by(frames).for_each(|x| *x *= gain);
        }
    }

    fn reset(&mut self) {
        self.floor.jump();
        (self.peak, self.open, self.held) = (0.0, false, 0);
        self.gain = self.floor.target();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let Some(wanted) = self.wanted.get_mut(param) else { return false };
        *wanted = f64::from(value);
        self.derive();
        true
    }
}
