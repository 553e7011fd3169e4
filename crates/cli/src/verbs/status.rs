//! `status`

use crate::face;
use anyhow::Context;
use quiet_experiment::machine;
use quiet_linux::{CommandLines, Options, Root, System, glance};
use quiet_report::{findings_text, plan::status_text};
use quiet_shield::DEFAULT_STATE;
use quiet_types::{Finding, chain::Link, plan::ShieldStanding, shield::Shield};
use std::{path::PathBuf, process::ExitCode};

/// Show the shield as it is
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores status                       drift, and what still runs on the shield and why
  quietcores status --json                for programs
Exit status: 0 a shield is up and as it was made, with its chain in it, or there is none; 1 drift or
leftovers (of a killed trace too), a link that is not where it should be, or this boot is not what `persist` asked for.")]
pub struct Args {
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

/// What of a chain is not where it should be, by a look that disturbs no CPU.
pub fn chain(links: &[Link], shield: &Shield) -> anyhow::Result<Vec<Finding>> {
    let options = Options { command_lines: CommandLines::None };
    let machine = glance(&Root::system()?, options).context("cannot read where the chain is")?;
    Ok(quiet_plan::astray(&machine, links, shield))
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let only_root = |error| face::only_root(error, "tell whether a shield is up", "status");
    let mut status = quiet_shield::status(&System, &args.state).map_err(only_root)?;
    if let Some(record) = quiet_boot::record(&args.state)? {
        status.boot = quiet_plan::boot::compare(&record.asked, &machine(&Root::system()?)?);
    }
    if let (ShieldStanding::Up, Some(shield)) = (status.state, &status.shield)
        && !status.links.is_empty()
    {
        status.chain = chain(&status.links, shield)?;
    }
    if face::is_root() {
        // A kernel without tracefs has none.
        status.traces = quiet_linux::trace::leftovers().unwrap_or_default();
    }
    if args.json {
        face::print_json(&status)?;
    } else {
        face::print(&status_text(&status))?;
        if !status.boot.is_empty() {
            face::print(&format!("\n{}", findings_text(&status.boot, face::width())))?;
        }
    }
    Ok(if status.is_good() { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
}
