//! Where a tune measures: this machine, block by block; every block puts it back.

use super::course::Bench;
use super::player;
use crate::{
    Because, Error, ErrorKind, Notice, Observer, Result, ShieldWish, Ward, machine, plan, raised,
};
use quiet_engine::{
    Setup, Wait,
    trial::{Calibrated, TrialSpec, trial},
};
use quiet_linux::{EnergyReading, Root, System};
use quiet_plan::{factor_of, factors, without};
use quiet_probe::{RunRequest, RunningStress};
use quiet_types::{
    CpuSet, Frames, Nanos, Plan,
    plan::{Action, Applied, Form, Need, Outcome, Step},
    run::{Spec, Stress},
    tune::{BlockPart, Factor, LeftOut, TuneBlock, TuneDesign, TuneValue},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
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
            action: Action::Write {
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

/// So many shields, or measurements, in a row may fail before the tune does.
pub(super) const MOST_FAILED: u32 = 3;

/// How far an outcome is what was meant: a block counts for a step only where it came as far as at the first try.
fn rank(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Done { .. } | Outcome::Already | Outcome::Pending { .. } => 2,
        Outcome::Partly { .. } => 1,
        Outcome::Refused { .. } | Outcome::Ignored { .. } | Outcome::Absent => 0,
    }
}

/// Whether what `status` names as moved is what a step changes: of a group each file is told by itself, an interrupt by its number alone.
fn is_of(what: &str, moved: &str) -> bool {
    let after = |long: &str, short: &str, then: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.starts_with(then))
    };
    what == moved
        || after(moved, what, "/")
        || after(what, moved, " (")
        || moved.strip_prefix("hold of ") == Some(what)
}

/// This machine.
pub(crate) struct Place<'a> {
    pub wish: ShieldWish,
    pub tried: &'a [TriedWrite],
    /// Steps that are never taken, by factor.
    pub forbidden: &'a [String],
    pub spec: Spec,
    /// Where the engine is to play in place of a probe.
    pub setup: Option<Setup>,
    /// Where what plays already is asked, in place of a probe.
    pub player: Option<&'a Path>,
    /// Whether lost and late periods are told by the second: lengths of periods are compared.
    pub by_second: bool,
    /// Share of a period that the work takes then.
    pub load: f64,
    pub calibrated: Option<Calibrated>,
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
    /// Shields that could not be put up, one after the other.
    pub failed: u32,
    /// Blocks that could not be measured, one after the other.
    pub unread: u32,
    /// Whether every revert put back every value.
    pub exact: bool,
    pub whole: RefCell<Nanos>,
}

impl<'a> Place<'a> {
    /// One in which nothing is forbidden, nothing tried beside the plan, and a probe measures.
    pub fn new(
        wish: ShieldWish,
        spec: Spec,
        stress: &[String],
        online: &CpuSet,
        (state, stop, observer): (&'a Path, &'a AtomicBool, &'a dyn Observer),
    ) -> Place<'a> {
        Place {
            ward: Ward::new(wish.clone(), state, stop, observer),
            wish,
            tried: &[],
            forbidden: &[],
            spec,
            setup: None,
            player: None,
            by_second: false,
            load: 0.0,
            calibrated: None,
            stress: stress.to_vec(),
            online: online.clone(),
            state,
            stop,
            observer,
            began: Instant::now(),
            responses: Vec::new(),
            expected: BTreeMap::new(),
            restless: BTreeSet::new(),
            failed: 0,
            unread: 0,
            exact: true,
            whole: RefCell::new(Nanos::ZERO),
        }
    }
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
        // A file that somebody else writes again is no step that holds; threads come and go.
        let is_file = |moved: &String| {
            applied.steps.iter().any(|taken| {
                matches!(taken.step.action, Action::Write { .. } | Action::HoldLatency)
                    && is_of(&taken.step.action.what(), moved)
            })
        };
        self.restless = moved?.into_iter().filter(|moved| !is_file(moved)).collect();
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
            let drifted = moved.difference(&self.restless).any(|moved| is_of(&what, moved));
            if (rank(&taken.outcome) < wanted || drifted)
                && let Some(name) = factor_of(plan, &taken.step)
            {
                void.insert(name);
            }
        }
        Ok(void)
    }

    /// Measures with a shield of these steps; whatever comes, the machine is put back.
    fn measured(&mut self, on: &[&str], label: &str) -> Result<Option<TuneBlock>> {
        // Beside everybody else, and started before the shield: who is kept off is what the steps decide.
        let stress = match self.stress.is_empty() {
            true => None,
            false => Some(RunningStress::start(&self.stress, &self.online)?),
        };
        let done = self.under(on, label);
        let back = self.ward.lower();
        let stress = stress.map(RunningStress::stop).transpose();
        self.exact &= back?;
        let Some(mut block) = done? else { return Ok(None) };
        block.throughput = stress?.as_ref().and_then(throughput);
        Ok(Some(block))
    }

    /// Takes the steps, measures, and reads back what is in force; `None` where it was interrupted.
    fn under(&mut self, on: &[&str], label: &str) -> Result<Option<TuneBlock>> {
        let root = Root::system()?;
        let plan = self.plan()?;
        let (all, _) = factors(&plan);
        let off: Vec<String> = all
            .into_iter()
            .map(|factor| factor.name)
            .filter(|name| !on.contains(&name.as_str()))
            .collect();
        let part = without(&plan, &off);
        let mut applied = None;
        if !part.steps.is_empty() {
            match self.ward.raise_plan(&part) {
                Ok(up) => applied = Some(up),
                Err(_) if raised(self.stop) => return Ok(None),
                // It is rolled back: a block is lost, where it is not the rule.
                Err(error) if self.failed < MOST_FAILED => {
                    self.failed += 1;
                    let lost = Some(format!("no shield could be put up: {error:#}"));
                    return Ok(Some(TuneBlock { lost, ..TuneBlock::default() }));
                }
                Err(error) => {
                    return Err(error).because(ErrorKind::Machine, || {
                        format!("cannot put up a shield of {}", on.join(", "))
                    });
                }
            }
        }
        self.failed = 0;
        let before = EnergyReading::now(&root);
        let read = match (self.player, self.setup.clone()) {
            (Some(socket), _) => self.listen(socket),
            (None, Some(setup)) => self.play(setup, applied.as_ref()),
            (None, None) => self.run(applied.as_ref(), label),
        };
        let spent = EnergyReading::now(&root).since(&before);
        let void = match &applied {
            Some(applied) => self.not_in_force(&plan, applied)?,
            None => BTreeSet::new(),
        };
        let read = match read {
            Err(_) if raised(self.stop) => return Ok(None),
            read => read?,
        };
        let Some(Read { values, lost }) = read else { return Ok(None) };
        let (void, on): (Vec<String>, Vec<String>) =
            on.iter().map(|name| (*name).to_owned()).partition(|name| void.contains(name));
        let lost = lost.or_else(|| values.is_none().then(|| "nothing was read in it".to_owned()));
        Ok(Some(TuneBlock {
            on,
            void,
            values: values.unwrap_or_default(),
            lost,
            watts: spent.watts,
            deep_idle: spent.deep,
            idle: spent.idle,
            ..TuneBlock::default()
        }))
    }

    /// The probe, in a process of its own.
    fn run(&self, applied: Option<&Applied>, label: &str) -> Result<Option<Read>> {
        let request = RunRequest {
            label: label.to_owned(),
            entry: applied.and_then(|up| up.shield.entry.clone()),
            ..RunRequest::new(self.spec.clone())
        };
        let run = quiet_probe::run(&request, self.stop, &mut |_| {
            self.observer.at(self.now().min(*self.whole.borrow()));
        })
        .because(ErrorKind::Measuring, || "cannot measure a block".into())?;
        if run.cut_short() {
            return Ok(None);
        }
        let moved = run.findings.iter().find(|finding| finding.id == "run.state_changed");
        let lost = moved.map(|moved| format!("{}: {}", moved.title, moved.evidence));
        let value = |id: &String| {
            let (value, half) = quiet_judge::figure_of(&run, id)?;
            Some(TuneValue { value, half })
        };
        Ok(Some(Read { values: self.responses.iter().map(value).collect(), lost }))
    }

    /// What plays already goes on, and is asked before and after.
    fn listen(&self, socket: &Path) -> Result<Option<Read>> {
        let before = player::counters(socket)?;
        let until = Instant::now() + Duration::from_nanos(self.spec.length.0);
        while Instant::now() < until {
            if raised(self.stop) {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20).min(until - Instant::now().min(until)));
            self.observer.at(self.now().min(*self.whole.borrow()));
        }
        let after = player::counters(socket)?;
        Ok(Some(match player::between(&before, &after) {
            Ok(values) => Read { values: Some(values.to_vec()), lost: None },
            Err(why) => Read { values: None, lost: Some(why) },
        }))
    }

    /// The engine plays on a host without a card, under the work of a strip.
    fn play(&self, mut setup: Setup, applied: Option<&Applied>) -> Result<Option<Read>> {
        setup.wish.shield = applied.map(|up| up.shield.clone());
        let length = Duration::from_nanos(self.spec.length.0);
        let wanted = TrialSpec { load: self.load, calibrated: self.calibrated, length };
        let played = trial(&setup, wanted, self.stop, &mut |_| {
            self.observer.at(self.now().min(*self.whole.borrow()));
        })
        .because(ErrorKind::Measuring, || "cannot play a block".into())?;
        if raised(self.stop) {
            return Ok(None);
        }
        let trial = played.trial;
        let share = |count: u64| {
            // Periods of different lengths are held against the same time.
            let all = match self.by_second {
                true => length.as_secs_f64(),
                false => trial.expected.max(1) as f64,
            };
            TuneValue { value: count as f64 / all, half: 0.5 / all }
        };
        let one = |id: &String| match id.as_str() {
            "duplex.late" => Some(share(trial.over)),
            "duplex.missed" => Some(share(trial.missed.max(trial.xruns))),
            _ => None,
        };
        Ok(Some(Read { values: self.responses.iter().map(one).collect(), lost: None }))
    }

    /// One block of a boot: the machine as it is, or the whole shield.
    pub fn of_boot(&mut self, shielded: bool) -> Result<Option<TuneBlock>> {
        let at = self.now();
        let (all, _) = match shielded {
            true => factors(&self.plan()?),
            false => Default::default(),
        };
        let on: Vec<&str> = all.iter().map(|factor| factor.name.as_str()).collect();
        let Some(mut block) = self.measured(&on, "tune of boot parameters")? else {
            return Ok(None);
        };
        block.void.clear();
        (block.part, block.at) = (BlockPart::Boot, at);
        self.observer.event(Notice::Block(&block));
        Ok(Some(block))
    }

    /// One block of a choice: the whole shield in a setting of its own.
    pub fn choice(
        &mut self,
        round: u32,
        name: &str,
        (wish, spec): (&ShieldWish, &Spec),
        (never_sleeps, period): (Option<bool>, Option<Frames>),
    ) -> Result<Option<TuneBlock>> {
        let at = self.now();
        self.wish.clone_from(wish);
        self.spec.clone_from(spec);
        if let Some(setup) = &mut self.setup {
            setup.wish.cpu = spec.cpus.first();
            setup.wish.priority = spec.priority;
            if let Some(period) = period {
                (setup.period, setup.buffer) = (period, Frames(period.0 * 2));
            }
            self.by_second = period.is_some();
            if let Some(never) = never_sleeps {
                setup.wish.mode = Some(if never { Wait::NeverSleep } else { Wait::Sleep });
            }
        }
        let (all, _) = factors(&self.plan()?);
        let on: Vec<&str> = all
            .iter()
            .map(|factor| factor.name.as_str())
            .filter(|name| !self.forbidden.iter().any(|off| off == name))
            .collect();
        let Some(mut block) = self.measured(&on, name)? else { return Ok(None) };
        // Another shield than the one that was looked at first: what it cannot have is no fault of the block.
        block.void.clear();
        (block.part, block.pair, block.at) = (BlockPart::Choice, round, at);
        block.on = vec![name.to_owned()];
        self.observer.event(Notice::Block(&block));
        Ok(Some(block))
    }

    /// What it does now.
    pub fn tell(&self, what: &str) {
        self.observer.doing(what);
        self.observer.at(self.now().min(*self.whole.borrow()));
    }
}

/// What a block read.
struct Read {
    /// By figure; `None` where one was not told.
    values: Option<Vec<TuneValue>>,
    /// Why it does not count.
    lost: Option<String>,
}

/// A block that could not be measured is lost, where that is not the rule; whatever else failed ends the tune.
fn or_lost(block: Result<Option<TuneBlock>>, unread: &mut u32) -> Result<Option<TuneBlock>> {
    match block {
        Err(error) if error.kind() == ErrorKind::Measuring && *unread < MOST_FAILED => {
            *unread += 1;
            Ok(Some(TuneBlock { lost: Some(format!("{error:#}")), ..TuneBlock::default() }))
        }
        block => {
            *unread = 0;
            block
        }
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
        let measured = self.measured(on, "tune");
        let Some(mut block) = or_lost(measured, &mut self.unread)? else { return Ok(None) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_status_names_is_found_among_the_steps() {
        assert!(is_of("/proc/sys/vm/stat_interval", "/proc/sys/vm/stat_interval"));
        assert!(is_of("/sys/fs/cgroup/quietcores", "/sys/fs/cgroup/quietcores/cpuset.cpus"));
        assert!(!is_of("/sys/fs/cgroup/quietcores", "/sys/fs/cgroup/quietcores-rest/cpuset.cpus"));
        assert!(is_of("IRQ 2 (usb)", "IRQ 2") && !is_of("IRQ 24 (usb)", "IRQ 2"));
        assert!(is_of("/dev/cpu_dma_latency", "hold of /dev/cpu_dma_latency"));
    }

    #[test]
    fn the_throughput_is_the_geometric_mean_of_who_did_anything() {
        let one = |per_second: f64| quiet_types::run::Throughput {
            stressor: "x".into(),
            operations: per_second,
            per_second,
        };
        let stress = Stress { throughput: vec![one(4.0), one(0.0), one(9.0)], ..Stress::default() };
        assert!((throughput(&stress).unwrap() - 6.0).abs() < 1e-9);
        assert_eq!(throughput(&Stress::default()), None);
    }

    #[test]
    fn a_block_that_cannot_be_measured_is_lost_and_only_as_a_rule_the_end() {
        let cannot = |kind| Err(Error::new(kind, "no probe"));
        let mut unread = 0;
        for _ in 0..MOST_FAILED {
            let block = or_lost(cannot(ErrorKind::Measuring), &mut unread).unwrap().unwrap();
            assert_eq!(block.lost.as_deref(), Some("no probe"));
        }
        assert!(or_lost(cannot(ErrorKind::Measuring), &mut unread).is_err());
        assert!(or_lost(Ok(Some(TuneBlock::default())), &mut unread).unwrap().is_some());
        assert!(or_lost(cannot(ErrorKind::Measuring), &mut unread).is_ok(), "counted anew");
        assert!(or_lost(cannot(ErrorKind::Machine), &mut unread).is_err());
    }

    #[test]
    fn less_than_at_the_first_time_is_void() {
        let seen = || "x".to_owned();
        assert!(
            rank(&Outcome::Done { seen: seen() })
                > rank(&Outcome::Partly { seen: seen(), refused: vec![] })
        );
        assert!(rank(&Outcome::Already) > rank(&Outcome::Ignored { seen: seen() }));
        assert_eq!(rank(&Outcome::Absent), rank(&Outcome::Refused { reason: seen() }));
    }
}
