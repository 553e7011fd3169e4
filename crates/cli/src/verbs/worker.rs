//! `worker`: the measuring process, started by `measure` and `prove`.

use crate::{asked, face};
use std::process::ExitCode;

/// Measure as ordered on standard input
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    let part = quiet_probe::worker::run(asked::lender)?;
    face::print_json(&part)?;
    Ok(ExitCode::SUCCESS)
}
