//! The tail: how late it can get, and how often.
//!
//! Readings above a high threshold follow a generalized Pareto distribution (GPD), whatever the
//! whole does (Pickands, Balkema and de Haan), if they are of one kind and independent. Both are
//! checked as far as readings can: the shape must not depend on the threshold, the fit must
//! not be refused by a test, and what is fitted are events ([`super::events`]), of which late ones that come in
//! bursts count less. Where that fails, "no fit" is the answer, and no level is told.

use super::Random;
use quiet_types::Histogram;

/// Fewer readings above a threshold carry no shape.
pub const FEWEST_EXCESSES: u64 = 50;
/// A fit that chance would make worse in fewer cases is refused.
const REFUSED: f64 = 0.05;
/// 3.841: half of it is how far a log-likelihood may fall within a 95 % interval.
const CHI_1: f64 = 3.841_458_8;
/// How much wider than the large-sample errors a mixture's causes are drawn.
const WIDER: f64 = 1.25;
/// Shapes beyond are no latencies: below -1 the density has no end, above 2 there is no order.
const SHAPES: (f64, f64) = (-0.95, 2.0);

/// Counts between edges above a threshold: (lower, upper, count) as distances from it, in ns.
#[derive(Clone, Debug, PartialEq)]
struct Excesses {
    cells: Vec<(f64, f64, f64)>,
    /// Above the largest edge: known to be larger, not by how much.
    over: (f64, f64),
    count: f64,
}

/// A generalized Pareto distribution fitted to the readings above a threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The threshold, in ns.
    pub threshold: f64,
    /// Readings above it.
    pub excesses: u64,
    /// Their share of all readings.
    pub rate: f64,
    /// The shape: below 0 there is an upper end, above it moments go missing.
    pub shape: f64,
    /// Its standard error.
    pub shape_error: f64,
    /// The scale, in ns.
    pub scale: f64,
    /// How often chance makes a worse fit.
    pub goodness: f64,
    cells: Excesses,
}

/// What is known of a tail.
#[derive(Clone, Debug, PartialEq)]
pub enum Tail {
    /// One distribution describes it.
    Fitted(Box<Fit>),
    /// None does, and why.
    NoFit(String),
}

/// A level with its 95 % interval, in ns; `high` may be infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundedLevel {
    /// The most likely value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Each reading counts as `index` events: what comes in bursts says less than what comes alone.
fn excesses(all: &Histogram, threshold: u64, index: f64) -> Excesses {
    let above = all.buckets.iter().filter(|(lower, _)| *lower >= threshold);
    let u = threshold as f64;
    let cells: Vec<(f64, f64, f64)> = above
        .map(|&(lower, count)| {
            let upper = quiet_types::histogram::upper_of(lower);
            (lower as f64 - u, upper as f64 - u, count as f64 * index)
        })
        .collect();
    let last = cells.last().map_or(0.0, |cell| cell.1);
    let count = cells.iter().map(|cell| cell.2).sum::<f64>() + all.over as f64 * index;
    Excesses { cells, over: (last, all.over as f64 * index), count }
}

/// The chance that an excess is larger than `x`.
fn beyond(shape: f64, scale: f64, x: f64) -> f64 {
    if shape.abs() < 1e-6 {
        return (-x / scale).exp();
    }
    let base = 1.0 + shape * x / scale;
    if base <= 0.0 { 0.0 } else { (-base.ln() / shape).exp() }
}

impl Excesses {
    /// Of counts between edges: what was grouped is fitted as grouped.
    fn likelihood(&self, shape: f64, scale: f64) -> f64 {
        if !(scale > 0.0 && SHAPES.0 <= shape && shape <= SHAPES.1) {
            return f64::NEG_INFINITY;
        }
        let (mut sum, mut edge, mut left) = (0.0, f64::NAN, 0.0);
        for &(lower, upper, count) in &self.cells {
            // Neighbouring cells share an edge.
            let from = if lower == edge { left } else { beyond(shape, scale, lower) };
            let to = beyond(shape, scale, upper);
            let chance = from - to;
            if chance <= 0.0 {
                return f64::NEG_INFINITY;
            }
            sum += count * chance.ln();
            (edge, left) = (upper, to);
        }
        if self.over.1 > 0.0 {
            let chance = beyond(shape, scale, self.over.0);
            if chance <= 0.0 {
                return f64::NEG_INFINITY;
            }
            sum += self.over.1 * chance.ln();
        }
        sum
    }

    fn mean(&self) -> f64 {
        let middle = |&(lower, upper, n): &(f64, f64, f64)| (lower + upper) / 2.0 * n;
        let sum = self.cells.iter().map(middle).sum::<f64>() + self.over.0 * self.over.1;
        sum / self.count.max(1.0)
    }

    /// The scale with the greatest likelihood for a shape, and that likelihood.
    fn best_scale(&self, shape: f64) -> (f64, f64) {
        let most = self.cells.last().map_or(1.0, |cell| cell.1);
        let mean = self.mean().max(1.0);
        // For a negative shape the end of the distribution must lie beyond the largest reading.
        let least = if shape < 0.0 { -shape * most * 1.000_001 } else { mean * 1e-3 };
        let (mut low, mut high) = (least.ln(), (mean * 30.0).max(least * 30.0).ln());
        let golden = 0.618_033_988_749_895;
        let value = |x: f64| self.likelihood(shape, x.exp());
        let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
        let (mut of_a, mut of_b) = (value(a), value(b));
        for _ in 0..44 {
            if of_a < of_b {
                (low, a, of_a) = (a, b, of_b);
                b = low + golden * (high - low);
                of_b = value(b);
            } else {
                (high, b, of_b) = (b, a, of_a);
                a = high - golden * (high - low);
                of_a = value(a);
            }
        }
        let x = (low + high) / 2.0;
        (x.exp(), value(x))
    }

    /// Shape, scale, and the standard error of the shape.
    fn fit(&self) -> Option<(f64, f64, f64)> {
        let value = |shape: f64| self.best_scale(shape).1;
        // The profile has one top; coarse steps find its neighbourhood.
        let steps = 24;
        let at = |step: i32| SHAPES.0 + (SHAPES.1 - SHAPES.0) * f64::from(step) / f64::from(steps);
        let best = (0..=steps)
            .map(|step| (step, value(at(step))))
            .filter(|(_, likelihood)| likelihood.is_finite())
            .max_by(|a, b| a.1.total_cmp(&b.1))?
            .0;
        let (mut low, mut high) = (at((best - 1).max(0)), at((best + 1).min(steps)));
        for _ in 0..24 {
            let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            if value(a) < value(b) { low = a } else { high = b }
        }
        let shape = (low + high) / 2.0;
        let (scale, top) = self.best_scale(shape);
        if !top.is_finite() {
            return None;
        }
        let step = 0.02;
        let curve = (value(shape + step) - 2.0 * top + value(shape - step)) / (step * step);
        let error = if curve < 0.0 {
            (-1.0 / curve).sqrt()
        } else {
            (1.0 + shape).abs() / self.count.sqrt()
        };
        Some((shape, scale, error))
    }

    /// Pearson's test over cells of about equal chance; two parameters were fitted.
    fn goodness(&self, shape: f64, scale: f64) -> f64 {
        let cells = ((self.count / 8.0).sqrt() * 2.0).clamp(5.0, 30.0).floor();
        let (mut sum, mut used) = (0.0, 0.0f64);
        let (mut seen, mut from) = (0.0, 1.0);
        for (at, &(_, upper, count)) in self.cells.iter().enumerate() {
            seen += count;
            let to = beyond(shape, scale, upper);
            let last = at + 1 == self.cells.len() && self.over.1 == 0.0;
            // What is left must suffice for a cell too.
            if (from - to >= 1.0 / cells && to >= 0.5 / cells) || last {
                let expected = if last { from } else { from - to } * self.count;
                if expected > 0.0 {
                    sum += (seen - expected).powi(2) / expected;
                    used += 1.0;
                }
                (seen, from) = (0.0, to);
            }
        }
        if self.over.1 > 0.0 {
            let expected = (from * self.count).max(1e-9);
            sum += (seen + self.over.1 - expected).powi(2) / expected;
            used += 1.0;
        }
        if used < 4.0 { 1.0 } else { 1.0 - gamma_below((used - 3.0) / 2.0, sum / 2.0) }
    }
}

/// Fits the tail of all readings.
///
/// Thresholds from the 90th percentile upwards are tried; taken is the lowest one whose fit the
/// test does not refuse and whose shape the higher thresholds agree with.
pub fn tail(all: &Histogram) -> Tail {
    tail_from(all, 0.9)
}

/// The same, with thresholds from the quantile `from`.
pub fn tail_from(all: &Histogram, from: f64) -> Tail {
    tail_of(all, from, 1.0)
}

/// The tail of events: `all` holds a reading for each, and where late ones come in bursts, `index` of them are events (the
/// extremal index). A stall that made 100 readings late is not enough for a tail that needs 50 of them.
pub fn tail_of(all: &Histogram, from: f64, index: f64) -> Tail {
    let enough = (FEWEST_EXCESSES as f64 / (1.0 - from)).round();
    let events = all.count as f64 * index;
    if events < enough {
        return Tail::NoFit(format!("{events:.0} readings; a tail needs {enough} or more"));
    }
    let mut fits: Vec<Fit> = Vec::new();
    let mut share = 1.0 - from;
    while share * events >= FEWEST_EXCESSES as f64 {
        let higher = |fit: &Fit| fits.last().is_none_or(|last| last.threshold < fit.threshold);
        if let Some(fit) = fit_above(all, share, index).filter(higher) {
            fits.push(fit);
        }
        share /= 2.0;
    }
    if fits.is_empty() {
        return Tail::NoFit(
            "the readings above every threshold lie in too few steps of the instrument".to_owned(),
        );
    }
    for (at, fit) in fits.iter().enumerate() {
        let agrees = |later: &&Fit| {
            let error = later.shape_error.hypot(fit.shape_error);
            (later.shape - fit.shape).abs() <= 2.0 * error
        };
        let next: Vec<&Fit> = fits[at + 1..].iter().take(3).collect();
        let refused = next.iter().filter(|later| later.goodness < REFUSED / 5.0).count();
        if fit.goodness >= REFUSED && refused == 0 && next.iter().all(agrees) {
            return Tail::Fitted(Box::new(fit.clone()));
        }
    }
    let best = fits.iter().map(|fit| fit.goodness).fold(0.0, f64::max);
    Tail::NoFit(if best < REFUSED {
        "no threshold gives a tail of one kind: the readings above it have several causes"
            .to_owned()
    } else {
        "the shape changes with the threshold: the tail has several causes, or too few readings"
            .to_owned()
    })
}

fn fit_above(all: &Histogram, share: f64, index: f64) -> Option<Fit> {
    let wanted = (share * all.count as f64) as u64;
    let mut seen = all.over;
    let at = all.buckets.iter().rposition(|(_, count)| {
        seen += count;
        seen >= wanted
    })?;
    let threshold = all.buckets[at].0;
    let excesses = excesses(all, threshold, index);
    if (excesses.count as u64) < FEWEST_EXCESSES || excesses.cells.len() < 8 {
        return None;
    }
    let (shape, scale, shape_error) = excesses.fit()?;
    Some(Fit {
        threshold: threshold as f64,
        excesses: excesses.count as u64,
        rate: excesses.count / all.count as f64,
        shape,
        shape_error,
        scale,
        goodness: excesses.goodness(shape, scale),
        cells: excesses,
    })
}

impl Fit {
    /// The chance that one reading is larger than `ns`; `None` below the threshold.
    pub fn chance_beyond(&self, ns: f64) -> Option<f64> {
        (ns >= self.threshold)
            .then(|| self.rate * beyond(self.shape, self.scale, ns - self.threshold))
    }

    /// The level that one reading in `readings` exceeds, with its 95 % interval by the profile of
    /// the likelihood. `None` where it lies below the threshold.
    pub fn level(&self, readings: f64) -> Option<BoundedLevel> {
        let times = readings * self.rate;
        if !(times > 1.0 && times.is_finite()) {
            return None;
        }
        let stretch = |shape: f64| {
            if shape.abs() < 1e-6 { times.ln() } else { (times.powf(shape) - 1.0) / shape }
        };
        let top = self.cells.likelihood(self.shape, self.scale);
        let value = self.threshold + self.scale * stretch(self.shape);
        // The greatest likelihood of all distributions with this level.
        let profile = |level: f64| {
            let scale = |shape: f64| (level - self.threshold) / stretch(shape);
            let likelihood = |shape: f64| self.cells.likelihood(shape, scale(shape));
            let steps = 40;
            let at =
                |step: i32| SHAPES.0 + (SHAPES.1 - SHAPES.0) * f64::from(step) / f64::from(steps);
            let best = (0..=steps)
                .map(|step| (step, likelihood(at(step))))
                .filter(|(_, l)| l.is_finite())
                .max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((best, _)) = best else { return f64::NEG_INFINITY };
            let (mut low, mut high) = (at((best - 1).max(0)), at((best + 1).min(steps)));
            for _ in 0..18 {
                let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
                if likelihood(a) < likelihood(b) { low = a } else { high = b }
            }
            likelihood((low + high) / 2.0)
        };
        let inside = |level: f64| profile(level) >= top - CHI_1 / 2.0;
        let above = (value - self.threshold).max(1.0);
        let end = |out: f64, steps: i32| {
            // From the estimate outwards until it is out, then halved.
            let (mut good, mut bad) = (above, above * out);
            let mut tries = 0;
            while inside(self.threshold + bad) {
                (good, bad) = (bad, bad * out);
                tries += 1;
                if tries > steps {
                    return None;
                }
            }
            for _ in 0..14 {
                let middle = (good * bad).sqrt();
                if inside(self.threshold + middle) { good = middle } else { bad = middle }
            }
            Some(self.threshold + (good * bad).sqrt())
        };
        let low = end(1.0 / 1.5, 40).unwrap_or(self.threshold);
        let high = end(1.5, 40).unwrap_or(f64::INFINITY);
        Some(BoundedLevel { value, low, high })
    }

    /// The end of the distribution, which no reading exceeds; `None` where there is none.
    pub fn end(&self) -> Option<f64> {
        (self.shape < -0.01).then(|| self.threshold - self.scale / self.shape)
    }
}

/// Several causes, each with a tail of its own, and readings a second of each: what all of them
/// exceed together. Splitting by cause is what a mixture needs, since none of it is one GPD.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// Every cause.
    pub parts: Vec<CauseReadings>,
}

/// The readings of one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct CauseReadings {
    /// Its name.
    pub name: String,
    /// Its tail.
    pub fit: Fit,
    /// All its readings: what lies below the threshold of the tail is counted.
    pub readings: Histogram,
    /// Readings a second.
    pub a_second: f64,
}

impl Mixture {
    /// Readings above `ns` a second.
    pub fn a_second(&self, ns: f64) -> f64 {
        let counted = |cause: &CauseReadings| {
            let above = cause.readings.above(quiet_types::Nanos(ns.max(0.0) as u64));
            above as f64 / cause.readings.count.max(1) as f64
        };
        let one = |cause: &CauseReadings| {
            cause.a_second * cause.fit.chance_beyond(ns).unwrap_or_else(|| counted(cause))
        };
        self.parts.iter().map(one).sum()
    }

    /// The level that is exceeded once in `seconds`, with its 95 % interval; `None` where it lies below
    /// every threshold.
    ///
    /// The interval is by simulation: each cause's shape, scale and rate are drawn as widely as
    /// its readings leave them open (the large-sample covariance of the GPD's estimates, a quarter wider:
    /// as it is it held 87 % where 95 % was said, with 400 readings), and the level is taken anew. An upper end beyond 1e18 ns is infinite.
    ///
    /// # Source
    /// Covariance: Smith, Maximum likelihood estimation in a class of nonregular cases, 1985.
    pub fn level(&self, seconds: f64) -> Option<BoundedLevel> {
        let value = self.once_in(seconds)?;
        let mut random = Random::new(0x006d_6978_7475_7265);
        let draws = 1000;
        let mut levels: Vec<f64> = (0..draws)
            .map(|_| {
                let parts = self.parts.iter().map(|part| part.drawn(&mut random)).collect();
                Mixture { parts }.once_in(seconds).unwrap_or(f64::INFINITY)
            })
            .collect();
        levels.sort_unstable_by(f64::total_cmp);
        let low = levels[draws * 25 / 1000].min(value);
        let high = levels[draws * 975 / 1000].max(value);
        Some(BoundedLevel { value, low, high })
    }

    fn once_in(&self, seconds: f64) -> Option<f64> {
        let wanted = 1.0 / seconds;
        let mut low = self.parts.iter().map(|cause| cause.fit.threshold).fold(0.0, f64::max);
        let mut high = low.max(1.0) * 2.0;
        if self.a_second(low) < wanted {
            // Only the smaller causes reach so often.
            (low, high) = (1.0, low.max(1.0));
        }
        while self.a_second(high) > wanted {
            high *= 2.0;
            if high > 1e18 {
                return None;
            }
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.a_second(middle) > wanted { low = middle } else { high = middle }
        }
        Some((low + high) / 2.0)
    }
}

impl CauseReadings {
    /// The same cause as another sample of it might have shown it.
    fn drawn(&self, random: &mut Random) -> CauseReadings {
        let mut cause = self.clone();
        let fit = &mut cause.fit;
        let count = fit.excesses.max(1) as f64;
        // var(shape) = (1 + shape)^2 / n, var(ln scale) = 2 (1 + shape) / n, cov = -(1 + shape) / n; n so that
        // the first is what the likelihood told.
        let wide = (1.0 + self.fit.shape).max(0.05);
        let n = (wide / (WIDER * fit.shape_error).max(1e-9)).powi(2).max(1.0);
        for _ in 0..20 {
            let (a, b) = normals(random);
            let shape = self.fit.shape + wide / n.sqrt() * a;
            // Given the shape: its regression, and what is left of the variance.
            let left = (2.0 * wide - 1.0).max(0.05) / n;
            let scale = self.fit.scale * (-a / n.sqrt() + left.sqrt() * b).exp();
            // No sample has readings beyond the end of its distribution.
            let end = if shape < 0.0 { self.fit.threshold - scale / shape } else { f64::INFINITY };
            let largest = self.readings.max.map_or(0.0, |max| max.0 as f64);
            if (SHAPES.0..=SHAPES.1).contains(&shape) && end >= largest {
                (fit.shape, fit.scale) = (shape, scale);
                break;
            }
        }
        let (a, _) = normals(random);
        cause.a_second = (self.a_second * (1.0 + a / count.sqrt())).max(self.a_second / count);
        cause
    }
}

/// Two independent draws of the standard normal distribution (Box and Muller).
fn normals(random: &mut Random) -> (f64, f64) {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * random.unit()).sin_cos();
    (radius * cos, radius * sin)
}

/// A percentile with its 95 % interval by ranks, as bucket edges: no distribution is assumed, but
/// that readings do not depend on each other. `None` where there are too few for this percentile.
pub fn percentile(all: &Histogram, q: f64) -> Option<BoundedLevel> {
    percentile_of(all, q, 1.0)
}

/// The same where `index` of the readings are independent: the interval is that of so many fewer.
pub fn percentile_of(all: &Histogram, q: f64, index: f64) -> Option<BoundedLevel> {
    let n = all.count as f64;
    let value = all.percentile(q)?.0 as f64;
    let alone = ((n * index).round() as u64).clamp(1, all.count.max(1));
    let scale = n / alone as f64;
    let (low, high) = ranks(alone, q)?;
    let low = ((low as f64 * scale).floor() as u64).max(1);
    let high = if high > alone { all.count + 1 } else { (high as f64 * scale).ceil() as u64 };
    let edge = |rank: u64, upper: bool| {
        let mut seen = 0;
        for &(lower, count) in &all.buckets {
            seen += count;
            if seen >= rank {
                let edge = if upper { quiet_types::histogram::upper_of(lower) } else { lower };
                return edge as f64;
            }
        }
        all.max.map_or(f64::INFINITY, |max| max.0 as f64)
    };
    let high = if high as f64 > n { f64::INFINITY } else { edge(high, true) };
    Some(BoundedLevel { value, low: edge(low, false), high })
}

/// Ranks, from 1, between which the quantile lies in 95 % of cases; `None` where no lower rank is
/// sure enough. The upper one may be n + 1: beyond all readings.
fn ranks(n: u64, q: f64) -> Option<(u64, u64)> {
    let (count, z) = (n as f64, 1.96);
    if count * q.min(1.0 - q) > 200.0 {
        let half = z * (count * q * (1.0 - q)).sqrt();
        let low = (count * q - half).floor().max(1.0) as u64;
        return Some((low, (count * q + half).ceil() as u64 + 1));
    }
    // Few on one side: Poisson there. Above the quantile lie k of n readings.
    let above = count * (1.0 - q);
    let most = (0..2000u64).find(|k| poisson_at_most(above, *k) >= 0.975)?;
    let least = (0..2000u64).take_while(|k| poisson_at_most(above, *k) < 0.025).count() as u64;
    let low = n.checked_sub(most).filter(|low| *low > 0)?;
    Some((low, n - least + 1))
}

fn poisson_at_most(mean: f64, k: u64) -> f64 {
    1.0 - gamma_below(k as f64 + 1.0, mean)
}

/// How large the mean of a Poisson count can be when `seen` were seen, at 95 %: 3 for none.
pub fn most_likely_rate(seen: u64) -> f64 {
    let (mut low, mut high) = (seen as f64, seen as f64 + 10.0 * (seen as f64 + 1.0).sqrt());
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if poisson_at_most(middle, seen) > 0.05 { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// A claim: no more than one reading above `limit` in `seconds`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Readings above the limit that were seen.
    pub seen: u64,
    /// In so many seconds.
    pub in_seconds: f64,
    /// What the claim allows in them.
    pub allowed: f64,
    /// Whether it holds at 95 %.
    pub verdict: Shown,
}

/// Whether a claim is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    /// It holds.
    Holds,
    /// It does not: more were seen than it allows.
    Broken,
    /// Not yet: so many more seconds without another reading above the limit would show it.
    Needs(f64),
}

/// Judges the claim that a reading above `limit_ns` comes no more than once in `every` seconds.
pub fn claim(seen: u64, in_seconds: f64, every: f64) -> Claim {
    let allowed = in_seconds / every;
    let upper = most_likely_rate(seen);
    let verdict = if upper <= allowed {
        Shown::Holds
    } else if seen > 0 && 1.0 - poisson_at_most(allowed, seen - 1) < 0.05 {
        Shown::Broken
    } else {
        Shown::Needs(upper * every - in_seconds)
    };
    Claim { seen, in_seconds, allowed, verdict }
}

/// The regularized lower incomplete gamma function, P(a, x).
///
/// # Source
/// Abramowitz and Stegun 6.5.29 (series) and 6.5.31 (continued fraction).
pub fn gamma_below(a: f64, x: f64) -> f64 {
    if x <= 0.0 || a <= 0.0 {
        return 0.0;
    }
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut sum, mut term, mut n) = (1.0 / a, 1.0 / a, a);
        for _ in 0..10_000 {
            n += 1.0;
            term *= x / n;
            sum += term;
            if term < sum * 1e-15 {
                break;
            }
        }
        return (sum * front).min(1.0);
    }
    let (mut b, mut c) = (x + 1.0 - a, 1e300);
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (1.0 - front * h).clamp(0.0, 1.0)
}

/// Stirling's series, with the recurrence below 10.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    (x - 0.5) * x.ln() - x
        + 0.5 * std::f64::consts::TAU.ln()
        + (1.0 / 12.0 - r * (1.0 / 360.0 - r / 1260.0)) / x
        - shift
}

/// A random number of a GPD, for tests.
#[doc(hidden)]
pub fn draw(random: &mut Random, shape: f64, scale: f64) -> f64 {
    let u = 1.0 - random.unit();
    if shape == 0.0 { -scale * u.ln() } else { scale * (u.powf(-shape) - 1.0) / shape }
}
