//! A machine for tests on which the first process runs, and nothing else can be asked or done. Journals of it are of boot [`BOOT`].

use crate::journal::{Journal, Record};
use quiet_linux::{Kernel, files::StateDir};
use quiet_types::{
    CpuSet, Nanos,
    machine::Scheduling,
    plan::{AppliedBy, UserUnit},
};
use std::{
    cell::{Cell, RefCell},
    io,
    path::{Path, PathBuf},
};

/// The start time of the first process.
pub(crate) const START: u64 = 10;

/// Its boot.
pub(crate) const BOOT: &str = "b0";

#[derive(Default)]
pub(crate) struct Nobody<'a> {
    /// The machine's lock.
    pub lock: Option<PathBuf>,
    /// Done once, at the last moment before a lock is taken.
    pub at_lock: RefCell<Option<Box<dyn FnOnce() + 'a>>>,
    /// So many reads more fail, as where no file is to be had.
    pub unread: Cell<u32>,
}

/// A shield that changed nothing, by its journal in the directory `path`.
pub(crate) fn shielded(path: &Path, by: &AppliedBy, records: &[Record]) -> StateDir {
    let state = StateDir::make(path).unwrap();
    let shield =
        "{\"cpus\":\"1\",\"housekeeping\":\"0\",\"mechanism\":\"affinity\",\"entry\":null}";
    let shield = serde_json::from_str(shield).unwrap();
    let mut journal = Journal::begin(&state, BOOT, &shield, &[], by).unwrap();
    for record in records {
        journal.seal(record.clone()).unwrap();
    }
    journal.seal(Record::Up { at: "now".into(), irqs: Vec::new() }).unwrap();
    state
}

fn gone<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(crate::error::errno::ENOENT))
}

impl Kernel for Nobody<'_> {
    fn lock_file(&self) -> Option<PathBuf> {
        if let Some(act) = self.at_lock.take() {
            act();
        }
        self.lock.clone()
    }
    fn read(&self, path: &str) -> io::Result<String> {
        if let Some(left) = self.unread.get().checked_sub(1) {
            self.unread.set(left);
            return Err(rustix::io::Errno::MFILE.into());
        }
        match path {
            "/proc/sys/kernel/random/boot_id" => Ok(format!("{BOOT}\n")),
            "/proc/1/task/1/stat" => {
                Ok(format!("1 (init) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {START} 0 0"))
            }
            _ => gone(),
        }
    }
    fn write(&self, _: &str, _: &str) -> io::Result<()> {
        gone()
    }
    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        gone()
    }
    fn make_dir(&self, _: &str) -> io::Result<()> {
        gone()
    }
    fn remove_dir(&self, _: &str) -> io::Result<()> {
        gone()
    }
    fn affinity(&self, _: u32) -> io::Result<CpuSet> {
        gone()
    }
    fn set_affinity(&self, _: u32, _: &CpuSet) -> io::Result<()> {
        gone()
    }
    fn scheduling(&self, _: u32) -> io::Result<Scheduling> {
        gone()
    }
    fn slice(&self, _: u32) -> io::Result<Option<Nanos>> {
        Ok(None)
    }

    fn resets_on_fork(&self, _: u32) -> io::Result<bool> {
        gone()
    }

    fn reset_on_fork(&self, _: u32, _: bool) -> io::Result<()> {
        gone()
    }

    fn restore_scheduling(&self, tid: u32, to: Scheduling, _: Option<Nanos>) -> io::Result<()> {
        self.set_scheduling(tid, to)
    }

    fn set_scheduling(&self, _: u32, _: Scheduling) -> io::Result<()> {
        gone()
    }
    fn replace(&self, _: &str, _: &str) -> io::Result<()> {
        gone()
    }
    fn make_file(&self, _: &str, _: &str) -> io::Result<()> {
        gone()
    }
    fn remove_file(&self, _: &str) -> io::Result<()> {
        gone()
    }
    fn restart(&self, _: &UserUnit) -> io::Result<()> {
        gone()
    }
    fn sweep(&self, _: &str) {}
    fn ask(&self, _: &str, _: &str) -> io::Result<String> {
        gone()
    }
    fn unit(&self, _: &str, _: Option<&str>) -> io::Result<()> {
        gone()
    }
}
