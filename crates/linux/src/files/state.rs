//! The state directory: who may use it, and who is using it now.

use crate::{Error, ErrorKind, Result, plain};
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

/// Where the journal is kept when nothing else is said.
pub const DEFAULT_STATE: &str = "/var/lib/quietcores";
/// How long a look of a watch may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// An open state directory.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    dir: OwnedFd,
}

/// The sole right to change the machine, by this state directory or any other; ends with the process.
#[derive(Debug)]
pub struct Lock {
    // Let go of first: who has got the machine expects the directory to be free.
    state: Locked,
    machine: Option<MachineLock>,
}

/// A file that this process has locked. Who is forked and not yet another program has it too (flock(2)): so it is
/// unlocked in so many words, not by the last close.
#[derive(Debug)]
struct Locked(File);

/// The lock of the whole machine, and what stands in its file.
#[derive(Debug)]
struct MachineLock {
    file: Locked,
    says: Says,
}

/// What the file of the machine's lock says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Says {
    /// Process that took it last.
    pid: u32,
    /// With which state directory.
    state: PathBuf,
    /// The state directory of the shield that was put up last.
    shield: Option<PathBuf>,
}

impl StateDir {
    /// Opens the directory, and makes it (0700) where it is not there.
    pub fn make(path: &Path) -> Result<StateDir> {
        StateDir::make_synced(path, |above| File::open(above)?.sync_all())
    }

    /// As [`StateDir::make`], where `sync` brings the entries of the directory above to the disk: a journal in a directory that a
    /// power cut takes away is none.
    fn make_synced(path: &Path, sync: impl FnOnce(&Path) -> io::Result<()>) -> Result<StateDir> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                sync(above.unwrap_or(Path::new("."))).map_err(|error| {
                    let why = format!("the directory above cannot be synced: {}", plain(&error));
                    unusable(path, &why, "name another one with --state DIR")
                })?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => {
                let why = plain(&error.into());
                return Err(unusable(path, &why, "name another one with --state DIR"));
            }
        }
        match StateDir::open(path)? {
            Some(state) => Ok(state),
            None => Err(unusable(path, "it vanished while it was opened", "try again")),
        }
    }

    /// Opens the directory; `None` where it is not there.
    pub fn open(path: &Path) -> Result<Option<StateDir>> {
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
        Ok(Some(StateDir { path: path.to_owned(), dir }))
    }

    /// Takes the sole right to change what this directory records.
    pub fn lock(&self) -> Result<Lock> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, "lock", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| unusable(&self.path, &plain(&e.into()), "run this as root"))?;
        match Locked::take(file.into()) {
            Ok(file) => Ok(Lock { state: file, machine: None }),
            Err((_, rustix::io::Errno::WOULDBLOCK)) => Err(Error::because(
                ErrorKind::Busy,
                "use",
                self.path.display().to_string(),
                "another quietcores is changing something with it just now; wait for it to end",
            )),
            Err((_, error)) => Err(unusable(&self.path, &plain(&error.into()), "try again")),
        }
    }

    /// Takes the sole right to change the machine whose lock is `lock_file`, whichever state directory others use.
    pub fn lock_machine(&self, lock_file: Option<&Path>) -> Result<Lock> {
        let machine = match lock_file {
            Some(file) => MachineLock::take(file, &self.known_as())?,
            None => None,
        };
        Ok(Lock { state: self.lock()?.state, machine })
    }

    /// As [`StateDir::lock_machine`], but waits some seconds for whoever is at work: a watch looks often, and
    /// is done soon.
    pub fn lock_patiently(&self, lock_file: Option<&Path>) -> Result<Lock> {
        self.lock_within(PATIENCE, lock_file)
    }

    /// As [`StateDir::lock_machine`], but waits so long for whoever is at work.
    pub fn lock_within(&self, patience: Duration, lock_file: Option<&Path>) -> Result<Lock> {
        let until = Instant::now() + patience;
        loop {
            match self.lock_machine(lock_file) {
                Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < until => {
                    sleep(Duration::from_millis(20));
                }
                other => return other,
            }
        }
    }

    /// The one name of the directory.
    fn known_as(&self) -> PathBuf {
        fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    /// The state directory of another shield that was put up on this machine, if its file `journal` is there still.
    pub fn other(&self, lock: &Lock, journal: &str) -> Option<PathBuf> {
        let shield = lock.machine.as_ref()?.says.shield.clone()?;
        (shield != self.known_as() && shield.join(journal).exists()).then_some(shield)
    }

    /// Says in the machine's lock that the shield of this directory is being put up.
    pub fn enlist(&self, lock: &mut Lock) -> Result<()> {
        let Some(machine) = &mut lock.machine else { return Ok(()) };
        machine.says.shield = Some(self.known_as());
        machine.say().map_err(|e| unusable(&self.path, &plain(&e), "make room in /run"))
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
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

    /// Gives a file of the directory another name, whose file it replaces; durable when this returns.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.dir, from, &self.dir, to)?;
        self.sync()
    }
}

impl MachineLock {
    /// Takes it for the state directory `state`; `None` where this user, or this machine, has no place for it.
    fn take(path: &Path, state: &Path) -> Result<Option<MachineLock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) else {
            return Ok(None);
        };
        let taken = Locked::take(File::from(file));
        let (Ok(Locked(file)) | Err((file, _))) = &taken;
        let mut text = String::new();
        let _ = file.take(1 << 16).read_to_string(&mut text);
        let mut says: Says = serde_json::from_str(&text).unwrap_or_default();
        let file = match taken {
            Ok(file) => file,
            Err((_, rustix::io::Errno::WOULDBLOCK)) => {
                return Err(Error::because(
                    ErrorKind::Busy,
                    "change",
                    "this machine",
                    format!(
                        "another quietcores (process {}, state directory {}) is changing it just now; wait for it to \
                         end",
                        says.pid,
                        says.state.display()
                    ),
                ));
            }
            Err((_, error)) => return Err(unusable(path, &plain(&error.into()), "try again")),
        };
        (says.pid, says.state) = (std::process::id(), state.to_owned());
        let mut lock = MachineLock { file, says };
        // Who holds it is for people: a full /run keeps nobody from reverting.
        let _ = lock.say();
        Ok(Some(lock))
    }

    fn say(&mut self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.says).map_err(io::Error::other)?;
        let Locked(file) = &mut self.file;
        file.rewind()?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)
    }
}

impl Locked {
    /// Locks it, and waits for nobody; gives it back where it is not to be had.
    fn take(file: File) -> std::result::Result<Locked, (File, rustix::io::Errno)> {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Locked(file)),
            Err(error) => Err((file, error)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

fn unusable(path: &Path, why: &str, remedy: &str) -> Error {
    let what = format!("the state directory {}", path.display());
    Error::because(ErrorKind::State, "use", what, format!("{why}; {remedy}"))
}

/// The time now as `20261121T213000Z`.
pub fn stamp() -> String {
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
        assert!(StateDir::make(&link).unwrap_err().to_string().contains("is a link or a file"));
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(StateDir::make(&open).unwrap_err().to_string().contains("others may write"));
    }

    #[test]
    fn only_one_at_a_time_may_change_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let state = StateDir::make(&path).unwrap();
        let lock = state.lock_machine(None).unwrap();
        assert_eq!(
            StateDir::make(&path).unwrap().lock_machine(None).unwrap_err().kind(),
            ErrorKind::Busy
        );
        drop(lock);
        state.lock_machine(None).unwrap();
    }

    #[test]
    fn who_has_the_file_too_keeps_nobody_from_it_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (path, machine) = (dir.path().join("state"), dir.path().join("machine.lock"));
        let state = StateDir::make(&path).unwrap();
        let lock = state.lock_machine(Some(&machine)).unwrap();
        // As a process that is forked just now.
        let Locked(of_state) = &lock.state;
        let Locked(of_machine) = &lock.machine.as_ref().unwrap().file;
        let too = [of_state.try_clone().unwrap(), of_machine.try_clone().unwrap()];
        drop(lock);
        state.lock_machine(Some(&machine)).unwrap();
        drop(too);
    }

    #[test]
    fn by_two_state_directories_a_machine_is_changed_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let lock_file = dir.path().join("machine.lock");
        let machine = Some(lock_file.as_path());
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let (one, two) = (StateDir::make(&one).unwrap(), StateDir::make(&two).unwrap());
        let mut lock = one.lock_machine(machine).unwrap();
        let busy = two.lock_machine(machine).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        let who =
            format!("process {}, state directory {}", std::process::id(), one.path().display());
        assert!(busy.to_string().contains(&who), "{busy}");
        one.enlist(&mut lock).unwrap();
        drop(lock);
        let lock = two.lock_machine(machine).unwrap();
        // Nothing is noted there: nothing to be put back first.
        assert_eq!(two.other(&lock, "journal.jsonl"), None);
        fs::write(one.path().join("journal.jsonl"), "x").unwrap();
        assert_eq!(two.other(&lock, "journal.jsonl").as_deref(), Some(one.path()));
        drop(lock);
        let lock = one.lock_machine(machine).unwrap();
        assert_eq!(one.other(&lock, "journal.jsonl"), None);
        drop(lock);
        // What makes no sense is said of nobody.
        fs::write(&lock_file, "{torn").unwrap();
        two.lock_machine(machine).unwrap();
    }

    #[test]
    fn the_directory_above_a_new_one_is_brought_to_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut synced = Vec::new();
        for _ in 0..2 {
            StateDir::make_synced(&path, |above| {
                assert!(path.exists(), "before the directory is there");
                synced.push(above.to_owned());
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(synced, [dir.path()]);
        let failed = |_: &Path| Err(io::Error::other("broken"));
        let said =
            StateDir::make_synced(&dir.path().join("other"), failed).unwrap_err().to_string();
        assert!(said.contains("cannot be synced: broken"), "{said}");
    }
}
