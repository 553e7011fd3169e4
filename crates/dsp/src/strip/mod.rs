//! Strips: the stages between input and output, described in TOML, prepared, swapped as one.
//!
//! ```toml
//! [strip]
//! name = "clean"
//!
//! [[stage]]
//! kind = "gate"
//! threshold = -60.0
//!
//! [[stage]]
//! kind = "biquad"
//! name = "rumble"
//! type = "highpass"
//! frequency = 40.0
//! q = 0.707
//! ```
//!
//! [`Description::parse`] reads it and knows every line; [`Description::prepare`] builds a
//! [`Strip`], which may load, allocate and fail; [`Strip`] is itself a [`Stage`](crate::Stage).

pub mod camilla;
mod description;
mod fork;
mod halves;
mod key;
mod kinds;
mod prepare;
mod sounding;

pub use description::Description;
pub use fork::{Fork, ForkBranch};
pub use halves::{Half, Halves, Seam};
pub(crate) use key::{Built, Fault, Room};
pub use key::{Gauge, Given, Key, KeyKind, LiveParam, ValueForm, ValueUnit};
pub use kinds::KINDS;
pub use sounding::{Edge, Elsewhere, Readout, Shape, Strip, StripStage};

/// Where the files come from that a strip names: stages themselves do no I/O.
pub trait FileSource {
    /// The bytes of `name`, as it is written in the strip.
    ///
    /// # Errors
    /// Why it cannot be had: an error whose text is a sentence.
    fn load(&mut self, name: &str) -> Result<Vec<u8>, NotHad>;
}

/// Why a file cannot be had, as its source says.
pub type NotHad = Box<dyn std::error::Error + Send + Sync>;

impl<F, E> FileSource for F
where
    F: FnMut(&str) -> Result<Vec<u8>, E>,
    E: Into<NotHad>,
{
    fn load(&mut self, name: &str) -> Result<Vec<u8>, NotHad> {
        self(name).map_err(Into::into)
    }
}
