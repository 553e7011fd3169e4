//! What the kernel's trace says about CPUs, event by event. It leaves the program only on its way from the
//! service to who asked it: what is made of it is [`crate::explain::Explained`].

use crate::{CpuId, CpuSet, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A word of the trace, by its place in [`Trace::names`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Name(pub u32);

/// Events of some CPUs over a while.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Trace {
    /// CPUs whose every event was asked for; of the others only what reaches these.
    pub cpus: CpuSet,
    /// In the order of their time, CPU by CPU as they were read.
    pub events: Vec<TraceEvent>,
    /// Words: task names, functions, devices.
    pub names: Vec<String>,
    /// Task id to its name, as far as it was seen.
    pub tasks: BTreeMap<u32, Name>,
    /// Events that the kernel overwrote before they were read.
    pub lost: u64,
    /// Events that were not kept because there were too many.
    pub dropped: u64,
    /// System management interrupts that each CPU counted meanwhile, where it counts them.
    pub smis: BTreeMap<CpuId, u64>,
    /// Events that this kernel does not have, as `group/name`.
    pub absent: Vec<String>,
}

impl Trace {
    /// The word.
    pub fn name(&self, name: Name) -> &str {
        self.names.get(name.0 as usize).map_or("?", String::as_str)
    }

    /// The name of a task.
    pub fn task(&self, id: u32) -> &str {
        self.tasks.get(&id).map_or(if id == 0 { "idle" } else { "?" }, |name| self.name(*name))
    }
}

/// A thread whose lateness is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its CPU.
    pub cpu: CpuId,
    /// Its id.
    pub task: u32,
    /// Its readings above the threshold, also those that were not kept.
    pub beyond: u64,
    /// The kept ones, in order: a gap, or from a timer's expiry to the thread running.
    pub late: Vec<Span>,
}

/// A stretch of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its beginning.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// On `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Where it happened.
    pub cpu: CpuId,
    /// The task that was running there.
    pub task: u32,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The CPU goes from one task to the next.
    Switch {
        /// Who leaves.
        from: u32,
        /// Its priority in the kernel's order: below 100 is real-time.
        from_priority: i32,
        /// Why it leaves.
        why: Left,
        /// Who comes.
        to: u32,
        /// Its priority.
        to_priority: i32,
    },
    /// A task is being woken; also one on another CPU.
    Waking(u32),
    /// Something that runs on top of the task begins.
    Enter(Handler),
    /// The innermost of this kind ends.
    Exit(EventKind),
    /// A non-maskable interrupt ended that lasted so long.
    Nmi(Nanos),
    /// An interrupt is sent to another CPU (the event's own CPU sends), to run `function` there.
    Sent {
        /// To whom.
        to: CpuId,
        /// Where in the kernel.
        site: Name,
        /// What is to be run there; `None` for a bare reschedule.
        function: Option<Name>,
    },
    /// An interrupt of this kind is sent to another CPU, or by a CPU to itself; where in the kernel is not told. Arm's kernels tell it.
    Raised {
        /// To whom.
        to: CpuId,
        /// As [`Handler::Vector`] names it: `reschedule`, `call_function`, `irq_work` ...
        kind: Name,
    },
    /// The tick could not stop, by what it is said to depend on.
    TickKept(Name),
    /// Events before this one are missing.
    Lost,
}

/// Why a task leaves the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Left {
    /// It wants to go on.
    Preempted,
    /// It waits for something that a signal can end.
    Sleeps,
    /// It waits for something that must come (a disk).
    Blocked,
    /// A signal or a debugger stopped it.
    Stopped,
    /// It is over.
    Ended,
}

/// What runs on top of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Handler {
    /// Handler of a device's interrupt.
    Irq {
        /// Its number.
        number: u32,
        /// Who registered it.
        name: Name,
    },
    /// The processor's own interrupt: `local_timer`, `reschedule`, `call_function` ...
    Vector(Name),
    /// Softirq, by its name.
    Softirq(Name),
    /// A timer's function.
    Timer(Name),
    /// A function that another CPU asked for.
    Call(Name),
    /// A work item's function.
    Work(Name),
}

/// A [`Handler`] without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// [`Handler::Irq`]
    Irq,
    /// [`Handler::Vector`]
    Vector,
    /// [`Handler::Softirq`]
    Softirq,
    /// [`Handler::Timer`]
    Timer,
    /// [`Handler::Call`]
    Call,
    /// [`Handler::Work`]
    Work,
}

impl Handler {
    /// Its kind.
    pub fn kind(self) -> EventKind {
        match self {
            Handler::Irq { .. } => EventKind::Irq,
            Handler::Vector(_) => EventKind::Vector,
            Handler::Softirq(_) => EventKind::Softirq,
            Handler::Timer(_) => EventKind::Timer,
            Handler::Call(_) => EventKind::Call,
            Handler::Work(_) => EventKind::Work,
        }
    }
}
