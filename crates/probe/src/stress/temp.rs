//! A directory for the stressors' files that goes away, at the latest when the next one is made.

use crate::{
    keeper::{Keeper, Old},
    leftover::{PREFIX, is_left, start_time},
};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

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
        let waits = std::thread::spawn(move || child.wait().unwrap());
        crate::leftover::end(&dir);
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
