//! Takes the steps of a plan, one by one: note, change, read back.

use crate::{
    change::{
        Change, Confined, assigned, chosen, effective_file, irq_file, irq_of, outside, read_back,
        same,
    },
    drop_in,
    error::{
        Error, ErrorKind, Result, errno, file_reason, irq_reason, is_gone, partition_reason, plain,
        schedule_reason, task_reason, write_reason,
    },
    hold, irqbalance,
    journal::{Journal, Key, Record, key},
    lives,
    plugged::Plugged,
    served,
    tasks::{self, Identity},
};
use quiet_linux::files::StateDir;
use quiet_linux::{Kernel, fault};
use quiet_types::{
    CpuSet, GroupPath,
    machine::{Policy, Scheduling},
    plan::{Action, Form, GroupFile, GroupValue, Narrow, Need, Outcome, Step, Taken, Thread, Who},
    printable,
    shield::Shield,
};
use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// Passes over a group or the machine until no thread is left to move: new ones are born while
/// the others are moved.
const PASSES: usize = 30;
/// Names of refusing threads that are told one by one.
const TOLD: usize = 12;

/// What takes the steps.
pub(crate) struct Hand<'a> {
    pub kernel: &'a dyn Kernel,
    pub journal: &'a mut Journal,
    pub state: &'a StateDir,
    pub shield: &'a Shield,
    pub holder: Option<&'a Path>,
    pub interrupt: &'a AtomicBool,
    /// What is given a priority is nobody's that could be trusted: what it starts begins under the ordinary policy.
    pub strangers: bool,
    /// Nobody is started anew: what a file of settings says counts from their next start.
    pub calm: bool,
}

impl Hand<'_> {
    /// Takes every step in order.
    pub fn take_all(&mut self, steps: &[Step]) -> Result<Vec<Taken>> {
        self.remember()?;
        let mut taken = Vec::new();
        for step in steps {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped by a signal"));
            }
            let outcome = self.take(step)?;
            self.journal.tell(Record::Outcome { step: step.clone(), outcome: outcome.clone() })?;
            if step.need == Need::Essential && !outcome.holds() {
                return Err(Error::new(ErrorKind::Step, failed(step, &outcome)));
            }
            taken.push(Taken { step: step.clone(), outcome });
        }
        Ok(taken)
    }

    /// Takes one step: notes it, does it, reads back.
    pub fn take(&mut self, step: &Step) -> Result<Outcome> {
        match &step.action {
            Action::Write { path, request, value, form } => {
                self.write(path, request.as_deref(), value, *form)
            }
            Action::Group { path, files, narrow, unit } => {
                self.group(path, files, narrow, unit.as_deref())
            }
            Action::Assign { path, name, value } => self.assign(path, name, value),
            Action::Ban { daemon, cpus } => self.ban(daemon, cpus),
            Action::MoveTasks { from, to } => self.move_tasks(from, to),
            Action::Confine { who, off, to, spare } => self.confine(*who, off, to, spare),
            Action::Irq { number, cpus, .. } => self.irq(*number, cpus),
            Action::Enter { thread, file, mount } => self.enter(thread, file, mount),
            Action::Pin { thread, cpus } => self.pin(thread, cpus),
            Action::Schedule { thread, to } => self.schedule(thread, *to),
            Action::HoldLatency => self.hold(),
            Action::DropIn { path, text, restart } => {
                let make = if self.calm { drop_in::write } else { drop_in::make };
                make(self.kernel, self.journal, path, text, restart)
            }
        }
    }

    /// Making and removing groups changes affinities in ways that differ between kernels: what
    /// they were is noted once, before everything.
    fn remember(&mut self) -> Result<()> {
        let all = tasks::all(self.kernel).map_err(|e| {
            Error::new(ErrorKind::Step, format!("cannot list /proc: {}", plain(&e)))
        })?;
        let off_line = tasks::off_line(self.kernel);
        let threads = all
            .into_iter()
            .map(|member| member.is)
            .filter(|found| found.movable)
            .filter_map(|found| {
                let allowed = tasks::allowed(self.kernel, found.thread.tid, &off_line).ok()?;
                Some((found.thread, allowed))
            })
            .collect();
        self.journal.note(Change::Remember { threads })
    }

    fn write(
        &mut self,
        path: &str,
        request: Option<&str>,
        value: &str,
        form: Form,
    ) -> Result<Outcome> {
        let request = match request {
            Some(file) if self.kernel.read(file).is_ok() => file,
            _ => path,
        };
        let old = match self.kernel.read(request) {
            Ok(text) if form == Form::Chosen => chosen(&text).to_owned(),
            Ok(text) => text.trim_end_matches('\n').to_owned(),
            Err(error) if is_gone(&error) => return Ok(Outcome::Absent),
            Err(error) => return Ok(Outcome::Refused { reason: write_reason(&error) }),
        };
        if same(form, &old, value) {
            return Ok(Outcome::Already);
        }
        self.journal.note(Change::Write {
            path: path.to_owned(),
            request: request.to_owned(),
            old,
            new: value.to_owned(),
            form,
            device: Plugged::at(self.kernel, path),
        })?;
        match self.act(|kernel| kernel.write(path, value)) {
            Ok(()) => Ok(self.seen(request, value, form)),
            Err(error) if is_gone(&error) => Ok(Outcome::Absent),
            Err(error) => Ok(Outcome::Refused { reason: file_reason(path, &error) }),
        }
    }

    fn assign(&mut self, path: &str, name: &str, value: &str) -> Result<Outcome> {
        let old = match self.kernel.read(path) {
            Ok(old) => old,
            Err(error) if is_gone(&error) => return Ok(Outcome::Absent),
            Err(error) => return Ok(Outcome::Refused { reason: write_reason(&error) }),
        };
        if old.contains(char::REPLACEMENT_CHARACTER) {
            let reason = "it is no UTF-8 text, and could not be put back as it was".into();
            return Ok(Outcome::Refused { reason });
        }
        let new = assigned(&old, name, value);
        if new == old {
            return Ok(Outcome::Already);
        }
        self.journal.note(Change::File { path: path.to_owned(), old, new: new.clone() })?;
        if let Err(error) = self.act(|kernel| kernel.replace(path, &new)) {
            return Ok(Outcome::Refused { reason: write_reason(&error) });
        }
        Ok(match self.kernel.read(path) {
            Ok(now) if now == new => Outcome::Done { seen: format!("{name}={value}") },
            Ok(_) => Outcome::Ignored { seen: "another text".into() },
            Err(error) => Outcome::Refused { reason: write_reason(&error) },
        })
    }

    fn ban(&mut self, daemon: &Thread, cpus: &CpuSet) -> Result<Outcome> {
        if !tasks::lives(self.kernel, daemon) {
            return Ok(Outcome::Absent);
        }
        let silent = |error: &io::Error| Outcome::Refused {
            reason: format!(
                "it does not answer by its socket ({}); restart it: its file holds the ban",
                plain(error)
            ),
        };
        let old = match irqbalance::banned(self.kernel, daemon) {
            Ok(old) => old,
            Err(error) => return Ok(silent(&error)),
        };
        if cpus.is_subset(&old) {
            return Ok(Outcome::Already);
        }
        let told = old.union(cpus);
        let own =
            old.is_empty() || irqbalance::own(self.kernel, daemon).is_some_and(|own| own == old);
        let back = if own { irqbalance::OWN.to_owned() } else { old.to_string() };
        let (noted, list) = (daemon.clone(), told.to_string());
        self.journal.note(Change::Ban { daemon: noted, old, told: told.clone(), back })?;
        if let Err(error) = self.act(|kernel| irqbalance::tell(kernel, daemon, &list)) {
            return Ok(silent(&error));
        }
        Ok(match irqbalance::banned(self.kernel, daemon) {
            Ok(now) if now == told => Outcome::Done { seen: format!("CPU {now}") },
            Ok(now) => {
                let now = if now.is_empty() { "none".to_owned() } else { format!("CPU {now}") };
                let seen = format!("told to ban CPU {told}; bans {now} until its next scan");
                Outcome::Pending { seen }
            }
            Err(error) => silent(&error),
        })
    }

    fn seen(&self, path: &str, value: &str, form: Form) -> Outcome {
        match read_back(self.kernel, path, value, form) {
            Ok(now) if same(form, &now, value) => Outcome::Done { seen: shown(&now) },
            Ok(now) if form == Form::Partition && now.contains("invalid") => {
                Outcome::Refused { reason: partition_reason(&shown(&now)) }
            }
            Ok(now) if form == Form::Chosen => Outcome::Ignored { seen: shown(chosen(&now)) },
            Ok(now) => Outcome::Ignored { seen: shown(&now) },
            Err(error) => Outcome::Refused { reason: write_reason(&error) },
        }
    }

    /// Makes a group; where the kernel refuses it beside others that name the same CPUs, theirs
    /// are narrowed and it is made again. Removed before that, so that a revert narrows nobody
    /// while it is there.
    fn group(
        &mut self,
        path: &GroupPath,
        files: &[GroupFile],
        narrow: &[Narrow],
        unit: Option<&str>,
    ) -> Result<Outcome> {
        let foreign = self.kernel.list(path).is_ok();
        let first = self.make_group(path, files, unit)?;
        if narrow.is_empty() || foreign || first.holds() || self.kernel.list(path).is_err() {
            return Ok(first);
        }
        if self.act(|kernel| kernel.remove_dir(path)).is_err() {
            return Ok(first);
        }
        let mut narrowed = Vec::new();
        for one in narrow {
            if let Outcome::Done { seen } = self.write(&one.path, None, &one.value, Form::List)? {
                narrowed.push(format!("{} narrowed to {seen}", one.path));
            }
        }
        Ok(match self.make_group(path, files, unit)? {
            Outcome::Done { seen } => {
                let all: Vec<String> = [seen].into_iter().chain(narrowed).collect();
                Outcome::Done { seen: all.join(", ") }
            }
            other => other,
        })
    }

    fn make_group(
        &mut self,
        path: &GroupPath,
        files: &[GroupFile],
        unit: Option<&str>,
    ) -> Result<Outcome> {
        if self.kernel.list(path).is_ok() {
            if self.journal.made(path) {
                return Ok(self.group_again(path, files));
            }
            return Ok(Outcome::Refused {
                reason: format!(
                    "a group of that name is there, and no journal tells of it; move its tasks \
                     out and remove it with `rmdir {path}`"
                ),
            });
        }
        self.journal.note(Change::Make { path: path.clone(), unit: unit.is_some() })?;
        let made = match unit {
            Some(text) => self.act(|kernel| kernel.unit(path.name(), Some(text))),
            None => self.act(|kernel| kernel.make_dir(path)),
        };
        if let Err(error) = made {
            return Ok(Outcome::Refused { reason: write_reason(&error) });
        }
        let mut seen = Vec::new();
        for file in files {
            let outcome = match (unit, &file.value) {
                (Some(_), GroupValue::Is(value)) => {
                    self.seen(&path.join(&file.name), value, file.form)
                }
                _ => self.group_file(path, file),
            };
            match outcome {
                Outcome::Done { seen: now } => seen.push(format!("{} {now}", file.name)),
                _ if file.need == Need::BestEffort => {}
                Outcome::Refused { reason } => {
                    return Ok(Outcome::Refused { reason: format!("{}: {reason}", file.name) });
                }
                Outcome::Ignored { seen } => {
                    return Ok(Outcome::Ignored { seen: format!("{}: {seen}", file.name) });
                }
                _ => {
                    let reason = format!("this kernel has no {}", file.name);
                    return Ok(Outcome::Refused { reason });
                }
            }
        }
        Ok(Outcome::Done { seen: seen.join(", ") })
    }

    /// A group of ours, that somebody has changed or the kernel found not valid since.
    fn group_again(&mut self, path: &GroupPath, files: &[GroupFile]) -> Outcome {
        let mut seen = Vec::new();
        for file in files.iter().filter(|file| file.need == Need::Essential) {
            let GroupValue::Is(value) = &file.value else { continue };
            let now = self.kernel.read(&path.join(&file.name)).unwrap_or_default();
            if same(file.form, &now, value) {
                continue;
            }
            match self.group_file(path, file) {
                Outcome::Done { seen: now } => seen.push(format!("{} {now}", file.name)),
                Outcome::Refused { reason } => {
                    return Outcome::Refused { reason: format!("{}: {reason}", file.name) };
                }
                Outcome::Ignored { seen } => {
                    return Outcome::Ignored { seen: format!("{}: {seen}", file.name) };
                }
                other => return other,
            }
        }
        if seen.is_empty() { Outcome::Already } else { Outcome::Done { seen: seen.join(", ") } }
    }

    fn group_file(&mut self, path: &GroupPath, file: &GroupFile) -> Outcome {
        let whole = path.join(&file.name);
        let value = match &file.value {
            GroupValue::Is(value) => value.clone(),
            GroupValue::SameAs(source) => match self.kernel.read(source) {
                Ok(text) => text.trim().to_owned(),
                Err(error) => return Outcome::Refused { reason: write_reason(&error) },
            },
        };
        match self.act(|kernel| kernel.write(&whole, &value)) {
            Ok(()) => self.seen(&whole, &value, file.form),
            Err(error) if is_gone(&error) => Outcome::Absent,
            Err(error) => Outcome::Refused { reason: file_reason(&file.name, &error) },
        }
    }

    fn move_tasks(&mut self, from: &GroupPath, to: &GroupPath) -> Result<Outcome> {
        let mut refused = BTreeMap::new();
        let mut moved = 0;
        // A list may lack some of its tasks while others are born: see `tasks::members`.
        let mut empty = 0;
        let mount = from.parent().unwrap_or_default();
        for _ in 0..PASSES {
            let batch = match self.movable_in(from, &refused) {
                Ok(batch) => batch,
                Err(error) => return Ok(Outcome::Refused { reason: plain(&error) }),
            };
            if batch.is_empty() {
                empty += 1;
                if empty == 2 {
                    return Ok(many(moved, "moved", refused.into_values().collect()));
                }
                continue;
            }
            empty = 0;
            self.journal.note(Change::Move {
                mount: mount.clone(),
                from: from.clone(),
                to: to.clone(),
                threads: batch.clone(),
            })?;
            for (at, (thread, allowed)) in batch.iter().enumerate() {
                match self.move_one(at, thread, allowed, &mount, to) {
                    Ok(()) => moved += 1,
                    Err(error) if is_gone(&error) => {}
                    Err(error) => {
                        let why = format!("{thread}: {}", task_reason(&error));
                        refused.insert(thread.tid, why);
                    }
                }
            }
        }
        refused.insert(0, format!("new tasks are born in {from} faster than they can be moved"));
        Ok(many(moved, "moved", refused.into_values().collect()))
    }

    fn movable_in(
        &self,
        from: &str,
        refused: &BTreeMap<u32, String>,
    ) -> io::Result<Vec<(Thread, CpuSet)>> {
        Ok(tasks::listed(self.kernel, from)?
            .into_iter()
            .filter(|tid| !refused.contains_key(tid))
            .filter_map(|tid| tasks::identity(self.kernel, tid).ok())
            .filter(|found| !found.kernel && !found.dead)
            .filter_map(|found| {
                let allowed = self.kernel.affinity(found.thread.tid).ok()?;
                Some((found.thread, allowed))
            })
            .collect())
    }

    /// Kernels before 6.2 forget a thread's own narrower affinity when it enters a group.
    fn move_one(
        &self,
        at: usize,
        thread: &Thread,
        allowed: &CpuSet,
        mount: &GroupPath,
        to: &GroupPath,
    ) -> io::Result<()> {
        self.move_to(at, thread, mount, to)?;
        let rest = &self.shield.housekeeping;
        let own = allowed.intersection(rest);
        if !own.is_empty() && own != *rest && self.kernel.affinity(thread.tid)? == *rest {
            self.give(at, thread, &own)?;
        }
        Ok(())
    }

    /// Moves a noted thread into the group of `to`, in the hierarchy mounted at `mount`.
    fn move_to(
        &self,
        at: usize,
        thread: &Thread,
        mount: &GroupPath,
        to: &GroupPath,
    ) -> io::Result<()> {
        let group = |kernel: &dyn Kernel, tid| tasks::group_file(kernel, tid, mount, to.name());
        self.on_thread(
            at,
            thread,
            |kernel| kernel.write(to, &thread.tid.to_string()),
            |kernel, parent| {
                let home = group(kernel, parent).filter(|home| home != to);
                if let (Some(home), Some(now)) = (home, group(kernel, thread.tid))
                    && now == *to
                {
                    let _ = kernel.write(&home, &thread.tid.to_string());
                }
            },
        )
    }

    /// Gives a noted thread CPUs.
    fn give(&self, at: usize, thread: &Thread, cpus: &CpuSet) -> io::Result<()> {
        self.on_thread(
            at,
            thread,
            |kernel| kernel.set_affinity(thread.tid, cpus),
            |kernel, parent| {
                if let (Ok(own), Ok(now)) = (kernel.affinity(parent), kernel.affinity(thread.tid))
                    && now == *cpus
                    && own != now
                {
                    let _ = kernel.set_affinity(thread.tid, &own);
                }
            },
        )
    }

    /// Acts on a noted thread by its number, which may be another's by now: bringing the note to the disk takes its time. It is
    /// looked at right before and right after. What has hit another one all the same, `undo` makes as its parent has it: a thread
    /// that was born a moment ago is as its parent is.
    ///
    /// # Errors
    /// As the act; `ESRCH` where the thread has ended.
    fn on_thread(
        &self,
        at: usize,
        thread: &Thread,
        act: impl FnOnce(&dyn Kernel) -> io::Result<()>,
        undo: impl FnOnce(&dyn Kernel, u32),
    ) -> io::Result<()> {
        let over = || io::Error::from_raw_os_error(errno::ESRCH);
        if !tasks::lives(self.kernel, thread) {
            return Err(over());
        }
        let done = self.act_on_thread(at, act);
        match tasks::identity(self.kernel, thread.tid) {
            Ok(now) if now.thread.start == thread.start => done,
            Ok(another) => {
                undo(self.kernel, another.parent);
                Err(over())
            }
            // What cannot be looked at was acted upon, or has ended.
            Err(error) if is_gone(&error) => Err(over()),
            Err(_) => done,
        }
    }

    fn confine(
        &mut self,
        who: Who,
        off: &CpuSet,
        to: &CpuSet,
        spare: &[String],
    ) -> Result<Outcome> {
        let placed = self.placed();
        self.confine_those(off, to, &|found| {
            let ours = found.movable
                && (found.kernel || who == Who::Everybody && !placed.contains(&key(&found.thread)));
            // The kernel's alone are spared: any program may give a thread such a name.
            let is_spared =
                found.kernel && spare.iter().any(|begin| found.thread.comm.starts_with(begin));
            ours && !is_spared
        })
    }

    /// Takes the threads of programs off the shield, but for those that were put onto it.
    pub fn confine_programs(&mut self) -> Result<Outcome> {
        let (shield, placed) = (self.shield, self.placed());
        self.confine_those(&shield.cpus, &shield.housekeeping, &|found| {
            found.movable && !found.kernel && !placed.contains(&key(&found.thread))
        })
    }

    /// Who was put onto the shield: a link of the chain, or a guest.
    fn placed(&self) -> HashSet<Key> {
        let past = self.journal.past();
        past.map(|past| lives::placed(past, self.shield)).unwrap_or_default()
    }

    fn confine_those(
        &mut self,
        off: &CpuSet,
        to: &CpuSet,
        is_meant: &dyn Fn(&Identity) -> bool,
    ) -> Result<Outcome> {
        let mut refused = BTreeMap::new();
        let mut confined = 0;
        for _ in 0..PASSES {
            let batch = match self.to_confine(off, to, is_meant, &refused) {
                Ok(batch) => batch,
                Err(error) => return Ok(Outcome::Refused { reason: plain(&error) }),
            };
            if batch.is_empty() {
                break;
            }
            self.journal.note(Change::Affinity { threads: batch.clone() })?;
            for (at, one) in batch.iter().enumerate() {
                let tid = one.thread.tid;
                let done = self.give(at, &one.thread, &one.new);
                match done.and_then(|()| self.kernel.affinity(tid)) {
                    Ok(now) if now == one.new => confined += 1,
                    Ok(now) => {
                        let why = format!("{}: accepted, and still on CPU {now}", one.thread);
                        refused.insert(tid, why);
                    }
                    Err(error) if is_gone(&error) => {}
                    Err(_) if tasks::became_bound(self.kernel, tid) => {}
                    Err(error) => {
                        refused.insert(tid, format!("{}: {}", one.thread, task_reason(&error)));
                    }
                }
            }
        }
        Ok(many(confined, "confined", refused.into_values().collect()))
    }

    fn to_confine(
        &self,
        off: &CpuSet,
        to: &CpuSet,
        is_meant: &dyn Fn(&Identity) -> bool,
        refused: &BTreeMap<u32, String>,
    ) -> io::Result<Vec<Confined>> {
        let may_run = |tid| {
            !refused.contains_key(&tid)
                && self.kernel.affinity(tid).is_ok_and(|cpus| cpus.intersects(off))
        };
        let mut batch = Vec::new();
        tasks::each(self.kernel, may_run, |_, found| {
            if !is_meant(&found) {
                return;
            }
            let Ok(old) = self.kernel.affinity(found.thread.tid) else { return };
            if old.intersects(off) {
                let new = outside(&old, off, to);
                batch.push(Confined { thread: found.thread, old, new });
            }
        })?;
        Ok(batch)
    }

    fn irq(&mut self, number: u32, cpus: &CpuSet) -> Result<Outcome> {
        let file = irq_file(number);
        let old = match self.cpus(&file) {
            Ok(old) => old,
            Err(error) if is_gone(&error) => return Ok(Outcome::Absent),
            Err(error) => return Ok(Outcome::Refused { reason: irq_reason(&error) }),
        };
        if old == *cpus {
            return Ok(Outcome::Already);
        }
        let effective = self.cpus(&effective_file(number)).ok();
        let name = served::actions(self.kernel, number);
        // Its device is being taken away: the kernel takes what is written, and forgets it with the number.
        if name.is_empty() && self.journal.past().is_some_and(|past| past.served(number).is_some())
        {
            return Ok(Outcome::Absent);
        }
        self.journal.note(Change::Irq { number, name, old, effective, new: cpus.clone() })?;
        match self.act(|kernel| kernel.write(&file, &cpus.to_string())) {
            Err(error) if is_gone(&error) => return Ok(Outcome::Absent),
            Err(error) => return Ok(Outcome::Refused { reason: irq_reason(&error) }),
            Ok(()) => {}
        }
        let asked = match self.cpus(&file) {
            Ok(asked) => asked,
            Err(error) if is_gone(&error) => return Ok(Outcome::Absent),
            Err(error) => return Ok(Outcome::Refused { reason: irq_reason(&error) }),
        };
        if asked != *cpus {
            return Ok(Outcome::Ignored { seen: format!("CPU {asked}") });
        }
        Ok(match self.cpus(&effective_file(number)) {
            Ok(now) if !now.is_subset(cpus) => Outcome::Pending {
                seen: format!("asked for CPU {asked}, delivered to CPU {now} until it next fires"),
            },
            Ok(now) if !now.is_empty() => {
                Outcome::Done { seen: format!("CPU {asked}, delivered to CPU {now}") }
            }
            _ => Outcome::Done { seen: format!("CPU {asked}") },
        })
    }

    fn cpus(&self, file: &str) -> io::Result<CpuSet> {
        self.kernel.read(file)?.parse().map_err(io::Error::other)
    }

    fn enter(&mut self, thread: &Thread, file: &GroupPath, mount: &GroupPath) -> Result<Outcome> {
        if !tasks::lives(self.kernel, thread) {
            return Ok(Outcome::Absent);
        }
        let name = file.name();
        let Some(from) = tasks::group_file(self.kernel, thread.tid, mount, name) else {
            let reason = format!("the kernel does not tell the group of {thread}");
            return Ok(Outcome::Refused { reason });
        };
        if from == *file {
            return Ok(Outcome::Already);
        }
        let Ok(allowed) = self.kernel.affinity(thread.tid) else { return Ok(Outcome::Absent) };
        self.journal.note(Change::Move {
            mount: mount.clone(),
            from,
            to: file.clone(),
            threads: vec![(thread.clone(), allowed)],
        })?;
        match self.move_to(0, thread, mount, file) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(Outcome::Absent),
            Err(error) => return Ok(Outcome::Refused { reason: task_reason(&error) }),
        }
        match tasks::group_file(self.kernel, thread.tid, mount, name) {
            Some(now) if now == *file => Ok(Outcome::Done { seen: now.into() }),
            Some(now) => Ok(Outcome::Ignored { seen: now.into() }),
            None => Ok(Outcome::Absent),
        }
    }

    fn pin(&mut self, thread: &Thread, cpus: &CpuSet) -> Result<Outcome> {
        let old = match self.kernel.affinity(thread.tid) {
            Ok(old) if tasks::lives(self.kernel, thread) => old,
            _ => return Ok(Outcome::Absent),
        };
        if old == *cpus {
            return Ok(Outcome::Already);
        }
        let one = Confined { thread: thread.clone(), old, new: cpus.clone() };
        self.journal.note(Change::Affinity { threads: vec![one] })?;
        let done = self.give(0, thread, cpus);
        Ok(match done.and_then(|()| self.kernel.affinity(thread.tid)) {
            Ok(now) if now == *cpus => Outcome::Done { seen: format!("CPU {now}") },
            Ok(now) => Outcome::Ignored { seen: format!("CPU {now}") },
            Err(error) if is_gone(&error) => Outcome::Absent,
            Err(error) => match irq_of(&thread.comm) {
                Some(number) if self.send_along(number, cpus) => Outcome::Pending {
                    seen: format!("goes to CPU {cpus} with IRQ {number} when that next fires"),
                },
                _ => Outcome::Refused { reason: task_reason(&error) },
            },
        })
    }

    /// The thread of an interrupt is in the root group, and from there no thread may be put onto the
    /// CPUs of a v2 partition. It follows its interrupt, though, once that was given CPUs, be they the
    /// same; making the partition may have thrown it off since.
    fn send_along(&self, number: u32, cpus: &CpuSet) -> bool {
        let file = irq_file(number);
        self.cpus(&file).is_ok_and(|asked| asked == *cpus)
            && self.act(|kernel| kernel.write(&file, &cpus.to_string())).is_ok()
    }

    fn schedule(&mut self, thread: &Thread, to: Scheduling) -> Result<Outcome> {
        let old = match self.kernel.scheduling(thread.tid) {
            Ok(old) if tasks::lives(self.kernel, thread) => old,
            _ => return Ok(Outcome::Absent),
        };
        if old == to {
            return Ok(Outcome::Already);
        }
        if old.policy == Policy::Deadline {
            let reason =
                "it runs under SCHED_DEADLINE, whose budget the kernel might not give back".into();
            return Ok(Outcome::Refused { reason });
        }
        let slice = self.kernel.slice(thread.tid).unwrap_or_default();
        let afresh = self.strangers && !self.kernel.resets_on_fork(thread.tid).unwrap_or_default();
        self.journal.note(Change::Scheduling {
            thread: thread.clone(),
            old,
            slice,
            new: to,
            afresh,
        })?;
        let done = self.on_thread(
            0,
            thread,
            |kernel| {
                if afresh {
                    kernel.reset_on_fork(thread.tid, true)?;
                }
                kernel.set_scheduling(thread.tid, to)
            },
            |kernel, parent| {
                let alike = |a: Scheduling| (a.policy, a.priority) == (to.policy, to.priority);
                if let (Ok(own), Ok(now)) =
                    (kernel.scheduling(parent), kernel.scheduling(thread.tid))
                    && alike(now)
                    && !alike(own)
                {
                    let _ = kernel.set_scheduling(thread.tid, own);
                }
            },
        );
        Ok(match done.and_then(|()| self.kernel.scheduling(thread.tid)) {
            Ok(now) if now.policy == to.policy && now.priority == to.priority => {
                Outcome::Done { seen: now.to_string() }
            }
            Ok(now) => Outcome::Ignored { seen: now.to_string() },
            Err(error) if is_gone(&error) => Outcome::Absent,
            Err(error) => {
                let group = tasks::without_budget(self.kernel, thread.tid);
                Outcome::Refused { reason: schedule_reason(&error, group.as_deref()) }
            }
        })
    }

    fn hold(&mut self) -> Result<Outcome> {
        if hold::find(self.state).is_some() {
            return Ok(Outcome::Already);
        }
        let Some(program) = self.holder else { return Ok(Outcome::Absent) };
        self.journal.note(Change::Hold)?;
        let started = hold::start(program, self.state);
        fault::point();
        Ok(match started {
            Ok(pid) => Outcome::Done { seen: format!("0 us, held by process {pid}") },
            Err(reason) => Outcome::Refused { reason },
        })
    }

    /// One of many like acts on threads; a test's knife falls after some of them.
    fn act_on_thread<T>(
        &self,
        at: usize,
        act: impl FnOnce(&dyn Kernel) -> io::Result<T>,
    ) -> io::Result<T> {
        if at < 3 || at.is_multiple_of(16) { self.act(act) } else { act(self.kernel) }
    }

    /// One act on the machine.
    fn act<T>(&self, act: impl FnOnce(&dyn Kernel) -> io::Result<T>) -> io::Result<T> {
        let done = act(self.kernel);
        fault::point();
        done
    }
}

fn many(done: usize, verb: &str, mut refused: Vec<String>) -> Outcome {
    let seen = format!("{done} threads {verb}");
    let more = refused.len().saturating_sub(TOLD);
    refused.truncate(TOLD);
    if more > 0 {
        refused.push(format!("and {more} more"));
    }
    match (done, refused.is_empty()) {
        (0, true) => Outcome::Already,
        (_, true) => Outcome::Done { seen },
        (_, false) => Outcome::Partly { seen, refused },
    }
}

/// Why a plan cannot go on without a step.
pub(crate) fn failed(step: &Step, outcome: &Outcome) -> String {
    let what = step.action.what();
    let new = step.action.new_value();
    match outcome {
        Outcome::Refused { reason } => format!("cannot change {what} ({new}): {reason}"),
        Outcome::Ignored { seen } => {
            format!("cannot change {what} ({new}): the kernel accepted it and answers `{seen}`")
        }
        Outcome::Absent => format!("cannot change {what} ({new}): it is not there"),
        Outcome::Partly { refused, .. } => {
            format!("cannot change {what} ({new}): {}", refused.join("; "))
        }
        _ => format!("cannot change {what}"),
    }
}

fn shown(text: &str) -> String {
    printable(text.trim(), 200)
}
