//! Nothing in the loops allocates, nor frees: counted by the allocator itself.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scripted;

use assert_no_alloc::{AllocDisabler, assert_no_alloc, reset_violation_count, violation_count};
use quiet_rt::{Clock, KeptReading, SMALL, Timer, Wakeup, gap, wakeup};
use scripted::{Owned, Words};
use std::{
    thread,
    time::{Duration, Instant},
};

#[global_allocator]
static WATCHED: AllocDisabler = AllocDisabler;

/// Real time, so that real lateness and real interrupts take all paths.
struct Real(Instant);

impl Clock for Real {
    fn ticks(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn nanos(&self, ticks: u64) -> u64 {
        ticks
    }
}

impl Timer for Real {
    fn sleep_until(&mut self, at: u64) -> u64 {
        thread::sleep(Duration::from_nanos(at.saturating_sub(self.ticks())));
        // Every eighth wake is late by some periods.
        if (at / 200_000).is_multiple_of(8) {
            thread::sleep(Duration::from_millis(1));
        }
        self.ticks()
    }
}

#[test]
fn no_loop_allocates_and_an_allocation_would_be_seen() {
    let words = Words::default();
    let mut owned = Owned::new(1000);
    let small = scripted::zeros(SMALL);
    let mut tally = owned.tally(1000, 5_000);
    let mut real = Real(Instant::now());

    reset_violation_count();
    assert_no_alloc(|| {
        let plan = Wakeup { start: real.ticks(), interval: 200_000, periods: 500 };
        let done = wakeup(&mut real, plan, &mut tally, &words.live());
        assert!(done.missed > 0, "the late wakes took the path of missed periods");
        gap(&real, 50_000_000, &small, &mut tally, &words.live());
        for value in 0..1000 {
            tally.record(KeptReading { at: value, value: value << 20, missed: 0 });
        }
    });
    assert_eq!(violation_count(), 0);

    assert_no_alloc(|| drop(std::hint::black_box(Box::new(1u64))));
    assert_eq!(violation_count(), 2, "one allocation and one release");
}
