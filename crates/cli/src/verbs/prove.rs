//! `prove`: shared against shielded in turn, on the same CPUs, under the same stress.

use super::plan::Wished;
use crate::{asked, face, keep, probing, progress::Progress};
use anyhow::bail;
use clap::builder::ArgPredicate;
use quiet_experiment::{Proving, ShieldLender, Slicing};
use quiet_types::{Nanos, Proof, proof::Verdict};
use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

const EXAMPLES: &str = "\
Examples:
  quietcores prove                            choose a core, shield it and leave it in turn, about 80 s
  quietcores prove --cpus 3 --html proof.html
  quietcores prove --cpus 3 --pairs 12 --for 5s --stress kernel,reach
  quietcores prove living-room.toml --json
  quietcores prove room                       without root: a chain that root has approved, by its name
  quietcores prove --cpus 3 --explain         and who took time, shared and shielded
  quietcores prove --slice                    without any right: a slice of 150 us against none, beside hogs

Exit status: 0 better, 1 worse or not shown, 2 an error.";

/// Measure shared against shielded, in turn, under stress, with a verdict
///
/// Each pair of arms measures the same CPUs twice: as the machine is, and with a shield around them, in an order drawn by lot.
/// Ended early, it shows its figures and gives no verdict.
/// The machine is put back after every shielded arm, and at the end whatever ends it. Without root the
/// service puts up the shield of an approved chain. Where there is none, only the stress is kept off the measured CPUs, and said so.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    wish: Wished,
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
    #[arg(
        long,
        default_value = "200us",
        default_value_if("slice", ArgPredicate::IsPresent, "1ms")
    )]
    interval: Nanos,
    /// Priority of the measuring thread, SCHED_FIFO [default: 90, without root 85]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    priority: Option<u8>,
    /// A wakeup later than this counts as beyond
    #[arg(
        long,
        value_name = "TIME",
        default_value = "100us",
        default_value_if("slice", ArgPredicate::IsPresent, "800us")
    )]
    threshold: Nanos,
    /// Stress suites or stressors; see `quietcores stress --list`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "kernel")]
    stress: Vec<String>,
    /// Tell the causes of late readings in both settings; costs both the same
    #[arg(long)]
    explain: bool,
    /// Compare an ordinary thread that asks for a slice of this length with one that does not, beside three hogs on its CPU, every 1 ms;
    /// needs no right, puts up no shield
    #[arg(long, value_name = "LENGTH", num_args = 0..=1, require_equals = true, default_missing_value = "150us",
        conflicts_with_all = ["chain", "never_sleep", "smt_off", "gap", "priority", "stress", "explain"])]
    slice: Option<Nanos>,
    /// With --slice: how long the thread computes in each period [default: a tenth of it]
    #[arg(long, value_name = "TIME", requires = "slice")]
    work: Option<Nanos>,
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
    let stop = face::interrupt()?;
    let json = args.json;
    let Made { proof, kept, shown, losses } = made(args, &stop)?;
    if json {
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
    if let Some(differences) = not_restored(&proof) {
        losses.end(ExitCode::SUCCESS);
        bail!("{differences}");
    }
    let better = proof.verdict == Verdict::Better;
    Ok(losses.end(if better { ExitCode::SUCCESS } else { ExitCode::from(face::FINDINGS) }))
}

/// A proof that was made.
pub struct Made {
    /// The proof.
    pub proof: Proof,
    /// The directory that it is kept in.
    pub kept: Option<PathBuf>,
    /// Its page.
    pub shown: Option<PathBuf>,
    /// What could not be kept.
    pub losses: keep::Losses,
}

/// Measures, judges and keeps.
pub fn made(args: Args, stop: &AtomicBool) -> anyhow::Result<Made> {
    // What may fail for outside reasons fails before the first minute is spent.
    let store = keep::ready(args.store.as_deref(), "proofs")?;
    let html = args.html.as_deref().map(keep::Target::page).transpose()?;
    let proof = match args.slice {
        Some(slice) => {
            let slicing = Slicing {
                cpus: args.wish.cpus,
                slice,
                pairs: args.pairs,
                seed: args.seed,
                length: args.length,
                interval: args.interval,
                work: args.work.unwrap_or(Nanos(args.interval.0 / 10)),
                threshold: args.threshold,
            };
            quiet_experiment::prove_slice(&slicing, stop, &Progress::new())?
        }
        None => proved(args, stop)?,
    };
    let page = quiet_report::proof_page(&proof);
    let mut losses = keep::Losses::default();
    let kept = losses.of("the proof", store.save_proof(&proof, &page));
    let mut shown = kept.as_ref().map(|dir| dir.join("report.html"));
    if let Some(target) = &html
        && losses.of("the page", target.write(&page)).is_some()
    {
        shown = Some(target.path().to_owned());
    }
    Ok(Made { proof, kept, shown, losses })
}

/// Shared against shielded.
fn proved(args: Args, stop: &AtomicBool) -> anyhow::Result<Proof> {
    let lender = asked::approved(&args.wish, &args.state)?
        .map(|name| {
            asked::LentShield::of(name).map_err(|why| asked::refused(why, "prove", "prove"))
        })
        .transpose()?;
    let lent = lender.is_some();
    let proving = Proving {
        traces: lender.as_ref().and_then(|_| asked::traces()),
        lender: lender.map(|lender| Arc::new(lender) as Arc<dyn ShieldLender>),
        wish: args.wish.wish(),
        pairs: args.pairs,
        seed: args.seed,
        length: args.length,
        gap: args.gap,
        interval: args.interval,
        priority: args.priority.unwrap_or_else(|| asked::usual_priority(90, lent)),
        threshold: args.threshold,
        stress: probing::stresses(&args.stress),
        explain: args.explain,
        state: args.state,
    };
    Ok(quiet_experiment::prove(&proving, stop, &Progress::new())?)
}

/// What is to be said where the machine is not as it was.
pub fn not_restored(proof: &Proof) -> Option<String> {
    let restored = proof.restored.as_ref().filter(|restored| !restored.exact)?;
    Some(format!(
        "the machine is not as it was before: {}; `quietcores status` tells whether something of a shield is left",
        restored.differences.join("; ")
    ))
}
