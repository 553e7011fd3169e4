//! `measure`

use super::play::CoreName;
use crate::probing::{Common, bar, keep_run, request, show};
use crate::{
    face,
    keep::{self, Target},
};
use clap::Subcommand;
use quiet_probe::{Checkpoints, RunProgress};
use quiet_store::Store;
use quiet_types::{Nanos, Run, machine::SchedulerCore, run::Probe};
use std::{path::PathBuf, process::ExitCode};

/// Measure with one probe and write a run
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores measure wakeup --cpus 1 --policy fifo --priority 90 --interval 200us --for 5s
  quietcores measure wakeup --cpus 1 --stress kernel --stress-cpus 0 --json
  quietcores measure gap --cpus 1 --for 5s --explain
  quietcores measure buffers --host null --periods 16,32,64 --stress none,kernel --cpu 1
  quietcores measure wakeup --core evl --latmus --cpus 1   where the kernel has EVL (Xenomai 4)
  quietcores measure tracer --cpus 1 --for 10s          where the kernel has timerlat
  quietcores measure roundtrip --device hw:USB --rate 96000 --period 16 --cycles 10")]
pub struct Args {
    #[command(subcommand)]
    probe: Which,
}

#[derive(Subcommand)]
enum Which {
    /// How late a thread runs after its timer expired, every period accounted for
    Wakeup {
        /// Time between expiries, 10us to 1s
        #[arg(long, default_value = "200us")]
        interval: Nanos,
        /// Who schedules the thread: the kernel, or EVL (Xenomai 4) below it (root)
        #[arg(long, value_enum, default_value_t = CoreName::Kernel)]
        core: CoreName,
        /// With --core evl: let EVL's own latmus measure as long after it, and keep and print both
        #[arg(long)]
        latmus: bool,
        #[command(flatten)]
        often: Often,
        #[command(flatten)]
        common: Common,
    },
    /// How long a spinning thread is kept from reading the clock
    Gap {
        #[command(flatten)]
        often: Often,
        #[command(flatten)]
        common: Common,
    },
    /// Which buffers hold: periods x rings x stresses, asleep or never, shared or shielded
    Buffers(super::buffers::Args),
    /// A second opinion on wakeup: the kernel's own tracer timerlat, which times the interrupt, the thread and user space
    Tracer {
        /// Time between expiries, 100us to 1s
        #[arg(long, default_value = "1ms")]
        interval: Nanos,
        /// Follow a thread of ours back to user space (Linux 6.5), in place of the kernel's
        #[arg(long)]
        user: bool,
        #[command(flatten)]
        common: Common,
    },
    /// From playback to capture by sound, in frames and ms
    Roundtrip(super::roundtrip::Args),
}

#[derive(Clone, Copy, clap::Args)]
struct Often {
    /// Keep what there is so far, as a partial run that the whole one replaces; 0s: never
    #[arg(long, value_name = "TIME", default_value = "1min")]
    checkpoint: Nanos,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let never = Often { checkpoint: Nanos::ZERO };
    let (mut core, mut beside) = (SchedulerCore::Kernel, None);
    let (probe, tracer, often, common) = match args.probe {
        Which::Wakeup { interval, core: named, latmus, often, common } => {
            core = named.of();
            super::evl::fits(core, latmus, interval, &common)?;
            beside = latmus.then_some(interval);
            (Probe::wakeup(interval), None, often, common)
        }
        Which::Gap { often, common } => (Probe::Gap, None, often, common),
        Which::Tracer { interval, user, common } => {
            (Probe::wakeup(interval), Some(user), never, common)
        }
        Which::Buffers(args) => return super::buffers::run(args),
        Which::Roundtrip(args) => return super::roundtrip::run(args),
    };
    if tracer.is_some() && common.explain {
        anyhow::bail!(
            "the kernel's tracer tells no causes here; use `measure wakeup --explain` beside it"
        );
    }
    let request = request(probe, core, &common)?;
    let store = keep::ready(common.store.as_deref(), "runs")?;
    let output = common.output.as_deref().map(Target::data).transpose()?;
    let stop = face::interrupt()?;
    let bar = bar(&request);
    let mut told = |progress: &RunProgress| show(&bar, progress);
    let mut kept = None;
    let done = match tracer {
        Some(user) => quiet_probe::tracer(&request, user, &stop, &mut told)
            .map(|run| (run, quiet_probe::Seen::default())),
        None => {
            let mut save = |run: &Run| checkpoint(run, &store, &mut kept);
            let every = std::time::Duration::from_nanos(often.checkpoint.0);
            let checkpoints = Checkpoints { every, save: &mut save };
            let checkpoints = (!every.is_zero()).then_some(checkpoints);
            quiet_probe::saved(&request, &stop, &mut told, checkpoints)
        }
    };
    bar.finish_and_clear();
    if let (Err(_), Some(path)) = (&done, &kept) {
        face::say(&format!("what was measured until then is kept as {}", path.display()));
    }
    let (mut run, seen) = done?;
    quiet_experiment::judged(&mut run);
    if common.explain {
        run.explained = Some(Box::new(quiet_experiment::explained(&run, &seen)));
    }
    let kept = keep_run(&run, &store, output.as_ref(), common.json)?;
    match beside {
        // The same words and the same store; what is written to a file is our own run.
        Some(interval) => super::evl::run(interval, &common, &store),
        None => Ok(kept),
    }
}

/// Keeps what there is of a run. That it cannot is said once; the run goes on, and the end tries again.
fn checkpoint(run: &Run, store: &Store, kept: &mut Option<PathBuf>) {
    let mut run = run.clone();
    quiet_experiment::judged(&mut run);
    match store.save_run(&run) {
        Ok(path) => *kept = Some(path),
        Err(error) if kept.is_none() => face::say(&format!("no checkpoint is kept: {error}")),
        Err(_) => {}
    }
}
