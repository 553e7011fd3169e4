//! `guard`: not for people. Started by `apply --confirm`, it puts the machine back in the end.

use quiet_linux::System;
use std::{path::PathBuf, process::ExitCode};

/// Put the machine back unless the shield is confirmed (started by apply --confirm)
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the journal
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    quiet_shield::guard(&System, &args.state)?;
    Ok(ExitCode::SUCCESS)
}
