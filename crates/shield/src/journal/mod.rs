//! The journal: what was, written to disk before it is changed.
//!
//! JSON lines. A torn last line (power loss, `kill -9`) is what was never begun, and is passed
//! over. A change stands in the journal before the kernel is asked; its outcome follows. What a
//! watch adds is compacted: see [`Journal::compact`].

mod compact;
mod guests;
mod kept;
mod key;
mod needed;
mod past;

use crate::{
    change::Change,
    error::{Error, ErrorKind, Result, plain},
};
pub(crate) use guests::{Guests, Stay};
pub(crate) use kept::{NAME, archive, path};
pub(crate) use key::{Key, key};
pub(crate) use past::{Past, Reader};
use quiet_linux::fault;
use quiet_linux::files::{StateDir, stamp};
use quiet_types::{
    CpuSet, GroupPath,
    chain::Link,
    loan::{LoanEnd, LoanTerms},
    plan::{AppliedBy, Outcome, Return, Step, Thread},
    shield::Shield,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    mem::take,
    os::unix::fs::FileExt,
};

/// The schema of the journal. Fields and records may be added to it where a reader that does not know them may pass over the
/// field, or must refuse the record; whatever else changes is another schema.
pub(crate) const SCHEMA: &str = "quietcores.journal/1";
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes of a line at most, in what is read as in what is written.
const LONGEST: u64 = 64 << 20;
/// Threads of one note at most: some 6 MiB of a line.
const THREADS: usize = 1 << 16;

/// A loan, as the journal tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoanNote {
    /// No two loans of a boot have it in common; new terms keep it.
    pub id: u64,
    pub at: String,
    /// When its time is over, in nanoseconds since the boot.
    pub until: u64,
    pub terms: LoanTerms,
}

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
        /// The process that it is to end with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<Thread>,
        /// The user who asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// When, in nanoseconds since the boot: no two journals have it in common.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_boot: Option<u64>,
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
    /// A thread is let in for user `uid`; `entered` goes through the door for it: itself, or the first thread of its process.
    Admitted { thread: Thread, entered: Thread, uid: u32 },
    /// That thread was let out again, and what was noted about its stay is void.
    Released { thread: Thread },
    /// The CPUs are everybody's for a while.
    Lent(LoanNote),
    /// Those of that loan are not any more.
    TakenBack { id: u64, cause: LoanEnd, at: String },
}

/// A journal that is written.
#[derive(Debug)]
pub(crate) struct Journal {
    /// `None` in a rehearsal: what is written is forgotten.
    file: Option<File>,
    path: String,
    length: u64,
    next: u64,
    /// What stands in it already: a change that is taken again needs no second note, for a revert
    /// puts back what was before the first one.
    reader: Option<Reader>,
    /// What was written since, but for changes.
    told: Vec<Record>,
    /// Lines that were written since.
    lines: u64,
}

impl Journal {
    /// Begins a journal; on disk, with its directory entry, when this returns.
    pub fn begin(
        state: &StateDir,
        boot_id: &str,
        shield: &Shield,
        links: &[Link],
        by: &AppliedBy,
    ) -> Result<Journal> {
        let path = path(state).display().to_string();
        fault::point();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND;
        let file = state.open_file(NAME, flags).map_err(|e| unwritten(&path, &e))?;
        let mut journal = Journal::new(Some(file), path, 0, 1, None);
        let begin = Record::Begin {
            schema: SCHEMA.into(),
            program: VERSION.into(),
            boot_id: boot_id.to_owned(),
            at: stamp(),
            shield: shield.clone(),
            links: links.to_vec(),
            owner: by.process.clone(),
            uid: by.uid,
            since_boot: Some(since_boot()),
        };
        let written = journal.append(&begin).and_then(|()| journal.sync());
        if let Err(error) = written.and_then(|()| state.sync()) {
            let _ = std::fs::remove_file(state.path().join(NAME));
            return Err(unwritten(&journal.path, &error));
        }
        Ok(journal)
    }

    fn new(
        file: Option<File>,
        path: String,
        length: u64,
        next: u64,
        reader: Option<Reader>,
    ) -> Journal {
        Journal { file, path, length, next, reader, told: Vec::new(), lines: 0 }
    }

    /// Goes on with a journal, to note what a revert does.
    pub fn reopen(state: &StateDir) -> io::Result<Journal> {
        let file = state.open_file(NAME, OFlags::RDWR | OFlags::APPEND)?;
        let length = file.metadata()?.len();
        let path = path(state).display().to_string();
        let mut last = *b"\n";
        if let Some(at) = length.checked_sub(1) {
            file.read_at(&mut last, at)?;
        }
        let mut journal = Journal::new(Some(file), path, length, 0, None);
        // A torn last line must not swallow what is written next.
        if last != *b"\n" {
            journal.raw(b"\n")?;
        }
        Ok(journal)
    }

    /// Goes on with the journal of a shield that is up, which `reader` has read.
    pub fn resume(state: &StateDir, reader: Reader) -> Result<Journal> {
        let journal = Journal::reopen(state)
            .map_err(|e| unwritten(&path(state).display().to_string(), &e))?;
        let next = reader.past.next();
        Ok(Journal { next, reader: Some(reader), ..journal })
    }

    /// As [`Journal::resume`], but what is written is forgotten.
    pub fn rehearse(reader: Reader) -> Journal {
        let next = reader.past.next();
        Journal::new(None, String::new(), 0, next, Some(reader))
    }

    /// What stood in it when it was resumed, and the changes that were noted since.
    pub fn past(&self) -> Option<&Past> {
        self.reader.as_ref().map(|reader| &reader.past)
    }

    /// Ends the writing, and gives back the reader, which knows what was written.
    pub fn end(mut self) -> Reader {
        let mut reader = self.reader.take().unwrap_or_default();
        if self.file.is_some() {
            reader.wrote(take(&mut self.told), self.lines, self.length);
        }
        reader
    }

    /// Whether it tells that a group was made.
    pub fn made(&self, group: &GroupPath) -> bool {
        self.past().is_some_and(|past| past.made(group))
    }

    /// Notes a change; on disk when this returns, so that it may be made.
    pub fn note(&mut self, change: Change) -> Result<()> {
        if self.past().is_some_and(|past| past.knows(&change)) {
            return Ok(());
        }
        let noted = self.write_note(change).and_then(|()| self.sync());
        fault::point();
        noted.map_err(|e| unwritten(&self.path, &e))
    }

    fn write_note(&mut self, change: Change) -> io::Result<()> {
        for change in change.parts(THREADS) {
            let seq = self.next;
            self.next += 1;
            let note = Record::Note { seq, change };
            self.append(&note)?;
            if let (Some(reader), true) = (&mut self.reader, self.file.is_some()) {
                reader.past.absorb(note);
            }
        }
        Ok(())
    }

    /// Notes that a thread is let in: before the changes that this takes, which bring it to the disk.
    pub fn note_guest(&mut self, thread: &Thread, entered: &Thread, uid: u32) -> Result<()> {
        if self.past().is_some_and(|past| past.guests.get(thread).is_some()) {
            return Ok(());
        }
        let (thread, entered) = (thread.clone(), entered.clone());
        let admitted = Record::Admitted { thread, entered, uid };
        self.append(&admitted).map_err(|e| unwritten(&self.path, &e))?;
        if let (Some(reader), true) = (&mut self.reader, self.file.is_some()) {
            reader.past.absorb(admitted);
        }
        Ok(())
    }

    /// Writes down what came of something. Not waited for: a revert looks at the machine itself.
    pub fn tell(&mut self, record: Record) -> Result<()> {
        self.append(&record).map_err(|e| unwritten(&self.path, &e))?;
        if self.reader.is_some() {
            self.told.push(record);
        }
        Ok(())
    }

    /// As [`Journal::tell`], on disk when this returns.
    pub fn seal(&mut self, record: Record) -> Result<()> {
        self.tell(record)?;
        self.sync().map_err(|e| unwritten(&self.path, &e))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        let line = line_of(record)?;
        let begins = self.length;
        // The knife falls within a line as well.
        let half = if cfg!(debug_assertions) { line.len() / 2 } else { 0 };
        let written = self.raw(&line[..half]).and_then(|()| {
            if half > 0 {
                fault::point();
            }
            self.raw(&line[half..])
        });
        if written.is_err() {
            // What cannot be written whole is not there; what was read of it is read anew.
            let _ = self.file.as_ref().map(|file| file.set_len(begins));
            (self.length, self.reader) = (begins, None);
        }
        written
    }

    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.lines += u64::from(bytes.ends_with(b"\n"));
        Ok(())
    }
}

/// The line of a record. One that could not be read again is refused.
fn line_of(record: &Record) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(record).map_err(io::Error::other)?;
    if line.len() as u64 > LONGEST {
        return Err(io::Error::other(
            "a record is longer than 64 MiB, and could not be read again",
        ));
    }
    line.push(b'\n');
    Ok(line)
}

/// Reads the journal; `None` where there is none.
pub(crate) fn read(state: &StateDir) -> Result<Option<Past>> {
    let mut reader = Reader::default();
    let there = reader.look(state)?.is_some();
    Ok(there.then_some(reader.past))
}

/// What stays the same for as long as a journal stands, and is another one's in the next: its first line.
pub(crate) fn identity(state: &StateDir) -> io::Result<Vec<u8>> {
    let file = state.open_file(NAME, OFlags::RDONLY)?;
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST)).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// Whether the journal is the one whose first line is `line`. One that is gone is not.
pub(crate) fn is_same(state: &StateDir, line: &[u8]) -> Result<bool> {
    match identity(state) {
        Ok(now) => Ok(now == line),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unreadable(&path(state).display().to_string(), &plain(&error))),
    }
}

/// Nanoseconds since the boot, time that the machine slept included.
pub(crate) fn since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn unwritten(path: &str, error: &io::Error) -> Error {
    Error::new(
        ErrorKind::Journal,
        format!(
            "cannot write the journal {path}: {}; nothing is changed that is not noted there \
             first; make room, or name another place with --state DIR",
            plain(error)
        ),
    )
}

fn unreadable(path: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Journal,
        format!("cannot read the journal {path}: {why}; the machine is left as it is"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;

    fn line(seq: u64) -> String {
        let change = Change::Make { path: format!("/x/{seq}").parse().unwrap(), unit: false };
        format!("{}\n", serde_json::to_string(&Record::Note { seq, change }).unwrap())
    }

    fn parse(text: &str) -> std::result::Result<Past, String> {
        let mut reader = Reader::default();
        reader.take_lines(&mut text.as_bytes()).map(|()| reader.past)
    }

    fn begin(schema: &str, program: &str, mechanism: &str) -> String {
        format!(
            "{{\"record\":\"begin\",\"schema\":\"{schema}\",\"program\":\"{program}\",\"boot_id\":\"b\",\"at\":\"now\",\
             \"shield\":{{\"cpus\":\"1\",\"housekeeping\":\"0\",\"mechanism\":\"{mechanism}\",\"entry\":null}}}}\n"
        )
    }

    #[test]
    fn a_journal_torn_at_any_byte_gives_back_every_whole_line() {
        let text = format!("{}{}{}", begin(SCHEMA, VERSION, "affinity"), line(1), line(2));
        for cut in 0..=text.len() {
            let past = parse(&text[..cut]).unwrap();
            let whole = text[..cut].matches('\n').count();
            assert_eq!(past.changes.len(), whole.saturating_sub(1), "cut at {cut}");
            assert_eq!(past.shield.is_some(), whole > 0, "cut at {cut}");
            assert_eq!(past.unread, Vec::<String>::new(), "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_and_the_others_are_read() {
        let begin = begin(SCHEMA, "9.9.9", "affinity");
        let text = format!("{begin}{}{{\"record\":\"dance\"}}\n{}", line(1), line(2));
        let past = parse(&text).unwrap();
        assert_eq!(past.changes.len(), 2);
        assert!(past.unread[0].starts_with("line 3: unknown variant `dance`"), "{:?}", past.unread);
        let said = past.stranger(&past.unread[0]);
        assert!(said.contains("begun by quietcores 9.9.9"), "{said}");
    }

    #[test]
    fn a_journal_whose_beginning_is_not_understood_is_refused_with_its_writer() {
        for (text, wanted) in [
            (
                begin("quietcores.journal/2", "9.9.9", "affinity"),
                "written by quietcores 9.9.9 in the format quietcores.journal/2",
            ),
            (begin(SCHEMA, "9.9.9", "by_magic"), "unknown variant `by_magic`"),
            (line(1), "damaged or not there (line 1)"),
            ("{\"record\":\"dance\"}\n".into(), "damaged or not there (line 1: unknown variant"),
        ] {
            let said = parse(&format!("{text}{}", line(2))).unwrap_err();
            assert!(said.contains(wanted), "{said}");
        }
    }

    fn shield() -> Shield {
        serde_json::from_str(
            "{\"cpus\":\"1\",\"housekeeping\":\"0\",\"mechanism\":\"affinity\",\"entry\":null}",
        )
        .unwrap()
    }

    #[test]
    fn only_what_was_added_is_read_at_the_next_look() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        let mut journal =
            Journal::begin(&state, "b0", &shield(), &[], &AppliedBy::default()).unwrap();
        let make = |path: &str| Change::Make { path: path.parse().unwrap(), unit: false };
        journal.note(make("/one")).unwrap();
        let mut reader = Reader::default();
        assert_eq!(reader.look(&state).unwrap().unwrap().changes.len(), 1);
        // Somebody spoils what was read: it is not read again.
        let length = std::fs::metadata(path(&state)).unwrap().len();
        std::fs::write(path(&state), "x".repeat(length as usize - 1) + "\n").unwrap();
        let mut journal = Journal::resume(&state, reader).unwrap();
        journal.note(make("/two")).unwrap();
        journal.note(make("/one")).unwrap();
        journal.tell(Record::Await { seconds: 5 }).unwrap();
        let mut reader = journal.end();
        let past = reader.look(&state).unwrap().unwrap();
        assert_eq!((past.changes.len(), past.awaits), (2, Some(5)));
        // Another journal is read from its beginning.
        std::fs::remove_file(path(&state)).unwrap();
        assert!(reader.look(&state).unwrap().is_none());
        Journal::begin(&state, "b1", &shield(), &[], &AppliedBy::default()).unwrap();
        let past = reader.look(&state).unwrap().unwrap();
        assert_eq!((past.boot_id.as_deref(), past.changes.len()), (Some("b1"), 0));
    }

    #[test]
    fn a_journal_that_took_the_place_of_another_is_read_from_its_beginning() {
        // Many file systems give the next file the inode of the one that was removed last.
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        let aside = state.path().join("aside");
        let journal = |tag: usize, many: u64| {
            let lines: String = (1..many).map(line).collect();
            let text = begin(SCHEMA, &format!("9.9.{tag}"), "affinity") + &lines;
            std::fs::write(&aside, text).unwrap();
            std::fs::rename(&aside, path(&state)).unwrap();
        };
        let mut reader = Reader::default();
        for turn in 1..40 {
            journal(turn, 4);
            let past = reader.look(&state).unwrap().unwrap();
            assert_eq!(past.program.as_deref(), Some(&*format!("9.9.{turn}")));
            // Made smaller twice before the next look.
            journal(1000, 2);
            journal(turn + 1, 9);
            let past = reader.look(&state).unwrap().unwrap();
            assert_eq!(past.program.as_deref(), Some(&*format!("9.9.{}", turn + 1)));
            assert_eq!((past.changes.len(), past.unread.len()), (8, 0), "turn {turn}");
        }
    }

    #[test]
    fn a_rehearsal_leaves_journal_and_reader_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        Journal::begin(&state, "b0", &shield(), &[], &AppliedBy::default()).unwrap();
        let text = std::fs::read(path(&state)).unwrap();
        let mut reader = Reader::default();
        reader.look(&state).unwrap();
        let mut journal = Journal::rehearse(reader);
        journal.note(Change::Hold).unwrap();
        journal.seal(Record::Await { seconds: 5 }).unwrap();
        let mut reader = journal.end();
        let past = reader.look(&state).unwrap().unwrap();
        assert_eq!((past.changes.len(), past.awaits), (0, None));
        assert_eq!(std::fs::read(path(&state)).unwrap(), text);
    }

    #[test]
    fn what_a_power_cut_leaves_of_unwritten_bytes_is_no_line() {
        let begin = begin(SCHEMA, VERSION, "affinity");
        let past = parse(&format!("{begin}{}\0\0\0\0\n{}", line(1), line(2))).unwrap();
        assert_eq!((past.changes.len(), past.unread.len()), (2, 0));
    }

    #[test]
    fn many_threads_are_noted_in_several_lines_and_read_as_noted() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        let mut journal =
            Journal::begin(&state, "b0", &shield(), &[], &AppliedBy::default()).unwrap();
        let thread = |tid| Thread { tid, start: 1, comm: "x".into() };
        let cpus: CpuSet = "0-1".parse().unwrap();
        let many = THREADS as u32 * 2 + 5;
        let threads: Vec<_> = (0..many).map(|tid| (thread(tid), cpus.clone())).collect();
        journal.note(Change::Remember { threads: threads.clone() }).unwrap();
        let past = read(&state).unwrap().unwrap();
        let lists: Vec<_> = past
            .changes
            .iter()
            .map(|(_, change)| match change {
                Change::Remember { threads } => threads.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lists.len(), 3);
        assert_eq!(lists.concat(), threads);
    }
}
