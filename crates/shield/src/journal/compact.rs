//! Makes a journal smaller: what it tells of threads that have ended is of no use any more.

use super::{Key, Past, Reader, Record, key, line_of, needed::Needed, past::Aim};
use crate::{change::Change, error::is_gone, tasks};
use quiet_linux::Kernel;
use quiet_linux::fault;
use quiet_linux::files::StateDir;
use quiet_types::plan::{Action, Outcome, Thread};
use rustix::fs::OFlags;
use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, BufReader, BufWriter, Write},
};

/// Shorter journals are left alone.
const WORTH: u64 = 1 << 20;
/// Written here, then renamed.
const ASIDE: &str = "journal.new";

impl Reader {
    /// Compacts the journal where it has grown to twice what it was after the last time: the lock of the state directory must
    /// be held, and no writer be open.
    ///
    /// At any instant, a power cut's included, the journal is the old one or the new one, whole. One that cannot be compacted
    /// stays as it is, and is tried again when it has grown further.
    pub fn compact(&mut self, kernel: &dyn Kernel, state: &StateDir) {
        if self.read < WORTH.max(2 * self.compacted) {
            return;
        }
        if let Ok(Some(reader)) = self.compacted(kernel, state) {
            *self = reader;
        }
        self.compacted = self.read;
        let _ = std::fs::remove_file(state.path().join(ASIDE));
    }

    fn compacted(&self, kernel: &dyn Kernel, state: &StateDir) -> io::Result<Option<Reader>> {
        let past = &self.past;
        // What is not understood cannot be written again; threads are looked for where they were found.
        if !past.unread.is_empty() || !is_same_world(kernel, past) {
            return Ok(None);
        }
        let mut begin = Vec::new();
        let old = state.open_file(super::NAME, OFlags::RDONLY)?;
        BufReader::new(old).read_until(b'\n', &mut begin)?;
        let _ = std::fs::remove_file(state.path().join(ASIDE));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut aside = BufWriter::new(state.open_file(ASIDE, flags)?);
        // Byte for byte: by its first line a journal is known.
        aside.write_all(&begin)?;
        let records = records(kernel, past);
        for record in &records {
            aside.write_all(&line_of(record)?)?;
            fault::point();
        }
        let aside = aside.into_inner().map_err(io::IntoInnerError::into_error)?;
        aside.sync_all()?;
        fault::point();
        // Never a journal that could not be read again.
        let mut reader = Reader::default();
        let file = state.open_file(ASIDE, OFlags::RDONLY)?;
        reader.take(file).map_err(io::Error::other)?;
        let mut meant = past.beginning();
        records.into_iter().for_each(|record| meant.absorb(record));
        meant.settle();
        if reader.past != meant {
            return Err(io::Error::other("the compacted journal does not read as it was written"));
        }
        state.rename(ASIDE, super::NAME)?;
        fault::point();
        Ok(Some(reader))
    }
}

/// Whether the threads of `/proc` are those that the journal names: from another PID namespace every one of them would look ended.
fn is_same_world(kernel: &dyn Kernel, past: &Past) -> bool {
    let remembered = past.changes.iter().filter_map(|(_, change)| match change {
        Change::Remember { threads } => Some(threads),
        _ => None,
    });
    remembered.flatten().any(|(thread, _)| thread.tid == 1 && tasks::lives(kernel, thread))
}

/// What was told before in the same words, of what is not the last word on anything: a revert would do the same twice.
struct Told<'a> {
    past: &'a Past,
    /// What is told of a guest's stay begins anew with it.
    guests: HashSet<Key>,
    words: HashSet<String>,
}

impl Told<'_> {
    fn of(past: &Past) -> Told<'_> {
        let guests = past.guests.iter().flat_map(|one| [key(&one.thread), key(&one.entered)]);
        Told { past, guests: guests.collect(), words: HashSet::new() }
    }

    /// Whether `words`, of the change at `at` and its thread at `which`, are told for the first time or count as the last ones. Of whatever
    /// stood in between, the first note tells what it was made of: a revert finds its way back from each.
    fn is_of_use(&mut self, words: String, at: usize, which: usize) -> bool {
        self.words.insert(words) || self.past.is_last(at, which)
    }

    /// As [`Told::is_of_use`], of a thread.
    fn is_of_use_about(&mut self, one: &Thread, words: &str, at: usize, which: usize) -> bool {
        let words = format!("{:?} {words}", key(one));
        self.guests.contains(&key(one)) || self.is_of_use(words, at, which)
    }

    /// The change at `at` without the threads that are told of no more.
    fn trimmed(&mut self, change: &Change, at: usize, stays: &dyn Fn(&Thread) -> bool) -> Change {
        match change {
            Change::Remember { threads } => Change::Remember {
                threads: threads.iter().filter(|(thread, _)| stays(thread)).cloned().collect(),
            },
            Change::Move { mount, from, to, threads } => {
                let words = format!("{from} {to}");
                let needed = threads.iter().enumerate().filter(|(_, (thread, _))| stays(thread));
                let news = needed.filter(|(which, (thread, _))| {
                    self.is_of_use_about(thread, &words, at, *which)
                });
                Change::Move {
                    mount: mount.clone(),
                    from: from.clone(),
                    to: to.clone(),
                    threads: news.map(|(_, one)| one.clone()).collect(),
                }
            }
            Change::Affinity { threads } => {
                let needed = threads.iter().enumerate().filter(|(_, one)| stays(&one.thread));
                let news = needed.filter(|(which, one)| {
                    let words = format!("{} {}", one.old, one.new);
                    self.is_of_use_about(&one.thread, &words, at, *which)
                });
                Change::Affinity { threads: news.map(|(_, one)| one.clone()).collect() }
            }
            other => other.clone(),
        }
    }
}

/// What is left to be told.
fn records(kernel: &dyn Kernel, past: &Past) -> Vec<Record> {
    let needed = Needed::of(kernel, past);
    let stays = |thread: &Thread| needed.thread(thread);
    // Of a device that was pulled out: another one of that name will have values of its own.
    let pulled = |change: &Change| match change {
        Change::Write { path, request, .. } => {
            let of_device =
                path.starts_with("/sys/devices/") && !path.starts_with("/sys/devices/system/");
            of_device && kernel.read(request).is_err_and(|error| is_gone(&error))
                || change.replaced(kernel).is_some()
        }
        _ => false,
    };
    let last_ban =
        past.changes.iter().rposition(|(_, change)| matches!(change, Change::Ban { .. }));
    let (mut gone, mut kept) = (HashSet::new(), HashSet::new());
    let (mut told, mut over) = (Told::of(past), HashSet::new());
    let mut records: Vec<Record> =
        past.awaits.iter().map(|seconds| Record::Await { seconds: *seconds }).collect();
    let admitted = |at: usize| {
        let came = past.guests.came_at(at).filter(|one| stays(&one.thread));
        came.map(|one| Record::Admitted {
            thread: one.thread.clone(),
            entered: one.entered.clone(),
            uid: one.uid,
        })
    };
    for (at, (seq, change)) in past.changes.iter().enumerate() {
        records.extend(admitted(at));
        let change = told.trimmed(change, at, &stays);
        let is_of_use = match &change {
            Change::Move { threads, .. } => !threads.is_empty(),
            Change::Affinity { threads } => !threads.is_empty(),
            Change::Scheduling { thread, .. } => {
                stays(thread) && told.is_of_use_about(thread, &format!("{change:?}"), at, 0)
            }
            Change::Ban { daemon, .. } => stays(daemon) || last_ban == Some(at),
            // What two devices change about on one number is told once of each.
            Change::Irq { number, name, .. } => {
                let is_needed =
                    needed.irq(*number, name) || needed.was_there(*number) && over.insert(*number);
                is_needed && told.is_of_use(format!("{change:?}"), at, 0)
            }
            Change::Write { path, .. } if pulled(&change) => {
                gone.insert(path.clone());
                false
            }
            Change::Write { path, .. } => {
                kept.insert(path.clone());
                told.is_of_use(format!("{change:?}"), at, 0)
            }
            _ => true,
        };
        if is_of_use {
            records.push(Record::Note { seq: *seq, change });
        }
    }
    records.extend(admitted(past.changes.len()));
    let wanted = |action: &Action| match action {
        Action::Pin { thread, .. }
        | Action::Enter { thread, .. }
        | Action::Schedule { thread, .. } => stays(thread),
        Action::Write { path, .. } => !gone.contains(path) || kept.contains(path),
        Action::Irq { number, .. } => needed.number(*number),
        _ => true,
    };
    let last = last_of(past, |_| true);
    let held = last_of(past, Outcome::holds);
    for (at, (step, outcome)) in past.outcomes.iter().enumerate() {
        if wanted(&step.action) && (last.contains(&at) || held.contains(&at)) {
            records.push(Record::Outcome { step: step.clone(), outcome: outcome.clone() });
        }
    }
    records.extend(past.up.iter().map(|at| Record::Up { at: at.clone(), irqs: past.irqs.clone() }));
    records.extend(past.confirmed.iter().map(|at| Record::Confirmed { at: at.clone() }));
    records.extend(past.loan.iter().cloned().map(Record::Lent));
    if !past.off_line.is_empty() {
        records.push(Record::OffLine { cpus: past.off_line.clone() });
    }
    let back =
        |(seq, outcome): &(u64, _)| Record::Back { seq: *seq, outcome: Clone::clone(outcome) };
    records.extend(past.reverting.iter().map(back));
    records
}

/// Where the last outcomes of each step stand, of those that `counts`.
fn last_of(past: &Past, counts: impl Fn(&Outcome) -> bool) -> HashSet<usize> {
    let all = past.outcomes.iter().enumerate();
    let last: HashMap<Aim, usize> = all
        .filter(|(_, (_, outcome))| counts(outcome))
        .map(|(at, (step, _))| (Aim::of(&step.action), at))
        .collect();
    last.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{change::Confined, journal::Journal, nobody};
    use quiet_testing::fake::{Fake, Hierarchy, Temper, at, world};
    use quiet_types::{
        CpuSet,
        machine::{Policy, Scheduling},
        plan::{AppliedBy, Need, Step},
        shield::{Mechanism, Shield},
    };
    use std::{
        fs,
        os::unix::process::ExitStatusExt,
        path::Path,
        process::{Command, Stdio},
    };

    const STATE: &str = "QUIETCORES_COMPACT_STATE";
    /// More than a thread's notes, so that its journal is worth to be compacted.
    const MANY: u32 = 12_000;

    fn thread(tid: u32) -> Thread {
        Thread { tid, start: nobody::START, comm: format!("t{tid}") }
    }

    /// The first process's notes, and those of many others of which none lives.
    fn journal(state: &StateDir) {
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let shield = Shield {
            cpus: set("1"),
            housekeeping: set("0"),
            mechanism: Mechanism::Affinity,
            entry: None,
        };
        let mut journal = Journal::begin(state, "b0", &shield, &[], &AppliedBy::default()).unwrap();
        let one = |tid| Confined { thread: thread(tid), old: set("0-1"), new: set("0") };
        let threads = (1..MANY).map(|tid| (thread(tid), set("0-1"))).collect();
        journal.note(Change::Remember { threads }).unwrap();
        journal.note(Change::Affinity { threads: (1..MANY).map(one).collect() }).unwrap();
        let sched = |policy, priority| Scheduling { policy, priority, nice: 0 };
        let (old, new) = (sched(Policy::Other, 0), sched(Policy::Fifo, 70));
        for tid in 2..5 {
            journal
                .note(Change::Scheduling {
                    thread: thread(tid),
                    old,
                    slice: None,
                    new,
                    afresh: false,
                })
                .unwrap();
        }
        for tid in 1..4 {
            let action = Action::Pin { thread: thread(tid), cpus: set("0") };
            let step = Step { action, old: None, why: String::new(), need: Need::BestEffort };
            journal.tell(Record::Outcome { step, outcome: Outcome::Already }).unwrap();
        }
        journal.seal(Record::Up { at: "now".into(), irqs: vec![(7, 9)] }).unwrap();
    }

    fn look(state: &StateDir) -> Reader {
        let mut reader = Reader::default();
        reader.look(state).unwrap().unwrap();
        reader
    }

    /// What is left of it: of the first process all, of an ended thread with a priority one.
    fn is_small(past: &Past) {
        let told: Vec<String> =
            past.changes.iter().map(|(seq, change)| format!("{seq} {}", change.what())).collect();
        assert_eq!(
            told,
            ["1 CPUs of 2 threads", "2 CPUs of 2 threads", "3 scheduling of thread 2 (t2)"]
        );
        assert_eq!(past.outcomes.len(), 2);
        assert_eq!((past.up.as_deref(), past.irqs.as_slice()), (Some("now"), [(7, 9)].as_slice()));
    }

    #[test]
    fn what_is_told_of_ended_threads_goes_and_the_journal_stays_known() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        journal(&state);
        let known = crate::journal::identity(&state).unwrap();
        let mut reader = look(&state);
        reader.compact(&nobody::Nobody::default(), &state);
        is_small(&reader.past);
        is_small(&look(&state).past);
        assert!(fs::metadata(crate::journal::path(&state)).unwrap().len() < 4096);
        assert_eq!(crate::journal::identity(&state).unwrap(), known);
        // It is written further, and read from where it was left.
        let mut journal = Journal::resume(&state, reader).unwrap();
        journal.note(Change::Make { path: "/x".parse().unwrap(), unit: false }).unwrap();
        let reader = journal.end();
        assert_eq!(reader.past.changes.last().unwrap().0, 4);
        assert_eq!(reader.past, look(&state).past);
    }

    #[test]
    fn a_journal_with_a_line_of_a_stranger_or_of_other_processes_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        journal(&state);
        let text = fs::read_to_string(crate::journal::path(&state)).unwrap();
        let first = format!("\"start\":{},\"comm\":\"t1\"", nobody::START);
        for other in [
            format!("{text}{{\"record\":\"dance\"}}\n"),
            text.replace(&first, "\"start\":77,\"comm\":\"t1\""),
        ] {
            assert_ne!(other, text);
            fs::write(crate::journal::path(&state), &other).unwrap();
            look(&state).compact(&nobody::Nobody::default(), &state);
            assert_eq!(fs::read_to_string(crate::journal::path(&state)).unwrap(), other);
        }
    }

    /// A kernel on which the first process and two others run, and interrupts 40 and 41.
    fn kernel() -> Fake {
        Fake::new(world(Hierarchy::V1, 2, &[Temper::Moves; 2], &[3, 3]))
    }

    #[test]
    fn what_nobody_may_have_inherited_is_told_of_nobody() {
        let kernel = kernel();
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        journal(&state);
        let mut reader = look(&state);
        let mut largest = 0;
        let many = if quiet_testing::is_long() { 200_000 } else { 6_000 };
        for turn in 0..many / 100 {
            let mut journal = Journal::resume(&state, std::mem::take(&mut reader)).unwrap();
            for tid in (turn * 100..turn * 100 + 100).map(|tid| tid + 20_000) {
                let thread = thread(tid);
                journal.note_guest(&thread, &thread, 1000).unwrap();
                // Each comes from a group of its own, which ends with it, and has priorities of its own.
                let group = |name: String| at(&name).join("tasks");
                let threads = vec![(thread.clone(), set("0"))];
                let (from, to) = (group(format!("app-{tid}.scope")), group("shield".into()));
                journal.note(Change::Move { mount: at(""), from, to, threads }).unwrap();
                let one = Confined { thread: thread.clone(), old: set("0"), new: set("1") };
                journal.note(Change::Affinity { threads: vec![one] }).unwrap();
                let nice = (tid % 40) as i8 - 20;
                let old = Scheduling { policy: Policy::Other, priority: 0, nice };
                let priority = 1 + (tid / 40 % 99) as u8;
                let new = Scheduling { policy: Policy::Rr, priority, nice: 0 };
                let change = Change::Scheduling { thread, old, slice: None, new, afresh: true };
                journal.note(change).unwrap();
            }
            reader = journal.end();
            largest = largest.max(fs::metadata(crate::journal::path(&state)).unwrap().len());
            reader.compact(&kernel, &state);
        }
        assert!(largest < 8 << 20, "{largest} bytes");
        reader.compacted = 0;
        reader.read = WORTH;
        reader.compact(&kernel, &state);
        let length = fs::metadata(crate::journal::path(&state)).unwrap().len();
        assert!(length < 4096, "{length} bytes");
        // Somebody who lives may have it of one that has ended.
        kernel.world.borrow_mut().tasks.get_mut(&101).unwrap().scheduling =
            Scheduling { policy: Policy::Fifo, priority: 70, nice: 0 };
        fs::remove_file(crate::journal::path(&state)).unwrap();
        journal(&state);
        let mut reader = look(&state);
        reader.compact(&kernel, &state);
        is_small(&reader.past);
    }

    #[test]
    fn interrupts_that_are_gone_are_told_of_no_more() {
        let kernel = kernel();
        for (number, name) in [(40, "nvme0"), (41, "xhci_hcd")] {
            let file = format!("/sys/kernel/irq/{number}/actions");
            kernel.world.borrow_mut().files.insert(file, name.into());
        }
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        journal(&state);
        let mut journal = Journal::resume(&state, look(&state)).unwrap();
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let (mut irqs, mut noted) = (Vec::new(), 0);
        // 7 was there before all, and is gone; 41 was another device's.
        for (number, names) in [(7, ["a", "b"]), (40, ["nvme0", "eth0"]), (41, ["eth1", "eth1"])] {
            irqs.extend(names.map(|name| (number, name)));
        }
        irqs.extend((1000..1500).map(|number| (number, "vf")));
        for (number, name) in irqs {
            let (old, new, name) = (set("0-1"), set("0"), name.to_owned());
            let effective = None;
            journal.note(Change::Irq { number, name, old, effective, new }).unwrap();
            let action = Action::Irq { number, name: String::new(), cpus: set("0") };
            let step = Step { action, old: None, why: String::new(), need: Need::BestEffort };
            journal.tell(Record::Outcome { step, outcome: Outcome::Already }).unwrap();
            noted += 1;
        }
        assert!(noted > 500);
        let mut reader = journal.end();
        reader.compact(&kernel, &state);
        let told = |past: &Past| -> Vec<(u32, String)> {
            let irqs = past.changes.iter().filter_map(|(_, change)| match change {
                Change::Irq { number, name, .. } => Some((*number, name.clone())),
                _ => None,
            });
            irqs.collect()
        };
        let wanted = [(7, "a".to_owned()), (40, "nvme0".to_owned())];
        assert_eq!(told(&reader.past), wanted);
        assert_eq!(told(&look(&state).past), wanted);
        let outcomes = reader.past.outcomes.iter().filter_map(|(step, _)| match &step.action {
            Action::Irq { number, .. } => Some(*number),
            _ => None,
        });
        assert_eq!(outcomes.collect::<Vec<_>>(), [40, 41]);
    }

    /// Not a test of its own: what the next one kills.
    #[test]
    fn compacts_where_it_is_asked_to() {
        let Some(state) = std::env::var_os(STATE) else { return };
        let state = StateDir::open(Path::new(&state)).unwrap().unwrap();
        look(&state).compact(&nobody::Nobody::default(), &state);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn killed_at_any_instant_the_journal_is_the_old_one_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::make(&dir.path().join("state")).unwrap();
        journal(&state);
        let text = fs::read(crate::journal::path(&state)).unwrap();
        let (mut old, mut new) = (0, 0);
        for act in 1.. {
            fs::write(crate::journal::path(&state), &text).unwrap();
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "journal::compact::tests::compacts_where_it_is_asked_to"])
                .env(STATE, state.path())
                .env("QUIETCORES_FAULT", format!("kill:{act}"))
                .stdout(Stdio::null())
                .status()
                .unwrap();
            if fs::read(crate::journal::path(&state)).unwrap() == text {
                old += 1;
            } else {
                is_small(&look(&state).past);
                new += 1;
            }
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "act {act}: {status}");
            // What the killed one has left is in nobody's way.
            let mut reader = look(&state);
            reader.compact(&nobody::Nobody::default(), &state);
            is_small(&reader.past);
            assert!(!state.path().join(ASIDE).exists());
        }
        assert!(old > 5 && new > 1, "killed {old} times before the rename, {new} times after");
    }
}
