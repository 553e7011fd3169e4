//! `prove --slice`: what a short slice is worth to an ordinary thread that computes beside others that never sleep.

use crate::{
    Because, Error, ErrorKind, Observer, Result, ShieldWish, Ward,
    arms::{Measured, Turns},
    begun, last_online, machine, raised,
};
use quiet_linux::{Root, sys::sched};
use quiet_types::{
    CpuSet, Finding, Nanos, Proof, Severity,
    lot::Lot,
    machine::{Policy, Scheduling},
    proof::{Arm, Setting, Verdict},
    run::{Idle, Probe, Spec},
};
use std::{cell::Cell, collections::BTreeSet, path::Path, sync::atomic::AtomicBool, time::Instant};

/// Threads on each CPU that never sleep.
const HOGS: usize = 3;

/// What is to be proved of a slice.
#[derive(Clone, Debug)]
pub struct Slicing {
    /// The CPUs; `None` for the last one.
    pub cpus: Option<CpuSet>,
    /// The slice that is asked for.
    pub slice: Nanos,
    /// Pairs of arms; fewer than 6 make no verdict.
    pub pairs: u32,
    /// What the order within each pair is drawn from; `None` for a new one.
    pub seed: Option<u32>,
    /// Length of one measurement.
    pub length: Nanos,
    /// Time between wakeups.
    pub interval: Nanos,
    /// How long the thread computes in each period.
    pub work: Nanos,
    /// A wakeup later than this counts as beyond.
    pub threshold: Nanos,
}

/// Measures an ordinary thread beside hogs on the same CPU, with the kernel's slice and with a short one, in turn, and judges what came of
/// it. Nothing on the machine is changed.
///
/// # Errors
/// When this kernel has no slices, the machine cannot be read, a probe fails, or `stop` is raised before anything was measured.
pub fn prove_slice(args: &Slicing, stop: &AtomicBool, observer: &dyn Observer) -> Result<Proof> {
    takes(args.slice)?;
    if args.work >= args.interval {
        return Err(Error::asked(format!(
            "a thread cannot compute for {} of every {}: give less --work",
            args.work, args.interval
        )));
    }
    let began = Instant::now();
    let before = machine(&Root::system()?)?;
    let (id, started) = begun::name("prove")?;
    let cpus = args.cpus.clone().map_or_else(last_online, Ok)?;
    let mut turns = Turns {
        spec: spec(args, cpus.clone()),
        gap: Nanos::ZERO,
        stress: vec![format!("hog={}", HOGS * cpus.len())],
        // Both arms have the hogs, and nothing else.
        online: cpus.clone(),
        housekeeping: cpus.clone(),
        other: Setting::Sliced,
        slice: Some(args.slice),
        lot: Lot { seed: args.seed.map_or_else(begun::seed, Ok)?, pairs: args.pairs },
        explain: false,
        lent: None,
        // No arm puts a shield up.
        ward: Ward::new(ShieldWish::default(), Path::new(""), stop, observer),
        stop,
        observer,
        done: Cell::new(Nanos::ZERO),
    };
    let Measured { arms, mut findings, .. } = turns.run()?;
    if arms.is_empty() {
        let why = "interrupted before anything was measured";
        return Err(Error::new(ErrorKind::Interrupted, why));
    }
    findings.push(read_back(&arms));
    findings.extend(too_short(args));
    let mut proof = Proof {
        schema: quiet_types::proof::SCHEMA.to_owned(),
        id,
        started,
        lasted: Nanos(began.elapsed().as_nanos() as u64),
        interrupted: raised(stop),
        host: arms[0].wakeup.host.clone(),
        question: format!(
            "an ordinary thread that computes for {} of every {} on CPU {cpus}, beside {HOGS} that never sleep, with the kernel's \
             slice (shared), and with {} asked for (sliced)",
            args.work, args.interval, args.slice
        ),
        spec: turns.spec.clone(),
        lot: Some(turns.lot),
        arms,
        order: None,
        figures: Vec::new(),
        verdict: Verdict::NotShown,
        sentence: String::new(),
        shield: None,
        restored: None,
        commands: vec![command(args, &cpus, turns.lot.seed)],
        findings,
        machine: Box::new(before),
    };
    quiet_judge::judge_proof(&proof).into_proof(&mut proof);
    Ok(proof)
}

/// Whether this kernel gives such a slice: tried on a thread that ends.
fn takes(slice: Nanos) -> Result<()> {
    let tried = std::thread::spawn(move || {
        let ordinary = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };
        sched::set_scheduling_with(0, ordinary, Some(slice))?;
        sched::slice_in_force(0)
    });
    let tried = tried.join().map_err(|_| {
        Error::new(ErrorKind::Machine, "cannot try a slice: the thread that tries it ended")
    })?;
    match tried.because(ErrorKind::Machine, || "cannot ask the kernel for a slice".into())? {
        Some(now) if now == slice => Ok(()),
        Some(now) => Err(Error::asked(format!(
            "cannot prove a slice of {slice}: the kernel makes {now} of it; ask for 100us to 100ms"
        ))),
        None => Err(Error::new(
            ErrorKind::Asked,
            "cannot prove a slice: this kernel has none for ordinary threads, which came with Linux 6.12",
        )),
    }
}

fn spec(args: &Slicing, cpus: CpuSet) -> Spec {
    Spec {
        probe: Probe::Wakeup { interval: args.interval, work: args.work },
        cpus,
        policy: Policy::Other,
        priority: 0,
        length: args.length,
        threshold: args.threshold,
        bucket: Nanos::from_micros(1),
        buckets: 1000,
        // The hogs keep the CPU awake.
        idle: Idle::AsIs,
        core: Default::default(),
    }
}

/// The slices that the kernel said in each setting.
fn read_back(arms: &[Arm]) -> Finding {
    let of = |setting: Setting| {
        let arms = arms.iter().filter(move |arm| arm.setting == setting);
        let threads = arms.flat_map(|arm| &arm.wakeup.threads);
        threads.map(|thread| thread.slice).collect::<BTreeSet<Option<Nanos>>>()
    };
    let said = |slices: &BTreeSet<Option<Nanos>>| {
        let each = slices.iter().map(|slice| slice.map_or("none".to_owned(), |it| it.to_string()));
        each.collect::<Vec<_>>().join(" and ")
    };
    let (shared, sliced) = (of(Setting::Shared), of(Setting::Sliced));
    let evidence = format!("the kernel says {} shared, {} sliced", said(&shared), said(&sliced));
    if shared.is_disjoint(&sliced) {
        return Finding::new(Severity::Note, "prove.slices", "The slices were read back")
            .evidence(evidence);
    }
    Finding::new(Severity::Warning, "prove.slices", "The slices of both settings were the same")
        .evidence(evidence)
        .effect("What is compared are two settings that do not differ.")
        .remedy("see the findings of the runs")
}

/// A slice that ends within the work lets others go first in the middle of it, at the next tick.
fn too_short(args: &Slicing) -> Option<Finding> {
    let least = Nanos(args.work.0 + args.work.0 / 5);
    (args.slice < least).then(|| {
        Finding::new(Severity::Note, "prove.slice_short", "The slice does not cover the work")
            .evidence(format!("{} asked for, and {} of work in each period", args.slice, args.work))
            .effect(
                "It ends before the work does at times, and others go first in the middle of it.",
            )
            .remedy(format!("ask for --slice={}us or more", least.0.div_ceil(1000)))
    })
}

/// What a person types to do the same again.
fn command(args: &Slicing, cpus: &CpuSet, seed: u32) -> String {
    let text = |time: Nanos| format!("{}us", time.0 / 1000);
    format!(
        "quietcores prove --slice={} --cpus {cpus} --pairs {} --seed {seed} --for {} --interval {} --work {} --threshold {}",
        text(args.slice),
        args.pairs,
        text(args.length),
        text(args.interval),
        text(args.work),
        text(args.threshold),
    )
}
