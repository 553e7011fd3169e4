//! The processor's counter, `CLOCK_MONOTONIC`, and an absolute sleep.
#![allow(unsafe_code)]

use rustix::time::{ClockId, Timespec};

/// Name of the counter that [`ticks`] reads.
pub const COUNTER: &str = if cfg!(target_arch = "x86_64") {
    "tsc"
} else if cfg!(target_arch = "aarch64") {
    "cntvct"
} else {
    "clock_gettime"
};

/// The processor's counter: TSC on x86_64, `CNTVCT_EL0` on aarch64, else `CLOCK_MONOTONIC` in ns.
///
/// Not serialised: the read may be taken a few instructions early or late. Counters of two CPUs
/// are to be compared only where the kernel itself does (clock source `tsc`).
///
/// # Real time
/// One instruction; 10 to 20 ns on most machines.
///
/// # Source
/// RDTSC in the AMD64 and Intel manuals; `CNTVCT_EL0` in the Arm architecture manual.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC exists on every x86_64 processor and touches no memory. A process that
        // forbade it to itself by PR_SET_TSC would get SIGSEGV; this program never does.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: reads a counter register that Linux leaves readable to user space.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack, preserves_flags));
        }
        now
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        monotonic()
    }
}

/// Ticks a second of [`ticks`] as the processor tells them: `CNTFRQ_EL0` on aarch64; `None` elsewhere, or where it tells 0.
///
/// The firmware writes it; the kernel makes `CLOCK_MONOTONIC` of the same number, or of the device tree's in its place.
///
/// # Source
/// `CNTFRQ_EL0` in the Arm architecture manual; readable wherever `CNTVCT_EL0` is (`arch_counter_set_user_access` of Linux).
pub fn told_hertz() -> Option<u64> {
    #[cfg(target_arch = "aarch64")]
    {
        let hertz: u64;
        // SAFETY: reads a register that Linux leaves readable to user space, or emulates.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags));
        }
        (hertz > 0).then_some(hertz)
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        None
    }
}

/// `CLOCK_MONOTONIC` in ns.
///
/// # Real time
/// No system call where the vDSO serves the clock source; about 40 ns.
#[inline]
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    // Neither part is negative: this clock starts at boot.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until `CLOCK_MONOTONIC` reads `at` ns, or a signal came; returns at once when it has
/// passed. The caller looks at the clock.
///
/// # Real time
/// One system call, made without the C library: nothing lies between the kernel's return and the
/// caller.
///
/// # Source
/// clock_nanosleep(2), `TIMER_ABSTIME`.
#[inline(always)]
pub fn sleep_until(at: u64) {
    let at = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
    // The one error that can come here is EINTR.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Whether the kernel's timers have high resolution: each has an interrupt of its own, and the tick is one of them.
///
/// # Source
/// clock_getres(2); `hrtimer_switch_to_hres`, kernel/time/hrtimer.c.
pub fn high_resolution() -> bool {
    let finest = rustix::time::clock_getres(ClockId::Monotonic);
    (finest.tv_sec, finest.tv_nsec) == (0, 1)
}

/// Time since the epoch, for dating runs.
pub fn wall() -> (u64, u32) {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    (u64::try_from(now.tv_sec).unwrap_or(0), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_and_the_clock_run_forwards() {
        let (ticks_before, before) = (ticks(), monotonic());
        sleep_until(before + 2_000_000);
        assert!(ticks() > ticks_before);
        assert!(monotonic() >= before + 2_000_000);
    }

    #[test]
    fn a_time_that_has_passed_does_not_sleep_for_ever() {
        sleep_until(1);
    }
}
