//! One look: takes every step of a fresh plan again. Steps that hold already cost a read.

use super::rehearsal::Rehearsal;
use crate::{
    Kernel, Result,
    apply::Hand,
    boot_id, hold,
    journal::{self, Journal, Reader, Record},
    loan::Fence,
    standing::standing,
};
use quiet_linux::files::StateDir;
use quiet_types::{
    Plan,
    plan::{Action, Outcome, ShieldStanding, Step},
};
use std::{mem::take, path::Path, sync::atomic::AtomicBool};

/// What a look needs.
pub(super) struct Look<'a> {
    pub kernel: &'a dyn Kernel,
    pub state: &'a Path,
    pub holder: Option<&'a Path>,
    /// The first line of the journal of the only shield that is meant.
    pub own: Option<&'a [u8]>,
    /// Changes nothing.
    pub report_only: bool,
    /// Steps that are left alone for now.
    pub paused: &'a dyn Fn(&Step) -> bool,
    /// What has read the journal at the looks before.
    pub reader: &'a mut Reader,
}

/// What a look found.
pub(super) enum Seen {
    /// No shield is up any more.
    Down,
    /// Another one is.
    Another,
    /// Steps that did not hold, and what became of them.
    Up(Vec<(Step, Outcome)>),
}

impl Look<'_> {
    /// Takes every step of `plan` that does not hold.
    pub fn look(&mut self, plan: &Plan) -> Result<Seen> {
        let Some(state) = StateDir::open(self.state)? else { return Ok(Seen::Down) };
        let _lock = if self.report_only {
            None
        } else {
            Some(state.lock_machine(self.kernel.lock_file().as_deref())?)
        };
        let Some(past) = self.reader.look(&state)? else { return Ok(Seen::Down) };
        if standing(past, &boot_id(self.kernel)?) != ShieldStanding::Up {
            return Ok(Seen::Down);
        }
        if let Some(own) = self.own
            && !journal::is_same(&state, own)?
        {
            return Ok(Seen::Another);
        }
        let reader = take(self.reader);
        if self.report_only {
            let mut journal = Journal::rehearse(reader);
            let found = self.take(&Rehearsal::of(self.kernel), &mut journal, &state, plan);
            *self.reader = journal.end();
            return found.map(Seen::Up);
        }
        let mut journal = Journal::resume(&state, reader)?;
        let found = self.take(self.kernel, &mut journal, &state, plan);
        *self.reader = journal.end();
        self.reader.compact(self.kernel, &state);
        found.map(Seen::Up)
    }

    fn take(
        &self,
        kernel: &dyn Kernel,
        journal: &mut Journal,
        state: &StateDir,
        plan: &Plan,
    ) -> Result<Vec<(Step, Outcome)>> {
        let interrupt = AtomicBool::new(false);
        let mut found = Vec::new();
        let lent = journal.past().filter(|past| past.loan.is_some()).map(Fence::of);
        for step in &plan.steps {
            let last = journal.past().and_then(|past| past.end(&step.action)).cloned();
            let last = last.as_ref();
            let is_lent = lent.as_ref().is_some_and(|fence| fence.is_closed_by(&step.action));
            if is_lent || (self.paused)(step) || is_settled(step, last) {
                continue;
            }
            let waits = last.is_some_and(|(old, was)| {
                old.action == step.action && matches!(was, Outcome::Pending { .. })
            });
            // A rehearsal would find what waits for its interrupt done, and so call it drift.
            if self.report_only && waits && matches!(step.action, Action::Pin { .. }) {
                continue;
            }
            if self.report_only && !can_be_rehearsed(&step.action) {
                if matches!(step.action, Action::HoldLatency) && hold::find(state).is_none() {
                    found.push((step.clone(), Outcome::Absent));
                }
                continue;
            }
            let mut hand = Hand {
                kernel,
                journal: &mut *journal,
                state,
                shield: &plan.shield,
                holder: self.holder.filter(|_| !self.report_only),
                interrupt: &interrupt,
                strangers: false,
                // What plays goes on.
                calm: true,
            };
            let outcome = hand.take(step)?;
            // It went while this looked.
            if outcome == Outcome::Absent {
                continue;
            }
            let again = last.is_some_and(|(old, was)| {
                old.action == step.action && was.holds() == outcome.holds()
            });
            if !again && (last.is_some() || outcome != Outcome::Already) {
                journal.tell(Record::Outcome { step: step.clone(), outcome: outcome.clone() })?;
            }
            let is_news = match &outcome {
                Outcome::Already => false,
                Outcome::Done { .. } => true,
                // A mask was written, whenever it takes effect. A thread or a daemon that has been told
                // and waits still is no news at every look.
                Outcome::Pending { .. } if matches!(step.action, Action::Irq { .. }) => true,
                other => last.is_none_or(|(old, was)| old.action != step.action || was != other),
            };
            if is_news {
                found.push((step.clone(), outcome));
            }
        }
        Ok(found)
    }
}

/// What the kernel refused stays refused: asking again would say the same every time. Not so a group, and where a thread may be: that was
/// refused while the group was not valid, and costs one call.
fn is_settled(step: &Step, last: Option<&(Step, Outcome)>) -> bool {
    let Some((old, outcome)) = last else { return false };
    let for_good = matches!(outcome, Outcome::Refused { .. } | Outcome::Ignored { .. });
    let may_change =
        matches!(step.action, Action::Group { .. } | Action::Enter { .. } | Action::Pin { .. });
    for_good && old.action == step.action && !may_change
}

/// Moving tasks out of a group is repeated until it is empty: without moving it never is. A daemon
/// is not told what is not meant.
fn can_be_rehearsed(action: &Action) -> bool {
    !matches!(action, Action::MoveTasks { .. } | Action::HoldLatency | Action::Ban { .. })
}
