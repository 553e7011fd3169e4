//! `watch`

use crate::progress::Progress;
use crate::{asked, face};
use anyhow::{Context, anyhow, bail};
use quiet_experiment::{put_back_overdue, read_chain};
use quiet_linux::{CommandLines, Options, Root, glance};
use quiet_report::watch::event_text;
use quiet_service::watching::{self, Watching};
use quiet_shield::DEFAULT_STATE;
use quiet_types::{
    Chain, CpuSet, Nanos,
    boot::Mode,
    watch::{Event, Happened},
};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// Keep the shield as it was made: new threads, replugged cards, what others write
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores watch room                   without root: as the chain that root has approved
  quietcores watch living-room.toml       keeps the shield that `apply living-room.toml` put up
  quietcores watch                        one of CPUs alone
  quietcores watch --report-only --json   changes nothing; one JSON object a line
It looks when the kernel tells of a device, a program, a thread or the partition, and every --every.
What it changes stands in the journal: `quietcores revert` puts it back, and ends the watch.
Exit status: 0 when it was stopped or the shield was taken down.")]
pub struct Args {
    /// The chain file that the shield was put up with
    chain: Option<PathBuf>,
    /// For a loop that never sleeps, as with `apply`
    #[arg(long)]
    never_sleep: bool,
    /// Siblings of the shielded CPUs stay switched off, as with `apply`
    #[arg(long)]
    smt_off: bool,
    /// Tell of drift and change nothing
    #[arg(long)]
    report_only: bool,
    /// Look this often at what the kernel tells nobody, as masks of interrupts; at least 1s
    #[arg(long, value_name = "TIME", default_value = "10s")]
    every: Nanos,
    /// Print each event as JSON, one a line
    #[arg(long)]
    json: bool,
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE)]
    state: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let every = Duration::from_nanos(args.every.0);
    if every < Duration::from_secs(1) || every > Duration::from_secs(3600) {
        bail!("--every is from 1s to 1h, not {}", args.every);
    }
    if let Some(name) = asked::approved_by(args.chain.as_deref(), &args.state)? {
        return by_service(&args, &name);
    }
    if !face::is_root() {
        bail!(
            "cannot watch over a shield without root, but one of an approved chain, by its name: \
             sudo quietcores watch"
        );
    }
    put_back_overdue(&args.state, &Progress::new())?;
    let mut chain = match &args.chain {
        Some(path) => {
            let machine = glance(&Root::system()?, Options { command_lines: CommandLines::None })?;
            let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
            read_chain(path, &there.union(&machine.online))?
        }
        None => Chain::default(),
    };
    if args.never_sleep {
        chain.mode = Mode::NeverSleepingCore;
    }
    chain.smt_off |= args.smt_off;
    let interrupt = face::interrupt()?;
    let program = std::env::current_exe().ok();
    let watching = Watching {
        chain,
        state: &args.state,
        holder: program.as_deref(),
        every,
        report_only: args.report_only,
        interrupt: &interrupt,
    };
    watching::watch(&watching, &mut |event| show(event, args.json))
        .map_err(|error| anyhow!(error.sentence()))?;
    Ok(ExitCode::SUCCESS)
}

fn show(event: &Event, json: bool) -> io::Result<()> {
    let mut text = match json {
        true => serde_json::to_string(event).map_err(io::Error::other)?,
        false => event_text(event),
    };
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The service watches; its events are shown here.
fn by_service(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    let refused = |why| asked::refused(why, "watch over the shield", "watch");
    let service = asked::service().map_err(refused)?;
    let events = service.watch(name, args.report_only).map_err(refused)?;
    let mut over = false;
    for line in BufReader::new(File::from(events)).lines() {
        let event: Event = serde_json::from_str(&line?)
            .context("the service reports what this program does not understand")?;
        over |= matches!(event.what, Happened::Ended { .. });
        show(&event, args.json)?;
    }
    if !over {
        bail!("the watch broke off: quietcores status, then watch again");
    }
    Ok(ExitCode::SUCCESS)
}
