//! The settings that a figure depends on, and the counters that may explain it.

use crate::{Root, parse};
use quiet_types::{Counters, CpuSet, GroupPath, run::State, surroundings::Mount};
use std::collections::BTreeMap;

/// Files read as they are, where they exist.
const PLAIN: [&str; 16] = [
    "proc/irq/default_smp_affinity",
    "proc/sys/kernel/nmi_watchdog",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/kernel/timer_migration",
    "proc/sys/vm/stat_interval",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/smt/control",
    "sys/devices/virtual/workqueue/cpumask",
    "sys/kernel/mm/ksm/run",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/realtime",
];

/// What is set now, and how far the counters of the measured CPUs are.
///
/// What cannot be read is left out.
pub fn read(root: &Root, cpus: &CpuSet) -> State {
    let mut state = State::default();
    let note = |path: &str, files: &mut BTreeMap<String, String>| {
        if let Ok(Some(text)) = root.read_if_there(&format!("/{path}")) {
            files.insert(path.to_owned(), text);
        }
    };
    for path in PLAIN {
        note(path, &mut state.files);
    }
    for irq in root.list("/proc/irq").unwrap_or_default() {
        if irq.bytes().all(|b| b.is_ascii_digit()) {
            note(&format!("proc/irq/{irq}/smp_affinity_list"), &mut state.files);
        }
    }
    for cpu in cpus.iter() {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}");
        for name in ["cpufreq/scaling_governor", "power/pm_qos_resume_latency_us"] {
            note(&format!("{dir}/{name}"), &mut state.files);
        }
        for idle in root.list(&format!("/{dir}/cpuidle")).unwrap_or_default() {
            note(&format!("{dir}/cpuidle/{idle}/disable"), &mut state.files);
        }
        for server in ["fair_server", "ext_server"] {
            note(&format!("sys/kernel/debug/sched/{server}/cpu{cpu}/runtime"), &mut state.files);
        }
    }
    cpusets(root, &mut state.files);
    state.counters = counters(root, cpus);
    state
}

/// The cpusets that take CPUs out of the common balancing, and the root's own balancing.
fn cpusets(root: &Root, files: &mut BTreeMap<String, String>) {
    for (mount, names) in mounts(root) {
        let groups = root.list(&mount).unwrap_or_default();
        let below = groups.iter().take(512).map(|group| mount.join(group));
        for dir in std::iter::once(mount.clone()).chain(below) {
            let read = |name: &str| root.read_if_there(&dir.join(name)).ok().flatten();
            let apart = match names {
                Names::V1 => read("cpuset.sched_load_balance").is_some_and(|b| b == "0"),
                Names::V2 => read("cpuset.cpus.partition").is_some_and(|p| p != "member"),
            };
            if !apart && dir != mount {
                continue;
            }
            let wanted: &[&str] = match names {
                Names::V1 => &["cpuset.cpus", "cpuset.sched_load_balance", "cpuset.cpu_exclusive"],
                Names::V2 => &["cpuset.cpus.effective", "cpuset.cpus.partition"],
            };
            for name in wanted {
                if let Some(text) = read(name) {
                    files.insert(dir.join(name).trim_start_matches('/').to_owned(), text);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Names {
    V1,
    V2,
}

/// Where cpusets are mounted.
fn mounts(root: &Root) -> Vec<(GroupPath, Names)> {
    let text = root.read("/proc/self/mounts").unwrap_or_default();
    let names = |mount: &Mount| match mount.kind.as_str() {
        "cgroup" if mount.options.iter().any(|option| option == "cpuset") => Some(Names::V1),
        "cgroup2" => Some(Names::V2),
        _ => None,
    };
    let mounts = parse::mounts(&text).into_iter();
    mounts.filter_map(|mount| Some((mount.path.parse().ok()?, names(&mount)?))).collect()
}

/// How far the counters of `cpus` are: steal, interrupts and softirqs.
pub fn counters(root: &Root, cpus: &CpuSet) -> Counters {
    let text = |path| root.read(path).unwrap_or_default();
    parse::counters(&text("/proc/stat"), &text("/proc/interrupts"), &text("/proc/softirqs"), cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = quiet_testing::tree::of(files);
        let root = Root::at(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn counters_are_those_of_the_measured_cpus_even_where_numbers_have_holes() {
        let (_dir, root) = tree(&[
            (
                "proc/stat",
                "cpu 1 1 1 1 1 1 1 9 0 0\ncpu0 1 1 1 1 1 1 1 2 0 0\ncpu2 1 1 1 1 1 1 1 7 0 0\n",
            ),
            (
                "proc/interrupts",
                "           CPU0       CPU2\n  9:   3   5  IO-APIC acpi\nLOC:  11  13 timers\nERR:  4\n",
            ),
        ]);
        let state = read(&root, &"2".parse().unwrap());
        let expected = [
            ("proc/interrupts/9/cpu2", 5),
            ("proc/interrupts/LOC/cpu2", 13),
            ("proc/stat/cpu2/steal", 7),
        ];
        let counters: BTreeMap<String, u64> = state.counters.into();
        assert_eq!(counters, expected.map(|(k, v)| (k.to_owned(), v)).into());
    }

    #[test]
    fn cpusets_that_set_cpus_apart_are_noted_and_ordinary_ones_are_not() {
        let (_dir, root) = tree(&[
            ("proc/self/mounts", "c /cg cgroup rw,cpuset 0 0\n"),
            ("cg/cpuset.sched_load_balance", "0\n"),
            ("cg/cpuset.cpus", "0-3\n"),
            ("cg/quiet/cpuset.cpus", "2\n"),
            ("cg/quiet/cpuset.sched_load_balance", "0\n"),
            ("cg/other/cpuset.cpus", "0-1\n"),
            ("cg/other/cpuset.sched_load_balance", "1\n"),
        ]);
        let state = read(&root, &"2".parse().unwrap());
        let files: Vec<_> = state.files.keys().filter(|k| k.starts_with("cg")).collect();
        assert_eq!(
            files,
            [
                "cg/cpuset.cpus",
                "cg/cpuset.sched_load_balance",
                "cg/quiet/cpuset.cpus",
                "cg/quiet/cpuset.sched_load_balance"
            ]
        );
    }
}
