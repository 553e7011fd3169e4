//! Who took time from a CPU: causes of late readings, with their lengths.

use crate::{CpuId, Finding, Histogram, Nanos, figure::Ratio, host::Host};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`Explained`] in JSON.
pub const SCHEMA: &str = "quietcores.explain/1";

/// The schema of [`Cost`] in JSON.
pub const COST_SCHEMA: &str = "quietcores.explain-cost/1";

/// What watching a CPU costs its wake-ups: blocks of one run, watched and not, side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// [`COST_SCHEMA`].
    pub schema: String,
    /// Start, UTC, RFC 3339 with milliseconds.
    pub started: String,
    /// Where.
    pub host: Host,
    /// The CPU.
    pub cpu: CpuId,
    /// Time between two expiries.
    pub interval: Nanos,
    /// How long was measured.
    pub lasted: Nanos,
    /// Of each block.
    pub block: Nanos,
    /// Pairs of neighbouring blocks.
    pub pairs: u64,
    /// Events that were recorded.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    /// The stress that ran meanwhile.
    pub stress: Vec<String>,
    /// Each judged percentile.
    pub figures: Vec<CostFigure>,
}

/// One percentile, not watched and watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostFigure {
    /// `p50`, `p99`.
    pub name: String,
    /// Over all blocks that were not watched.
    pub without: Nanos,
    /// Over all that were.
    pub with: Nanos,
    /// Watched by not watched, all blocks of a side together, with the 95 % bootstrap interval over pairs.
    pub ratio: Ratio,
    /// The same of the two blocks of each pair: Hodges and Lehmann's middle of these ratios with its 95 % interval. What the machine
    /// does to neighbours alike falls out of it.
    pub by_pair: Ratio,
}

/// What took time from some CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run whose readings are explained; empty where CPUs were only watched.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Start, UTC, RFC 3339 with milliseconds.
    pub started: String,
    /// How long.
    pub lasted: Nanos,
    /// Where.
    pub host: Host,
    /// What it was seen with.
    pub source: Source,
    /// Readings above it are explained.
    pub threshold: Nanos,
    /// Each CPU.
    pub cpus: Vec<ExplainedCpu>,
    /// What to know about this: events lost, causes that cannot be told here.
    pub findings: Vec<Finding>,
}

/// What causes were seen with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel's trace: each reading has its causes, with lengths.
    Trace,
    /// Counters before and after: how often, not how long.
    Counters,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedCpu {
    /// Which.
    pub cpu: CpuId,
    /// Readings above the threshold.
    pub readings: u64,
    /// Those of them that were kept with their time, and so have causes.
    pub explained: u64,
    /// The sum of the explained readings.
    pub total: Nanos,
    /// Of it: something in this system, by name.
    pub named: Nanos,
    /// Of it: nothing in this system ran meanwhile, and a hypervisor is there that may take the
    /// processor away.
    pub host: Nanos,
    /// Of it: without a cause.
    pub unexplained: Nanos,
    /// Largest first.
    pub causes: Vec<Share>,
    /// The largest readings, largest first, with their time line.
    pub worst: Vec<Late>,
    /// Time that the hypervisor owns up to (`steal` in /proc/stat), in its steps of 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<Nanos>,
}

/// What one cause took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// What.
    pub cause: Cause,
    /// In words.
    pub title: String,
    /// All the time it took within the explained readings; `None` from counters.
    pub total: Option<Nanos>,
    /// Of it: on the way into it and back, where no event tells.
    pub around: Nanos,
    /// How often it came.
    pub times: u64,
    /// The most that it took of one reading.
    pub longest: Nanos,
    /// In how many readings it had a part.
    pub readings: u64,
    /// What removes it.
    pub knob: String,
    /// The readings of which it took the largest part, whole, so that tails can be told by cause.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub lengths: Histogram,
}

fn is_empty(all: &Histogram) -> bool {
    all.count == 0
}

/// One late reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Late {
    /// When it ended, since the start of the run.
    pub at: Nanos,
    /// How long.
    pub value: Nanos,
    /// Its causes by what each took in all, largest first; they add up to `value`.
    pub sums: Vec<Sum>,
    /// What followed on what, from its beginning; with `rest` they add up to `value`.
    pub parts: Vec<Part>,
    /// How long the parts are that the list has no room for.
    pub rest: Nanos,
}

/// What one cause took of one late reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sum {
    /// Place in [`ExplainedCpu::causes`].
    pub cause: usize,
    /// In all.
    pub length: Nanos,
}

/// A stretch of one late reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Place in [`ExplainedCpu::causes`].
    pub cause: usize,
    /// From the beginning of the reading.
    pub after: Nanos,
    /// How long.
    pub length: Nanos,
}

/// Why a thread did not run.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cause {
    /// Another task ran.
    Task {
        /// Its name.
        name: String,
        /// 1 to 99 for a real-time task, 0 for an ordinary one, 100 for deadline and stop tasks.
        priority: u8,
    },
    /// The scheduler gave an ordinary task the CPU before a real-time one: the fair server (Linux
    /// 6.12), real-time throttling before.
    FairServer {
        /// The ordinary task; `idle` where nobody at all was let run.
        name: String,
    },
    /// A work item, in a worker of the kernel.
    Work {
        /// Its function.
        function: String,
    },
    /// A device's interrupt.
    Irq {
        /// Number.
        number: u32,
        /// Who registered the handler.
        name: String,
    },
    /// The periodic tick.
    Tick,
    /// A timer's function.
    Timer {
        /// Which; `?` where events of timers are not known.
        function: String,
    },
    /// Another CPU asked this one to run a function.
    Call {
        /// Which.
        function: String,
        /// The task that asked.
        sender: String,
        /// Where in the kernel it asked.
        site: String,
    },
    /// Another CPU asked this one to look for whom to run.
    Reschedule {
        /// The task that asked.
        sender: String,
        /// Where in the kernel it asked.
        site: String,
    },
    /// Another interrupt of the processor itself.
    Vector {
        /// `irq_work`, `thermal_apic` ...
        name: String,
        /// The task that was running where it was sent from; `None` where the kernel does not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sender: Option<String>,
    },
    /// Deferred work of interrupts.
    Softirq {
        /// `NET_RX`, `TIMER` ...
        name: String,
    },
    /// A non-maskable interrupt.
    Nmi,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// It slept by its own will.
    Slept,
    /// It waited for a disk or a lock.
    Blocked,
    /// The CPU slept, and the timer's interrupt came when it had woken.
    Idle,
    /// A task kept the CPU while the timer's interrupt was due: interrupts off, or the host.
    Masked {
        /// The task.
        name: String,
    },
    /// Nothing in this system ran, and it runs on a hypervisor.
    Host,
    /// Nothing in this system ran, and the processor counted system management interrupts.
    Firmware,
    /// No event says.
    Unexplained,
    /// Events are missing.
    Unrecorded,
}
