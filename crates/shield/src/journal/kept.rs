//! Where journals lie: the open one, and those that are closed.

use quiet_linux::files::{StateDir, stamp};
use std::{fs, io, os::unix::fs::MetadataExt, path::PathBuf};

/// The journal of the shield that is up.
pub(crate) const NAME: &str = "journal.jsonl";
/// Closed journals that are kept.
const HISTORY: usize = 20;

/// The journal's path.
pub(crate) fn path(state: &StateDir) -> PathBuf {
    state.path().join(NAME)
}

/// Closes the journal: renamed to history, of which the last 20 are kept.
pub(crate) fn archive(state: &StateDir) -> io::Result<PathBuf> {
    let mut name = format!("journal-{}.jsonl", stamp());
    let mut again = 1;
    while state.path().join(&name).exists() {
        again += 1;
        name = format!("journal-{}-{again}.jsonl", stamp());
    }
    state.rename(NAME, &name)?;
    prune(state);
    Ok(state.path().join(name))
}

/// Forgets the oldest closed journals. A failure here harms nobody.
fn prune(state: &StateDir) {
    let Ok(entries) = fs::read_dir(state.path()) else { return };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_twenty_journals_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        for _ in 0..23 {
            fs::write(path(&state), "x").unwrap();
            archive(&state).unwrap();
        }
        let kept = fs::read_dir(state.path()).unwrap().count();
        assert_eq!(kept, HISTORY);
    }
}
