//! `prove`: shared against shielded in turn, on the same CPUs, under the same stress.

mod arms;

use super::plan::{Wish, machine, make};
use super::ward::Ward;
use crate::{face, keep};
use anyhow::{Context, bail};
use arms::{Measured, Turns};
use quiet_linux::{Kernel, Root, System};
use quiet_types::{
    CpuSet, Finding, Machine, Nanos, Plan, Proof, Severity,
    lot::Lot,
    machine::Policy,
    plan::Standing,
    proof::{Restored, Setting, Verdict},
    run::{Idle, Probe, Spec},
};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::AtomicBool,
    time::Instant,
};

const EXAMPLES: &str = "\
Examples:
  quietcores prove                            choose a core, shield it and leave it in turn, about 80 s
  quietcores prove --cpus 3 --html proof.html
  quietcores prove --cpus 3 --pairs 12 --for 5s --stress kernel,reach
  quietcores prove living-room.toml --json
  quietcores prove --cpus 3 --explain         and who took time, shared and shielded

Exit status: 0 better, 1 worse or not shown, 2 an error.";

/// Measure shared against shielded, in turn, under stress, with a verdict
///
/// Each pair of arms measures the same CPUs twice: as the machine is, and with a shield around them, in an order drawn by lot.
/// Ended early, it shows its figures and gives no verdict.
/// The machine is put back after every shielded arm, and at the end whatever ends it. Without root
/// no shield can be put up: then only the stress is kept off the measured CPUs, and said so.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    wish: Wish,
    /// Pairs of arms; at least 6 for a verdict
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pairs: u32,
    /// Draw the order within each pair from this number, as an earlier proof did [default: drawn anew]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Length of one wakeup measurement
    #[arg(long = "for", value_name = "LENGTH", default_value = "2500ms")]
    length: Nanos,
    /// Length of one gap measurement, 0s for none
    #[arg(long, value_name = "LENGTH", default_value = "1s")]
    gap: Nanos,
    /// Time between wakeups
    #[arg(long, default_value = "200us")]
    interval: Nanos,
    /// Priority of the measuring thread, SCHED_FIFO
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=99))]
    priority: u8,
    /// A wakeup later than this counts as beyond
    #[arg(long, value_name = "TIME", default_value = "100us")]
    threshold: Nanos,
    /// Stress suites or stressors; see `quietcores stress --list`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "kernel")]
    stress: Vec<String>,
    /// Tell the causes of late readings in both settings; costs both the same
    #[arg(long)]
    explain: bool,
    /// Write the page here too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keep the journal here
    #[arg(long, value_name = "DIR", default_value = quiet_shield::DEFAULT_STATE)]
    state: PathBuf,
    /// Keep runs here [default: $XDG_DATA_HOME/quietcores]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print the proof as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // What may fail for outside reasons fails before the first minute is spent.
    let store = keep::ready(args.store.as_deref(), "proofs")?;
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let stop = face::interrupt()?;
    let kernel = System;
    refuse_over_a_shield(&kernel, &args.state)?;
    let before = snapshot()?;
    let plan = make(&args.wish, &before)?;
    let mut proof = measure(&args, &kernel, &before, &plan, &stop)?;
    quiet_judge::judge_proof(&proof).into_proof(&mut proof);

    let page = quiet_report::proof_page(&proof);
    let mut losses = keep::Losses::default();
    let kept = losses.of("the proof", store.save_proof(&proof, &page));
    let mut shown = kept.as_ref().map(|dir| dir.join("report.html"));
    if let Some(target) = &html
        && losses.of("the page", target.write(&page)).is_some()
    {
        shown = Some(target.path().to_owned());
    }
    if args.json {
        face::print_json(&proof)?;
    } else {
        face::print(&quiet_report::proof_text(&proof, face::width()))?;
    }
    if let Some(dir) = kept {
        face::say(&format!("proof: {}", dir.join("proof.json").display()));
    }
    if let Some(page) = shown {
        face::say(&format!("report: {}", page.display()));
    }
    if let Some(restored) = &proof.restored
        && !restored.exact
    {
        losses.end(ExitCode::SUCCESS);
        bail!(
            "the machine is not as it was before: {}; `quietcores status` tells whether something of a shield is left",
            restored.differences.join("; ")
        );
    }
    let better = proof.verdict == Verdict::Better;
    Ok(losses.end(if better { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

fn measure(
    args: &Args,
    kernel: &System,
    before: &Machine,
    plan: &Plan,
    stop: &AtomicBool,
) -> anyhow::Result<Proof> {
    let began = Instant::now();
    let (id, started) = keep::name("prove")?;
    let measured = match &args.wish.cpus {
        Some(cpus) => cpus.clone(),
        // The other siblings of the core are shielded too, and idle.
        None => plan.first_cpu().into_iter().collect(),
    };
    let root = face::is_root();
    // The same CPUs in every arm, whoever chose them first.
    let wish = Wish { cpus: Some(plan.shield.cpus.clone()), ..args.wish.clone() };
    let mut turns = Turns {
        spec: spec(args, measured.clone()),
        gap: args.gap,
        stress: args.stress.clone(),
        online: before.online.clone(),
        housekeeping: before.online.difference(&plan.shield.cpus),
        other: if root { Setting::Shielded } else { Setting::Confined },
        lot: Lot { seed: args.seed.map_or_else(keep::seed, Ok)?, pairs: args.pairs },
        explain: args.explain,
        ward: Ward::new(kernel, wish, &args.state, stop),
        stop,
    };
    let Measured { arms, applied, reverts_exact, mut findings } = turns.run()?;
    if arms.is_empty() {
        bail!("interrupted before anything was measured; the machine is as it was");
    }
    if !root {
        findings.push(
            Finding::new(
                Severity::Warning,
                "prove.not_root",
                "no shield was put up: only root may change CPU sets, interrupts and kernel threads",
            )
            .effect("only the stress was kept off the measured CPUs; everything else stayed as it was")
            .remedy("run `sudo quietcores prove` for the whole proof"),
        );
    }
    let restored = if applied.is_some() { Some(restored(before, reverts_exact)?) } else { None };
    Ok(Proof {
        schema: quiet_types::proof::SCHEMA.to_owned(),
        id,
        started,
        lasted: Nanos(began.elapsed().as_nanos() as u64),
        interrupted: face::raised(stop),
        host: arms[0].wakeup.host.clone(),
        question: question(&turns, plan),
        spec: turns.spec.clone(),
        lot: Some(turns.lot),
        arms,
        order: None,
        figures: Vec::new(),
        verdict: Verdict::NotShown,
        sentence: String::new(),
        shield: applied,
        restored,
        commands: commands(args, turns.lot.seed, &turns.spec, plan),
        findings,
        machine: Box::new(before.clone()),
    })
}

fn spec(args: &Args, cpus: CpuSet) -> Spec {
    Spec {
        probe: Probe::Wakeup { interval: args.interval },
        cpus,
        policy: Policy::Fifo,
        priority: args.priority,
        length: args.length,
        threshold: args.threshold,
        bucket: Nanos::from_micros(1),
        buckets: 1000,
        // In both arms alike: what is compared is who else runs there, not how deep the CPU sleeps.
        idle: Idle::Shallow,
    }
}

fn question(turns: &Turns<'_>, plan: &Plan) -> String {
    let cpus = &turns.spec.cpus;
    let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    match turns.other {
        Setting::Confined => format!(
            "{word} {cpus} shared with everybody, and with the stress kept on CPU {}",
            turns.housekeeping
        ),
        _ => format!(
            "{word} {cpus} shared with everybody, and shielded (CPU {} taken, {} left to the rest)",
            plan.shield.cpus, plan.shield.housekeeping
        ),
    }
}

/// What a person types to do the same again, whole or by hand.
fn commands(args: &Args, seed: u32, spec: &Spec, plan: &Plan) -> Vec<String> {
    let text = |time: Nanos| format!("{}us", time.0 / 1000);
    let stress = args.stress.join(",");
    let measure = format!(
        "quietcores measure wakeup --cpus {} --policy fifo --priority {} --interval {} --for {} --stress {stress}",
        spec.cpus,
        spec.priority,
        text(args.interval),
        text(args.length),
    );
    vec![
        format!(
            "quietcores prove --cpus {} --pairs {} --seed {seed} --for {} --gap {} --interval {} --priority {} --threshold {} --stress {stress}",
            plan.shield.cpus,
            args.pairs,
            text(args.length),
            text(args.gap),
            text(args.interval),
            args.priority,
            text(args.threshold),
        ),
        measure.clone(),
        format!("quietcores apply --cpus {} --yes", plan.shield.cpus),
        format!("{measure} --stress-cpus {}", plan.shield.housekeeping),
        "quietcores revert".to_owned(),
    ]
}

fn restored(before: &Machine, reverts_exact: bool) -> anyhow::Result<Restored> {
    let mut differences = quiet_judge::changes(before, &snapshot()?);
    if !reverts_exact && differences.is_empty() {
        differences.push("a revert left something that somebody else had changed meanwhile".into());
    }
    Ok(Restored { exact: differences.is_empty(), differences })
}

fn snapshot() -> anyhow::Result<Machine> {
    machine(&Root::system()?)
}

fn refuse_over_a_shield(kernel: &dyn Kernel, state: &Path) -> anyhow::Result<()> {
    if !face::is_root() {
        return Ok(());
    }
    super::apply::put_back_overdue(state)?;
    let standing = quiet_shield::status(kernel, state)
        .with_context(|| format!("cannot tell whether a shield is up ({})", state.display()))?
        .state;
    match standing {
        Standing::None | Standing::Rebooted => Ok(()),
        Standing::Up => bail!(
            "a shield is up, so nothing here can be measured as shared; run `quietcores revert` first"
        ),
        Standing::Leftover => bail!(
            "an earlier apply or prove was ended before it could put the machine back; run `quietcores revert` first"
        ),
    }
}
