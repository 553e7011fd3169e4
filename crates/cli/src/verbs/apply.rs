//! `apply`

use std::process::ExitCode;

/// Journal, apply and verify a shield
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let _ = args.json;
    anyhow::bail!("not built yet")
}
