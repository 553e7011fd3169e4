//! What the processor's vector unit does at most: the yardstick beside every figure.

use super::Level;

/// Independent chains of multiply-adds: more than any unit's latency asks for.
const CHAINS: usize = 12;
/// Lanes of a chain: one register of AVX-512; half of it is one of AVX2.
const WIDTH: usize = 16;

/// Does `rounds` rounds of multiply-adds, and says how many that were. The result is handed back
/// so that nobody leaves the work out.
pub fn multiply_adds(level: Level, rounds: u32) -> (f32, u64) {
    let sum = match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: whoever hands this level in has seen the processor's features.
        Level::Avx2 => unsafe { avx2(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512(rounds) },
        _ => plain(rounds),
    };
    let lanes = match level {
        Level::Avx2 => WIDTH / 2,
        _ => WIDTH,
    };
    (sum, u64::from(rounds) * (CHAINS * lanes) as u64)
}

fn plain(rounds: u32) -> f32 {
    let mut sums = [[1.0f32; WIDTH]; CHAINS];
    let (a, b) = (std::hint::black_box(0.999_9), std::hint::black_box(1e-4));
    for _ in 0..rounds {
        for sum in sums.iter_mut().flatten() {
            *sum = *sum * a + b;
        }
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(rounds: u32) -> f32 {
    use std::arch::x86_64::{_mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let mut sums = [_mm256_set1_ps(1.0); CHAINS];
    let (a, b) = (std::hint::black_box(0.999_9), std::hint::black_box(1e-4));
    let (a, b) = (_mm256_set1_ps(a), _mm256_set1_ps(b));
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    // All lanes of a chain are alike.
    sums.iter().map(|sum| _mm256_cvtss_f32(*sum)).sum::<f32>() * (WIDTH / 2) as f32
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
fn avx512(rounds: u32) -> f32 {
    use std::arch::x86_64::{_mm512_cvtss_f32, _mm512_fmadd_ps, _mm512_set1_ps};
    let mut sums = [_mm512_set1_ps(1.0); CHAINS];
    let (a, b) = (std::hint::black_box(0.999_9), std::hint::black_box(1e-4));
    let (a, b) = (_mm512_set1_ps(a), _mm512_set1_ps(b));
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    sums.iter().map(|sum| _mm512_cvtss_f32(*sum)).sum::<f32>() * WIDTH as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_counts_what_it_does() {
        for level in Level::all() {
            let (sum, count) = multiply_adds(level, 1000);
            // Each chain goes to 1 from 1: a + b = 1.
            let lanes = count as f32 / 1000.0;
            assert!((sum / lanes - 1.0).abs() < 1e-3, "{level:?}: {sum} of {lanes}");
        }
    }
}
