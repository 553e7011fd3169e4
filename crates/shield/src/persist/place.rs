//! The files of a machine that outlive a reboot: read, and replaced whole.
//!
//! A new text is written aside in the same directory, with the old one's owner and mode, brought to
//! the disk, and renamed over it: at every instant the old or the new text stands under the name.

use super::error::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

/// `MSDOS_SUPER_MAGIC` of linux/magic.h.
const FAT: rustix::fs::FsWord = 0x4d44;
/// No file that a boot loader reads as text is larger.
const LARGEST: u64 = 4 << 20;

/// Whose a file is and who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Permission bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its owner and mode.
    pub owner: Owner,
}

/// A directory that stands for `/`: the running system's, or a tree of files.
#[derive(Debug)]
pub struct Place {
    fd: OwnedFd,
    dir: PathBuf,
    tree: bool,
}

impl Place {
    /// The running system.
    ///
    /// # Errors
    /// When `/` cannot be opened.
    pub fn system() -> Result<Place> {
        Place::open(Path::new("/"), false)
    }

    /// A tree of files; links in it do not lead out of it.
    ///
    /// # Errors
    /// When `dir` is no directory that can be opened.
    pub fn at(dir: &Path) -> Result<Place> {
        Place::open(dir, true)
    }

    fn open(dir: &Path, tree: bool) -> Result<Place> {
        let shown = dir.display().to_string();
        let dir = dir.canonicalize().map_err(|e| Error::io("open the root", &shown, &e))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&dir, flags, Mode::empty())
            .map_err(|e| Error::io("open the root", &shown, &e.into()))?;
        Ok(Place { fd, dir, tree })
    }

    /// Whether this is the running system.
    pub fn is_system(&self) -> bool {
        !self.tree
    }

    /// The path as a person can open it.
    pub fn shown(&self, path: &str) -> String {
        if self.tree { format!("{}{path}", self.dir.display()) } else { path.to_owned() }
    }

    fn open_at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let below = path.trim_start_matches('/');
        let below = if below.is_empty() { "." } else { below };
        if self.tree {
            let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            Ok(rustix::fs::openat2(&self.fd, below, flags, Mode::empty(), within)?)
        } else {
            Ok(rustix::fs::openat(&self.fd, below, flags, Mode::empty())?)
        }
    }

    /// A file; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be read, is no regular file, or is larger than 4 MiB.
    pub fn read(&self, path: &str) -> Result<Option<Found>> {
        match self.read_file(path) {
            Ok(found) => Ok(Some(found)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", &self.shown(path), &e)),
        }
    }

    fn read_file(&self, path: &str) -> io::Result<Found> {
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        File::from(fd).take(LARGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB"));
        }
        let owner = Owner { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
        Ok(Found { bytes, owner })
    }

    /// The text of a file, where it is there and can be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let found = self.read_file(path).ok()?;
        Some(String::from_utf8_lossy(&found.bytes).into_owned())
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.open_at(path, OFlags::PATH).is_ok()
    }

    /// Names in a directory, sorted; empty where it cannot be read.
    pub fn list(&self, path: &str) -> Vec<String> {
        let Ok(dir) = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY) else {
            return Vec::new();
        };
        let Ok(entries) = rustix::fs::Dir::read_from(&dir) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort_unstable();
        names
    }

    /// Where a link points, as written; `None` where there is no link.
    pub fn link(&self, path: &str) -> Option<String> {
        let fd = self.open_at(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let to = rustix::fs::readlinkat(fd.as_fd(), c"", Vec::new()).ok()?;
        Some(to.to_string_lossy().into_owned())
    }

    /// The path with every link resolved within the root; of a file that is not there, its
    /// directory's. `None` where that is not there either.
    pub fn real(&self, path: &str) -> Option<String> {
        if let Ok(fd) = self.open_at(path, OFlags::PATH) {
            return self.name_of(&fd);
        }
        let (parent, name) = split(path);
        let fd = self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY).ok()?;
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
        let fail = |e: rustix::io::Errno| Error::io("open", &self.shown(parent), &e.into());
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = self.fd.try_clone().map_err(|e| Error::io("open", "/", &e))?;
        for part in parent.split('/').filter(|part| !part.is_empty()) {
            dir = rustix::fs::openat(&dir, part, flags, Mode::empty()).map_err(fail)?;
            let stat = rustix::fs::fstat(&dir).map_err(fail)?;
            let us = rustix::process::geteuid().as_raw();
            if (stat.st_uid != 0 && stat.st_uid != us) || stat.st_mode & 0o002 != 0 {
                return Err(Error::new(format!(
                    "cannot change {}: `{part}` on its way can be written by others than root; \
                     take that right away first",
                    self.shown(path)
                )));
            }
        }
        Ok(dir)
    }

    /// Writes a new text aside and brings it to the disk; [`Aside::rename`] puts it in place.
    pub(super) fn aside(&self, path: &str, bytes: &[u8], owner: Owner) -> Result<Aside> {
        let dir = self.parent(path)?;
        let name = split(path).1.to_owned();
        let aside = aside_name(&name);
        let shown = self.shown(path);
        let fail = |e: io::Error| Error::io("write", &shown, &e);
        match rustix::fs::unlinkat(&dir, &aside, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(fail(e.into())),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&dir, &aside, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map_err(|e| fail(e.into()))?;
        let file = File::from(fd);
        let prepared = Aside { dir, file, name, aside, shown: shown.clone(), renamed: false };
        (&prepared.file)
            .write_all(bytes)
            .and_then(|()| dress(&prepared.file, owner))
            .and_then(|()| prepared.file.sync_all())
            .map_err(fail)?;
        Ok(prepared)
    }

    /// Replaces a file, or makes it.
    pub(super) fn write(&self, path: &str, bytes: &[u8], owner: Owner) -> Result<()> {
        self.aside(path, bytes, owner)?.rename()
    }

    /// Removes a file or a link; one that is not there is no error.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let dir = self.parent(path)?;
        match rustix::fs::unlinkat(&dir, split(path).1, AtFlags::empty()) {
            Ok(()) => sync(&dir).map_err(|e| Error::io("remove", &self.shown(path), &e)),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(Error::io("remove", &self.shown(path), &e.into())),
        }
    }

    /// Removes what a killed run may have left beside a file.
    pub(super) fn sweep(&self, path: &str) {
        if let Ok(dir) = self.parent(path) {
            let _ = rustix::fs::unlinkat(&dir, aside_name(split(path).1), AtFlags::empty());
        }
    }

    /// Makes a link.
    pub(super) fn make_link(&self, path: &str, target: &str) -> Result<()> {
        let dir = self.parent(path)?;
        rustix::fs::symlinkat(target, &dir, split(path).1)
            .map_err(io::Error::from)
            .and_then(|()| sync(&dir))
            .map_err(|e| Error::io("make the link", &self.shown(path), &e))
    }

    /// Makes a directory (0755).
    pub(super) fn make_dir(&self, path: &str) -> Result<()> {
        let dir = self.parent(path)?;
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        match rustix::fs::mkdirat(&dir, split(path).1, mode) {
            Ok(()) => sync(&dir).map_err(|e| Error::io("make", &self.shown(path), &e)),
            Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(e) => Err(Error::io("make", &self.shown(path), &e.into())),
        }
    }

    /// Removes a directory where it is empty; tells whether it is gone.
    pub(super) fn remove_dir(&self, path: &str) -> bool {
        let Ok(dir) = self.parent(path) else { return !self.exists(path) };
        let _ = rustix::fs::unlinkat(&dir, split(path).1, AtFlags::REMOVEDIR);
        let _ = sync(&dir);
        !self.exists(path)
    }

    /// Brings a file that another program has written to the disk, and its name.
    pub(super) fn settle(&self, path: &str) -> io::Result<()> {
        let fd = self.open_at(path, OFlags::RDONLY)?;
        rustix::fs::fsync(&fd)?;
        let dir = self.open_at(split(path).0, OFlags::RDONLY | OFlags::DIRECTORY)?;
        sync(&dir)
    }
}

/// A text that stands beside the file it will replace. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Aside {
    dir: OwnedFd,
    file: File,
    name: String,
    aside: String,
    shown: String,
    renamed: bool,
}

impl Aside {
    /// Puts it in place, and brings the name to the disk.
    pub fn rename(mut self) -> Result<()> {
        rustix::fs::renameat(&self.dir, &self.aside, &self.dir, &self.name)
            .map_err(|e| Error::io("write", &self.shown, &e.into()))?;
        self.renamed = true;
        // FAT keeps where a file's bytes lie in the directory, and writes that with the file.
        self.file
            .sync_all()
            .and_then(|()| sync(&self.dir))
            .map_err(|e| Error::io("write", &self.shown, &e))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(&self.dir, &self.aside, AtFlags::empty());
        }
    }
}

/// A name that no boot loader takes for an entry: hidden, and without its ending.
fn aside_name(name: &str) -> String {
    format!(".{name}.quietcores-new")
}

/// Gives a file its owner and mode. FAT has neither: there they are right already or not at all.
fn dress(file: &File, owner: Owner) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if (stat.st_uid, stat.st_gid) != (owner.uid, owner.gid) {
        let (uid, gid) =
            (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    let stat = rustix::fs::fstat(file)?;
    if stat.st_mode & 0o7777 != owner.mode {
        match rustix::fs::fchmod(file, Mode::from_raw_mode(owner.mode)) {
            Err(rustix::io::Errno::PERM | rustix::io::Errno::OPNOTSUPP) => {}
            other => other?,
        }
    }
    Ok(())
}

fn sync(dir: &OwnedFd) -> io::Result<()> {
    // An O_PATH descriptor cannot be synced.
    let dir = rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    if rustix::fs::fstatfs(&dir).is_ok_and(|fs| fs.f_type == FAT) {
        // Without a journal the order of directory, allocation table and file is nobody's.
        rustix::fs::syncfs(&dir)?;
    }
    match rustix::fs::fsync(&dir) {
        // A file system that cannot sync directories (FAT of old kernels) has done what it can.
        Err(rustix::io::Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

/// A path as its directory and its name.
pub(super) fn split(path: &str) -> (&str, &str) {
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

    fn tree() -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("boot/loader")).unwrap();
        std::fs::write(dir.path().join("boot/loader/a.conf"), "old\n").unwrap();
        let place = Place::at(dir.path()).unwrap();
        (dir, place)
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_owner_and_mode() {
        let (dir, place) = tree();
        let path = dir.path().join("boot/loader/a.conf");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let found = place.read("/boot/loader/a.conf").unwrap().unwrap();
        let before = std::fs::metadata(&path).unwrap().ino();
        place.write("/boot/loader/a.conf", b"new\n", found.owner).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640);
        assert_ne!(meta.ino(), before, "written aside and renamed");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(place.list("/boot/loader"), ["a.conf"]);
    }

    #[test]
    fn a_text_that_is_not_put_in_place_leaves_nothing_behind() {
        let (_dir, place) = tree();
        let owner =
            Owner { mode: 0o644, ..place.read("/boot/loader/a.conf").unwrap().unwrap().owner };
        let aside = place.aside("/boot/loader/a.conf", b"new", owner).unwrap();
        assert_eq!(place.list("/boot/loader"), [".a.conf.quietcores-new", "a.conf"]);
        drop(aside);
        assert_eq!(place.list("/boot/loader"), ["a.conf"]);
        assert_eq!(place.text("/boot/loader/a.conf").unwrap(), "old\n");
    }

    #[test]
    fn links_are_not_followed_on_a_write_and_lead_nowhere_out_on_a_read() {
        let (dir, place) = tree();
        symlink("/etc", dir.path().join("boot/out")).unwrap();
        symlink("loader/a.conf", dir.path().join("boot/a")).unwrap();
        let owner = place.read("/boot/a").unwrap().unwrap().owner;
        assert!(place.write("/boot/out/x", b"", owner).is_err());
        assert!(!Path::new("/etc/x").exists());
        assert!(place.read("/boot/out/passwd").unwrap().is_none());
        assert_eq!(place.real("/boot/a").as_deref(), Some("/boot/loader/a.conf"));
        assert_eq!(place.real("/boot/loader/new").as_deref(), Some("/boot/loader/new"));
        assert_eq!(place.real("/nowhere/new"), None);
    }

    #[test]
    fn a_way_that_others_can_write_is_refused() {
        let (dir, place) = tree();
        let open = dir.path().join("boot");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let owner = place.read("/boot/loader/a.conf").unwrap().unwrap().owner;
        let error = place.write("/boot/loader/a.conf", b"x", owner).unwrap_err().to_string();
        assert!(error.contains("`boot` on its way can be written by others"), "{error}");
        assert_eq!(place.text("/boot/loader/a.conf").unwrap(), "old\n");
    }
}
