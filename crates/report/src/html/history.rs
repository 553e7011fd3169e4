//! The page of a history: each series over time, with what changed and since when.

use super::{
    began, class,
    course::{Track, course},
    page, parts,
};
use maud::{Markup, PreEscaped, html};
use quiet_judge::series_of;
use quiet_types::words;
use quiet_types::{
    Nanos,
    history::{Change, History, Line},
};

/// Series that have a chart; the longest ones.
const MOST: usize = 24;
/// Runs of a series that are drawn; the newest ones.
const DRAWN: usize = 2_000;

/// The page of a history: its changes, and each series of runs that asked the same over time.
pub fn history_page(history: &History) -> String {
    let mut series = series_of(&history.runs);
    let few = series.iter().filter(|(_, lines)| lines.len() < 2).count();
    series.retain(|(_, lines)| lines.len() > 1);
    series.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.len()));
    let body = html! {
        header {
            p.over {
                "quietcores history"
                @if let (Some(first), Some(last)) = (history.runs.first(), history.runs.last()) {
                    ", " (began(first.started.as_deref())) " to " (began(last.started.as_deref()))
                }
            }
            h1.plain { (words::count(history.runs.len() as u64)) " runs" }
            p.lede {
                @match history.changes.len() {
                    0 => "No change between kernels or settings is shown.",
                    1 => { "One change is shown." }
                    n => { (n) " changes are shown." }
                }
            }
        }
        @if !history.changes.is_empty() { (changes(&history.changes)) }
        @for (name, lines) in series.iter().take(MOST) { (one(name, lines, &history.changes)) }
        @if series.len() > MOST { p.why { "And " (series.len() - MOST) " series with fewer runs." } }
        @if few > 0 { p.why { (few) " series have a single run and no course." } }
        @for aside in &history.aside {
            p.why { "Left out: " code { (aside.name) } ": " (aside.why) }
        }
        (parts::data("history"))
    };
    let json = serde_json::to_string(history).unwrap_or_default();
    page("history of runs", env!("CARGO_PKG_VERSION"), &body, &json)
}

fn changes(changes: &[Change]) -> Markup {
    html! {
        h2 { "What changed" }
        p.why {
            "Neighbouring stretches of a series, by the exact test of Mann and Whitney at 1 %: a history asks often."
        }
        div.box tabindex="0" {
            table {
                thead { tr { th { "since" } th { "figure" } th.n { "before" } th.n { "after" } th.n { "ratio" } th.n { "p" } th { "verdict" } th { "series" } } }
                tbody {
                    @for change in changes {
                        tr {
                            td { (change.since) } td { (change.figure) }
                            td.n { (words::value(change.unit, change.before)) }
                            td.n { (words::value(change.unit, change.after)) }
                            td.n { (words::ratio_between(change.ratio)) }
                            td.n { (words::p_value(change.p_value)) }
                            td { span.verdict.(class(change.verdict)) { (change.verdict) } }
                            td.wrap { (change.series) }
                        }
                    }
                }
            }
        }
    }
}

fn one(name: &str, lines: &[&Line], changes: &[Change]) -> Markup {
    let drawn = &lines[lines.len().saturating_sub(DRAWN)..];
    let points = |take: fn(&Line) -> Option<Nanos>, figure: &str| {
        let points = drawn.iter().enumerate().filter_map(|(place, line)| {
            let value = take(line)?;
            let said =
                format!("{}: {figure} {value}, {}", began(line.started.as_deref()), line.kernel);
            Some((place, value, said))
        });
        points.collect::<Vec<_>>()
    };
    let track = |name: &str, class, take: fn(&Line) -> Option<Nanos>| Track {
        name: name.to_owned(),
        class,
        points: points(take, name),
    };
    // Most readings of a thread that spins are one turn of its loop.
    let tracks = if drawn.iter().any(|line| line.probe == "gap") {
        vec![track("largest gap", "b", |line| line.max)]
    } else {
        vec![
            track("p50", "b", |line| line.p50),
            track("p99", "a", |line| line.p99),
            track("p99.9", "c", |line| line.p99_9),
        ]
    };
    let mut marks: Vec<(usize, String)> = Vec::new();
    for (place, two) in drawn.windows(2).enumerate() {
        if two[0].kernel != two[1].kernel {
            marks.push((place + 1, two[1].kernel.clone()));
        } else if two[0].settings != two[1].settings {
            marks.push((place + 1, "settings".into()));
        }
    }
    let ends = (
        drawn.first().map_or(String::new(), |line| began(line.started.as_deref())),
        drawn.last().map_or(String::new(), |line| began(line.started.as_deref())),
    );
    html! {
        h2 { (name) }
        figure {
            (PreEscaped(course(&tracks, &marks, (&ends.0, &ends.1), &format!("{name} over time"))))
            p.read.screen {}
            figcaption {
                (words::count(lines.len() as u64)) " runs"
                @if drawn.len() < lines.len() { ", the newest " (words::count(drawn.len() as u64)) " drawn" }
                ", in the order of time. An upright line: from here on another kernel, or other settings."
            }
        }
        @for change in changes.iter().filter(|change| change.series == name) {
            p { span.verdict.(class(change.verdict)) { (change.verdict) } ": " (change.sentence) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_course_with_the_kernels_that_came() {
        let line = |at: u64, kernel: &str, cpus: &str| Line {
            id: format!("run-{at}"),
            started: Some(format!("2026-11-21T10:{at:02}:00.000Z")),
            kernel: kernel.into(),
            cpus: cpus.into(),
            probe: "gap".into(),
            p50: Some(Nanos(100 + at)),
            p99: Some(Nanos(5_000 + at)),
            max: Some(Nanos(9_000 + at)),
            ..Line::default()
        };
        let mut runs: Vec<Line> = (0..6).map(|at| line(at, "6.<1>", "1")).collect();
        runs.extend((6..9).map(|at| line(at, "6.17", "1")));
        runs.push(line(9, "6.17", "2"));
        let history = History { total: 10, runs, ..History::default() };
        let page = history_page(&history);
        assert_eq!(page.matches("chart wide").count(), 1);
        assert!(page.contains("1 series have a single run") && !page.contains("6.<1>"), "{page}");
        assert!(page.contains(">6.17</text>"));
    }
}
