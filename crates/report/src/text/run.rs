//! One run as text.

use super::{Column, Table, findings_text, wrap};
use quiet_judge::{judge_run, known};
use quiet_types::{
    Histogram, Nanos, Run, machine::SchedulerCore, printable, run::MeasuringThread, words,
};
use std::fmt::Write;

/// A run for a terminal `width` characters wide: what was asked, a row a thread, the distribution
/// on a log scale, findings. Ends with a line break.
pub fn run_text(run: &Run, width: usize) -> String {
    let width = width.max(20);
    let mut text = String::new();
    let _ = writeln!(text, "{}", wrap(&asked(run), width, 2));
    let _ = writeln!(text, "{}\n", wrap(&surroundings(run), width, 2));
    text.push_str(&threads(run).text(width));
    let all = run.readings();
    if all.count > 0 {
        text.push('\n');
        if known::spread(&all) {
            let least = run.threads.iter().filter_map(|thread| thread.readings.min).min();
            text.push_str(&bars(&all, least, width));
            let _ = writeln!(text, "{}", wrap(&scale(run), width, 2));
        } else {
            text.push_str("only extremes and a mean are known: there is no distribution to draw\n");
        }
    }
    if let Some(explained) = &run.explained {
        text.push('\n');
        text.push_str(&super::explained_text(explained, width));
    }
    let findings = findings(run);
    if !findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&findings, width));
    }
    text
}

/// The judged findings and those that the run already carries, each id once.
pub(crate) fn findings(run: &Run) -> Vec<quiet_types::Finding> {
    // The run's own first: where both know a thing, it has the kernel's answer.
    let mut all = run.findings.clone();
    for finding in judge_run(run) {
        if !all.iter().any(|known| known.id == finding.id) {
            all.push(finding);
        }
    }
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

/// What was asked, in a line: `wakeup on CPU 3, fifo 90, every 200 us, for 3.00 s`.
pub(crate) fn asked(run: &Run) -> String {
    let spec = &run.spec;
    let probe = if run.is_gap() { "gap" } else { "wakeup" };
    let every = run.interval().map_or(String::new(), |interval| format!(", every {interval}"));
    let cpus = if spec.cpus.len() == 1 { "CPU" } else { "CPUs" };
    let policy =
        spec.policy.zip(spec.priority).map(|(name, priority)| words::policy(name, priority));
    let policy = policy.unwrap_or_else(|| "policy not known".to_owned());
    let core = match spec.core {
        Some(SchedulerCore::Evl) => " on the EVL core",
        _ => "",
    };
    let lasted = run.lasted;
    let lasted = lasted.map_or("for a time not known".to_owned(), |time| format!("for {time}"));
    format!("{probe} on {cpus} {}, {policy}{core}{every}, {lasted}", spec.cpus)
}

fn surroundings(run: &Run) -> String {
    let host = &run.host;
    let mut parts = vec![
        printable(&host.name, 60),
        printable(&host.processor, 80),
        match host.release.as_str() {
            "" => "machine and kernel not known".to_owned(),
            release => format!("Linux {} {}", printable(release, 60), printable(&host.arch, 20)),
        },
    ];
    parts.extend(host.hypervisor.as_ref().map(|name| format!("under {}", printable(name, 20))));
    parts.push(match &run.stress {
        Some(stress) => {
            format!("stress {} on CPUs {}", printable(&stress.names.join(" "), 80), stress.cpus)
        }
        None if run.is_imported() => "stress, clock and own noise not known".to_owned(),
        None => "no stress".to_owned(),
    });
    parts.extend(run.clock.as_ref().map(|clock| {
        let step = match clock.step > Nanos(1) {
            true => format!(", step {}", clock.step),
            false => String::new(),
        };
        format!("clock {}{step}, own noise {}", printable(&clock.source, 20), clock.floor)
    }));
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn threads(run: &Run) -> Table {
    let mut columns = vec![Column::Right("CPU"), Column::Left("policy"), Column::Right("min")];
    columns.extend(["p50", "p99", "p99.9", "max"].map(Column::Right));
    columns.push(Column::Left(""));
    columns.push(Column::Right("beyond"));
    let wakeup = !run.is_gap();
    columns.push(Column::Right(if wakeup { "missed" } else { "gap time" }));
    columns.push(Column::Left(if wakeup { "of expected" } else { "" }));
    let mut table = Table::new(columns).yields(&["of expected", "policy", "min", "p50", "p99.9"]);
    for thread in &run.threads {
        // Earlier moments of the same wake-ups stand above what came of them.
        for station in &thread.stations {
            let all = &station.readings;
            let shown = |value: Option<Nanos>| value.map_or("-".to_owned(), |v| run.figure(v));
            let mut cells = vec![thread.cpu.to_string(), format!("to {}", station.name)];
            cells.push(shown(all.min));
            cells.extend([0.5, 0.99, 0.999].map(|q| shown(all.percentile(q))));
            cells.push(shown(all.max));
            table.row(cells);
        }
        table.row(row(run, thread));
    }
    table
}

fn row(run: &Run, thread: &MeasuringThread) -> Vec<String> {
    let all = thread.corrected.as_ref().unwrap_or(&thread.readings);
    let shown = |value: Option<Nanos>| value.map_or("-".to_owned(), |v| run.figure(v));
    let mut row = vec![thread.cpu.to_string(), known::policy(thread), shown(thread.readings.min)];
    row.extend([0.5, 0.99, 0.999].map(|q| shown(all.percentile(q))));
    row.push(shown(thread.readings.max));
    row.push(thread.max_at.map_or(String::new(), |at| format!("at {at}")));
    let share = |count: u64, of: u64| words::share(count as f64 / of.max(1) as f64);
    if run.is_gap() {
        row.push(known::or_not(thread.beyond.map(words::count)));
        let taken = thread.stolen.zip(run.lasted);
        row.push(known::or_not(taken.map(|(stolen, lasted)| share(stolen.0, lasted.0))));
        row.push(String::new());
        return row;
    }
    let beyond = run.spec.threshold.zip(thread.expected);
    row.push(known::or_not(beyond.map(|(limit, expected)| share(all.above(limit), expected))));
    row.push(known::or_not(thread.missed.map(words::count)));
    let of = thread.missed.zip(thread.expected);
    row.push(of.map_or(String::new(), |(missed, expected)| {
        format!("{} ({})", words::count(expected), share(missed, expected))
    }));
    row
}

/// What the bars are, and what stands in the first of them.
fn scale(run: &Run) -> String {
    let mut text =
        "readings from each edge on; a bar grows with the logarithm of its count".to_owned();
    if let Some(threshold) = run.spec.threshold {
        let _ = write!(text, "; beyond: above {threshold}");
        text.push_str(if run.is_gap() { "" } else { ", of the expected periods" });
    }
    if run.threads.iter().any(|thread| thread.corrected.is_some() && thread.missed > Some(0)) {
        text.push_str(
            "; missed periods are counted with the time that they would have waited, what is shorter than the scale in its first bar",
        );
    }
    text
}

/// Counts between 1, 2, 5, 10 ... us as bars; a bar grows with the logarithm of its count, so
/// that one reading among millions is seen. The scale begins at the smallest reading taken: the
/// remainders of missed periods may be smaller, and stand in its first bar.
fn bars(all: &Histogram, least: Option<Nanos>, width: usize) -> String {
    let edges = edges(least.or(all.min), all.max);
    let mut counts = vec![0u64; edges.len()];
    for &(lower, count) in &all.buckets {
        let at = edges.partition_point(|edge| *edge <= lower).saturating_sub(1);
        counts[at] += count;
    }
    if let Some(last) = counts.last_mut() {
        *last += all.over;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let room = width.saturating_sub(28).clamp(4, 60);
    let mut text = String::new();
    for (edge, count) in edges.iter().zip(&counts) {
        let part = ((*count as f64 + 1.0).ln() / (most as f64 + 1.0).ln()).clamp(0.0, 1.0);
        let from = format!("from {}", Nanos(*edge));
        let line = format!("{from:>12} {:>12} {}", words::count(*count), bar(part, room));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// 1, 2, 5 by decade, from the last at or below the smallest reading to the largest reading.
fn edges(min: Option<Nanos>, max: Option<Nanos>) -> Vec<u64> {
    let (min, max) = (min.unwrap_or_default().0.max(1), max.unwrap_or_default().0.max(1));
    let series: Vec<u64> =
        (0..13).flat_map(|decade| [1, 2, 5].map(|step| step * 10u64.pow(decade))).collect();
    let first = series.partition_point(|edge| *edge <= min).saturating_sub(1);
    let last = series.partition_point(|edge| *edge <= max).max(first + 1);
    series[first..last].to_vec()
}

fn bar(part: f64, room: usize) -> String {
    let eighths = (part * room as f64 * 8.0).round() as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{rest}", "█".repeat(eighths / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::example;

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 120] {
            for line in run_text(&example::run(), width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn every_reading_stands_in_a_bar() {
        let all = example::run().readings();
        let bars = bars(&all, all.min, 80);
        let sum: u64 = bars
            .lines()
            .map(|line| {
                let digits: String =
                    line.split("s ").nth(1).unwrap().chars().filter(char::is_ascii_digit).collect();
                digits.parse::<u64>().unwrap()
            })
            .sum();
        assert_eq!(sum, all.count, "{bars}");
    }

    #[test]
    fn the_scale_begins_at_the_smallest_reading_taken_and_says_what_it_is() {
        let mut run = example::run();
        let thread = &mut run.threads[0];
        thread.readings = Histogram::of((0..20_000u64).map(|n| Nanos(8_230 + n)));
        let mut corrected = thread.readings.clone();
        // The last periods of stalls, which had almost no time left to wait.
        corrected.merge(&Histogram::of([Nanos(210), Nanos(400), Nanos(9_000)]));
        (thread.missed, thread.corrected) = (Some(3), Some(corrected));
        let text = run_text(&run, 120);
        assert!(!text.contains("from 200 ns") && text.contains("from 5.00 us"), "{text}");
        assert!(text.contains("a bar grows with the logarithm of its count"), "{text}");
        assert!(text.contains("missed periods are counted with the time"), "{text}");
        assert!(text.contains("beyond: above 100 us, of the expected"), "{text}");
    }

    #[test]
    fn an_empty_run_and_a_hostile_name_do_no_harm() {
        let mut run = example::run();
        run.threads.clear();
        run.host.name = "\x1b[2Jpwned".into();
        let text = run_text(&run, 80);
        assert!(!text.contains('\x1b'), "{text}");
    }
}
