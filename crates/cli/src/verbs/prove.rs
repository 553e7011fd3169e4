//! `prove`

use std::process::ExitCode;

/// Measure shared against shielded, in turn, under stress, with a verdict
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
