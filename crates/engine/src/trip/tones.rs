//! The delay by the phases of the tones, window after window.

use super::sound::{ROUND, TONES, TestSignal, amplitude};
use std::f64::consts::TAU;

/// Half turns beyond which a tone's phase says nothing certain.
const DOUBT: f64 = 0.3;

/// Frames of a window; the next begins half a window later.
const WINDOW: usize = 4096;
const HOP: usize = WINDOW / 2;
/// Least share of clear windows.
const CLEAR: f64 = 0.75;
/// No delay is less than this below nothing, frames.
const LEAST: f64 = 256.0;
/// A window whose rest is so many times the usual one holds something else than the tones.
const STRANGE: f64 = 100.0;
/// The same where the usual rest is next to nothing: parts of the tones' power, some -50 dB.
const FAINT: f64 = 1e-5;

#[derive(Clone, Copy)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn turned(turns: f64) -> Complex {
        let (im, re) = (TAU * turns).sin_cos();
        Complex { re, im }
    }

    fn by(self, other: Complex) -> Complex {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

/// What one window says.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Its middle, frames of the pass.
    at: f64,
    /// Delay in turns of each tone, upright.
    turns: [f64; TONES.len()],
    /// Power of the tones, and of all else.
    power: f64,
    rest: f64,
}

/// The windows of a pass.
pub(super) struct Track {
    windows: Vec<Window>,
    inverted: bool,
    /// Power of the tones as they were sent.
    sent: f64,
}

/// The delay over time, a straight line where all is well.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// In the middle, frames.
    pub delay: f64,
    middle: f64,
    /// Frames of delay a frame.
    pub slope: f64,
    pub uncertainty: f64,
    pub slope_uncertainty: f64,
    pub inverted: bool,
    pub gain: f64,
    pub snr_db: f64,
    pub doubt: f64,
    /// When, and by how many frames, the delay jumped.
    pub slip: Option<(f64, f64)>,
    /// When something else than the tones was there.
    pub lost: Option<f64>,
}

impl Line {
    pub fn at(&self, frame: f64) -> f64 {
        self.delay + self.slope * (frame - self.middle)
    }
}

/// Looks at the tones of a pass.
pub(super) fn track(sound: &TestSignal, came: &[f32]) -> Track {
    let taper = taper();
    let first = sound.tones_at + sound.longest;
    let windows: Vec<Window> = (first..)
        .step_by(HOP)
        .take_while(|at| at + WINDOW <= sound.tones_end.min(came.len()))
        .map(|at| window(&came[at..at + WINDOW], at, sound.tones_at, &taper))
        .collect();
    // The wrong way up is half a turn too much in every tone: its doubts are near one half.
    let doubts = |inverted| -> f64 { windows.iter().map(|w| resolve(w, inverted).1).sum() };
    let inverted = doubts(true) < doubts(false);
    let sent: f64 = (0..TONES.len()).map(|tone| (sound.level * amplitude(tone)).powi(2)).sum();
    Track { windows, inverted, sent: sent / 2.0 }
}

/// Blackman and Harris, four terms: what leaks from one tone into another lies 92 dB below.
fn taper() -> Vec<f64> {
    (0..WINDOW)
        .map(|n| {
            let x = TAU * (n as f64 + 0.5) / WINDOW as f64;
            0.35875 - 0.48829 * x.cos() + 0.14128 * (2.0 * x).cos() - 0.01168 * (3.0 * x).cos()
        })
        .collect()
}

fn window(samples: &[f32], at: usize, tones_at: usize, taper: &[f64]) -> Window {
    let whole: f64 = taper.iter().sum();
    let squares: f64 = taper.iter().map(|w| w * w).sum();
    let mut rest: Vec<f64> = samples.iter().map(|x| f64::from(*x)).collect();
    let mut turns = [0.0; TONES.len()];
    let mut power = 0.0;
    for (tone, turn) in turns.iter_mut().enumerate() {
        let step = Complex::turned(-f64::from(TONES[tone]) / ROUND as f64);
        let begin = Complex::turned(-super::sound::turns(tone, at - tones_at));
        let (mut carrier, mut sum) = (begin, Complex { re: 0.0, im: 0.0 });
        for (sample, weight) in samples.iter().zip(taper) {
            let x = f64::from(*sample) * weight;
            sum.re += x * carrier.re;
            sum.im += x * carrier.im;
            carrier = carrier.by(step);
        }
        let found = Complex { re: 2.0 * sum.re / whole, im: 2.0 * sum.im / whole };
        // A sine: a quarter of a turn behind the cosine that the sum is turned by.
        *turn = (-found.im.atan2(found.re) / TAU - 0.25).rem_euclid(1.0);
        power += (found.re * found.re + found.im * found.im) / 2.0;
        let mut carrier = begin;
        for left in &mut rest {
            *left -= found.re * carrier.re + found.im * carrier.im;
            carrier = carrier.by(step);
        }
    }
    let rest: f64 = rest.iter().zip(taper).map(|(x, w)| (x * w).powi(2)).sum();
    Window { at: at as f64 + WINDOW as f64 / 2.0 - 0.5, turns, power, rest: rest / squares }
}

/// The delay in frames below [`ROUND`], and the greatest doubt among the tones, half turns.
fn resolve(window: &Window, inverted: bool) -> (f64, f64) {
    let over = if inverted { 0.5 } else { 0.0 };
    let turn = |tone: usize| (window.turns[tone] + over).rem_euclid(1.0);
    // Of the first tone 16 frames are a turn.
    let mut delay = turn(0) * 16.0;
    let (mut step, mut doubt) = (16.0, 0.0f64);
    for (tone, frequency) in TONES.iter().enumerate().skip(1) {
        let told = delay * f64::from(*frequency) / ROUND as f64;
        let halves = 2.0 * (turn(tone) - told).rem_euclid(1.0);
        let nearest = halves.round();
        doubt = doubt.max((halves - nearest).abs());
        if nearest == 1.0 {
            delay += step;
        }
        step *= 2.0;
    }
    (delay, doubt)
}

/// `x` shifted by whole rounds to lie as near to `to` as can be.
fn near(x: f64, to: f64) -> f64 {
    let round = ROUND as f64;
    x - ((x - to) / round).round() * round
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

impl Track {
    /// (time, delay, doubt, window) of the windows that are clear.
    fn points(&self) -> Vec<(f64, f64, f64, &Window)> {
        let mut points: Vec<(f64, f64, f64, &Window)> = Vec::new();
        for window in &self.windows {
            let (delay, doubt) = resolve(window, self.inverted);
            if doubt < DOUBT && window.power > 1e-12 {
                let last = points.last().map_or(delay, |point| point.1);
                points.push((window.at, near(delay, last), doubt, window));
            }
        }
        points
    }

    /// The share of windows in which the tones are clear.
    pub fn clear(&self) -> f64 {
        self.points().len() as f64 / self.windows.len().max(1) as f64
    }

    /// `None` where the tones are not clear most of the time.
    pub fn line(&self) -> Option<Line> {
        let points = self.points();
        if self.clear() < CLEAR || points.len() < 4 {
            return None;
        }
        let steps: Vec<f64> =
            points.windows(2).map(|two| (two[1].1 - two[0].1) / (two[1].0 - two[0].0)).collect();
        let usual = median(steps);
        // How far each lies from where the one before says, and how far that usually is.
        let jumps: Vec<(f64, f64)> = points
            .windows(2)
            .map(|two| (two[1].0, two[1].1 - two[0].1 - usual * (two[1].0 - two[0].0)))
            .collect();
        let scatter = median(jumps.iter().map(|jump| jump.1.abs()).collect());
        let slip = self.slip(&points, &jumps, usual, (6.0 * scatter).max(0.5));
        let (middle, delay, slope, error) = fit(&points)?;
        let power = median(points.iter().map(|p| p.3.power).collect());
        let rest = median(points.iter().map(|p| p.3.rest).collect());
        // Windows overlap by half: two of them tell less than twice as much.
        let count = points.len() as f64 / 1.5;
        let length = points.last()?.0 - points.first()?.0;
        let strange = (STRANGE * rest).max(FAINT * power);
        let lost = self
            .windows
            .iter()
            .find(|w| w.rest > strange && rest < power / 10.0)
            .map(|window| window.at);
        Some(Line {
            // A little below nothing is noise around nothing, not a whole round.
            delay: near(delay, ROUND as f64 / 2.0 - LEAST),
            middle,
            slope,
            uncertainty: 1.96 * error / count.sqrt(),
            slope_uncertainty: 1.96 * error * 12.0f64.sqrt() / (length * count.sqrt()),
            inverted: self.inverted,
            gain: (power / self.sent.max(1e-30)).sqrt(),
            snr_db: 10.0 * (power / rest.max(1e-15)).max(1e-15).log10(),
            doubt: points.iter().map(|p| p.2).fold(0.0, f64::max),
            slip,
            lost,
        })
    }

    /// The first jump: from the median before it to the median after it.
    fn slip(
        &self,
        points: &[(f64, f64, f64, &Window)],
        jumps: &[(f64, f64)],
        usual: f64,
        most: f64,
    ) -> Option<(f64, f64)> {
        let at = jumps.iter().position(|jump| jump.1.abs() > most)?;
        let level = |part: &[(f64, f64, f64, &Window)]| {
            median(part.iter().map(|p| p.1 - usual * p.0).collect())
        };
        let (before, after) = points.split_at(at + 1);
        let frames = level(after) - level(before);
        // A window that is wrong by itself is no slip: what is missing there is told as lost.
        (frames.abs() > most / 2.0).then_some((jumps[at].0 - HOP as f64 / 2.0, frames))
    }
}

/// Least squares: middle, value there, slope, standard deviation of what is left.
fn fit(points: &[(f64, f64, f64, &Window)]) -> Option<(f64, f64, f64, f64)> {
    let n = points.len() as f64;
    let middle = points.iter().map(|p| p.0).sum::<f64>() / n;
    let value = points.iter().map(|p| p.1).sum::<f64>() / n;
    let (mut over, mut under) = (0.0, 0.0);
    for point in points {
        over += (point.0 - middle) * (point.1 - value);
        under += (point.0 - middle).powi(2);
    }
    let slope = if under > 0.0 { over / under } else { return None };
    let left: f64 =
        points.iter().map(|p| (p.1 - value - slope * (p.0 - middle)).powi(2)).sum::<f64>();
    Some((middle, value, slope, (left / (n - 2.0).max(1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_resolved_from_its_phases_either_way_up() {
        for delay in [0.0, 0.25, 15.99, 1000.37, 40_000.5, 65_000.125] {
            for inverted in [false, true] {
                let over = if inverted { 0.5 } else { 0.0 };
                let turns = TONES.map(|f| (delay * f64::from(f) / ROUND as f64 + over).fract());
                let window = Window { at: 0.0, turns, power: 1.0, rest: 0.0 };
                let (found, doubt) = resolve(&window, inverted);
                assert!((near(found, delay) - delay).abs() < 1e-6, "{found} for {delay}");
                assert!(doubt < 1e-6, "{doubt}");
                assert!(resolve(&window, !inverted).1 > 0.4, "the wrong way up is doubted");
            }
        }
    }
}
