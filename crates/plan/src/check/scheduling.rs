//! Priorities along the chain, and what may run above it.

use super::{
    facts::{Facts, count, cpus, is_real_time, some, task_name},
    verdict::{NO_AUDIO, NO_QUIET, Verdict, fine, moot, note, problem, warning},
};
use crate::owner;
use quiet_types::{
    CpuId, CpuSet,
    chain::{Link, Target},
    finding::{Finding, When},
    machine::{Policy, Task},
    printable,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Kernel threads of one CPU each that nobody can do without: they run for moments, and those that
/// serve softirqs are looked at by themselves.
const OF_THE_CPU: [&str; 11] = [
    "migration/",
    "posixcputmr/",
    "idle_inject/",
    "cpuhp/",
    "stopper/",
    "ksoftirqd/",
    "ktimers/",
    "ktimersoftd/",
    "rcuc/",
    "irq_work/",
    "backlog_napi/",
];

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
                Target::Process { comm, owner, .. } if f.link_tasks(link).is_empty() => {
                    let others = f.others(comm, owner);
                    if !others.is_empty() {
                        let told: Vec<String> =
                            others.iter().map(|first| owner::who(f.machine, first)).collect();
                        return Some(not_its_own(f, link, &told, &others));
                    }
                    (
                        "no such program or thread is running",
                        "start the program; names are those of `ps -eTo comm`",
                    )
                }
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

fn not_its_own(f: &Facts, link: &Link, told: &[String], others: &[&Task]) -> Finding {
    problem(format!(
        "link `{}` was not found: programs of its name are not those that the chain means",
        printable(&link.name, 40)
    ))
    .evidence(format!("{}; Uid in /proc/PID/status", some(told, 4)))
    .effect("this part of the chain gets no CPU and no priority")
    .remedy(format!(
        "where one of them is the link, say whose it is: {}",
        owner::line(f.machine, others)
    ))
    .when(When::RunTime)
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
        let audio = f.audio_tasks().iter().copied().filter(|t| is_real_time(t));
        let audio = audio.max_by_key(|t| rank(t));
        let card = f.own_handlers().into_iter().max_by_key(|t| rank(t));
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
        .map(|(before, after)| inversion(f, before, after))
        .collect();
    let order: Vec<String> =
        places.iter().map(|p| format!("{} {}", p.name, rank(p.task))).collect();
    Verdict::of(found, format!("priorities do not fall along the chain: {}", order.join(" < ")))
}

fn inversion(f: &Facts, before: &Place, after: &Place) -> Finding {
    let title = format!("{} runs above {}, which takes what it delivers", before.name, after.name);
    // Without a chain the order is only what is usual.
    let finding = if f.links().is_empty() { warning(title) } else { problem(title) };
    let told = |place: &Place| format!("{} has {}", task_name(place.task), place.task.scheduling);
    finding
        .evidence(format!("{}, {}; fields 40 and 41 of /proc/TID/stat", told(before), told(after)))
        .effect(
            "the part nearer to the output waits while the one before it computes: \
            the output runs dry",
        )
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
                    "both {}; {} and {}, fields 40 and 41 of /proc/TID/stat",
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
    let real_time: HashSet<u32> = tasks.iter().filter(|t| is_real_time(t)).map(|t| t.pid).collect();
    let firsts = tasks.iter().filter(|t| t.pid == t.tid);
    let plain: Vec<String> =
        firsts.filter(|t| !real_time.contains(&t.pid)).map(|t| task_name(t)).collect();
    if plain.is_empty() {
        return fine("every program that carries sound has a real-time thread");
    }
    warning(format!("{} has no real-time thread", some(&plain, 4)))
        .evidence("policy of every thread, field 41 of /proc/TID/stat")
        .effect("it waits behind every other program, for milliseconds when the machine is busy")
        .remedy(
            "give its link a priority in the chain file; or allow the user \
                real time (see limits.rtprio)",
        )
        .when(When::RunTime)
        .into()
}

pub(super) fn above_chain(f: &Facts) -> Verdict {
    let mut own: Vec<&Task> = f.audio_tasks().to_vec();
    own.extend(f.own_handlers());
    // Of those on the same CPUs the lowest is what others are above.
    let mut chain: HashMap<&CpuSet, u8> = HashMap::new();
    for task in own.iter().filter(|t| is_real_time(t)) {
        let lowest = chain.entry(&task.allowed).or_insert(rank(task));
        *lowest = rank(task).min(*lowest);
    }
    let own: HashSet<u32> = own.iter().map(|t| t.tid).collect();
    if chain.is_empty() {
        return moot("the chain has no real-time thread yet");
    }
    let over = |t: &Task| {
        chain.iter().any(|(cpus, lowest)| {
            t.allowed.intersects(cpus)
                && (rank(t) > *lowest || t.scheduling.policy == Policy::Deadline)
        })
    };
    let above: Vec<&Task> = f
        .machine
        .tasks
        .iter()
        .filter(|t| is_real_time(t) && !own.contains(&t.tid))
        .filter(|t| over(t) && !OF_THE_CPU.iter().any(|name| t.comm.starts_with(name)))
        .collect();
    if above.is_empty() {
        return fine("nothing foreign stands above the chain on its CPUs");
    }
    let names: Vec<String> =
        above.iter().map(|t| format!("{} {}", task_name(t), t.scheduling)).collect();
    warning(format!("the chain has {} above it on its CPUs", count(above.len(), "foreign thread")))
        .evidence(format!("{}; fields 40 and 41 of /proc/TID/stat", some(&names, 6)))
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
        .evidence(format!(
            "{}; the lowest audio thread has {player}; field 40 of /proc/TID/stat",
            some(&low, 6)
        ))
        .effect(
            "USB transfers are partly completed in them: a player that \
                computes long delays its own card",
        )
        .remedy(
            "decide it: raise ktimers/N and ksoftirqd/N above the player, or keep its work short",
        )
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
        .iter()
        .copied()
        .filter(|t| t.allowed.is_subset(&f.quiet) && t.allowed.len() > 1)
        .collect();
    if loose.len() < 2 {
        return fine("threads on the quiet CPUs have one CPU each");
    }
    let names: Vec<String> = loose.iter().map(|t| task_name(t)).collect();
    warning(format!(
        "{} may use {} and are pinned to none",
        count(loose.len(), "thread"),
        cpus(&f.quiet)
    ))
    .evidence(format!("Cpus_allowed_list in /proc/TID/status of {}", some(&names, 6)))
    .effect(
        "the kernel does not balance isolated CPUs: they may all sit on \
                one while the others idle",
    )
    .remedy("give each link its `cpus` in the chain file")
    .when(When::RunTime)
    .into()
}

pub(super) fn crowded(f: &Facts) -> Verdict {
    let tasks = f.audio_tasks().iter().map(|t| &t.allowed);
    let irqs = f.own_irqs().iter().filter_map(|irq| irq.effective.as_ref());
    let used = tasks.chain(irqs).fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let Some(free) = f.quiet.difference(&used).first() else {
        return moot("no quiet CPU is left unused");
    };
    let mut pinned: BTreeMap<CpuId, HashSet<u32>> = BTreeMap::new();
    for task in f.audio_tasks().iter().filter(|t| t.allowed.len() == 1 && is_real_time(t)) {
        if let Some(cpu) = task.allowed.first().filter(|cpu| f.quiet.contains(*cpu)) {
            pinned.entry(cpu).or_default().insert(task.pid);
        }
    }
    for (cpu, here) in pinned {
        if here.len() > 1 {
            return note(format!(
                "{} audio programs are pinned to CPU {cpu} while CPU {free} is unused",
                here.len()
            ))
            .evidence("Cpus_allowed_list in /proc/TID/status of their threads")
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
                    "{} of `{}` without the priority {wanted} of the chain",
                    count(other.len(), "thread"),
                    printable(&link.name, 40)
                ))
                .evidence(format!(
                    "{} has {}; field 40 of /proc/TID/stat",
                    task_name(first),
                    first.scheduling
                ))
                .effect("the order of the chain is not the one that was planned")
                .remedy(
                    "apply the chain; some programs set their own priority \
                        when they start or open a device: apply again after that",
                )
                .when(When::RunTime),
            )
        })
        .collect();
    if f.links().iter().all(|link| link.priority.is_none()) {
        return moot("no chain with priorities was given");
    }
    Verdict::of(found, "every link has the priority that the chain gives it")
}
