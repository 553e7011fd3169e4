//! `quietcored`: started by systemd or the bus, as root.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use quiet_linux::System;
use quiet_service::{
    CHAINS, Error, MOST_PRIORITY,
    acts::Acts,
    authority::Authority,
    serve::serve,
    watching::{self, Watching},
};
use quiet_shield::DEFAULT_STATE;
use quiet_types::CpuSet;
use std::{
    io::{self, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

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
    #[arg(long, global = true, value_name = "DIR", default_value = CHAINS)]
    chains: PathBuf,
    /// Whose members may apply and revert where there is no polkit
    #[arg(long, value_name = "GROUP", default_value = "audio")]
    group: String,
    /// Highest real-time priority that a thread is given for a user
    #[arg(long, value_name = "1-98", default_value_t = MOST_PRIORITY, value_parser = clap::value_parser!(u8).range(1..=98))]
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
    /// Put the machine back unless the shield is confirmed, or once a line is closed (started by the service)
    #[command(hide = true)]
    Guard {
        /// Wait for the end of the line on standard input, as ordered there
        #[arg(long)]
        bound: bool,
        /// Take lent CPUs back
        #[arg(long, conflicts_with = "bound")]
        loan: bool,
    },
    /// Watch CPUs by the kernel's trace until standard input ends (started by the service)
    #[command(hide = true)]
    Trace {
        /// CPUs
        cpus: CpuSet,
    },
    /// Keep a shield as it was made, and report what happens (started by the service)
    #[command(hide = true)]
    Watch {
        /// An approved chain
        name: String,
        /// Report drift and change nothing
        #[arg(long)]
        report_only: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "quietcored: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<(), String> {
    match cli.verb {
        Some(Verb::Hold) => quiet_shield::hold(&cli.state).map_err(|e| e.to_string()),
        Some(Verb::Guard { bound: true, .. }) => {
            let mut say = |text: &str| {
                let mut out = io::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            };
            quiet_shield::guard_owner(&System, &cli.state, &mut say).map_err(|e| e.to_string())
        }
        Some(Verb::Trace { cpus }) => watching::trace(&cpus).map_err(|e| e.to_string()),
        Some(Verb::Watch { name, report_only }) => {
            watch(&cli.state, &cli.chains, &name, report_only).map_err(|error| error.sentence())
        }
        Some(Verb::Guard { loan: true, .. }) => {
            quiet_shield::guard_loan(&System, &cli.state).map_err(|e| e.to_string())
        }
        Some(Verb::Guard { .. }) => {
            quiet_shield::guard(&System, &cli.state).map_err(|e| e.to_string())
        }
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

/// Between looks at what the kernel reports to nobody.
const LOOK: Duration = Duration::from_secs(5);

fn watch(state: &Path, chains: &Path, name: &str, report_only: bool) -> Result<(), Error> {
    let failed = |e: io::Error| Error::Failed(e.to_string());
    let program = std::env::current_exe().map_err(failed)?;
    let out = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
    let interrupt = watching::unread(out).map_err(failed)?;
    let asked = Watching {
        chain: Acts::new(state, &program, chains).chain(name)?,
        state,
        holder: Some(&program),
        every: LOOK,
        report_only,
        interrupt: &interrupt,
    };
    watching::watch(&asked, &mut |event| {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    })
}
