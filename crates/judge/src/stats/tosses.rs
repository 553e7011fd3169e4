//! How the sums of all tosses of signs are spread, without going through all of them.

/// Up to so many numbers every toss is counted.
pub const MOST_COUNTED: usize = 32;

/// The share of all 2^n tosses of signs whose sum is at most `bound`; exact, for up to [`MOST_COUNTED`] numbers.
///
/// Each toss is one of the first half beside one of the second. Where the sums of both are in order, those that stay below a
/// bound together are counted in one walk along them.
///
/// # Source
/// Horowitz and Sahni: Computing partitions with applications to the knapsack problem, Journal of the ACM 21(2), 1974.
pub fn share_at_most(numbers: &[f64], bound: f64) -> f64 {
    let (a, b) = numbers.split_at(numbers.len() / 2);
    let (a, b) = (sums(a), sums(b));
    let mut to = b.len();
    let mut count = 0u64;
    for one in &a {
        while to > 0 && one + b[to - 1] > bound {
            to -= 1;
        }
        count += to as u64;
    }
    count as f64 / (a.len() as f64 * b.len() as f64)
}

/// The sums of every toss of these, the lowest first: with each number both ways of those before it are merged.
fn sums(numbers: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0];
    for number in numbers {
        let size = number.abs();
        let mut next = Vec::with_capacity(2 * all.len());
        let (mut low, mut high) = (0, 0);
        while low < all.len() {
            // Those with the minus are never behind those with the plus.
            let (minus, plus) = (all[low] - size, all[high] + size);
            if minus <= plus {
                next.push(minus);
                low += 1;
            } else {
                next.push(plus);
                high += 1;
            }
        }
        next.extend(all[high..].iter().map(|sum| sum + size));
        all = next;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;

    #[test]
    fn every_toss_is_counted_as_by_going_through_them() {
        let mut random = Random::new(77);
        for n in [0usize, 1, 2, 3, 7, 12] {
            let numbers: Vec<f64> = (0..n).map(|_| random.unit() - 0.4).collect();
            let sum = |signs: u32| -> f64 {
                numbers
                    .iter()
                    .enumerate()
                    .map(|(at, d)| if signs >> at & 1 == 1 { -d } else { *d })
                    .sum()
            };
            for bound in [-2.03, -0.51, 0.013, 0.2, 3.1] {
                let hits = (0..1u32 << n).filter(|signs| sum(*signs) <= bound).count();
                assert_eq!(share_at_most(&numbers, bound), hits as f64 / f64::from(1u32 << n));
            }
        }
        assert_eq!(share_at_most(&[1.0; 24], -24.0), 0.5f64.powi(24));
    }
}
