//! The mends of what an audit found: what can be done, what was chosen, what became of it.

use crate::{
    Finding,
    plan::{Applied, Step, Taken},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Doctored`] in JSON.
pub const SCHEMA: &str = "quietcores.doctor/1";

/// One finding, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mend {
    /// What was found.
    pub finding: Finding,
    /// What can be done.
    pub way: MendWay,
    /// Whether it is right where nobody says otherwise.
    pub usual: bool,
}

/// What can be done about a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum MendWay {
    /// Steps that are taken now, noted in the journal, read back, and put back by `revert`.
    Steps {
        /// The steps.
        steps: Vec<Step>,
        /// Whether they put a shield up; else they are single settings.
        shield: bool,
    },
    /// Commands for a shell: what needs a reboot, a login, a package or a file of the system's.
    Commands {
        /// One a line.
        commands: Vec<String>,
    },
    /// What the finding's remedy says, by hand.
    Hands,
}

/// What was said to a mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MendAnswer {
    /// Yes.
    Taken,
    /// No.
    Left,
    /// Nobody was asked: it is not the program's to do, or not now.
    NotAsked,
}

/// A mend, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mended {
    /// The finding and its mend.
    pub mend: Mend,
    /// What was said to it.
    pub answer: MendAnswer,
    /// Whether a second look still has the finding; `None` where no second look was taken.
    pub still_there: Option<bool>,
}

/// What `doctor` came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Doctored {
    /// [`SCHEMA`].
    pub schema: String,
    /// Every finding with its mend, greatest effect first.
    pub mended: Vec<Mended>,
    /// What became of the steps that were taken; `None` where none was.
    pub applied: Option<Applied>,
    /// Earlier mends that were put back one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<Taken>,
    /// What a second look found that the first had not.
    pub new: Vec<Finding>,
    /// Why no step could be offered, where that is so.
    pub findings: Vec<Finding>,
}
