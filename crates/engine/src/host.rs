//! Where sound comes from and goes to.

#[cfg(feature = "audio")]
pub mod alsa;
#[cfg(feature = "audio")]
mod bridge;
pub mod file;
pub mod format;
pub(crate) mod hda;
#[cfg(feature = "audio")]
pub mod jack;
#[cfg(feature = "audio")]
mod laps;
#[cfg(feature = "audio")]
mod line;
pub mod null;
pub(crate) mod oob;
#[cfg(feature = "audio")]
mod pipewire;
pub mod taken;

use quiet_rt::Duplex;

/// What a device can do beside playing.
pub(crate) trait Device: Duplex + Send {
    /// Opens the device again after it was gone: whether it is back, may come back, or is over.
    fn again(&mut self) -> Again {
        Again::Over
    }

    /// Called when all is over, away from the real-time side.
    fn finish(&mut self) -> crate::Result<()> {
        Ok(())
    }
}

/// A device that wakes nobody: its thread looks at it, and sleeps by the clock.
pub(crate) trait Polled: Device {
    /// How long nothing is due, ns from now; at most a period.
    ///
    /// # Real time
    /// No system call.
    fn left(&self) -> u64;
}

/// How an attempt to open a device again ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It plays again.
    Back,
    /// It may come back.
    NotYet,
    /// It has come to its end.
    Over,
}

impl Device for null::Null {}

impl Polled for null::Null {
    fn left(&self) -> u64 {
        self.left_ns()
    }
}

impl Device for file::File {
    fn finish(&mut self) -> crate::Result<()> {
        self.save()
    }
}
