//! Where the machine is read: the running system, or a captured tree.

use crate::{Error, Result, files};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// No file of the kernel that we read is larger (`/proc/interrupts` of 512 CPUs with 2000 interrupts has 11 MiB); a captured tree may
/// hold anything.
const LARGEST: u64 = 64 << 20;

/// A directory that stands for `/`. A value, passed; never a global.
///
/// Paths are given as on the real system (`/proc/interrupts`). In a captured tree, links are
/// resolved within the tree: none leads out of it (openat2(2), `RESOLVE_IN_ROOT`).
#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
    fd: OwnedFd,
    captured: bool,
}

impl Root {
    /// The running system.
    ///
    /// # Errors
    /// When `/` cannot be opened.
    pub fn system() -> Result<Root> {
        Root::open(Path::new("/"), false)
    }

    /// A captured tree, as `inspect --capture` writes it.
    ///
    /// # Errors
    /// When `dir` is not a directory that can be opened.
    pub fn at(dir: impl AsRef<Path>) -> Result<Root> {
        Root::open(dir.as_ref(), true)
    }

    fn open(dir: &Path, captured: bool) -> Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(|e| Error::io("open the root", dir.display().to_string(), e.into()))?;
        Ok(Root { dir: dir.to_owned(), fd, captured })
    }

    /// Whether this is a captured tree, not the running system.
    pub fn is_captured(&self) -> bool {
        self.captured
    }

    /// The whole text of a file, invalid UTF-8 replaced.
    ///
    /// # Errors
    /// When it cannot be read, is not a regular file, or is larger than 64 MiB.
    pub fn read(&self, path: &str) -> Result<String> {
        self.read_bytes(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|e| Error::io("read", self.shown(path), e))
    }

    /// As [`Root::read`], trimmed; `None` where the file does not exist or does not apply to this
    /// device (the kernel then answers `ENODEV`, `EOPNOTSUPP`, `EINVAL` ...): any failure but a
    /// refusal of permission.
    ///
    /// # Errors
    /// `EACCES` and `EPERM` only.
    pub fn read_if_there(&self, path: &str) -> Result<Option<String>> {
        match self.read_bytes(path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Err(Error::io("read", self.shown(path), e))
            }
            Err(_) => Ok(None),
        }
    }

    /// The names in a directory, sorted; empty where it does not exist.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let names = || -> io::Result<Vec<String>> {
            let dir = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&dir)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        match names() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(|e| Error::io("list", self.shown(path), e)),
        }
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.open_at(path, OFlags::PATH).is_ok()
    }

    /// Where a link points, as written; `None` where there is no link.
    pub fn link(&self, path: &str) -> Option<String> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let fd = self.open_at(path, flags).ok()?;
        let to = rustix::fs::readlinkat(fd.as_fd(), c"", Vec::new()).ok()?;
        Some(to.to_string_lossy().into_owned())
    }

    /// The path with every link resolved, as the system itself would see it
    /// (`/sys/devices/pci0000:00/...`); `None` where it does not exist.
    pub fn real_path(&self, path: &str) -> Option<String> {
        let mut done: Vec<String> = Vec::new();
        let mut todo: Vec<String> = parts(path).rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(part);
            let here = format!("/{}", done.join("/"));
            if let Some(target) = self.link(&here) {
                links += 1;
                if links > 40 {
                    return None;
                }
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                todo.extend(parts(&target).rev().map(str::to_owned));
            } else if !self.exists(&here) {
                return None;
            }
        }
        Some(format!("/{}", done.join("/")))
    }

    /// The path as a person can open it: below the tree where the root is a captured one.
    pub fn shown(&self, path: &str) -> String {
        if self.captured {
            format!("{}/{}", self.dir.display(), path.trim_start_matches('/'))
        } else {
            path.to_owned()
        }
    }

    pub(crate) fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        // NONBLOCK: a pipe in a captured tree must not hang us.
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        // The system's own files need no such question, and a snapshot opens hundreds.
        if self.captured {
            let stat = rustix::fs::statat(&fd, c"", AtFlags::EMPTY_PATH)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
        }
        files::take(File::from(fd), LARGEST)
    }

    /// Kind and permissions of what is there; a link at the end is followed.
    pub(crate) fn mode(&self, path: &str) -> Option<(FileType, Mode)> {
        let fd = self.open_at(path, OFlags::PATH).ok()?;
        let stat = rustix::fs::statat(&fd, c"", AtFlags::EMPTY_PATH).ok()?;
        Some((FileType::from_raw_mode(stat.st_mode), Mode::from_raw_mode(stat.st_mode)))
    }

    /// Opens what is there, with links resolved as everywhere here.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn open_at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let below = path.trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        if self.captured {
            let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            // The kernel answers EAGAIN where a rename, anywhere in the system, makes it unsure that
            // a `..` stayed inside, and asks the caller to try again: openat2(2).
            for _ in 0..10_000 {
                match rustix::fs::openat2(&self.fd, below, flags, Mode::empty(), within) {
                    Err(Errno::AGAIN) => std::thread::yield_now(),
                    other => return Ok(other?),
                }
            }
            Err(io::Error::other("files are renamed all the time, so that no `..` is sure"))
        } else {
            Ok(rustix::fs::openat(&self.fd, below, flags, Mode::empty())?)
        }
    }
}

fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/devices/pci/card")).unwrap();
        std::fs::create_dir_all(dir.path().join("sys/class/sound")).unwrap();
        std::fs::write(dir.path().join("sys/devices/pci/card/id"), "USB\n").unwrap();
        symlink("../../devices/pci/card", dir.path().join("sys/class/sound/card0")).unwrap();
        symlink("/etc/passwd", dir.path().join("secret")).unwrap();
        symlink("../../../../../../etc/passwd", dir.path().join("climb")).unwrap();
        dir
    }

    #[test]
    fn links_are_followed_within_the_tree_and_never_out_of_it() {
        let dir = tree();
        let root = Root::at(dir.path()).unwrap();
        assert_eq!(root.read("/sys/class/sound/card0/id").unwrap(), "USB\n");
        let real = root.real_path("/sys/class/sound/card0");
        assert_eq!(real.as_deref(), Some("/sys/devices/pci/card"));
        assert!(root.read("/secret").unwrap_err().is_absent());
        assert!(root.read("/climb").unwrap_err().is_absent());
    }

    #[test]
    fn a_pipe_or_a_directory_in_the_tree_is_refused_and_does_not_hang() {
        let dir = tree();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let root = Root::at(dir.path()).unwrap();
        let error = root.read("/pipe").unwrap_err().to_string();
        assert!(error.ends_with("pipe: not a regular file"), "{error}");
        assert!(root.read("/sys").is_err());
        assert_eq!(root.read_if_there("/sys/nothing").unwrap(), None);
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let dir = tree();
        let huge = File::create(dir.path().join("huge")).unwrap();
        huge.set_len(LARGEST + 1).unwrap();
        let error = Root::at(dir.path()).unwrap().read("/huge").unwrap_err().to_string();
        assert!(error.ends_with("it is larger than 64 MiB"), "{error}");
    }

    #[test]
    fn a_circle_of_links_ends() {
        let dir = tree();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert_eq!(Root::at(dir.path()).unwrap().real_path("/a"), None);
    }
}
