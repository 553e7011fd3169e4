//! The steps to a shield, in the order that works: what is born, then who may run, then what
//! interrupts, then the chain itself.

use crate::{
    Mode, REST_GROUP, SHIELD_GROUP, SHIELD_UNIT, is_ours, links::Found, lookup::Lookup,
    names::served, note, say, shield_group, sources::stuck_at, warning,
};
use quiet_types::{
    CpuSet, Finding, GroupPath, Machine,
    machine::{Irq, Policy, Scheduling, Task},
    plan::{Action, Form, GroupFile, GroupValue, Narrow, Need, Step, Thread, Who},
    shield::{Mechanism, Shield},
};

use std::collections::HashSet;

const WORKQUEUES: &str = "sys/devices/virtual/workqueue";

pub(crate) fn steps(
    on: &Lookup<'_>,
    shield: &Shield,
    links: &[Found<'_>],
    mode: Mode,
    off: &CpuSet,
    findings: &mut Vec<Finding>,
) -> Vec<Step> {
    let budgets = HashSet::new();
    let mut list = List {
        on,
        machine: on.machine,
        shield,
        mode,
        off,
        polled: CpuSet::new(),
        steps: Vec::new(),
        budgets,
        findings,
    };
    list.polled = list.polled_by(links);
    list.irqbalance();
    list.new_interrupts();
    match shield.mechanism {
        Mechanism::PartitionV2 => list.partition(),
        Mechanism::SetsV1 => list.sets(),
        Mechanism::Affinity => {}
    }
    list.workqueues();
    list.threads(links);
    list.interrupts(links);
    list.siblings_off();
    if !off.is_empty() {
        list.threads_again(links);
    }
    for link in links {
        list.link(link);
    }
    list.softirqs(links);
    list.calm();
    list.cards(links);
    list.power();
    match mode {
        Mode::SleepingChain => list.guards_stay(),
        Mode::NeverSleepingCore => list.guards_go(),
    }
    list.latency();
    list.pipewire(links);
    list.steps
}

pub(crate) struct List<'a> {
    pub on: &'a Lookup<'a>,
    pub machine: &'a Machine,
    pub shield: &'a Shield,
    pub mode: Mode,
    /// SMT siblings that are switched off.
    pub off: &'a CpuSet,
    /// CPUs on which a data loop of PipeWire's polls.
    pub polled: CpuSet,
    pub steps: Vec<Step>,
    /// Files of groups' budgets that a step writes.
    pub budgets: HashSet<GroupPath>,
    pub findings: &'a mut Vec<Finding>,
}

impl List<'_> {
    pub fn push(
        &mut self,
        need: Need,
        action: Action,
        old: Option<String>,
        why: impl Into<String>,
    ) {
        self.steps.push(Step { action, old, why: why.into(), need });
    }

    /// Gives a kernel file a value, unless it has it.
    pub fn set(&mut self, path: &str, value: &str, form: Form, why: impl Into<String>) {
        let old = self.machine.text(path).map(str::to_owned);
        if old.as_deref() == Some(value) {
            return;
        }
        let (path, value) = (format!("/{path}"), value.to_owned());
        self.push(Need::BestEffort, Action::Write { path, request: None, value, form }, old, why);
    }

    /// CPUs that nobody but the chain is to use: the shield, and siblings that are switched off.
    fn closed(&self) -> CpuSet {
        self.shield.cpus.union(self.off)
    }

    /// What is left of `cpus` off the shield; all housekeeping CPUs where nothing is.
    pub fn outside(&self, cpus: &CpuSet) -> CpuSet {
        let left = cpus.difference(&self.closed());
        if left.is_empty() { self.shield.housekeeping.clone() } else { left }
    }

    fn new_interrupts(&mut self) {
        let Some(old) = self.machine.default_irq_affinity.clone() else { return };
        if old.intersects(&self.shield.cpus) {
            self.push(
                Need::BestEffort,
                Action::Write {
                    path: "/proc/irq/default_smp_affinity".into(),
                    request: None,
                    value: self.outside(&old).to_mask(),
                    form: Form::Mask,
                },
                Some(old.to_mask()),
                "interrupts of devices that come later start off the shield",
            );
        }
    }

    fn partition(&mut self) {
        let Some(mount) = self.machine.cgroups.v2.clone() else { return };
        let group = shield_group(self.machine, &self.shield.cpus);
        if group == SHIELD_UNIT {
            return self.unit(&mount);
        }
        self.push(
            Need::Essential,
            Action::Write {
                path: mount.join("cgroup.subtree_control").into(),
                request: None,
                value: "+cpuset".into(),
                form: Form::Word,
            },
            None,
            "groups below the root get cpuset files",
        );
        let narrow = self.groups_beside(&mount);
        let cpus = self.shield.cpus.to_string();
        let kind = crate::partition_kind(self.machine);
        let file = |name: &str, value: &str, form, need| GroupFile {
            name: name.into(),
            value: GroupValue::Is(value.into()),
            form,
            need,
        };
        if group != SHIELD_GROUP {
            self.push(
                Need::Essential,
                Action::Group {
                    path: mount.join(SHIELD_GROUP),
                    files: vec![
                        file("cpuset.cpus", &cpus, Form::List, Need::Essential),
                        file("cpuset.cpus.exclusive", &cpus, Form::List, Need::Essential),
                        file("cgroup.subtree_control", "+cpuset", Form::Word, Need::Essential),
                    ],
                    narrow: Vec::new(),
                    unit: None,
                },
                None,
                "these CPUs were isolated at boot: some kernels then take only a partition whose \
                 parent is none",
            );
        }
        self.push(
            Need::Essential,
            Action::Group {
                path: mount.join(group),
                files: vec![
                    file("cpuset.cpus", &cpus, Form::List, Need::Essential),
                    // Linux 6.7 and newer: the CPUs are claimed even where siblings name them too.
                    file("cpuset.cpus.exclusive", &cpus, Form::List, Need::BestEffort),
                    file("cpuset.cpus.partition", kind, Form::Partition, Need::Essential),
                    // As long as a group below the root passes it on, nobody can take the controller
                    // away at the root: systemd would, once no unit of its own needs it any more.
                    file("cgroup.subtree_control", "+cpuset", Form::Word, Need::BestEffort),
                ],
                narrow,
                unit: None,
            },
            None,
            "the kernel takes these CPUs from every other group and balances nothing onto them",
        );
    }

    /// A slice of systemd, which writes the partition anew at each daemon-reload.
    fn unit(&mut self, mount: &GroupPath) {
        let cpus = self.shield.cpus.to_string();
        let text = format!(
            "# Written by `quietcores apply`, taken away by `quietcores revert`.\n\
             [Unit]\n\
             Description=CPUs of their own for the audio chain (quietcores)\n\
             \n\
             [Slice]\n\
             AllowedCPUs={cpus}\n\
             CPUSetPartition=isolated\n"
        );
        let file = |name: &str, value: &str, form| GroupFile {
            name: name.into(),
            value: GroupValue::Is(value.into()),
            form,
            need: Need::Essential,
        };
        self.push(
            Need::Essential,
            Action::Group {
                path: mount.join(SHIELD_UNIT),
                files: vec![
                    file("cpuset.cpus", &cpus, Form::List),
                    file("cpuset.cpus.partition", "isolated", Form::Partition),
                ],
                narrow: Vec::new(),
                unit: Some(text),
            },
            None,
            "systemd asks the kernel to take these CPUs from every other group and to balance \
             nothing onto them, and does so again at each daemon-reload",
        );
    }

    fn sets(&mut self) {
        let Some(mount) = self.machine.cgroups.v1_cpuset.clone() else { return };
        let prefix = if self.machine.cgroups.v1_prefix { "cpuset." } else { "" };
        let set = |cpus: &CpuSet, balance: Option<&str>| {
            let mut files = vec![
                GroupFile {
                    name: format!("{prefix}cpus"),
                    value: GroupValue::Is(cpus.to_string()),
                    form: Form::List,
                    need: Need::Essential,
                },
                GroupFile {
                    name: format!("{prefix}mems"),
                    value: GroupValue::SameAs(mount.join(&format!("{prefix}mems")).into()),
                    form: Form::List,
                    need: Need::Essential,
                },
            ];
            files.extend(balance.map(|value| GroupFile {
                name: format!("{prefix}sched_load_balance"),
                value: GroupValue::Is(value.into()),
                form: Form::Text,
                need: Need::BestEffort,
            }));
            files
        };
        self.push(
            Need::Essential,
            Action::Group {
                path: mount.join(REST_GROUP),
                files: set(&self.shield.housekeeping, None),
                narrow: Vec::new(),
                unit: None,
            },
            None,
            "everybody else lives here: its tasks and their children cannot reach the shield",
        );
        self.push(
            Need::Essential,
            Action::Group {
                path: mount.join(SHIELD_GROUP),
                files: set(&self.shield.cpus, Some("0")),
                narrow: Vec::new(),
                unit: None,
            },
            None,
            "the chain lives here, and the kernel balances nothing among its CPUs",
        );
        self.push(
            Need::BestEffort,
            Action::MoveTasks {
                from: mount.join("tasks"),
                to: mount.join(REST_GROUP).join("tasks"),
            },
            self.user_tasks_of_root(),
            "user tasks leave the shielded CPUs, and what they start stays off them",
        );
        self.narrow_groups(&mount, &format!("{prefix}cpus"));
        let root = self.machine.cgroups.groups.iter().find(|group| group.path.is_root());
        if root.is_none_or(|root| root.load_balance != Some(false)) {
            self.push(
                Need::BestEffort,
                Action::Write {
                    path: mount.join(&format!("{prefix}sched_load_balance")).into(),
                    request: None,
                    value: "0".into(),
                    form: Form::Text,
                },
                Some("1".into()),
                "the scheduler stops balancing between the shield and the rest",
            );
        }
    }

    fn user_tasks_of_root(&self) -> Option<String> {
        let count = self
            .machine
            .tasks
            .iter()
            .filter(|task| {
                task.kernel.is_none() && task.cgroup.as_ref().is_some_and(GroupPath::is_root)
            })
            .count();
        (count > 0).then(|| format!("{count} user threads in the root set"))
    }

    /// Groups of others that name CPUs of the shield, children first: the file, what is left to
    /// it and what it is. Those with nothing left are told of.
    fn named_by_others(&mut self, mount: &GroupPath, file: &str, top_only: bool) -> Vec<Narrow> {
        let (machine, closed) = (self.machine, self.closed());
        let mut found = Vec::new();
        for group in machine.cgroups.groups.iter().rev() {
            let Some(cpus) = &group.cpus else { continue };
            let Some(above) = group.path.parent() else { continue };
            if (top_only && !above.is_root())
                || is_ours(&group.path)
                || (above.is_root() && group.path.name() == REST_GROUP)
                || !cpus.intersects(&closed)
            {
                continue;
            }
            let whole = mount.join(&group.path).join(file);
            let left = cpus.difference(&closed);
            if left.is_empty() {
                self.findings.push(
                    warning(
                        "plan.group-on-shield",
                        format!("group {} has no CPU outside the shield", group.path),
                    )
                    .evidence(format!("{whole} is {cpus}"))
                    .effect("its tasks keep running on the shielded CPUs")
                    .remedy("give it other CPUs, or shield others"),
                );
                continue;
            }
            found.push(Narrow { path: whole, value: left.to_string(), old: cpus.to_string() });
        }
        found
    }

    /// Beside a v2 partition others may name its CPUs where the kernel lets it claim them
    /// (`cpuset.cpus.exclusive`, Linux 6.7 and newer): theirs are narrowed only where it refuses.
    fn groups_beside(&mut self, mount: &GroupPath) -> Vec<Narrow> {
        let narrow = self.named_by_others(mount, "cpuset.cpus", true);
        let units: Vec<String> = narrow
            .iter()
            .map(|one| group_name(&one.path, mount))
            .filter(|name| [".slice", ".scope", ".service"].iter().any(|end| name.ends_with(end)))
            .collect();
        if !units.is_empty() {
            self.findings.push(
                note("plan.unit-names-shield", "units of systemd name CPUs of the shield")
                    .evidence(units.join(", "))
                    .effect(
                        "the partition is claimed beside them; a kernel that refuses it so gets \
                         their cpuset.cpus narrowed, which systemd writes again at daemon-reload: \
                         the partition is invalid then, and `status` says so",
                    )
                    .remedy("take these CPUs out of AllowedCPUs= of these units"),
            );
        }
        narrow
    }

    /// Takes the shield's CPUs from groups of others that name them.
    fn narrow_groups(&mut self, mount: &GroupPath, file: &str) {
        for Narrow { path, value, old } in self.named_by_others(mount, file, false) {
            let why = format!("group {} is kept to CPUs off the shield", group_name(&path, mount));
            let write = Action::Write { path: path.into(), request: None, value, form: Form::List };
            self.push(Need::BestEffort, write, Some(old), why);
        }
    }

    fn workqueues(&mut self) {
        let queues = &self.machine.workqueues;
        // From Linux 6.8 the kernel takes the CPUs of partitions away by itself, and what a queue
        // has of its own counts within that.
        if self.shield.mechanism == Mechanism::PartitionV2 && queues.isolated.is_some() {
            return;
        }
        let old = queues.requested.as_ref().or(queues.effective.as_ref());
        if let Some(old) = old.filter(|old| old.intersects(&self.shield.cpus)).cloned() {
            self.push(
                Need::BestEffort,
                Action::Write {
                    path: format!("/{WORKQUEUES}/cpumask"),
                    request: Some(format!("/{WORKQUEUES}/cpumask_requested")),
                    value: self.outside(&old).to_mask(),
                    form: Form::Mask,
                },
                Some(old.to_mask()),
                "the kernel's unbound workers stay off the shield",
            );
        }
        let around = self.machine.surroundings.as_ref();
        let own: Vec<(String, CpuSet)> = around
            .iter()
            .flat_map(|around| &around.files)
            .filter(|(path, _)| path.starts_with(WORKQUEUES) && path.ends_with("/cpumask"))
            .filter_map(|(path, text)| Some((path.clone(), CpuSet::from_mask(text).ok()?)))
            .filter(|(_, old)| old.intersects(&self.shield.cpus))
            .collect();
        for (path, old) in own {
            let queue = path.split('/').nth_back(1).unwrap_or_default().to_owned();
            let value = self.outside(&old).to_mask();
            let why = match queue.as_str() {
                "writeback" => "writing back of files stays off the shield".to_owned(),
                _ => format!("the workqueue {queue}, which has a mask of its own, stays off"),
            };
            self.set(&path, &value, Form::Mask, why);
        }
    }

    /// A CPU that goes off line makes the kernel place some of its threads anew.
    fn threads_again(&mut self, links: &[Found<'_>]) {
        let everybody = self.shield.mechanism == Mechanism::Affinity;
        let action = Action::Confine {
            who: if everybody { Who::Everybody } else { Who::KernelThreads },
            off: self.closed(),
            to: self.shield.housekeeping.clone(),
            spare: handlers(links),
        };
        let why = "once more: the kernel has placed some of its threads anew meanwhile";
        self.push(Need::BestEffort, action, None, why);
    }

    fn threads(&mut self, links: &[Found<'_>]) {
        let own = own_irqs(links);
        let spare = handlers(links);
        let closed = self.closed();
        let everybody = self.shield.mechanism == Mechanism::Affinity;
        let movable: Vec<&Task> = self
            .machine
            .tasks
            .iter()
            .filter(|task| task.movable() && (everybody || task.kernel.is_some()))
            .filter(|task| task.allowed.intersects(&closed))
            .filter(|task| {
                task.kernel.is_none() || served(&task.comm).is_none_or(|irq| !own.contains(&irq))
            })
            .collect();
        if movable.is_empty() && !self.machine.tasks.is_empty() {
            return;
        }
        let names: Vec<&str> = movable.iter().take(6).map(|task| task.comm.as_str()).collect();
        let more = if movable.len() > names.len() { " ..." } else { "" };
        let old = format!(
            "{} may run on {}: {}{more}",
            movable.len(),
            say(&self.shield.cpus),
            names.join(", ")
        );
        self.push(
            Need::BestEffort,
            Action::Confine {
                who: if everybody { Who::Everybody } else { Who::KernelThreads },
                off: self.closed(),
                to: self.shield.housekeeping.clone(),
                spare,
            },
            (!movable.is_empty()).then_some(old),
            if everybody {
                "every thread that may be moved leaves the shielded CPUs; its children inherit that"
            } else {
                "kernel threads that may be moved leave the shielded CPUs"
            },
        );
    }

    fn interrupts(&mut self, links: &[Found<'_>]) {
        let machine = self.machine;
        let own = own_irqs(links);
        let mut stuck = Vec::new();
        for irq in machine.irqs.iter().filter(|irq| !own.contains(&irq.number)) {
            let Some(old) = irq.requested.as_ref() else { continue };
            // One that is bound to a sibling alone must leave before it is switched off.
            if !old.intersects(&self.shield.cpus) && !old.is_subset(self.off) {
                continue;
            }
            if irq.immovable.is_some() {
                stuck.push(irq);
                continue;
            }
            let at = match irq.effective.as_ref().filter(|cpus| !cpus.is_empty()) {
                Some(at) => format!("CPU {old}, delivered to CPU {at}"),
                None => format!("CPU {old}"),
            };
            self.push(
                Need::BestEffort,
                Action::Irq {
                    number: irq.number,
                    name: irq.actions.join(", "),
                    cpus: self.outside(old),
                },
                Some(at),
                "its handler runs off the shield",
            );
        }
        self.stuck(&stuck);
    }

    /// Tells of interrupts of others that stay on the shield; of one reason once.
    fn stuck(&mut self, stuck: &[&Irq]) {
        let on = self.on;
        let here = |irq: &&&Irq| {
            // Each CPU has its own timer: no device asks for it.
            !irq.is_of_each_cpu()
                && stuck_at(on, irq).is_some_and(|at| at.intersects(&self.shield.cpus))
        };
        let mut by_reason: Vec<(&str, Vec<&Irq>)> = Vec::new();
        for irq in stuck.iter().filter(here) {
            let reason = irq.immovable.as_deref().unwrap_or_default();
            match by_reason.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, irqs)) => irqs.push(irq),
                None => by_reason.push((reason, vec![irq])),
            }
        }
        let named = |irq: &Irq| format!("IRQ {} ({})", irq.number, irq.actions.join(", "));
        for (reason, mut irqs) in by_reason {
            // A board has a dozen of one kind.
            let told: Vec<(String, &str)> = if irqs.len() < 3 {
                let each = irqs.iter().map(|irq| format!("{} stays on the shield", named(irq)));
                each.map(|title| {
                    (title, "its handler interrupts the chain whenever the device asks")
                })
                .collect()
            } else {
                irqs.sort_by_key(|irq| (std::cmp::Reverse(irq.total()), irq.number));
                let names: Vec<String> = irqs.iter().take(6).map(|irq| named(irq)).collect();
                let more = if irqs.len() > names.len() { ", ..." } else { "" };
                let title = format!(
                    "{} interrupts stay on the shield: {}{more}",
                    irqs.len(),
                    names.join(", ")
                );
                vec![(title, "their handlers interrupt the chain whenever the devices ask")]
            };
            for (title, effect) in told {
                self.findings.push(
                    warning("plan.irq-immovable", title)
                        .evidence(reason)
                        .effect(effect)
                        .remedy("keep the device quiet, or shield another CPU"),
                );
            }
        }
    }

    fn link(&mut self, link: &Found<'_>) {
        let on = self.on;
        for irq in &link.irqs {
            // One that stays where it is is not asked to move: the link goes there, or it is told that it does not.
            if irq.immovable.is_none() {
                self.push(
                    Need::BestEffort,
                    Action::Irq {
                        number: irq.number,
                        name: irq.actions.join(", "),
                        cpus: link.cpus.clone(),
                    },
                    irq.requested.as_ref().map(|old| format!("CPU {old}")),
                    format!("link `{}`: its interrupt is served on {}", link.name, say(&link.cpus)),
                );
            }
            for task in on.handlers(irq.number) {
                // Kernels before 6.19 put it elsewhere when a partition is made; newer ones do not,
                // and let nobody move it.
                if task.movable() && task.allowed != link.cpus {
                    self.push(
                        Need::BestEffort,
                        Action::Pin { thread: thread(task), cpus: link.cpus.clone() },
                        Some(format!("CPU {}", task.allowed)),
                        format!("link `{}`: the thread of its interrupt goes with it", link.name),
                    );
                }
                self.priority(link, task);
            }
        }
        // A process enters as a whole by its first thread, whether that one is placed or not.
        let whole = self.shield.entry.as_ref().is_some_and(|entry| entry.whole_process);
        for first in link.firsts.iter().filter(|_| whole) {
            self.enter(link, first);
        }
        if whole && !self.polled.is_empty() {
            self.keep_off(link);
        }
        for task in &link.tasks {
            if !whole {
                self.enter(link, task);
            }
            self.push(
                Need::BestEffort,
                Action::Pin { thread: thread(task), cpus: link.cpus.clone() },
                Some(format!("CPU {}", task.allowed)),
                format!(
                    "link `{}`: nothing is balanced in a shield, each thread is put",
                    link.name
                ),
            );
            self.priority(link, task);
        }
    }

    /// Threads of a link that are in no list come along, and would never run beside one that polls: nothing is balanced in a shield.
    fn keep_off(&mut self, link: &Found<'_>) {
        let rest = self.shield.cpus.difference(&self.polled);
        for task in link.unlisted.iter().filter(|task| task.allowed != rest) {
            self.push(
                Need::BestEffort,
                Action::Pin { thread: thread(task), cpus: rest.clone() },
                Some(format!("CPU {}", task.allowed)),
                format!("link `{}`: kept off the CPU on which a loop polls", link.name),
            );
        }
    }

    fn enter(&mut self, link: &Found<'_>, task: &Task) {
        let (Some(entry), Some(mount)) = (&self.shield.entry, self.mount()) else { return };
        let file = entry.file.clone();
        self.push(
            Need::BestEffort,
            Action::Enter { thread: thread(task), file, mount },
            task.cgroup.clone().map(String::from),
            format!("link `{}` enters the shield", link.name),
        );
    }

    fn mount(&self) -> Option<GroupPath> {
        match self.shield.mechanism {
            Mechanism::PartitionV2 => self.machine.cgroups.v2.clone(),
            Mechanism::SetsV1 => self.machine.cgroups.v1_cpuset.clone(),
            Mechanism::Affinity => None,
        }
    }

    fn priority(&mut self, link: &Found<'_>, task: &Task) {
        let Some(priority) = link.priority else { return };
        let to = Scheduling { policy: Policy::Fifo, priority, nice: 0 };
        if (task.scheduling.policy, task.scheduling.priority) == (Policy::Fifo, priority) {
            return;
        }
        self.budget(task);
        self.push(
            Need::BestEffort,
            Action::Schedule { thread: thread(task), to },
            Some(task.scheduling.to_string()),
            format!("link `{}`: priorities rise down the chain", link.name),
        );
    }

    fn latency(&mut self) {
        self.push(
            Need::BestEffort,
            Action::HoldLatency,
            None,
            "idle CPUs stay in the state that they leave at once",
        );
    }
}

fn own_irqs(links: &[Found<'_>]) -> HashSet<u32> {
    links.iter().flat_map(|link| &link.irqs).map(|irq| irq.number).collect()
}

/// How the names of the threads begin that serve the interrupts of links.
fn handlers(links: &[Found<'_>]) -> Vec<String> {
    let irqs = links.iter().flat_map(|link| &link.irqs);
    irqs.map(|irq| format!("irq/{}-", irq.number)).collect()
}

/// `/system.slice` of `/sys/fs/cgroup/system.slice/cpuset.cpus`.
fn group_name(file: &GroupPath, mount: &GroupPath) -> String {
    let group = file.parent().unwrap_or_default();
    group.below(mount).map_or(group.to_string(), |below| format!("/{below}"))
}

pub(crate) fn thread(task: &Task) -> Thread {
    Thread { tid: task.tid, start: task.start, comm: task.comm.clone() }
}
