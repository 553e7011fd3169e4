//! `confirm`

use crate::progress::Progress;
use crate::{asked, face};
use anyhow::bail;
use quiet_experiment::put_back_overdue;
use quiet_linux::System;
use quiet_shield::DEFAULT_STATE;
use quiet_types::said::{CONFIRMED, Confirmed};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Keep a shield that `apply --confirm` put up
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores apply room.toml --confirm 30 --yes
  quietcores confirm                      within 30 s; else the machine is put back by itself
Exit status: 0 the shield stays, 2 none is up: it was put back already.")]
pub struct Args {
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let waited = confirmed(&args.state)?;
    if args.json {
        face::print_json(&Confirmed { schema: CONFIRMED.to_owned(), waited })?;
        return Ok(ExitCode::SUCCESS);
    }
    face::print(match waited {
        true => "Confirmed: the shield stays until `quietcores revert`.\n",
        false => "The shield that is up does not wait for a confirmation: it stays.\n",
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Confirms the shield that is up; whether it waited for that.
pub fn confirmed(state: &Path) -> anyhow::Result<bool> {
    if asked::is_for_service(state) {
        let refused = |why| asked::refused(why, "confirm a shield", "confirm");
        return asked::service().and_then(|service| service.confirm()).map_err(refused);
    }
    if !face::is_root() {
        bail!("cannot confirm a shield without root: sudo quietcores confirm");
    }
    put_back_overdue(state, &Progress::new())?;
    Ok(quiet_shield::confirm(&System, state)?)
}
