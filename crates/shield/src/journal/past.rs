//! A journal that is read, and what it knows of each thing.

use super::{Guests, Key, LONGEST, LoanNote, Record, SCHEMA, VERSION, key, unreadable};
use crate::{
    change::{Change, same},
    error::{Result, plain},
};
use quiet_linux::files::StateDir;
use quiet_types::{
    CpuSet, GroupPath,
    chain::Link,
    plan::{Action, AppliedBy, Outcome, Return, Step},
    printable,
    shield::Shield,
};
use rustix::fs::OFlags;
use serde::Deserialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    mem::{Discriminant, discriminant},
    os::unix::fs::MetadataExt,
};

/// What a journal tells.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Past {
    pub boot_id: Option<String>,
    pub shield: Option<Shield>,
    pub links: Vec<Link>,
    /// Who asked for it.
    pub by: AppliedBy,
    pub began: Option<String>,
    /// The version of quietcores that began it.
    pub program: Option<String>,
    pub up: Option<String>,
    pub irqs: Vec<(u32, u64)>,
    pub changes: Vec<(u64, Change)>,
    pub outcomes: Vec<(Step, Outcome)>,
    /// The first change that a revert put back: one has begun.
    pub reverting: Option<(u64, Return)>,
    /// CPUs that did not run during a revert.
    pub off_line: CpuSet,
    /// Seconds after which it is put back unless confirmed.
    pub awaits: Option<u64>,
    /// When it was confirmed.
    pub confirmed: Option<String>,
    /// For how long its CPUs are everybody's.
    pub loan: Option<LoanNote>,
    /// Threads that were let in for users.
    pub guests: Guests,
    /// Lines that make no sense: `line 7: ...`.
    pub unread: Vec<String>,
    /// The last word on each thing that was changed: which change, and which of its threads.
    words: HashMap<Thing, (usize, usize)>,
    /// The last outcome of each step.
    ends: HashMap<Aim, usize>,
}

/// What a change is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Write(String),
    File(String),
    Make(GroupPath),
    Ban(Key),
    Irq(u32),
    Hold,
    Moved(Key),
    Placed(Key),
    Scheduled(Key),
}

/// What a step is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Aim {
    Irq(u32),
    Thread(Discriminant<Action>, Key),
    Other(Discriminant<Action>, String),
}

impl Aim {
    pub fn of(action: &Action) -> Aim {
        let kind = discriminant(action);
        match action {
            Action::Irq { number, .. } => Aim::Irq(*number),
            Action::Pin { thread, .. }
            | Action::Enter { thread, .. }
            | Action::Schedule { thread, .. } => Aim::Thread(kind, key(thread)),
            _ => Aim::Other(kind, action.what()),
        }
    }
}

impl Past {
    /// Whether nothing was changed yet: it has no whole first line.
    pub fn is_empty(&self) -> bool {
        self.shield.is_none() && self.changes.is_empty() && self.unread.is_empty()
    }

    /// As far as the first record tells.
    pub(super) fn beginning(&self) -> Past {
        Past {
            boot_id: self.boot_id.clone(),
            shield: self.shield.clone(),
            links: self.links.clone(),
            by: self.by.clone(),
            began: self.began.clone(),
            program: self.program.clone(),
            ..Past::default()
        }
    }

    /// Takes the next record.
    pub(super) fn absorb(&mut self, record: Record) {
        match record {
            Record::Begin { program, boot_id, shield, links, at, owner, uid, .. } => {
                self.program = Some(program);
                self.boot_id = Some(boot_id);
                self.shield = Some(shield);
                self.links = links;
                self.by = AppliedBy { uid, process: owner };
                self.began = Some(at);
            }
            Record::Note { seq, mut change } => {
                if let Change::Irq { number, name, .. } = &mut change
                    && name.is_empty()
                    && let Some(served) = self.served(*number)
                {
                    served.clone_into(name);
                }
                index(&mut self.words, self.changes.len(), &change);
                self.changes.push((seq, change));
            }
            Record::Admitted { thread, entered, uid } => {
                self.guests.enter(thread, entered, uid, self.changes.len());
            }
            Record::Released { thread } => self.guests.leave(&thread, self.changes.len()),
            Record::Outcome { step, outcome } => {
                self.ends.insert(Aim::of(&step.action), self.outcomes.len());
                self.outcomes.push((step, outcome));
            }
            Record::Up { at, irqs } => {
                self.up = Some(at);
                self.irqs = irqs;
            }
            Record::Back { seq, outcome } => {
                self.reverting.get_or_insert((seq, outcome));
            }
            Record::OffLine { cpus } => self.off_line = self.off_line.union(&cpus),
            Record::Await { seconds } => self.awaits = Some(seconds),
            Record::Confirmed { at } => self.confirmed = Some(at),
            Record::Lent(loan) => self.loan = Some(loan),
            Record::TakenBack { id, .. } => {
                self.loan.take_if(|loan| loan.id == id);
            }
        }
    }

    /// Forgets what is noted about threads that were let out. To be called after the last record.
    pub(super) fn settle(&mut self) {
        let entry = self.shield.as_ref().and_then(|shield| shield.entry.as_ref());
        if self.guests.sweep(&mut self.changes, entry.map(|entry| &entry.file)) {
            self.words.clear();
            for (at, (_, change)) in self.changes.iter().enumerate() {
                index(&mut self.words, at, change);
            }
        }
    }

    fn last(&self, thing: Thing) -> Option<(&Change, usize)> {
        let (at, which) = self.words.get(&thing)?;
        Some((&self.changes.get(*at)?.1, *which))
    }

    /// What an interrupt served when it was last changed. One that serves nobody any more is still its: its device is on its way out,
    /// and the number may go to another.
    pub fn served(&self, number: u32) -> Option<&str> {
        match self.last(Thing::Irq(number))?.0 {
            Change::Irq { name, .. } if !name.is_empty() => Some(name),
            _ => None,
        }
    }

    /// Whether it tells that a group was made.
    pub fn made(&self, group: &GroupPath) -> bool {
        self.words.contains_key(&Thing::Make(group.clone()))
    }

    /// The last word on what a step changes.
    pub fn end(&self, action: &Action) -> Option<&(Step, Outcome)> {
        self.outcomes.get(*self.ends.get(&Aim::of(action))?)
    }

    /// The last word on each thing that a step changes, in the order in which they came.
    pub fn last_outcomes(&self) -> impl Iterator<Item = &(Step, Outcome)> {
        self.outcomes.iter().enumerate().filter_map(|(at, end)| {
            (self.ends.get(&Aim::of(&end.0.action)) == Some(&at)).then_some(end)
        })
    }

    /// Whether a change, or what it tells of its thread at `which`, is the last word on what it is about.
    pub(super) fn is_last(&self, at: usize, which: usize) -> bool {
        let of = self.changes.get(at).and_then(|(_, change)| thing(change, which));
        of.is_some_and(|thing| self.words.get(&thing) == Some(&(at, which)))
    }

    /// The number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.changes.iter().map(|(seq, _)| seq + 1).max().unwrap_or(1)
    }

    /// Whether undoing what is noted undoes `change` as well: the last word on the same thing is the same.
    pub(super) fn knows(&self, change: &Change) -> bool {
        match change {
            Change::Remember { .. } => true,
            Change::Make { path, .. } => self.made(path),
            Change::Hold => self.last(Thing::Hold).is_some(),
            Change::Write { path, new, form, device, .. } => {
                matches!(self.last(Thing::Write(path.clone())),
                    Some((Change::Write { new: n, device: of, .. }, _))
                        if same(*form, n, new) && of == device)
            }
            Change::File { path, new, .. } => {
                matches!(self.last(Thing::File(path.clone())),
                    Some((Change::File { new: n, .. }, _)) if n == new)
            }
            Change::DropIn { path, new, .. } => {
                matches!(self.last(Thing::File(path.clone())),
                    Some((Change::DropIn { new: n, .. }, _)) if n == new)
            }
            Change::Ban { daemon, told, .. } => {
                matches!(self.last(Thing::Ban(key(daemon))),
                    Some((Change::Ban { told: t, .. }, _)) if t == told)
            }
            Change::Irq { number, name, new, .. } => {
                matches!(self.last(Thing::Irq(*number)),
                    Some((Change::Irq { name: of, new: to, .. }, _)) if of == name && to == new)
            }
            Change::Scheduling { thread, new, .. } => {
                matches!(self.last(Thing::Scheduled(key(thread))),
                    Some((Change::Scheduling { new: to, .. }, _)) if to == new)
            }
            Change::Move { to, threads, .. } => threads.iter().all(|(thread, _)| {
                matches!(self.last(Thing::Moved(key(thread))),
                    Some((Change::Move { to: t, .. }, _)) if t == to)
            }),
            Change::Affinity { threads } => threads.iter().all(|one| {
                matches!(self.last(Thing::Placed(key(&one.thread))),
                    Some((Change::Affinity { threads }, which))
                        if threads.get(which).is_some_and(|other| other.new == one.new))
            }),
        }
    }

    /// Why a line that is not understood is in it, and what to do.
    pub fn stranger(&self, line: &str) -> String {
        let by = self.program.as_deref().unwrap_or("an unknown version");
        format!(
            "this quietcores {VERSION} does not understand {line}; the journal was begun by quietcores {}, and is \
             kept: run `quietcores revert` of the newest version that was used since",
            printable(by, 40)
        )
    }
}

/// Takes the last word on each thing from the change at `at`.
fn index(words: &mut HashMap<Thing, (usize, usize)>, at: usize, change: &Change) {
    for (which, thing) in (0..).map_while(|which| Some((which, thing(change, which)?))) {
        words.insert(thing, (at, which));
    }
}

/// What a change is about, of its thread at `which` where it is about threads; `None` beyond the last one.
fn thing(change: &Change, which: usize) -> Option<Thing> {
    match change {
        Change::Remember { .. } => None,
        Change::Move { threads, .. } => threads.get(which).map(|(one, _)| Thing::Moved(key(one))),
        Change::Affinity { threads } => {
            threads.get(which).map(|one| Thing::Placed(key(&one.thread)))
        }
        _ if which > 0 => None,
        Change::Write { path, .. } => Some(Thing::Write(path.clone())),
        Change::File { path, .. } | Change::DropIn { path, .. } => Some(Thing::File(path.clone())),
        Change::Make { path, .. } => Some(Thing::Make(path.clone())),
        Change::Ban { daemon, .. } => Some(Thing::Ban(key(daemon))),
        Change::Irq { number, .. } => Some(Thing::Irq(*number)),
        Change::Scheduling { thread, .. } => Some(Thing::Scheduled(key(thread))),
        Change::Hold => Some(Thing::Hold),
    }
}

/// The first record, as far as every version has it.
#[derive(Deserialize)]
struct Head {
    record: String,
    #[serde(default)]
    schema: String,
    #[serde(default)]
    program: String,
}

/// Who wrote a journal that cannot be read at all.
fn refuse(head: &Head, why: &str) -> String {
    format!(
        "it was written by quietcores {} in the format {}, and this quietcores {VERSION} reads {SCHEMA}{why}; run \
         `quietcores revert` of that version",
        printable(&head.program, 40),
        printable(&head.schema, 60),
    )
}

/// A journal that is read again and again: only what was added since is read, unless it is another one by now.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// What was read, kept open: for as long as it is, no other journal has its inode.
    file: Option<File>,
    /// Bytes of the lines that were read.
    pub(super) read: u64,
    lines: u64,
    /// Bytes after it was compacted.
    pub(super) compacted: u64,
    pub(super) past: Past,
}

impl Reader {
    /// What was read so far.
    pub fn past(&self) -> &Past {
        &self.past
    }

    /// What the journal tells now; `None` where there is none.
    pub fn look(&mut self, state: &StateDir) -> Result<Option<&Past>> {
        let path = super::path(state).display().to_string();
        let file = match state.open_file(super::NAME, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *self = Reader::default();
                return Ok(None);
            }
            Err(error) => return Err(unreadable(&path, &plain(&error))),
        };
        match self.take(file) {
            Ok(()) => Ok(Some(&self.past)),
            Err(why) => {
                *self = Reader::default();
                Err(unreadable(&path, &why))
            }
        }
    }

    /// Takes what was written by ourselves, `lines` up to the byte `length`.
    pub(super) fn wrote(&mut self, told: Vec<Record>, lines: u64, length: u64) {
        told.into_iter().for_each(|record| self.past.absorb(record));
        self.past.settle();
        self.lines += lines;
        self.read = length;
    }

    pub(super) fn take(&mut self, mut file: File) -> std::result::Result<(), String> {
        let meta = file.metadata().map_err(|e| plain(&e))?;
        let is_it = |known: &File| {
            known.metadata().is_ok_and(|old| (old.dev(), old.ino()) == (meta.dev(), meta.ino()))
        };
        if !self.file.as_ref().is_some_and(is_it) || meta.len() < self.read {
            let kept = file.try_clone().map_err(|e| plain(&e))?;
            *self = Reader { file: Some(kept), ..Reader::default() };
        }
        if meta.len() == self.read {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.read)).map_err(|e| plain(&e))?;
        self.take_lines(&mut BufReader::with_capacity(1 << 16, file))
    }

    /// Takes all whole lines. What stands after the last end of line was being written when its writer was killed, or is being
    /// written now: what it announces is not done before its line is whole.
    pub(super) fn take_lines(
        &mut self,
        text: &mut impl BufRead,
    ) -> std::result::Result<(), String> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            text.take(LONGEST + 1).read_until(b'\n', &mut bytes).map_err(|e| plain(&e))?;
            if bytes.pop_if(|last| *last == b'\n').is_none() {
                if bytes.len() as u64 > LONGEST {
                    return Err(format!("line {} is longer than 64 MiB", self.lines + 1));
                }
                break;
            }
            self.read += bytes.len() as u64 + 1;
            self.lines += 1;
            self.line(&String::from_utf8_lossy(&bytes))?;
        }
        self.past.settle();
        let past = &self.past;
        if past.shield.is_none() && (!past.changes.is_empty() || !past.unread.is_empty()) {
            let first = past.unread.first().map_or("line 1", String::as_str);
            return Err(format!(
                "the record that begins it is damaged or not there ({first}); what it tells cannot be put back without"
            ));
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> std::result::Result<(), String> {
        // Zeros are what some file systems leave of bytes that were not on the disk yet when the power went.
        if line.is_empty() || line.contains('\0') {
            return Ok(());
        }
        let parsed = serde_json::from_str::<Record>(line);
        // What another version wrote is told by what every version writes first.
        if self.past.shield.is_none()
            && let Ok(head) = serde_json::from_str::<Head>(line)
            && head.record == "begin"
        {
            match &parsed {
                _ if head.schema != SCHEMA => return Err(refuse(&head, "")),
                Err(error) => return Err(refuse(&head, &format!(" ({error})"))),
                Ok(_) => {}
            }
        }
        match parsed {
            Ok(record) => self.past.absorb(record),
            // Torn, at the end of what a killed apply wrote.
            Err(error) if error.is_eof() => {}
            Err(error) => self.past.unread.push(format!("line {}: {error}", self.lines)),
        }
        Ok(())
    }
}
