//! Causes as text.

use super::{Column, Table, findings_text, wrap};
use quiet_types::{
    Nanos,
    explain::{Explained, ExplainedCpu, Source},
};
use std::fmt::Write;

/// Causes listed by name; the rest is one row.
const ROWS: usize = 20;
/// Parts of a late reading that are followed one by one.
const SHOWN: usize = 8;

/// Who took time from each CPU, the largest first, then the worst readings part by part, and what
/// removes each cause. Ends with a line break.
pub fn explained_text(explained: &Explained, width: usize) -> String {
    let width = width.max(40);
    let mut text = String::new();
    for cpu in &explained.cpus {
        match explained.source {
            Source::Trace => traced(&mut text, explained, cpu, width),
            Source::Counters => counted(&mut text, explained, cpu, width),
        }
    }
    if !explained.findings.is_empty() {
        text.push_str(&findings_text(&explained.findings, width));
    }
    text
}

fn traced(text: &mut String, explained: &Explained, cpu: &ExplainedCpu, width: usize) {
    let line = format!(
        "CPU {}: {} readings above {} in {}, {} in all: {} named, {} host, {} unexplained{}",
        cpu.cpu,
        cpu.readings,
        explained.threshold,
        explained.lasted,
        cpu.total,
        part(cpu.named, cpu.total),
        part(cpu.host, cpu.total),
        part(cpu.unexplained, cpu.total),
        cpu.steal.map_or(String::new(), |steal| format!("; the host owns up to {steal} of steal")),
    );
    let _ = writeln!(text, "{}\n", wrap(&line, width, 2));
    if cpu.causes.is_empty() {
        return;
    }
    let mut table = Table::new([
        Column::Right("time"),
        Column::Right("part"),
        Column::Right("times"),
        Column::Right("longest"),
        Column::Left("who took it"),
    ])
    .yields(&["part", "longest"]);
    for share in cpu.causes.iter().take(ROWS) {
        let total = share.total.unwrap_or_default();
        table.row([
            total.to_string(),
            part(total, cpu.total),
            share.times.to_string(),
            share.longest.to_string(),
            share.title.clone(),
        ]);
    }
    let rest = cpu.causes.get(ROWS..).unwrap_or_default();
    if !rest.is_empty() {
        let total = Nanos(rest.iter().filter_map(|share| share.total).map(|t| t.0).sum());
        let times: u64 = rest.iter().map(|share| share.times).sum();
        table.row([
            total.to_string(),
            part(total, cpu.total),
            times.to_string(),
            String::new(),
            format!("{} more", rest.len()),
        ]);
    }
    text.push_str(&table.text(width));
    text.push_str("\nThe worst:\n");
    for late in &cpu.worst {
        let named = |cause: usize| cpu.causes.get(cause).map_or("?", |share| &share.title);
        let shown = if late.rest == Nanos::ZERO && late.parts.len() <= SHOWN {
            let parts = late.parts.iter();
            parts.map(|p| format!("{} {}", p.length, named(p.cause))).collect::<Vec<_>>().join(", ")
        } else {
            // Too many to follow: what each took in all.
            let sums = late.sums.iter().take(SHOWN);
            let sums = sums.map(|sum| format!("{} {}", sum.length, named(sum.cause)));
            let more = late.sums.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(", {more} more") } else { String::new() };
            format!("in all {}{more}", sums.collect::<Vec<_>>().join(", "))
        };
        let shown = format!("{} at {:.4} s: {shown}", late.value, late.at.as_secs_f64());
        let _ = writeln!(text, "  {}", wrap(&shown, width.saturating_sub(2), 4));
    }
    text.push_str("\nWhat removes them:\n");
    let mut said: Vec<&str> = Vec::new();
    for share in cpu.causes.iter().take(10) {
        if said.contains(&share.knob.as_str()) {
            continue;
        }
        said.push(&share.knob);
        let line = format!("{}: {}", share.title, share.knob);
        let _ = writeln!(text, "  {}", wrap(&line, width.saturating_sub(2), 4));
    }
    text.push('\n');
}

fn counted(text: &mut String, explained: &Explained, cpu: &ExplainedCpu, width: usize) {
    let line = format!(
        "CPU {}: {} readings above {} in {}. From counters: how often, not how long",
        cpu.cpu, cpu.readings, explained.threshold, explained.lasted
    );
    let _ = writeln!(text, "{}\n", wrap(&line, width, 2));
    let mut table =
        Table::new([Column::Right("times"), Column::Right("a second"), Column::Left("what came")]);
    for share in &cpu.causes {
        let rate = share.times as f64 / explained.lasted.as_secs_f64().max(1e-9);
        table.row([share.times.to_string(), format!("{rate:.1}"), share.title.clone()]);
    }
    text.push_str(&table.text(width));
    text.push('\n');
}

pub(crate) fn part(of: Nanos, whole: Nanos) -> String {
    if whole == Nanos::ZERO {
        return "0 %".to_owned();
    }
    let percent = of.0 as f64 / whole.0 as f64 * 100.0;
    if percent > 0.0 && percent < 0.1 { "<0.1 %".to_owned() } else { format!("{percent:.1} %") }
}
