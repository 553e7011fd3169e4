//! `tune`: a verdict for every step, and the smallest shield that is enough.

mod boots;

use super::plan::Wished;
use crate::{face, keep, progress::Progress};
use anyhow::bail;
use clap::ValueEnum;
use quiet_experiment::{DuplexAsk, Pick, TriedWrite, Tuning, machine};
use quiet_linux::Root;
use quiet_types::{
    Frames, Nanos,
    run::Probe,
    said::{FACTORS, FactorList},
    tune::{StepSays, Tuned},
};
use std::{path::PathBuf, process::ExitCode};

const EXAMPLES: &str = "\
Examples:
  quietcores tune                                 every step of the plan, 10 min under the kernel stress
  quietcores tune --list                          which steps there are on this machine; measures nothing
  quietcores tune --cpus 3 --for 30min -o quiet.toml --html tune.html
  quietcores tune room.toml --stress none --probe gap
  quietcores tune --keep-off interrupts,watchdog  what must not be touched
  quietcores tune --choose cpu --for 3min         which CPU is the quietest, where it shows
  quietcores tune --try /proc/sys/vm/swappiness=10
                                                  a tweak of a guide, judged beside the plan's steps
  quietcores tune --cpus 3 --boot isolcpus threadirqs preempt=full
                                                  boot parameters, by reboots: goes on by itself
Exit status: 0 some step is shown to help or to hurt, 1 none is, 2 an error.
The file of -o is a chain with only what helps: quietcores apply quiet.toml";

/// Tell which steps help, and the smallest shield that is enough
///
/// Takes and leaves the steps of the plan in a balanced design, in random order, under stress, and judges each: helps, hurts or not
/// shown. What helps is confirmed by leaving it out of the whole shield, and the smallest set is compared with the whole. The machine
/// is put back after every block, and at the end whatever ends it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
    #[command(flatten)]
    boots: boots::BootArgs,
    /// Time for all of it
    #[arg(long = "for", value_name = "LENGTH", default_value = "10min")]
    budget: Nanos,
    /// Length of one measurement; stress, shield and revert come on top
    #[arg(long, value_name = "LENGTH", default_value = "1500ms")]
    block: Nanos,
    /// What is measured
    #[arg(long, value_enum, default_value_t = Measured::Wakeup)]
    probe: Measured,
    /// Time between wakeups
    #[arg(long, value_name = "TIME", default_value = "200us")]
    interval: Nanos,
    /// How long the thread computes in each period, of wakeup
    #[arg(long, value_name = "TIME", default_value = "0s")]
    work: Nanos,
    /// Frames a period at 48 kHz, of duplex
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    period: u32,
    /// Share of each period that the work of a strip takes, of duplex
    #[arg(long, value_name = "SHARE", default_value_t = 0.3)]
    load: f64,
    /// Control socket of the player, of player
    #[arg(long, value_name = "SOCKET", default_value = "/run/quietcores/play.sock")]
    player: PathBuf,
    /// Choose the best CPU, siblings, priority, mode of waiting or period, in place of judging the steps
    #[arg(long, value_enum, value_name = "WHAT,...", value_delimiter = ',')]
    choose: Vec<Chosen>,
    /// Priority of the measuring thread, SCHED_FIFO
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=99))]
    priority: u8,
    /// A wakeup later than this counts as beyond; a longer gap as taken [default: 100us, for gap 20us]
    #[arg(long, value_name = "TIME")]
    threshold: Option<Nanos>,
    /// Stress suites or stressors, or none; see `quietcores stress --list`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "kernel")]
    stress: Vec<String>,
    /// Steps that are never taken; see --list
    #[arg(long, visible_alias = "without", value_name = "NAME,...", value_delimiter = ',')]
    keep_off: Vec<String>,
    /// Try this file and value beside the plan's steps; again for more
    #[arg(long = "try", value_name = "FILE=VALUE", value_parser = tried)]
    tried: Vec<TriedWrite>,
    /// The smallest set is enough where it is at most so many times as late as the whole shield
    #[arg(long, value_name = "TIMES", default_value_t = 1.25)]
    margin: f64,
    /// Draw every order from this number, as an earlier tune did [default: drawn anew]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Free words, kept with it
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Show the steps that there are; measure nothing
    #[arg(long)]
    list: bool,
    /// Write a chain with only what helps to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the page here too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keep the journal here
    #[arg(long, value_name = "DIR", default_value = quiet_experiment::DEFAULT_STATE)]
    state: PathBuf,
    /// Keep the result here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measured {
    /// A thread that sleeps until the next period
    Wakeup,
    /// A thread that never sleeps
    Gap,
    /// The engine plays on a host without a card, with a strip's own work
    Duplex,
    /// Lost periods and load of a `quietcores play` that plays on meanwhile
    Player,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Chosen {
    /// The quietest CPU
    Cpu,
    /// SMT siblings idle, or off
    Siblings,
    /// Priority of the thread
    Priority,
    /// Sleep, or never sleep, by playing
    Mode,
    /// Frames a period, two of them in the buffer, by playing
    Period,
}

impl Chosen {
    fn pick(self) -> Pick {
        match self {
            Chosen::Cpu => Pick::Cpu,
            Chosen::Siblings => Pick::Siblings,
            Chosen::Priority => Pick::Priority,
            Chosen::Mode => Pick::Mode,
            Chosen::Period => Pick::Period,
        }
    }
}

/// `FILE=VALUE`.
fn tried(text: &str) -> Result<TriedWrite, String> {
    let (path, value) = text.split_once('=').ok_or("write FILE=VALUE")?;
    Ok(TriedWrite { path: path.to_owned(), value: value.to_owned() })
}

impl Args {
    fn tuning(&self) -> Tuning {
        let (probe, threshold) = match self.probe {
            Measured::Wakeup | Measured::Duplex | Measured::Player => {
                let probe = Probe::Wakeup { interval: self.interval, work: self.work };
                (probe, Nanos::from_micros(100))
            }
            Measured::Gap => (Probe::Gap, Nanos::from_micros(20)),
        };
        Tuning {
            wish: self.wish.wish(),
            budget: self.budget,
            block: self.block,
            probe,
            duplex: (self.probe == Measured::Duplex)
                .then_some(DuplexAsk { period: Frames(self.period), load: self.load }),
            player: (self.probe == Measured::Player).then(|| self.player.clone()),
            picks: self.choose.iter().map(|chosen| chosen.pick()).collect(),
            priority: self.priority,
            threshold: self.threshold.unwrap_or(threshold),
            stress: self.stress.iter().filter(|name| *name != "none").cloned().collect(),
            forbidden: self.keep_off.clone(),
            tried: self.tried.clone(),
            margin: self.margin,
            seed: self.seed,
            label: self.label.clone(),
            state: self.state.clone(),
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(&args);
    }
    if let Some(done) = boots::asked(&args) {
        return done;
    }
    let stop = face::interrupt()?;
    // What may fail for outside reasons fails before the first minute is spent.
    let store = keep::ready(args.store.as_deref(), "tunes")?;
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let chain = args.output.as_deref().map(keep::Target::data).transpose()?;
    let tuned = quiet_experiment::tune(&args.tuning(), &stop, &Progress::new())?;
    tell(
        &args,
        &tuned,
        |losses| losses.of("the tune", store.save_other("tunes", &tuned.head.id, &tuned)),
        (html, chain),
    )
}

/// Keeps and prints what came out.
fn tell(
    args: &Args,
    tuned: &Tuned,
    save: impl FnOnce(&mut keep::Losses) -> Option<PathBuf>,
    (html, chain): (Option<keep::Target>, Option<keep::Target>),
) -> anyhow::Result<ExitCode> {
    let mut losses = keep::Losses::default();
    let kept = save(&mut losses);
    if let Some(target) = &html {
        losses.of("the page", target.write(&quiet_report::tune_page(tuned)));
    }
    if let Some(target) = &chain {
        losses.of("the chain", target.write(&tuned.chain));
    }
    if args.json {
        face::print_json(tuned)?;
    } else {
        face::print(&quiet_report::tune_text(tuned, face::width()))?;
    }
    if let Some(path) = kept {
        face::say(&format!("tune: {}", path.display()));
    }
    if let Some(differences) = not_restored(tuned) {
        losses.end(ExitCode::SUCCESS);
        bail!("{differences}");
    }
    let chosen = tuned.choices.iter().any(|choice| choice.tried.iter().any(|one| one.beaten));
    let shown = chosen
        || tuned.steps.iter().any(|step| matches!(step.says, StepSays::Helps | StepSays::Hurts));
    Ok(losses.end(if shown { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

fn not_restored(tuned: &Tuned) -> Option<String> {
    let restored = tuned.restored.as_ref().filter(|restored| !restored.exact)?;
    Some(format!(
        "the machine is not as it was before: {}; `quietcores status` tells whether something of a shield is left",
        restored.differences.join("; ")
    ))
}

/// The steps of the plan, measured by nobody.
fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let (factors, left_out) =
        quiet_experiment::tunable(&args.wish.wish(), &machine(&Root::system()?)?)?;
    let list = FactorList { schema: FACTORS.to_owned(), factors, left_out };
    if args.json {
        face::print_json(&list)?;
    } else {
        face::print(&quiet_report::factors_text(&list.factors, &list.left_out, face::width()))?;
    }
    Ok(ExitCode::SUCCESS)
}
