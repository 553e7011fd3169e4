//! Where those go who are left in a group of ours: home, to the group that whoever started them was taken from.

use crate::{change::Change, journal::Past, tasks};
use quiet_linux::Kernel;
use quiet_types::GroupPath;
use std::{
    cell::OnceCell,
    collections::{BTreeSet, HashMap},
};

/// Processes above one, at most.
const DEPTH: usize = 64;

/// The homes of those who are in a group of ours. What it takes is read when the first one asks.
pub(super) struct Homes<'a> {
    kernel: &'a dyn Kernel,
    past: &'a Past,
    /// The file that lists the group's tasks and takes them.
    file: &'a GroupPath,
    noted: OnceCell<Noted<'a>>,
}

/// What the journal tells of those who were moved into the group.
struct Noted<'a> {
    /// Where the hierarchy is mounted.
    mount: GroupPath,
    /// By number: when each was started, and where it was.
    threads: HashMap<u32, Vec<(u64, &'a GroupPath)>>,
    /// By the processes of those who live: a thread's child is a child of its process.
    processes: HashMap<u32, &'a GroupPath>,
    /// Where all of them were.
    only: Option<&'a GroupPath>,
}

impl<'a> Homes<'a> {
    /// Those of the group that `file` lists.
    pub fn of(kernel: &'a dyn Kernel, past: &'a Past, file: &'a GroupPath) -> Homes<'a> {
        Homes { kernel, past, file, noted: OnceCell::new() }
    }

    /// The file of the group that thread `tid` is to go to; `None` where nothing tells.
    ///
    /// What the journal tells of the nearest one above it counts. Whoever has lost its parents is still in the process group and the
    /// session of one that was above it. Next is where the nearest one is now, and last where all came from.
    pub fn home(&self, tid: u32) -> Option<GroupPath> {
        let noted = self.noted.get_or_init(|| self.look());
        let line = self.line(tid);
        let known = line.iter().find_map(|above| noted.home(self.kernel, *above));
        let home = known.cloned().or_else(|| {
            let now = |pid| tasks::group_file(self.kernel, pid, &noted.mount, self.file.name());
            line.iter().find_map(|above| now(*above).filter(|now| now != self.file))
        });
        home.or_else(|| noted.only.cloned())
    }

    fn look(&self) -> Noted<'a> {
        let mut noted = Noted {
            mount: self.mount(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            only: None,
        };
        let mut all = BTreeSet::new();
        for (_, change) in &self.past.changes {
            let Change::Move { from, to, threads, .. } = change else { continue };
            if to != self.file {
                continue;
            }
            all.insert(from);
            for (thread, _) in threads {
                noted.threads.entry(thread.tid).or_default().push((thread.start, from));
                if tasks::lives(self.kernel, thread)
                    && let Some(process) = tasks::process(self.kernel, thread.tid)
                {
                    noted.processes.insert(process, from);
                }
            }
        }
        noted.only = all.pop_first().filter(|_| all.is_empty());
        noted
    }

    /// The outermost group that has a file as this one has.
    fn mount(&self) -> GroupPath {
        let has = |group: &GroupPath| self.kernel.read(&group.join(self.file.name())).is_ok();
        let group = self.file.parent().unwrap_or_default();
        group.ancestors().take_while(has).last().unwrap_or(group)
    }

    /// Whoever may have started `tid`, nearest first.
    fn line(&self, tid: u32) -> Vec<u32> {
        let Ok(own) = tasks::identity(self.kernel, tid) else { return Vec::new() };
        let process = tasks::process(self.kernel, tid).filter(|process| *process != tid);
        let mut line: Vec<u32> = process.into_iter().collect();
        let mut next = own.parent;
        while line.len() < DEPTH && next > 1 {
            let Ok(above) = tasks::identity(self.kernel, next) else { break };
            if above.is_foster() {
                break;
            }
            line.push(next);
            next = above.parent;
        }
        let is_one = |pid: &u32| {
            let is_foster = || tasks::identity(self.kernel, *pid).is_ok_and(|one| one.is_foster());
            *pid > 1 && *pid != tid && !is_foster()
        };
        line.extend(own.leaders.into_iter().filter(is_one));
        line
    }
}

impl<'a> Noted<'a> {
    /// Where the thread or process `tid` was taken from.
    fn home(&self, kernel: &dyn Kernel, tid: u32) -> Option<&'a GroupPath> {
        let of_thread = self.threads.get(&tid).and_then(|known| {
            // The number of one that leads a process group or a session is nobody else's for as long as that has members.
            let start = tasks::identity(kernel, tid).ok().map(|now| now.thread.start);
            let is_it = |(then, _): &&(u64, _)| start.is_none_or(|now| now == *then);
            known.iter().rev().find(is_it).map(|(_, from)| *from)
        });
        of_thread.or_else(|| self.processes.get(&tid).copied())
    }
}
