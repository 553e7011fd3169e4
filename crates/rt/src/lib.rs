//! All that runs on the quiet core while it measures and plays.
//!
//! `no_std` without `alloc`: nothing here can allocate, lock, log or read a file. The loops are
//! generic over [`Clock`] and [`Timer`], so tests drive them with scripted time; the real ones
//! are made of two system facilities, the processor's counter and one absolute sleep.
//!
//! - [`wakeup`]: timer expiry to thread running, every period accounted for;
//! - [`gap`]: time between neighbouring clock reads of a spinning thread, without blind time;
//! - [`Tally`]: what both write into, over memory that the caller lends and has made present;
//! - [`duplex`]: plays and captures, generic over [`Duplex`] and [`Process`], asleep or never;
//! - [`Cycle`]: one block of it, which a host's callback runs as well; [`Board`]: its counters.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod board;
mod duplex;
mod gap;
mod live;
mod tally;
mod wakeup;

pub use board::{Board, LOADS, METERS};
pub use duplex::{
    Cure, Cycle, Duplex, End, Look, LoopEvent, LoopMode, Process, Tell, Xrun, duplex,
};
pub use gap::{Gap, SMALL, gap};
pub use live::{FACTS, Live};
pub use tally::{Counts, KeptReading, Tally};
pub use wakeup::{Periods, Wakeup, wakeup};

/// A clock that is read without a system call.
pub trait Clock {
    /// The counter now. Never runs backwards on one CPU.
    ///
    /// # Real time
    /// One instruction where the processor has a counter.
    fn ticks(&self) -> u64;

    /// A span of ticks in nanoseconds.
    ///
    /// # Real time
    /// One multiplication and a shift.
    fn nanos(&self, ticks: u64) -> u64;
}

impl<C: Clock> Clock for &C {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        (**self).ticks()
    }

    #[inline(always)]
    fn nanos(&self, ticks: u64) -> u64 {
        (**self).nanos(ticks)
    }
}

/// A sleep that ends at a point in time.
pub trait Timer {
    /// Sleeps until `at`, in ns of the timer's own clock, and says when the thread ran again, in
    /// ns of the same clock. Returns at once when `at` has passed.
    ///
    /// # Real time
    /// One blocking system call; the stamp is the first thing taken after it.
    fn sleep_until(&mut self, at: u64) -> u64;
}
