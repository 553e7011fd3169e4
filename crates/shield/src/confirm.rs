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
    standing::{LockedShield, standing},
    whose,
};
use quiet_linux::files::{StateDir, stamp};
use quiet_types::plan::{Awaited, Reverted, ShieldStanding};
use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

const FILE: &str = "guard";
/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(200);
/// No longer than a day: what nobody confirms by then is forgotten.
pub const LONGEST: u64 = 86_400;

/// Starts the guard and waits until it stands.
pub(crate) fn start(program: &Path, state: &StateDir) -> Result<u32> {
    hold::spawn(program, &["guard"], state, FILE)
        .map_err(|why| Error::new(ErrorKind::State, format!("no guard could be started: {why}")))
}

/// What the guard does: waits, and puts the machine back unless the shield was confirmed or taken
/// down in time. The time begins when all steps are done, or when `apply` was ended before that.
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
    let mut since = None;
    let mut reader = Reader::default();
    loop {
        // Another shield has a guard of its own.
        if journal::identity(&opened).is_ok_and(|now| now != own) {
            return Ok(());
        }
        let Some(past) = reader.look(&opened)? else { return Ok(()) };
        let Some(seconds) = past.awaits.filter(|_| past.confirmed.is_none()) else {
            return Ok(());
        };
        // While somebody applies, it is not yet time; who ended before its end has left a part.
        let at_work =
            past.up.is_none() && opened.lock_machine(kernel.lock_file().as_deref()).is_err();
        if at_work {
            since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() >= Duration::from_secs(seconds) {
            match crate::revert_same(kernel, state, &own) {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                other => return other.map(|_| ()),
            }
        }
        sleep(LOOK);
    }
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
    if past.awaits.is_none() || past.confirmed.is_some() {
        return Ok(false);
    }
    shield.journal()?.seal(Record::Confirmed { at: stamp() })?;
    Ok(true)
}

/// Whether the shield of a journal of this boot waits for a confirmation.
pub(crate) fn awaited(state: &StateDir, past: &Past) -> Option<Awaited> {
    let seconds = past.awaits.filter(|_| past.confirmed.is_none())?;
    Some(Awaited { seconds, guard: hold::locked(state, FILE) })
}

/// Puts the machine back where a shield waited for a confirmation, or was to end with whoever asked for it, and its guard was
/// killed: nobody else would. Likewise CPUs that are lent are taken back.
///
/// # Errors
/// As [`crate::revert`].
pub fn overdue(kernel: &dyn Kernel, state: &Path) -> Result<Option<Reverted>> {
    let Some(opened) = StateDir::open(state)? else { return Ok(None) };
    let Some(past) = journal::read(&opened)? else { return Ok(None) };
    let earlier = standing(&past, &boot_id(kernel)) == ShieldStanding::Rebooted;
    loan::overdue(kernel, &opened, &past)?;
    match awaited(&opened, &past) {
        _ if bond::is_orphan(kernel, &past) && opened.lock().is_ok() => {
            crate::revert(kernel, state)
        }
        // An apply that is at work may not have started its guard yet.
        Some(Awaited { guard: None, .. })
            if !earlier && opened.lock_machine(kernel.lock_file().as_deref()).is_ok() =>
        {
            crate::revert(kernel, state)
        }
        _ => Ok(None),
    }
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
    let past = journal::read(&opened)?;
    match past.map(|past| standing(&past, &boot_id(kernel))) {
        Some(ShieldStanding::Rebooted) => crate::revert(kernel, state),
        _ => Ok(None),
    }
}
