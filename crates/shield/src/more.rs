//! More steps under what is up: single settings that are added one by one, and put back one by one.

use crate::{
    Kernel, Result,
    apply::{self, Hand},
    change::{Change, same},
    error::{Error, ErrorKind},
    journal::{Past, Record},
    standing::LockedShield,
};
use quiet_types::plan::{Action, Form, Need, Step, Taken};
use std::{collections::HashSet, path::Path, sync::atomic::AtomicBool};

const NONE: &str = "nothing is up that steps could be added to: apply a shield first";

/// Takes `steps` under what is up: each noted, done and read back as the steps of a plan are. A revert puts them back with all else; the
/// steps of [`ways_back`] put single ones back before. `holder` as in [`crate::ApplyOptions::holder`].
///
/// # Errors
/// When nothing is up, what is up ends with a program, a step would make groups, or the journal cannot be written. What had been done by then
/// stays noted. A step that the kernel refuses is no error: its outcome says so.
pub fn add(
    kernel: &dyn Kernel,
    state: &Path,
    steps: &[Step],
    holder: Option<&Path>,
) -> Result<Vec<Taken>> {
    let refused = |why: String| Err(Error::new(ErrorKind::Refused, why));
    let makes = |step: &&Step| matches!(step.action, Action::Group { .. } | Action::DropIn { .. });
    if let Some(step) = steps.iter().find(makes) {
        return refused(format!("{} is made with a whole shield alone", step.action.what()));
    }
    let mut locked = LockedShield::find(kernel, state, NONE)?;
    // Whoever adds and takes back for months leaves no more than he who stays.
    locked.compact(kernel);
    let past = locked.past();
    if past.by.process.is_some() {
        return refused(format!(
            "what is up was put up by {} and ends with that program: nothing is added to it",
            past.by
        ));
    }
    let shield = past.shield.clone().ok_or_else(|| Error::new(ErrorKind::State, NONE))?;
    let mut journal = locked.journal()?;
    let mut taken = Vec::new();
    for step in steps {
        let mut hand = Hand {
            kernel,
            journal: &mut journal,
            state: &locked.state,
            shield: &shield,
            holder,
            interrupt: &AtomicBool::new(false),
            strangers: false,
            calm: true,
        };
        let outcome = hand.take(step)?;
        journal.tell(Record::Outcome { step: step.clone(), outcome: outcome.clone() })?;
        if step.need == Need::Essential && !outcome.holds() {
            return Err(Error::new(ErrorKind::Step, apply::failed(step, &outcome)));
        }
        taken.push(Taken { step: step.clone(), outcome });
    }
    Ok(taken)
}

/// A setting that was changed under what is up, and the step that puts it back; both as the journal tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayBack {
    /// What was done last.
    pub taken: Step,
    /// What gives the old value.
    pub back: Step,
}

/// The way back of every single setting that what is up has changed and that still counts: kernel files, interrupts, and priorities of threads
/// that belong to nobody's stay.
///
/// # Errors
/// When nothing is up, or the journal cannot be read.
pub fn ways_back(kernel: &dyn Kernel, state: &Path) -> Result<Vec<WayBack>> {
    let locked = LockedShield::find(kernel, state, NONE)?;
    let past = locked.past();
    let mut seen = HashSet::new();
    let changes = past.changes.iter().map(|(_, change)| change);
    // What was so of a device that was pulled out is nothing to the one that is there now.
    let changes = changes.filter(|change| change.replaced(kernel).is_none());
    // The first note of a thing has what was before all.
    let first = changes.filter(|change| seen.insert(change.what()));
    Ok(first.filter_map(|change| way_back(past, change)).collect())
}

fn way_back(past: &Past, change: &Change) -> Option<WayBack> {
    let back = match change {
        // What a group hands on is the shield's.
        Change::Write { form: Form::Word | Form::Partition, .. } => return None,
        Change::Write { path, request, old, form, .. } => Action::Write {
            path: path.clone(),
            request: (request != path).then(|| request.clone()),
            value: old.clone(),
            form: *form,
        },
        Change::Irq { number, name, old, .. } => {
            Action::Irq { number: *number, name: name.clone(), cpus: old.clone() }
        }
        // A slice of its own is given back by a revert alone.
        Change::Scheduling { thread, old, slice: None, .. }
            if past.guests.get(thread).is_none() =>
        {
            Action::Schedule { thread: thread.clone(), to: *old }
        }
        _ => return None,
    };
    let (taken, outcome) = past.end(&back)?;
    if !outcome.holds() || is_same(&taken.action, &back) {
        return None;
    }
    let step = Step {
        action: back,
        old: Some(taken.action.new_value()),
        why: "it was asked for".into(),
        need: Need::BestEffort,
    };
    Some(WayBack { taken: taken.clone(), back: step })
}

/// Whether both ask for the same value.
fn is_same(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::Write { value: one, form, .. }, Action::Write { value: other, .. }) => {
            same(*form, one, other)
        }
        (one, other) => one == other,
    }
}
