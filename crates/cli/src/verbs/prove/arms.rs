//! The arms: pair by pair, the order within each drawn by lot; each measured whole, each void where its ground moved.

use crate::face;
use crate::verbs::ward::Ward;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quiet_probe::{Request, Stress};
use quiet_types::{
    CpuSet, Finding, Nanos, Run,
    lot::Lot,
    plan::{Applied, Outcome, Taken},
    proof::{self, Arm, Setting, StepTaken},
    run::{Probe, Spec},
};
use std::{collections::BTreeMap, io::IsTerminal, sync::atomic::AtomicBool, time::Duration};

/// A gap longer than this is time taken from the thread: the tick alone takes 2 to 5 us.
const STOLEN: Nanos = Nanos::from_micros(20);

/// What is measured, and how often.
pub struct Turns<'a> {
    /// Of the wakeup probe.
    pub spec: Spec,
    /// Length of the gap measurement; zero for none.
    pub gap: Nanos,
    pub stress: Vec<String>,
    pub online: CpuSet,
    pub housekeeping: CpuSet,
    /// What is compared with shared.
    pub other: Setting,
    /// The order of each pair, and how many there are.
    pub lot: Lot,
    /// Whether late readings are told by cause, in both settings alike.
    pub explain: bool,
    pub ward: Ward<'a>,
    pub stop: &'a AtomicBool,
}

/// What came of it.
pub struct Measured {
    pub arms: Vec<Arm>,
    /// What the first shield was made of.
    pub applied: Option<proof::ShieldMade>,
    /// Whether every revert put back every value.
    pub reverts_exact: bool,
    pub findings: Vec<Finding>,
}

impl Turns<'_> {
    pub fn run(&mut self) -> anyhow::Result<Measured> {
        let mut done =
            Measured { arms: Vec::new(), applied: None, reverts_exact: true, findings: Vec::new() };
        let bar = self.bar();
        'pairs: for pair in 0..self.lot.pairs {
            let mut settings = [Setting::Shared, self.other];
            if !self.lot.shared_first(pair) {
                settings.reverse();
            }
            for setting in settings {
                if face::raised(self.stop) {
                    break 'pairs;
                }
                bar.set_message(format!("pair {} of {}, {setting}", pair + 1, self.lot.pairs));
                let Some(arm) = self.arm(pair, setting, &bar, &mut done)? else { break 'pairs };
                done.arms.push(arm);
            }
            self.tell(pair, &done.arms, &bar);
        }
        bar.finish_and_clear();
        Ok(done)
    }

    /// One arm; `None` where it was interrupted before anything was measured.
    fn arm(
        &mut self,
        pair: u32,
        setting: Setting,
        bar: &ProgressBar,
        done: &mut Measured,
    ) -> anyhow::Result<Option<Arm>> {
        let mut void = None;
        let mut entry = None;
        if setting == Setting::Shielded {
            let applied = match self.ward.raise() {
                Ok(applied) => applied,
                Err(_) if face::raised(self.stop) => return Ok(None),
                Err(error) => return Err(error.context("cannot put the shield up")),
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
        let request = Request {
            label: setting.to_string(),
            entry,
            explain: self.explain,
            ..Request::new(self.spec.clone())
        };
        let measured = self.under_stress(&request, &stress_cpus, bar);
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
    fn under_stress(
        &self,
        request: &Request,
        cpus: &CpuSet,
        bar: &ProgressBar,
    ) -> anyhow::Result<(Run, Option<Run>)> {
        let stress = Stress::start(&self.stress, cpus)?;
        let mut wakeup = self.probe(request, bar)?;
        let mut gap = None;
        if self.gap > Nanos::ZERO && !wakeup.cut_short() {
            let spec = Spec {
                probe: Probe::Gap,
                length: self.gap,
                threshold: STOLEN,
                ..self.spec.clone()
            };
            gap = Some(self.probe(&Request { spec, ..request.clone() }, bar)?);
        }
        let stress = stress.stop()?;
        for run in std::iter::once(&mut wakeup).chain(&mut gap) {
            run.stress = Some(stress.clone());
        }
        Ok((wakeup, gap))
    }

    fn probe(&self, request: &Request, bar: &ProgressBar) -> anyhow::Result<Run> {
        let start = bar.position();
        let (mut run, seen) = quiet_probe::watched(request, self.stop, &mut |progress| {
            bar.set_position(start + progress.elapsed.min(progress.length).0 / 1_000_000);
        })
        .with_context(|| format!("cannot measure the {} arm", request.label))?;
        bar.set_position(start + request.spec.length.0 / 1_000_000);
        if request.explain {
            run.explained = Some(Box::new(crate::verbs::explain::explained(&run, &seen)));
        }
        Ok(run)
    }

    fn bar(&self) -> ProgressBar {
        let arm = (self.spec.length.0 + self.gap.0) / 1_000_000;
        let bar = ProgressBar::with_draw_target(
            Some(arm * 2 * u64::from(self.lot.pairs)),
            if std::io::stderr().is_terminal() {
                ProgressDrawTarget::stderr()
            } else {
                ProgressDrawTarget::hidden()
            },
        );
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}  ({eta} left)")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    /// A line a pair, so that a log shows life and a person sees it come.
    fn tell(&self, pair: u32, arms: &[Arm], bar: &ProgressBar) {
        let mut by: BTreeMap<Setting, String> = BTreeMap::new();
        for arm in arms.iter().filter(|arm| arm.pair == pair) {
            let readings = arm.wakeup.readings();
            let p99 = readings.percentile(0.99).map_or("none".to_owned(), |p99| p99.to_string());
            let beyond: u64 = arm.wakeup.threads.iter().filter_map(|t| t.beyond).sum();
            let void = if arm.void.is_some() { ", void" } else { "" };
            by.insert(
                arm.setting,
                format!(
                    "{}: p99 {p99}, {beyond} beyond {}, {} missed{void}",
                    arm.setting,
                    self.spec.threshold,
                    arm.wakeup.missed().unwrap_or_default()
                ),
            );
        }
        let line = by.into_values().collect::<Vec<_>>().join("; ");
        bar.suspend(|| face::say(&format!("pair {} of {}  {line}", pair + 1, self.lot.pairs)));
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
        held: outcome.holds(),
        outcome: match outcome {
            Outcome::Done { seen } => format!("verified: {seen}"),
            Outcome::Already => "was so already".to_owned(),
            Outcome::Pending { seen } => {
                format!("accepted, in force at the next interrupt: {seen}")
            }
            Outcome::Partly { seen, refused } => format!("{seen}; refused: {}", refused.join(", ")),
            Outcome::Refused { reason } => format!("refused: {reason}"),
            Outcome::Ignored { seen } => format!("accepted and not done: reads {seen}"),
            Outcome::Absent => "not there".to_owned(),
        },
    }
}
