//! The clock of the loops: the processor's counter where it is steady, else `CLOCK_MONOTONIC`.

use quiet_linux::{
    Root,
    clock::{TickScale, calibrate, distrust},
    sys::clock as sys,
};
use quiet_rt::Clock;
use quiet_types::{Finding, Severity};

/// Read without a system call.
#[derive(Clone, Copy, Debug)]
pub struct Ticks(Option<TickScale>);

impl Ticks {
    /// Calibrates the counter: takes 20 ms.
    pub fn calibrated(root: &Root) -> Ticks {
        Ticks(calibrate(root).0)
    }

    /// `CLOCK_MONOTONIC` in any case.
    pub fn plain() -> Ticks {
        Ticks(None)
    }

    /// Ticks a second.
    pub fn hertz(&self) -> f64 {
        self.0.map_or(1e9, |scale| scale.hertz)
    }
}

/// What to know where the kernel's clock is read in place of the counter.
pub(crate) fn doubt(root: &Root) -> Option<Finding> {
    let why = distrust(root)?;
    let title = "The kernel's clock is read, not the counter";
    let finding = Finding::new(Severity::Note, "play.clock", title).evidence(why);
    Some(finding.effect("Times of blocks are a little less fine; nothing else."))
}

impl Clock for Ticks {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        match &self.0 {
            Some(_) => sys::ticks(),
            None => sys::monotonic(),
        }
    }

    #[inline(always)]
    fn nanos(&self, ticks: u64) -> u64 {
        match &self.0 {
            Some(scale) => scale.nanos(ticks),
            None => ticks,
        }
    }
}
