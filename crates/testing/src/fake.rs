//! A kernel of our own that answers as Linux does: it refuses, forgets, moves things on its own,
//! and can be stopped at any act. What it changes is in a [`World`], which is plain data.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_linux::{Kernel, unit_file};
use quiet_types::{
    CpuId, CpuSet, GroupPath, Nanos,
    machine::{Policy, Scheduling},
    plan::UserUnit,
};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory.
pub const ENOENT: i32 = 2;
/// No such process.
pub const ESRCH: i32 = 3;
/// Input/output error.
pub const EIO: i32 = 5;
/// Device or resource busy.
pub const EBUSY: i32 = 16;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Directory not empty.
const ENOTEMPTY: i32 = 39;

/// A file that services read when they are started.
pub const SETTINGS: &str = "/etc/pipewire/pipewire.conf.d/90-quietcores.conf";

/// Where this kernel's cpuset hierarchy is mounted.
pub const MOUNT: &str = "/sys/fs/cgroup/cpuset";

/// A group below the mount, or a file of it.
pub fn at(below: &str) -> GroupPath {
    MOUNT.parse::<GroupPath>().unwrap().join(below)
}

/// The kernel was stopped here, as by `kill -9`.
struct Stopped;

/// Runs until the end, or until the kernel stops: `None` then.
pub fn until_stopped<T>(run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Stopped>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

/// How an interrupt answers when it is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Temper {
    /// Moves at once.
    Moves,
    /// Moves when it next fires.
    MovesLater,
    /// Answers with this error.
    Refuses(i32),
    /// Accepts and does nothing.
    Ignores,
    /// Vanishes when it is written.
    Vanishes,
}

/// An interrupt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Irq {
    /// The CPUs that were asked for.
    pub asked: CpuSet,
    /// The CPUs that it goes to.
    pub effective: CpuSet,
    /// How it answers.
    pub temper: Temper,
}

/// A task: each is a process of one thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The process that it is a child of.
    pub parent: u32,
    /// When it began, in ticks.
    pub start: u64,
    /// Its name.
    pub comm: String,
    /// Whether it is a thread of the kernel's.
    pub kernel: bool,
    /// Whether its CPUs can be changed.
    pub movable: bool,
    /// What it asked for itself; what it gets is that within its group.
    pub asked: CpuSet,
    /// The group it is in, by path.
    pub group: String,
    /// Policy, priority and nice.
    pub scheduling: Scheduling,
    /// Of its own; any change of its policy makes the kernel forget it.
    pub slice: Option<Nanos>,
    /// What it starts begins under the ordinary policy.
    #[serde(default)]
    pub afresh: bool,
    /// Whose it is.
    #[serde(default)]
    pub uid: u32,
    /// Its process group and its session.
    #[serde(default)]
    pub leaders: [u32; 2],
}

/// A group of the cpuset hierarchy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Its CPUs, as they were written.
    pub cpus: CpuSet,
    /// Its memory nodes.
    pub mems: String,
    /// Whether load is balanced among its CPUs.
    pub balance: bool,
    /// v2 only.
    pub partition: String,
    /// v2 only: gives cpuset to groups of its own.
    pub passes_on: bool,
}

/// How the cpuset controller is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hierarchy {
    /// On version 1, in a hierarchy of its own.
    V1,
    /// On version 2.
    V2,
    /// Not at all.
    None,
}

/// The machine behind the kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct World {
    /// How the cpuset controller is there.
    pub hierarchy: Hierarchy,
    /// The CPUs that run.
    pub all: CpuSet,
    /// The kernel's files, by path, without their line ends.
    pub files: BTreeMap<String, String>,
    /// By number.
    pub irqs: BTreeMap<u32, Irq>,
    /// By TID.
    pub tasks: BTreeMap<u32, Task>,
    /// By path below the mount; the root is "".
    pub groups: BTreeMap<String, Group>,
    /// v2: the groups below the root have the controller.
    pub cpuset_below_root: bool,
    /// The TID of who is born next.
    pub next: u32,
    /// Ordinary files, as they are.
    pub texts: BTreeMap<String, String>,
    /// Directories below `/etc` that are there.
    #[serde(default)]
    pub dirs: BTreeSet<String>,
    /// Services that were started anew, each with what [`SETTINGS`] held by then.
    #[serde(default)]
    pub restarted: Vec<(String, Option<String>)>,
    /// Nothing can be started anew.
    #[serde(default)]
    pub mute: bool,
    /// The irqbalance that runs: its process, what it bans, what it bans by itself.
    pub irqbalance: Option<(u32, CpuSet, CpuSet)>,
    /// It scans whenever an interrupt is written, and moves all that may move off the CPUs that it was told to ban.
    pub scans: bool,
    /// v2: systemd makes groups, from its version 261 on.
    pub systemd: bool,
    /// v2: `cpuset.cpus.exclusive` is there, and a claim stands beside others that name the CPUs.
    pub claims: bool,
    /// CPUs 0 and 1, 2 and 3 ... have one frequency.
    pub shared_frequency: bool,
    /// v2, before Linux 6.2: threads that are given CPUs lose those that do not run, and all of the root are given
    /// every CPU that runs when a partition ends.
    pub forgets: bool,
}

/// The kernel: a world, and what happens to who changes it.
pub struct Fake {
    /// The machine.
    pub world: RefCell<World>,
    /// Acts so far.
    pub acts: Cell<u64>,
    /// Stops before this act.
    pub stop: Cell<Option<u64>>,
    /// Answers this act with an error, and does nothing.
    pub refuse: Cell<Option<(u64, i32)>>,
    /// Every so many acts a task is born, another one ends.
    pub life: Cell<Option<u64>>,
    /// Right before this act a task ends, and its number is given to a child of the first one.
    pub reborn: Cell<Option<(u64, u32)>>,
    /// Right before this act a task becomes another user's.
    pub turned: Cell<Option<(u64, u32)>>,
    /// What happens beside every act, right before it.
    pub beside: RefCell<Option<Box<dyn Fn() + Send>>>,
}

fn errno<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

impl World {
    /// The CPUs of all isolated partitions.
    pub fn partitioned(&self) -> CpuSet {
        self.groups
            .values()
            .filter(|group| group.partition == "isolated")
            .fold(CpuSet::new(), |all, group| all.union(&group.cpus))
    }

    /// CPUs that a group really has.
    fn effective(&self, path: &str) -> CpuSet {
        let group = &self.groups[path];
        if group.partition == "isolated" {
            return group.cpus.clone();
        }
        let own = if group.cpus.is_empty() { &self.all } else { &group.cpus };
        let own = own.intersection(&self.all).difference(&self.partitioned());
        if own.is_empty() { self.all.difference(&self.partitioned()) } else { own }
    }

    /// The CPUs that a task may run on.
    pub fn allowed(&self, tid: u32) -> CpuSet {
        let task = &self.tasks[&tid];
        if !task.movable {
            return task.asked.clone();
        }
        let group = self.effective(&task.group);
        let both = task.asked.intersection(&group);
        if both.is_empty() { group } else { both }
    }

    /// As [`World::allowed`], but CPUs that do not run are told as well.
    fn mask(&self, tid: u32) -> CpuSet {
        let task = &self.tasks[&tid];
        let own = task.asked.difference(&self.partitioned());
        if task.movable && task.group.is_empty() && !own.is_empty() {
            own
        } else {
            self.allowed(tid)
        }
    }

    fn is_dir(&self, path: &str) -> bool {
        ["/", "/etc"].contains(&path) || self.dirs.contains(path)
    }

    /// All that a shield may change, of what is in `other` as well.
    pub fn capture(&self, other: &World) -> String {
        let mut text = String::new();
        for (path, value) in &self.files {
            writeln!(text, "{path} {value}").unwrap();
        }
        writeln!(text, "{:?} {:?} {:?}", self.texts, self.dirs, self.irqbalance).unwrap();
        for (number, irq) in &self.irqs {
            if other.irqs.contains_key(number) {
                writeln!(text, "irq {number} {}", irq.asked).unwrap();
            }
        }
        for (path, group) in &self.groups {
            writeln!(text, "group {path} {group:?}").unwrap();
        }
        for (tid, task) in &self.tasks {
            if other.tasks.get(tid).is_some_and(|old| old.start == task.start) {
                let (allowed, group) = (self.allowed(*tid), &task.group);
                let (scheduling, slice) = (task.scheduling, task.slice);
                let (comm, afresh) = (&task.comm, task.afresh);
                writeln!(
                    text,
                    "task {tid} {comm} {allowed} {group} {scheduling} {slice:?} {afresh}"
                )
                .unwrap();
            }
        }
        writeln!(text, "cpuset below root {}", self.cpuset_below_root).unwrap();
        text
    }

    /// A task like its parent is born; its TID.
    pub fn born(&mut self, parent: u32) -> u32 {
        let tid = self.next;
        self.next += 1;
        let mut task = self.tasks[&parent].clone();
        task.parent = parent;
        task.start = u64::from(tid) * 100;
        task.comm = format!("born{tid}");
        if task.afresh {
            task.scheduling = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };
            task.afresh = false;
        }
        self.tasks.insert(tid, task);
        tid
    }

    /// `tid` ends, and a child of the first process is born with its number.
    pub fn reborn(&mut self, tid: u32) {
        let mut task = self.tasks[&1].clone();
        task.parent = 1;
        task.start = 1_000_000 + u64::from(tid);
        task.comm = format!("again{tid}");
        self.tasks.insert(tid, task);
    }

    fn path<'a>(&self, path: &'a str) -> Option<(&'a str, &'a str)> {
        let below = path.strip_prefix(MOUNT)?;
        let (group, name) = below.rsplit_once('/')?;
        self.groups.contains_key(group).then_some((group, name))
    }

    fn write(&mut self, path: &str, value: &str) -> io::Result<()> {
        if let Some(rest) = path.strip_prefix("/proc/irq/")
            && let Some((number, "smp_affinity_list")) = rest.split_once('/')
        {
            return self.write_irq(number.parse().unwrap(), value);
        }
        if self.hierarchy != Hierarchy::None
            && let Some((group, name)) = self.path(path)
        {
            let (group, name) = (group.to_owned(), name.to_owned());
            return self.write_group(&group, &name, value);
        }
        let path = &self.same_file(path);
        if !self.files.contains_key(path) {
            return errno(ENOENT);
        }
        if path.ends_with("/workqueue/cpumask") {
            self.files.insert(format!("{path}_requested"), value.to_owned());
        }
        let value = self.taken(path, value)?;
        self.files.insert(path.to_owned(), value);
        Ok(())
    }

    /// CPUs of one frequency policy have one directory.
    fn same_file(&self, path: &str) -> String {
        if !self.shared_frequency || !path.contains("/cpufreq/") {
            return path.to_owned();
        }
        let number: String = path.chars().filter(char::is_ascii_digit).collect();
        let number: u32 = number.parse().unwrap();
        path.replace(&format!("/cpu{number}/"), &format!("/cpu{}/", number & !1))
    }

    /// What a file reads after `value` was written to it, or why it is refused.
    fn taken(&mut self, path: &str, value: &str) -> io::Result<String> {
        let (dir, name) = path.rsplit_once('/').unwrap();
        let other = |name: &str| self.files.get(&format!("{dir}/{name}")).cloned();
        let number = || value.parse::<i64>().map_err(|_| io::Error::from_raw_os_error(EINVAL));
        match name {
            "enabled" | "defrag" => {
                let old = self.files[path].replace(['[', ']'], "");
                let mut words = old.split(' ');
                if !words.clone().any(|word| word == value) {
                    return errno(EINVAL);
                }
                let show =
                    |word: &str| if word == value { format!("[{word}]") } else { word.into() };
                let first = show(words.next().unwrap());
                Ok(words.fold(first, |all, word| format!("{all} {}", show(word))))
            }
            "energy_performance_preference"
                if other("scaling_governor").as_deref() == Some("performance")
                    && value != "performance" =>
            {
                errno(EBUSY)
            }
            "scaling_governor" if !["performance", "powersave"].contains(&value) => errno(EINVAL),
            "scaling_min_freq" => {
                let most: i64 = other("scaling_max_freq").unwrap().parse().unwrap();
                if number()? > most { errno(EINVAL) } else { Ok(value.into()) }
            }
            "pm_qos_resume_latency_us" if value != "n/a" && number()? < 0 => errno(EINVAL),
            "watchdog_cpumask" => {
                let cpus: CpuSet = value.parse().map_err(io::Error::other)?;
                Ok(cpus.to_string())
            }
            "cpu.rt_runtime_us" => {
                let own = number()?;
                let above = dir.rsplit_once('/').unwrap().0;
                let above = self.files.get(&format!("{above}/{name}"));
                let above = above.and_then(|text| text.parse::<i64>().ok()).unwrap_or(own);
                // Below it may not have more either.
                let below = self.files.iter().any(|(other, text)| {
                    other.starts_with(&format!("{dir}/"))
                        && other.ends_with(name)
                        && other != path
                        && text.parse::<i64>().unwrap() > own
                });
                if own > above || below { errno(EINVAL) } else { Ok(value.into()) }
            }
            "online" => self.switch(dir, value),
            _ => Ok(value.to_owned()),
        }
    }

    /// A CPU goes off line or comes back, and what hung on it alone is put elsewhere for good.
    fn switch(&mut self, dir: &str, value: &str) -> io::Result<String> {
        let number: String = dir.chars().filter(char::is_ascii_digit).collect();
        let cpu: CpuSet = number.parse().unwrap();
        if value == "1" {
            self.all = self.all.union(&cpu);
            if let (Hierarchy::V1, Some(root)) = (self.hierarchy, self.groups.get_mut("")) {
                root.cpus = self.all.clone();
            }
            return Ok(value.into());
        }
        let left = self.all.difference(&cpu).difference(&self.partitioned());
        if left.is_empty() || self.partitioned().intersects(&cpu) {
            return errno(EBUSY);
        }
        self.all = self.all.difference(&cpu);
        for task in self.tasks.values_mut().filter(|t| t.movable && t.asked.is_subset(&cpu)) {
            task.asked = self.all.clone();
        }
        for irq in self.irqs.values_mut() {
            if irq.asked.is_subset(&cpu) {
                irq.asked = self.all.clone();
            }
            if irq.effective.is_subset(&cpu) {
                irq.effective = irq.asked.intersection(&self.all).first().into_iter().collect();
            }
        }
        if self.hierarchy == Hierarchy::V1 {
            for group in self.groups.values_mut() {
                group.cpus = group.cpus.difference(&cpu);
            }
        }
        Ok(value.into())
    }

    fn write_irq(&mut self, number: u32, value: &str) -> io::Result<()> {
        let Some(irq) = self.irqs.get_mut(&number) else { return errno(ENOENT) };
        let cpus: CpuSet = value.parse().unwrap();
        if !cpus.intersects(&self.all) {
            return errno(EINVAL);
        }
        match irq.temper {
            Temper::Refuses(code) => return errno(code),
            Temper::Ignores => return Ok(()),
            Temper::Vanishes => {
                self.irqs.remove(&number);
                return errno(ENOENT);
            }
            Temper::Moves if !irq.effective.is_subset(&cpus) => {
                irq.effective = cpus.first().into_iter().collect();
            }
            Temper::Moves | Temper::MovesLater => {}
        }
        irq.asked = cpus;
        if let (true, Some((_, bans, own))) = (self.scans, &self.irqbalance)
            && bans != own
        {
            let rest = self.all.difference(bans);
            let moves = self.irqs.values_mut().filter(|irq| irq.temper == Temper::Moves);
            moves.for_each(|irq| irq.asked = rest.clone());
        }
        Ok(())
    }

    fn write_group(&mut self, path: &str, name: &str, value: &str) -> io::Result<()> {
        let v1 = self.hierarchy == Hierarchy::V1;
        let inside = self.tasks.values().any(|task| task.group == path);
        match name {
            "tasks" | "cgroup.procs" => return self.enter(path, value.parse().unwrap()),
            "cgroup.subtree_control" if path.is_empty() => {
                self.cpuset_below_root = value == "+cpuset";
                if value == "-cpuset" {
                    if self.groups.values().any(|group| group.passes_on) {
                        self.cpuset_below_root = true;
                        return errno(EBUSY);
                    }
                    // With their settings.
                    for (_, group) in self.groups.iter_mut().filter(|(path, _)| !path.is_empty()) {
                        let partition = "member".into();
                        *group = Group { balance: true, partition, ..Group::default() };
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        if !v1 && !path.is_empty() && !self.cpuset_below_root {
            return errno(ENOENT);
        }
        let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        let related = |wanted: &dyn Fn(&str) -> bool| -> Vec<CpuSet> {
            let found = self.groups.iter().filter(|(other, _)| wanted(other));
            found.map(|(_, group)| group.cpus.clone()).collect()
        };
        let others = related(&|other| other != path && parent(other) == parent(path));
        let children = related(&|other| parent(other).as_deref() == Some(path));
        let parents = related(&|other| parent(path).as_deref() == Some(other));
        let taken = self.partitioned();
        let all = self.all.clone();
        let Some(group) = self.groups.get_mut(path) else { return errno(ENOENT) };
        match name {
            "cpuset.cpus" => {
                let cpus: CpuSet = value.parse().unwrap();
                if cpus.is_empty() && inside && v1 {
                    return errno(ENOSPC);
                }
                if v1 && !path.is_empty() {
                    if parents.iter().any(|parent| !cpus.is_subset(parent)) {
                        return errno(EPERM);
                    }
                    if children.iter().any(|child| !child.is_subset(&cpus)) {
                        return errno(EBUSY);
                    }
                }
                if !cpus.is_subset(&all) {
                    return errno(EINVAL);
                }
                group.cpus = cpus;
            }
            "cpuset.mems" => group.mems = value.into(),
            "cpuset.sched_load_balance" => group.balance = value == "1",
            "cpuset.cpus.exclusive" if self.claims && !v1 && !path.is_empty() => {}
            "cpuset.cpus.partition" if value == "member" => {
                group.partition = "member".into();
                let root = self.tasks.values_mut().filter(|t| t.movable && t.group.is_empty());
                for task in root.filter(|_| self.forgets) {
                    task.asked = all.clone();
                }
            }
            "cpuset.cpus.partition" => {
                let clash =
                    !self.claims && others.iter().any(|other| other.intersects(&group.cpus));
                let left = all.difference(&group.cpus).difference(&taken);
                group.partition = if clash {
                    "isolated invalid (Cpu list in cpuset.cpus not exclusive)".into()
                } else if left.is_empty() {
                    "isolated invalid (Parent unable to distribute cpu downstream)".into()
                } else {
                    "isolated".into()
                };
            }
            _ => return errno(ENOENT),
        }
        Ok(())
    }

    fn enter(&mut self, path: &str, tid: u32) -> io::Result<()> {
        let group = &self.groups[path];
        if self.hierarchy == Hierarchy::V1 && (group.cpus.is_empty() || group.mems.is_empty()) {
            return errno(ENOSPC);
        }
        let Some(task) = self.tasks.get_mut(&tid) else { return errno(ESRCH) };
        if task.kernel && !task.movable {
            return errno(EINVAL);
        }
        task.group = path.into();
        Ok(())
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts.as_slice() {
            ["sys", "devices", "system", "cpu", "online"] => {
                return Ok(format!("{}\n", self.all));
            }
            ["proc", "irq", number, file] => {
                let number: u32 = match number.parse() {
                    Ok(number) => number,
                    Err(_) => return self.file(path),
                };
                let Some(irq) = self.irqs.get(&number) else { return errno(ENOENT) };
                return match *file {
                    "smp_affinity_list" => Ok(format!("{}\n", irq.asked)),
                    "effective_affinity_list" => Ok(format!("{}\n", irq.effective)),
                    _ => errno(ENOENT),
                };
            }
            ["proc", process, "task", tid, file] if process.parse::<u32>().is_ok() => {
                return self.task_file(tid.parse().unwrap(), file);
            }
            ["proc", tid, file] if tid.parse::<u32>().is_ok() && *file != "stat" => {
                return self.task_file(tid.parse().unwrap(), file);
            }
            _ => {}
        }
        match self.path(path) {
            Some((group, name)) if self.hierarchy != Hierarchy::None => {
                self.group_file(group, name)
            }
            _ => self.file(path),
        }
    }

    fn file(&self, path: &str) -> io::Result<String> {
        if let Some(text) = self.texts.get(path) {
            return Ok(text.clone());
        }
        match self.files.get(&self.same_file(path)) {
            Some(text) => Ok(format!("{text}\n")),
            None => errno(ENOENT),
        }
    }

    fn task_file(&self, tid: u32, file: &str) -> io::Result<String> {
        let Some(task) = self.tasks.get(&tid) else { return errno(ENOENT) };
        let flags = u64::from(task.kernel) * 0x0020_0000 + u64::from(!task.movable) * 0x0400_0000;
        let group = if task.group.is_empty() { "/" } else { &task.group };
        match (file, self.hierarchy) {
            ("stat", _) => Ok(format!(
                "{tid} ({}) S {} {} {} 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n",
                task.comm, task.parent, task.leaders[0], task.leaders[1], task.start
            )),
            ("status", _) => Ok(format!(
                "Name:\tx\nTgid:\t{tid}\nPPid:\t{0}\nUid:\t{1}\t{1}\t{1}\t{1}\nCpus_allowed_list:\t{2}\n",
                task.parent,
                task.uid,
                self.mask(tid)
            )),
            ("cgroup", Hierarchy::V1) => Ok(format!("3:cpuset:{group}\n0::/\n")),
            ("cgroup", Hierarchy::V2) => Ok(format!("0::{group}\n")),
            ("cgroup", Hierarchy::None) => Ok(String::new()),
            _ => errno(ENOENT),
        }
    }

    fn group_file(&self, path: &str, name: &str) -> io::Result<String> {
        let group = &self.groups[path];
        let v1 = self.hierarchy == Hierarchy::V1;
        let cpuset = v1 || path.is_empty() || self.cpuset_below_root;
        Ok(match name {
            "tasks" if v1 => self.inside(path),
            "cgroup.procs" | "cgroup.threads" if !v1 => self.inside(path),
            "cgroup.subtree_control" if !v1 => {
                if path.is_empty() && self.cpuset_below_root || group.passes_on {
                    "cpu cpuset\n"
                } else {
                    "cpu\n"
                }
                .into()
            }
            "cpuset.cpus" if cpuset => format!("{}\n", group.cpus),
            "cpuset.cpus.exclusive" if self.claims && !v1 && cpuset => format!("{}\n", group.cpus),
            "cpuset.mems" if v1 => format!("{}\n", group.mems),
            "cpuset.sched_load_balance" if v1 => format!("{}\n", u8::from(group.balance)),
            "cpuset.cpus.partition" if !v1 && cpuset && !path.is_empty() => {
                format!("{}\n", group.partition)
            }
            "cpuset.cpus.isolated" if !v1 && path.is_empty() => {
                let isolated = self.groups.values().filter(|group| group.partition == "isolated");
                format!("{}\n", isolated.fold(CpuSet::new(), |all, group| all.union(&group.cpus)))
            }
            _ => return errno(ENOENT),
        })
    }

    fn inside(&self, path: &str) -> String {
        let tids = self.tasks.iter().filter(|(_, task)| task.group == path);
        tids.map(|(tid, _)| format!("{tid}\n")).collect()
    }
}

impl Fake {
    /// One that refuses nothing and goes on for ever.
    pub fn new(world: World) -> Fake {
        Fake {
            world: RefCell::new(world),
            acts: Cell::new(0),
            stop: Cell::new(None),
            refuse: Cell::new(None),
            life: Cell::new(None),
            reborn: Cell::new(None),
            turned: Cell::new(None),
            beside: RefCell::new(None),
        }
    }

    /// One act: it may be the last one, or refused, and life goes on beside it.
    fn act(&self) -> io::Result<()> {
        let act = self.acts.get() + 1;
        self.acts.set(act);
        if let Some(beside) = self.beside.borrow().as_ref() {
            beside();
        }
        if self.stop.get() == Some(act) {
            resume_unwind(Box::new(Stopped));
        }
        if let Some(every) = self.life.get()
            && act.is_multiple_of(every)
        {
            self.live();
        }
        if let Some((at, tid)) = self.reborn.get()
            && at == act
        {
            self.world.borrow_mut().reborn(tid);
        }
        if let Some((at, tid)) = self.turned.get()
            && at == act
            && let Some(task) = self.world.borrow_mut().tasks.get_mut(&tid)
        {
            task.uid += 1;
        }
        match self.refuse.get() {
            Some((at, code)) if at == act => errno(code),
            _ => Ok(()),
        }
    }

    fn live(&self) {
        let mut world = self.world.borrow_mut();
        let users: Vec<u32> =
            world.tasks.iter().filter(|(_, t)| !t.kernel).map(|(tid, _)| *tid).collect();
        let pick = users[self.acts.get() as usize % users.len()];
        world.born(pick);
        // The first one stays: it is the parent of all.
        if let Some(end) = users.iter().rev().find(|tid| **tid > 1 && **tid != pick)
            && users.len() > 3
            && Some(*end) != world.irqbalance.as_ref().map(|one| one.0)
        {
            world.tasks.remove(end);
        }
    }
}

impl Kernel for Fake {
    fn read(&self, path: &str) -> io::Result<String> {
        self.world.borrow().read(path)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.act()?;
        self.world.borrow_mut().write(path, value)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let world = self.world.borrow();
        let numbers = |numbers: &mut dyn Iterator<Item = u32>| -> Vec<String> {
            numbers.map(|n| n.to_string()).collect()
        };
        if path == "/proc" {
            return Ok(numbers(&mut world.tasks.keys().copied()));
        }
        if path == "/proc/irq" {
            return Ok(numbers(&mut world.irqs.keys().copied()));
        }
        if let Some(pid) = path.strip_prefix("/proc/").and_then(|p| p.strip_suffix("/task")) {
            let pid = pid.parse::<u32>().unwrap();
            return match world.tasks.contains_key(&pid) {
                true => Ok(vec![pid.to_string()]),
                false => errno(ENOENT),
            };
        }
        if world.is_dir(path) {
            return Ok(Vec::new());
        }
        let Some(group) = path.strip_prefix(MOUNT) else { return errno(ENOENT) };
        if !world.groups.contains_key(group) || world.hierarchy == Hierarchy::None {
            return errno(ENOENT);
        }
        let mut names = match world.hierarchy {
            Hierarchy::V1 => vec!["cpuset.cpus", "cpuset.mems", "tasks"],
            _ if world.cpuset_below_root => vec!["cgroup.procs", "cpuset.cpus.partition"],
            _ => vec!["cgroup.procs"],
        };
        let below =
            world.groups.keys().filter_map(|path| path.strip_prefix(group)?.strip_prefix('/'));
        names.extend(below.filter(|name| !name.contains('/') && !name.is_empty()));
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.act()?;
        let mut world = self.world.borrow_mut();
        let Some(below) = path.strip_prefix(MOUNT) else { return errno(ENOENT) };
        let partition = if world.hierarchy == Hierarchy::V2 { "member" } else { "" };
        let group = Group { balance: true, partition: partition.into(), ..Group::default() };
        world.groups.insert(below.to_owned(), group);
        Ok(())
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.act()?;
        let mut world = self.world.borrow_mut();
        if world.dirs.contains(path) {
            let inner = format!("{path}/");
            let is_inside = |name: &String| name.starts_with(&inner);
            if world.texts.keys().any(is_inside) || world.dirs.iter().any(is_inside) {
                return errno(ENOTEMPTY);
            }
            world.dirs.remove(path);
            return Ok(());
        }
        let Some(below) = path.strip_prefix(MOUNT) else { return errno(ENOENT) };
        if !world.groups.contains_key(below) {
            return errno(ENOENT);
        }
        let inner = format!("{below}/");
        if world.tasks.values().any(|task| task.group == below)
            || world.groups.keys().any(|other| other.starts_with(&inner))
        {
            return errno(EBUSY);
        }
        world.groups.remove(below);
        Ok(())
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        let world = self.world.borrow();
        if world.tasks.contains_key(&tid) { Ok(world.allowed(tid)) } else { errno(ESRCH) }
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        self.act()?;
        let mut world = self.world.borrow_mut();
        let Some(task) = world.tasks.get(&tid) else { return errno(ESRCH) };
        let group = world.effective(&task.group.clone());
        if !task.movable || !cpus.intersects(&group) {
            return errno(EINVAL);
        }
        let cpus = if world.forgets { cpus.intersection(&world.all) } else { cpus.clone() };
        if let Some(task) = world.tasks.get_mut(&tid) {
            task.asked = cpus;
        }
        Ok(())
    }

    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        match self.world.borrow().tasks.get(&tid) {
            Some(task) => Ok(task.scheduling),
            None => errno(ESRCH),
        }
    }

    fn slice(&self, tid: u32) -> io::Result<Option<Nanos>> {
        match self.world.borrow().tasks.get(&tid) {
            Some(task) => Ok(task.slice),
            None => errno(ESRCH),
        }
    }

    fn set_scheduling(&self, tid: u32, to: Scheduling) -> io::Result<()> {
        self.restore_scheduling(tid, to, None)
    }

    fn restore_scheduling(&self, tid: u32, to: Scheduling, slice: Option<Nanos>) -> io::Result<()> {
        self.act()?;
        match self.world.borrow_mut().tasks.get_mut(&tid) {
            Some(task) => {
                (task.scheduling, task.slice) = (to, slice);
                Ok(())
            }
            None => errno(ESRCH),
        }
    }

    fn resets_on_fork(&self, tid: u32) -> io::Result<bool> {
        match self.world.borrow().tasks.get(&tid) {
            Some(task) => Ok(task.afresh),
            None => errno(ESRCH),
        }
    }

    fn reset_on_fork(&self, tid: u32, on: bool) -> io::Result<()> {
        self.act()?;
        match self.world.borrow_mut().tasks.get_mut(&tid) {
            Some(task) => {
                task.afresh = on;
                Ok(())
            }
            None => errno(ESRCH),
        }
    }

    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        self.act()?;
        match self.world.borrow_mut().texts.get_mut(path) {
            Some(file) => {
                *file = text.to_owned();
                Ok(())
            }
            None => errno(ENOENT),
        }
    }

    fn make_file(&self, path: &str, text: &str) -> io::Result<()> {
        let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).collect();
        for dir in ends.into_iter().map(|at| &path[..at]) {
            let is_new = !self.world.borrow().is_dir(dir);
            if is_new {
                self.act()?;
                self.world.borrow_mut().dirs.insert(dir.to_owned());
            }
        }
        self.act()?;
        self.world.borrow_mut().texts.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        self.act()?;
        match self.world.borrow_mut().texts.remove(path) {
            Some(_) => Ok(()),
            None => errno(ENOENT),
        }
    }

    fn restart(&self, unit: &UserUnit) -> io::Result<()> {
        self.act()?;
        let mut world = self.world.borrow_mut();
        if world.mute {
            return Err(io::Error::other("no manager answers"));
        }
        let read = world.texts.get(SETTINGS).cloned();
        world.restarted.push((unit.to_string(), read));
        Ok(())
    }

    fn sweep(&self, _path: &str) {}

    fn ask(&self, socket: &str, text: &str) -> io::Result<String> {
        if text == "setup" {
            let world = self.world.borrow();
            return match &world.irqbalance {
                Some((tid, bans, _)) if socket.ends_with(&format!("/irqbalance{tid}.sock")) => {
                    Ok(format!("SLEEP 10 IRQ 7 LOAD 1 DIFF 2 CLASS 3 BANNED {}", bans.to_mask()))
                }
                _ => errno(ENOENT),
            };
        }
        self.act()?;
        let list = text.strip_prefix("settings cpus ").unwrap();
        match &mut self.world.borrow_mut().irqbalance {
            Some((_, bans, own)) => {
                *bans = if list == "NULL" { own.clone() } else { list.parse().unwrap() };
                Ok(String::new())
            }
            None => errno(ENOENT),
        }
    }

    fn unit(&self, name: &str, text: Option<&str>) -> io::Result<()> {
        let group = format!("/{name}");
        self.act()?;
        let Some(text) = text else {
            // Its group stays while tasks are in it.
            let mut world = self.world.borrow_mut();
            if !world.tasks.values().any(|task| task.group == group) {
                world.groups.remove(&group);
                let used =
                    |(path, group): (&String, &Group)| !path.is_empty() && !group.cpus.is_empty();
                world.cpuset_below_root = world.groups.iter().any(used);
            }
            drop(world);
            self.act()?;
            self.world.borrow_mut().texts.remove(&unit_file(name));
            return Ok(());
        };
        self.world.borrow_mut().texts.insert(unit_file(name), text.to_owned());
        self.act()?;
        let set = |what: &str| text.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        let mut world = self.world.borrow_mut();
        world.cpuset_below_root = true;
        world.groups.insert(group.clone(), Group { balance: true, ..Group::default() });
        world.write_group(&group, "cpuset.cpus", set("AllowedCPUs="))?;
        // A refusal is a line in its log.
        world.write_group(&group, "cpuset.cpus.partition", set("CPUSetPartition="))
    }
}

/// A machine of `count` CPUs to shield `shield` on, with everything in it that may be met.
pub fn world(hierarchy: Hierarchy, count: u32, tempers: &[Temper], masks: &[u32]) -> World {
    let all: CpuSet = (0..count).map(CpuId).collect();
    let other = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };
    let mask = |bits: u32| -> CpuSet {
        let set: CpuSet = all.iter().filter(|cpu| bits >> cpu.0 & 1 == 1).collect();
        if set.is_empty() { all.clone() } else { set }
    };
    let mut tasks = BTreeMap::new();
    let mut task =
        |tid: u32, comm: &str, kernel: bool, movable: bool, asked: CpuSet, group: &str| {
            let (parent, comm, group) = (u32::from(tid > 2), comm.to_owned(), group.to_owned());
            let start = u64::from(tid) * 10;
            let scheduling = other;
            let slice = (!kernel && tid.is_multiple_of(2)).then_some(Nanos(5_000_000));
            tasks.insert(
                tid,
                Task {
                    parent,
                    start,
                    comm,
                    kernel,
                    movable,
                    asked,
                    group,
                    scheduling,
                    slice,
                    afresh: false,
                    uid: 0,
                    leaders: [0; 2],
                },
            );
        };
    task(1, "init", false, true, all.clone(), "");
    task(2, "kthreadd", true, true, all.clone(), "");
    for cpu in all.iter() {
        let own = [cpu].into_iter().collect();
        task(10 + cpu.0, &format!("ksoftirqd/{cpu}"), true, false, own, "");
    }
    task(30, "kswapd0", true, true, all.clone(), "");
    task(31, "kworker/u8:0", true, false, all.clone(), "");
    for (at, bits) in masks.iter().enumerate() {
        let (tid, group) = (100 + at as u32, if at % 4 == 3 { "/boxes/one" } else { "" });
        task(tid, &format!("user{at}"), false, true, mask(*bits), group);
    }
    let irqs = tempers
        .iter()
        .enumerate()
        .map(|(at, temper)| {
            let effective = [CpuId(at as u32 % count)].into_iter().collect();
            (40 + at as u32, Irq { asked: all.clone(), effective, temper: *temper })
        })
        .collect();
    let group = |cpus: &CpuSet| Group {
        cpus: cpus.clone(),
        mems: if hierarchy == Hierarchy::V2 { String::new() } else { "0".into() },
        balance: true,
        partition: if hierarchy == Hierarchy::V2 { "member".into() } else { String::new() },
        passes_on: false,
    };
    let none = CpuSet::new();
    let some = if hierarchy == Hierarchy::V2 { &none } else { &all };
    let groups = [("", &all), ("/boxes", some), ("/boxes/one", some)];
    let files = [
        ("/proc/irq/default_smp_affinity", all.to_mask()),
        ("/sys/devices/virtual/workqueue/cpumask", all.to_mask()),
        ("/sys/devices/virtual/workqueue/cpumask_requested", all.to_mask()),
        ("/proc/sys/kernel/random/boot_id", "b0".into()),
        ("/proc/interrupts", "CPU0".into()),
        ("/sys/devices/system/cpu/present", all.to_string()),
    ];
    World {
        hierarchy,
        files: files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect(),
        irqs,
        tasks,
        groups: groups.into_iter().map(|(path, cpus)| (path.to_owned(), group(cpus))).collect(),
        cpuset_below_root: hierarchy != Hierarchy::V2,
        next: 1000,
        all,
        texts: BTreeMap::new(),
        dirs: BTreeSet::new(),
        restarted: Vec::new(),
        mute: false,
        irqbalance: None,
        scans: false,
        systemd: false,
        claims: false,
        shared_frequency: false,
        forgets: false,
    }
}

/// TIDs in groups that are not of the world `before`.
pub fn strays(after: &World, before: &World) -> BTreeSet<u32> {
    let known = |task: &Task| before.groups.contains_key(&task.group);
    after.tasks.iter().filter(|(_, task)| !known(task)).map(|(tid, _)| *tid).collect()
}
