//! What other threads may see of a loop while it runs, and how they end it.

use crate::Tally;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

/// Number of [`Live::facts`].
pub const FACTS: usize = 12;

/// The words that a loop shares with the outside.
///
/// `stop` lies on another cache line than the rest: it is written once, at the end, so reading it
/// costs nothing; the others are written by the loop and read a few times a second.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// Not zero: end now, with what there is.
    pub stop: &'a AtomicU64,
    /// Readings taken so far.
    pub obtained: &'a AtomicU64,
    /// Periods missed so far.
    pub missed: &'a AtomicU64,
    /// Largest reading so far, ns.
    pub max: &'a AtomicU64,
    /// The rest of a [`Tally`], each as its field: of the readings taken `min`, `sum`, `over` and `linear_over`,
    /// of the missed periods `min`, `max`, `sum`, `over` and `linear_over`, then `max_at`, `beyond` and `stolen`.
    ///
    /// A look from outside may fall between two stores. A reading is counted first and said last, so a look that
    /// finds as many readings in the buckets as [`Live::obtained`] says, and the same number afterwards, saw all
    /// of them and no other.
    pub facts: &'a [AtomicU64; FACTS],
}

impl Live<'_> {
    /// Whether the loop was asked to end.
    ///
    /// # Real time
    /// One relaxed load.
    #[inline(always)]
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed) != 0
    }

    /// Says how far the loop is. Only what changed is written.
    ///
    /// # Real time
    /// A load and a comparison a word, in two cache lines that only this thread writes to; a relaxed store where
    /// something changed: two a reading, a few more when a period was missed or a maximum found.
    #[inline(always)]
    pub(crate) fn say(&self, obtained: u64, missed: u64, tally: &Tally<'_>) {
        let change = |word: &AtomicU64, to: u64| {
            if word.load(Relaxed) != to {
                word.store(to, Relaxed);
            }
        };
        for (word, to) in self.facts.iter().zip(tally.facts()) {
            change(word, to);
        }
        change(self.max, tally.readings.max);
        change(self.missed, missed);
        // Last: see `facts`.
        self.obtained.store(obtained, Release);
    }
}
