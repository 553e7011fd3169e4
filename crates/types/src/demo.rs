//! The demonstration: the same music beside a thread that takes its CPU, and on a quiet core.

use crate::{Finding, Nanos, head::Head, play::XrunAt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Demonstration`] in JSON.
pub const SCHEMA: &str = "quietcores.demo/1";

/// What was played, and what was lost of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Demonstration {
    /// What, when and where.
    #[serde(flatten)]
    pub head: Head,
    /// CPU of the thread that played.
    pub cpu: u32,
    /// Frames a second.
    pub rate: u32,
    /// Frames a period.
    pub period: u32,
    /// Frames in the ring of the card that does not exist.
    pub buffer: u32,
    /// What was planted beside the music, in a sentence.
    pub planted: String,
    /// The shared part, then the quiet one.
    pub parts: Vec<DemoPart>,
    /// Whether every value is as it was before; `None` where nothing was changed.
    pub restored: Option<bool>,
    /// What came of it, in a sentence.
    pub sentence: String,
    /// What to know beside the figures.
    pub findings: Vec<Finding>,
}

/// One part of a demonstration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DemoPart {
    /// `shared` or `quiet`.
    pub name: String,
    /// How it was played, in a sentence.
    pub how: String,
    /// How long it played.
    pub lasted: Nanos,
    /// Periods that were played in time.
    pub periods: u64,
    /// Periods that were lost.
    pub lost: u64,
    /// Whether the thread ran under a real-time policy, read back.
    pub real_time: bool,
    /// Whether it ran inside a shield.
    pub shielded: bool,
    /// Where sound was lost, the last 1000 of them.
    pub gaps: Vec<XrunAt>,
    /// How often it was lost.
    pub count: u64,
}
