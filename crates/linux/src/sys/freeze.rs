//! Bringing a journal's content to its place: ext4's checkpoint, or a file system frozen for a moment.
//!
//! A frozen file system lets nobody write. So the process that freezes is one that a kill of this one does not
//! hit: a session, a cgroup and a name of its own, every signal held back. It thaws in its next system call. This
//! process stands by: where the other one is killed or stopped between the two calls, it thaws itself.
#![allow(unsafe_code)]

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    ioctl::opcode,
    pipe::PipeFlags,
};
use std::{
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

/// `EXT4_IOC_CHECKPOINT` of fs/ext4/ext4.h, Linux 5.15.
const CHECKPOINT: u32 = opcode::write::<u32>(b'f', 43);
/// `FIFREEZE` and `FITHAW` of linux/fs.h.
const FREEZE: u32 = opcode::read_write::<libc::c_int>(b'X', 119);
const THAW: u32 = opcode::read_write::<libc::c_int>(b'X', 120);

/// Longer than any disk needs for what is left to write after a syncfs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes what ext4's journal holds to its place, and empties the journal; nobody has to wait for a thaw.
/// `root` is the root directory of the file system itself.
///
/// # Errors
/// `ENOTTY` before Linux 5.15 and on other file systems; `EINVAL` where `root` is not the file system's own root;
/// `ENODEV` without a journal; `EPERM` without CAP_SYS_ADMIN.
///
/// # Source
/// Documentation/filesystems/ext4/journal.rst, "Journal checkpoint".
pub fn checkpoint(root: BorrowedFd<'_>) -> io::Result<()> {
    let flags: u32 = 0;
    // SAFETY: the kernel reads one u32 behind the pointer, which lives until the call is over.
    let done =
        unsafe { libc::ioctl(root.as_raw_fd(), CHECKPOINT as libc::Ioctl, &raw const flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Freezes the file system that `on` lies on and thaws it at once: then nothing of it is in a journal alone.
///
/// # Errors
/// `EOPNOTSUPP` where the file system cannot be frozen, `EBUSY` where somebody else has frozen it, `EPERM` without
/// CAP_SYS_ADMIN; `TimedOut` when the freeze took more than 30 s. However it fails, it is thawed again.
///
/// # Source
/// ioctl_fsfreeze in fs/ioctl.c; fsfreeze(8).
pub fn freeze_and_thaw(on: BorrowedFd<'_>) -> io::Result<()> {
    paused(on, Duration::ZERO)
}

/// As [`freeze_and_thaw`], with a pause between the two that tests kill in.
fn paused(on: BorrowedFd<'_>, pause: Duration) -> io::Result<()> {
    // A helper that was killed has not necessarily frozen: once more, then.
    for _ in 0..3 {
        if let Some(answer) = guarded(on, pause)? {
            return match answer {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            };
        }
    }
    Err(io::Error::other("the process that freezes is killed again and again"))
}

/// The helper's errno, 0 for done; `None` where it ended without a word.
fn guarded(on: BorrowedFd<'_>, pause: Duration) -> io::Result<Option<i32>> {
    let (told, tell) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // Before the fork: the helper may not allocate.
    let pause = libc::timespec {
        tv_sec: libc::time_t::try_from(pause.as_secs()).unwrap_or(0),
        tv_nsec: libc::c_long::from(i32::try_from(pause.subsec_nanos()).unwrap_or(0)),
    };
    let arguments = arguments();
    // SAFETY: the child makes plain system calls alone and ends by _exit: no allocation, no lock, no destructor.
    let helper = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => help(on.as_raw_fd(), tell.as_raw_fd(), arguments, &pause),
        helper => helper,
    };
    drop(tell);
    let answer = wait_for(&told);
    if !matches!(answer, Ok(Some(_))) {
        // SAFETY: the child is not waited for yet, so its number is its own.
        unsafe { libc::kill(helper, libc::SIGKILL) };
    }
    // SAFETY: no status is asked for; the call writes nothing.
    while unsafe { libc::waitpid(helper, std::ptr::null_mut(), 0) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    if !matches!(answer, Ok(Some(0))) {
        // EINVAL where it is not frozen.
        let _ = thaw(on.as_raw_fd());
    }
    answer
}

/// Where this process' arguments lie, and their length: proc_pid_stat(5), fields 48 and 49.
fn arguments() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(45);
    let (start, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    // Without the right to know they are 0.
    (start > 0 && end > start).then(|| (start, end - start))
}

/// What the helper says, `None` where it is gone.
fn wait_for(told: &OwnedFd) -> io::Result<Option<i32>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut ready = [PollFd::new(told, PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the file system could not be frozen within 30 s",
                ));
            }
            Ok(_) => break,
        }
    }
    let mut errno = [0; 4];
    let mut pipe = std::fs::File::from(told.as_fd().try_clone_to_owned()?);
    match pipe.read_exact(&mut errno) {
        Ok(()) => Ok(Some(i32::from_ne_bytes(errno))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn thaw(on: RawFd) -> libc::c_int {
    // SAFETY: the kernel ignores the argument.
    unsafe { libc::ioctl(on, THAW as libc::Ioctl, 0) }
}

/// Writes a short text to a file where that is possible.
fn put(path: &std::ffi::CStr, text: &[u8]) {
    // SAFETY: the path ends with a NUL.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if fd >= 0 {
        // SAFETY: the text is as long as it says.
        unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
        // SAFETY: the descriptor was opened above.
        unsafe { libc::close(fd) };
    }
}

/// The helper's life, behind fork.
fn help(on: RawFd, tell: RawFd, arguments: Option<(usize, usize)>, pause: &libc::timespec) -> ! {
    stand_apart(arguments);
    // SAFETY: the kernel ignores the argument.
    let frozen = unsafe { libc::ioctl(on, FREEZE as libc::Ioctl, 0) };
    let mut errno = if frozen == 0 { 0 } else { errno_now() };
    if frozen == 0 {
        if pause.tv_sec > 0 || pause.tv_nsec > 0 {
            // SAFETY: the time is a whole timespec; what is left of it is not asked for.
            unsafe { libc::nanosleep(pause, std::ptr::null_mut()) };
        }
        if thaw(on) != 0 {
            errno = errno_now();
        }
    }
    // SAFETY: the pipe is open, and an i32 has four bytes.
    unsafe { libc::write(tell, (&raw const errno).cast(), 4) };
    // SAFETY: ends the process at once, without a destructor of its parent's.
    unsafe { libc::_exit(0) }
}

/// Why the last call failed; allocates nothing.
fn errno_now() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Out of reach of what kills the parent: its process group, its cgroup, its name, a lack of memory. Each is done
/// where it can be.
fn stand_apart(arguments: Option<(usize, usize)>) {
    static NAME: &[u8] = b"thaws-a-file-system\0";
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set that it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set is filled; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    // SAFETY: the name ends with a NUL; the kernel takes its first 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, NAME.as_ptr()) };
    // The command line that `pkill -f` reads: of this process' own copy of the memory.
    if let Some((start, length)) = arguments {
        for (at, byte) in NAME.iter().chain(std::iter::repeat(&0)).take(length).enumerate() {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(start + at);
            // SAFETY: the kernel says that the arguments lie here; nothing in this process reads them any more.
            unsafe { to.write_volatile(*byte) };
        }
    }
    put(c"/proc/self/oom_score_adj", b"-1000");
    put(c"/sys/fs/cgroup/cgroup.procs", b"0");
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, is_emulated, is_root, skip, until};
    use std::{
        fs,
        os::unix::process::CommandExt,
        path::{Path, PathBuf},
        process::Command,
        thread::sleep,
    };

    /// FIFREEZE and FITHAW give 0 there and do not come to the kernel.
    const UNFROZEN: Why = Why::Emulated("nothing is frozen, whatever the call gives");

    /// A small ext4 on a file, mounted; unmounted when dropped, and thawed before.
    struct Disk(tempfile::TempDir);

    impl Disk {
        /// `None`, and why, where this is not root or cannot mount.
        fn new() -> Option<Disk> {
            let dir = tempfile::tempdir().unwrap();
            let (image, at) = (dir.path().join("image"), dir.path().join("at"));
            fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
            fs::create_dir(&at).unwrap();
            if !is_root() {
                return skip(Why::Root);
            }
            if is_emulated() {
                return skip(UNFROZEN);
            }
            let run = |command: &mut Command| match command.output() {
                Ok(done) if done.status.success() => Ok(()),
                Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
                Err(error) => Err(error.to_string()),
            };
            let mut made = Command::new("mke2fs");
            made.args(["-q", "-t", "ext4"]).arg(&image);
            if made.output().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                return skip(Why::Program("mke2fs", "e2fsprogs"));
            }
            run(&mut made).unwrap();
            match run(Command::new("mount").args(["-o", "loop"]).args([&image, &at])) {
                Ok(()) => Some(Disk(dir)),
                Err(why) => skip(Why::Machine(format!("no ext4 on a file can be mounted: {why}"))),
            }
        }

        fn at(&self) -> PathBuf {
            self.0.path().join("at")
        }

        /// Whether a file can be written there within a minute.
        fn takes_writes(&self) -> bool {
            let mut write = Command::new("touch").arg(self.at().join("x")).spawn().unwrap();
            for _ in 0..6000 {
                if write.try_wait().unwrap().is_some() {
                    return true;
                }
                sleep(Duration::from_millis(10));
            }
            thaw(fs::File::open(self.at()).unwrap().as_raw_fd());
            write.wait().unwrap();
            false
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let _ = thaw(fs::File::open(self.at()).unwrap().as_raw_fd());
            let _ = Command::new("umount").arg("-l").arg(self.at()).status();
        }
    }

    /// The helpers of a process that are asleep between freeze and thaw, by their name.
    fn helper_of(parent: u32) -> Option<i32> {
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (head, tail) = stat.rsplit_once(") ")?;
            let of: u32 = tail.split(' ').nth(1)?.parse().ok()?;
            let (pid, name) = head.split_once(" (")?;
            (of == parent && name == "thaws-a-file-sy" && tail.starts_with('S'))
                .then(|| pid.parse().ok())?
        })
    }

    #[test]
    fn a_file_system_is_thawed_at_once_and_what_cannot_be_frozen_says_so() {
        if is_emulated() {
            return skip(UNFROZEN);
        }
        let proc = fs::File::open("/proc").unwrap();
        let error = freeze_and_thaw(proc.as_fd()).unwrap_err().raw_os_error();
        assert!([Some(libc::EOPNOTSUPP), Some(libc::EPERM)].contains(&error), "{error:?}");
        let Some(disk) = Disk::new() else { return };
        let root = fs::File::open(disk.at()).unwrap();
        freeze_and_thaw(root.as_fd()).unwrap();
        assert!(disk.takes_writes());
        checkpoint(root.as_fd()).unwrap();
        assert_eq!(thaw(root.as_raw_fd()), -1, "it is not frozen");
    }

    #[test]
    fn a_helper_killed_between_freeze_and_thaw_leaves_nothing_frozen() {
        let Some(disk) = Disk::new() else { return };
        let root = fs::File::open(disk.at()).unwrap();
        let us = std::process::id();
        let freezer = std::thread::spawn(move || paused(root.as_fd(), Duration::from_secs(3600)));
        let mut killed = 0;
        while !freezer.is_finished() {
            if let Some(helper) = helper_of(us) {
                // SAFETY: a child of this process that is not waited for yet, or no process at all.
                unsafe { libc::kill(helper, libc::SIGKILL) };
                killed += 1;
            }
            sleep(Duration::from_millis(1));
        }
        assert!(freezer.join().unwrap().is_err());
        assert!(killed >= 3, "{killed}");
        assert!(disk.takes_writes());
    }

    /// Runs as a process of its own in the test below.
    #[test]
    fn freezes_for_a_while() {
        let Some(at) = std::env::var_os("QUIETCORES_TEST_FREEZE") else { return };
        let root = fs::File::open(Path::new(&at)).unwrap();
        let _ = paused(root.as_fd(), Duration::from_secs(60));
    }

    #[test]
    fn a_parent_killed_with_its_group_between_freeze_and_thaw_leaves_nothing_frozen() {
        let Some(disk) = Disk::new() else { return };
        let mut parent = Command::new(std::env::current_exe().unwrap());
        parent.args(["--exact", "sys::freeze::tests::freezes_for_a_while"]);
        parent.env("QUIETCORES_TEST_FREEZE", disk.at()).process_group(0);
        let mut parent = parent.spawn().unwrap();
        let helper = until("a helper between freeze and thaw", || helper_of(parent.id()));
        let line = fs::read(format!("/proc/{helper}/cmdline")).unwrap();
        assert!(line.starts_with(b"thaws-a-file-system\0"), "{}", line.escape_ascii());
        assert!(!line.windows(7).any(|part| part == b"--exact"), "{}", line.escape_ascii());
        // SAFETY: the group of the process that was started above and is not waited for yet.
        unsafe { libc::kill(-i32::try_from(parent.id()).unwrap(), libc::SIGKILL) };
        parent.wait().unwrap();
        assert!(disk.takes_writes());
    }
}
