//! Tuner: the pitch of what passes, for whoever reads it; the sound passes untouched.
//!
//! # Source
//! P. McLeod, G. Wyvill, A smarter way to find pitch (ICMC 2005): the first high peak of the
//! normalised square difference. One lag is worked out with each decimated sample, so that no
//! block costs more than another; the squares under it are a sliding sum.

use super::{
    biquad::Cascade,
    design::{Section, butterworth},
};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Gauge, Key, KeyKind, ValueForm, ValueUnit},
};
use quiet_types::Frames;

/// Frames that are compared, at the lower rate.
const WINDOW: usize = 768;
/// Lags that are tried: down to 25 Hz at 8 kHz.
const LAGS: usize = 320;

pub(crate) const TUNER: KeyKind = KeyKind {
    name: "tuner",
    what: "reads pitch (27 to 1400 Hz), note and deviation of the first of its channels",
    keys: &[Key {
        name: "a4",
        what: "the pitch of A4",
        form: ValueForm::Number {
            unit: ValueUnit::Hertz,
            low: 400.0,
            high: 480.0,
            default: Some(440.0),
            live: true,
        },
    }],
    shape: KeyKind::SAME,
    build: |given, room| {
        let tuner = Tuner::new(given.number("a4"), room.setting);
        let names = [
            ("pitch", ValueUnit::Hertz),
            ("note", ValueUnit::Plain),
            ("deviation", ValueUnit::Cent),
            ("clarity", ValueUnit::Factor),
        ];
        let readings = names
            .iter()
            .zip(&tuner.shown)
            .map(|((name, unit), cell)| ((*name).to_owned(), *unit, cell.clone()))
            .collect();
        let mut built = Built::of(tuner);
        built.readings = readings;
        Ok(built)
    },
};

struct Tuner {
    a4: f64,
    lowpass: Cascade,
    filtered: Vec<f32>,
    /// One of so many frames is kept.
    every: u32,
    left: u32,
    rate: f64,
    ring: Vec<f32>,
    at: usize,
    /// The window that is worked on, while the ring goes on.
    window: Vec<f32>,
    similar: Vec<f32>,
    lag: usize,
    /// What the squares of a window's length add up to: from its start, and from `lag` on.
    power: [f64; 2],
    /// Pitch in Hz (0: none), MIDI note, cents from it, clarity 0 to 1.
    shown: [Gauge; 4],
}

impl Tuner {
    fn new(a4: f64, setting: ProcessSpec) -> Tuner {
        let rate = f64::from(setting.rate.0);
        let every = (rate / 8000.0).floor().max(1.0) as u32;
        let slow = rate / f64::from(every);
        let corner = (0.2 * slow).min(1500.0);
        let sections: Vec<Section> = if every > 1 {
            (0..3).map(|at| butterworth(6, false, corner, rate, at)).collect()
        } else {
            vec![Section::PLAIN]
        };
        let mono = ProcessSpec { channels: 1, ..setting };
        Tuner {
            a4,
            lowpass: Cascade::new(&sections, mono),
            filtered: vec![0.0; setting.block.0 as usize],
            every,
            left: every,
            rate: slow,
            ring: vec![0.0; WINDOW + LAGS],
            at: 0,
            window: vec![0.0; WINDOW + LAGS],
            similar: vec![0.0; LAGS],
            lag: 0,
            power: [0.0; 2],
            shown: Default::default(),
        }
    }

    fn hear(&mut self, x: f32) {
        self.ring[self.at] = x;
        self.at = (self.at + 1) % self.ring.len();
        if self.lag == LAGS {
            self.judge();
            self.lag = 0;
        }
        if self.lag == 0 {
            let (newer, older) = self.ring.split_at(self.at);
            self.window[..older.len()].copy_from_slice(older);
            self.window[older.len()..].copy_from_slice(newer);
        }
        let (lag, window) = (self.lag, &self.window);
        let product = f64::from(product(&window[..WINDOW], &window[lag..]));
        self.power = match lag {
            0 => [product; 2],
            // One sample leaves the sum, and one comes.
            _ => [
                self.power[0],
                self.power[1] + square(window[lag + WINDOW - 1]) - square(window[lag - 1]),
            ],
        };
        let power = self.power[0] + self.power[1];
        // Below -80 dB of full scale there is nothing to name.
        let heard = power >= 2.0 * WINDOW as f64 * 1e-8;
        self.similar[lag] = if heard { (2.0 * product / power) as f32 } else { 0.0 };
        self.lag += 1;
    }

    fn judge(&mut self) {
        let (pitch, clarity) = match period(&self.similar) {
            Some((period, clarity)) => (self.rate / period, f64::from(clarity)),
            None => (0.0, 0.0),
        };
        let (mut note, mut cents) = (0.0, 0.0);
        if pitch > 0.0 {
            let place = 69.0 + 12.0 * (pitch / self.a4).log2();
            note = place.round();
            cents = 100.0 * (place - note);
        }
        for (cell, value) in self.shown.iter().zip([pitch, note, cents, clarity]) {
            cell.put(value as f32);
        }
    }
}

fn square(x: f32) -> f64 {
    f64::from(x) * f64::from(x)
}

/// The sum of the products of `a` and what `b` begins with.
fn product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for k in 0..8 {
            sums[k] += a[k] * b[k];
        }
    }
    sums.iter().sum()
}

/// The top of a peak at `at`, between its neighbours.
fn top(similar: &[f32], at: usize) -> (f64, f32) {
    let (l, m, r) =
        (f64::from(similar[at - 1]), f64::from(similar[at]), f64::from(similar[at + 1]));
    let bend = l - 2.0 * m + r;
    let shift = if bend < 0.0 { 0.5 * (l - r) / bend } else { 0.0 };
    (at as f64 + shift, (m - 0.25 * (l - r) * shift) as f32)
}

/// The period in frames, and how clear it is.
fn period(similar: &[f32]) -> Option<(f64, f32)> {
    let last = similar.len() - 1;
    let is_peak = |at: usize| similar[at] > similar[at - 1] && similar[at] >= similar[at + 1];
    let first = similar.iter().position(|s| *s < 0.0)?;
    let peaks = (first.max(1)..last).filter(|at| is_peak(*at));
    let best = peaks.clone().map(|at| similar[at]).fold(0.0, f32::max);
    if best < 0.8 {
        return None;
    }
    let at = peaks.clone().find(|at| similar[*at] > 0.93 * best)?;
    let (mut period, clarity) = top(similar, at);
    // Peaks of several periods say it more exactly.
    let mut times = 2.0;
    while (period * times) as usize + 2 < last {
        let near = (period * times).round() as usize;
        let Some(at) = (near - 1..=near + 1).find(|at| is_peak(*at)) else { break };
        if similar[at] < 0.9 * best {
            break;
        }
        period = top(similar, at).0 / times;
        times += 1.0;
    }
    Some((period, clarity.min(1.0)))
}

impl Stage for Tuner {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        self.filtered[..frames].copy_from_slice(block.channel(0));
        self.lowpass.process(&mut Block::new(&mut self.filtered[..frames], 1));
        for frame in 0..frames {
            self.left -= 1;
            if self.left == 0 {
                self.left = self.every;
                self.hear(self.filtered[frame]);
            }
        }
    }

    fn latency(&self) -> Frames {
        Frames(0)
    }

    fn reset(&mut self) {
        self.lowpass.reset();
        self.ring.fill(0.0);
        (self.left, self.at, self.lag) = (self.every, 0, 0);
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        self.a4 = f64::from(value);
        param == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::SampleRate;
    use std::f64::consts::PI;

    #[test]
    fn strings_are_read_to_a_cent() {
        for rate in [44_100, 48_000, 96_000] {
            // Low B of a bass to the 24th fret of a guitar, one of them 13 cents too high.
            for pitch in [30.87, 82.41, 110.0, 146.83, 196.0, 246.94, 329.63 * 1.00754, 1318.51] {
                let setting =
                    ProcessSpec { rate: SampleRate(rate), channels: 2, block: Frames(rate / 2) };
                let mut tuner = Tuner::new(440.0, setting);
                let frames = rate as usize / 2;
                let mut samples = vec![0.0; 2 * frames];
                for (n, sample) in samples.iter_mut().enumerate().take(frames) {
                    let t = n as f64 / f64::from(rate);
                    let partial = |k: f64| (2.0 * PI * k * pitch * t + k).sin() / k;
                    *sample = (0.2 * (1..=5).map(|k| partial(f64::from(k))).sum::<f64>()) as f32;
                }
                tuner.process(&mut Block::new(&mut samples, 2));
                let read = f64::from(tuner.shown[0].get());
                let cents = 1200.0 * (read / pitch).log2();
                assert!(cents.abs() < 1.0, "{rate}: {pitch} Hz read as {read} ({cents} cents)");
                assert!(tuner.shown[3].get() > 0.95);
            }
        }
    }

    /// The sliding sum against the definition.
    #[test]
    fn each_lag_is_the_normalised_square_difference() {
        let setting = ProcessSpec { rate: SampleRate(8000), channels: 1, block: Frames(1) };
        let mut tuner = Tuner::new(440.0, setting);
        let mut random = fastrand::Rng::with_seed(2);
        // Loud, then soft, within the last window.
        for at in 0..6 * LAGS {
            let loud = if at < 800 { 1.0 } else { 1e-3 };
            tuner.hear(loud * (random.f32() - 0.5));
        }
        for (lag, similar) in tuner.similar.iter().enumerate() {
            let pairs = tuner.window[..WINDOW].iter().zip(&tuner.window[lag..]);
            let (product, power) = pairs.fold((0.0, 0.0), |(product, power), (a, b)| {
                let (a, b) = (f64::from(*a), f64::from(*b));
                (product + 2.0 * a * b, power + a * a + b * b)
            });
            let wanted = product / power;
            assert!(
                (f64::from(*similar) - wanted).abs() < 1e-5,
                "lag {lag}: {similar}, not {wanted}"
            );
        }
    }

    #[test]
    fn noise_and_silence_have_no_pitch() {
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block: Frames(48_000) };
        let mut tuner = Tuner::new(440.0, setting);
        let mut random = fastrand::Rng::with_seed(1);
        let mut noise: Vec<f32> = (0..48_000).map(|_| random.f32() - 0.5).collect();
        tuner.process(&mut Block::new(&mut noise, 1));
        assert_eq!(tuner.shown[0].get(), 0.0);
        tuner.process(&mut Block::new(&mut vec![0.0; 48_000], 1));
        assert_eq!(tuner.shown[0].get(), 0.0);
    }
}
