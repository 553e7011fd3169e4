//! `measure buffers`: periods x rings x stresses x modes, shared and shielded.

use super::play::{HostName, ModeName, On};
use crate::{face, keep, progress::Progress};
use anyhow::bail;
use quiet_engine::AudioHost;
use quiet_experiment::Grid;
use quiet_types::{CpuSet, Nanos, Severity};
use std::{path::PathBuf, process::ExitCode};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores measure buffers --device hw:USB --rate 96000 --cpu 3
  quietcores measure buffers --host null --periods 16,32,64 --counts 2,3 --stress none,kernel --cpu 3
  quietcores measure buffers --host null --rate 96000 --periods 16 --counts 2 --modes sleep,never-sleep \\
      --shield --cpu 3 --for 30s --rounds 5

Each of the stresses runs by itself; join two that run together by `+`: --stress none,kernel+hdd.
Exit status: 0 measured and a buffer held for every mode and setting, 1 measured, 2 an error.")]
pub struct Args {
    #[command(flatten)]
    on: On,
    /// Frames a period to try [default: 16,32,64,128; of a server its own]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    periods: Vec<u32>,
    /// Periods in the ring to try [default: 2,3]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    counts: Vec<u32>,
    /// Count the playing thread's system calls and context switches too. Meanwhile each system call of this machine takes a little
    /// longer (root)
    #[arg(long)]
    calls: bool,
    /// Stress suites and stressors to try, one after the other; `none` for none
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "none,kernel")]
    stress: Vec<String>,
    /// CPUs that the stress may use in shared cells [default: all]
    #[arg(long, value_name = "LIST")]
    stress_cpus: Option<CpuSet>,
    /// How to wait for the card, each in turn [default: --mode, or as `play` chooses]
    #[arg(long, value_enum, value_name = "MODE,...", value_delimiter = ',')]
    modes: Vec<ModeName>,
    /// Try each cell shared, and with a shield around the CPU of the playing thread
    #[arg(long)]
    shield: bool,
    /// Share of a period that DSP work takes, such as 70% or 0.7
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = share)]
    dsp_load: f64,
    /// How long to play in each cell
    #[arg(long = "for", value_name = "LENGTH", default_value = "5s")]
    length: Nanos,
    /// How often to try each cell, in turn with all others
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Free words, kept with it
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Write an HTML page here too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where it is kept [default: ~/.local/share/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print it as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let wrong = || "a share of the period is 0% to 95%, or 0 to 0.95".to_owned();
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|p| p / 100.0),
        None => text.parse::<f64>(),
    };
    value.ok().filter(|share| (0.0..=0.95).contains(share)).ok_or_else(wrong)
}

pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    check(&args)?;
    let server = args.on.host.is_server();
    let or = |named: Vec<u32>, usual: &[u32]| if named.is_empty() { usual.to_vec() } else { named };
    // A server's cell has the server's own sizes, whatever is asked.
    let periods = or(args.periods, if server { &[64] } else { &[16, 32, 64, 128] });
    let counts = or(args.counts, if server { &[2] } else { &[2, 3] });
    if args.on.host == HostName::Hda {
        // What the card's ring is made for: the longest.
        let longest = |all: &[u32]| all.iter().copied().max().unwrap_or(2);
        args.on.buffer = Some(longest(&periods).saturating_mul(longest(&counts)));
    }
    let grid = Grid {
        periods,
        counts,
        stress: args.stress,
        stress_cpus: args.stress_cpus,
        modes: args.modes.iter().map(|mode| mode.wait()).collect(),
        shield: args.shield,
        load: args.dsp_load,
        length: args.length,
        rounds: args.rounds,
        label: args.label,
        state: args.on.state.clone(),
    };
    grid.check()?;
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let store = keep::ready(args.store.as_deref(), "buffers")?;
    let stop = face::interrupt()?;
    let progress = Progress::new();
    if grid.shield && face::is_root() {
        quiet_experiment::put_back_overdue(&grid.state, &progress)?;
    }
    let mut setup = args.on.setup()?;
    setup.wish.counted = args.calls;
    let card = match &setup.host {
        AudioHost::Hda(card) => Some(card.clone()),
        _ => None,
    };
    let buffers = quiet_experiment::buffers(&grid, setup, &stop, &progress)?;
    if let Some(card) = card {
        card.give_back()?;
    }
    let mut losses = keep::Losses::default();
    let kept = losses.of("the table", store.save_other("buffers", &buffers.head.id, &buffers));
    if let Some(target) = &html {
        losses.of("the page", target.write(&quiet_report::buffers_page(&buffers)));
    }
    if args.json {
        face::print_json(&buffers)?;
    } else {
        face::print(&quiet_report::buffers_text(&buffers, face::width()))?;
    }
    if let Some(path) = kept {
        face::say(&format!("kept as {}", path.display()));
    }
    let holds = buffers.least.iter().all(|least| least.safe.is_some());
    let problem = buffers.findings.iter().any(|finding| finding.severity == Severity::Problem);
    let good = holds && !problem;
    Ok(losses.end(if good { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

fn check(args: &Args) -> anyhow::Result<()> {
    if args.on.host == HostName::File {
        bail!(
            "periods and rings are those of a card: measure --host alsa, hda or null (a file has none)"
        );
    }
    if args.on.host.is_server() && !(args.periods.is_empty() && args.counts.is_empty()) {
        bail!(
            "a server has a period of its own: leave out --periods and --counts, and set it there"
        );
    }
    if args.calls && !face::is_root() {
        bail!("only root can have system calls counted; leave out --calls, or run it as root");
    }
    if args.on.buffer.is_some() {
        bail!("the rings are --periods times --counts: leave out --buffer");
    }
    Ok(())
}
