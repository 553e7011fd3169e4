//! What watching costs the watched: one run, during which the events are switched on and off in turn.

use crate::{
    Error, ErrorKind, Result, RunProgress, RunRequest, RunningStress,
    request::{self},
    run::{Elsewhere, measure, victims},
};
use quiet_linux::{Root, seat, sys::clock, trace::Tracer};
use quiet_types::{Nanos, run::Probe, trace::Span};
use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, Release},
    },
    thread,
    time::{Duration, Instant},
};

/// Left out after the events were switched: the kernel's code is being changed, and buffers are cold.
const SETTLE: Duration = Duration::from_millis(50);
/// How often the buffers are emptied.
const EVERY: Duration = Duration::from_millis(50);
/// Readings that are kept.
const MOST: u64 = 10_000_000;

/// A stretch of the run during which the events were on or off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunBlock {
    /// Whether the CPU was watched.
    pub on: bool,
    /// Its readings, ns, in the order of time.
    pub readings: Vec<u64>,
}

/// Neighbouring blocks, one watched and one not, and what was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// In turn: two that follow each other are a pair, the first of each pair drawn by lot.
    pub blocks: Vec<RunBlock>,
    /// Events that were recorded.
    pub events: u64,
    /// Events that the kernel overwrote before they were read.
    pub lost: u64,
    /// How long was measured.
    pub lasted: Nanos,
}

/// Makes one run of `request` (a wakeup probe on one CPU) and switches the trace of that CPU off and on
/// in blocks of `block`, pairs in an order that `lot` draws (a coin toss a call).
///
/// # Errors
/// As [`crate::run()`], and when the kernel's trace may not be used.
pub fn cost(
    request: &RunRequest,
    block: Duration,
    lot: &mut (dyn FnMut() -> bool + Send),
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&RunProgress),
) -> Result<Blocks> {
    let root = Root::system()?;
    request.check(&root)?;
    let mut request = request.clone();
    let Probe::Wakeup { interval, .. } = request.spec.probe else {
        return Err(Error::new("what watching costs is measured by wake-ups"));
    };
    if request.spec.length.0 / interval.0 > MOST {
        return Err(Error::new(format!(
            "a run of {} has more than {MOST} periods of {interval}: make it shorter, or the interval longer",
            request.spec.length
        )));
    }
    // Every reading is kept with its time.
    (request.spec.threshold, request.explain) = (Nanos(1), true);
    let stress = match request.stress.as_slice() {
        [] => None,
        names => Some(RunningStress::start(names, &request.stress_cpus)?),
    };
    let _elsewhere = Elsewhere::than(&request.spec.cpus);
    let tracer = Tracer::start(&request.spec.cpus, &request::online(&root)?)?;
    let done = AtomicBool::new(false);
    let (measured, switched) = thread::scope(|scope| {
        let cpus = &request.spec.cpus;
        let done_ = &done;
        let switching = scope.spawn(move || {
            seat::keep_off(0, cpus);
            alternate(tracer, block, lot, done_)
        });
        let measured = measure(&request, stop, progress, None);
        done.store(true, Release);
        (measured, switching.join())
    });
    let stress = stress.map(RunningStress::stop).transpose();
    let (part, ids) = measured?;
    stress?;
    let Switched { spans, events, lost } = switched.map_err(|_| {
        Error::of(ErrorKind::Measuring, "the thread that watches ended without a result")
    })??;
    let mut blocks: Vec<RunBlock> =
        spans.iter().map(|(_, on)| RunBlock { on: *on, readings: Vec::new() }).collect();
    for victim in victims(&part, &ids) {
        for Span { from, to } in victim.late {
            let at = spans.partition_point(|(span, _)| span.to < to);
            // What began before the block is left out.
            if spans.get(at).is_some_and(|(span, _)| span.from <= from && to <= span.to) {
                blocks[at].readings.push(to.0 - from.0);
            }
        }
    }
    Ok(Blocks { blocks, events, lost, lasted: part.lasted })
}

/// What was on and off when.
struct Switched {
    spans: Vec<(Span, bool)>,
    events: u64,
    lost: u64,
}

/// Until `done`: the blocks, without their borders, and how many events there were and how many were lost.
fn alternate(
    mut tracer: Tracer,
    block: Duration,
    lot: &mut (dyn FnMut() -> bool + Send),
    done: &AtomicBool,
) -> Result<Switched> {
    let mut spans = Vec::new();
    let (mut on, mut first) = (true, true);
    let mut turn = 0u32;
    while !done.load(Relaxed) {
        // Every second block is what its predecessor was not.
        let next = if turn.is_multiple_of(2) { lot() } else { !on };
        turn += 1;
        if next != on || first {
            tracer.switch(next)?;
        } else {
            // The same border for both: a block that follows one of its kind is switched too.
            tracer.switch(!next)?;
            tracer.switch(next)?;
        }
        (on, first) = (next, false);
        thread::sleep(SETTLE);
        let from = Nanos(clock::monotonic());
        let began = Instant::now();
        while began.elapsed() < block && !done.load(Relaxed) {
            thread::sleep(EVERY.min(block));
            tracer.drain()?;
        }
        spans.push((Span { from, to: Nanos(clock::monotonic()) }, on));
    }
    // The last one was cut, and its partner is missing or cut.
    spans.truncate(spans.len().saturating_sub(1) / 2 * 2);
    let trace = tracer.stop()?;
    let events = trace.events.len() as u64 + trace.dropped;
    Ok(Switched { spans, events, lost: trace.lost })
}
