//! `measure wakeup --core evl`: what can be measured there, and EVL's own latmus beside our probe.

use crate::face;
use crate::probing::{self, Common};
use anyhow::{Context, bail};
use quiet_foreign::{self, Format};
use quiet_linux::{Root, evl};
use quiet_store::Store;
use quiet_types::{
    CpuId, Nanos,
    machine::{Policy, SchedulerCore},
};
use std::{
    env, fs,
    io::{self, Read},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

/// The most cells of latmus's histogram, each 1 us.
const CELLS: &str = "1000";

/// Whether what is asked can be measured on that core, and by latmus too where it is to.
///
/// # Errors
/// A sentence.
pub fn fits(
    core: SchedulerCore,
    latmus: bool,
    interval: Nanos,
    common: &Common,
) -> anyhow::Result<()> {
    if core == SchedulerCore::Kernel {
        if latmus {
            bail!("--latmus measures on the EVL core: give --core evl too");
        }
        return Ok(());
    }
    if !Path::new(evl::CONTROL).exists() {
        bail!("cannot measure on the EVL core: {}", evl::NoEvl::NoCore);
    }
    let root = Root::system()?;
    for cpu in probing::cpus(common.cpus.clone())?.iter() {
        evl::runs_on(&root, cpu).map_err(anyhow::Error::msg)?;
    }
    if common.explain {
        bail!("--core evl takes no --explain: the kernel's trace does not see what its core does");
    }
    if common.policy.policy().0 != Policy::Fifo {
        bail!("the EVL core takes threads under fifo: leave out --policy");
    }
    if !latmus {
        return Ok(());
    }
    one(common)?;
    if !common.stress.is_empty() {
        bail!("--latmus takes no --stress; run `quietcores stress` beside both");
    }
    if common.json {
        bail!(
            "--latmus makes a second run: leave out --json, and read both with `quietcores runs`"
        );
    }
    if !interval.0.is_multiple_of(1000) || !(1_000..=1_000_000_000).contains(&interval.0) {
        bail!("latmus takes an --interval of whole microseconds, 1us to 1s, not {interval}");
    }
    if !common.length.0.is_multiple_of(1_000_000_000) || common.length.0 == 0 {
        bail!("latmus measures whole seconds: --for {} is none", common.length);
    }
    Ok(())
}

fn one(common: &Common) -> anyhow::Result<CpuId> {
    let cpus = probing::cpus(common.cpus.clone())?;
    match cpus.iter().collect::<Vec<_>>()[..] {
        [cpu] => Ok(cpu),
        _ => bail!("latmus measures one CPU: give --cpus one"),
    }
}

/// Runs latmus on one CPU and keeps what it wrote.
pub fn run(interval: Nanos, common: &Common, store: &Store) -> anyhow::Result<ExitCode> {
    let cpu = one(common)?;
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
        // It would quietly take another.
        bail!(
            "latmus was asked for CPU {cpu} and measured on another; nothing of it is kept. Choose one of {}",
            evl::CPUS
        );
    }
    run.label.clone_from(&common.label);
    probing::keep_run(&run, store, None, false)
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
