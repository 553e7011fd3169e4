//! Whether a thread may poll: it would take its CPU from everybody else there.

use std::{
    fs::File,
    io::{self, Read},
};

/// What the kernel says of the calling thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// How many CPUs it may use.
    pub cpus: usize,
    /// Its groups, as in `/proc/thread-self/cgroup`.
    pub groups: String,
    /// Whether it runs under FIFO, RR or DEADLINE.
    pub real_time: bool,
    /// Whether RLIMIT_RTTIME would end a real-time thread that does not sleep.
    pub limited: bool,
    /// `sched_rt_runtime_us`.
    pub runtime: Option<i64>,
}

/// The shield's group, and the unit of systemd's that makes it.
const SHIELDS: [&str; 2] = ["quietcores", "quietcores.slice"];

/// Whether a thread may poll: one CPU of its own, in a shield, and nothing that stops or kills a real-time thread for not sleeping.
///
/// # Source
/// setrlimit(2), RLIMIT_RTTIME; sched(7), "Limiting the CPU usage of real-time and deadline processes".
pub(crate) fn may_poll(facts: &Facts) -> bool {
    let shielded = facts.groups.lines().any(|line| {
        // The hierarchy's number, its controllers (none: cgroup v2), the path.
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next().unwrap_or("-");
        let of_cpus = controllers.is_empty() || controllers.split(',').any(|one| one == "cpuset");
        let path = parts.next().unwrap_or_default();
        of_cpus
            && SHIELDS.contains(&path.trim_start_matches('/').split('/').next().unwrap_or_default())
    });
    let stopped = facts.real_time && (facts.limited || facts.runtime != Some(-1));
    facts.cpus == 1 && shielded && !stopped
}

/// What a file of the kernel's says, at most 4 KiB of it.
pub(crate) fn text(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(4096).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Facts {
        let groups = "0::/quietcores\n".into();
        Facts { cpus: 1, groups, real_time: true, limited: false, runtime: Some(-1) }
    }

    #[test]
    fn one_cpu_of_a_shield_without_a_limit() {
        assert!(may_poll(&here()));
        for groups in [
            "0::/quietcores/pipewire\n",
            "5:cpuset:/quietcores\n0::/user.slice\n",
            "0::/quietcores.slice\n",
        ] {
            assert!(may_poll(&Facts { groups: groups.into(), ..here() }), "{groups}");
        }
        let ordinary = Facts { real_time: false, limited: true, runtime: Some(950_000), ..here() };
        assert!(may_poll(&ordinary));
    }

    #[test]
    fn each_of_these_forbids_it() {
        for groups in [
            "",
            "0::/\n",
            "0::/user.slice/quietcores\n",
            "0::/quietcores-rest\n",
            "quietcores",
            "0::/quietcoresx\n",
            "8:pids:/quietcores\n",
        ] {
            assert!(!may_poll(&Facts { groups: groups.into(), ..here() }), "{groups}");
        }
        assert!(!may_poll(&Facts { cpus: 2, ..here() }));
        assert!(!may_poll(&Facts { cpus: 0, ..here() }));
        assert!(!may_poll(&Facts { limited: true, ..here() }));
        assert!(!may_poll(&Facts { runtime: Some(950_000), ..here() }));
        assert!(!may_poll(&Facts { runtime: None, ..here() }));
    }
}
