//! Where readings are counted: borrowed memory, plain arithmetic.
//!
//! Buckets are atomics, so that the memory may be one that another process looks at while the loop runs. Only
//! the loop writes to them: a relaxed load and a relaxed store are the moves that a plain count is made of.

use crate::live::FACTS;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use quiet_types::histogram::layout;

/// Adds to a count that only this thread writes. No count ever shrinks while a loop runs.
#[inline(always)]
pub(crate) fn count(slot: &AtomicU64, n: u64) {
    slot.store(slot.load(Relaxed) + n, Relaxed);
}

/// Counts of times of one kind: log-linear buckets, equal buckets, exact extremes and sum.
#[derive(Debug)]
pub struct Counts<'a> {
    /// One count a bucket of [`layout`]; [`layout::BUCKETS`] of them.
    log: &'a [AtomicU64],
    /// Equal buckets of `width` ns from zero.
    linear: &'a [AtomicU64],
    width: u64,
    /// Readings at or beyond the end of the log-linear scale.
    pub over: u64,
    /// Readings beyond the last equal bucket.
    pub linear_over: u64,
    /// Number of readings.
    pub count: u64,
    /// Smallest reading, ns; `u64::MAX` when there is none.
    pub min: u64,
    /// Largest reading, ns.
    pub max: u64,
    /// Sum of the readings, ns; stays at `u64::MAX` once it would pass it.
    pub sum: u64,
}

impl<'a> Counts<'a> {
    /// Counts into `log` ([`layout::BUCKETS`] long, else what does not fit counts as over) and
    /// into `linear`, whose buckets are `width` ns wide (at least 1). Both are expected to be zero.
    pub fn new(log: &'a [AtomicU64], linear: &'a [AtomicU64], width: u64) -> Counts<'a> {
        let width = width.max(1);
        Counts {
            log,
            linear,
            width,
            over: 0,
            linear_over: 0,
            count: 0,
            min: u64::MAX,
            max: 0,
            sum: 0,
        }
    }

    /// The counts by bucket of [`layout`].
    pub fn log(&self) -> &'a [AtomicU64] {
        self.log
    }

    /// The counts by equal bucket.
    pub fn linear(&self) -> &'a [AtomicU64] {
        self.linear
    }

    /// Counts `n` readings of `ns`.
    ///
    /// # Real time
    /// A division for the equal bucket; no loop.
    #[inline]
    pub fn add(&mut self, ns: u64, n: u64) {
        if n == 0 {
            return;
        }
        match layout::bucket(ns).and_then(|at| self.log.get(at)) {
            Some(slot) => count(slot, n),
            None => self.over += n,
        }
        match usize::try_from(ns / self.width).ok().and_then(|at| self.linear.get(at)) {
            Some(slot) => count(slot, n),
            None => self.linear_over += n,
        }
        self.count += n;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum = self.sum.saturating_add(ns.saturating_mul(n));
    }

    /// Counts the `n` readings `first`, `first + step`, `first + 2 step` ...
    ///
    /// # Real time
    /// Works bucket by bucket: the time is bounded by the number of buckets, however large `n` is.
    pub fn add_series(&mut self, first: u64, step: u64, n: u64) {
        if n == 0 {
            return;
        }
        let step = step.max(1);
        let (mut value, mut left) = (first, n);
        while left > 0 {
            let Some(at) = layout::bucket(value).filter(|at| *at < self.log.len()) else { break };
            let here = fits(value, layout::lower(at + 1), step).min(left);
            count(&self.log[at], here);
            value = value.saturating_add(step.saturating_mul(here));
            left -= here;
        }
        self.over += left;

        let (mut value, mut left) = (first, n);
        while left > 0 {
            let at = value / self.width;
            let slot = usize::try_from(at).ok().and_then(|at| self.linear.get(at));
            let Some(slot) = slot else { break };
            let here = fits(value, (at + 1).saturating_mul(self.width), step).min(left);
            count(slot, here);
            value = value.saturating_add(step.saturating_mul(here));
            left -= here;
        }
        self.linear_over += left;

        self.count += n;
        self.min = self.min.min(first);
        self.max = self.max.max(first.saturating_add(step.saturating_mul(n - 1)));
        let (wide_n, wide_step) = (u128::from(n), u128::from(step));
        // n (n - 1) < 2^128, but times the step it may not be: saturate, as every sum here does.
        let steps = (wide_n * (wide_n - 1) / 2).saturating_mul(wide_step);
        let total = (wide_n * u128::from(first)).saturating_add(steps);
        self.sum = self.sum.saturating_add(u64::try_from(total).unwrap_or(u64::MAX));
    }
}

/// How many of `value`, `value + step` ... lie below `end`; at least 1, as `value` does.
fn fits(value: u64, end: u64, step: u64) -> u64 {
    (end - value).div_ceil(step)
}

/// One reading that is kept by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptReading {
    /// When it ended, ns since the start of the loop.
    pub at: u64,
    /// The measured time, ns.
    pub value: u64,
    /// Periods missed because of it.
    pub missed: u64,
}

/// What one loop finds.
#[derive(Debug)]
pub struct Tally<'a> {
    /// The readings as they were taken.
    pub readings: Counts<'a>,
    /// A reading for every missed period: from its expiry until the thread ran at last.
    pub missed: Counts<'a>,
    /// The largest readings, in no order; unused places are zero.
    worst: &'a mut [KeptReading],
    /// Smallest value in `worst`: what a reading must exceed to be kept.
    bar: u64,
    threshold: u64,
    /// Every reading beyond the threshold, in order, as far as there is room.
    late: &'a mut [KeptReading],
    /// Used places of `late`.
    late_used: usize,
    /// Time of the largest reading, ns since the start.
    pub max_at: u64,
    /// Readings above the threshold.
    pub beyond: u64,
    /// Their sum, ns.
    pub stolen: u64,
}

impl<'a> Tally<'a> {
    /// An empty tally. `worst` is lent zeroed and may be of any length.
    pub fn new(
        readings: Counts<'a>,
        missed: Counts<'a>,
        worst: &'a mut [KeptReading],
        threshold: u64,
    ) -> Tally<'a> {
        Tally {
            readings,
            missed,
            worst,
            bar: 0,
            threshold,
            late: &mut [],
            late_used: 0,
            max_at: 0,
            beyond: 0,
            stolen: 0,
        }
    }

    /// What a look from outside needs beside the buckets, in the order of [`Live::facts`](crate::Live::facts).
    #[inline(always)]
    pub(crate) fn facts(&self) -> [u64; FACTS] {
        let (taken, missed) = (&self.readings, &self.missed);
        [
            taken.min,
            taken.sum,
            taken.over,
            taken.linear_over,
            missed.min,
            missed.max,
            missed.sum,
            missed.over,
            missed.linear_over,
            self.max_at,
            self.beyond,
            self.stolen,
        ]
    }

    /// Keeps every reading beyond the threshold in `late` too, until it is full.
    pub fn keep_late(&mut self, late: &'a mut [KeptReading]) {
        (self.late, self.late_used) = (late, 0);
    }

    /// The readings beyond the threshold, in order; fewer than `beyond` where there was no room.
    pub fn late(&self) -> &[KeptReading] {
        self.late.get(..self.late_used).unwrap_or_default()
    }

    /// The largest readings, in no order.
    pub fn worst(&self) -> impl Iterator<Item = &KeptReading> {
        self.worst.iter().filter(|kept| **kept != KeptReading::default())
    }

    /// Counts one reading and keeps it if it is among the worst.
    ///
    /// # Real time
    /// Bounded: one pass over `worst` when the reading is among them.
    #[inline]
    pub fn record(&mut self, reading: KeptReading) {
        if reading.value > self.readings.max || self.readings.count == 0 {
            self.max_at = reading.at;
        }
        self.readings.add(reading.value, 1);
        self.beyond(reading.value, 1);
        if reading.value > self.threshold
            && let Some(slot) = self.late.get_mut(self.late_used)
        {
            *slot = reading;
            self.late_used += 1;
        }
        self.keep(reading);
    }

    /// Counts `n` readings of `ns` that are not kept one by one; the last of them ended at `at`.
    pub(crate) fn record_many(&mut self, ns: u64, n: u64, at: u64) {
        if n > 0 && (ns > self.readings.max || self.readings.count == 0) {
            self.max_at = at;
        }
        self.readings.add(ns, n);
        self.beyond(ns, n);
    }

    fn beyond(&mut self, ns: u64, n: u64) {
        if ns > self.threshold {
            self.beyond += n;
            self.stolen = self.stolen.saturating_add(ns.saturating_mul(n));
        }
    }

    fn keep(&mut self, reading: KeptReading) {
        if reading.value <= self.bar {
            return;
        }
        if let Some(least) = self.worst.iter_mut().min_by_key(|kept| kept.value) {
            *least = reading;
        }
        self.bar = self.worst.iter().map(|kept| kept.value).min().unwrap_or(u64::MAX);
    }
}
