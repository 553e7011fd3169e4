//! What the tests of the loops share: memory to lend, words to share.
#![allow(dead_code)]

use quiet_rt::{Counts, FACTS, KeptReading, Live, Tally};
use quiet_types::{Histogram, Nanos, histogram::layout};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub struct Words([AtomicU64; 4], [AtomicU64; FACTS]);

/// Counts to lend.
pub fn zeros(n: usize) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

/// What they hold.
pub fn values(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Relaxed)).collect()
}

impl Words {
    pub fn live(&self) -> Live<'_> {
        let [stop, obtained, missed, max] = &self.0;
        Live { stop, obtained, missed, max, facts: &self.1 }
    }

    pub fn stop(&self) {
        self.0[0].store(1, Relaxed);
    }

    /// What it said besides.
    pub fn facts(&self) -> Vec<u64> {
        values(&self.1)
    }

    /// What the loop said: obtained, missed, max.
    pub fn told(&self) -> (u64, u64, u64) {
        let word = |at: usize| self.0[at].load(Relaxed);
        (word(1), word(2), word(3))
    }
}

pub struct Owned {
    logs: [Vec<AtomicU64>; 2],
    linears: [Vec<AtomicU64>; 2],
    worst: Vec<KeptReading>,
}

impl Owned {
    pub fn new(linear: usize) -> Owned {
        let log = || zeros(layout::BUCKETS);
        Owned {
            logs: [log(), log()],
            linears: [zeros(linear), zeros(linear)],
            worst: vec![KeptReading::default(); 64],
        }
    }

    pub fn tally(&mut self, width: u64, threshold: u64) -> Tally<'_> {
        let [a, b] = &self.logs;
        let [c, d] = &self.linears;
        Tally::new(Counts::new(a, c, width), Counts::new(b, d, width), &mut self.worst, threshold)
    }
}

/// Without the linear part.
pub fn histogram(counts: &Counts<'_>) -> Histogram {
    let some = counts.count > 0;
    Histogram::from_counts(
        &values(counts.log()),
        counts.over,
        some.then_some(Nanos(counts.min)),
        some.then_some(Nanos(counts.max)),
        Nanos(counts.sum),
    )
}
