//! How fast this processor multiplies and adds: the ruler beside every figure of a stage.

use super::{
    Level,
    fir_lanes::{Lanes, Plain},
};
use std::{hint::black_box, time::Instant};

/// Gflop/s of fused multiply-adds in registers, in single precision, over a millisecond or so.
///
/// # Real time
/// No: it reads the clock and takes its time.
pub fn gigaflops() -> f64 {
    const TURNS: usize = 20_000;
    let begin = Instant::now();
    let lanes = match Level::here() {
        Level::Plain => spin::<Plain>(TURNS),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor was just seen to have it.
        Level::Avx2 => unsafe { avx2(TURNS) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512(TURNS) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => spin::<Plain>(TURNS),
    };
    let seconds = begin.elapsed().as_secs_f64();
    (TURNS * CHAINS * lanes * 2) as f64 / seconds / 1e9
}

/// More sums than latency times ports.
const CHAINS: usize = 12;

#[inline(always)]
fn spin<L: Lanes>(turns: usize) -> usize {
    let (a, b) = (L::splat(black_box(0.999)), L::splat(black_box(1e-3)));
    let mut sums = [L::splat(black_box(1.0)); CHAINS];
    for _ in 0..turns {
        for sum in &mut sums {
            *sum = sum.mul_add(a, b);
        }
    }
    let mut out = [0.0; 16];
    for sum in sums {
        sum.store(&mut out);
        black_box(&out);
    }
    L::WIDTH
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(turns: usize) -> usize {
    spin::<super::fir_lanes::Avx2>(turns)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx2,fma")]
fn avx512(turns: usize) -> usize {
    spin::<super::fir_lanes::Avx512>(turns)
}
