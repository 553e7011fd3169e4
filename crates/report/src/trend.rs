//! The history of runs: what changed within a series when the kernel or a setting did.

use crate::text::{Column, Table, wrap};
use quiet_judge::known;
use quiet_types::words;
use quiet_types::{
    Nanos,
    history::{Change, History},
    printable,
};
use std::{collections::HashMap, fmt::Write};

/// Columns beyond which prose is hard to read.
const PROSE: usize = 140;

/// The history as text, at most `width` columns wide; `short` has a shorter name for ids.
pub fn history_text(history: &History, short: &HashMap<String, String>, width: usize) -> String {
    let width = width.max(20);
    let mut text = String::new();
    if history.runs.is_empty() {
        text.push_str("no runs\n");
    } else {
        text.push_str(&runs(history, short).text(width));
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
        text.push_str(&proofs(history, short).text(width.min(PROSE)));
    }
    if !history.steps.is_empty() {
        text.push_str("\nsteps, by tune\n");
        text.push_str(&steps(history).text(width.min(PROSE)));
    }
    if !history.by_sound.is_empty() {
        text.push_str("\nby sound\n");
        for sound in &history.by_sound {
            let id = named(&sound.head.id, short);
            let line = format!("{id}: {}: {}", printable(&sound.device, 100), sound.said);
            let _ = writeln!(text, "{}", wrap(&line, width, 2));
        }
    }
    if !history.changes.is_empty() {
        text.push('\n');
        for change in &history.changes {
            let line = changed(change);
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

/// A row a run.
fn runs(history: &History, short: &HashMap<String, String>) -> Table {
    let shown = |time: Option<Nanos>| time.map_or("-".to_owned(), |time| time.to_string());
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
            minute(line.started.as_deref()),
            named(&line.id, short),
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
    table
}

/// What tunes said of each step, step by step: the same one over machines and kernels stands together.
fn steps(history: &History) -> Table {
    let mut table = Table::new([
        Column::Left("step"),
        Column::Left("says"),
        Column::Left("with it by without"),
        Column::Right("seen from"),
        Column::Left("figure"),
        Column::Left("machine"),
        Column::Left("kernel"),
        Column::Left("stress"),
        Column::Left("started"),
    ])
    .yields(&["started", "figure", "stress", "seen from", "machine"]);
    let mut lines: Vec<_> = history.steps.iter().collect();
    lines.sort_by(|a, b| a.step.cmp(&b.step).then(a.started.cmp(&b.started)));
    for line in lines {
        table.row([
            printable(&line.step, 30),
            line.says.to_string(),
            line.ratio.map_or("-".into(), words::ratio_between),
            line.visible.map_or("-".into(), words::ratio),
            printable(&line.figure, 20),
            printable(&line.host, 20),
            printable(&line.kernel, 18),
            printable(&line.stress, 16),
            minute(Some(&line.started)),
        ]);
    }
    table
}

/// A row a proof.
fn proofs(history: &History, short: &HashMap<String, String>) -> Table {
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
            minute(Some(&proof.started)),
            named(&proof.id, short),
            printable(&proof.host.release, 18),
            format!("{}{ended}", proof.verdict),
            printable(&proof.sentence, 300),
        ]);
    }
    table
}

/// An id is plain by the store's rule; whole, as somebody may type it.
fn named(id: &String, short: &HashMap<String, String>) -> String {
    printable(short.get(id).unwrap_or(id), 120)
}

/// The moment to the minute.
fn minute(started: Option<&str>) -> String {
    started.and_then(|at| at.get(..16)).map_or("undated".to_owned(), |s| s.replace('T', " "))
}

/// What changed within a series, from which run on.
fn changed(change: &Change) -> String {
    let show = |value| words::value(change.unit, value);
    format!(
        "{}: {} (from {} to {}, p {}; first {}; {})",
        change.verdict,
        change.sentence,
        show(change.before),
        show(change.after),
        words::p_value(change.p_value),
        change.first,
        change.series
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::example::lines;
    use quiet_types::history::Proven;

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
}
