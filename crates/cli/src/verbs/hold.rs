//! `hold`: not for people. Started by `apply`, it holds `/dev/cpu_dma_latency`.

use std::{path::PathBuf, process::ExitCode};

/// Hold /dev/cpu_dma_latency while a shield is up (started by apply)
#[derive(clap::Args)]
pub struct Args {
    /// Directory of the journal
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    quiet_shield::hold(&args.state)?;
    Ok(ExitCode::SUCCESS)
}
