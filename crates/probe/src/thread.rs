//! One measuring thread: gets its CPU, its policy and its memory, waits at the gate, runs the loop.

use crate::{
    clock::{OutOfBand, Source},
    request::name,
    so_far::Area,
};
use quiet_linux::{
    evl::{Attached, Evl},
    marks::Marks,
    seat::{Holds, Refused, Schedule, Seat, SeatLender, SeatNeed, Seated, tid},
    sys::{clock, sched},
};
use quiet_rt::{Clock, Counts, FACTS, Gap, KeptReading, Live, Periods, Tally, Timer, Wakeup};
use quiet_types::{
    CpuId, Finding, Histogram, Nanos, Severity,
    histogram::Linear,
    machine::{Policy, SchedulerCore, Scheduling},
    run::{MeasuringThread, Probe, Reading, RunClock, Spec},
    shield::Entry,
};
use std::{
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed},
        },
    },
    time::Duration,
};

/// How many of the largest readings are kept by themselves.
const WORST: usize = 64;

/// Where threads and the main thread meet: all ready, memory locked, go.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) ready: Barrier,
    pub(crate) go: Barrier,
    /// Start of the run on `CLOCK_MONOTONIC`, ns; zero: do not run.
    pub(crate) start: AtomicU64,
    pub(crate) locked: AtomicBool,
    /// Settings that the kernel refused until now.
    pub(crate) refused: Mutex<Vec<Finding>>,
}

/// What one thread is to do.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) cpu: CpuId,
    pub(crate) spec: &'a Spec,
    pub(crate) entry: Option<&'a Entry>,
    /// Who seats it, where this process has no right to.
    pub(crate) lender: Option<&'a dyn SeatLender>,
    /// What it asks for in place of the kernel's slice.
    pub(crate) slice: Option<Nanos>,
    pub(crate) source: Source,
    pub(crate) live: Live<'a>,
    pub(crate) gate: &'a Gate,
    /// How many readings beyond the threshold are to be kept.
    pub(crate) keep: usize,
    /// Where the thread tells its id.
    pub(crate) id: &'a AtomicU64,
    /// Where it counts.
    pub(crate) area: Area<'a>,
}

/// What one thread found.
pub(crate) struct Found {
    pub(crate) thread: MeasuringThread,
    pub(crate) clock: RunClock,
    /// When the loop ended, ns of `CLOCK_MONOTONIC`.
    pub(crate) ended: u64,
    /// Whether it ended before its time.
    pub(crate) cut_short: bool,
    /// The readings beyond the threshold, in order, where they are to be explained.
    pub(crate) late: Vec<KeptReading>,
}

/// Runs on a thread of its own; `None` when the run was called off at the gate.
pub(crate) fn run(job: Job<'_>) -> Option<Found> {
    job.id.store(tid().into(), Relaxed);
    let not_lent = job.lender.and_then(|lender| lent(lender, &job).err());
    let mut refused = findings(seat(&job).take(), &job);
    refused.extend(not_lent.map(|error| {
        let title = format!("The service does not let the thread onto CPU {}", job.cpu);
        Finding::new(Severity::Warning, "run.outside_shield", title)
            .evidence(error.to_string())
            .effect("Others may share its CPU, and go first.")
            .remedy("See `quietcores status`, or run as root.")
    }));
    refused.extend(job.slice.and_then(|slice| ask_slice(slice, job.cpu)));
    let attached = match job.spec.core {
        SchedulerCore::Kernel => None,
        SchedulerCore::Evl => match attach() {
            Ok(attached) => Some(attached),
            Err(why) => {
                refused.push(
                    Finding::new(
                        Severity::Warning,
                        NOT_ATTACHED,
                        "The EVL core does not take the thread",
                    )
                    .evidence(why),
                );
                None
            }
        },
    };
    job.gate.refused.lock().unwrap_or_else(PoisonError::into_inner).extend(refused);
    let mut memory = Memory::new(job.area, job.keep);
    let mut clock = job.source.describe();
    clock.floor = match job.source {
        Source::Counter(c) => floor(&c, job.spec.probe, &memory),
        Source::Plain(c) => floor(&c, job.spec.probe, &memory),
    };
    // A clock that stands still between two reads sees nothing shorter than its step.
    clock.floor = clock.floor.max(clock.step);
    memory.clear();
    job.gate.ready.wait();
    job.gate.go.wait();
    let start = job.gate.start.load(Acquire);
    if start == 0 {
        return None;
    }

    let marks = Marks::now();
    let evl = attached.as_ref().map(|attached| attached.evl);
    let (mut thread, cut_short, late) = match (job.source, evl) {
        (Source::Counter(c), None) => measure(c, c, &job, (start, evl), &mut memory),
        (Source::Plain(c), None) => measure(c, c, &job, (start, evl), &mut memory),
        (Source::Counter(c), Some(core)) => {
            measure(OutOfBand { core, clock: c }, c, &job, (start, evl), &mut memory)
        }
        (Source::Plain(c), Some(core)) => {
            measure(OutOfBand { core, clock: c }, c, &job, (start, evl), &mut memory)
        }
    };
    let ended = clock::monotonic();
    thread.counters.extend(marks.since());
    Some(Found { thread, clock, ended, cut_short, late })
}

/// The finding of a thread that the EVL core does not take: its figures would be the kernel's.
pub(crate) const NOT_ATTACHED: &str = "run.core";
/// The counter of how often the EVL core's thread was taken in band.
const IN_BAND: &str = "in_band_switches";

/// Attaches the calling thread, seated, to the EVL core.
fn attach() -> Result<Attached, String> {
    let evl = Evl::open().map_err(|why| why.to_string())?;
    evl.attach(&format!("quietcores:{}", tid())).map_err(|why| why.to_string())
}

/// Asks for a slice for the calling thread, which needs no right; what to know where the kernel has not taken it.
///
/// # Source
/// sched_setattr(2), `sched_runtime` of fair policies; kernel/sched/fair.c, EEVDF.
fn ask_slice(slice: Nanos, cpu: CpuId) -> Option<Finding> {
    let as_it_is = Holds::now().scheduling?;
    let asked = sched::set_scheduling_with(0, as_it_is, Some(slice));
    let now = sched::slice_in_force(0).ok().flatten();
    if asked.is_ok() && now == Some(slice) {
        return None;
    }
    let says = match (asked, now) {
        (Err(error), _) => error.to_string(),
        (Ok(()), Some(now)) => format!("asked for {slice}, the kernel says {now}"),
        (Ok(()), None) => "the kernel tells no slice".to_owned(),
    };
    let title =
        format!("The kernel does not give the thread on CPU {cpu} the slice that it asks for");
    Some(
        Finding::new(Severity::Warning, "run.slice", title)
            .evidence(says)
            .effect("The figures are those of a thread with another slice.")
            .remedy("Ordinary threads have slices of their own since Linux 6.12."),
    )
}

/// Has the calling thread seated by who has the rights.
fn lent(lender: &dyn SeatLender, job: &Job<'_>) -> quiet_linux::Result<()> {
    let under = match schedule(job.spec) {
        Schedule::Under(to) if matches!(to.policy, Policy::Fifo | Policy::Rr) => Some(to),
        _ => None,
    };
    lender.lend(tid(), Some(job.cpu), under)
}

/// What the thread asks for; what is lent is not asked for again. Where the whole process goes through the shield's door, it did so before its threads began.
fn seat(job: &Job<'_>) -> Seat {
    Seat {
        entry: job.entry.filter(|entry| !entry.whole_process && job.lender.is_none()).cloned(),
        cpu: Some(job.cpu),
        off: quiet_types::CpuSet::new(),
        schedule: Some(schedule(job.spec)).filter(|wanted| !holds(wanted)),
    }
}

/// Whether the calling thread is scheduled like that already.
fn holds(wanted: &Schedule) -> bool {
    let Some(now) = Holds::now().scheduling else { return false };
    match wanted {
        Schedule::Under(to) => (now.policy, now.priority) == (to.policy, to.priority),
        Schedule::Deadline(_) => false,
    }
}

/// What the kernel refused, as findings.
fn findings(seated: Seated, job: &Job<'_>) -> Vec<Finding> {
    let cpu = job.cpu;
    let finding = |Refused { need, error }| {
        let (id, title, effect, remedy) = match need {
            SeatNeed::Shield => (
                "run.outside_shield",
                format!("The thread on CPU {cpu} is not inside the shield"),
                "Others may share its CPU.",
                "Run as root.",
            ),
            SeatNeed::Cpu => (
                "run.affinity",
                format!("The thread is not bound to CPU {cpu}"),
                "It may run elsewhere; its readings are not those of this CPU.",
                "See which CPUs its cpuset allows.",
            ),
            SeatNeed::Schedule => (
                "run.policy",
                format!("The kernel refused policy {} on CPU {cpu}", name(job.spec.policy)),
                "The figures are those of an ordinary thread, which waits for others.",
                policy_remedy(job.spec.policy),
            ),
        };
        let evidence = quiet_linux::Error::io("set it for thread", tid().to_string(), error);
        Finding::new(Severity::Warning, id, title)
            .evidence(evidence.to_string())
            .effect(effect)
            .remedy(remedy)
    };
    seated.refused.into_iter().map(finding).collect()
}

fn policy_remedy(policy: Policy) -> &'static str {
    match policy {
        Policy::Deadline => {
            "A SCHED_DEADLINE thread must be allowed on every CPU of its root domain (\"Deadline \
             scheduling\" in sched(7)): measure it inside a shield that is an isolated partition \
             of this one CPU, or use --policy fifo."
        }
        _ => {
            "Run as root, or allow real-time priorities to your user (`rtprio` in \
             /etc/security/limits.conf). In a cgroup of a kernel with CONFIG_RT_GROUP_SCHED a \
             real-time budget is needed too."
        }
    }
}

fn schedule(spec: &Spec) -> Schedule {
    if spec.policy == Policy::Deadline {
        let period = match spec.probe {
            Probe::Wakeup { interval, .. } => interval,
            Probe::Gap => Nanos::from_millis(1),
        };
        // The kernel wants at least 1.024 us of run time; half a period is plenty for a wake-up.
        let runtime = Nanos((period.0 / 2).max(1_024));
        return Schedule::Deadline(sched::Deadline { runtime, deadline: period, period });
    }
    let nice = Holds::now().scheduling.map_or(0, |now| now.nice);
    Schedule::Under(Scheduling { policy: spec.policy, priority: spec.priority, nice })
}

/// Everything that the loop writes into, made present before it starts.
struct Memory<'a> {
    /// Shared: see [`crate::so_far`].
    area: Area<'a>,
    worst: Vec<KeptReading>,
    late: Vec<KeptReading>,
}

impl<'a> Memory<'a> {
    fn new(area: Area<'a>, keep: usize) -> Memory<'a> {
        let mut memory = Memory {
            area,
            worst: vec![KeptReading::default(); WORST],
            late: vec![KeptReading::default(); keep],
        };
        memory.clear();
        memory
    }

    /// Writes zeros, which is also what makes pages present.
    fn clear(&mut self) {
        let Area { log, linear, missed_log, missed_linear, small } = self.area;
        for word in [log, linear, missed_log, missed_linear, small].into_iter().flatten() {
            word.store(0, Relaxed);
        }
        self.worst.fill(KeptReading::default());
        std::hint::black_box(&mut self.late).fill(KeptReading::default());
    }

    fn tally(&mut self, spec: &Spec) -> (Tally<'_>, &'a [AtomicU64]) {
        let width = spec.bucket.0;
        let mut tally = Tally::new(
            Counts::new(self.area.log, self.area.linear, width),
            Counts::new(self.area.missed_log, self.area.missed_linear, width),
            &mut self.worst,
            spec.threshold.0,
        );
        tally.keep_late(&mut self.late);
        (tally, self.area.small)
    }
}

/// The instrument's own noise. Wakeup: from before a system call that does nothing to the stamp
/// after it. Gap: the median turn of the loop.
fn floor<C: Clock>(clock: &C, probe: Probe, memory: &Memory<'_>) -> Nanos {
    match probe {
        Probe::Wakeup { .. } => Nanos(crate::clock::median(|| {
            let before = clock.ticks();
            std::hint::black_box(rustix::thread::gettid());
            clock.nanos(clock.ticks().saturating_sub(before))
        })),
        Probe::Gap => {
            let (never, unseen) = (AtomicU64::new(0), AtomicU64::new(0));
            let facts = [const { AtomicU64::new(0) }; FACTS];
            let (obtained, missed, max) = (&unseen, &unseen, &unseen);
            let live = Live { stop: &never, obtained, missed, max, facts: &facts };
            let readings = Counts::new(memory.area.log, &[], 1);
            let missed = Counts::new(memory.area.missed_log, &[], 1);
            let mut tally = Tally::new(readings, missed, &mut [], u64::MAX);
            let length = ticks_of(clock, 1_000_000);
            quiet_rt::gap(clock, length, memory.area.small, &mut tally, &live);
            histogram(&tally.readings, None).percentile(0.5).unwrap_or_default()
        }
    }
}

/// A timer whose thread computes for a while before it sleeps.
struct Working<T> {
    timer: T,
    work: Duration,
}

impl<T: Timer> Timer for Working<T> {
    #[inline(always)]
    fn sleep_until(&mut self, at: u64) -> u64 {
        if !self.work.is_zero() {
            let until = own_time() + self.work;
            while own_time() < until {
                std::hint::spin_loop();
            }
        }
        self.timer.sleep_until(at)
    }
}

/// How long this thread has had a CPU: what others take of it meanwhile is no work.
fn own_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Runs the loop; says what it found, whether it ended early, and what was kept of the late.
fn measure<T: Timer, C: Clock>(
    timer: T,
    clock: C,
    job: &Job<'_>,
    (start, evl): (u64, Option<Evl>),
    memory: &mut Memory<'_>,
) -> (MeasuringThread, bool, Vec<KeptReading>) {
    let spec = job.spec;
    let (mut tally, small) = memory.tally(spec);
    let work = match spec.probe {
        Probe::Wakeup { work, .. } => work,
        Probe::Gap => Nanos::ZERO,
    };
    let mut timer = Working { timer, work: Duration::from_nanos(work.0) };
    // Also warms the path: the first reading is no colder than the others.
    timer.sleep_until(start);
    let before = evl.and_then(Evl::in_band);
    let entered = evl.is_none_or(Evl::is_out_of_band);
    let mut place = Place::default();
    let (periods, cut_short) = match spec.probe {
        Probe::Wakeup { interval, .. } => {
            let periods = spec.length.0 / interval.0;
            let plan = Wakeup { start, interval: interval.0, periods };
            let done = quiet_rt::wakeup(&mut timer, plan, &mut tally, &job.live);
            (done, done.expected < periods)
        }
        Probe::Gap => {
            let length = ticks_of(&clock, spec.length.0);
            // Where the counter is slow, a reading beyond the threshold must not pass for small.
            let most = ticks_of(&clock, spec.threshold.0) as usize;
            let most = small.len().min(most.max(16));
            let before = Moment::now(&clock);
            let found = quiet_rt::gap(&clock, length, &small[..most], &mut tally, &job.live);
            let Gap { reads, ticks, start: first } = found;
            place = Place::between(&clock, before, Moment::now(&clock), first, start);
            (Periods { expected: reads, obtained: reads, missed: 0 }, ticks < length)
        }
    };
    // Before anything takes the thread in band. A core that had counted nothing when the loop began counts from 0, and one that never took
    // the thread out of band counts nothing.
    let strayed = !entered || evl.is_some_and(|evl| !evl.is_out_of_band());
    let in_band = evl.and_then(Evl::in_band);
    let in_band = in_band.map(|now| now.saturating_sub(before.unwrap_or(0)).max(strayed.into()));
    let linear = (spec.bucket, spec.buckets);
    let readings = histogram(&tally.readings, Some(linear));
    let corrected = matches!(spec.probe, Probe::Wakeup { .. }).then(|| {
        let mut all = readings.clone();
        all.merge(&histogram(&tally.missed, Some(linear)));
        all
    });
    let mut worst: Vec<Reading> = tally
        .worst()
        .map(|k| Reading { at: Nanos(place.of(k.at)), value: Nanos(k.value), missed: k.missed })
        .collect();
    worst.sort_unstable_by_key(|r| (std::cmp::Reverse(r.value), r.at));
    let Holds { allowed, scheduling } = Holds::now();
    let thread = MeasuringThread {
        cpu: job.cpu,
        scheduling,
        allowed,
        slice: sched::slice_in_force(0).ok().flatten(),
        memory_locked: Some(job.gate.locked.load(Acquire)),
        expected: Some(periods.expected),
        obtained: periods.obtained,
        missed: Some(periods.missed),
        readings,
        corrected,
        max_at: Some(Nanos(place.of(tally.max_at))),
        beyond: Some(tally.beyond),
        stolen: Some(Nanos(tally.stolen)),
        worst,
        counters: in_band.map(|n| (IN_BAND.to_owned(), n)).into_iter().collect(),
        stations: Vec::new(),
    };
    let late = tally.late().iter().map(|k| KeptReading { at: place.of(k.at), ..*k }).collect();
    (thread, cut_short, late)
}

/// One moment on the counter and on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy)]
struct Moment {
    ticks: u64,
    ns: u64,
}

impl Moment {
    /// The sharpest of many.
    fn now<C: Clock>(clock: &C) -> Moment {
        let tries = (0..50).map(|_| {
            let (before, ns, after) = (clock.ticks(), clock::monotonic(), clock.ticks());
            let width = after.saturating_sub(before);
            (width, Moment { ticks: before + width / 2, ns })
        });
        let best = tries.min_by_key(|(width, _)| *width);
        best.map_or(Moment { ticks: 0, ns: 0 }, |(_, moment)| moment)
    }
}

/// Turns times since the first clock read of a spinning loop into times since the start of the
/// run. A rate that was measured over 20 ms would be some microseconds off after seconds.
#[derive(Clone, Copy)]
struct Place {
    shift: i64,
    rate: f64,
}

impl Default for Place {
    fn default() -> Place {
        Place { shift: 0, rate: 1.0 }
    }
}

impl Place {
    fn between<C: Clock>(clock: &C, a: Moment, b: Moment, first: u64, start: u64) -> Place {
        let by_counter = clock.nanos(b.ticks.saturating_sub(a.ticks));
        let rate = b.ns.saturating_sub(a.ns) as f64 / by_counter.max(1) as f64;
        // Far off: the counter was set back, or a clock was.
        if !(0.99..1.01).contains(&rate) {
            return Place::default();
        }
        let lead = clock.nanos(first.saturating_sub(a.ticks)) as f64 * rate;
        Place { shift: (a.ns as i64).wrapping_sub(start as i64) + lead as i64, rate }
    }

    fn of(&self, at: u64) -> u64 {
        if self.rate == 1.0 && self.shift == 0 {
            return at;
        }
        ((at as f64 * self.rate) as i64).saturating_add(self.shift).max(0) as u64
    }
}

/// The least number of ticks that are `ns` long.
fn ticks_of<C: Clock>(clock: &C, ns: u64) -> u64 {
    // From below: of very many ticks that are longer than a nanosecond, as an Arm core's are, the ns are no u64.
    let (mut low, mut high) = (0, 1);
    while high < 1 << 53 && clock.nanos(high) < ns {
        high *= 2;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if clock.nanos(middle) < ns {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn histogram(counts: &Counts<'_>, linear: Option<(Nanos, u32)>) -> Histogram {
    let some = counts.count > 0;
    let (min, max) = (some.then_some(Nanos(counts.min)), some.then_some(Nanos(counts.max)));
    let values = |from: &[AtomicU64]| from.iter().map(|n| n.load(Relaxed)).collect::<Vec<u64>>();
    let log = values(counts.log());
    let mut histogram = Histogram::from_counts(&log, counts.over, min, max, Nanos(counts.sum));
    histogram.linear = linear.map(|(width, buckets)| Linear {
        width,
        buckets,
        counts: (0..).zip(values(counts.linear())).filter(|(_, n)| *n > 0).collect(),
        over: counts.linear_over,
    });
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many units of 2^-32 ns each, as a counter is read.
    struct Counted(u64);

    impl Clock for Counted {
        fn ticks(&self) -> u64 {
            0
        }
        fn nanos(&self, ticks: u64) -> u64 {
            ((u128::from(ticks) * u128::from(self.0)) >> 32) as u64
        }
    }

    /// From the fastest counters to those of boards: 5 GHz, 2.4 GHz, 62.5, 54 and 24 MHz, 1 MHz.
    #[test]
    fn a_length_is_that_many_ticks_on_every_counter() {
        for hertz in [5e9, 2.4e9, 62.5e6, 54e6, 24e6, 1e6] {
            let clock = Counted((1e9 / hertz * 4_294_967_296.0) as u64);
            for ns in [1, 1_000, 1_000_000, 2_000_000_000, 7 * 86_400 * 1_000_000_000] {
                let ticks = ticks_of(&clock, ns);
                assert!(clock.nanos(ticks) >= ns, "{hertz} {ns}: {ticks}");
                assert!(clock.nanos(ticks - 1) < ns, "{hertz} {ns}: {ticks}");
            }
            // Longer than anything: it ends somewhere.
            assert!(ticks_of(&clock, u64::MAX) <= 1 << 53);
        }
    }
}
