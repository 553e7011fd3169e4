//! `plan`

use crate::face;
use anyhow::{Context, bail};
use quiet_linux::{CommandLines, Options, Root, files, snapshot};
use quiet_report::plan::plan_text;
use quiet_types::boot::Mode;
use quiet_types::{Chain, CpuSet, Machine, Plan, chain::Choice};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Show the steps, old and new, and why each; change nothing
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores plan                         which CPUs to shield, and how: chosen for this machine
  quietcores plan --cpus 2-3              these CPUs
  quietcores plan living-room.toml        for a chain
  quietcores plan --root my-pc            on a captured machine (see inspect --capture)

A chain file, from input to output:
  [chain]
  name = \"living room\"
  cpus = \"auto\"                 # as many cores as the links need; or \"auto:3\", or a list: \"2-3\"
  mode = \"sleep\"                # or \"never-sleep\": one thread a CPU that spins
  smt = \"as-is\"                 # or \"off\": siblings of shielded CPUs are switched off
  [[link]]
  name = \"player\"
  process = \"mpd\"
  user = \"mpd\"                 # whose it is, by name or number; root's where left out. Also exe, unit
  threads = [\"output\"]         # all where left out; output:usb as well, * for any characters
  priority = 75                 # SCHED_FIFO, rising down the chain
  [[link]]
  name = \"output\"
  irq = { card = \"USB\" }       # or { net = \"eth0\" }, { number = 127 }, { action = \"xhci_hcd\" }
  priority = 85")]
pub struct Args {
    #[command(flatten)]
    pub wish: Wish,
    /// Print the plan as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Read the machine captured in DIR in place of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// What is to be shielded.
#[derive(Clone, Default, clap::Args)]
pub struct Wish {
    /// Chain file (TOML): the audio path, link by link
    pub chain: Option<PathBuf>,
    /// CPUs to shield, as 2-3,8; in place of those of the chain
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// For a loop that never sleeps (as mode = "never-sleep" of a chain): take the kernel's guards
    /// against starvation away as well
    #[arg(long)]
    pub never_sleep: bool,
    /// Switch SMT siblings of the shielded CPUs off that are not shielded themselves
    #[arg(long)]
    pub smt_off: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot make a plan")?;
    let plan = make(&args.wish, &machine(&root)?)?;
    if args.json {
        face::print_json(&plan)?;
    } else {
        face::print(&plan_text(&plan))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The machine, as a plan needs it.
pub fn machine(root: &Root) -> anyhow::Result<Machine> {
    let options = Options { command_lines: CommandLines::None };
    snapshot(root, options).context("cannot read the machine")
}

/// The plan of what is wished.
pub fn make(wish: &Wish, machine: &Machine) -> anyhow::Result<Plan> {
    let mut chain = match &wish.chain {
        Some(path) => {
            let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
            read_chain(path, &there.union(&machine.online))?
        }
        None => Chain::default(),
    };
    if let Some(cpus) = &wish.cpus {
        chain.cpus = Choice::These(cpus.clone());
    }
    if wish.never_sleep {
        chain.mode = Mode::NeverSleepingCore;
    }
    chain.smt_off |= wish.smt_off;
    quiet_plan::plan(machine, &chain).map_err(|error| match &wish.chain {
        Some(path) => anyhow::anyhow!("{}: {error}", path.display()),
        None => error.into(),
    })
}

/// Chain files are small.
const LARGEST: u64 = 1 << 20;

/// The chain in a file; `known` are the CPUs that it may name.
pub fn read_chain(path: &Path, known: &CpuSet) -> anyhow::Result<Chain> {
    let shown = quiet_types::printable(&path.display().to_string(), 300);
    let text = std::fs::File::open(path)
        .and_then(|file| files::take_text(file, LARGEST))
        .with_context(|| format!("cannot read the chain file {shown}"))?;
    if text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#')) {
        bail!(
            "cannot use the chain file {shown}: nothing is in it; write a [chain] (see `quietcores plan \
             --help`), or leave the file out"
        );
    }
    Ok(quiet_plan::chain::parse(&text, &shown, Some(known))?)
}
