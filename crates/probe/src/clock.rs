//! The calibrated counter, and the timers made of it.

pub(crate) use quiet_linux::clock::{Pair, TickScale};
use quiet_linux::{Root, clock::calibrate, evl::Evl, sys::clock as sys};
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
impl Counter {
    #[inline(always)]
    fn sleep_by(&self, at: u64, sleep: impl Fn(u64)) -> u64 {
        loop {
            let mut pair = Pair::take();
            // An interrupt may fall between the reads; three in a row are another matter.
            for _ in 0..2 {
                if self.0.nanos(pair.width) < 200 {
                    break;
                }
                pair = Pair::take();
            }
            sleep(at);
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

impl Timer for Counter {
    #[inline(always)]
    fn sleep_until(&mut self, at: u64) -> u64 {
        self.sleep_by(at, sys::sleep_until)
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

/// The timer of a thread that the EVL core schedules: the core has it sleep, the same clock stamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutOfBand<C> {
    pub(crate) core: Evl,
    pub(crate) clock: C,
}

impl Timer for OutOfBand<Counter> {
    #[inline(always)]
    fn sleep_until(&mut self, at: u64) -> u64 {
        self.clock.sleep_by(at, |at| self.core.sleep_until(at))
    }
}

impl Timer for OutOfBand<Plain> {
    #[inline(always)]
    fn sleep_until(&mut self, at: u64) -> u64 {
        loop {
            self.core.sleep_until(at);
            let now = self.core.monotonic();
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
        let step = match self {
            Source::Counter(c) => step(c),
            Source::Plain(c) => step(c),
        };
        let told_hertz = sys::told_hertz().filter(|_| matches!(self, Source::Counter(_)));
        let why = why(source, step, read);
        let source = source.to_owned();
        run::RunClock { source, hertz, read, placing, step, told_hertz, why, ..Default::default() }
    }
}

/// A read of the counter that takes so long is no instruction: the kernel reads it in the program's place. A trap and its return take
/// some hundred ns on the processors that need it, an instruction 10 to 40.
const TRAPPED: Nanos = Nanos(150);

/// Why this clock is the one, in a sentence or two.
fn why(source: &str, step: Nanos, read: Nanos) -> String {
    let chosen = match source {
        "cntvct" => {
            "architected: one rate on every CPU, whatever its frequency, and CLOCK_MONOTONIC is made of it; a cycle counter would be finer, \
             but it changes its rate with the CPU's and stops with it"
        }
        "tsc" => "the kernel keeps time by it, and a read is one instruction",
        _ => "the kernel does not trust the processor's counter, so its own clock stamps",
    };
    let trapped = match source != "clock_gettime" && read >= TRAPPED {
        true => format!(
            "; a read takes {read}, so the kernel or a hypervisor reads it in the program's place (an erratum of the processor, such as \
             858921 of the Cortex-A73, or emulation)"
        ),
        false => String::new(),
    };
    let coarse = match step > read {
        true => format!("; its step of {step} is longer than a read: nothing shorter is seen"),
        false => String::new(),
    };
    format!("{chosen}{trapped}{coarse}")
}

/// The clock's finest step.
fn step(clock: &impl Clock) -> Nanos {
    let reads: Vec<u64> = (0..READS).map(|_| black_box(clock.ticks())).collect();
    let ticks = finest(&reads);
    // Rounded up: a step of 41.7 ns is not shorter than 42.
    let ns = clock.nanos(ticks.saturating_mul(1024));
    Nanos(ns.div_ceil(1024).max(1))
}

/// Reads that a step is found from.
const READS: usize = 4096;

/// The finest step in ticks that a row of reads shows. Where neighbours are equal the clock is slower than a read, and its step is the
/// smallest change. Where all differ it is faster, and what divides all changes is its step (a counter that counts by 32, say).
fn finest(reads: &[u64]) -> u64 {
    let changes: Vec<u64> = reads.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let moved = changes.iter().copied().filter(|change| *change > 0);
    let step = match changes.contains(&0) {
        true => moved.min(),
        false => moved.reduce(divisor),
    };
    step.unwrap_or(1)
}

/// The greatest common divisor (Euclid).
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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
    fn the_step_of_a_clock_is_found_by_reading_it() {
        let of = |period: u64, step: u64| {
            // A counter in units of a tick that moves by `step` ticks at a time, read every `period` ticks, now and then later.
            let mut now = 7;
            let reads: Vec<u64> = (0..4096u64)
                .map(|turn| {
                    now += period + if turn % 97 == 0 { 3 } else { 0 };
                    now / step * step
                })
                .collect();
            finest(&reads)
        };
        // Finer than a read, and coarser.
        assert_eq!(of(20, 1), 1);
        assert_eq!(of(5, 16), 16);
        // One that counts by 32, as some x86 do.
        assert_eq!(of(100, 32), 32);
        assert_eq!(finest(&[5, 5, 5]), 1, "one that stands still has no step to be told");
        // 24 MHz shown in ns, as CLOCK_MONOTONIC shows it on many boards: 41 or 42.
        let reads: Vec<u64> = (0..4000u64).map(|turn| turn * 10 * 24 / 1000 * 1000 / 24).collect();
        assert_eq!(finest(&reads), 41);
    }

    #[test]
    fn a_clock_says_why_it_was_taken_and_what_it_cannot_see() {
        assert!(!why("cntvct", Nanos(16), Nanos(20)).contains("nothing shorter"));
        assert!(
            why("cntvct", Nanos(42), Nanos(12)).contains("step of 42 ns is longer than a read")
        );
        assert!(why("cntvct", Nanos(42), Nanos(400)).contains("858921"));
        assert!(!why("clock_gettime", Nanos(1), Nanos(400)).contains("858921"));
        let (source, _) = Source::choose(&Root::system().unwrap());
        let clock = source.describe();
        assert!(clock.step > Nanos::ZERO && !clock.why.is_empty(), "{clock:?}");
        assert_eq!(clock.told_hertz.is_some(), clock.source == "cntvct");
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
