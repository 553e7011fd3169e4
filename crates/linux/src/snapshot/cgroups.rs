//! The cpuset cgroups of either version, and the masks of the unbound workqueues.

use super::Reader;
use crate::parse::{self, CgroupMount, Wrong};
use quiet_types::{
    GroupPath, Machine,
    machine::{Cgroups, Group, Workqueues},
};
use std::collections::HashMap;

/// More cpuset groups than this are not listed.
const MOST_GROUPS: usize = 4096;

/// Reads them, and answers which cgroup stands at the mount point of the hierarchy that holds
/// cpuset (`/` but in containers).
pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) -> GroupPath {
    let (mut cgroups, holder) = mounted(reader);
    if let Some(mount) = &holder {
        walk(reader, mount, &mut cgroups);
    }
    machine.cgroups = cgroups;
    machine.workqueues = workqueues(reader);
    holder.map_or_else(GroupPath::root, |mount| mount.root)
}

/// Where they are mounted, without the groups; and the mount of the hierarchy that holds cpuset.
pub(super) fn mounted(reader: &Reader<'_>) -> (Cgroups, Option<CgroupMount>) {
    let keep =
        |bytes: Vec<u8>| parse::only_cgroup_mounts(&String::from_utf8_lossy(&bytes)).into_bytes();
    let bytes = reader.bytes_through("/proc/self/mountinfo", keep).unwrap_or_default();
    let mounts = parse::cgroup_mounts(&String::from_utf8_lossy(&bytes));
    let is_cpuset = |mount: &&CgroupMount| {
        mount.v1.as_ref().is_some_and(|names| names.iter().any(|name| name == "cpuset"))
    };
    let v1 = mounts.iter().find(is_cpuset);
    let v2 = mounts.iter().find(|mount| mount.v1.is_none());
    let offers = |mount: &CgroupMount| {
        let controllers = reader.text(&mount.at.join("cgroup.controllers"));
        controllers.is_some_and(|names| names.split_whitespace().any(|name| name == "cpuset"))
    };
    let cgroups = Cgroups {
        v2: v2.map(|mount| mount.at.clone()),
        v2_cpuset: v2.is_some_and(offers),
        v2_isolated: v2.and_then(|mount| reader.cpus(&mount.at.join("cpuset.cpus.isolated"))),
        v1_cpuset: v1.map(|mount| mount.at.clone()),
        v1_prefix: v1.is_some_and(|mount| reader.exists(&mount.at.join("cpuset.cpus"))),
        groups: Vec::new(),
    };
    let holder = v1.or(v2.filter(|_| cgroups.v2_cpuset)).cloned();
    (cgroups, holder)
}

fn walk(reader: &Reader<'_>, mount: &CgroupMount, cgroups: &mut Cgroups) {
    let v1 = mount.v1.is_some();
    let cpus = if v1 && !cgroups.v1_prefix { "cpus" } else { "cpuset.cpus" };
    let mut todo = vec![GroupPath::root()];
    while let Some(path) = todo.pop() {
        if cgroups.groups.len() >= MOST_GROUPS {
            let why = format!("it holds more than {MOST_GROUPS} cpuset groups");
            reader.complain(&mount.at, &Wrong { line: 1, why });
            return;
        }
        let dir = mount.at.join(&path);
        let group = match v1 {
            true => group_v1(reader, &dir, cgroups.v1_prefix),
            false => group_v2(reader, &dir),
        };
        // Below a group without cpuset there is none that has it.
        let below = reader.names(&dir, |name| {
            !name.starts_with("cgroup.")
                && !name.starts_with("cpuset.")
                && reader.exists(&dir.join(name).join(cpus))
        });
        todo.extend(below.iter().rev().map(|name| path.join(name)));
        cgroups.groups.push(Group { path, ..group });
    }
}

fn group_v1(reader: &Reader<'_>, dir: &GroupPath, prefix: bool) -> Group {
    let file = |name: &str| match prefix {
        true => dir.join(&format!("cpuset.{name}")),
        false => dir.join(name),
    };
    let balance = reader.number::<u8>(&file("sched_load_balance"));
    Group {
        cpus: reader.cpus(&file("cpus")),
        effective: reader.cpus(&file("effective_cpus")),
        load_balance: balance.map(|balance| balance != 0),
        ..Group::default()
    }
}

fn group_v2(reader: &Reader<'_>, dir: &GroupPath) -> Group {
    Group {
        cpus: reader.cpus(&dir.join("cpuset.cpus")),
        effective: reader.cpus(&dir.join("cpuset.cpus.effective")),
        partition: reader.text(&dir.join("cpuset.cpus.partition")),
        ..Group::default()
    }
}

/// Counts the threads of each group: those whose cgroup it is, or lies below it without a cpuset
/// of its own.
pub(super) fn count_tasks(machine: &mut Machine, mount_root: &GroupPath) {
    let groups = &mut machine.cgroups.groups;
    let at: HashMap<GroupPath, usize> =
        groups.iter().enumerate().map(|(at, group)| (group.path.clone(), at)).collect();
    for task in &machine.tasks {
        let Some(cgroup) = &task.cgroup else { continue };
        let path = match cgroup.below(mount_root) {
            Some(below) => GroupPath::root().join(below),
            None if cgroup == mount_root => GroupPath::root(),
            None => cgroup.clone(),
        };
        if let Some(at) = path.ancestors().find_map(|path| at.get(&path)) {
            groups[*at].tasks += 1;
        }
    }
}

fn workqueues(reader: &Reader<'_>) -> Workqueues {
    let mask = |name: &str| reader.mask(&format!("/sys/devices/virtual/workqueue/{name}"));
    Workqueues {
        effective: mask("cpumask"),
        requested: mask("cpumask_requested"),
        isolated: mask("cpumask_isolated"),
    }
}
