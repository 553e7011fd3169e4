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
    /// Asks again what the kernel refused before.
    pub anew: bool,
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
            if is_lent || (self.paused)(step) || is_settled(step, last, self.anew) {
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

/// What the kernel refused stays refused, for as long as the machine has the same CPUs and devices: asking again would say the same every
/// time. Not so a group, and where a thread may be: that was refused while the group was not valid, and costs one call. A daemon that does
/// not answer is waited for at each asking, so it is asked once.
fn is_settled(step: &Step, last: Option<&(Step, Outcome)>, anew: bool) -> bool {
    let Some((old, outcome)) = last else { return false };
    let for_good = matches!(outcome, Outcome::Refused { .. } | Outcome::Ignored { .. });
    let may_change =
        matches!(step.action, Action::Group { .. } | Action::Enter { .. } | Action::Pin { .. })
            || anew && !matches!(step.action, Action::Ban { .. });
    for_good && old.action == step.action && !may_change
}

/// Moving tasks out of a group is repeated until it is empty: without moving it never is. A daemon
/// is not told what is not meant.
fn can_be_rehearsed(action: &Action) -> bool {
    !matches!(action, Action::MoveTasks { .. } | Action::HoldLatency | Action::Ban { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::plan::{Need, Thread};

    #[test]
    fn what_was_refused_is_asked_again_once_the_machine_is_another_one() {
        let step = |action| Step { action, old: None, why: String::new(), need: Need::BestEffort };
        let cpus = |list: &str| list.parse().unwrap();
        let irq =
            |list: &str| step(Action::Irq { number: 40, name: "card".into(), cpus: cpus(list) });
        let thread = Thread { tid: 90, start: 900, comm: "irqbalance".into() };
        let ban = step(Action::Ban { daemon: thread.clone(), cpus: cpus("1") });
        let pin = step(Action::Pin { thread, cpus: cpus("1") });
        let refused = || Outcome::Refused { reason: "Invalid argument".into() };
        let ignored = || Outcome::Ignored { seen: "CPU 0-2".into() };
        let done = || Outcome::Done { seen: "CPU 3".into() };
        let settled = |step: &Step, last: Option<(&Step, Outcome)>| {
            let last = last.map(|(step, outcome)| (step.clone(), outcome));
            [false, true].map(|anew| is_settled(step, last.as_ref(), anew))
        };
        let card = irq("3");
        assert_eq!(settled(&card, None), [false, false]);
        assert_eq!(settled(&card, Some((&card, done()))), [false, false]);
        assert_eq!(settled(&card, Some((&card, refused()))), [true, false]);
        assert_eq!(settled(&card, Some((&card, ignored()))), [true, false]);
        assert_eq!(settled(&card, Some((&irq("2"), refused()))), [false, false]);
        assert_eq!(settled(&ban, Some((&ban, refused()))), [true, true]);
        assert_eq!(settled(&pin, Some((&pin, refused()))), [false, false]);
    }
}
