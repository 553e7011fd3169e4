//! The kernel's own configuration.

use std::collections::BTreeMap;

/// Options that decide what isolation can do, without `CONFIG_`.
const OPTIONS: [&str; 55] = [
    "64BIT",
    "CGROUPS",
    "CGROUP_SCHED",
    "CPUSETS",
    "CPUSETS_V1",
    "CPU_FREQ",
    "CPU_FREQ_DEFAULT_GOV_PERFORMANCE",
    "CPU_IDLE",
    "CPU_IDLE_GOV_HALTPOLL",
    "CPU_IDLE_GOV_MENU",
    "CPU_IDLE_GOV_TEO",
    "CPU_ISOLATION",
    "DEBUG_FS",
    "DEBUG_KMEMLEAK",
    "DEBUG_LOCKDEP",
    "DEBUG_OBJECTS",
    "FTRACE",
    "GENERIC_IRQ_DEBUGFS",
    "HIGH_RES_TIMERS",
    "HOTPLUG_CPU",
    "HWLAT_TRACER",
    "HZ",
    "HZ_PERIODIC",
    "IRQ_FORCED_THREADING",
    "KASAN",
    "KCSAN",
    "KSM",
    "LOCKUP_DETECTOR",
    "LOCK_STAT",
    "NO_HZ_COMMON",
    "NO_HZ_FULL",
    "NO_HZ_IDLE",
    "NR_CPUS",
    "NUMA_BALANCING",
    "OSNOISE_TRACER",
    "PREEMPT",
    "PREEMPTION",
    "PREEMPT_BUILD",
    "PREEMPT_DYNAMIC",
    "PREEMPT_LAZY",
    "PREEMPT_NONE",
    "PREEMPT_RT",
    "PREEMPT_RT_FULL",
    "PREEMPT_VOLUNTARY",
    "PROVE_LOCKING",
    "RCU_BOOST",
    "RCU_NOCB_CPU",
    "RT_GROUP_SCHED",
    "RT_GROUP_SCHED_DEFAULT_DISABLED",
    "SCHED_CLASS_EXT",
    "SCHED_CORE",
    "SCHED_DEBUG",
    "SMP",
    "TIMERLAT_TRACER",
    "TRANSPARENT_HUGEPAGE",
];

/// The options that matter of a kernel's `.config`, without `CONFIG_`: `y`, `m`, a value without
/// its quotes, or `n` for "is not set". Other lines are passed over.
pub fn config(text: &str) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for line in text.lines() {
        let (name, value) = match line.strip_prefix("# CONFIG_") {
            Some(rest) => match rest.strip_suffix(" is not set") {
                Some(name) => (name, "n"),
                None => continue,
            },
            None => match line.strip_prefix("CONFIG_").and_then(|rest| rest.split_once('=')) {
                Some((name, value)) => (name, value.trim().trim_matches('"')),
                None => continue,
            },
        };
        if OPTIONS.binary_search(&name).is_ok() {
            options.insert(name.to_owned(), value.to_owned());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_sorted_so_that_they_are_found() {
        assert!(OPTIONS.is_sorted());
    }

    #[test]
    fn set_unset_and_valued_options_are_read() {
        let found = config(
            "# comment\nCONFIG_PREEMPT_RT=y\n# CONFIG_NO_HZ_FULL is not set\nCONFIG_HZ=1000\n\
             CONFIG_UNRELATED=y\n# CONFIG_HALF\nCONFIG_\n",
        );
        let wanted = [("HZ", "1000"), ("NO_HZ_FULL", "n"), ("PREEMPT_RT", "y")];
        assert!(found.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(wanted));
    }
}
