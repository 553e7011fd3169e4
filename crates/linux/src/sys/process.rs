//! Processes that must not outlive this one, signals held back, and what hit a thread.
#![allow(unsafe_code)]

use rustix::process::Signal;
use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command},
};

/// Blocks SIGINT, SIGTERM and SIGHUP in the calling thread and the threads it makes later.
///
/// # Errors
/// Never on Linux with these signals; the kernel's answer is passed on all the same.
///
/// # Source
/// pthread_sigmask(3).
pub fn block_signals() -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the set was filled above; the signal numbers are valid.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: the set is filled; the old mask is not asked for.
    let error =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Starts `command` in a process group of its own, to be sent `signal` when the calling *thread*
/// ends, however it ends.
///
/// # Errors
/// As `Command::spawn`; `ESRCH` when the caller died meanwhile.
///
/// # Source
/// `PR_SET_PDEATHSIG` in prctl(2).
pub fn spawn_bound(command: &mut Command, signal: Signal) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    command.process_group(0);
    command.env(BOUND, format!("{} {}", parent.as_raw_nonzero(), signal.as_raw()));
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have died before the line above: then nobody sends the signal.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls: no allocation, no lock.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

/// Says to whom a process is bound that [`spawn_bound`] started: PID and signal.
const BOUND: &str = "QUIETCORES_BOUND";

/// Binds the calling process again to the one that started it by [`spawn_bound`], if it was started so: an exec of a
/// file that has capabilities, or of another user's set-user-ID file, unties what was bound before it.
///
/// # Errors
/// `ESRCH` when that process is gone: nobody will send the signal.
///
/// # Source
/// `PR_SET_PDEATHSIG` in prctl(2).
pub fn bind_again() -> io::Result<()> {
    let Ok(bound) = std::env::var(BOUND) else { return Ok(()) };
    let mut words = bound.split(' ').map(|word| word.parse::<i32>().ok());
    let (Some(parent), Some(signal)) = (words.next().flatten(), words.next().flatten()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// What hit the calling thread since it began: `minor_faults`, `major_faults`,
/// `voluntary_switches`, `involuntary_switches`.
///
/// # Source
/// getrusage(2), `RUSAGE_THREAD`.
pub fn thread_usage() -> io::Result<[(&'static str, u64); 4]> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the buffer is a whole rusage.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed above, and filled by the kernel.
    let usage = unsafe { usage.assume_init() };
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
    Ok([
        ("minor_faults", count(usage.ru_minflt)),
        ("major_faults", count(usage.ru_majflt)),
        ("voluntary_switches", count(usage.ru_nvcsw)),
        ("involuntary_switches", count(usage.ru_nivcsw)),
    ])
}

/// Makes every CPU that runs a thread of this process pass a memory barrier, by an interrupt.
///
/// # Errors
/// `ENOSYS` or `EINVAL` where the kernel has no such thing.
///
/// # Source
/// membarrier(2), `MEMBARRIER_CMD_PRIVATE_EXPEDITED`.
pub fn membarrier() -> io::Result<()> {
    const PRIVATE: libc::c_int = 1 << 3;
    const REGISTER: libc::c_int = 1 << 4;
    for command in [REGISTER, PRIVATE] {
        // SAFETY: the call takes two numbers and touches no memory of ours.
        let done = unsafe { libc::syscall(libc::SYS_membarrier, command, 0) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Puts the calling thread into a network of its own, with no link but a loopback that is down. It goes with
/// the last thread, socket or link that is in it.
///
/// # Errors
/// Where the kernel refuses: it takes CAP_SYS_ADMIN.
///
/// # Source
/// unshare(2), `CLONE_NEWNET`; network_namespaces(7).
pub fn own_network() -> io::Result<()> {
    // SAFETY: the call takes a number and touches no memory of ours.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_process_ends_with_the_thread_that_started_it() {
        let pid = std::thread::spawn(|| {
            let mut sleep = Command::new("sleep");
            spawn_bound(sleep.arg("60"), Signal::KILL).unwrap()
        })
        .join();
        let mut child = pid.unwrap();
        // Waits for its end, which comes from the signal: the sleep itself lasts a minute.
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    /// Run as another process by the test below: says what it is bound by, binds itself again, says it again, and waits.
    /// By itself it is bound to nobody, and does nothing.
    #[test]
    fn bound() {
        use std::io::Write;
        if std::env::var_os(BOUND).is_none() {
            return;
        }
        let says = |when: &str| {
            let signal = rustix::process::parent_process_death_signal().unwrap();
            writeln!(io::stderr(), "{when} {}", signal.map_or(0, Signal::as_raw)).unwrap();
        };
        says("before");
        bind_again().unwrap();
        says("after");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }

    #[test]
    fn a_file_that_has_capabilities_is_bound_again() {
        use quiet_testing::{Why, skip};
        use std::{
            io::{BufRead, BufReader},
            os::unix::{fs::PermissionsExt, process::ExitStatusExt},
            process::Stdio,
            sync::mpsc,
        };
        if !quiet_testing::is_root() {
            return skip(Why::Root);
        }
        if quiet_testing::is_emulated() {
            return skip(Why::Emulated("a copy of this program is none that the kernel can start"));
        }
        let dir = quiet_testing::public_folder();
        let file = dir.path().join("bound");
        quiet_testing::copy_program(std::env::current_exe().unwrap(), &file);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        // struct vfs_cap_data of capabilities(7), version 2, effective: CAP_NET_BIND_SERVICE alone.
        let words = [0x0200_0001u32, 1 << 10, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(e) = rustix::fs::setxattr(&file, "security.capability", &bytes, flags) {
            return skip(Why::Machine(format!(
                "{} keeps no capabilities: {e}",
                dir.path().display()
            )));
        }
        let (say, hear) = mpsc::channel();
        let parent = std::thread::spawn(move || {
            let mut command = Command::new(&file);
            command.args(["--exact", "sys::process::tests::bound", "--nocapture"]);
            command.uid(65_534).gid(65_534).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = spawn_bound(&mut command, Signal::KILL).unwrap();
            let lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let said: Vec<String> = lines.take(2).map_while(Result::ok).collect();
            say.send(said).unwrap();
            child
        });
        let said = hear.recv().unwrap();
        // The thread ends, and with it who is to be outlived by nobody.
        let mut child = parent.join().unwrap();
        if said.first().map(String::as_str) == Some("before 9") {
            child.kill().unwrap();
            child.wait().unwrap();
            return skip(Why::Machine(
                "files' capabilities mean nothing where temporary files are".into(),
            ));
        }
        assert_eq!(said, ["before 0", "after 9"], "untied by the exec, and bound again");
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn touching_new_memory_shows_as_faults() {
        let before = thread_usage().unwrap();
        let mut memory = vec![0u8; 4 << 20];
        for page in memory.chunks_mut(4096) {
            page[0] = 1;
        }
        std::hint::black_box(&memory);
        assert!(thread_usage().unwrap()[0].1 > before[0].1);
    }
}
