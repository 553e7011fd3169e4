//! The files of a machine that outlive a reboot: read, and replaced whole.
//!
//! At every instant the old or the new text stands under a name, also for a boot loader that reads
//! the file system without its journal: [`super::aside`] says how.

use super::aside::{self, FileOwner, Replacement};
use crate::{Error, ErrorKind, Kernel, Result, Root, System, fault};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// No file that a boot loader reads as text is larger.
const LARGEST: u64 = 4 << 20;

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its owner and mode.
    pub owner: FileOwner,
}

/// A text that takes the place of another.
#[derive(Clone, Copy, Debug)]
pub struct NewText<'a> {
    /// The file.
    pub path: &'a str,
    /// The text that it was made from; `None` where there was no file.
    pub was: Option<&'a [u8]>,
    /// The new text.
    pub text: &'a [u8],
    /// Whose it is.
    pub owner: FileOwner,
}

/// A directory that stands for `/`: the running system's, or a tree of files.
#[derive(Debug)]
pub struct Tree {
    root: Root,
    dir: PathBuf,
    /// The device that the tree's own folder is on; `None` for the running system.
    folder: Option<u64>,
}

impl Tree {
    /// The running system.
    ///
    /// # Errors
    /// When `/` cannot be opened.
    pub fn system() -> Result<Tree> {
        let root = Root::system()?;
        Ok(Tree { root, dir: PathBuf::from("/"), folder: None })
    }

    /// A tree of files; links in it do not lead out of it.
    ///
    /// # Errors
    /// When `dir` is no directory that can be opened.
    pub fn at(dir: &Path) -> Result<Tree> {
        let fail = |e: io::Error| Error::io("open the root", dir.display().to_string(), e);
        let dir = dir.canonicalize().map_err(fail)?;
        let folder = dir.join("..").metadata().map_err(fail)?.dev();
        let root = Root::at(&dir)?;
        Ok(Tree { root, dir, folder: Some(folder) })
    }

    /// Whether this is the running system.
    pub fn is_system(&self) -> bool {
        self.folder.is_none()
    }

    /// The lock of the machine whose files these are: of the running system, which `apply` and `revert` hold as well; a folder has none.
    pub fn lock_file(&self) -> Option<PathBuf> {
        if self.is_system() { System.lock_file() } else { None }
    }

    /// The path as a person can open it.
    pub fn shown(&self, path: &str) -> String {
        if self.is_system() { path.to_owned() } else { format!("{}{path}", self.dir.display()) }
    }

    /// A file; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be read, is no regular file, or is larger than 4 MiB.
    pub fn read(&self, path: &str) -> Result<Option<FoundFile>> {
        match self.read_file(path) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", self.shown(path), e)),
        }
    }

    fn read_file(&self, path: &str) -> io::Result<FoundFile> {
        let fd = self.root.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let bytes = super::take(File::from(fd), LARGEST)?;
        let owner = FileOwner { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
        Ok(FoundFile { bytes, owner })
    }

    /// The text of a file, where it is there and can be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let found = self.read_file(path).ok()?;
        Some(String::from_utf8_lossy(&found.bytes).into_owned())
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.root.exists(path)
    }

    /// Names in a directory, sorted; empty where it cannot be read.
    pub fn list(&self, path: &str) -> Vec<String> {
        self.root.list(path).unwrap_or_default()
    }

    /// Where a link points, as written; `None` where there is no link.
    pub fn link(&self, path: &str) -> Option<String> {
        self.root.link(path)
    }

    /// The path with every link resolved within the root; of a file that is not there, its
    /// directory's. `None` where that is not there either.
    pub fn real(&self, path: &str) -> Option<String> {
        if let Ok(fd) = self.root.open_at(path, OFlags::PATH) {
            return self.name_of(&fd);
        }
        let (parent, name) = split(path);
        let fd = self.root.open_at(parent, OFlags::PATH | OFlags::DIRECTORY).ok()?;
        let parent = self.name_of(&fd)?;
        Some(format!("{}/{name}", parent.trim_end_matches('/')))
    }

    fn name_of(&self, fd: &OwnedFd) -> Option<String> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        let below = name.strip_prefix(&self.dir).ok()?;
        Some(format!("/{}", below.to_str()?))
    }

    /// The directory of a file that is to be changed, opened; refused where others could have put
    /// something in its place.
    fn parent(&self, path: &str) -> Result<OwnedFd> {
        let (parent, _) = split(path);
        let fail = |e: rustix::io::Errno| Error::io("open", self.shown(parent), e.into());
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = self.root.open_at("/", OFlags::PATH | OFlags::DIRECTORY);
        let mut dir = top.map_err(|e| Error::io("open", self.shown("/"), e))?;
        for part in parent.split('/').filter(|part| !part.is_empty()) {
            dir = rustix::fs::openat(&dir, part, flags, Mode::empty()).map_err(fail)?;
            let stat = rustix::fs::fstat(&dir).map_err(fail)?;
            let us = rustix::process::geteuid().as_raw();
            if (stat.st_uid != 0 && stat.st_uid != us) || stat.st_mode & 0o002 != 0 {
                let why = format!(
                    "`{part}` on its way can be written by others than root; take that right away first"
                );
                return Err(Error::because(ErrorKind::Unsafe, "change", self.shown(path), why));
            }
        }
        Ok(dir)
    }

    /// Writes a new text aside and brings it to the disk; [`Replacement::swap`] puts it in place.
    pub fn aside(&self, path: &str, bytes: &[u8], owner: FileOwner) -> Result<Replacement> {
        let dir = self.parent(path)?;
        Replacement::write(dir, split(path).1, bytes, owner)
            .map_err(|e| Error::io("write", self.shown(path), e))
    }

    /// Replaces files, or makes them: all are written aside before the first takes its place.
    ///
    /// # Errors
    /// When one cannot be written; [`ErrorKind::Changed`] where others have written one since it was read: theirs stands. Where that is seen
    /// before the first one takes its place, none does.
    pub fn write_all(&self, files: &[NewText<'_>]) -> Result<()> {
        let mut asides = Vec::new();
        for file in files {
            asides.push((file.path, self.aside(file.path, file.text, file.owner)?));
            fault::point();
        }
        // What a loader reads stands at its place on the disk before a name leads to it ...
        self.settle(&asides)?;
        for file in files {
            if self.read(file.path)?.map(|found| found.bytes).as_deref() != file.was {
                return Err(self.changed("write", file.path));
            }
        }
        for (file, (path, aside)) in files.iter().zip(&mut asides) {
            let swapped = aside.swap_from(file.was);
            if !swapped.map_err(|e| Error::io("write", self.shown(path), e))? {
                return Err(self.changed("write", path));
            }
            fault::point();
        }
        // ... and its name before the old text goes, whose blocks others may then have.
        self.settle(&asides)?;
        fault::point();
        for (path, aside) in asides {
            aside.finish().map_err(|e| Error::io("write", self.shown(path), e))?;
        }
        Ok(())
    }

    fn changed(&self, doing: &'static str, path: &str) -> Error {
        let why = "it has changed just now, and what others wrote stays";
        Error::because(ErrorKind::Changed, doing, self.shown(path), why)
    }

    /// Replaces a file, or makes it.
    ///
    /// # Errors
    /// As of [`Tree::write_all`].
    pub fn write(&self, file: NewText<'_>) -> Result<()> {
        self.write_all(&[file])
    }

    /// Each file system once that holds one of these files for a boot loader.
    fn settle(&self, asides: &[(&str, Replacement)]) -> Result<()> {
        let mut settled = Vec::new();
        for (path, aside) in asides {
            let fail = |e: io::Error| Error::io("bring to the disk", self.shown(path), e);
            let Some(device) = self.to_settle(path, aside.dir()).map_err(fail)? else { continue };
            if !settled.contains(&device) {
                aside::settle(aside.dir()).map_err(fail)?;
                settled.push(device);
            }
        }
        Ok(())
    }

    /// The device of a file that a boot loader reads, given its directory. Below /etc the kernel reads, with the
    /// journal; and no loader reads a tree that lies in a folder of another file system.
    fn to_settle(&self, path: &str, dir: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        let device = rustix::fs::fstat(dir)?.st_dev;
        Ok((!path.starts_with("/etc/") && self.folder != Some(device)).then_some(device))
    }

    /// Removes a link; one that is not there is no error.
    pub fn remove_link(&self, path: &str) -> Result<()> {
        let dir = self.parent(path)?;
        match rustix::fs::unlinkat(&dir, split(path).1, AtFlags::empty()) {
            Ok(()) => {
                aside::sync(dir.as_fd()).map_err(|e| Error::io("remove", self.shown(path), e))
            }
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("remove", self.shown(path), e.into())),
        }
    }

    /// Removes a file that still is `was`; one that is not there is no error.
    ///
    /// # Errors
    /// When it cannot be removed; [`ErrorKind::Changed`] where others have written it since it was read: theirs stays.
    pub fn remove(&self, path: &str, was: &[u8]) -> Result<()> {
        let dir = self.parent(path)?;
        let (name, dir) = (split(path).1, dir.as_fd());
        let remove = || -> io::Result<bool> {
            if self.to_settle(path, dir)?.is_some() {
                return aside::remove_settled(dir, name, Some(was));
            }
            if self.read_file(path).is_ok_and(|found| found.bytes != was) {
                return Ok(false);
            }
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) => aside::sync(dir)?,
                Err(rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
            Ok(true)
        };
        match remove().map_err(|e| Error::io("remove", self.shown(path), e))? {
            true => Ok(()),
            false => Err(self.changed("remove", path)),
        }
    }

    /// Removes what a killed run may have left beside a file.
    pub fn sweep(&self, path: &str) {
        if let Ok(dir) = self.parent(path) {
            let _ = aside::sweep(dir.as_fd(), split(path).1);
        }
    }

    /// Makes a link.
    pub fn make_link(&self, path: &str, target: &str) -> Result<()> {
        let dir = self.parent(path)?;
        rustix::fs::symlinkat(target, &dir, split(path).1)
            .map_err(io::Error::from)
            .and_then(|()| aside::sync(dir.as_fd()))
            .map_err(|e| Error::io("make the link", self.shown(path), e))
    }

    /// Makes a directory (0755).
    pub fn make_dir(&self, path: &str) -> Result<()> {
        let dir = self.parent(path)?;
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        match rustix::fs::mkdirat(&dir, split(path).1, mode) {
            Ok(()) => aside::sync(dir.as_fd()).map_err(|e| Error::io("make", self.shown(path), e)),
            Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(e) => Err(Error::io("make", self.shown(path), e.into())),
        }
    }

    /// Removes a directory where it is empty; tells whether it is gone.
    pub fn remove_dir(&self, path: &str) -> bool {
        let Ok(dir) = self.parent(path) else { return !self.exists(path) };
        let _ = rustix::fs::unlinkat(&dir, split(path).1, AtFlags::REMOVEDIR);
        let _ = aside::sync(dir.as_fd());
        !self.exists(path)
    }
}

/// A path as its directory and its name.
pub fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((parent, name)) => (parent, name),
        None => ("/", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn tree() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("boot/loader")).unwrap();
        std::fs::write(dir.path().join("boot/loader/a.conf"), "old\n").unwrap();
        let tree = Tree::at(dir.path()).unwrap();
        (dir, tree)
    }

    fn new(was: Option<&[u8]>, owner: FileOwner) -> NewText<'_> {
        NewText { path: "/boot/loader/a.conf", was, text: b"new\n", owner }
    }

    #[test]
    fn what_others_have_written_since_it_was_read_is_left_and_nothing_is_half_done() {
        let (dir, tree) = tree();
        let owner = tree.read("/boot/loader/a.conf").unwrap().unwrap().owner;
        let fresh = NewText { path: "/boot/loader/b.conf", was: None, text: b"b\n", owner };
        std::fs::write(dir.path().join("boot/loader/a.conf"), "newer\n").unwrap();
        for was in [Some(&b"old\n"[..]), None] {
            let error = tree.write_all(&[fresh, new(was, owner)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        }
        assert_eq!(
            tree.remove("/boot/loader/a.conf", b"old\n").unwrap_err().kind(),
            ErrorKind::Changed
        );
        assert_eq!(tree.list("/boot/loader"), ["a.conf"]);
        assert_eq!(tree.text("/boot/loader/a.conf").unwrap(), "newer\n");
        tree.remove("/boot/loader/a.conf", b"newer\n").unwrap();
        tree.remove("/boot/loader/a.conf", b"newer\n").unwrap();
        assert!(tree.list("/boot/loader").is_empty());
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_owner_and_mode() {
        let (dir, tree) = tree();
        let path = dir.path().join("boot/loader/a.conf");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let found = tree.read("/boot/loader/a.conf").unwrap().unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        tree.write(new(Some(&found.bytes), found.owner)).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert_ne!(meta.ino(), before, "written aside and renamed");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(tree.list("/boot/loader"), ["a.conf"]);
    }

    #[test]
    fn a_text_that_is_not_put_in_place_leaves_nothing_behind() {
        let (_dir, tree) = tree();
        let owner =
            FileOwner { mode: 0o644, ..tree.read("/boot/loader/a.conf").unwrap().unwrap().owner };
        let aside = tree.aside("/boot/loader/a.conf", b"new", owner).unwrap();
        assert_eq!(tree.list("/boot/loader"), [".a.conf.quietcores-new", "a.conf"]);
        drop(aside);
        assert_eq!(tree.list("/boot/loader"), ["a.conf"]);
        assert_eq!(tree.text("/boot/loader/a.conf").unwrap(), "old\n");
    }

    #[test]
    fn links_are_not_followed_on_a_write_and_lead_nowhere_out_on_a_read() {
        let (dir, tree) = tree();
        symlink("/etc", dir.path().join("boot/out")).unwrap();
        symlink("loader/a.conf", dir.path().join("boot/a")).unwrap();
        let owner = tree.read("/boot/a").unwrap().unwrap().owner;
        let text = NewText { path: "/boot/out/x", was: None, text: b"", owner };
        assert!(tree.write(text).is_err());
        assert!(!Path::new("/etc/x").exists());
        assert!(tree.read("/boot/out/passwd").unwrap().is_none());
        assert_eq!(tree.real("/boot/a").as_deref(), Some("/boot/loader/a.conf"));
        assert_eq!(tree.real("/boot/loader/new").as_deref(), Some("/boot/loader/new"));
        assert_eq!(tree.real("/nowhere/new"), None);
    }

    #[test]
    fn a_way_that_others_can_write_is_refused() {
        let (dir, tree) = tree();
        let open = dir.path().join("boot");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let owner = tree.read("/boot/loader/a.conf").unwrap().unwrap().owner;
        let error = tree.write(new(Some(b"old\n"), owner)).unwrap_err().to_string();
        assert!(error.contains("`boot` on its way can be written by others"), "{error}");
        assert_eq!(tree.text("/boot/loader/a.conf").unwrap(), "old\n");
    }
}
