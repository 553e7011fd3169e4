//! Threads: their CPUs, groups and scheduling, also of those born since.

use super::Hand;
use crate::{
    change::{Change, Confined, outside},
    error::{is_gone, task_reason},
    journal::key,
    lives::Life,
    tally::Tally,
    tasks::{self, Member},
};
use quiet_linux::Kernel;
use quiet_types::{
    CpuSet, GroupPath, Nanos,
    machine::{Policy, Scheduling},
    plan::{PutBack, Return, Thread},
    shield::Mechanism,
};
use std::{
    collections::{HashMap, HashSet},
    io,
};

/// As many passes as it may take until nobody inherits any more.
const PASSES: usize = 30;
/// Processes above one, at most.
const DEPTH: usize = 64;

/// What was given, by priority: on which CPUs, and what was before.
type Given<'a> = HashMap<(Policy, u8), Vec<(&'a CpuSet, Scheduling)>>;

fn is_real_time(scheduling: Scheduling) -> bool {
    matches!(scheduling.policy, Policy::Fifo | Policy::Rr)
}

/// Every living thread, and who started whose process.
struct Family {
    members: Vec<Member>,
    /// The parents of processes.
    above: HashMap<u32, u32>,
    /// When threads were started.
    starts: HashMap<u32, u64>,
    /// Processes that take over those whose parents have ended: the first one, and those that manage sessions.
    foster: HashSet<u32>,
}

impl Family {
    fn of(kernel: &dyn Kernel) -> Family {
        let members = tasks::all(kernel).unwrap_or_default();
        let above = members.iter().map(|member| (member.process, member.is.parent)).collect();
        let thread = |member: &Member| (member.is.thread.tid, member.is.thread.start);
        let starts = members.iter().map(thread).collect();
        let fosters = |member: &&Member| member.process == 1 || member.is.is_foster();
        let foster = members.iter().filter(fosters).map(|member| member.process).collect();
        Family { members, above, starts, foster }
    }

    /// The process of a thread, its parent, and so on up to the first process; nearest first.
    fn parents(&self, member: &Member) -> Vec<u32> {
        let mut chain = Vec::new();
        if member.process != member.is.thread.tid {
            chain.push(member.process);
        }
        let mut next = member.process;
        while let Some(parent) = self.above.get(&next).filter(|_| chain.len() < DEPTH) {
            if *parent == 0 {
                break;
            }
            chain.push(*parent);
            next = *parent;
        }
        chain
    }

    /// Whether the thread that was started at `start` may be who has its number now.
    fn may_be(&self, tid: u32, start: u64) -> bool {
        // One that has ended, and whose threads have not, is not among the living.
        self.starts.get(&tid).is_none_or(|now| *now == start)
    }

    fn is_orphan(&self, member: &Member) -> bool {
        self.foster.contains(&member.is.parent)
    }
}

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

    /// Gives the threads of programs that were taken off the shield, and have what they were given then, what they had before.
    pub(super) fn opened_wide(&self) -> Vec<PutBack> {
        let mut tally = Tally::new("CPUs of threads");
        let mut done = HashSet::new();
        let noted = self.past.changes.iter().filter_map(|(_, change)| match change {
            Change::Affinity { threads } => Some(threads),
            _ => None,
        });
        for one in noted.flatten().filter(|one| done.insert(key(&one.thread))) {
            let (tid, life) = (one.thread.tid, self.lives.get(&key(&one.thread)));
            let last = life.and_then(|life| life.given.last().copied());
            let is_off = last.is_some_and(|last| !last.intersects(&self.shield.cpus));
            let is_ours = || {
                tasks::identity(self.kernel, tid).is_ok_and(|now| {
                    now.thread.start == one.thread.start && !now.dead && !now.kernel
                })
            };
            if is_off && self.allowed(tid).is_ok_and(|now| Some(&now) == last) && is_ours() {
                tally.add(&one.thread, self.set_affinity(tid, &one.old));
            }
        }
        tally.items()
    }

    /// What was refused while the shield stood, of threads that were not there before it and still have what we gave them.
    pub(super) fn waited(&self) -> Vec<PutBack> {
        let mut tally = Tally::new("CPUs that were refused within the shield");
        // The last one that was refused was noted first.
        let mut done = HashSet::new();
        for (thread, old) in self.waiting.borrow().iter().rev() {
            if self.was_there(thread)
                || !done.insert(key(thread))
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
        // One whose own CPUs are shielded or off line has all those of the rest, and shows its own that are off line beside them.
        if *cpus == self.shield.cpus
            || cpus.difference(&self.forgotten()) == self.shield.housekeeping
        {
            return true;
        }
        self.lives.get(&(thread.tid, thread.start)).is_some_and(|life| {
            let is_rest = |before: &CpuSet| {
                before == cpus || self.is_shrunk(cpus, before) || self.is_shown(cpus, before)
            };
            life.before.iter().any(|before| is_rest(before)) || life.given.contains(&cpus)
        })
    }

    /// Whether the kernel shows `now` to a thread of the CPUs `old` while the shield stands: not the shield's, nor all that are off line
    /// or were when an earlier revert began.
    fn is_shown(&self, now: &CpuSet, old: &CpuSet) -> bool {
        let hidden = self.shield.cpus.union(&self.forgotten());
        let is_outside = !now.is_empty() && !now.intersects(&self.shield.cpus);
        is_outside && now.is_subset(old) && old.difference(now).is_subset(&hidden)
    }

    pub(super) fn scheduling(
        &self,
        thread: &Thread,
        (old, slice): (Scheduling, Option<Nanos>),
        new: Scheduling,
        afresh: bool,
    ) -> Return {
        let now = match self.kernel.scheduling(thread.tid) {
            Ok(now) if tasks::lives(self.kernel, thread) => now,
            _ => return Return::Gone,
        };
        // One that was demoted had a priority of ours before that: it is not to have it again on the way.
        let (old, slice) = match self.olds.get(&key(thread)) {
            Some(first) if is_real_time(old) && !is_real_time(first.0) => *first,
            _ => (old, slice),
        };
        let is_slice_lost =
            now == new && slice.is_some() && matches!(self.kernel.slice(thread.tid), Ok(None));
        let done = if now == old && !is_slice_lost {
            Return::Untouched
        } else if (now.policy, now.priority) != (new.policy, new.priority) {
            Return::Left { now: now.to_string() }
        } else {
            match self.act(|kernel| kernel.restore_scheduling(thread.tid, old, slice)) {
                Ok(()) => Return::Restored,
                Err(error) if is_gone(&error) => return Return::Gone,
                Err(error) => return Return::Refused { reason: task_reason(&error) },
            }
        };
        if afresh && self.kernel.resets_on_fork(thread.tid).unwrap_or_default() {
            return match self.act(|kernel| kernel.reset_on_fork(thread.tid, false)) {
                Ok(()) if done == Return::Untouched => Return::Restored,
                Ok(()) => done,
                Err(error) if is_gone(&error) => Return::Gone,
                Err(error) => Return::Refused { reason: task_reason(&error) },
            };
        }
        done
    }

    /// Gives a thread that leaves a shield which stays the CPUs that it had before.
    pub(super) fn opened(&self, one: &Confined) -> Vec<PutBack> {
        let (rest, tid) = (&self.shield.housekeeping, one.thread.tid);
        let what = format!("CPUs of {}", one.thread);
        let put_back = |outcome| vec![PutBack { what: what.clone(), outcome }];
        let now = match self.allowed(tid) {
            Ok(now) if tasks::lives(self.kernel, &one.thread) => now,
            _ => return put_back(Return::Gone),
        };
        // In its group a thread shows no more than the group has: who showed all of that may have had all. Where it has chosen less,
        // it says so.
        let old = match self.shield.mechanism {
            Mechanism::Affinity => one.old.clone(),
            _ if rest.is_subset(&one.old) => one.old.union(&self.shield.cpus),
            _ => one.old.clone(),
        };
        if ![&one.new, &one.old, &self.shield.cpus, rest].contains(&&now) {
            return put_back(Return::Left { now: format!("CPU {now}") });
        }
        put_back(self.give(tid, &old))
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
    /// watch: they get those that the parent had before all, where `is_meant` says so of those that they have now.
    pub(super) fn newborn(&self, is_meant: &dyn Fn(&CpuSet) -> bool) -> Vec<PutBack> {
        if self.then.is_empty() {
            return Vec::new();
        }
        let mut tally = Tally::new("CPUs of threads born since");
        let family = Family::of(self.kernel);
        let mut known: HashMap<u32, Vec<&Life<'_>>> = HashMap::new();
        for ((tid, _), life) in &self.lives {
            known.entry(*tid).or_default().push(life);
        }
        for member in &family.members {
            let found = &member.is;
            let (tid, start) = (found.thread.tid, found.thread.start);
            if found.kernel || self.was_there(&found.thread) {
                continue;
            }
            let Ok(now) = self.allowed(tid) else { continue };
            if !is_meant(&now) {
                continue;
            }
            let parents = family.parents(member);
            let is_old = |tid: &u32| {
                self.then.get(tid).is_some_and(|(start, _)| family.may_be(*tid, *start))
            };
            let Some(at) = parents.iter().position(is_old) else { continue };
            let old = self.then[&parents[at]].1;
            // Also of who had its number before: what was meant for that one may have hit it.
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

    fn was_there(&self, thread: &Thread) -> bool {
        self.then.get(&thread.tid).is_some_and(|(start, _)| *start == thread.start)
    }

    /// Threads and processes born since inherited the priority that we gave to those who forked them: they get what those had
    /// before. Looked for until none is found, for they fork as well.
    ///
    /// An heir has a priority that we gave, and descends from a process that we gave it to or from another heir, or is of such a
    /// process. Of one whose parents have ended, the CPUs that we gave together with that priority are the sign, and the shield's
    /// group where there is one: whoever chose priority and CPUs by itself is told from it by a parent that still lives.
    pub(super) fn heirs(&self) -> Tally {
        let mut tally = Tally::of_scheduling("scheduling of threads and processes born since");
        let mut noted = HashSet::new();
        let mut heirs = HashSet::new();
        let mut given: Given<'_> = HashMap::new();
        for (_, change) in &self.past.changes {
            if let Change::Scheduling { thread, old, new, .. } = change {
                noted.insert(key(thread));
                let life = self.lives.get(&key(thread));
                // In the shield's group it needs no other than all of them.
                let cpus = life.and_then(|life| life.given.last().copied());
                let cpus = cpus.unwrap_or(&self.shield.cpus);
                let olds = given.entry((new.policy, new.priority)).or_default();
                if !olds.contains(&(cpus, *old)) {
                    olds.push((cpus, *old));
                }
            }
        }
        if given.is_empty() {
            return tally;
        }
        let like_ours = |tid: u32| {
            let now = self.kernel.scheduling(tid);
            now.is_ok_and(|now| given.contains_key(&(now.policy, now.priority)))
        };
        for _ in 0..PASSES {
            let mut suspects = HashSet::new();
            let look = |_, found: tasks::Identity| {
                let is_known = noted.contains(&key(&found.thread)) || self.was_there(&found.thread);
                if !found.kernel && !is_known {
                    suspects.insert(key(&found.thread));
                }
            };
            if tasks::each(self.kernel, like_ours, look).is_err() || suspects.is_empty() {
                break;
            }
            let family = Family::of(self.kernel);
            let of_noted = |member: &&Member| noted.contains(&key(&member.is.thread));
            heirs.extend(family.members.iter().filter(of_noted).map(|member| member.process));
            let found = self.heirs_among(&family, &suspects, &given, &mut heirs);
            let none = found.is_empty();
            for (thread, old) in found {
                let set = self.act(|kernel| kernel.set_scheduling(thread.tid, old));
                tally.add(
                    thread,
                    match set {
                        Ok(()) => Return::Restored,
                        Err(error) if is_gone(&error) => Return::Gone,
                        Err(error) => {
                            // Asking again would say the same.
                            noted.insert(key(thread));
                            Return::Refused { reason: task_reason(&error) }
                        }
                    },
                );
            }
            if none {
                break;
            }
        }
        tally
    }

    /// Those of the suspects that are heirs, with what they get; whoever descends from another one comes first, so that it is known
    /// by that one still where this is killed half-way. Their processes are added to `heirs`, in which those are that we gave a
    /// priority to.
    fn heirs_among<'f>(
        &self,
        family: &'f Family,
        suspects: &HashSet<(u32, u64)>,
        given: &Given<'_>,
        heirs: &mut HashSet<u32>,
    ) -> Vec<(&'f Thread, Scheduling)> {
        let inside = self.shield.entry.as_ref().and_then(|entry| {
            Some(
                tasks::listed(self.kernel, &entry.threads())
                    .ok()?
                    .into_iter()
                    .collect::<HashSet<u32>>(),
            )
        });
        let suspect = |member: &&Member| suspects.contains(&key(&member.is.thread));
        let mut left: Vec<(usize, &Member, Vec<u32>)> = (family.members.iter().filter(suspect))
            .map(|member| (member, family.parents(member)))
            .map(|(member, parents)| (parents.len(), member, parents))
            .collect();
        // Whoever is above others is looked at before them.
        left.sort_by_key(|(depth, ..)| *depth);
        let mut found = Vec::new();
        for (_, member, parents) in left {
            let thread = &member.is.thread;
            let Ok(now) = self.kernel.scheduling(thread.tid) else { continue };
            let Some(olds) = given.get(&(now.policy, now.priority)) else { continue };
            let descends = heirs.contains(&member.process)
                || parents.iter().any(|parent| heirs.contains(parent));
            let old = if descends {
                olds.first()
            } else {
                let cpus = self.kernel.affinity(thread.tid).ok();
                let within = inside.as_ref().is_none_or(|all| all.contains(&thread.tid));
                let is_orphan = within && family.is_orphan(member);
                olds.iter().find(|(given, _)| is_orphan && cpus.as_ref() == Some(*given))
            };
            let Some((_, old)) = old else { continue };
            heirs.insert(member.process);
            found.push((thread, *old));
        }
        found.reverse();
        found
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
        mount: &GroupPath,
        from: &GroupPath,
        to: &GroupPath,
        threads: &[(Thread, CpuSet)],
    ) -> Vec<PutBack> {
        let mut tally = Tally::new(what);
        let leaves_shield = self.shield.entry.as_ref().is_some_and(|entry| entry.file == *to);
        for (thread, old) in threads {
            if !tasks::lives(self.kernel, thread) {
                continue;
            }
            let outcome = if self.is_in(mount, to, thread.tid) {
                let outcome = self.move_one(thread, old, from, leaves_shield);
                if outcome == Return::Restored {
                    let mut groups = self.groups.borrow_mut();
                    groups.get_mut(to).map(|inside| inside.remove(&thread.tid));
                    groups.get_mut(from).map(|inside| inside.insert(thread.tid));
                }
                outcome
            } else if self.is_home(mount, thread) {
                Return::Untouched
            } else {
                Return::Left { now: "in a group of somebody else's".into() }
            };
            tally.add(thread, outcome);
        }
        tally.items()
    }

    /// Whether a thread is in the group of `file`. Each list is read once.
    ///
    /// The list alone is not enough: the v1 kernel cuts it short when tasks are born meanwhile
    /// (`pidlist_array_load`), so that any of them may be missing.
    fn is_in(&self, mount: &GroupPath, file: &GroupPath, tid: u32) -> bool {
        let mut groups = self.groups.borrow_mut();
        let list = groups.entry(file.clone()).or_insert_with(|| {
            tasks::listed(self.kernel, file).unwrap_or_default().into_iter().collect()
        });
        list.contains(&tid)
            || tasks::group_file(self.kernel, tid, mount, file.name())
                .is_some_and(|now| now == *file)
    }

    /// Whether a thread is in a group that we took it from.
    fn is_home(&self, mount: &GroupPath, thread: &Thread) -> bool {
        let homes = self.lives.get(&key(thread)).map(|life| life.homes.as_slice());
        homes.unwrap_or_default().iter().any(|home| self.is_in(mount, home, thread.tid))
    }

    fn move_one(
        &self,
        thread: &Thread,
        old: &CpuSet,
        to: &GroupPath,
        leaves_shield: bool,
    ) -> Return {
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
