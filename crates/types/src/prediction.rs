//! What the readings of a run say about longer times than it lasted.

use crate::{Finding, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Prediction`] in JSON.
pub const SCHEMA: &str = "quietcores.prediction/1";

/// How late it can get, how often, and which buffer stands it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// [`SCHEMA`].
    pub schema: String,
    /// The runs that it is made of.
    pub ids: Vec<String>,
    /// Readings in all.
    pub readings: u64,
    /// Measured time in all, CPU by CPU.
    pub lasted: Nanos,
    /// Percentiles with their intervals.
    pub percentiles: Vec<Bounded>,
    /// The distribution of the readings above a high threshold; `None` where none fits.
    pub tail: Option<TailFit>,
    /// Why none fits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub no_fit: String,
    /// What is exceeded once in a time; empty without a fit.
    pub levels: Vec<Bounded>,
    /// Late readings by the cause that took most of each, with a tail of its own; empty where the runs
    /// have no causes (`--explain`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseTail>,
    /// What all causes together exceed once in a time, ns: their tails summed, with
    /// intervals by simulation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_cause: Vec<Bounded>,
    /// Why the causes are not summed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub no_mixture: String,
    /// Claims that were asked about.
    pub claims: Vec<Claimed>,
    /// Buffers, and how often each runs dry.
    pub buffers: Vec<Buffer>,
    /// What weakens all this.
    pub findings: Vec<Finding>,
}

/// A level with its 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounded {
    /// `p99.9`, `once an hour`.
    pub name: String,
    /// The level, ns.
    pub value: f64,
    /// Lower end of the interval, ns.
    pub low: f64,
    /// Upper end, ns; `None` where the readings set none.
    pub high: Option<f64>,
}

/// A generalized Pareto distribution above a threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TailFit {
    /// The threshold.
    pub threshold: Nanos,
    /// Readings above it.
    pub excesses: u64,
    /// Below 0 there is an upper end, above it there is none.
    pub shape: f64,
    /// Its standard error.
    pub shape_error: f64,
    /// The scale, ns.
    pub scale: f64,
    /// How often chance makes a worse fit.
    pub goodness: f64,
    /// The upper end, ns, where there is one.
    pub end: Option<f64>,
}

/// The tail of one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseTail {
    /// The cause in words; `rarer causes` for all that have too few readings to fit.
    pub title: String,
    /// Late readings of which it took the largest part.
    pub readings: u64,
    /// Such readings an hour.
    pub an_hour: f64,
    /// The largest.
    pub largest: Nanos,
    /// Their distribution; `None` where none fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<TailFit>,
    /// Why none fits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub no_fit: String,
}

/// A claim: no more than one reading above `limit` in `every`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claimed {
    /// The limit.
    pub limit: Nanos,
    /// How often it may be exceeded.
    pub every: Nanos,
    /// Readings above it.
    pub seen: u64,
    /// Whether it is shown.
    pub verdict: ClaimVerdict,
    /// Time that is still to be measured without another reading above the limit.
    pub needs: Option<Nanos>,
    /// In one sentence.
    pub sentence: String,
}

/// Whether a claim is shown, at 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// It holds.
    Holds,
    /// It does not.
    Broken,
    /// Measured too short to say.
    TooShort,
}

/// A buffer, and how often it runs dry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Buffer {
    /// Its length.
    pub frames: u32,
    /// The same as time.
    pub length: Nanos,
    /// Times an hour that it runs dry, delays that follow each other added up.
    pub an_hour: f64,
    /// Times an hour by single delays alone.
    pub alone: f64,
    /// Upper end of the 95 % interval: none seen is not never.
    pub most: f64,
    /// The chance of at least one in an hour.
    pub in_an_hour: f64,
}
