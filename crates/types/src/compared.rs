//! Two sets of runs compared: what differs between them, and whether the figures do.

use crate::{
    Finding, Nanos,
    figure::{Estimate, OrderEffect, Ratio, Role, Unit, Verdict},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Compared`] in JSON.
pub const SCHEMA: &str = "quietcores.compared/2";

/// A comparison of two sets of runs. Lower is better for every figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the other is compared with.
    pub a: Side,
    /// What is compared.
    pub b: Side,
    /// How: `pairs` of neighbours in time, or the `sets` as they are.
    pub method: Method,
    /// Whether the order within each pair was drawn by lot.
    #[serde(default)]
    pub drawn: bool,
    /// What the order within a pair did; `None` for sets, and where all pairs had the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderEffect>,
    /// The judged figures, most important first.
    pub figures: Vec<ComparedFigure>,
    /// The verdict on the whole: B against A.
    pub verdict: Verdict,
    /// Of the whole: the largest of the primary figures where all are better, else of the one that is worse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// The same among all comparisons that were made with it, as in a campaign: the verdict needs 0.05 or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_family: Option<f64>,
    /// The verdict in one sentence.
    pub sentence: String,
    /// What else is not the same in both: kernel, settings, stress.
    pub differs: Vec<Difference>,
    /// What weakens the comparison, or is to be known beside it.
    pub findings: Vec<Finding>,
}

/// How two sets are compared. Told by the order in time alone, before any reading is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The runs were made in turn: neighbours form pairs, and what hits both falls out.
    Pairs,
    /// Every run of one with every run of the other.
    Sets,
}

/// One of the two sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// As it was asked for.
    pub name: String,
    /// The runs that count, oldest first.
    pub ids: Vec<String>,
    /// Runs that do not count, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Readings in all.
    pub readings: u64,
    /// Periods missed in all; `None` where those of some run are not known.
    pub missed: Option<u64>,
    /// Measured time in all, likewise.
    pub lasted: Option<Nanos>,
    /// The largest reading of all. Shown, never judged.
    pub max: Option<Nanos>,
}

/// One figure of both sides, and whether it changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedFigure {
    /// Stable, machine-readable: `wakeup.p99`, `gap.stolen`.
    pub id: String,
    /// For people: `p99`, `beyond 100 us`.
    pub title: String,
    /// What its numbers are.
    pub unit: Unit,
    /// Its part in the verdict on the whole.
    pub role: Role,
    /// Of A: the median over its runs.
    pub a: Estimate,
    /// Of B.
    pub b: Estimate,
    /// B by A. Below 1 is better.
    pub ratio: Ratio,
    /// Whether it changed.
    pub verdict: Verdict,
    /// Two-sided: how often chance alone gives as much.
    pub p_value: f64,
    /// The same with all figures of the table taken together: what the verdict needs at 0.05 or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_family: Option<f64>,
    /// Why it is not shown, or what else to know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Something that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// `kernel`, `interval`, `stress`, or a path below `/`.
    pub what: String,
    /// In A.
    pub a: String,
    /// In B.
    pub b: String,
}
