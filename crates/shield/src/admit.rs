//! Threads that are let into a shield that is up, for whoever asked; and taken their priority where they let nobody else run.

use crate::{
    Kernel, Result,
    apply::{self, Hand},
    change::{Change, Confined},
    error::{Error, ErrorKind, is_gone, plain},
    journal::{self, Journal, Past, Reader, Record},
    revert,
    standing::LockedShield,
    tasks,
};
use quiet_linux::files::StateDir;
use quiet_types::{
    CpuSet, GroupPath,
    machine::{Policy, Scheduling},
    plan::{
        ADMITTED_SCHEMA, Action, Admitted, Need, PutBack, RELEASED_SCHEMA, REVERTED_SCHEMA,
        Released, Return, Reverted, Step, Taken, Thread,
    },
    shield::Shield,
};
use std::{collections::HashMap, io, path::Path, sync::atomic::AtomicBool};

/// A thread that somebody asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrant {
    /// Its number.
    pub tid: u32,
    /// Whose it has to be: every user number of its process.
    pub uid: u32,
    /// Where on the shield; `None` for all of it.
    pub cpus: Option<CpuSet>,
    /// How it is to be scheduled; `None` leaves that.
    pub scheduling: Option<Scheduling>,
    /// Mount point of the groups through which the shield is entered.
    pub mount: Option<GroupPath>,
    /// So many threads of that user may be within at a time.
    pub most: usize,
}

/// Lets a thread into the shield that is up: through its door, onto its CPUs, under a policy; each noted, done and read back as
/// the steps of a plan are. [`release`], a revert and the end of the thread end it. `asks` says whether who asked is still there.
///
/// # Errors
/// When no shield is up, the thread is not that user's, too many are within, an essential step fails, or whoever asked or the thread
/// has ended meanwhile. What had been done by then is put back; [`Error::rolled_back`] tells how that went.
pub fn admit(
    kernel: &dyn Kernel,
    state: &Path,
    wish: &Entrant,
    asks: &dyn Fn() -> bool,
) -> Result<Admitted> {
    let none = "no shield is up: apply one first";
    let mut locked = LockedShield::find(kernel, state, none)?;
    // Whoever comes and goes for months leaves no more than he who stays.
    locked.compact(kernel);
    let past = locked.past();
    let shield = past.shield.clone().ok_or_else(|| Error::new(ErrorKind::State, none))?;
    let (thread, process) = theirs(kernel, wish.tid, wish.uid)?;
    within_limits(kernel, past, wish)?;
    let before = kernel.affinity(thread.tid).map_err(|e| unknown(wish.tid, &e))?;
    let steps = steps(&shield, wish, &thread, &process)?;
    let mut journal = locked.journal()?;
    let entered = match &steps.as_slice() {
        [Step { action: Action::Enter { thread, .. }, .. }, ..] => thread,
        _ => &thread,
    };
    let noted = journal.note_guest(&thread, entered, wish.uid).and_then(|()| {
        // Once within, it shows the CPUs of the shield alone.
        let cpus = wish.cpus.as_ref().unwrap_or(&shield.cpus);
        if before == *cpus {
            return Ok(());
        }
        let one = Confined { thread: thread.clone(), old: before, new: cpus.clone() };
        journal.note(Change::Affinity { threads: vec![one] })
    });
    let taken = noted.and_then(|()| take(kernel, &locked.state, &mut journal, &shield, &steps));
    let failed = match &taken {
        Err(_) => None,
        Ok(taken) => match taken.last() {
            Some(Taken { step, outcome }) if step.need == Need::Essential && !outcome.holds() => {
                Some(Error::new(ErrorKind::Step, apply::failed(step, outcome)))
            }
            // Who it was when it was asked about, it still is.
            _ => theirs(kernel, wish.tid, wish.uid).err().or_else(|| {
                let over = "whoever asked has ended meanwhile";
                (!asks()).then(|| Error::new(ErrorKind::Refused, over))
            }),
        },
    };
    match (taken, failed) {
        (Ok(steps), None) => {
            Ok(Admitted { schema: ADMITTED_SCHEMA.to_owned(), thread, shield, steps })
        }
        (Ok(_), Some(why)) | (Err(why), _) => {
            Err(match turn_out(kernel, &locked.state, &mut journal, &thread) {
                Some(items) => why.after(reverted(items)),
                None => why,
            })
        }
    }
}

/// Whether [`admit`] would begin with it; nothing is changed.
///
/// # Errors
/// As [`admit`], where nothing can be let in.
pub fn admissible(kernel: &dyn Kernel, state: &Path, wish: &Entrant) -> Result<()> {
    let none = "no shield is up: apply one first";
    let locked = LockedShield::find(kernel, state, none)?;
    let past = locked.past();
    let shield = past.shield.as_ref().ok_or_else(|| Error::new(ErrorKind::State, none))?;
    let (thread, process) = theirs(kernel, wish.tid, wish.uid)?;
    within_limits(kernel, past, wish)?;
    steps(shield, wish, &thread, &process).map(|_| ())
}

fn take(
    kernel: &dyn Kernel,
    state: &StateDir,
    journal: &mut Journal,
    shield: &Shield,
    steps: &[Step],
) -> Result<Vec<Taken>> {
    let mut taken: Vec<Taken> = Vec::new();
    for step in steps {
        let mut hand = Hand {
            kernel,
            journal,
            state,
            shield,
            holder: None,
            interrupt: &AtomicBool::new(false),
            strangers: true,
            calm: true,
        };
        let outcome = hand.take(step)?;
        journal.tell(Record::Outcome { step: step.clone(), outcome: outcome.clone() })?;
        taken.push(Taken { step: step.clone(), outcome });
        // What is not through the door has no business on its CPUs.
        if taken.last().is_some_and(|one| step.need == Need::Essential && !one.outcome.holds()) {
            break;
        }
    }
    Ok(taken)
}

/// Lets a thread of user `uid` out of the shield again: it has what it had before it was let in. The shield stays.
///
/// # Errors
/// When no shield is up, the thread is not that user's, or was never let in.
pub fn release(kernel: &dyn Kernel, state: &Path, tid: u32, uid: u32) -> Result<Released> {
    let mut locked = LockedShield::find(kernel, state, "no shield is up: nobody is in one")?;
    locked.compact(kernel);
    let (thread, _) = theirs(kernel, tid, uid)?;
    if locked.past().guests.get(&thread).is_none() {
        let why = format!("{thread} was not let into the shield for anybody");
        return Err(Error::new(ErrorKind::Refused, why));
    }
    let mut journal = locked.journal()?;
    let items = match journal.past() {
        Some(past) => let_out(kernel, &locked.state, past, &thread).unwrap_or_default(),
        None => Vec::new(),
    };
    // It is out, whether that can be noted or not.
    let noted = note_out(&mut journal, &thread, &items);
    noted.map_err(|why| why.after(reverted(items.clone())))?;
    Ok(Released { schema: RELEASED_SCHEMA.to_owned(), thread, items })
}

/// Lets out again who could not be let in whole; `None` where the journal tells of nobody.
fn turn_out(
    kernel: &dyn Kernel,
    state: &StateDir,
    journal: &mut Journal,
    thread: &Thread,
) -> Option<Vec<PutBack>> {
    // One that could not be written, as on a full disk, tells on the disk what was done all the same.
    let items = match journal.past() {
        Some(past) => let_out(kernel, state, past, thread)?,
        None => match journal::read(state) {
            Ok(past) => let_out(kernel, state, &past?, thread)?,
            Err(why) => {
                let what = journal::path(state).display().to_string();
                vec![PutBack { what, outcome: Return::Refused { reason: why.to_string() } }]
            }
        },
    };
    // Where that cannot be noted either, a revert finds everything as it was before.
    let _ = note_out(journal, thread, &items);
    Some(items)
}

/// Puts back what the journal tells of a guest's stay; `None` where it tells of none.
fn let_out(
    kernel: &dyn Kernel,
    state: &StateDir,
    past: &Past,
    thread: &Thread,
) -> Option<Vec<PutBack>> {
    let guest = past.guests.get(thread)?;
    let entry = past.shield.as_ref().and_then(|shield| shield.entry.as_ref());
    let stay = past.guests.stay(guest, &past.changes, entry.map(|entry| &entry.file));
    Some(revert::let_out(kernel, state, past, &stay))
}

/// Notes that a thread is out; what was refused stays noted.
fn note_out(journal: &mut Journal, thread: &Thread, items: &[PutBack]) -> Result<()> {
    if items.iter().any(|item| matches!(item.outcome, Return::Refused { .. })) {
        return Ok(());
    }
    journal.seal(Record::Released { thread: thread.clone() })
}

fn reverted(items: Vec<PutBack>) -> Reverted {
    Reverted { schema: REVERTED_SCHEMA.to_owned(), rebooted: false, items, history: None }
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::Refused, why)
}

fn unknown(tid: u32, error: &io::Error) -> Error {
    match is_gone(error) {
        true => refused(format!("there is no thread {tid}")),
        false => refused(format!("cannot read whose thread {tid} is: {}", plain(error))),
    }
}

/// The thread and the first one of its process, where both are wholly the user's.
fn theirs(kernel: &dyn Kernel, tid: u32, uid: u32) -> Result<(Thread, Thread)> {
    let unknown = |error: io::Error| unknown(tid, &error);
    let before = tasks::identity(kernel, tid).map_err(unknown)?;
    let status = kernel.read(&format!("/proc/{tid}/status")).map_err(unknown)?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // All four: real, effective, saved and of the file system. A program that runs as somebody else is not his.
    let mut users = field("Uid:").into_iter().flat_map(str::split_ascii_whitespace).peekable();
    let own = users.peek().is_some() && users.all(|one| one.parse() == Ok(uid));
    if !own || before.kernel || before.dead {
        return Err(refused(format!("thread {tid} is not a thread of user {uid}")));
    }
    let process: u32 = field("Tgid:")
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| refused(format!("the kernel does not name the process of {tid}")))?;
    let process = tasks::identity(kernel, process).map_err(unknown)?.thread;
    let now = tasks::identity(kernel, tid).map_err(unknown)?;
    if now.thread.start != before.thread.start {
        return Err(refused(format!("thread {tid} has ended meanwhile")));
    }
    Ok((now.thread, process))
}

/// Whether that user may have one more in the shield.
fn within_limits(kernel: &dyn Kernel, past: &Past, wish: &Entrant) -> Result<()> {
    let others = past.guests.iter().filter(|guest| {
        guest.uid == wish.uid && guest.thread.tid != wish.tid && tasks::lives(kernel, &guest.thread)
    });
    if others.count() >= wish.most {
        return Err(refused(format!(
            "user {} has {} threads in the shield already, and may have no more",
            wish.uid, wish.most
        )));
    }
    Ok(())
}

fn steps(shield: &Shield, wish: &Entrant, thread: &Thread, process: &Thread) -> Result<Vec<Step>> {
    let cpus = wish.cpus.clone().unwrap_or_else(|| shield.cpus.clone());
    if cpus.is_empty() || !cpus.is_subset(&shield.cpus) {
        return Err(Error::new(
            ErrorKind::Refused,
            format!("CPU {cpus} is not within the shield, which is CPU {}", shield.cpus),
        ));
    }
    let why = || format!("user {} asked for it", wish.uid);
    let step = |need, action| Step { action, old: None, why: why(), need };
    let mut steps = Vec::new();
    if let (Some(entry), Some(mount)) = (&shield.entry, &wish.mount) {
        let who = if entry.whole_process { process } else { thread };
        let (file, mount) = (entry.file.clone(), mount.clone());
        steps.push(step(Need::Essential, Action::Enter { thread: who.clone(), file, mount }));
    }
    steps.push(step(Need::Essential, Action::Pin { thread: thread.clone(), cpus }));
    if let Some(to) = wish.scheduling {
        steps.push(step(Need::BestEffort, Action::Schedule { thread: thread.clone(), to }));
    }
    Ok(steps)
}

/// The threads to which the shield that is up has given a real-time policy, living or not; none where none is up.
///
/// # Errors
/// When the journal cannot be read.
pub fn raised(state: &Path) -> Result<Vec<(Thread, Scheduling)>> {
    let Some(opened) = StateDir::open(state)? else { return Ok(Vec::new()) };
    let mut reader = Reader::default();
    Ok(reader.look(&opened)?.map(raised_in).unwrap_or_default())
}

fn raised_in(past: &Past) -> Vec<(Thread, Scheduling)> {
    let mut last: HashMap<(u32, u64), (Thread, Scheduling)> = HashMap::new();
    for (_, change) in &past.changes {
        if let Change::Scheduling { thread, new, .. } = change {
            last.insert((thread.tid, thread.start), (thread.clone(), *new));
        }
    }
    let mut raised: Vec<_> = last
        .into_values()
        .filter(|(_, new)| matches!(new.policy, Policy::Fifo | Policy::Rr))
        .collect();
    raised.sort_by_key(|(thread, _)| (thread.tid, thread.start));
    raised
}

/// Who the thread `tid` is now, one of the process that `process` is a thread of; `None` where it is nobody.
pub fn thread(kernel: &dyn Kernel, process: u32, tid: u32) -> Option<Thread> {
    tasks::identity_in(kernel, process, tid).ok().filter(|who| !who.dead).map(|who| who.thread)
}

/// Takes a thread its real-time policy at once, without a note: where nothing else runs, no disk does either. What it had, where
/// it was still that thread; [`note_demoted`] is to follow.
///
/// # Errors
/// As the kernel says.
pub fn demote(kernel: &dyn Kernel, thread: &Thread) -> io::Result<Option<Scheduling>> {
    if !tasks::lives(kernel, thread) {
        return Ok(None);
    }
    let had = kernel.scheduling(thread.tid)?;
    if !matches!(had.policy, Policy::Fifo | Policy::Rr) {
        return Ok(None);
    }
    let ordinary = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };
    kernel.set_scheduling(thread.tid, ordinary)?;
    Ok(Some(had))
}

/// Notes threads that [`demote`] was called for, with what each had: so that a revert knows them.
///
/// # Errors
/// When the journal cannot be used.
pub fn note_demoted(
    kernel: &dyn Kernel,
    state: &Path,
    threads: &[(Thread, Scheduling)],
) -> Result<()> {
    let Some(opened) = StateDir::open(state)? else { return Ok(()) };
    let _lock = opened.lock_patiently(kernel.lock_file().as_deref())?;
    let mut reader = Reader::default();
    if reader.look(&opened)?.is_none() {
        return Ok(());
    }
    let mut journal = Journal::resume(&opened, reader)?;
    for (thread, old) in threads {
        let new = Scheduling { policy: Policy::Other, priority: 0, nice: 0 };
        let thread = thread.clone();
        let change = Change::Scheduling { thread, old: *old, slice: None, new, afresh: false };
        journal.note(change)?;
    }
    Ok(())
}
