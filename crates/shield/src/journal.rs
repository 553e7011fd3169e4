//! The journal: what was, written to disk before it is changed.
//!
//! JSON lines. A torn last line (power loss, `kill -9`) is what was never begun, and is passed
//! over. A change stands in the journal before the kernel is asked; its outcome follows.

use crate::{
    change::Change,
    error::{Error, Kind, Result, plain},
    fault,
    state::{State, stamp},
};
use quiet_types::{
    CpuSet,
    chain::Link,
    plan::{Outcome, Return, Step},
    shield::Shield,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read, Write},
};

/// The schema of the journal.
pub(crate) const SCHEMA: &str = "quietcores.journal/1";
/// No journal that we write comes near it.
const LARGEST: u64 = 64 << 20;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The first one.
    Begin {
        schema: String,
        program: String,
        boot_id: String,
        at: String,
        shield: Shield,
        /// The links of the chain, with the CPUs that each is given.
        #[serde(default)]
        links: Vec<Link>,
    },
    /// Before a change: what was.
    Note { seq: u64, change: Change },
    /// After a step: what became of it.
    Outcome { step: Step, outcome: Outcome },
    /// All steps are done and verified; the interrupts delivered on the shield so far.
    Up { at: String, irqs: Vec<(u32, u64)> },
    /// A change was put back.
    Back { seq: u64, outcome: Return },
    /// CPUs that do not run while a revert is at work: kernels before 6.2 forget them in what threads are given then.
    OffLine { cpus: CpuSet },
    /// Put back by itself unless confirmed: how many seconds after all steps are done.
    Await { seconds: u64 },
    /// It stays.
    Confirmed { at: String },
}

/// A journal that is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub boot_id: Option<String>,
    pub shield: Option<Shield>,
    pub links: Vec<Link>,
    pub began: Option<String>,
    pub up: Option<String>,
    pub irqs: Vec<(u32, u64)>,
    pub changes: Vec<(u64, Change)>,
    pub outcomes: Vec<(Step, Outcome)>,
    /// A revert has begun.
    pub reverting: bool,
    /// CPUs that did not run during a revert.
    pub off_line: CpuSet,
    /// Seconds after which it is put back unless confirmed.
    pub awaits: Option<u64>,
    /// When it was confirmed.
    pub confirmed: Option<String>,
    /// Lines that make no sense, before the last one: `line 7: ...`.
    pub unread: Vec<String>,
}

/// A journal that is written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: String,
    length: u64,
    next: u64,
    /// Changes that stand in it already: taken again they need no second note, for a revert puts
    /// back what was before the first one.
    known: Vec<Change>,
}

impl Journal {
    /// Begins a journal; on disk, with its directory entry, when this returns.
    pub fn begin(state: &State, boot_id: &str, shield: &Shield, links: &[Link]) -> Result<Journal> {
        let path = state.journal().display().to_string();
        fault::point();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND;
        let file = state.open_file("journal.jsonl", flags).map_err(|e| unwritten(&path, &e))?;
        let mut journal = Journal { file, path, length: 0, next: 1, known: Vec::new() };
        let begin = Record::Begin {
            schema: SCHEMA.into(),
            program: env!("CARGO_PKG_VERSION").into(),
            boot_id: boot_id.to_owned(),
            at: stamp(),
            shield: shield.clone(),
            links: links.to_vec(),
        };
        let written = journal.append(&begin).and_then(|()| journal.file.sync_all());
        if let Err(error) = written.and_then(|()| state.sync()) {
            let _ = std::fs::remove_file(state.journal());
            return Err(unwritten(&journal.path, &error));
        }
        Ok(journal)
    }

    /// Goes on with a journal, to note what a revert does.
    pub fn reopen(state: &State) -> io::Result<Journal> {
        let file = state.open_file("journal.jsonl", OFlags::WRONLY | OFlags::APPEND)?;
        let length = file.metadata()?.len();
        let path = state.journal().display().to_string();
        let mut journal = Journal { file, path, length, next: 0, known: Vec::new() };
        // A torn last line must not swallow what is written next.
        if length > 0 {
            journal.raw(b"\n")?;
        }
        Ok(journal)
    }

    /// Goes on with the journal of a shield that is up.
    pub fn resume(state: &State, past: &Past) -> Result<Journal> {
        let journal = Journal::reopen(state)
            .map_err(|e| unwritten(&state.journal().display().to_string(), &e))?;
        Ok(journal.after(past))
    }

    /// As [`Journal::resume`], but what is written is forgotten.
    pub fn rehearse(past: &Past) -> io::Result<Journal> {
        let file = rustix::fs::memfd_create("rehearsal", rustix::fs::MemfdFlags::CLOEXEC)?;
        let (path, known) = (String::new(), Vec::new());
        Ok(Journal { file: File::from(file), path, length: 0, next: 0, known }.after(past))
    }

    fn after(mut self, past: &Past) -> Journal {
        self.next = past.changes.iter().map(|(seq, _)| seq + 1).max().unwrap_or(1);
        self.known = past.changes.iter().map(|(_, change)| change.clone()).collect();
        self
    }

    /// Whether it tells that a group was made.
    pub fn made(&self, group: &str) -> bool {
        self.known.iter().any(|c| matches!(c, Change::Make { path, .. } if path == group))
    }

    /// Notes a change; on disk when this returns, so that it may be made.
    pub fn note(&mut self, change: Change) -> Result<()> {
        if !self.known.is_empty() {
            if change.is_noted(&self.known) {
                return Ok(());
            }
            self.known.push(change.clone());
        }
        let seq = self.next;
        self.next += 1;
        let noted = self.append(&Record::Note { seq, change }).and_then(|()| self.file.sync_data());
        fault::point();
        noted.map_err(|e| unwritten(&self.path, &e))
    }

    /// Writes down what came of something. Not waited for: a revert looks at the machine itself.
    pub fn tell(&mut self, record: &Record) -> Result<()> {
        self.append(record).map_err(|e| unwritten(&self.path, &e))
    }

    /// As [`Journal::tell`], on disk when this returns.
    pub fn seal(&mut self, record: &Record) -> Result<()> {
        self.append(record)
            .and_then(|()| self.file.sync_data())
            .map_err(|e| unwritten(&self.path, &e))
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
        line.push(b'\n');
        if cfg!(debug_assertions) {
            // The knife falls within a line as well.
            let half = line.len() / 2;
            self.raw(&line[..half])?;
            fault::point();
            return self.raw(&line[half..]);
        }
        self.raw(&line)
    }

    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.length;
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                let _ = self.file.set_len(length);
                Err(error)
            }
        }
    }
}

/// Reads the journal; `None` where there is none.
pub(crate) fn read(state: &State) -> Result<Option<Past>> {
    let path = state.journal().display().to_string();
    let file = match state.open_file("journal.jsonl", OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&path, &plain(&error))),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| unreadable(&path, &plain(&e)))?;
    if bytes.len() as u64 > LARGEST {
        return Err(unreadable(&path, "it is larger than 64 MiB"));
    }
    parse(&String::from_utf8_lossy(&bytes)).map_err(|why| unreadable(&path, &why)).map(Some)
}

fn parse(text: &str) -> std::result::Result<Past, String> {
    let mut past = Past::default();
    let whole = text.ends_with('\n');
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let record = match serde_json::from_str::<Record>(line) {
            Ok(record) => record,
            // Torn: at the end of the file, or at the end of what a killed apply wrote.
            Err(error) if error.is_eof() || (at + 1 == lines.len() && !whole) => continue,
            Err(error) => {
                past.unread.push(format!("line {}: {error}", at + 1));
                continue;
            }
        };
        match record {
            Record::Begin { schema, boot_id, shield, links, at, .. } => {
                if schema != SCHEMA {
                    return Err(format!(
                        "it was written by another version of quietcores ({})",
                        quiet_types::printable(&schema, 60)
                    ));
                }
                past.boot_id = Some(boot_id);
                past.shield = Some(shield);
                past.links = links;
                past.began = Some(at);
            }
            Record::Note { seq, change } => past.changes.push((seq, change)),
            Record::Outcome { step, outcome } => past.outcomes.push((step, outcome)),
            Record::Up { at, irqs } => {
                past.up = Some(at);
                past.irqs = irqs;
            }
            Record::Back { .. } => past.reverting = true,
            Record::OffLine { cpus } => past.off_line = past.off_line.union(&cpus),
            Record::Await { seconds } => past.awaits = Some(seconds),
            Record::Confirmed { at } => past.confirmed = Some(at),
        }
    }
    Ok(past)
}

fn unwritten(path: &str, error: &io::Error) -> Error {
    Error::new(
        Kind::Journal,
        format!(
            "cannot write the journal {path}: {}; nothing is changed that is not noted there \
             first; make room, or name another place with --state DIR",
            plain(error)
        ),
    )
}

fn unreadable(path: &str, why: &str) -> Error {
    Error::new(
        Kind::Journal,
        format!("cannot read the journal {path}: {why}; the machine is left as it is"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;

    fn line(seq: u64) -> String {
        let change = Change::Make { path: format!("/x/{seq}"), unit: false };
        format!("{}\n", serde_json::to_string(&Record::Note { seq, change }).unwrap())
    }

    #[test]
    fn a_journal_torn_at_any_byte_gives_back_every_whole_line() {
        let text = format!("{}{}{}", line(1), line(2), line(3));
        for cut in 0..=text.len() {
            let past = parse(&text[..cut]).unwrap();
            let whole = text[..cut].matches('\n').count();
            // The last line may be whole but for its end of line.
            let found = past.changes.len();
            assert!(found == whole || found == whole + 1, "cut at {cut}: {found} of {whole}");
            assert_eq!(past.unread, Vec::<String>::new(), "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_and_the_others_are_read() {
        let text = format!("{}{{\"record\":\"dance\"}}\n{}", line(1), line(2));
        let past = parse(&text).unwrap();
        assert_eq!(past.changes.len(), 2);
        assert!(past.unread[0].starts_with("line 2: unknown variant `dance`"), "{:?}", past.unread);
    }
}
