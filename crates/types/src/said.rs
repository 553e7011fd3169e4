//! What verbs print as JSON whose result is no thing of its own: where a file went, what was taken back.

use crate::{
    Finding, Frames, SampleRate,
    boot::BootParameters,
    run,
    tune::{Factor, LeftOut},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Exported`] in JSON.
pub const EXPORTED: &str = "quietcores.export/1";
/// The schema of [`Imported`] in JSON.
pub const IMPORTED: &str = "quietcores.import/1";
/// The schema of [`Reported`] in JSON.
pub const REPORTED: &str = "quietcores.report/1";
/// The schema of [`Confirmed`] in JSON.
pub const CONFIRMED: &str = "quietcores.confirm/1";
/// The schema of [`ApprovedList`] in JSON.
pub const APPROVED: &str = "quietcores.approve/1";
/// The schema of [`Generated`] in JSON.
pub const GENERATED: &str = "quietcores.generate/1";
/// The schema of [`Persisted`] in JSON; the record on disk is another thing.
pub const PERSISTED: &str = "quietcores.persisted/1";
/// The schema of [`Undone`] in JSON.
pub const UNPERSISTED: &str = "quietcores.unpersist/1";
/// The schema of [`Devices`] in JSON.
pub const DEVICES: &str = "quietcores.devices/1";
/// The schema of [`Stressed`] in JSON.
pub const STRESSED: &str = "quietcores.stress/1";
/// The schema of [`Suites`] in JSON.
pub const SUITES: &str = "quietcores.suites/1";

/// The schema of [`FactorList`] in JSON.
pub const FACTORS: &str = "quietcores.factors/1";

/// The steps of a plan that can be taken or left by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactorList {
    /// [`FACTORS`].
    pub schema: String,
    /// Those.
    pub factors: Vec<Factor>,
    /// What of the plan is none, and why.
    pub left_out: Vec<LeftOut>,
}

/// A run that was written in the form of another tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exported {
    /// [`EXPORTED`].
    pub schema: String,
    /// The run's id.
    pub id: String,
    /// The form, as `--format` takes it.
    pub format: String,
    /// The file.
    pub path: String,
    /// Its length.
    pub bytes: usize,
    /// What the form has no words for.
    pub lost: Vec<String>,
}

/// A recipe of another tool as a file of ours. A result is a run of its own: `quietcores.run/2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// [`IMPORTED`].
    pub schema: String,
    /// `chain` or `strip`.
    pub what: String,
    /// The file; `None` where none was named.
    pub path: Option<String>,
    /// The text of it, TOML.
    pub text: String,
    /// What could not be carried over; a chain file holds it as comments.
    pub lost: Vec<String>,
}

/// A page or a text that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reported {
    /// [`REPORTED`].
    pub schema: String,
    /// The file.
    pub path: String,
    /// What is on it.
    pub ids: Vec<String>,
    /// Its length.
    pub bytes: usize,
}

/// A shield that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmed {
    /// [`CONFIRMED`].
    pub schema: String,
    /// Whether it waited to be confirmed; else it stays anyway.
    pub waited: bool,
}

/// The chains that root has approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovedList {
    /// [`APPROVED`].
    pub schema: String,
    /// By name.
    pub chains: Vec<ApprovedChain>,
}

/// An approved chain, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovedChain {
    /// What it is called by.
    pub name: String,
    /// What it says of itself; why it cannot be used, where that is so.
    pub title: String,
    /// Whether it can be used.
    pub usable: bool,
}

/// Man pages and completions that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Generated {
    /// [`GENERATED`].
    pub schema: String,
    /// The directory of the man pages.
    pub man: String,
    /// The directory of the completions.
    pub completions: String,
}

/// What the next boots are asked for, proposed or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Persisted {
    /// [`PERSISTED`].
    pub schema: String,
    /// The boot loader.
    pub loader: String,
    /// For one boot.
    pub trial: bool,
    /// Of `--bless`: whether the trial was kept for good. `None`: nothing was to be blessed.
    pub blessed: Option<bool>,
    /// What is asked.
    pub asked: BootParameters,
    /// What the owner should know.
    pub findings: Vec<Finding>,
    /// What is changed, in words.
    pub changes: Vec<String>,
    /// The same as unified diffs.
    pub diff: String,
    /// Whether it was written.
    pub written: bool,
    /// Programs of the boot loader that could not be run and are to be; `None` where nothing was written.
    pub to_run: Option<Vec<Vec<String>>>,
    /// The command that begins the next boot.
    pub start: String,
}

/// What `unpersist` took back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undone {
    /// [`UNPERSISTED`].
    pub schema: String,
    /// The boot loader; `None` where nothing was to be taken back.
    pub loader: Option<String>,
    /// It had been cut short: a persist or an unpersist that did not come to its end.
    pub leftover: bool,
    /// Every change, last one first.
    pub items: Vec<TakenBack>,
}

/// One change and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenBack {
    /// A path, for people.
    pub what: String,
    /// What became of it.
    pub outcome: Restoration,
}

/// What became of a change that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Restoration {
    /// It is as it was, to the byte.
    Restored,
    /// It was as before: never done, or taken back earlier.
    Untouched,
    /// Others have changed it since: ours is taken out of it, theirs stays.
    Cleaned,
    /// Others have changed it since, and nothing of ours is left in it.
    Left,
    /// It is not there any more.
    Gone,
    /// It was made anew by the loader's own program.
    Regenerated,
    /// It cannot be taken back now; the record is kept, and unpersist can be run again.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}

impl Restoration {
    /// Whether it has to be tried again.
    pub fn is_refused(&self) -> bool {
        matches!(self, Restoration::Refused { .. })
    }
}

impl Undone {
    /// Whether nothing has to be tried again.
    pub fn is_complete(&self) -> bool {
        !self.items.iter().any(|item| item.outcome.is_refused())
    }

    /// Whether every file is as it was, or as its own program makes it.
    pub fn is_exact(&self) -> bool {
        let others =
            |item: &TakenBack| matches!(item.outcome, Restoration::Cleaned | Restoration::Left);
        self.is_complete() && !self.items.iter().any(others)
    }
}

/// The sound cards that are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Devices {
    /// [`DEVICES`].
    pub schema: String,
    /// Every device of every card.
    pub devices: Vec<PcmDevice>,
}

/// A device of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PcmDevice {
    /// As `--device` takes it.
    pub name: String,
    /// The card's and the device's own words.
    pub about: String,
    /// What it can do when it plays; `None` where it cannot, or another program holds it.
    pub playback: Option<Abilities>,
    /// What it can do when it captures.
    pub capture: Option<Abilities>,
}

/// What one direction can do; least and most of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Abilities {
    /// Formats, best first.
    pub formats: Vec<String>,
    /// Channels.
    pub channels: (u32, u32),
    /// Frames a second.
    pub rates: (SampleRate, SampleRate),
    /// Frames a period.
    pub periods: (Frames, Frames),
    /// Frames in the ring.
    pub buffers: (Frames, Frames),
}

/// A stress that ran by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stressed {
    /// [`STRESSED`].
    pub schema: String,
    /// What ran and what it did.
    #[serde(flatten)]
    pub stress: run::Stress,
}

/// The suites of stress that have names here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Suites {
    /// [`SUITES`].
    pub schema: String,
    /// Each.
    pub suites: Vec<Suite>,
}

/// Stressors that run together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// As `--stress` takes it.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// Each stressor, and how many of it on this machine.
    pub stressors: Vec<(String, u64)>,
}
