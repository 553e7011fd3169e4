//! What watching costs: percentiles of watched and unwatched blocks, with an interval over pairs.

use crate::stats::{Random, shift};
use quiet_types::{Nanos, explain::CostFigure, proof::Ratio};
use std::collections::BTreeMap;

/// Resamples of the pairs.
const DRAWS: usize = 1000;

/// Buckets of a factor e: each is 0.25 % wide.
const FINE: f64 = 400.0;

/// Less than 0.4 us is told as 0.4 us: no wake-up is so quick.
const LEAST: u32 = 2396;

/// Readings of one block by bucket, rising.
type Counts = Vec<(u32, u32)>;

/// The judged percentiles of pairs (not watched, watched): of all readings pooled, and their ratio
/// with an interval from resampled pairs; and the ratio pair by pair. Pooled values are within 0.25 %. Nothing where a side is empty.
pub fn cost_figures(blocks: &[(Vec<u64>, Vec<u64>)]) -> Vec<CostFigure> {
    let pairs: Vec<(Counts, Counts)> =
        blocks.iter().map(|(without, with)| (counts(without), counts(with))).collect();
    let all: Vec<usize> = (0..pairs.len()).collect();
    let mut figures = Vec::new();
    for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
        let Some((without, with)) = both(&pairs, &all, q) else { continue };
        let mut random = Random::new(0x636f_7374);
        let mut ratios: Vec<f64> = (0..DRAWS)
            .filter_map(|_| {
                let drawn: Vec<usize> = all.iter().map(|_| random.below(pairs.len())).collect();
                both(&pairs, &drawn, q).map(|(without, with)| with / without)
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |q: f64| ratios[((ratios.len() - 1) as f64 * q).round() as usize];
        figures.push(CostFigure {
            name: name.to_owned(),
            without: Nanos(without.round() as u64),
            with: Nanos(with.round() as u64),
            ratio: Ratio { value: with / without, low: at(0.025), high: at(0.975) },
            by_pair: by_pair(blocks, q),
        });
    }
    figures
}

/// The middle of the pairs' own ratios. From the readings themselves: buckets are as wide as what a median costs.
fn by_pair(blocks: &[(Vec<u64>, Vec<u64>)], q: f64) -> Ratio {
    let percentile = |readings: &[u64]| {
        let rank = (readings.len() as f64 * q).ceil() as usize;
        let mut readings = readings.to_vec();
        let at = rank.checked_sub(1).filter(|at| *at < readings.len())?;
        Some((*readings.select_nth_unstable(at).1).max(1) as f64)
    };
    let logs: Vec<f64> = blocks
        .iter()
        .filter_map(|(without, with)| Some((percentile(with)? / percentile(without)?).ln()))
        .collect();
    let (value, low, high) = shift(&logs);
    Ratio { value: value.exp(), low: low.exp(), high: high.exp() }
}

fn counts(readings: &[u64]) -> Counts {
    let mut counts = BTreeMap::new();
    for value in readings {
        *counts.entry(((*value).max(1) as f64).ln().mul_add(FINE, 0.5) as u32).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

fn both(pairs: &[(Counts, Counts)], drawn: &[usize], q: f64) -> Option<(f64, f64)> {
    let without = pooled(drawn.iter().map(|at| &pairs[*at].0), q)?;
    Some((without, pooled(drawn.iter().map(|at| &pairs[*at].1), q)?))
}

fn pooled<'a>(blocks: impl Iterator<Item = &'a Counts>, q: f64) -> Option<f64> {
    let mut pool: Vec<u64> = Vec::new();
    let mut total = 0u64;
    for (bucket, count) in blocks.flatten() {
        let at = bucket.saturating_sub(LEAST) as usize;
        if pool.len() <= at {
            pool.resize(at + 1, 0);
        }
        pool[at] += u64::from(*count);
        total += u64::from(*count);
    }
    let rank = (total as f64 * q).ceil() as u64;
    let mut seen = 0;
    let at = pool.iter().position(|count| {
        seen += count;
        seen >= rank && total > 0
    })?;
    Some(((at as f64 + f64::from(LEAST)) / FINE).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings that grow by `factor` where they are watched, in a room that drifts by blocks.
    fn pairs(random: &mut Random, n: usize, factor: f64) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut room = 1.0;
        (0..n)
            .map(|_| {
                room = (room * (0.8 + 0.4 * random.unit())).clamp(0.5, 2.0);
                let mut block = |by: f64| -> Vec<u64> {
                    let draw = |_| 10_000.0 * room * by / (1.0 - random.unit()).sqrt();
                    (0..300).map(draw).map(|ns| ns as u64).collect()
                };
                (block(1.0), block(factor))
            })
            .collect()
    }

    #[test]
    fn a_known_cost_is_found_and_none_is_not() {
        let mut random = Random::new(7);
        for factor in [1.0, 1.2] {
            let (mut outside, mut by_pair) = (0, 0);
            for _ in 0..8 {
                let figures = cost_figures(&pairs(&mut random, 40, factor));
                assert_eq!(figures.len(), 2);
                for figure in &figures {
                    let out = |ratio: Ratio| {
                        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
                        usize::from(factor < ratio.low || ratio.high < factor)
                    };
                    outside += out(figure.ratio);
                    by_pair += out(figure.by_pair);
                    assert!((figure.ratio.value / factor - 1.0).abs() < 0.2, "{figure:?}");
                }
            }
            // 16 intervals of 95 %.
            assert!(outside <= 3, "{outside} of 16 miss x{factor}");
            assert!(by_pair <= 3, "{by_pair} of 16 miss x{factor}, pair by pair");
        }
        // What befalls single blocks of either side moves it little.
        let mut slow = pairs(&mut random, 40, 1.2);
        for (at, (without, with)) in slow.iter_mut().enumerate().take(16).skip(10) {
            let block = if at % 2 == 0 { without } else { with };
            block.iter_mut().for_each(|ns| *ns *= 10);
        }
        for figure in cost_figures(&slow) {
            assert!((figure.by_pair.value / 1.2 - 1.0).abs() < 0.2, "{figure:?}");
            let width = |ratio: Ratio| (ratio.high / ratio.low).ln();
            assert!(width(figure.by_pair) < width(figure.ratio), "{figure:?}");
        }
        assert!(cost_figures(&[]).is_empty());
        assert!(cost_figures(&[(vec![], vec![5])]).is_empty());
    }
}
