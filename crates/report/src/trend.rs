//! The history of runs: what changed within a series when the kernel or a setting did.

use crate::{
    known,
    stats::{self, Resolution, Value},
    text::{Column, Table, wrap},
    words,
};
use quiet_types::{
    Nanos,
    history::{Change, History, Line},
    printable,
    proof::{Unit, Verdict},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
};

/// Runs of a stretch that are looked at: those nearest to the change.
const NEAREST: usize = 40;
/// A table that ends in a sentence is no wider.
const PROSE: usize = 140;
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
pub(crate) fn series_of(lines: &[Line]) -> Vec<(String, Vec<&Line>)> {
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
/// compared with the one before it. Lines in the order of time. Many stretches and figures are tested:
/// all of them together have a false change in one history of twenty at most (Holm).
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
    }
    let adjusted = stats::holm(&tests.iter().map(|test| test.p_value).collect::<Vec<f64>>());
    let shown = tests.iter().zip(adjusted).filter(|(_, p)| *p <= stats::LEVEL);
    let mut changes: Vec<(Option<&str>, Change)> = shown
        .filter_map(|(test, p)| Some((test.first.started.as_deref(), test.change(p)?)))
        .collect();
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    changes.into_iter().map(|(_, change)| change).collect()
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

/// The history as text, at most `width` columns wide; `short` has a shorter name for ids.
pub fn history_text(history: &History, short: &HashMap<String, String>, width: usize) -> String {
    let width = width.max(20);
    let mut text = String::new();
    let shown = |time: Option<Nanos>| time.map_or("-".to_owned(), |time| time.to_string());
    // An id is plain by the store's rule; whole, as somebody may type it.
    let named = |id: &String| printable(short.get(id).unwrap_or(id), 120);
    let at = |started: Option<&str>| {
        started.and_then(|at| at.get(..16)).map_or("undated".to_owned(), |s| s.replace('T', " "))
    };
    let mut table = Table::new([
        Column::Left("started"),
        Column::Left("id"),
        Column::Left("label"),
        Column::Left("kernel"),
        Column::Left("cpus"),
        Column::Left("policy"),
        Column::Left("stress"),
        Column::Right("p50"),
        Column::Right("p99"),
        Column::Right("p99.9"),
        Column::Right("max"),
        Column::Right("missed"),
    ])
    .yields(&[
        "kernel", "p50", "policy", "missed", "p99.9", "cpus", "label", "stress", "max", "started",
    ]);
    for line in &history.runs {
        table.row([
            at(line.started.as_deref()),
            named(&line.id),
            format!(
                "{}{}",
                printable(&line.label, 20),
                if line.partial { " (partial)" } else { "" }
            ),
            printable(&line.kernel, 18),
            line.cpus.clone(),
            known::or_not(line.policy.as_ref()),
            printable(&known::or_not(line.stress.as_ref()), 16),
            shown(line.p50),
            shown(line.p99),
            shown(line.p99_9),
            shown(line.max),
            known::or_not(line.missed.map(words::count)),
        ]);
    }
    if history.runs.is_empty() {
        text.push_str("no runs\n");
    } else {
        text.push_str(&table.text(width));
    }
    if (history.runs.len() as u64) < history.total {
        let _ = writeln!(
            text,
            "the newest {} of {} runs",
            history.runs.len(),
            words::count(history.total)
        );
    }
    if !history.proofs.is_empty() {
        text.push_str("\nproofs\n");
        let mut table = Table::new([
            Column::Left("started"),
            Column::Left("id"),
            Column::Left("kernel"),
            Column::Left("verdict"),
            Column::Left("what was found"),
        ])
        .yields(&["kernel", "started"]);
        for proof in &history.proofs {
            let ended = if proof.interrupted { ", interrupted" } else { "" };
            table.row([
                at(Some(&proof.started)),
                named(&proof.id),
                printable(&proof.host.release, 18),
                format!("{}{ended}", proof.verdict),
                printable(&proof.sentence, 300),
            ]);
        }
        text.push_str(&table.text(width.min(PROSE)));
    }
    if !history.by_sound.is_empty() {
        text.push_str("\nby sound\n");
        for sound in &history.by_sound {
            let id = named(&sound.head.id);
            let line = format!("{id}: {}: {}", printable(&sound.device, 100), sound.said);
            let _ = writeln!(text, "{}", wrap(&line, width, 2));
        }
    }
    if !history.changes.is_empty() {
        text.push('\n');
        for change in &history.changes {
            let show = |value| words::value(change.unit, value);
            let line = format!(
                "{}: {} (from {} to {}, p {}; first {}; {})",
                change.verdict,
                change.sentence,
                show(change.before),
                show(change.after),
                words::p_value(change.p_value),
                change.first,
                change.series
            );
            let _ = writeln!(text, "{}", wrap(&printable(&line, 600), width, 2));
        }
    }
    for aside in &history.aside {
        let what = if aside.moved.is_empty() {
            format!("left out: {}: {}", aside.name, aside.why)
        } else {
            format!("set aside: {} -> {}: {}", aside.name, aside.moved, aside.why)
        };
        let _ = writeln!(text, "{}", wrap(&printable(&what, 600), width, 2));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;
    use quiet_types::history::Proven;

    fn lines(kernels: &[(&str, usize, f64)]) -> Vec<Line> {
        let mut random = Random::new(9);
        let mut all = Vec::new();
        for (kernel, count, level) in kernels {
            for _ in 0..*count {
                let at = all.len();
                let mut draw =
                    |level: f64| Some(Nanos((level * (0.85 + 0.3 * random.unit())) as u64));
                all.push(Line {
                    id: format!("run-{at:04}"),
                    started: Some(format!("2026-11-21T{:02}:{:02}:00.000Z", at / 60, at % 60)),
                    host: "box".into(),
                    kernel: (*kernel).into(),
                    probe: "wakeup".into(),
                    policy: Some("fifo 90".into()),
                    cpus: "1".into(),
                    stress: Some("none".into()),
                    tool: "quietcores".into(),
                    readings: 10_000,
                    p50: draw(8e3),
                    p99: draw(30e3),
                    p99_9: draw(*level),
                    ..Line::default()
                });
            }
        }
        all
    }

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
        let history = History { total: 36, runs: all, changes, ..History::default() };
        assert!(history_text(&history, &HashMap::new(), 120).contains("worse: p99.9 x1."));
    }

    #[test]
    fn a_run_is_a_line_at_any_width_and_its_short_id_stands_whole() {
        let mut runs = lines(&[("6.12.94-rt-amd64", 3, 100e3)]);
        let mut short = HashMap::new();
        for (at, line) in runs.iter_mut().enumerate() {
            line.id = format!("20261121T213000123Z-wakeup-3f9a1c2b7{at}");
            short.insert(line.id.clone(), line.id.split_once('-').unwrap().1.to_owned());
            (line.label, line.missed) = ("before the change".to_owned(), Some(12));
        }
        let proof = Proven {
            id: "20261121T213000123Z-prove-aaaaaaaaaa".to_owned(),
            started: "2026-11-21T21:30:00.123Z".to_owned(),
            sentence: "Better: p99 from 812 us to 31 us, in 8 of 8 pairs, and no guard is worse."
                .to_owned(),
            ..Proven::default()
        };
        let history = History { total: 3, runs, proofs: vec![proof], ..History::default() };
        for width in 40..200 {
            let text = history_text(&history, &short, width);
            for at in 0..3 {
                let id = format!("wakeup-3f9a1c2b7{at}");
                let line = text.lines().find(|line| line.contains(&id)).unwrap();
                assert!(line.contains(" us") && line.contains(&id), "{width}: {text}");
            }
            let rows = text.lines().take_while(|line| !line.is_empty() && !line.starts_with('('));
            assert_eq!(rows.count(), 4, "{width}: {text}");
            assert!(text.contains("20261121T213000123Z-prove-aaaaaaaaaa"));
            if width >= 80 {
                assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            }
        }
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

    #[test]
    fn other_questions_are_other_series() {
        let mut all = lines(&[("6.16", 8, 100e3), ("6.17", 8, 300e3)]);
        for line in &mut all[8..] {
            line.stress = Some("kernel".into());
        }
        assert_eq!(changes_over_time(&all), []);
    }
}
