//! Which step helped: what of a plan can be taken or left by itself, and what a screening of it shows.

use crate::{Finding, Nanos, figure::Ratio, head::Head, proof::Restored, run::Spec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema of [`Tuned`] in JSON.
pub const SCHEMA: &str = "quietcores.tune/1";

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

/// A verdict for every step, and the smallest set of steps that is enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tuned {
    /// What, when and where.
    #[serde(flatten)]
    pub head: Head,
    /// What was asked, in words.
    pub question: String,
    /// What was asked of the probe in every block.
    pub spec: Spec,
    /// Suites and stressors that ran meanwhile.
    pub stress: Vec<String>,
    /// The design, as it was stated before the first pair.
    pub design: TuneDesign,
    /// The steps, those that help most first.
    pub steps: Vec<TunedStep>,
    /// What of the plan was not tried, and why.
    pub left_out: Vec<LeftOut>,
    /// The smallest set, and what it was compared with; `None` where it did not come to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Smallest>,
    /// Boot by boot, where boot parameters were judged: whole plots, of which `blocks` has one block each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boots: Vec<TunedBoot>,
    /// What may be chosen beside the steps, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<TunedChoice>,
    /// How the machine was found afterwards.
    pub restored: Option<Restored>,
    /// All of it in one sentence.
    pub sentence: String,
    /// The text of a chain file with what helps.
    pub chain: String,
    /// Commands that do it again, one a line of a shell.
    pub commands: Vec<String>,
    /// What to know beside the figures.
    pub findings: Vec<Finding>,
    /// Every block in the order in which it was measured.
    pub blocks: Vec<TuneBlock>,
}

/// One boot, measured: a whole plot of the design.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunedBoot {
    /// Number of its pair: this boot and its mirror image.
    pub pair: u32,
    /// Names of what was on, by its effect where the kernel shows it, else by its command line.
    pub on: Vec<String>,
    /// Names of what was asked for, stands on the command line, and is not in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void: Vec<String>,
    /// The kernel's name of this boot.
    pub boot: String,
    /// The kernel's release.
    pub kernel: String,
    /// When it was measured, UTC.
    pub started: String,
    /// How often this boot had to be asked for.
    pub tries: u32,
    /// What was measured in it, one after the other.
    pub blocks: Vec<TuneBlock>,
}

/// What is fixed before a step is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneDesign {
    /// What every order is drawn from.
    pub seed: u32,
    /// The time that was given.
    pub budget: Nanos,
    /// How long a block takes, with everything around it, in the pilot.
    pub block: Nanos,
    /// Figures by which steps are judged, the first of them first.
    pub responses: Vec<TuneResponse>,
    /// Pairs of blocks of the screening.
    pub pairs: u32,
    /// How often chance may show any step that does nothing, in all verdicts of the screening together.
    pub family: f64,
    /// By how many times the smallest set may be off the whole shield and is still called as good.
    pub margin: f64,
}

/// A figure by which steps are judged; lower is better.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneResponse {
    /// `wakeup.p99`, `wakeup.beyond`, `gap.stolen`.
    pub id: String,
    /// For people.
    pub title: String,
    /// Spread of the logarithm between the two blocks of a pair where nothing differs, by the pilot.
    pub noise: f64,
    /// The change that the screening shows in 4 of 5 cases, as a factor above 1; infinite where there are too few pairs (`null`).
    #[serde(deserialize_with = "infinite")]
    pub resolves: f64,
}

/// JSON has no infinity: it stands there as null.
fn infinite<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// What is said of a step.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum StepSays {
    /// With it latency is lower, by more than chance does it.
    #[serde(rename = "helps")]
    Helps,
    /// With it latency is higher.
    #[serde(rename = "hurts")]
    Hurts,
    /// Neither is shown. Not the same as "does nothing".
    #[default]
    #[serde(rename = "not shown")]
    NotShown,
    /// The kernel, or somebody else, did not keep it applied: nothing is known of it.
    #[serde(rename = "void")]
    Void,
}

impl fmt::Display for StepSays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            StepSays::Helps => "helps",
            StepSays::Hurts => "hurts",
            StepSays::NotShown => "not shown",
            StepSays::Void => "void",
        })
    }
}

/// A step, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunedStep {
    /// What was taken or left.
    pub factor: Factor,
    /// What is said of it.
    pub says: StepSays,
    /// By figure, in the order of the design.
    pub effects: Vec<StepEffect>,
    /// What leaving it out of the whole shield does; `None` where that was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmation>,
    /// What it costs.
    pub prices: Vec<StepPrice>,
    /// Blocks in which it was to be in force, and was not when it was read back.
    pub void: u32,
    /// Whether it is in the smallest set.
    pub kept: bool,
}

/// What a step does to one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepEffect {
    /// The figure.
    pub id: String,
    /// With the step by without it; below 1 it helps. The interval holds for all steps and figures at once.
    pub ratio: Ratio,
    /// p of the randomization test, adjusted for all steps and figures (max-T).
    pub p_value: f64,
    /// Whether that is shown.
    pub shown: bool,
    /// The smallest change that these blocks would have shown in 4 of 5 cases, as a factor above 1.
    #[serde(deserialize_with = "infinite")]
    pub visible: f64,
}

/// What leaving one step out of the whole shield does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// The figure.
    pub id: String,
    /// Pairs that count.
    pub pairs: u32,
    /// The whole shield by the shield without the step; below 1 the step helps beside all others.
    pub ratio: Ratio,
    /// Of the exact paired sign-flip test, adjusted for all steps that were left out (Holm).
    pub p_value: f64,
    /// Whether it is shown, and in the same direction.
    pub shown: bool,
}

/// What a step costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPrice {
    /// `power`, `deep_idle`, `idle`, `throughput`.
    pub id: String,
    /// In words: `power of the packages`.
    pub title: String,
    /// The unit of `change`: `W`, `percentage points`, `%`.
    pub unit: String,
    /// With the step, less without it.
    pub change: f64,
    /// Lower end of an interval that holds for all steps at once.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The smallest set of steps, against the whole shield.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Smallest {
    /// Names of its steps.
    pub steps: Vec<String>,
    /// Pairs that count.
    pub pairs: u32,
    /// By figure: the smallest set by the whole shield, with the interval that the equivalence test rests on.
    pub ratios: Vec<SmallestRatio>,
    /// What the equivalence test says.
    pub says: Enough,
}

/// One figure of the smallest set against the whole shield.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SmallestRatio {
    /// The figure.
    pub id: String,
    /// Below 1 the smallest set is better.
    pub ratio: Ratio,
    /// The larger p of the two one-sided tests against the margin.
    pub p_value: f64,
}

/// What the comparison of the smallest set with the whole shield says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Enough {
    /// As good as the whole shield, within the margin.
    #[serde(rename = "as good")]
    AsGood,
    /// Better than the whole shield: some step of that hurts.
    #[serde(rename = "better")]
    Better,
    /// Worse than the whole shield, by more than the margin.
    #[serde(rename = "worse")]
    Worse,
    /// Neither is shown.
    #[default]
    #[serde(rename = "not shown")]
    NotShown,
}

impl fmt::Display for Enough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Enough::AsGood => "as good",
            Enough::Better => "better",
            Enough::Worse => "worse",
            Enough::NotShown => "not shown",
        })
    }
}

/// What a block is measured for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum BlockPart {
    /// Twice the same: what differs is noise.
    Pilot,
    /// Half of the steps, and beside it the other half.
    #[default]
    Screening,
    /// No step at all: how the machine drifts.
    Reference,
    /// The whole shield, and the whole shield without one step.
    Confirmation,
    /// The smallest set, and the whole shield.
    Comparison,
    /// One of several to choose from.
    Choice,
    /// One of those of a boot.
    Boot,
}

/// One measurement with some of the steps in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneBlock {
    /// What for.
    pub part: BlockPart,
    /// Number of the pair within its part, from 0.
    pub pair: u32,
    /// When it began, since the start.
    pub at: Nanos,
    /// Names of the steps that were in force, as read back.
    pub on: Vec<String>,
    /// Names of those that were to be in force and were not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void: Vec<String>,
    /// By figure of the design.
    pub values: Vec<TuneValue>,
    /// Operations a second of the stress: the geometric mean over stressors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<f64>,
    /// Power of the packages in W, where it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Share of all CPUs' time in idle states deeper than the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deep_idle: Option<f64>,
    /// Share of all CPUs' time that they were idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<f64>,
    /// Why it does not count at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// A value, and half of the smallest step that it can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneValue {
    /// The value.
    pub value: f64,
    /// So that the logarithm of none is finite.
    pub half: f64,
}

impl TuneValue {
    /// Its logarithm, of which differences are looked at.
    pub fn log(&self) -> f64 {
        (self.value + self.half).max(1e-300).ln()
    }
}

/// One of several, chosen by successive halving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunedChoice {
    /// What is chosen: `cpu`, `priority`, `interval`, `siblings`.
    pub what: String,
    /// All that were tried, the best first.
    pub tried: Vec<TriedChoice>,
    /// What is said of the first: whether it is shown to be better than each of the others.
    pub sentence: String,
}

/// One of those to choose from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriedChoice {
    /// `CPU 3`, `priority 80`.
    pub name: String,
    /// Blocks in which it was measured.
    pub blocks: u32,
    /// The median of the first figure over its blocks.
    pub median: f64,
    /// The best one by this one, in rounds that both were measured in; `None` for the best itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Of the exact paired test against the best, adjusted (Holm) for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// Whether the best one is shown to be better.
    pub beaten: bool,
}
