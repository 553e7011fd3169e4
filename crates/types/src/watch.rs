//! What a watch over a shield sees and does: one event a line.

use crate::{
    Finding,
    plan::{Outcome, Step},
    shield::Shield,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Event`] in JSON.
pub const WATCH_SCHEMA: &str = "quietcores.watch/1";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// [`WATCH_SCHEMA`].
    pub schema: String,
    /// When, UTC.
    pub at: String,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

/// What a watch tells of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happened {
    /// It has begun.
    Started {
        /// The shield that it keeps.
        shield: Shield,
        /// It tells of drift and changes nothing.
        report_only: bool,
        /// What this machine does not tell it at once, and why: seen at the next regular look.
        missing: Vec<String>,
    },
    /// Something is not as the plan has it: somebody has changed it, or it is new.
    Drift {
        /// What made the watch look.
        cause: Trigger,
        /// The step that puts it right.
        step: Step,
        /// What became of it; `None` where the watch only reports.
        outcome: Option<Outcome>,
    },
    /// Somebody keeps changing it back: it is put right less often from now on.
    Contested {
        /// What.
        what: String,
        /// How often it was put right lately.
        times: u32,
        /// Seconds until it is put right again.
        pause: u64,
    },
    /// Something to know that was not so before: a link is not running, say.
    Finding {
        /// It.
        finding: Finding,
    },
    /// A finding does not hold any more.
    Over {
        /// Its id and title.
        finding: String,
    },
    /// No plan can be made now: a shielded CPU was switched off, say.
    Unplanned {
        /// Why.
        why: String,
    },
    /// It has ended.
    Ended {
        /// Why.
        why: String,
    },
}

/// What made a watch look.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// It began.
    Start,
    /// The regular look.
    Regular,
    /// The kernel changed the state of the partition.
    Partition,
    /// A device came, went or changed, or a CPU was switched on or off.
    Device,
    /// A program was started, a thread of a link was born or took its name.
    Process,
    /// The machine slept.
    Resume,
}
