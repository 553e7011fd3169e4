//! A shield that is put back by itself unless it is confirmed, as when the network went with it.
//!
//! A process of its own, the guard, waits for the end of the time; it is started before the first
//! change, in a session and a group of its own, so that the end of the terminal does not end it.
//! Like the holder it is found by its lock, never by a number that was written down. Should it be
//! killed, [`overdue`] tells, and the next command that may change the machine does its work.

use crate::{
    Kernel, Result, bond, boot_id,
    error::{Error, ErrorKind, plain},
    hold,
    journal::{self, Past, Reader, Record},
    loan,
    session::leave_session,
    standing::{LockedShield, is_rebooted},
    whose,
};
use quiet_linux::{
    BootId, Hindrance, Insist,
    files::{StateDir, stamp},
};
use quiet_types::plan::{Awaited, Reverted};
use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

const FILE: &str = "guard";
/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(200);
/// So long a guard that puts the machine back is waited for: less than the 25 s after which a caller of D-Bus gives up.
const AT_WORK: Duration = Duration::from_secs(20);
/// No longer than a day: what nobody confirms by then is forgotten.
pub const LONGEST: u64 = 86_400;

/// Starts the guard and waits until it stands.
pub(crate) fn start(program: &Path, state: &StateDir) -> Result<u32> {
    hold::spawn(program, &["guard"], state, FILE)
        .map_err(|why| Error::new(ErrorKind::State, format!("no guard could be started: {why}")))
}

/// What the guard does: waits, and puts the machine back unless the shield was confirmed or taken
/// down in time. The time begins when all steps are done, or when `apply` was ended before that.
/// What cannot be put back yet is tried again for as long as the shield is there.
///
/// # Errors
/// When there is nothing to guard, or another guard stands already.
pub fn guard(kernel: &dyn Kernel, state: &Path) -> Result<()> {
    let failed = |why: String| Error::new(ErrorKind::State, why);
    let _ = rustix::process::setsid();
    let opened = StateDir::open(state)?
        .ok_or_else(|| failed(format!("there is no shield in {}", state.display())))?;
    let own = journal::identity(&opened)
        .map_err(|e| failed(format!("there is no journal to guard: {}", plain(&e))))?;
    let _lock = hold::stand(&opened, FILE)?;
    leave_session();
    wait(kernel, &opened, &own);
    Ok(())
}

/// Waits until the shield of the journal `own` is confirmed, is over, or is put back here.
fn wait(kernel: &dyn Kernel, state: &StateDir, own: &[u8]) {
    let mut since = None;
    let mut reader = Reader::default();
    let mut insist = Insist::default();
    loop {
        let tried = match awaits(state, own, &mut reader) {
            Ok(None) => return,
            // While somebody applies, it is not yet time; who ended before its end has left a part.
            Ok(Some((false, _))) if state.lock_machine(kernel.lock_file().as_deref()).is_err() => {
                since = None;
                Ok(true)
            }
            Ok(Some((_, time))) => {
                let is_over = since.get_or_insert_with(Instant::now).elapsed() >= time;
                // The look goes on: another shield's guard waits until this one sees that it is over.
                if is_over && insist.is_due() {
                    put_back(kernel, state, own)
                } else {
                    sleep(LOOK);
                    continue;
                }
            }
            Err(error) => Err(error),
        };
        let hindrance = match tried {
            Ok(true) => None,
            Ok(false) => Some(Hindrance::Refused),
            Err(error) => Some(error.hindrance()),
        };
        match hindrance {
            None => insist.done(),
            Some(hindrance) => drop(insist.failed(hindrance)),
        }
        sleep(LOOK);
    }
}

/// Whether the shield of the journal `own` is up, and how long it waits for its confirmation; `None` where it does not any more.
fn awaits(state: &StateDir, own: &[u8], reader: &mut Reader) -> Result<Option<(bool, Duration)>> {
    let Some(past) = reader.look(state)? else { return Ok(None) };
    let seconds = past.awaits.filter(|_| is_awaited(past));
    let is_up = past.up.is_some();
    // Another shield has a guard of its own.
    let is_same = journal::is_same(state, own)?;
    Ok(seconds.filter(|_| is_same).map(|seconds| (is_up, Duration::from_secs(seconds))))
}

/// Puts the machine back unless the shield was confirmed at the last moment; whether nothing is left to do.
fn put_back(kernel: &dyn Kernel, state: &StateDir, own: &[u8]) -> Result<bool> {
    let done = crate::take_down(kernel, state.path(), &|state, past, _| {
        Ok(is_awaited(past) && journal::is_same(state, own)?)
    })?;
    Ok(done.is_none_or(|done| done.is_complete()))
}

/// Confirms the shield that is up: it stays.
///
/// Returns whether it was waited for.
///
/// # Errors
/// When none is up, the time is over, or the journal cannot be used.
pub fn confirm(kernel: &dyn Kernel, state: &Path) -> Result<bool> {
    confirm_as(kernel, state, None)
}

/// As [`confirm`], where user `uid` has put it up and nobody else.
///
/// # Errors
/// As [`confirm`]; and where it is another's.
pub fn confirm_own(kernel: &dyn Kernel, state: &Path, uid: u32) -> Result<bool> {
    confirm_as(kernel, state, Some(uid))
}

fn confirm_as(kernel: &dyn Kernel, state: &Path, uid: Option<u32>) -> Result<bool> {
    let none = "no shield is up: there is nothing to confirm";
    let mut shield = LockedShield::find(kernel, state, none)?;
    let past = shield.past();
    whose::refuse_anothers(past, uid)?;
    if !is_awaited(past) {
        return Ok(false);
    }
    shield.journal()?.seal(Record::Confirmed { at: stamp() })?;
    Ok(true)
}

fn is_awaited(past: &Past) -> bool {
    past.awaits.is_some() && past.confirmed.is_none()
}

/// Whether the shield of a journal of this boot waits for a confirmation.
pub(crate) fn awaited(state: &StateDir, past: &Past) -> Option<Awaited> {
    let seconds = past.awaits.filter(|_| is_awaited(past))?;
    Some(Awaited { seconds, guard: hold::locked(state, FILE) })
}

/// Puts the machine back where a shield waited for a confirmation, or was to end with whoever asked for it, and its guard was
/// killed: nobody else would. Likewise CPUs that are lent are taken back. A guard that is at it is waited for, for some seconds.
///
/// # Errors
/// As [`crate::revert`].
pub fn overdue(kernel: &dyn Kernel, state: &Path) -> Result<Option<Reverted>> {
    let Some(opened) = StateDir::open(state)? else { return Ok(None) };
    let Some(past) = journal::read(&opened)? else { return Ok(None) };
    loan::overdue(kernel, &opened, &past)?;
    let is_left = |state: &StateDir, past: &Past, boot: &BootId| {
        Ok(!is_rebooted(past, boot)
            && (bond::is_orphan(kernel, past) || (is_awaited(past) && hold::is_free(state, FILE)?)))
    };
    if !is_left(&opened, &past, &boot_id(kernel)?)? {
        return Ok(None);
    }
    let lock_file = kernel.lock_file();
    let lock = if bond::is_orphan(kernel, &past) {
        // Its guard may be at work: until that is done, the machine is not as it was.
        opened.lock_within(AT_WORK, lock_file.as_deref())?
    } else {
        // An apply that is at work may not have started its guard yet.
        let Ok(lock) = opened.lock_machine(lock_file.as_deref()) else { return Ok(None) };
        lock
    };
    crate::take_down_by(kernel, &opened, &lock, &is_left)
}

/// As [`overdue`], and what a shield of an earlier boot left in files is put back as well. To be called before a machine is read for
/// a plan: what such a shield had done looks as if it were so already, and the plan would lack the steps for it.
///
/// # Errors
/// As [`crate::revert`].
pub fn make_way(kernel: &dyn Kernel, state: &Path) -> Result<Option<Reverted>> {
    let done = overdue(kernel, state)?;
    if done.is_some() {
        return Ok(done);
    }
    let Some(opened) = StateDir::open(state)? else { return Ok(None) };
    let is_over = |_: &StateDir, past: &Past, boot: &BootId| Ok(is_rebooted(past, boot));
    match journal::read(&opened)? {
        Some(past) if is_rebooted(&past, &boot_id(kernel)?) => {
            crate::take_down(kernel, state, &is_over)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        change::Change,
        nobody::{Nobody, START, shielded},
    };
    use quiet_linux::Kernel;
    use quiet_testing::fake::{EBUSY, Fake, Hierarchy, world};
    use quiet_types::plan::{AppliedBy, Form, Thread};

    const AT_ONCE: Record = Record::Await { seconds: 0 };

    /// Waits as the guard of the shield does.
    fn stand(kernel: &dyn Kernel, state: &StateDir) {
        wait(kernel, state, &journal::identity(state).unwrap());
    }

    #[test]
    fn who_confirms_at_the_last_moment_keeps_the_shield() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let state = shielded(&path, &AppliedBy::default(), &[AT_ONCE]);
        let confirms = || assert!(confirm(&Nobody::default(), &path).unwrap());
        let kernel = Nobody { at_lock: Some(Box::new(confirms) as _).into(), ..Nobody::default() };
        stand(&kernel, &state);
        let past = journal::read(&state).unwrap().expect("the shield was taken down");
        assert!(past.confirmed.is_some());
        // Whoever does the work of a guard that was killed decides as late.
        let path = dir.path().join("other");
        let state = shielded(&path, &AppliedBy::default(), &[AT_ONCE]);
        let confirms = || assert!(confirm(&Nobody::default(), &path).unwrap());
        let kernel = Nobody { at_lock: Some(Box::new(confirms) as _).into(), ..Nobody::default() };
        assert_eq!(overdue(&kernel, &path).unwrap(), None);
        assert!(journal::read(&state).unwrap().is_some());
        // Without anybody's word it goes.
        let path = dir.path().join("third");
        let state = shielded(&path, &AppliedBy::default(), &[AT_ONCE]);
        stand(&Nobody::default(), &state);
        assert!(journal::read(&state).unwrap().is_none());
    }

    #[test]
    fn a_guard_that_puts_the_machine_back_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let gone = Thread { tid: 2, start: START, comm: "owner".into() };
        let by = AppliedBy { uid: Some(0), process: Some(gone) };
        let state = shielded(&path, &by, &[]);
        let (guard, file) =
            (StateDir::open(&path).unwrap().unwrap(), state.path().join(journal::NAME));
        let (taken, guard_has_it) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let works = move || {
                let lock = guard.lock().unwrap();
                taken.send(()).unwrap();
                sleep(3 * LOOK);
                std::fs::remove_file(file).unwrap();
                drop(lock);
            };
            scope.spawn(works);
            guard_has_it.recv().unwrap();
            assert_eq!(make_way(&Nobody::default(), &path).unwrap(), None);
            assert!(journal::read(&state).unwrap().is_none(), "the guard is at it still");
        });
    }

    #[test]
    fn what_is_refused_once_is_tried_again() {
        let kernel = Fake::new(world(Hierarchy::None, 2, &[], &[3]));
        let file = "/proc/irq/default_smp_affinity";
        let (old, new) = (kernel.read(file).unwrap(), "1".to_owned());
        let change = Change::Write {
            path: file.into(),
            request: file.into(),
            old: old.clone(),
            new: new.clone(),
            form: Form::Mask,
            device: None,
        };
        let dir = tempfile::tempdir().unwrap();
        let records = [AT_ONCE, Record::Note { seq: 1, change }];
        let state = shielded(&dir.path().join("state"), &AppliedBy::default(), &records);
        kernel.write(file, &new).unwrap();
        assert_ne!(kernel.read(file).unwrap().trim(), old.trim());
        kernel.refuse.set(Some((kernel.acts.get() + 1, EBUSY)));
        stand(&kernel, &state);
        assert!(journal::read(&state).unwrap().is_none(), "the journal is there still");
        assert_eq!(kernel.read(file).unwrap().trim(), old.trim());
    }

    #[test]
    fn where_nothing_can_be_read_for_a_while_the_guard_stays() {
        let dir = tempfile::tempdir().unwrap();
        let state = shielded(&dir.path().join("state"), &AppliedBy::default(), &[AT_ONCE]);
        let kernel = Nobody::default();
        kernel.unread.set(3);
        stand(&kernel, &state);
        assert_eq!(kernel.unread.get(), 0);
        assert!(journal::read(&state).unwrap().is_none());
    }
}
