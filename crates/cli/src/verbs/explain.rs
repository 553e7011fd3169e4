//! `explain`

use crate::probing::{self, Scheduled};
use crate::{asked, face};
use clap::ValueEnum;
use indicatif::ProgressBar;
use quiet_probe::{RunRequest, Strictness};
use quiet_types::{
    CpuSet, Nanos,
    explain::{COST_SCHEMA, Cost},
    run::{Idle, Probe, Spec},
};
use std::{path::PathBuf, process::ExitCode, sync::atomic::AtomicBool, time::Duration};

/// Who took time from a CPU: causes of late moments, with their lengths
///
/// A measuring thread spins on the CPU (or sleeps from timer to timer) while the kernel's trace is
/// watched in a private instance; each reading above the threshold is told in parts that add up to
/// it: tasks, interrupts with their device or sender, softirqs, work items, the tick, the host.
/// Nothing is stopped. Without root, counters tell how often what came, but not for how long.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  quietcores explain --cpu 1 --for 10s
  quietcores explain --cpu 1 --policy fifo --stress kernel --threshold 20us
  quietcores explain --cpus 2-3 --probe wakeup --policy fifo --for 1min --json
  quietcores explain --cpu 1 --cost --policy fifo --interval 200us --for 15min      what watching itself costs")]
pub struct Args {
    /// CPUs to explain, one measuring thread each [default: the last one]
    #[arg(long, alias = "cpu", value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// How long to watch
    #[arg(long = "for", value_name = "LENGTH", default_value = "10s")]
    length: Nanos,
    /// What the thread on the CPU does
    #[arg(long, value_enum, default_value_t = Kind::Gap)]
    probe: Kind,
    /// Time between expiries of the wakeup probe, 10us to 1s
    #[arg(long, default_value = "1ms")]
    interval: Nanos,
    /// Its scheduling policy: as other, it shares with every task; as fifo, it shows what even a
    /// real-time task waits for
    #[arg(long, value_enum, default_value_t = Scheduled::Other)]
    policy: Scheduled,
    /// Its priority under fifo and rr, 1 to 99 [default: 90]
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Explain readings above this [default: 5us, for wakeup 20us]
    #[arg(long, value_name = "TIME")]
    threshold: Option<Nanos>,
    /// Suites or stressors to run meanwhile; see `quietcores stress --list`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    stress: Vec<String>,
    /// CPUs that the stress may use [default: all]
    #[arg(long, value_name = "LIST", requires = "stress")]
    stress_cpus: Option<CpuSet>,
    /// Use counters alone, as where tracing is not allowed
    #[arg(long)]
    counters: bool,
    /// Explain nothing: measure wake-ups, switch the trace on and off in turn meanwhile, and tell what it costs them
    #[arg(long, conflicts_with_all = ["counters", "threshold", "probe"])]
    cost: bool,
    /// Length of a block, watched or not, of --cost
    #[arg(long, value_name = "LENGTH", default_value = "500ms", requires = "cost")]
    block: Nanos,
    /// Where the journal of a shield is looked for: threads on shielded CPUs run inside the shield
    #[arg(long, value_name = "DIR", default_value = quiet_shield::DEFAULT_STATE)]
    state: PathBuf,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Gap,
    Wakeup,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let kind = if args.cost { Kind::Wakeup } else { args.probe };
    let (probe, threshold) = match kind {
        Kind::Gap => (Probe::Gap, Nanos::from_micros(5)),
        Kind::Wakeup => (Probe::wakeup(args.interval), Nanos::from_micros(20)),
    };
    let (policy, usual) = args.policy.policy();
    let mut request = RunRequest::new(Spec {
        probe,
        policy,
        priority: usual,
        length: args.length,
        threshold: args.threshold.unwrap_or(threshold),
        bucket: Nanos::from_micros(1),
        buckets: 1000,
        idle: Idle::Shallow,
        core: Default::default(),
        cpus: probing::cpus(args.cpus)?,
    });
    (request.entry, request.lent) = asked::door(&request.spec.cpus, &args.state)?;
    request.spec.priority =
        args.priority.unwrap_or_else(|| asked::usual_priority(usual, request.lent.is_some()));
    request.stress = probing::stresses(&args.stress);
    request.stress_cpus = args.stress_cpus.unwrap_or_default();
    request.strictness = Strictness::GoOn;
    request.explain = !args.counters;
    let stop = face::interrupt()?;
    let bar = probing::bar(&request);
    if args.cost {
        return cost(&request, args.block, args.json, &stop, &bar);
    }
    let done = quiet_probe::watched(&request, &stop, &mut |now| probing::show(&bar, now));
    bar.finish_and_clear();
    let (run, seen) = done?;
    let mut explained = quiet_experiment::explained(&run, &seen);
    // What makes the figures doubtful makes their causes doubtful.
    explained.findings.extend(run.findings);
    if args.json {
        face::print_json(&explained)?;
    } else {
        face::print(&quiet_report::explained_text(&explained, face::width()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What watching costs, by blocks of one run.
fn cost(
    request: &RunRequest,
    block: Nanos,
    json: bool,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> anyhow::Result<ExitCode> {
    let Some(cpu) = request.spec.cpus.iter().next().filter(|_| request.spec.cpus.len() == 1) else {
        anyhow::bail!("--cost measures one CPU: give --cpu one");
    };
    if !(Nanos::from_millis(100)..=Nanos::from_secs(60)).contains(&block) {
        anyhow::bail!("a block lasts from 100ms to 1min, not {block}");
    }
    let Probe::Wakeup { interval, .. } = request.spec.probe else {
        anyhow::bail!("--cost measures wake-ups");
    };
    let root = quiet_linux::Root::system()?;
    let (started, _) = quiet_probe::stamp(&root, "cost");
    // Any order will do that does not go with what the machine does: the same one each time.
    let mut random = quiet_judge::stats::Random::new(0x636f_7374);
    let mut lot = move || random.bits() & 1 == 1;
    let length = Duration::from_nanos(block.0);
    let done =
        quiet_probe::cost(request, length, &mut lot, stop, &mut |now| probing::show(bar, now));
    bar.finish_and_clear();
    let blocks = done?;
    let pairs: Vec<(Vec<u64>, Vec<u64>)> = blocks
        .blocks
        .chunks_exact(2)
        .map(|pair| {
            let (with, without) =
                if pair[0].on { (&pair[0], &pair[1]) } else { (&pair[1], &pair[0]) };
            (without.readings.clone(), with.readings.clone())
        })
        .collect();
    let cost = Cost {
        schema: COST_SCHEMA.to_owned(),
        started,
        host: quiet_probe::host(&root)?,
        cpu,
        interval,
        lasted: blocks.lasted,
        block,
        pairs: pairs.len() as u64,
        events: blocks.events,
        lost: blocks.lost,
        stress: request.stress.clone(),
        figures: quiet_judge::cost_figures(&pairs),
    };
    if json {
        face::print_json(&cost)?;
    } else {
        face::print(&quiet_report::cost_text(&cost))?;
    }
    Ok(ExitCode::SUCCESS)
}
