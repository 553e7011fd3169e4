//! Numbers too small to matter, and slow to compute with.

use std::{arch::asm, marker::PhantomData};

/// While it lives, this thread's denormal numbers are zeros, going in and coming out.
///
/// Whoever calls [`process`](crate::Stage::process) sets it, once around the loop: a stage does not.
/// The state belongs to the thread, so the guard cannot leave it.
///
/// # Real time
/// Yes: two instructions.
#[must_use = "denormals are back as soon as this is dropped"]
pub struct Denormals {
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(dead_code))]
    before: u64,
    stays: PhantomData<*const ()>,
}

impl Denormals {
    /// Flushes them until the guard is dropped.
    pub fn flush() -> Denormals {
        let before = read();
        write(before | FLUSH);
        Denormals { before, stays: PhantomData }
    }
}

impl Drop for Denormals {
    fn drop(&mut self) {
        write(read() & !FLUSH | self.before & FLUSH);
    }
}

/// MXCSR: flush to zero (15), denormals are zeros (6).
#[cfg(target_arch = "x86_64")]
const FLUSH: u64 = 1 << 15 | 1 << 6;
/// FPCR: FZ.
#[cfg(target_arch = "aarch64")]
const FLUSH: u64 = 1 << 24;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FLUSH: u64 = 0;

#[cfg(target_arch = "x86_64")]
fn read() -> u64 {
    let mut state = 0u32;
    // SAFETY: stores the 32 bits of MXCSR where the pointer leads: to a live local.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut state, options(nostack, preserves_flags)) };
    u64::from(state)
}

#[cfg(target_arch = "x86_64")]
fn write(state: u64) {
    let state = state as u32;
    // SAFETY: loads MXCSR from a live local; only the two flush bits ever differ from what was read,
    // so no exception is unmasked and rounding stays as it was.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
fn read() -> u64 {
    let state: u64;
    // SAFETY: reads a register that user code may read.
    unsafe { asm!("mrs {}, fpcr", out(reg) state, options(nomem, nostack, preserves_flags)) };
    state
}

#[cfg(target_arch = "aarch64")]
fn write(state: u64) {
    // SAFETY: writes a register that user code may write; only FZ differs from what was read.
    unsafe { asm!("msr fpcr, {}", in(reg) state, options(nomem, nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read() -> u64 {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn write(_: u64) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn denormals_are_zeros_only_while_the_guard_lives() {
        let half = || black_box(f32::MIN_POSITIVE) * black_box(0.5);
        assert!(half() > 0.0);
        let outer = Denormals::flush();
        assert_eq!(half(), 0.0);
        drop(Denormals::flush());
        assert_eq!(half(), 0.0, "an inner guard leaves the outer one's state");
        drop(outer);
        assert!(half() > 0.0);
    }
}
