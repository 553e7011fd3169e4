//! What a comparison of two settings is made of: units, estimates, ratios, verdicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a comparison says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// Lower than before, and by more than chance does it.
    #[serde(rename = "better")]
    Better,
    /// Higher than before, and by more than chance does it.
    #[serde(rename = "worse")]
    Worse,
    /// Neither is shown. Not the same as "equal".
    #[default]
    #[serde(rename = "not shown")]
    NotShown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NotShown => "not shown",
        })
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// A time in nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// A part of the whole, 0 to 1.
    #[serde(rename = "share")]
    Share,
}

/// The part that a figure has in the verdict on the whole. Declared before anything is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The verdict rests on it.
    Primary,
    /// It must not get worse.
    Guard,
    /// Judged and shown; the verdict does not rest on it.
    Context,
}

/// A figure over the runs of one setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The median of `runs`.
    pub median: f64,
    /// Lower end of the 95 % bootstrap interval of the median.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// One value a run, by pair: `shared.runs[i]` and `shielded.runs[i]` are neighbours in time.
    pub runs: Vec<f64>,
}

/// How many times as much, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The median of the paired ratios.
    pub value: f64,
    /// Lower end of the 95 % bootstrap interval over pairs.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// What the order within a pair did to the first of the primary figures, whichever setting came first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderEffect {
    /// The figure: `wakeup.p99`.
    pub figure: String,
    /// Pairs in which the first setting came first.
    pub base_first: u32,
    /// Pairs in which the other one did.
    pub other_first: u32,
    /// The second run of a pair by the first.
    pub ratio: f64,
    /// Two-sided, of the exact rank test between the pairs of either order: how often chance alone gives as much.
    pub p_value: f64,
}
