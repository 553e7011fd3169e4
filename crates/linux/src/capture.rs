//! Writes down what a snapshot saw, as a tree of files that reads back identically.

use crate::{
    CommandLines, Error, Options, Result, Root,
    anonymous::anonymous,
    snapshot::{Record, Seen, reader::NOTES, recorded, snapshot},
};
use quiet_types::Machine;
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// What [`capture`] wrote.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The snapshot; `snapshot(&Root::at(dir)?, options)` is equal to it.
    pub machine: Machine,
    /// How many files were written.
    pub files: usize,
    /// How many bytes they hold.
    pub bytes: u64,
}

/// Takes a snapshot and writes what it read, and nothing else, below `dir`: a root that reads
/// back identically. No environment of any process is read. `options` say whose command lines
/// are; values that look like credentials are masked before they are noted.
///
/// The tree is written beside `dir` and renamed into its place: it is there whole or not at all.
///
/// # Errors
/// When `dir` exists and is not an empty directory, when it cannot be written, or when the root
/// is not one of a machine.
pub fn capture(root: &Root, dir: &Path, options: Options) -> Result<Captured> {
    refuse_what_is_there(dir)?;
    let (machine, record) = recorded(root, options)?;
    let (files, bytes) = put(&record, dir)?;
    Ok(Captured { machine, files, bytes })
}

/// As [`capture`], for strangers: no command line, people by number, other UUIDs. Names of threads stay.
///
/// # Errors
/// As [`capture`].
pub fn capture_anonymous(root: &Root, dir: &Path) -> Result<Captured> {
    refuse_what_is_there(dir)?;
    let options = Options { command_lines: CommandLines::None };
    let (_, mut record) = recorded(root, options)?;
    anonymous(&mut record);
    let (files, bytes) = put(&record, dir)?;
    Ok(Captured { machine: snapshot(&Root::at(dir)?, options)?, files, bytes })
}

/// The tree of a record, whole or not at all.
fn put(record: &Record, dir: &Path) -> Result<(usize, u64)> {
    let aside = aside(dir)?;
    let written = write(record, &aside)
        .and_then(|written| fs::rename(&aside, dir).map(|()| written))
        .map_err(|error| Error::io("write the capture", dir.display().to_string(), error));
    if written.is_err() {
        // The refusal matters more than what is left of the attempt.
        let _ = fs::remove_dir_all(&aside);
    }
    written
}

fn refuse_what_is_there(dir: &Path) -> Result<()> {
    let refuse = |why: &str| {
        let error = io::Error::other(why.to_owned());
        Err(Error::io("capture to", dir.display().to_string(), error))
    };
    match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("capture to", dir.display().to_string(), error)),
        Ok(there) if !there.is_dir() => refuse("it exists and is not a directory"),
        Ok(_) => match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(()),
            Ok(false) => refuse("it is not empty; name a directory that does not exist yet"),
            Err(error) => Err(Error::io("list", dir.display().to_string(), error)),
        },
    }
}

/// A new directory beside `dir`.
fn aside(dir: &Path) -> Result<PathBuf> {
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|| "capture".to_owned());
    let aside = dir.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    fs::create_dir(&aside)
        .map_err(|error| Error::io("make the directory", aside.display().to_string(), error))?;
    Ok(aside)
}

fn write(record: &Record, dir: &Path) -> io::Result<(usize, u64)> {
    let (mut files, mut bytes) = (0, 0);
    let mut links = Vec::new();
    let mut put = |path: &str, content: &[u8]| -> io::Result<()> {
        let path = below(dir, path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        files += 1;
        bytes += content.len() as u64;
        fs::File::create_new(path)?.write_all(content)
    };
    for (path, seen) in &record.seen {
        match seen {
            Seen::Directory => fs::create_dir_all(below(dir, path))?,
            Seen::Unread => put(path, b"")?,
            Seen::File(content) => put(path, content)?,
            Seen::Link(target) => links.push((path, target)),
        }
    }
    put(NOTES, record.notes.print().as_bytes())?;
    // Last, so that nothing is ever written through a link.
    for (path, target) in links {
        let path = below(dir, path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        symlink(target, path)?;
    }
    Ok((files, bytes))
}

fn below(dir: &Path, path: &str) -> PathBuf {
    dir.join(path.trim_start_matches('/'))
}
