//! Where the engine's thread runs, decided before it spins and read back after.

use crate::{
    Error, ErrorKind, Result, neighbours,
    rtkit::{self, Offer},
};
use quiet_linux::{
    Root,
    evl::{self, Attached, Evl},
    seat::{Holds, Refused, Schedule, Seat, SeatLender, SeatNeed, lock_memory, tid},
    state,
    sys::{calls::ThreadCounters, sched},
};
use quiet_rt::LoopMode;
use quiet_types::{
    CpuId, CpuSet, Finding, Nanos, Severity,
    counters::Interrupt,
    machine::{Policy, SchedulerCore, Scheduling},
    play::Hits,
    run::State,
    shield::Shield,
};
use std::{collections::BTreeMap, sync::Arc};

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct SeatWish {
    /// The CPU; none: the first shielded one, else left to the kernel.
    pub cpu: Option<CpuId>,
    /// How to wait; none: never asleep where the thread has a CPU for itself.
    pub mode: Option<Wait>,
    /// FIFO priority, 1 to 99.
    pub priority: u8,
    /// The shield that is up.
    pub shield: Option<Shield>,
    /// Who lets the thread into the shield, where it has no way in of its own.
    pub lender: Option<Arc<dyn SeatLender>>,
    /// Who schedules the thread.
    pub core: SchedulerCore,
    /// Whether its system calls and context switches are counted ([`ThreadCounters`]).
    pub counted: bool,
    /// CPUs that the strip is played on, each by a thread of its own; 0 stands for 1.
    pub cores: u8,
}

/// How to wait for the card, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Never asleep.
    NeverSleep,
    /// Asleep until the card wakes it.
    Sleep,
}

/// What the decision is made from: read from the machine, or constructed in a test.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub online: CpuSet,
    /// RLIMIT_RTTIME, us.
    pub rttime: Option<u64>,
    /// sched_rt_runtime_us; -1: no throttle.
    pub rt_runtime: Option<i64>,
    /// Whether this thread may become FIFO by itself.
    pub fifo: bool,
    /// Whether somebody would let it into the shield, under FIFO too.
    pub lent: bool,
    /// What the desktop lends to those that may not.
    pub offer: Option<Offer>,
    /// CPUs of the shield on which other programs play.
    pub others: CpuSet,
}

impl Facts {
    fn read(root: &Root, priority: u8, lent: bool, shield: Option<&Shield>) -> Result<Facts> {
        let number = |path: &str| -> Option<i64> {
            root.read_if_there(path).ok().flatten()?.trim().parse().ok()
        };
        let online: CpuSet = root
            .read("/sys/devices/system/cpu/online")?
            .parse()
            .map_err(|e| Error::new(format!("cannot understand which CPUs are online: {e}")))?;
        // By trying, not by reading limits: there are several ways to the right.
        let fifo = std::thread::spawn(move || {
            let to = Scheduling { policy: Policy::Fifo, priority, nice: 0 };
            sched::set_scheduling(0, to).is_ok()
        });
        let fifo = fifo.join().unwrap_or(false);
        Ok(Facts {
            online,
            rttime: rustix::process::getrlimit(rustix::process::Resource::Rttime).current,
            rt_runtime: number("/proc/sys/kernel/sched_rt_runtime_us"),
            fifo,
            lent,
            offer: if fifo || lent { None } else { rtkit::offer() },
            others: neighbours::cpus(root, shield),
        })
    }
}

/// What will be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub mode: LoopMode,
    pub cpu: Option<CpuId>,
    /// None: as it is. Round robin is what rtkit gives.
    pub policy: Option<Policy>,
    /// CPUs that the rest of the program leaves.
    pub off: CpuSet,
    /// What rtkit gives, where it is to be asked.
    pub offer: Option<Offer>,
    /// Whether the CPU lies inside the shield.
    pub shielded: bool,
    /// Whether the service is asked for its place.
    pub lent: bool,
    pub core: SchedulerCore,
    pub findings: Vec<Finding>,
}

/// What the kernel says after it was done.
#[derive(Clone, Debug)]
pub struct Placed {
    /// How it waits.
    pub mode: LoopMode,
    /// Where it may run, read back.
    pub allowed: CpuSet,
    /// How it is scheduled, read back.
    pub scheduling: Scheduling,
    /// Whether all memory is locked.
    pub memory_locked: bool,
    /// Whether it runs inside the shield.
    pub shielded: bool,
    /// The core that schedules it, where that is not the kernel.
    pub evl: Option<Evl>,
    /// The kernel's counters of the thread, where it is counted.
    pub counters: Option<Arc<ThreadCounters>>,
    /// What was refused or is doubtful.
    pub findings: Vec<Finding>,
    /// The machine at the start: settings and counters.
    pub state: State,
}

pub(crate) fn decide(root: &Root, wish: &SeatWish) -> Result<Decision> {
    if !(1..=99).contains(&wish.priority) {
        return Err(Error::new(format!(
            "the priority is {}; it can be 1 to 99, such as --priority 85",
            wish.priority
        )));
    }
    // Within the shield alone.
    let lent = wish.lender.is_some() && wish.shield.is_some();
    let decision = choose(&Facts::read(root, wish.priority, lent, wish.shield.as_ref())?, wish)?;
    if decision.core == SchedulerCore::Evl {
        out_of_band(root, &decision)?;
    }
    Ok(decision)
}

/// Whether the EVL core can have a thread that is seated so.
fn out_of_band(root: &Root, decision: &Decision) -> Result<()> {
    let cannot =
        |why: String| Error::of(ErrorKind::Machine, format!("cannot play on the EVL core: {why}"));
    Evl::open().map_err(|why| cannot(why.to_string()))?;
    let cpu = decision.cpu.ok_or_else(|| {
        cannot("its threads need a CPU each; give --cpu N, or shield one with `quietcores apply --cpus N`".into())
    })?;
    evl::runs_on(root, cpu).map_err(cannot)?;
    if decision.policy != Some(Policy::Fifo) {
        return Err(cannot("it takes threads under SCHED_FIFO, which the kernel refuses to this process; run it as root".into()));
    }
    Ok(())
}

/// The CPU of the first thread: what is wished; else one of the shield, nobody else's where one is free.
fn first(wish: &SeatWish, others: &CpuSet) -> Option<CpuId> {
    let shielded = wish.shield.as_ref().map(|shield| &shield.cpus);
    let free = |cpus: &CpuSet| cpus.difference(others).first().or_else(|| cpus.first());
    wish.cpu.or_else(|| shielded.and_then(free))
}

/// What is wished for the second thread of a strip on two CPUs, of which `others` are other programs'.
pub(crate) fn second(wish: &SeatWish, others: &CpuSet) -> Result<SeatWish> {
    let shielded = wish.shield.as_ref().map(|shield| shield.cpus.clone()).unwrap_or_default();
    let first = first(wish, others);
    let inside = first.is_some_and(|cpu| shielded.contains(cpu));
    let mut wish = wish.clone();
    let left = shielded.difference(&first.into_iter().collect());
    wish.cpu = left.difference(others).first().or_else(|| left.first()).filter(|_| inside);
    if inside && wish.cpu.is_none() {
        return Err(Error::new(format!(
            "the shield has CPU {shielded} alone, and a strip on two CPUs needs another one: put one up around two \
             (`quietcores apply --cpus A-B`), or play with --cores 1"
        )));
    }
    if !inside {
        wish.mode = Some(Wait::Sleep);
    }
    Ok(wish)
}

fn cpus(count: usize) -> String {
    match count {
        1 => "one CPU".to_owned(),
        2 => "two CPUs".to_owned(),
        3 => "three CPUs".to_owned(),
        _ => format!("{count} CPUs"),
    }
}

/// Pure: tested without a machine.
pub(crate) fn choose(facts: &Facts, wish: &SeatWish) -> Result<Decision> {
    let shielded = wish.shield.as_ref().map(|shield| shield.cpus.clone()).unwrap_or_default();
    let cpu = first(wish, &facts.others);
    if let Some(cpu) = cpu
        && !facts.online.contains(cpu)
    {
        return Err(Error::new(format!(
            "CPU {cpu} does not exist here or is offline; online are {}",
            facts.online
        )));
    }
    let inside = cpu.is_some_and(|cpu| shielded.contains(cpu));
    // Who may become FIFO by himself still has no way in: the door is another's, or the journal is.
    let lent = facts.lent && inside;
    let facts = &Facts { fifo: facts.fifo || lent, ..facts.clone() };
    let mut findings = Vec::new();
    // A cgroup v2 partition takes whole processes: the rest of this program comes in too, and
    // must not find itself on CPUs of which none ever comes free.
    let own = usize::from(wish.cores.max(1));
    let playing = own + facts.others.iter().filter(|other| Some(*other) != cpu).count();
    let crowded = inside
        && shielded.len() <= playing
        && wish
            .shield
            .as_ref()
            .and_then(|shield| shield.entry.as_ref())
            .is_some_and(|entry| entry.whole_process);
    let against = if facts.online.len() < 2 {
        Some("this machine has one CPU: nothing else would run".to_owned())
    } else if let Some(cpu) = cpu.filter(|cpu| facts.others.contains(*cpu)) {
        Some(format!("another program plays on CPU {cpu}"))
    } else if crowded {
        let plays = if playing > own { ", and others play there too" } else { "" };
        Some(format!(
            "the shield is a cgroup v2 partition of {}, which takes whole processes{plays}: the rest of this program would \
             never run (shield {})",
            cpus(shielded.len()),
            cpus(playing + 1)
        ))
    } else {
        None
    };
    let mode = match wish.mode {
        Some(Wait::Sleep) => LoopMode::Sleep,
        Some(Wait::NeverSleep) => match against {
            Some(why) => {
                return Err(Error::new(format!(
                    "cannot play without sleep: {why}; use --mode sleep"
                )));
            }
            None => LoopMode::NeverSleep,
        },
        None if !inside => {
            findings.push(asleep("there is no shield around its CPU"));
            LoopMode::Sleep
        }
        None if against.is_some() => {
            findings.push(asleep(&against.unwrap_or_default()));
            LoopMode::Sleep
        }
        None => LoopMode::NeverSleep,
    };
    let policy = if mode == LoopMode::NeverSleep {
        spinning_policy(facts, (wish.core, inside), &mut findings)
    } else if facts.fifo {
        Policy::Fifo
    } else if let Some(offer) = facts.offer {
        findings.push(rtkit::finding(offer));
        Policy::Rr
    } else {
        findings.push(no_right());
        Policy::Other
    };
    if mode == LoopMode::NeverSleep && cpu.is_none() {
        return Err(Error::new(
            "a thread that never sleeps needs a CPU of its own; give --cpu N or shield one with \
             `quietcores apply --cpus N`",
        ));
    }
    if mode == LoopMode::NeverSleep && !inside {
        findings.push(
            Finding::new(Severity::Warning, "play.unshielded", "The CPU is not shielded")
                .evidence(format!("CPU {} is in no shield", cpu.unwrap_or(CpuId(0))))
                .effect(
                    "What else belongs to this CPU waits while the thread spins, or interrupts it. A kernel thread that waits \
                     there with a lock in its hand holds other CPUs up.",
                )
                .remedy("Shield it with `quietcores apply --cpus N`."),
        );
    }
    let offer = facts.offer.filter(|_| policy == Policy::Rr);
    let (policy, core) = (Some(policy), wish.core);
    // Where no CPU of a partition were left, the rest shares the one on which its own thread sleeps between periods.
    let all = facts.others.union(&cpu.into_iter().collect());
    let nothing_left = crowded && shielded.is_subset(&all);
    let off = if nothing_left { facts.others.clone() } else { all };
    Ok(Decision { mode, cpu, policy, off, offer, shielded: inside, lent, core, findings })
}

/// FIFO, unless the kernel would stop or kill a FIFO thread that spins.
fn spinning_policy(
    facts: &Facts,
    (core, inside): (SchedulerCore, bool),
    findings: &mut Vec<Finding>,
) -> Policy {
    let other = |title: &str, evidence: String, remedy: &str| {
        Finding::new(Severity::Note, "play.policy", title)
            .evidence(evidence)
            .effect(if inside {
                "An ordinary thread, alone on a shielded CPU."
            } else {
                "An ordinary thread, which shares its CPU with others."
            })
            .remedy(remedy)
    };
    if !facts.fifo {
        findings.push(no_right());
        return Policy::Other;
    }
    // Out of band the kernel neither throttles nor ends it.
    if core == SchedulerCore::Evl {
        return Policy::Fifo;
    }
    if let Some(limit) = facts.rttime {
        findings.push(other(
            "A limit on real-time running would end a thread that never sleeps",
            format!("RLIMIT_RTTIME is {limit} us"),
            "Raise it (`ulimit -R unlimited`) to play under FIFO.",
        ));
        return Policy::Other;
    }
    match facts.rt_runtime {
        // Also on kernels since 6.12: those with CONFIG_RT_GROUP_SCHED throttle as before, the
        // others have a fair server, which stops a FIFO thread for whoever waits on its CPU.
        Some(runtime @ 0..) => {
            findings.push(other(
                "The throttle would stop a FIFO thread that never sleeps",
                format!("sched_rt_runtime_us is {runtime}"),
                "Write -1 to /proc/sys/kernel/sched_rt_runtime_us to play under FIFO.",
            ));
            Policy::Other
        }
        _ => Policy::Fifo,
    }
}

fn asleep(why: &str) -> Finding {
    Finding::new(Severity::Note, "play.asleep", "It sleeps between periods")
        .evidence(why)
        .effect("Each period pays a wake-up; `quietcores measure wakeup` tells how long one takes.")
        .remedy("Shield a CPU with `quietcores apply --cpus N`, then play again.")
}

fn no_right() -> Finding {
    Finding::new(Severity::Warning, "play.policy", "No real-time priority")
        .evidence("the kernel refuses SCHED_FIFO to this process")
        .effect("Other work on the CPU goes first at times: expect xruns under load.")
        .remedy(
            "Run as root, or allow real-time priorities to your user (`rtprio` and `memlock` in \
             /etc/security/limits.conf).",
        )
}

/// Locks memory and reads the machine: what can be done from any thread.
pub(crate) fn prepare(root: &Root, decision: &Decision) -> Placed {
    let mut findings = decision.findings.clone();
    let (memory_locked, unlocked) = lock_memory("the playing process");
    findings.extend(unlocked);
    let cpus = decision.cpu.into_iter().collect();
    Placed {
        mode: decision.mode,
        allowed: CpuSet::new(),
        scheduling: ordinary(),
        memory_locked,
        shielded: decision.shielded,
        evl: None,
        counters: None,
        findings,
        state: state::read(root, &cpus),
    }
}

/// Puts the calling thread where it was decided, and reads back what came of it.
pub(crate) fn settle(wish: &SeatWish, decision: &Decision, placed: &mut Placed) {
    let findings = &mut placed.findings;
    let mut refused = |title: &str, error: &std::io::Error, effect: &str| {
        findings.push(
            Finding::new(Severity::Warning, "play.place", title)
                .evidence(error.to_string())
                .effect(effect)
                .remedy("Run as root."),
        );
    };
    let entry = wish.shield.as_ref().and_then(|shield| shield.entry.clone());
    let lent = wish.lender.as_ref().filter(|_| decision.lent).map(|lender| {
        let fifo = Scheduling { policy: Policy::Fifo, priority: wish.priority, nice: 0 };
        let fifo = (decision.policy == Some(Policy::Fifo)).then_some(fifo);
        lender.lend(tid(), decision.cpu, fifo)
    });
    if let Some(Err(why)) = &lent {
        refused(
            "The thread is not let into the shield",
            &std::io::Error::other(why.to_string()),
            "Others may share its CPU, and go first.",
        );
    }
    // What was lent is not to be asked for again.
    let own = lent.is_none();
    let schedule =
        decision.policy.filter(|policy| *policy != Policy::Rr).map(|policy| match policy {
            Policy::Fifo => Scheduling { policy: Policy::Fifo, priority: wish.priority, nice: 0 },
            _ => Scheduling { policy: Policy::Other, priority: 0, nice: -20 },
        });
    let seat = Seat {
        entry: entry.filter(|_| decision.shielded && own),
        cpu: decision.cpu,
        off: decision.off.clone(),
        schedule: schedule.filter(|to| own || to.policy != Policy::Fifo).map(Schedule::Under),
    };
    let seated = seat.take();
    let cpu = decision.cpu.unwrap_or(CpuId(0));
    for Refused { need, error } in &seated.refused {
        match need {
            SeatNeed::Shield => {
                refused("The thread is not inside the shield", error, "Others may share its CPU.");
            }
            SeatNeed::Cpu => {
                let title = format!("The thread is not bound to CPU {cpu}");
                refused(&title, error, "It may run elsewhere.");
            }
            // An ordinary thread without its niceness is still what was decided.
            SeatNeed::Schedule if decision.policy != Some(Policy::Fifo) => {}
            SeatNeed::Schedule => {
                refused("The kernel refused FIFO", error, "An ordinary thread waits for others.");
            }
        }
    }
    if let (Some(Policy::Rr), Some(offer)) = (decision.policy, decision.offer)
        && let Err(error) = rtkit::borrow(offer, wish.priority)
    {
        refused("rtkit refuses", &error, "An ordinary thread waits for others.");
    }
    let holds = Holds::now();
    let allowed = holds.allowed.unwrap_or_default();
    if let Some(cpu) = decision.cpu
        && allowed != CpuSet::from_iter([cpu])
    {
        findings.push(
            Finding::new(Severity::Warning, "play.place", "The thread is not where it was put")
                .evidence(format!("wanted CPU {cpu}, the kernel says {allowed}")),
        );
    }
    placed.allowed = allowed;
    placed.scheduling = holds.scheduling.unwrap_or(ordinary());
    let kept_out = seated.is_refused(SeatNeed::Shield) || matches!(lent, Some(Err(_)));
    placed.shielded = decision.shielded && !kept_out;
    if placed.scheduling.policy == Policy::Other && decision.mode == LoopMode::Sleep {
        placed.findings.extend(short_slice(placed.scheduling));
    }
    if wish.counted {
        let counters = Root::system().map_err(std::io::Error::other);
        match counters.and_then(|root| ThreadCounters::open(&root)) {
            Ok(counters) => placed.counters = Some(Arc::new(counters)),
            Err(why) => placed.findings.push(
                Finding::new(Severity::Note, "play.not_counted", "System calls are not counted")
                    .evidence(why.to_string())
                    .remedy("Run as root, on a kernel with tracefs (CONFIG_FTRACE_SYSCALLS)."),
            ),
        }
    }
}

/// What the kernel's counters of a thread say between two moments; nothing where they are not open.
#[derive(Debug)]
pub(crate) struct Counting<'a> {
    counters: Option<&'a ThreadCounters>,
    before: Option<(u64, u64)>,
}

impl<'a> Counting<'a> {
    /// From now on; by the thread itself, last before what is to be counted.
    pub(crate) fn begin(placed: &'a Placed) -> Counting<'a> {
        let counters = placed.counters.as_deref();
        Counting { counters, before: counters.and_then(read) }
    }

    /// Since the thread was placed.
    #[cfg(feature = "audio")]
    pub(crate) fn since_placed(placed: &'a Placed) -> Counting<'a> {
        Counting { counters: placed.counters.as_deref(), before: Some((0, 0)) }
    }

    /// Adds what was counted since; `own`: where the thread itself asks, first after what is to be counted.
    pub(crate) fn end(&self, own: bool, hits: &mut BTreeMap<String, u64>) {
        let Some((counters, before)) = self.counters.zip(self.before) else { return };
        let Some(now) = read(counters) else { return };
        // What is asked first and last: the switches, whose question was one call.
        let calls = now.0.saturating_sub(before.0).saturating_sub(if own { 2 } else { 0 });
        hits.insert("system_calls".to_owned(), calls);
        hits.insert("context_switches".to_owned(), now.1.saturating_sub(before.1));
    }
}

/// System calls and context switches.
fn read(counters: &ThreadCounters) -> Option<(u64, u64)> {
    let switches = counters.switches().ok()?;
    Some((counters.calls().ok()?, switches))
}

/// The shortest that the kernel takes.
const SLICE: Nanos = Nanos::from_micros(100);

/// Asks for a short slice for the calling thread, which needs no right: it is picked the sooner when it wakes. What to know where the
/// kernel took it; before Linux 6.12 it takes none.
///
/// # Source
/// sched_setattr(2), `sched_runtime` of fair policies; kernel/sched/fair.c, EEVDF.
fn short_slice(as_it_is: Scheduling) -> Option<Finding> {
    sched::set_scheduling_with(0, as_it_is, Some(SLICE)).ok()?;
    let slice = sched::slice(0).ok()??;
    let title = "A short slice in place of a priority";
    let finding = Finding::new(Severity::Note, "play.slice", title)
        .evidence(format!("the kernel says {slice}; it is longer where the strip's blocks are"))
        .effect("Its wake-ups come sooner among other ordinary threads; a priority is worth more.");
    Some(finding)
}

/// Where the calling thread has a short slice, has that cover the work of a block: a slice that ends within the work lets others go first
/// in the middle of it. Longer than it has to be it is worth less.
pub(crate) fn cover(placed: &Placed, work: Nanos, period_ns: u64) {
    if placed.scheduling.policy == Policy::Other && placed.mode == LoopMode::Sleep {
        let slice = covering(work, Nanos(period_ns));
        if slice > SLICE {
            let _ = sched::set_scheduling_with(0, placed.scheduling, Some(slice));
        }
    }
}

/// Half as long again as the work, for what a block does around it; no longer than half a period.
fn covering(work: Nanos, period: Nanos) -> Nanos {
    let room = Nanos(work.0.saturating_add(work.0 / 2));
    room.min(Nanos(period.0 / 2)).max(SLICE)
}

/// Attaches the calling thread, seated, to the core that it is to be scheduled by.
pub(crate) fn attach(decision: &Decision, placed: &mut Placed) -> Result<Option<Attached>> {
    if decision.core == SchedulerCore::Kernel {
        return Ok(None);
    }
    let cannot =
        |why: String| Error::of(ErrorKind::Machine, format!("cannot play on the EVL core: {why}"));
    let evl = Evl::open().map_err(|why| cannot(why.to_string()))?;
    let attached = evl.attach(&format!("quietcores:{}", tid()));
    let attached = attached.map_err(|error| cannot(format!("it refuses the thread: {error}")))?;
    placed.evl = Some(evl);
    Ok(Some(attached))
}

/// What to know of a thread that was taken in band while it played.
pub fn taken_in_band(hits: &Hits) -> Option<Finding> {
    let times = hits.in_band.filter(|times| *times > 0)?;
    let count = |name: &str| hits.thread.get(name).copied().unwrap_or(0);
    let faults = count("minor_faults") + count("major_faults");
    Some(
        Finding::new(Severity::Warning, "play.in-band", "The thread did not stay out of band")
            .evidence(format!(
                "the EVL core counts {times} switches in band while it played, and the kernel {faults} page faults"
            ))
            .effect("Each hands the thread to the kernel's scheduler, where everything that delays an ordinary thread delays it.")
            .remedy(
                "A page fault, a signal, a debugger or a system call does that; `perf trace --tid` beside it names the calls.",
            ),
    )
}

/// An ordinary thread.
pub(crate) fn ordinary() -> Scheduling {
    Scheduling { policy: Policy::Other, priority: 0, nice: 0 }
}

/// The interrupts of the CPU between two readings of the machine.
pub(crate) fn interrupts(cpu: Option<CpuId>, before: &State, after: &State, hits: &mut Hits) {
    let Some(cpu) = cpu else { return };
    for (row, count) in after.counters.since(&before.counters, cpu).interrupts {
        match row {
            Interrupt::Vector(name) if name == "LOC" || name == "arch_timer" => {
                hits.ticks = Some(count);
            }
            row if count > 0 => {
                hits.irqs.insert(row.to_string(), count);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::tests::{set, shield};

    fn facts(online: &str) -> Facts {
        Facts {
            online: set(online),
            rttime: None,
            rt_runtime: Some(-1),
            fifo: true,
            lent: false,
            offer: None,
            others: CpuSet::new(),
        }
    }

    fn wish(mode: Option<Wait>, cpu: Option<u32>, shield: Option<Shield>) -> SeatWish {
        SeatWish { cpu: cpu.map(CpuId), mode, priority: 85, shield, ..SeatWish::default() }
    }

    #[test]
    fn it_never_sleeps_inside_a_shield_and_sleeps_elsewhere_unless_told() {
        let inside = choose(&facts("0-3"), &wish(None, None, shield("2-3", false))).unwrap();
        assert_eq!((inside.mode, inside.cpu), (LoopMode::NeverSleep, Some(CpuId(2))));
        assert_eq!((inside.policy, inside.findings), (Some(Policy::Fifo), vec![]));

        let outside = choose(&facts("0-3"), &wish(None, None, None)).unwrap();
        assert_eq!((outside.mode, outside.cpu), (LoopMode::Sleep, None));
        assert_eq!(outside.findings[0].id, "play.asleep");

        let other = choose(&facts("0-3"), &wish(None, Some(1), shield("2-3", false))).unwrap();
        assert_eq!((other.mode, other.shielded), (LoopMode::Sleep, false));

        let told = choose(&facts("0-3"), &wish(Some(Wait::NeverSleep), Some(1), None)).unwrap();
        assert_eq!(told.mode, LoopMode::NeverSleep);
        assert_eq!(told.findings[0].id, "play.unshielded");
    }

    #[test]
    fn a_partition_keeps_a_cpu_for_the_rest_of_the_program() {
        let mode = |cpus: &str, whole, cores, mode| {
            let wish = SeatWish { cores, ..wish(mode, None, shield(cpus, whole)) };
            choose(&facts("0-7"), &wish).map(|it| (it.mode, it.findings.len()))
        };
        let (never, sleep) = (LoopMode::NeverSleep, LoopMode::Sleep);
        for (cpus, cores, wanted) in [
            ("2", 1, sleep),
            ("2-3", 0, never),
            ("2-3", 1, never),
            ("2-3", 2, sleep),
            ("2-4", 2, never),
        ] {
            assert_eq!(mode(cpus, false, cores, None).unwrap().0, never, "{cpus} {cores}");
            let notes = usize::from(wanted == sleep);
            assert_eq!(mode(cpus, true, cores, None).unwrap(), (wanted, notes), "{cpus} {cores}");
            let asked = mode(cpus, true, cores, Some(Wait::NeverSleep));
            assert_eq!(asked.is_err(), wanted == sleep, "{cpus} {cores}");
            if cores == 2 && wanted == sleep {
                assert!(asked.unwrap_err().to_string().contains("shield three CPUs"));
            }
        }
        // Somebody else plays there.
        let beside = |cpus: &str, own| {
            let facts = Facts { others: set("2"), ..facts("0-7") };
            choose(&facts, &wish(None, Some(own), shield(cpus, true))).map(|it| it.mode)
        };
        assert_eq!(beside("2-3", 3).unwrap(), sleep);
        assert_eq!(beside("2-4", 3).unwrap(), never);
        // On its very CPU: that would be nobody's.
        assert_eq!(beside("2-4", 2).unwrap(), sleep);
        let facts = Facts { others: set("2"), ..facts("0-7") };
        // Where nobody says, one that is free; the rest of the program is where something comes free.
        let first = choose(&facts, &wish(None, None, shield("2-3", true))).unwrap();
        assert_eq!((first.cpu, first.mode, first.off), (Some(CpuId(3)), sleep, set("2")));
        let first = choose(&facts, &wish(None, None, shield("2-4", true))).unwrap();
        assert_eq!((first.cpu, first.mode, first.off), (Some(CpuId(3)), never, set("2-3")));
        let asked = choose(&facts, &wish(Some(Wait::NeverSleep), Some(3), shield("2-3", true)));
        let why = asked.unwrap_err().to_string();
        assert!(
            why.contains("others play there too") && why.contains("shield three CPUs"),
            "{why}"
        );
    }

    #[test]
    fn who_is_let_in_by_another_is_let_in_whatever_he_may_by_himself() {
        for own in [false, true] {
            let facts = Facts { fifo: own, lent: true, ..facts("0-3") };
            let inside = choose(&facts, &wish(None, None, shield("2-3", false))).unwrap();
            assert_eq!((inside.lent, inside.policy), (true, Some(Policy::Fifo)), "{own}");
            let outside = choose(&facts, &wish(None, Some(1), shield("2-3", false))).unwrap();
            let policy = if own { Policy::Fifo } else { Policy::Other };
            assert_eq!((outside.lent, outside.policy), (false, Some(policy)), "{own}");
        }
    }

    #[test]
    fn it_refuses_to_spin_on_the_only_cpu() {
        let no = choose(&facts("0"), &wish(Some(Wait::NeverSleep), Some(0), None)).unwrap_err();
        assert!(no.to_string().contains("one CPU"), "{no}");
        let sleeps = choose(&facts("0"), &wish(None, None, None)).unwrap();
        assert_eq!(sleeps.mode, LoopMode::Sleep);
        // A partition of one CPU that swallows whole processes is as bad.
        let crowded = wish(Some(Wait::NeverSleep), None, shield("1", true));
        assert!(choose(&facts("0-1"), &crowded).is_err());
        let auto = choose(&facts("0-1"), &wish(None, None, shield("1", true))).unwrap();
        assert_eq!(auto.mode, LoopMode::Sleep);
        let roomy = choose(&facts("0-3"), &wish(None, None, shield("2-3", true))).unwrap();
        assert_eq!(roomy.mode, LoopMode::NeverSleep);
    }

    #[test]
    fn it_does_not_spin_under_a_policy_that_the_kernel_would_stop() {
        let ask = |change: &dyn Fn(&mut Facts)| {
            let mut facts = facts("0-3");
            change(&mut facts);
            let done = choose(&facts, &wish(None, None, shield("2", false))).unwrap();
            (done.mode, done.policy.unwrap(), done.findings.len())
        };
        assert_eq!(ask(&|_| ()), (LoopMode::NeverSleep, Policy::Fifo, 0));
        let other = (LoopMode::NeverSleep, Policy::Other, 1);
        assert_eq!(ask(&|f| f.rttime = Some(200_000)), other);
        assert_eq!(ask(&|f| f.fifo = false), other);
        assert_eq!(ask(&|f| f.rt_runtime = Some(950_000)), other, "throttled");
    }

    #[test]
    fn the_kernel_does_not_throttle_what_another_core_schedules() {
        let throttled = Facts { rt_runtime: Some(950_000), rttime: Some(200_000), ..facts("0-3") };
        let mut wish = wish(None, None, shield("2", false));
        wish.core = SchedulerCore::Evl;
        let done = choose(&throttled, &wish).unwrap();
        assert_eq!((done.mode, done.policy), (LoopMode::NeverSleep, Some(Policy::Fifo)));
        assert_eq!((done.core, done.findings), (SchedulerCore::Evl, vec![]));
        // It has no way in without the right, and says so before it is asked.
        let poor = Facts { fifo: false, ..throttled };
        assert_eq!(choose(&poor, &wish).unwrap().policy, Some(Policy::Other));
    }

    #[test]
    fn a_thread_that_was_taken_in_band_is_a_finding_with_its_count() {
        let mut hits = Hits::default();
        assert_eq!(taken_in_band(&hits), None, "no EVL core");
        hits.in_band = Some(0);
        assert_eq!(taken_in_band(&hits), None);
        hits.in_band = Some(3);
        hits.thread.insert("minor_faults".into(), 2);
        let found = taken_in_band(&hits).unwrap();
        assert_eq!(found.id, "play.in-band");
        assert!(found.evidence.contains("3 switches") && found.evidence.contains("2 page faults"));
    }

    #[test]
    fn what_the_desktop_lends_is_for_a_thread_that_sleeps() {
        let offer = Some(Offer { priority: 20, run: 200_000 });
        let mut facts = Facts { fifo: false, offer, ..facts("0-3") };
        let asleep = choose(&facts, &wish(None, None, None)).unwrap();
        assert_eq!((asleep.policy, asleep.offer), (Some(Policy::Rr), offer));
        assert!(asleep.findings.iter().any(|f| f.id == "play.rtkit"), "{:?}", asleep.findings);
        let awake = choose(&facts, &wish(None, None, shield("2-3", false))).unwrap();
        assert_eq!((awake.policy, awake.offer), (Some(Policy::Other), None), "it would be ended");
        facts.fifo = true;
        let root = choose(&facts, &wish(None, None, None)).unwrap();
        assert_eq!((root.policy, root.offer), (Some(Policy::Fifo), None));
    }

    #[test]
    fn a_slice_covers_the_work_of_a_block_and_leaves_half_of_the_period_to_others() {
        let us = Nanos::from_micros;
        let slice = |work, period| covering(us(work), us(period));
        assert_eq!(slice(0, 1333), us(100));
        assert_eq!(slice(200, 1333), us(300));
        assert_eq!(slice(900, 1333), Nanos(666_500));
        assert_eq!(covering(Nanos(u64::MAX), us(2666)), us(1333));
    }

    #[test]
    fn an_offline_cpu_is_named_and_spinning_needs_a_cpu() {
        let no = choose(&facts("0-1"), &wish(None, Some(7), None)).unwrap_err();
        assert!(no.to_string().contains("CPU 7") && no.to_string().contains("0-1"), "{no}");
        let no = choose(&facts("0-1"), &wish(Some(Wait::NeverSleep), None, None)).unwrap_err();
        assert!(no.to_string().contains("--cpu"), "{no}");
    }

    #[test]
    fn interrupts_are_those_of_the_cpu_and_of_the_time_between() {
        let state = |counts: &[(Interrupt, u32, u64)]| {
            let mut state = State::default();
            for (row, cpu, n) in counts {
                state.counters.of(CpuId(*cpu)).interrupts.insert(row.clone(), *n);
            }
            state
        };
        let (nine, seven) = (Interrupt::Irq(9), Interrupt::Irq(7));
        let [tick, other] = ["LOC", "RES"].map(Interrupt::from);
        let mut hits = Hits::default();
        let before = state(&[(tick.clone(), 2, 5), (nine.clone(), 2, 3), (other.clone(), 2, 1)]);
        let after = state(&[(tick, 2, 9), (nine, 2, 3), (other, 2, 2), (seven, 1, 8)]);
        interrupts(Some(CpuId(2)), &before, &after, &mut hits);
        assert_eq!(hits.ticks, Some(4));
        assert_eq!(hits.irqs, [("RES".to_owned(), 1)].into());
    }
}
