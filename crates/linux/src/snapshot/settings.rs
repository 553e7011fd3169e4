//! Settings that decide about latency, as read.

use super::Reader;
use quiet_types::Machine;

/// Files with one value, below `/`.
const FILES: [&str; 36] = [
    "proc/sys/kernel/nmi_watchdog",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/perf_event_paranoid",
    "proc/sys/kernel/sched_autogroup_enabled",
    "proc/sys/kernel/sched_rr_timeslice_ms",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/kernel/soft_watchdog",
    "proc/sys/kernel/timer_migration",
    "proc/sys/kernel/watchdog",
    "proc/sys/kernel/watchdog_cpumask",
    "proc/sys/kernel/watchdog_thresh",
    "proc/sys/net/core/rps_default_mask",
    "proc/sys/vm/compaction_proactiveness",
    "proc/sys/vm/stat_interval",
    "proc/sys/vm/swappiness",
    "sys/devices/system/cpu/amd_pstate/status",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpuidle/current_driver",
    "sys/devices/system/cpu/cpuidle/current_governor",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/intel_pstate/status",
    "sys/devices/system/machinecheck/machinecheck0/check_interval",
    "sys/devices/system/machinecheck/machinecheck0/ignore_ce",
    "sys/kernel/mm/ksm/run",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/rcu_expedited",
    "sys/kernel/rcu_normal",
    // A scheduler that a BPF program brings: `enabled` and its name, where the kernel can have one.
    "sys/kernel/sched_ext/root/ops",
    "sys/kernel/sched_ext/state",
    "sys/module/haltpoll/parameters/force",
    "sys/module/pcie_aspm/parameters/policy",
    "sys/module/rcutree/parameters/kthread_prio",
    "sys/module/snd_hda_intel/parameters/power_save",
    "sys/module/usbcore/parameters/autosuspend",
];

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) {
    let mut keep = |path: &str, value: Option<String>| {
        if let Some(value) = value {
            machine.settings.insert(path.to_owned(), value);
        }
    };
    for path in FILES {
        keep(path, reader.text(&format!("/{path}")));
    }
    // Of the deadline servers: the fair one, kernel 6.12 and newer, and that of sched_ext beside it; debugfs is root's alone.
    for server in ["fair_server", "ext_server"] {
        let servers = format!("sys/kernel/debug/sched/{server}");
        if !reader.exists(&format!("/{servers}")) {
            continue;
        }
        for cpu in machine.online.iter() {
            for name in ["period", "runtime"] {
                let path = format!("{servers}/cpu{cpu}/{name}");
                keep(&path, reader.text_if_allowed(&format!("/{path}")));
            }
        }
    }
}
