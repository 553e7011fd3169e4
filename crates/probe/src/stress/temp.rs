//! A directory for the stressors' files that goes away, at the latest when the next one is made.

use crate::keeper::{Keeper, Old};
use rustix::process::{Pid, Signal};
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// `PREFIX` + PID + `-` + that process's start time: a PID may come again, the pair does not.
const PREFIX: &str = "quietcores-stress-";

/// How long processes that were left may take to end by themselves.
const GRACE: Duration = Duration::from_millis(700);
/// How long all of them may take to be gone.
const END: Duration = Duration::from_secs(5);

/// A private directory, removed with everything in it when the value is dropped; also when this process is killed, with the processes
/// that work in it.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
    /// `None` where it could not be started: then the next one cleans up.
    _keeper: Option<Keeper>,
}

impl TempDir {
    /// A new directory below `base`, for the owner alone.
    pub(crate) fn make(base: &Path) -> io::Result<TempDir> {
        let pid = std::process::id();
        let born = start_time(pid).unwrap_or(0);
        // Several may exist at once in one process: the last part tells them apart. Making fails
        // where the name is taken, so nothing that others put there is ever used.
        for turn in 0..1000 {
            let path = base.join(format!("{PREFIX}{pid}-{born}-{turn}"));
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            let keeper = Keeper::start(&Old::Dir(path.clone())).ok();
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(TempDir { path, _keeper: keeper }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what killed runs of this user left below `base`.
pub(crate) fn clean(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if is_left(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a directory is of a run of this user that is gone.
fn is_left(path: &Path) -> bool {
    let me = rustix::process::getuid().as_raw();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut numbers = rest.split('-').map(|part| part.parse::<u64>().ok());
    let (Some(Some(pid)), Some(Some(born))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    let lives = u32::try_from(pid).ok().and_then(start_time) == Some(born);
    // Not through a link, and not another user's. remove_dir_all follows no links either.
    let mine = fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == me);
    mine && !lives
}

/// Ends the processes that work in a directory of a run that is gone, and removes it.
pub(crate) fn end(path: &Path) {
    let begun = Instant::now();
    while is_left(path) && begun.elapsed() < END {
        let late = begun.elapsed() > GRACE;
        let within = within(path);
        for (pid, group) in &within {
            let signal = if late { Signal::KILL } else { Signal::TERM };
            // Its group is of the same making where its first process is.
            if within.iter().any(|(other, _)| other == group) {
                let _ = rustix::process::kill_process_group(*group, signal);
            }
            let _ = rustix::process::kill_process(*pid, signal);
        }
        if within.is_empty() {
            let _ = fs::remove_dir_all(path);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Processes whose working directory is in `path`, and their groups.
fn within(path: &Path) -> Vec<(Pid, Pid)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (Some(pid), Ok(dir)) =
            (number.and_then(Pid::from_raw), fs::read_link(entry.path().join("cwd")))
        else {
            continue;
        };
        // A removed directory is told with a word after it.
        let name = dir.as_os_str().as_bytes();
        let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
        if Path::new(OsStr::from_bytes(name)).starts_with(path) {
            found.push((pid, group(&entry.path()).unwrap_or(pid)));
        }
    }
    found
}

/// The process group of `/proc/PID`: field 5 of its `stat`.
fn group(process: &Path) -> Option<Pid> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    Pid::from_raw(stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()?)
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat`. `None` for one that has ended.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets too: fields count from the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let lives = !["Z", "X"].contains(&fields.next()?);
    fields.nth(18).filter(|_| lives)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a program that is gone; another process of the same group works elsewhere by now.
    #[test]
    fn who_works_in_a_directory_that_was_left_is_ended_and_the_directory_goes() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join(format!("{PREFIX}{}-1-0", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let mut shell = std::process::Command::new("sh");
        // It takes no notice of being asked.
        shell.args(["-c", "trap '' TERM; (cd / && exec sleep 1000) & echo; wait"]);
        let shell = std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut child =
            shell.current_dir(&dir).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        io::Read::read_exact(&mut output, &mut [0]).unwrap();
        // A zombie has no working directory, but it is there until it is waited for.
        let waits = thread::spawn(move || child.wait().unwrap());
        end(&dir);
        assert!(!waits.join().unwrap().success());
        assert!(!dir.exists());
        // Whoever holds the other end of the pipe is gone too.
        assert_eq!(io::Read::read(&mut output, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn leftovers_of_dead_processes_go_and_those_of_live_ones_stay() {
        let base = tempfile::tempdir().unwrap();
        let alive = TempDir::make(base.path()).unwrap();
        let again = TempDir::make(base.path()).unwrap();
        assert_ne!(alive.path(), again.path());
        let dead = base.path().join(format!("{PREFIX}{}-1-0", std::process::id()));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("file"), "x").unwrap();
        let foreign = base.path().join(format!("{PREFIX}notes"));
        fs::create_dir(&foreign).unwrap();
        std::os::unix::fs::symlink(&foreign, base.path().join(format!("{PREFIX}1-1-0"))).unwrap();
        clean(base.path());
        assert!(!dead.exists(), "a PID with another start time is another process");
        assert!(alive.path().exists() && again.path().exists() && foreign.exists());
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }
}
