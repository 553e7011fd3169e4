//! What every probe is asked on the command line, and what becomes of its run.

use crate::{
    asked, face,
    keep::{Losses, Target},
};
use anyhow::Context;
use clap::ValueEnum;
use indicatif::ProgressBar;
use quiet_probe::{RunProgress, RunRequest, Strictness};
use quiet_store::Store;
use quiet_types::{
    CpuSet, Nanos, Run,
    machine::{Policy, SchedulerCore},
    run::{Idle, Probe, Spec},
};
use std::{path::PathBuf, process::ExitCode};

#[derive(clap::Args)]
pub struct Common {
    /// CPUs to measure on, one thread each; all expire at the same moments
    #[arg(long, alias = "cpu", value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Scheduling policy of the measuring threads
    #[arg(long, value_enum, default_value_t = Scheduled::Fifo)]
    pub policy: Scheduled,
    /// Priority under fifo and rr, 1 to 99 [default: 90]
    #[arg(long, value_name = "N")]
    pub priority: Option<u8>,
    /// How long to measure
    #[arg(long = "for", value_name = "LENGTH", default_value = "10s")]
    pub length: Nanos,
    /// Count readings above this one by one [default: 100us, for gap 5us]
    #[arg(long, value_name = "TIME")]
    pub threshold: Option<Nanos>,
    /// Suites (kernel, classic, reach, switch, cache, network) or stressors to run meanwhile; see `quietcores stress --list`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub stress: Vec<String>,
    /// CPUs that the stress may use [default: all]
    #[arg(long, value_name = "LIST", requires = "stress")]
    pub stress_cpus: Option<CpuSet>,
    /// Idle states of the processor meanwhile: none deeper than polling, or those of the machine
    #[arg(long, value_enum, default_value_t = IdleStates::Shallow)]
    idle: IdleStates,
    /// Width of a bucket of the linear histogram
    #[arg(long, value_name = "TIME", default_value = "1us")]
    bucket: Nanos,
    /// Number of buckets of the linear histogram
    #[arg(long, value_name = "N", default_value_t = 1000)]
    buckets: u32,
    /// Watch the CPUs and tell the causes of readings above the threshold; see `quietcores explain`
    #[arg(long)]
    pub explain: bool,
    /// End with an error when the kernel refuses a setting, in place of measuring what was got
    #[arg(long)]
    pub strict: bool,
    /// Free words, kept with the run
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub label: String,
    /// Where the journal of a shield is looked for: threads on shielded CPUs run inside the shield
    #[arg(long, value_name = "DIR", default_value = quiet_shield::DEFAULT_STATE)]
    pub state: PathBuf,
    /// Where runs are kept [default: ~/.local/share/quietcores]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Print the run as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Write the run as JSON to a file too
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Scheduled {
    Fifo,
    Rr,
    Other,
    Batch,
    Deadline,
}

impl Scheduled {
    /// The policy, and the priority where none is named.
    pub fn policy(self) -> (Policy, u8) {
        match self {
            Scheduled::Fifo => (Policy::Fifo, 90),
            Scheduled::Rr => (Policy::Rr, 90),
            Scheduled::Other => (Policy::Other, 0),
            Scheduled::Batch => (Policy::Batch, 0),
            Scheduled::Deadline => (Policy::Deadline, 0),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum IdleStates {
    Shallow,
    AsIs,
}

/// Keeps a run, in a file too where one is named, and shows it whatever comes of that.
pub fn keep_run(
    run: &Run,
    store: &Store,
    output: Option<&Target>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut losses = Losses::default();
    let kept = losses.of("the run", store.save_run(run));
    if let Some(target) = output {
        losses.of("the file", write(run, target));
    }
    if json {
        face::print_json(run)?;
    } else {
        face::print(&quiet_report::run_text(run, face::width()))?;
    }
    if let Some(path) = kept {
        face::say(&format!("kept as {}", path.display()));
    }
    Ok(losses.end(ExitCode::SUCCESS))
}

/// CPUs that are measured: those that were named, else the last one that runs.
///
/// # Errors
/// When it cannot be told which run.
pub fn cpus(named: Option<CpuSet>) -> anyhow::Result<CpuSet> {
    match named {
        Some(cpus) => Ok(cpus),
        None => Ok(quiet_experiment::last_online()?),
    }
}

/// Names of stresses; `none` is none, as in tables and campaigns.
pub fn stresses(named: &[String]) -> Vec<String> {
    named.iter().filter(|name| *name != "none").cloned().collect()
}

/// Seconds: a number of them, or a time with its unit.
///
/// # Errors
/// A sentence.
pub fn seconds(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.trim().parse() {
        return Ok(seconds);
    }
    let time: Nanos = text.parse().map_err(|_| {
        format!("`{}` is no time such as 30s or 2min", quiet_types::printable(text, 40))
    })?;
    Ok(time.0.div_ceil(1_000_000_000))
}

pub fn request(probe: Probe, core: SchedulerCore, common: &Common) -> anyhow::Result<RunRequest> {
    let cpus = cpus(common.cpus.clone())?;
    let (policy, usual) = common.policy.policy();
    let threshold = match probe {
        Probe::Wakeup { .. } => Nanos::from_micros(100),
        Probe::Gap => Nanos::from_micros(5),
    };
    let (entry, lent) = asked::door(&cpus, &common.state)?;
    Ok(RunRequest {
        spec: Spec {
            probe,
            cpus,
            policy,
            priority: common
                .priority
                .unwrap_or_else(|| asked::usual_priority(usual, lent.is_some())),
            length: common.length,
            threshold: common.threshold.unwrap_or(threshold),
            bucket: common.bucket,
            buckets: common.buckets,
            idle: match common.idle {
                IdleStates::Shallow => Idle::Shallow,
                IdleStates::AsIs => Idle::AsIs,
            },
            core,
        },
        label: common.label.clone(),
        entry,
        lent,
        stress: stresses(&common.stress),
        stress_cpus: common.stress_cpus.clone().unwrap_or_default(),
        strictness: if common.strict { Strictness::Strict } else { Strictness::GoOn },
        slice: None,
        explain: common.explain,
    })
}

fn write(run: &Run, target: &Target) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(run).context("cannot write the run as JSON")?;
    text.push('\n');
    target.write(&text)
}

/// A bar over the length of a request.
pub fn bar(request: &RunRequest) -> ProgressBar {
    face::bar(request.spec.length.0 / 1_000_000)
}

pub fn show(bar: &ProgressBar, now: &RunProgress) {
    bar.set_position(now.elapsed.0.min(now.length.0) / 1_000_000);
    bar.set_message(format!("{} readings, {} missed, max {}", now.obtained, now.missed, now.max));
}
