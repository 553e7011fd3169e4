//! Trees of files: made of a list, copied.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
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

/// The project's own files by their paths from its root, sorted: what git knows or would add; where there is no git, or it refuses this
/// tree, all but what is built there.
pub fn sources() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = by_git(&root).unwrap_or_else(|| by_walk(&root));
    found.sort();
    found
}

/// All but git's own, which is a file in a work tree beside the first.
fn by_walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    below(root, "", &mut found);
    found.retain(|path| path != ".git" && !path.starts_with(".git/"));
    found
}

/// `None` where git is not installed or does not know the tree, as one that belongs to somebody else.
fn by_git(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = git.current_dir(root).output().ok().filter(|git| git.status.success())?;
    let listed = String::from_utf8(listed.stdout).unwrap();
    let there = |path: &&str| root.join(path).symlink_metadata().is_ok();
    Some(listed.split_terminator('\0').filter(there).map(str::to_owned).collect())
}

/// As `.gitignore` has it.
const BUILT: [&str; 6] =
    ["target", "reports", "node_modules", "__pycache__", "corpus", "artifacts"];

fn below(folder: &Path, path: &str, found: &mut Vec<String>) {
    let entries = match fs::read_dir(folder) {
        // A test's, which is gone by now.
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        entries => entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display())),
    };
    for entry in entries.map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{path}{name}");
        if !entry.file_type().unwrap().is_dir() {
            found.push(path);
        } else if !BUILT.contains(&name.as_str()) {
            below(&entry.path(), &format!("{path}/"), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_tree_without_git_holds_the_same_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if by_git(&root).is_none() {
            return crate::skip(crate::Why::Machine(
                "no git, or a tree that it does not know".to_owned(),
            ));
        }
        // Tests beside this one make folders among the sources and take them away between two looks.
        crate::until("the same files", || {
            let known: BTreeSet<String> = by_git(&root)?.into_iter().collect();
            assert!(known.contains("docs/architecture.md"), "{}", known.len());
            let walked: BTreeSet<String> = by_walk(&root).into_iter().collect();
            let differ: Vec<_> = walked.symmetric_difference(&known).collect();
            if !differ.is_empty() {
                eprintln!("by one way alone: {differ:?}");
            }
            differ.is_empty().then_some(())
        });
    }

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
