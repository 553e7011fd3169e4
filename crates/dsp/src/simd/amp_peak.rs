//! How much a vector unit can do: a measure for what the kernels reach.

#[cfg(target_arch = "x86_64")]
use super::amp_lanes::{Avx2, Avx512};
use super::{
    Level,
    amp_lanes::{FUSED, Kernel, Lanes, Plain},
};

/// Does nothing but multiply and add in registers, `rounds` times over, and says how many operations
/// that were. Their number over the time they took is the peak of this CPU at this moment.
pub fn peak(level: Level, rounds: u32) -> u64 {
    match Kernel::new(level).level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn enabled(rounds: u32) -> u64 {
                // SAFETY: this function is entered only where AVX-512 is.
                work(unsafe { Avx512::new() }, rounds)
            }
            // SAFETY: a kernel's level is here.
            unsafe { enabled(rounds) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            #[target_feature(enable = "avx2,fma")]
            fn enabled(rounds: u32) -> u64 {
                // SAFETY: this function is entered only where AVX2 and FMA are.
                work(unsafe { Avx2::new() }, rounds)
            }
            // SAFETY: a kernel's level is here.
            unsafe { enabled(rounds) }
        }
        _ => work(Plain::<FUSED>, rounds),
    }
}

#[inline(always)]
fn work<L: Lanes>(l: L, rounds: u32) -> u64 {
    let mut acc = [l.splat(1.0); 12];
    let (a, b) = (l.splat(std::hint::black_box(0.999_999)), l.splat(std::hint::black_box(1e-6)));
    for _ in 0..rounds {
        for acc in &mut acc {
            *acc = l.fma(*acc, a, b);
        }
    }
    let mut sum = acc[0];
    for acc in &acc[1..] {
        sum = l.add(sum, *acc);
    }
    let mut out = [0.0f32; 16];
    // SAFETY: there is room for the widest vector.
    unsafe { l.store(out.as_mut_ptr(), sum) };
    std::hint::black_box(out);
    u64::from(rounds) * 12 * 2 * L::WIDTH as u64
}
