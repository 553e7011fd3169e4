//! `stress`

use std::process::ExitCode;

/// Run named stresses alone
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
