//! Files written whole or not at all.

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// What to do where the name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Fail; the file that is there stays as it is.
    Never,
    /// Put the new file in its place.
    Always,
}

/// Writes a file beside its place, syncs it, renames it into its place and syncs the directory: at
/// every instant the name holds the old file whole, the new one whole, or nothing.
///
/// A file left over from a writer that was killed starts with a dot, ends with `.part`, and is
/// ignored by everybody.
///
/// # Errors
/// When it cannot be written, or the name is taken and is not to be replaced
/// (`AlreadyExists`).
///
/// # Source
/// open(2) `O_EXCL`, `O_NOFOLLOW`; rename(2) `RENAME_NOREPLACE`; fsync(2) on directories.
pub fn write_whole(path: &Path, bytes: &[u8], replace: Replace) -> io::Result<()> {
    let aside = aside(path);
    let done = (|| {
        write_new(&aside, bytes)?;
        put(&aside, path, replace)?;
        sync_parent(path)
    })();
    if done.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
    done
}

/// More than most of what is kept; a proof of many pairs is some MiB.
const ROOM: u64 = 1 << 20;

/// Tries whether [`write_whole`] to `path` would find room for a MiB; nothing is left of it, and what
/// is at `path` is not touched.
///
/// # Errors
/// When it would not.
///
/// # Source
/// fallocate(2): reserves blocks, so that a full disk or quota shows itself without anything written.
pub fn room(path: &Path) -> io::Result<()> {
    let aside = aside(path);
    let done = (|| {
        let file = create(&aside)?;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, ROOM) {
            // A file system that cannot reserve.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                (&file).write_all(&vec![0; ROOM as usize])?;
                file.sync_all()
            }
            other => Ok(other?),
        }
    })();
    let _ = std::fs::remove_file(&aside);
    done
}

/// Writes a directory with these files, all or nothing.
pub fn directory(path: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    let aside = aside(path);
    let done = (|| {
        // Left by a killed writer whose process number is ours now.
        if aside.symlink_metadata().is_ok() {
            std::fs::remove_dir_all(&aside)?;
        }
        std::fs::create_dir(&aside)?;
        for (name, bytes) in files {
            write_new(&aside.join(name), bytes)?;
        }
        sync(&aside)?;
        put(&aside, path, Replace::Never)?;
        sync_parent(path)
    })();
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&aside);
    }
    done
}

/// Makes a directory and what is missing above it.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)
}

/// A name beside `path` that no other writer uses: process and a count.
fn aside(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let short: String = name.chars().take(100).collect();
    path.with_file_name(format!(".{short}.{}.{count}.part", std::process::id()))
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
    let fd = open().or_else(|error| {
        // Left by a killed writer whose process number is ours now: nobody writes to it.
        if error != rustix::io::Errno::EXIST {
            return Err(error);
        }
        rustix::fs::unlink(path)?;
        open()
    })?;
    Ok(File::from(fd))
}

fn put(from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
    match replace {
        Replace::Always => std::fs::rename(from, to),
        Replace::Never => {
            match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                // File systems without the flag (some network and FUSE ones).
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => put_plain(from, to),
                other => Ok(other?),
            }
        }
    }
}

/// Without `RENAME_NOREPLACE`: a hard link fails where the name is taken; a directory is looked
/// for first, which leaves a short race that only a second writer of the same random id can win.
fn put_plain(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        if to.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        return std::fs::rename(from, to);
    }
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => sync(parent),
        _ => sync(Path::new(".")),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
