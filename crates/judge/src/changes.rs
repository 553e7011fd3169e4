//! What differs between two snapshots of one machine, of all that a shield may touch.

use quiet_types::{
    CpuSet, Machine,
    machine::{Group, Irq, Task},
};
use std::{collections::BTreeMap, fmt::Display};

/// Every difference in what a shield may touch, a sentence each; empty when the machine is as it
/// was: requested IRQ masks and their default, CPU groups and who is in them, workqueue masks,
/// settings, and the CPUs and scheduling of every thread that lived through both.
///
/// Left out is what the kernel moves by itself: effective IRQ affinities, counters, kernel workers.
pub fn changes(before: &Machine, after: &Machine) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            let shown = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
            found.push(format!("{what} was {} and is {}", shown(old), shown(new)));
        }
    };
    let mask = |cpus: &Option<CpuSet>| cpus.as_ref().map(text);

    let default = (&before.default_irq_affinity, &after.default_irq_affinity);
    compare("the default IRQ mask", mask(default.0), mask(default.1));
    for (number, old, new) in by_key(&before.irqs, &after.irqs, |irq: &Irq| irq.number) {
        let requested = |irq: Option<&Irq>| irq.and_then(|irq| mask(&irq.requested));
        compare(&format!("the mask of IRQ {number}"), requested(old), requested(new));
    }
    let queues = (&before.workqueues, &after.workqueues);
    compare("the workqueue mask", mask(&queues.0.effective), mask(&queues.1.effective));
    compare("the requested workqueue mask", mask(&queues.0.requested), mask(&queues.1.requested));
    let groups = (&before.cgroups.groups, &after.cgroups.groups);
    for (path, old, new) in by_key(groups.0, groups.1, |group: &Group| group.path.clone()) {
        let about = |group: Option<&Group>| {
            group.map(|group| {
                let balance = group.load_balance.map_or(String::new(), |on| {
                    format!(", load balancing {}", if on { "on" } else { "off" })
                });
                let partition = group.partition.as_deref().unwrap_or("no partition");
                let cpus = mask(&group.cpus).unwrap_or_else(|| "not told".to_owned());
                format!("CPUs {cpus}, {partition}{balance}")
            })
        };
        compare(&format!("the CPU group {path}"), about(old), about(new));
    }
    let settings = before.settings.keys().chain(after.settings.keys());
    let mut seen = std::collections::BTreeSet::new();
    for key in settings.filter(|key| seen.insert(key.as_str())) {
        compare(
            &format!("/{key}"),
            before.settings.get(key).cloned(),
            after.settings.get(key).cloned(),
        );
    }
    let lived = |task: &Task| (task.tid, task.start);
    for (_, old, new) in by_key(&before.tasks, &after.tasks, lived) {
        let (Some(old), Some(new)) = (old, new) else { continue };
        // Who has ended and waits for its parent keeps the CPUs that it had then.
        if old.comm.starts_with("kworker/") || matches!(new.state, 'Z' | 'X') {
            continue;
        }
        let name = format!("thread {} ({})", old.tid, old.comm);
        let group = |task: &Task| task.cgroup.clone().map(String::from);
        compare(&format!("the CPUs of {name}"), Some(text(&old.allowed)), Some(text(&new.allowed)));
        compare(&format!("the CPU group of {name}"), group(old), group(new));
        let scheduling = |task: &Task| {
            let s = task.scheduling;
            Some(format!("{:?} {} nice {}", s.policy, s.priority, s.nice))
        };
        compare(&format!("the scheduling of {name}"), scheduling(old), scheduling(new));
    }
    found
}

fn text(value: &impl Display) -> String {
    value.to_string()
}

/// Pairs up two lists by a key; what only one of them has stands alone.
fn by_key<'a, T, K: Ord + Clone>(
    before: &'a [T],
    after: &'a [T],
    key: impl Fn(&T) -> K,
) -> Vec<(K, Option<&'a T>, Option<&'a T>)> {
    let mut all: BTreeMap<K, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for one in before {
        all.entry(key(one)).or_default().0 = Some(one);
    }
    for one in after {
        all.entry(key(one)).or_default().1 = Some(one);
    }
    all.into_iter().map(|(key, (old, new))| (key, old, new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        CpuId, GroupPath,
        machine::{Cgroups, Policy, Scheduling},
    };

    fn machine() -> Machine {
        let task = |tid, start, comm: &str| Task {
            pid: tid,
            tid,
            start,
            comm: comm.to_owned(),
            command: String::new(),
            state: 'S',
            cpu: CpuId(0),
            allowed: "0-1".parse().unwrap(),
            scheduling: Scheduling { policy: Policy::Other, priority: 0, nice: 0 },
            kernel: None,
            cgroup: Some(GroupPath::root()),
            cpu_group: None,
            unit_group: None,
            exe: None,
            uid: 0,
        };
        Machine {
            default_irq_affinity: Some("0-1".parse().unwrap()),
            irqs: vec![Irq {
                number: 36,
                requested: Some("0-1".parse().unwrap()),
                ..Irq::default()
            }],
            tasks: vec![task(1, 5, "init"), task(9, 7, "mpd"), task(11, 8, "kworker/0:1")],
            cgroups: Cgroups {
                groups: vec![Group { load_balance: Some(true), ..Group::default() }],
                ..Cgroups::default()
            },
            settings: [("proc/sys/kernel/sched_rt_runtime_us".to_owned(), "950000".to_owned())]
                .into(),
            ..Machine::default()
        }
    }

    #[test]
    fn an_untouched_machine_shows_no_difference() {
        let mut after = machine();
        after.irqs[0].effective = Some("1".parse().unwrap());
        after.tasks[2].allowed = "1".parse().unwrap();
        after.tasks.remove(1);
        // Ended under the shield, and nobody has asked for its status yet.
        (after.tasks[0].state, after.tasks[0].allowed) = ('Z', "0".parse().unwrap());
        assert_eq!(changes(&machine(), &after), Vec::<String>::new());
    }

    #[test]
    fn whatever_is_left_behind_is_named() {
        let mut after = machine();
        after.irqs[0].requested = Some("0".parse().unwrap());
        after.cgroups.groups[0].load_balance = Some(false);
        after
            .cgroups
            .groups
            .push(Group { path: "/quietcores".parse().unwrap(), ..Group::default() });
        after.settings.clear();
        after.tasks[1].allowed = "0".parse().unwrap();
        after.tasks[1].scheduling.priority = 80;
        let found = changes(&machine(), &after);
        assert_eq!(
            found,
            [
                "the mask of IRQ 36 was 0-1 and is 0",
                "the CPU group / was CPUs not told, no partition, load balancing on and is CPUs not told, no partition, load balancing off",
                "the CPU group /quietcores was nothing and is CPUs not told, no partition",
                "/proc/sys/kernel/sched_rt_runtime_us was 950000 and is nothing",
                "the CPUs of thread 9 (mpd) was 0-1 and is 0",
                "the scheduling of thread 9 (mpd) was Other 0 nice 0 and is Other 80 nice 0",
            ]
        );
    }
}
