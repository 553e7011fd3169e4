//! `taster`: not for people. Started beside `play`, it has strips tried before they are swapped in.

use quiet_linux::rights::Less;
use std::{path::Path, process::ExitCode};

/// Try strips as ordered on standard input (started by `play`)
#[derive(clap::Args)]
pub struct Args {
    /// Try one, and end
    #[arg(long, conflicts_with_all = ["as_user", "powerless"])]
    once: bool,
    /// Go on as this user
    #[arg(long = "as", value_name = "UID:GID:GROUPS", conflicts_with = "powerless")]
    as_user: Option<String>,
    /// Go on without capabilities
    #[arg(long)]
    powerless: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.once {
        quiet_engine::taste_once()?;
        return Ok(ExitCode::SUCCESS);
    }
    let less = match args.as_user {
        Some(user) => Some(Less::User(quiet_engine::run_as(&user)?)),
        None => args.powerless.then_some(Less::Capabilities),
    };
    quiet_engine::supervise(Path::new("/proc/self/exe"), less.as_ref())?;
    Ok(ExitCode::SUCCESS)
}
