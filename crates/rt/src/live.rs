//! What other threads may see of a loop while it runs, and how they end it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    /// One relaxed store a reading; two more when a period was missed or a maximum found.
    #[inline(always)]
    pub(crate) fn say(&self, obtained: u64, missed: u64, max: u64) {
        self.obtained.store(obtained, Relaxed);
        // Only this thread writes: the loads find the line in its own cache.
        if self.missed.load(Relaxed) != missed {
            self.missed.store(missed, Relaxed);
        }
        if self.max.load(Relaxed) != max {
            self.max.store(max, Relaxed);
        }
    }
}
