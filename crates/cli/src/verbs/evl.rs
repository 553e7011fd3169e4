//! `measure wakeup --core evl`: EVL's own latmus measures, and what it writes is kept as a run.

use crate::probing::{self, Common};
use crate::{face, keep};
use anyhow::Context;
use quiet_experiment::last_online;
use quiet_foreign::{self, Format};
use quiet_types::{CpuId, CpuSet, Nanos};
use std::{
    env, fs,
    io::{self, Read},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

const CONTROL: &str = "/dev/evl/control";
/// CPUs on which the core runs threads.
const CPUS: &str = "/sys/devices/virtual/evl/control/cpus";
/// The most cells of latmus's histogram, each 1 us.
const CELLS: &str = "1000";

/// Runs latmus on one CPU and keeps what it wrote.
pub fn run(interval: Nanos, common: &Common) -> anyhow::Result<ExitCode> {
    if !Path::new(CONTROL).exists() {
        anyhow::bail!(
            "cannot measure on the EVL core: this kernel has none (no {CONTROL}); boot one with EVL \
             (Xenomai 4, CONFIG_EVL), or leave out --core"
        );
    }
    let cpu = cpu(common)?;
    fits(interval, common)?;
    let store = keep::ready(common.store.as_deref(), "runs")?;
    let output = common.output.as_deref().map(keep::Target::data).transpose()?;
    // Ours alone, of a name that nobody foresees: latmus writes there as root.
    let dir = tempfile::Builder::new().prefix("quietcores-latmus-").tempdir();
    let dir =
        dir.with_context(|| format!("cannot make a folder in {}", env::temp_dir().display()))?;
    let plot = dir.path().join("histogram");
    latmus(interval, common, cpu, &plot)?;
    let text = fs::read_to_string(&plot).context("latmus wrote no histogram")?;
    let mut run = quiet_foreign::read(&text, Format::Latmus)
        .map_err(|error| anyhow::anyhow!("cannot understand what latmus wrote: {error}"))?;
    let on = run.threads.first().map(|thread| thread.cpu);
    if on != Some(cpu) {
        anyhow::bail!(
            "latmus was asked for CPU {cpu} and measured on another; nothing is kept. Choose one of {CPUS}"
        );
    }
    run.label.clone_from(&common.label);
    probing::keep_run(&run, &store, output.as_ref(), common.json)
}

/// One CPU, and one on which the core runs threads: latmus would quietly take another.
fn cpu(common: &Common) -> anyhow::Result<CpuId> {
    let cpus = common.cpus.clone().map_or_else(last_online, Ok)?;
    let [cpu] = cpus.iter().collect::<Vec<_>>()[..] else {
        anyhow::bail!("latmus measures one CPU: give --cpus one");
    };
    let able: CpuSet = fs::read_to_string(CPUS)
        .with_context(|| format!("cannot read {CPUS}"))?
        .parse()
        .with_context(|| format!("cannot understand {CPUS}"))?;
    if !able.contains(cpu) {
        anyhow::bail!(
            "the EVL core runs no threads on CPU {cpu}, but on {able}: choose one of those"
        );
    }
    Ok(cpu)
}

/// What latmus can do, or why not.
fn fits(interval: Nanos, common: &Common) -> anyhow::Result<()> {
    if !common.stress.is_empty() || common.explain {
        anyhow::bail!(
            "--core evl takes no --stress and no --explain; run `quietcores stress` beside it"
        );
    }
    if !interval.0.is_multiple_of(1000) || !(1_000..=1_000_000_000).contains(&interval.0) {
        anyhow::bail!(
            "latmus takes an --interval of whole microseconds, 1us to 1s, not {interval}"
        );
    }
    if !common.length.0.is_multiple_of(1_000_000_000) || common.length.0 == 0 {
        anyhow::bail!("latmus measures whole seconds: --for {} is none", common.length);
    }
    Ok(())
}

/// Runs it to its end; its own words where it fails.
fn latmus(interval: Nanos, common: &Common, cpu: CpuId, plot: &Path) -> anyhow::Result<()> {
    let priority = common.priority.unwrap_or(98);
    let mut child = Command::new("latmus")
        .args(["-q", "-u", "-c", &cpu.to_string(), "-P", &priority.to_string(), "-H", CELLS])
        .args(["-p", &(interval.0 / 1000).to_string()])
        .args(["-T", &(common.length.0 / 1_000_000_000).to_string()])
        // Its value is one with its letter: as a word of its own it would not be taken.
        .arg(format!("-g{}", plot.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!(
                "cannot start latmus: it is not in PATH; it comes with libevl (`/usr/evl/bin`)"
            ),
            _ => anyhow::anyhow!("cannot start latmus: {error}"),
        })?;
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(1 << 16).read_to_string(&mut said).context("cannot read what latmus says")?;
    }
    let status = child.wait().context("cannot wait for latmus")?;
    if !status.success() {
        let said = quiet_types::printable(said.trim(), 600);
        anyhow::bail!("latmus ended with {status}, and nothing is kept. It said: {said}");
    }
    if let Some(warning) = said.lines().find(|line| line.contains("WARNING")) {
        face::say(&format!("latmus: {}", quiet_types::printable(warning, 200)));
    }
    Ok(())
}
