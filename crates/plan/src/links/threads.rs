//! Which threads of its processes a link places, and what is left of them.

use super::Found;
use crate::{lookup::Lookup, note, owner::is_thread, warning};
use quiet_types::{
    Finding,
    chain::{PipeWire, Target},
    machine::{Policy, Task},
    printable,
};
use std::collections::HashMap;

/// More threads are counted, not named.
const TOLD: usize = 8;

/// Gives each link its threads: those that its list names, or all that no other link's list names. One that runs under
/// `SCHED_DEADLINE` is nobody's: the kernel would not give its budget back.
pub(super) fn share_out<'a>(on: &Lookup<'a>, links: &mut [Found<'a>], findings: &mut Vec<Finding>) {
    let mut taken: HashMap<u32, usize> = HashMap::new();
    let list = |link: &Found<'a>| match link.target {
        Target::Process { threads, .. } => threads.as_slice(),
        Target::Irq(_) => &[],
    };
    for by_list in [true, false] {
        for at in 0..links.len() {
            let wanted = list(&links[at]);
            if links[at].firsts.is_empty() || wanted.is_empty() == by_list {
                continue;
            }
            let early = early_loops(on, &links[at]);
            let named = |task: &Task| {
                wanted.iter().any(|name| is_thread(name, &task.comm)) || early.contains(&task.tid)
            };
            let mut twice = Vec::new();
            for task in
                on.threads(&links[at].firsts).into_iter().filter(|task| !by_list || named(task))
            {
                match taken.get(&task.tid) {
                    None => {
                        taken.insert(task.tid, at);
                        links[at].tasks.push(task);
                    }
                    Some(_) if by_list => twice.push(task),
                    Some(_) => {}
                }
            }
            if let Some(first) = twice.first() {
                let other = taken.get(&first.tid).map(|at| links[*at].name).unwrap_or_default();
                findings.push(
                    warning(
                        "plan.thread-twice",
                        format!(
                            "threads of link `{}` are another link's already",
                            name(&links[at])
                        ),
                    )
                    .evidence(format!("{}: of link `{}`", told(&twice), printable(other, 60)))
                    .effect("they are placed as the first link says")
                    .remedy("let each thread be named by one link"),
                );
            }
        }
    }
    for link in links.iter_mut() {
        let all = on.threads(&link.firsts);
        let left = all.iter().copied().filter(|task| !taken.contains_key(&task.tid)).collect();
        link.unlisted = left;
        let (deadline, others): (Vec<&Task>, Vec<&Task>) =
            link.tasks.iter().partition(|task| task.scheduling.policy == Policy::Deadline);
        link.tasks = others;
        if !deadline.is_empty() {
            findings.push(
                warning("plan.link-deadline", format!("threads of link `{}` keep SCHED_DEADLINE", name(link)))
                    .evidence(told(&deadline))
                    .effect("they stand above every priority of the chain, on the CPUs that they have")
                    .remedy("name the other threads of the link in `threads`, or have the program use SCHED_FIFO"),
            );
        }
        absent(link, &all, findings);
        unlisted(link, findings);
    }
    order(links, findings);
}

/// Whether a link is data loops of PipeWire's, by the names that PipeWire gives them.
fn is_pipewire(link: &Found<'_>) -> bool {
    matches!(link.target, Target::Process { threads, pipewire: Some(_), .. } if threads.as_slice() == [PipeWire::LOOPS])
}

/// Data loops of versions that did not call them `data-loop.0` yet. From 1.0.1 to 1.1 they are called `pw-data-loop`; before, as the
/// program that made them: a program that has several such threads does not show which one it is.
///
/// # Source
/// `pw_data_loop_start` of PipeWire's data-loop.c: 0.3.65 gives the thread no name.
fn early_loops(on: &Lookup<'_>, link: &Found<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    for first in link.firsts.iter().filter(|_| is_pipewire(link)) {
        let all = on.threads(&[first]);
        let called = |name: &str| -> Vec<u32> {
            let like =
                all.iter().filter(|task| task.tid != first.tid && is_thread(name, &task.comm));
            like.map(|task| task.tid).collect()
        };
        let (now, early, unnamed) =
            (called(PipeWire::LOOPS), called("pw-data-loop"), called(&first.comm));
        match (now.is_empty(), early.is_empty(), unnamed.as_slice()) {
            (true, false, _) => found.extend(early),
            (true, true, [one]) => found.push(*one),
            _ => {}
        }
    }
    found
}

/// Names of a list that no thread has: one that is not born yet, or one that is spelt in another way.
fn absent(link: &Found<'_>, all: &[&Task], findings: &mut Vec<Finding>) {
    let Target::Process { threads, .. } = link.target else { return };
    if link.firsts.is_empty() || is_pipewire(link) && !link.tasks.is_empty() {
        return;
    }
    let has = |wanted: &&String| !all.iter().any(|task| is_thread(wanted, &task.comm));
    let absent: Vec<String> =
        threads.iter().filter(has).map(|name| format!("`{}`", printable(name, 60))).collect();
    if absent.is_empty() {
        return;
    }
    let title = format!("no thread of link `{}` is called {}", name(link), absent.join(", "));
    // Where all that are there have their place, the others are to come.
    findings.push(if link.unlisted.is_empty() {
        note("plan.thread-absent", title).effect("a watch places them once they are born")
    } else {
        warning("plan.thread-absent", title)
            .evidence(format!("in no list: {}", told(&link.unlisted)))
            .effect("if one of these is meant, it stays where it is")
            .remedy("correct `threads` of the link, or start what it does (playing) and apply again; * stands for any characters")
    });
}

fn unlisted(link: &Found<'_>, findings: &mut Vec<Finding>) {
    if link.unlisted.is_empty() {
        return;
    }
    findings.push(
        note(
            "plan.threads-unlisted",
            format!(
                "some threads of link `{}` are in no list, and keep what they have",
                name(link)
            ),
        )
        .evidence(told(&link.unlisted))
        .effect("where the whole process enters the shield they may run on any of its CPUs")
        .remedy("name them in `threads`, or leave it out to place all"),
    );
}

/// Real-time threads of a link that the plan leaves as they are, and that do not stand between the links before and after it.
fn order<'a>(links: &[Found<'a>], findings: &mut Vec<Finding>) {
    let own = |link: &Found<'a>| Some((link.priority?, link.name));
    // The lowest among those from each link on.
    let mut lowest = vec![None; links.len() + 1];
    for (at, link) in links.iter().enumerate().rev() {
        lowest[at] = [own(link), lowest[at + 1]].into_iter().flatten().min();
    }
    let mut highest = None;
    for (at, link) in links.iter().enumerate() {
        let (before, after) = (highest, lowest[at + 1]);
        highest = highest.max(own(link));
        let left = link.tasks.iter().filter(|_| link.priority.is_none()).chain(&link.unlisted);
        let wrong: Vec<&Task> = left
            .copied()
            .filter(|task| matches!(task.scheduling.policy, Policy::Fifo | Policy::Rr))
            .filter(|task| {
                let own = task.scheduling.priority;
                before.is_some_and(|(p, _)| own <= p) || after.is_some_and(|(p, _)| own >= p)
            })
            .collect();
        if wrong.is_empty() {
            continue;
        }
        let beside: Vec<String> = [before, after]
            .into_iter()
            .flatten()
            .map(|(priority, name)| format!("link `{}` has {priority}", printable(name, 60)))
            .collect();
        findings.push(
            warning(
                "plan.order-broken",
                format!("threads of link `{}` break the order of priorities", name(link)),
            )
            .evidence(format!("{}; {}", told(&wrong), beside.join(", ")))
            .effect("a link that comes later in the chain waits for one that comes before it")
            .remedy("name them in `threads` of the link, so that they get its priority"),
        );
    }
}

fn name(link: &Found<'_>) -> String {
    printable(link.name, 60)
}

pub(super) fn told(tasks: &[&Task]) -> String {
    let mut names: Vec<String> = tasks
        .iter()
        .take(TOLD)
        .map(|task| {
            format!("thread {} ({}) {}", task.tid, printable(&task.comm, 32), task.scheduling)
        })
        .collect();
    if tasks.len() > TOLD {
        names.push(format!("and {} more", tasks.len() - TOLD));
    }
    names.join(", ")
}
