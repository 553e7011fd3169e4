//! What became of each thread under a shield, as the journal tells it.

use crate::{
    change::Change,
    journal::{Key, Past},
};
use quiet_types::{CpuSet, GroupPath, shield::Shield};
use std::collections::{HashMap, HashSet};

/// What the journal knows of one thread: a revert may be the second one, and meet what the first
/// one has put back already.
#[derive(Default)]
pub(crate) struct Life<'a> {
    /// CPUs that it had before one of our changes.
    pub before: Vec<&'a CpuSet>,
    /// CPUs that we gave it.
    pub given: Vec<&'a CpuSet>,
    /// Files of the groups that it was taken from.
    pub homes: Vec<&'a GroupPath>,
}

/// What the journal knows of every thread in it, by TID and start time.
pub(crate) fn of(past: &Past) -> HashMap<(u32, u64), Life<'_>> {
    let mut lives: HashMap<(u32, u64), Life<'_>> = HashMap::new();
    for (_, change) in &past.changes {
        match change {
            Change::Remember { threads } => {
                for (thread, old) in threads {
                    lives.entry((thread.tid, thread.start)).or_default().before.push(old);
                }
            }
            Change::Move { from, threads, .. } => {
                for (thread, old) in threads {
                    let life = lives.entry((thread.tid, thread.start)).or_default();
                    life.before.push(old);
                    life.homes.push(from);
                }
            }
            Change::Affinity { threads, .. } => {
                for one in threads {
                    let life = lives.entry((one.thread.tid, one.thread.start)).or_default();
                    life.before.push(&one.old);
                    life.given.push(&one.new);
                }
            }
            _ => {}
        }
    }
    lives
}

/// Threads that were put onto the shield, by the last word about each.
pub(crate) fn placed(past: &Past, shield: &Shield) -> HashSet<Key> {
    let lives = of(past);
    let onto = lives
        .iter()
        .filter(|(_, life)| life.given.last().is_some_and(|cpus| cpus.intersects(&shield.cpus)));
    onto.map(|((tid, start), _)| (*tid, *start)).collect()
}
