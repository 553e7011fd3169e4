//! `prove`: shared against shielded in turn, on the same CPUs, under the same stress.

use crate::{
    Because, Error, ErrorKind, Observer, Result, ShieldLender, ShieldWish, Ward,
    arms::{Measured, Turns},
    begun, is_root, machine, make_way, plan_to_apply, raised,
};
use quiet_linux::{Kernel, Root, System};
use quiet_probe::{RunningStress, TraceLender};
use quiet_types::{
    CpuSet, Finding, Machine, Nanos, Plan, Proof, Severity,
    lot::Lot,
    machine::Policy,
    plan::ShieldStanding,
    proof::{Arm, Restored, Setting, Verdict},
    run::{Idle, Probe, Spec},
};
use std::{
    cell::Cell,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

/// What is to be proved, and how.
#[derive(Clone, Debug)]
pub struct Proving {
    /// What is shielded in one setting.
    pub wish: ShieldWish,
    /// Pairs of arms; fewer than 6 make no verdict.
    pub pairs: u32,
    /// What the order within each pair is drawn from; `None` for a new one.
    pub seed: Option<u32>,
    /// Length of one wakeup measurement.
    pub length: Nanos,
    /// Length of one gap measurement; zero for none.
    pub gap: Nanos,
    /// Time between wakeups.
    pub interval: Nanos,
    /// SCHED_FIFO priority of the measuring thread, 1 to 99.
    pub priority: u8,
    /// A wakeup later than this counts as beyond.
    pub threshold: Nanos,
    /// Stress suites or stressors.
    pub stress: Vec<String>,
    /// Whether causes of late readings are looked for, in both settings.
    pub explain: bool,
    /// The state directory.
    pub state: PathBuf,
    /// Who puts the shield up where this process has no right to; the wish is the lender's then.
    pub lender: Option<Arc<dyn ShieldLender>>,
    /// Who watches the CPUs of that shield.
    pub traces: Option<Arc<dyn TraceLender>>,
}

/// Measures both settings in turn and judges what came of it; the machine is put back after every shielded arm.
///
/// # Errors
/// When a shield is up already, the machine cannot be read or put back, a probe fails, or `stop` is raised before
/// anything was measured.
pub fn prove(args: &Proving, stop: &AtomicBool, observer: &dyn Observer) -> Result<Proof> {
    // Before a shield is put up for nothing.
    if !args.stress.is_empty() {
        RunningStress::check(&args.stress)?;
    }
    let before;
    let plan = match &args.lender {
        Some(lender) => {
            before = snapshot()?;
            lender.plan()?
        }
        None => {
            refuse_over_a_shield(&System, &args.state, observer)?;
            before = snapshot()?;
            plan_to_apply(&args.wish, before.clone(), &args.state)?
        }
    };
    let mut proof = measure(args, &before, &plan, stop, observer)?;
    quiet_judge::judge_proof(&proof).into_proof(&mut proof);
    Ok(proof)
}

fn measure(
    args: &Proving,
    before: &Machine,
    plan: &Plan,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Proof> {
    let began = Instant::now();
    let (id, started) = begun::name("prove")?;
    let measured = match &args.wish.cpus {
        Some(cpus) => cpus.clone(),
        // The other siblings of the core are shielded too, and idle.
        None => plan.first_cpu().into_iter().collect(),
    };
    let lender = args.lender.as_deref();
    let shields = is_root() || lender.is_some();
    // The same CPUs in every arm, whoever chose them first.
    let wish = ShieldWish { cpus: Some(plan.shield.cpus.clone()), ..args.wish.clone() };
    let mut turns = Turns {
        spec: spec(args, measured.clone()),
        gap: args.gap,
        stress: args.stress.clone(),
        online: before.online.clone(),
        housekeeping: before.online.difference(&plan.shield.cpus),
        other: if shields { Setting::Shielded } else { Setting::Confined },
        slice: None,
        lot: Lot { seed: args.seed.map_or_else(begun::seed, Ok)?, pairs: args.pairs },
        explain: args.explain,
        lent: args.traces.clone().filter(|_| lender.is_some()),
        ward: Ward::new(wish, &args.state, stop, observer).lent_by(lender),
        stop,
        observer,
        done: Cell::new(Nanos::ZERO),
    };
    let Measured { arms, applied, reverts_exact, mut findings } = turns.run()?;
    if arms.is_empty() {
        let why = "interrupted before anything was measured; the machine is as it was";
        return Err(Error::new(ErrorKind::Interrupted, why));
    }
    if !shields {
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
    findings.extend(unlike(&arms));
    let restored = match applied.is_some() {
        true => Some(restored(before, reverts_exact, &mut findings)?),
        false => None,
    };
    Ok(Proof {
        schema: quiet_types::proof::SCHEMA.to_owned(),
        id,
        started,
        lasted: Nanos(began.elapsed().as_nanos() as u64),
        interrupted: raised(stop),
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

/// What to know where the thread had another policy in one setting than in the other: without root the service alone gives it one.
fn unlike(arms: &[Arm]) -> Option<Finding> {
    let policies = |shared: bool| {
        let arms = arms.iter().filter(move |arm| (arm.setting == Setting::Shared) == shared);
        let threads = arms.flat_map(|arm| &arm.wakeup.threads);
        threads.filter_map(|thread| Some(thread.scheduling?.to_string())).collect::<BTreeSet<_>>()
    };
    let (shared, other) = (policies(true), policies(false));
    if shared == other || shared.is_empty() || other.is_empty() {
        return None;
    }
    let named = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" and ");
    Some(
        Finding::new(
            Severity::Warning,
            "prove.unlike",
            "The measuring thread had another priority in each setting",
        )
        .evidence(format!("shared: {}; shielded: {}", named(shared), named(other)))
        .effect("What is compared is the shield and the priority together.")
        .remedy(
            "Run `sudo quietcores prove`, or allow your user real-time priorities (`rtprio` in \
             /etc/security/limits.conf), to compare the shield alone.",
        ),
    )
}

fn spec(args: &Proving, cpus: CpuSet) -> Spec {
    Spec {
        probe: Probe::wakeup(args.interval),
        cpus,
        policy: Policy::Fifo,
        priority: args.priority,
        length: args.length,
        threshold: args.threshold,
        bucket: Nanos::from_micros(1),
        buckets: 1000,
        // In both arms alike: what is compared is who else runs there, not how deep the CPU sleeps.
        idle: Idle::Shallow,
        core: Default::default(),
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
fn commands(args: &Proving, seed: u32, spec: &Spec, plan: &Plan) -> Vec<String> {
    let text = |time: Nanos| format!("{}us", time.0 / 1000);
    let stress = args.stress.join(",");
    let measure = format!(
        "quietcores measure wakeup --cpus {} --policy fifo --priority {} --interval {} --for {} --stress {stress}",
        spec.cpus,
        spec.priority,
        text(args.interval),
        text(args.length),
    );
    let shield = match &args.lender {
        Some(lender) => lender.chain().to_owned(),
        None => format!("--cpus {}", plan.shield.cpus),
    };
    vec![
        format!(
            "quietcores prove {shield} --pairs {} --seed {seed} --for {} --gap {} --interval {} --priority {} --threshold {} --stress {stress}",
            args.pairs,
            text(args.length),
            text(args.gap),
            text(args.interval),
            args.priority,
            text(args.threshold),
        ),
        measure.clone(),
        format!("quietcores apply {shield} --yes"),
        format!("{measure} --stress-cpus {}", plan.shield.housekeeping),
        "quietcores revert".to_owned(),
    ]
}

/// How the machine was found; what is still to follow by itself is told beside it.
pub(crate) fn restored(
    before: &Machine,
    reverts_exact: bool,
    findings: &mut Vec<Finding>,
) -> Result<Restored> {
    let after = snapshot()?;
    let mut differences = quiet_judge::changes(before, &after);
    if !reverts_exact && differences.is_empty() {
        differences.push("a revert left something that somebody else had changed meanwhile".into());
    }
    let waiting = quiet_judge::to_follow(before, &after);
    if !waiting.is_empty() {
        findings.push(
            Finding::new(
                Severity::Note,
                "restored.follows",
                "Threads of interrupts have not come back to their CPUs yet",
            )
            .evidence(waiting.join("; "))
            .effect(
                "None: the thread of an interrupt runs when that fires, and takes its CPUs then.",
            ),
        );
    }
    Ok(Restored { exact: differences.is_empty(), differences })
}

fn snapshot() -> Result<Machine> {
    machine(&Root::system()?)
}

/// Refuses to measure where a shield is up, or something of one is left; only root has one.
///
/// # Errors
/// A sentence with the way on; or when the state directory cannot be used.
pub fn refuse_over_a_shield(
    kernel: &dyn Kernel,
    state: &Path,
    observer: &dyn Observer,
) -> Result<()> {
    if !is_root() {
        return Ok(());
    }
    make_way(state, observer)?;
    let standing = quiet_shield::status(kernel, state)
        .because(ErrorKind::Machine, || {
            format!("cannot find out whether a shield is up ({})", state.display())
        })?
        .state;
    match standing {
        ShieldStanding::None | ShieldStanding::Rebooted => Ok(()),
        ShieldStanding::Up => Err(Error::new(
            ErrorKind::Busy,
            "a shield is up, so nothing here can be measured as shared; run `quietcores revert` first",
        )),
        ShieldStanding::Leftover => Err(Error::new(
            ErrorKind::Busy,
            "an earlier apply or prove was ended before it could put the machine back; run `quietcores revert` first",
        )),
    }
}
