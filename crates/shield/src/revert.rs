//! Puts a machine back: the last change first, each only where its value still is ours.

use crate::{
    change::{
        Change, Confined, effective_file, irq_file, outside, read_back, same, unit_of, word_of,
    },
    error::{file_reason, irq_reason, is_gone, plain, task_reason, write_reason},
    fault, hold, irqbalance,
    journal::{Journal, Past, Record},
    lives::{self, Life},
    residents,
    state::State,
    tally::Tally,
    tasks,
};
use quiet_linux::{Kernel, unit_file};
use quiet_types::{
    CpuId, CpuSet,
    machine::Scheduling,
    plan::{Form, PutBack, REVERTED_SCHEMA, Return, Reverted, Thread},
    printable,
    shield::{Mechanism, Shield},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    thread::sleep,
    time::Duration,
};

/// Where interrupts of new devices start.
const DEFAULT_IRQS: &str = "/proc/irq/default_smp_affinity";
/// As many passes as it may take until a group stays empty.
const PASSES: usize = 30;
/// A group whose last task is just ending refuses to go for some time: 2 s in all.
const REMOVALS: u32 = 200;

/// Puts back what a journal tells, and closes it unless something was refused.
pub(crate) fn put_back(kernel: &dyn Kernel, state: &State, past: &Past) -> Reverted {
    let mut done = Reverted {
        schema: REVERTED_SCHEMA.into(),
        rebooted: false,
        items: Vec::new(),
        history: None,
    };
    // A journal that cannot be written any more (a full disk) still can be followed.
    let mut journal = Journal::reopen(state).ok();
    let Some(shield) = &past.shield else {
        close(state, &mut done);
        return done;
    };
    let hand =
        Hand { kernel, state, shield, past, off: switched_off(past), lives: lives::of(past) };
    for (seq, change) in past.changes.iter().rev() {
        // Without the controller the values below it cannot be put back any more.
        let waits = matches!(change, Change::Write { form: Form::Word, .. });
        let items = if waits && !done.is_complete() {
            let reason = "it waits for what was refused before it".into();
            vec![PutBack { what: change.what(), outcome: Return::Refused { reason } }]
        } else {
            hand.undo(change)
        };
        if let (Some(journal), Some(item)) = (journal.as_mut(), items.first()) {
            let _ = journal.tell(&Record::Back { seq: *seq, outcome: item.outcome.clone() });
        }
        done.items.extend(items);
    }
    hand.verify(&mut done);
    done.items.extend(past.unread.iter().map(|line| PutBack {
        what: state.journal().display().to_string(),
        outcome: Return::Refused { reason: format!("not understood: {line}") },
    }));
    if done.is_complete() {
        close(state, &mut done);
    }
    done
}

/// Closes the journal.
pub(crate) fn close(state: &State, done: &mut Reverted) {
    fault::point();
    match state.archive() {
        Ok(path) => done.history = Some(path.display().to_string()),
        Err(error) => done.items.push(PutBack {
            what: state.journal().display().to_string(),
            outcome: Return::Refused { reason: format!("cannot be closed: {}", plain(&error)) },
        }),
    }
}

/// Puts back what outlives a reboot, of the journal of an earlier boot, and closes it.
pub(crate) fn put_back_files(kernel: &dyn Kernel, state: &State, past: &Past) -> Reverted {
    let mut done = Reverted {
        schema: REVERTED_SCHEMA.into(),
        rebooted: true,
        items: Vec::new(),
        history: None,
    };
    if let Some(shield) = &past.shield {
        let hand = Hand { kernel, state, shield, past, off: CpuSet::new(), lives: HashMap::new() };
        let files = past.changes.iter().rev().map(|(_, change)| change);
        for change in files.filter(|change| matches!(change, Change::File { .. })) {
            done.items.extend(hand.undo(change));
        }
    }
    if done.is_complete() {
        close(state, &mut done);
    }
    done
}

fn switched_off(past: &Past) -> CpuSet {
    let numbers = past.changes.iter().filter_map(|(_, change)| match change {
        Change::Write { path, .. } => {
            let cpu = path.strip_prefix("/sys/devices/system/cpu/cpu")?.strip_suffix("/online")?;
            cpu.parse().ok().map(CpuId)
        }
        _ => None,
    });
    numbers.collect()
}

struct Hand<'a> {
    kernel: &'a dyn Kernel,
    state: &'a State,
    shield: &'a Shield,
    past: &'a Past,
    /// CPUs that were switched off.
    off: CpuSet,
    lives: HashMap<(u32, u64), Life<'a>>,
}

impl Hand<'_> {
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

    fn undo(&self, change: &Change) -> Vec<PutBack> {
        let what = change.what();
        let one = |outcome| vec![PutBack { what: what.clone(), outcome }];
        match change {
            Change::Hold => one(match hold::stop(self.state) {
                Ok(true) => Return::Restored,
                Ok(false) => Return::Untouched,
                Err(reason) => Return::Refused { reason },
            }),
            Change::Write { path, request, old, new, form } => {
                let mut items = one(self.write(path, request, old, new, *form));
                if path == DEFAULT_IRQS {
                    items.extend(self.newborn_irqs(old, new));
                }
                items
            }
            Change::Irq { number, name, .. }
                if residents::serves_another(self.kernel, *number, name) =>
            {
                one(Return::Gone)
            }
            Change::Irq { number, old, effective, new, .. } => {
                one(self.irq(*number, old, effective.as_ref(), new))
            }
            Change::Scheduling { thread, old, new } => one(self.scheduling(thread, *old, *new)),
            Change::Affinity { threads } => self.affinities(&what, threads),
            Change::Remember { threads } => {
                let mut items = self.remembered(&what, threads);
                items.extend(self.newborn(threads));
                items.extend(self.newborn_scheduling(threads));
                items
            }
            Change::Move { mount, from, to, threads } => {
                self.moved(&what, mount, from, to, threads)
            }
            Change::Make { path, unit } => one(self.group(path, *unit)),
            Change::File { path, old, new } => one(self.file(path, old, new)),
            Change::Ban { daemon, old, told, back } => one(self.ban(daemon, old, told, back)),
        }
    }

    fn file(&self, path: &str, old: &str, new: &str) -> Return {
        self.kernel.sweep(path);
        match self.kernel.read(path) {
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: write_reason(&error) },
            Ok(now) if now == old => return Return::Untouched,
            Ok(now) if now != new => {
                return Return::Left { now: "another text than the one we wrote".into() };
            }
            Ok(_) => {}
        }
        match self.act(|kernel| kernel.replace(path, old)) {
            Err(error) => Return::Refused { reason: write_reason(&error) },
            Ok(()) => match self.kernel.read(path) {
                Ok(now) if now == old => Return::Restored,
                _ => Return::Refused { reason: "it was written, and has another text".into() },
            },
        }
    }

    /// It takes what it is told at its next scan: until then it may answer with what it had.
    fn ban(&self, daemon: &Thread, old: &CpuSet, told: &CpuSet, back: &str) -> Return {
        if !tasks::lives(self.kernel, daemon) {
            return Return::Gone;
        }
        let refused = |error: &io::Error| Return::Refused {
            reason: format!("it does not answer by its socket ({}); restart it", plain(error)),
        };
        match irqbalance::banned(self.kernel, daemon) {
            Ok(now) if now != *old && now != *told => {
                return Return::Left { now: format!("CPU {now}") };
            }
            Ok(_) => {}
            Err(error) => return refused(&error),
        }
        match self.act(|kernel| irqbalance::tell(kernel, daemon, back)) {
            Ok(()) => Return::Restored,
            Err(error) => refused(&error),
        }
    }

    fn write(&self, path: &str, request: &str, old: &str, new: &str, form: Form) -> Return {
        let now = match self.kernel.read(request) {
            Ok(now) => now,
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: write_reason(&error) },
        };
        let back = if form == Form::Word {
            if !same(form, &now, new) {
                return Return::Untouched;
            }
            format!("-{}", word_of(new))
        } else if same(form, &now, old) {
            return Return::Untouched;
        } else if !same(form, &now, new) {
            return Return::Left { now: printable(now.trim(), 200) };
        } else {
            old.to_owned()
        };
        match self.act(|kernel| kernel.write(path, &back)) {
            Err(error) if is_gone(&error) => Return::Gone,
            Err(error) => Return::Refused { reason: file_reason(path, &error) },
            Ok(()) => match read_back(self.kernel, request, old, form) {
                Ok(now) if form == Form::Word && !same(form, &now, new) => Return::Restored,
                Ok(now) if form != Form::Word && same(form, &now, old) => Return::Restored,
                Ok(now) => Return::Refused {
                    reason: format!(
                        "the kernel accepted it and answers `{}`",
                        printable(now.trim(), 200)
                    ),
                },
                Err(error) => Return::Refused { reason: write_reason(&error) },
            },
        }
    }

    /// Interrupts of devices that came since were born with the CPUs that we had made the default.
    fn newborn_irqs(&self, old: &str, new: &str) -> Vec<PutBack> {
        let (Ok(old), Ok(new)) = (CpuSet::from_mask(old.trim()), CpuSet::from_mask(new.trim()))
        else {
            return Vec::new();
        };
        let mut items = Vec::new();
        let numbers = self.kernel.list("/proc/irq").unwrap_or_default();
        for number in numbers.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let file = irq_file(number);
            let was_there = self.past.up.is_none()
                || self.past.irqs.iter().any(|(known, _)| *known == number)
                    && !self.past.changes.iter().any(|(_, change)| {
                        matches!(change, Change::Irq { number: n, name, .. }
                            if *n == number && residents::serves_another(self.kernel, number, name))
                    });
            if was_there || !self.cpus(&file).is_ok_and(|now| now == new) {
                continue;
            }
            // Refused or not, it works as it is: nothing of before is lost.
            if self.act(|kernel| kernel.write(&file, &old.to_string())).is_ok() {
                let what = came_since(number);
                items.push(PutBack { what, outcome: Return::Restored });
            }
        }
        items
    }

    /// The CPU that it was delivered to comes first: opening the mask alone would leave the
    /// interrupt where the shield had put it.
    fn irq(&self, number: u32, old: &CpuSet, effective: Option<&CpuSet>, new: &CpuSet) -> Return {
        let file = irq_file(number);
        let now = match self.cpus(&file) {
            Ok(now) => now,
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: irq_reason(&error) },
        };
        let home = effective.filter(|cpus| !cpus.is_empty() && cpus.is_subset(old));
        let halfway = home.is_some_and(|home| now == *home);
        if now == *old {
            return Return::Untouched;
        }
        if now != *new && !halfway {
            return Return::Left { now: format!("CPU {now}") };
        }
        let away = self.cpus(&effective_file(number)).ok();
        if let Some(home) = home
            && !halfway
            && away.is_some_and(|away| away != *home)
        {
            // Refused or not: the mask itself is what counts.
            let _ = self.act(|kernel| kernel.write(&file, &home.to_string()));
        }
        match self.act(|kernel| kernel.write(&file, &old.to_string())) {
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: irq_reason(&error) },
            Ok(()) => {}
        }
        match self.cpus(&file) {
            Ok(now) if now == *old => Return::Restored,
            Ok(now) => {
                Return::Refused { reason: format!("the kernel accepted it and answers CPU {now}") }
            }
            Err(error) if is_gone(&error) => Return::Gone,
            Err(error) => Return::Refused { reason: irq_reason(&error) },
        }
    }

    fn scheduling(&self, thread: &Thread, old: Scheduling, new: Scheduling) -> Return {
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

    fn affinities(&self, what: &str, threads: &[Confined]) -> Vec<PutBack> {
        let mut tally = Tally::new(what);
        for one in threads {
            if !tasks::lives(self.kernel, &one.thread) {
                continue;
            }
            let outcome = match self.kernel.affinity(one.thread.tid) {
                Ok(now) if now == one.old => Return::Untouched,
                Ok(now) if now == one.new || self.is_shrunk(&now, &one.old) => {
                    self.set_affinity(one.thread.tid, &one.old)
                }
                Ok(now) if self.had(&one.thread, &now) => Return::Untouched,
                // The thread of an interrupt follows it on its own.
                Ok(_) if one.thread.comm.starts_with("irq/") => {
                    self.set_affinity(one.thread.tid, &one.old)
                }
                Ok(_) if tasks::became_bound(self.kernel, one.thread.tid) => Return::Gone,
                Ok(now) => Return::Left { now: format!("CPU {now}") },
                Err(_) => Return::Gone,
            };
            tally.add(&one.thread, outcome);
        }
        tally.items()
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> Return {
        match self.act(|kernel| kernel.set_affinity(tid, cpus)) {
            Ok(()) => self.as_far_as_online(tid, cpus),
            Err(error) if is_gone(&error) => Return::Gone,
            Err(_) if tasks::became_bound(self.kernel, tid) => Return::Gone,
            Err(error) => Return::Refused { reason: task_reason(&error) },
        }
    }

    /// Kernels before 6.2 forget those of a thread's CPUs that do not run when it is given them.
    fn as_far_as_online(&self, tid: u32, cpus: &CpuSet) -> Return {
        let online = self.cpus("/sys/devices/system/cpu/online").unwrap_or_else(|_| cpus.clone());
        let off = cpus.difference(&online);
        match self.kernel.affinity(tid) {
            Ok(now) if !off.is_empty() && now != *cpus => Return::Refused {
                reason: format!(
                    "CPU {off} is off line, and it has CPU {now} alone; switch that one on, and \
                     revert again"
                ),
            },
            _ => Return::Restored,
        }
    }

    /// Whether `now` is what an earlier revert could give while CPUs were off line: those of the shield, and
    /// where one has begun any others.
    fn is_shrunk(&self, now: &CpuSet, old: &CpuSet) -> bool {
        let missing = old.difference(now);
        now.is_subset(old)
            && now.intersects(&self.shield.cpus)
            && !missing.is_empty()
            && (missing.is_subset(&self.shield.cpus) || self.past.reverting)
    }

    /// Threads born since inherited the CPUs that we gave to their parents, or were placed by a
    /// watch: they get those that the parent had before all.
    fn newborn(&self, remembered: &[(Thread, CpuSet)]) -> Vec<PutBack> {
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
            let Ok(now) = self.kernel.affinity(tid) else { continue };
            let parents = tasks::parents(self.kernel, tid);
            let Some(at) = parents.iter().position(|tid| then.contains_key(tid)) else { continue };
            let old = then[&parents[at]].1;
            let line = std::iter::once(&tid).chain(&parents[..=at]);
            let inherited = line.filter_map(|tid| known.get(tid)).flatten().any(|life| {
                life.given.contains(&&now) || life.before.iter().any(|had| **had == now)
            });
            let placed = self.lives.contains_key(&(tid, start)) && self.is_ours(&now, old);
            if now != *old && (inherited || placed) {
                tally.add(&found.thread, self.set_affinity(tid, old));
            }
        }
        tally.items()
    }

    /// Threads born since inherited the priority that we gave to another one of their process.
    fn newborn_scheduling(&self, remembered: &[(Thread, CpuSet)]) -> Vec<PutBack> {
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
    fn remembered(&self, what: &str, threads: &[(Thread, CpuSet)]) -> Vec<PutBack> {
        let mut tally = Tally::new(what);
        for (thread, old) in threads {
            // Another one is the thread's own choice since: never ours, so nothing to put back.
            let Ok(now) = self.kernel.affinity(thread.tid) else { continue };
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
        // Kernels before 6.2 forget narrower affinities when a partition ends.
        let reset = self.shield.mechanism == Mechanism::PartitionV2
            && *now == rest.union(&self.shield.cpus);
        // The rest may have less than all that is not the shield's: siblings that were off line.
        let sibling = *now == old.intersection(rest)
            // Bound to one of them alone: the kernel opens its affinity then.
            || (old.is_subset(&self.off) && now.intersects(rest));
        *now == confined || now == rest || sibling || reset || self.is_shrunk(now, old)
    }

    fn moved(
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
        let before = self.kernel.affinity(thread.tid).ok();
        match self.act(|kernel| kernel.write(to, &thread.tid.to_string())) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: task_reason(&error) },
        }
        let (Some(before), Ok(now)) = (before, self.kernel.affinity(thread.tid)) else {
            return Return::Gone;
        };
        // What somebody has chosen meanwhile stays chosen; not so CPUs that only the shield had.
        let ours = leaves_shield || self.is_ours(&before, old) || self.had(thread, &before);
        let wanted = if ours { old } else { &before };
        if now == *wanted { Return::Restored } else { self.set_affinity(thread.tid, wanted) }
    }

    fn group(&self, path: &str, unit: bool) -> Return {
        let unit = unit.then(|| unit_of(path));
        let is_known = unit.is_some_and(|name| self.kernel.read(&unit_file(name)).is_ok());
        let files = match self.kernel.list(path) {
            Ok(files) => files,
            Err(_) if is_known => Vec::new(),
            Err(_) => return Return::Untouched,
        };
        let has = |name: &str| files.iter().any(|file| file == name);
        if has("cpuset.cpus.partition") {
            let partition = format!("{path}/cpuset.cpus.partition");
            if self.kernel.read(&partition).is_ok_and(|now| now.trim() != "member") {
                let written = self.act(|kernel| kernel.write(&partition, "member"));
                if let Err(error) = written {
                    return Return::Refused { reason: write_reason(&error) };
                }
            }
        }
        let file = if has("cpuset.cpus.partition") { "cgroup.procs" } else { "tasks" };
        let home = tasks::parent_file(path, file);
        if let Some(name) = unit {
            if let Err(reason) = self.empty(&format!("{path}/{file}"), &home) {
                return Return::Refused { reason };
            }
            if let Err(error) = self.act(|kernel| kernel.unit(name, None)) {
                return Return::Refused { reason: plain(&error) };
            }
        }
        for attempt in 0..REMOVALS {
            if let Err(reason) = self.empty(&format!("{path}/{file}"), &home) {
                return Return::Refused { reason };
            }
            match self.act(|kernel| kernel.remove_dir(path)) {
                Ok(()) => return Return::Restored,
                // systemd has removed it with its unit.
                Err(error) if is_gone(&error) && unit.is_some() => return Return::Restored,
                Err(error) if is_gone(&error) => return Return::Gone,
                Err(_) if attempt + 1 < REMOVALS => {
                    sleep(Duration::from_millis(u64::from(attempt.min(10))));
                }
                Err(error) => {
                    return Return::Refused {
                        reason: format!(
                            "cannot remove it: {}; tasks keep being born in it, or somebody has \
                             made a group inside",
                            write_reason(&error)
                        ),
                    };
                }
            }
        }
        Return::Refused { reason: "tasks keep being born in it".into() }
    }

    /// Tasks that were born in a group of ours go to its parent. Ending ones are listed for some
    /// time and cannot be moved: they are no reason to wait here.
    fn empty(&self, from: &str, to: &str) -> Result<(), String> {
        for _ in 0..PASSES {
            let mut moved = 0;
            for tid in tasks::listed(self.kernel, from).unwrap_or_default() {
                match self.act(|kernel| kernel.write(to, &tid.to_string())) {
                    Ok(()) => moved += 1,
                    Err(error) if is_gone(&error) => {}
                    Err(error) => {
                        return Err(format!(
                            "thread {tid} does not leave: {}",
                            task_reason(&error)
                        ));
                    }
                }
            }
            if moved == 0 {
                break;
            }
        }
        Ok(())
    }

    /// A last look at every value that was put back, after all of them were.
    fn verify(&self, done: &mut Reverted) {
        // What was changed again, by a watch, was at first what counts.
        let mut known = HashSet::new();
        for (_, change) in &self.past.changes {
            let is_anothers = matches!(change, Change::Irq { number, name, .. }
                if residents::serves_another(self.kernel, *number, name));
            if is_anothers || !known.insert(change.what()) {
                continue;
            }
            if let Change::Irq { number, .. } = change
                && done.items.iter().any(|item| item.what == came_since(*number))
            {
                continue;
            }
            let (now, fine) = match change {
                Change::Write { request, old, form, .. } if *form != Form::Word => {
                    let Ok(now) = self.kernel.read(request) else { continue };
                    let fine = same(*form, &now, old);
                    (printable(now.trim(), 200), fine)
                }
                Change::Irq { number, old, .. } => {
                    let Ok(now) = self.cpus(&irq_file(*number)) else { continue };
                    (format!("CPU {now}"), now == *old)
                }
                Change::Make { path, .. } => {
                    ("still there".into(), self.kernel.list(path).is_err())
                }
                _ => continue,
            };
            let what = change.what();
            for item in done.items.iter_mut().filter(|item| !fine && item.what == what) {
                if item.outcome == Return::Restored {
                    let reason = format!("it was put back, and is {now} again");
                    item.outcome = Return::Refused { reason };
                }
            }
        }
    }

    fn cpus(&self, file: &str) -> io::Result<CpuSet> {
        self.kernel.read(file)?.parse().map_err(io::Error::other)
    }

    fn act<T>(&self, act: impl FnOnce(&dyn Kernel) -> io::Result<T>) -> io::Result<T> {
        let done = act(self.kernel);
        fault::point();
        done
    }
}

/// What is said of an interrupt that got the CPUs it would have been born with.
fn came_since(number: u32) -> String {
    format!("IRQ {number}, of a device that came since")
}
