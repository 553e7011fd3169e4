//! The history of runs: a line a run, series of runs that asked the same, and what changed.

use crate::{
    Nanos,
    figure::{Ratio, Unit, Verdict},
    head::Head,
    host::Host,
    tune::{StepSays, Tuned},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`History`] in JSON.
pub const SCHEMA: &str = "quietcores.history/2";

/// Runs that are kept, and what their order in time shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// [`SCHEMA`].
    pub schema: String,
    /// How many there are; `runs` may be the newest of them.
    pub total: u64,
    /// The runs, oldest first.
    pub runs: Vec<Line>,
    /// The proofs, oldest first. Only where no condition asks for runs.
    #[serde(default)]
    pub proofs: Vec<Proven>,
    /// What was measured by sound, oldest first: round trips and tables of buffers. Only where no
    /// condition asks for runs.
    #[serde(default)]
    pub by_sound: Vec<BySound>,
    /// What tunes have said of steps, oldest first: the same step over machines and kernels. Only where no condition asks for runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepLine>,
    /// Changes between neighbouring stretches of a series, newest last.
    pub changes: Vec<Change>,
    /// Files that are no run any more, each with the reason and where it was put.
    pub aside: Vec<Aside>,
}

/// A proof in a line: what stands in its file beside the arms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proven {
    /// Its id.
    pub id: String,
    /// Start, UTC, RFC 3339.
    pub started: String,
    /// How long it took.
    pub lasted: Nanos,
    /// Ended by a signal before its time.
    #[serde(default)]
    pub interrupted: bool,
    /// Where.
    pub host: Host,
    /// What was compared, in words.
    pub question: String,
    /// The verdict on the whole.
    pub verdict: Verdict,
    /// The verdict in one sentence.
    pub sentence: String,
}

/// What a tune said of one step, in a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepLine {
    /// The tune's id.
    pub id: String,
    /// Start, UTC, RFC 3339.
    pub started: String,
    /// Name of the machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Names of the stress, joined by commas; `none`.
    pub stress: String,
    /// The step.
    pub step: String,
    /// What is said of it.
    pub says: StepSays,
    /// The figure.
    pub figure: String,
    /// With the step by without it; `None` where nothing is known of it.
    pub ratio: Option<Ratio>,
    /// The smallest change that would have been seen, as a factor above 1.
    pub visible: Option<f64>,
}

/// A measurement by sound in a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BySound {
    /// What, when and where.
    #[serde(flatten)]
    pub head: Head,
    /// The device in its own words.
    pub device: String,
    /// What came of it, in words.
    pub said: String,
}

/// One run in a line. `None` (`null`) is not known, of a run of another tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Its id.
    pub id: String,
    /// Start, UTC, RFC 3339.
    pub started: Option<String>,
    /// A checkpoint of a run whose program was killed before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Name of the machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// `wakeup` or `gap`.
    pub probe: String,
    /// Of wakeup.
    pub interval: Option<Nanos>,
    /// Policy and priority, as `fifo 90`.
    pub policy: Option<String>,
    /// CPUs that were measured.
    pub cpus: String,
    /// Names of the stress, joined by commas; `none`.
    pub stress: Option<String>,
    /// Free words.
    pub label: String,
    /// The campaign that it was made by; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub campaign: String,
    /// The key of its cell in that campaign.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cell: String,
    /// What made it: `quietcores`, or the format it was imported from.
    pub tool: String,
    /// A hash of the settings that were read back before the first reading: two equal ones make
    /// two runs comparable.
    pub settings: Option<String>,
    /// How long it measured.
    pub lasted: Option<Nanos>,
    /// Readings taken.
    pub readings: u64,
    /// Periods missed.
    pub missed: Option<u64>,
    /// Median.
    pub p50: Option<Nanos>,
    /// 99 of 100 readings are at or below it.
    pub p99: Option<Nanos>,
    /// 999 of 1000.
    pub p99_9: Option<Nanos>,
    /// The largest.
    pub max: Option<Nanos>,
    /// Share beyond the threshold; of gap, the gap time as a share.
    pub beyond: Option<f64>,
}

/// A figure that changed within a series when something else did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What the runs of the series have in common.
    pub series: String,
    /// `p99`, `p99.9`, `beyond`.
    pub figure: String,
    /// What its numbers are.
    pub unit: Unit,
    /// `kernel 6.17`, `settings 3f9a`.
    pub since: String,
    /// The first run after.
    pub first: String,
    /// Median before.
    pub before: f64,
    /// Median after.
    pub after: f64,
    /// After by before.
    pub ratio: Ratio,
    /// Better or worse.
    pub verdict: Verdict,
    /// Of the exact test.
    pub p_value: f64,
    /// In one sentence: `p99.9 x1.8 since kernel 6.17`.
    pub sentence: String,
}

/// A file that is no run any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Aside {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
    /// Where it lies now; empty where it was left in its place.
    pub moved: String,
}

impl StepLine {
    /// A line a step of a tune.
    pub fn of(tuned: &Tuned) -> Vec<StepLine> {
        let host = &tuned.head.host;
        let stress = match tuned.stress.as_slice() {
            [] => "none".to_owned(),
            names => names.join(","),
        };
        let line = |step: &crate::tune::TunedStep| {
            let told = step.effects.iter().find(|effect| effect.shown).or(step.effects.first());
            let told = told.filter(|effect| effect.visible.is_finite());
            StepLine {
                id: tuned.head.id.clone(),
                started: tuned.head.started.clone(),
                host: host.name.clone(),
                kernel: host.release.clone(),
                processor: host.processor.clone(),
                stress: stress.clone(),
                step: step.factor.name.clone(),
                says: step.says,
                figure: told.map(|effect| effect.id.clone()).unwrap_or_default(),
                ratio: told.map(|effect| effect.ratio),
                visible: told.map(|effect| effect.visible),
            }
        };
        tuned.steps.iter().map(line).collect()
    }
}
