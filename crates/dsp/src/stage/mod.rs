//! The plain stages: level, time, filters, dynamics, meters.
//!
//! Each file holds one stage: what may be written about it in a strip (its keys), how it is
//! prepared, and its loop. Filters and detectors keep their state in f64.

mod amp;
pub mod biquad;
pub mod compressor;
pub mod dc;
pub mod delay;
pub mod design;
pub mod dither;
pub mod eq;
pub mod gain;
pub mod gate;
mod ir;
pub mod limiter;
pub mod loudness;
pub mod meter;
pub mod mix;
mod ramp;
pub mod tone;
pub mod tuner;

pub(crate) use amp::AMP;
pub(crate) use ir::IR;
pub(crate) use ramp::Ramp;

use quiet_types::SampleRate;

/// The factor of a level in dB.
pub fn factor(db: f64) -> f64 {
    10f64.powf(db / 20.0)
}

/// The level in dB of a factor; -inf for 0.
pub fn decibels(factor: f64) -> f64 {
    20.0 * factor.abs().log10()
}

/// So many milliseconds in frames, with the fraction.
fn frames(ms: f64, rate: SampleRate) -> f64 {
    ms * 1e-3 * f64::from(rate.0)
}

/// The factor a frame with which a one-pole follower covers 1 - 1/e of a step in `ms`.
fn smoothing(ms: f64, rate: SampleRate) -> f64 {
    let frames = frames(ms, rate);
    if frames < 1e-3 { 0.0 } else { (-1.0 / frames).exp() }
}

/// What is too small to be heard becomes zero before it becomes a denormal.
fn settled(state: f64) -> f64 {
    if state.abs() < 1e-25 { 0.0 } else { state }
}
