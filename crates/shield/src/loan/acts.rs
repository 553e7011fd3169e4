//! Lending, taking back, and what `status` says of it.

use super::{Fence, unit};
use crate::{
    Kernel, Result, boot_id,
    error::{Error, ErrorKind},
    hold,
    journal::{self, Journal, LoanNote, Past, Reader, Record},
    standing::{LockedShield, standing},
    whose,
};
use quiet_linux::{
    files::{StateDir, stamp},
    seat::Haste,
};
use quiet_types::{
    Nanos,
    loan::{LENT_SCHEMA, Lent, Loan, LoanEnd, LoanTerms, RECLAIMED_SCHEMA, Reclaimed},
    plan::ShieldStanding,
};
use std::{path::Path, time::Instant};

/// The file that the guard of a loan locks.
pub(super) const FILE: &str = "loan";
/// No longer than a day.
pub const LONGEST: u64 = 86_400;

/// Who lends, and what takes the CPUs back.
#[derive(Clone, Copy, Debug)]
pub struct LoanOptions<'a> {
    /// Started as `PROGRAM guard --state DIR --loan`, it calls [`crate::guard_loan`]. `None` leaves that out.
    pub guard: Option<&'a Path>,
    /// Whose the shield has to be; `None` for anybody's.
    pub uid: Option<u32>,
}

/// Lends the CPUs of the shield that is up. Where they are lent already, the terms are new ones from now on.
///
/// # Errors
/// When no shield is up, it is another's or ends with a program, the terms make no sense, no guard can be started, or nothing can be
/// opened. What had been opened by then is closed.
pub fn lend(
    kernel: &dyn Kernel,
    state: &Path,
    terms: &LoanTerms,
    options: LoanOptions<'_>,
) -> Result<Lent> {
    let mut locked =
        LockedShield::find(kernel, state, "no shield is up: there is nothing to lend")?;
    // Whoever lends and takes back for months leaves no more than he who does it once.
    locked.compact(kernel);
    let past = locked.past();
    whose::refuse_anothers(past, options.uid)?;
    check(kernel, past, terms)?;
    let fence = Fence::of(past);
    let cpus = past.shield.as_ref().map(|shield| shield.cpus.clone()).unwrap_or_default();
    let earlier = past.loan.as_ref().map(|loan| loan.id);
    let now = journal::since_boot();
    let note = LoanNote {
        id: earlier.unwrap_or(now),
        at: stamp(),
        until: now.saturating_add(terms.seconds.saturating_mul(1_000_000_000)),
        terms: terms.clone(),
    };
    let id = note.id;
    let mut journal = locked.journal()?;
    journal.seal(Record::Lent(note))?;
    let lent = |renewed, changes| Lent {
        schema: LENT_SCHEMA.to_owned(),
        cpus,
        terms: terms.clone(),
        renewed,
        changes,
    };
    // One that was killed has a successor.
    let guarded = match options.guard {
        Some(program) if hold::locked(&locked.state, FILE).is_none() || earlier.is_none() => {
            hold::spawn(program, &["guard", "--loan"], &locked.state, FILE).map(|_| ())
        }
        _ => Ok(()),
    };
    if let Err(why) = guarded {
        fence.close(kernel, &locked.state, &mut journal);
        journal.seal(Record::TakenBack { id, cause: LoanEnd::Orphaned, at: stamp() })?;
        return Err(Error::new(ErrorKind::State, format!("no guard could be started: {why}")));
    }
    let changes = fence.open(kernel, &locked.state, &mut journal);
    if let Some(why) = changes.iter().find_map(|change| change.refused.clone())
        && changes.iter().all(|change| change.refused.is_some())
    {
        fence.close(kernel, &locked.state, &mut journal);
        journal.seal(Record::TakenBack { id, cause: LoanEnd::Hand, at: stamp() })?;
        return Err(Error::new(ErrorKind::Step, format!("cannot lend these CPUs: {why}")));
    }
    Ok(lent(earlier.is_some(), changes))
}

/// Takes lent CPUs back at once; `None` where none are lent. `uid` is whose the shield has to be; `None` for anybody's.
///
/// # Errors
/// When the state directory or the journal cannot be used, or the shield is another's. What cannot be closed is no error: it is named
/// in [`Reclaimed::changes`], and the guard tries again.
pub fn take_back(
    kernel: &dyn Kernel,
    state: &Path,
    cause: LoanEnd,
    uid: Option<u32>,
) -> Result<Option<Reclaimed>> {
    take_back_same(kernel, state, cause, uid, None)
}

/// As [`take_back`], of the loan `only` and no other one: new terms make it another, though it keeps its number.
pub(super) fn take_back_same(
    kernel: &dyn Kernel,
    state: &Path,
    cause: LoanEnd,
    uid: Option<u32>,
    only: Option<&LoanNote>,
) -> Result<Option<Reclaimed>> {
    let begun = Instant::now();
    let Some(state) = StateDir::open(state)? else { return Ok(None) };
    // Who plays asks at every start: where nothing is lent it costs one read.
    let mut reader = Reader::default();
    if reader.look(&state)?.is_none_or(|past| past.loan.is_none()) {
        return Ok(None);
    }
    // Everybody else runs on all CPUs now: among them, what takes them back would wait its turn.
    let _haste = Haste::begin();
    let _lock = state.lock_patiently(kernel.lock_file().as_deref())?;
    let Some(past) = reader.look(&state)? else { return Ok(None) };
    let Some(loan) = past.loan.clone().filter(|loan| only.is_none_or(|only| only == loan)) else {
        return Ok(None);
    };
    whose::refuse_anothers(past, uid)?;
    if standing(past, &boot_id(kernel)?) != ShieldStanding::Up {
        return Ok(None);
    }
    let fence = Fence::of(past);
    let cpus = past.shield.as_ref().map(|shield| shield.cpus.clone()).unwrap_or_default();
    let mut journal = Journal::resume(&state, reader)?;
    // The note comes after the deed: as long as it is not there, the next one to look closes what is closed once more.
    let changes = fence.close(kernel, &state, &mut journal);
    let took = Nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let back = Reclaimed { schema: RECLAIMED_SCHEMA.to_owned(), cpus, cause, took, changes };
    if back.is_complete() {
        journal.seal(Record::TakenBack { id: loan.id, cause, at: stamp() })?;
    }
    Ok(Some(back))
}

/// Takes CPUs back that are lent and whose guard was killed.
pub(crate) fn overdue(kernel: &dyn Kernel, state: &StateDir, past: &Past) -> Result<()> {
    let Some(loan) = &past.loan else { return Ok(()) };
    let is_orphan = standing(past, &boot_id(kernel)?) == ShieldStanding::Up
        && hold::is_free(state, FILE)?
        // Whoever lends at this instant may not have started its guard yet.
        && state.lock_machine(kernel.lock_file().as_deref()).is_ok();
    if is_orphan {
        // The one that was looked at: whoever lends by now has a guard of its own.
        take_back_same(kernel, state.path(), LoanEnd::Orphaned, None, Some(loan))?;
    }
    Ok(())
}

/// What `status` says of a loan.
pub(crate) fn standing_loan(state: &StateDir, past: &Past) -> Option<Loan> {
    let loan = past.loan.as_ref()?;
    Some(Loan {
        since: loan.at.clone(),
        terms: loan.terms.clone(),
        left: loan.until.saturating_sub(journal::since_boot()).div_ceil(1_000_000_000),
        guard: hold::locked(state, FILE),
    })
}

/// Refuses terms that make no sense, and shields that are not there to be lent.
fn check(kernel: &dyn Kernel, past: &Past, terms: &LoanTerms) -> Result<()> {
    let refused = |why: String| Err(Error::new(ErrorKind::Refused, why));
    if past.by.process.is_some() {
        return refused(format!(
            "the shield was put up by {} and ends with that program: its measurement would be of other CPUs",
            past.by
        ));
    }
    if !(1..=LONGEST).contains(&terms.seconds) {
        return refused(format!(
            "CPUs are lent for 1 s to {LONGEST} s, and not for {} s",
            terms.seconds
        ));
    }
    if let Some(unit) = &terms.unit {
        if !unit::is_unit(unit) {
            let unit = quiet_types::printable(unit, 60);
            return refused(format!("`{unit}` is no name of a service or scope of systemd"));
        }
        if unit::unit_group(kernel, unit).is_none() {
            return refused(format!(
                "the unit {unit} does not run: start it first, or name a time"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApplyOptions;
    use quiet_testing::fake::{Fake, Hierarchy, world};
    use quiet_types::{
        CpuSet, Plan,
        plan::{Action, Need, PLAN_SCHEMA, Step, Who},
        shield::{Mechanism, Shield},
    };
    use std::sync::atomic::AtomicBool;

    fn shielded(kernel: &Fake, state: &Path) -> StateDir {
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let (off, to, spare) = (set("1"), set("0"), Vec::new());
        let action = Action::Confine { who: Who::Everybody, off: off.clone(), to, spare };
        let step = Step { action, old: None, why: "because".into(), need: Need::Essential };
        let plan = Plan {
            schema: PLAN_SCHEMA.into(),
            chain: None,
            mode: Default::default(),
            shield: Shield {
                cpus: off,
                housekeeping: set("0"),
                mechanism: Mechanism::Affinity,
                entry: None,
            },
            reasons: Vec::new(),
            links: Vec::new(),
            steps: vec![step],
            findings: Vec::new(),
        };
        let interrupt = AtomicBool::new(false);
        let setup = ApplyOptions { state, holder: None, interrupt: &interrupt, confirm: None };
        crate::up(kernel, &plan, &setup).unwrap();
        StateDir::open(state).unwrap().unwrap()
    }

    #[test]
    fn whoever_looked_at_the_old_terms_does_not_end_the_loan_of_the_new_ones() {
        let kernel = Fake::new(world(Hierarchy::None, 2, &[], &[3]));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let state = shielded(&kernel, &path);
        let terms = |seconds| LoanTerms { seconds, until_sound: false, unit: None, process: None };
        let lend = |seconds| {
            lend(&kernel, &path, &terms(seconds), LoanOptions { guard: None, uid: None }).unwrap();
            journal::read(&state).unwrap().unwrap()
        };
        let old = lend(1);
        let new = lend(3600);
        let (first, second) = (old.loan.as_ref().unwrap(), new.loan.as_ref().unwrap());
        assert_eq!(first.id, second.id, "guards are told by it");
        // The guard saw the time of the first one end, and waited for the lock.
        let back = take_back_same(&kernel, &path, LoanEnd::Time, None, Some(first)).unwrap();
        assert_eq!(back, None);
        // Whoever looked found no guard.
        overdue(&kernel, &state, &old).unwrap();
        assert_eq!(journal::read(&state).unwrap().unwrap().loan, new.loan);
        let back = take_back_same(&kernel, &path, LoanEnd::Time, None, Some(second)).unwrap();
        assert!(back.unwrap().is_complete());
        assert_eq!(journal::read(&state).unwrap().unwrap().loan, None);
    }
}
