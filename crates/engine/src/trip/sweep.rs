//! The delay by the sweep: what came in, divided by what was sent, within the sweep's band.

use super::sound::{BAND, SWEEP, TestSignal, sweep};
use realfft::{RealFftPlanner, num_complex::Complex};
use std::f64::consts::TAU;

/// The echo must stand so far above what else there is: noise reaches 5 in a hundred thousand.
const ABOVE: f64 = 8.0;
/// Frames on either side of an echo that are its own.
const OWN: usize = 256;

/// Where the sweep came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Frames.
    pub delay: f64,
    /// When it began to come back, frames of the pass.
    pub at: f64,
    pub inverted: bool,
}

/// Looks for the sweep that was sent at `sent`, where the capturing clock is faster by `drift`.
pub(super) fn find(sound: &TestSignal, came: &[f32], sent: usize, drift: f64) -> Option<Found> {
    let length = (SWEEP + sound.longest + OWN).next_power_of_two() * 2;
    let mut planner = RealFftPlanner::<f64>::new();
    let forward = planner.plan_fft_forward(length);
    let spectrum = |samples: &mut Vec<f64>| -> Option<Vec<Complex<f64>>> {
        let mut spectrum = forward.make_output_vec();
        forward.process(samples, &mut spectrum).ok()?;
        Some(spectrum)
    };
    let mut heard = vec![0.0; length];
    let end = (sent + SWEEP + sound.longest + OWN).min(came.len());
    for (to, from) in heard.iter_mut().zip(came.get(sent..end)?) {
        *to = f64::from(*from);
    }
    let mut reference: Vec<f64> = (0..length).map(|n| sweep(n as f64 * (1.0 - drift))).collect();
    let (heard, reference) = (spectrum(&mut heard)?, spectrum(&mut reference)?);
    // The band alone, its edges rounded off; outside it nothing was sent.
    let most = reference.iter().map(Complex::norm_sqr).fold(0.0, f64::max);
    let response: Vec<Complex<f64>> = heard
        .iter()
        .zip(&reference)
        .enumerate()
        .map(|(bin, (heard, sent))| {
            let frequency = bin as f64 / length as f64;
            *heard * sent.conj() / (sent.norm_sqr() + 1e-6 * most) * band(frequency)
        })
        .collect();
    let inverse = planner.plan_fft_inverse(length);
    let (mut spectrum, mut echo) = (response.clone(), inverse.make_output_vec());
    spectrum[0].im = 0.0;
    spectrum[length / 2].im = 0.0;
    inverse.process(&mut spectrum, &mut echo).ok()?;
    // Over all of it: the foot of an echo that comes too late is no echo.
    let (at, peak) =
        echo.iter().enumerate().map(|(at, x)| (at, x.abs())).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let within = &echo[..sound.longest + OWN];
    let rest: Vec<f64> = within
        .iter()
        .enumerate()
        .filter(|(n, _)| n.abs_diff(at) > OWN)
        .map(|(_, x)| x * x)
        .collect();
    let rest = (rest.iter().sum::<f64>() / rest.len().max(1) as f64).sqrt();
    if at >= within.len() || peak <= ABOVE * rest || peak < 1e-9 {
        return None;
    }
    let inverted = echo[at] < 0.0;
    let delay = summit(&response, at as f64, if inverted { -1.0 } else { 1.0 });
    Some(Found { delay, at: sent as f64 + delay, inverted })
}

/// 1 inside the sweep's band, 0 outside, raised cosines between.
fn band(frequency: f64) -> f64 {
    let (low, high) = (BAND.0 * 1.5, BAND.1 * 0.95);
    let edge = |x: f64| 0.5 - 0.5 * (x.clamp(0.0, 1.0) * TAU / 2.0).cos();
    edge((frequency - BAND.0) / (low - BAND.0)) * edge((BAND.1 - frequency) / (BAND.1 - high))
}

/// The top of the echo near `at`, between the frames: Newton's method on its exact derivatives.
fn summit(response: &[Complex<f64>], at: f64, sign: f64) -> f64 {
    let length = 2.0 * (response.len() - 1) as f64;
    let last = (response.len() as f64 * 2.0 * BAND.1) as usize + 1;
    let mut x = at;
    for _ in 0..8 {
        let (mut first, mut second) = (0.0, 0.0);
        for (bin, value) in response.iter().enumerate().take(last) {
            let omega = TAU * bin as f64 / length;
            let turned = *value * Complex::from_polar(1.0, omega * x);
            first -= omega * turned.im;
            second -= omega * omega * turned.re;
        }
        // On a summit the second derivative is negative.
        if second * sign >= 0.0 {
            return x;
        }
        let step = (first / second).clamp(-0.5, 0.5);
        x -= step;
        if step.abs() < 1e-9 {
            break;
        }
    }
    x.clamp(at - 1.0, at + 1.0)
}
