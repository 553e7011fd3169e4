//! The calibrated counter, and the timers made of it.

use quiet_linux::{Root, sys::clock as sys};
use quiet_rt::{Clock, Timer};
use quiet_types::{Nanos, run};
use std::hint::black_box;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    ticks: u64,
    ns: u64,
    /// Ticks between the two counter reads around the clock read: the moment is known to half
    /// of it.
    width: u64,
}

impl Pair {
    #[inline(always)]
    fn take() -> Pair {
        let before = sys::ticks();
        let ns = sys::monotonic();
        let width = sys::ticks().saturating_sub(before);
        Pair { ticks: before + width / 2, ns, width }
    }

    /// The sharpest of many.
    pub(crate) fn best() -> Pair {
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
pub(crate) struct Scale {
    /// ns a tick, times 2^32.
    multiplier: u64,
    /// Ticks a second.
    pub(crate) hertz: f64,
}

impl Scale {
    /// From the ticks that passed in so many ns.
    fn from_span(ticks: u64, ns: u64) -> Scale {
        let hertz = ticks.max(1) as f64 * 1e9 / ns.max(1) as f64;
        Scale { multiplier: (1e9 / hertz * 4_294_967_296.0).round() as u64, hertz }
    }

    pub(crate) fn between(first: Pair, last: Pair) -> Scale {
        Scale::from_span(last.ticks.saturating_sub(first.ticks), last.ns.saturating_sub(first.ns))
    }

    #[inline(always)]
    pub(crate) fn nanos(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.multiplier)) >> 32) as u64
    }
}

/// What stamps the readings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Counter(Counter),
    Plain(Plain),
}

/// The processor's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(pub(crate) Scale);

/// `CLOCK_MONOTONIC` itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl Clock for Counter {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        sys::ticks()
    }

    #[inline(always)]
    fn nanos(&self, ticks: u64) -> u64 {
        self.0.nanos(ticks)
    }
}

impl Clock for Plain {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        sys::monotonic()
    }

    #[inline(always)]
    fn nanos(&self, ticks: u64) -> u64 {
        ticks
    }
}

/// Wakes are early by less than this only because a stamp has an error.
const SLACK: u64 = 2_000;

/// The counter is put on `CLOCK_MONOTONIC` anew before each sleep: within one period no drift
/// counts, and after the sleep one instruction gives the stamp, before any page of the vDSO or of
/// our own data is touched.
impl Timer for Counter {
    #[inline(always)]
    fn sleep_until(&mut self, at: u64) -> u64 {
        loop {
            let mut pair = Pair::take();
            // An interrupt may fall between the reads; three in a row are another matter.
            for _ in 0..2 {
                if self.0.nanos(pair.width) < 200 {
                    break;
                }
                pair = Pair::take();
            }
            sys::sleep_until(at);
            let ticks = sys::ticks();
            let now = match ticks.checked_sub(pair.ticks) {
                Some(slept) => pair.ns + self.0.nanos(slept),
                // The counter was set back (suspend, migration of a virtual machine).
                None => sys::monotonic(),
            };
            if now + SLACK >= at {
                return now.max(at);
            }
        }
    }
}

impl Timer for Plain {
    #[inline(always)]
    fn sleep_until(&mut self, at: u64) -> u64 {
        loop {
            sys::sleep_until(at);
            let now = sys::monotonic();
            if now >= at {
                return now;
            }
        }
    }
}

impl Source {
    /// The counter, where the kernel itself trusts it or the processor says that it is steady;
    /// else `CLOCK_MONOTONIC`. Takes 20 ms.
    pub(crate) fn choose(root: &Root) -> (Source, Pair) {
        let first = Pair::best();
        if !counter_is_steady(root) {
            return (Source::Plain(Plain), first);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let last = Pair::best();
        (Source::Counter(Counter(Scale::between(first, last))), last)
    }

    /// What it costs and how good it is, measured on the CPU of the caller; `drift_ppm` is left
    /// for the end of the run.
    pub(crate) fn describe(&self) -> run::Clock {
        let (source, hertz) = match self {
            Source::Counter(c) => (sys::COUNTER, c.0.hertz),
            Source::Plain(_) => ("clock_gettime", 1e9),
        };
        let read = match self {
            Source::Counter(c) => read_cost(c),
            Source::Plain(c) => read_cost(c),
        };
        let placing = match self {
            Source::Counter(c) => Nanos(c.nanos(median(|| Pair::take().width)).div_ceil(2)),
            Source::Plain(_) => Nanos::ZERO,
        };
        run::Clock { source: source.to_owned(), hertz, read, placing, ..Default::default() }
    }
}

/// One bare clock read: the median over blocks of 64.
fn read_cost(clock: &impl Clock) -> Nanos {
    let block = || {
        let first = clock.ticks();
        for _ in 0..63 {
            black_box(clock.ticks());
        }
        clock.nanos(clock.ticks() - first)
    };
    Nanos(median(block) / 64)
}

/// The median of 501 tries.
pub(crate) fn median(mut once: impl FnMut() -> u64) -> u64 {
    let mut tries: Vec<u64> = (0..501).map(|_| once()).collect();
    tries.sort_unstable();
    tries[250]
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

    #[test]
    fn a_stamp_lies_between_the_clock_reads_around_it() {
        let root = Root::system().unwrap();
        let (source, pair) = Source::choose(&root);
        let Source::Counter(counter) = source else {
            eprintln!("skipped: this machine has no steady counter");
            return;
        };
        // What the anchor does not know, and a little for the rounding of a rate over 20 ms.
        let error = counter.nanos(pair.width) + 1_000;
        for _ in 0..1000 {
            let before = sys::monotonic();
            let stamp = pair.ns + counter.nanos(sys::ticks().saturating_sub(pair.ticks));
            let after = sys::monotonic();
            assert!(before <= stamp + error && stamp <= after + error, "{before} {stamp} {after}");
        }
    }

    #[test]
    fn no_timer_wakes_early() {
        let root = Root::system().unwrap();
        let (source, _) = Source::choose(&root);
        for turn in 0..50 {
            let at = sys::monotonic() + turn * 20_000;
            let woke = match source {
                Source::Counter(mut c) => c.sleep_until(at),
                Source::Plain(mut c) => c.sleep_until(at),
            };
            assert!(woke >= at);
            assert!(Plain.sleep_until(at) >= at && sys::monotonic() >= at);
        }
    }
}
