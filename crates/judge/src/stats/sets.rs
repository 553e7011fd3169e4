//! Two sets of values that were not taken in pairs: the shift between them, its interval, an
//! exact test, a verdict.
//!
//! The interval of Hodges and Lehmann and the test of Mann and Whitney are one statement seen
//! from two sides: neither assumes a shape of the distribution, and both are exact for the few
//! runs that a person makes.

use super::{Comparison, LEVEL, Resolution, Value, estimate, median, tidy};
use quiet_types::proof::{Estimate, Ratio, Verdict};
use std::collections::HashMap;

/// Above it (runs of one times runs of the other) the normal approximation is used.
const MOST_EXACT: usize = 10_000;
/// More differences are not held, but counted.
const MOST_SORTED: usize = 1 << 18;

/// Whether sets of these sizes can show anything: with 3 and 3 even complete separation happens
/// by chance in one case of ten.
pub fn sets_suffice(a: usize, b: usize) -> bool {
    suffice(&mut Tables::default(), a, b)
}

fn suffice(tables: &mut Tables, a: usize, b: usize) -> bool {
    a > 0 && b > 0 && 2.0 * tables.at_most(a, b, 0) <= LEVEL
}

/// Distributions of Mann and Whitney's U that were asked for, each reckoned once: a history asks
/// for the same few sizes again and again.
#[derive(Debug, Default)]
pub struct Tables(HashMap<(usize, usize), Vec<f64>>);

impl Tables {
    /// The chance that U of `m` and `n` values of one distribution is `u` or less.
    fn at_most(&mut self, m: usize, n: usize, u: usize) -> f64 {
        if m * n > MOST_EXACT {
            return approximate(m, n, u);
        }
        let table = self.0.entry((m, n)).or_insert_with(|| {
            // Coefficients of the Gaussian binomial: the product of (1 - x^(n+i)) / (1 - x^i), i to m.
            let size = m * n + 1;
            let mut ways = vec![0.0f64; size];
            ways[0] = 1.0;
            for i in 1..=m {
                for at in (n + i..size).rev() {
                    ways[at] -= ways[at - n - i];
                }
                for at in i..size {
                    ways[at] += ways[at - i];
                }
            }
            let all: f64 = ways.iter().sum();
            let mut sum = 0.0;
            let below = ways.iter().map(|way| {
                sum += way;
                (sum / all).clamp(0.0, 1.0)
            });
            below.collect()
        });
        table.get(u).copied().unwrap_or(1.0)
    }

    /// The two-sided p of the exact test, without anything else of a comparison.
    pub fn p_value(&mut self, a: &[Value], b: &[Value]) -> f64 {
        let mut sorted: Vec<f64> = a.iter().map(level).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (mut below, mut above) = (0, 0);
        for value in b.iter().map(level) {
            above += sorted.partition_point(|a| *a < value);
            below += sorted.len() - sorted.partition_point(|a| *a <= value);
        }
        self.two_sided(a.len(), b.len(), below.max(above))
    }

    /// Of so many of `m` times `n` differences with one sign. Ties count against what is to be shown.
    fn two_sided(&mut self, m: usize, n: usize, most: usize) -> f64 {
        let all = m * n;
        tidy(if all == 0 { 1.0 } else { (2.0 * self.at_most(m, n, all - most)).min(1.0) })
    }
}

/// The p-value where runs that follow each other are alike: they say less than their number. By the autocorrelation of
/// neighbours within each side (pooled, its bias for few runs put right), which also rises where a side drifts, the variance
/// of the test is taken larger. `a` and `b` in the order of time. Never smaller than `p`.
///
/// # Source
/// Gastwirth, Rubin: Effect of dependence on the level of some one-sample tests, JASA 66, 1971: the factor (1 + r) / (1 - r).
pub fn dependent(p: f64, a: &[Value], b: &[Value]) -> f64 {
    let (mut with_next, mut alone, mut least) = (0.0, 0.0, usize::MAX);
    for side in [a, b] {
        let logs: Vec<f64> = side.iter().map(|value| level(value).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        alone += logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        with_next += logs.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum::<f64>();
        least = least.min(logs.len());
    }
    if alone <= 0.0 || least < 2 {
        return p;
    }
    let found = with_next / alone;
    let mut r = (found + (1.0 + 3.0 * found) / least as f64).min(0.9);
    if least >= 10 && r > 0.0 {
        // Half a standard error on the safe side, where there are runs enough to spare it.
        r = (r + 0.5 * ((1.0 - r * r) / (a.len() + b.len()) as f64).sqrt()).min(0.9);
    }
    if r <= 0.0 {
        return p;
    }
    // From p to the normal number that it belongs to, which is as much smaller as the deviation is larger.
    let (mut low, mut high) = (0.0, 38.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if 2.0 * normal_beyond(middle) > p { low = middle } else { high = middle }
    }
    tidy((2.0 * normal_beyond(low / ((1.0 + r) / (1.0 - r)).sqrt())).clamp(p, 1.0))
}

/// Where a series changes its level most, if it does: the index of the first value after, at least `side` from both ends. Says nothing of
/// whether it does. `None` where the series is too short or all is equal.
///
/// # Source
/// Pettitt: A non-parametric approach to the change-point problem, Applied Statistics 28, 1979.
pub fn turn(values: &[Value], side: usize) -> Option<usize> {
    let n = values.len();
    let mut order: Vec<(f64, usize)> = values.iter().map(level).zip(0..).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // Ranks, twice; equal values share theirs.
    let mut ranks = vec![0i64; n];
    let mut first = 0;
    for part in order.chunk_by(|a, b| a.0 == b.0) {
        let rank = (2 * first + part.len() + 1) as i64;
        part.iter().for_each(|(_, at)| ranks[*at] = rank);
        first += part.len();
    }
    let mut sum = 0;
    let mut best = None;
    for (at, rank) in ranks.iter().enumerate() {
        if at >= side
            && at + side <= n
            && sum != 0
            && best.is_none_or(|(_, most)| i64::abs(sum) > most)
        {
            best = Some((at, i64::abs(sum)));
        }
        sum += rank - (n as i64 + 1);
    }
    best.map(|(at, _)| at)
}

/// The chance that a standard normal number is above `z`, which is not negative; for large ones by the asymptotic series.
fn normal_beyond(z: f64) -> f64 {
    if z < 4.0 {
        return 1.0 - super::normal_below(z);
    }
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let s = 1.0 / (z * z);
    density / z * (1.0 - s * (1.0 - 3.0 * s * (1.0 - 5.0 * s)))
}

/// What is compared of a value: the upper end of the step that it may lie in.
fn level(value: &Value) -> f64 {
    (value.value + value.half).max(1e-300)
}

fn approximate(m: usize, n: usize, u: usize) -> f64 {
    let (m, n) = (m as f64, n as f64);
    let spread = (m * n * (m + n + 1.0) / 12.0).sqrt();
    super::normal_below((u as f64 + 0.5 - m * n / 2.0) / spread)
}

/// The largest k for which [D(k), D(mn+1-k)] of the sorted differences holds the shift in 95 % of
/// cases; 0 where there is none.
fn cut(tables: &mut Tables, m: usize, n: usize) -> usize {
    // P(U <= k - 1) rises with k.
    let (mut low, mut high) = (0, m * n / 2);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if tables.at_most(m, n, middle - 1) <= LEVEL / 2.0 {
            low = middle
        } else {
            high = middle - 1
        }
    }
    low
}

/// Compares two sets of runs, a value each. Lower is better.
pub fn compare_sets(a: &[Value], b: &[Value], resolution: Resolution) -> Comparison {
    let mut tables = Tables::default();
    let (base, other) = (side(a), side(b));
    let k = cut(&mut tables, a.len().max(1), b.len().max(1));
    let (middle, low, high) = if a.len() * b.len() > MOST_SORTED {
        shift_by_halving(a, b, k)
    } else {
        shift_by_sorting(a, b, k)
    };
    let ratio = Ratio { value: tidy(middle.exp()), low: tidy(low.exp()), high: tidy(high.exp()) };
    let p_value = tables.p_value(a, b);
    let not = |why: String| (Verdict::NotShown, why);
    let finest = resolution.absolute.max(resolution.relative * base.median.max(other.median));
    let (verdict, note) = if !suffice(&mut tables, a.len(), b.len()) {
        not(format!(
            "{} and {} runs cannot tell a change from chance; 4 of each can",
            a.len(),
            b.len()
        ))
    } else if (base.median - other.median).abs() <= finest {
        not("the difference is below what can be resolved".to_owned())
    } else if p_value > LEVEL || (low <= 0.0 && high >= 0.0) {
        not(format!("chance alone gives as much in {:.0} % of cases", p_value * 100.0))
    } else {
        (if high < 0.0 { Verdict::Better } else { Verdict::Worse }, String::new())
    };
    Comparison { base, other, ratio, p_value, verdict, note }
}

/// Where the median of all differences lies, and the `k`-th from either end; the ends for `k` of 0.
fn shift_by_sorting(a: &[Value], b: &[Value], k: usize) -> (f64, f64, f64) {
    let mut shifts: Vec<f64> =
        a.iter().flat_map(|a| b.iter().map(|b| (level(b) / level(a)).ln())).collect();
    shifts.sort_unstable_by(f64::total_cmp);
    let all = shifts.len();
    let (low, high) = match k {
        0 => (shifts.first().copied().unwrap_or(0.0), shifts.last().copied().unwrap_or(0.0)),
        k => (shifts[k - 1], shifts[all - k]),
    };
    (median(&shifts), low, high)
}

/// The same to 1e-12 of their range, where the differences are too many to be held: each is found by halving, for which those below
/// a bound are counted in one walk along both sides.
fn shift_by_halving(a: &[Value], b: &[Value], k: usize) -> (f64, f64, f64) {
    let logs = |side: &[Value]| {
        let mut logs: Vec<f64> = side.iter().map(|value| level(value).ln()).collect();
        logs.sort_unstable_by(f64::total_cmp);
        logs
    };
    let (a, b) = (logs(a), logs(b));
    let all = a.len() * b.len();
    let at_most = |bound: f64| -> usize {
        let mut to = 0;
        let count = a.iter().map(|a| {
            while to < b.len() && b[to] - a <= bound {
                to += 1;
            }
            to
        });
        count.sum()
    };
    let ranked = |rank: usize| {
        let (mut low, mut high) = (b[0] - a[a.len() - 1], b[b.len() - 1] - a[0]);
        if at_most(low) >= rank {
            return low;
        }
        for _ in 0..42 {
            let middle = (low + high) / 2.0;
            if at_most(middle) >= rank { high = middle } else { low = middle }
        }
        high
    };
    let k = k.max(1);
    let middle = (ranked(all.div_ceil(2)) + ranked(all / 2 + 1)) / 2.0;
    (middle, ranked(k), ranked(all + 1 - k))
}

/// The median with its interval over all runs; beyond a few hundred runs the exact bootstrap is
/// no longer worth its time, and order statistics say the same.
fn side(values: &[Value]) -> Estimate {
    let plain: Vec<f64> = values.iter().map(|value| value.value).collect();
    if plain.len() <= 60 {
        return estimate(&plain);
    }
    let (low, high) = by_rank(&plain);
    Estimate {
        median: tidy(median(&plain)),
        low: tidy(low),
        high: tidy(high),
        runs: plain.into_iter().map(tidy).collect(),
    }
}

/// The 95 % interval of the median by order statistics, of at least two.
pub(super) fn by_rank(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let half = 0.98 * n.sqrt();
    let low = ((n / 2.0 - half).floor().max(0.0)) as usize;
    let high = ((n / 2.0 + half).ceil() as usize).min(sorted.len() - 1);
    (sorted[low], sorted[high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;

    fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    fn values(all: &[f64]) -> Vec<Value> {
        all.iter().map(|value| Value { value: *value, half: 0.5 }).collect()
    }

    #[test]
    fn the_distribution_of_u_agrees_with_counting_by_hand() {
        // 2 and 2: the six orders give U = 0, 1, 2, 2, 3, 4.
        for (u, chance) in [(0, 1.0), (1, 2.0), (2, 4.0), (3, 5.0), (4, 6.0)] {
            assert!((Tables::default().at_most(2, 2, u) - chance / 6.0).abs() < 1e-12, "{u}");
        }
        // Tables of Mann and Whitney: 5 and 5 have the critical value 2 at 5 %, 10 and 10 have 23.
        let of = |m, n| cut(&mut Tables::default(), m, n);
        assert_eq!((of(5, 5), of(10, 10), of(8, 8)), (3, 24, 14));
        assert!(sets_suffice(4, 4) && sets_suffice(3, 5) && !sets_suffice(3, 3));
        let (exact, near) = (Tables::default().at_most(90, 100, 4000), approximate(90, 100, 4000));
        assert!((exact - near).abs() < 1e-3, "{exact} and {near}");
    }

    #[test]
    fn the_test_alone_says_what_the_comparison_says() {
        let mut random = Random::new(3);
        let mut tables = Tables::default();
        for n in 1..30 {
            // Steps of a quarter: with ties.
            let mut draw = |count: usize, shift: f64| {
                let one = |_| ((normal(&mut random) + shift) * 4.0).round() / 4.0 + 10.0;
                values(&(0..count).map(one).collect::<Vec<_>>())
            };
            let (a, b) = (draw(n, 0.0), draw(31 - n, 0.1 * n as f64));
            let whole = compare_sets(&a, &b, Resolution { absolute: 0.0, relative: 0.0 });
            assert_eq!(tables.p_value(&a, &b), whole.p_value, "{n}");
            let all = || a.iter().flat_map(|a| b.iter().map(|b| level(b).total_cmp(&level(a))));
            let below = all().filter(|order| order.is_lt()).count();
            let above = all().filter(|order| order.is_gt()).count();
            let by_hand = tables.two_sided(a.len(), b.len(), below.max(above));
            assert_eq!(by_hand, whole.p_value, "{n}");
        }
        assert_eq!(tables.p_value(&[], &[]), 1.0);
    }

    #[test]
    fn differences_are_found_by_halving_as_by_sorting() {
        let mut random = Random::new(7);
        for (m, n) in [(1, 1), (2, 3), (40, 61), (300, 200)] {
            // Steps of a quarter: with ties.
            let mut draw = |count: usize| {
                let one = |_| (normal(&mut random) * 4.0).round() / 4.0 + 10.0;
                values(&(0..count).map(one).collect::<Vec<_>>())
            };
            let (a, b) = (draw(m), draw(n));
            for k in [0, 1, m * n / 7, (m * n).div_ceil(2)] {
                let (one, other) = (shift_by_sorting(&a, &b, k), shift_by_halving(&a, &b, k));
                for (one, other) in [(one.0, other.0), (one.1, other.1), (one.2, other.2)] {
                    assert!((one - other).abs() < 1e-9, "{m} {n} {k}: {one} not {other}");
                }
            }
        }
    }

    #[test]
    fn sets_of_fifty_thousand_runs_are_compared_without_their_differences_in_memory() {
        let mut random = Random::new(8);
        let mut draw = |by: f64| -> Vec<f64> {
            (0..50_000).map(|_| by * 2e4 * (0.4 * normal(&mut random)).exp()).collect()
        };
        let (a, b) = (values(&draw(1.0)), values(&draw(1.05)));
        let got = compare_sets(&a, &b, Resolution::default());
        assert_eq!(got.verdict, Verdict::Worse);
        assert!(got.ratio.low <= 1.05 && 1.05 <= got.ratio.high, "{:?}", got.ratio);
        assert!(got.ratio.high - got.ratio.low < 0.02, "{:?}", got.ratio);
    }

    #[test]
    fn equal_sets_are_called_different_in_less_than_one_of_twenty() {
        let mut random = Random::new(1);
        for (a, b) in [(4, 4), (6, 6), (5, 9), (12, 12)] {
            let alarms = (0..2000)
                .filter(|_| {
                    let mut draw = |n: usize| -> Vec<f64> {
                        (0..n).map(|_| 2e4 * (0.8 * normal(&mut random)).exp()).collect()
                    };
                    let (a, b) = (values(&draw(a)), values(&draw(b)));
                    compare_sets(&a, &b, Resolution::default()).verdict != Verdict::NotShown
                })
                .count();
            println!("{a} and {b} runs: {alarms} false alarms in 2000");
            assert!(alarms <= 100 + 2 * 10, "{a} and {b}: {alarms}");
        }
    }

    #[test]
    fn the_interval_covers_the_true_ratio_and_a_change_is_found() {
        let mut random = Random::new(2);
        let (mut held, mut found) = (0, 0);
        for _ in 0..1000 {
            let mut draw = |by: f64| -> Vec<f64> {
                (0..6).map(|_| by * 2e4 * (0.4 * normal(&mut random)).exp()).collect()
            };
            let (a, b) = (values(&draw(1.0)), values(&draw(0.25)));
            let got = compare_sets(&a, &b, Resolution::default());
            held += usize::from((got.ratio.low..=got.ratio.high).contains(&0.25));
            found += usize::from(got.verdict == Verdict::Better);
        }
        println!("held {held}, found {found} of 1000");
        assert!((940..=985).contains(&held), "{held}");
        assert!(found > 950, "{found}");
    }

    #[test]
    fn runs_that_remember_or_drift_are_not_called_different_more_often() {
        let mut random = Random::new(21);
        // Remembered of the run before; drift over both sides, in deviations.
        for (memory, drift, n) in [(0.0, 0.0, 6), (0.5, 0.0, 12), (0.8, 0.0, 20), (0.0, 2.0, 12)] {
            let (mut alarms, mut naive) = (0, 0);
            for _ in 0..600 {
                let mut level = normal(&mut random);
                let all: Vec<f64> = (0..2 * n)
                    .map(|at| {
                        level = memory * level
                            + (1.0f64 - memory * memory).sqrt() * normal(&mut random);
                        2e4 * (0.2 * (level + drift * at as f64 / (2 * n) as f64)).exp()
                    })
                    .collect();
                let (a, b) = (values(&all[..n]), values(&all[n..]));
                let p = Tables::default().p_value(&a, &b);
                naive += u32::from(p <= 0.05);
                alarms += u32::from(dependent(p, &a, &b) <= 0.05);
            }
            println!("memory {memory}, drift {drift}, {n} runs: {alarms} of 600, {naive} without");
            assert!(alarms <= naive);
            let most = if memory < 0.8 { 48 } else { 72 };
            if drift == 0.0 {
                assert!(alarms < most, "memory {memory}: {alarms} of 600");
            }
        }
        // A change is found all the same, and the smallest p-values keep their meaning.
        let mut draw = |by: f64| {
            values(&(0..20).map(|_| by * (0.1 * normal(&mut random)).exp()).collect::<Vec<_>>())
        };
        let (a, b) = (draw(1e4), draw(3e4));
        assert!(dependent(Tables::default().p_value(&a, &b), &a, &b) < 1e-4);
        for z in [4.0f64, 8.0, 20.0] {
            assert!(normal_beyond(z) > 0.0 && normal_beyond(z) < normal_beyond(z - 0.5));
        }
    }

    #[test]
    fn one_run_each_shows_nothing_and_zeros_are_no_change() {
        let one = compare_sets(&values(&[131e3]), &values(&[67e3]), Resolution::default());
        assert_eq!(one.verdict, Verdict::NotShown);
        assert_eq!(one.note, "1 and 1 runs cannot tell a change from chance; 4 of each can");
        let none = compare_sets(&values(&[0.0; 8]), &values(&[0.0; 8]), Resolution::default());
        assert_eq!((none.verdict, none.p_value), (Verdict::NotShown, 1.0));
        assert_eq!(compare_sets(&[], &[], Resolution::default()).verdict, Verdict::NotShown);
    }
}
