//! `tune`: what the blocks of a screening, of its confirmation and of the last comparison show.
//!
//! Blocks come in pairs of neighbours in time, a coin deciding which is first; everything here looks at differences of logarithms
//! within pairs. What a step does is judged by [`crate::screen`], what leaving it out of the whole does by the exact sign-flip test
//! and Holm, whether the smallest set is enough by two one-sided tests.

mod boots;
mod choice;
mod enough;
mod example;
mod price;

pub use crate::screen::FLIPS;
pub use boots::{
    BOOTS_STATED, boot_order, boots_resolve, fewest_boots, judge_boots, plots, usual_boots,
    within_boots,
};
pub use choice::{judge_choice, others_left};
pub use enough::{candidates, judge_smallest};
pub use example::example;
use price::prices;

use crate::{
    screen::{self, FAMILY, SPARE, Screened, hadamard, order_for},
    stats::{self, LEVEL, holm, shift, sign_flip},
};
use quiet_types::{
    lot,
    proof::Ratio,
    tune::{
        BlockPart, Confirmation, Factor, StepEffect, StepSays, TuneBlock, TuneDesign, TuneResponse,
        TunedStep,
    },
    words,
};
use std::collections::BTreeMap;

/// The fewest pairs that can tell so many steps apart; `None` for more steps than a design has room for.
pub fn fewest_pairs(steps: usize) -> Option<usize> {
    order_for(steps).map(|order| order.max(steps + SPARE))
}

/// Which steps are on in the first block of each pair; in the second it is the others. A coin has decided which of the two is first.
///
/// Rows of a balanced design, whole repeats of it in an order of their own each; which column a step has is drawn too. Empty where
/// there is no design for so many steps.
pub fn schedule(seed: u32, steps: usize, pairs: usize) -> Vec<Vec<bool>> {
    let Some((order, design)) = order_for(steps).and_then(|n| Some((n, hadamard(n)?))) else {
        return Vec::new();
    };
    let columns = lot::order(seed, 1 << 30, order - 1);
    let mut rows = Vec::with_capacity(pairs);
    for turn in 0.. {
        if rows.len() >= pairs {
            break;
        }
        rows.extend(lot::order(seed, turn, order));
    }
    rows.truncate(pairs);
    let coin = |pair: usize| lot::Lot { seed, pairs: u32::MAX }.shared_first(pair as u32);
    let row = |(pair, row): (usize, usize)| {
        let one = |column: &usize| (design[row][column + 1] > 0) == coin(pair);
        columns[..steps].iter().map(one).collect()
    };
    rows.into_iter().enumerate().map(row).collect()
}

/// The spread of the difference within a pair where nothing differs, by figure: what the pilot's pairs show.
pub fn pilot_noise(blocks: &[TuneBlock], response: usize) -> f64 {
    let squares: Vec<f64> = pairs_of(blocks, BlockPart::Pilot)
        .iter()
        .filter_map(|(a, b)| difference(a, b, response))
        .map(|d| d * d)
        .collect();
    (squares.iter().sum::<f64>() / squares.len().max(1) as f64).sqrt()
}

/// What a screening of so many pairs shows in 4 of 5 cases, as a factor above 1.
pub fn screening_resolves(noise: f64, pairs: usize, steps: usize, responses: usize) -> f64 {
    screen::resolves(noise, pairs, steps, steps * responses).exp()
}

/// The valid pairs of a part, in their order.
pub(crate) fn pairs_of(blocks: &[TuneBlock], part: BlockPart) -> Vec<(&TuneBlock, &TuneBlock)> {
    let mut by: BTreeMap<u32, Vec<&TuneBlock>> = BTreeMap::new();
    for block in blocks.iter().filter(|block| block.part == part) {
        by.entry(block.pair).or_default().push(block);
    }
    let whole = by.into_values().filter_map(|pair| match pair[..] {
        [a, b] if a.lost.is_none() && b.lost.is_none() => Some((a, b)),
        _ => None,
    });
    whole.collect()
}

/// First less second, of the logarithms of a figure.
fn difference(a: &TuneBlock, b: &TuneBlock, response: usize) -> Option<f64> {
    Some(a.values.get(response)?.log() - b.values.get(response)?.log())
}

fn is_on(block: &TuneBlock, name: &str) -> bool {
    block.on.iter().any(|on| on == name)
}

/// Whether a step was to be in force.
fn was_asked(block: &TuneBlock, name: &str) -> bool {
    is_on(block, name) || block.void.iter().any(|void| void == name)
}

/// What can be judged of a screening: pairs, and the steps that were really taken and left in them.
pub(crate) struct Screening<'a> {
    pub pairs: Vec<(&'a TuneBlock, &'a TuneBlock)>,
    /// Which steps have a column, by their place.
    pub told: Vec<usize>,
    /// First less second, by pair, then by told step: +1, -1, or 0 where the step was not in force although it was to be.
    pub rows: Vec<Vec<f64>>,
}

impl<'a> Screening<'a> {
    pub fn of(blocks: &'a [TuneBlock], factors: &[Factor]) -> Screening<'a> {
        let pairs = pairs_of(blocks, BlockPart::Screening);
        let cell = |(a, b): &(&TuneBlock, &TuneBlock), factor: &Factor| {
            f64::from(u8::from(is_on(a, &factor.name)))
                - f64::from(u8::from(is_on(b, &factor.name)))
        };
        let told: Vec<usize> = (0..factors.len())
            .filter(|at| {
                let there = pairs.iter().filter(|pair| cell(pair, &factors[*at]) != 0.0).count();
                // A step that is mostly not there says nothing.
                there * 2 > pairs.len()
            })
            .collect();
        let row = |pair| told.iter().map(|at| cell(pair, &factors[*at])).collect();
        let rows = pairs.iter().map(row).collect();
        Screening { pairs, told, rows }
    }
}

/// A verdict for each step, in the order of `factors`: what the screening alone shows.
///
/// `flips` of signs are tried; [`FLIPS`] for a real tune.
pub fn judge_screening(
    blocks: &[TuneBlock],
    factors: &[Factor],
    responses: &[TuneResponse],
    seed: u32,
    flips: usize,
) -> Vec<TunedStep> {
    judge_screening_at(FAMILY, blocks, factors, responses, (seed, flips))
}

/// As [`judge_screening`], where the family is tested at this level.
fn judge_screening_at(
    level: f64,
    blocks: &[TuneBlock],
    factors: &[Factor],
    responses: &[TuneResponse],
    (seed, flips): (u32, usize),
) -> Vec<TunedStep> {
    let screening = Screening::of(blocks, factors);
    let differences = |response: usize| -> Option<Vec<f64>> {
        screening.pairs.iter().map(|(a, b)| difference(a, b, response)).collect()
    };
    let shown = (0..responses.len())
        .map(differences)
        .collect::<Option<Vec<_>>>()
        .and_then(|all| screen::screen_at(level, &screening.rows, &all, flips, u64::from(seed)));
    let price = prices(&screening, factors, flips, seed);
    let one = |(at, factor): (usize, &Factor)| {
        let column = screening.told.iter().position(|told| *told == at);
        let seen = |response: usize| Some(shown.as_ref()?[response][column?]);
        let effects: Vec<StepEffect> = responses
            .iter()
            .enumerate()
            .map(|(nth, response)| effect(&response.id, seen(nth)))
            .collect();
        let asked = blocks.iter().filter(|block| block.part == BlockPart::Screening);
        let void = asked.filter(|block| block.void.contains(&factor.name)).count();
        let says = match column {
            None if void > 0 => StepSays::Void,
            _ => says(&effects),
        };
        let prices = column.map(|_| price[at].clone()).unwrap_or_default();
        TunedStep {
            factor: factor.clone(),
            says,
            effects,
            confirmed: None,
            prices,
            void: void as u32,
            kept: false,
        }
    };
    factors.iter().enumerate().map(one).collect()
}

fn effect(id: &str, seen: Option<Screened>) -> StepEffect {
    let known = seen.unwrap_or(Screened {
        effect: 0.0,
        half: 690.0,
        p: 1.0,
        visible: 690.0,
        level: FAMILY,
    });
    let ratio = |log: f64| log.clamp(-690.0, 690.0).exp();
    StepEffect {
        id: id.to_owned(),
        ratio: Ratio {
            value: ratio(known.effect),
            low: ratio(known.effect - known.half),
            high: ratio(known.effect + known.half),
        },
        p_value: known.p,
        shown: known.is_shown(),
        visible: if seen.is_some() { ratio(known.visible) } else { f64::INFINITY },
    }
}

/// The first figure that shows something decides; others are told beside it.
fn says(effects: &[StepEffect]) -> StepSays {
    match effects.iter().find(|effect| effect.shown) {
        Some(effect) if effect.ratio.value < 1.0 => StepSays::Helps,
        Some(_) => StepSays::Hurts,
        None => StepSays::NotShown,
    }
}

/// Adds what leaving each of these out of the whole shield shows; the tests are one family.
pub fn judge_confirmation(blocks: &[TuneBlock], steps: &mut [TunedStep]) {
    let pairs = pairs_of(blocks, BlockPart::Confirmation);
    let mut found: Vec<(usize, Confirmation)> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let name = &step.factor.name;
        let first = step.effects.iter().position(|effect| effect.shown);
        let Some(response) = first else { continue };
        let logs: Vec<f64> = pairs
            .iter()
            .filter_map(|(a, b)| {
                let (whole, without) = match (was_asked(a, name), was_asked(b, name)) {
                    (true, false) => (a, b),
                    (false, true) => (b, a),
                    _ => return None,
                };
                // What was not in force is no whole shield.
                is_on(whole, name).then(|| difference(whole, without, response)).flatten()
            })
            .collect();
        if logs.is_empty() {
            continue;
        }
        let (middle, low, high) = shift(&logs);
        found.push((
            at,
            Confirmation {
                id: step.effects[response].id.clone(),
                pairs: logs.len() as u32,
                ratio: Ratio { value: middle.exp(), low: low.exp(), high: high.exp() },
                p_value: sign_flip(&logs),
                shown: false,
            },
        ));
    }
    let adjusted = holm(&found.iter().map(|(_, one)| one.p_value).collect::<Vec<_>>());
    for ((at, mut one), p) in found.into_iter().zip(adjusted) {
        let effect = steps[at].effects.iter().find(|effect| effect.id == one.id);
        let same = effect.is_some_and(|effect| {
            (effect.ratio.value < 1.0) == (one.ratio.value < 1.0)
                && (one.ratio.low > 1.0 || one.ratio.high < 1.0)
        });
        one.p_value = p;
        one.shown = p <= LEVEL && same && one.pairs as usize >= stats::FEWEST_PAIRS;
        steps[at].confirmed = Some(one);
    }
}

/// The steps in the order in which they are told: what helps most first, then what hurts, what is not shown, what is void.
pub fn by_effect(steps: &mut [TunedStep]) {
    let key = |step: &TunedStep| {
        let best = step.effects.iter().find(|effect| effect.shown).or(step.effects.first());
        best.map_or(0.0, |effect| effect.ratio.value.ln())
    };
    steps.sort_by(|a, b| {
        let sized = |step: &TunedStep| match step.says {
            StepSays::Hurts => -key(step),
            _ => key(step),
        };
        a.says.cmp(&b.says).then(sized(a).total_cmp(&sized(b)))
    });
}

/// A step in a line: what is said of it, and by how much.
pub fn effect_line(step: &TunedStep, design: &TuneDesign) -> String {
    let title = |id: &str| {
        design
            .responses
            .iter()
            .find(|one| one.id == id)
            .map_or(id.to_owned(), |one| one.title.clone())
    };
    let told = step.effects.iter().find(|effect| effect.shown).or(step.effects.first());
    let mut text = format!("{}: {}", step.factor.name, step.says);
    if let Some(effect) = told.filter(|_| step.says != StepSays::Void) {
        text += &format!(", {} {}", title(&effect.id), words::ratio_between(effect.ratio));
        if !effect.shown && effect.visible.is_finite() {
            text +=
                &format!(" (a change of {} would have been seen)", words::ratio(effect.visible));
        }
    }
    match &step.confirmed {
        Some(one) if one.shown => {
            text += &format!(
                "; left out of the whole shield, confirmed: {}",
                words::ratio_between(one.ratio)
            );
        }
        Some(one) => {
            text +=
                &format!("; beside all others not confirmed: {}", words::ratio_between(one.ratio));
        }
        None => {}
    }
    text
}

/// A step in a line: what is said of it, by how much, and at what price.
pub fn step_line(step: &TunedStep, design: &TuneDesign) -> String {
    let mut text = effect_line(step, design);
    for price in &step.prices {
        text += &format!(
            "; {} {:+} {} ({:+} to {:+})",
            price.title,
            rounded(price.change),
            price.unit,
            rounded(price.low),
            rounded(price.high)
        );
    }
    text
}

/// To two digits after the point, and no minus before a zero.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

/// The level of the family of the screening, as it is stated.
pub const STATED: f64 = FAMILY;

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::tune::TuneValue;

    fn factors(names: &[&str]) -> Vec<Factor> {
        let one = |name: &&str| Factor {
            name: (*name).to_owned(),
            steps: Vec::new(),
            why: String::new(),
        };
        names.iter().map(one).collect()
    }

    fn responses() -> Vec<TuneResponse> {
        vec![TuneResponse { id: "wakeup.p99".into(), ..TuneResponse::default() }]
    }

    /// Blocks of a machine on which `a` halves latency, and what is in `dead` is never in force.
    fn blocks(names: &[&str], pairs: usize, dead: &str) -> Vec<TuneBlock> {
        let mut random = stats::Random::new(9);
        let mut all = Vec::new();
        for (pair, row) in schedule(3, names.len(), pairs).into_iter().enumerate() {
            for second in [false, true] {
                let asked = row.iter().zip(names).filter(|(on, _)| **on != second);
                let (void, on): (Vec<String>, Vec<String>) =
                    asked.map(|(_, name)| (*name).to_owned()).partition(|name| name == dead);
                let lower = if on.iter().any(|on| on == "a") { 0.5 } else { 1.0 };
                let value = 1e4 * lower * (0.9 + 0.2 * random.unit());
                let values = vec![TuneValue { value, half: 0.5 }];
                let pair = pair as u32;
                all.push(TuneBlock { pair, on, void, values, ..TuneBlock::default() });
            }
        }
        all
    }

    #[test]
    fn of_two_blocks_each_step_is_in_one_and_the_first_is_drawn() {
        let rows = schedule(5, 9, 60);
        assert_eq!(rows.len(), 60);
        for step in 0..9 {
            let on = rows.iter().filter(|row| row[step]).count();
            assert!((15..=45).contains(&on), "{on}");
        }
        assert_eq!(rows, schedule(5, 9, 60));
        assert_ne!(rows, schedule(6, 9, 60));
        assert!(schedule(5, 64, 10).is_empty());
        assert_eq!(fewest_pairs(8), Some(14));
        assert_eq!(fewest_pairs(31), Some(37));
    }

    #[test]
    fn what_halves_latency_helps_and_a_step_that_is_never_in_force_is_void() {
        let names = ["a", "b", "c", "d", "e"];
        let (all, factors) = (blocks(&names, 24, "d"), factors(&names));
        let mut steps = judge_screening(&all, &factors, &responses(), 3, 500);
        assert_eq!(steps[0].says, StepSays::Helps);
        assert!((steps[0].effects[0].ratio.value - 0.5).abs() < 0.05, "{:?}", steps[0].effects);
        assert_eq!((steps[3].says, steps[3].void), (StepSays::Void, 24));
        let others = [1, 2, 4].map(|at| steps[at].says);
        assert_eq!(others, [StepSays::NotShown; 3]);
        assert!(steps[1].effects[0].visible < 1.2, "{:?}", steps[1].effects);
        by_effect(&mut steps);
        assert_eq!((steps[0].factor.name.as_str(), steps[4].factor.name.as_str()), ("a", "d"));
    }

    #[test]
    fn a_step_that_is_left_out_of_the_whole_is_told_from_pairs_alone() {
        let names = ["a", "b", "c", "d", "e"];
        let (mut all, factors) = (blocks(&names, 24, ""), factors(&names));
        let mut steps = judge_screening(&all, &factors, &responses(), 3, 500);
        for pair in 0..8u32 {
            for without in [false, true] {
                let on = names.iter().filter(|name| !without || **name != "a");
                let value = if without { 1e4 } else { 5e3 } + f64::from(pair);
                all.push(TuneBlock {
                    part: BlockPart::Confirmation,
                    pair,
                    on: on.map(|name| (*name).to_owned()).collect(),
                    values: vec![TuneValue { value, half: 0.5 }],
                    ..TuneBlock::default()
                });
            }
        }
        judge_confirmation(&all, &mut steps);
        let one = steps[0].confirmed.as_ref().unwrap();
        assert!(one.shown && one.pairs == 8 && (one.ratio.value - 0.5).abs() < 0.01, "{one:?}");
        assert!(steps[1].confirmed.is_none());
    }

    #[test]
    fn a_pair_of_which_one_block_is_lost_says_nothing() {
        let names = ["a", "b", "c"];
        let mut all = blocks(&names, 24, "");
        all[7].lost = Some("the governor changed".into());
        assert_eq!(Screening::of(&all, &factors(&names)).pairs.len(), 23);
        all.truncate(9);
        let few = judge_screening(&all, &factors(&names), &responses(), 1, 500);
        assert!(few.iter().all(|step| step.says == StepSays::NotShown));
        assert!(few[0].effects[0].visible.is_infinite());
    }
}
