//! Priorities along the chain, and what may run above it.

use super::{
    facts::{Facts, cpus, is_real_time, only, some, task_name},
    verdict::{Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{
    CpuId, CpuSet,
    chain::{Link, Target},
    finding::{Finding, When},
    machine::{Policy, Preemption, Task},
    printable,
};

const NO_QUIET: &str = "no CPU is set apart for a chain";
const NO_AUDIO: &str = "no program that carries sound is running";

/// Kernel threads that run above everything on every machine, for moments, and cannot be told not to.
const KERNEL_STOPPERS: [&str; 5] =
    ["migration/", "posixcputmr/", "idle_inject/", "cpuhp/", "stopper/"];

pub(super) fn links_absent(f: &Facts) -> Verdict {
    if f.links().is_empty() {
        return moot("no chain was given, or it has no links");
    }
    let found = f
        .links()
        .iter()
        .filter_map(|link| {
            let (what, remedy) = match &link.target {
                Target::Irq(_) if f.link_irqs(link).is_empty() => (
                    "no interrupt of this machine is it",
                    "name it as `quietcores inspect` does, or plug the device in",
                ),
                Target::Process { .. } if f.link_tasks(link).is_empty() => (
                    "no such program or thread is running",
                    "start the program; names are those of `ps -eTo comm`",
                ),
                _ => return None,
            };
            Some(
                problem(format!("link `{}` was not found: {what}", printable(&link.name, 40)))
                    .evidence("/proc/interrupts and the threads in /proc")
                    .effect("this part of the chain gets no CPU and no priority")
                    .remedy(remedy)
                    .when(When::RunTime),
            )
        })
        .collect();
    Verdict::of(found, "every link of the chain is on this machine")
}

/// One element of the path of the sound, with the lowest priority among its threads.
struct Place<'a> {
    name: String,
    task: &'a Task,
}

fn rank(task: &Task) -> u8 {
    if is_real_time(task) { task.scheduling.priority } else { 0 }
}

/// The chain as it runs; without a chain file: player, then the card's interrupt thread.
fn places<'a>(f: &Facts<'a>) -> Vec<Place<'a>> {
    if f.links().is_empty() {
        let audio = f.audio_tasks().into_iter().filter(|t| is_real_time(t)).max_by_key(|t| rank(t));
        let card =
            f.own_irqs().iter().flat_map(|irq| f.irq_threads(irq.number)).max_by_key(|t| rank(t));
        return audio
            .into_iter()
            .chain(card)
            .map(|task| Place { name: task_name(task), task })
            .collect();
    }
    let lowest = |link: &Link| f.link_tasks(link).into_iter().min_by_key(|t| rank(t));
    let place = |link| {
        lowest(link).map(|task| Place { name: format!("`{}`", printable(&link.name, 40)), task })
    };
    f.links().iter().filter_map(place).collect()
}

fn pairs<'p, 'a>(places: &'p [Place<'a>]) -> impl Iterator<Item = (&'p Place<'a>, &'p Place<'a>)> {
    places.windows(2).map(|pair| (&pair[0], &pair[1]))
}

pub(super) fn priority_order(f: &Facts) -> Verdict {
    let places = places(f);
    if places.len() < 2 {
        return moot("fewer than two parts of a chain are running");
    }
    let found = pairs(&places)
        .filter(|(before, after)| rank(before.task) > rank(after.task))
        .map(|(before, after)| inversion(before, after))
        .collect();
    let order: Vec<String> =
        places.iter().map(|p| format!("{} {}", p.name, rank(p.task))).collect();
    Verdict::of(found, format!("priorities do not fall along the chain: {}", order.join(" < ")))
}

fn inversion(before: &Place, after: &Place) -> Finding {
    problem(format!("{} runs above {}, which takes what it delivers", before.name, after.name))
        .evidence(format!(
            "{} has {} ({}), {} has {} ({}); fields 40 and 41 of /proc/TID/stat",
            before.name,
            before.task.scheduling,
            task_name(before.task),
            after.name,
            after.task.scheduling,
            task_name(after.task),
        ))
        .effect("the part nearer to the output waits while the one before it computes: the output runs dry")
        .remedy("let priorities rise towards the output, as 55 < 75 < 80 < 85")
        .when(When::RunTime)
}

pub(super) fn priority_equal(f: &Facts) -> Verdict {
    let places = places(f);
    let found = pairs(&places)
        .filter(|(a, b)| rank(a.task) == rank(b.task) && rank(a.task) > 0)
        .filter(|(a, b)| a.task.allowed.intersects(&b.task.allowed))
        .map(|(a, b)| {
            warning(format!("{} and {} have the same priority on the same CPUs", a.name, b.name))
                .evidence(format!(
                    "both {}; {} and {}",
                    a.task.scheduling,
                    task_name(a.task),
                    task_name(b.task)
                ))
                .effect("whichever began first holds the other up")
                .remedy("give the one nearer to the output the higher priority")
                .when(When::RunTime)
        })
        .collect();
    Verdict::of(found, "no two neighbours of the chain have the same priority")
}

pub(super) fn not_real_time(f: &Facts) -> Verdict {
    let tasks = f.audio_tasks();
    if tasks.is_empty() {
        return moot(NO_AUDIO);
    }
    let mut pids: Vec<u32> = tasks.iter().map(|t| t.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let plain: Vec<String> = pids
        .iter()
        .filter(|pid| !tasks.iter().any(|t| t.pid == **pid && is_real_time(t)))
        .filter_map(|pid| tasks.iter().find(|t| t.tid == *pid).map(|t| task_name(t)))
        .collect();
    if plain.is_empty() {
        return fine("every program that carries sound has a real-time thread");
    }
    warning(format!("{} has no real-time thread", some(&plain, 4)))
        .evidence("policy of every thread, field 41 of /proc/TID/stat")
        .effect("it waits behind every other program, for milliseconds when the machine is busy")
        .remedy("give its link a priority in the chain file; or allow the user real time (see limits.rtprio)")
        .when(When::RunTime)
        .into()
}

pub(super) fn above_chain(f: &Facts) -> Verdict {
    let mut own: Vec<&Task> = f.audio_tasks();
    own.extend(f.own_irqs().iter().flat_map(|irq| f.irq_threads(irq.number)));
    let chain: Vec<&&Task> = own.iter().filter(|t| is_real_time(t)).collect();
    let Some(lowest) = chain.iter().map(|t| rank(t)).min() else {
        return moot("the chain has no real-time thread yet");
    };
    let room = chain.iter().fold(CpuSet::new(), |all, t| all.union(&t.allowed));
    let above: Vec<&Task> = f
        .machine
        .tasks
        .iter()
        .filter(|t| {
            is_real_time(t) && (rank(t) > lowest || t.scheduling.policy == Policy::Deadline)
        })
        .filter(|t| t.allowed.intersects(&room) && !own.iter().any(|o| o.tid == t.tid))
        .filter(|t| !KERNEL_STOPPERS.iter().any(|name| t.comm.starts_with(name)))
        .collect();
    if above.is_empty() {
        return fine("nothing foreign stands above the chain on its CPUs");
    }
    let names: Vec<String> =
        above.iter().map(|t| format!("{} {}", task_name(t), t.scheduling)).collect();
    warning(format!("{} foreign threads stand above the chain on its CPUs", above.len()))
        .evidence(format!("{}; the chain's lowest is {lowest}", some(&names, 6)))
        .effect("each of them stops the chain for as long as it likes")
        .remedy("confine them to the housekeeping CPUs, or lower their priority below the chain's")
        .when(When::RunTime)
        .into()
}

pub(super) fn softirq_threads(f: &Facts) -> Verdict {
    if !f.is_rt() {
        return moot("only on PREEMPT_RT do ksoftirqd and ktimers work for a chain");
    }
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let usb = f.cards().iter().any(|card| card.path.contains("/usb"));
    if !usb {
        return moot("no USB card depends on softirqs");
    }
    let player =
        f.audio_tasks().iter().filter(|t| is_real_time(t)).map(|t| rank(t)).min().unwrap_or(0);
    let low: Vec<String> = f
        .machine
        .tasks
        .iter()
        .filter(|t| {
            t.kernel.is_some()
                && (t.comm.starts_with("ksoftirqd/") || t.comm.starts_with("ktimers/"))
        })
        .filter(|t| t.allowed.len() == 1 && t.allowed.is_subset(&f.quiet) && rank(t) < player)
        .map(|t| format!("{} {}", task_name(t), t.scheduling))
        .collect();
    if low.is_empty() {
        return fine("ksoftirqd and ktimers of the audio CPUs are not below the player");
    }
    note(format!("softirq threads of {} are below the player", cpus(&f.quiet)))
        .evidence(format!("{}; the lowest audio thread has {player}", some(&low, 6)))
        .effect("USB transfers are partly completed in them: a player that computes long delays its own card")
        .remedy("decide it: raise ktimers/N and ksoftirqd/N above the player, or keep its work short")
        .when(When::RunTime)
        .into()
}

pub(super) fn fair_server(f: &Facts) -> Verdict {
    if !f.since(6, 12) {
        return moot(
            "kernels before 6.12 throttle real time by sched_rt_runtime_us (see sched.throttle)",
        );
    }
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let server = |cpu: CpuId, name: &str| {
        let path = format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/{name}");
        f.number(&path)
    };
    let told: Vec<(CpuId, i64)> =
        f.quiet.iter().filter_map(|cpu| Some((cpu, server(cpu, "runtime")?))).collect();
    if told.is_empty() {
        return unknown(
            "/sys/kernel/debug/sched/fair_server cannot be read: it needs root and debugfs",
        );
    }
    let on: Vec<&(CpuId, i64)> = told.iter().filter(|(_, runtime)| *runtime > 0).collect();
    let Some((cpu, runtime)) = on.first() else {
        return fine("the fair server is off on the audio CPUs");
    };
    let period = server(*cpu, "period").unwrap_or(1_000_000_000);
    note(format!("the fair server may take {} ms in every {} ms from the chain", runtime / 1_000_000, period / 1_000_000))
        .evidence(format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime is {runtime} ns"))
        .effect("only when an ordinary task starves there, a kernel worker is enough; a chain that sleeps between periods does not feel it")
        .remedy("for a loop that never sleeps write 0 there, with a guard: per-CPU kernel threads then starve for ever")
        .when(When::RunTime)
        .into()
}

pub(super) fn throttle(f: &Facts) -> Verdict {
    let runtime = f.number("proc/sys/kernel/sched_rt_runtime_us");
    let Some(runtime) = runtime else {
        return unknown("/proc/sys/kernel/sched_rt_runtime_us could not be read");
    };
    if f.since(6, 12) {
        return fine("since 6.12 sched_rt_runtime_us bounds admission only; see sched.fair_server");
    }
    let period = f.number("proc/sys/kernel/sched_rt_period_us").unwrap_or(1_000_000);
    if runtime < 0 || runtime >= period {
        return fine("real-time threads are not throttled");
    }
    note(format!("real-time threads are stopped for {} ms of every {} ms in which they never sleep", (period - runtime) / 1000, period / 1000))
        .evidence(format!("/proc/sys/kernel/sched_rt_runtime_us is {runtime}, sched_rt_period_us is {period}"))
        .effect("a loop that never sleeps is stopped for that long; a chain that sleeps is not")
        .remedy("for such a loop write -1 to sched_rt_runtime_us (`quietcores apply` does, and puts it back)")
        .when(When::RunTime)
        .into()
}

pub(super) fn rt_group(f: &Facts) -> Verdict {
    match f.config("RT_GROUP_SCHED") {
        None => unknown("the kernel's configuration does not tell RT_GROUP_SCHED"),
        Some("y") if f.parameter("rt_group_sched") == Some("0") => fine("RT_GROUP_SCHED is switched off at boot"),
        Some("y") => warning("real-time priorities are refused inside most cgroups on this kernel")
            .evidence("CONFIG_RT_GROUP_SCHED=y")
            .effect("sched_setscheduler answers EPERM in a systemd service, and the program runs without priority")
            .remedy("give the group's cpu.rt_runtime_us a share (cgroup v1), boot with rt_group_sched=0 where the kernel knows it, or use a kernel without the option")
            .when(When::Reboot)
            .into(),
        Some(_) => fine("CONFIG_RT_GROUP_SCHED is not set"),
    }
}

pub(super) fn rtkit(f: &Facts) -> Verdict {
    let Some(daemon) = f.running(&["rtkit-daemon"]).into_iter().next() else {
        return fine("rtkit-daemon does not run");
    };
    let given: Vec<String> = f
        .audio_tasks()
        .into_iter()
        .filter(|t| t.scheduling.policy == Policy::Rr && rank(t) <= 20)
        .map(|t| format!("{} {}", task_name(t), t.scheduling))
        .collect();
    if given.is_empty() {
        return fine("rtkit-daemon runs; no audio thread has its priority from it");
    }
    note("audio threads have their priority from rtkit, which may take it away")
        .evidence(format!("{}; {}", task_name(daemon), some(&given, 4)))
        .effect("at most 20, below interrupt threads (50); its watchdog demotes every such thread when the machine stalls")
        .remedy("allow the user real time directly (see limits.rtprio), and give the link a priority")
        .when(When::Login)
        .into()
}

pub(super) fn runtime_limit(f: &Facts) -> Verdict {
    let limited: Vec<String> = f
        .around
        .processes
        .iter()
        .filter(|p| f.is_audio_program(&p.comm))
        .filter_map(|p| {
            Some(format!("{} (PID {}) {} us", printable(&p.comm, 32), p.pid, p.rttime?))
        })
        .collect();
    if limited.is_empty() {
        return match f.audio_tasks().is_empty() {
            true => moot(NO_AUDIO),
            false => {
                fine("no audio process that was looked at has a limit of uninterrupted real time")
            }
        };
    }
    warning("a limit ends audio threads that do not sleep often enough")
        .evidence(format!("RLIMIT_RTTIME in /proc/PID/limits: {}", some(&limited, 4)))
        .effect("after that time without a blocking call the kernel sends SIGXCPU, then kills: fatal for a loop that never sleeps")
        .remedy("set LimitRTTIME=infinity in its unit; rtkit sets the limit where it gives priorities")
        .when(When::RunTime)
        .into()
}

pub(super) fn unpinned(f: &Facts) -> Verdict {
    if f.quiet.len() < 2 {
        return moot(
            "there are not two CPUs set apart between which threads would have to be spread",
        );
    }
    let loose: Vec<&Task> = f
        .audio_tasks()
        .into_iter()
        .filter(|t| t.allowed.is_subset(&f.quiet) && t.allowed.len() > 1)
        .collect();
    if loose.len() < 2 {
        return fine("threads on the quiet CPUs have one CPU each");
    }
    let names: Vec<String> = loose.iter().map(|t| task_name(t)).collect();
    warning(format!("{} threads may use {} and are pinned to none", loose.len(), cpus(&f.quiet)))
        .evidence(format!("Cpus_allowed_list of {}", some(&names, 6)))
        .effect("the kernel does not balance isolated CPUs: they may all sit on one while the others idle")
        .remedy("give each link its `cpus` in the chain file")
        .when(When::RunTime)
        .into()
}

pub(super) fn crowded(f: &Facts) -> Verdict {
    let pinned: Vec<&Task> =
        f.audio_tasks().into_iter().filter(|t| t.allowed.len() == 1 && is_real_time(t)).collect();
    let free: Vec<CpuId> = f
        .quiet
        .iter()
        .filter(|cpu| !f.audio_tasks().iter().any(|t| t.allowed.contains(*cpu)))
        .filter(|cpu| {
            !f.own_irqs().iter().any(|irq| irq.effective.as_ref().is_some_and(|e| e.contains(*cpu)))
        })
        .collect();
    let Some(free) = free.first() else {
        return moot("no quiet CPU is left unused");
    };
    for cpu in f.quiet.iter() {
        let mut here: Vec<u32> =
            pinned.iter().filter(|t| t.allowed == only(cpu)).map(|t| t.pid).collect();
        here.sort_unstable();
        here.dedup();
        if here.len() > 1 {
            return note(format!(
                "{} audio programs are pinned to CPU {cpu} while CPU {free} is unused",
                here.len()
            ))
            .evidence("Cpus_allowed_list of their threads")
            .effect("one waits for the other at every period")
            .remedy(format!("move one link to CPU {free}"))
            .when(When::RunTime)
            .into();
        }
    }
    fine("no two audio programs share a CPU while another is unused")
}

pub(super) fn own_priority(f: &Facts) -> Verdict {
    let found: Vec<Finding> = f
        .links()
        .iter()
        .filter_map(|link| {
            let wanted = link.priority?;
            let other: Vec<&Task> = f
                .link_tasks(link)
                .into_iter()
                .filter(|t| !is_real_time(t) || t.scheduling.priority != wanted)
                .collect();
            let first = other.first()?;
            Some(
                warning(format!(
                    "{} threads of `{}` do not have the priority {wanted} that the chain gives them",
                    other.len(),
                    printable(&link.name, 40)
                ))
                .evidence(format!("{} has {}; field 40 of /proc/TID/stat", task_name(first), first.scheduling))
                .effect("the order of the chain is not the one that was planned")
                .remedy("apply the chain; some programs set their own priority when they start or open a device, and `quietcores watch` sets it again")
                .when(When::RunTime),
            )
        })
        .collect();
    if f.links().iter().all(|link| link.priority.is_none()) {
        return moot("no chain with priorities was given");
    }
    Verdict::of(found, "every link has the priority that the chain gives it")
}

/// How the kernel preempts; with `PREEMPT_DYNAMIC` by its boot parameter, else as it was built.
fn in_force(f: &Facts) -> Preemption {
    let built = |name: &str| f.config(name) == Some("y");
    if f.machine.kernel.preemption != Preemption::Dynamic {
        return f.machine.kernel.preemption;
    }
    match f.parameter("preempt") {
        Some("none") => Preemption::None,
        Some("voluntary") => Preemption::Voluntary,
        Some("full") => Preemption::Full,
        Some("lazy") => Preemption::Lazy,
        _ if built("PREEMPT_VOLUNTARY") => Preemption::Voluntary,
        _ if built("PREEMPT_NONE") => Preemption::None,
        _ if built("PREEMPT_LAZY") => Preemption::Lazy,
        _ if built("PREEMPT") => Preemption::Full,
        _ => Preemption::Dynamic,
    }
}

pub(super) fn preemption(f: &Facts) -> Verdict {
    let kernel = &f.machine.kernel;
    let told = format!("/proc/sys/kernel/version: {}", printable(&kernel.version, 120));
    let slow = |what: &str, how: &str| {
        problem(format!("the kernel {what}"))
            .evidence(told.clone())
            .effect("a system call of any other program on that CPU holds the audio thread up, for milliseconds at worst")
            .remedy(how)
            .when(When::Reboot)
    };
    match in_force(f) {
        Preemption::Rt => fine("PREEMPT_RT"),
        Preemption::Full => fine("it preempts everywhere but in locked sections (PREEMPT); PREEMPT_RT does so there too"),
        Preemption::None => slow("does not preempt itself", "boot a low-latency or PREEMPT_RT kernel; with PREEMPT_DYNAMIC, preempt=full").into(),
        Preemption::Voluntary => slow("preempts itself only at chosen points", "boot with preempt=full where PREEMPT_DYNAMIC is built in, else a PREEMPT_RT kernel").into(),
        Preemption::Lazy => warning("the kernel preempts ordinary tasks lazily")
            .evidence(told)
            .effect("real-time threads preempt at once; audio threads without real time wait for the next tick")
            .remedy("run every audio thread real time, or boot with preempt=full")
            .when(When::Reboot)
            .into(),
        Preemption::Dynamic => unknown("PREEMPT_DYNAMIC: the mode in force is in /sys/kernel/debug/sched/preempt, which only root with debugfs can read; preempt=full at boot settles it"),
        Preemption::Unknown => unknown("nothing readable tells how this kernel preempts"),
    }
}

pub(super) fn threadirqs(f: &Facts) -> Verdict {
    if f.threads_irqs() {
        return fine("interrupts are handled in threads, which have priorities");
    }
    let wants =
        f.links().iter().any(|l| matches!(l.target, Target::Irq(_)) && l.priority.is_some());
    if !wants {
        return moot(
            "nothing asks for priorities of interrupts; where the audio CPU has only its own, handlers without threads are faster",
        );
    }
    warning("interrupts have no threads on this kernel, so a link that is an interrupt has no priority")
        .evidence("neither PREEMPT_RT nor threadirqs in /proc/cmdline")
        .effect("its handler runs above everything, as does that of every other device on its CPU")
        .remedy("boot with threadirqs or a PREEMPT_RT kernel; or leave the priority out and keep foreign interrupts off that CPU")
        .when(When::Reboot)
        .into()
}
