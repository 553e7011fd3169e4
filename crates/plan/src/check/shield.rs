//! Whether the CPUs that are set apart really are, by every source that has a say.

use super::{
    facts::{Facts, count, cpus, partitions, some, task_name},
    loader::is_loader_file,
    verdict::{NO_QUIET, Verdict, fine, moot, note, problem, unknown, warning},
};
use quiet_types::{
    CpuSet, GroupPath,
    finding::When,
    machine::{Group, Task},
    printable,
};
use std::collections::HashSet;

pub(super) fn none(f: &Facts) -> Verdict {
    let open = f.quiet.difference(&f.apart);
    if !f.quiet.is_empty() && open.is_empty() {
        return fine(format!("{} by {}", cpus(&f.quiet), f.quiet_by));
    }
    if !f.quiet.is_empty() {
        return warning(format!("nothing sets {} of the chain apart", cpus(&open)))
            .evidence(format!(
                "/sys/devices/system/cpu/isolated, cpuset.cpus.isolated and \
                cpusets without load balancing give {}",
                match f.apart.is_empty() {
                    true => "no CPU".into(),
                    false => cpus(&f.apart),
                }
            ))
            .effect(
                "tasks, interrupts and kernel work of everybody interrupt the \
                audio thread there; this is the largest single step for worst-case \
                latency",
            )
            .remedy("quietcores apply with this chain; quietcores prove measures what it does")
            .when(When::RunTime)
            .into();
    }
    if f.machine.online.len() < 2 {
        return moot("there is only one CPU, and the kernel needs it");
    }
    warning("no CPU is set apart: everything may run beside the audio")
        .evidence(format!(
            "/sys/devices/system/cpu/isolated is empty, no isolated partition, \
                no cpuset without balancing; {} CPUs are online",
            f.machine.online.len()
        ))
        .effect(
            "tasks, interrupts and kernel work of everybody interrupt the \
                audio thread; this is the largest single step for worst-case \
                latency",
        )
        .remedy("quietcores prove measures what it would do here; quietcores apply does it")
        .when(When::RunTime)
        .into()
}

/// What the kernel's reasons mean, and what to do about each.
const REASONS: [(&str, &str); 8] = [
    ("Invalid cpu list in cpuset.cpus.exclusive", "correct the list in cpuset.cpus.exclusive"),
    ("Parent is an invalid partition root", "repair the parent's partition first"),
    (
        "Parent is not a partition root",
        "make the parent a partition, or set cpuset.cpus.exclusive on every \
            ancestor (a remote partition, Linux 6.7 and newer)",
    ),
    (
        "Cpu list in cpuset.cpus not exclusive",
        "another group names the same CPUs in its cpuset.cpus; often a systemd \
            slice with AllowedCPUs=",
    ),
    (
        "Parent unable to distribute cpu downstream",
        "leave the parent at least one CPU for its own tasks",
    ),
    ("No cpu available due to hotplug", "bring the CPUs online again"),
    ("cpuset.cpus is empty", "write the CPUs to cpuset.cpus before cpuset.cpus.partition"),
    (
        "partition config conflicts with housekeeping setup",
        "the CPUs contradict isolcpus= or nohz_full=: boot without them",
    ),
];

pub(super) fn partition_invalid(f: &Facts) -> Verdict {
    let groups = &f.machine.cgroups.groups;
    let Some(mount) = &f.machine.cgroups.v2 else {
        return moot("there is no cgroup v2");
    };
    let found = groups
        .iter()
        .filter_map(|group| {
            let state = group.partition.as_deref().filter(|p| p.contains("invalid"))?;
            let remedy =
                REASONS.iter().find(|(reason, _)| state.contains(reason)).map(|(_, what)| *what);
            Some(
                problem(format!("the partition {} is not in force", printable(&group.path, 80)))
                    .evidence(format!(
                        "{mount}{}/cpuset.cpus.partition: {}",
                        group.path,
                        printable(state, 160)
                    ))
                    .effect("the kernel balances tasks onto its CPUs as if it were not there")
                    .remedy(remedy.unwrap_or(
                        "write isolated to the file again and read its reason; \
                            then repair what it names",
                    ))
                    .when(When::RunTime),
            )
        })
        .collect();
    let there = groups.iter().filter(|g| is_partition(g)).count();
    Verdict::of(found, format!("{}, none invalid", count(there, "partition")))
}

fn is_partition(group: &Group) -> bool {
    !group.path.is_root()
        && group.partition.as_deref().is_some_and(|p| p != "member" && !p.is_empty())
}

pub(super) fn systemd_undoes(f: &Facts) -> Verdict {
    let Some(version) = f.around.systemd else {
        return moot("no systemd runs, or its version is not told");
    };
    let unit = |path: &GroupPath| {
        [".service", ".slice", ".scope"].iter().any(|end| path.name().ends_with(end))
    };
    let groups: Vec<&str> = f
        .machine
        .cgroups
        .groups
        .iter()
        .filter(|g| is_partition(g) && unit(&g.path) && !crate::is_ours(&g.path))
        .map(|g| g.path.as_str())
        .collect();
    if groups.is_empty() {
        return fine("systemd owns no group of a partition but what it was asked to keep");
    }
    if version >= 261 {
        return unknown(format!(
            "{}: systemd {version} can own a partition (CPUSetPartition=); \
                whether it does here is not in the snapshot",
            some(&groups, 2)
        ));
    }
    warning(format!("systemd owns the group of the partition {}", some(&groups, 2)))
        .evidence(format!(
            "cpuset.cpus.partition of the group below /sys/fs/cgroup; systemd \
                {version}, and only 261 and newer keep partitions \
                (CPUSetPartition=)"
        ))
        .effect(
            "daemon-reload or a restart of the unit writes its cpuset anew, and the shield is gone",
        )
        .remedy("put the partition in a group of its own, or below a unit with Delegate=yes")
        .when(When::RunTime)
        .into()
}

pub(super) fn foreign_tasks(f: &Facts) -> Verdict {
    if let Some(moot) = f.not_apart() {
        return moot;
    }
    let foreign = f.foreign_tasks();
    if foreign.is_empty() {
        return fine(format!("no foreign program may run on {}", cpus(&f.quiet)));
    }
    let here = foreign.iter().filter(|t| f.quiet.contains(t.cpu)).count();
    let names: Vec<String> = foreign.iter().map(|t| task_name(t)).collect();
    warning(format!("{} may run on {}", count(foreign.len(), "foreign thread"), cpus(&f.quiet)))
        .evidence(format!(
            "Cpus_allowed_list in /proc/TID/status of {}; {here} of them ran there last",
            some(&names, 5)
        ))
        .effect(
            "each one that wakes there takes the audio thread's caches, and \
                its time where that is not real time",
        )
        .remedy("quietcores apply keeps them off; what starts later inherits it")
        .when(When::RunTime)
        .into()
}

pub(super) fn kernel_threads(f: &Facts) -> Verdict {
    if let Some(moot) = f.not_apart() {
        return moot;
    }
    let own: HashSet<u32> = f.own_handlers().iter().map(|t| t.tid).collect();
    let movable: Vec<&Task> = f
        .machine
        .tasks
        .iter()
        .filter(|t| t.kernel.is_some_and(|k| k.movable) && t.allowed.intersects(&f.quiet))
        .filter(|t| !own.contains(&t.tid))
        // One that may run there only belongs to that CPU.
        .filter(|t| t.allowed.len() > 1)
        .collect();
    if movable.is_empty() {
        return fine(format!("no kernel thread that could be moved may run on {}", cpus(&f.quiet)));
    }
    let names: Vec<String> = movable.iter().map(|t| task_name(t)).collect();
    warning(format!(
        "{} may run on {} and could be moved",
        count(movable.len(), "kernel thread"),
        cpus(&f.quiet)
    ))
    .evidence(format!("{}; PF_NO_SETAFFINITY is not set in /proc/TID/stat", some(&names, 6)))
    .effect(
        "RCU, memory compaction and the like run there now and then, for tens \
            to hundreds of microseconds",
    )
    .remedy("confine them to the housekeeping CPUs; quietcores apply does")
    .when(When::RunTime)
    .into()
}

pub(super) fn workqueues(f: &Facts) -> Verdict {
    if let Some(moot) = f.not_apart() {
        return moot;
    }
    let Some(mask) = &f.machine.workqueues.effective else {
        return unknown("/sys/devices/virtual/workqueue/cpumask could not be read");
    };
    let mut open = Vec::new();
    if mask.intersects(&f.quiet) {
        open.push(format!("/sys/devices/virtual/workqueue/cpumask is {mask}"));
    }
    let writeback = "sys/devices/virtual/workqueue/writeback/cpumask";
    let own = f.setting(writeback).and_then(|text| CpuSet::from_mask(text).ok());
    // Within the global mask it is cut to that by the kernel.
    if let Some(own) = own.filter(|own| own.intersection(mask).intersects(&f.quiet)) {
        open.push(format!("/{writeback} is {own}"));
    }
    if open.is_empty() {
        return fine(format!("unbound kernel work runs on {}", cpus(mask)));
    }
    warning(format!("unbound kernel work may run on {}", cpus(&f.quiet)))
        .evidence(open.join("; "))
        .effect(
            "writeback of dirty pages, encryption and drivers put work there, \
                up to milliseconds of it",
        )
        .remedy("write the mask of the housekeeping CPUs to these files; quietcores apply does")
        .when(When::RunTime)
        .into()
}

/// What each source says of the quiet CPUs: a matrix with a row for each source.
pub(super) fn inconsistent(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let machine = f.machine;
    let mut rows: Vec<(&str, CpuSet)> = Vec::new();
    let mut row = |name, cpus: Option<CpuSet>| rows.extend(cpus.map(|cpus| (name, cpus)));
    let some_set = |set: &Option<CpuSet>| set.clone().filter(|set| !set.is_empty());
    row("isolcpus", some_set(&machine.isolated));
    row("partition", some_set(&Some(partitions(machine))));
    row("nohz_full", some_set(&machine.nohz_full));
    row("rcu_nocbs", f.parameter_cpus("rcu_nocbs").filter(|set| !set.is_empty()));
    row(
        "irqaffinity keeps off",
        f.parameter_cpus("irqaffinity").map(|set| machine.online.difference(&set)),
    );
    if rows.len() < 2 {
        return moot("fewer than two sources name CPUs to set apart");
    }
    let odd: Vec<&(&str, CpuSet)> = rows
        .iter()
        .filter(|(_, set)| !f.quiet.is_subset(set) || (!set.is_subset(&f.quiet)))
        .collect();
    let table: Vec<String> = rows.iter().map(|(name, set)| format!("{name} {set}")).collect();
    if odd.is_empty() {
        return fine(format!("all agree on {}: {}", cpus(&f.quiet), table.join(", ")));
    }
    let names: Vec<&str> = odd.iter().map(|(name, _)| *name).collect();
    warning(format!("{} and the chain's CPUs {} are not the same", some(&names, 5), f.quiet))
        .evidence(format!(
            "/sys/devices/system/cpu, cpuset.cpus.isolated and /proc/cmdline: {}",
            table.join(", ")
        ))
        .effect(
            "a CPU that one source sets apart and another does not is noisy in \
                that one respect, or lost to everybody",
        )
        .remedy(
            "let all name the same CPUs, or leave the boot parameters out and use one partition",
        )
        .when(When::Reboot)
        .into()
}

pub(super) fn mechanism(f: &Facts) -> Verdict {
    let groups = &f.machine.cgroups;
    let v2 = groups.v2.as_deref().filter(|_| groups.v2_cpuset);
    if let (Some(mount), Some(kind)) = (v2, crate::contained(f.machine)) {
        return note("the cgroup tree seen here is part of another one: a container")
            .evidence(format!("{mount}/cpuset.cpus.partition is {kind}; the kernel's own root has no such file"))
            .effect("no partition can be had: only the affinity of threads that are seen here can be set")
            .remedy("run quietcores on the host")
            .when(When::RunTime)
            .into();
    }
    if v2.is_some() {
        return fine("cgroup v2 offers cpusets: an isolated partition can be had");
    }
    match (&groups.v1_cpuset, &groups.v2) {
        (Some(mount), _) => note("CPUs can only be set apart by cgroup v1 cpusets here")
            .evidence(format!("cpuset is bound to the v1 hierarchy at {mount}"))
            .effect(
                "new kernel threads and work that the kernel binds are not \
                    kept off by itself, as a v2 partition does",
            )
            .remedy(
                "boot with cgroup_no_v1=cpuset, or \
                    systemd.unified_cgroup_hierarchy=1 where systemd mounts the \
                    hierarchies: v2 then gets cpusets",
            )
            .when(When::Reboot)
            .into(),
        (None, Some(mount)) => note("no cgroup offers cpusets here")
            .evidence(format!("{mount}/cgroup.controllers lacks cpuset"))
            .effect(
                "only the affinity of each thread can be set, which any of them may widen again",
            )
            .remedy("boot with a kernel that has CONFIG_CPUSETS, without cgroup_disable=cpuset")
            .when(When::Reboot)
            .into(),
        (None, None) => note("no cgroup hierarchy is mounted")
            .evidence("/proc/mounts")
            .effect(
                "only the affinity of each thread can be set, which any of them may widen again",
            )
            .remedy("mount -t cgroup2 none /sys/fs/cgroup")
            .when(When::RunTime)
            .into(),
    }
}

pub(super) fn not_persistent(f: &Facts) -> Verdict {
    let partition = partitions(f.machine);
    let booted = f.machine.isolated.clone().unwrap_or_default();
    let lost = partition.difference(&booted);
    if lost.is_empty() {
        return moot("no CPU is set apart at run time only");
    }
    let files: Vec<&String> =
        f.settings().map(|(path, _)| path).filter(|path| is_loader_file(path)).collect();
    if f.setting("etc/systemd/system/quietcores.service").is_some() {
        return fine("a unit puts the shield up again at boot");
    }
    note(format!("{} are set apart until the next reboot only", cpus(&lost)))
        .evidence(format!(
            "cpuset.cpus.partition below /sys/fs/cgroup; no \
                /etc/systemd/system/quietcores.service, and {}",
            match files.is_empty() {
                true => "no loader file was found".into(),
                false => format!("nothing of it in {}", some(&files, 3)),
            }
        ))
        .effect("after a power cut the chain plays without its shield")
        .remedy("quietcores persist, when it has proved itself")
        .when(When::Reboot)
        .into()
}
