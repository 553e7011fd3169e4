//! Records that wait to be sent: a file each, numbered in their order, written aside and renamed. What was put is noted, so that nothing
//! is put twice; what was taken on by a server is removed. Where it grows too large, the oldest minutes of playing chains are added up,
//! by the hour, and then dropped, and both are told; kept runs, proofs and tunes stay.

use crate::{
    Error, MemberDir, Result, SecretKey,
    sealed::{self, LARGEST, seal},
};
use quiet_linux::files::{self, Replace};
use quiet_types::farm::{FarmKind, FarmRecord};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long is waited for another process that has it open.
const PATIENCE: Duration = Duration::from_secs(10);
/// Notes are read up to here: some million records.
const LARGEST_NOTES: u64 = 256 << 20;
const HOUR: i64 = 3_600_000;

/// A record that waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Its place in the order.
    pub number: u64,
    /// Whether it is of a playing chain: the only kind that is ever thinned.
    pub live: bool,
    path: PathBuf,
    size: u64,
}

/// What was thinned since this machine joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinned {
    /// Records that were added up into others.
    pub added_up: u64,
    /// Records that were dropped.
    pub dropped: u64,
}

/// The outbox of a member, for one process at a time.
#[derive(Debug)]
pub struct Outbox {
    dir: PathBuf,
    home: PathBuf,
    noted: BTreeSet<String>,
    notes: File,
    waiting: Vec<Waiting>,
    next: u64,
    _lock: File,
}

impl Outbox {
    /// Opens it, and mends what a process that was killed left.
    ///
    /// # Errors
    /// When another process has it open for longer than ten seconds, or it cannot be read or written.
    pub fn open(member: &MemberDir) -> Result<Outbox> {
        let home = member.path().to_owned();
        let dir = home.join("outbox");
        files::make_dir(&dir).map_err(|error| Error::io("make", &dir, &error))?;
        let why = "another `quietcores farm` has the outbox; end it, or wait for it";
        let lock = lock(&home.join("lock"), PATIENCE, why)?;
        let path = home.join("noted");
        let broken = |error: io::Error| Error::io("use", &path, &error);
        let notes = File::options().create(true).append(true).open(&path).map_err(broken)?;
        let text = files::read(&path, LARGEST_NOTES).map_err(broken)?;
        // A torn last line is no note: its record is found waiting and noted once more.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            notes.set_len(whole as u64).map_err(broken)?;
        }
        let text = String::from_utf8_lossy(&text[..whole]);
        let noted = text.lines().map(str::to_owned).collect();
        let mut outbox =
            Outbox { dir, home, noted, notes, waiting: Vec::new(), next: 0, _lock: lock };
        outbox.look()?;
        outbox.mend()?;
        Ok(outbox)
    }

    fn look(&mut self) -> Result<()> {
        self.waiting.clear();
        let broken = |error: io::Error| Error::io("list", &self.dir, &error);
        for entry in fs::read_dir(&self.dir).map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".rec")) else {
                continue;
            };
            let Some((number, kind)) = name.split_once('-') else { continue };
            let (Ok(number), Ok(meta)) = (number.parse(), entry.metadata()) else { continue };
            let path = entry.path();
            self.waiting.push(Waiting { number, live: kind == "live", path, size: meta.len() });
        }
        self.waiting.sort();
        let last = self.waiting.last().map_or(0, |last| last.number);
        self.next = 1 + last.max(self.number("sent")).max(self.number("tried"));
        Ok(())
    }

    fn mend(&mut self) -> Result<()> {
        // The newest one may have been put and not noted.
        if let Some(last) = self.waiting.last().cloned()
            && let Ok(opened) = sealed::open(&self.read(&last)?)
        {
            self.note(&note_of(&opened.record))?;
        }
        let marker = self.home.join("thinning");
        if marker.exists() {
            // What lies within an added-up record is in it.
            let mut within: Option<FarmRecord> = None;
            for one in self.waiting.clone().into_iter().filter(|one| one.live) {
                let Ok(opened) = sealed::open(&self.read(&one)?) else { continue };
                let record = opened.record;
                match &within {
                    Some(sum)
                        if record.setting == sum.setting
                            && record.at > sum.at
                            && record.at < sum.at + ms(sum) =>
                    {
                        self.remove(&one)?;
                    }
                    _ if record.merged > 1 => within = Some(record),
                    _ => {}
                }
            }
            self.look()?;
            fs::remove_file(&marker).map_err(|error| Error::io("remove", &marker, &error))?;
        }
        Ok(())
    }

    /// A number that is kept in a file of its own.
    fn number(&self, name: &str) -> u64 {
        let text = files::read_text(&self.home.join(name), 64).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn keep(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.home.join(name);
        let done = files::write_whole(&path, bytes, Replace::Always);
        done.map_err(|error| Error::io("write", &path, &error))
    }

    fn note(&mut self, note: &str) -> Result<()> {
        if note.is_empty() || self.noted.contains(note) {
            return Ok(());
        }
        let write = |mut file: &File| {
            let whole = file.metadata()?.len();
            let done =
                file.write_all(format!("{note}\n").as_bytes()).and_then(|()| file.sync_data());
            // Of a disk that became full within the line, nothing stays of it: the next one would be added to it.
            done.or_else(|error| file.set_len(whole).and(Err(error)))
        };
        write(&self.notes).map_err(|e| Error::io("write", &self.home.join("noted"), &e))?;
        self.noted.insert(note.to_owned());
        Ok(())
    }

    /// Whether something kept was put before.
    pub fn knows(&self, kind: FarmKind, id: &str) -> bool {
        self.noted.contains(&format!("{} {id}", kind.word()))
    }

    /// Puts a record at the end; false where it was put before. It is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be kept, or is larger than a record may be ([`Error::is_of_the_record`]).
    pub fn put(&mut self, record: &FarmRecord, key: &SecretKey) -> Result<bool> {
        if self.knows(record.kind, &record.id) {
            return Ok(false);
        }
        let told = self.home.join("untold");
        let mut record = record.clone();
        let untold = self.number("untold");
        if record.kind == FarmKind::Live && untold > 0 {
            record.says = format!("{untold} records before it were dropped: the outbox was full");
        }
        let live = record.kind == FarmKind::Live;
        let number = self.next;
        self.write(number, live, &seal(&record, key)?)?;
        self.note(&note_of(&record))?;
        if live && untold > 0 {
            let _ = fs::remove_file(told);
        }
        self.next += 1;
        Ok(true)
    }

    fn write(&mut self, number: u64, live: bool, bytes: &[u8]) -> Result<()> {
        let kind = if live { "live" } else { "kept" };
        let path = self.dir.join(format!("{number:012}-{kind}.rec"));
        let done = files::write_whole(&path, bytes, Replace::Always);
        done.map_err(|error| Error::io("write", &path, &error))?;
        let one = Waiting { number, live, path, size: bytes.len() as u64 };
        match self.waiting.iter_mut().find(|known| known.number == number) {
            Some(known) => *known = one,
            None => self.waiting.push(one),
        }
        Ok(())
    }

    /// What waits, in its order.
    pub fn waiting(&self) -> &[Waiting] {
        &self.waiting
    }

    /// The bytes of one.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read(&self, one: &Waiting) -> Result<Vec<u8>> {
        let bytes = files::read(&one.path, LARGEST as u64);
        bytes.map_err(|error| Error::io("read", &one.path, &error))
    }

    /// Up to this one, records are about to be sent: from now on nobody knows whether a server has them.
    ///
    /// # Errors
    /// When that cannot be kept.
    pub fn tried(&mut self, number: u64) -> Result<()> {
        if number > self.number("tried") {
            self.keep("tried", number.to_string().as_bytes())?;
        }
        Ok(())
    }

    /// A server has it.
    ///
    /// # Errors
    /// When it cannot be removed; then it is sent once more, and known as a repeat.
    pub fn sent(&mut self, number: u64) -> Result<()> {
        let Some(one) = self.waiting.iter().find(|one| one.number == number).cloned() else {
            return Ok(());
        };
        // The numbers go on where the folder is empty.
        if self.waiting.len() == 1 {
            self.keep("sent", number.to_string().as_bytes())?;
        }
        self.remove(&one)
    }

    /// A record that this disk has broken: it stays beside the outbox, as `NAME.bad`, and is sent no more.
    ///
    /// # Errors
    /// When it cannot be renamed.
    pub fn set_aside(&mut self, one: &Waiting) -> Result<()> {
        let bad = one.path.with_extension("bad");
        fs::rename(&one.path, bad).map_err(|error| Error::io("rename", &one.path, &error))?;
        self.waiting.retain(|other| other.number != one.number);
        Ok(())
    }

    fn remove(&mut self, one: &Waiting) -> Result<()> {
        fs::remove_file(&one.path).map_err(|error| Error::io("remove", &one.path, &error))?;
        self.waiting.retain(|other| other.number != one.number);
        Ok(())
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.waiting.iter().map(|one| one.size).sum()
    }

    /// What was thinned so far.
    pub fn thinned(&self) -> Thinned {
        let text = files::read_text(&self.home.join("thinned"), 4096).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Makes room where it holds more than `bound` bytes: the oldest minutes of playing chains are added up by the hour; where that is
    /// not enough, the oldest are dropped. Says what was done this time.
    ///
    /// # Errors
    /// When something cannot be written or removed.
    pub fn thin(&mut self, bound: u64, key: &SecretKey) -> Result<Thinned> {
        let mut done = Thinned::default();
        if self.size() <= bound {
            return Ok(done);
        }
        // On a full disk nothing can be added up: what is dropped then makes room, and the next opening mends what was begun.
        let added_up = self.keep("thinning", b"").and_then(|()| {
            self.add_up(bound, key, &mut done)?;
            let marker = self.home.join("thinning");
            fs::remove_file(&marker).map_err(|error| Error::io("remove", &marker, &error))
        });
        while self.size() > bound {
            let Some(oldest) = self.waiting.iter().find(|one| one.live).cloned() else { break };
            let merged = sealed::open(&self.read(&oldest)?).map_or(1, |one| one.record.merged);
            let untold = (self.number("untold") + u64::from(merged)).to_string();
            let kept = self.keep("untold", untold.as_bytes());
            self.remove(&oldest)?;
            // On a full disk the record's own room is what it fits into.
            kept.or_else(|_| self.keep("untold", untold.as_bytes()))?;
            done.dropped += u64::from(merged);
        }
        let all = self.thinned();
        let all =
            Thinned { added_up: all.added_up + done.added_up, dropped: all.dropped + done.dropped };
        self.keep("thinned", &serde_json::to_vec(&all).unwrap_or_default())?;
        added_up.map(|()| done)
    }

    /// A record that a server may have is left alone: added to others it would count twice.
    fn add_up(&mut self, bound: u64, key: &SecretKey, done: &mut Thinned) -> Result<()> {
        let tried = self.number("tried");
        let all = self.waiting.clone();
        let mut sum: Option<(u64, FarmRecord)> = None;
        for one in all.into_iter().filter(|one| one.live && one.number > tried) {
            if self.size() <= bound {
                break;
            }
            let Ok(opened) = sealed::open(&self.read(&one)?) else { continue };
            let record = opened.record;
            let same = |a: &FarmRecord| {
                a.setting == record.setting
                    && a.host == record.host
                    && a.at / HOUR == record.at / HOUR
            };
            match &mut sum {
                Some((number, all)) if same(all) && record.at > all.at => {
                    add(all, &record);
                    let (number, bytes) = (*number, seal(all, key)?);
                    self.write(number, true, &bytes)?;
                    self.remove(&one)?;
                    done.added_up += 1;
                }
                _ => sum = Some((one.number, record)),
            }
        }
        Ok(())
    }
}

/// Adds a later record of the same chain under the same setting.
fn add(all: &mut FarmRecord, other: &FarmRecord) {
    let until = (other.at + ms(other)).max(all.at + ms(all));
    all.lasted = quiet_types::Nanos(u64::try_from(until - all.at).unwrap_or(0) * 1_000_000);
    let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
    all.expected = both(all.expected, other.expected);
    all.late = both(all.late, other.late);
    all.missed = both(all.missed, other.missed);
    all.merged += other.merged;
    all.readings.merge(&other.readings);
    if all.says.is_empty() {
        all.says.clone_from(&other.says);
    }
}

fn ms(record: &FarmRecord) -> i64 {
    (record.lasted.0 / 1_000_000) as i64
}

/// Minutes of a chain have ids of their time: they need no note.
fn note_of(record: &FarmRecord) -> String {
    match record.kind {
        FarmKind::Live => String::new(),
        kind => format!("{} {}", kind.word(), record.id),
    }
}

/// A lock on a file, for as long as that is open; `why` is what is said where somebody else keeps it for longer than `patience`.
pub(crate) fn lock(path: &Path, patience: Duration, why: &str) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(|error| Error::io("open", path, &error))?;
    let began = Instant::now();
    while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        let busy = matches!(error, rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR);
        if !busy {
            return Err(Error::io("lock", path, &error.into()));
        }
        if began.elapsed() >= patience {
            return Err(Error::new(format!("cannot open {}: {why}", path.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::record;

    fn member() -> (tempfile::TempDir, MemberDir, SecretKey) {
        let dir = tempfile::tempdir().unwrap();
        let member = MemberDir::beside(dir.path());
        let key = SecretKey::of(&SecretKey::generate().unwrap()).unwrap();
        (dir, member, key)
    }

    fn kept(n: i64) -> FarmRecord {
        FarmRecord { kind: FarmKind::Run, id: format!("run-{n}"), ..record("a", n, 100) }
    }

    fn records(outbox: &Outbox) -> Vec<FarmRecord> {
        let one = |one: &Waiting| sealed::open(&outbox.read(one).unwrap()).unwrap().record;
        outbox.waiting().iter().map(one).collect()
    }

    #[test]
    fn what_is_put_waits_in_its_order_once_and_numbers_go_on() {
        let (_dir, member, key) = member();
        let mut outbox = Outbox::open(&member).unwrap();
        for n in 0..5 {
            assert!(outbox.put(&kept(n), &key).unwrap());
            assert!(!outbox.put(&kept(n), &key).unwrap());
        }
        drop(outbox);
        let mut outbox = Outbox::open(&member).unwrap();
        assert!(outbox.knows(FarmKind::Run, "run-3") && !outbox.knows(FarmKind::Proof, "run-3"));
        assert_eq!(records(&outbox), (0..5).map(kept).collect::<Vec<_>>());
        let numbers: Vec<u64> = outbox.waiting().iter().map(|one| one.number).collect();
        for number in &numbers {
            outbox.sent(*number).unwrap();
        }
        drop(outbox);
        let mut outbox = Outbox::open(&member).unwrap();
        assert!(outbox.waiting().is_empty() && !outbox.put(&kept(2), &key).unwrap());
        outbox.put(&kept(9), &key).unwrap();
        assert!(outbox.waiting()[0].number > numbers[4]);
    }

    #[test]
    fn a_note_that_was_torn_or_not_made_is_made_up_for() {
        let (_dir, member, key) = member();
        let mut outbox = Outbox::open(&member).unwrap();
        outbox.put(&kept(1), &key).unwrap();
        outbox.put(&kept(2), &key).unwrap();
        drop(outbox);
        let notes = member.path().join("noted");
        for torn in ["run run-1\nrun ru", "run run-1\n"] {
            fs::write(&notes, torn).unwrap();
            let mut outbox = Outbox::open(&member).unwrap();
            assert!(!outbox.put(&kept(2), &key).unwrap(), "{torn:?}");
            assert_eq!(fs::read_to_string(&notes).unwrap(), "run run-1\nrun run-2\n");
        }
    }

    #[test]
    fn a_full_outbox_adds_up_the_oldest_minutes_and_keeps_sums_and_kept_runs() {
        let (_dir, member, key) = member();
        let mut outbox = Outbox::open(&member).unwrap();
        outbox.put(&kept(1), &key).unwrap();
        let start = 1_700_000_000 / 3600 * 3600;
        for n in 0..24 {
            outbox.put(&record("a", start + n * 300, 50), &key).unwrap();
        }
        let sum = |outbox: &Outbox| -> (u64, u64) {
            let live = records(outbox).into_iter().filter(|r| r.kind == FarmKind::Live);
            live.fold((0, 0), |(n, merged), r| (n + r.readings.count, merged + u64::from(r.merged)))
        };
        let before = sum(&outbox);
        let (first, size) = (outbox.waiting()[1].number, outbox.size());
        // A server may have the first one.
        outbox.tried(first).unwrap();
        let done = outbox.thin(size / 2, &key).unwrap();
        assert!(done.added_up > 0 && done.dropped == 0 && outbox.size() <= size / 2, "{done:?}");
        assert_eq!(sum(&outbox), before);
        assert!(records(&outbox).iter().all(|r| r.at / HOUR == (r.at + ms(r) - 1) / HOUR));
        assert_eq!(records(&outbox)[1].merged, 1, "it may be on a server");
        let done = outbox.thin(1, &key).unwrap();
        assert_eq!(records(&outbox), [kept(1)]);
        assert_eq!(outbox.thinned().dropped, done.dropped);
        assert_eq!(u64::from(before.1 as u32), done.dropped);
        outbox.put(&record("a", start + 9000, 50), &key).unwrap();
        outbox.put(&record("a", start + 9300, 50), &key).unwrap();
        let told: Vec<String> = records(&outbox).into_iter().map(|r| r.says).collect();
        assert!(told[1].starts_with("24 records before it were dropped") && told[2].is_empty());
    }

    #[test]
    fn a_thinning_that_was_killed_counts_nothing_twice() {
        let (_dir, member, key) = member();
        let mut outbox = Outbox::open(&member).unwrap();
        let start = 1_700_000_000 / 3600 * 3600;
        for n in 0..4 {
            outbox.put(&record("a", start + n * 300, 50), &key).unwrap();
        }
        let all = records(&outbox);
        let mut two = all[0].clone();
        add(&mut two, &all[1]);
        // Killed when the sum was written and what is in it was still there.
        outbox.keep("thinning", b"").unwrap();
        outbox.write(1, true, &seal(&two, &key).unwrap()).unwrap();
        drop(outbox);
        let outbox = Outbox::open(&member).unwrap();
        assert_eq!(records(&outbox), [two, all[2].clone(), all[3].clone()]);
    }
}
