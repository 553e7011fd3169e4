//! The one judge: what runs of two settings show, figure by figure and as a whole. `prove`, `compare` and `campaign` ask it
//! alike, so the same runs have the same verdict whoever asks.

use crate::stats::{self, FEWEST_PAIRS, LEVEL, Resolution, Tables, Value};
use quiet_types::{
    Nanos, Run,
    proof::{Arm, Estimate, OrderEffect, Ratio, Role, Unit, Verdict},
    run::Measured,
};

/// A percentile with fewer readings beyond it is an anecdote.
const FEWEST_BEYOND: f64 = 10.0;

/// Width of a bucket of [`quiet_types::histogram::layout`], as a part of its value.
const BUCKET: f64 = 1.0 / 64.0;

/// What was measured at once: one run, or an arm's two.
#[derive(Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub wakeup: Option<&'a Run>,
    pub gap: Option<&'a Run>,
}

impl<'a> Taken<'a> {
    /// What an arm measured.
    pub fn of(arm: &'a Arm) -> Taken<'a> {
        Taken { wakeup: Some(&arm.wakeup), gap: arm.gap.as_ref() }
    }

    /// What a single run measured.
    pub fn one(run: &'a Run) -> Taken<'a> {
        match run.spec.probe {
            Measured::Wakeup { .. } => Taken { wakeup: Some(run), gap: None },
            Measured::Gap => Taken { wakeup: None, gap: Some(run) },
        }
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.wakeup.into_iter().chain(self.gap)
    }
}

/// How the runs stand to each other.
pub(crate) enum Design<'a> {
    /// Neighbours in time: a run of the base, one of the other, and whether the base came first.
    Pairs {
        pairs: Vec<(Taken<'a>, Taken<'a>, bool)>,
        /// Whether the order of each was drawn by lot.
        drawn: bool,
    },
    /// Runs of the base and of the other, in no pairs.
    Sets(Vec<Taken<'a>>, Vec<Taken<'a>>),
}

/// A figure, judged.
pub(crate) struct Judged {
    pub id: &'static str,
    pub unit: Unit,
    pub role: Role,
    pub base: Estimate,
    pub other: Estimate,
    pub ratio: Ratio,
    pub verdict: Verdict,
    pub p_value: f64,
    pub p_family: f64,
    pub note: String,
    /// What it would be called if it stood alone.
    pub alone: Verdict,
}

/// All of them, and the whole.
pub(crate) struct Whole {
    pub figures: Vec<Judged>,
    pub verdict: Verdict,
    /// Of the whole.
    pub p_value: f64,
    pub order: Option<OrderEffect>,
}

/// How a figure is taken from what was measured. Declared before anything is looked at.
struct Rule {
    id: &'static str,
    unit: Unit,
    role: Role,
    take: fn(&Taken, Option<Nanos>) -> Option<Value>,
    /// The quantile that it is, of the run that it is taken from.
    quantile: Option<f64>,
}

/// Maxima are not among them: the largest of 20 000 readings is one event, most often the host's, and its ratio is the
/// ratio of two accidents. They are shown by side.
const WAKEUP: [Rule; 6] = [
    Rule {
        id: "wakeup.p99",
        unit: Unit::Nanoseconds,
        role: Role::Primary,
        take: |taken, _| percentile(taken.wakeup?, 0.99),
        quantile: Some(0.99),
    },
    Rule {
        id: "wakeup.beyond",
        unit: Unit::Share,
        role: Role::Primary,
        take: |taken, threshold| beyond(taken.wakeup?, threshold),
        quantile: None,
    },
    Rule {
        id: "wakeup.p99.9",
        unit: Unit::Nanoseconds,
        role: Role::Guard,
        take: |taken, _| percentile(taken.wakeup?, 0.999),
        quantile: Some(0.999),
    },
    Rule {
        id: "wakeup.missed",
        unit: Unit::Share,
        role: Role::Guard,
        take: |taken, _| missed(taken.wakeup?),
        quantile: None,
    },
    Rule {
        id: "gap.stolen",
        unit: Unit::Share,
        role: Role::Guard,
        take: |taken, _| gap_time(taken.gap?),
        quantile: None,
    },
    Rule {
        id: "wakeup.p50",
        unit: Unit::Nanoseconds,
        role: Role::Context,
        take: |taken, _| percentile(taken.wakeup?, 0.5),
        quantile: Some(0.5),
    },
];

/// A judged figure of one run by its id, and half of its smallest step; `None` where the run does not tell it.
pub fn figure_of(run: &Run, id: &str) -> Option<(f64, f64)> {
    let rules = if run.is_gap() { &GAP[..] } else { &WAKEUP[..] };
    let rule = rules.iter().find(|rule| rule.id == id)?;
    let value = (rule.take)(&Taken::one(run), run.spec.threshold)?;
    Some((value.value, value.half))
}

/// Where only gaps were measured.
const GAP: [Rule; 2] = [
    Rule {
        id: "gap.stolen",
        unit: Unit::Share,
        role: Role::Primary,
        take: |taken, _| gap_time(taken.gap?),
        quantile: None,
    },
    Rule {
        id: "gap.p99.99",
        unit: Unit::Nanoseconds,
        role: Role::Guard,
        take: |taken, _| percentile(taken.gap?, 0.9999),
        quantile: Some(0.9999),
    },
];

/// A figure's name for people.
pub(crate) fn title(id: &str, threshold: Option<Nanos>) -> String {
    match (id, threshold) {
        ("wakeup.beyond", Some(threshold)) => format!("beyond {threshold}"),
        ("wakeup.missed", _) => "missed periods".to_owned(),
        ("gap.stolen", _) => "gap time".to_owned(),
        (other, _) => other.split_once('.').map_or(other, |(_, rest)| rest).to_owned(),
    }
}

fn percentile(run: &Run, q: f64) -> Option<Value> {
    Some(Value { value: run.readings().percentile(q)?.0 as f64, half: 0.5 })
}

fn of_expected(run: &Run, count: u64) -> Option<Value> {
    let expected = run.expected()?;
    let part = |count: f64| count / expected as f64;
    (expected > 0).then(|| Value { value: part(count as f64), half: part(0.5) })
}

/// Counted in the corrected histogram: a missed period is beyond the threshold as well.
fn beyond(run: &Run, threshold: Option<Nanos>) -> Option<Value> {
    run.spec.threshold?;
    of_expected(run, run.readings().above(threshold?))
}

fn missed(run: &Run) -> Option<Value> {
    of_expected(run, run.missed()?)
}

/// The part of the time that gaps above the threshold took. The smallest step is one gap of just the threshold.
fn gap_time(run: &Run) -> Option<Value> {
    let whole = run.lasted?.0 as f64 * run.threads.len() as f64;
    let taken = run.stolen()?.0 as f64;
    let half = run.spec.threshold?.0.max(1) as f64 / 2.0 / whole;
    (whole > 0.0).then_some(Value { value: taken / whole, half })
}

/// Judges. `threshold` is what `beyond` is beyond; `withheld` says why no verdict is given at all.
///
/// The whole is **better** when every primary figure is and no guard is worse; **worse** when a primary figure is and none
/// is better; else **not shown**. Each figure of the table is judged together with the others, so that a false one among
/// them is as rare as in one: the primary figures first (Hochberg), the rest (Holm) only where every primary one is shown.
pub(crate) fn judge(design: &Design, threshold: Option<Nanos>, withheld: Option<&str>) -> Whole {
    let all: Vec<Taken> = match design {
        Design::Pairs { pairs, .. } => pairs.iter().flat_map(|(a, b, _)| [*a, *b]).collect(),
        Design::Sets(a, b) => a.iter().chain(b).copied().collect(),
    };
    let rules: &[Rule] =
        if all.iter().any(|taken| taken.wakeup.is_some()) { &WAKEUP } else { &GAP };
    let own = |run: &Run| run.clock.as_ref().map_or(Nanos::ZERO, |clock| clock.floor);
    let floor = |taken: &Taken| taken.runs().map(|run| own(run).max(run.resolution())).max();
    let floor = all.iter().filter_map(floor).max().unwrap_or_default();
    let mut figures: Vec<Judged> =
        rules.iter().filter_map(|rule| figure(rule, design, threshold, floor)).collect();
    if let Some(why) = withheld {
        for figure in &mut figures {
            (figure.alone, figure.note) = (Verdict::NotShown, why.to_owned());
        }
    }
    together(&mut figures);
    let (verdict, p_value) = whole(&figures);
    Whole { figures, verdict, p_value, order: order(rules, design, threshold) }
}

fn figure(rule: &Rule, design: &Design, threshold: Option<Nanos>, floor: Nanos) -> Option<Judged> {
    let take = |taken: &Taken| (rule.take)(taken, threshold);
    let resolution = |values: &mut dyn Iterator<Item = &Value>| {
        let smallest = values.map(|value| value.half).fold(0.0, f64::max) * 2.0;
        match rule.unit {
            Unit::Nanoseconds => {
                Resolution { absolute: smallest.max(floor.0 as f64), relative: BUCKET }
            }
            Unit::Share => Resolution { absolute: smallest, relative: 0.0 },
        }
    };
    let (mut found, lopsided) = match design {
        Design::Pairs { pairs, drawn } => {
            let valid =
                || pairs.iter().filter_map(|(a, b, first)| Some((take(a)?, take(b)?, *first)));
            let values: Vec<(Value, Value)> = valid().map(|(a, b, _)| (a, b)).collect();
            if values.is_empty() {
                return None;
            }
            let first = valid().filter(|(.., first)| *first).count();
            let resolution = resolution(&mut values.iter().flat_map(|(a, b)| [a, b]));
            let lopsided = if *drawn { None } else { lopsided(first, values.len()) };
            (stats::compare(&values, resolution), lopsided)
        }
        Design::Sets(a, b) => {
            let values = |all: &[Taken]| {
                all.iter().map(take).collect::<Option<Vec<Value>>>().filter(|v| !v.is_empty())
            };
            let (a, b) = (values(a)?, values(b)?);
            let resolution = resolution(&mut a.iter().chain(&b));
            let mut found = stats::compare_sets(&a, &b, resolution);
            found.p_value = stats::dependent(found.p_value, &a, &b);
            if found.verdict != Verdict::NotShown && found.p_value > LEVEL {
                found.verdict = Verdict::NotShown;
                found.note = format!(
                    "runs that follow each other are alike: chance gives as much in {:.0} % of cases",
                    found.p_value * 100.0
                );
            }
            (found, None)
        }
    };
    let mut not = |why: String| (found.verdict, found.note) = (Verdict::NotShown, why);
    if let Some(why) = lopsided {
        not(why);
    }
    let (least, most) =
        (found.base.median.min(found.other.median), found.base.median.max(found.other.median));
    if rule.unit == Unit::Share && most == 0.0 {
        (found.verdict, found.note) =
            (Verdict::NotShown, "none in most runs of either setting".to_owned());
    }
    if rule.unit == Unit::Nanoseconds && least < floor.0 as f64 {
        (found.verdict, found.note) =
            (Verdict::NotShown, format!("below the instrument's own step or noise of {floor}"));
    }
    if let Some(few) = too_few(rule, design) {
        (found.verdict, found.note) = (Verdict::NotShown, few);
    }
    Some(Judged {
        id: rule.id,
        unit: rule.unit,
        role: rule.role,
        base: found.base,
        other: found.other,
        ratio: found.ratio,
        verdict: Verdict::NotShown,
        p_value: found.p_value,
        p_family: 1.0,
        note: found.note,
        alone: found.verdict,
    })
}

/// Why the order of so many pairs, of which so many had the base first, can show nothing where it was not drawn: what
/// drifts within a pair does not cancel out.
fn lopsided(first: usize, pairs: usize) -> Option<String> {
    let more = first.max(pairs - first);
    ((2 * more - pairs).pow(2) > pairs).then(|| {
        format!(
            "one side was measured first in {more} of {pairs} pairs, by no lot: what drifts within a pair cannot be told from it"
        )
    })
}

/// A percentile that rests on too few readings in some run.
fn too_few(rule: &Rule, design: &Design) -> Option<String> {
    let q = rule.quantile?;
    let of = |taken: &Taken| {
        let run = if rule.id.starts_with("gap") { taken.gap } else { taken.wakeup };
        run.map(|run| run.readings().count as f64 * (1.0 - q))
    };
    let least = match design {
        Design::Pairs { pairs, .. } => {
            pairs.iter().flat_map(|(a, b, _)| [of(a), of(b)]).flatten().fold(f64::MAX, f64::min)
        }
        Design::Sets(a, b) => a.iter().chain(b).filter_map(of).fold(f64::MAX, f64::min),
    };
    (least + 1e-6 < FEWEST_BEYOND).then(|| {
        format!("in some run {least:.0} readings lie beyond it; it takes {FEWEST_BEYOND:.0} to be judged")
    })
}

/// Gives each figure its verdict among all of them.
fn together(figures: &mut [Judged]) {
    // What cannot be judged for another reason takes its place as the surest no.
    let p = |figure: &Judged| if figure.alone == Verdict::NotShown { 1.0 } else { figure.p_value };
    let adjust = |figures: &mut [Judged], primary: bool, gate: f64| {
        let mut these: Vec<&mut Judged> =
            figures.iter_mut().filter(|f| (f.role == Role::Primary) == primary).collect();
        let p_values: Vec<f64> = these.iter().map(|figure| p(figure)).collect();
        let adjusted = if primary { stats::hochberg(&p_values) } else { stats::holm(&p_values) };
        for (figure, adjusted) in these.iter_mut().zip(&adjusted) {
            figure.p_family = adjusted.max(gate);
            if figure.alone == Verdict::NotShown {
                continue;
            }
            if figure.p_family <= LEVEL {
                figure.verdict = figure.alone;
            } else if gate > LEVEL {
                figure.note = format!(
                    "alone it would be {}; beside the figures that the verdict rests on it is not judged unless they are shown",
                    figure.alone
                );
            } else {
                figure.note = format!(
                    "alone it would be {}; among the figures of the table chance gives as much in {:.0} % of cases",
                    figure.alone,
                    figure.p_family * 100.0
                );
            }
        }
        adjusted.into_iter().fold(0.0, f64::max)
    };
    let gate = adjust(figures, true, 0.0);
    adjust(figures, false, gate);
}

fn whole(figures: &[Judged]) -> (Verdict, f64) {
    let primary = || figures.iter().filter(|f| f.role == Role::Primary);
    let most = primary().map(|f| f.p_value).fold(0.0, f64::max);
    if primary().count() > 0 && primary().all(|f| f.verdict == Verdict::Better) {
        // To take a verdict away needs less than to give one.
        let spoilt = figures.iter().any(|f| f.role == Role::Guard && f.alone == Verdict::Worse);
        let verdict = if spoilt { Verdict::NotShown } else { Verdict::Better };
        return (verdict, most);
    }
    let worse = primary().filter(|f| f.verdict == Verdict::Worse).map(|f| f.p_family);
    match worse.min_by(f64::total_cmp) {
        Some(p) if !primary().any(|f| f.verdict == Verdict::Better) => (Verdict::Worse, p),
        _ => (Verdict::NotShown, if figures.is_empty() { 1.0 } else { most }),
    }
}

/// What came second against what came first, whichever setting it was: by the first primary figure.
fn order(rules: &[Rule], design: &Design, threshold: Option<Nanos>) -> Option<OrderEffect> {
    let Design::Pairs { pairs, .. } = design else { return None };
    let rule = rules.first()?;
    let (mut base_first, mut other_first) = (Vec::new(), Vec::new());
    for (a, b, first) in pairs {
        let (Some(a), Some(b)) = ((rule.take)(a, threshold), (rule.take)(b, threshold)) else {
            continue;
        };
        let log = ((b.value + b.half) / (a.value + a.half)).ln();
        if *first { base_first.push(log) } else { other_first.push(log) }
    }
    if base_first.is_empty() || other_first.is_empty() || pairs.len() < FEWEST_PAIRS {
        return None;
    }
    let twice = stats::median(&base_first) - stats::median(&other_first);
    let values = |logs: &[f64]| -> Vec<Value> {
        logs.iter().map(|log| Value { value: log.exp(), half: 0.0 }).collect()
    };
    Some(OrderEffect {
        figure: rule.id.to_owned(),
        base_first: base_first.len() as u32,
        other_first: other_first.len() as u32,
        ratio: stats::tidy((twice / 2.0).exp()),
        p_value: Tables::default().p_value(&values(&base_first), &values(&other_first)),
    })
}
