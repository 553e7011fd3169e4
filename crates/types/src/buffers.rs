//! Buffers under stress: which of them holds.

use crate::{CpuSet, Finding, Nanos, head::Head};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The schema of [`Buffers`] in JSON.
pub const SCHEMA: &str = "quietcores.buffers/1";

/// A table of periods, rings, stresses, modes and settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Buffers {
    /// What, when and where.
    #[serde(flatten)]
    pub head: Head,
    /// The device in its own words.
    pub device: String,
    /// Frames a second.
    pub rate: u32,
    /// Share of a period that the DSP work takes when nothing disturbs it, 0 to 1.
    pub load: f64,
    /// CPU of the playing thread, where it had one of its own.
    pub cpu: Option<u32>,
    /// CPUs of the stress in shared cells.
    pub stress_cpus: CpuSet,
    /// CPUs of the stress in shielded cells.
    pub housekeeping: CpuSet,
    /// A cell for each combination that was tried, in the order of the table.
    pub cells: Vec<Combination>,
    /// The least buffer that holds, for each mode and setting.
    pub least: Vec<Least>,
    /// Whether every shield that was put up was taken back to the byte; `None` where none was.
    pub restored: Option<bool>,
    /// What to know beside the figures.
    pub findings: Vec<Finding>,
}

/// Whether the playing CPU is shielded.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum CpuSetting {
    /// As found; the stress may run on it too.
    Shared,
    /// A shield is up around it.
    Shielded,
}

impl fmt::Display for CpuSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CpuSetting::Shared => "shared",
            CpuSetting::Shielded => "shielded",
        })
    }
}

/// One combination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Combination {
    /// Frames a period, as the device gave it.
    pub period: u32,
    /// Frames in the ring, as the device gave it.
    pub buffer: u32,
    /// `never-sleep` or `sleep`.
    pub mode: String,
    /// Whether its CPU was shielded.
    pub setting: CpuSetting,
    /// Suites and stressors, or `none`.
    pub stress: String,
    /// Why it could not be tried; empty where it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// One for each time that it was tried.
    pub trials: Vec<Trial>,
}

/// One time that a combination was tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// How long it played.
    pub lasted: Nanos,
    /// Policy and priority of the thread, read back: `fifo 85`.
    pub policy: String,
    /// Periods of the card while it played: `obtained` + `missed`.
    pub expected: u64,
    /// Periods whose sound was there in time.
    pub obtained: u64,
    /// Periods whose sound was lost.
    pub missed: u64,
    /// Times that the device ran over or under.
    pub xruns: u64,
    /// Longest time between two writes.
    pub between: Nanos,
    /// The calibrated DSP work, undisturbed.
    pub calibrated: Nanos,
    /// Blocks that were not done within their period.
    pub over: u64,
    /// Those of them that began late by more than they ran slow: the thread woke late.
    pub woke_late: u64,
    /// The others: the work took longer than calibrated.
    pub ran_slow: u64,
    /// Time by which blocks that were not done in time began late.
    pub late: Nanos,
    /// Time by which their work took longer than calibrated.
    pub slow: Nanos,
    /// Context switches and more of the thread; where they were counted, its system calls.
    pub hits: BTreeMap<String, u64>,
    /// Timer interrupts on its CPU; `None` where it had no CPU of its own.
    #[serde(default)]
    pub ticks: Option<u64>,
    /// Other interrupts on its CPU, by name.
    #[serde(default)]
    pub irqs: BTreeMap<String, u64>,
    /// Frames that the host keeps between capture and playback; `None` where nobody knows.
    #[serde(default)]
    pub latency: Option<u32>,
    /// Time that the hypervisor took from the CPU meanwhile, as the kernel counts it.
    pub steal: Option<Nanos>,
}

/// The least buffer of one mode and setting for which no xrun was seen, under any of the stresses,
/// nor for any longer one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Least {
    /// `never-sleep` or `sleep`.
    pub mode: String,
    /// Whether its CPU was shielded.
    pub setting: CpuSetting,
    /// The buffer; `None` where every one that was tried had xruns.
    pub safe: Option<Safe>,
}

/// A buffer that held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Safe {
    /// Frames a period.
    pub period: u32,
    /// Frames in the ring.
    pub buffer: u32,
    /// The ring in milliseconds.
    pub milliseconds: f64,
    /// Seconds for which it held under the stress for which it was tried the shortest.
    pub held: f64,
    /// Xruns an hour that are possible all the same, at 95 %: 3 in the time for which it held.
    pub at_most_an_hour: f64,
}

impl Combination {
    /// A sum over the trials.
    pub fn sum(&self, of: impl Fn(&Trial) -> u64) -> u64 {
        self.trials.iter().map(of).sum()
    }

    /// How long it was tried, seconds.
    pub fn seconds(&self) -> f64 {
        self.trials.iter().map(|trial| trial.lasted.as_secs_f64()).sum()
    }

    /// The longest time between two writes.
    pub fn between(&self) -> Nanos {
        self.trials.iter().map(|trial| trial.between).max().unwrap_or_default()
    }
}
