//! Other programs that play in the same shield: on which CPUs, and who takes a place next.

use quiet_linux::Root;
use quiet_types::{CpuSet, shield::Shield};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

/// The names of the threads that play, as `ps` shows them.
pub(crate) const PLAYS: &str = "quiet-engine";
pub(crate) const PLAYS_TOO: &str = "quiet-second";

/// The CPUs on which threads of other processes play, each on one alone, in the shield.
pub(crate) fn cpus(root: &Root, shield: Option<&Shield>) -> CpuSet {
    let Some(shield) = shield else { return CpuSet::new() };
    let of = |path: String| root.read_if_there(&path).ok().flatten();
    let plays = |tid: &String| {
        let name = of(format!("/proc/{tid}/comm")).unwrap_or_default();
        matches!(name.trim(), PLAYS | PLAYS_TOO) && !root.exists(&format!("/proc/self/task/{tid}"))
    };
    let allowed = |tid: String| -> Option<CpuSet> {
        let status = of(format!("/proc/{tid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        line.trim().parse().ok()
    };
    let each = threads_in(root, shield).into_iter().filter(plays).filter_map(allowed);
    let alone = each.filter(|cpus| cpus.len() == 1 && cpus.is_subset(&shield.cpus));
    alone.fold(CpuSet::new(), |all, cpus| all.union(&cpus))
}

/// The threads of the shield's group; of the whole machine where it has none.
fn threads_in(root: &Root, shield: &Shield) -> Vec<String> {
    if let Some(entry) = &shield.entry {
        let listed = root.read_if_there(entry.threads().as_str()).ok().flatten();
        return listed.unwrap_or_default().lines().map(str::to_owned).collect();
    }
    let mut found = root.list("/proc").unwrap_or_default();
    found.retain(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let tasks = |pid: &String| root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
    found.iter().flat_map(tasks).collect()
}

/// How long one program waits for another that takes its place in the same shield. Whoever may read the file may hold it: after that it
/// goes on.
const TURN: Duration = Duration::from_secs(2);

/// From the look at who plays until the thread has its place: programs that begin at the same instant do so one after the other. Held
/// while what is returned lives.
///
/// # Source
/// flock(2), on the file that lists the threads of the shield's group.
pub(crate) fn turn(root: &Root, shield: Option<&Shield>) -> Option<OwnedFd> {
    let file = match &shield?.entry {
        Some(entry) => entry.threads().to_string(),
        None => "/sys/devices/system/cpu/online".to_owned(),
    };
    let file = root.open_at(&file, OFlags::RDONLY | OFlags::CLOEXEC).ok()?;
    let until = Instant::now() + TURN;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(file)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use quiet_types::shield::{Entry, Mechanism};

    pub(crate) fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    /// A shield of `cpus` by sets of a v1 hierarchy; CPU 0 keeps house.
    pub(crate) fn shield(cpus: &str, whole_process: bool) -> Option<Shield> {
        Some(Shield {
            cpus: set(cpus),
            housekeeping: set("0"),
            mechanism: Mechanism::SetsV1,
            entry: Some(Entry { file: "/x/tasks".parse().unwrap(), whole_process }),
        })
    }

    #[test]
    fn others_that_play_in_a_partition_are_found_by_their_threads() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("x/cgroup.threads".into(), "7\n8\n9\n10\n11\n12\n");
        for (tid, name, cpus) in [
            (7, "quiet-engine", "4"),
            (8, "quiet-second", "5"),
            // Those that are free to go, of other names, of this very process.
            (9, "quiet-engine", "2-6"),
            (10, "quietcores", "6"),
            (11, "quiet-engine", "3"),
        ] {
            write(format!("proc/{tid}/comm"), &format!("{name}\n"));
            write(
                format!("proc/{tid}/status"),
                &format!("Name:\t{name}\nCpus_allowed_list:\t{cpus}\n"),
            );
        }
        write("proc/self/task/11/comm".into(), "quiet-engine\n");
        let root = Root::at(dir.path()).unwrap();
        assert_eq!(cpus(&root, shield("2-6", true).as_ref()), set("4-5"));
        // By another file, or by all of /proc.
        assert_eq!(cpus(&root, shield("2-6", false).as_ref()), CpuSet::new());
        write("x/tasks".into(), "8\n");
        assert_eq!(cpus(&root, shield("2-6", false).as_ref()), set("5"));
        write("proc/5/task/7/comm".into(), "quiet-engine\n");
        let plain = shield("2-6", false).map(|it| Shield { entry: None, ..it });
        assert_eq!(cpus(&root, plain.as_ref()), set("4"));
        let elsewhere = plain.map(|it| Shield { cpus: set("5-6"), ..it });
        assert_eq!(cpus(&root, elsewhere.as_ref()), CpuSet::new());
        assert_eq!(cpus(&root, None), CpuSet::new());
    }

    #[test]
    fn programs_take_their_places_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("x")).unwrap();
        std::fs::write(dir.path().join("x/tasks"), "").unwrap();
        let root = Root::at(dir.path()).unwrap();
        let shield = shield("2-3", false);
        let first = turn(&root, shield.as_ref()).unwrap();
        // Nobody waits for ever for one that never ends.
        assert!(turn(&root, shield.as_ref()).is_none());
        let waits = std::thread::spawn({
            let root = Root::at(dir.path()).unwrap();
            move || turn(&root, shield.as_ref()).is_some()
        });
        drop(first);
        assert!(waits.join().unwrap());
        assert!(turn(&root, None).is_none());
    }
}
