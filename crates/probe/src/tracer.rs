//! A second opinion: the kernel's own tracer measures, and its stamps become a run.

use crate::{
    Error, ErrorKind, Result, RunProgress, RunRequest, RunningStress,
    host::host,
    host::stamp,
    keeper::{Keeper, Old},
    state,
};
use quiet_linux::{
    Root,
    seat::{Schedule, Seat},
    trace::{
        Timerlat,
        timerlat::{Stamp, TimerlatContext},
    },
};
use quiet_types::{
    CpuId, CpuSet, Histogram, Nanos,
    machine::{Policy, Scheduling},
    run::{self, MeasuringThread, Origin, Probe, Reading, Run},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// How often stamps are taken off the kernel's buffer.
const LOOK: Duration = Duration::from_millis(50);
/// Single readings that are kept, as other probes do.
const WORST: usize = 64;
/// Stamps of one CPU that are kept: 24 hours at one a millisecond would not fit a memory.
const MOST: usize = 20_000_000;

/// Stamps of one CPU.
#[derive(Default)]
struct Stamps {
    irq: Vec<u64>,
    thread: Vec<u64>,
    user: Vec<u64>,
    /// When the interrupts came: which periods were passed over.
    first: Option<Nanos>,
    last: Nanos,
    worst: Vec<Reading>,
}

/// Measures with the kernel's tracer `timerlat`: the time from a timer's expiry to its interrupt, to
/// a thread, and (Linux 6.5) back in user space, where `user` asks for a thread of ours. A kernel
/// without it is an error, in a sentence.
///
/// # Errors
/// As [`crate::run()`], and where the kernel has no such tracer or does not let us use it.
pub fn tracer(
    request: &RunRequest,
    user: bool,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&RunProgress),
) -> Result<Run> {
    let root = Root::system()?;
    request.check(&root)?;
    let spec = &request.spec;
    let Probe::Wakeup { interval, .. } = spec.probe else {
        return Err(Error::new("the tracer measures wake-ups"));
    };
    if interval < Nanos::from_micros(100) {
        return Err(Error::new("the tracer's shortest interval is 100us"));
    }
    if user && !Timerlat::follows_users() {
        return Err(Error::new(
            "this kernel's tracer cannot follow a thread of user space (Linux 6.5 can), or has none; \
             leave out --user",
        ));
    }
    // Killed, somebody must still put back what it changes.
    let keeper = Keeper::start(&Old::Tracers(Timerlat::settings()?)).map_err(|e| {
        Error::of(
            ErrorKind::Machine,
            format!("cannot make sure that the tracer's settings come back: {e}"),
        )
        .because(e)
    })?;
    let mut timerlat = Timerlat::start(&spec.cpus, interval, user)?;
    let stress = match request.stress.as_slice() {
        [] => None,
        names => Some(RunningStress::start(names, &request.stress_cpus)?),
    };
    let before = state(&root, &spec.cpus);
    let (started, id) = stamp(&root, "timerlat");
    let followers = if user { Followers::start(&timerlat, request)? } else { Followers::none() };
    let mut all: BTreeMap<CpuId, Stamps> =
        spec.cpus.iter().map(|cpu| (cpu, Stamps::default())).collect();
    let began = Instant::now();
    let mut now = RunProgress { length: spec.length, ..RunProgress::default() };
    let mut monotonic = Nanos::ZERO;
    while now.elapsed < spec.length && !stop.load(Relaxed) {
        let rest = Duration::from_nanos(spec.length.0 - now.elapsed.0);
        thread::sleep(LOOK.min(rest));
        timerlat.drain(&mut |stamp| keep(&mut all, stamp, &mut now, &mut monotonic))?;
        now.elapsed = Nanos(began.elapsed().as_nanos() as u64);
        progress(&now);
    }
    followers.end();
    timerlat.end();
    timerlat.drain(&mut |stamp| keep(&mut all, stamp, &mut now, &mut monotonic))?;
    drop(timerlat);
    drop(keeper);
    let after = state(&root, &spec.cpus);
    let stress = stress.map(RunningStress::stop).transpose()?;
    let host = host(&root)?;
    let scheduling = if user {
        Scheduling { policy: spec.policy, priority: spec.priority, nice: 0 }
    } else {
        Scheduling { policy: Policy::Fifo, priority: 95, nice: 0 }
    };
    if all.values().all(|stamps| stamps.irq.is_empty()) {
        return Err(Error::of(
            ErrorKind::Machine,
            "the kernel's tracer stamped nothing; does another program use it (`osnoise/cpus` in tracefs)?",
        ));
    }
    let said = [
        ("stations", if user { "irq, thread, user" } else { "irq, thread" }.to_owned()),
        ("period", interval.to_string()),
    ];
    Ok(Run {
        schema: run::SCHEMA.to_owned(),
        id,
        label: request.label.clone(),
        spec: run::Spec {
            policy: scheduling.policy,
            priority: scheduling.priority,
            ..spec.clone()
        }
        .into(),
        started: Some(started),
        monotonic: Some(monotonic),
        lasted: Some(now.elapsed),
        interrupted: Some(stop.load(Relaxed)),
        partial: false,
        origin: Some(Origin {
            format: run::TIMERLAT.into(),
            program: format!("tracer timerlat of Linux {}", host.release),
            resolution: Nanos(1),
            said: said.map(|(name, text)| (name.to_owned(), text)).to_vec(),
        }),
        host,
        // The kernel's, and nobody measured what it costs.
        clock: None,
        threads: all
            .into_iter()
            .map(|(cpu, stamps)| told(cpu, stamps, interval, spec.threshold, scheduling, user))
            .collect(),
        stress,
        entry: None,
        before,
        after,
        findings: Vec::new(),
        explained: None,
        cell: None,
    })
}

fn keep(
    all: &mut BTreeMap<CpuId, Stamps>,
    stamp: Stamp,
    now: &mut RunProgress,
    monotonic: &mut Nanos,
) {
    let Some(stamps) = all.get_mut(&stamp.cpu) else { return };
    if *monotonic == Nanos::ZERO {
        *monotonic = stamp.at;
    }
    let list = match stamp.station {
        TimerlatContext::Irq => {
            stamps.first.get_or_insert(stamp.at.saturating_sub(stamp.latency));
            stamps.last = stamp.at.saturating_sub(stamp.latency);
            &mut stamps.irq
        }
        TimerlatContext::Thread => &mut stamps.thread,
        TimerlatContext::User => &mut stamps.user,
    };
    if list.len() < MOST {
        list.push(stamp.latency.0);
    }
    now.obtained += u64::from(stamp.station == TimerlatContext::Thread);
    now.max = now.max.max(stamp.latency);
    let least = stamps.worst.last().map_or(Nanos::ZERO, |reading| reading.value);
    if stamps.worst.len() < WORST || stamp.latency > least {
        let at = stamp.at.saturating_sub(*monotonic);
        let place = stamps.worst.partition_point(|reading| reading.value >= stamp.latency);
        stamps.worst.insert(place, Reading { at, value: stamp.latency, missed: 0 });
        stamps.worst.truncate(WORST);
    }
}

fn told(
    cpu: CpuId,
    stamps: Stamps,
    interval: Nanos,
    threshold: Nanos,
    scheduling: Scheduling,
    user: bool,
) -> MeasuringThread {
    let histogram = |list: &[u64]| Histogram::of(list.iter().map(|ns| Nanos(*ns)));
    let (last, mut stations) = if user {
        (&stamps.user, vec![("irq", &stamps.irq), ("thread", &stamps.thread)])
    } else {
        (&stamps.thread, vec![("irq", &stamps.irq)])
    };
    // A thread that could not be followed leaves the earlier station as the reading.
    let last = if last.is_empty() { stations.pop().map_or(last, |(_, list)| list) } else { last };
    let readings = histogram(last);
    // From expiry to expiry, not by counting: periods that were passed over have no stamp.
    let span = stamps.last.saturating_sub(stamps.first.unwrap_or_default());
    let expected = (span.0 as f64 / interval.0 as f64).round() as u64 + 1;
    let obtained = readings.count;
    let beyond = last.iter().filter(|ns| **ns > threshold.0);
    MeasuringThread {
        cpu,
        scheduling: Some(scheduling),
        allowed: Some(CpuSet::from_iter([cpu])),
        // The kernel's own threads have no memory that could be paged.
        slice: None,
        memory_locked: (!user).then_some(true),
        expected: Some(expected.max(obtained)),
        obtained,
        missed: Some(expected.saturating_sub(obtained)),
        corrected: None,
        max_at: stamps.worst.first().map(|reading| reading.at),
        beyond: Some(beyond.clone().count() as u64),
        stolen: Some(Nanos(beyond.sum())),
        worst: stamps.worst,
        counters: BTreeMap::new(),
        stations: stations
            .into_iter()
            .map(|(name, list)| run::Station { name: name.to_owned(), readings: histogram(list) })
            .collect(),
        readings,
    }
}

/// Threads of ours that the kernel's timer wakes, one a CPU.
struct Followers {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Followers {
    fn none() -> Followers {
        Followers { stop: Arc::default(), threads: Vec::new() }
    }

    fn start(timerlat: &Timerlat, request: &RunRequest) -> Result<Followers> {
        let mut all = Followers::none();
        for cpu in request.spec.cpus.iter() {
            let (stop, spec) = (all.stop.clone(), request.spec.clone());
            let path = timerlat.follow(cpu);
            let (tell, told) = std::sync::mpsc::channel();
            let body = move || {
                let ready = || -> std::io::Result<File> {
                    let to = Scheduling { policy: spec.policy, priority: spec.priority, nice: 0 };
                    let schedule = Some(Schedule::Under(to));
                    Seat { cpu: Some(cpu), schedule, ..Seat::default() }.take().granted()?;
                    File::open(&path)
                };
                let mut file = match ready() {
                    Ok(file) => file,
                    Err(error) => {
                        let _ = tell.send(Err(error));
                        return;
                    }
                };
                let _ = tell.send(Ok(()));
                let mut byte = [0u8; 1];
                while !stop.load(Relaxed) && file.read(&mut byte).is_ok() {}
            };
            let spawned = thread::Builder::new().name(format!("follow/{cpu}")).spawn(body);
            let failed = |e: std::io::Error| {
                Error::of(ErrorKind::Machine, format!("cannot follow the tracer on CPU {cpu}: {e}"))
                    .because(e)
            };
            all.threads.push(spawned.map_err(failed)?);
            match told.recv() {
                Ok(went) => went.map_err(failed)?,
                Err(_) => {
                    return Err(Error::of(
                        ErrorKind::Measuring,
                        "the thread that follows the tracer ended early",
                    ));
                }
            }
        }
        Ok(all)
    }

    /// While the tracer still wakes them.
    fn end(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
