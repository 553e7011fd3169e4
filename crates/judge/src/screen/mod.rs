//! Which of many steps helped, from few measurements: a balanced design, and a verdict for each step within one family.
//!
//! [`hadamard`] gives balanced rows of steps that are on or off. Each row is measured beside its mirror image, one after the
//! other, a coin deciding which comes first. Of the two only the difference is looked at: what drifts, and what two steps do
//! together only, falls out of it. [`screen`] tells from the differences what each step does.

mod design;
#[cfg(test)]
mod simulated;

pub use design::{hadamard, order_for};

use crate::stats::{Random, normal_below};

/// The level of the whole family. The test is exact, so it errs as often as it may: one at 5 % would err in more than 5 % of some 2,000
/// screenings, by chance alone.
pub const FAMILY: f64 = 0.04;
/// Flips of signs that are drawn where there are too many to try all.
pub const FLIPS: usize = 4096;
/// Differences that are needed beyond one for each step: what is left of them tells the noise.
pub const SPARE: usize = 6;
/// Up to so many differences every flip is tried.
const MOST_TRIED: usize = 12;

/// What a screening shows of one step, in units of the differences: logarithms, where those are differences of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Screened {
    /// On, less off.
    pub effect: f64,
    /// Half of an interval around it that holds for all steps and responses at once, 96 %.
    pub half: f64,
    /// p of the randomization test, adjusted for all steps and responses (max-T).
    pub p: f64,
    /// The smallest effect that these differences would have shown in 4 of 5 cases.
    pub visible: f64,
    /// The level of the family.
    pub level: f64,
}

impl Screened {
    /// Whether something was shown.
    pub fn is_shown(&self) -> bool {
        self.p <= self.level
    }
}

/// Lenth's pseudo standard error of unreplicated effects, for a drawing; 0 for none.
///
/// # Source
/// Lenth: Quick and easy analysis of unreplicated factorials, Technometrics 31(4), 1989.
pub fn lenth(effects: &[f64]) -> f64 {
    let sizes: Vec<f64> = effects.iter().map(|effect| effect.abs()).collect();
    let first = 1.5 * crate::stats::median(&sizes);
    let small: Vec<f64> = sizes.into_iter().filter(|size| *size < 2.5 * first).collect();
    1.5 * crate::stats::median(&small)
}

/// The effect that a screening of so many pairs shows in 4 of 5 cases, where the differences of pairs have this standard
/// deviation and `family` comparisons are made. Infinite where there are too few pairs for the steps.
pub fn resolves(noise: f64, pairs: usize, steps: usize, family: usize) -> f64 {
    resolves_at(FAMILY, noise, pairs, steps, family)
}

/// As [`resolves`], where the family is tested at this level.
pub fn resolves_at(level: f64, noise: f64, pairs: usize, steps: usize, family: usize) -> f64 {
    if pairs < steps + SPARE {
        return f64::INFINITY;
    }
    let tail = level / (2.0 * family.max(1) as f64);
    (student(1.0 - tail, pairs - steps) + quantile(0.8)) * noise / (pairs as f64).sqrt()
}

/// A quantile of the standard normal distribution, by halving.
fn quantile(chance: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_below(middle) < chance { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// A quantile of Student's distribution, by its expansion around the normal one.
///
/// # Source
/// Abramowitz and Stegun 26.7.5, three terms: within 2 % from 6 degrees of freedom on, down to tails of 0.1 %.
pub fn student(chance: f64, freedom: usize) -> f64 {
    let (z, n) = (quantile(chance), freedom as f64);
    let cube = z.powi(3);
    z + (cube + z) / (4.0 * n)
        + (5.0 * z.powi(5) + 16.0 * cube + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * cube - 15.0 * z) / (384.0 * n.powi(3))
}

/// What each response shows of each step.
///
/// `rows` are the steps of each pair's first block less those of its second, halved: +1, -1 or 0, all of one length.
/// `responses` are the differences of each response, one a row. The result is by response, then by step; `None` where there
/// are fewer than [`SPARE`] rows more than steps, or steps that the rows cannot tell apart.
///
/// The test flips the signs of whole pairs: were no step of any use, a coin would have decided each sign, whatever drifts.
/// So the chance that any of the steps is shown where none does anything is at most [`FAMILY`], exactly. What is shown is
/// then taken out of the differences, and the rest is looked at again (step-down); that this keeps the level is shown by
/// simulation. `seed` draws the flips.
///
/// # Source
/// Westfall and Young: Resampling-based multiple testing, 1993, chapter 2 (max-T, step-down).
pub fn screen(
    rows: &[Vec<f64>],
    responses: &[Vec<f64>],
    flips: usize,
    seed: u64,
) -> Option<Vec<Vec<Screened>>> {
    screen_at(FAMILY, rows, responses, flips, seed)
}

/// As [`screen`], where the family is tested at this level.
pub fn screen_at(
    level: f64,
    rows: &[Vec<f64>],
    responses: &[Vec<f64>],
    flips: usize,
    seed: u64,
) -> Option<Vec<Vec<Screened>>> {
    let steps = rows.first()?.len();
    if steps == 0 || rows.len() < steps + SPARE {
        return None;
    }
    let fit = Fit::of(rows)?;
    let flips = signs(rows.len(), flips, seed);
    let mut parts: Vec<Part> = responses.iter().map(|d| Part::of(&fit, d)).collect();
    let mut p = vec![vec![1.0f64; steps]; responses.len()];
    let mut so_far = 0.0f64;
    // Largest of every flip, over all that is still in question.
    let last = loop {
        let most = largest(&fit, &parts, &flips, rows);
        let best = parts
            .iter()
            .enumerate()
            .flat_map(|(at, part)| part.open().map(move |step| (part.t[step].abs(), at, step)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((t, at, step)) = best else { break most };
        so_far = so_far.max(chance(&most, t));
        if so_far > level {
            for (part, p) in parts.iter().zip(&mut p) {
                for step in part.open() {
                    p[step] = chance(&most, part.t[step].abs()).max(so_far);
                }
            }
            break most;
        }
        p[at][step] = so_far;
        parts[at].take(rows, step);
    };
    let mut sorted = last;
    sorted.sort_unstable_by(f64::total_cmp);
    let limit =
        sorted[((sorted.len() as f64 * (1.0 - level)).ceil() as usize).clamp(1, sorted.len()) - 1];
    let one = |part: &Part, p: &[f64], step: usize| {
        let error = part.noise * fit.spread[step];
        let (half, visible) = (limit * error, (limit + quantile(0.8)) * error);
        Screened { effect: part.effects[step], half, p: p[step], visible, level }
    };
    let all = parts.iter().zip(&p);
    Some(all.map(|(part, p)| (0..steps).map(|step| one(part, p, step)).collect()).collect())
}

/// The share of flips that reach `t`; the one that was measured is among them.
fn chance(most: &[f64], t: f64) -> f64 {
    most.iter().filter(|one| **one >= t * (1.0 - 1e-9)).count() as f64 / most.len() as f64
}

/// Every flip of `n` signs, or `most` drawn ones; the first changes nothing.
fn signs(n: usize, most: usize, seed: u64) -> Vec<Vec<f64>> {
    if n <= MOST_TRIED {
        let sign = |bits: usize, at: usize| if bits >> at & 1 == 1 { -1.0 } else { 1.0 };
        return (0..1usize << n).map(|bits| (0..n).map(|at| sign(bits, at)).collect()).collect();
    }
    let mut random = Random::new(seed);
    let mut toss = || if random.bits() & 1 == 1 { -1.0 } else { 1.0 };
    let mut all = vec![vec![1.0; n]];
    all.extend((1..most.max(2)).map(|_| (0..n).map(|_| toss()).collect::<Vec<f64>>()));
    all
}

/// Least squares of these rows.
struct Fit {
    /// Of the steps' products with each other.
    inverse: Vec<Vec<f64>>,
    /// The steps of all rows, a row a step.
    columns: Vec<Vec<f64>>,
    /// The standard error of each effect, in units of the noise.
    spread: Vec<f64>,
    free: f64,
}

impl Fit {
    /// `None` where the rows do not tell the steps apart.
    fn of(rows: &[Vec<f64>]) -> Option<Fit> {
        let steps = rows[0].len();
        let product = |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>();
        let mut system: Vec<Vec<f64>> = (0..steps)
            .map(|a| {
                let unit = (0..steps).map(|b| f64::from(u8::from(a == b)));
                (0..steps).map(|b| product(a, b)).chain(unit).collect()
            })
            .collect();
        // Gauss and Jordan, the largest first.
        for at in 0..steps {
            let pivot =
                (at..steps).max_by(|a, b| system[*a][at].abs().total_cmp(&system[*b][at].abs()))?;
            system.swap(at, pivot);
            let lead = system[at][at];
            if lead.abs() < 1e-6 {
                return None;
            }
            system[at].iter_mut().for_each(|value| *value /= lead);
            let one = system[at].clone();
            for (_, row) in system.iter_mut().enumerate().filter(|(other, _)| *other != at) {
                let much = row[at];
                row.iter_mut().zip(&one).for_each(|(value, take)| *value -= much * take);
            }
        }
        let inverse: Vec<Vec<f64>> = system.iter().map(|row| row[steps..].to_vec()).collect();
        Some(Fit {
            columns: (0..steps).map(|step| rows.iter().map(|row| row[step]).collect()).collect(),
            spread: (0..steps).map(|step| inverse[step][step].max(0.0).sqrt()).collect(),
            free: (rows.len() - steps) as f64,
            inverse,
        })
    }

    fn effects(&self, differences: &[f64]) -> Vec<f64> {
        let one = |x: &Vec<f64>| x.iter().zip(differences).map(|(x, d)| x * d).sum();
        self.of_shared(&self.columns.iter().map(one).collect::<Vec<f64>>())
    }

    /// The effects, by what each step shares with the differences.
    fn of_shared(&self, shared: &[f64]) -> Vec<f64> {
        let one = |row: &Vec<f64>| row.iter().zip(shared).map(|(a, b)| a * b).sum();
        self.inverse.iter().map(one).collect()
    }

    /// Standard deviation of a difference, of what is left of all squares.
    fn noise(&self, left: f64, all: f64) -> f64 {
        (left / self.free).sqrt().max(all.sqrt() * 1e-9)
    }

    /// An effect in its standard errors.
    fn t(&self, effect: f64, noise: f64, step: usize) -> f64 {
        if noise > 0.0 { effect / (noise * self.spread[step]) } else { 0.0 }
    }
}

/// A response: its effects, and what of it is still in question.
struct Part {
    effects: Vec<f64>,
    /// Each effect in its standard errors.
    t: Vec<f64>,
    /// Standard deviation of a difference around what the steps explain.
    noise: f64,
    /// The differences without what was shown.
    rest: Vec<f64>,
    shown: Vec<bool>,
}

impl Part {
    fn of(fit: &Fit, differences: &[f64]) -> Part {
        let effects = fit.effects(differences);
        let t = statistics(fit, differences, &effects);
        let noise = (unexplained(fit, differences, &effects) / fit.free).sqrt();
        Part { shown: vec![false; effects.len()], effects, t, noise, rest: differences.to_vec() }
    }

    fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.shown.len()).filter(|step| !self.shown[*step])
    }

    /// Shown: what it explains is no noise of the others.
    fn take(&mut self, rows: &[Vec<f64>], step: usize) {
        self.shown[step] = true;
        for (rest, row) in self.rest.iter_mut().zip(rows) {
            *rest -= row[step] * self.effects[step];
        }
    }
}

/// The sum of squares that no step explains: of the whole, less what the fit takes.
fn unexplained(fit: &Fit, differences: &[f64], effects: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let taken = fit.columns.iter().zip(effects).map(|(x, effect)| effect * product(x, differences));
    (product(differences, differences) - taken.sum::<f64>()).max(0.0)
}

fn statistics(fit: &Fit, differences: &[f64], effects: &[f64]) -> Vec<f64> {
    let all: f64 = differences.iter().map(|d| d * d).sum();
    let noise = fit.noise(unexplained(fit, differences, effects), all);
    effects.iter().enumerate().map(|(step, effect)| fit.t(*effect, noise, step)).collect()
}

/// For every flip, the largest statistic among all that is in question.
///
/// A flip changes no square, so the sum of all squares is taken once; what the steps share with the flipped differences is gathered row by
/// row, all steps side by side.
fn largest(fit: &Fit, parts: &[Part], flips: &[Vec<f64>], rows: &[Vec<f64>]) -> Vec<f64> {
    let squares: Vec<f64> =
        parts.iter().map(|part| part.rest.iter().map(|d| d * d).sum()).collect();
    let mut shared = vec![0.0; fit.spread.len()];
    let most = |signs: &Vec<f64>| {
        let mut most = 0.0f64;
        for (part, squares) in parts.iter().zip(&squares) {
            shared.fill(0.0);
            for ((row, rest), sign) in rows.iter().zip(&part.rest).zip(signs) {
                let value = rest * sign;
                shared.iter_mut().zip(row).for_each(|(to, x)| *to += x * value);
            }
            let effects = fit.of_shared(&shared);
            let taken: f64 = effects.iter().zip(&shared).map(|(effect, x)| effect * x).sum();
            let noise = fit.noise((squares - taken).max(0.0), *squares);
            let t = |step: usize| fit.t(effects[step], noise, step).abs();
            most = part.open().map(t).fold(most, f64::max);
        }
        most
    };
    flips.iter().map(most).collect()
}
