//! The processor's counter, calibrated against `CLOCK_MONOTONIC`.

use crate::{Root, sys::clock as sys};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The counter.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Ticks between the two counter reads around the clock read: the moment is known to half
    /// of it.
    pub width: u64,
}

impl Pair {
    /// Now.
    #[inline(always)]
    pub fn take() -> Pair {
        let before = sys::ticks();
        let ns = sys::monotonic();
        let width = sys::ticks().saturating_sub(before);
        Pair { ticks: before + width / 2, ns, width }
    }

    /// The sharpest of many.
    pub fn best() -> Pair {
        let mut best = Pair::take();
        for _ in 0..200 {
            let next = Pair::take();
            if next.width <= best.width {
                best = next;
            }
        }
        best
    }
}

/// Turns ticks into ns by one multiplication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// ns a tick, times 2^32.
    multiplier: u64,
    /// Ticks a second.
    pub hertz: f64,
}

impl Scale {
    /// From the ticks that passed in so many ns.
    pub fn from_span(ticks: u64, ns: u64) -> Scale {
        let hertz = ticks.max(1) as f64 * 1e9 / ns.max(1) as f64;
        Scale { multiplier: (1e9 / hertz * 4_294_967_296.0).round() as u64, hertz }
    }

    /// From two moments.
    pub fn between(first: Pair, last: Pair) -> Scale {
        Scale::from_span(last.ticks.saturating_sub(first.ticks), last.ns.saturating_sub(first.ns))
    }

    /// A span of ticks in ns.
    #[inline(always)]
    pub fn nanos(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.multiplier)) >> 32) as u64
    }
}

/// The counter's rate and a moment on both clocks; `None` where neither the kernel trusts the
/// counter nor the processor says that it is steady. Takes 20 ms.
pub fn calibrate(root: &Root) -> (Option<Scale>, Pair) {
    let first = Pair::best();
    if !counter_is_steady(root) {
        return (None, first);
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    let last = Pair::best();
    (Some(Scale::between(first, last)), last)
}

fn counter_is_steady(root: &Root) -> bool {
    if sys::COUNTER == "cntvct" {
        // Architected: one constant rate on all CPUs, also asleep.
        return true;
    }
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if root.read_if_there(path).ok().flatten().as_deref() == Some(sys::COUNTER) {
        return true;
    }
    let cpuinfo = root.read("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    sys::COUNTER == "tsc" && has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_exact_to_a_few_parts_in_a_thousand_million() {
        for (hertz, span) in [(24e6, 3600u64), (2.25e9, 3600), (5.7e9, 86_400)] {
            let ticks = (hertz as u64) * span;
            let scale = Scale::from_span(ticks, span * 1_000_000_000);
            let error = scale.nanos(ticks).abs_diff(span * 1_000_000_000);
            assert!(error <= span * 5, "{hertz}: {error} ns in {span} s");
        }
    }
}
