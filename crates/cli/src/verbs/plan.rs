//! `plan`

use crate::face;
use anyhow::Context;
use quiet_experiment::{ShieldWish, machine};
use quiet_linux::Root;
use quiet_report::plan::{plan_brief, plan_text};
use quiet_types::{CpuSet, Plan};
use std::{path::PathBuf, process::ExitCode};

/// Show what would be done, and why; change nothing
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores plan                         which CPUs to shield, and how: chosen for this machine
  quietcores plan --cpus 2-3              these CPUs
  quietcores plan --verbose               every step: old and new value, and why
  quietcores plan living-room.toml        for a chain
  quietcores plan --root my-pc            on a captured machine (see inspect --capture)
  quietcores plan ready:pipewire          a ready-made chain: ready:ardour, ready:camilladsp, ready:jackd, ready:mpd, ready:pipewire;
                                          ready:pipewire@ann for programs of user ann

A chain file, from input to output:
  [chain]
  name = \"living room\"
  cpus = \"auto\"                 # as many cores as the links need; or \"auto:3\", or a list: \"2-3\"
  mode = \"sleep\"                # or \"never-sleep\": one thread a CPU that spins
  smt = \"as-is\"                 # or \"off\": siblings of shielded CPUs are switched off
  steps = [\"partition\"]         # only these steps (see `quietcores tune --list`); all where left out
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
    pub wish: Wished,
    /// Every step, with its old value, its reason and how it is verified
    #[arg(long, conflicts_with = "json")]
    verbose: bool,
    /// Print the plan as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Read the machine captured in DIR in place of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// What is to be shielded.
#[derive(clap::Args)]
pub struct Wished {
    /// Chain file (TOML): the audio path, link by link; or a ready-made chain, as ready:mpd
    pub chain: Option<PathBuf>,
    /// CPUs to shield, as 2-3,8; in place of those of the chain
    #[arg(long, alias = "cpu", value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// For a loop that never sleeps (as mode = "never-sleep" of a chain): take the kernel's guards
    /// against starvation away as well
    #[arg(long)]
    pub never_sleep: bool,
    /// Switch SMT siblings of the shielded CPUs off that are not shielded themselves
    #[arg(long)]
    pub smt_off: bool,
}

impl Wished {
    /// As the planner takes it.
    pub fn wish(&self) -> ShieldWish {
        ShieldWish {
            chain: self.chain.clone(),
            cpus: self.cpus.clone(),
            never_sleep: self.never_sleep,
            smt_off: self.smt_off,
        }
    }
}

/// The plan as it is shown before anybody is asked.
pub fn shown(plan: &Plan, verbose: bool) -> String {
    match verbose {
        true => face::fitted(&plan_text(plan)),
        false => plan_brief(plan, face::page_width()),
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot make a plan")?;
    let plan = quiet_experiment::plan(&args.wish.wish(), &machine(&root)?)?;
    if args.json {
        face::print_json(&plan)?;
    } else {
        face::print(&shown(&plan, args.verbose))?;
    }
    Ok(ExitCode::SUCCESS)
}
