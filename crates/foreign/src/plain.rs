//! Forms for other programs: comma-separated values, columns for gnuplot, OpenMetrics.
//!
//! CSV and gnuplot hold every bucket with both edges, the extremes, the sum and what was missed,
//! and read back as they were. OpenMetrics holds a quarter of an octave a bucket.

use super::{
    ForeignError, Format, Result,
    draft::{self, number},
};
use quiet_types::{
    Histogram, Nanos, Run,
    histogram::{layout, upper_of},
    run::{Measured, MeasuringThread},
};
use std::{collections::BTreeMap, fmt::Write};

pub(super) const CSV_HEAD: &str = "cpu,what,lower_ns,upper_ns,value";
pub(super) const GNUPLOT_HEAD: &str = "# quietcores gnuplot 1";

/// What is told of a thread beside its buckets.
const FACTS: [&str; 6] = ["min", "max", "sum", "over", "missed", "expected"];

/// Those that are known; without readings min and max are 0.
fn facts(thread: &MeasuringThread) -> impl Iterator<Item = (&'static str, u64)> {
    let all = &thread.readings;
    let ns = |time: Option<Nanos>| Some(time.unwrap_or_default().0);
    let facts =
        [ns(all.min), ns(all.max), Some(all.sum.0), Some(all.over), thread.missed, thread.expected];
    FACTS.into_iter().zip(facts).filter_map(|(name, fact)| Some((name, fact?)))
}

/// Buckets and facts as they are collected, by CPU.
#[derive(Default)]
struct Part {
    ranges: Vec<(u64, u64, u64)>,
    facts: BTreeMap<String, u64>,
}

fn built(mut run: Run, parts: BTreeMap<u32, Part>, text: &str) -> Result<Run> {
    for (cpu, part) in parts {
        let wrong = |why: &str| ForeignError::whole(format!("CPU {cpu}: {why}"));
        let fact = |name: &str| part.facts.get(name).copied();
        let counts = part.ranges.iter().map(|(.., n)| *n).chain(fact("over"));
        let count = counts.fold(0u64, u64::saturating_add);
        if count >= 1 << 60 {
            return Err(wrong("its counts add up to more than can be counted"));
        }
        let (min, max) = (fact("min").map(Nanos), fact("max").map(Nanos));
        if count > 0 && (min.is_none() || max.is_none() || min > max) {
            return Err(wrong("its min and max are missing, or crossed: is it cut short?"));
        }
        let (min, max) = if count > 0 { (min, max) } else { (None, None) };
        let sum = Nanos(fact("sum").unwrap_or(0));
        let over = fact("over").unwrap_or(0);
        let readings = Histogram::from_ranges(part.ranges, over, min, max, sum);
        let mut thread = draft::thread(cpu, readings, None);
        thread.missed = fact("missed");
        let due = || Some(count.saturating_add(thread.missed?));
        thread.expected = fact("expected").map(|expected| expected.max(count)).or_else(due);
        run.threads.push(thread);
    }
    draft::finish(run, text)
}

fn probe_name(run: &Run) -> &'static str {
    if run.is_gap() { "gap" } else { "wakeup" }
}

pub(super) fn write_csv(run: &Run) -> String {
    let mut text = format!("{CSV_HEAD}\n");
    if !run.is_gap() {
        // Also where it is not known: it tells wake-ups from gaps.
        let _ = writeln!(text, ",interval,,,{}", run.interval().map_or(0, |interval| interval.0));
    }
    if let Some(lasted) = run.lasted {
        let _ = writeln!(text, ",lasted,,,{}", lasted.0);
    }
    for thread in &run.threads {
        for (name, value) in facts(thread) {
            let _ = writeln!(text, "{},{name},,,{value}", thread.cpu);
        }
        for &(lower, count) in &thread.readings.buckets {
            let _ = writeln!(text, "{},bucket,{lower},{},{count}", thread.cpu, upper_of(lower));
        }
    }
    text
}

pub(super) fn read_csv(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Csv, "quietcores", Measured::Gap, Nanos(1));
    let mut parts: BTreeMap<u32, Part> = BTreeMap::new();
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    if lines.next().is_none_or(|(_, head)| head != CSV_HEAD) {
        return Err(ForeignError::at(1, format!("the heading must be `{CSV_HEAD}`")));
    }
    for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let fields: Vec<&str> = line.split(',').collect();
        let [cpu, what, lower, upper, value] = fields[..] else {
            return Err(ForeignError::at(at, "a line has five fields"));
        };
        let value: u64 = number(at, "the value", value)?;
        match (cpu, what) {
            ("", "interval") => run.spec.probe = wakeup(value),
            ("", "lasted") => run.lasted = Some(Nanos(value)),
            (cpu, what) => {
                let cpu: u32 = number(at, "the CPU", cpu)?;
                if parts.len() > draft::MOST_THREADS {
                    return Err(ForeignError::at(at, "more CPUs than any machine has"));
                }
                let part = parts.entry(cpu).or_default();
                if what == "bucket" {
                    let (lower, upper) = (number(at, "lower", lower)?, number(at, "upper", upper)?);
                    if lower >= upper {
                        return Err(ForeignError::at(at, "the bucket ends before it begins"));
                    }
                    part.ranges.push((lower, upper, value));
                } else if FACTS.contains(&what) {
                    part.facts.insert(what.to_owned(), value);
                } else {
                    return Err(ForeignError::at(at, format!("`{what}` is no fact of a run")));
                }
            }
        }
    }
    built(run, parts, text)
}

/// Zero stands for an interval that is not known.
fn wakeup(interval: u64) -> Measured {
    Measured::Wakeup { interval: (interval > 0).then_some(Nanos(interval)) }
}

pub(super) fn write_gnuplot(run: &Run) -> String {
    let interval = run.interval().map_or(0, |interval| interval.0);
    let interval = if run.is_gap() { String::new() } else { format!(" interval {interval}") };
    let lasted = run.lasted.map_or_else(String::new, |lasted| format!(" lasted {}", lasted.0));
    let mut text = format!(
        "{GNUPLOT_HEAD}\n# probe {}{lasted}{interval}\n\
         # set logscale xy; set xlabel \"us\"; plot for [i=3:{}] FILE using 1:i with histeps\n",
        probe_name(run),
        run.threads.len() + 2
    );
    for thread in &run.threads {
        let _ = write!(text, "# cpu {}", thread.cpu);
        for (name, value) in facts(thread) {
            let _ = write!(text, " {name} {value}");
        }
        text.push('\n');
    }
    text.push_str("# lower_us upper_us");
    for thread in &run.threads {
        let _ = write!(text, " cpu{}", thread.cpu);
    }
    text.push('\n');
    let columns: Vec<BTreeMap<u64, u64>> =
        run.threads.iter().map(|t| t.readings.buckets.iter().copied().collect()).collect();
    let all: std::collections::BTreeSet<u64> =
        columns.iter().flat_map(|column| column.keys().copied()).collect();
    for lower in all {
        let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
        let _ = write!(text, "{} {}", us(lower), us(upper_of(lower)));
        for column in &columns {
            let _ = write!(text, " {}", column.get(&lower).copied().unwrap_or(0));
        }
        text.push('\n');
    }
    text
}

pub(super) fn read_gnuplot(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Gnuplot, "quietcores", Measured::Gap, Nanos(1));
    let mut cpus: Vec<(u32, Part)> = Vec::new();
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["#", "probe", _, ref rest @ ..] => {
                for pair in rest.chunks_exact(2) {
                    match pair {
                        ["lasted", ns] => run.lasted = Some(Nanos(number(at, "lasted", ns)?)),
                        ["interval", ns] => {
                            run.spec.probe = wakeup(number(at, "interval", ns)?);
                        }
                        _ => {}
                    }
                }
            }
            ["#", "cpu", cpu, ref rest @ ..] => {
                let mut part = Part::default();
                for pair in rest.chunks_exact(2) {
                    part.facts.insert(pair[0].to_owned(), number(at, pair[0], pair[1])?);
                }
                cpus.push((number(at, "the CPU", cpu)?, part));
                if cpus.len() > draft::MOST_THREADS {
                    return Err(ForeignError::at(at, "more CPUs than any machine has"));
                }
            }
            ["#", ..] => {}
            [lower, upper, ref counts @ ..] => {
                if counts.len() != cpus.len() {
                    return Err(ForeignError::at(
                        at,
                        "it has another number of columns than CPUs are told",
                    ));
                }
                let lower = draft::time(at, "the lower edge", lower, 1000.0)?;
                let upper = draft::time(at, "the upper edge", upper, 1000.0)?;
                if lower >= upper {
                    return Err(ForeignError::at(at, "the bucket ends before it begins"));
                }
                for ((_, part), count) in cpus.iter_mut().zip(counts) {
                    let count: u64 = number(at, "the count", count)?;
                    if count > 0 {
                        part.ranges.push((lower.0, upper.0, count));
                    }
                }
            }
            [_] => return Err(ForeignError::at(at, "a line is `lower upper count ...`")),
        }
    }
    built(run, cpus.into_iter().collect(), text)
}

/// Sixteen of our buckets: a quarter of an octave.
const STRIDE: usize = 16;

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let text = text.trim_end_matches('0');
    text.strip_suffix('.').map_or_else(|| text.to_owned(), |whole| format!("{whole}.0"))
}

pub(super) fn write_open_metrics(run: &Run) -> String {
    let name = format!("quietcores_{}_seconds", probe_name(run));
    let help = if run.is_gap() {
        "Time between neighbouring clock reads of a spinning thread."
    } else {
        "Timer expiry to thread running."
    };
    let common = format!(
        "run=\"{}\",host=\"{}\",kernel=\"{}\"",
        label(&run.id),
        label(&run.host.name),
        label(&run.host.release)
    );
    let mut text =
        format!("# TYPE {name} histogram\n# UNIT {name} seconds\n# HELP {name} {help}\n");
    for thread in &run.threads {
        let labels = format!("{common},cpu=\"{}\"", thread.cpu);
        let all = &thread.readings;
        let (mut seen, mut next) = (0u64, all.buckets.iter().peekable());
        for group in 0..layout::BUCKETS.div_ceil(STRIDE) {
            let edge = layout::lower(((group + 1) * STRIDE).min(layout::BUCKETS));
            let before = seen;
            while let Some((_, count)) = next.next_if(|(lower, _)| *lower < edge) {
                seen += count;
            }
            let follows = next.peek().is_some_and(|(lower, _)| {
                *lower < layout::lower(((group + 2) * STRIDE).min(layout::BUCKETS))
            });
            // A bucket that adds nothing says something only where the next one does.
            if seen > before || follows {
                let le = seconds(edge - 1);
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{le}\"}} {seen}");
            }
        }
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", all.count);
        let _ = writeln!(text, "{name}_count{{{labels}}} {}", all.count);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", seconds(all.sum.0));
    }
    for (what, help, take) in [
        (
            "min",
            "The least reading.",
            (|t| t.readings.min.unwrap_or_default().0) as fn(&MeasuringThread) -> u64,
        ),
        ("max", "The largest reading.", |t| t.readings.max.unwrap_or_default().0),
    ] {
        let gauge = format!("quietcores_{}_{what}_seconds", probe_name(run));
        let _ =
            write!(text, "# TYPE {gauge} gauge\n# UNIT {gauge} seconds\n# HELP {gauge} {help}\n");
        for thread in &run.threads {
            let value = seconds(take(thread));
            let _ = writeln!(text, "{gauge}{{{common},cpu=\"{}\"}} {value}", thread.cpu);
        }
    }
    if run.threads.iter().any(|thread| thread.missed.is_some()) {
        text.push_str(
            "# TYPE quietcores_missed_periods counter\n\
             # HELP quietcores_missed_periods Periods that expired while the thread was still late.\n",
        );
    }
    for thread in &run.threads {
        if let Some(missed) = thread.missed {
            let _ = writeln!(
                text,
                "quietcores_missed_periods_total{{{common},cpu=\"{}\"}} {missed}",
                thread.cpu
            );
        }
    }
    text.push_str("# EOF\n");
    text
}

/// `cpu` and `le` of a label set; a value may hold escaped quotes.
fn labels(text: &str) -> BTreeMap<String, String> {
    let (mut all, mut rest) = (BTreeMap::new(), text);
    while let Some((name, after)) = rest.split_once("=\"") {
        let (mut value, mut end, mut escaped) = (String::new(), after.len(), false);
        for (at, c) in after.char_indices() {
            match c {
                _ if escaped => {
                    value.push(if c == 'n' { '\n' } else { c });
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    end = at;
                    break;
                }
                c => value.push(c),
            }
        }
        all.insert(name.trim_matches([',', ' ']).to_owned(), value);
        rest = after.get(end + 1..).unwrap_or_default();
    }
    all
}

pub(super) fn read_open_metrics(text: &str) -> Result<Run> {
    let probe = if text.contains("_gap_seconds") { Measured::Gap } else { draft::WAKEUP };
    let mut run = draft::run(Format::OpenMetrics, "openmetrics", probe, Nanos(1));
    let mut parts: BTreeMap<u32, Part> = BTreeMap::new();
    // Lower edge of the next bucket, and what was counted below it.
    let mut edges: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    if !text.trim_end().ends_with("# EOF") {
        return Err(ForeignError::whole("its last line is not `# EOF`: it is cut short"));
    }
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (Some((name, rest)), Some((before, value))) =
            (line.split_once('{'), line.rsplit_once('}'))
        else {
            return Err(ForeignError::at(at, "a sample is `name{labels} value`"));
        };
        let _ = before;
        let Some((inside, _)) = rest.rsplit_once('}') else { continue };
        let labels = labels(inside);
        let cpu: u32 = labels.get("cpu").and_then(|cpu| cpu.parse().ok()).unwrap_or(0);
        if parts.len() > draft::MOST_THREADS {
            return Err(ForeignError::at(at, "more CPUs than any machine has"));
        }
        if let Some(id) = labels.get("host") {
            run.host.name.clone_from(id);
        }
        let part = parts.entry(cpu).or_default();
        let time = |text: &str| draft::time(at, "the value", text, 1e9);
        if name.ends_with("_bucket") {
            let count: u64 = number(at, "the count", value)?;
            let (lower, seen) = edges.get(&cpu).copied().unwrap_or((0, 0));
            let Some(inside) = count.checked_sub(seen) else {
                return Err(ForeignError::at(at, "the counts of a histogram must rise"));
            };
            let le = labels.get("le").map_or("", String::as_str);
            if le == "+Inf" {
                part.facts.insert("over".to_owned(), inside);
                continue;
            }
            let upper = time(le)?.0.saturating_add(1);
            if upper <= lower {
                return Err(ForeignError::at(at, "the edges of a histogram must rise"));
            }
            if inside > 0 {
                part.ranges.push((lower, upper, inside));
            }
            edges.insert(cpu, (upper, count));
        } else if name.ends_with("_sum") {
            part.facts.insert("sum".to_owned(), time(value)?.0);
        } else if name.ends_with("_missed_periods_total") {
            part.facts.insert("missed".to_owned(), number(at, "the count", value)?);
        } else if name.ends_with("_min_seconds") {
            part.facts.insert("min".to_owned(), time(value)?.0);
        } else if name.ends_with("_max_seconds") {
            part.facts.insert("max".to_owned(), time(value)?.0);
        }
    }
    for part in parts.values_mut() {
        // Histograms of others have no extremes: the edges are theirs.
        let first = part.ranges.first().map_or(0, |(lower, ..)| *lower);
        let last = part.ranges.last().map_or(0, |(_, upper, _)| upper - 1);
        part.facts.entry("min".to_owned()).or_insert(first);
        part.facts.entry("max".to_owned()).or_insert(last);
    }
    built(run, parts, text)
}
