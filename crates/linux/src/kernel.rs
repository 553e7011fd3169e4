//! What changes things: the few acts that a shield is made of.

use crate::{
    files::{self, FileOwner, Replacement},
    sys,
};
use quiet_types::{CpuSet, Nanos, machine::Scheduling, plan::UserUnit};
use rustix::{
    fs::AtFlags,
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::socket_peercred,
    },
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
            net::{SocketAddr, UnixStream},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
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
    /// The slice that a thread of a fair policy has of its own, which another policy makes the kernel forget.
    fn slice(&self, tid: u32) -> io::Result<Option<Nanos>>;
    /// As [`Kernel::set_scheduling`], with such a slice.
    fn restore_scheduling(&self, tid: u32, to: Scheduling, slice: Option<Nanos>) -> io::Result<()>;
    /// Whether what the thread starts begins under the ordinary policy (`SCHED_FLAG_RESET_ON_FORK`).
    fn resets_on_fork(&self, tid: u32) -> io::Result<bool>;
    /// Has it so, or not. Policy, priority and slice stay.
    fn reset_on_fork(&self, tid: u32, on: bool) -> io::Result<()>;
    /// Replaces an ordinary file whole: written aside, brought to the disk and renamed, so that
    /// there is the old text or the new one at any instant. Owner, mode and extended attributes
    /// stay. Never follows a link.
    fn replace(&self, path: &str, text: &str) -> io::Result<()>;
    /// Makes an ordinary file whole that anybody may read, and the directories that are missing above it; one that is there is
    /// replaced, as by [`Kernel::replace`].
    fn make_file(&self, path: &str, text: &str) -> io::Result<()>;
    /// Removes an ordinary file; its name is off the disk when this returns. Never follows a link.
    fn remove_file(&self, path: &str) -> io::Result<()>;
    /// Starts a service of a user's own manager anew, as that user, where it runs. `Ok` where it does not run.
    fn restart(&self, unit: &UserUnit) -> io::Result<()>;
    /// Removes what a killed [`Kernel::replace`] has left beside the file.
    fn sweep(&self, path: &str);
    /// Says something to the Unix socket of a daemon of root's (`@name` for one without a file), and returns its answer: all that it
    /// sends until it ends the connection, within a second in all. Where another user made the socket nothing is said: anybody may
    /// take a name without a file.
    fn ask(&self, socket: &str, text: &str) -> io::Result<String>;
    /// Has systemd make a unit of this text until the next boot, and start it; without a text, stop
    /// it and forget it. The error is what `systemctl` says.
    fn unit(&self, name: &str, text: Option<&str>) -> io::Result<()>;
    /// The file whose lock is the sole right to change this machine; `None` for a kernel that is none of a machine.
    fn lock_file(&self) -> Option<PathBuf> {
        None
    }
}

/// The lock of the running machine: gone with the boot, as are the changes that it guards.
const LOCK: &str = "/run/quietcores.lock";

/// Where [`Kernel::unit`] writes the text of a unit of that name.
pub fn unit_file(name: &str) -> String {
    format!("/run/systemd/system/{name}")
}

/// Daemons answer at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(1);
/// An answer that is cut off is none that we know.
const LONGEST_ANSWER: usize = 1 << 20;

/// The running system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Kernel for System {
    fn lock_file(&self) -> Option<PathBuf> {
        Some(LOCK.into())
    }

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

    fn slice(&self, tid: u32) -> io::Result<Option<Nanos>> {
        sys::sched::slice(tid)
    }

    fn restore_scheduling(&self, tid: u32, to: Scheduling, slice: Option<Nanos>) -> io::Result<()> {
        sys::sched::set_scheduling_with(tid, to, slice)
    }

    fn resets_on_fork(&self, tid: u32) -> io::Result<bool> {
        sys::sched::scheduling(tid).map(|s| s.1)
    }

    fn reset_on_fork(&self, tid: u32, on: bool) -> io::Result<()> {
        sys::sched::reset_on_fork(tid, on)
    }

    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        let meta = fs::symlink_metadata(path)?;
        if !meta.is_file() {
            return Err(io::Error::other("it is a link or no ordinary file"));
        }
        let (dir, name) = parted(path)?;
        let owner = FileOwner { mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid() };
        Replacement::write(dir, name, text.as_bytes(), owner)?.rename()
    }

    fn make_file(&self, path: &str, text: &str) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok() {
            return self.replace(path, text);
        }
        let above = Path::new(path).parent().unwrap_or(Path::new("/"));
        let missing: Vec<&Path> = above.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(dir)?;
            // Whatever the umask says: others read what is in it.
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
            if let Some(parent) = dir.parent() {
                files::sync(fs::File::open(parent)?.as_fd())?;
            }
        }
        let (dir, name) = parted(path)?;
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let owner = FileOwner { mode: 0o644, uid: uid.as_raw(), gid: gid.as_raw() };
        Replacement::write(dir, name, text.as_bytes(), owner)?.rename()
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        if !fs::symlink_metadata(path)?.is_file() {
            return Err(io::Error::other("it is a link or no ordinary file"));
        }
        let (dir, name) = parted(path)?;
        rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
        files::sync(dir.as_fd())
    }

    fn restart(&self, unit: &UserUnit) -> io::Result<()> {
        let runtime = format!("/run/user/{}", unit.uid);
        let meta = match fs::symlink_metadata(&runtime) {
            // No manager of that user's runs, and so nothing of its; unless users are hidden from us (`ProtectHome=` of our service).
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match fs::metadata("/run/user") {
                    Ok(users) if users.mode() & 0o777 == 0 => {
                        let why = "users' managers are out of reach of this service";
                        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
                    }
                    _ => Ok(()),
                };
            }
            other => other?,
        };
        if !meta.is_dir() || meta.uid() != unit.uid {
            return Err(io::Error::other(format!("{runtime} is not that user's")));
        }
        let mut command = Command::new("systemctl");
        // As that user, who then may do to it what he likes: nothing of root's goes with it.
        command.uid(unit.uid).gid(meta.gid()).current_dir("/").env_clear();
        command.env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", &runtime);
        command.args(["--user", "--quiet", "--no-ask-password", "try-restart", "--", &unit.unit]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        match within(&mut child, ANSWER)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                Err(io::Error::other(format!("`systemctl --user` ended with {status}")))
            }
            None => Err(io::Error::other("`systemctl --user` does not come to its end")),
        }
    }

    fn sweep(&self, path: &str) {
        if let Ok((dir, name)) = parted(path) {
            let _ = files::sweep(dir.as_fd(), name);
        }
    }

    fn ask(&self, socket: &str, text: &str) -> io::Result<String> {
        let address = match socket.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(socket)?,
        };
        ask(&address, text, 0, PATIENCE)
    }

    fn unit(&self, name: &str, text: Option<&str>) -> io::Result<()> {
        let file = unit_file(name);
        match text {
            Some(text) => {
                fs::write(&file, text)?;
                systemctl(&["daemon-reload"])?;
                systemctl(&["start", name])
            }
            None => {
                // One that was never loaded cannot be stopped: whether it is there is seen by its group.
                let stopped = systemctl(&["stop", name]);
                match fs::remove_file(&file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Err(_) => return stopped,
                    Ok(()) => {}
                }
                systemctl(&["daemon-reload"])
            }
        }
    }
}

/// Asks the socket at `address`, which user `owner` made; everything within `patience`.
///
/// # Source
/// unix(7), `SO_PEERCRED`: who called listen(2).
fn ask(address: &SocketAddr, text: &str, owner: u32, patience: Duration) -> io::Result<String> {
    let until = Instant::now() + patience;
    let left = || {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    // A full queue of an idle listener would hold connect(2) for ever.
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, kind, None)?;
    let to = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path)?,
        (_, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
        _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
    };
    loop {
        match connect(&socket, &to) {
            Err(Errno::AGAIN) => sleep(left()?.min(Duration::from_millis(10))),
            other => break other?,
        }
    }
    if socket_peercred(&socket)?.uid.as_raw() != owner {
        let why = "another user made this socket";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left()?))?;
        match stream.write(rest) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(n) => rest = &rest[n..],
        }
    }
    let (mut answer, mut bytes) = (Vec::new(), [0; 4096]);
    while answer.len() < LONGEST_ANSWER {
        let Ok(left) = left() else { break };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// systemd answers at once, or something is wrong with it.
const ANSWER: Duration = Duration::from_secs(30);

fn systemctl(words: &[&str]) -> io::Result<()> {
    let mut child = Command::new("systemctl")
        .args(["--quiet", "--no-ask-password"])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let Some(status) = within(&mut child, ANSWER)? else {
        let late = format!("`systemctl {}` does not come to its end", words.join(" "));
        return Err(io::Error::other(late));
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(pipe) = child.stderr {
        let _ = pipe.take(4096).read_to_string(&mut said);
    }
    let said = said.lines().next().unwrap_or("no reason is told").to_owned();
    Err(io::Error::other(format!("`systemctl {}`: {said}", words.join(" "))))
}

/// How a child ended; `None` where it did not within `patience`, and was killed.
pub(crate) fn within(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + patience;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if Instant::now() < until => sleep(Duration::from_millis(5)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
        }
    }
}

/// The directory of a file, opened, and its name.
fn parted(path: &str) -> io::Result<(OwnedFd, &str)> {
    match path.rsplit_once('/') {
        Some((dir, name)) if !name.is_empty() => {
            Ok((fs::File::open(if dir.is_empty() { "/" } else { dir })?.into(), name))
        }
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_whole_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("irqbalance");
        let path = path.to_str().unwrap();
        fs::write(path, "a long old text\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(dir.path().join(".irqbalance.quietcores-new"), "left by a killed run").unwrap();
        System.replace(path, "new\n").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "new\n");
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let link = dir.path().join("link");
        symlink(path, &link).unwrap();
        System.replace(link.to_str().unwrap(), "x").unwrap_err();
        assert_eq!(fs::read_to_string(path).unwrap(), "new\n");
    }

    #[test]
    fn a_file_is_made_with_its_directories_whatever_the_umask_and_removed() {
        // A umask is a whole process's: other tests in this one make files meanwhile.
        const NARROW: &str = "QUIETCORES_NARROW";
        if std::env::var_os(NARROW).is_none() {
            let mut narrow = Command::new("sh");
            narrow.args(["-c", "umask 077; exec \"$0\" \"$@\""]);
            narrow.arg(std::env::current_exe().unwrap()).args([
                "--exact",
                "kernel::tests::a_file_is_made_with_its_directories_whatever_the_umask_and_removed",
            ]);
            let done = narrow.env(NARROW, "1").output().unwrap();
            let said = quiet_testing::bus::text(&done);
            return assert!(done.status.success() && said.contains("1 passed"), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pipewire/pipewire.conf.d/90.conf");
        let path = file.to_str().unwrap();
        System.make_file(path, "one\n").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o644, 0o755));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        System.make_file(path, "two\n").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("two\n", 0o600));
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        System.remove_file(path).unwrap();
        assert!(!file.exists());
        assert_eq!(System.remove_file(path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let target = dir.path().join("target");
        fs::write(&target, "others'").unwrap();
        symlink(&target, &file).unwrap();
        System.make_file(path, "x").unwrap_err();
        System.remove_file(path).unwrap_err();
        assert_eq!(fs::read_to_string(&target).unwrap(), "others'");
    }

    #[test]
    fn a_user_without_a_manager_has_nothing_to_start_anew() {
        let unit = UserUnit { uid: 4_000_000_000, unit: "pipewire.service".into() };
        System.restart(&unit).unwrap();
    }

    #[test]
    fn a_daemon_is_asked_and_a_silent_one_answers_nothing() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let daemon = UnixListener::bind(&path).unwrap();
        let serve = std::thread::spawn(move || {
            for reply in ["SLEEP 10 BANNED 00000002", ""] {
                let (mut one, _) = daemon.accept().unwrap();
                let mut said = [0; 64];
                let length = one.read(&mut said).unwrap();
                assert_eq!(&said[..length], b"setup");
                one.write_all(reply.as_bytes()).unwrap();
            }
        });
        let us = rustix::process::geteuid().as_raw();
        let address = SocketAddr::from_pathname(&path).unwrap();
        let asked = || ask(&address, "setup", us, PATIENCE);
        assert_eq!(asked().unwrap(), "SLEEP 10 BANNED 00000002");
        assert_eq!(asked().unwrap(), "");
        serve.join().unwrap();
        asked().unwrap_err();
    }

    /// Each byte comes within the time of a read, the answer never ends: an hour of it at this pace is 36 kB.
    #[test]
    fn a_daemon_that_answers_byte_by_byte_has_one_deadline_for_all_of_them() {
        use std::os::unix::net::UnixListener;
        let address = SocketAddr::from_abstract_name(format!("quietcores-{}", std::process::id()));
        let address = address.unwrap();
        let daemon = UnixListener::bind_addr(&address).unwrap();
        let serve = std::thread::spawn(move || {
            let (mut one, _) = daemon.accept().unwrap();
            // Until the other end is closed; a minute stands for "for ever".
            (0..600).find(|_| {
                sleep(Duration::from_millis(100));
                one.write_all(b"S").is_err()
            })
        });
        let us = rustix::process::geteuid().as_raw();
        let answer = ask(&address, "setup", us, Duration::from_millis(350)).unwrap();
        assert!(answer.len() < 600 && answer.bytes().all(|byte| byte == b'S'), "{answer}");
        assert!(serve.join().unwrap().is_some(), "it was listened to until the end");
    }

    #[test]
    fn a_socket_that_another_user_made_is_not_spoken_to() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let daemon = UnixListener::bind(&path).unwrap();
        let address = SocketAddr::from_pathname(&path).unwrap();
        let us = rustix::process::geteuid().as_raw();
        let refused = ask(&address, "setup", us + 1, PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let mut said = Vec::new();
        daemon.accept().unwrap().0.read_to_end(&mut said).unwrap();
        assert_eq!(said, b"");
    }

    /// A listener that never takes anybody in, with its queue full.
    #[test]
    fn a_socket_whose_queue_is_full_is_not_waited_for() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let daemon = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&daemon, 0).unwrap();
        let _first = UnixStream::connect(&path).unwrap();
        let address = SocketAddr::from_pathname(&path).unwrap();
        let us = rustix::process::geteuid().as_raw();
        let late = ask(&address, "setup", us, Duration::from_millis(100)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
