//! The smallest set of steps, and whether it is enough: two one-sided tests against a margin that was stated.

use super::{difference, pairs_of, was_asked};
use crate::stats::{FEWEST_PAIRS, MOST_COUNTED, Random, share_at_most, shift};
use quiet_types::{
    proof::Ratio,
    tune::{
        BlockPart, Enough, Smallest, SmallestRatio, StepSays, TuneBlock, TuneResponse, TunedStep,
    },
};

/// The level of each one-sided test: of two sets that may be tried, at most one in 20 is called as good that is not.
const ONE_SIDED: f64 = 0.025;
/// So many tosses are drawn where there are too many pairs to count all.
const DRAWS: u32 = 1 << 16;

/// The sets that are worth a comparison with the whole, the smaller first: what is shown and confirmed to help, and what is shown.
pub fn candidates(steps: &[TunedStep]) -> Vec<Vec<String>> {
    let names = |keep: &dyn Fn(&TunedStep) -> bool| -> Vec<String> {
        steps.iter().filter(|step| keep(step)).map(|step| step.factor.name.clone()).collect()
    };
    let helps = |step: &TunedStep| step.says == StepSays::Helps;
    let sure = |step: &TunedStep| helps(step) && step.confirmed.as_ref().is_some_and(|c| c.shown);
    let (smaller, larger) = (names(&sure), names(&helps));
    if smaller == larger { vec![larger] } else { vec![smaller, larger] }
}

/// What the pairs of this set and the whole shield say.
///
/// The set is as good where the first figure lies within the margin on either side, and no other figure is shown to be worse by
/// more than it.
///
/// # Source
/// Schuirmann: A comparison of the two one-sided tests procedure and the power approach, Journal of Pharmacokinetics and
/// Biopharmaceutics 15(6), 1987; by signed ranks in place of Student's t.
pub fn judge_smallest(
    blocks: &[TuneBlock],
    set: &[String],
    all: &[String],
    responses: &[TuneResponse],
    margin: f64,
) -> Smallest {
    let asked = |block: &TuneBlock, names: &[String]| {
        block.on.len() + block.void.len() == names.len()
            && names.iter().all(|name| was_asked(block, name))
    };
    let pairs: Vec<(&TuneBlock, &TuneBlock)> = pairs_of(blocks, BlockPart::Comparison)
        .into_iter()
        .filter_map(|(a, b)| match (asked(a, set), asked(b, all)) {
            (true, true) => Some((a, b)),
            _ => (asked(b, set) && asked(a, all)).then_some((b, a)),
        })
        .filter(|(a, b)| a.void.is_empty() && b.void.is_empty())
        .collect();
    let limit = margin.max(1.0).ln();
    let mut says = Enough::NotShown;
    let mut ratios = Vec::new();
    for (nth, response) in responses.iter().enumerate() {
        let logs: Vec<f64> = pairs.iter().filter_map(|(a, b)| difference(a, b, nth)).collect();
        let (middle, low, high) = shift(&logs);
        let above: Vec<f64> = logs.iter().map(|log| log - limit).collect();
        let below: Vec<f64> = logs.iter().map(|log| -log - limit).collect();
        let p_value = lower(&above).max(lower(&below));
        if logs.len() >= FEWEST_PAIRS {
            let within = low > -limit && high < limit && p_value <= ONE_SIDED;
            says = match (nth, says) {
                (0, _) if within => Enough::AsGood,
                (0, _) if high < 0.0 => Enough::Better,
                (0, _) if low > 0.0 => Enough::Worse,
                (_, Enough::AsGood | Enough::Better) if low > limit => Enough::Worse,
                (_, says) => says,
            };
        }
        ratios.push(SmallestRatio {
            id: response.id.clone(),
            ratio: Ratio { value: middle.exp(), low: low.exp(), high: high.exp() },
            p_value,
        });
    }
    Smallest { steps: set.to_vec(), pairs: pairs.len() as u32, ratios, says }
}

/// How often chance gives a sum at least as low, were each sign a coin's.
fn lower(differences: &[f64]) -> f64 {
    let n = differences.len();
    if n == 0 {
        return 1.0;
    }
    let (observed, size) =
        (differences.iter().sum::<f64>(), differences.iter().map(|d| d.abs()).sum::<f64>());
    let bound = observed + size * 1e-12;
    if n <= MOST_COUNTED {
        return share_at_most(differences, bound);
    }
    let mut random = Random::new(0x746f_7374);
    let hits = (0..DRAWS)
        .filter(|_| {
            let toss = |sum: f64, d: &f64| if random.bits() & 1 == 1 { sum - d } else { sum + d };
            differences.iter().fold(0.0, toss) <= bound
        })
        .count();
    (hits as f64 + 1.0) / f64::from(DRAWS + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::tune::TuneValue;

    fn compared(ratio: f64, pairs: u32, spread: f64) -> Smallest {
        let mut random = Random::new(4);
        let mut blocks = Vec::new();
        for pair in 0..pairs {
            for (names, value) in [(vec!["a"], ratio), (vec!["a", "b"], 1.0)] {
                let value = 1e4 * value * (spread * (random.unit() - 0.5)).exp();
                blocks.push(TuneBlock {
                    part: BlockPart::Comparison,
                    pair,
                    on: names.into_iter().map(str::to_owned).collect(),
                    values: vec![TuneValue { value, half: 0.5 }],
                    ..TuneBlock::default()
                });
            }
        }
        let all = ["a".to_owned(), "b".to_owned()];
        let responses = [TuneResponse { id: "wakeup.p99".into(), ..TuneResponse::default() }];
        judge_smallest(&blocks, &all[..1], &all, &responses, 1.25)
    }

    #[test]
    fn as_good_is_a_claim_that_has_to_be_shown() {
        assert_eq!(compared(1.0, 12, 0.2).says, Enough::AsGood);
        // Nothing is shown by few pairs, or by noisy ones.
        assert_eq!(compared(1.0, 5, 0.01).says, Enough::NotShown);
        assert_eq!(compared(1.0, 6, 4.0).says, Enough::NotShown);
        assert_eq!(compared(1.6, 12, 0.2).says, Enough::Worse);
        assert_eq!(compared(0.5, 12, 0.2).says, Enough::Better);
    }

    #[test]
    fn a_set_at_the_margin_is_called_as_good_in_at_most_one_of_forty() {
        let mut random = Random::new(21);
        let many = 2000;
        let wrong = (0..many)
            .filter(|_| {
                let logs: Vec<f64> =
                    (0..10).map(|_| 0.3 * (random.unit() + random.unit() - 1.0)).collect();
                lower(&logs) <= ONE_SIDED
            })
            .count();
        // 50 are expected at most; five standard deviations are 35.
        assert!(wrong <= 85, "{wrong} of {many}");
    }
}
