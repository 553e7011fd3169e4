//! A directory for the stressors' files that goes away, at the latest when the next one is made.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

/// `PREFIX` + PID + `-` + that process's start time: a PID may come again, the pair does not.
const PREFIX: &str = "quietcores-stress-";

/// A private directory, removed with everything in it when the value is dropped.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// A new directory below `base`, for the owner alone.
    pub(crate) fn make(base: &Path) -> io::Result<TempDir> {
        let pid = std::process::id();
        let born = start_time(pid).unwrap_or(0);
        // Several may exist at once in one process: the last part tells them apart. Making fails
        // where the name is taken, so nothing that others put there is ever used.
        for turn in 0..1000 {
            let path = base.join(format!("{PREFIX}{pid}-{born}-{turn}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(TempDir(path)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes what killed runs of this user left below `base`.
pub(crate) fn clean(base: &Path) {
    let me = rustix::process::getuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let mut numbers = rest.split('-').map(|part| part.parse::<u64>().ok());
        let (Some(Some(pid)), Some(Some(born))) = (numbers.next(), numbers.next()) else {
            continue;
        };
        let lives = u32::try_from(pid).ok().and_then(start_time) == Some(born);
        // Not through a link, and not another user's. remove_dir_all follows no links either.
        let mine = fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == me);
        if mine && !lives {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Start time of a process in clock ticks since boot: field 22 of `/proc/PID/stat`.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets too: fields count from the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
