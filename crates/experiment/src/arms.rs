//! The arms: pair by pair, the order within each drawn by lot; each measured whole, each void where its ground moved.

use crate::{Because, ErrorKind, Notice, Observer, Result, Ward, explained, raised};
use quiet_probe::{RunRequest, RunningStress, TraceLender};
use quiet_types::{
    CpuSet, Finding, Nanos, Run,
    lot::Lot,
    plan::{Applied, Taken},
    proof::{self, Arm, Setting, StepTaken},
    run::{Probe, Spec},
};
use std::{
    cell::Cell,
    sync::{Arc, atomic::AtomicBool},
};

/// A gap longer than this is time taken from the thread: the tick alone takes 2 to 5 us.
const STOLEN: Nanos = Nanos::from_micros(20);

/// What is measured, and how often.
pub(crate) struct Turns<'a> {
    /// Of the wakeup probe.
    pub spec: Spec,
    /// Length of the gap measurement; zero for none.
    pub gap: Nanos,
    pub stress: Vec<String>,
    pub online: CpuSet,
    pub housekeeping: CpuSet,
    /// What is compared with shared.
    pub other: Setting,
    /// What is asked for where that is [`Setting::Sliced`].
    pub slice: Option<Nanos>,
    /// The order of each pair, and how many there are.
    pub lot: Lot,
    /// Who watches and seats where the shield is lent.
    pub lent: Option<Arc<dyn TraceLender>>,
    /// Whether late readings are told by cause, in both settings alike.
    pub explain: bool,
    pub ward: Ward<'a>,
    pub stop: &'a AtomicBool,
    pub observer: &'a dyn Observer,
    /// How much of the whole is done.
    pub done: Cell<Nanos>,
}

/// What came of it.
pub(crate) struct Measured {
    pub arms: Vec<Arm>,
    /// What the first shield was made of.
    pub applied: Option<proof::ShieldMade>,
    /// Whether every revert put back every value.
    pub reverts_exact: bool,
    pub findings: Vec<Finding>,
}

impl Turns<'_> {
    pub fn run(&mut self) -> Result<Measured> {
        let mut done =
            Measured { arms: Vec::new(), applied: None, reverts_exact: true, findings: Vec::new() };
        let arm = self.spec.length.0 + self.gap.0;
        self.observer.begin(Nanos(arm * 2 * u64::from(self.lot.pairs)));
        'pairs: for pair in 0..self.lot.pairs {
            let mut settings = [Setting::Shared, self.other];
            if !self.lot.shared_first(pair) {
                settings.reverse();
            }
            for setting in settings {
                if raised(self.stop) {
                    break 'pairs;
                }
                let doing = format!("pair {} of {}, {setting}", pair + 1, self.lot.pairs);
                self.observer.doing(&doing);
                let Some(arm) = self.arm(pair, setting, &mut done)? else { break 'pairs };
                done.arms.push(arm);
            }
            self.observer.event(Notice::Pair {
                number: pair + 1,
                of: self.lot.pairs,
                arms: &done.arms[done.arms.len() - 2..],
                threshold: self.spec.threshold,
            });
        }
        self.observer.end();
        Ok(done)
    }

    /// One arm; `None` where it was interrupted before anything was measured.
    fn arm(&mut self, pair: u32, setting: Setting, done: &mut Measured) -> Result<Option<Arm>> {
        let mut void = None;
        let mut entry = None;
        if setting == Setting::Shielded {
            let applied = match self.ward.raise() {
                Ok(applied) => applied,
                Err(_) if raised(self.stop) => return Ok(None),
                error => error.because(ErrorKind::Machine, || "cannot put the shield up".into())?,
            };
            entry.clone_from(&applied.shield.entry);
            if done.applied.is_none() {
                done.findings.extend(applied.findings.iter().cloned());
                done.applied = Some(taken(&applied));
            }
        }
        let stress_cpus = match setting {
            Setting::Shared => self.online.clone(),
            _ => self.housekeeping.clone(),
        };
        let request = RunRequest {
            label: setting.to_string(),
            entry,
            lent: self.lent.clone().filter(|_| setting == Setting::Shielded),
            slice: self.slice.filter(|_| setting == Setting::Sliced),
            explain: self.explain,
            ..RunRequest::new(self.spec.clone())
        };
        let measured = self.under_stress(&request, &stress_cpus);
        // Put back first; what failed is told after.
        let exact = self.ward.lower()?;
        done.reverts_exact &= exact;
        let (wakeup, gap) = measured?;
        for run in std::iter::once(&wakeup).chain(&gap) {
            if let Some(moved) = run.findings.iter().find(|f| f.id == "run.state_changed") {
                void = Some(format!("{}: {}", moved.title, moved.evidence));
            }
        }
        Ok(Some(Arm { pair, setting, wakeup, gap, void }))
    }

    /// Both probes under one stress.
    fn under_stress(&self, request: &RunRequest, cpus: &CpuSet) -> Result<(Run, Option<Run>)> {
        let stress = RunningStress::start(&self.stress, cpus)?;
        let mut wakeup = self.probe(request)?;
        let mut gap = None;
        if self.gap > Nanos::ZERO && !wakeup.cut_short() {
            let spec = Spec {
                probe: Probe::Gap,
                length: self.gap,
                threshold: STOLEN,
                ..self.spec.clone()
            };
            gap = Some(self.probe(&RunRequest { spec, ..request.clone() })?);
        }
        let stress = stress.stop()?;
        for run in std::iter::once(&mut wakeup).chain(&mut gap) {
            run.stress = Some(stress.clone());
        }
        Ok((wakeup, gap))
    }

    fn probe(&self, request: &RunRequest) -> Result<Run> {
        let start = self.done.get();
        let (mut run, seen) = quiet_probe::watched(request, self.stop, &mut |progress| {
            self.observer.at(Nanos(start.0 + progress.elapsed.min(progress.length).0));
        })
        .because(ErrorKind::Measuring, || format!("cannot measure the {} arm", request.label))?;
        self.done.set(Nanos(start.0 + request.spec.length.0));
        self.observer.at(self.done.get());
        if request.explain {
            run.explained = Some(Box::new(explained(&run, &seen)));
        }
        Ok(run)
    }
}

/// The shield's steps as the proof keeps them.
fn taken(applied: &Applied) -> proof::ShieldMade {
    proof::ShieldMade {
        mechanism: Some(applied.shield.mechanism),
        cpus: applied.shield.cpus.clone(),
        housekeeping: applied.shield.housekeeping.clone(),
        steps: applied.steps.iter().map(step).collect(),
    }
}

fn step(Taken { step, outcome }: &Taken) -> StepTaken {
    StepTaken {
        what: step.action.what(),
        old: step.old.clone().unwrap_or_default(),
        new: step.action.new_value(),
        why: step.why.clone(),
        outcome: outcome.clone(),
    }
}
