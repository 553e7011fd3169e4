//! A kernel that is read, and only seems to be written: to see what a plan would change.

use quiet_linux::Kernel;
use quiet_types::{CpuSet, Nanos, machine::Scheduling, plan::UserUnit};
use std::{cell::RefCell, collections::HashMap, io};

/// The kernel, with what was asked of it kept here.
pub(super) struct Rehearsal<'a> {
    kernel: &'a dyn Kernel,
    files: RefCell<HashMap<String, String>>,
    affinities: RefCell<HashMap<u32, CpuSet>>,
    schedulings: RefCell<HashMap<u32, Scheduling>>,
}

impl<'a> Rehearsal<'a> {
    pub fn of(kernel: &'a dyn Kernel) -> Rehearsal<'a> {
        Rehearsal {
            kernel,
            files: RefCell::default(),
            affinities: RefCell::default(),
            schedulings: RefCell::default(),
        }
    }
}

impl Kernel for Rehearsal<'_> {
    fn read(&self, path: &str) -> io::Result<String> {
        match self.files.borrow().get(path) {
            Some(value) => Ok(value.clone()),
            None => self.kernel.read(path),
        }
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.files.borrow_mut().insert(path.to_owned(), value.to_owned());
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.kernel.list(path)
    }

    fn make_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn affinity(&self, tid: u32) -> io::Result<CpuSet> {
        match self.affinities.borrow().get(&tid) {
            Some(cpus) => Ok(cpus.clone()),
            None => self.kernel.affinity(tid),
        }
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> io::Result<()> {
        self.affinities.borrow_mut().insert(tid, cpus.clone());
        Ok(())
    }

    fn scheduling(&self, tid: u32) -> io::Result<Scheduling> {
        match self.schedulings.borrow().get(&tid) {
            Some(scheduling) => Ok(*scheduling),
            None => self.kernel.scheduling(tid),
        }
    }

    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        self.write(path, text)
    }

    fn make_file(&self, path: &str, text: &str) -> io::Result<()> {
        self.write(path, text)
    }

    fn remove_file(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn restart(&self, _unit: &UserUnit) -> io::Result<()> {
        Ok(())
    }

    fn sweep(&self, _path: &str) {}

    fn ask(&self, _socket: &str, _text: &str) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn unit(&self, _name: &str, _text: Option<&str>) -> io::Result<()> {
        Ok(())
    }

    fn slice(&self, tid: u32) -> io::Result<Option<Nanos>> {
        self.kernel.slice(tid)
    }

    fn resets_on_fork(&self, tid: u32) -> io::Result<bool> {
        self.kernel.resets_on_fork(tid)
    }

    fn reset_on_fork(&self, _tid: u32, _on: bool) -> io::Result<()> {
        Ok(())
    }

    fn restore_scheduling(&self, tid: u32, to: Scheduling, _: Option<Nanos>) -> io::Result<()> {
        self.set_scheduling(tid, to)
    }

    fn set_scheduling(&self, tid: u32, to: Scheduling) -> io::Result<()> {
        self.schedulings.borrow_mut().insert(tid, to);
        Ok(())
    }
}
