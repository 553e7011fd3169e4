//! What the measuring process has counted so far, read from the memory that it shares: a checkpoint of a long run.
//!
//! The measuring threads do nothing for it: their buckets lie in shared memory, and no system call, lock or
//! message is added to their loops. A look costs each thread one cache miss a line that it writes to next, after
//! its stamp.
//!
//! Every word only grows while a loop runs (the least reading only shrinks), and a reading is said after it was
//! counted. A look that finds the same numbers in the buckets as were said before and after it saw all of these
//! readings and no other; it is repeated until it does. Under a loop that never pauses it may not: then the buckets
//! are taken as they were read, and counts are made of them alone, so that `expected` is `obtained` and `missed` all the
//! same; sum and extremes may then be of one reading more or less.

use crate::shared::{self, STRIDE};
use quiet_linux::sys::sched;
use quiet_rt::{FACTS, SMALL};
use quiet_types::{
    Histogram, Nanos,
    histogram::{Linear, layout},
    run::{MeasuringThread, Probe, Spec},
};
use std::{
    collections::BTreeMap,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed},
    },
};

/// Looks before a torn one is taken.
const LOOKS: usize = 1000;
/// The same for a glance.
const GLANCES: usize = 2;

/// The words of one thread's buckets.
#[derive(Clone, Copy)]
pub(crate) struct Area<'a> {
    pub(crate) log: &'a [AtomicU64],
    pub(crate) linear: &'a [AtomicU64],
    pub(crate) missed_log: &'a [AtomicU64],
    pub(crate) missed_linear: &'a [AtomicU64],
    /// Gaps of few ticks, a place a tick.
    pub(crate) small: &'a [AtomicU64],
}

/// Words of one [`Area`], in whole strides.
fn size(spec: &Spec) -> usize {
    (2 * (layout::BUCKETS + spec.buckets as usize) + SMALL).next_multiple_of(STRIDE)
}

/// Words that are shared in all.
pub(crate) fn words(spec: &Spec) -> usize {
    STRIDE * (spec.cpus.len() + 1) + size(spec) * spec.cpus.len()
}

/// The buckets of thread `index`.
pub(crate) fn area<'a>(words: &'a [AtomicU64], spec: &Spec, index: usize) -> Area<'a> {
    let from = STRIDE * (spec.cpus.len() + 1) + size(spec) * index;
    let (log, rest) = words[from..].split_at(layout::BUCKETS);
    let (linear, rest) = rest.split_at(spec.buckets as usize);
    let (missed_log, rest) = rest.split_at(layout::BUCKETS);
    let (missed_linear, rest) = rest.split_at(spec.buckets as usize);
    Area { log, linear, missed_log, missed_linear, small: &rest[..SMALL] }
}

/// When the loops began, ns of `CLOCK_MONOTONIC`; zero before that.
pub(crate) fn start(words: &[AtomicU64]) -> &AtomicU64 {
    &words[1]
}

/// Ticks a second of the counter that stamps, as the bits of an `f64`.
pub(crate) fn hertz(words: &[AtomicU64]) -> &AtomicU64 {
    &words[2]
}

/// All threads so far; `None` before the loops began.
pub(crate) fn threads(words: &[AtomicU64], spec: &Spec) -> Option<Vec<MeasuringThread>> {
    looked_at(words, spec, LOOKS)
}

/// The same by two looks at most, for who looks often: each costs the measuring thread the lines that it writes to.
pub(crate) fn glance(words: &[AtomicU64], spec: &Spec) -> Option<Vec<MeasuringThread>> {
    looked_at(words, spec, GLANCES)
}

fn looked_at(words: &[AtomicU64], spec: &Spec, looks: usize) -> Option<Vec<MeasuringThread>> {
    if start(words).load(Acquire) == 0 {
        return None;
    }
    let cpus = spec.cpus.iter().enumerate();
    Some(
        cpus.map(|(index, cpu)| {
            let seen = Seen::of(words, spec, index, looks);
            let id = shared::id(words, index).load(Relaxed) as u32;
            let (readings, corrected) = seen.histograms(words, spec);
            let (obtained, missed) =
                (readings.count, seen.missed.iter().sum::<u64>() + seen.facts[7]);
            let gap = spec.probe == Probe::Gap;
            MeasuringThread {
                cpu,
                scheduling: sched::scheduling(id).ok().map(|got| got.0),
                allowed: sched::affinity(id).ok(),
                slice: sched::slice_in_force(id).ok().flatten(),
                memory_locked: None,
                expected: Some(obtained + missed),
                obtained,
                missed: Some(missed),
                corrected: (!gap).then_some(corrected),
                // That of a gap is placed at the end, by the clock's rate over the whole run.
                max_at: (!gap && obtained > 0).then_some(Nanos(seen.facts[9])),
                readings,
                beyond: Some(seen.facts[10]),
                stolen: Some(Nanos(seen.facts[11])),
                worst: Vec::new(),
                counters: BTreeMap::new(),
                stations: Vec::new(),
            }
        })
        .collect(),
    )
}

/// One look at the words of a thread.
struct Seen {
    log: Vec<u64>,
    linear: Vec<u64>,
    missed: Vec<u64>,
    missed_linear: Vec<u64>,
    small: Vec<u64>,
    /// In the order of [`quiet_rt::Live::facts`].
    facts: [u64; FACTS],
    max: u64,
}

impl Seen {
    fn of(words: &[AtomicU64], spec: &Spec, index: usize, most: usize) -> Seen {
        let (live, area) = (shared::live(words, index), area(words, spec, index));
        let values = |from: &[AtomicU64]| from.iter().map(|word| word.load(Relaxed)).collect();
        let mut looks = 0;
        loop {
            let said = || (live.obtained.load(Acquire), live.missed.load(Acquire));
            let before = said();
            let seen = Seen {
                log: values(area.log),
                linear: values(area.linear),
                missed: values(area.missed_log),
                missed_linear: values(area.missed_linear),
                small: values(area.small),
                facts: std::array::from_fn(|at| live.facts[at].load(Relaxed)),
                max: live.max.load(Relaxed),
            };
            looks += 1;
            let counted = |all: &[u64], over: usize| all.iter().sum::<u64>() + seen.facts[over];
            let whole = (counted(&seen.log, 2), counted(&seen.missed, 7)) == before;
            if (whole && said() == before) || looks == most {
                return seen;
            }
        }
    }

    /// The readings as they were taken, and the corrected ones.
    fn histograms(&self, words: &[AtomicU64], spec: &Spec) -> (Histogram, Histogram) {
        let [min, sum, over, linear_over, ..] = self.facts;
        let mut readings =
            histogram(&self.log, &self.linear, spec, (min, self.max, sum, over, linear_over));
        if spec.probe == Probe::Gap {
            readings.merge(&self.small_ones(words, spec));
        }
        let [.., min, max, sum, over, linear_over, _, _, _] = self.facts;
        let missed =
            histogram(&self.missed, &self.missed_linear, spec, (min, max, sum, over, linear_over));
        let mut corrected = readings.clone();
        corrected.merge(&missed);
        (readings, corrected)
    }

    /// Gaps that are counted by ticks until the end.
    fn small_ones(&self, words: &[AtomicU64], spec: &Spec) -> Histogram {
        let hertz = f64::from_bits(hertz(words).load(Relaxed));
        let (mut log, mut linear) = (vec![0; layout::BUCKETS], vec![0; spec.buckets as usize]);
        let (mut min, mut max, mut sum, mut linear_over) = (u64::MAX, 0, 0u64, 0);
        for (ticks, n) in self.small.iter().enumerate().filter(|(_, n)| **n > 0) {
            let ns = (ticks as f64 * 1e9 / hertz.max(1.0)) as u64;
            if let Some(slot) = layout::bucket(ns).and_then(|at| log.get_mut(at)) {
                *slot += n;
            }
            match linear.get_mut((ns / spec.bucket.0.max(1)) as usize) {
                Some(slot) => *slot += n,
                None => linear_over += n,
            }
            (min, max) = (min.min(ns), max.max(ns));
            sum = sum.saturating_add(ns.saturating_mul(*n));
        }
        histogram(&log, &linear, spec, (min, max, sum, 0, linear_over))
    }
}

/// `facts`: min, max, sum, over, linear over.
fn histogram(
    log: &[u64],
    linear: &[u64],
    spec: &Spec,
    (min, max, sum, over, linear_over): (u64, u64, u64, u64, u64),
) -> Histogram {
    let mut all = Histogram::from_counts(log, over, None, None, Nanos(sum));
    if all.count > 0 {
        // A torn look may hold a reading whose extremes are not said yet: then its bucket bounds it.
        let lowest = all.buckets.first().map_or(max, |(lower, _)| *lower);
        let highest = all.buckets.last().map_or(max, |(lower, _)| *lower);
        (all.min, all.max) = (
            Some(Nanos(if min == u64::MAX { lowest } else { min })),
            Some(Nanos(max.max(highest))),
        );
    }
    let counts = (0..).zip(linear.iter().copied()).filter(|(_, n)| *n > 0).collect();
    let (width, buckets) = (spec.bucket, spec.buckets);
    all.linear = Some(Linear { width, buckets, counts, over: linear_over });
    all
}
