//! Trees of files: made of a list, copied.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// What lies at this place of the project's `fixtures`.
pub fn fixture(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// Writes a file below `dir`, with the folders above it.
pub fn put(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// A folder with these files.
pub fn of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        put(dir.path(), path, text);
    }
    dir
}

/// Copies what is in the folder `from`, links as links, into the folder `to`, which is made where it is not there.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let entries = fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    for entry in entries.map(Result::unwrap) {
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path()).unwrap(), &target).unwrap();
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_files_folders_and_links() {
        let dir = of(&[("a/b/c", "text\n"), ("d", "")]);
        symlink("a/b", dir.path().join("link")).unwrap();
        let to = tempfile::tempdir().unwrap();
        let deep = to.path().join("deep");
        copy(dir.path(), &deep);
        put(dir.path(), "a/b/c", "other");
        assert_eq!(fs::read_to_string(deep.join("link/c")).unwrap(), "text\n");
        assert_eq!(fs::read_link(deep.join("link")).unwrap(), Path::new("a/b"));
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 3);
        assert_eq!(fs::read(deep.join("d")).unwrap(), b"");
    }

    #[test]
    fn fixtures_are_where_they_are_said_to_be() {
        assert!(fixture("machines/pi2/README.md").is_file());
    }
}
