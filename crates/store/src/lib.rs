//! Runs, proofs and what was measured by sound, kept as files: `runs/ID.json`,
//! `proofs/ID/{proof.json,report.html}`, `buffers/ID.json`, `roundtrips/ID.json`, `tunes/ID.json`.
//!
//! Every file is written aside, synced and renamed: a reader sees all of it or nothing, also
//! after a power cut. An index in SQLite answers questions about many of them, and can be thrown
//! away at any time. What is read is bounded and its schema is checked before it is believed.
#![forbid(unsafe_code)]

mod error;
mod index;
mod owner;

pub use error::Error;
pub use index::{Filter, Index, line};
pub use owner::StoreOwner;

use quiet_linux::files::{self, Replace};
use quiet_types::{
    Proof, Run,
    buffers::{self, Buffers},
    history::Proven,
    printable, proof, run,
    trip::{self, RoundTrip},
    tune::{self, Tuned},
};
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A run with a histogram per CPU is some 100 KiB, a proof of eight pairs a few MiB.
const LARGEST: u64 = 64 << 20;

/// A directory that keeps runs and proofs. Made when the first is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    dir: PathBuf,
    owner: Option<StoreOwner>,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// One execution of a probe.
    Run(Box<Run>),
    /// Two settings compared.
    Proof(Box<Proof>),
    /// Which buffers hold.
    Buffers(Box<Buffers>),
    /// From playback to capture, by sound.
    RoundTrip(Box<RoundTrip>),
    /// A verdict for every step.
    Tune(Box<Tuned>),
}

impl Kept {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Kept::Run(run) => &run.id,
            Kept::Proof(proof) => &proof.id,
            Kept::Buffers(buffers) => &buffers.head.id,
            Kept::RoundTrip(trip) => &trip.head.id,
            Kept::Tune(tuned) => &tuned.head.id,
        }
    }

    /// What it is, in words.
    pub fn what(&self) -> &'static str {
        match self {
            Kept::Run(_) => "a run",
            Kept::Proof(_) => "a proof",
            Kept::Buffers(_) => "a table of buffers",
            Kept::RoundTrip(_) => "a round trip",
            Kept::Tune(_) => "a tune",
        }
    }
}

/// The kinds of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeptKind {
    /// One execution of a probe.
    Run,
    /// Two settings compared.
    Proof,
    /// Which buffers hold.
    Buffers,
    /// From playback to capture, by sound.
    RoundTrip,
    /// A verdict for every step.
    Tune,
}

/// One kept thing by name; nothing of it is read yet. Ids start with the UTC time of the start,
/// so entries sort by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptFile {
    /// Its id.
    pub id: String,
    /// What it is.
    pub kind: KeptKind,
    /// The JSON file.
    pub path: PathBuf,
}

impl KeptFile {
    /// The id without the time that it begins with.
    fn rest(&self) -> &str {
        rest(&self.id)
    }
}

fn rest(id: &str) -> &str {
    id.split_once('-').map_or(id, |(_, rest)| rest)
}

/// A shorter name for each of these by which [`Store::find`] knows it: what follows the time in its id,
/// or the whole id where another one ends alike.
pub fn short_ids(entries: &[KeptFile]) -> HashMap<String, String> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for entry in entries {
        *times.entry(entry.rest()).or_default() += 1;
    }
    let short = |entry: &KeptFile| match times[entry.rest()] {
        1 => entry.rest().to_owned(),
        _ => entry.id.clone(),
    };
    entries.iter().map(|entry| (entry.id.clone(), short(entry))).collect()
}

/// The proof in this file in a line; its arms are passed over.
///
/// # Errors
/// When it cannot be read: see [`load`].
pub fn proven(path: &Path) -> Result<Proven, Error> {
    let bytes = read(path).map_err(|e| Error::io("read", path, e))?;
    serde_json::from_slice(&bytes).map_err(|e| Error::json(path, &e, &bytes))
}

impl Store {
    /// The store in `dir`, which need not exist.
    pub fn at(dir: impl Into<PathBuf>) -> Store {
        Store { dir: dir.into(), owner: None }
    }

    /// The same, read and written by root with the rights of its owner.
    pub fn of(self, owner: Option<StoreOwner>) -> Store {
        Store { owner, ..self }
    }

    /// For whom root keeps it; `None`: for whoever runs the program.
    pub fn owner(&self) -> Option<StoreOwner> {
        self.owner
    }

    /// Does something in the store with the rights of its owner.
    fn act<T>(&self, act: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match self.owner {
            Some(owner) => owner.act(act)?,
            None => act(),
        }
    }

    /// Makes the directory for one kind (`runs`, `proofs` ...) and tries whether a MiB can be kept
    /// there: before an hour is measured, not after it.
    ///
    /// # Errors
    /// When they cannot, with the reason and, where the directory is somebody else's, whose.
    pub fn ready(&self, kind: &str) -> Result<(), Error> {
        let dir = self.dir.join(checked_id(kind)?);
        self.act(|| {
            make_dir(&dir)?;
            let trial = dir.join("trial");
            files::room(&trial).map_err(|e| Error::io("write", &trial, e))
        })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Keeps a run as `runs/ID.json` and gives the path. A checkpoint of the same run is replaced, whole by
    /// whole; nothing else is.
    ///
    /// # Errors
    /// When the id is no plain name or is taken, or the file cannot be written.
    pub fn save_run(&self, run: &Run) -> Result<PathBuf, Error> {
        let replace = match self.run(&run.id) {
            Ok(old) if old.partial && old.host.boot_id == run.host.boot_id => Replace::Always,
            _ => Replace::Never,
        };
        self.save("runs", &run.id, run, replace)
    }

    /// Keeps a proof and its page as `proofs/ID/proof.json` and `proofs/ID/report.html`, both or
    /// neither, and gives the directory.
    ///
    /// # Errors
    /// When the id is no plain name or is taken, or a file cannot be written.
    pub fn save_proof(&self, proof: &Proof, page: &str) -> Result<PathBuf, Error> {
        let id = checked_id(&proof.id)?;
        let dir = self.dir.join("proofs");
        let path = dir.join(id);
        let json = json(proof, &path)?;
        self.act(|| {
            make_dir(&dir)?;
            files::directory(&path, &[("proof.json", &json), ("report.html", page.as_bytes())])
                .map_err(|e| Error::io("write", &path, e))?;
            Ok(path)
        })
    }

    /// Reads the run with this id.
    ///
    /// # Errors
    /// When the id is no plain name, or there is no such run, or it cannot be read: see [`load`].
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        let path = self.dir.join("runs").join(format!("{}.json", checked_id(id)?));
        match self.act(|| load(&path))? {
            Kept::Run(run) => Ok(*run),
            other => {
                let why = format!("it is {}", other.what());
                Err(Error::text("read", path.display().to_string(), why))
            }
        }
    }

    /// Keeps anything but a proof as `KIND/ID.json` and gives the path; conditions meet runs alone.
    ///
    /// # Errors
    /// When the id or kind is no plain name, the id is taken, or the file cannot be written.
    pub fn save_other(
        &self,
        kind: &str,
        id: &str,
        value: &impl serde::Serialize,
    ) -> Result<PathBuf, Error> {
        self.save(kind, id, value, Replace::Never)
    }

    fn save(
        &self,
        kind: &str,
        id: &str,
        value: &impl serde::Serialize,
        replace: Replace,
    ) -> Result<PathBuf, Error> {
        let dir = self.dir.join(checked_id(kind)?);
        let path = dir.join(format!("{}.json", checked_id(id)?));
        let json = json(value, &path)?;
        self.act(|| {
            make_dir(&dir)?;
            files::write_whole(&path, &json, replace).map_err(|e| Error::io("write", &path, e))?;
            Ok(path)
        })
    }

    /// Everything that is kept, oldest first. Unfinished files are not listed.
    ///
    /// # Errors
    /// When a directory is there and cannot be read.
    pub fn list(&self) -> Result<Vec<KeptFile>, Error> {
        self.act(|| self.entries())
    }

    fn entries(&self) -> Result<Vec<KeptFile>, Error> {
        let mut entries = Vec::new();
        for (kind, dir) in [
            (KeptKind::Run, "runs"),
            (KeptKind::Buffers, "buffers"),
            (KeptKind::RoundTrip, "roundtrips"),
            (KeptKind::Tune, "tunes"),
        ] {
            let dir = self.dir.join(dir);
            for name in names(&dir)? {
                if let Some(id) = name.strip_suffix(".json").filter(|id| is_id(id)) {
                    entries.push(KeptFile { id: id.to_owned(), kind, path: dir.join(&name) });
                }
            }
        }
        for id in names(&self.dir.join("proofs"))?.into_iter().filter(|name| is_id(name)) {
            let path = self.dir.join("proofs").join(&id).join("proof.json");
            if path.is_file() {
                entries.push(KeptFile { id, kind: KeptKind::Proof, path });
            }
        }
        entries.sort();
        Ok(entries)
    }

    /// As [`Store::find`], for who can take runs alone: `last` is the newest run, whatever was kept since.
    ///
    /// # Errors
    /// As [`Store::find`].
    pub fn find_run(&self, name: &str) -> Result<Kept, Error> {
        match name {
            "last" => self.act(|| self.newest(|kind| kind == KeptKind::Run)),
            _ => self.find(name),
        }
    }

    /// What was kept last: by the time of its file, as the id of an imported run is made of its own time,
    /// or of none.
    fn newest(&self, of: impl Fn(KeptKind) -> bool) -> Result<Kept, Error> {
        let written = |entry: &KeptFile| {
            let meta = entry.path.metadata();
            meta.map_or((0, 0), |meta| (meta.mtime(), meta.mtime_nsec()))
        };
        let entries = self.entries()?;
        let ours = entries.iter().filter(|entry| of(entry.kind));
        let last = ours.max_by_key(|entry| (written(entry), &entry.id)).ok_or_else(|| {
            let there = self.dir.display().to_string();
            Error::text("find", "the last run", format!("nothing is kept in {there} yet"))
        })?;
        load(&last.path)
    }

    /// Reads what `name` means: `last`, an id, the beginning of exactly one id (of the whole, or of what
    /// follows the time in it), or a path (a file, or the directory of a proof).
    ///
    /// # Errors
    /// When nothing or more than one thing is meant, or it cannot be read: see [`load`].
    pub fn find(&self, name: &str) -> Result<Kept, Error> {
        let path = Path::new(name);
        if name.contains('/') || name.ends_with(".json") {
            let inside = path.join("proof.json");
            return load(if inside.is_file() { &inside } else { path });
        }
        match self.act(|| self.named(name))? {
            Some(kept) => Ok(kept),
            None if path.exists() => load(path),
            None => Err(self.unknown(name)),
        }
    }

    /// What the store calls so; `None` where it is nothing.
    fn named(&self, name: &str) -> Result<Option<Kept>, Error> {
        // A whole id needs no look at all the others.
        if is_id(name) {
            let run = self.dir.join("runs").join(format!("{name}.json"));
            let proof = self.dir.join("proofs").join(name).join("proof.json");
            if let Some(path) = [run, proof].iter().find(|path| path.is_file()) {
                return load(path).map(Some);
            }
        }
        if name == "last" {
            return self.newest(|_| true).map(Some);
        }
        let entries = self.entries()?;
        let begins = |e: &&KeptFile| e.id.starts_with(name) || e.rest().starts_with(name);
        let mut meant: Vec<&KeptFile> =
            entries.iter().filter(|e| !name.is_empty() && begins(e)).collect();
        // Whole, it is not the beginning of another one.
        if let [one] =
            meant.iter().filter(|e| e.rest() == name || e.id == name).collect::<Vec<_>>()[..]
        {
            meant = vec![*one];
        }
        match meant[..] {
            [one] => load(&one.path).map(Some),
            [] => Ok(None),
            _ => {
                let ids: Vec<&str> = meant.iter().take(5).map(|entry| entry.id.as_str()).collect();
                let why = format!("{} ids begin so: {}", meant.len(), ids.join(", "));
                Err(Error::text("find", name, why))
            }
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let entries = self.list().unwrap_or_default();
        let known: Vec<&str> =
            entries.iter().rev().take(3).map(|entry| entry.id.as_str()).collect();
        let known = match known[..] {
            [] => "nothing is kept there yet".to_owned(),
            _ => format!("the newest are {}", known.join(", ")),
        };
        let why = format!("no such id in {}; {known}", self.dir.display());
        Error::text("find", name, why)
    }
}

/// The first field of every file of ours.
#[derive(Deserialize)]
struct Header {
    schema: Option<String>,
}

/// Reads what is kept from a JSON file.
///
/// # Errors
/// When the file cannot be read, is no regular file or larger than 64 MiB, is cut short, is no
/// JSON, or holds something else or something newer: each in a sentence with the path, and with
/// line and column where there are some.
pub fn load(path: &Path) -> Result<Kept, Error> {
    let bytes = read(path).map_err(|e| Error::io("read", path, e))?;
    let header: Header =
        serde_json::from_slice(&bytes).map_err(|e| Error::json(path, &e, &bytes))?;
    let schema = header.schema.unwrap_or_default();
    let kept = match schema.as_str() {
        run::SCHEMA | run::FIRST_SCHEMA => {
            serde_json::from_slice(&bytes).map(|run: Run| Kept::Run(Box::new(run.from_first())))
        }
        proof::SCHEMA | proof::FIRST_SCHEMA => serde_json::from_slice(&bytes)
            .map(|proof: Proof| Kept::Proof(Box::new(proof.from_first()))),
        buffers::SCHEMA => serde_json::from_slice(&bytes).map(Kept::Buffers),
        trip::SCHEMA => serde_json::from_slice(&bytes).map(Kept::RoundTrip),
        tune::SCHEMA => serde_json::from_slice(&bytes).map(Kept::Tune),
        other => return Err(Error::text("use", path.display().to_string(), foreign(other))),
    };
    kept.map_err(|e| Error::json(path, &e, &bytes))
}

fn foreign(schema: &str) -> String {
    let shown = printable(schema, 60);
    let all = [run::SCHEMA, proof::SCHEMA, buffers::SCHEMA, trip::SCHEMA, tune::SCHEMA];
    let [first, second, third, fourth, last] = all;
    let known = format!("this program reads {first}, {second}, {third}, {fourth} and {last}");
    let kind = |text: &str| text.rsplit_once('/').map(|(kind, _)| kind.to_owned());
    let ours = all.iter().any(|ours| kind(ours) == kind(schema));
    if schema.is_empty() {
        format!("it names no schema, so it is no run or proof of quietcores; {known}")
    } else if ours {
        format!("it is written in {shown}; {known}: update quietcores")
    } else {
        format!("it holds {shown}; {known}")
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // NONBLOCK: a pipe must not hang us.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    if !file.metadata()?.is_file() {
        return Err(wrong("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(wrong("larger than 64 MiB"));
    }
    Ok(bytes)
}

fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let list = || -> io::Result<Vec<String>> {
        std::fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    match list() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|e| Error::io("list", dir, e)),
    }
}

fn json(value: &impl serde::Serialize, path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = serde_json::to_vec(value)
        .map_err(|e| Error::text("keep", path.display().to_string(), e.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A plain name: letters, digits, `-`, `_` and `.`, not first a dot (unfinished files start so),
/// at most 100 characters. No path can be climbed with it.
fn is_id(id: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !id.is_empty() && id.len() <= 100 && !id.starts_with('.') && id.bytes().all(plain)
}

fn checked_id(id: &str) -> Result<&str, Error> {
    is_id(id).then_some(id).ok_or_else(|| {
        let why = "an id has 1 to 100 letters, digits, `-`, `_` and `.`, and no dot first";
        Error::text("keep", id, why)
    })
}

/// Makes a directory and what is missing above it.
fn make_dir(dir: &Path) -> Result<(), Error> {
    files::make_dir(dir).map_err(|e| Error::io("make the directory", dir, e))
}

#[cfg(test)]
mod tests;
