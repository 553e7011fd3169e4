//! Threads, as the kernel's files name them.

use crate::error::is_gone;
use quiet_linux::{Kernel, parse};
use quiet_types::{CpuSet, GroupPath, plan::Thread};
use std::io;

const PF_KTHREAD: u64 = 0x0020_0000;
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

/// Who a thread is, and what kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub thread: Thread,
    /// The process that started its process, or has taken it over since.
    pub parent: u32,
    /// The numbers of its process group and its session: those of the processes that began them.
    pub leaders: [u32; 2],
    /// Belongs to the kernel.
    pub kernel: bool,
    /// Its affinity may be set.
    pub movable: bool,
    /// It has ended, and only its number is left.
    pub dead: bool,
}

impl Identity {
    /// Whether its process takes over those whose parents have ended: the first one, and those that manage sessions.
    pub fn is_foster(&self) -> bool {
        self.thread.tid == 1 || self.thread.comm == "systemd"
    }
}

/// Who `tid` is now.
///
/// # Errors
/// `ENOENT` and `ESRCH` when it is gone.
pub(crate) fn identity(kernel: &dyn Kernel, tid: u32) -> io::Result<Identity> {
    identity_in(kernel, tid, tid)
}

/// Who `tid` is now, a thread of the process that `process` is a thread of.
///
/// Never by `/proc/TID/stat`: for that file the kernel adds up the times of all threads of the process, so that reading
/// it for each of n threads costs n^2.
///
/// # Source
/// `do_task_stat` of the kernel (fs/proc/array.c), with and without `whole`.
pub(crate) fn identity_in(kernel: &dyn Kernel, process: u32, tid: u32) -> io::Result<Identity> {
    let file = format!("/proc/{process}/task/{tid}/stat");
    let text = kernel.read(&file)?;
    parse(tid, &text).ok_or_else(|| io::Error::other(format!("{file} makes no sense")))
}

/// `/proc/PID/task/TID/stat`, of which the name may hold blanks and brackets.
///
/// # Source
/// proc_pid_stat(5): fields 3 (state), 4 (ppid), 5 (pgrp), 6 (session), 9 (flags) and 22 (starttime).
fn parse(tid: u32, text: &str) -> Option<Identity> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let comm = text.get(open + 1..close)?.to_owned();
    let mut fields = text.get(close + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent: u32 = fields.next()?.parse().ok()?;
    // -1 of who is just ending.
    let mut leader = || Some(fields.next()?.parse::<i64>().ok()?.try_into().unwrap_or_default());
    let leaders = [leader()?, leader()?];
    let flags: u64 = fields.nth(2)?.parse().ok()?;
    let start: u64 = fields.nth(12)?.parse().ok()?;
    Some(Identity {
        thread: Thread { tid, start, comm },
        parent,
        leaders,
        kernel: flags & PF_KTHREAD != 0,
        movable: flags & PF_NO_SETAFFINITY == 0,
        dead: matches!(state, "Z" | "X"),
    })
}

/// Whether the thread that was noted still lives.
pub(crate) fn lives(kernel: &dyn Kernel, thread: &Thread) -> bool {
    identity(kernel, thread.tid).is_ok_and(|now| now.thread.start == thread.start && !now.dead)
}

/// Whether the thread that was noted has ended, for certain. Who cannot look (no file to be had, no memory) knows nothing.
pub(crate) fn has_ended(kernel: &dyn Kernel, thread: &Thread) -> bool {
    match identity(kernel, thread.tid) {
        Ok(now) => now.thread.start != thread.start || now.dead,
        Err(error) => is_gone(&error),
    }
}

/// Whether the number of a noted thread is nobody's now, or another's. Whatever else keeps its file from being read is no sign of it.
pub(crate) fn is_over(kernel: &dyn Kernel, thread: &Thread) -> bool {
    match identity(kernel, thread.tid) {
        Ok(now) => now.thread.start != thread.start,
        Err(error) => is_gone(&error),
    }
}

/// A living thread, and the process that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub process: u32,
    pub is: Identity,
}

/// Every living thread. Those that end meanwhile are passed over.
///
/// # Errors
/// When `/proc` cannot be listed.
pub(crate) fn all(kernel: &dyn Kernel) -> io::Result<Vec<Member>> {
    let mut found = Vec::new();
    each(kernel, |_| true, |process, is| found.push(Member { process, is }))?;
    Ok(found)
}

/// Looks at every living thread of which `wanted` says so by its number alone; the number is looked at first, because a
/// file of `/proc` costs more than most questions about a thread.
///
/// # Errors
/// When `/proc` cannot be listed.
pub(crate) fn each(
    kernel: &dyn Kernel,
    wanted: impl Fn(u32) -> bool,
    mut take: impl FnMut(u32, Identity),
) -> io::Result<()> {
    let mut take = |process, is: Identity| {
        if !is.dead {
            take(process, is);
        }
    };
    for pid in kernel.list("/proc")?.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let tids = kernel.list(&format!("/proc/{pid}/task")).unwrap_or_default();
        for tid in tids.iter().filter_map(|tid| tid.parse::<u32>().ok()).filter(|tid| wanted(*tid))
        {
            if let Ok(is) = identity_in(kernel, pid, tid) {
                take(pid, is);
            }
        }
    }
    Ok(())
}

/// CPUs that are there and do not run: sched_getaffinity(2) leaves them out.
pub(crate) fn off_line(kernel: &dyn Kernel) -> CpuSet {
    let list = |name: &str| {
        let text = kernel.read(&format!("/sys/devices/system/cpu/{name}")).ok()?;
        text.trim().parse::<CpuSet>().ok()
    };
    match (list("present"), list("online")) {
        (Some(present), Some(online)) => present.difference(&online),
        _ => CpuSet::new(),
    }
}

/// The CPUs of a thread, those of `off_line` that it has too.
///
/// # Errors
/// As the kernel says; `ENOENT` and `ESRCH` when it is gone.
pub(crate) fn allowed(kernel: &dyn Kernel, tid: u32, off_line: &CpuSet) -> io::Result<CpuSet> {
    let running = kernel.affinity(tid)?;
    if off_line.is_empty() {
        return Ok(running);
    }
    let text = kernel.read(&format!("/proc/{tid}/status"))?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let whole: CpuSet = list.unwrap_or_default().trim().parse().map_err(io::Error::other)?;
    Ok(running.union(&whole.intersection(off_line)))
}

/// The process that `tid` is a thread of.
pub(crate) fn process(kernel: &dyn Kernel, tid: u32) -> Option<u32> {
    let text = kernel.read(&format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The numbers that a group's file lists.
///
/// # Errors
/// As the kernel says; `ENOENT` when the group is gone.
pub(crate) fn listed(kernel: &dyn Kernel, file: &str) -> io::Result<Vec<u32>> {
    Ok(kernel.read(file)?.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Whether the kernel has bound `tid` since: workers are born movable and bound a moment later.
pub(crate) fn became_bound(kernel: &dyn Kernel, tid: u32) -> bool {
    identity(kernel, tid).is_ok_and(|now| now.kernel && !now.movable)
}

/// The file of the group that `tid` is in now, in the hierarchy mounted at `mount`; `name` is
/// `tasks` (v1) or `cgroup.procs` (v2).
pub(crate) fn group_file(
    kernel: &dyn Kernel,
    tid: u32,
    mount: &GroupPath,
    name: &str,
) -> Option<GroupPath> {
    let text = kernel.read(&format!("/proc/{tid}/cgroup")).ok()?;
    let group = match name {
        "tasks" => parse::v1_group(&text, "cpuset"),
        _ => parse::v2_group(&text),
    };
    Some(mount.join(&group?).join(name))
}

/// The v1 `cpu` group of `tid` where that is not the root: under `RT_GROUP_SCHED` it needs a budget
/// of its own before its threads may run in real time.
pub(crate) fn without_budget(kernel: &dyn Kernel, tid: u32) -> Option<GroupPath> {
    let text = kernel.read(&format!("/proc/{tid}/cgroup")).ok()?;
    parse::v1_group(&text, "cpu").filter(|group| !group.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_hides_nothing() {
        let text = "77 (a) R (b) S 2 76 75 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 4321 0 0";
        let found = parse(77, text).unwrap();
        assert_eq!(found.thread, Thread { tid: 77, start: 4321, comm: "a) R (b".into() });
        assert!(found.kernel && !found.movable && !found.dead && found.parent == 2);
        assert_eq!(found.leaders, [76, 75]);
        let ending =
            parse(77, "77 (a) X 0 -1 -1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4321 0 0").unwrap();
        assert!(ending.dead && ending.leaders == [0, 0] && ending.thread.start == 4321);
    }

    #[test]
    fn nonsense_is_nobody() {
        for text in ["", "1 (", "1 (x", "1 (x)", "1 (x) S 1 2", ")1(", "1 (x) S a b c d e f g h"] {
            assert_eq!(parse(1, text), None, "{text}");
        }
    }
}
