//! Choices beside steps: which CPU, which priority, siblings, sleep or never sleep; by successive halving.

use super::{
    Tuning,
    course::Bench,
    place::{MOST_FAILED, Place},
};
use crate::{Error, ErrorKind, Result, ShieldWish, raised};
use quiet_judge::tune::{judge_choice, others_left};
use quiet_types::{
    CpuSet, Frames, Machine, Nanos,
    run::Spec,
    tune::{BlockPart, LeftOut, TuneBlock, TunedChoice},
    words,
};
use std::collections::BTreeMap;

/// What may be chosen beside the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The CPU that is shielded: the quietest one, of whichever cluster.
    Cpu,
    /// Its SMT siblings: idle, or off.
    Siblings,
    /// The priority of the thread.
    Priority,
    /// Whether the playing thread sleeps; by playing, not by waking.
    Mode,
    /// Frames a period, and with them the buffer: two periods; by playing.
    Period,
}

impl Pick {
    /// Its name: `cpu`, `siblings`, `priority`, `mode`, `period`.
    pub fn name(self) -> &'static str {
        match self {
            Pick::Cpu => "cpu",
            Pick::Siblings => "siblings",
            Pick::Priority => "priority",
            Pick::Mode => "mode",
            Pick::Period => "period",
        }
    }
}

/// More CPUs are not tried.
const MOST: usize = 32;
/// Priorities that are tried.
const PRIORITIES: [u8; 5] = [50, 70, 80, 90, 95];
/// Periods that are tried, in frames.
const PERIODS: [u32; 6] = [16, 32, 64, 128, 256, 512];
/// The fewest rounds before anybody is left out, and at the end.
const FEWEST: u32 = 6;

/// One of those to choose from.
struct Alternative {
    name: String,
    wish: ShieldWish,
    spec: Spec,
    never_sleeps: Option<bool>,
    period: Option<Frames>,
}

/// All that can be chosen from here.
fn alternatives(
    pick: Pick,
    args: &Tuning,
    machine: &Machine,
    (wish, spec): (&ShieldWish, &Spec),
) -> Result<Vec<Alternative>> {
    let alternative = |name: String, wish: ShieldWish, spec: Spec| Alternative {
        name,
        wish,
        spec,
        never_sleeps: None,
        period: None,
    };
    let all: Vec<Alternative> = match pick {
        Pick::Cpu => machine
            .cpus
            .iter()
            .filter(|cpu| cpu.online)
            .take(MOST)
            .filter_map(|cpu| {
                let cpus: CpuSet = [cpu.id].into_iter().collect();
                let wish = ShieldWish { cpus: Some(cpus.clone()), ..args.wish.clone() };
                crate::plan(&wish, machine).ok()?;
                let cluster = cpu
                    .capacity
                    .map_or(String::new(), |capacity| format!(" (capacity {capacity})"));
                let spec = Spec { cpus, ..spec.clone() };
                Some(alternative(format!("CPU {}{cluster}", cpu.id), wish, spec))
            })
            .collect(),
        Pick::Siblings => {
            let shielded = wish.cpus.clone().unwrap_or_default();
            let siblings = machine.cpus.iter().filter(|cpu| shielded.contains(cpu.id));
            if siblings.flat_map(|cpu| cpu.siblings.iter()).all(|cpu| shielded.contains(cpu)) {
                return Err(Error::asked(
                    "there is no choice of siblings: the shielded CPUs have none outside the shield",
                ));
            }
            [("siblings as they are", false), ("siblings off", true)]
                .map(|(name, off)| {
                    let wish = ShieldWish { smt_off: off, ..wish.clone() };
                    alternative(name.to_owned(), wish, spec.clone())
                })
                .into()
        }
        Pick::Priority => PRIORITIES
            .map(|priority| {
                let spec = Spec { priority, ..spec.clone() };
                alternative(format!("priority {priority}"), wish.clone(), spec)
            })
            .into(),
        Pick::Mode => [("sleep", false), ("never-sleep", true)]
            .map(|(name, never)| {
                let wish = ShieldWish { never_sleep: never, ..wish.clone() };
                let one = alternative(name.to_owned(), wish, spec.clone());
                Alternative { never_sleeps: Some(never), ..one }
            })
            .into(),
        Pick::Period => PERIODS
            .map(|frames| {
                let name = format!("{frames} frames");
                let one = alternative(name, wish.clone(), spec.clone());
                Alternative { period: Some(Frames(frames)), ..one }
            })
            .into(),
    };
    if all.len() < 2 {
        return Err(Error::asked(format!(
            "there is no choice of {} here: {} can be shielded",
            pick.name(),
            all.first().map_or("nothing", |one| one.name.as_str())
        )));
    }
    Ok(all)
}

/// How many times the better half goes on: until two are left.
fn stages(alternatives: usize) -> u32 {
    let mut left = alternatives;
    let mut stages = 1;
    while left > 2 {
        left = left.div_ceil(2);
        stages += 1;
    }
    stages
}

/// Where alternatives are measured.
trait Trials {
    /// One block; `None` where it was interrupted.
    fn block(&mut self, round: u32, one: &Alternative) -> Result<Option<TuneBlock>>;
    fn now(&self) -> Nanos;
    fn tell(&self, what: &str);
    fn stopped(&self) -> bool;
}

impl Trials for Place<'_> {
    fn block(&mut self, round: u32, one: &Alternative) -> Result<Option<TuneBlock>> {
        let settings = (one.never_sleeps, one.period);
        self.choice(round, &one.name, (&one.wish, &one.spec), settings)
    }

    fn now(&self) -> Nanos {
        Bench::now(self)
    }

    fn tell(&self, what: &str) {
        Place::tell(self, what);
    }

    fn stopped(&self) -> bool {
        raised(self.stop)
    }
}

/// Measures the alternatives in rounds, leaves the worse half out after each stage, and tells what is shown; `None` where it was
/// interrupted before the first round was over, or nothing could be measured. What could not be is named in `left`.
pub(super) fn choose(
    pick: Pick,
    args: &Tuning,
    machine: &Machine,
    place: &mut Place<'_>,
    (seed, time): (u32, Nanos),
    (blocks, left): (&mut Vec<TuneBlock>, &mut Vec<LeftOut>),
) -> Result<Option<TunedChoice>> {
    let (wish, spec) = (place.wish.clone(), place.spec.clone());
    let all = alternatives(pick, args, machine, (&wish, &spec))?;
    let choice = rounds(pick, &all, place, (seed, time), (blocks, left));
    (place.wish, place.spec) = (wish, spec);
    choice
}

fn rounds(
    pick: Pick,
    all: &[Alternative],
    place: &mut dyn Trials,
    (seed, time): (u32, Nanos),
    (blocks, left): (&mut Vec<TuneBlock>, &mut Vec<LeftOut>),
) -> Result<Option<TunedChoice>> {
    let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
    let stages = stages(all.len());
    let (began, first) = (place.now(), blocks.len());
    let mut alive = names.clone();
    // How often in a row each could not be measured.
    let mut failed: BTreeMap<&str, u32> = BTreeMap::new();
    let mut round = 0;
    'stages: for stage in 0..stages {
        let until = Nanos(began.0 + time.0 / u64::from(stages) * u64::from(stage + 1));
        let enough = round + FEWEST;
        while round < enough || place.now() < until {
            for at in quiet_types::lot::order(seed ^ pick as u32, u64::from(round), alive.len()) {
                let Some(one) = all.iter().find(|one| one.name == alive[at]) else { continue };
                if place.stopped() {
                    break 'stages;
                }
                let rest = words::span(Nanos(until.0.saturating_sub(place.now().0)));
                place.tell(&format!(
                    "{}: {}, round {}; {} of {} still in; the next look in {rest}",
                    pick.name(),
                    one.name,
                    round + 1,
                    alive.len(),
                    names.len(),
                ));
                let at = place.now();
                match place.block(round, one) {
                    Ok(Some(block)) => {
                        failed.remove(one.name.as_str());
                        blocks.push(block);
                    }
                    Ok(None) => break 'stages,
                    // The engine or the probe cannot work in this setting, or no shield can be planned for it. The others can be
                    // judged all the same.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Measuring | ErrorKind::Asked) =>
                    {
                        *failed.entry(one.name.as_str()).or_default() += 1;
                        blocks.push(TuneBlock {
                            part: BlockPart::Choice,
                            pair: round,
                            at,
                            on: vec![one.name.clone()],
                            lost: Some(format!("{error:#}")),
                            ..TuneBlock::default()
                        });
                    }
                    Err(error) => return Err(error),
                }
            }
            round += 1;
            let before = alive.len();
            alive.retain(|name| failed.get(name.as_str()).is_none_or(|times| *times < MOST_FAILED));
            // Nobody is left to be held against.
            if alive.len() < before && alive.len() < 2 {
                break 'stages;
            }
        }
        // Two go on to the end, also where others could not be measured.
        if stage + 1 < stages && alive.len() > 2 {
            alive = others_left(&blocks[first..], &alive);
        }
    }
    let own = &blocks[first..];
    let counts = |name: &&String| {
        own.iter().any(|block| block.lost.is_none() && block.on.first() == Some(*name))
    };
    let why = |name: &String| {
        let last = own.iter().rev().find(|block| block.on.first() == Some(name));
        last.and_then(|block| block.lost.clone())
    };
    let measured: Vec<String> = names.iter().filter(counts).cloned().collect();
    // Whoever was not reached has no reason of its own.
    left.extend(names.iter().filter(|name| !counts(name)).filter_map(|name| {
        Some(LeftOut { what: format!("{} {name}", pick.name()), why: why(name)? })
    }));
    // What was measured for a while and then could not be is told as well.
    left.extend(
        measured.iter().filter(|name| failed.get(name.as_str()) >= Some(&MOST_FAILED)).map(
            |name| LeftOut {
                what: format!("{} {name} in later rounds", pick.name()),
                why: why(name).unwrap_or_default(),
            },
        ),
    );
    if measured.is_empty() {
        return Ok(None);
    }
    let mut choice = judge_choice(pick.name(), &measured, own, stages as usize);
    match measured.as_slice() {
        [one] if names.len() > 1 => {
            choice.sentence = format!("{one} is the only one that was measured");
        }
        _ if pick == Pick::Period => choice.sentence = shortest(&measured, &choice),
        _ => {}
    }
    Ok(Some(choice))
}

/// Longer periods are never worse: what counts is the shortest one that is not shown to be.
fn shortest(names: &[String], choice: &TunedChoice) -> String {
    let beaten = |name: &&String| {
        choice.tried.iter().any(|one| one.name == **name && (one.beaten || one.blocks == 0))
    };
    let worse: Vec<&str> = names.iter().filter(beaten).map(String::as_str).collect();
    let Some(least) = names.iter().find(|name| !beaten(name)) else {
        return "nothing was measured".to_owned();
    };
    match worse.as_slice() {
        [] => format!("{least} is the shortest; that any longer one loses less is not shown"),
        _ => format!(
            "{least} is the shortest that is not shown to lose more than the best; {} is shown to",
            worse.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        machine::Policy,
        run::{Idle, Probe},
        tune::{TriedChoice, TuneValue},
    };

    #[test]
    fn of_periods_the_shortest_that_is_not_shown_to_be_worse_is_told() {
        let names: Vec<String> = ["16 frames", "32 frames", "64 frames"].map(str::to_owned).into();
        let tried = |name: &str, beaten| TriedChoice {
            name: name.into(),
            blocks: 8,
            median: 0.0,
            ratio: None,
            p_value: None,
            beaten,
        };
        let mut choice = TunedChoice {
            what: "period".into(),
            tried: vec![
                tried("64 frames", false),
                tried("32 frames", false),
                tried("16 frames", true),
            ],
            sentence: String::new(),
        };
        assert!(shortest(&names, &choice).starts_with("32 frames is the shortest that"));
        choice.tried[2].beaten = false;
        assert!(shortest(&names, &choice).starts_with("16 frames is the shortest;"));
    }

    /// Settings that are measured at once, some of which nobody can play in.
    struct Played {
        now: u64,
        cannot: &'static [(&'static str, u32)],
        kind: ErrorKind,
    }

    impl Trials for Played {
        fn block(&mut self, round: u32, one: &Alternative) -> Result<Option<TuneBlock>> {
            self.now += 1;
            if self.cannot.iter().any(|(name, from)| *name == one.name && round >= *from) {
                let engine = Error::new(self.kind, "a partition of 1 CPU takes whole processes");
                return Err(engine);
            }
            let value = TuneValue { value: one.name.len() as f64, half: 0.1 };
            Ok(Some(TuneBlock {
                part: BlockPart::Choice,
                pair: round,
                on: vec![one.name.clone()],
                values: vec![value],
                ..TuneBlock::default()
            }))
        }

        fn now(&self) -> Nanos {
            Nanos(self.now)
        }

        fn tell(&self, _: &str) {}

        fn stopped(&self) -> bool {
            false
        }
    }

    type Chosen = (Result<Option<TunedChoice>>, Vec<LeftOut>, Vec<TuneBlock>);

    fn chosen(names: &[&str], cannot: &'static [(&'static str, u32)], kind: ErrorKind) -> Chosen {
        let spec = Spec {
            probe: Probe::Gap,
            cpus: CpuSet::default(),
            policy: Policy::Fifo,
            priority: 80,
            length: Nanos(1),
            threshold: Nanos(1),
            bucket: Nanos(1),
            buckets: 1,
            idle: Idle::AsIs,
            core: Default::default(),
        };
        let alternative = |name: &&str| Alternative {
            name: (*name).to_owned(),
            wish: ShieldWish::default(),
            spec: spec.clone(),
            never_sleeps: None,
            period: None,
        };
        let all: Vec<Alternative> = names.iter().map(alternative).collect();
        let (mut blocks, mut left) = (Vec::new(), Vec::new());
        let mut played = Played { now: 0, cannot, kind };
        let time = (7, Nanos(60));
        let choice = rounds(Pick::Mode, &all, &mut played, time, (&mut blocks, &mut left));
        (choice, left, blocks)
    }

    #[test]
    fn what_cannot_be_played_is_left_out_by_name_and_the_rest_is_judged() {
        let (choice, left, blocks) =
            chosen(&["sleep", "never-sleep"], &[("never-sleep", 0)], ErrorKind::Measuring);
        let choice = choice.unwrap().unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].what, "mode never-sleep");
        assert!(left[0].why.contains("takes whole processes"), "{}", left[0].why);
        assert_eq!(choice.sentence, "sleep is the only one that was measured");
        let tried: Vec<&str> = choice.tried.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(tried, ["sleep"]);
        assert!(choice.tried.iter().all(|one| one.median.is_finite()));
        let refused = blocks.iter().filter(|block| block.lost.is_some()).count();
        assert_eq!(refused, MOST_FAILED as usize, "it is not tried for ever");

        // Of three the other two are held against each other.
        let three = ["a", "bbbb", "cc"];
        let (choice, left, _) = chosen(&three, &[("cc", 0)], ErrorKind::Measuring);
        let choice = choice.unwrap().unwrap();
        assert_eq!(choice.tried.len(), 2);
        assert!(choice.sentence.starts_with("a is better than all others"), "{}", choice.sentence);
        assert_eq!(left[0].what, "mode cc");

        // One that fails later on keeps what was measured of it.
        let (choice, left, _) = chosen(&three, &[("cc", 2)], ErrorKind::Measuring);
        assert_eq!(choice.unwrap().unwrap().tried.len(), 3);
        assert_eq!(left[0].what, "mode cc in later rounds");

        let (choice, left, _) = chosen(&["a", "bb"], &[("a", 0), ("bb", 0)], ErrorKind::Measuring);
        assert_eq!((choice.unwrap(), left.len()), (None, 2));
        // A machine that cannot be put back is no setting that cannot be played in.
        let (choice, ..) = chosen(&three, &[("cc", 0)], ErrorKind::Machine);
        assert_eq!(choice.unwrap_err().kind(), ErrorKind::Machine);
    }

    #[test]
    fn halving_ends_with_two() {
        for (alternatives, wanted) in [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (32, 5)] {
            assert_eq!(stages(alternatives), wanted, "{alternatives}");
        }
    }
}
