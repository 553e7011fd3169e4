//! Makes a run: starts the measuring process, follows it, and writes down what surrounds it.

use crate::{
    Error, ErrorKind, Result, RunRequest, RunningStress,
    host::{host, kind, stamp},
    judge, request, so_far, state,
    teller::Teller,
    watch::{CpuWatch, Seen},
    worker::{Order, RawRun},
};
use quiet_linux::{
    Root, seat,
    sys::{clock, memory::SharedWords, process, sched},
};
use quiet_types::{
    CpuSet, Nanos,
    run::{self, Run},
    trace::{Span, Victim},
};
use rustix::process::Signal;
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// How often progress is told and the stop flag looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long the measuring process may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(5);

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunProgress {
    /// Since the measuring process was started.
    pub elapsed: Nanos,
    /// Of so much.
    pub length: Nanos,
    /// Readings taken by all threads; for gap, only what was told lately.
    pub obtained: u64,
    /// Periods missed by all threads.
    pub missed: u64,
    /// Largest reading so far.
    pub max: Nanos,
}

/// What is to be done with a run that is not at its end, now and then.
pub struct Checkpoints<'a> {
    /// How often.
    pub every: Duration,
    /// Called with all that was counted so far, on the calling thread; and once more where the measuring process
    /// dies.
    pub save: &'a mut dyn FnMut(&Run),
}

/// Makes one run, and ends it early with what there is when `stop` is raised.
///
/// `progress` is called about twenty times a second, on the calling thread. Meanwhile the calling
/// thread keeps off the measured CPUs.
///
/// # Errors
/// A sentence, when the request cannot be met on this machine (see [`RunRequest::check`]), the
/// stress cannot be started, or the measuring process fails.
pub fn run(
    request: &RunRequest,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&RunProgress),
) -> Result<Run> {
    watched(request, stop, progress).map(|(run, _)| run)
}

/// As [`run()`], with what was seen on the measured CPUs meanwhile where the request asks for it.
///
/// # Errors
/// As [`run()`]. That the kernel does not let anybody watch is none: it is said in [`Seen::refused`].
pub fn watched(
    request: &RunRequest,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&RunProgress),
) -> Result<(Run, Seen)> {
    saved(request, stop, progress, None)
}

/// As [`watched()`], with checkpoints of a long run, made of what the measuring process shares while it runs.
///
/// # Errors
/// As [`watched()`]; a checkpoint that was saved stays.
pub fn saved(
    request: &RunRequest,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&RunProgress),
    checkpoints: Option<Checkpoints<'_>>,
) -> Result<(Run, Seen)> {
    let root = Root::system()?;
    request.check(&root)?;
    // First: where the stress may run is where this thread may, unless it is told.
    let stress = match request.stress.as_slice() {
        [] => None,
        names => Some(RunningStress::start(names, &request.stress_cpus)?),
    };
    let _elsewhere = Elsewhere::than(&request.spec.cpus);
    let before = state(&root, &request.spec.cpus);
    let (started, id) = stamp(&root, kind(request.spec.probe));
    let mut seen = Seen::default();
    let watch = if request.explain {
        let watch = match &request.lent {
            Some(lender) => CpuWatch::lent(&request.spec.cpus, &**lender),
            None => CpuWatch::start(&request.spec.cpus, &request::online(&root)?),
        };
        watch.map_err(|error| seen.refused = Some(error.to_string())).ok()
    } else {
        None
    };
    let mut save: Option<Saving<'_>> = checkpoints
        .map(|them| -> Result<Saving<'_>> {
            let host = host(&root)?;
            let part = RawRun::empty();
            let draft = draft(request, (&id, &started), host, before.clone(), part);
            Ok(Saving { every: them.every, draft, save: them.save })
        })
        .transpose()?;
    let measured = measure(request, stop, progress, save.as_mut());
    match watch.map(CpuWatch::stop) {
        Some(Ok(trace)) => seen.trace = Some(trace),
        Some(Err(error)) => seen.refused = Some(error.to_string()),
        None => {}
    }
    let after = state(&root, &request.spec.cpus);
    // Ended before a failure is passed on.
    let stress = stress.map(RunningStress::stop).transpose();
    let (part, ids) = measured?;
    if request.explain {
        seen.victims = victims(&part, &ids);
    }
    let mut run = draft(request, (&id, &started), host(&root)?, before, part);
    (run.stress, run.after) = (stress?, after);
    let more = judge::judge(&run);
    run.findings.extend(more);
    Ok((run, seen))
}

/// A run without stress and the state afterwards.
fn draft(
    request: &RunRequest,
    (id, started): (&str, &str),
    host: run::Host,
    before: run::State,
    part: RawRun,
) -> Run {
    Run {
        schema: run::SCHEMA.to_owned(),
        id: id.to_owned(),
        label: request.label.clone(),
        spec: request.spec.clone().into(),
        started: Some(started.to_owned()),
        monotonic: Some(part.monotonic),
        lasted: Some(part.lasted),
        interrupted: Some(part.interrupted),
        partial: false,
        host,
        clock: Some(part.clock),
        threads: part.threads,
        stress: None,
        entry: request.entry.clone(),
        before,
        after: run::State::default(),
        findings: part.findings,
        origin: None,
        explained: None,
        cell: None,
    }
}

/// Checkpoints on their way.
pub(crate) struct Saving<'a> {
    every: Duration,
    draft: Run,
    save: &'a mut dyn FnMut(&Run),
}

impl Saving<'_> {
    /// Saves what there is by now, once the loops have begun.
    fn now(&mut self, words: &[AtomicU64], request: &RunRequest) {
        let Some(threads) = so_far::threads(words, &request.spec) else { return };
        let start = so_far::start(words).load(Relaxed);
        let lasted = clock::monotonic().saturating_sub(start);
        let names = request.stress.clone();
        (self.save)(&Run {
            partial: true,
            // How it ends, what the clock's rate came to and what the stress did is known at the end.
            interrupted: None,
            clock: None,
            stress: (!names.is_empty()).then(|| run::Stress {
                names,
                cpus: request.stress_cpus.clone(),
                ..run::Stress::default()
            }),
            monotonic: Some(Nanos(start)),
            lasted: Some(Nanos(lasted)),
            threads,
            ..self.draft.clone()
        });
    }
}

/// The measuring threads' late readings on `CLOCK_MONOTONIC`.
pub(crate) fn victims(part: &RawRun, ids: &[u32]) -> Vec<Victim> {
    let threads = part.threads.iter().zip(&part.late).zip(ids);
    threads
        .map(|((thread, late), task)| Victim {
            cpu: thread.cpu,
            task: *task,
            beyond: thread.beyond.unwrap_or_default(),
            late: late
                .iter()
                .map(|(at, value)| {
                    let to = Nanos(part.monotonic.0.saturating_add(*at));
                    Span { from: to.saturating_sub(Nanos(*value)), to }
                })
                .collect(),
        })
        .collect()
}

/// The measuring process and what it writes.
struct Worker {
    child: Child,
    output: thread::JoinHandle<Vec<u8>>,
    errors: thread::JoinHandle<Vec<u8>>,
}

pub(crate) fn measure(
    request: &RunRequest,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&RunProgress),
    mut saving: Option<&mut Saving<'_>>,
) -> Result<(RawRun, Vec<u32>)> {
    let threads = request.spec.cpus.len();
    let cannot = |e: std::io::Error| {
        Error::of(ErrorKind::Machine, format!("cannot start the measuring process: {e}")).because(e)
    };
    let (shared, mut file) = SharedWords::create(so_far::words(&request.spec)).map_err(cannot)?;
    let behind = file.seek(SeekFrom::End(0)).map_err(cannot)?;
    let order = serde_json::to_vec(&Order::of(request)).map_err(|e| cannot(e.into()))?;
    file.write_all(&order).map_err(cannot)?;
    // The position is shared with the worker: it tells where the order begins.
    file.seek(SeekFrom::Start(behind)).map_err(cannot)?;
    let mut worker = Worker::start(file).map_err(cannot)?;

    let began = Instant::now();
    let teller = Teller::open();
    let mut saved = began;
    let mut told_to_stop: Option<Instant> = None;
    while !worker.output.is_finished() {
        thread::sleep(LOOK);
        progress(&tell(shared.words(), request, threads, began));
        if let Some(teller) = &teller {
            teller.answer(shared.words(), request);
        }
        if let Some(saving) = saving.as_mut().filter(|them| saved.elapsed() >= them.every) {
            saving.now(shared.words(), request);
            saved = Instant::now();
        }
        if stop.load(Relaxed) && told_to_stop.is_none() {
            shared.words()[0].store(1, Relaxed);
            told_to_stop = Some(Instant::now());
        }
        if told_to_stop.is_some_and(|since| since.elapsed() > GRACE) {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
            return Err(Error::of(
                ErrorKind::Measuring,
                "the measuring process did not end when told to; it was killed",
            ));
        }
    }
    let part = worker.end().inspect_err(|_| {
        if let Some(saving) = saving {
            saving.now(shared.words(), request);
        }
    })?;
    let id = |index| crate::shared::id(shared.words(), index).load(Relaxed) as u32;
    Ok((part, (0..threads).map(id).collect()))
}

fn tell(words: &[AtomicU64], request: &RunRequest, threads: usize, began: Instant) -> RunProgress {
    let mut all = RunProgress {
        elapsed: Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        length: request.spec.length,
        ..Default::default()
    };
    for live in (0..threads).map(|index| crate::shared::live(words, index)) {
        all.obtained += live.obtained.load(Relaxed);
        all.missed += live.missed.load(Relaxed);
        all.max = all.max.max(Nanos(live.max.load(Relaxed)));
    }
    all
}

impl Worker {
    fn start(input: File) -> std::io::Result<Worker> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("worker")
            // glibc gives each thread an rseq area, and the kernel then writes to it each time
            // the thread runs again: 0.3 us of a wake-up where page tables are nested.
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .stdin(Stdio::from(input))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::spawn_bound(&mut command, Signal::KILL)?;
        let output = drain(child.stdout.take());
        let errors = drain(child.stderr.take());
        Ok(Worker { child, output, errors })
    }

    fn end(mut self) -> Result<RawRun> {
        let status = self.child.wait();
        let output = self.output.join().unwrap_or_default();
        let errors = self.errors.join().unwrap_or_default();
        match status {
            Ok(status) if status.success() => serde_json::from_slice(&output).map_err(|e| {
                Error::of(
                    ErrorKind::Measuring,
                    format!("the measuring process wrote nonsense: {e}"),
                )
                .because(e)
            }),
            Ok(status) => {
                let said = String::from_utf8_lossy(&errors);
                let said = said.trim().trim_start_matches("quietcores: ").trim();
                Err(Error::of(
                    ErrorKind::Measuring,
                    match said {
                        "" => format!("the measuring process ended without a result ({status})"),
                        said => quiet_types::printable(said, 500),
                    },
                ))
            }
            Err(e) => Err(Error::of(
                ErrorKind::Measuring,
                format!("cannot wait for the measuring process: {e}"),
            )
            .because(e)),
        }
    }
}

/// Reads a pipe to its end beside us, so that the other side never waits.
fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(256 << 20).read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Keeps the calling thread off some CPUs until it is dropped, where it may run on others.
pub(crate) struct Elsewhere(Option<CpuSet>);

impl Elsewhere {
    pub(crate) fn than(cpus: &CpuSet) -> Elsewhere {
        Elsewhere(seat::keep_off(0, cpus))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(allowed) = &self.0 {
            let _ = sched::set_affinity(0, allowed);
        }
    }
}
