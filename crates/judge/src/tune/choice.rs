//! One of several, by successive halving: time goes to those that may still be the best, and nothing is claimed that the rounds do
//! not show.

use crate::stats::{FEWEST_PAIRS, LEVEL, median, shift, sign_flip};
use quiet_types::{
    proof::Ratio,
    tune::{BlockPart, TriedChoice, TuneBlock, TunedChoice},
};
use std::collections::BTreeMap;

/// Logarithms of the first figure, by round, of one choice.
fn rounds(blocks: &[TuneBlock], name: &str) -> BTreeMap<u32, f64> {
    blocks
        .iter()
        .filter(|block| {
            block.part == BlockPart::Choice && block.lost.is_none() && block.on == [name]
        })
        .filter_map(|block| Some((block.pair, block.values.first()?.log())))
        .collect()
}

/// Who goes on: the better half, by medians over the rounds so far; those that were not measured go last.
pub fn others_left(blocks: &[TuneBlock], names: &[String]) -> Vec<String> {
    let middle = |name: &String| {
        let all: Vec<f64> = rounds(blocks, name).into_values().collect();
        if all.is_empty() { f64::INFINITY } else { median(&all) }
    };
    let mut order: Vec<(f64, &String)> = names.iter().map(|name| (middle(name), name)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.iter().take(names.len().div_ceil(2).max(1)).map(|(_, name)| (*name).clone()).collect()
}

/// The best of them, and against which of the others that is shown.
///
/// Which one is the best was seen in the same rounds, and halving looked at them several times. So each p is taken among all pairs of
/// choices and all looks (Bonferroni): a claim is as honest as if that pair had been named before.
pub fn judge_choice(
    what: &str,
    names: &[String],
    blocks: &[TuneBlock],
    looks: usize,
) -> TunedChoice {
    let all: BTreeMap<&String, BTreeMap<u32, f64>> =
        names.iter().map(|name| (name, rounds(blocks, name))).collect();
    let middle = |name: &String| {
        let logs: Vec<f64> = all[name].values().copied().collect();
        if logs.is_empty() { f64::INFINITY } else { median(&logs) }
    };
    let most = all.values().map(BTreeMap::len).max().unwrap_or(0);
    let best = names
        .iter()
        .filter(|name| all[name].len() == most)
        .min_by(|a, b| middle(a).total_cmp(&middle(b)));
    let family = names.len() * names.len().saturating_sub(1) / 2 * looks.max(1);
    let mut tried: Vec<TriedChoice> = names
        .iter()
        .map(|name| {
            let mut one = TriedChoice {
                name: name.clone(),
                blocks: all[name].len() as u32,
                median: middle(name).exp(),
                ratio: None,
                p_value: None,
                beaten: false,
            };
            let Some(best) = best.filter(|best| *best != name) else { return one };
            let logs: Vec<f64> = all[best]
                .iter()
                .filter_map(|(round, log)| Some(log - all[name].get(round)?))
                .collect();
            let (value, low, high) = shift(&logs);
            let p = (sign_flip(&logs) * family as f64).min(1.0);
            one.ratio = Some(Ratio { value: value.exp(), low: low.exp(), high: high.exp() });
            one.p_value = Some(p);
            one.beaten = logs.len() >= FEWEST_PAIRS && p <= LEVEL && high < 0.0;
            one
        })
        .collect();
    tried.sort_by(|a, b| {
        a.ratio
            .is_some()
            .cmp(&b.ratio.is_some())
            .then(b.blocks.cmp(&a.blocks))
            .then(a.median.total_cmp(&b.median))
    });
    let sentence = sentence(&tried);
    TunedChoice { what: what.to_owned(), tried, sentence }
}

fn sentence(tried: &[TriedChoice]) -> String {
    let Some((best, others)) = tried.split_first().filter(|(best, _)| best.blocks > 0) else {
        return "nothing was measured".to_owned();
    };
    let beaten: Vec<&str> =
        others.iter().filter(|one| one.beaten).map(|one| one.name.as_str()).collect();
    match beaten.len() {
        _ if others.is_empty() => format!("there is nothing beside {}", best.name),
        0 => format!("{} came first; that it is better than any other is not shown", best.name),
        all if all == others.len() => format!("{} is better than all others", best.name),
        _ => format!(
            "{} is better than {}; against the others it is not shown",
            best.name,
            beaten.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;
    use quiet_types::tune::TuneValue;

    fn measured(levels: &[(&str, f64)], rounds: u32, random: &mut Random) -> Vec<TuneBlock> {
        let mut blocks = Vec::new();
        for pair in 0..rounds {
            for (name, level) in levels {
                let value = level * (0.3 * (random.unit() - 0.5)).exp();
                blocks.push(TuneBlock {
                    part: BlockPart::Choice,
                    pair,
                    on: vec![(*name).to_owned()],
                    values: vec![TuneValue { value, half: 0.0 }],
                    ..TuneBlock::default()
                });
            }
        }
        blocks
    }

    #[test]
    fn the_better_half_goes_on_and_the_best_is_told() {
        let levels = [("CPU 1", 30.0), ("CPU 2", 20.0), ("CPU 3", 90.0), ("CPU 4", 60.0)];
        let names: Vec<String> = levels.iter().map(|(name, _)| (*name).to_owned()).collect();
        let blocks = measured(&levels, 12, &mut Random::new(2));
        assert_eq!(others_left(&blocks, &names), ["CPU 2", "CPU 1"]);
        let choice = judge_choice("cpu", &names, &blocks, 1);
        assert_eq!(choice.tried[0].name, "CPU 2");
        assert_eq!(choice.sentence, "CPU 2 is better than all others");
        assert!(choice.tried[0].ratio.is_none());
        let ratio = choice.tried[3].ratio.unwrap();
        assert!(ratio.value < 0.3 && choice.tried[3].beaten, "{ratio:?}");
    }

    #[test]
    fn among_equals_one_is_rarely_called_the_best() {
        let levels = [("a", 20.0), ("b", 20.0), ("c", 20.0), ("d", 20.0)];
        let names: Vec<String> = levels.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut random = Random::new(8);
        let many = 300;
        let wrong = (0..many)
            .filter(|_| {
                let mut blocks = measured(&levels, 6, &mut random);
                let left = others_left(&blocks, &names);
                let left: Vec<(&str, f64)> =
                    left.iter().map(|name| (name.as_str(), 20.0)).collect();
                let mut more = measured(&left, 8, &mut random);
                more.iter_mut().for_each(|block| block.pair += 6);
                blocks.extend(more);
                judge_choice("x", &names, &blocks, 2).tried.iter().any(|one| one.beaten)
            })
            .count();
        // 5 % of 300 are 15; 34 would come once in 10^5.
        assert!(wrong <= 34, "{wrong} of {many}");
    }

    #[test]
    fn what_was_not_measured_is_nobody_s_best() {
        let names = vec!["a".to_owned()];
        assert_eq!(judge_choice("x", &names, &[], 1).sentence, "nothing was measured");
        assert_eq!(judge_choice("x", &[], &[], 1).tried, []);
    }
}
