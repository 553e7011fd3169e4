//! Where strips come from while it plays.

use crate::{ReadyStrip, Result};
use quiet_dsp::{ProcessSpec, strip::Readout};
use quiet_types::play::Knob;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A strip that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WantedStrip {
    /// By its description.
    Strip(PathBuf),
    /// The strip that sounds, with another amp.
    Amp(PathBuf),
    /// The strip that sounds, with another impulse response.
    Ir(PathBuf),
}

/// A strip, prepared, with what to know about it.
pub struct Loaded {
    /// The strip.
    pub strip: ReadyStrip,
    /// Its own name, or its file's.
    pub name: String,
    /// Its parameters, in the order that [`quiet_dsp::Stage::set`] counts them.
    pub params: Vec<Knob>,
    /// What its stages tell while it sounds.
    pub readings: Vec<Readout>,
    /// What to know: files resampled, weights left out.
    pub notes: Vec<String>,
    /// Frames that the output is later than the input.
    pub latency: u32,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Loaded {
    /// The strip that is none.
    pub fn wire() -> Loaded {
        Loaded {
            strip: Box::new(crate::Wire),
            name: "wire".to_owned(),
            params: Vec::new(),
            readings: Vec::new(),
            notes: Vec::new(),
            latency: 0,
        }
    }
}

/// Builds strips, away from the real-time side.
pub trait Shelf: Send {
    /// A strip for `setting`.
    ///
    /// # Errors
    /// A sentence: the file, the line, the remedy.
    fn load(&mut self, wanted: &WantedStrip, setting: ProcessSpec) -> Result<Loaded>;

    /// The description of the strip loaded last, to be kept with a preset.
    fn path(&self) -> Option<PathBuf> {
        None
    }
}

/// A shelf without strips.
#[derive(Clone, Copy, Debug, Default)]
pub struct Empty;

impl Shelf for Empty {
    fn load(&mut self, _: &WantedStrip, _: ProcessSpec) -> Result<Loaded> {
        Err(crate::Error::new("there are no strips here: it plays a wire"))
    }
}
