//! A farm: what many machines measured, record by record, and what is answered about all of it.

use crate::{Histogram, Nanos, figure::Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`FarmRecord`] in JSON.
pub const RECORD_SCHEMA: &str = "quietcores.farm-record/1";
/// The schema of [`FarmAnswer`] in JSON.
pub const ANSWER_SCHEMA: &str = "quietcores.farm-answer/1";

/// The schema of [`FarmMember`] in JSON.
pub const MEMBER: &str = "quietcores.farm-join/1";
/// The schema of [`FarmLeft`] in JSON.
pub const LEFT: &str = "quietcores.farm-leave/1";
/// The schema of [`FarmStatus`] in JSON.
pub const STATUS: &str = "quietcores.farm-status/1";
/// The schema of [`FarmSent`] in JSON.
pub const SENT: &str = "quietcores.farm-send/1";
/// The schema of [`FarmGathered`] in JSON.
pub const GATHERED: &str = "quietcores.farm-collect/1";
/// The schema of [`FarmMetrics`] in JSON.
pub const METRICS: &str = "quietcores.farm-metrics/1";
/// The schema of [`FarmPage`] in JSON.
pub const PAGE: &str = "quietcores.farm-page/1";

/// What a machine agrees to by joining.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmMember {
    /// [`MEMBER`].
    pub schema: String,
    /// The name that its records carry.
    pub host: String,
    /// The servers; empty where records wait to be collected.
    pub to: String,
    /// What leaves the machine, a sentence each.
    pub leaves: Vec<String>,
    /// Its public key; `None` where it was only asked what would leave.
    pub key: Option<String>,
}

/// What `farm leave` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmLeft {
    /// [`LEFT`].
    pub schema: String,
    /// Whether the machine was in a farm until now.
    pub left: bool,
}

/// How a member stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmStatus {
    /// [`STATUS`].
    pub schema: String,
    /// What was agreed to; `None` where the machine is in no farm, and then all counts are 0.
    pub member: Option<FarmMember>,
    /// Records that wait.
    pub waiting: usize,
    /// Their size, bytes.
    pub size: u64,
    /// What they may hold together, bytes.
    pub bound: u64,
    /// Records of playing chains that were added up by the hour, since the outbox was full.
    pub added_up: u64,
    /// Those that were dropped.
    pub dropped: u64,
}

/// One pass of `farm send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmSent {
    /// [`SENT`].
    pub schema: String,
    /// Records that were made.
    pub new: u64,
    /// Records that the servers have taken.
    pub sent: u64,
    /// Records that wait.
    pub waiting: usize,
    /// What could not be read or is too large, a sentence each.
    pub left_out: Vec<String>,
    /// Why not everything was sent; `None` where it was, or where no server is.
    pub trouble: Option<String>,
}

/// What a collector took in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmGathered {
    /// [`GATHERED`].
    pub schema: String,
    /// Stores that were read; `None` where the servers' stream was.
    pub stores: Option<u64>,
    /// Records that are new.
    pub new: u64,
    /// Records that were there.
    pub known: u64,
    /// Records that were not believed or could not be read.
    pub refused: u64,
    /// Why, a sentence each; of a stream, `farm ask` has them.
    pub left_out: Vec<String>,
}

/// Figures for Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmMetrics {
    /// [`METRICS`].
    pub schema: String,
    /// The text, in the form OpenMetrics.
    pub openmetrics: String,
}

/// The wall that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmPage {
    /// [`PAGE`].
    pub schema: String,
    /// The file.
    pub path: String,
}

/// What a record tells of.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum FarmKind {
    /// A kept run.
    #[default]
    Run,
    /// A kept proof.
    Proof,
    /// A kept tune.
    Tune,
    /// A shield that went up or came down.
    Shield,
    /// Some minutes of a chain that plays.
    Live,
}

impl FarmKind {
    /// In a word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            FarmKind::Run => "run",
            FarmKind::Proof => "proof",
            FarmKind::Tune => "tune",
            FarmKind::Shield => "shield",
            FarmKind::Live => "live",
        }
    }
}

/// What a figure depends on: two records with equal settings may be added up.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
pub struct FarmSetting {
    /// The kernel's release.
    pub kernel: String,
    /// `uname -v`: how that kernel was built.
    pub version: String,
    /// `uname -m`.
    pub arch: String,
    /// The processor's name.
    pub cpu: String,
    /// The hypervisor; empty where there is none.
    pub hypervisor: String,
    /// The board's or computer's name; empty where it is not known.
    pub board: String,
    /// The chain; empty where there was none.
    pub chain: String,
    /// Steps of the shield that were in force.
    pub steps: Vec<String>,
    /// Boot parameters, where they are known.
    pub parameters: Vec<String>,
    /// `wakeup`, `gap`, or `blocks` of a chain that plays.
    pub probe: String,
    /// The period of wakeup and of blocks.
    pub interval: Option<Nanos>,
    /// Policy and priority, as `fifo 90`; empty where it is not known.
    pub policy: String,
    /// Names of the stress, joined by commas; `none`; empty where it is not known.
    pub stress: String,
    /// A reading above it is late.
    pub threshold: Option<Nanos>,
}

/// One cause of late readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmCause {
    /// In words.
    pub title: String,
    /// What it took in all, where lengths are known.
    pub total: Option<Nanos>,
    /// In how many late readings it had a part.
    pub readings: u64,
}

/// What one machine says of some time: never changed once it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmRecord {
    /// [`RECORD_SCHEMA`].
    pub schema: String,
    /// The machine's name or its pseudonym.
    pub host: String,
    /// What it tells of.
    pub kind: FarmKind,
    /// Unique among this machine's records of this kind.
    pub id: String,
    /// Start by the machine's own clock, in ms since 1970.
    pub at: i64,
    /// How long.
    #[serde(default)]
    pub lasted: Nanos,
    /// Under what.
    #[serde(default)]
    pub setting: FarmSetting,
    /// Periods that were due, where they are known.
    #[serde(default)]
    pub expected: Option<u64>,
    /// Readings beyond the threshold, where there is one.
    #[serde(default)]
    pub late: Option<u64>,
    /// Periods missed, where they are known.
    #[serde(default)]
    pub missed: Option<u64>,
    /// A proof's verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What it says, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// Causes of late readings, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<FarmCause>,
    /// How many records were added up into this one: 1, or more where an outbox was thinned.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub merged: u32,
    /// The readings; the largest is exact.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub readings: Histogram,
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

fn is_empty(all: &Histogram) -> bool {
    all.count == 0
}

/// The answer to a question about a farm, with what it was made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmAnswer {
    /// [`ANSWER_SCHEMA`].
    pub schema: String,
    /// The question: conditions, as they were given.
    pub asked: Vec<String>,
    /// What it is grouped by; empty for one group a probe.
    pub by: Vec<String>,
    /// Machines in it.
    pub machines: u64,
    /// Kept runs in it.
    pub runs: u64,
    /// All records in it, those of playing chains included.
    pub records: u64,
    /// Periods that were due, of all records that tell.
    pub expected: u64,
    /// Groups, the worst first.
    pub groups: Vec<FarmGroup>,
    /// What changed, when, and what else did then.
    pub changes: Vec<FarmChange>,
    /// Machines, the worst first.
    pub worst: Vec<FarmMachine>,
    /// Machines that have been silent for longer than others let expect.
    pub silent: Vec<FarmMachine>,
    /// Machines whose clocks differ from the servers' by more than five minutes, with by how much: theirs less the servers'.
    pub clocks: Vec<FarmClock>,
    /// Records that were refused, by reason.
    pub refused: Vec<FarmRefusal>,
}

/// What lies between two moments with one value of what it is grouped by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmGroup {
    /// The values of what it is grouped by, in its order.
    pub name: Vec<String>,
    /// `wakeup`, `gap`, `blocks`: never added up with each other.
    pub probe: String,
    /// Machines.
    pub machines: u64,
    /// Kept runs.
    pub runs: u64,
    /// Records.
    pub records: u64,
    /// Periods that were due.
    pub expected: u64,
    /// Readings beyond the threshold.
    pub late: u64,
    /// Of all readings of records that have a threshold.
    pub late_share: Option<f64>,
    /// Periods missed.
    pub missed: u64,
    /// Median.
    pub p50: Option<Nanos>,
    /// 99 of 100 readings are at or below it.
    pub p99: Option<Nanos>,
    /// 999 of 1000.
    pub p99_9: Option<Nanos>,
    /// 9999 of 10000.
    pub p99_99: Option<Nanos>,
    /// The largest, exact.
    pub max: Option<Nanos>,
    /// Readings in all.
    pub readings: u64,
    /// Proofs that came out better, worse, not shown.
    pub verdicts: [u64; 3],
    /// Day by day, where a trend is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<FarmDay>,
}

/// One day of a group, in UTC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmDay {
    /// As 2026-11-24.
    pub day: String,
    /// Median.
    pub p50: Option<Nanos>,
    /// 99 of 100.
    pub p99: Option<Nanos>,
    /// 999 of 1000.
    pub p99_9: Option<Nanos>,
    /// The largest, exact.
    pub max: Option<Nanos>,
    /// Periods that were due.
    pub expected: u64,
    /// Readings beyond the threshold.
    pub late: u64,
    /// Periods missed.
    pub missed: u64,
}

/// A figure of one machine that changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmChange {
    /// The day of the first record after, in UTC.
    pub day: String,
    /// The machine.
    pub host: String,
    /// What else changed then; empty where nothing that is known did.
    pub what: Vec<String>,
    /// `p99`, `p99.9`, `beyond`.
    pub figure: String,
    /// Median before.
    pub before: f64,
    /// Median after.
    pub after: f64,
    /// Better or worse.
    pub verdict: Verdict,
    /// Among all tests of this answer.
    pub p_value: f64,
    /// In one sentence.
    pub sentence: String,
}

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmMachine {
    /// Its name or pseudonym.
    pub host: String,
    /// Its kernel, of its newest record in the answer.
    pub kernel: String,
    /// Its processor.
    pub cpu: String,
    /// Of what its figures are: `wakeup`, `gap`, `blocks`; empty where there are none.
    pub probe: String,
    /// Readings beyond the threshold, of 1.
    pub late_share: Option<f64>,
    /// 999 of 1000.
    pub p99_9: Option<Nanos>,
    /// The largest, exact.
    pub max: Option<Nanos>,
    /// Periods missed.
    pub missed: u64,
    /// Its newest record, UTC, RFC 3339; by the servers' clock where its own is wrong.
    pub newest: String,
}

/// A machine's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FarmClock {
    /// Its name or pseudonym.
    pub host: String,
    /// Its clock less the servers', in ms.
    pub ahead: i64,
}

/// Records that were not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FarmRefusal {
    /// Why.
    pub why: String,
    /// How many.
    pub records: u64,
}

/// Some machines, drawn beside each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FarmWall {
    /// The answer that stands above them.
    pub answer: FarmAnswer,
    /// The days that are drawn, in order.
    pub days: Vec<String>,
    /// Each machine.
    pub machines: Vec<WallMachine>,
}

/// One machine of a wall.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WallMachine {
    /// Its name, kernel, processor and figures.
    pub about: FarmMachine,
    /// Its days by probe: the number of the day among those drawn, and the sums of it.
    pub courses: Vec<(String, Vec<(usize, FarmDay)>)>,
    /// Its newest kept records.
    pub kept: Vec<FarmRecord>,
}
