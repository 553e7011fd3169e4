//! Threads that are let into a shield that is up, for whoever asked; and taken their priority where they let nobody else run.

use crate::{
    Kernel, Result,
    apply::Hand,
    boot_id,
    change::Change,
    error::{Error, ErrorKind, is_gone, plain},
    journal::{Journal, Past, Reader, Record},
    standing::standing,
    tasks,
};
use quiet_linux::files::StateDir;
use quiet_types::{
    CpuSet, GroupPath,
    machine::{Policy, Scheduling},
    plan::{ADMITTED_SCHEMA, Action, Admitted, Need, ShieldStanding, Step, Taken, Thread},
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
/// the steps of a plan are. A revert, and the end of the thread, end it.
///
/// # Errors
/// When no shield is up, the thread is not that user's, or too many are within; nothing is changed then.
pub fn admit(kernel: &dyn Kernel, state: &Path, wish: &Entrant) -> Result<Admitted> {
    let none = || Error::new(ErrorKind::State, "no shield is up: apply one first");
    let opened = StateDir::open(state)?.ok_or_else(none)?;
    let _lock = opened.lock_patiently(kernel.lock_file().as_deref())?;
    let mut reader = Reader::default();
    let past = reader.look(&opened)?.ok_or_else(none)?;
    if standing(past, &boot_id(kernel)) != ShieldStanding::Up {
        return Err(Error::new(
            ErrorKind::Leftover,
            "no whole shield is up: `quietcores revert` puts the machine back",
        ));
    }
    let shield = past.shield.clone().ok_or_else(none)?;
    let (thread, process) = theirs(kernel, wish)?;
    within_limits(kernel, past, wish)?;
    let steps = steps(&shield, wish, &thread, &process)?;
    let mut journal = Journal::resume(&opened, reader)?;
    let mut taken: Vec<Taken> = Vec::new();
    for step in steps {
        // What is not through the door has no business on its CPUs.
        if taken.iter().any(|one| one.step.need == Need::Essential && !one.outcome.holds()) {
            break;
        }
        let mut hand = Hand {
            kernel,
            journal: &mut journal,
            state: &opened,
            shield: &shield,
            holder: None,
            interrupt: &AtomicBool::new(false),
        };
        let outcome = hand.take(&step)?;
        journal.tell(Record::Outcome { step: step.clone(), outcome: outcome.clone() })?;
        taken.push(Taken { step, outcome });
    }
    // Who it was when it was asked about, it still is.
    theirs(kernel, wish)?;
    Ok(Admitted { schema: ADMITTED_SCHEMA.to_owned(), thread, shield, steps: taken })
}

/// The thread and the first one of its process, where both are wholly the user's.
fn theirs(kernel: &dyn Kernel, wish: &Entrant) -> Result<(Thread, Thread)> {
    let refused = |why: String| Error::new(ErrorKind::Refused, why);
    let unknown = |error: io::Error| match is_gone(&error) {
        true => refused(format!("there is no thread {}", wish.tid)),
        false => refused(format!("cannot read whose thread {} is: {}", wish.tid, plain(&error))),
    };
    let before = tasks::identity(kernel, wish.tid).map_err(unknown)?;
    let status = kernel.read(&format!("/proc/{}/status", wish.tid)).map_err(unknown)?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // All four: real, effective, saved and of the file system. A program that runs as somebody else is not his.
    let mut users = field("Uid:").into_iter().flat_map(str::split_ascii_whitespace).peekable();
    let own = users.peek().is_some() && users.all(|uid| uid.parse() == Ok(wish.uid));
    if !own || before.kernel || before.dead {
        return Err(refused(format!("thread {} is not a thread of user {}", wish.tid, wish.uid)));
    }
    let process: u32 = field("Tgid:")
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| refused(format!("the kernel does not name the process of {}", wish.tid)))?;
    let process = tasks::identity(kernel, process).map_err(unknown)?.thread;
    let now = tasks::identity(kernel, wish.tid).map_err(unknown)?;
    if now.thread.start != before.thread.start {
        return Err(refused(format!("thread {} has ended meanwhile", wish.tid)));
    }
    Ok((now.thread, process))
}

/// How many living threads of that user were let in, by the priorities that were noted.
fn within_limits(kernel: &dyn Kernel, past: &Past, wish: &Entrant) -> Result<()> {
    let raised = raised_in(past).into_iter().filter(|(thread, _)| {
        thread.tid != wish.tid
            && tasks::lives(kernel, thread)
            && kernel.read(&format!("/proc/{}/status", thread.tid)).is_ok_and(|status| {
                let real = status.lines().find_map(|line| line.strip_prefix("Uid:"));
                real.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok())
                    == Some(wish.uid)
            })
    });
    if raised.count() >= wish.most {
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "user {} has {} real-time threads already, and may have no more",
                wish.uid, wish.most
            ),
        ));
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
        let change = Change::Scheduling { thread: thread.clone(), old: *old, slice: None, new };
        journal.note(change)?;
    }
    Ok(())
}
