//! What was made to last, kept on disk: enough to take it away again, also by hand.
//!
//! `persist.json` in the state directory lists the changes; beside it `persist/old/` and
//! `persist/new/` hold every changed file whole, under its own path, as plain files: from a rescue
//! system `cp -a persist/old/boot /` is all that is needed. They are not kept beside the changed
//! files: boot loaders read whole directories, and an ESP is small.

use super::{
    error::{Error, ErrorKind, Result},
    form::FileForm,
};
use quiet_linux::files::{FileOwner, StateDir, Tree, split};
use quiet_types::boot::BootParameters;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// The schema of `persist.json`.
pub const SCHEMA: &str = "quietcores.persist/1";
const NAME: &str = "persist.json";
const LARGEST: u64 = 16 << 20;

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Changes are being made; a record found so was cut short.
    Begun,
    /// All changes are made.
    Done,
    /// They are being taken back; a record found so was cut short.
    Undoing,
}

/// What was made to last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// How far it got.
    pub stage: Phase,
    /// When it was begun, UTC.
    pub at: String,
    /// The boot loader: `grub`, `systemd-boot` ...
    pub loader: String,
    /// For one boot only, until it is blessed.
    pub trial: bool,
    /// What is asked of the next boots.
    pub asked: BootParameters,
    /// The arguments of `apply` in the systemd unit; `None` where no unit was written.
    pub apply: Option<Vec<String>>,
    /// The changes, in the order in which they are made.
    pub changes: Vec<FileChange>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FileChange {
    /// A directory made.
    Dir {
        /// Where.
        path: String,
    },
    /// A file edited, or made where `old` is `None`. Its texts lie in `persist/`.
    File {
        /// Where.
        path: String,
        /// What it holds of ours.
        ours: Ours,
        /// Whose it was; `None` where there was none.
        old: Option<FileOwner>,
        /// Whose it is.
        new: FileOwner,
    },
    /// A link made.
    Link {
        /// Where.
        path: String,
        /// Where it points.
        target: String,
    },
    /// A program run that makes a file anew from the changes before.
    Generate {
        /// The program and its arguments.
        command: Vec<String>,
        /// The file it makes; the old one lies in `persist/old`, the new one, once it ran, in
        /// `persist/new`.
        path: String,
        /// Whose it was.
        old: FileOwner,
    },
    /// One boot of an entry asked of the firmware.
    OneShot {
        /// Its file name.
        entry: String,
    },
}

/// What a changed file holds of ours: what is taken out where others have changed it since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Ours {
    /// These words, in this form.
    Words {
        /// The form of the file.
        form: FileForm,
        /// The words.
        words: Vec<String>,
    },
    /// The whole file.
    Whole,
    /// A marked block of lines.
    Block,
    /// The variable `next_entry` of GRUB's environment block, where it names our trial.
    NextEntry,
}

impl FileChange {
    /// What is changed, for people.
    pub fn what(&self) -> String {
        match self {
            FileChange::Dir { path }
            | FileChange::File { path, .. }
            | FileChange::Link { path, .. } => path.clone(),
            FileChange::Generate { path, .. } => path.clone(),
            FileChange::OneShot { .. } => "the firmware's one-shot entry".into(),
        }
    }
}

/// Which of the two texts of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Old,
    New,
}

/// The record and its texts in a state directory.
pub(super) struct Shelf<'a> {
    state: &'a StateDir,
}

impl<'a> Shelf<'a> {
    pub fn of(state: &'a StateDir) -> Shelf<'a> {
        Shelf { state }
    }

    fn text_path(&self, side: Side, path: &str) -> PathBuf {
        let side = match side {
            Side::Old => "old",
            Side::New => "new",
        };
        self.state.path().join("persist").join(side).join(path.trim_start_matches('/'))
    }

    /// Keeps a text; on disk when this returns.
    pub fn keep(&self, side: Side, path: &str, bytes: &[u8]) -> Result<()> {
        let to = self.text_path(side, path);
        let write = || -> io::Result<()> {
            let dir = to.parent().unwrap_or(self.state.path());
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            let mut file = fs::File::create(&to)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            // Every directory on the way may be new.
            for dir in dir.ancestors().take_while(|dir| dir.starts_with(self.state.path())) {
                fs::File::open(dir)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|e| Error::io("keep", &to.display().to_string(), e))
    }

    /// A path for a program to make a file in, in a directory that is root's alone; nothing is there.
    pub fn room_for(&self, path: &str) -> Result<PathBuf> {
        let dir = self.state.path().join("persist/made");
        let file = dir.join(split(path).1);
        let clear = || -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            match fs::remove_file(&file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            }
        };
        clear().map_err(|e| Error::io("make room for", &file.display().to_string(), e))?;
        Ok(file)
    }

    /// A kept text; `None` where none was kept.
    pub fn text(&self, side: Side, path: &str) -> Result<Option<Vec<u8>>> {
        let from = self.text_path(side, path);
        match fs::read(&from) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("read", &from.display().to_string(), e)),
        }
    }

    /// Writes the record aside and renames it; on disk when this returns.
    pub fn write(&self, record: &Record) -> Result<()> {
        let path = self.state.path().join(NAME).display().to_string();
        let write = || -> io::Result<()> {
            let aside = "persist.json.new";
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let mut file = self.state.open_file(aside, flags)?;
            let mut text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(self.state.path().join(aside), self.state.path().join(NAME))?;
            self.state.sync()
        };
        write().map_err(|e| {
            let _ = fs::remove_file(self.state.path().join("persist.json.new"));
            Error::io("write", &path, e)
        })
    }

    /// Makes room: what a program was given to write, and the new texts of these files, which have their old ones again.
    pub fn make_room<'p>(&self, paths: impl IntoIterator<Item = &'p str>) {
        let _ = fs::remove_dir_all(self.state.path().join("persist/made"));
        for path in paths {
            let text = self.text_path(Side::New, path);
            let _ = fs::remove_file(&text);
            // A folder takes room as well; one with something in it stays.
            let new = self.state.path().join("persist/new");
            for dir in text.ancestors().skip(1).take_while(|dir| dir.starts_with(&new)) {
                let _ = fs::remove_dir(dir);
            }
        }
    }

    /// The record; `None` where nothing was made to last.
    pub fn read(&self) -> Result<Option<Record>> {
        let path = self.state.path().join(NAME).display().to_string();
        let file = match self.state.open_file(NAME, OFlags::RDONLY) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", &path, e)),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).map_err(|e| Error::io("read", &path, e))?;
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| {
            Error::of(
                ErrorKind::Record,
                format!(
                    "cannot understand {path}: {e}; the old texts lie beside it in persist/old"
                ),
            )
            .because(e)
        })?;
        if record.schema != SCHEMA {
            return Err(Error::of(
                ErrorKind::Record,
                format!(
                    "{path} was written by another version of quietcores ({}); use that one",
                    quiet_types::printable(&record.schema, 60)
                ),
            ));
        }
        Ok(Some(record))
    }

    /// Forgets the record, then its texts: in this order, so that a record never lacks a text.
    pub fn forget(&self) -> Result<()> {
        let path = self.state.path().join(NAME);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("remove", &path.display().to_string(), e)),
        }
        let fail = |e: io::Error| Error::io("remove", &path.display().to_string(), e);
        self.state.sync().map_err(fail)?;
        self.clear();
        Ok(())
    }

    /// Texts that no record speaks of.
    pub fn clear(&self) {
        let _ = fs::remove_dir_all(self.state.path().join("persist"));
    }
}

/// The record in a state directory; `None` where nothing was made to last.
///
/// # Errors
/// When the directory cannot be used or the record makes no sense.
pub fn record(state: &Path) -> Result<Option<Record>> {
    match StateDir::open(state)? {
        Some(state) => Shelf::of(&state).read(),
        None => Ok(None),
    }
}

/// The directories on the way to a file that are not there yet, outermost first.
pub(super) fn missing_dirs(place: &Tree, path: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut dir = split(path).0;
    while dir != "/" && !place.exists(dir) {
        missing.push(dir.to_owned());
        dir = split(dir).0;
    }
    missing.reverse();
    missing
}
