//! Paired comparison of two settings: medians, bootstrap intervals, an exact test, a verdict.
//!
//! Runs of two settings are made in turn, and neighbours in time form a pair: what the room does
//! to both (other tenants, the host, heat) falls out of their ratio. Which one of a pair comes first is
//! drawn by lot: so what drifts within a pair has no favourite. Nothing here assumes a normal
//! distribution; latencies have none.
//!
//! A change is shown only when two independent arguments agree: the 95 % bootstrap interval of
//! the median ratio excludes 1, and the exact sign-flip test gives p <= 0.05. The test alone
//! bounds the rate of false alarms; the interval keeps one wild pair from deciding.

pub mod buffer;
pub mod events;
mod family;
mod sets;
mod shift;
pub mod tail;
#[cfg(test)]
mod tail_tests;
mod tosses;

pub use family::{hochberg, holm};
pub use sets::{Tables, compare_sets, dependent, sets_suffice, turn};
pub use shift::shift;
pub use tosses::{MOST_COUNTED, share_at_most};

use quiet_types::proof::{Estimate, Ratio, Verdict};

/// Fewer pairs show nothing: with 5 pairs even 5 equal signs give p = 2/32 > 0.05.
pub const FEWEST_PAIRS: usize = 6;

/// So many sign assignments are drawn where there are too many pairs to count all.
const DRAWS: u32 = 1 << 16;

/// Above it no resamples of pairs are reckoned: the ways to choose half of them are soon more than an `f64` holds.
const MOST_RESAMPLED: usize = 1000;

/// The level of the tests.
pub const LEVEL: f64 = 0.05;

/// Where the 95 % interval is cut off on either side, by the number of values from 2 to 30.
///
/// The plain percentile bootstrap (2.5 %) is too narrow for few values: with 7 log-normal pairs it
/// held the truth 87 times in 100. The expanded one cuts at the normal tail beyond
/// sqrt(n / (n - 1)) times Student's t of n - 1 degrees of freedom; it held 96 to 99 times.
///
/// # Source
/// Hesterberg: What teachers should know about the bootstrap, The American Statistician 69(4),
/// 2015, section 4.3.
const TAILS: [f64; 29] = [
    0.00000, 0.00000, 0.00012, 0.00095, 0.00243, 0.00411, 0.00574, 0.00722, 0.00855, 0.00972,
    0.01076, 0.01167, 0.01248, 0.01321, 0.01386, 0.01444, 0.01497, 0.01544, 0.01588, 0.01628,
    0.01665, 0.01698, 0.01729, 0.01758, 0.01785, 0.01810, 0.01833, 0.01855, 0.01875,
];

/// One value of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The value.
    pub value: f64,
    /// Half of the smallest step that the value can make: half a count over the number expected,
    /// half a nanosecond. Added to both sides of a ratio, so that no run is divided by zero and
    /// "none in 10 000" counts as more than "none in 100".
    pub half: f64,
}

/// Two settings compared in one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The first setting.
    pub base: Estimate,
    /// The second.
    pub other: Estimate,
    /// Second by first, over pairs.
    pub ratio: Ratio,
    /// Of [`sign_flip`] on the logarithms of the ratios.
    pub p_value: f64,
    /// Lower is better.
    pub verdict: Verdict,
    /// Why nothing is shown; empty where something is.
    pub note: String,
}

/// How fine a difference of medians must be to mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Resolution {
    /// A difference of the medians below it is not shown, in the unit of the value.
    pub absolute: f64,
    /// The same, as a part of the larger median: the width of a histogram bucket.
    pub relative: f64,
}

/// SplitMix64: small, fast, and good enough to draw pairs. Not for secrets.
///
/// # Source
/// Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers on every machine.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of 0 to `n` - 1; 0 for `n` = 0. The multiply-shift bias is below 2^-40 for our `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// In [0, 1), with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The median; the mean of the middle two for an even number. 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, middle) if n % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The 95 % bootstrap interval of the median (expanded percentile).
///
/// Exact: the distribution of the median over all n^n resamples is computed, not drawn, so the
/// same runs give the same interval for ever and no seed has a say in it.
pub fn bootstrap(values: &[f64]) -> (f64, f64) {
    interval(values, &chances(values.len()))
}

fn interval(values: &[f64], chances: &[(usize, usize, f64)]) -> (f64, f64) {
    let n = values.len();
    if n < 2 {
        let only = values.first().copied().unwrap_or(0.0);
        return (only, only);
    }
    if n > MOST_RESAMPLED {
        return sets::by_rank(values);
    }
    let mut medians = resampled_medians(values, chances);
    medians.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let tail = TAILS[(n - 2).min(TAILS.len() - 1)];
    (cut(medians.iter(), tail), cut(medians.iter().rev(), tail))
}

/// Every median that a resample of `values` can have, with its chance.
fn resampled_medians(values: &[f64], chances: &[(usize, usize, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    chances.iter().map(|&(i, j, chance)| ((sorted[i] + sorted[j]) / 2.0, chance)).collect()
}

/// The first value at which the chances sum to `tail`.
fn cut<'a>(medians: impl Iterator<Item = &'a (f64, f64)>, tail: f64) -> f64 {
    let (mut seen, mut last) = (0.0, 0.0);
    for (median, chance) in medians {
        (seen, last) = (seen + chance, *median);
        if seen >= tail {
            break;
        }
    }
    last
}

/// The chance that the two middle ones of n draws with replacement from n values (for odd n, the
/// one) are the i-th and the j-th smallest value, counted from 0.
///
/// They differ when exactly half of the draws lie at or below i, one of them on i, and the other
/// half at or above j, one of them on j.
///
/// None for more than [`MOST_RESAMPLED`]: there are half of n^2, and order statistics say the same.
fn chances(n: usize) -> Vec<(usize, usize, f64)> {
    if n > MOST_RESAMPLED {
        return Vec::new();
    }
    let part = |count: usize| count as f64 / n as f64;
    // The chance that the k-th smallest draw is the value i.
    let falls_on = |k: usize, i: usize| at_least(n, k, part(i + 1)) - at_least(n, k, part(i));
    if n % 2 == 1 {
        return (0..n).map(|i| (i, i, falls_on(n.div_ceil(2), i))).collect();
    }
    let half = n / 2;
    let ways = (1..=half).fold(1.0, |ways, k| ways * (half + k) as f64 / k as f64);
    let half_of = |part: f64| part.powi(half as i32);
    let mut chances = Vec::with_capacity(n * (n + 1) / 2);
    for i in 0..n {
        let mut apart = 0.0;
        let below = half_of(part(i + 1)) - half_of(part(i));
        for j in i + 1..n {
            let above = half_of(part(n - j)) - half_of(part(n - j - 1));
            let chance = ways * below * above;
            apart += chance;
            chances.push((i, j, chance));
        }
        chances.push((i, i, (falls_on(half, i) - apart).max(0.0)));
    }
    chances
}

/// The chance that at least `k` of `n` independent draws hit, each with chance `p`.
fn at_least(n: usize, k: usize, p: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        return if p <= 0.0 && k > 0 { 0.0 } else { 1.0 };
    }
    let (mut ways, mut sum) = (0.0f64, 0.0);
    for hits in 0..=n {
        if hits > 0 {
            ways += ((n - hits + 1) as f64 / hits as f64).ln();
        }
        if hits >= k {
            sum += (ways + hits as f64 * p.ln() + (n - hits) as f64 * (1.0 - p).ln()).exp();
        }
    }
    sum.min(1.0)
}

/// The two-sided p of the paired sign-flip test on the sum of `differences`.
///
/// If the two settings do not differ, each pair would have had the same two values whichever came first; a fair coin
/// decided that, so the sign of each difference is its toss, whatever drifted meanwhile. All 2^n tosses are counted for
/// n <= 32, so p is exact; above, 65 536 are drawn (seeded) and the observed one is counted among them, which keeps the
/// level. Where no coin was tossed it is assumed that nothing drifts within a pair.
pub fn sign_flip(differences: &[f64]) -> f64 {
    let n = differences.len();
    if n == 0 {
        return 1.0;
    }
    let observed = differences.iter().sum::<f64>().abs();
    let size: f64 = differences.iter().map(|d| d.abs()).sum();
    // Sums of the same numbers in another order differ in the last bits: a tie is a tie.
    let reached = |sum: f64| sum.abs() >= observed - size * 1e-12;
    if n <= MOST_COUNTED {
        let least = observed - size * 1e-12;
        // As many lie below as above.
        return if least > 0.0 { 2.0 * share_at_most(differences, -least) } else { 1.0 };
    }
    let mut random = Random::new(0x7369_676e_666c_6970);
    let draws = DRAWS;
    let mut hits = 1u32;
    for _ in 0..draws {
        if n > MOST_RESAMPLED {
            // 64 tosses a number: many pairs take a while.
            let sums = differences.chunks(64).map(|part| {
                let signs = random.bits();
                let toss = |(at, d): (usize, &f64)| if signs >> at & 1 == 1 { -d } else { *d };
                part.iter().enumerate().map(toss).sum::<f64>()
            });
            hits += u32::from(reached(sums.sum()));
            continue;
        }
        let toss = |sum: f64, d: &f64| if random.bits() & 1 == 1 { sum - d } else { sum + d };
        if reached(differences.iter().fold(0.0, toss)) {
            hits += 1;
        }
    }
    f64::from(hits) / f64::from(draws + 1)
}

/// The median with its interval.
pub fn estimate(values: &[f64]) -> Estimate {
    estimate_by(values, &chances(values.len()))
}

fn estimate_by(values: &[f64], chances: &[(usize, usize, f64)]) -> Estimate {
    let (low, high) = interval(values, chances);
    Estimate {
        median: tidy(median(values)),
        low: tidy(low),
        high: tidy(high),
        runs: values.iter().map(|v| tidy(*v)).collect(),
    }
}

/// Compares two settings, `pairs` of one value each. Lower is better.
pub fn compare(pairs: &[(Value, Value)], resolution: Resolution) -> Comparison {
    let side = |pick: fn(&(Value, Value)) -> f64| pairs.iter().map(pick).collect::<Vec<f64>>();
    let chances = chances(pairs.len());
    let base = estimate_by(&side(|pair| pair.0.value), &chances);
    let other = estimate_by(&side(|pair| pair.1.value), &chances);
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(a, b)| ((b.value + b.half).max(1e-300) / (a.value + a.half).max(1e-300)).ln())
        .collect();
    let (low, high) = interval(&logs, &chances);
    let ratio =
        Ratio { value: tidy(median(&logs).exp()), low: tidy(low.exp()), high: tidy(high.exp()) };
    let p_value = tidy(sign_flip(&logs));
    let (verdict, mut note) = verdict(pairs.len(), &base, &other, (low, high), p_value, resolution);
    if verdict == Verdict::NotShown && pairs.len() >= FEWEST_PAIRS {
        note.push_str(&dissent(&logs));
    }
    Comparison { base, other, ratio, p_value, verdict, note }
}

/// How many pairs agree, where one or two do not and the rest would suffice: what a person wants to know first.
fn dissent(logs: &[f64]) -> String {
    let (all, middle) = (logs.len(), median(logs));
    let agree = logs.iter().filter(|log| **log * middle > 0.0).count();
    if agree == all || agree + 2 < all || agree < FEWEST_PAIRS - 1 {
        return String::new();
    }
    format!("; {agree} of {all} pairs agree: more pairs may show it")
}

fn verdict(
    pairs: usize,
    base: &Estimate,
    other: &Estimate,
    (low, high): (f64, f64),
    p_value: f64,
    resolution: Resolution,
) -> (Verdict, String) {
    let not = |why: String| (Verdict::NotShown, why);
    if pairs < FEWEST_PAIRS {
        let more = FEWEST_PAIRS - pairs;
        let are = if more == 1 { "is" } else { "are" };
        return not(format!("{pairs} valid pairs; {more} more {are} needed to show anything"));
    }
    let finest = resolution.absolute.max(resolution.relative * base.median.max(other.median));
    if (base.median - other.median).abs() <= finest {
        return not("the difference is below what can be resolved".to_owned());
    }
    if low <= 0.0 && high >= 0.0 {
        return not("its interval includes x1, so there may be no change".to_owned());
    }
    if p_value > LEVEL {
        return not(format!("chance alone gives as much in {:.0} % of cases", p_value * 100.0));
    }
    (if high < 0.0 { Verdict::Better } else { Verdict::Worse }, String::new())
}

/// The chance that a standard normal number is below `z`.
///
/// # Source
/// Abramowitz and Stegun 7.1.26; its error is below 1.5e-7.
pub fn normal_below(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = poly.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let upper = sum * (-x * x).exp() / 2.0;
    if z > 0.0 { 1.0 - upper } else { upper }
}

/// Nine significant digits: what is written is read back bit for bit, and no digit is pretended.
/// Below 1e-13, where no figure of ours lies, zero.
pub(crate) fn tidy(value: f64) -> f64 {
    if value.abs() < 1e-13 || !value.is_finite() {
        return 0.0;
    }
    format!("{value:.8e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standard normal number (Box and Muller).
    fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    /// A Poisson number (Knuth): small means only.
    fn poisson(random: &mut Random, mean: f64) -> f64 {
        let limit = (-mean).exp();
        let (mut k, mut product) = (0.0, random.unit());
        while product > limit {
            k += 1.0;
            product *= random.unit();
        }
        k
    }

    /// Noise of one run, given what the room does to its pair.
    type Noise = fn(&mut Random, room: f64) -> f64;

    const SHAPES: [(&str, Noise); 5] = [
        ("log-normal", |r, _| 20e3 * (0.4 * normal(r)).exp()),
        ("heavy tail", |r, _| 20e3 * (1.0 - r.unit()).powf(-1.0 / 1.2)),
        ("a loud room", |r, room| 20e3 * (1.5 * room + 0.2 * normal(r)).exp()),
        ("the host strikes one run in five", |r, _| {
            let hit = if r.unit() < 0.2 { 50.0 } else { 1.0 };
            20e3 * hit * (0.2 * normal(r)).exp()
        }),
        ("rare counts", |r, _| poisson(r, 0.7)),
    ];

    fn simulate(random: &mut Random, noise: Noise, pairs: usize, effect: f64) -> Comparison {
        let value = |value| Value { value, half: 0.5 };
        let drawn: Vec<(Value, Value)> = (0..pairs)
            .map(|_| {
                let room = normal(random);
                (value(noise(random, room)), value(effect * noise(random, room)))
            })
            .collect();
        compare(&drawn, Resolution::default())
    }

    #[test]
    fn equal_settings_are_called_different_in_less_than_one_proof_of_twenty() {
        for (name, noise) in SHAPES {
            let mut random = Random::new(1999);
            let alarms = (0..2000)
                .filter(|_| simulate(&mut random, noise, 8, 1.0).verdict != Verdict::NotShown)
                .count();
            println!("{name}: {alarms} false alarms in 2000");
            assert!(alarms < 100, "{name}: {alarms} of 2000");
        }
    }

    #[test]
    fn a_tenfold_gain_is_found_nearly_always() {
        for (name, noise) in &SHAPES[..3] {
            let mut random = Random::new(2026);
            let found = (0..500)
                .filter(|_| simulate(&mut random, *noise, 8, 0.1).verdict == Verdict::Better)
                .count();
            println!("{name}: {found} of 500 found");
            let least = if *name == "heavy tail" { 425 } else { 495 };
            assert!(found >= least, "{name}: {found} of 500");
        }
    }

    #[test]
    fn a_tenfold_loss_is_called_worse() {
        let mut random = Random::new(7);
        assert_eq!(simulate(&mut random, SHAPES[0].1, 8, 10.0).verdict, Verdict::Worse);
    }

    #[test]
    fn the_interval_covers_the_true_ratio_at_least_as_often_as_it_says() {
        for pairs in [6, 7, 8, 9, 12, 16] {
            let mut random = Random::new(42);
            let held = (0..600)
                .filter(|_| {
                    let ratio = simulate(&mut random, SHAPES[0].1, pairs, 0.5).ratio;
                    (ratio.low..=ratio.high).contains(&0.5)
                })
                .count();
            let share = held as f64 / 600.0;
            println!("the 95 % interval of {pairs} pairs covered the truth {share:.3} of the time");
            assert!((0.94..0.997).contains(&share), "{pairs} pairs: {share}");
        }
    }

    #[test]
    fn five_pairs_show_nothing_however_clear_they_are() {
        let pair = (Value { value: 1000.0, half: 0.5 }, Value { value: 1.0, half: 0.5 });
        let five = compare(&[pair; 5], Resolution::default());
        assert_eq!(five.verdict, Verdict::NotShown);
        assert_eq!(five.note, "5 valid pairs; 1 more is needed to show anything");
        assert_eq!(compare(&[pair; 6], Resolution::default()).verdict, Verdict::Better);
    }

    #[test]
    fn zeros_on_both_sides_are_no_change_and_divide_nothing() {
        let none = |half| Value { value: 0.0, half };
        // More expected periods in the second arm: the corrected ratio is always below 1.
        let same = compare(&[(none(1e-4), none(0.9e-4)); 8], Resolution::default());
        assert_eq!(same.verdict, Verdict::NotShown);
        let some = Value { value: 0.02, half: 1e-4 };
        let gone = compare(&[(some, none(1e-4)); 8], Resolution::default());
        assert_eq!(gone.verdict, Verdict::Better);
        assert!((gone.ratio.value - 1e-4 / 0.0201).abs() < 1e-9, "{:?}", gone.ratio);
    }

    #[test]
    fn the_sign_flip_test_agrees_with_counting_by_hand() {
        // +1 +2 +3: of 8 sign patterns only +++ and --- reach 6.
        assert_eq!(sign_flip(&[1.0, 2.0, 3.0]), 0.25);
        // -1 +2 +3 sums to 4: ++ +, -++, and their mirror images.
        assert_eq!(sign_flip(&[-1.0, 2.0, 3.0]), 0.5);
        assert_eq!(sign_flip(&[0.0; 8]), 1.0);
        assert_eq!(sign_flip(&[0.1; 8]), 2.0 / 256.0);
        assert_eq!(sign_flip(&[]), 1.0);
    }

    #[test]
    fn drawn_signs_agree_with_counted_ones() {
        let mut random = Random::new(3);
        let mut differences: Vec<f64> = (0..16).map(|_| 0.5 + normal(&mut random)).collect();
        let exact = sign_flip(&differences);
        // More pairs without a difference change nothing but the method.
        differences.resize(MOST_COUNTED + 1, 0.0);
        let drawn = sign_flip(&differences);
        assert!((exact - drawn).abs() < 0.01, "{exact} and {drawn}");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(bootstrap(&[5.0]), (5.0, 5.0));
    }

    #[test]
    fn the_computed_bootstrap_agrees_with_a_drawn_one() {
        let mut random = Random::new(5);
        for n in [2, 3, 6, 7, 8, 16, 41] {
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
            let computed = resampled_medians(&values, &chances(n));
            let sum: f64 = computed.iter().map(|(_, chance)| chance).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{n}: the chances sum to {sum}");
            let drawn: Vec<f64> = (0..20_000)
                .map(|_| {
                    let one: Vec<f64> = (0..n).map(|_| values[random.below(n)]).collect();
                    median(&one)
                })
                .collect();
            for limit in [-1.0, -0.5, -0.1, 0.0, 0.2, 0.7] {
                let chance: f64 = computed.iter().filter(|(m, _)| *m <= limit).map(|m| m.1).sum();
                let share = drawn.iter().filter(|m| **m <= limit).count() as f64 / 20_000.0;
                // Four standard errors of 20 000 draws.
                assert!((chance - share).abs() < 0.015, "{n}, {limit}: {chance} and {share}");
            }
        }
    }

    #[test]
    fn figures_survive_their_json_bit_for_bit() {
        let mut random = Random::new(11);
        for _ in 0..2000 {
            let value = tidy((10.0 * normal(&mut random)).exp());
            let back: f64 = serde_json::from_str(&serde_json::to_string(&value).unwrap()).unwrap();
            assert_eq!(back.to_bits(), value.to_bits(), "{value:e}");
        }
    }
}
