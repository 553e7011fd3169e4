//! The measuring process: reads an order, measures, hands back its part of the run.
//!
//! Its standard input is a memfd: first the words that it shares with the program that started
//! it, then the order as JSON. Its part goes to standard output.

use crate::{
    Error, ErrorKind, Result, Strictness,
    clock::{Pair, Source, TickScale},
    request::RunRequest,
    so_far,
    thread::{self, Found, Gate, Job, NOT_ATTACHED},
};
use quiet_linux::{
    Root,
    clock::distrust,
    seat::{self, SeatLender},
    sys::{clock, memory, process},
};
use quiet_types::{
    CpuId, Finding, Nanos, Severity,
    run::{Idle, MeasuringThread, RunClock, Spec},
    shield::Entry,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{Read, Seek},
    os::fd::AsFd,
    sync::{
        Arc, Barrier, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Release},
    },
};

/// Time between the gate and the start of the run: enough for every thread to fall asleep.
const LEAD: u64 = 5_000_000;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) spec: Spec,
    pub(crate) entry: Option<Entry>,
    #[serde(default)]
    pub(crate) lent: bool,
    pub(crate) strictness: Strictness,
    #[serde(default)]
    pub(crate) slice: Option<Nanos>,
    /// How many readings beyond the threshold each thread keeps.
    #[serde(default)]
    pub(crate) keep: usize,
}

impl Order {
    pub(crate) fn of(request: &RunRequest) -> Order {
        Order {
            spec: request.spec.clone(),
            entry: request.entry.clone(),
            lent: request.lent.is_some(),
            strictness: request.strictness,
            slice: request.slice,
            keep: if request.explain { keep(request.spec.length) } else { 0 },
        }
    }
}

/// Readings kept for an explanation: 50000 a second, and 100 MB at most.
fn keep(length: Nanos) -> usize {
    ((length.as_secs_f64() + 1.0) * 50_000.0).min(4e6) as usize
}

/// What the measuring process found; the program makes a run of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct RawRun {
    pub(crate) monotonic: Nanos,
    pub(crate) lasted: Nanos,
    pub(crate) interrupted: bool,
    pub(crate) clock: RunClock,
    pub(crate) threads: Vec<MeasuringThread>,
    pub(crate) findings: Vec<Finding>,
    /// Each thread's readings beyond the threshold: end, value.
    #[serde(default)]
    pub(crate) late: Vec<Vec<(u64, u64)>>,
}

impl RawRun {
    /// Nothing yet.
    pub(crate) fn empty() -> RawRun {
        RawRun {
            monotonic: Nanos::ZERO,
            lasted: Nanos::ZERO,
            interrupted: false,
            clock: RunClock::default(),
            threads: Vec::new(),
            findings: Vec::new(),
            late: Vec::new(),
        }
    }
}

/// Does the order on standard input; `lender` is asked for who seats the threads, where the order says that they are lent their seats.
///
/// SIGINT, SIGTERM and SIGHUP are blocked: the program that gave the order raises the stop word.
///
/// # Errors
/// When standard input is no order, and when a setting is refused and the order is strict.
pub fn run(lender: impl FnOnce() -> Option<Arc<dyn SeatLender>>) -> Result<RawRun> {
    let say = |what: &'static str| {
        move |e: std::io::Error| {
            Error::of(ErrorKind::Machine, format!("the measuring process cannot {what}: {e}"))
                .because(e)
        }
    };
    process::bind_again().map_err(say("be bound to the program that measures"))?;
    process::block_signals().map_err(say("hold back signals"))?;
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let mut input = File::from(input.map_err(say("read its order"))?);
    let behind = input.stream_position().map_err(say("read its order"))?;
    let mut text = Vec::new();
    Read::take(&mut input, 1 << 20).read_to_end(&mut text).map_err(say("read its order"))?;
    let order: Order = serde_json::from_slice(&text).map_err(|e| {
        Error::of(ErrorKind::Asked, format!("`worker` is started by `measure`, with an order: {e}"))
            .because(e)
    })?;
    let words = (behind / 8) as usize;
    if words < so_far::words(&order.spec) {
        return Err(Error::new("the order of the measuring process lacks its shared words"));
    }
    let shared = memory::SharedWords::map(&input, words).map_err(say("share its progress"))?;
    let lender = if order.lent { lender() } else { None };
    measure(&order, lender.as_deref(), shared.words())
}

fn measure(order: &Order, lender: Option<&dyn SeatLender>, words: &[AtomicU64]) -> Result<RawRun> {
    let root = Root::system()?;
    let mut findings = Vec::new();
    let whole = order.entry.as_ref().filter(|entry| entry.whole_process && lender.is_none());
    if let Some(entry) = whole
        && let Err(error) = seat::enter(entry)
    {
        let title = "The measuring process is not inside the shield";
        findings.push(
            Finding::new(Severity::Warning, "run.outside_shield", title)
                .evidence(
                    quiet_linux::Error::io("write to", entry.file.as_str(), error).to_string(),
                )
                .effect("Others may share its CPUs.")
                .remedy("Run as root."),
        );
    }
    let awake = match order.spec.idle {
        Idle::AsIs => None,
        Idle::Shallow => seat::hold_awake().map_err(|finding| findings.push(*finding)).ok(),
    };
    // The main thread only waits; where it can, it waits elsewhere.
    seat::keep_off(0, &order.spec.cpus);
    let (source, first) = Source::choose(&root);
    let cpus: Vec<CpuId> = order.spec.cpus.iter().collect();
    let gate = Gate {
        ready: Barrier::new(cpus.len() + 1),
        go: Barrier::new(cpus.len() + 1),
        start: AtomicU64::new(0),
        locked: AtomicBool::new(false),
        refused: Mutex::new(Vec::new()),
    };
    let mut start = 0;
    let found: Vec<Option<Found>> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(index, &cpu)| {
                let job = Job {
                    cpu,
                    spec: &order.spec,
                    entry: order.entry.as_ref(),
                    lender,
                    slice: order.slice,
                    source,
                    live: crate::shared::live(words, index),
                    gate: &gate,
                    keep: order.keep,
                    id: crate::shared::id(words, index),
                    area: so_far::area(words, &order.spec, index),
                };
                scope.spawn(move || thread::run(job))
            })
            .collect();
        gate.ready.wait();
        findings.extend(lock(&gate));
        findings.append(&mut gate.refused.lock().unwrap_or_else(PoisonError::into_inner));
        let attached = !findings.iter().any(|finding| finding.id == NOT_ATTACHED);
        if attached && (order.strictness == Strictness::GoOn || findings.is_empty()) {
            start = clock::monotonic() + LEAD;
            so_far::hertz(words).store(source.describe().hertz.to_bits(), Release);
            so_far::start(words).store(start, Release);
            gate.start.store(start, Release);
        }
        gate.go.wait();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    });
    drop(awake);
    if start == 0 {
        let what = findings.iter().map(|f| format!("{} ({})", f.title, f.evidence));
        let what = what.collect::<Vec<_>>().join("; ");
        if let Some(why) = findings.iter().find(|finding| finding.id == NOT_ATTACHED) {
            return Err(Error::of(
                ErrorKind::Machine,
                format!("cannot measure on the EVL core: {}", why.evidence),
            ));
        }
        return Err(Error::of(
            ErrorKind::Doubtful,
            format!("not measured, as --strict asks: {what}"),
        ));
    }
    let found: Vec<Found> = found.into_iter().flatten().collect();
    if found.len() != cpus.len() {
        return Err(Error::of(ErrorKind::Measuring, "a measuring thread ended without a result"));
    }
    // Asked at the end: the kernel may have given the counter up meanwhile.
    findings.extend(distrust(&root).map(|why| doubt(&source, why)));
    Ok(part(found, findings, source, first, start))
}

/// What to know of a clock where the kernel does not trust the processor's counter.
fn doubt(source: &Source, why: String) -> Finding {
    match source {
        Source::Plain(_) => Finding::new(
            Severity::Note,
            "run.clock",
            "The kernel's clock was read, not the counter",
        )
        .evidence(why)
        .effect("Each reading costs more; no period and no gap is shown shorter than that."),
        Source::Counter(_) => {
            Finding::new(Severity::Warning, "run.clock", "The counter was given up in the meantime")
                .evidence(why)
                .effect("The times of this run may be wrong.")
                .remedy("Measure again: the kernel's clock will be read.")
        }
    }
}

fn part(
    found: Vec<Found>,
    findings: Vec<Finding>,
    source: Source,
    first: Pair,
    start: u64,
) -> RawRun {
    let mut clock = found[0].clock.clone();
    if let Source::Counter(counter) = source {
        let over_all = TickScale::between(first, Pair::best()).hertz;
        clock.drift_ppm = ((over_all - counter.0.hertz) / over_all * 1e6).abs();
    }
    let ended = found.iter().map(|f| f.ended).max().unwrap_or(start);
    let interrupted = found.iter().any(|f| f.cut_short);
    let (mut threads, mut late) = (Vec::new(), Vec::new());
    for one in found {
        late.push(one.late.iter().map(|kept| (kept.at, kept.value)).collect());
        clock.floor = clock.floor.max(one.clock.floor);
        clock.step = clock.step.max(one.clock.step);
        // CPUs of two kinds may differ in how a read is made: the dearest is told.
        if one.clock.read > clock.read {
            clock.why.clone_from(&one.clock.why);
        }
        clock.read = clock.read.max(one.clock.read);
        clock.placing = clock.placing.max(one.clock.placing);
        threads.push(one.thread);
    }
    let lasted = Nanos(ended.saturating_sub(start));
    RawRun { monotonic: Nanos(start), lasted, interrupted, clock, threads, findings, late }
}

/// Locks memory when every thread has its own and waits.
fn lock(gate: &Gate) -> Option<Finding> {
    let (locked, finding) = seat::lock_memory("the measuring process");
    gate.locked.store(locked, Release);
    finding
}
