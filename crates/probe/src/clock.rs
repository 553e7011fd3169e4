//! The calibrated counter, and the timers made of it.

pub(crate) use quiet_linux::clock::{Pair, TickScale};
use quiet_linux::{Root, clock::calibrate, sys::clock as sys};
use quiet_rt::{Clock, Timer};
use quiet_types::{Nanos, run};
use std::hint::black_box;

/// What stamps the readings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Counter(Counter),
    Plain(Plain),
}

/// The processor's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(pub(crate) TickScale);

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
        match calibrate(root) {
            (Some(scale), pair) => (Source::Counter(Counter(scale)), pair),
            (None, pair) => (Source::Plain(Plain), pair),
        }
    }

    /// What it costs and how good it is, measured on the CPU of the caller; `drift_ppm` is left
    /// for the end of the run.
    pub(crate) fn describe(&self) -> run::RunClock {
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
        run::RunClock { source: source.to_owned(), hertz, read, placing, ..Default::default() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, skip};

    #[test]
    fn a_stamp_lies_between_the_clock_reads_around_it() {
        let root = Root::system().unwrap();
        let (source, pair) = Source::choose(&root);
        let Source::Counter(counter) = source else {
            return skip(Why::Machine("this machine has no steady counter".to_owned()));
        };
        // What the anchor does not know, a little for rounding, and what the kernel's clock may be set right by since: at most a
        // two-thousandth of the time, however long the machine keeps this thread waiting.
        let error =
            |at: u64| counter.nanos(pair.width) + 1_000 + at.saturating_sub(pair.ns) / 2_000;
        for _ in 0..1000 {
            let before = sys::monotonic();
            let stamp = pair.ns + counter.nanos(sys::ticks().saturating_sub(pair.ticks));
            let after = sys::monotonic();
            let error = error(after);
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
