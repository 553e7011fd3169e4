//! Whether a thread may poll: it would take its CPU from everybody else there.

use std::{fs::File, io::Read};

/// What the kernel says of the calling thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts<'a> {
    /// How many CPUs it may use.
    pub cpus: usize,
    /// Whether no other thread of its process may use its CPU: one that may would never run there.
    pub alone: bool,
    /// Its groups, as in `/proc/thread-self/cgroup`.
    pub groups: &'a str,
    /// Whether it runs under FIFO, RR or DEADLINE.
    pub real_time: bool,
    /// Whether RLIMIT_RTTIME would end a real-time thread that does not sleep.
    pub limited: bool,
    /// `sched_rt_runtime_us`.
    pub runtime: Option<i64>,
}

/// The shield's group, and the unit of systemd's that makes it.
const SHIELDS: [&str; 2] = ["quietcores", "quietcores.slice"];

/// Whether a thread may poll: one CPU, that no other thread of its process has too, in a shield, and nothing that stops or kills a real-time thread for not sleeping.
///
/// # Source
/// setrlimit(2), RLIMIT_RTTIME; sched(7), "Limiting the CPU usage of real-time and deadline processes".
pub(crate) fn may_poll(facts: &Facts<'_>) -> bool {
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
    facts.cpus == 1 && facts.alone && shielded && !stopped
}

/// As much of a file of the kernel's as fits into `room`, up to what is no text; empty where it cannot be read. Allocates nothing.
pub(crate) fn text<'a>(path: &str, room: &'a mut [u8]) -> &'a str {
    let Ok(mut file) = File::open(path) else { return "" };
    let mut filled = 0;
    while let Ok(more @ 1..) = file.read(&mut room[filled..]) {
        filled += more;
    }
    let text = &room[..filled];
    let valid = std::str::from_utf8(text).map_or_else(|wrong| wrong.valid_up_to(), str::len);
    std::str::from_utf8(&text[..valid]).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Facts<'static> {
        let groups = "0::/quietcores\n";
        Facts { cpus: 1, alone: true, groups, real_time: true, limited: false, runtime: Some(-1) }
    }

    #[test]
    fn one_cpu_of_a_shield_without_a_limit() {
        assert!(may_poll(&here()));
        for groups in [
            "0::/quietcores/pipewire\n",
            "5:cpuset:/quietcores\n0::/user.slice\n",
            "0::/quietcores.slice\n",
        ] {
            assert!(may_poll(&Facts { groups, ..here() }), "{groups}");
        }
        let ordinary = Facts { real_time: false, limited: true, runtime: Some(950_000), ..here() };
        assert!(may_poll(&ordinary));
    }

    #[test]
    fn a_file_is_read_as_far_as_there_is_room() {
        let dir = std::env::temp_dir().join(format!("quiet-spa-{}", std::process::id()));
        std::fs::write(&dir, "0::/quietcores\n").unwrap();
        let path = dir.to_str().unwrap();
        assert_eq!(text(path, &mut [0; 64]), "0::/quietcores\n");
        assert_eq!(text(path, &mut [0; 5]), "0::/q");
        std::fs::write(&dir, b"ab\xffcd").unwrap();
        assert_eq!(text(path, &mut [0; 64]), "ab");
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(text(path, &mut [0; 64]), "");
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
            assert!(!may_poll(&Facts { groups, ..here() }), "{groups}");
        }
        assert!(!may_poll(&Facts { cpus: 2, ..here() }));
        assert!(!may_poll(&Facts { cpus: 0, ..here() }));
        assert!(!may_poll(&Facts { alone: false, ..here() }));
        assert!(!may_poll(&Facts { limited: true, ..here() }));
        assert!(!may_poll(&Facts { runtime: Some(950_000), ..here() }));
        assert!(!may_poll(&Facts { runtime: None, ..here() }));
    }
}
