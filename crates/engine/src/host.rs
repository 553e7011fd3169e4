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

impl Device for file::File {
    fn finish(&mut self) -> crate::Result<()> {
        self.save()
    }
}
