//! The tally against plain recording.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scripted;

use proptest::prelude::*;
use quiet_rt::{Counts, KeptReading};
use quiet_types::{Histogram, Nanos, histogram::layout};
use scripted::{Owned, histogram, values, zeros};

proptest! {
    #[test]
    fn a_tally_holds_what_a_histogram_of_the_readings_holds(
        readings in proptest::collection::vec(0u64..1 << 42, 0..300),
        threshold in 0u64..1 << 42,
    ) {
        let mut owned = Owned::new(1000);
        let mut tally = owned.tally(1_000_000, threshold);
        for (at, value) in readings.iter().enumerate() {
            tally.record(KeptReading { at: at as u64 + 1, value: *value, missed: 0 });
        }
        let expected = Histogram::of(readings.iter().copied().map(Nanos));
        prop_assert_eq!(histogram(&tally.readings), expected);
        let beyond = readings.iter().filter(|ns| **ns > threshold);
        prop_assert_eq!(tally.beyond, beyond.clone().count() as u64);
        prop_assert_eq!(tally.stolen, beyond.sum::<u64>());

        let mut worst: Vec<u64> = tally.worst().map(|k| k.value).collect();
        let mut sorted: Vec<u64> = readings.iter().copied().filter(|ns| *ns > 0).collect();
        worst.sort_unstable_by(|a, b| b.cmp(a));
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        sorted.truncate(64);
        prop_assert_eq!(worst, sorted);
        for kept in tally.worst() {
            prop_assert_eq!(readings[kept.at as usize - 1], kept.value);
        }
        let largest = readings.iter().max();
        let first = readings.iter().position(|ns| Some(ns) == largest);
        prop_assert_eq!(tally.max_at, first.map_or(0, |at| at as u64 + 1));
    }

    #[test]
    fn a_series_at_once_is_its_readings_one_by_one(
        first in 0u64..1 << 41,
        step in 1u64..1 << 32,
        n in 0u64..3_000,
        width in 1u64..1 << 24,
    ) {
        let slow = (zeros(layout::BUCKETS), zeros(500));
        let fast = (zeros(layout::BUCKETS), zeros(500));
        let mut one_by_one = Counts::new(&slow.0, &slow.1, width);
        let mut at_once = Counts::new(&fast.0, &fast.1, width);
        for k in 0..n {
            one_by_one.add(first + k * step, 1);
        }
        at_once.add_series(first, step, n);
        prop_assert_eq!(histogram(&at_once), histogram(&one_by_one));
        prop_assert_eq!(values(at_once.linear()), values(one_by_one.linear()));
        prop_assert_eq!(at_once.linear_over, one_by_one.linear_over);
    }
}

#[test]
fn extreme_series_saturate_and_end() {
    let (log, linear) = (zeros(layout::BUCKETS), zeros(10));
    let mut counts = Counts::new(&log, &linear, 1);
    counts.add_series(u64::MAX, u64::MAX, u64::MAX / 2);
    counts.add_series(0, 1, 1 << 62);
    assert_eq!(counts.sum, u64::MAX);
    assert_eq!(counts.max, u64::MAX);
    assert_eq!(values(counts.log()).iter().sum::<u64>(), layout::END);
}
