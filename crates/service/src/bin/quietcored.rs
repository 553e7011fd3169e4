//! `quietcored`: started by systemd or the bus, as root.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use quiet_linux::System;
use quiet_service::{CHAINS, acts::Acts, authority::Authority, serve::serve};
use quiet_shield::DEFAULT_STATE;
use std::{io::Write, path::PathBuf, process::ExitCode};

/// The service that gives approved chains their own CPUs, asked over the system bus
///
/// The bus or systemd starts it; `quietcores apply NAME` asks it.
#[derive(Parser)]
#[command(name = "quietcored", version)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Directory of the journal
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
    /// Folder of approved chains
    #[arg(long, value_name = "DIR", default_value = CHAINS)]
    chains: PathBuf,
    /// Whose members may apply and revert where there is no polkit
    #[arg(long, value_name = "GROUP", default_value = "audio")]
    group: String,
    /// Highest real-time priority that a thread is given for a user
    #[arg(long, value_name = "1-98", default_value_t = 85, value_parser = clap::value_parser!(u8).range(1..=98))]
    most_priority: u8,
    /// Address of the bus in place of the system's
    #[arg(long, value_name = "ADDRESS")]
    bus: Option<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// Put the machine back and end: after the service has failed for good
    Revert,
    /// Hold /dev/cpu_dma_latency while a shield is up (started by the service)
    #[command(hide = true)]
    Hold,
    /// Put the machine back unless the shield is confirmed (started by the service)
    #[command(hide = true)]
    Guard,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "quietcored: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<(), String> {
    match cli.verb {
        Some(Verb::Hold) => quiet_shield::hold(&cli.state).map_err(|e| e.to_string()),
        Some(Verb::Guard) => quiet_shield::guard(&System, &cli.state).map_err(|e| e.to_string()),
        Some(Verb::Revert) => match quiet_shield::revert(&System, &cli.state) {
            Ok(Some(done)) if !done.is_complete() => {
                Err("the kernel refused to put some of it back: quietcores revert names it".into())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        None => {
            let program = std::env::current_exe()
                .map_err(|e| format!("cannot find the program itself: {e}"))?;
            let acts = Acts::new(&cli.state, &program, &cli.chains);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| format!("cannot start: {e}"))?;
            let authority = Authority::new(&cli.group);
            let served = serve(acts, authority, cli.most_priority, cli.bus.as_deref());
            runtime.block_on(served).map_err(|error| error.sentence())
        }
    }
}
