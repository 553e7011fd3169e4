use super::KeyKind;
use crate::stage::{
    AMP, IR, biquad, compressor, dc, delay, dither, eq, gain, gate, limiter, meter, mix, tone,
    tuner,
};

/// Every kind of stage that a strip may name.
pub static KINDS: &[KeyKind] = &[
    AMP,
    IR,
    gain::GAIN,
    gain::POLARITY,
    delay::DELAY,
    mix::MIX,
    biquad::BIQUAD,
    biquad::BUTTERWORTH,
    biquad::LINKWITZ_RILEY,
    eq::EQ,
    tone::TONE,
    gate::GATE,
    compressor::COMPRESSOR,
    limiter::LIMITER,
    dc::DC,
    dither::DITHER,
    meter::METER,
    tuner::TUNER,
];
