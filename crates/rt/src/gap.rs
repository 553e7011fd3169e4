//! Time between neighbouring clock reads of a spinning thread.

use crate::{Clock, KeptReading, Live, Tally, tally::count};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Gaps of fewer ticks than this have a count each at most; larger ones take the slower way.
pub const SMALL: usize = 1024;

/// What a run of [`gap`] covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Clock reads made, the first not among them: the number of gaps.
    pub reads: u64,
    /// From the first read to the last, in ticks: the sum of all gaps.
    pub ticks: u64,
    /// The first read: where every kept time counts from.
    pub start: u64,
}

/// Reads the clock without pause for `length` ticks and counts the time between neighbours.
///
/// There is no blind time: each gap ends where the next begins, so the time that counting takes
/// lies in the next gap. Small gaps are counted in ticks and turned into ns at the end, each
/// exactly; larger ones are turned into ns as they come. `small` has up to [`SMALL`] places: a
/// shorter one lets more gaps be kept by themselves.
///
/// # Real time
/// One turn is a clock read, a subtraction, two comparisons and a count. It never sleeps: under a
/// real-time policy nothing else of lower priority runs on this CPU meanwhile.
pub fn gap<C: Clock>(
    clock: &C,
    length: u64,
    small: &[AtomicU64],
    tally: &mut Tally<'_>,
    live: &Live<'_>,
) -> Gap {
    let start = clock.ticks();
    let end = start.saturating_add(length);
    let mut last = start;
    let (mut top, mut top_at) = (0, start);
    loop {
        let now = clock.ticks();
        // Not wrapping: a counter that steps back must not look like an eternity.
        let ticks = now.saturating_sub(last);
        last = now;
        match small.get(ticks as usize) {
            Some(slot) => {
                count(slot, 1);
                if ticks > top {
                    (top, top_at) = (ticks, now);
                }
            }
            None => long(clock, ticks, now - start, tally, live),
        }
        if now >= end || live.stopped() {
            break;
        }
    }
    for (ticks, n) in small.iter().enumerate() {
        tally.record_many(clock.nanos(ticks as u64), n.load(Relaxed), clock.nanos(top_at - start));
        // Counted once, also for who looks from outside.
        n.store(0, Relaxed);
    }
    // Exact, where adding up rounded gaps would not be.
    tally.readings.sum = clock.nanos(last - start);
    live.say(tally.readings.count, 0, tally);
    Gap { reads: tally.readings.count, ticks: last - start, start }
}

/// The slower way; its own time lies in the next gap.
#[cold]
#[inline(never)]
fn long<C: Clock>(clock: &C, ticks: u64, since_start: u64, tally: &mut Tally<'_>, live: &Live<'_>) {
    tally.record(KeptReading {
        at: clock.nanos(since_start),
        value: clock.nanos(ticks),
        missed: 0,
    });
    live.say(tally.readings.count, 0, tally);
}
