//! A campaign: how far it is, what its settings show against each other, as text.

use crate::text::{Column, Table, findings_text, wrap};
use quiet_judge::{groups, stats};
use quiet_types::words;
use quiet_types::{
    Nanos,
    campaign::{Campaigned, CellStanding},
    printable,
    proof::Role,
};
use std::fmt::Write;

/// How far the campaign is, in a sentence or two.
pub fn campaign_progress(it: &Campaigned) -> String {
    let all = it.cells.len();
    let mut text = format!("{} of {all} runs are done", it.done);
    if it.left > 0 {
        let _ = write!(text, ", {} are left (about {})", it.left, words::span(it.needs));
    }
    text.push('.');
    for (state, why, count) in reasons(it) {
        let runs = if count == 1 { "run" } else { "runs" };
        let _ = match state {
            CellStanding::Waiting => write!(text, " {count} {runs} wait {why}."),
            _ => write!(text, " {count} {runs} failed: {why}."),
        };
    }
    text
}

/// Why runs wait or failed, each reason once.
fn reasons(it: &Campaigned) -> Vec<(CellStanding, String, usize)> {
    let mut reasons: Vec<(CellStanding, String, usize)> = Vec::new();
    for state in it.cells.iter().filter(|state| !state.why.is_empty()) {
        let why = printable(state.why.trim_end_matches('.'), 300);
        match reasons.iter_mut().find(|(s, known, _)| *s == state.state && *known == why) {
            Some((.., count)) => *count += 1,
            None => reasons.push((state.state, why, 1)),
        }
    }
    reasons
}

/// Medians over the runs of one setting: p50, p99, p99.9, and the largest reading.
pub(crate) struct Middle {
    pub runs: usize,
    pub p50: Option<Nanos>,
    pub p99: Option<Nanos>,
    pub p99_9: Option<Nanos>,
    pub max: Option<Nanos>,
    pub beyond: Option<f64>,
    pub missed: Option<u64>,
}

impl Middle {
    /// Of the done cells of one setting under one probe and one stress.
    pub(crate) fn of(it: &Campaigned, probe: &str, stress: &str, setting: &str) -> Middle {
        let lines: Vec<_> = it
            .cells
            .iter()
            .filter(|s| {
                (s.cell.probe.as_str(), s.cell.stress.as_str(), s.cell.setting.as_str())
                    == (probe, stress, setting)
            })
            .filter_map(|state| state.run.as_ref())
            .collect();
        let middle = |values: Vec<Nanos>| {
            let values: Vec<f64> = values.iter().map(|time| time.0 as f64).collect();
            (!values.is_empty()).then(|| Nanos(stats::median(&values) as u64))
        };
        let beyond: Vec<f64> = lines.iter().filter_map(|line| line.beyond).collect();
        Middle {
            runs: lines.len(),
            p50: middle(lines.iter().filter_map(|line| line.p50).collect()),
            p99: middle(lines.iter().filter_map(|line| line.p99).collect()),
            p99_9: middle(lines.iter().filter_map(|line| line.p99_9).collect()),
            max: lines.iter().filter_map(|line| line.max).max(),
            beyond: (!beyond.is_empty()).then(|| stats::median(&beyond)),
            missed: lines.iter().map(|line| line.missed).sum(),
        }
    }
}

/// Names of the settings, probes and stresses, in the order of the cells.
pub(crate) fn rows(it: &Campaigned) -> Vec<(&str, &str, &str)> {
    let mut rows: Vec<(&str, &str, &str)> = Vec::new();
    for group in groups(&it.cells, &[]) {
        rows.extend(group.settings.iter().map(|(name, _)| (group.probe, group.stress, *name)));
    }
    rows
}

/// The campaign as text, at most `width` columns wide.
pub fn campaign_text(it: &Campaigned, width: usize) -> String {
    let width = width.max(20);
    let title = format!("campaign {}: {}", printable(&it.name, 60), campaign_progress(it));
    let mut text = format!("{}\n\n", wrap(&title, width, 0));
    let shown = |time: Option<Nanos>| time.map_or("-".to_owned(), |time| time.to_string());
    let mut table = Table::new([
        Column::Left("probe"),
        Column::Left("stress"),
        Column::Left("setting"),
        Column::Right("runs"),
        Column::Right("p50"),
        Column::Right("p99"),
        Column::Right("p99.9"),
        Column::Right("max"),
        Column::Right("beyond"),
        Column::Right("missed"),
    ])
    .yields(&["p50", "missed", "p99.9", "beyond", "runs"]);
    for (probe, stress, setting) in rows(it) {
        let middle = Middle::of(it, probe, stress, setting);
        table.row([
            printable(probe, 24),
            printable(stress, 20),
            printable(setting, 24),
            middle.runs.to_string(),
            shown(middle.p50),
            shown(middle.p99),
            shown(middle.p99_9),
            shown(middle.max),
            middle.beyond.map_or("-".into(), words::share),
            middle.missed.map_or("-".into(), words::count),
        ]);
    }
    text.push_str(&table.text(width));
    text.push_str("medians over runs; max of all of them\n");
    for versus in &it.compared {
        let line = format!(
            "{}, {}: {} against {}: {}",
            printable(&versus.probe, 60),
            printable(&versus.stress, 60),
            printable(&versus.other, 60),
            printable(&versus.base, 60),
            printable(&versus.compared.sentence, 400)
        );
        let _ = write!(text, "\n{}\n", wrap(&line, width, 2));
    }
    if !it.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&it.findings, width));
    }
    text
}

/// The campaign as Markdown: tables that any viewer shows.
pub fn campaign_markdown(it: &Campaigned) -> String {
    use crate::markdown::{cell, row};
    let mut text = format!("# Campaign {}\n\n{}\n", cell(&it.name), cell(&campaign_progress(it)));
    for group in groups(&it.cells, &[]) {
        let _ = write!(text, "\n## {}, stress {}\n\n", cell(group.probe), cell(group.stress));
        row(&mut text, &["setting", "runs", "p50", "p99", "p99.9", "max", "beyond", "missed"]);
        text.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
        let shown = |time: Option<Nanos>| time.map_or("–".to_owned(), |time| time.to_string());
        for (setting, _) in &group.settings {
            let middle = Middle::of(it, group.probe, group.stress, setting);
            row(
                &mut text,
                &[
                    &cell(setting),
                    &middle.runs.to_string(),
                    &shown(middle.p50),
                    &shown(middle.p99),
                    &shown(middle.p99_9),
                    &shown(middle.max),
                    &middle.beyond.map_or("–".into(), words::share),
                    &middle.missed.map_or("–".into(), words::count),
                ],
            );
        }
        let these = it
            .compared
            .iter()
            .filter(|v| (v.probe.as_str(), v.stress.as_str()) == (group.probe, group.stress));
        for versus in these {
            let _ = write!(
                text,
                "\n**{}** against {}: {}\n\n",
                cell(&versus.other),
                cell(&versus.base),
                cell(&versus.compared.sentence)
            );
            row(
                &mut text,
                &["figure", &cell(&versus.base), &cell(&versus.other), "ratio", "p", "verdict"],
            );
            text.push_str("| --- | ---: | ---: | --- | ---: | --- |\n");
            for figure in &versus.compared.figures {
                let value = |value| words::value(figure.unit, value);
                let title = match figure.role {
                    Role::Primary => format!("**{}**", cell(&figure.title)),
                    _ => cell(&figure.title),
                };
                row(
                    &mut text,
                    &[
                        &title,
                        &value(figure.a.median),
                        &value(figure.b.median),
                        &words::ratio_between(figure.ratio),
                        &words::p_value(figure.p_value),
                        &figure.verdict.to_string(),
                    ],
                );
            }
        }
    }
    text.push_str(&crate::markdown::findings(&it.findings));
    text
}
