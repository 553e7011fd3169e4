//! `check`: the audit.

use crate::{face, keep};
use anyhow::Context;
use quiet_experiment::{machine, read_chain};
use quiet_linux::Root;
use quiet_plan::check::audit;
use quiet_report::{
    check::{Style, check_text},
    machine::Colour,
};
use quiet_types::{Chain, CpuSet, Severity};
use std::{path::PathBuf, process::ExitCode};

/// Name what stands in the way of low latency, greatest effect first
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores check                        this machine, and what is isolated on it
  quietcores check living-room.toml       for a chain: its CPUs, IRQs and programs
  quietcores check --all                  with what was looked at and is fine
  quietcores check --fail-on warning      for scripts
  quietcores check --root my-pc           a captured machine

Exit status: 0 when nothing of the level of --fail-on or above was found, 1 when it was,
2 when the check could not be made. docs/checks.md explains every id.")]
pub struct Args {
    /// Chain file (TOML): the audio path, link by link
    chain: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Read the machine captured in DIR in place of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// List every check: what is fine, what does not apply, what the machine does not tell
    #[arg(long)]
    all: bool,
    /// Exit with 1 from this level on
    #[arg(long, value_name = "LEVEL", default_value = "problem")]
    fail_on: Level,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Level {
    Note,
    Warning,
    Problem,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let root = match &args.root {
        Some(dir) => Root::at(dir),
        None => Root::system(),
    }
    .context("cannot check the machine")?;
    let machine = machine(&root)?;
    let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let known = there.union(&machine.online);
    let chain = args.chain.as_ref().map(|path| read_chain(path, &known)).transpose()?;
    let mut checked = audit(&machine, chain.as_ref());
    if !args.all {
        checked.looked.clear();
    }
    if args.root.is_none()
        && let Ok(store) = keep::store(None)
        && let Ok(plan) = quiet_plan::plan(&machine, chain.as_ref().unwrap_or(&Chain::default()))
    {
        checked.measured = quiet_experiment::measured_here(&store, &plan, &checked.findings)
            .unwrap_or_else(|error| {
                face::say(&format!("quietcores: {error:#}"));
                Vec::new()
            });
    }
    if args.json {
        face::print_json(&checked)?;
    } else {
        let style = Style {
            width: face::page_width(),
            colour: if face::colour() { Colour::Ansi } else { Colour::Plain },
        };
        face::print(&check_text(&checked, style))?;
    }
    let limit = match args.fail_on {
        Level::Note => Severity::Note,
        Level::Warning => Severity::Warning,
        Level::Problem => Severity::Problem,
    };
    let exceeded = checked.findings.iter().any(|finding| finding.severity >= limit);
    Ok(if exceeded { ExitCode::from(face::FINDINGS) } else { ExitCode::SUCCESS })
}
