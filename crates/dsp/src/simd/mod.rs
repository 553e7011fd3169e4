//! Vector kernels, and the only unsafe code of this crate.
//!
//! Each kernel is written once, generic over the token of its vectors (`lanes`); the plain one is the oracle of
//! the others. Which one runs is decided when a stage is prepared.
#![allow(unsafe_code)]

pub(crate) mod amp_array;
pub(crate) mod amp_lstm;
pub(crate) mod amp_wave;
mod denormals;
pub(crate) mod fir_head;
pub(crate) mod fir_tail;
pub(crate) mod lanes;
pub mod peak;
pub(crate) mod sigmoid;
mod tanh;

pub use denormals::Denormals;

/// What the processor's vector unit can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimdLevel {
    /// What every processor of the target can do (NEON on aarch64).
    Plain,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, DQ and BW, and all of AVX2 and FMA.
    Avx512,
}

impl SimdLevel {
    /// The best level of this processor.
    pub fn here() -> SimdLevel {
        lanes::Kernel::new(SimdLevel::Avx512).level()
    }

    /// Every level that this processor has, the plain one first.
    pub fn all() -> impl Iterator<Item = SimdLevel> {
        let best = SimdLevel::here();
        [SimdLevel::Plain, SimdLevel::Avx2, SimdLevel::Avx512]
            .into_iter()
            .filter(move |&level| level <= best)
    }
}
