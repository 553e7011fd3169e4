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
/// Left out is what the kernel moves by itself: effective IRQ affinities, counters, kernel workers, and the CPUs of an interrupt's
/// thread, which are those of its interrupt as soon as that fires: where the interrupt's mask is as it was, see [`to_follow`].
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
        if !follows(new, before, after) {
            let cpus = |task: &Task| Some(text(&task.allowed));
            compare(&format!("the CPUs of {name}"), cpus(old), cpus(new));
        }
        compare(&format!("the CPU group of {name}"), group(old), group(new));
        let scheduling = |task: &Task| {
            let s = task.scheduling;
            Some(format!("{:?} {} nice {}", s.policy, s.priority, s.nice))
        };
        compare(&format!("the scheduling of {name}"), scheduling(old), scheduling(new));
    }
    found
}

/// Threads of interrupts that have other CPUs than before, a sentence each: their interrupts' masks are as they were, and each thread follows
/// when its interrupt fires next.
///
/// # Source
/// `irq_set_thread_affinity` and `irq_thread_check_affinity`, kernel/irq/manage.c: a new mask is only noted for the thread, which
/// takes it when it wakes.
pub fn to_follow(before: &Machine, after: &Machine) -> Vec<String> {
    let lived = |task: &Task| (task.tid, task.start);
    let both = by_key(&before.tasks, &after.tasks, lived);
    let both = both.into_iter().filter_map(|(_, old, new)| Some((old?, new?)));
    let waits = both.filter(|(old, new)| {
        let irq = interrupt_of(new).and_then(|number| irq(after, number));
        let own = irq.and_then(|irq| irq.effective.as_ref());
        // Where the kernel delivers it elsewhere than before, it has followed.
        old.allowed != new.allowed && own != Some(&new.allowed) && follows(new, before, after)
    });
    let sentence = |(old, new): (&Task, &Task)| {
        let number = interrupt_of(new).unwrap_or_default();
        format!(
            "thread {} ({}) has CPUs {} and had {}: it follows IRQ {number}, whose mask is as it was, when that fires next",
            new.tid, new.comm, new.allowed, old.allowed
        )
    };
    waits.map(sentence).collect()
}

/// Whether a task is the thread of an interrupt whose mask is as it was.
fn follows(task: &Task, before: &Machine, after: &Machine) -> bool {
    let mask = |machine, number| irq(machine, number).and_then(|irq| irq.requested.as_ref());
    interrupt_of(task).is_some_and(|number| {
        mask(before, number).is_some() && mask(before, number) == mask(after, number)
    })
}

/// The number in `irq/23-virtio1-requests`, where a task is the kernel's.
///
/// # Source
/// `setup_irq_thread`, kernel/irq/manage.c.
fn interrupt_of(task: &Task) -> Option<u32> {
    let (number, _) = task.comm.strip_prefix("irq/")?.split_once('-')?;
    task.kernel.and_then(|_| number.parse().ok())
}

fn irq(machine: &Machine, number: u32) -> Option<&Irq> {
    machine.irqs.iter().find(|irq| irq.number == number)
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
        machine::{Cgroups, KernelThread, Policy, Scheduling},
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

    /// Seen with `irq/23-virtio1-requests` of a kernel with threaded interrupts, after a tune.
    #[test]
    fn the_thread_of_an_interrupt_is_as_it_was_where_its_interrupt_is() {
        let mut before = machine();
        before.tasks[1].comm = "irq/36-virtio1-".to_owned();
        before.tasks[1].kernel = Some(KernelThread { movable: true });
        let mut after = before.clone();
        after.tasks[1].allowed = "0".parse().unwrap();
        assert_eq!(changes(&before, &after), Vec::<String>::new());
        assert_eq!(
            to_follow(&before, &after),
            [
                "thread 9 (irq/36-virtio1-) has CPUs 0 and had 0-1: it follows IRQ 36, whose mask is as it was, when that fires next"
            ]
        );
        // It has followed to where the kernel delivers it now.
        after.irqs[0].effective = Some("0".parse().unwrap());
        assert_eq!(to_follow(&before, &after), Vec::<String>::new());
        assert_eq!(to_follow(&before, &before), Vec::<String>::new());
        // What else of it is left behind is named.
        after.tasks[1].scheduling.priority = 80;
        assert_eq!(changes(&before, &after).len(), 1);

        // The interrupt's own mask is not as it was, is not told, or the program only calls itself so.
        let named = |after: &Machine, before: &Machine| {
            assert_eq!(to_follow(before, after), Vec::<String>::new());
            let found = changes(before, after);
            assert!(found.iter().any(|one| one.starts_with("the CPUs of thread 9")), "{found:?}");
        };
        let mut moved = after.clone();
        moved.irqs[0].requested = Some("0".parse().unwrap());
        named(&moved, &before);
        let (mut no, mut mask) = (before.clone(), after.clone());
        (no.irqs[0].requested, mask.irqs[0].requested) = (None, None);
        named(&mask, &no);
        (no, mask) = (before, after);
        (no.tasks[1].kernel, mask.tasks[1].kernel) = (None, None);
        named(&mask, &no);
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
