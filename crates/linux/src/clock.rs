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
pub struct TickScale {
    /// ns a tick, times 2^32.
    multiplier: u64,
    /// Ticks a second.
    pub hertz: f64,
}

impl TickScale {
    /// From the ticks that passed in so many ns.
    pub fn from_span(ticks: u64, ns: u64) -> TickScale {
        let hertz = ticks.max(1) as f64 * 1e9 / ns.max(1) as f64;
        TickScale { multiplier: (1e9 / hertz * 4_294_967_296.0).round() as u64, hertz }
    }

    /// From two moments.
    pub fn between(first: Pair, last: Pair) -> TickScale {
        TickScale::from_span(
            last.ticks.saturating_sub(first.ticks),
            last.ns.saturating_sub(first.ns),
        )
    }

    /// A span of ticks in ns.
    #[inline(always)]
    pub fn nanos(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.multiplier)) >> 32) as u64
    }
}

/// The counter's rate and a moment on both clocks; `None` where the kernel does not trust the counter ([`distrust`] says
/// why). Takes 20 ms.
pub fn calibrate(root: &Root) -> (Option<TickScale>, Pair) {
    let first = Pair::best();
    if distrust(root).is_some() {
        return (None, first);
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    let last = Pair::best();
    (Some(TickScale::between(first, last)), last)
}

/// Why the processor's counter is not to be read in the place of a clock; `None` where it may be.
///
/// What the processor says of its counter is not enough: the kernel watches it beside another clock, and gives it up where
/// it finds it wrong. A counter that was given up is no longer among the clock sources that can be chosen.
///
/// # Source
/// `/sys/devices/system/clocksource`; `clocksource_watchdog` and `sysfs_show_available_clocksources`,
/// kernel/time/clocksource.c.
pub fn distrust(root: &Root) -> Option<String> {
    counter_distrust(root, sys::COUNTER)
}

/// Clocks of hypervisors that are made of the counter, which the kernel may prefer to it.
const MADE_OF_IT: [&str; 3] = ["kvm-clock", "hyperv_clocksource_tsc_page", "xen"];

fn counter_distrust(root: &Root, counter: &str) -> Option<String> {
    match counter {
        // Architected: one constant rate on all CPUs, also asleep.
        "cntvct" => return None,
        "tsc" => {}
        _ => return Some("this processor has no counter that this program knows".to_owned()),
    }
    let read = |name: &str| {
        let path = format!("/sys/devices/system/clocksource/clocksource0/{name}");
        root.read_if_there(&path).ok().flatten().map(|text| text.trim().to_owned())
    };
    let Some(current) = read("current_clocksource") else {
        return Some("the kernel does not say which clock source it keeps time by".to_owned());
    };
    if current == counter {
        return None;
    }
    let available = read("available_clocksource").unwrap_or_default();
    if !available.split_whitespace().any(|source| source == counter) {
        return Some(format!(
            "the kernel has given the counter {counter} up, or never trusted it: it keeps time by {current}"
        ));
    }
    if MADE_OF_IT.contains(&current.as_str()) {
        let cpuinfo = root.read("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let has = |flag| flags.split_whitespace().any(|word| word == flag);
        if has("constant_tsc") && has("nonstop_tsc") {
            return None;
        }
    }
    Some(format!("the kernel keeps time by {current}, and not by the counter {counter}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_trusted_as_far_as_the_kernel_trusts_it() {
        let steady = "flags\t\t: fpu tsc constant_tsc nonstop_tsc\n";
        let why = |current: &str, available: &str, flags: &str| {
            let dir = tempfile::tempdir().unwrap();
            let source = dir.path().join("sys/devices/system/clocksource/clocksource0");
            std::fs::create_dir_all(&source).unwrap();
            std::fs::create_dir_all(dir.path().join("proc")).unwrap();
            std::fs::write(source.join("current_clocksource"), format!("{current}\n")).unwrap();
            std::fs::write(source.join("available_clocksource"), format!("{available} \n"))
                .unwrap();
            std::fs::write(dir.path().join("proc/cpuinfo"), flags).unwrap();
            counter_distrust(&Root::at(dir.path()).unwrap(), "tsc")
        };
        assert_eq!(why("tsc", "tsc hpet acpi_pm", steady), None);
        assert_eq!(why("tsc", "tsc", "flags\t\t: tsc\n"), None, "as the kernel says");
        assert_eq!(why("kvm-clock", "kvm-clock tsc acpi_pm", steady), None);
        // Given up: the flags still say that it is steady.
        let given_up = why("hpet", "hpet acpi_pm", steady).unwrap();
        assert!(given_up.contains("given the counter tsc up") && given_up.contains("hpet"));
        assert!(why("kvm-clock", "kvm-clock acpi_pm", steady).is_some());
        // Chosen by hand.
        assert!(why("hpet", "tsc hpet acpi_pm", steady).unwrap().contains("keeps time by hpet"));
        assert!(why("kvm-clock", "kvm-clock tsc", "flags\t\t: tsc\n").is_some());
    }

    #[test]
    fn a_scale_is_exact_to_a_few_parts_in_a_thousand_million() {
        for (hertz, span) in [(24e6, 3600u64), (2.25e9, 3600), (5.7e9, 86_400)] {
            let ticks = (hertz as u64) * span;
            let scale = TickScale::from_span(ticks, span * 1_000_000_000);
            let error = scale.nanos(ticks).abs_diff(span * 1_000_000_000);
            assert!(error <= span * 5, "{hertz}: {error} ns in {span} s");
        }
    }
}
