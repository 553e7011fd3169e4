//! `guard`: not for people. Started beside a shield that does not outlive something, it puts the machine back in the end.

use crate::face;
use quiet_linux::System;
use std::{path::PathBuf, process::ExitCode};

/// Put the machine back unless the shield is confirmed, or when its owner ends (started by others)
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the journal
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The shield ends with the process that is named on standard input
    #[arg(long)]
    bound: bool,
    /// Take lent CPUs back
    #[arg(long, conflicts_with = "bound")]
    loan: bool,
    /// Give a sound card back to the kernel's driver
    #[arg(long, conflicts_with_all = ["bound", "loan"])]
    card: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.bound {
        quiet_shield::guard_owner(&System, &args.state, &mut |word| {
            let _ = face::print(word);
        })?;
    } else if args.card {
        quiet_hda::guard_card(&args.state, &mut |word| {
            let _ = face::print(word);
        })?;
    } else if args.loan {
        quiet_shield::guard_loan(&System, &args.state)?;
    } else {
        quiet_shield::guard(&System, &args.state)?;
    }
    Ok(ExitCode::SUCCESS)
}
