//! The wakeup loop under scripted time, against a reference that looks at every expiry alone.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scripted;

use proptest::prelude::*;
use quiet_rt::{Live, Timer, Wakeup, wakeup};
use quiet_types::{Histogram, Nanos};
use scripted::{Owned, Words, histogram};

/// Wakes late by the next of `stalls`, again and again; every look at the clock costs a little.
struct Stalling<'a> {
    now: u64,
    stalls: &'a [u64],
    turn: usize,
    /// What was slept for, and when the thread ran.
    wakes: Vec<(u64, u64)>,
    /// Raises the stop word at this turn.
    stop: Option<(usize, &'a Words)>,
}

impl Timer for Stalling<'_> {
    fn sleep_until(&mut self, at: u64) -> u64 {
        self.now = (self.now + 1).max(at) + self.stalls[self.turn % self.stalls.len()];
        self.turn += 1;
        self.wakes.push((at, self.now));
        if let Some((turn, words)) = self.stop
            && turn == self.turn
        {
            words.stop();
        }
        self.now
    }
}

const START: u64 = 1_000_000;

struct Outcome {
    done: quiet_rt::Periods,
    corrected: Histogram,
    readings: Histogram,
    worst: Vec<quiet_rt::KeptReading>,
    wakes: Vec<(u64, u64)>,
}

fn run(stalls: &[u64], interval: u64, periods: u64, stop_at: Option<usize>) -> Outcome {
    let words = Words::default();
    let live: Live<'_> = words.live();
    let mut owned = Owned::new(100);
    let mut timer = Stalling {
        now: START,
        stalls,
        turn: 0,
        wakes: Vec::new(),
        stop: stop_at.map(|turn| (turn, &words)),
    };
    let mut tally = owned.tally(1000, u64::MAX);
    let done = wakeup(&mut timer, Wakeup { start: START, interval, periods }, &mut tally, &live);
    let readings = histogram(&tally.readings);
    let mut corrected = readings.clone();
    corrected.merge(&histogram(&tally.missed));
    assert_eq!(words.told(), (done.obtained, done.missed, tally.readings.max));
    let worst = tally.worst().copied().collect();
    Outcome { done, corrected, readings, worst, wakes: timer.wakes }
}

/// Every expiry until `last`, with the time until the thread first ran at or after it.
fn reference(wakes: &[(u64, u64)], interval: u64, periods: u64) -> Vec<u64> {
    let last = wakes.last().map_or(0, |w| w.1);
    (1..=periods)
        .map(|k| START + k * interval)
        .filter(|expiry| *expiry <= last)
        .map(|expiry| wakes.iter().find(|w| w.1 >= expiry).unwrap().1 - expiry)
        .collect()
}

#[test]
fn a_stall_of_known_length_misses_the_periods_that_passed_in_it() {
    // 200 us periods; the third wake is 1.05 ms late: five expiries passed meanwhile.
    let stalls = [3, 3, 1_050, 3, 3, 3, 3].map(|us| us * 1000);
    let seen = run(&stalls, 200_000, 12, None);
    assert_eq!((seen.done.expected, seen.done.obtained, seen.done.missed), (12, 7, 5));
    let worst = seen.worst.iter().max_by_key(|k| k.value).unwrap();
    assert_eq!((worst.value, worst.missed, worst.at), (1_050_000, 5, 1_650_000));
    let all: Vec<u64> = reference(&seen.wakes, 200_000, 12);
    let expected =
        [3, 3, 1050, 850, 650, 450, 250, 50, 3, 3, 3, 3].map(|us: u64| us * 1000).to_vec();
    assert_eq!(all, expected);
}

#[test]
fn a_stall_over_the_end_counts_the_periods_that_were_asked_for_and_no_more() {
    let seen = run(&[1_000, 50_000_000], 200_000, 10, None);
    assert_eq!((seen.done.expected, seen.done.obtained, seen.done.missed), (10, 2, 8));
}

#[test]
fn counting_a_stall_of_hours_takes_no_longer_than_its_buckets() {
    // 8 h at 10 us are 2.9e9 missed periods: one by one, this test would not end.
    let seen = run(&[8 * 3600 * 1_000_000_000], 10_000, u64::MAX, Some(1));
    assert_eq!(seen.done.missed, 8 * 3600 * 100_000);
    assert_eq!(seen.corrected.count, seen.done.expected);
    assert_eq!(seen.readings.over, 1);
}

proptest! {
    #[test]
    fn every_expected_period_is_accounted_for(
        stalls in proptest::collection::vec(
            prop_oneof![8 => 0u64..50_000, 2 => 0u64..5_000_000, 1 => 0u64..2_000_000_000],
            1..40,
        ),
        interval in 10_000u64..1_000_000,
        periods in 1u64..2_000,
        stop_at in proptest::option::of(1usize..60),
    ) {
        let seen = run(&stalls, interval, periods, stop_at);
        let all = reference(&seen.wakes, interval, periods);
        prop_assert_eq!(seen.done.expected, all.len() as u64);
        prop_assert_eq!(seen.done.expected, seen.done.obtained + seen.done.missed);
        if stop_at.is_none() {
            prop_assert_eq!(seen.done.expected, periods);
        }
        prop_assert_eq!(seen.corrected, Histogram::of(all.into_iter().map(Nanos)));
        let taken = seen.wakes.iter().map(|(due, now)| Nanos(now - due));
        prop_assert_eq!(seen.readings, Histogram::of(taken));
        // None is fired late in a burst: at most one wake for each expiry, each for a later one.
        prop_assert!(seen.wakes.windows(2).all(|w| w[0].1 < w[1].0 && w[0].0 < w[1].0));
    }
}
