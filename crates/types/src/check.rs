//! The audit of a machine as data.

use crate::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Checked`] in JSON.
pub const SCHEMA: &str = "quietcores.check/1";

/// What an audit of a machine came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// [`SCHEMA`].
    pub schema: String,
    /// What stands in the way, greatest effect first.
    pub findings: Vec<Finding>,
    /// Every check and what it came to, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked: Vec<Looked>,
    /// What `tune` has measured on this machine of steps that mend a finding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<MeasuredHere>,
}

/// What was measured on this machine of a step that mends a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredHere {
    /// The finding.
    pub finding: String,
    /// The step, what was said of it, and by how much.
    pub said: String,
    /// Id of the tune.
    pub tune: String,
    /// When, UTC, RFC 3339.
    pub started: String,
    /// On which kernel.
    pub kernel: String,
    /// Under which stress; `none`.
    pub stress: String,
}

/// One check and what it came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Looked {
    /// The check: its findings carry the same id.
    pub id: String,
    /// What it looks at.
    pub about: String,
    /// What it came to.
    pub result: CheckOutcome,
    /// What was seen, or why nothing could be.
    pub because: String,
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// It has findings.
    Found,
    /// All is well.
    Fine,
    /// It does not apply to this machine or chain.
    Moot,
    /// The snapshot does not tell.
    Unknown,
}
