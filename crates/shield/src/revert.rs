//! Puts a machine back: the last change first, each only where its value still is ours.

mod homes;
mod queues;
mod threads;

use crate::{
    change::{Change, effective_file, irq_file, read_back, same, word_of},
    drop_in,
    error::{
        file_reason, irq_reason, is_gone, plain, task_reason, withdrawal_reason, write_reason,
    },
    hold, irqbalance,
    journal::{self, Journal, Past, Record, Stay},
    lives::{self, Life},
    served, tasks,
};
use homes::Homes;
use quiet_linux::files::StateDir;
use quiet_linux::{Kernel, fault, unit_file};
use quiet_types::{
    CpuId, CpuSet, GroupPath, Nanos,
    machine::Scheduling,
    plan::{Action, Form, Outcome, PutBack, REVERTED_SCHEMA, Return, Reverted, Step, Thread},
    printable,
    shield::Shield,
};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    io,
    thread::sleep,
    time::Duration,
};

/// Where interrupts of new devices start.
const DEFAULT_IRQS: &str = "/proc/irq/default_smp_affinity";
/// As many passes as it may take until a group stays empty.
const PASSES: usize = 30;
/// Groups within groups are looked into so far.
const DEEPEST: u32 = 16;
/// Groups that are named in one sentence.
const NAMED: usize = 3;
/// Files of a v2 group that hold nothing, or `member`, where nobody has set them.
const SETTINGS: [&str; 4] =
    ["cpuset.cpus", "cpuset.mems", "cpuset.cpus.exclusive", "cpuset.cpus.partition"];
/// A group whose last task is just ending refuses to go for some time: 2 s in all.
const REMOVALS: u32 = 200;

/// Puts back what a journal tells, and closes it unless something was refused.
pub(crate) fn put_back(kernel: &dyn Kernel, state: &StateDir, past: &Past) -> Reverted {
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
    let hand = Hand::new(kernel, state, shield, past);
    // The next revert must know it: by then they may run again.
    if let (Some(journal), false) = (journal.as_mut(), hand.off_line.is_empty()) {
        let _ = journal.seal(Record::OffLine { cpus: hand.off_line.clone() });
    }
    // irqbalance first: what it planned under our ban it carries out at its next scan, over what is put back; told of the end
    // of the ban it plans anew before that.
    let is_ban = |change: &Change| matches!(change, Change::Ban { .. });
    let backwards = || past.changes.iter().rev();
    // Then priorities: what is forked while this is at work would inherit them.
    let is_priority = |change: &Change| matches!(change, Change::Scheduling { .. });
    let rank = |change: &Change| if is_ban(change) { 0 } else { 2 - u8::from(is_priority(change)) };
    let ranked = |wanted: u8| backwards().filter(move |(_, change)| rank(change) == wanted);
    // While those who gave them are where they were, it is seen best who has inherited from them.
    let heirs = hand.heirs();
    for (seq, change) in ranked(0).chain(ranked(1)).chain(ranked(2)) {
        // Without the controller the values below it cannot be put back any more.
        let waits = matches!(change, Change::Write { form: Form::Word, .. });
        let items = if waits && !done.is_complete() {
            let reason = "it waits for what was refused before it".into();
            vec![PutBack { what: change.what(), outcome: Return::Refused { reason } }]
        } else {
            hand.undo(change)
        };
        if let (Some(journal), Some(item)) = (journal.as_mut(), items.first()) {
            let _ = journal.tell(Record::Back { seq: *seq, outcome: item.outcome.clone() });
        }
        done.items.extend(items);
    }
    done.items.extend(hand.newborn(&|_| true));
    // Those forked meanwhile.
    done.items.extend(heirs.and(hand.heirs()).items());
    done.items.extend(hand.waited());
    done.items.extend(hand.queues());
    hand.verify(&mut done);
    done.items.extend(strangers(state, past));
    if done.is_complete() {
        close(state, &mut done);
    }
    done
}

/// Lets a thread out of the shield that is up, which stays: puts back what `stay` tells.
pub(crate) fn let_out(
    kernel: &dyn Kernel,
    state: &StateDir,
    past: &Past,
    stay: &Stay,
) -> Vec<PutBack> {
    let Some(shield) = &past.shield else { return Vec::new() };
    let hand = Hand::new(kernel, state, shield, past);
    // The priority first: what has one leaves nobody else the CPUs that it comes to.
    let changes = stay.scheduling.iter().chain(&stay.entered);
    let mut items: Vec<PutBack> = changes.flat_map(|change| hand.undo(change)).collect();
    items.extend(stay.cpus.iter().flat_map(|one| hand.opened(one)));
    items
}

/// Gives everybody the CPUs of a shield that is up and stays, by the threads' own affinity; not to who was put onto it, nor to threads of
/// the kernel.
pub(crate) fn open_threads(kernel: &dyn Kernel, state: &StateDir, past: &Past) -> Vec<PutBack> {
    let Some(shield) = &past.shield else { return Vec::new() };
    let hand = Hand::new(kernel, state, shield, past);
    let mut items = hand.opened_wide();
    items.extend(hand.newborn(&|now| !now.intersects(&shield.cpus)));
    items
}

/// What is not understood of a journal: it is kept.
fn strangers(state: &StateDir, past: &Past) -> impl Iterator<Item = PutBack> {
    let what = journal::path(state).display().to_string();
    past.unread.iter().map(move |line| PutBack {
        what: what.clone(),
        outcome: Return::Refused { reason: past.stranger(line) },
    })
}

/// Closes the journal.
pub(crate) fn close(state: &StateDir, done: &mut Reverted) {
    fault::point();
    match journal::archive(state) {
        Ok(path) => done.history = Some(path.display().to_string()),
        Err(error) => done.items.push(PutBack {
            what: journal::path(state).display().to_string(),
            outcome: Return::Refused { reason: format!("cannot be closed: {}", plain(&error)) },
        }),
    }
}

/// Puts back what outlives a reboot, of the journal of an earlier boot, and closes it.
pub(crate) fn put_back_files(kernel: &dyn Kernel, state: &StateDir, past: &Past) -> Reverted {
    let mut done = Reverted {
        schema: REVERTED_SCHEMA.into(),
        rebooted: true,
        items: Vec::new(),
        history: None,
    };
    if let Some(shield) = &past.shield {
        let hand = Hand::new(kernel, state, shield, past);
        let files = past.changes.iter().rev().map(|(_, change)| change);
        let lasts =
            |change: &&Change| matches!(change, Change::File { .. } | Change::DropIn { .. });
        for change in files.filter(lasts) {
            done.items.extend(hand.undo(change));
        }
    }
    done.items.extend(strangers(state, past));
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
    state: &'a StateDir,
    shield: &'a Shield,
    past: &'a Past,
    /// CPUs that were switched off.
    off: CpuSet,
    /// CPUs that do not run now: of the machine as it was shielded, and others that are there.
    off_line: CpuSet,
    lives: HashMap<(u32, u64), Life<'a>>,
    /// Threads whose CPUs were refused while the shield stood, and those CPUs.
    waiting: RefCell<Vec<(&'a Thread, &'a CpuSet)>>,
    /// What threads had before they were given a priority.
    olds: HashMap<journal::Key, (Scheduling, Option<Nanos>)>,
    /// Threads that were there before all: by number, their start times and CPUs.
    then: HashMap<u32, (u64, &'a CpuSet)>,
    /// What groups list, by their files.
    groups: RefCell<HashMap<GroupPath, HashSet<u32>>>,
}

impl<'a> Hand<'a> {
    fn new(
        kernel: &'a dyn Kernel,
        state: &'a StateDir,
        shield: &'a Shield,
        past: &'a Past,
    ) -> Self {
        let all = shield.housekeeping.union(&shield.cpus);
        let online = kernel.read("/sys/devices/system/cpu/online").ok();
        let online = online.and_then(|text| text.trim().parse::<CpuSet>().ok());
        let off_line = online.map_or_else(CpuSet::new, |online| all.difference(&online));
        let off_line = off_line.union(&tasks::off_line(kernel));
        let (off, lives) = (switched_off(past), lives::of(past));
        let remembered = past.changes.iter().filter_map(|(_, change)| match change {
            Change::Remember { threads } => Some(threads),
            _ => None,
        });
        let then = remembered.flatten();
        let then = then.map(|(thread, old)| (thread.tid, (thread.start, old))).collect();
        let mut olds = HashMap::new();
        for (_, change) in &past.changes {
            if let Change::Scheduling { thread, old, slice, .. } = change {
                olds.entry(journal::key(thread)).or_insert((*old, *slice));
            }
        }
        let (waiting, groups) = (RefCell::default(), RefCell::default());
        Hand { kernel, state, shield, past, off, off_line, lives, waiting, olds, then, groups }
    }

    fn undo(&self, change: &'a Change) -> Vec<PutBack> {
        let what = change.what();
        let one = |outcome| vec![PutBack { what: what.clone(), outcome }];
        match change {
            Change::Hold => one(match hold::stop(self.state) {
                Ok(true) => Return::Restored,
                Ok(false) => Return::Untouched,
                Err(reason) => Return::Refused { reason },
            }),
            Change::Write { path, request, old, new, form, .. } => {
                let replaced = || change.replaced(self.kernel);
                let mut items = one(self.write(path, request, old, new, *form, &replaced));
                if path == DEFAULT_IRQS {
                    items.extend(self.newborn_irqs(old, new));
                }
                items
            }
            Change::Irq { number, name, .. }
                if served::serves_another(self.kernel, *number, name) =>
            {
                one(Return::Gone)
            }
            Change::Irq { number, old, effective, new, .. } => {
                one(self.irq(*number, old, effective.as_ref(), new))
            }
            Change::Scheduling { thread, old, slice, new, afresh } => {
                one(self.scheduling(thread, (*old, *slice), *new, *afresh))
            }
            Change::Affinity { threads } => self.affinities(&what, threads),
            Change::Remember { threads } => self.remembered(&what, threads),
            Change::Move { mount, from, to, threads } => {
                self.moved(&what, mount, from, to, threads)
            }
            Change::Make { path, unit } => one(self.group(path, *unit)),
            Change::File { path, old, new } => one(self.file(path, old, new)),
            Change::Ban { daemon, old, told, back } => one(self.ban(daemon, old, told, back)),
            Change::DropIn { path, made, old, new, restart } => {
                let mut items = one(drop_in::back(self.kernel, path, made, old.as_deref(), new));
                let is_ours =
                    !matches!(items[0].outcome, Return::Left { .. } | Return::Refused { .. });
                if is_ours && !self.was_refused(path) {
                    items.extend(drop_in::read_again(self.kernel, restart));
                }
                items
            }
        }
    }
}

impl Hand<'_> {
    /// Whether the file of settings `path` was never made: nobody has read it then.
    fn was_refused(&self, path: &str) -> bool {
        let of = |step: &&(Step, Outcome)| matches!(&step.0.action, Action::DropIn { path: of, .. } if of == path);
        self.past.outcomes.iter().rfind(of).is_some_and(|(_, outcome)| !outcome.holds())
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

    /// `replaced` tells of the device that the file belonged to, where that is another one by now.
    fn write(
        &self,
        path: &str,
        request: &str,
        old: &str,
        new: &str,
        form: Form,
        replaced: &dyn Fn() -> Option<String>,
    ) -> Return {
        let now = match self.kernel.read(request) {
            Ok(now) => now,
            Err(error) if is_gone(&error) => return Return::Gone,
            Err(error) => return Return::Refused { reason: write_reason(&error) },
        };
        let back = if form == Form::Word {
            if !same(form, &now, new) {
                return Return::Untouched;
            }
            if let Some(now) = self.in_use(path, word_of(new)) {
                return Return::Left { now };
            }
            format!("-{}", word_of(new))
        } else if same(form, &now, old) {
            return Return::Untouched;
        } else if !same(form, &now, new) && !self.lost_switched_off(path, &now, old) {
            return Return::Left { now: printable(now.trim(), 200) };
        } else if let Some(now) = replaced() {
            return Return::Left { now };
        } else {
            old.to_owned()
        };
        match self.act(|kernel| kernel.write(path, &back)) {
            Err(error) if is_gone(&error) => Return::Gone,
            // Somebody was faster than the look.
            Err(error) if form == Form::Word => match self.in_use(path, word_of(new)) {
                Some(now) => Return::Left { now },
                None => Return::Refused { reason: withdrawal_reason(&error) },
            },
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

    /// Who uses a controller that was given to the groups below the one of `path`, in words; `None` for nobody. The kernel refuses to
    /// take it from groups that pass it on, and takes it, settings and all, from those that do not.
    fn in_use(&self, path: &str, controller: &str) -> Option<String> {
        let mut users = Vec::new();
        let group = path.parse::<GroupPath>().ok()?.parent()?;
        self.users(&group, controller, DEEPEST, &mut users);
        let more = users.len().saturating_sub(NAMED);
        users.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!users.is_empty()).then(|| {
            format!("{controller} stays with the groups below: used by {}{more}", users.join(", "))
        })
    }

    /// Groups below `group` that use `controller`: the innermost ones that say so.
    fn users(&self, group: &GroupPath, controller: &str, depth: u32, found: &mut Vec<String>) {
        for name in self.kernel.list(group).unwrap_or_default() {
            let below = group.join(&name);
            let Ok(given) = self.kernel.read(&below.join("cgroup.subtree_control")) else {
                continue;
            };
            let before = found.len();
            let passes_on = same(Form::Word, &given, controller);
            if passes_on && depth > 0 {
                self.users(&below, controller, depth - 1, found);
            }
            let is_set = |file: &str| {
                let text = self.kernel.read(&below.join(file)).unwrap_or_default();
                !matches!(text.trim(), "" | "member")
            };
            if found.len() == before
                && (passes_on || controller == "cpuset" && SETTINGS.into_iter().any(is_set))
            {
                found.push(below.into());
            }
        }
    }

    /// Whether `now` is what the kernel left of a v1 group when CPUs were switched off, where our own write was refused: it forgets
    /// them there for good.
    fn lost_switched_off(&self, path: &str, now: &str, old: &str) -> bool {
        let (Ok(now), Ok(old)) = (now.trim().parse::<CpuSet>(), old.trim().parse::<CpuSet>())
        else {
            return false;
        };
        path.ends_with("/cpuset.cpus")
            && now.is_subset(&old)
            && old.difference(&now).is_subset(&self.off)
    }

    /// Interrupts of devices that came since were born with the CPUs that we had made the default.
    fn newborn_irqs(&self, old: &str, new: &str) -> Vec<PutBack> {
        let (Ok(old), Ok(new)) = (CpuSet::from_mask(old.trim()), CpuSet::from_mask(new.trim()))
        else {
            return Vec::new();
        };
        let mut items = Vec::new();
        let known: HashSet<u32> = self.past.irqs.iter().map(|(number, _)| *number).collect();
        let mut served: HashMap<u32, HashSet<&str>> = HashMap::new();
        for (_, change) in &self.past.changes {
            if let Change::Irq { number, name, .. } = change {
                served.entry(*number).or_default().insert(name);
            }
        }
        let numbers = self.kernel.list("/proc/irq").unwrap_or_default();
        for number in numbers.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let file = irq_file(number);
            let mut names = served.get(&number).into_iter().flatten();
            let was_there = self.past.up.is_none()
                || known.contains(&number)
                    && !names.any(|name| served::serves_another(self.kernel, number, name));
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
        if now != *new && !halfway && !self.was_driven_off(&now, new) {
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
            Err(_) if old.is_subset(&self.off_line) => {
                return Return::Refused {
                    reason: format!(
                        "CPU {old}, where it was, is off line; switch that on, and revert again"
                    ),
                };
            }
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

    /// Whether the kernel itself gave an interrupt of the CPUs `asked` every CPU that runs, when those went off line.
    fn was_driven_off(&self, now: &CpuSet, asked: &CpuSet) -> bool {
        let all = self.shield.housekeeping.union(&self.shield.cpus);
        let gone = self.forgotten();
        asked.is_subset(&gone) && *now == all.difference(&gone)
    }

    /// CPUs that do not run, or did not when an earlier revert began.
    fn forgotten(&self) -> CpuSet {
        self.past.off_line.union(&self.off_line)
    }

    fn group(&self, path: &GroupPath, unit: bool) -> Return {
        let unit = unit.then(|| path.name());
        let is_known = unit.is_some_and(|name| self.kernel.read(&unit_file(name)).is_ok());
        let files = match self.kernel.list(path) {
            Ok(files) => files,
            Err(_) if is_known => Vec::new(),
            Err(_) => return Return::Untouched,
        };
        let has = |name: &str| files.iter().any(|file| file == name);
        if has("cpuset.cpus.partition") {
            let partition = path.join("cpuset.cpus.partition");
            if self.kernel.read(&partition).is_ok_and(|now| now.trim() != "member") {
                let written = self.act(|kernel| kernel.write(&partition, "member"));
                if let Err(error) = written {
                    return Return::Refused { reason: write_reason(&error) };
                }
            }
        }
        let file = if has("cpuset.cpus.partition") { "cgroup.procs" } else { "tasks" };
        let (file, above) = (path.join(file), path.beside(file));
        let homes = Homes::of(self.kernel, self.past, &file);
        if let Some(name) = unit {
            if let Err(reason) = self.empty(&file, &above, &homes) {
                return Return::Refused { reason };
            }
            if let Err(error) = self.act(|kernel| kernel.unit(name, None)) {
                return Return::Refused { reason: plain(&error) };
            }
        }
        self.groups.borrow_mut().clear();
        for attempt in 0..REMOVALS {
            if let Err(reason) = self.empty(&file, &above, &homes) {
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

    /// Tasks that were born in a group of ours go home; to the group above it where that is not known, is gone or takes nobody.
    /// Ending ones are listed for some time and cannot be moved: they are no reason to wait here.
    fn empty(&self, from: &GroupPath, above: &GroupPath, homes: &Homes<'_>) -> Result<(), String> {
        for _ in 0..PASSES {
            let mut moved = 0;
            for tid in tasks::listed(self.kernel, from).unwrap_or_default() {
                let enter =
                    |group: &GroupPath| self.act(|kernel| kernel.write(group, &tid.to_string()));
                let home = homes.home(tid).filter(|home| home != above);
                let is_home = home.is_some_and(|home| enter(&home).is_ok());
                match if is_home { Ok(()) } else { enter(above) } {
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
        let is_balanced = self.is_balanced();
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, item) in done.items.iter().enumerate() {
            places.entry(item.what.clone()).or_default().push(at);
        }
        for (_, change) in &self.past.changes {
            let is_anothers = matches!(change, Change::Irq { number, name, .. }
                if served::serves_another(self.kernel, *number, name));
            if is_anothers || change.replaced(self.kernel).is_some() || !known.insert(change.what())
            {
                continue;
            }
            if let Change::Irq { number, .. } = change
                && places.contains_key(&came_since(*number))
            {
                continue;
            }
            let mut anothers = false;
            let (now, fine) = match change {
                Change::Write { request, old, form, .. } if *form != Form::Word => {
                    let Ok(now) = self.kernel.read(request) else { continue };
                    let fine = same(*form, &now, old);
                    (printable(now.trim(), 200), fine)
                }
                Change::Irq { number, old, new, .. } => {
                    let Ok(now) = self.cpus(&irq_file(*number)) else { continue };
                    anothers = now != *new || is_balanced;
                    (format!("CPU {now}"), now == *old)
                }
                Change::Make { path, .. } => {
                    ("still there".into(), self.kernel.list(path).is_err())
                }
                _ => continue,
            };
            if fine {
                continue;
            }
            for at in places.get(&change.what()).into_iter().flatten() {
                let item = &mut done.items[*at];
                if item.outcome == Return::Restored {
                    item.outcome = if anothers {
                        Return::Left { now: now.clone() }
                    } else {
                        let reason = format!("it was put back, and is {now} again");
                        Return::Refused { reason }
                    };
                }
            }
        }
    }

    /// Whether an irqbalance that had our ban runs: it gives interrupts what CPUs it likes, and may have moved some again.
    fn is_balanced(&self) -> bool {
        self.past.changes.iter().any(|(_, change)| {
            matches!(change, Change::Ban { daemon, .. } if tasks::lives(self.kernel, daemon))
        })
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
