//! A proof: two settings of one machine measured in turn, and what the difference is.

pub use crate::figure::{Estimate, OrderEffect, Ratio, Role, Unit, Verdict};
use crate::{
    CpuSet, Finding, Machine, Nanos, Run,
    lot::Lot,
    plan::Outcome,
    run::{Host, Spec},
    shield::Mechanism,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema of [`Proof`] in JSON.
pub const SCHEMA: &str = "quietcores.proof/2";
/// The schema of 0.1.0: outcomes of steps were sentences, and what a file did not say stood as 0 or false.
pub const FIRST_SCHEMA: &str = "quietcores.proof/1";

/// Arms of two settings, measured in turn on the same CPUs under the same stress, and the
/// judgement of them. Nothing in it is needed beside it: the machine and every run travel along.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// [`SCHEMA`].
    pub schema: String,
    /// Unique: UTC start time, `prove` and a few random digits, as `20261121T213000Z-prove-3f9a`.
    pub id: String,
    /// Start, UTC, RFC 3339 with milliseconds.
    pub started: String,
    /// From the first change to the machine until the last was taken back.
    pub lasted: Nanos,
    /// Ended by a signal before its time; judged is what there is.
    #[serde(default)]
    pub interrupted: bool,
    /// Name of the machine, kernel and processor.
    pub host: Host,
    /// What was compared, in words: `CPU 1 shared with everybody, and shielded`.
    pub question: String,
    /// What was asked of the wakeup probe in every arm.
    pub spec: Spec,
    /// The order of the arms of each pair, drawn by lot; `None` where it was fixed, as before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lot: Option<Lot>,
    /// Every arm in the order in which it was measured.
    pub arms: Vec<Arm>,
    /// What the order did; `None` where all pairs had the same one, or too few are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderEffect>,
    /// The judged figures, most important first.
    pub figures: Vec<Figure>,
    /// The verdict on the whole.
    pub verdict: Verdict,
    /// The verdict in one sentence for people.
    pub sentence: String,
    /// What the shield was made of; `None` where none could be put up.
    pub shield: Option<ShieldMade>,
    /// How the machine was found afterwards; `None` where nothing had been changed.
    pub restored: Option<Restored>,
    /// Commands that do it again, one a line of a shell.
    pub commands: Vec<String>,
    /// What to know beside the figures.
    pub findings: Vec<Finding>,
    /// The machine before the first arm.
    pub machine: Box<Machine>,
}

/// One arm: the probes, run once, in one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Number of the pair, from 0: the arms of a pair are neighbours in time.
    pub pair: u32,
    /// How the machine was set.
    pub setting: Setting,
    /// The wakeup probe's run.
    pub wakeup: Run,
    /// The gap probe's run, where it was made.
    pub gap: Option<Run>,
    /// Why this arm does not count, as `the governor of CPU 1 changed while it was measured`.
    pub void: Option<String>,
}

/// How the machine is set while an arm is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// As found: everything may run everywhere, the stress as well.
    Shared,
    /// The shield is up: the measured CPUs have nothing foreign on them.
    Shielded,
    /// Only the stress is kept off the measured CPUs; the rest of the machine is as found.
    Confined,
    /// As shared, and the measuring thread has asked for a short slice.
    Sliced,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Setting::Shared => "shared",
            Setting::Shielded => "shielded",
            Setting::Confined => "confined",
            Setting::Sliced => "sliced",
        })
    }
}

/// One figure in both settings, and whether it changed. Lower is better for every figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Stable, machine-readable: `wakeup.p99`, `wakeup.beyond`, `gap.stolen`.
    pub id: String,
    /// For people: `p99`, `beyond 100 us`.
    pub title: String,
    /// What its numbers are.
    pub unit: Unit,
    /// Its part in the verdict on the whole.
    pub role: Role,
    /// As found: the median over the runs of valid pairs.
    pub shared: Estimate,
    /// With the shield (or, without one, with the stress confined).
    pub shielded: Estimate,
    /// Shielded by shared: the median over pairs. Below 1 is better.
    pub ratio: Ratio,
    /// Whether it changed.
    pub verdict: Verdict,
    /// Two-sided, of the exact paired sign-flip test: how often chance alone gives as much.
    pub p_value: f64,
    /// The same with all figures of the table taken together: what the verdict needs at 0.05 or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_family: Option<f64>,
    /// Why it is not shown, or what else to know. Empty when there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What was done to the machine for the shielded arms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShieldMade {
    /// How others were kept off.
    pub mechanism: Option<Mechanism>,
    /// CPUs that were shielded.
    pub cpus: CpuSet,
    /// CPUs left to everybody else.
    pub housekeeping: CpuSet,
    /// Every change, in order.
    pub steps: Vec<StepTaken>,
}

/// One change to the machine, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepTaken {
    /// What was changed: a path, or a task by name and number.
    pub what: String,
    /// Its value before, as read.
    pub old: String,
    /// The value asked for.
    pub new: String,
    /// What it is for.
    pub why: String,
    /// What became of it; see [`crate::words::outcome`].
    #[serde(deserialize_with = "crate::first::outcome")]
    pub outcome: Outcome,
}

/// How the machine was found after everything had been taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restored {
    /// Every setting that was looked at equals what it was before the first arm.
    pub exact: bool,
    /// What differs, a sentence each.
    pub differences: Vec<String>,
}

impl Proof {
    /// With each run as this version has it: see [`Run::from_first`].
    pub fn from_first(mut self) -> Proof {
        for arm in std::mem::take(&mut self.arms) {
            let (wakeup, gap) = (arm.wakeup.from_first(), arm.gap.map(Run::from_first));
            self.arms.push(Arm { wakeup, gap, ..arm });
        }
        if self.schema == FIRST_SCHEMA {
            self.schema = SCHEMA.to_owned();
        }
        self
    }

    /// The setting that is compared with [`Setting::Shared`]: shielded or sliced, or confined where no arm
    /// was either.
    pub fn other(&self) -> Setting {
        let has = |setting: &Setting| self.arms.iter().any(|arm| arm.setting == *setting);
        [Setting::Shielded, Setting::Sliced].into_iter().find(has).unwrap_or(Setting::Confined)
    }

    /// The arms of one setting, in the order measured.
    pub fn arms_of(&self, setting: Setting) -> impl Iterator<Item = &Arm> {
        self.arms.iter().filter(move |arm| arm.setting == setting)
    }

    /// The pairs that count: both arms there, neither void, neither cut short.
    pub fn pairs(&self) -> Vec<(&Arm, &Arm)> {
        let other = self.other();
        let counts = |arm: &&Arm| {
            let cut = arm.wakeup.cut_short() || arm.gap.as_ref().is_some_and(Run::cut_short);
            arm.void.is_none() && !cut
        };
        self.arms_of(Setting::Shared)
            .filter(counts)
            .filter_map(|a| {
                let b = self.arms_of(other).filter(counts).find(|b| b.pair == a.pair)?;
                Some((a, b))
            })
            .collect()
    }
}
