//! A run: one execution of a probe, with everything needed to believe or doubt its figures.

pub use crate::host::Host;
use crate::{
    Counters, CpuId, CpuSet, Finding, Histogram, Nanos,
    cell::Cell,
    explain::Explained,
    machine::{Policy, SchedulerCore, Scheduling},
    shield::Entry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`Run`] in JSON.
pub const SCHEMA: &str = "quietcores.run/2";

/// What 0.1 wrote: a run read from another tool's file says `false` and 0 there for what the file does
/// not say. [`Run::from_first`] takes that back.
pub const FIRST_SCHEMA: &str = "quietcores.run/1";

/// The format of an [`Origin`] that is no file: the kernel's tracer, which quietcores started.
pub const TIMERLAT: &str = "timerlat";

/// What was asked of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spec {
    /// What is measured.
    pub probe: Probe,
    /// One measuring thread on each.
    pub cpus: CpuSet,
    /// Policy of the measuring threads.
    pub policy: Policy,
    /// 1 to 99 for FIFO and RR, else 0.
    pub priority: u8,
    /// How long.
    pub length: Nanos,
    /// Readings above it are counted as beyond the threshold, and the worst kept with their time.
    pub threshold: Nanos,
    /// Width of a bucket of the linear histogram.
    pub bucket: Nanos,
    /// Number of buckets of the linear histogram.
    pub buckets: u32,
    /// What was done about the processor's idle states meanwhile.
    #[serde(default)]
    pub idle: Idle,
    /// Who schedules the measuring threads.
    #[serde(default)]
    pub core: SchedulerCore,
}

/// What is known of what was asked: a [`Spec`] as far as anybody said it. `None` (`null`) is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// What was measured.
    pub probe: Measured,
    /// One measuring thread on each.
    pub cpus: CpuSet,
    /// Policy of the measuring threads.
    pub policy: Option<Policy>,
    /// 1 to 99 for FIFO and RR, else 0.
    pub priority: Option<u8>,
    /// How long.
    pub length: Option<Nanos>,
    /// Readings above it are counted as beyond the threshold. No other tool names one.
    pub threshold: Option<Nanos>,
    /// Width of a bucket of the linear histogram.
    pub bucket: Option<Nanos>,
    /// Number of buckets of the linear histogram.
    pub buckets: Option<u32>,
    /// What was done about the processor's idle states meanwhile.
    pub idle: Option<Idle>,
    /// Who scheduled the measuring threads.
    #[serde(default)]
    pub core: Option<SchedulerCore>,
}

impl From<Spec> for Asked {
    fn from(spec: Spec) -> Asked {
        Asked {
            probe: spec.probe.into(),
            cpus: spec.cpus,
            policy: Some(spec.policy),
            priority: Some(spec.priority),
            length: Some(spec.length),
            threshold: Some(spec.threshold),
            bucket: Some(spec.bucket),
            buckets: Some(spec.buckets),
            idle: Some(spec.idle),
            core: Some(spec.core),
        }
    }
}

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Measured {
    /// Timer expiry to thread running, every `interval`.
    Wakeup {
        /// Time between expiries, where it is known.
        interval: Option<Nanos>,
    },
    /// Time between neighbouring clock reads of a spinning thread.
    Gap,
}

fn is_zero(time: &Nanos) -> bool {
    *time == Nanos::ZERO
}

impl Probe {
    /// Of a thread that does nothing but wake.
    pub fn wakeup(interval: Nanos) -> Probe {
        Probe::Wakeup { interval, work: Nanos::ZERO }
    }
}

impl From<Probe> for Measured {
    fn from(probe: Probe) -> Measured {
        match probe {
            Probe::Wakeup { interval, .. } => Measured::Wakeup { interval: Some(interval) },
            Probe::Gap => Measured::Gap,
        }
    }
}

/// What to do about the processor's idle states while measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Leave them as they are: the figures are those of the machine as it is set.
    #[default]
    AsIs,
    /// Ask the kernel for none deeper than polling (`/dev/cpu_dma_latency` at 0), as cyclictest
    /// does by itself.
    Shallow,
}

/// What a probe measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Probe {
    /// Timer expiry to thread running, every `interval`.
    Wakeup {
        /// Time between expiries.
        interval: Nanos,
        /// How long the thread computes in each period, in time of its own CPU.
        #[serde(default, skip_serializing_if = "is_zero")]
        work: Nanos,
    },
    /// Time between neighbouring clock reads of a spinning thread.
    Gap,
}

/// One execution of a probe. What nobody said of it is `None` (`null`), never `false` or 0: only a run
/// with an [`Origin`] and a checkpoint (`partial`) have such fields, and nothing is computed from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// Unique: UTC start time, probe and a few random digits, as `20261121T213000Z-wakeup-3f9a`.
    pub id: String,
    /// Free words of the user, or the arm's name within a proof.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// What was asked.
    pub spec: Asked,
    /// Start, UTC, RFC 3339 with milliseconds.
    pub started: Option<String>,
    /// The same moment on `CLOCK_MONOTONIC`: every `at` counts from it.
    #[serde(default)]
    pub monotonic: Option<Nanos>,
    /// How long it measured, by the clock.
    pub lasted: Option<Nanos>,
    /// Ended by a signal before its time; the figures are of what there is.
    pub interrupted: Option<bool>,
    /// A checkpoint of a run that was going on: the program was killed, or the power went, before its end.
    /// The figures are of what was counted up to `lasted`; nothing was read back afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Name of the machine, kernel and processor, enough to tell runs apart.
    pub host: Host,
    /// The clock that stamped the readings.
    pub clock: Option<RunClock>,
    /// One measuring thread each.
    pub threads: Vec<MeasuringThread>,
    /// The stress that ran meanwhile. `None`: there was none; with an `origin`: nobody said.
    pub stress: Option<Stress>,
    /// The shield's door that the threads went through; `None` outside a shield, with an `origin`: nobody
    /// said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Entry>,
    /// Settings that the figures depend on, read before the first reading.
    pub before: State,
    /// The same, read after the last.
    pub after: State,
    /// What to know about this run: settings refused, state changed, noise above the figures.
    pub findings: Vec<Finding>,
    /// Causes of the readings beyond the threshold, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Box<Explained>>,
    /// Its place in a campaign, where it was made by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Cell>,
    /// Where it comes from; `None` for a run that quietcores made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The file of another tool that a run was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// Its format: `latmus`, `cyclictest`, `rtla` ...
    pub format: String,
    /// The tool and its version, as far as it says.
    pub program: String,
    /// The finest step of the tool's readings: no figure of the run is finer.
    pub resolution: Nanos,
    /// What else the file says and a run has no room for, in its order, as (name, text).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<(String, String)>,
}

impl Origin {
    /// What the file says under this name.
    pub fn said(&self, name: &str) -> Option<&str> {
        self.said.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

/// An earlier moment on the way of the same wake-ups, where a tool stamps it too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Station {
    /// `irq`, `thread`.
    pub name: String,
    /// Timer expiry to this station.
    pub readings: Histogram,
}

/// The clock that stamped a run, and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunClock {
    /// `tsc`, `cntvct` or `clock_gettime`.
    pub source: String,
    /// Ticks a second of the counter; 1e9 for `clock_gettime`.
    pub hertz: f64,
    /// Largest disagreement with `CLOCK_MONOTONIC` over the run, in parts per million.
    pub drift_ppm: f64,
    /// Median cost of one read, measured on this machine before the run.
    pub read: Nanos,
    /// The instrument's own noise: median time of one turn of the measuring loop with nothing to
    /// measure. Readings below it are the instrument.
    pub floor: Nanos,
    /// The finest step of the clock, found by reading it: no reading is finer.
    #[serde(default)]
    pub step: Nanos,
    /// Ticks a second as the processor tells them (Arm's `CNTFRQ`); `None` where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_hertz: Option<u64>,
    /// Why this clock was taken, and what to know of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How far a stamp may lie from its place on `CLOCK_MONOTONIC`; zero where that clock itself
    /// made it.
    #[serde(default)]
    pub placing: Nanos,
}

/// What one measuring thread found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuringThread {
    /// Its CPU.
    pub cpu: CpuId,
    /// How it was scheduled, read back from the kernel.
    pub scheduling: Option<Scheduling>,
    /// Where it might run, read back from the kernel.
    pub allowed: Option<CpuSet>,
    /// The slice of an ordinary thread, its own or the kernel's, read back; `None` under other policies and before Linux 6.12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Nanos>,
    /// Whether all its memory was locked.
    pub memory_locked: Option<bool>,
    /// Periods that were due (wakeup), or clock reads made (gap).
    pub expected: Option<u64>,
    /// Readings taken: `expected` = `obtained` + `missed` for wakeup.
    pub obtained: u64,
    /// Periods that expired while the thread was still late from an earlier one.
    pub missed: Option<u64>,
    /// The readings as they were taken.
    pub readings: Histogram,
    /// Wakeup: the readings of every expected period, each missed one with the time from its
    /// expiry to the moment the thread ran at last. `None` for gap.
    pub corrected: Option<Histogram>,
    /// Time of the largest reading, since the start.
    pub max_at: Option<Nanos>,
    /// Readings beyond the threshold.
    pub beyond: Option<u64>,
    /// Their sum: for gap, the gap time, that was taken from the thread.
    pub stolen: Option<Nanos>,
    /// The largest readings, largest first, at most 64.
    pub worst: Vec<Reading>,
    /// What hit the thread, by its own counters: voluntary and involuntary context switches, page
    /// faults, migrations; after minus before.
    pub counters: BTreeMap<String, u64>,
    /// Earlier moments of the same wake-ups, first first; no part of the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stations: Vec<Station>,
}

/// One reading that is kept by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// When it ended, since the start of the run.
    pub at: Nanos,
    /// The measured time.
    pub value: Nanos,
    /// Periods missed because of it.
    pub missed: u64,
}

/// The stress that ran while measuring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stress {
    /// Suite or stress names, as asked.
    pub names: Vec<String>,
    /// What was started, word by word.
    pub command: Vec<String>,
    /// CPUs it was allowed.
    pub cpus: CpuSet,
    /// What each stressor really did.
    pub throughput: Vec<Throughput>,
}

/// What one stressor did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// `dentry`, `fault` ...
    pub stressor: String,
    /// Operations in all.
    pub operations: f64,
    /// Operations a second of wall time.
    pub per_second: f64,
}

/// Settings that a figure depends on, read back from the kernel. Two equal states make two runs
/// comparable; a state that changed between before and after makes a run void.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// By path below `/`: IRQ masks, cpusets, sysctls, governors.
    pub files: BTreeMap<String, String>,
    /// By path below `/`, counters: they may grow (steal, interrupts on the measured CPUs).
    #[schemars(with = "BTreeMap<String, u64>")]
    pub counters: Counters,
}

impl Run {
    /// All threads' readings as one: the corrected ones where there are some.
    pub fn readings(&self) -> Histogram {
        let mut all = Histogram::default();
        for (at, thread) in self.threads.iter().enumerate() {
            let one = thread.corrected.as_ref().unwrap_or(&thread.readings);
            if at == 0 {
                all = one.clone();
            } else {
                all.merge(one);
            }
        }
        all
    }

    /// The finest step of its readings: the instrument's of another tool, else that of the clock.
    pub fn resolution(&self) -> Nanos {
        let step = self.clock.as_ref().map_or(Nanos(1), |clock| clock.step.max(Nanos(1)));
        self.origin.as_ref().map_or(step, |origin| origin.resolution)
    }

    /// A figure of its readings: one below the clock's step is not told as if it had been measured.
    pub fn figure(&self, value: Nanos) -> String {
        let step = self.clock.as_ref().map_or(Nanos::ZERO, |clock| clock.step);
        if self.origin.is_none() && step > Nanos(1) && value < step {
            format!("< {step}")
        } else {
            value.to_string()
        }
    }

    /// Periods missed by all threads, where each one's are known.
    pub fn missed(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.missed).sum()
    }

    /// Periods that were due for all threads (clock reads made, for gap), where each one's are known.
    pub fn expected(&self) -> Option<u64> {
        self.threads.iter().map(|thread| thread.expected).sum()
    }

    /// Whether it was read from another tool's file: what that does not say, nobody knows.
    pub fn is_imported(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.format != TIMERLAT)
    }

    /// Whether it is known to have ended before its time: by a signal, or killed.
    pub fn cut_short(&self) -> bool {
        self.partial || self.interrupted == Some(true)
    }

    /// Gap time of all threads, where each one's is known.
    pub fn stolen(&self) -> Option<Nanos> {
        self.threads
            .iter()
            .map(|thread| thread.stolen.map(|time| time.0))
            .sum::<Option<u64>>()
            .map(Nanos)
    }

    /// The share of the threads' time that was taken from them: for gap.
    pub fn share_stolen(&self) -> Option<f64> {
        let whole = self.lasted?.0.max(1) as f64 * self.threads.len().max(1) as f64;
        Some(self.stolen()?.0 as f64 / whole)
    }

    /// The share of the expected periods that is beyond the threshold, of the readings of all threads.
    pub fn share_beyond(&self, all: &Histogram) -> Option<f64> {
        Some(all.above(self.spec.threshold?) as f64 / self.expected()?.max(1) as f64)
    }

    /// Whether a spinning thread's gaps were measured, not wake-ups.
    pub fn is_gap(&self) -> bool {
        self.spec.probe == Measured::Gap
    }

    /// Time between wake-ups, where it is known.
    pub fn interval(&self) -> Option<Nanos> {
        match self.spec.probe {
            Measured::Wakeup { interval } => interval,
            Measured::Gap => None,
        }
    }

    /// Policy and priority of the first thread as the kernel has them, else as asked for, where known.
    pub fn scheduling(&self) -> Option<(Policy, u8)> {
        let got = self.threads.first().and_then(|thread| thread.scheduling);
        match got {
            Some(got) => Some((got.policy, got.priority)),
            None => Some((self.spec.policy?, self.spec.priority?)),
        }
    }
}
