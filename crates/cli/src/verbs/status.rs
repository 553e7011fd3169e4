//! `status`

use super::plan::machine;
use crate::face;
use quiet_linux::{Root, System};
use quiet_report::{findings_text, plan::status_text};
use quiet_shield::DEFAULT_STATE;
use std::{path::PathBuf, process::ExitCode};

/// Show the shield as it is
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores status                       drift, and what still runs on the shield and why
  quietcores status --json                for programs
Exit status: 0 a shield is up and as it was made, or there is none; 1 drift or leftovers, or this boot
is not what `persist` asked for.")]
pub struct Args {
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut status = quiet_shield::status(&System, &args.state)?;
    if let Some(record) = quiet_shield::persist::record(&args.state)? {
        status.boot = quiet_plan::boot::compare(&record.asked, &machine(&Root::system()?)?);
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
