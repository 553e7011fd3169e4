//! A shield whose CPUs are everybody's for a while.

use crate::{CpuSet, Nanos, thread::Thread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of [`Lent`].
pub const LENT_SCHEMA: &str = "quietcores.lent/1";
/// Version of [`Reclaimed`].
pub const RECLAIMED_SCHEMA: &str = "quietcores.reclaimed/1";

/// For how long CPUs are lent: until the first of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoanTerms {
    /// So many seconds, time that the machine sleeps included.
    pub seconds: u64,
    /// The first sound: a PCM device is opened or begins to run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_sound: bool,
    /// The end of this systemd unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The end of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Thread>,
}

/// CPUs of a shield that are lent, as `status` finds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loan {
    /// When, UTC.
    pub since: String,
    /// For how long.
    pub terms: LoanTerms,
    /// Seconds that are left of [`LoanTerms::seconds`].
    pub left: u64,
    /// The process that takes them back; `None` where it was killed: the next command that may change the machine takes them back.
    pub guard: Option<u32>,
}

/// Something that keeps everybody off the CPUs, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FenceChange {
    /// A file, or the CPUs of threads.
    pub what: String,
    /// What is read back.
    pub now: String,
    /// Why it is not as it was to be; `None` where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// CPUs were lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lent {
    /// [`LENT_SCHEMA`].
    pub schema: String,
    /// The CPUs.
    pub cpus: CpuSet,
    /// For how long.
    pub terms: LoanTerms,
    /// They were lent already: these are new terms.
    pub renewed: bool,
    /// What was opened.
    pub changes: Vec<FenceChange>,
}

/// CPUs were taken back: the shield stands as before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reclaimed {
    /// [`RECLAIMED_SCHEMA`].
    pub schema: String,
    /// The CPUs.
    pub cpus: CpuSet,
    /// What ended the loan.
    pub cause: LoanEnd,
    /// From the wish to take them back to the last value read back.
    pub took: Nanos,
    /// What was closed.
    pub changes: Vec<FenceChange>,
}

impl Reclaimed {
    /// Whether all is closed again.
    pub fn is_complete(&self) -> bool {
        self.changes.iter().all(|change| change.refused.is_none())
    }
}

/// What ended a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoanEnd {
    /// Its time.
    Time,
    /// Sound, or a thread that was let in.
    Sound,
    /// The unit that it was for.
    Unit,
    /// The process that it was for.
    Process,
    /// Whoever asked.
    Hand,
    /// Its guard was killed.
    Orphaned,
}

impl fmt::Display for LoanEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoanEnd::Time => "the time was over",
            LoanEnd::Sound => "sound begins",
            LoanEnd::Unit => "the unit has ended",
            LoanEnd::Process => "the program has ended",
            LoanEnd::Hand => "somebody asked for it",
            LoanEnd::Orphaned => "its guard was killed",
        })
    }
}
