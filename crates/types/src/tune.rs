//! What of a plan can be taken or left by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Steps of a plan that are taken or left together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Factor {
    /// Its name: `partition`, `interrupts`, `stat_interval`.
    pub name: String,
    /// Its steps, each in words.
    pub steps: Vec<String>,
    /// What it is good for, in the plan's words.
    pub why: String,
}

/// A part of the plan that is no factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// What it is.
    pub what: String,
    /// Why it is none.
    pub why: String,
}
