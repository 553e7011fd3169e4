//! The state directory: who may use it, and who is using it now.

use crate::error::{Error, Kind, Result, plain};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

/// Where the journal is kept when nothing else is said.
pub const DEFAULT_STATE: &str = "/var/lib/quietcores";
/// How long a look of a watch may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Closed journals that are kept.
const HISTORY: usize = 20;

/// An open state directory.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    dir: OwnedFd,
}

/// The sole right to change the machine through this state directory; ends with the process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held, not read")] OwnedFd);

impl State {
    /// Opens the directory, and makes it (0700) where it is not there.
    pub fn make(path: &Path) -> Result<State> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => {
                let why = plain(&error.into());
                return Err(unusable(path, &why, "name another one with --state DIR"));
            }
        }
        match State::open(path)? {
            Some(state) => Ok(state),
            None => Err(unusable(path, "it vanished while it was opened", "try again")),
        }
    }

    /// Opens the directory; `None` where it is not there.
    pub fn open(path: &Path) -> Result<Option<State>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return Err(unusable(
                    path,
                    "it is a link or a file, not a directory",
                    "name a directory of your own with --state DIR",
                ));
            }
            Err(error) => {
                return Err(unusable(path, &plain(&error.into()), "run this as root"));
            }
        };
        let stat = rustix::fs::fstat(&dir)
            .map_err(|e| unusable(path, &plain(&e.into()), "name another one with --state DIR"))?;
        let us = rustix::process::geteuid().as_raw();
        if stat.st_uid != us && us == 0 {
            return Err(unusable(
                path,
                &format!("it belongs to user {}, who could change the journal", stat.st_uid),
                "name a directory of root's with --state DIR",
            ));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(unusable(
                path,
                &format!("others may write in it (mode {:o})", stat.st_mode & 0o7777),
                "take that right away (chmod 700), or name another one with --state DIR",
            ));
        }
        Ok(Some(State { path: path.to_owned(), dir }))
    }

    /// Takes the sole right to change the machine through this directory.
    pub fn lock(&self) -> Result<Lock> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, "lock", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| unusable(&self.path, &plain(&e.into()), "run this as root"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::new(
                Kind::Busy,
                format!(
                    "another quietcores is applying or reverting with {} just now; wait for it \
                     to end",
                    self.path.display()
                ),
            )),
            Err(error) => Err(unusable(&self.path, &plain(&error.into()), "try again")),
        }
    }

    /// As [`State::lock`], but waits some seconds for whoever is at work: a watch looks often, and
    /// is done soon.
    pub fn lock_patiently(&self) -> Result<Lock> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lock() {
                Err(error) if error.kind() == Kind::Busy && Instant::now() < until => {
                    sleep(Duration::from_millis(20));
                }
                other => return other,
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// Opens a file in the directory.
    pub fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(fd))
    }

    /// Makes the directory's own entries durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Closes the journal: renamed to history, of which the last 20 are kept.
    pub fn archive(&self) -> io::Result<PathBuf> {
        let mut name = format!("journal-{}.jsonl", stamp());
        let mut again = 1;
        while self.path.join(&name).exists() {
            again += 1;
            name = format!("journal-{}-{again}.jsonl", stamp());
        }
        rustix::fs::renameat(&self.dir, "journal.jsonl", &self.dir, name.as_str())?;
        self.sync()?;
        self.prune();
        Ok(self.path.join(name))
    }

    /// Forgets the oldest closed journals. A failure here harms nobody.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let mut old: Vec<(i64, i64, PathBuf)> = entries
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with("journal-") && name.ends_with(".jsonl")
            })
            .filter_map(|entry| {
                let meta = entry.metadata().ok()?;
                Some((meta.mtime(), meta.mtime_nsec(), entry.path()))
            })
            .collect();
        old.sort();
        let many = old.len().saturating_sub(HISTORY);
        for (_, _, path) in &old[..many] {
            let _ = fs::remove_file(path);
        }
    }
}

fn unusable(path: &Path, why: &str, remedy: &str) -> Error {
    Error::new(
        Kind::State,
        format!("cannot use the state directory {}: {why}; {remedy}", path.display()),
    )
}

/// The time now as `20261121T213000Z`.
pub(crate) fn stamp() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_link_or_an_open_directory_is_refused_as_state() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("/tmp", &link).unwrap();
        assert!(State::make(&link).unwrap_err().to_string().contains("is a link or a file"));
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(State::make(&open).unwrap_err().to_string().contains("others may write"));
    }

    #[test]
    fn only_one_at_a_time_may_change_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let state = State::make(&path).unwrap();
        let lock = state.lock().unwrap();
        assert_eq!(State::make(&path).unwrap().lock().unwrap_err().kind(), Kind::Busy);
        drop(lock);
        state.lock().unwrap();
    }

    #[test]
    fn the_last_twenty_journals_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::make(&dir.path().join("state")).unwrap();
        for _ in 0..23 {
            fs::write(state.journal(), "x").unwrap();
            state.archive().unwrap();
        }
        let kept = fs::read_dir(state.path()).unwrap().count();
        assert_eq!(kept, HISTORY);
    }
}
