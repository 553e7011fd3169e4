//! The gap loop under a scripted clock.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scripted;

use proptest::prelude::*;
use quiet_rt::{Clock, SMALL, gap};
use quiet_types::{Histogram, Nanos};
use scripted::{Owned, Words, histogram};
use std::cell::Cell;

/// Steps on by the next of `steps` at each read; a tick is 3 ns.
struct Stepping<'a> {
    now: Cell<u64>,
    turn: Cell<usize>,
    steps: &'a [u64],
}

impl Clock for Stepping<'_> {
    fn ticks(&self) -> u64 {
        let now = self.now.get();
        self.now.set(now + self.steps[self.turn.get() % self.steps.len()]);
        self.turn.set(self.turn.get() + 1);
        now
    }

    fn nanos(&self, ticks: u64) -> u64 {
        ticks * 3
    }
}

proptest! {
    #[test]
    fn every_tick_of_the_run_lies_in_exactly_one_gap(
        steps in proptest::collection::vec(
            prop_oneof![9 => 1u64..200, 2 => 900u64..1200, 1 => 1u64..1 << 38],
            1..200,
        ),
        length in 1u64..2_000_000,
        threshold in 0u64..10_000,
    ) {
        let clock = Stepping { now: Cell::new(7), turn: Cell::new(0), steps: &steps };
        let words = Words::default();
        let mut owned = Owned::new(50);
        let small = scripted::zeros(SMALL);
        let mut tally = owned.tally(1000, threshold);
        let done = gap(&clock, length, &small, &mut tally, &words.live());

        let mut all = Vec::new();
        let mut passed = 0;
        for step in steps.iter().cycle() {
            passed += step;
            all.push(step * 3);
            if passed >= length {
                break;
            }
        }
        prop_assert_eq!(done.ticks, passed);
        prop_assert_eq!(done.reads, all.len() as u64);
        let expected = Histogram::of(all.iter().copied().map(Nanos));
        prop_assert_eq!(histogram(&tally.readings), expected);
        let beyond: Vec<u64> = all.iter().copied().filter(|ns| *ns > threshold).collect();
        prop_assert_eq!(tally.beyond, beyond.len() as u64);
        prop_assert_eq!(tally.stolen, beyond.iter().sum::<u64>());
        // The largest, and when it ended first.
        let largest = *all.iter().max().unwrap();
        let mut at = 0;
        let first_end = all.iter().find_map(|gap| {
            at += gap;
            (*gap == largest).then_some(at)
        });
        prop_assert_eq!(Some(tally.max_at), first_end);
    }
}

#[test]
fn a_counter_that_steps_back_is_no_eternity() {
    struct Back(Cell<u64>);
    impl Clock for Back {
        fn ticks(&self) -> u64 {
            self.0.set(self.0.get() + 1);
            if self.0.get() == 5 { 1 } else { self.0.get() * 10 }
        }
        fn nanos(&self, ticks: u64) -> u64 {
            ticks
        }
    }
    let words = Words::default();
    let mut owned = Owned::new(50);
    let small = scripted::zeros(SMALL);
    let mut tally = owned.tally(1000, 1000);
    gap(&Back(Cell::new(0)), 200, &small, &mut tally, &words.live());
    assert!(tally.readings.max < 200, "{}", tally.readings.max);
}

#[test]
fn the_stop_word_ends_it() {
    let clock = Stepping { now: Cell::new(0), turn: Cell::new(0), steps: &[10] };
    let words = Words::default();
    words.stop();
    let mut owned = Owned::new(50);
    let small = scripted::zeros(SMALL);
    let done = gap(&clock, u64::MAX, &small, &mut owned.tally(1000, 1000), &words.live());
    assert_eq!(done.reads, 1);
}
