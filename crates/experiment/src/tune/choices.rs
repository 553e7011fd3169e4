//! Choices beside steps: which CPU, which priority, siblings, sleep or never sleep; by successive halving.

use super::{Tuning, course::Bench, place::Place};
use crate::{Error, Result, ShieldWish, raised};
use quiet_judge::tune::{judge_choice, others_left};
use quiet_types::{
    CpuSet, Frames, Machine, Nanos,
    run::Spec,
    tune::{TuneBlock, TunedChoice},
    words,
};

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

/// Measures the alternatives in rounds, leaves the worse half out after each stage, and tells what is shown; `None` where it was
/// interrupted before the first round was over.
pub(super) fn choose(
    pick: Pick,
    args: &Tuning,
    machine: &Machine,
    place: &mut Place<'_>,
    (seed, time): (u32, Nanos),
    blocks: &mut Vec<TuneBlock>,
) -> Result<Option<TunedChoice>> {
    let (wish, spec) = (place.wish.clone(), place.spec.clone());
    let all = alternatives(pick, args, machine, (&wish, &spec))?;
    let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
    let stages = stages(all.len());
    let (began, first) = (place.now(), blocks.len());
    let mut alive = names.clone();
    let mut round = 0;
    'stages: for stage in 0..stages {
        let until = Nanos(began.0 + time.0 / u64::from(stages) * u64::from(stage + 1));
        let enough = round + FEWEST;
        while round < enough || place.now() < until {
            for at in quiet_types::lot::order(seed ^ pick as u32, u64::from(round), alive.len()) {
                let Some(one) = all.iter().find(|one| one.name == alive[at]) else { continue };
                if raised(place.stop) {
                    break 'stages;
                }
                let left = words::span(Nanos(until.0.saturating_sub(place.now().0)));
                place.tell(&format!(
                    "{}: {}, round {}; {} of {} still in; the next look in {left}",
                    pick.name(),
                    one.name,
                    round + 1,
                    alive.len(),
                    names.len(),
                ));
                let Some(block) = place.choice(
                    round,
                    &one.name,
                    (&one.wish, &one.spec),
                    (one.never_sleeps, one.period),
                )?
                else {
                    break 'stages;
                };
                blocks.push(block);
            }
            round += 1;
        }
        if stage + 1 < stages {
            alive = others_left(&blocks[first..], &alive);
        }
    }
    (place.wish, place.spec) = (wish, spec);
    let own = &blocks[first..];
    if own.is_empty() {
        return Ok(None);
    }
    let mut choice = judge_choice(pick.name(), &names, own, stages as usize);
    if pick == Pick::Period {
        choice.sentence = shortest(&names, &choice);
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
    use quiet_types::tune::TriedChoice;

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

    #[test]
    fn halving_ends_with_two() {
        for (alternatives, wanted) in [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (32, 5)] {
            assert_eq!(stages(alternatives), wanted, "{alternatives}");
        }
    }
}
