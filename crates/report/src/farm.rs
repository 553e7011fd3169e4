//! An answer about a farm as text.

use crate::text::{Column, Table, wrap};
use quiet_types::{
    Nanos,
    farm::{FarmAnswer, FarmDay, FarmGroup, FarmMachine},
    printable, words,
};
use std::fmt::Write;

/// Days of a trend that are shown of a group; the newest ones.
const DAYS: usize = 90;
/// Groups that are shown; the worst ones.
const GROUPS: usize = 60;

/// What an answer was made of, in one sentence.
pub fn made_of(answer: &FarmAnswer) -> String {
    let machines = if answer.machines == 1 { "machine" } else { "machines" };
    let mut said = format!(
        "{} {machines}, {} kept runs, {} records, {} expected periods",
        words::count(answer.machines),
        words::count(answer.runs),
        words::count(answer.records),
        words::count(answer.expected)
    );
    if !answer.asked.is_empty() {
        said += &format!(" where {}", answer.asked.join(", "));
    }
    said
}

/// An answer as text, at most `width` columns wide.
pub fn farm_text(answer: &FarmAnswer, width: usize) -> String {
    let width = width.max(20);
    let mut text = String::new();
    let _ = writeln!(text, "{}", wrap(&printable(&made_of(answer), 2000), width, 2));
    if answer.groups.is_empty() {
        text.push_str("nothing that was measured is in it\n");
    } else {
        text.push('\n');
        text.push_str(&groups(answer).text(width));
    }
    if answer.groups.len() > GROUPS {
        let _ = writeln!(text, "and {} groups more", answer.groups.len() - GROUPS);
    }
    for group in answer.groups.iter().take(GROUPS).filter(|group| !group.days.is_empty()) {
        let _ = writeln!(text, "\n{}", printable(&name(group), width));
        text.push_str(&days(&group.days[group.days.len().saturating_sub(DAYS)..]).text(width));
    }
    for (title, lines) in [
        (
            "changes",
            answer
                .changes
                .iter()
                .map(|c| format!("{}: {}", c.verdict, c.sentence))
                .collect::<Vec<_>>(),
        ),
        ("silent for more than a day", answer.silent.iter().map(silent).collect()),
        (
            "clocks that are wrong",
            answer.clocks.iter().map(|c| format!("{}: {}", c.host, ahead(c.ahead))).collect(),
        ),
        (
            "refused",
            answer.refused.iter().map(|r| format!("{} records: {}", r.records, r.why)).collect(),
        ),
    ] {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for line in lines {
            let _ = writeln!(text, "{}", wrap(&printable(&line, 600), width, 2));
        }
    }
    if answer.worst.len() > 1 {
        text.push_str("\nworst machines\n");
        text.push_str(&machines(&answer.worst).text(width));
    }
    text
}

/// A group's name and what was measured.
pub fn name(group: &FarmGroup) -> String {
    let values = group.name.iter().map(|value| if value.is_empty() { "not known" } else { value });
    let mut parts: Vec<&str> = values.collect();
    parts.push(&group.probe);
    parts.join(", ")
}

fn time(time: Option<Nanos>) -> String {
    time.map_or("-".to_owned(), |time| time.to_string())
}

fn share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), words::share)
}

/// How far a clock is from the servers', in words.
pub fn ahead(ms: i64) -> String {
    let span = words::span(Nanos(ms.unsigned_abs().saturating_mul(1_000_000)));
    if ms < 0 { format!("{span} behind") } else { format!("{span} ahead") }
}

fn silent(machine: &FarmMachine) -> String {
    format!("{}: nothing since {} ({})", machine.host, machine.newest, machine.kernel)
}

fn groups(answer: &FarmAnswer) -> Table {
    let mut table = Table::new([
        Column::Left("group"),
        Column::Right("machines"),
        Column::Right("runs"),
        Column::Right("expected"),
        Column::Right("p50"),
        Column::Right("p99"),
        Column::Right("p99.9"),
        Column::Right("p99.99"),
        Column::Right("max"),
        Column::Right("late"),
        Column::Right("missed"),
        Column::Right("proofs +/-/="),
    ])
    .yields(&["proofs +/-/=", "p50", "runs", "p99.99"]);
    for group in answer.groups.iter().take(GROUPS) {
        let [better, worse, not_shown] = group.verdicts;
        let verdicts = if better + worse + not_shown == 0 {
            "-".to_owned()
        } else {
            format!("{better}/{worse}/{not_shown}")
        };
        table.row([
            printable(&name(group), 60),
            words::count(group.machines),
            words::count(group.runs),
            words::count(group.expected),
            time(group.p50),
            time(group.p99),
            time(group.p99_9),
            time(group.p99_99),
            time(group.max),
            share(group.late_share),
            words::count(group.missed),
            verdicts,
        ]);
    }
    table
}

fn days(days: &[FarmDay]) -> Table {
    let mut table = Table::new([
        Column::Left("day"),
        Column::Right("p50"),
        Column::Right("p99"),
        Column::Right("p99.9"),
        Column::Right("max"),
        Column::Right("expected"),
        Column::Right("late"),
        Column::Right("missed"),
    ]);
    for day in days {
        table.row([
            day.day.clone(),
            time(day.p50),
            time(day.p99),
            time(day.p99_9),
            time(day.max),
            words::count(day.expected),
            words::count(day.late),
            words::count(day.missed),
        ]);
    }
    table
}

fn machines(all: &[FarmMachine]) -> Table {
    let mut table = Table::new([
        Column::Left("machine"),
        Column::Left("probe"),
        Column::Right("late"),
        Column::Right("p99.9"),
        Column::Right("max"),
        Column::Right("missed"),
        Column::Left("newest"),
        Column::Left("kernel"),
    ])
    .yields(&["newest", "kernel"]);
    for machine in all {
        table.row([
            printable(&machine.host, 40),
            machine.probe.clone(),
            share(machine.late_share),
            time(machine.p99_9),
            time(machine.max),
            words::count(machine.missed),
            machine.newest.clone(),
            printable(&machine.kernel, 40),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::farm::{FarmClock, FarmRefusal};

    #[test]
    fn an_answer_says_what_it_was_made_of_and_what_was_not_believed() {
        let group = FarmGroup {
            name: vec!["6.18".into()],
            probe: "blocks".into(),
            machines: 2,
            expected: 9_000,
            p99_9: Some(Nanos(81_000)),
            max: Some(Nanos(2_000_000)),
            ..FarmGroup::default()
        };
        let answer = FarmAnswer {
            asked: vec!["last=7".into()],
            machines: 2,
            runs: 3,
            records: 40,
            expected: 9_000,
            groups: vec![group],
            clocks: vec![FarmClock { host: "b".into(), ahead: 86_400_000 }],
            refused: vec![FarmRefusal { why: "its signature does not hold".into(), records: 4 }],
            ..FarmAnswer::default()
        };
        let text = farm_text(&answer, 140);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("2 machines, 3 kept runs, 40 records, 9"), "{text}");
        assert!(first.ends_with("expected periods where last=7"), "{text}");
        for part in ["6.18, blocks", "81", "b: ", "ahead", "4 records: its signature does not hold"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(farm_text(&FarmAnswer::default(), 80).contains("nothing that was measured"));
    }
}
