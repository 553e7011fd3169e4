//! The history of runs: what changed within a series when the kernel or a setting did, and what changed by itself.

use crate::{
    known,
    stats::{self, Resolution, Value},
};
use quiet_types::words;
use quiet_types::{
    Nanos,
    history::{Change, Line},
    proof::{Unit, Verdict},
};
use std::collections::BTreeMap;

/// Runs of a stretch that are looked at: those nearest to the change.
const NEAREST: usize = 40;

/// Runs on each side of a change that nothing announced, at the least.
const SIDE: usize = 8;

/// Width of a bucket, as a part of its value.
const BUCKET: f64 = 1.0 / 64.0;

type Take = fn(&Line) -> Option<Value>;

/// The figures of a line that are followed.
const FIGURES: [(&str, Unit, Take); 3] = [
    ("p99", Unit::Nanoseconds, |line| time(line.p99)),
    ("p99.9", Unit::Nanoseconds, |line| time(line.p99_9)),
    ("beyond", Unit::Share, |line| {
        let half = 0.5 / line.readings.max(1) as f64;
        line.beyond.filter(|_| line.readings > 0).map(|value| Value { value, half })
    }),
];

fn time(value: Option<Nanos>) -> Option<Value> {
    value.map(|value| Value { value: value.0 as f64, half: 0.5 })
}

/// What the runs of one series have in common: the question, and the machine.
fn series(line: &Line) -> String {
    let interval = line.interval.map_or(String::new(), |interval| format!(" {interval}"));
    let stress = match line.stress.as_deref() {
        Some("none") => String::new(),
        Some(names) => format!(", stress {names}"),
        None => ", stress not known".to_owned(),
    };
    let policy = line.policy.as_deref().unwrap_or("policy not known");
    let tool = if line.tool == "quietcores" { String::new() } else { format!(", {}", line.tool) };
    format!("{} {}{interval}, CPU {}, {policy}{stress}{tool}", line.host, line.probe, line.cpus)
}

/// Lines by what they have in common.
pub fn series_of(lines: &[Line]) -> Vec<(String, Vec<&Line>)> {
    let mut all: BTreeMap<String, Vec<&Line>> = BTreeMap::new();
    // A checkpoint's settings were not read back.
    for line in lines.iter().filter(|line| !line.partial) {
        all.entry(series(line)).or_default().push(line);
    }
    all.into_iter().collect()
}

/// The changes of every series, by the time of the first run after.
///
/// A series is cut where the kernel or the settings that were read back change; each stretch is
/// compared with the one before it. Within a stretch the place is looked for where the level changes most, although
/// nothing that is known did. Lines in the order of time. Many stretches, places and figures are tested: all of them
/// together have a false change in one history of twenty at most (Bonferroni over places, Holm over tests).
pub fn changes_over_time(lines: &[Line]) -> Vec<Change> {
    let all = series_of(lines);
    let mut tables = stats::Tables::default();
    let mut tests: Vec<Test<'_>> = Vec::new();
    for (series, lines) in &all {
        let state = |line: &&Line| (line.kernel.clone(), line.settings.clone());
        let stretches: Vec<&[&Line]> = lines.chunk_by(|a, b| state(a) == state(b)).collect();
        for two in stretches.windows(2) {
            let old = &two[0][two[0].len().saturating_sub(NEAREST)..];
            let new = &two[1][..two[1].len().min(NEAREST)];
            for figure in &FIGURES {
                tests.extend(Test::of(&mut tables, series, figure, old, new));
            }
        }
        for stretch in stretches {
            for figure in &FIGURES {
                unannounced(&mut tables, series, figure, stretch, &mut tests);
            }
        }
    }
    let adjusted = stats::holm(&tests.iter().map(|test| test.p_value).collect::<Vec<f64>>());
    let shown = tests.iter().zip(adjusted).filter(|(_, p)| *p <= stats::LEVEL);
    let mut changes: Vec<(Option<&str>, Change)> = shown
        .filter_map(|(test, p)| Some((test.first.started.as_deref(), test.change(p)?)))
        .collect();
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Looks within a stretch of one kernel and one setting for a change of level; where there is one, on both sides of it again.
fn unannounced<'a>(
    tables: &mut stats::Tables,
    series: &'a str,
    figure: &'static (&'static str, Unit, Take),
    stretch: &[&'a Line],
    tests: &mut Vec<Test<'a>>,
) {
    let values: Option<Vec<Value>> = stretch.iter().map(|line| (figure.2)(line)).collect();
    let Some(at) = values.and_then(|values| stats::turn(&values, SIDE)) else { return };
    let (old, new) = stretch.split_at(at);
    let near = &old[old.len().saturating_sub(NEAREST)..];
    let Some(mut test) = Test::of(tables, series, figure, near, &new[..new.len().min(NEAREST)])
    else {
        return;
    };
    // The place was chosen among so many.
    let places = stretch.len() + 1 - 2 * SIDE;
    test.p_value = (test.p_value * places as f64).min(1.0);
    let shown = test.p_value <= stats::LEVEL;
    tests.push(test);
    if shown {
        unannounced(tables, series, figure, old, tests);
        unannounced(tables, series, figure, new, tests);
    }
}

/// One figure in two neighbouring stretches, tested.
struct Test<'a> {
    series: &'a str,
    figure: &'static (&'static str, Unit, Take),
    before: &'a Line,
    first: &'a Line,
    a: Vec<Value>,
    b: Vec<Value>,
    p_value: f64,
}

impl<'a> Test<'a> {
    /// `None` where some run lacks the figure, or there are too few to show anything.
    fn of(
        tables: &mut stats::Tables,
        series: &'a str,
        figure: &'static (&'static str, Unit, Take),
        old: &[&'a Line],
        new: &[&'a Line],
    ) -> Option<Test<'a>> {
        if !stats::sets_suffice(old.len(), new.len()) {
            return None;
        }
        let values =
            |lines: &[&Line]| lines.iter().map(|line| (figure.2)(line)).collect::<Option<Vec<_>>>();
        let (a, b) = (values(old)?, values(new)?);
        let p_value = stats::dependent(tables.p_value(&a, &b), &a, &b);
        Some(Test { series, figure, before: old.last()?, first: new.first()?, a, b, p_value })
    }

    /// What changed, with the p-value among all tests; `None` where it cannot be resolved.
    fn change(&self, p_value: f64) -> Option<Change> {
        let (name, unit, _) = *self.figure;
        let smallest = self.a.iter().chain(&self.b).map(|v| v.half).fold(0.0, f64::max) * 2.0;
        let relative = if unit == Unit::Nanoseconds { BUCKET } else { 0.0 };
        let resolution = Resolution { absolute: smallest, relative };
        let found = stats::compare_sets(&self.a, &self.b, resolution);
        if found.verdict == Verdict::NotShown {
            return None;
        }
        let since = if self.before.kernel != self.first.kernel {
            format!("kernel {}", self.first.kernel)
        } else if self.before.settings == self.first.settings {
            let day = self.first.started.as_deref().unwrap_or(&self.first.id);
            format!("{day}; no change of kernel or settings is known")
        } else {
            format!("settings {}", self.first.settings.as_deref().unwrap_or(known::NOT_KNOWN))
        };
        Some(Change {
            series: self.series.to_owned(),
            figure: name.to_owned(),
            unit,
            first: self.first.id.clone(),
            before: found.base.median,
            after: found.other.median,
            ratio: found.ratio,
            verdict: found.verdict,
            p_value: stats::tidy(p_value),
            sentence: format!("{name} {} since {since}", words::ratio(found.ratio.value)),
            since,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{example::lines, stats::Random};

    #[test]
    fn a_regression_is_named_with_the_kernel_that_brought_it() {
        let all = lines(&[("6.16", 12, 100e3), ("6.17", 12, 180e3), ("6.18", 12, 178e3)]);
        let changes = changes_over_time(&all);
        assert_eq!(changes.len(), 1, "{changes:?}");
        let change = &changes[0];
        assert_eq!((change.figure.as_str(), change.verdict), ("p99.9", Verdict::Worse));
        assert!(
            change.sentence.starts_with("p99.9 x1.")
                && change.sentence.ends_with("since kernel 6.17")
        );
        assert_eq!(change.first, "run-0012");
    }

    #[test]
    fn a_few_runs_name_nothing_and_back_again_is_a_change_too() {
        assert_eq!(changes_over_time(&lines(&[("6.16", 4, 100e3), ("6.17", 4, 900e3)])), []);
        let back = lines(&[("6.16", 8, 100e3), ("6.17", 8, 300e3), ("6.16", 8, 100e3)]);
        let verdicts: Vec<Verdict> = changes_over_time(&back).iter().map(|c| c.verdict).collect();
        assert_eq!(verdicts, [Verdict::Worse, Verdict::Better]);
    }

    #[test]
    fn a_long_history_in_which_nothing_changes_names_a_change_in_one_of_twenty_at_most() {
        let mut random = Random::new(31);
        let false_ones = (0..60)
            .filter(|_| {
                let kernels: Vec<String> = (0..12).map(|n| format!("6.{n}")).collect();
                let plan: Vec<(&str, usize, f64)> =
                    kernels.iter().map(|name| (name.as_str(), 12, 100e3)).collect();
                let mut all = lines(&plan);
                let mut level = 0.0;
                for line in &mut all {
                    // Runs remember the one before them.
                    level = 0.5 * level + random.unit() - 0.5;
                    let mut shake = |time: &mut Option<Nanos>| {
                        let by = (level + 0.2 * random.unit()).exp();
                        *time = time.map(|ns| Nanos((ns.0 as f64 * by) as u64));
                    };
                    shake(&mut line.p99);
                    shake(&mut line.p99_9);
                }
                !changes_over_time(&all).is_empty()
            })
            .count();
        println!("{false_ones} of 60 histories of 11 changes of kernel");
        assert!(false_ones <= 5, "{false_ones} of 60");
    }

    /// Noise that remembers the day before.
    fn shaken(all: &mut [Line], random: &mut Random) {
        let mut level = 0.0;
        for line in all {
            level = 0.5 * level + random.unit() - 0.5;
            let by = (level + 0.2 * random.unit()).exp();
            for time in [&mut line.p99, &mut line.p99_9] {
                *time = time.map(|ns| Nanos((ns.0 as f64 * by) as u64));
            }
        }
    }

    #[test]
    fn a_change_that_nothing_announced_is_named_by_its_day() {
        let mut all = lines(&[("6.16", 30, 100e3), ("6.16", 60, 180e3)]);
        for (day, line) in all.iter_mut().enumerate() {
            line.id = format!("run-{day:04}");
        }
        let changes = changes_over_time(&all);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].verdict, Verdict::Worse);
        assert_eq!(changes[0].first, "run-0030");
        assert!(changes[0].since.ends_with("no change of kernel or settings is known"));
        // There and back again, beside noise: both, within some days.
        let mut random = Random::new(5);
        let mut all = lines(&[("6.16", 40, 100e3), ("6.16", 40, 900e3), ("6.16", 40, 100e3)]);
        for (day, line) in all.iter_mut().enumerate() {
            line.id = format!("run-{day:04}");
        }
        shaken(&mut all, &mut random);
        let changes = changes_over_time(&all);
        let of = |figure: &str| -> Vec<(Verdict, i64)> {
            let one = changes.iter().filter(|change| change.figure == figure);
            one.map(|c| (c.verdict, c.first[4..].parse().unwrap())).collect()
        };
        let found = of("p99.9");
        assert_eq!(found.len(), 2, "{changes:?}");
        for ((verdict, day), (meant, at)) in
            found.into_iter().zip([(Verdict::Worse, 40), (Verdict::Better, 80)])
        {
            assert!(verdict == meant && (day - at).abs() <= 3, "{day} for {at}");
        }
    }

    #[test]
    fn a_quarter_of_a_year_in_which_nothing_changes_names_no_day() {
        let mut random = Random::new(77);
        let false_ones = (0..100)
            .filter(|_| {
                let mut all = lines(&[("6.16", 90, 100e3)]);
                shaken(&mut all, &mut random);
                !changes_over_time(&all).is_empty()
            })
            .count();
        println!("{false_ones} of 100 histories of 90 days");
        assert!(false_ones <= 8, "{false_ones} of 100");
    }

    #[test]
    fn other_questions_are_other_series() {
        let mut all = lines(&[("6.16", 8, 100e3), ("6.17", 8, 300e3)]);
        for line in &mut all[8..] {
            line.stress = Some("kernel".into());
        }
        assert_eq!(changes_over_time(&all), []);
    }
}
