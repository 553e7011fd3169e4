//! Histograms of times: a log-linear one that loses nothing, and a linear one for plots.

/// Where a time falls in the log-linear histogram. Pure arithmetic, for the quiet core too.
///
/// Below 128 ns every nanosecond has its bucket. Above, each doubling has 64 buckets, so a bucket
/// is at most 1/64 (1.6 %) of its value wide. At 2^40 ns (18 minutes) the scale ends; what lies
/// beyond is counted as `over`.
pub mod layout {
    /// Number of buckets of the log-linear histogram.
    pub const BUCKETS: usize = 128 + 33 * 64;

    /// The first value off the scale, in ns.
    pub const END: u64 = 1 << 40;

    /// The bucket of `ns`, or `None` when it is off the scale.
    ///
    /// # Real time
    /// A leading-zero count, a shift, an addition.
    #[inline(always)]
    pub const fn bucket(ns: u64) -> Option<usize> {
        if ns < 128 {
            return Some(ns as usize);
        }
        if ns >= END {
            return None;
        }
        let octave = 63 - ns.leading_zeros() as usize;
        Some(128 + (octave - 7) * 64 + (ns >> (octave - 6)) as usize - 64)
    }

    /// The smallest value of a bucket, in ns. `lower(BUCKETS)` is [`END`].
    pub const fn lower(bucket: usize) -> u64 {
        if bucket < 128 {
            return bucket as u64;
        }
        let octave = 7 + (bucket - 128) / 64;
        (64 + (bucket as u64 - 128) % 64) << (octave - 6)
    }
}

#[cfg(feature = "std")]
pub use owned::{Histogram, Linear, upper_of};

#[cfg(feature = "std")]
mod owned {
    use super::layout;
    use crate::Nanos;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// Equal buckets from zero, as cyclictest prints them; bucket k holds [k, k+1) widths.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Linear {
        /// Width of one bucket.
        pub width: Nanos,
        /// Number of buckets on the scale.
        pub buckets: u32,
        /// Buckets with something in them: (bucket, count), rising.
        pub counts: Vec<(u32, u64)>,
        /// Readings beyond the last bucket.
        pub over: u64,
    }

    /// Times of one kind: log-linear buckets, exact extremes and sum, and what fell off the scale.
    ///
    /// The bucket layout is [`layout`]. Percentiles come from the buckets and are at most 1/64 off;
    /// `min` and `max` are exact.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Histogram {
        /// Buckets with something in them: (lower edge in ns, count), rising.
        pub buckets: Vec<(u64, u64)>,
        /// Readings at or beyond 2^40 ns, or beyond the scale of the tool that took them.
        pub over: u64,
        /// Number of readings, those over the scale included.
        pub count: u64,
        /// Smallest reading; `None` when there is none.
        pub min: Option<Nanos>,
        /// Largest reading, exact; `None` when there is none.
        pub max: Option<Nanos>,
        /// Sum of all readings.
        pub sum: Nanos,
        /// The same readings in equal buckets, where they were kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub linear: Option<Linear>,
    }

    impl Histogram {
        /// From dense counts in the order of [`layout`].
        pub fn from_counts(
            counts: &[u64],
            over: u64,
            min: Option<Nanos>,
            max: Option<Nanos>,
            sum: Nanos,
        ) -> Histogram {
            let buckets: Vec<(u64, u64)> = counts
                .iter()
                .take(layout::BUCKETS)
                .enumerate()
                .filter(|(_, n)| **n > 0)
                .map(|(at, n)| (layout::lower(at), *n))
                .collect();
            let count = buckets.iter().map(|b| b.1).sum::<u64>() + over;
            Histogram { buckets, over, count, min, max, sum, linear: None }
        }

        /// Of these readings; for tests and importers.
        pub fn of(readings: impl IntoIterator<Item = Nanos>) -> Histogram {
            let mut counts = vec![0; layout::BUCKETS];
            let (mut over, mut sum, mut min, mut max) = (0, 0u64, None, None);
            for r in readings {
                match layout::bucket(r.0) {
                    Some(at) => counts[at] += 1,
                    None => over += 1,
                }
                sum = sum.saturating_add(r.0);
                min = Some(min.map_or(r, |m: Nanos| m.min(r)));
                max = Some(max.map_or(r, |m: Nanos| m.max(r)));
            }
            Histogram::from_counts(&counts, over, min, max, Nanos(sum))
        }

        /// Of equal buckets, as other tools keep them; see [`Histogram::from_ranges`].
        pub fn from_linear(
            linear: Linear,
            min: Option<Nanos>,
            max: Option<Nanos>,
            sum: Nanos,
        ) -> Histogram {
            let width = linear.width.0.max(1);
            let range = |&(bucket, count): &(u32, u64)| {
                let lower = u64::from(bucket).saturating_mul(width);
                (lower, lower.saturating_add(width), count)
            };
            let ranges = linear.counts.iter().map(range);
            let whole = Histogram::from_ranges(ranges, linear.over, min, max, sum);
            Histogram { linear: Some(linear), ..whole }
        }

        /// Of counts between edges, (lower, upper and exclusive, count), in ns. Between them the
        /// readings are taken to lie evenly, no further out than `min` and `max`; those beyond
        /// the scale stand in `over`, and count as the largest.
        pub fn from_ranges(
            ranges: impl IntoIterator<Item = (u64, u64, u64)>,
            mut over: u64,
            min: Option<Nanos>,
            max: Option<Nanos>,
            sum: Nanos,
        ) -> Histogram {
            let mut counts = vec![0; layout::BUCKETS];
            let (least, most) = (min.map_or(0, |m| m.0), max.map_or(u64::MAX - 1, |m| m.0));
            for (lower, upper, count) in ranges {
                let upper = upper.max(lower.saturating_add(1));
                let (from, to) = match (lower.max(least), upper.min(most.saturating_add(1))) {
                    (from, to) if from < to => (from, to),
                    _ => (lower, upper),
                };
                let (mut at, mut given) = (from, 0);
                while at < to {
                    let Some(place) = layout::bucket(at) else {
                        over += count - given;
                        break;
                    };
                    at = layout::lower(place + 1).min(to);
                    let part = u128::from(count) * u128::from(at - from) / u128::from(to - from);
                    counts[place] += part as u64 - given;
                    given = part as u64;
                }
            }
            Histogram::from_counts(&counts, over, min, max, sum)
        }

        /// In equal buckets of this width: the kept ones where they are as wide, else each
        /// log-linear bucket by its middle.
        pub fn to_linear(&self, width: Nanos) -> Linear {
            if let Some(linear) = self.linear.as_ref().filter(|linear| linear.width == width) {
                return linear.clone();
            }
            let width = width.0.max(1);
            let mut counts = std::collections::BTreeMap::new();
            let mut over = self.over;
            for &(lower, count) in &self.buckets {
                match u32::try_from((lower + (upper_of(lower) - lower - 1) / 2) / width) {
                    Ok(at) if at < u32::MAX => *counts.entry(at).or_insert(0) += count,
                    _ => over += count,
                }
            }
            let buckets = counts.keys().last().map_or(0, |last| last + 1);
            Linear { width: Nanos(width), buckets, counts: counts.into_iter().collect(), over }
        }

        /// Arithmetic mean, `None` when empty.
        pub fn mean(&self) -> Option<Nanos> {
            (self.count > 0).then(|| Nanos(self.sum.0 / self.count))
        }

        /// The value at or below which a share `q` (0 to 1) of the readings lies.
        ///
        /// The middle of its bucket, held within `min` and `max`; `max` where it falls off the
        /// scale. `None` when empty, or where nothing is known but the extremes.
        pub fn percentile(&self, q: f64) -> Option<Nanos> {
            let (min, max) = (self.min?, self.max?);
            if self.buckets.is_empty() && min.0 < layout::END {
                return None;
            }
            let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
            if rank >= self.count {
                return Some(max);
            }
            let mut seen = 0;
            for &(lower, n) in &self.buckets {
                seen += n;
                if seen >= rank {
                    let width = upper_of(lower) - lower;
                    return Some(Nanos(lower + (width - 1) / 2).clamp(min, max));
                }
            }
            Some(max)
        }

        /// How many readings are above `limit`: whole buckets; a bucket that holds the limit
        /// counts as not above unless `limit` is its lower edge less one.
        pub fn above(&self, limit: Nanos) -> u64 {
            if self.max.is_some_and(|max| max <= limit) {
                return 0;
            }
            let inside: u64 =
                self.buckets.iter().filter(|(lower, _)| *lower > limit.0).map(|b| b.1).sum();
            inside + self.over
        }

        /// Adds the readings of `other`.
        pub fn merge(&mut self, other: &Histogram) {
            let mut all = std::collections::BTreeMap::new();
            for &(lower, n) in self.buckets.iter().chain(&other.buckets) {
                *all.entry(lower).or_insert(0) += n;
            }
            self.buckets = all.into_iter().collect();
            self.over += other.over;
            self.count += other.count;
            self.sum = Nanos(self.sum.0.saturating_add(other.sum.0));
            self.min = self.min.into_iter().chain(other.min).min();
            self.max = self.max.max(other.max);
            self.linear = match (self.linear.take(), &other.linear) {
                (Some(mut mine), Some(theirs))
                    if mine.width == theirs.width && mine.buckets == theirs.buckets =>
                {
                    let mut all = std::collections::BTreeMap::new();
                    for &(at, n) in mine.counts.iter().chain(&theirs.counts) {
                        *all.entry(at).or_insert(0) += n;
                    }
                    mine.counts = all.into_iter().collect();
                    mine.over += theirs.over;
                    Some(mine)
                }
                (mine, None) if other.count == 0 => mine,
                _ => None,
            };
        }
    }

    /// The upper edge (exclusive) of the bucket with this lower edge, in ns.
    pub fn upper_of(lower: u64) -> u64 {
        layout::bucket(lower).map_or(lower + 1, |at| layout::lower(at + 1))
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::Nanos;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_the_scale_without_gap_or_overlap() {
        for at in 0..layout::BUCKETS {
            let (low, next) = (layout::lower(at), layout::lower(at + 1));
            assert_eq!(layout::bucket(low), Some(at));
            assert_eq!(layout::bucket(next - 1), Some(at));
            assert!(next - low <= (low / 64).max(1), "bucket {at} is too wide");
        }
        assert_eq!(layout::lower(layout::BUCKETS), layout::END);
        assert_eq!(layout::bucket(layout::END), None);
        assert_eq!(layout::bucket(u64::MAX), None);
    }

    proptest! {
        #[test]
        fn percentiles_agree_with_sorting(
            mut ns in proptest::collection::vec(0u64..1 << 41, 1..300),
            q in 0.0f64..=1.0,
        ) {
            let h = Histogram::of(ns.iter().map(|n| Nanos(*n)));
            ns.sort_unstable();
            let rank = ((q * ns.len() as f64).ceil() as usize).max(1);
            let truth = ns[rank - 1];
            let got = h.percentile(q).unwrap().0;
            if truth < layout::END {
                prop_assert!(got.abs_diff(truth) <= truth / 64 + 1, "{got} for {truth}");
            } else {
                prop_assert_eq!(got, *ns.last().unwrap());
            }
            prop_assert_eq!(h.max.unwrap().0, *ns.last().unwrap());
            prop_assert_eq!(h.min.unwrap().0, ns[0]);
        }

        #[test]
        fn equal_buckets_are_spread_within_themselves_and_lose_nothing(
            ns in proptest::collection::vec(0u64..3_000_000, 1..200),
            width in 1u64..20_000,
        ) {
            let mut all = std::collections::BTreeMap::new();
            for n in &ns {
                *all.entry((n / width) as u32).or_insert(0) += 1;
            }
            let counts: Vec<(u32, u64)> = all.into_iter().collect();
            let linear = Linear { width: Nanos(width), buckets: u32::MAX, counts, over: 3 };
            let (min, max) = (ns.iter().min().copied(), ns.iter().max().copied());
            let h = Histogram::from_linear(linear.clone(), min.map(Nanos), max.map(Nanos), Nanos(0));
            prop_assert_eq!(h.count, ns.len() as u64 + 3);
            prop_assert_eq!(h.over, 3);
            prop_assert_eq!(h.to_linear(Nanos(width)), linear);
            let mut sorted = ns.clone();
            sorted.sort_unstable();
            let rank = h.count.div_ceil(2) as usize;
            if let Some(truth) = sorted.get(rank - 1) {
                let got = h.percentile(0.5).unwrap().0;
                prop_assert!(got.abs_diff(*truth) <= width + truth / 32 + 1, "{got} for {truth}");
            }
        }

        #[test]
        fn merging_is_recording_both(
            a in proptest::collection::vec(0u64..1 << 42, 0..100),
            b in proptest::collection::vec(0u64..1 << 42, 0..100),
        ) {
            let mut merged = Histogram::of(a.iter().map(|n| Nanos(*n)));
            merged.merge(&Histogram::of(b.iter().map(|n| Nanos(*n))));
            prop_assert_eq!(merged, Histogram::of(a.iter().chain(&b).map(|n| Nanos(*n))));
        }
    }
}
