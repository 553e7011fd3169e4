//! Who hears what happens in an experiment.

use quiet_types::{
    Frames, Nanos,
    history::Line,
    plan::Reverted,
    proof::Arm,
    tune::{Factor, TuneBlock, TuneDesign},
};

/// Something that happened, for a line in a log.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A shield that nobody confirmed, or whose owner was killed, was put back first.
    PutBack(&'a Reverted),
    /// The machine could not be put back where an experiment broke off: why, and what to do.
    NotPutBack(&'a crate::Error),
    /// A pair of arms is measured.
    Pair {
        /// Which one, from 1.
        number: u32,
        /// Of how many.
        of: u32,
        /// Its arms, in the order measured.
        arms: &'a [Arm],
        /// A wake-up later than this counts as beyond.
        threshold: Nanos,
    },
    /// A cell of a campaign is measured, or failed.
    Cell {
        /// Which one, from 1.
        number: usize,
        /// Of how many.
        of: usize,
        /// Probe, stress and setting.
        name: &'a str,
        /// Its run; or why there is none.
        run: Result<&'a Line, &'a str>,
        /// About how long the rest takes.
        left: Nanos,
    },
    /// A tune's design, as it is stated before the first step is looked at.
    Design(&'a TuneDesign, &'a [Factor]),
    /// A block of a tune is measured.
    Block(&'a TuneBlock),
    /// A buffer was tried.
    Buffer {
        /// Frames a period.
        period: Frames,
        /// Frames in the ring.
        buffer: Frames,
        /// Whether it played without an xrun; or why it did not play.
        plays: Result<bool, &'a str>,
    },
}

/// Hears how far an experiment is. Called from the thread that arranges it, never from one that measures.
pub trait Observer {
    /// It begins, and takes about so long.
    fn begin(&self, whole: Nanos);
    /// So much of it is done.
    fn at(&self, done: Nanos);
    /// What it does now, in a few words.
    fn doing(&self, what: &str);
    /// Something happened.
    fn event(&self, event: Notice<'_>);
    /// What hears of guards that were killed, from a thread of their own.
    fn guard(&self) -> fn(&str);
    /// It is over; called once more than needed does no harm.
    fn end(&self);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _: Nanos) {}
    fn at(&self, _: Nanos) {}
    fn doing(&self, _: &str) {}
    fn event(&self, _: Notice<'_>) {}
    fn guard(&self) -> fn(&str) {
        |_| {}
    }
    fn end(&self) {}
}
