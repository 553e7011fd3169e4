//! The process that takes lent CPUs back.

use super::{
    Fence,
    acts::{FILE, take_back_same},
    sound::Ear,
    unit::unit_group,
};
use crate::{
    Kernel, Result, boot_id,
    error::{Error, ErrorKind, plain},
    hold,
    journal::{self, Journal, LoanNote, Reader},
    session::leave_session,
    standing::standing,
    tasks,
};
use quiet_linux::files::StateDir;
use quiet_types::{loan::LoanEnd, plan::ShieldStanding};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// How often the guard looks.
const LOOK: Duration = Duration::from_millis(100);
/// What could not be taken back, or looked at, is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// How often what was opened is looked at: systemd closes a slice of its own at each daemon-reload.
const OPEN: Duration = Duration::from_secs(1);

/// What the guard of a loan does: waits for the end of its terms, and takes the CPUs back.
///
/// # Errors
/// When nothing is lent, or another guard stands already.
pub fn guard_loan(kernel: &dyn Kernel, state: &Path) -> Result<()> {
    let failed = |why: &str| Error::new(ErrorKind::State, why);
    let _ = quiet_linux::sys::process::block_signals();
    let _ = rustix::process::setsid();
    let opened =
        StateDir::open(state)?.ok_or_else(|| failed("there is no shield that could be lent"))?;
    let own = journal::identity(&opened)
        .map_err(|e| failed(&format!("there is no journal to guard: {}", plain(&e))))?;
    let mut reader = Reader::default();
    let lent = reader.look(&opened)?.and_then(|past| past.loan.clone());
    let id = lent.ok_or_else(|| failed("nothing is lent"))?.id;
    // Before it stands: what sounds from here on is heard.
    let mut ear = Ear::new();
    let _lock = hold::stand(&opened, FILE)?;
    leave_session();
    let mut looked = Instant::now();
    loop {
        let now = match lent_still(kernel, &opened, &own, &mut reader) {
            Ok(Some(now)) if now.id == id => now,
            Ok(_) => return Ok(()),
            // Who cannot look does not know that the loan is over.
            Err(_) => {
                sleep(AGAIN);
                continue;
            }
        };
        // Also where it does not count, so that what was heard before new terms is over.
        let heard = ear.heard();
        if let Some(cause) = ended(kernel, &now, heard) {
            match take_back_same(kernel, state, cause, None, Some(&now)) {
                // New terms since: the next look tells.
                Ok(None) => sleep(LOOK),
                Ok(Some(back)) if back.is_complete() => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Busy => sleep(LOOK),
                // Never given up: nobody else would take them back.
                _ => sleep(AGAIN),
            }
            continue;
        }
        if looked.elapsed() >= OPEN {
            looked = Instant::now();
            keep_open(kernel, &opened, &mut reader, id);
        }
        let left = now.until.saturating_sub(journal::since_boot());
        wait(&ear, LOOK.min(Duration::from_nanos(left)));
    }
}

/// What the shield of the journal `own` lends; `None` where it does not any more, or does not stand.
fn lent_still(
    kernel: &dyn Kernel,
    state: &StateDir,
    own: &[u8],
    reader: &mut Reader,
) -> Result<Option<LoanNote>> {
    let Some(past) = reader.look(state)? else { return Ok(None) };
    let stands = standing(past, &boot_id(kernel)?) == ShieldStanding::Up;
    let loan = past.loan.clone().filter(|_| stands);
    Ok(if journal::is_same(state, own)? { loan } else { None })
}

/// Waits for sound, but no longer than `pause`.
fn wait(ear: &Ear, pause: Duration) {
    let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
    let mut fds: Vec<PollFd<'_>> =
        ear.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
    let _ = poll(&mut fds, Some(&timeout));
}

/// What ends a loan now.
fn ended(kernel: &dyn Kernel, loan: &LoanNote, heard: bool) -> Option<LoanEnd> {
    let terms = &loan.terms;
    let is_over = |process| tasks::has_ended(kernel, process);
    match () {
        () if terms.until_sound && heard => Some(LoanEnd::Sound),
        () if terms.process.as_ref().is_some_and(is_over) => Some(LoanEnd::Process),
        () if terms.unit.as_ref().is_some_and(|unit| unit_group(kernel, unit).is_none()) => {
            Some(LoanEnd::Unit)
        }
        () if journal::since_boot() >= loan.until => Some(LoanEnd::Time),
        () => None,
    }
}

/// Opens again what others have closed, unless somebody is at work.
fn keep_open(kernel: &dyn Kernel, state: &StateDir, reader: &mut Reader, id: u64) {
    let Ok(_lock) = state.lock_machine(kernel.lock_file().as_deref()) else { return };
    let lent = reader.look(state).ok().flatten();
    let Some(past) = lent.filter(|past| past.loan.as_ref().is_some_and(|loan| loan.id == id))
    else {
        return;
    };
    let fence = Fence::of(past);
    if fence.is_open(kernel) {
        return;
    }
    let Ok(mut journal) = Journal::resume(state, std::mem::take(reader)) else { return };
    fence.open(kernel, state, &mut journal);
    *reader = journal.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nobody::{Nobody, shielded};
    use quiet_types::{loan::LoanTerms, plan::AppliedBy};

    #[test]
    fn a_loan_that_cannot_be_looked_at_is_not_over() {
        let terms: LoanTerms = serde_json::from_str("{\"seconds\":60}").unwrap();
        let note = LoanNote { id: 7, at: "now".into(), until: 1, terms };
        let dir = tempfile::tempdir().unwrap();
        let lent = [journal::Record::Lent(note)];
        let state = shielded(&dir.path().join("state"), &AppliedBy::default(), &lent);
        let own = journal::identity(&state).unwrap();
        let (kernel, mut reader) = (Nobody::default(), Reader::default());
        kernel.unread.set(1);
        assert!(lent_still(&kernel, &state, &own, &mut reader).is_err());
        let found = lent_still(&kernel, &state, &own, &mut reader).unwrap();
        assert_eq!(found.unwrap().id, 7);
        assert_eq!(lent_still(&kernel, &state, b"another\n", &mut reader).unwrap(), None);
    }
}
