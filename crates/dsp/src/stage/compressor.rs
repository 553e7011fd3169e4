//! Compressor.

use super::{Ramp, factor, settled, smoothing};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Key, KeyKind, ValueForm, ValueUnit},
};

pub(crate) const COMPRESSOR: KeyKind = KeyKind {
    name: "compressor",
    what: "takes back what is above a level; its channels move together",
    keys: &[
        Key::live("threshold", "above this level", ValueUnit::Decibel, (-90.0, 0.0), -20.0),
        Key::live("ratio", "so many dB in for one dB out", ValueUnit::Factor, (1.0, 1000.0), 4.0),
        Key::live("knee", "width of the soft bend", ValueUnit::Decibel, (0.0, 40.0), 6.0),
        Key::live("attack", "time to take back", ValueUnit::Millisecond, (0.0, 1000.0), 5.0),
        Key::live("release", "time to let go", ValueUnit::Millisecond, (0.0, 10_000.0), 100.0),
        Key::live("makeup", "level afterwards", ValueUnit::Decibel, (-40.0, 60.0), 0.0),
        Key {
            name: "detector",
            what: "follows peaks, or the mean square of 10 ms",
            form: ValueForm::Choice { of: &["peak", "rms"], default: Some("peak") },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let keys = ["threshold", "ratio", "knee", "attack", "release", "makeup"];
        let wanted = keys.map(|key| given.number(key));
        let compressor = Compressor::new(wanted, given.text("detector") == "rms", room.setting);
        let mut built = Built::of(compressor.0);
        built.readings.push(("reduction".into(), ValueUnit::Decibel, compressor.1));
        Ok(built)
    },
};

/// Works in dB: level, curve, smoothing, factor.
struct Compressor {
    /// Threshold in dB, ratio, knee in dB, attack and release in ms, makeup in dB.
    wanted: [f64; 6],
    attack: f64,
    release: f64,
    mean: f64,
    power: f64,
    rms: bool,
    /// dB taken back now.
    reduction: f64,
    makeup: Ramp,
    shown: crate::strip::Gauge,
    setting: ProcessSpec,
}

/// dB taken back from a level, once it stays.
fn curve(level: f64, threshold: f64, ratio: f64, knee: f64) -> f64 {
    let over = level - threshold;
    let slope = 1.0 - 1.0 / ratio;
    if 2.0 * over >= knee {
        slope * over
    } else if 2.0 * over > -knee {
        slope * (over + knee / 2.0).powi(2) / (2.0 * knee)
    } else {
        0.0
    }
}

impl Compressor {
    fn new(wanted: [f64; 6], rms: bool, setting: ProcessSpec) -> (Compressor, crate::strip::Gauge) {
        let shown = crate::strip::Gauge::default();
        let mut compressor = Compressor {
            wanted,
            attack: 0.0,
            release: 0.0,
            mean: smoothing(10.0, setting.rate),
            power: 0.0,
            rms,
            reduction: 0.0,
            makeup: Ramp::new(factor(wanted[5]), setting.rate),
            shown: shown.clone(),
            setting,
        };
        compressor.derive();
        (compressor, shown)
    }

    fn derive(&mut self) {
        self.attack = smoothing(self.wanted[3], self.setting.rate);
        self.release = smoothing(self.wanted[4], self.setting.rate);
        if self.makeup.target() != factor(self.wanted[5]) {
            self.makeup.go(factor(self.wanted[5]));
        }
    }
}

impl Stage for Compressor {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        let [threshold, ratio, knee, ..] = self.wanted;
        for frame in 0..frames {
            let samples = block.samples();
            let loudest =
                samples.iter().skip(frame).step_by(frames).fold(0.0f32, |m, x| m.max(x.abs()));
            let power = f64::from(loudest).powi(2);
            self.power =
                settled(power + if self.rms { self.mean * (self.power - power) } else { 0.0 });
            let level = 10.0 * self.power.max(1e-14).log10();
            let target = curve(level, threshold, ratio, knee);
            let pace = if target > self.reduction { self.attack } else { self.release };
            self.reduction = target + settled(pace * (self.reduction - target));
            let gain = (factor(-self.reduction) * self.makeup.next()) as f32;
            samples.iter_mut().skip(frame).step_by(frames).for_each(|x| *x *= gain);
        }
        self.shown.put(self.reduction as f32);
    }

    fn reset(&mut self) {
        self.makeup.jump();
        (self.power, self.reduction) = (0.0, 0.0);
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let Some(wanted) = self.wanted.get_mut(param) else { return false };
        *wanted = f64::from(value);
        self.derive();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{Frames, SampleRate};

    #[test]
    fn a_steady_level_lands_on_the_curve() {
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 2, block: Frames(4800) };
        for (level, wanted) in [
            // Below the knee, in its middle (slope * knee / 8), and above it.
            (-30.0, -30.0),
            (-20.0, -20.0 - 0.75 * 6.0 / 8.0),
            (-8.0, -20.0 + 12.0 / 4.0),
            (0.0, -20.0 + 20.0 / 4.0),
        ] {
            let mut stage = Compressor::new([-20.0, 4.0, 6.0, 1.0, 50.0, 0.0], false, setting).0;
            let x = factor(level) as f32;
            let mut samples = vec![x; 9600];
            stage.process(&mut Block::new(&mut samples, 2));
            for end in [4799, 9599] {
                let out = super::super::decibels(f64::from(samples[end]));
                assert!((out - wanted).abs() < 1e-3, "{level}: {out}, wanted {wanted}");
            }
        }
    }

    #[test]
    fn after_its_attack_time_all_but_a_third_is_taken_back() {
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block: Frames(480) };
        let mut stage = Compressor::new([-20.0, 1000.0, 0.0, 10.0, 50.0, 0.0], false, setting).0;
        let mut samples = vec![1.0; 480];
        stage.process(&mut Block::new(&mut samples, 1));
        let wanted = 20.0 * (1.0 - 1.0 / 1000.0) * (1.0 - (-1f64).exp());
        assert!((stage.reduction - wanted).abs() < 1e-6, "{}", stage.reduction);
    }
}
