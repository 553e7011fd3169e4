//! `watch`

use crate::face;
use crate::progress::Progress;
use anyhow::bail;
use quiet_experiment::{put_back_overdue, read_chain};
use quiet_linux::{CommandLines, Options, Root, System, glance};
use quiet_report::watch::event_text;
use quiet_shield::{DEFAULT_STATE, Planned, Watch};
use quiet_types::{Chain, CpuSet, Nanos, boot::Mode, chain::Choice, shield::Shield, watch::Event};
use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

/// Keep the shield as it was made: new threads, replugged cards, what others write
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
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
    if !face::is_root() {
        bail!("cannot watch over a shield without root: sudo quietcores watch");
    }
    put_back_overdue(&args.state, &Progress::new())?;
    let root = Root::system()?;
    let options = Options { command_lines: CommandLines::None };
    let mut chain = match &args.chain {
        Some(path) => {
            let machine = glance(&root, options)?;
            let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
            read_chain(path, &there.union(&machine.online))?
        }
        None => Chain::default(),
    };
    if args.never_sleep {
        chain.mode = Mode::NeverSleepingCore;
    }
    chain.smt_off |= args.smt_off;
    let mut plan = |shield: &Shield| {
        let machine = glance(&root, options).map_err(|error| error.to_string())?;
        let chain = Chain { cpus: Choice::These(shield.cpus.clone()), ..chain.clone() };
        let plan = quiet_plan::plan(&machine, &chain).map_err(|error| error.to_string())?;
        let names = quiet_plan::wanted(&machine, &chain);
        let names = names.into_iter().map(|one| (one.comm, one.users)).collect();
        Ok(Planned { plan, names })
    };
    let mut tell = |event: &Event| -> io::Result<()> {
        let mut text = match args.json {
            true => serde_json::to_string(event).map_err(io::Error::other)?,
            false => event_text(event),
        };
        text.push('\n');
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    };
    let interrupt = face::interrupt()?;
    let program = std::env::current_exe().ok();
    quiet_shield::watch(Watch {
        kernel: &System,
        state: &args.state,
        holder: program.as_deref(),
        interrupt: &interrupt,
        every,
        report_only: args.report_only,
        plan: &mut plan,
        tell: &mut tell,
    })?;
    Ok(ExitCode::SUCCESS)
}
