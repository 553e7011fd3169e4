//! `plan`

use std::process::ExitCode;

/// Show the steps, old and new, and why each; change nothing
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
