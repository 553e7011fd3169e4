//! Threads: their CPUs, groups and scheduling, also of those born since.

use super::Hand;
use crate::{
    change::{Change, Confined, outside},
    error::{is_gone, task_reason},
    lives::Life,
    tally::Tally,
    tasks,
};
use quiet_types::{
    CpuSet,
    machine::Scheduling,
    plan::{PutBack, Return, Thread},
    shield::Mechanism,
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
};

impl<'a> Hand<'a> {
    /// Gives threads the CPUs that they had before one of our changes.
    pub(super) fn affinities(&self, what: &str, threads: &'a [Confined]) -> Vec<PutBack> {
        let mut tally = Tally::new(what);
        // Within a group a thread has no more than the group has: what came of it is seen at the end, by what was remembered. What a
        // watch noted may be what somebody else had given it meanwhile.
        let give = |one: &'a Confined| match self.give(one.thread.tid, &one.old) {
            Return::Refused { .. } => {
                self.waiting.borrow_mut().push((&one.thread, &one.old));
                Return::Untouched
            }
            other => other,
        };
        for one in threads {
            if !tasks::lives(self.kernel, &one.thread) {
                continue;
            }
            let outcome = match self.allowed(one.thread.tid) {
                Ok(now) if now == one.old => Return::Untouched,
                Ok(now) if now == one.new || self.is_shrunk(&now, &one.old) => give(one),
                Ok(now) if self.had(&one.thread, &now) => Return::Untouched,
                // The thread of an interrupt follows it on its own.
                Ok(_) if one.thread.comm.starts_with("irq/") => give(one),
                Ok(_) if tasks::became_bound(self.kernel, one.thread.tid) => Return::Gone,
                Ok(now) => Return::Left { now: format!("CPU {now}") },
                Err(_) => Return::Gone,
            };
            tally.add(&one.thread, outcome);
        }
        tally.items()
    }

    /// What was refused while the shield stood, of threads that were not there before it and still have what we gave them.
    pub(super) fn waited(&self, remembered: &[(Thread, CpuSet)]) -> Vec<PutBack> {
        let mut tally = Tally::new("CPUs that were refused within the shield");
        let known: HashSet<(u32, u64)> =
            remembered.iter().map(|(thread, _)| (thread.tid, thread.start)).collect();
        // The last one that was refused was noted first.
        let mut done = HashSet::new();
        for (thread, old) in self.waiting.borrow().iter().rev() {
            let who = (thread.tid, thread.start);
            if known.contains(&who)
                || !done.insert(who)
                || !tasks::lives(self.kernel, thread)
                || !self.allowed(thread.tid).is_ok_and(|now| self.was_given(thread, &now))
            {
                continue;
            }
            tally.add(thread, self.set_affinity(thread.tid, old));
        }
        tally.items()
    }
}

impl Hand<'_> {
    fn was_given(&self, thread: &Thread, cpus: &CpuSet) -> bool {
        let life = self.lives.get(&(thread.tid, thread.start));
        life.is_some_and(|life| life.given.contains(&cpus))
    }

    fn allowed(&self, tid: u32) -> io::Result<CpuSet> {
        tasks::allowed(self.kernel, tid, &self.off_line)
    }

    /// Whether `thread` had `cpus` before one of our changes, or was given them by one; the kernel
    /// itself gives all those of a group to a thread whose own are not within it.
    fn had(&self, thread: &Thread, cpus: &CpuSet) -> bool {
        if *cpus == self.shield.cpus || *cpus == self.shield.housekeeping {
            return true;
        }
        self.lives.get(&(thread.tid, thread.start)).is_some_and(|life| {
            life.before.iter().any(|before| *before == cpus || self.is_shrunk(cpus, before))
                || life.given.contains(&cpus)
        })
    }

    pub(super) fn scheduling(&self, thread: &Thread, old: Scheduling, new: Scheduling) -> Return {
        let now = match self.kernel.scheduling(thread.tid) {
            Ok(now) if tasks::lives(self.kernel, thread) => now,
            _ => return Return::Gone,
        };
        if now == old {
            return Return::Untouched;
        }
        if (now.policy, now.priority) != (new.policy, new.priority) {
            return Return::Left { now: now.to_string() };
        }
        match self.act(|kernel| kernel.set_scheduling(thread.tid, old)) {
            Ok(()) => Return::Restored,
            Err(error) if is_gone(&error) => Return::Gone,
            Err(error) => Return::Refused { reason: task_reason(&error) },
        }
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> Return {
        match self.give(tid, cpus) {
            Return::Restored => self.as_far_as_online(tid, cpus),
            other => other,
        }
    }

    fn give(&self, tid: u32, cpus: &CpuSet) -> Return {
        match self.act(|kernel| kernel.set_affinity(tid, cpus)) {
            Ok(()) => Return::Restored,
            Err(error) if is_gone(&error) => Return::Gone,
            Err(_) if tasks::became_bound(self.kernel, tid) => Return::Gone,
            Err(error) => Return::Refused { reason: task_reason(&error) },
        }
    }

    /// Kernels before 6.2 forget those of a thread's CPUs that do not run when it is given them.
    fn as_far_as_online(&self, tid: u32, cpus: &CpuSet) -> Return {
        let off = cpus.intersection(&self.off_line);
        let shielded = self.shield.housekeeping.union(&self.shield.cpus);
        match self.allowed(tid) {
            // It may stay so for ever, as siblings that were switched off at boot do: no reason to wait for it.
            Ok(now) if now != *cpus && !off.is_empty() && !off.intersects(&shielded) => {
                Return::Left {
                    now: format!(
                        "CPU {now} is what is left: CPU {off}, off line since before the shield, is forgotten by this kernel"
                    ),
                }
            }
            Ok(now) if !off.is_empty() && now != *cpus => Return::Refused {
                reason: format!(
                    "CPU {off} is off line, and this kernel forgets it: CPU {now} is what is left; switch CPU {off} on \
                     (echo 1 >/sys/devices/system/cpu/cpuN/online), and revert again"
                ),
            },
            _ => Return::Restored,
        }
    }

    /// Whether `now` is what a revert, or the kernel when a partition ends, could give of `old` while CPUs were off line.
    fn is_shrunk(&self, now: &CpuSet, old: &CpuSet) -> bool {
        let missing = old.difference(now);
        now.is_subset(old)
            && now.intersects(&self.shield.cpus)
            && !missing.is_empty()
            && missing.is_subset(&self.forgotten())
    }

    /// Threads born since inherited the CPUs that we gave to their parents, or were placed by a
    /// watch: they get those that the parent had before all.
    pub(super) fn newborn(&self, remembered: &[(Thread, CpuSet)]) -> Vec<PutBack> {
        let mut tally = Tally::new("CPUs of threads born since");
        let then: HashMap<u32, (u64, &CpuSet)> =
            remembered.iter().map(|(thread, old)| (thread.tid, (thread.start, old))).collect();
        let mut known: HashMap<u32, Vec<&Life<'_>>> = HashMap::new();
        for ((tid, _), life) in &self.lives {
            known.entry(*tid).or_default().push(life);
        }
        for found in tasks::all(self.kernel).unwrap_or_default() {
            let (tid, start) = (found.thread.tid, found.thread.start);
            if found.kernel || then.get(&tid).is_some_and(|then| then.0 == start) {
                continue;
            }
            let Ok(now) = self.allowed(tid) else { continue };
            let parents = tasks::parents(self.kernel, tid);
            let Some(at) = parents.iter().position(|tid| then.contains_key(tid)) else { continue };
            let old = then[&parents[at]].1;
            let line = std::iter::once(&tid).chain(&parents[..=at]);
            let inherited = line.filter_map(|tid| known.get(tid)).flatten().any(|life| {
                life.given.contains(&&now)
                    || life.before.iter().any(|had| **had == now || self.is_shrunk(&now, had))
            });
            let placed = self.lives.contains_key(&(tid, start)) && self.is_ours(&now, old);
            if now != *old && (inherited || placed) {
                tally.add(&found.thread, self.set_affinity(tid, old));
            }
        }
        tally.items()
    }

    /// Threads born since inherited the priority that we gave to another one of their process.
    pub(super) fn newborn_scheduling(&self, remembered: &[(Thread, CpuSet)]) -> Vec<PutBack> {
        let mut tally = Tally::new("scheduling of threads born since");
        let mut given: HashMap<u32, Vec<(&Thread, Scheduling, Scheduling)>> = HashMap::new();
        for (_, change) in &self.past.changes {
            if let Change::Scheduling { thread, old, new } = change
                && let Some(process) = tasks::process(self.kernel, thread.tid)
                && tasks::lives(self.kernel, thread)
            {
                given.entry(process).or_default().push((thread, *old, *new));
            }
        }
        for (process, given) in given {
            let tids = self.kernel.list(&format!("/proc/{process}/task")).unwrap_or_default();
            for tid in tids.iter().filter_map(|tid| tid.parse::<u32>().ok()) {
                let Ok(found) = tasks::identity(self.kernel, tid) else { continue };
                if given.iter().any(|(thread, ..)| thread.is(&found.thread))
                    || remembered.iter().any(|(thread, _)| thread.is(&found.thread))
                {
                    continue;
                }
                let Ok(now) = self.kernel.scheduling(tid) else { continue };
                let alike =
                    |new: &Scheduling| (new.policy, new.priority) == (now.policy, now.priority);
                if let Some((_, old, _)) = given.iter().find(|(_, _, new)| alike(new)) {
                    let set = self.act(|kernel| kernel.set_scheduling(tid, *old));
                    tally.add(
                        &found.thread,
                        match set {
                            Ok(()) => Return::Restored,
                            Err(error) if is_gone(&error) => Return::Gone,
                            Err(error) => Return::Refused { reason: task_reason(&error) },
                        },
                    );
                }
            }
        }
        tally.items()
    }

    /// What is still not as it was, after every group is gone, and looks like our doing.
    pub(super) fn remembered(&self, what: &str, threads: &[(Thread, CpuSet)]) -> Vec<PutBack> {
        let mut tally = Tally::new(what);
        for (thread, old) in threads {
            // Another one is the thread's own choice since: never ours, so nothing to put back.
            let Ok(now) = self.allowed(thread.tid) else { continue };
            if now == *old
                || !(self.is_ours(&now, old) || self.had(thread, &now))
                || !tasks::lives(self.kernel, thread)
            {
                continue;
            }
            let outcome = self.set_affinity(thread.tid, old);
            tally.add(thread, outcome);
        }
        tally.items()
    }

    /// Whether a shield gives a thread that was allowed `old` the CPUs `now`.
    fn is_ours(&self, now: &CpuSet, old: &CpuSet) -> bool {
        let rest = &self.shield.housekeeping;
        let confined = outside(old, &self.shield.cpus, rest);
        // Kernels before 6.2 forget narrower affinities when a partition ends, and CPUs that do not run then.
        let all = rest.union(&self.shield.cpus);
        let reset = self.shield.mechanism == Mechanism::PartitionV2
            && (*now == all || *now == all.difference(&self.forgotten()));
        // The rest may have less than all that is not the shield's: siblings that were off line.
        let sibling = *now == old.intersection(rest)
            // Bound to one of them alone: the kernel opens its affinity then.
            || (old.is_subset(&self.off) && now.intersects(rest));
        *now == confined || now == rest || sibling || reset || self.is_shrunk(now, old)
    }

    pub(super) fn moved(
        &self,
        what: &str,
        mount: &str,
        from: &str,
        to: &str,
        threads: &[(Thread, CpuSet)],
    ) -> Vec<PutBack> {
        let mut tally = Tally::new(what);
        let members = |file| {
            tasks::members(self.kernel, mount, file, threads.iter().map(|(thread, _)| thread.tid))
        };
        let ours = members(to);
        let homes: Vec<(&str, HashSet<u32>)> = self
            .past
            .changes
            .iter()
            .filter_map(|(_, change)| match change {
                Change::Move { from, .. } => Some(from.as_str()),
                _ => None,
            })
            .collect::<BTreeSet<&str>>()
            .into_iter()
            .map(|home| (home, members(home)))
            .collect();
        let leaves_shield = self.shield.entry.as_ref().is_some_and(|entry| entry.file == to);
        for (thread, old) in threads {
            if !tasks::lives(self.kernel, thread) {
                continue;
            }
            let outcome = if ours.contains(&thread.tid) {
                self.move_one(thread, old, from, leaves_shield)
            } else if self.is_home(thread, &homes) {
                Return::Untouched
            } else {
                Return::Left { now: "in a group of somebody else's".into() }
            };
            tally.add(thread, outcome);
        }
        tally.items()
    }

    /// Whether a thread is in a group that we took it from.
    fn is_home(&self, thread: &Thread, homes: &[(&str, HashSet<u32>)]) -> bool {
        let life = self.lives.get(&(thread.tid, thread.start));
        let known = life.map(|life| life.homes.as_slice()).unwrap_or_default();
        homes.iter().any(|(home, inside)| known.contains(home) && inside.contains(&thread.tid))
    }

    fn move_one(&self, thread: &Thread, old: &CpuSet, to: &str, leaves_shield: bool) -> Return {
        let before = self.allowed(thread.tid).ok();
        match self.act(|kernel| kernel.write(to, &thread.tid.to_string())) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: task_reason(&error) },
        }
        let (Some(before), Ok(now)) = (before, self.allowed(thread.tid)) else {
            return Return::Gone;
        };
        // What somebody has chosen meanwhile stays chosen; not so CPUs that only the shield had.
        let ours = leaves_shield || self.is_ours(&before, old) || self.had(thread, &before);
        let wanted = if ours { old } else { &before };
        if now == *wanted { Return::Restored } else { self.set_affinity(thread.tid, wanted) }
    }
}
