//! Look-ahead limiter: no sample above the ceiling, no corner in the gain.

use super::{factor, frames, smoothing};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Key, KeyKind, ValueForm, ValueUnit},
};
use quiet_types::Frames;

/// Gain 1, in whole numbers: sums of these are exact, so a running mean never drifts.
const ONE: f64 = (1u32 << 30) as f64;

pub(crate) const LIMITER: KeyKind = KeyKind {
    name: "limiter",
    what: "holds every sample below a ceiling; late by its look-ahead",
    keys: &[
        Key::live("ceiling", "no sample is above it", ValueUnit::Decibel, (-60.0, 20.0), -1.0),
        Key::live("release", "time to let go", ValueUnit::Millisecond, (0.0, 10_000.0), 50.0),
        Key {
            name: "lookahead",
            what: "how early it begins, and the latency that it adds; 0 clips",
            form: ValueForm::Number {
                unit: ValueUnit::Millisecond,
                low: 0.0,
                high: 50.0,
                default: Some(1.5),
                live: false,
            },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let [ceiling, release, ahead] =
            ["ceiling", "release", "lookahead"].map(|key| given.number(key));
        let limiter = Limiter::new(ceiling, release, ahead, room.setting);
        let shown = limiter.shown.clone();
        let mut built = Built::of(limiter);
        built.readings.push(("reduction".into(), ValueUnit::Decibel, shown));
        Ok(built)
    },
};

/// Least gain within reach, then its mean over as many frames: each sample meets a gain that is
/// no greater than its own.
struct Limiter {
    ceiling: f32,
    release: f64,
    gain: f64,
    /// Look-ahead in frames.
    ahead: usize,
    at: usize,
    /// Waiting samples, channel after channel, and the ceiling of their time.
    waiting: Vec<f32>,
    ceilings: Vec<f32>,
    /// A tree whose leaves are the gains within reach: its root is the least of them, found at the
    /// same cost for every sample.
    tree: Vec<u32>,
    means: Vec<u32>,
    sum: u64,
    shown: crate::strip::Gauge,
    setting: ProcessSpec,
}

impl Limiter {
    fn new(ceiling: f64, release: f64, ahead: f64, setting: ProcessSpec) -> Limiter {
        let ahead = frames(ahead, setting.rate).round() as usize;
        let reach = ahead + 1;
        let mut limiter = Limiter {
            ceiling: factor(ceiling) as f32,
            release: smoothing(release, setting.rate),
            gain: 1.0,
            ahead,
            at: 0,
            waiting: vec![0.0; reach * setting.channels],
            ceilings: vec![0.0; reach],
            tree: vec![0; 2 * reach.next_power_of_two()],
            means: vec![0; reach],
            sum: 0,
            shown: crate::strip::Gauge::default(),
            setting,
        };
        limiter.reset();
        limiter
    }

    /// The least gain within reach once `gain` is in place `at`.
    fn least(&mut self, gain: u32) -> u32 {
        let mut node = self.tree.len() / 2 + self.at;
        self.tree[node] = gain;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].min(self.tree[2 * node + 1]);
        }
        self.tree[1]
    }
}

impl Stage for Limiter {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        let reach = self.ahead + 1;
        let mut mean = 1.0;
        for frame in 0..frames {
            let samples = block.samples();
            let loudest =
                samples.iter().skip(frame).step_by(frames).fold(0.0f32, |m, x| m.max(x.abs()));
            let wanted = f64::from(self.ceiling) / f64::from(loudest.max(self.ceiling));
            self.gain = wanted.min(1.0 - (1.0 - self.gain) * self.release);
            let least = self.least((self.gain * ONE) as u32);
            self.sum += u64::from(least);
            self.sum -= u64::from(std::mem::replace(&mut self.means[self.at], least));
            mean = self.sum as f64 / (reach as f64 * ONE);
            self.ceilings[self.at] = self.ceiling;
            let oldest = if self.at + 1 == reach { 0 } else { self.at + 1 };
            let ceiling = self.ceilings[oldest];
            let rings = self.waiting.chunks_exact_mut(reach);
            for (x, ring) in samples.iter_mut().skip(frame).step_by(frames).zip(rings) {
                ring[self.at] = *x;
                let y = (f64::from(ring[oldest]) * mean) as f32;
                *x = y.clamp(-ceiling, ceiling);
            }
            self.at = oldest;
        }
        self.shown.put((-20.0 * mean.log10()) as f32);
    }

    fn latency(&self) -> Frames {
        Frames(self.ahead as u32)
    }

    fn reset(&mut self) {
        let reach = self.ahead + 1;
        self.gain = 1.0;
        self.at = 0;
        self.waiting.fill(0.0);
        self.ceilings.fill(self.ceiling);
        self.tree.fill(ONE as u32);
        self.means.fill(ONE as u32);
        self.sum = reach as u64 * ONE as u64;
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        match param {
            0 => self.ceiling = factor(f64::from(value)) as f32,
            1 => self.release = smoothing(f64::from(value), self.setting.rate),
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quiet_types::SampleRate;

    fn setting(channels: usize) -> ProcessSpec {
        ProcessSpec { rate: SampleRate(48_000), channels, block: Frames(512) }
    }

    proptest! {
        #[test]
        fn no_sample_is_above_the_ceiling(
            samples in proptest::collection::vec(-8.0f32..8.0, 512),
            ceiling in -40.0f64..6.0,
            ahead in 0.0f64..3.0,
        ) {
            let mut stage = Limiter::new(ceiling, 5.0, ahead, setting(2));
            let mut out = samples.clone();
            stage.process(&mut Block::new(&mut out, 2));
            let most = factor(ceiling) as f32;
            prop_assert!(out.iter().all(|y| y.abs() <= most));
        }
    }

    #[test]
    fn what_is_below_the_ceiling_comes_out_late_and_untouched() {
        let mut stage = Limiter::new(0.0, 50.0, 1.0, setting(1));
        assert_eq!(stage.latency(), Frames(48));
        let x: Vec<f32> = (0..512).map(|n| (n as f32 * 0.7).sin()).collect();
        let mut y = x.clone();
        stage.process(&mut Block::new(&mut y, 1));
        assert_eq!(y[..48], [0.0; 48]);
        assert_eq!(y[48..], x[..512 - 48]);
    }

    #[test]
    fn the_gain_is_down_when_the_peak_comes_and_moves_evenly() {
        let mut stage = Limiter::new(-6.0, 1e4, 1.0, setting(1));
        let mut y = vec![0.25; 512];
        y[200] = 1.0;
        stage.process(&mut Block::new(&mut y, 1));
        // The peak leaves at 248, at the ceiling; before it the gain falls in 49 equal steps.
        let low = factor(-6.0) as f32;
        assert!((y[248] - low).abs() < 1e-6, "{}", y[248]);
        for (n, y) in y.iter().enumerate().take(248).skip(200) {
            let steps = f64::from(n as u32 - 199);
            let wanted = 0.25 * (1.0 - (1.0 - f64::from(low)) * steps / 49.0);
            assert!((f64::from(*y) - wanted).abs() < 1e-5, "{n}: {y} {wanted}");
        }
    }
}
