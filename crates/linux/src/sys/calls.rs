//! Counters of the kernel's for one thread: its system calls and its context switches.
#![allow(unsafe_code)]

use crate::Root;
use std::{
    fs::File,
    io::{self, Read},
    os::fd::{FromRawFd, OwnedFd},
    sync::Mutex,
};

/// The tracepoint that every system call passes.
const TRACEPOINTS: [&str; 2] = [
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
];

/// `struct perf_event_attr` as it was at first (`PERF_ATTR_SIZE_VER0`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    address: u64,
}

const SOFTWARE: u32 = 1;
const CONTEXT_SWITCHES: u64 = 3;
const TRACEPOINT: u32 = 2;

/// Counters of the thread that opened them. Anybody in this process may read them.
///
/// While they are open every system call of every program passes the kernel's tracepoint, which costs each of them a little.
///
/// # Source
/// perf_event_open(2).
#[derive(Debug)]
pub struct ThreadCounters {
    calls: Mutex<File>,
    switches: Mutex<File>,
}

impl ThreadCounters {
    /// For the calling thread, from now on.
    ///
    /// # Errors
    /// Where the kernel counts no system calls, or not for this process: it takes root, as a rule.
    pub fn open(root: &Root) -> io::Result<ThreadCounters> {
        let read = |path| root.read_if_there(path).ok().flatten();
        let id = TRACEPOINTS.iter().find_map(|path| read(path)?.trim().parse().ok());
        let id = id.ok_or_else(|| io::Error::other("no tracepoint of system calls can be read"))?;
        Ok(ThreadCounters {
            switches: Mutex::new(counter(SOFTWARE, CONTEXT_SWITCHES)?),
            calls: Mutex::new(counter(TRACEPOINT, id)?),
        })
    }

    /// System calls so far. Where the thread asks for itself, the question is one of them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn calls(&self) -> io::Result<u64> {
        count(&self.calls)
    }

    /// Context switches so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn switches(&self) -> io::Result<u64> {
        count(&self.switches)
    }
}

fn counter(kind: u32, config: u64) -> io::Result<File> {
    let attributes =
        Attributes { kind, size: size_of::<Attributes>() as u32, config, ..Attributes::default() };
    let cloexec: libc::c_ulong = 8;
    // SAFETY: the attributes are read, as many bytes as they say themselves. This thread, any CPU, no group.
    let found = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, cloexec)
    };
    let found = i32::try_from(found).ok().filter(|found| *found >= 0);
    let found = found.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made it, and nobody else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(found) }))
}

fn count(file: &Mutex<File>) -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    file.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, skip};

    #[test]
    fn a_threads_own_calls_and_sleeps_are_counted_and_no_others() {
        let root = Root::system().unwrap();
        let counters = match ThreadCounters::open(&root) {
            Ok(counters) => counters,
            Err(_) if !quiet_testing::is_root() => return skip(Why::Root),
            Err(why) => return skip(Why::Machine(format!("no counters of system calls: {why}"))),
        };
        let before = counters.calls().unwrap();
        let again = counters.calls().unwrap();
        assert_eq!(again - before, 1, "the question itself");
        for _ in 0..10 {
            std::hint::black_box(rustix::thread::gettid());
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..1000 {
                    std::hint::black_box(rustix::thread::gettid());
                }
            });
        });
        let more = counters.calls().unwrap() - again;
        assert!((11..200).contains(&more), "{more}");
        let slept = counters.switches().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(counters.switches().unwrap() > slept);
        // From another thread: of the one that opened them, all the same.
        let there = std::thread::scope(|scope| {
            scope.spawn(|| [counters.calls().unwrap(), counters.calls().unwrap()]).join().unwrap()
        });
        assert_eq!(there[0], there[1]);
    }
}
