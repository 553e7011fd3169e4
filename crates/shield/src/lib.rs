//! Puts a shield up and takes it down.
//!
//! [`up`] takes the steps of a plan: each change is noted on disk with its old value before the
//! kernel is asked, and read back after. [`revert`] puts everything back, last change first, and
//! only what still is ours. Both may be ended by `kill -9` at any instant: the next [`revert`] does
//! the rest. [`status`] compares what is with what was made.
#![forbid(unsafe_code)]

mod admit;
mod apply;
mod bond;
mod change;
mod confirm;
mod drop_in;
mod error;
mod evl;
#[cfg(fuzzing)]
pub mod fuzzing;
mod glimpse;
mod hold;
mod irqbalance;
mod journal;
mod lives;
mod loan;
mod more;
#[cfg(test)]
mod nobody;
mod plugged;
mod residents;
mod revert;
mod served;
mod session;
mod standing;
mod status;
mod tally;
mod tasks;
mod trial;
mod watch;
mod whose;

pub use admit::{Entrant, admissible, admit, demote, note_demoted, raised, release, thread};
pub use bond::{Bond, Tether, guard_owner};
pub use confirm::{LONGEST as LONGEST_WAIT, confirm, confirm_own, guard, make_way, overdue};
pub use error::{Error, ErrorKind, Result};
pub use glimpse::{Glimpse, Lookout, News};
pub use hold::{bury, hold};
pub use loan::{LONGEST as LONGEST_LOAN, LoanOptions, guard_loan, lend, take_back};
pub use more::{WayBack, add, ways_back};
pub use quiet_linux::files::DEFAULT_STATE;
pub use status::{current, status};
pub use trial::try_interrupts;
pub use watch::{Planned, Watch, look_again, watch};
pub use whose::applied_by;

use journal::{Journal, Past, Record};
use quiet_linux::files::{Lock, StateDir, stamp};
use quiet_linux::{BootId, Kernel};
use quiet_types::{
    Plan,
    plan::{APPLIED_SCHEMA, Action, Applied, AppliedBy, Reverted, Step},
};
use standing::is_rebooted;
use std::{path::Path, sync::atomic::AtomicBool};

/// What [`up`] needs beside the plan.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    /// The state directory, usually [`DEFAULT_STATE`]; made where it is not there.
    pub state: &'a Path,
    /// The program that holds `/dev/cpu_dma_latency`: started as `PROGRAM hold --state DIR`, it
    /// calls [`hold`]. `None` leaves that step out.
    pub holder: Option<&'a Path>,
    /// When raised, what was done so far is rolled back.
    pub interrupt: &'a AtomicBool,
    /// Seconds after which a guard puts the machine back unless [`confirm`] is called; it is started
    /// as `PROGRAM guard --state DIR` and calls [`guard`].
    pub confirm: Option<u64>,
}

/// Puts a shield up.
///
/// # Errors
/// When the state directory or the journal cannot be used, a shield is up already, leftovers wait
/// to be reverted, an essential step fails or `interrupt` is raised. Whatever had been done by then
/// is put back; [`Error::rolled_back`] tells how that went.
pub fn up(kernel: &dyn Kernel, plan: &Plan, setup: &ApplyOptions<'_>) -> Result<Applied> {
    up_for(kernel, plan, setup, rustix::process::getuid().as_raw())
}

/// As [`up`], for user `uid` who asked for it: its journal says so.
///
/// # Errors
/// As [`up`].
pub fn up_for(
    kernel: &dyn Kernel,
    plan: &Plan,
    setup: &ApplyOptions<'_>,
    uid: u32,
) -> Result<Applied> {
    raise(kernel, plan, setup, &AppliedBy { uid: Some(uid), process: None })
}

/// As [`up`], but the shield is to end with the calling process: its journal says so, and the guard of a [`Bond`] puts the machine
/// back when the process ends with it up.
///
/// # Errors
/// As [`up`].
pub fn up_bound(kernel: &dyn Kernel, plan: &Plan, setup: &ApplyOptions<'_>) -> Result<Applied> {
    let uid = Some(rustix::process::getuid().as_raw());
    raise(kernel, plan, setup, &AppliedBy { uid, process: bond::own() })
}

/// As [`up_for`], but the shield ends with the line of `tether`.
///
/// # Errors
/// As [`up`].
pub fn up_tethered(
    kernel: &dyn Kernel,
    plan: &Plan,
    setup: &ApplyOptions<'_>,
    tether: &Tether,
    uid: u32,
) -> Result<Applied> {
    let process = Some(tether.guard().clone());
    raise(kernel, plan, setup, &AppliedBy { uid: Some(uid), process })
}

fn raise(
    kernel: &dyn Kernel,
    plan: &Plan,
    setup: &ApplyOptions<'_>,
    by: &AppliedBy,
) -> Result<Applied> {
    let state = StateDir::make(setup.state)?;
    // A look of a watch, or a trial before another plan, is done soon.
    let mut lock = state.lock_patiently(kernel.lock_file().as_deref())?;
    let boot = boot_id(kernel)?;
    refuse_beside(&state, &lock, &boot)?;
    if let Some(past) = journal::read(&state)? {
        // After a power cut: what is left of an earlier boot is cleared on the way.
        if !is_rebooted(&past, &boot)
            || !revert::put_back_files(kernel, &state, &past).is_complete()
        {
            refuse_over(&state, &past, &boot)?;
        }
    }
    state.enlist(&mut lock)?;
    let mut journal = Journal::begin(&state, boot.as_str(), &plan.shield, &plan.links, by)?;
    if let Some(seconds) = setup.confirm {
        let guarded = journal.seal(Record::Await { seconds }).and_then(|()| match setup.holder {
            Some(program) => confirm::start(program, &state).map(|_| ()),
            None => Ok(()),
        });
        if let Err(error) = guarded {
            return Err(roll_back(kernel, &state, error));
        }
    }
    let mut hand = apply::Hand {
        kernel,
        journal: &mut journal,
        state: &state,
        shield: &plan.shield,
        holder: setup.holder,
        interrupt: setup.interrupt,
        strangers: false,
        calm: false,
    };
    // What comes and goes within minutes starts nobody anew, and leaves nothing behind that outlives it.
    let is_lasting = by.process.is_none();
    let lasting = |step: &&Step| is_lasting || !matches!(step.action, Action::DropIn { .. });
    let steps: Vec<Step> = plan.steps.iter().filter(lasting).cloned().collect();
    let steps = match hand.take_all(&steps) {
        Ok(steps) => steps,
        Err(error) => return Err(roll_back(kernel, &state, error)),
    };
    let irqs: Vec<(u32, u64)> = residents::counts(kernel, &plan.shield.cpus).into_iter().collect();
    if let Err(error) = journal.seal(Record::Up { at: stamp(), irqs }) {
        return Err(roll_back(kernel, &state, error));
    }
    let past = journal::read(&state)?.unwrap_or_default();
    Ok(Applied {
        schema: APPLIED_SCHEMA.into(),
        shield: plan.shield.clone(),
        steps,
        residents: residents::residents(kernel, &plan.shield, &past),
        chain: Vec::new(),
        findings: plan.findings.clone(),
    })
}

/// Puts the machine back; `None` where there is nothing to put back.
///
/// # Errors
/// When the state directory or the journal cannot be used. Steps that the kernel refuses are no
/// error: they are named in [`Reverted::items`], and the journal is kept.
pub fn revert(kernel: &dyn Kernel, state: &Path) -> Result<Option<Reverted>> {
    take_down(kernel, state, &|_, _, _| Ok(true))
}

/// As [`revert`], where user `uid` has put the shield up and nobody else.
///
/// # Errors
/// As [`revert`]; and where it is another's.
pub fn revert_own(kernel: &dyn Kernel, state: &Path, uid: u32) -> Result<Option<Reverted>> {
    take_down(kernel, state, &|_, past, _| whose::refuse_anothers(past, Some(uid)).map(|()| true))
}

/// Whether a shield is to be taken down, by what its journal tells at this moment in this boot.
pub(crate) type Decide<'a> = &'a dyn Fn(&StateDir, &Past, &BootId) -> Result<bool>;

/// As [`revert`], where `decide` says so while nobody else can be at work: what was seen before may be over.
pub(crate) fn take_down(
    kernel: &dyn Kernel,
    state: &Path,
    decide: Decide<'_>,
) -> Result<Option<Reverted>> {
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    let lock = state.lock_patiently(kernel.lock_file().as_deref())?;
    take_down_by(kernel, &state, &lock, decide)
}

/// As [`take_down`], by who holds the lock.
pub(crate) fn take_down_by(
    kernel: &dyn Kernel,
    state: &StateDir,
    _lock: &Lock,
    decide: Decide<'_>,
) -> Result<Option<Reverted>> {
    let Some(past) = journal::read(state)? else { return Ok(None) };
    let boot = boot_id(kernel)?;
    if !decide(state, &past, &boot)? {
        return Ok(None);
    }
    Ok(Some(match is_rebooted(&past, &boot) {
        true => revert::put_back_files(kernel, state, &past),
        false => revert::put_back(kernel, state, &past),
    }))
}

fn roll_back(kernel: &dyn Kernel, state: &StateDir, error: Error) -> Error {
    match journal::read(state) {
        Ok(Some(past)) => error.after(revert::put_back(kernel, state, &past)),
        _ => error,
    }
}

/// Two shields that were put up over each other come down in one order only.
fn refuse_beside(state: &StateDir, lock: &Lock, boot: &BootId) -> Result<()> {
    let Some(other) = state.other(lock, journal::NAME) else { return Ok(()) };
    // One that cannot be read is no reason to believe that it is over.
    let is_over = StateDir::open(&other).map_err(Error::from).and_then(|other| match other {
        Some(other) => journal::read(&other),
        None => Ok(None),
    });
    match is_over {
        Ok(None) => Ok(()),
        Ok(Some(past)) if is_rebooted(&past, boot) => Ok(()),
        _ => Err(Error::new(
            ErrorKind::AlreadyUp,
            format!(
                "a shield of another state directory is up on this machine; run `quietcores revert --state {}` first",
                other.display()
            ),
        )),
    }
}

fn refuse_over(state: &StateDir, past: &Past, boot: &BootId) -> Result<()> {
    let journal = journal::path(state).display().to_string();
    let (kind, sentence) = match &past.up {
        _ if !past.unread.is_empty() => (ErrorKind::Journal, past.stranger(&past.unread[0])),
        _ if is_rebooted(past, boot) => (
            ErrorKind::Leftover,
            format!(
                "the journal {journal} is of an earlier boot; `quietcores revert` clears it (its \
                 run-time changes went with the reboot)"
            ),
        ),
        Some(_) if past.reverting.is_none() => (
            ErrorKind::AlreadyUp,
            format!("a shield is up already ({journal}); run `quietcores revert` first"),
        ),
        _ => (
            ErrorKind::Leftover,
            format!(
                "an earlier apply or revert did not come to its end ({journal}); run \
                 `quietcores revert` first: it puts the machine back"
            ),
        ),
    };
    Err(Error::new(kind, sentence))
}

/// Which boot this is. What cannot be read is an error: taken for another boot, it would have a journal forgotten whose shield stands.
fn boot_id(kernel: &dyn Kernel) -> Result<BootId> {
    Ok(BootId::of(kernel)?)
}
