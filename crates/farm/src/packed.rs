//! A histogram in few bytes: numbers of buckets by their distance, counts, both of seven bits a byte. It loses nothing but the linear
//! buckets of plots, and what a stranger sends is bounded and must agree with itself.

use quiet_types::{Histogram, Nanos, histogram::layout};

/// Appends a number, seven bits a byte, the lowest first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front; `None` where it is cut short or longer than 64 bits.
pub fn take(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The bytes of a histogram.
pub fn pack(all: &Histogram) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + all.buckets.len() * 3);
    let places = all.buckets.iter().filter_map(|(lower, n)| Some((layout::bucket(*lower)?, *n)));
    let places: Vec<(usize, u64)> = places.filter(|(_, n)| *n > 0).collect();
    put(&mut out, places.len() as u64);
    let mut next = 0;
    for (place, n) in places {
        put(&mut out, (place - next) as u64);
        put(&mut out, n);
        next = place + 1;
    }
    put(&mut out, all.over);
    for edge in [all.min, all.max] {
        put(&mut out, edge.map_or(0, |edge| edge.0.saturating_add(1)));
    }
    put(&mut out, all.sum.0);
    out
}

/// No count of a sum goes beyond it: 500 years of a period of 16 us. It keeps who lies about counts from stopping those who add.
const MOST: u64 = 1 << 50;

/// Counts added up, by the places of [`layout`]: how many histograms become one.
#[derive(Clone, Debug)]
pub struct Adding {
    counts: Box<[u64]>,
    over: u64,
    min: Option<Nanos>,
    max: Option<Nanos>,
    sum: u64,
}

impl Default for Adding {
    fn default() -> Adding {
        let counts = vec![0; layout::BUCKETS].into_boxed_slice();
        Adding { counts, over: 0, min: None, max: None, sum: 0 }
    }
}

impl Adding {
    /// Adds what was packed; says whether it was whole. What was added before a fault stays added, so strangers' bytes go through
    /// [`unpack`] first.
    pub fn add(&mut self, mut from: &[u8]) -> bool {
        self.take_in(&mut from).is_some() && from.is_empty()
    }

    fn take_in(&mut self, from: &mut &[u8]) -> Option<()> {
        let mut next = 0usize;
        for _ in 0..take(from).filter(|n| *n <= layout::BUCKETS as u64)? {
            let place = next.checked_add(usize::try_from(take(from)?).ok()?)?;
            let n = take(from)?;
            let count = self.counts.get_mut(place)?;
            *count = count.saturating_add(n).min(MOST);
            next = place + 1;
        }
        self.over = self.over.saturating_add(take(from)?).min(MOST);
        let (min, max) = (take(from)?, take(from)?);
        let edge = |edge: u64| (edge > 0).then(|| Nanos(edge - 1));
        self.min = self.min.into_iter().chain(edge(min)).min();
        self.max = self.max.max(edge(max));
        self.sum = self.sum.saturating_add(take(from)?);
        Some(())
    }

    /// All of it as one histogram.
    pub fn whole(&self) -> Histogram {
        Histogram::from_counts(&self.counts, self.over, self.min, self.max, Nanos(self.sum))
    }
}

/// The histogram of these bytes; `None` where they are none, or do not agree with themselves.
pub fn unpack(from: &[u8]) -> Option<Histogram> {
    let mut adding = Adding::default();
    if !adding.add(from) {
        return None;
    }
    let counted = adding.counts.iter().try_fold(adding.over, |all, n| all.checked_add(*n))?;
    // Sums of a million such must not overflow.
    let sane = counted < 1 << 43;
    let whole = adding.whole();
    let edges = match (whole.min, whole.max) {
        (None, None) => counted == 0,
        (Some(min), Some(max)) => counted > 0 && min <= max && holds(&whole, min, max),
        _ => false,
    };
    (sane && edges).then_some(whole)
}

/// Whether the extremes lie in the first and last bucket, where these are known.
fn holds(all: &Histogram, min: Nanos, max: Nanos) -> bool {
    let (Some(first), Some(last)) = (all.buckets.first(), all.buckets.last()) else {
        return true;
    };
    let low = layout::bucket(min.0).is_none_or(|at| layout::lower(at) <= first.0);
    let high = all.over > 0 || layout::bucket(max.0).is_none_or(|at| layout::lower(at) >= last.0);
    low && high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back_and_adds_up_as_merging_does(
            a in proptest::collection::vec(0u64..1 << 42, 0..200),
            b in proptest::collection::vec(0u64..3_000_000, 0..200),
        ) {
            let (a, b) = (a.into_iter().map(Nanos), b.into_iter().map(Nanos));
            let (a, b) = (Histogram::of(a), Histogram::of(b));
            prop_assert_eq!(unpack(&pack(&a)), Some(a.clone()));
            let mut adding = Adding::default();
            prop_assert!(adding.add(&pack(&a)) && adding.add(&pack(&b)));
            let mut merged = a;
            merged.merge(&b);
            prop_assert_eq!(adding.whole(), merged);
        }

        #[test]
        fn strangers_bytes_are_refused_or_agree_with_themselves(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            if let Some(all) = unpack(&bytes) {
                prop_assert_eq!(unpack(&pack(&all)), Some(all));
            }
        }
    }

    #[test]
    fn no_count_is_believed_that_its_buckets_do_not_hold() {
        let good = pack(&Histogram::of([Nanos(5), Nanos(900)]));
        assert!(unpack(&good).is_some());
        for cut in 0..good.len() {
            assert_eq!(unpack(&good[..cut]), None, "{cut}");
        }
        // More buckets than there are, and a distance beyond the scale.
        for bad in [&[0xff, 0xff, 0xff, 0x7f][..], &[1, 0xff, 0xff, 0x7f, 1, 0, 1, 1, 0]] {
            assert_eq!(unpack(bad), None);
        }
    }
}
