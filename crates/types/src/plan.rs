//! A plan: ordered, reversible steps from a machine to a shield; and what became of them.

pub use crate::thread::Thread;
use crate::{
    CpuId, CpuSet, Finding, GroupPath, boot::Mode, chain::Link, loan::Loan, machine::Scheduling,
    shield::Shield,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Plan`] in JSON.
pub const PLAN_SCHEMA: &str = "quietcores.plan/1";
/// The schema of [`Applied`] in JSON.
pub const APPLIED_SCHEMA: &str = "quietcores.applied/1";
/// The schema of [`Admitted`] in JSON.
pub const ADMITTED_SCHEMA: &str = "quietcores.admitted/1";
/// The schema of [`Released`] in JSON.
pub const RELEASED_SCHEMA: &str = "quietcores.released/1";
/// The schema of [`Reverted`] in JSON.
pub const REVERTED_SCHEMA: &str = "quietcores.reverted/1";
/// The schema of [`Status`] in JSON.
pub const STATUS_SCHEMA: &str = "quietcores.status/1";

/// What would be done to a machine, in order. Nothing is done yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// Name of the chain, where there is one.
    pub chain: Option<String>,
    /// How the chain spends its time; decides about steps.
    #[serde(default)]
    pub mode: Mode,
    /// The shield that the steps lead to.
    pub shield: Shield,
    /// The links of the chain, each with the CPUs that it gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Why these CPUs and this mechanism, in sentences.
    pub reasons: Vec<String>,
    /// In the order in which they are done; undone in reverse.
    pub steps: Vec<Step>,
    /// What the steps cannot do, and what to know.
    pub findings: Vec<Finding>,
}

/// One reversible change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// The value before, whole, where the machine told it; read again when the step is done.
    pub old: Option<String>,
    /// What it is good for.
    pub why: String,
    /// Whether the shield can stand without it.
    pub need: Need,
}

/// Whether a shield can stand without a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Without it everything is rolled back.
    Essential,
    /// Its refusal is named, and the shield stands.
    BestEffort,
}

/// How two texts of a kernel file are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As text, without white space around.
    Text,
    /// As CPU lists: `0,1` is `0-1`.
    List,
    /// As CPU masks: `3` is `00000003`.
    Mask,
    /// Written as `+word`, read as a list of words that holds `word` (`cgroup.subtree_control`).
    Word,
    /// `cpuset.cpus.partition`: `isolated invalid (reason)` is a refusal with its reason.
    Partition,
    /// Written as `word`, read as all that may be written with the one in force in brackets:
    /// `always [madvise] never`.
    Chosen,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Action {
    /// Writes a value to a kernel file.
    Write {
        /// The file.
        path: String,
        /// Where the value asked for is read, when not in the same file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        /// The value.
        value: String,
        /// How it is compared.
        form: Form,
    },
    /// Makes a cgroup and sets it up; removed whole when undone.
    Group {
        /// Its directory.
        path: GroupPath,
        /// Files within it and their values, in order.
        files: Vec<GroupFile>,
        /// Files of groups beside it that name the same CPUs. Written only where the kernel refuses
        /// the group as long as they do; then the group is made again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        narrow: Vec<Narrow>,
        /// Text of the unit of systemd that makes the group; its name is the directory's. The files
        /// are read back only: systemd writes them, and again at each daemon-reload.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<String>,
    },
    /// Gives a variable of an ordinary file, `NAME=value`, another value; the rest of the file stays
    /// as it is. It outlives a reboot, and so does the note that puts it back.
    Assign {
        /// The file.
        path: String,
        /// The variable.
        name: String,
        /// Its value.
        value: String,
    },
    /// Tells a running irqbalance by its socket to keep its interrupts off these CPUs too.
    Ban {
        /// The daemon.
        daemon: Thread,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Moves every user task of a group into another.
    MoveTasks {
        /// The file that lists them: `tasks` (v1).
        from: GroupPath,
        /// The file that takes them.
        to: GroupPath,
    },
    /// Takes CPUs from the affinity of threads; a thread left with none gets `to`.
    Confine {
        /// Which threads.
        who: Who,
        /// CPUs taken away.
        off: CpuSet,
        /// Given to those that would have none left.
        to: CpuSet,
        /// Names that begin so are spared: threads of the chain's own interrupts.
        spare: Vec<String>,
    },
    /// Lets an interrupt be delivered to these CPUs only.
    Irq {
        /// Its number.
        number: u32,
        /// What it serves, for people.
        name: String,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Puts one thread into the shield's group.
    Enter {
        /// The thread.
        thread: Thread,
        /// The file that takes it.
        file: GroupPath,
        /// Mount point of the hierarchy, to find the group that it comes from.
        mount: GroupPath,
    },
    /// Pins one thread.
    Pin {
        /// The thread.
        thread: Thread,
        /// Where it may run.
        cpus: CpuSet,
    },
    /// Sets how one thread is scheduled.
    Schedule {
        /// The thread.
        thread: Thread,
        /// How.
        to: Scheduling,
    },
    /// Keeps `/dev/cpu_dma_latency` open with 0 us while the shield is up.
    HoldLatency,
    /// Writes a file of settings that others read when they start, whole, with the directories that are missing above it; then those
    /// who read it are started anew, where they run. It outlives a reboot, and so does the note that puts it back.
    DropIn {
        /// The file.
        path: String,
        /// All that is in it.
        text: String,
        /// Who is started anew.
        restart: Vec<UserUnit>,
    },
}

/// A service of a user's own manager (`systemctl --user`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserUnit {
    /// The user.
    pub uid: u32,
    /// Its name: `pipewire.service`.
    pub unit: String,
}

impl std::fmt::Display for UserUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of user {}", crate::printable(&self.unit, 80), self.uid)
    }
}

/// A file of a group that a step makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupFile {
    /// Its name: `cpuset.cpus`.
    pub name: String,
    /// What is written.
    pub value: GroupValue,
    /// How it is compared when read back.
    pub form: Form,
    /// What to do where this kernel has no such file, or refuses.
    pub need: Need,
}

/// A file of a group of others that names CPUs of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Narrow {
    /// The file: `.../cpuset.cpus`.
    pub path: GroupPath,
    /// What is left to it.
    pub value: String,
    /// What it is now.
    pub old: String,
}

/// A value for a file of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupValue {
    /// This text.
    Is(String),
    /// What that file holds.
    SameAs(String),
}

/// Which threads a step confines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Kernel threads that may be moved.
    KernelThreads,
    /// Every thread that may be moved.
    Everybody,
}

/// Who asked for a shield.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedBy {
    /// The user; 0 is root. `None` where the version that put it up did not note that.
    pub uid: Option<u32>,
    /// The process that it ends with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Thread>,
}

impl AppliedBy {
    /// Whether it is that user's to put back.
    pub fn is_left_to(&self, uid: u32) -> bool {
        self.uid == Some(uid)
    }
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Outcome {
    /// Done, and read back.
    Done {
        /// What was read back.
        seen: String,
    },
    /// It was so already; nothing was changed.
    Already,
    /// The request stands, its effect is still to come: an interrupt moves when it next fires.
    Pending {
        /// What was read back.
        seen: String,
    },
    /// Done for some of several threads.
    Partly {
        /// How many took it.
        seen: String,
        /// Who did not, and why.
        refused: Vec<String>,
    },
    /// The kernel refused.
    Refused {
        /// Its reason, in words.
        reason: String,
    },
    /// The kernel accepted the write and did not do it.
    Ignored {
        /// What was read back.
        seen: String,
    },
    /// What was to be changed is not there.
    Absent,
}

impl Outcome {
    /// Whether the step's aim is reached, now or at the next interrupt.
    pub fn holds(&self) -> bool {
        matches!(self, Outcome::Done { .. } | Outcome::Already | Outcome::Pending { .. })
    }
}

/// A step and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    /// The step.
    pub step: Step,
    /// What became of it.
    pub outcome: Outcome,
}

/// A thread that was let into the shield for who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Admitted {
    /// [`ADMITTED_SCHEMA`].
    pub schema: String,
    /// The thread.
    pub thread: Thread,
    /// The shield.
    pub shield: Shield,
    /// What was done, and what became of it.
    pub steps: Vec<Taken>,
}

/// A thread that was let out of the shield again, which stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Released {
    /// [`RELEASED_SCHEMA`].
    pub schema: String,
    /// The thread.
    pub thread: Thread,
    /// What became of each thing.
    pub items: Vec<PutBack>,
}

/// A shield that was put up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// [`APPLIED_SCHEMA`].
    pub schema: String,
    /// What stands now.
    pub shield: Shield,
    /// Every step, in order.
    pub steps: Vec<Taken>,
    /// What may still run on the shielded CPUs, by a fresh look.
    pub residents: Vec<Resident>,
    /// What of the chain is not where it should be, by a fresh look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Finding>,
    /// What to know.
    pub findings: Vec<Finding>,
}

/// What may still run on a shielded CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resident {
    /// Which of the shielded CPUs.
    pub cpus: CpuSet,
    /// What it is.
    pub kind: ResidentKind,
    /// Its name.
    pub name: String,
    /// TID or IRQ number.
    pub number: u32,
    /// Why it is there.
    pub why: String,
    /// Interrupts: deliveries on these CPUs since the shield was put up.
    pub since: Option<u64>,
}

/// What a resident is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ResidentKind {
    /// A thread inside the shield's group, or pinned there by the plan: the chain.
    Chain,
    /// A user thread that the shield should have kept off.
    Foreign,
    /// An interrupt.
    Irq,
    /// A kernel thread that may be moved and was not.
    Kernel,
    /// A kernel thread that belongs to the CPU or may not be moved.
    Fixed,
}

impl ResidentKind {
    /// Whether the shield should have kept it off.
    pub fn is_intruder(self) -> bool {
        matches!(self, ResidentKind::Foreign | ResidentKind::Kernel)
    }
}

/// What a revert did to one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PutBack {
    /// What was changed.
    pub what: String,
    /// What became of it.
    pub outcome: Return,
}

/// What became of one change when it was reverted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Return {
    /// The old value is back, and was read back.
    Restored,
    /// It had the old value: never done, or put back before.
    Untouched,
    /// Somebody else has changed it since: left as it is.
    Left {
        /// What it is now.
        now: String,
    },
    /// It is not there any more: nothing to put back.
    Gone,
    /// The kernel refused; the journal is kept, and revert can be tried again.
    Refused {
        /// The kernel's reason.
        reason: String,
    },
}

/// A machine that was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reverted {
    /// [`REVERTED_SCHEMA`].
    pub schema: String,
    /// The journal was of an earlier boot: its run-time values went with the reboot.
    pub rebooted: bool,
    /// Every change, last one first.
    pub items: Vec<PutBack>,
    /// Where the journal is kept now.
    pub history: Option<String>,
}

impl Reverted {
    /// Whether nothing was refused: the journal is closed.
    pub fn is_complete(&self) -> bool {
        !self.items.iter().any(|item| matches!(item.outcome, Return::Refused { .. }))
    }

    /// Whether every value is as it was before.
    pub fn is_exact(&self) -> bool {
        self.is_complete()
            && !self.items.iter().any(|item| matches!(item.outcome, Return::Left { .. }))
    }
}

/// The shield as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// What is there.
    pub state: ShieldStanding,
    /// The shield; `None` where there is none.
    pub shield: Option<Shield>,
    /// When it was put up, UTC.
    pub since: Option<String>,
    /// Who asked for it; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<AppliedBy>,
    /// Changes that are not any more as they were made.
    pub drift: Vec<Drift>,
    /// What may still run on the shielded CPUs.
    pub residents: Vec<Resident>,
    /// The process that holds `/dev/cpu_dma_latency`.
    pub holder: Option<u32>,
    /// Steps that were refused when the shield was put up.
    pub refused: Vec<String>,
    /// What waits for `confirm`; `None` where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Awaited>,
    /// Its CPUs are everybody's for a while; `None` where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loan: Option<Loan>,
    /// Where this boot is not what `persist` asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boot: Vec<Finding>,
    /// The links of the chain that the shield was put up for, each with the CPUs that it was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// What of the chain is not where it should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<Finding>,
    /// Threads of an EVL core (Xenomai 4), shielded or not; none where the kernel has no such core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evl: Vec<EvlThread>,
    /// Trace instances that killed programs have left on, by name: `revert` removes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traces: Vec<String>,
    /// The sound card that `play --host hda` has, or a killed one has left; `None` where there is none. Root alone sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<TakenCard>,
}

/// A sound card without its kernel driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenCard {
    /// Where it is on the PCI bus: `0000:00:1b.0`.
    pub address: String,
    /// The kernel's driver that had it and gets it back; `None` where it had none.
    pub driver: Option<String>,
    /// The process that plays on it; `None` where that was killed: `revert` gives the card back.
    pub process: Option<u32>,
}

/// A thread that is attached to an EVL core.
///
/// # Source
/// The core's files below `/sys/devices/virtual/thread`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvlThread {
    /// Its name in the core.
    pub name: String,
    /// Its TID for Linux.
    pub tid: u32,
    /// Where the core runs it.
    pub cpu: CpuId,
    /// The core's scheduling class: `fifo`, `weak`, `quota` ...
    pub class: String,
    /// Its priority there, as it is now.
    pub priority: i32,
    /// Who runs it now: Linux (in-band) or the core (out-of-band).
    pub in_band: bool,
    /// How often it went over to Linux; `None` where the core counts nothing.
    pub switches: Option<u64>,
}

/// A shield that is put back by itself unless it is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Awaited {
    /// The time that was given.
    pub seconds: u64,
    /// The process that waits; `None` where it was killed: the next `apply`, `confirm` or `watch`
    /// puts the machine back.
    pub guard: Option<u32>,
}

/// What `status` finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShieldStanding {
    /// No shield, no leftovers.
    None,
    /// A shield is up.
    Up,
    /// An `apply` or `revert` did not come to its end: `revert` puts the machine back.
    Leftover,
    /// A journal of an earlier boot.
    Rebooted,
}

/// A change that is not any more as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// What was changed.
    pub what: String,
    /// As the shield made it.
    pub ours: String,
    /// As it is now; `None` where it is gone.
    pub now: Option<String>,
}

impl Status {
    /// Whether a shield is up and as it was made, with its chain where it should be and nothing on it that should not be there, or
    /// none is; this boot is what `persist` asked for, and no trace is left on.
    pub fn is_good(&self) -> bool {
        let held = self.card.as_ref().is_none_or(|card| card.process.is_some());
        let as_booted = self.boot.is_empty() && self.traces.is_empty() && held;
        (self.state == ShieldStanding::None && as_booted)
            || (as_booted
                && self.state == ShieldStanding::Up
                && self.drift.is_empty()
                && self.chain.is_empty()
                && self.confirm.is_none_or(|awaited| awaited.guard.is_some())
                && !self.residents.iter().any(|r| r.kind.is_intruder()))
    }
}

impl Action {
    /// What is changed, for people: a file, an interrupt, some threads.
    pub fn what(&self) -> String {
        match self {
            Action::Write { path, .. } => path.clone(),
            Action::Group { path, .. } => path.to_string(),
            Action::Assign { path, name, .. } => format!("{name} in {path}"),
            Action::Ban { daemon, .. } => format!("bans of {daemon}"),
            Action::MoveTasks { from, .. } => format!("user tasks in {from}"),
            Action::Confine { who: Who::KernelThreads, .. } => "movable kernel threads".into(),
            Action::Confine { who: Who::Everybody, .. } => "every movable thread".into(),
            Action::Irq { number, name, .. } if name.is_empty() => format!("IRQ {number}"),
            Action::Irq { number, name, .. } => format!("IRQ {number} ({name})"),
            Action::Enter { thread, .. } => format!("group of {thread}"),
            Action::Pin { thread, .. } => format!("CPUs of {thread}"),
            Action::Schedule { thread, .. } => format!("scheduling of {thread}"),
            Action::HoldLatency => "/dev/cpu_dma_latency".into(),
            Action::DropIn { path, .. } => path.clone(),
        }
    }

    /// The new value, for people.
    pub fn new_value(&self) -> String {
        match self {
            Action::Write { value, .. } | Action::Assign { value, .. } => value.clone(),
            Action::Ban { cpus, .. } => format!("CPU {cpus} too"),
            Action::Group { files, unit, .. } => {
                let values: Vec<String> = files
                    .iter()
                    .filter_map(|file| match &file.value {
                        GroupValue::Is(value) => Some(format!("{} {value}", file.name)),
                        GroupValue::SameAs(_) => None,
                    })
                    .collect();
                let by = if unit.is_some() { " by systemd" } else { "" };
                format!("made{by}, with {}", values.join(", "))
            }
            Action::MoveTasks { to, .. } => format!("moved to {to}"),
            Action::Confine { off, .. } => format!("off CPU {off}"),
            Action::Irq { cpus, .. } | Action::Pin { cpus, .. } => format!("CPU {cpus}"),
            Action::Enter { file, .. } => file.to_string(),
            Action::Schedule { to, .. } => to.to_string(),
            Action::HoldLatency => "held at 0 us while the shield is up".into(),
            Action::DropIn { text, restart, .. } => {
                let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::trim);
                let said = lines.collect::<Vec<_>>().join(" ");
                let restarted: Vec<String> = restart.iter().map(UserUnit::to_string).collect();
                match restarted.is_empty() {
                    true => said,
                    false => format!("{said}; then {} is started anew", restarted.join(", ")),
                }
            }
        }
    }

    /// How it is verified, in words.
    pub fn verified_by(&self) -> &'static str {
        match self {
            Action::Write { form: Form::Partition, .. } => {
                "read back: the state, and its reason when invalid"
            }
            Action::Write { .. } => "read back and compared by meaning",
            Action::Group { .. } => "every file read back",
            Action::Assign { .. } => "the whole file read back",
            Action::Ban { .. } => "asked of it: it bans at its next scan",
            Action::MoveTasks { .. } => "the group is read again until no user task is left",
            Action::Confine { .. } => "affinity of every thread read back",
            Action::Irq { .. } => "requested and effective CPUs read back",
            Action::Enter { .. } => "the group's list read back",
            Action::Pin { .. } => "affinity read back",
            Action::Schedule { .. } => "policy and priority read back",
            Action::HoldLatency => "the holder reads the value in force from the device",
            Action::DropIn { .. } => {
                "the whole file read back; the threads of who was started anew are placed, and read back"
            }
        }
    }
}

impl std::fmt::Display for AppliedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.uid {
            Some(0) => f.write_str("root")?,
            Some(uid) => write!(f, "user {uid}")?,
            None => f.write_str("somebody whom an earlier version did not note")?,
        }
        match &self.process {
            Some(process) => write!(
                f,
                ", for as long as process {} ({}) runs",
                process.tid,
                crate::printable(&process.comm, 32)
            ),
            None => Ok(()),
        }
    }
}

impl Plan {
    /// The lowest shielded CPU.
    pub fn first_cpu(&self) -> Option<CpuId> {
        self.shield.cpus.first()
    }
}

/// `FIFO 80`, `OTHER nice -5`, `OTHER`.
impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = format!("{:?}", self.policy).to_uppercase();
        match (self.priority, self.nice) {
            (0, 0) => f.pad(&policy),
            (0, nice) => f.pad(&format!("{policy} nice {nice}")),
            (priority, _) => f.pad(&format!("{policy} {priority}")),
        }
    }
}
