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
pub use owned::{Histogram, Linear};

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
        /// Readings at or beyond 2^40 ns.
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

        /// Arithmetic mean, `None` when empty.
        pub fn mean(&self) -> Option<Nanos> {
            (self.count > 0).then(|| Nanos(self.sum.0 / self.count))
        }

        /// The value at or below which a share `q` (0 to 1) of the readings lies.
        ///
        /// The middle of its bucket, held within `min` and `max`; `max` where it falls off the
        /// scale. `None` when empty.
        pub fn percentile(&self, q: f64) -> Option<Nanos> {
            let (min, max) = (self.min?, self.max?);
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
    fn upper_of(lower: u64) -> u64 {
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
