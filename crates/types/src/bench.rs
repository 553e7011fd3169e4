//! What a strip costs.

use crate::{Finding, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Bench`] in JSON.
pub const SCHEMA: &str = "quietcores.bench/1";

/// What a strip costs on this CPU at one rate and block length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bench {
    /// [`SCHEMA`].
    pub schema: String,
    /// Frames a second.
    pub rate: u32,
    /// Frames a block.
    pub block: u32,
    /// Channels in and out.
    pub channels: [u32; 2],
    /// Latency that the strip adds, in frames.
    pub latency: u32,
    /// How long a block lasts.
    pub period: Nanos,
    /// The instruction set that is used.
    pub simd: String,
    /// All stages together.
    pub whole: BlockCost,
    /// Each stage, in order.
    pub stages: Vec<StageCost>,
    /// Mean block after everything has been driven out of the caches.
    pub cold: Nanos,
    /// Highest clock that this CPU says it has, MHz; what the figures were taken at is not known
    /// on many virtual machines.
    pub clock_mhz: Option<f64>,
    /// Clock while measuring over clock a moment after the start: below 1, it was throttled.
    pub clock_kept: f64,
    /// Multiply-adds that this CPU does at most, in thousands of millions a second (2 flop each);
    /// measured between the passes.
    pub fma_peak: f64,
    /// The smallest period that this CPU carries with [`Bench::margin`], in frames; none of the
    /// tried ones where absent.
    pub smallest: Option<Carried>,
    /// The share of a period that the worst block may use there.
    pub margin: f64,
    /// What is doubtful.
    pub findings: Vec<Finding>,
}

/// What something costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockCost {
    /// Mean time a frame, ns.
    pub ns_per_frame: f64,
    /// Mean block.
    pub mean: Nanos,
    /// Worst block: each block of the sound counts by its shortest of all passes.
    pub worst: Nanos,
    /// Longest block of all passes: with what the machine put into it.
    pub longest: Nanos,
    /// Mean block over its period, %.
    pub load: f64,
    /// Worst block over its period, %.
    pub worst_load: f64,
}

/// What a stage costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageCost {
    /// Its name in the strip.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Mean time a frame, ns.
    pub ns_per_frame: f64,
    /// Worst block.
    pub worst: Nanos,
    /// Multiply-adds a frame, where the stage tells them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiply_adds: Option<f64>,
    /// These over what the CPU does at most, %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_peak: Option<f64>,
}

/// A period that this CPU carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Carried {
    /// Its frames.
    pub frames: u32,
    /// Its length.
    pub length: Nanos,
    /// The strip's worst block in it.
    pub worst: Nanos,
}
