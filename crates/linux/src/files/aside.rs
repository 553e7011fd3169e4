//! Whole files: replaced so that each reader, at each instant, finds the old text or the new one.
//!
//! A text is written aside in the directory of its file, with the file's owner, mode and extended attributes, and
//! brought to the disk. Then the two change names; the old one is removed last.
//!
//! A boot loader reads a file system without its journal: for it a file counts when its content, its inode and its
//! name stand at their places on the disk. [`settle`] brings them there. What a loader reads is settled before the
//! names change and again before the old text goes: so the loader's view, however late the disk follows, never
//! names blocks that are not written yet or that are somebody else's again.

use crate::sys::freeze;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::CStr,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Magic numbers of linux/magic.h.
const FAT: rustix::fs::FsWord = 0x4d44;
const EXT: rustix::fs::FsWord = 0xef53;
const BTRFS: rustix::fs::FsWord = 0x9123_683e;
const F2FS: rustix::fs::FsWord = 0xf2f5_2010;
const XFS: rustix::fs::FsWord = 0x5846_5342;

/// Whose a file is and who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    /// Permission bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The name under which the next text of a file is written: hidden, and without its ending, so that nothing that
/// reads whole directories takes it for one of its own.
pub fn aside_name(name: &str) -> String {
    format!(".{name}.quietcores-new")
}

/// As [`aside_name`], for a file of the directory `dir`.
fn name_beside(dir: BorrowedFd<'_>, name: &str) -> String {
    if is(dir, FAT) {
        short_name(name)
    } else if is(dir, XFS) && name.len() > 6 {
        // A directory that outgrows its inode is empty for GRUB during some writes. Of Fedora's entries, with names
        // of 60 letters, two fit in one; with a long name aside they do not.
        aside_name(&format!("{:06x}", digest(name)))
    } else {
        aside_name(name)
    }
}

/// A name of FAT's first form, eight capitals and three, which takes one entry of the directory. A longer one takes
/// several: of those a power cut may leave some, as a file under a name that nobody knows.
fn short_name(name: &str) -> String {
    format!("QC{:06X}.NEW", digest(name))
}

/// 24 bits that stand for a name.
fn digest(name: &str) -> u32 {
    // FNV-1a.
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 24) ^ (hash & 0x00ff_ffff)
}

/// A text that stands beside the file it will replace. Dropped, it is removed.
#[derive(Debug)]
pub struct Replacement {
    dir: OwnedFd,
    /// The new text.
    file: File,
    /// The old text, kept open: until it is closed nobody else gets its blocks.
    old: Option<OwnedFd>,
    name: String,
    aside: String,
    /// Whether something of ours stands under the name aside: the new text, or the old one.
    stands: bool,
}

impl Replacement {
    /// Writes `bytes` beside the file `name` of the directory `dir` and brings them to the disk. A file of that
    /// name gives them its extended attributes, but for signatures of its content; what a killed run has left
    /// aside is removed before.
    ///
    /// # Errors
    /// The kernel's; or when `name` is a link or no ordinary file, or has an attribute that the new file cannot get.
    pub fn write(
        dir: OwnedFd,
        name: &str,
        bytes: &[u8],
        owner: FileOwner,
    ) -> io::Result<Replacement> {
        let old = open_old(dir.as_fd(), name)?;
        let aside = name_beside(dir.as_fd(), name);
        sweep(dir.as_fd(), name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd =
            rustix::fs::openat(&dir, &aside, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(fd);
        let this = Replacement { dir, file, old, name: name.to_owned(), aside, stands: true };
        (&this.file).write_all(bytes)?;
        dress(&this.file, owner)?;
        if let Some(old) = &this.old {
            copy_attributes(old.as_fd(), this.file.as_fd())?;
        }
        if is(this.dir.as_fd(), BTRFS) {
            // Not an fsync: of a file in btrfs' log a rename goes there as well (see `sync`).
            rustix::fs::syncfs(&this.file)?;
        } else {
            this.file.sync_all()?;
        }
        Ok(this)
    }

    /// Puts the new text in place; the old one lives on, aside or open, until this is dropped. The name is on the
    /// disk when this returns.
    ///
    /// # Errors
    /// The kernel's; the old text then still stands under the name, or the new one whose name could not be synced.
    pub fn swap(&mut self) -> io::Result<()> {
        self.exchange()?;
        sync(self.dir.as_fd())
    }

    /// As [`Replacement::swap`], where the file still is `was` (`None`: there is none). `false` where others have written it meanwhile:
    /// theirs stands under the name then, and this text goes when it is dropped.
    ///
    /// # Errors
    /// As of [`Replacement::swap`].
    pub fn swap_from(&mut self, was: Option<&[u8]>) -> io::Result<bool> {
        if !is_still(self.dir.as_fd(), &self.name, was)? {
            return Ok(false);
        }
        if was.is_none() && !self.make()? {
            return Ok(false);
        }
        if was.is_some() {
            self.exchange()?;
        }
        // What was there at the exchange itself: somebody may have written between the look and that.
        if self.stands && !is_still(self.dir.as_fd(), &self.aside, was)? {
            let (from, to) = (&self.aside, &self.name);
            rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::EXCHANGE)?;
            sync(self.dir.as_fd())?;
            return Ok(false);
        }
        sync(self.dir.as_fd())?;
        Ok(true)
    }

    /// Gives the new text a name that nobody has; `false` where somebody has it by now.
    fn make(&mut self) -> io::Result<bool> {
        let (from, to) = (&self.aside, &self.name);
        match rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.stands = false;
                if !is(self.dir.as_fd(), BTRFS) {
                    self.file.sync_all()?;
                }
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            // Not known to this file system or kernel.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.exchange().map(|()| true),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes the names, which a cut of the power may still take back.
    fn exchange(&mut self) -> io::Result<()> {
        // Of FAT's two entries a cut may write one: both names would have the old blocks, and whoever removed one
        // would take them from the other.
        let exchange = self.old.is_some() && !is(self.dir.as_fd(), FAT);
        let (from, to) = (&self.aside, &self.name);
        let swapped = exchange
            && match rustix::fs::renameat_with(
                &self.dir,
                from,
                &self.dir,
                to,
                RenameFlags::EXCHANGE,
            ) {
                Ok(()) => true,
                // Not known to this file system or kernel; the file was removed meanwhile.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP) => false,
                Err(error) => return Err(error.into()),
            };
        if !swapped {
            rustix::fs::renameat(&self.dir, from, &self.dir, to)?;
            self.stands = false;
        }
        if self.old.is_some() && is(self.dir.as_fd(), FAT) {
            // Of the two entries the one aside goes first: a cut between them leaves the old text alone. The other
            // way about both names had the new one's blocks, and whoever removed one took them from the other.
            sync_names(self.dir.as_fd())?;
        }
        // FAT keeps where a file's bytes lie in the directory, and writes that with the file.
        if !is(self.dir.as_fd(), BTRFS) {
            self.file.sync_all()?;
        }
        Ok(())
    }

    /// Puts the new text in place, for readers that have the journal.
    ///
    /// # Errors
    /// As of [`Replacement::swap`].
    pub fn rename(mut self) -> io::Result<()> {
        self.swap()?;
        self.finish()
    }

    /// Removes the old text, for good when this returns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn finish(mut self) -> io::Result<()> {
        if std::mem::take(&mut self.stands) {
            rustix::fs::unlinkat(&self.dir, &self.aside, AtFlags::empty())?;
            sync(self.dir.as_fd())?;
        }
        Ok(())
    }

    /// Its directory.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.stands {
            let _ = rustix::fs::unlinkat(&self.dir, &self.aside, AtFlags::empty());
        }
    }
}

/// The file that is to be replaced, opened; `None` where there is none.
fn open_old(dir: BorrowedFd<'_>, name: &str) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let old = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(old) => old,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(io::Error::other("it is a link")),
        Err(error) => return Err(error.into()),
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&old)?.st_mode) {
        FileType::RegularFile => Ok(Some(old)),
        _ => Err(io::Error::other("it is no ordinary file")),
    }
}

/// Whether what stands under a name is this text, or nothing where that is `None`.
fn is_still(dir: BorrowedFd<'_>, name: &str, was: Option<&[u8]>) -> io::Result<bool> {
    match (open_old(dir, name)?, was) {
        (None, None) => Ok(true),
        (Some(now), Some(was)) => {
            // One byte more tells a longer one.
            let mut bytes = Vec::with_capacity(was.len() + 1);
            File::from(now).take(was.len() as u64 + 1).read_to_end(&mut bytes)?;
            Ok(bytes == was)
        }
        _ => Ok(false),
    }
}

/// Removes what a killed run may have left beside a file.
///
/// # Errors
/// The kernel's; that there is nothing is none.
pub fn sweep(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // 0.1.0 had a long name everywhere.
    for aside in [aside_name(name), name_beside(dir, name)] {
        match rustix::fs::unlinkat(dir, aside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Gives a file its owner and mode. FAT has neither: there they are right already or not at all.
fn dress(file: &File, owner: FileOwner) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if (stat.st_uid, stat.st_gid) != (owner.uid, owner.gid) {
        let (uid, gid) =
            (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    let stat = rustix::fs::fstat(file)?;
    if stat.st_mode & 0o7777 != owner.mode {
        match rustix::fs::fchmod(file, Mode::from_raw_mode(owner.mode)) {
            Err(Errno::PERM | Errno::OPNOTSUPP) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Access lists, SELinux's label, what users noted. Signatures of a file's content (IMA, EVM) are the kernel's to
/// make anew.
fn copy_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let names = match listed(from) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
        other => other?,
    };
    for name in names.split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if [c"security.ima", c"security.evm"].contains(&name) {
            continue;
        }
        let Some(value) = attribute(from, name)? else { continue };
        if attribute(to, name).ok().flatten().as_ref() == Some(&value) {
            continue;
        }
        rustix::fs::fsetxattr(to, name, &value, XattrFlags::empty()).map_err(|errno| {
            let kind = io::Error::from(errno);
            let why = format!("its attribute {} cannot be kept ({kind})", name.to_string_lossy());
            io::Error::new(kind.kind(), why)
        })?;
    }
    Ok(())
}

fn listed(of: BorrowedFd<'_>) -> rustix::io::Result<Vec<u8>> {
    // 64 KiB: the kernel's own limit.
    let mut names = Vec::with_capacity(1 << 16);
    rustix::fs::flistxattr(of, rustix::buffer::spare_capacity(&mut names))?;
    Ok(names)
}

fn attribute(of: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(1 << 16);
    match rustix::fs::fgetxattr(of, name, rustix::buffer::spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is(dir: BorrowedFd<'_>, magic: rustix::fs::FsWord) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|fs| fs.f_type == magic)
}

/// A descriptor that can be synced: one of `O_PATH` cannot.
fn reopened(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
}

/// Brings the names in a directory to the disk.
///
/// # Errors
/// The kernel's.
pub fn sync(dir: BorrowedFd<'_>) -> io::Result<()> {
    // An fsync of a directory, or of a file that was renamed in it, goes to btrfs' log. Of a directory that mkfs made
    // the log's replay (Linux 6.12, 6.18) takes other names away. The end of a transaction needs no log.
    if is(dir, BTRFS) {
        return Ok(rustix::fs::syncfs(reopened(dir)?)?);
    }
    // FAT: without a journal the order of directory, allocation table and file is nobody's.
    if is(dir, FAT) {
        rustix::fs::syncfs(reopened(dir)?)?;
    }
    sync_names(dir)
}

/// The entries of a directory alone.
fn sync_names(dir: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::fsync(reopened(dir)?) {
        // A file system that cannot sync directories (FAT of old kernels) has done what it can.
        Err(Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

/// Brings everything on the file system of a directory to where a reader without its journal finds it.
///
/// ext4 checkpoints its journal (before Linux 5.15 it is frozen for a moment); xfs and what is not known here is
/// frozen for a moment and thawed: meanwhile whoever writes there waits. btrfs and F2FS end their transaction in a
/// syncfs, FAT has nothing but places. Where this process has no right to do so (CAP_SYS_ADMIN), or the file system
/// has no such thing, it is a syncfs.
///
/// # Errors
/// The kernel's, when the disk fails; or a freeze that took more than 30 s, and is undone.
pub fn settle(dir: BorrowedFd<'_>) -> io::Result<()> {
    let dir = reopened(dir)?;
    rustix::fs::syncfs(&dir)?;
    // What the disk itself holds back: syncfs does not ask FAT's disk for it.
    sync(dir.as_fd())?;
    if [FAT, BTRFS, F2FS].iter().any(|magic| is(dir.as_fd(), *magic)) {
        return Ok(());
    }
    if is(dir.as_fd(), EXT) {
        match freeze::checkpoint(top(dir.as_fd())?.as_fd()).map_err(|e| e.raw_os_error()) {
            Ok(()) => return Ok(()),
            // Has no journal.
            Err(Some(libc::ENODEV)) => return Ok(()),
            // An older kernel; or the file system's own root is not mounted where this looks.
            Err(Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL | libc::EPERM)) => {}
            Err(Some(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            Err(None) => {}
        }
    }
    match freeze::freeze_and_thaw(dir.as_fd()) {
        Err(error) => match error.raw_os_error() {
            // EBUSY: somebody else froze it after our writes, and has settled them so.
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EPERM | libc::EACCES | libc::EBUSY) => {
                Ok(())
            }
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    }
}

/// The topmost directory of the mount that a directory is in.
fn top(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut here = reopened(dir)?;
    loop {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::openat(&here, "..", flags, Mode::empty())?;
        let (low, high) = (rustix::fs::fstat(&here)?, rustix::fs::fstat(&above)?);
        if low.st_dev != high.st_dev || low.st_ino == high.st_ino {
            return Ok(here);
        }
        here = above;
    }
}

/// Removes a file that a loader reads, where it still is `was` (`None`: whatever it is): first its name is taken from it and that is
/// settled, then it goes. One that is not there is no error. On FAT a new name would be a second entry, and a full disk may have no place
/// for one: there the file is kept open meanwhile. `false` where others have written it meanwhile: theirs stays.
///
/// # Errors
/// The kernel's, and those of [`settle`].
pub fn remove_settled(dir: BorrowedFd<'_>, name: &str, was: Option<&[u8]>) -> io::Result<bool> {
    let stays = |name: &str| Ok::<bool, io::Error>(was.is_some() && !is_still(dir, name, was)?);
    let Some(open) = open_old(dir, name)? else { return Ok(true) };
    if stays(name)? {
        return Ok(false);
    }
    let aside = name_beside(dir, name);
    let renamed = match is(dir, FAT) {
        true => Err(Errno::NOSPC),
        false => rustix::fs::renameat(dir, name, dir, &aside),
    };
    match renamed {
        // Somebody may have written between the look and the new name.
        Ok(()) if stays(&aside)? => {
            match rustix::fs::renameat_with(dir, &aside, dir, name, RenameFlags::NOREPLACE) {
                Ok(()) => sync(dir)?,
                // A newer one has the name by now.
                Err(Errno::EXIST) => sweep(dir, name)?,
                Err(error) => return Err(error.into()),
            }
            return Ok(false);
        }
        Ok(()) => {
            settle(dir)?;
            sweep(dir, name)?;
        }
        Err(Errno::NOSPC | Errno::DQUOT) => {
            rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            settle(dir)?;
        }
        Err(Errno::NOENT) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    drop(open);
    sync(dir)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_testing::{Why, is_root, skip};
    use std::{
        fs,
        path::{Path, PathBuf},
        process::Command,
    };

    const PLAIN: FileOwner = FileOwner { mode: 0o644, uid: 0, gid: 0 };

    fn owner() -> FileOwner {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        FileOwner { uid, gid, ..PLAIN }
    }

    fn dir(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn attributes_go_with_the_name() {
        // /tmp may have none (tmpfs before Linux 6.6): the build's own directory, then.
        let Ok(folder) = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")) else {
            return skip(Why::Machine("the sources' folder may not be written".into()));
        };
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        let old = File::open(&path).unwrap();
        if rustix::fs::fsetxattr(&old, c"user.note", b"mine", XattrFlags::empty()).is_err() {
            return skip(Why::Machine("this file system has no extended attributes".into()));
        }
        let shared = Command::new("setfacl").args(["-m", "u:1:r"]).arg(&path).status();
        Replacement::write(dir(folder.path()), "a", b"new", owner()).unwrap().rename().unwrap();
        let new = File::open(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(attribute(new.as_fd(), c"user.note").unwrap().unwrap(), b"mine");
        if shared.is_ok_and(|status| status.success()) {
            let list = |of: &File| attribute(of.as_fd(), c"system.posix_acl_access").unwrap();
            assert!(list(&new).is_some());
            assert_eq!(list(&new), list(&old));
        }
    }

    #[test]
    fn on_fat_a_text_stands_aside_under_a_name_of_one_entry() {
        let names = ["debian.conf", "debian-1.conf", "cmdline.txt", "syslinux.cfg"].map(short_name);
        for name in &names {
            let (stem, end) = name.split_once('.').unwrap();
            assert!(stem.len() <= 8 && end.len() <= 3, "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'.')
            );
        }
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn a_text_not_put_in_place_leaves_nothing_and_a_link_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "old").unwrap();
        fs::write(folder.path().join(aside_name("a")), "left by a killed run").unwrap();
        drop(Replacement::write(dir(folder.path()), "a", b"new", owner()).unwrap());
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"old");
        let mut aside = Replacement::write(dir(folder.path()), "a", b"new", owner()).unwrap();
        aside.swap().unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"new");
        drop(aside);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        for name in ["b", "."] {
            Replacement::write(dir(folder.path()), name, b"x", owner()).unwrap_err();
        }
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"new");
    }

    #[test]
    fn what_others_have_written_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, seen) = (folder.path().join("a"), || fs::read(folder.path().join("a")).unwrap());
        fs::write(&path, "old").unwrap();
        let aside = || Replacement::write(dir(folder.path()), "a", b"new", owner()).unwrap();
        for newer in ["", "ol", "older"] {
            let mut aside = aside();
            fs::write(&path, newer).unwrap();
            assert!(!aside.swap_from(Some(b"old")).unwrap(), "{newer}");
            drop(aside);
            assert_eq!(seen(), newer.as_bytes());
            assert!(!remove_settled(dir(folder.path()).as_fd(), "a", Some(b"old")).unwrap());
            assert_eq!(seen(), newer.as_bytes());
        }
        // It is there though it was not, and the other way about.
        assert!(!aside().swap_from(None).unwrap());
        assert!(!aside().make().unwrap());
        assert_eq!(seen(), b"older");
        let mut gone = aside();
        fs::remove_file(&path).unwrap();
        assert!(!gone.swap_from(Some(b"older")).unwrap());
        drop(gone);
        assert!(!path.exists());
        assert!(aside().swap_from(None).unwrap());
        assert!(aside().swap_from(Some(b"new")).unwrap());
        assert!(remove_settled(dir(folder.path()).as_fd(), "a", Some(b"new")).unwrap());
        assert!(remove_settled(dir(folder.path()).as_fd(), "a", Some(b"new")).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A file system on a file, mounted, and read past its journal by GRUB's own drivers.
    struct Disk(tempfile::TempDir);

    impl Disk {
        /// `None`, and why, where this cannot be done here.
        fn new(kind: &str, make: &[&str], size: u64) -> Option<Disk> {
            let folder = tempfile::tempdir().unwrap();
            let disk = Disk(folder);
            let image = disk.image();
            File::create(&image).unwrap().set_len(size).unwrap();
            fs::create_dir(disk.at()).unwrap();
            let run =
                |program: &str, arguments: &[&str], paths: &[&Path]| match Command::new(program)
                    .args(arguments)
                    .args(paths)
                    .output()
                {
                    Ok(done) if done.status.success() => Ok(()),
                    Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
                    Err(error) => Err(error.to_string()),
                };
            let (program, arguments) = make.split_first().unwrap();
            if !is_root() {
                return skip(Why::Root);
            }
            if run("grub-fstest", &["--version"], &[]).is_err() {
                return skip(Why::Program("grub-fstest", "grub-common"));
            }
            let mounted = run(program, arguments, &[&image])
                .and_then(|()| run("mount", &["-o", "loop", "-t", kind], &[&image, &disk.at()]));
            match mounted {
                Ok(()) => Some(disk),
                Err(why) => {
                    skip(Why::Machine(format!("no {kind} on a file can be mounted: {why}")))
                }
            }
        }

        fn image(&self) -> PathBuf {
            self.0.path().join("image")
        }

        fn at(&self) -> PathBuf {
            self.0.path().join("at")
        }

        fn seen_by_grub(&self, path: &str) -> Vec<u8> {
            let grub = Command::new("grub-fstest").arg(self.image()).args(["cat", path]).output();
            grub.unwrap().stdout
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.at()).output();
        }
    }

    const SYSTEMS: [(&str, &[&str], u64); 4] = [
        ("ext4", &["mke2fs", "-q", "-t", "ext4"], 32 << 20),
        ("xfs", &["mkfs.xfs", "-q"], 300 << 20),
        ("btrfs", &["mkfs.btrfs", "-q"], 120 << 20),
        ("vfat", &["mkfs.vfat"], 8 << 20),
    ];

    #[test]
    fn a_reader_without_a_journal_sees_what_is_settled_and_before_that_the_old_text_whole() {
        for (kind, make, size) in SYSTEMS {
            let Some(disk) = Disk::new(kind, make, size) else { continue };
            let path = disk.at().join("grub.cfg");
            // Longer than any inode or directory keeps within itself.
            let text = |n: u8| vec![b'a' + n; 30_000];
            fs::write(&path, text(0)).unwrap();
            settle(dir(&disk.at()).as_fd()).unwrap();
            assert!(disk.seen_by_grub("/grub.cfg") == text(0), "{kind}: the first text");
            for n in 1..4 {
                let mut aside =
                    Replacement::write(dir(&disk.at()), "grub.cfg", &text(n), owner()).unwrap();
                settle(aside.dir()).unwrap();
                aside.swap().unwrap();
                // Others write what they can get hold of.
                for other in 0..40 {
                    let other = disk.at().join(format!("other{other}"));
                    fs::write(&other, [b'x'; 30_000]).unwrap();
                    File::open(&other).unwrap().sync_all().unwrap();
                }
                let seen = disk.seen_by_grub("/grub.cfg");
                assert!(seen == text(n - 1) || seen == text(n), "{kind}: torn between {n}");
                settle(aside.dir()).unwrap();
                assert!(disk.seen_by_grub("/grub.cfg") == text(n), "{kind}: not settled, {n}");
                drop(aside);
                for other in 0..40 {
                    fs::remove_file(disk.at().join(format!("other{other}"))).unwrap();
                }
            }
            assert!(remove_settled(dir(&disk.at()).as_fd(), "grub.cfg", None).unwrap());
            assert!(disk.seen_by_grub("/grub.cfg").is_empty(), "{kind}: not removed");
            fs::write(disk.at().join("after"), "it is thawed").unwrap();
        }
    }

    #[test]
    fn on_xfs_two_entries_of_fedora_and_a_name_aside_stay_in_the_inode_of_their_directory() {
        let Some(disk) = Disk::new("xfs", &["mkfs.xfs", "-q"], 300 << 20) else { return };
        let entries = disk.at().join("entries");
        fs::create_dir(&entries).unwrap();
        let id = "0123456789abcdef0123456789abcdef";
        let name = format!("{id}-5.14.0-427.13.1.el9_4.x86_64.conf");
        fs::write(entries.join(format!("{id}-0-rescue.conf")), "rescue").unwrap();
        fs::write(entries.join(&name), "old").unwrap();
        // Of a directory in its inode xfs has the bytes of the names, else whole blocks.
        let inside = || fs::metadata(&entries).unwrap().len() < 512;
        assert!(inside());
        let mut aside = Replacement::write(dir(&entries), &name, b"new", owner()).unwrap();
        assert!(inside(), "{}", aside.aside);
        aside.swap().unwrap();
        assert!(inside());
        aside.finish().unwrap();
        fs::write(entries.join(aside_name("another, as long as Fedora's are")), "").unwrap();
        fs::write(entries.join(aside_name("another one, as long as Fedora's are")), "").unwrap();
        assert!(!inside(), "whether it is inside can be seen");
    }

    #[test]
    fn after_a_cut_a_directory_that_mkfs_btrfs_made_has_all_its_other_names() {
        let tree = tempfile::tempdir().unwrap();
        let names = ["grub.cfg", "i386-pc", "x86_64-efi"];
        for folder in &names[1..] {
            fs::create_dir_all(tree.path().join("grub").join(folder)).unwrap();
        }
        fs::write(tree.path().join("grub/grub.cfg"), "old").unwrap();
        let made = tree.path().to_str().unwrap();
        let make = ["mkfs.btrfs", "-q", "--rootdir", made];
        let Some(disk) = Disk::new("btrfs", &make, 120 << 20) else { return };
        let grub = disk.at().join("grub");
        let mut cuts = Vec::new();
        // What is on the disk by now, and the log that the kernel replays. Somebody else's fsync brings the log there.
        let mut cut = |when: &'static str| {
            let other = grub.join("other");
            fs::write(&other, when).unwrap();
            File::open(&other).unwrap().sync_all().unwrap();
            fs::copy(disk.image(), disk.0.path().join(when)).unwrap();
            cuts.push(when);
        };
        let mut aside = Replacement::write(dir(&grub), "grub.cfg", b"new", owner()).unwrap();
        cut("written");
        settle(aside.dir()).unwrap();
        aside.exchange().unwrap();
        cut("exchanged");
        sync(aside.dir()).unwrap();
        cut("swapped");
        settle(aside.dir()).unwrap();
        aside.finish().unwrap();
        cut("finished");
        let mut aside = Replacement::write(dir(&grub), "grub.cfg", b"newer", owner()).unwrap();
        aside.exchange().unwrap();
        cut("exchanged, not settled");
        sync(aside.dir()).unwrap();
        aside.finish().unwrap();
        cut("renamed");
        let mut first = Replacement::write(dir(&grub), "custom.cfg", b"new", owner()).unwrap();
        let mut second = Replacement::write(dir(&grub), "more.cfg", b"new", owner()).unwrap();
        first.exchange().unwrap();
        cut("made");
        sync(first.dir()).unwrap();
        second.exchange().unwrap();
        cut("made after it");
        second.finish().and(first.finish()).unwrap();
        assert!(remove_settled(dir(&grub).as_fd(), "grub.cfg", None).unwrap());
        cut("removed");
        let run = |command: &mut Command| command.status().unwrap().success();
        // What other tests fork just now holds our files open for a moment.
        let unmount = || {
            let gone = (0..200).any(|_| {
                run(Command::new("umount").arg("-q").arg(disk.at())) || {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    false
                }
            });
            assert!(gone, "it stays mounted");
        };
        // Of file systems with one identity one at a time is mounted.
        unmount();
        for when in cuts {
            let image = disk.0.path().join(when);
            let mut mount = Command::new("mount");
            assert!(run(mount.args(["-o", "loop", "-t", "btrfs"]).args([&image, &disk.at()])));
            let left = &names[usize::from(when == "removed")..];
            let lost: Vec<_> = left.iter().filter(|name| !grub.join(name).exists()).collect();
            unmount();
            assert!(lost.is_empty(), "{when}: {lost:?}");
        }
    }
}
