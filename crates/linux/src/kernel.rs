//! What changes things: the few acts that a shield is made of.

use crate::sys;
use quiet_types::{CpuSet, machine::Scheduling};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
};

/// The acts on a running kernel that `apply` and `revert` are made of, each as the kernel answers
/// it. [`System`] is the running one; tests bring kernels that refuse, forget and vanish.
///
/// Errors are the kernel's own: `io::Error::raw_os_error` is the errno.
pub trait Kernel {
    /// The text of a file below `/proc`, `/sys` or a cgroup mount.
    fn read(&self, path: &str) -> io::Result<String>;
    /// One write(2) of the whole value: kernel files take a value in one call or not at all.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;
    /// Names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// mkdir(2): makes a cgroup.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// rmdir(2): removes an empty cgroup.
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    /// sched_getaffinity(2).
    fn affinity(&self, tid: u32) -> io::Result<CpuSet>;
    /// sched_setaffinity(2).
    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()>;
    /// sched_getattr(2).
    fn scheduling(&self, tid: u32) -> io::Result<Scheduling>;
    /// sched_setattr(2). `Deadline` is not set this way.
    fn set_scheduling(&self, tid: u32, to: Scheduling) -> io::Result<()>;
}

/// The running system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Kernel for System {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(8 << 20).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        let written = file.write(value.as_bytes())?;
        if written == value.len() {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::WriteZero, "the kernel took only a part"))
        }
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        sys::sched::affinity(tid)
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        sys::sched::set_affinity(tid, cpus)
    }

    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        sys::sched::scheduling(tid).map(|s| s.0)
    }

    fn set_scheduling(&self, tid: u32, to: Scheduling) -> io::Result<()> {
        sys::sched::set_scheduling(tid, to)
    }
}
