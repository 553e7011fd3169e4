//! The lot: in which order settings are measured, drawn so that the same seed gives the same order for ever.
//!
//! Whatever drifts while a pair is measured hits the setting that comes second. Where a fair coin decides which one that
//! is, it hits both alike, and the test that flips signs is exact whatever the drift.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The order of a proof's pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lot {
    /// What it was drawn from.
    pub seed: u32,
    /// How many pairs it was drawn for; fewer were measured where the proof was interrupted.
    pub pairs: u32,
}

impl Lot {
    /// Whether the shared arm of this pair, from 0, comes first: a fair coin of its own for every pair.
    pub fn shared_first(&self, pair: u32) -> bool {
        coin(self.seed, u64::from(pair))
    }
}

/// The toss of this number, from 0.
fn coin(seed: u32, toss: u64) -> bool {
    bits(seed, toss) >> 63 == 0
}

/// The order of `n` settings in this block: the place in the file of the one that is measured first, second and so on.
/// Every order is equally likely, so that of any two settings each is first as often.
pub fn order(seed: u32, block: u64, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        let draw = bits(seed, (block << 16) + last as u64);
        order.swap(last, ((u128::from(draw) * (last as u128 + 1)) >> 64) as usize);
    }
    order
}

/// 64 bits of a seed and a number: the finalizer of SplitMix64, twice.
///
/// # Source
/// Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
fn bits(seed: u32, number: u64) -> u64 {
    let mix = |value: u64| {
        let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(u64::from(seed)) ^ mix(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coin_is_fair_and_its_tosses_do_not_follow_each_other() {
        let (mut heads, mut alike) = (0u32, 0u32);
        for seed in 0..2000u32 {
            for pair in 0..16 {
                let lot = Lot { seed, pairs: 16 };
                heads += u32::from(lot.shared_first(pair));
                alike += u32::from(lot.shared_first(pair) == lot.shared_first(pair + 1));
            }
        }
        // 32 000 tosses: five standard deviations are 450.
        assert!((15_550..16_450).contains(&heads), "{heads}");
        assert!((15_550..16_450).contains(&alike), "{alike}");
    }

    #[test]
    fn every_order_of_three_comes_as_often() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..300 {
            for block in 0..20 {
                *seen.entry(order(seed, block, 3)).or_insert(0u32) += 1;
            }
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|count| (850..1150).contains(count)), "{seen:?}");
        assert_eq!(order(7, 0, 1), [0]);
        assert!(order(7, 0, 0).is_empty());
    }

    #[test]
    fn a_seed_keeps_its_meaning_from_version_to_version() {
        let lot = Lot { seed: 1999, pairs: 8 };
        let firsts: String =
            (0..16).map(|pair| if lot.shared_first(pair) { 'A' } else { 'B' }).collect();
        assert_eq!(firsts, "ABABAAAAAABABBAB");
        assert_eq!(order(1999, 3, 5), [2, 0, 1, 4, 3]);
    }
}
