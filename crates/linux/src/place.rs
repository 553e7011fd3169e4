//! Putting a thread where nothing disturbs it, and seeing what did.

use crate::{Error, Kernel, System, sys};
use quiet_types::{Finding, Severity, shield::Entry};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
};

/// The calling thread's number.
pub fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Through the shield's door: a thread, or with [`Entry::whole_process`] a process.
///
/// # Errors
/// The kernel's own.
pub fn enter(entry: &Entry, task: u32) -> io::Result<()> {
    System.write(&entry.file, &task.to_string())
}

/// How often the calling thread changed its CPU, where the kernel tells (`CONFIG_SCHED_DEBUG`).
pub fn migrations() -> Option<u64> {
    let sched = fs::read_to_string("/proc/thread-self/sched").ok()?;
    let line = sched.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// What hit a thread between two readings of its own counters ([`sys::process::thread_usage`]);
/// empty where they cannot be read.
pub fn hits(before: Usage, after: Usage) -> BTreeMap<String, u64> {
    let (Ok(before), Ok(after)) = (before, after) else { return BTreeMap::new() };
    let pairs = before.iter().zip(after);
    pairs.map(|(old, (name, now))| (name.to_owned(), now.saturating_sub(old.1))).collect()
}

/// A reading of a thread's own counters.
pub type Usage = io::Result<[(&'static str, u64); 4]>;

/// Locks all memory of the process, present and future, as the kernel's own word confirms; else
/// why not. `what` names the process in the sentence.
pub fn lock_memory(what: &str) -> (bool, Option<Finding>) {
    let done = sys::memory::lock_all();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let locked = status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let locked = done.is_ok() && locked.is_some_and(|kib| kib > 0);
    let finding = done.err().map(|error| {
        Finding::new(Severity::Note, "run.memory", "Memory is not locked")
            .evidence(Error::io("lock", what, error).to_string())
            .effect("A page that was taken away costs a page fault when it is needed.")
            .remedy("Run as root, or raise the limit (`memlock` in /etc/security/limits.conf).")
    });
    (locked, finding)
}

/// Asks for no idle states while the file is open.
///
/// # Errors
/// What stands in the way, as a finding.
pub fn hold_awake() -> Result<File, Box<Finding>> {
    let path = "/dev/cpu_dma_latency";
    let open = || -> io::Result<File> {
        let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        // All four bytes at once: a shorter write is refused.
        file.write_all(&0i32.to_ne_bytes())?;
        let mut back = [1u8; 4];
        file.read_exact(&mut back)?;
        if back == [0; 4] {
            Ok(file)
        } else {
            Err(io::Error::other("the kernel took 0 and answers another value"))
        }
    };
    open().map_err(|error| {
        let title = "Idle states are as they were";
        Box::new(
            Finding::new(Severity::Warning, "run.idle_states", title)
                .evidence(Error::io("hold 0 in", path, error).to_string())
                .effect("Waking from a deep idle state takes its time.")
                .remedy("Run as root."),
        )
    })
}
