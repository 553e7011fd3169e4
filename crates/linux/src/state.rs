//! The settings that a figure depends on, and the counters that may explain it.

use crate::Root;
use quiet_types::{CpuSet, run::State};
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
        note(&format!("sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), &mut state.files);
    }
    cpusets(root, &mut state.files);
    counters(root, cpus, &mut state.counters);
    state
}

/// The cpusets that take CPUs out of the common balancing, and the root's own balancing.
fn cpusets(root: &Root, files: &mut BTreeMap<String, String>) {
    for (mount, names) in mounts(root) {
        let mount = mount.trim_start_matches('/').to_owned();
        let groups = root.list(&format!("/{mount}")).unwrap_or_default();
        for group in std::iter::once(String::new()).chain(groups.into_iter().take(512)) {
            let dir = if group.is_empty() { mount.clone() } else { format!("{mount}/{group}") };
            let read = |name: &str| root.read_if_there(&format!("/{dir}/{name}")).ok().flatten();
            let apart = match names {
                Names::V1 => read("cpuset.sched_load_balance").is_some_and(|b| b == "0"),
                Names::V2 => read("cpuset.cpus.partition").is_some_and(|p| p != "member"),
            };
            if !apart && !group.is_empty() {
                continue;
            }
            let wanted: &[&str] = match names {
                Names::V1 => &["cpuset.cpus", "cpuset.sched_load_balance", "cpuset.cpu_exclusive"],
                Names::V2 => &["cpuset.cpus.effective", "cpuset.cpus.partition"],
            };
            for name in wanted {
                if let Some(text) = read(name) {
                    files.insert(format!("{dir}/{name}"), text);
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
fn mounts(root: &Root) -> Vec<(String, Names)> {
    let text = root.read("/proc/self/mounts").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (dir, kind, options) = (words.next()?, words.next()?, words.next()?);
            match kind {
                "cgroup" if options.split(',').any(|o| o == "cpuset") => {
                    Some((dir.to_owned(), Names::V1))
                }
                "cgroup2" => Some((dir.to_owned(), Names::V2)),
                _ => None,
            }
        })
        .collect()
}

/// Steal, interrupts and softirqs of the measured CPUs.
fn counters(root: &Root, cpus: &CpuSet, counters: &mut BTreeMap<String, u64>) {
    let stat = root.read("/proc/stat").unwrap_or_default();
    for cpu in cpus.iter() {
        let label = format!("cpu{cpu}");
        let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&label));
        let steal = line.and_then(|l| l.split_whitespace().nth(8)?.parse().ok());
        if let Some(ticks) = steal {
            counters.insert(format!("proc/stat/{label}/steal"), ticks);
        }
    }
    for file in ["proc/interrupts", "proc/softirqs"] {
        let text = root.read(&format!("/{file}")).unwrap_or_default();
        let mut lines = text.lines();
        let Some(head) = lines.next() else { continue };
        let columns: Vec<&str> = head.split_whitespace().collect();
        for line in lines {
            let Some((name, counts)) = line.split_once(':') else { continue };
            for (column, count) in columns.iter().zip(counts.split_whitespace()) {
                let id = column.strip_prefix("CPU").and_then(|n| n.parse().ok());
                let ours = id.is_some_and(|n| cpus.contains(quiet_types::CpuId(n)));
                if let (true, Ok(n @ 1..)) = (ours, count.parse::<u64>()) {
                    let cpu = column.to_lowercase();
                    counters.insert(format!("{file}/{}/{cpu}", name.trim()), n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
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
        assert_eq!(state.counters, expected.map(|(k, v)| (k.to_owned(), v)).into());
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
