//! Which ordinary acts on other CPUs touch a CPU at all.

use crate::{CpuSet, Finding, Nanos, run::Host};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Reach`] in JSON.
pub const SCHEMA: &str = "quietcores.reach/1";

/// A row for each act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reach {
    /// [`SCHEMA`].
    pub schema: String,
    /// Start, UTC, RFC 3339 with milliseconds.
    pub started: String,
    /// Where.
    pub host: Host,
    /// CPUs that were watched.
    pub cpus: CpuSet,
    /// CPUs on which the acts were done.
    pub from: CpuSet,
    /// Ended by a signal: acts are missing, or the last one was done for a shorter time.
    #[serde(default)]
    pub interrupted: bool,
    /// The first one is doing nothing.
    pub acts: Vec<Act>,
    /// What to know about this.
    pub findings: Vec<Finding>,
}

/// One act and what it touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Act {
    /// Short name.
    pub name: String,
    /// What was done.
    pub about: String,
    /// Why it could not be done here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// How often it was done.
    pub times: u64,
    /// For how long.
    pub lasted: Nanos,
    /// Interrupts that it sent to the watched CPUs itself.
    pub sent: u64,
    /// Whatever else began on the watched CPUs meanwhile; compare with doing nothing.
    pub others: u64,
    /// What it sent and what began, most first.
    pub hits: Vec<Hit>,
}

/// Something that began on a watched CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hit {
    /// In words.
    pub what: String,
    /// Whether the act itself sent it.
    pub sent: bool,
    /// How often.
    pub times: u64,
}
