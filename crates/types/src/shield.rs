//! A shield: the applied, verified state. CPUs with nothing foreign on them.

use crate::{CpuSet, GroupPath};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the rest of the machine is kept off the shielded CPUs, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// A cgroup v2 isolated partition.
    PartitionV2,
    /// Two cgroup v1 cpusets, load balancing off above them.
    SetsV1,
    /// Plain affinity of every thread that may be moved: new ones inherit it, and may leave.
    Affinity,
}

/// How a measuring or playing thread gets onto the shielded CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The file that takes its number: `.../tasks` (v1), `.../cgroup.procs` (v2).
    pub file: GroupPath,
    /// True where the whole process must enter (v2); false where one thread can (v1).
    pub whole_process: bool,
}

impl Entry {
    /// The file that lists every thread within.
    pub fn threads(&self) -> GroupPath {
        if self.whole_process { self.file.beside("cgroup.threads") } else { self.file.clone() }
    }
}

/// The shield that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shield {
    /// CPUs taken from the kernel's balancing.
    pub cpus: CpuSet,
    /// CPUs left to everybody else.
    pub housekeeping: CpuSet,
    /// How others are kept off.
    pub mechanism: Mechanism,
    /// How to get in; `None` where affinity alone does it.
    pub entry: Option<Entry>,
}
