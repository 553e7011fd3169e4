//! Boot parameters: a boot is a whole plot. However long it is measured, it counts once, for what a boot draws (where memory lies, which
//! CPU an interrupt came to, what was started first) it keeps.
//!
//! Boots come in pairs: a row of the balanced design and its mirror image, a coin deciding which is first. What a boot read is the
//! median of its blocks. From there on it is judged as the steps are: the randomization flips pairs of boots.

use super::{fewest_pairs, judge_screening_at, schedule};
use crate::{
    screen::{FLIPS, resolves_at},
    stats::median,
};
use quiet_types::{
    boots::BootPlot,
    tune::{BlockPart, Factor, TuneBlock, TuneResponse, TuneValue, TunedBoot, TunedStep},
};

/// The level of the family. Of so few pairs, taking out what is shown before the rest is looked at is no longer exact: at the level of the
/// steps up to 5.1 % of 2,000 simulated tunes said something that was not so.
pub const BOOTS_STATED: f64 = 0.03;

/// The change that so many pairs of boots show in 4 of 5 cases, as a factor above 1; `noise` is the spread of the logarithm between two
/// boots.
pub fn boots_resolve(noise: f64, pairs: usize, parameters: usize, responses: usize) -> f64 {
    resolves_at(BOOTS_STATED, noise, pairs, parameters, parameters * responses).exp()
}

/// The fewest boots that can show something of so many parameters; `None` for more than a design has room for.
pub fn fewest_boots(parameters: usize) -> Option<usize> {
    fewest_pairs(parameters).map(|pairs| 2 * pairs)
}

/// How many boots are taken where nobody says: some more than the fewest. Two parameters that do as much as each other leave no difference
/// in half of the pairs, and pairs without one have no sign.
pub fn usual_boots(parameters: usize) -> Option<usize> {
    fewest_boots(parameters).map(|boots| boots + 8)
}

/// What is on in each boot, in pairs: a row, then its mirror image.
///
/// Rows that were had less often come first, a row and its mirror image being one: so few boots still see every
/// combination that there is room for. Coins are tossed for each pair by itself, whichever row it has.
pub fn boot_order(seed: u32, parameters: usize, boots: usize) -> Vec<BootPlot> {
    let pairs = boots / 2;
    let mut rows = schedule(seed, parameters, pairs.saturating_mul(4).max(64));
    let same = |a: &[bool], b: &[bool]| a == b || a.iter().zip(b).all(|(a, b)| a != b);
    let mut plots: Vec<BootPlot> = Vec::with_capacity(2 * pairs);
    for pair in 0..pairs {
        let had = |row: &Vec<bool>| plots.iter().filter(|plot| same(&plot.on, row)).count();
        let Some((at, _)) = rows.iter().enumerate().min_by_key(|(at, row)| (had(row), *at)) else {
            break;
        };
        let on = rows.remove(at);
        let off = on.iter().map(|on| !on).collect();
        plots.extend([on, off].map(|on| BootPlot { pair: pair as u32, on }));
    }
    plots
}

/// Each boot as one block: the medians of what its blocks read. A boot without a block that counts is lost.
pub fn plots(boots: &[TunedBoot], responses: usize) -> Vec<TuneBlock> {
    boots.iter().map(|boot| plot(boot, responses)).collect()
}

fn plot(boot: &TunedBoot, responses: usize) -> TuneBlock {
    let good: Vec<&TuneBlock> = boot.blocks.iter().filter(|block| block.lost.is_none()).collect();
    let value = |at: usize| -> Option<TuneValue> {
        let logs: Option<Vec<f64>> =
            good.iter().map(|block| Some(block.values.get(at)?.log())).collect();
        let logs = logs.filter(|logs| !logs.is_empty())?;
        Some(TuneValue { value: median(&logs).exp(), half: 0.0 })
    };
    let mean = |take: fn(&TuneBlock) -> Option<f64>| -> Option<f64> {
        let all: Option<Vec<f64>> = good.iter().map(|block| take(block)).collect();
        let all = all.filter(|all| !all.is_empty())?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    };
    let values: Option<Vec<TuneValue>> = (0..responses).map(value).collect();
    TuneBlock {
        part: BlockPart::Screening,
        pair: boot.pair,
        at: boot.blocks.first().map(|block| block.at).unwrap_or_default(),
        on: boot.on.clone(),
        void: boot.void.clone(),
        lost: values.is_none().then(|| "no block of this boot counts".to_owned()),
        values: values.unwrap_or_default(),
        throughput: mean(|block| block.throughput),
        watts: mean(|block| block.watts),
        deep_idle: mean(|block| block.deep_idle),
        idle: mean(|block| block.idle),
    }
}

/// A verdict for each parameter, in the order of `factors`. A boot that has not its pair yet says nothing.
pub fn judge_boots(
    boots: &[TunedBoot],
    factors: &[Factor],
    responses: &[TuneResponse],
    seed: u32,
) -> Vec<TunedStep> {
    let blocks = plots(boots, responses.len());
    judge_screening_at(BOOTS_STATED, &blocks, factors, responses, (seed, FLIPS))
}

/// By how much two boots differ only because so few blocks were measured in each: the standard deviation of the difference of their
/// logarithms, by blocks of one boot. What differs from boot to boot comes on top.
pub fn within_boots(blocks: &[TuneBlock], response: usize, each: u32) -> f64 {
    let logs: Vec<f64> = blocks
        .iter()
        .filter(|block| block.lost.is_none())
        .filter_map(|block| Some(block.values.get(response)?.log()))
        .collect();
    if logs.len() < 2 {
        return 0.0;
    }
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    // Two boots; and a median of normal values spreads by the root of pi / 2 more than a mean.
    let spread = (squares / (logs.len() - 1) as f64 / f64::from(each.max(1))).sqrt();
    spread * std::f64::consts::PI.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;
    use quiet_types::tune::StepSays;

    fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    fn factors(many: usize) -> Vec<Factor> {
        let one = |at| Factor { name: format!("p{at}"), steps: Vec::new(), why: String::new() };
        (0..many).map(one).collect()
    }

    fn responses() -> Vec<TuneResponse> {
        let one = |id: &str| TuneResponse { id: id.into(), ..TuneResponse::default() };
        vec![one("wakeup.p99"), one("wakeup.beyond")]
    }

    /// How a simulated machine's boots differ.
    #[derive(Clone, Copy, Debug)]
    struct Kind {
        /// From boot to boot.
        boot: f64,
        /// From block to block.
        block: f64,
        /// Each boot is slower than the last one by so much.
        drift: f64,
        /// Whether boots are drawn from exponential tails.
        tails: bool,
    }

    const KINDS: [Kind; 4] = [
        Kind { boot: 0.1, block: 0.3, drift: 0.0, tails: false },
        // Blocks of a boot are all but the same: who counts each of them by itself sees what is not there.
        Kind { boot: 0.4, block: 0.05, drift: 0.0, tails: false },
        Kind { boot: 0.1, block: 0.2, drift: 0.15, tails: false },
        Kind { boot: 0.3, block: 0.2, drift: 0.0, tails: true },
    ];

    /// The boots of one tune with these effects by parameter; `together` is what the first two do only beside each other.
    fn booted(
        seed: u32,
        kind: Kind,
        effects: &[f64],
        together: f64,
        boots: usize,
    ) -> Vec<TunedBoot> {
        let mut random = Random::new(u64::from(seed) * 7919 + 3);
        let names = factors(effects.len());
        let one = |(at, plot): (usize, BootPlot)| {
            let on: Vec<String> = plot
                .on
                .iter()
                .zip(&names)
                .filter(|(on, _)| **on)
                .map(|(_, factor)| factor.name.clone())
                .collect();
            let effect: f64 =
                plot.on.iter().zip(effects).filter(|(on, _)| **on).map(|(_, e)| e).sum();
            let both = if plot.on[0] && plot.on[1] { together } else { 0.0 };
            let drawn = match kind.tails {
                true => -(1.0 - random.unit()).ln(),
                false => normal(&mut random),
            };
            let level = effect + both + kind.boot * drawn + kind.drift * at as f64;
            let blocks = (0..6)
                .map(|_| {
                    let log = level + kind.block * normal(&mut random);
                    let late = (100.0 * log.exp()).round() / 1e4;
                    let values = vec![
                        TuneValue { value: 3e4 * log.exp(), half: 0.5 },
                        TuneValue { value: late, half: 0.5e-4 },
                    ];
                    TuneBlock { values, ..TuneBlock::default() }
                })
                .collect();
            TunedBoot { pair: plot.pair, on, blocks, ..TunedBoot::default() }
        };
        boot_order(seed, effects.len(), boots).into_iter().enumerate().map(one).collect()
    }

    fn said(seed: u32, kind: Kind, effects: &[f64], together: f64, boots: usize) -> Vec<StepSays> {
        let boots = booted(seed, kind, effects, together, boots);
        let judged = judge_boots(&boots, &factors(effects.len()), &responses(), seed);
        judged.into_iter().map(|step| step.says).collect()
    }

    #[test]
    fn a_parameter_that_does_nothing_is_shown_in_less_than_one_of_twenty_tunes() {
        let long = quiet_testing::is_long();
        let many = if long { 2000 } else { 25 };
        for kind in KINDS {
            for (effects, together) in
                [([0.0; 4], 0.0), ([-1.5, -0.7, 0.0, 0.0], 0.5), ([0.9, 0.0, 0.0, 0.0], 0.0)]
            {
                let wrong = (0..many)
                    .filter(|seed| {
                        let says = said(*seed, kind, &effects, together, 24);
                        let idle = says.iter().zip(effects).filter(|(_, effect)| *effect == 0.0);
                        idle.into_iter().any(|(says, _)| *says != StepSays::NotShown)
                    })
                    .count();
                quiet_testing::report(format_args!(
                    "{kind:?}, {effects:?}: a false verdict in {wrong} of {many} tunes of 24 boots"
                ));
                // 2000: 5 % are 100. Of 25 at 5 % 8 or more would come once in 50 000.
                let most = if long { 100 } else { 7 };
                assert!(wrong <= most, "{kind:?}, {effects:?}: {wrong} of {many}");
            }
        }
    }

    #[test]
    fn a_planted_parameter_is_found_and_the_others_are_left_in_peace() {
        let many = if quiet_testing::is_long() { 500 } else { 12 };
        let kind = KINDS[0];
        // A boot's own spread, and that of the median of its six blocks; two boots.
        let spread = (kind.boot.powi(2) + kind.block.powi(2) / 6.0 * std::f64::consts::FRAC_PI_2)
            .sqrt()
            * 2f64.sqrt();
        let boots = usual_boots(4).unwrap();
        let effect = 3.0 * boots_resolve(spread, boots / 2, 4, 2).ln();
        let found = (0..many)
            .filter(|seed| {
                let says = said(*seed, kind, &[0.0, 0.0, -effect, effect], 0.0, boots);
                says[2..] == [StepSays::Helps, StepSays::Hurts]
            })
            .count();
        quiet_testing::report(format_args!("both planted parameters: found in {found} of {many}"));
        assert!(found * 10 >= many as usize * 9, "{found} of {many}");
    }

    #[test]
    fn blocks_of_a_boot_are_no_boots() {
        // Two boots of either kind differ by chance; a hundred blocks in each make no more of it.
        let boots: Vec<TunedBoot> = boot_order(4, 2, 4)
            .into_iter()
            .map(|plot| TunedBoot {
                pair: plot.pair,
                on: plot
                    .on
                    .iter()
                    .zip(["p0", "p1"])
                    .filter(|(on, _)| **on)
                    .map(|(_, n)| n.into())
                    .collect(),
                blocks: (0..100)
                    .map(|_| TuneBlock {
                        values: vec![
                            TuneValue {
                                value: if plot.on[0] { 1.0 } else { 9.0 },
                                half: 0.0
                            };
                            2
                        ],
                        ..TuneBlock::default()
                    })
                    .collect(),
                ..TunedBoot::default()
            })
            .collect();
        let judged = judge_boots(&boots, &factors(2), &responses(), 4);
        assert!(judged.iter().all(|step| step.says == StepSays::NotShown));
        assert!(judged[0].effects[0].visible.is_infinite());
        assert_eq!(fewest_boots(2), Some(16));
        assert_eq!(fewest_boots(64), None);
        assert!(2.0 / f64::from(1u32 << (fewest_boots(1).unwrap() / 2)) < BOOTS_STATED);
    }

    #[test]
    fn each_boot_has_its_mirror_image_and_few_boots_see_all_there_is() {
        for seed in 0..40 {
            let plots = boot_order(seed, 2, 4);
            let mut seen: Vec<Vec<bool>> = plots.iter().map(|plot| plot.on.clone()).collect();
            for pair in seen.chunks(2) {
                assert!(pair[0].iter().zip(&pair[1]).all(|(a, b)| a != b));
            }
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), 4, "{plots:?}");
        }
        assert_eq!(boot_order(9, 5, 24), boot_order(9, 5, 24));
        assert!(boot_order(9, 64, 24).is_empty());
    }

    #[test]
    fn a_boot_that_lost_its_blocks_takes_its_pair_with_it_and_a_void_parameter_is_told() {
        let mut boots = booted(2, KINDS[0], &[0.0, -2.0], 0.0, 20);
        boots[3].blocks.clear();
        assert!(plots(&boots, 2)[3].lost.is_some());
        for boot in &mut boots {
            if let Some(at) = boot.on.iter().position(|name| name == "p0") {
                boot.void.push(boot.on.remove(at));
            }
        }
        let judged = judge_boots(&boots, &factors(2), &responses(), 2);
        assert_eq!([judged[0].says, judged[1].says], [StepSays::Void, StepSays::Helps]);
    }

    #[test]
    fn what_blocks_of_one_boot_spread_is_the_least_that_two_boots_differ() {
        let mut random = Random::new(6);
        let block = |random: &mut Random| TuneBlock {
            values: vec![TuneValue { value: (0.3 * normal(random)).exp(), half: 0.0 }],
            ..TuneBlock::default()
        };
        let blocks: Vec<TuneBlock> = (0..400).map(|_| block(&mut random)).collect();
        let spread = within_boots(&blocks, 0, 6);
        // 0.3 by the root of 6, by the root of pi.
        assert!((spread - 0.217).abs() < 0.03, "{spread}");
        assert_eq!(within_boots(&blocks[..1], 0, 6), 0.0);
    }
}
