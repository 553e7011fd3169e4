//! What came of playing files through a strip.

use crate::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Rendering`] in JSON.
pub const SCHEMA: &str = "quietcores.render/1";

/// All files of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rendering {
    /// [`SCHEMA`].
    pub schema: String,
    /// In the order in which they were named.
    pub files: Vec<Rendered>,
    /// Wall time of all together, s.
    pub seconds: f64,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rendered {
    /// What was read.
    pub from: String,
    /// What was written.
    pub to: String,
    /// What came of it.
    pub outcome: FileOutcome,
    /// Why it failed, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The figures of a file that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<Sound>,
    /// What one should know: clipping, resampling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// What came of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileOutcome {
    /// It is written.
    Done,
    /// It was there, and was to be kept.
    Skipped,
    /// Nothing is written.
    Failed,
}

/// The figures of a rendered file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sound {
    /// Frames a second of the file.
    pub rate: u32,
    /// Frames a second at which the strip ran.
    pub strip_rate: u32,
    /// Channels read and written.
    pub channels: [u32; 2],
    /// Frames that were read.
    pub frames: u64,
    /// Frames that were written beyond these: what still sounded.
    pub tail: u64,
    /// Frames by which the strip is late; taken out again.
    pub latency: u32,
    /// The highest sample, dBFS; none for silence.
    pub peak: Option<f64>,
    /// Samples above full scale: limited to it in an integer format, kept in a float one.
    pub clipped: u64,
    /// Samples of the input that are NaN or infinite: played as silence.
    #[serde(default)]
    pub not_finite: u64,
    /// Wall time from open to done, s.
    pub seconds: f64,
    /// Length of the sound over wall time.
    pub speed: f64,
}
