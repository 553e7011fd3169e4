//! `status`

use crate::{asked, face};
use anyhow::anyhow;
use quiet_report::{findings_text, plan::status_text};
use quiet_service::{acts::Acts, client::Refusal};
use quiet_shield::DEFAULT_STATE;
use quiet_types::plan::Status;
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

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut status = read(&args)?;
    // A note that cannot be read is no reason to keep silent about the shield.
    let card = if face::is_root() { quiet_hda::taken(&args.state) } else { Ok(None) };
    let unread = card.map(|card| status.card = card);
    if args.json {
        face::print_json(&status)?;
    } else {
        face::print(&face::fitted(&status_text(&status)))?;
        if !status.boot.is_empty() {
            face::print(&format!("\n{}", findings_text(&status.boot, face::width())))?;
        }
    }
    unread?;
    Ok(if status.is_good() { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) })
}

fn read(args: &Args) -> anyhow::Result<Status> {
    let own = || {
        let own = Acts::at(&args.state).status();
        own.map_err(|error| {
            face::only_root(anyhow!(error.sentence()), "tell whether a shield is up", "status")
        })
    };
    if !asked::is_for_service(&args.state) {
        return own();
    }
    match asked::service().and_then(|service| service.status()) {
        Ok(status) => Ok(status),
        // Where nobody ever put a shield up, anybody sees that.
        Err(Refusal::NoService(_)) => own(),
        Err(refusal) => Err(asked::refused(refusal, "see the shield", "status")),
    }
}
