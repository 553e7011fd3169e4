//! A machine for tests on which the first process runs, and nothing else can be asked or done.

use quiet_linux::Kernel;
use quiet_types::{CpuSet, Nanos, machine::Scheduling, plan::UserUnit};
use std::{io, path::PathBuf};

/// The start time of the first process.
pub(crate) const START: u64 = 10;

#[derive(Default)]
pub(crate) struct Nobody {
    /// The machine's lock.
    pub lock: Option<PathBuf>,
}

fn gone<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(crate::error::errno::ENOENT))
}

impl Kernel for Nobody {
    fn lock_file(&self) -> Option<PathBuf> {
        self.lock.clone()
    }
    fn read(&self, path: &str) -> io::Result<String> {
        match path {
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
