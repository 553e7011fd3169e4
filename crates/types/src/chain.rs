//! A chain: the audio path from input to output, as its owner wrote it.

use crate::{CpuSet, boot::Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The audio path, in the order of its links from input to output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Chain {
    /// What its owner calls it; `None` where only CPUs were named.
    pub name: Option<String>,
    /// Which CPUs get shielded.
    pub cpus: Choice,
    /// How it spends its time on them.
    #[serde(default)]
    pub mode: Mode,
    /// SMT siblings of the shielded CPUs that are not shielded themselves are switched off.
    #[serde(default)]
    pub smt_off: bool,
    /// The steps that are taken, by what they are for (`partition`, `interrupts` ...); all where `None`. What places the chain itself
    /// is always done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<String>>,
    /// From input to output. Priorities rise along it.
    pub links: Vec<Link>,
}

/// Who chooses the CPUs to shield.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The plan does: as many cores as the links need.
    #[default]
    Auto,
    /// The plan chooses so many cores.
    Cores(u32),
    /// The owner did.
    These(CpuSet),
}

/// One element of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Unique within the chain.
    pub name: String,
    /// What it is on the machine.
    pub target: Target,
    /// Where it is put; within the shield. `None`: the plan chooses.
    pub cpus: Option<CpuSet>,
    /// SCHED_FIFO priority, 1 to 99. `None` leaves the scheduling as it is.
    pub priority: Option<u8>,
}

/// What a link is on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Interrupts and their threads.
    Irq(IrqSource),
    /// The threads of a running program.
    Process {
        /// Name of its first thread (`comm`), at most 15 characters.
        comm: String,
        /// Names of the threads that are placed; empty for all. `decoder` is also `decoder:flac`; `*` stands for any
        /// characters, `?` for one.
        threads: Vec<String>,
        /// Whose it is: a name alone is anybody's to take.
        #[serde(default)]
        owner: Owner,
        /// What it is to PipeWire, where its data loops are meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pipewire: Option<PipeWire>,
    },
}

/// Which process of PipeWire's a link is. What carries sound in either is a data loop: a thread that runs all nodes given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PipeWire {
    /// The server, `pipewire`: it runs the cards and what is filtered between.
    Server,
    /// A program that plays or records through the server.
    Client,
}

impl PipeWire {
    /// What the server's process is called.
    pub const SERVER: &str = "pipewire";
    /// How the names of its data loops begin, of the server's and of clients', from 1.2 on.
    pub const LOOPS: &str = "data-loop*";
    /// The process that plays for programs of PulseAudio's.
    pub const PULSE: &str = "pipewire-pulse";
}

/// Whose the processes of a link are. All that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// It runs as one of these users. Empty: as root; with a `unit`, as whom that runs it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Path of its executable file, as the kernel tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// The unit of systemd that it belongs to: one of the system, or, where `users` are named, of the manager of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// A user, by number or by a name that is in `/etc/passwd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum User {
    /// By number.
    Uid(u32),
    /// By name.
    Name(String),
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            User::Uid(uid) => write!(f, "{uid}"),
            User::Name(name) => f.write_str(&crate::printable(name, 60)),
        }
    }
}

/// How a chain names interrupts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IrqSource {
    /// Those of a network card: `eth0`.
    Net(String),
    /// Those of a sound card, by id, name or `cardN`: `USB`.
    Card(String),
    /// One, by number. Numbers may change when a device comes back.
    Number(u32),
    /// Those with an action of that name: `xhci_hcd`.
    Action(String),
}
