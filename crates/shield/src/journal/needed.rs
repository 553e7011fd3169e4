//! Of which threads and interrupts a journal is to tell still: of those that are there, and of what those may have from who has ended.

use super::{Key, Past, key};
use crate::{change::Change, served, tasks};
use quiet_linux::Kernel;
use quiet_types::{CpuSet, GroupPath, machine::Policy, plan::Thread};
use std::collections::{HashMap, HashSet};

/// What there is still to be told of.
pub(super) struct Needed<'a> {
    kernel: &'a dyn Kernel,
    past: &'a Past,
    threads: HashSet<Key>,
    /// The interrupts that are there; `None` where that cannot be told.
    irqs: Option<HashSet<u32>>,
}

/// What the living may have from somebody who has ended.
struct Heirs {
    /// What those run at of whom the journal does not tell.
    priorities: HashSet<(Policy, u8)>,
    /// The processes that began a process group or a session which has members.
    leaders: HashSet<u32>,
}

impl Heirs {
    /// `None` where threads cannot be listed.
    fn look(kernel: &dyn Kernel, known: &HashSet<Key>) -> Option<Heirs> {
        let mut heirs = Heirs { priorities: HashSet::new(), leaders: HashSet::new() };
        let look = |_, one: tasks::Identity| {
            heirs.leaders.extend(one.leaders);
            if !one.kernel
                && !known.contains(&key(&one.thread))
                && let Ok(now) = kernel.scheduling(one.thread.tid)
            {
                heirs.priorities.insert((now.policy, now.priority));
            }
        };
        tasks::each(kernel, |_| true, look).ok().map(|()| heirs)
    }
}

impl<'a> Needed<'a> {
    /// What the journal that `past` was read from has still to tell of.
    pub fn of(kernel: &'a dyn Kernel, past: &'a Past) -> Needed<'a> {
        let irqs = kernel.list("/proc/irq").ok();
        let irqs = irqs.map(|all| all.iter().filter_map(|name| name.parse().ok()).collect());
        Needed { kernel, past, threads: threads(kernel, past), irqs }
    }

    pub fn thread(&self, thread: &Thread) -> bool {
        self.threads.contains(&key(thread))
    }

    /// Whether an interrupt is there.
    pub fn number(&self, number: u32) -> bool {
        self.irqs.as_ref().is_none_or(|there| there.contains(&number))
    }

    /// Whether an interrupt is there and no other device's that is known by name.
    pub fn irq(&self, number: u32, name: &str) -> bool {
        let is_anothers = || {
            served::serves_another(self.kernel, number, name)
                && !served::actions(self.kernel, number).is_empty()
        };
        self.number(number) && !is_anothers()
    }

    /// Whether the interrupt of that number was there when the shield was put up: who has its number later is told from it by one note.
    pub fn was_there(&self, number: u32) -> bool {
        self.past.irqs.iter().any(|(known, _)| *known == number)
    }
}

/// Those that live. Of those that have ended: who gave a priority that somebody may have inherited, one for each; and who was moved, where
/// somebody may have come with it whose way home it tells: each that began a process group or a session, and one for each group.
fn threads(kernel: &dyn Kernel, past: &Past) -> HashSet<Key> {
    let mut over = HashMap::new();
    let mut is_over = |thread: &Thread| {
        *over.entry(key(thread)).or_insert_with(|| tasks::is_over(kernel, thread))
    };
    let mut needed = HashSet::new();
    let mut cpus: HashMap<Key, &CpuSet> = HashMap::new();
    for (_, change) in &past.changes {
        let threads: &mut dyn Iterator<Item = &Thread> = match change {
            Change::Remember { threads } | Change::Move { threads, .. } => {
                &mut threads.iter().map(|(thread, _)| thread)
            }
            Change::Affinity { threads } => {
                cpus.extend(threads.iter().map(|one| (key(&one.thread), &one.new)));
                &mut threads.iter().map(|one| &one.thread)
            }
            Change::Scheduling { thread, .. } | Change::Ban { daemon: thread, .. } => {
                &mut std::iter::once(thread)
            }
            _ => continue,
        };
        needed.extend(threads.filter(|thread| !is_over(thread)).map(key));
    }
    let guests = past.guests.iter().flat_map(|one| [&one.thread, &one.entered]);
    needed.extend(guests.filter(|thread| !is_over(thread)).map(key));
    let heirs = Heirs::look(kernel, &needed);
    let mut there = HashMap::new();
    let mut is_there = |file: &GroupPath| {
        let group = || file.parent().is_some_and(|group| kernel.list(&group).is_ok());
        *there.entry(file.clone()).or_insert_with(group)
    };
    let (mut given, mut moved) = (HashSet::new(), HashSet::new());
    for (_, change) in &past.changes {
        match change {
            Change::Scheduling { thread, old, new, .. } if !needed.contains(&key(thread)) => {
                let priority = (new.policy, new.priority);
                if heirs.as_ref().is_none_or(|heirs| heirs.priorities.contains(&priority))
                    && given.insert(format!("{old:?} {new:?} {:?}", cpus.get(&key(thread))))
                {
                    needed.insert(key(thread));
                }
            }
            Change::Move { from, to, threads, .. } if is_there(from) => {
                let ended = threads.iter().map(|(thread, _)| thread);
                for thread in ended.filter(|thread| is_over(thread)) {
                    let leads =
                        heirs.as_ref().is_some_and(|heirs| heirs.leaders.contains(&thread.tid));
                    if moved.insert((from, to)) || leads {
                        needed.insert(key(thread));
                    }
                }
            }
            _ => {}
        }
    }
    needed
}
