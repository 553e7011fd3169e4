//! What the processor's vector unit does at most: the yardstick beside every figure.

#![allow(clippy::needless_range_loop, reason = "vectors in step with each other")]

use super::{
    SimdLevel,
    lanes::{Job, Kernel, Lanes},
};
use std::{hint::black_box, time::Instant};

/// Independent chains of multiply-adds: more than any unit's latency asks for.
const CHAINS: usize = 12;

/// Does `rounds` rounds of multiply-adds in registers, and says how many that were. The sum of all
/// lanes is handed back so that nobody leaves the work out.
pub fn multiply_adds(level: SimdLevel, rounds: u32) -> (f32, u64) {
    Kernel::new(level).run(Spin { rounds })
}

struct Spin {
    rounds: u32,
}

impl Job for Spin {
    type Out = (f32, u64);

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> (f32, u64) {
        spin(l, self.rounds)
    }
}

/// Gflop/s of it (two to a multiply-add), the best of some milliseconds.
///
/// # Real time
/// No: it reads the clock and takes its time.
pub fn gigaflops(level: SimdLevel) -> f64 {
    (0..40)
        .map(|_| {
            let begin = Instant::now();
            let (sum, count) = multiply_adds(level, black_box(20_000));
            black_box(sum);
            2.0 * count as f64 / begin.elapsed().as_nanos().max(1) as f64
        })
        .fold(0.0, f64::max)
}

#[inline(always)]
fn spin<L: Lanes>(l: L, rounds: u32) -> (f32, u64) {
    let mut sums = [l.splat(1.0); CHAINS];
    let (a, b) = (l.splat(black_box(0.999_9)), l.splat(black_box(1e-4)));
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = l.fma(*sum, a, b);
        }
    }
    let mut out = [[0.0f32; 16]; CHAINS];
    for (row, &sum) in out.iter_mut().zip(&sums) {
        l.write(sum, row);
    }
    (out.iter().flatten().sum(), u64::from(rounds) * (CHAINS * L::WIDTH) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_counts_what_it_does() {
        for level in SimdLevel::all() {
            let (sum, count) = multiply_adds(level, 1000);
            // Each chain goes to 1 from 1: a + b = 1.
            let lanes = count as f32 / 1000.0;
            assert!((sum / lanes - 1.0).abs() < 1e-3, "{level:?}: {sum} of {lanes}");
        }
    }
}
