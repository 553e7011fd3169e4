//! Where a tune measures: this machine, block by block; every block puts it back.

use super::course::Bench;
use crate::{
    Because, Error, ErrorKind, Notice, Observer, Result, ShieldWish, Ward, machine, plan, raised,
};
use quiet_linux::{EnergyReading, Root, System};
use quiet_plan::{factor_of, factors, without};
use quiet_probe::{RunRequest, RunningStress};
use quiet_types::{
    CpuSet, Nanos, Plan, Run,
    plan::{Applied, Form, Need, Outcome, Step},
    run::{Spec, Stress},
    tune::{BlockPart, Factor, LeftOut, TuneBlock, TuneDesign, TuneValue},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::AtomicBool,
    time::Instant,
};

/// A file that a user wants to have tried: what is written, beside the steps of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedWrite {
    /// The file, below `/proc/sys` or `/sys`.
    pub path: String,
    /// The value.
    pub value: String,
}

impl TriedWrite {
    /// As a step of the plan: noted, read back and put back as every other.
    pub(crate) fn step(&self) -> Step {
        Step {
            action: quiet_types::plan::Action::Write {
                path: self.path.clone(),
                request: None,
                value: self.value.clone(),
                form: Form::Text,
            },
            old: None,
            why: "asked for by --try".to_owned(),
            need: Need::BestEffort,
        }
    }
}

/// How far an outcome is what was meant: a block counts for a step only where it came as far as at the first try.
fn rank(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Done { .. } | Outcome::Already | Outcome::Pending { .. } => 2,
        Outcome::Partly { .. } => 1,
        Outcome::Refused { .. } | Outcome::Ignored { .. } | Outcome::Absent => 0,
    }
}

/// This machine.
pub(crate) struct Place<'a> {
    pub wish: ShieldWish,
    pub tried: &'a [TriedWrite],
    /// Steps that are never taken, by factor.
    pub forbidden: &'a [String],
    pub spec: Spec,
    pub stress: Vec<String>,
    pub online: CpuSet,
    pub ward: Ward<'a>,
    pub state: &'a Path,
    pub stop: &'a AtomicBool,
    pub observer: &'a dyn Observer,
    pub began: Instant,
    /// Ids of the figures, as the course has them.
    pub responses: Vec<String>,
    /// How far each step came when all of them were taken first, by what it changes.
    pub expected: BTreeMap<String, u8>,
    /// What is not as it was made a while after, at the best of times: new threads come and go.
    pub restless: BTreeSet<String>,
    /// Whether every revert put back every value.
    pub exact: bool,
    pub whole: RefCell<Nanos>,
}

impl Place<'_> {
    /// The plan with what a user wants tried.
    pub fn plan(&self) -> Result<Plan> {
        let mut plan = plan(&self.wish, &machine(&Root::system()?)?)?;
        plan.steps.extend(self.tried.iter().map(TriedWrite::step));
        Ok(plan)
    }

    /// Takes every step once and looks what became of it: what cannot be had, or is so already, is no factor.
    pub fn look(&mut self) -> Result<(Vec<Factor>, Vec<LeftOut>, Applied)> {
        let plan = self.plan()?;
        let (mut found, mut left) = factors(&plan);
        for name in self.forbidden {
            found.retain(|factor| factor.name != *name);
            left.push(LeftOut { what: name.clone(), why: "it was forbidden by --keep-off".into() });
        }
        let applied = self
            .ward
            .raise_plan(&without(&plan, self.forbidden))
            .because(ErrorKind::Machine, || "cannot put the whole shield up".into())?;
        let moved = self.moved();
        let exact = self.ward.lower()?;
        self.exact &= exact;
        self.restless = moved?;
        let mut became: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
        for taken in &applied.steps {
            self.expected.insert(taken.step.action.what(), rank(&taken.outcome));
            if let Some(name) = factor_of(&plan, &taken.step) {
                became.entry(name).or_default().push(&taken.outcome);
            }
        }
        found.retain(|factor| {
            let outcomes = became.get(&factor.name).map(Vec::as_slice).unwrap_or_default();
            let why = if outcomes.iter().all(|one| matches!(one, Outcome::Already)) {
                "it is so already: there is nothing to switch"
            } else if outcomes.iter().all(|one| rank(one) == 0) {
                "it cannot be had here: it was refused, ignored, or what it changes is not there"
            } else {
                return true;
            };
            left.push(LeftOut { what: factor.name.clone(), why: why.to_owned() });
            false
        });
        Ok((found, left, applied))
    }

    /// What of the shield that is up is not as it was made.
    fn moved(&self) -> Result<BTreeSet<String>> {
        let status = quiet_shield::status(&System, self.state)?;
        Ok(status.drift.into_iter().map(|drift| drift.what).collect())
    }

    /// The steps that were to be in force and were not: when they were taken, or at the end of the block.
    fn not_in_force(&self, plan: &Plan, applied: &Applied) -> Result<BTreeSet<String>> {
        let moved = self.moved()?;
        let mut void = BTreeSet::new();
        for taken in &applied.steps {
            let what = taken.step.action.what();
            let wanted = self.expected.get(&what).copied().unwrap_or(0);
            let drifted = moved.contains(&what) && !self.restless.contains(&what);
            if (rank(&taken.outcome) < wanted || drifted)
                && let Some(name) = factor_of(plan, &taken.step)
            {
                void.insert(name);
            }
        }
        Ok(void)
    }

    /// Measures with a shield of these steps; whatever comes, the machine is put back.
    fn measured(
        &mut self,
        on: &[&str],
        shielded: &ShieldWish,
        spec: &Spec,
        label: &str,
    ) -> Result<Option<TuneBlock>> {
        self.wish.clone_from(shielded);
        // Beside everybody else, and started before the shield: who is kept off is what the steps decide.
        let stress = match self.stress.is_empty() {
            true => None,
            false => Some(RunningStress::start(&self.stress, &self.online)?),
        };
        let done = self.under(on, spec, label);
        let back = self.ward.lower();
        let stress = stress.map(RunningStress::stop).transpose();
        self.exact &= back?;
        let Some((mut block, run)) = done? else { return Ok(None) };
        block.throughput = stress?.as_ref().and_then(throughput);
        if run.cut_short() {
            return Ok(None);
        }
        block.lost = run
            .findings
            .iter()
            .find(|finding| finding.id == "run.state_changed")
            .map(|moved| format!("{}: {}", moved.title, moved.evidence));
        let values: Option<Vec<TuneValue>> = self
            .responses
            .iter()
            .map(|id| {
                let (value, half) = quiet_judge::figure_of(&run, id)?;
                Some(TuneValue { value, half })
            })
            .collect();
        match values {
            Some(values) => block.values = values,
            None => {
                block.lost.get_or_insert_with(|| "nothing was read in it".to_owned());
            }
        }
        Ok(Some(block))
    }

    fn under(&mut self, on: &[&str], spec: &Spec, label: &str) -> Result<Option<(TuneBlock, Run)>> {
        let root = Root::system()?;
        let plan = self.plan()?;
        let (all, _) = factors(&plan);
        let off: Vec<String> = all
            .into_iter()
            .map(|factor| factor.name)
            .filter(|name| !on.contains(&name.as_str()))
            .collect();
        let part = without(&plan, &off);
        let mut entry = None;
        let mut applied = None;
        if !part.steps.is_empty() {
            let up = match self.ward.raise_plan(&part) {
                Ok(up) => up,
                Err(_) if raised(self.stop) => return Ok(None),
                error => error.because(ErrorKind::Machine, || {
                    format!("cannot put up a shield of {}", on.join(", "))
                })?,
            };
            entry.clone_from(&up.shield.entry);
            applied = Some(up);
        }
        let before = EnergyReading::now(&root);
        let request =
            RunRequest { label: label.to_owned(), entry, ..RunRequest::new(spec.clone()) };
        let run = quiet_probe::run(&request, self.stop, &mut |_| {
            self.observer.at(self.now().min(*self.whole.borrow()));
        })
        .because(ErrorKind::Measuring, || "cannot measure a block".into());
        let spent = EnergyReading::now(&root).since(&before);
        let void = match &applied {
            Some(applied) => self.not_in_force(&plan, applied)?,
            None => BTreeSet::new(),
        };
        let run = match run {
            Err(_) if raised(self.stop) => return Ok(None),
            run => run?,
        };
        let (void, on): (Vec<String>, Vec<String>) =
            on.iter().map(|name| (*name).to_owned()).partition(|name| void.contains(name));
        let block = TuneBlock {
            on,
            void,
            watts: spent.watts,
            deep_idle: spent.deep,
            idle: spent.idle,
            ..TuneBlock::default()
        };
        Ok(Some((block, run)))
    }

    /// One block of a choice: the machine in a setting of its own.
    pub fn choice(
        &mut self,
        round: u32,
        name: &str,
        on: &[&str],
        wish: &ShieldWish,
        spec: &Spec,
    ) -> Result<Option<TuneBlock>> {
        let at = self.now();
        let Some(mut block) = self.measured(on, wish, spec, name)? else { return Ok(None) };
        if !block.void.is_empty() {
            block.lost.get_or_insert(format!("{} did not hold", block.void.join(", ")));
        }
        (block.part, block.pair, block.at) = (BlockPart::Choice, round, at);
        block.on = vec![name.to_owned()];
        Ok(Some(block))
    }
}

/// The geometric mean of what the stressors did a second, of those that did anything.
fn throughput(stress: &Stress) -> Option<f64> {
    let logs: Vec<f64> = stress
        .throughput
        .iter()
        .map(|one| one.per_second)
        .filter(|rate| *rate > 0.0)
        .map(f64::ln)
        .collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

impl Bench for Place<'_> {
    type Error = Error;

    fn block(&mut self, part: BlockPart, pair: u32, on: &[&str]) -> Result<Option<TuneBlock>> {
        if raised(self.stop) {
            return Ok(None);
        }
        let at = self.now();
        let (wish, spec) = (self.wish.clone(), self.spec.clone());
        let Some(mut block) = self.measured(on, &wish, &spec, "tune")? else { return Ok(None) };
        (block.part, block.pair, block.at) = (part, pair, at);
        self.observer.event(Notice::Block(&block));
        Ok(Some(block))
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn doing(&self, what: &str, whole: Nanos) {
        if *self.whole.borrow() != whole {
            *self.whole.borrow_mut() = whole;
            self.observer.begin(whole);
        }
        self.observer.doing(what);
        self.observer.at(self.now().min(whole));
    }

    fn stated(&self, design: &TuneDesign, factors: &[Factor]) {
        self.observer.event(Notice::Design(design, factors));
    }
}
