//! cyclictest's text: summary lines, and the histogram of `-h` and `-H`.
//!
//! Bucket k holds [k, k+1) us, or ns with `-N`. Neither says its unit: the summary's columns are
//! wider with `-N`; of a histogram us are assumed, the far more usual.
//!
//! # Source
//! rt-tests `src/cyclictest/cyclictest.c`, `print_stat` and `print_hist`.

use super::{
    ForeignError, Format, Result,
    draft::{self, number},
};
use quiet_types::{
    Finding, Histogram, Nanos, Run, Severity,
    machine::Policy,
    run::{Idle, Measured, MeasuringThread},
};
use std::{collections::BTreeMap, fmt::Write};

const US: Nanos = Nanos(1000);

/// The fields of a summary line, in their order.
const FIELDS: [&str; 7] = ["P:", "I:", "C:", "Min:", "Act:", "Avg:", "Max:"];

pub(super) fn read_summary(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Cyclictest, "cyclictest", draft::WAKEUP, US);
    let mut policy = Policy::Fifo;
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        // Live output rewrites its lines: what stands before the last escape is old.
        let line = line.rsplit('\u{1b}').next().unwrap_or(line);
        let line =
            line.split_once("T:").map_or(line, |(_, _)| &line[line.find("T:").unwrap_or(0)..]);
        if !line.starts_with("T:") {
            if let Some(rest) = line.strip_prefix("policy: ") {
                policy = draft::policy(rest.split(':').next().unwrap_or_default());
            }
            if run.threads.is_empty() {
                draft::say(&mut run, "line", line);
            }
            continue;
        }
        let (thread, interval, unit) = summary_line(&mut run, at, line, policy)?;
        if run.threads.is_empty() {
            run.spec.probe = Measured::Wakeup { interval };
            if let Some(origin) = &mut run.origin {
                origin.resolution = unit;
            }
        }
        let lasted = interval.map(|interval| Nanos(interval.0.saturating_mul(thread.obtained)));
        run.lasted = run.lasted.max(lasted);
        match run.threads.iter_mut().find(|known| known.cpu == thread.cpu) {
            Some(known) => *known = thread,
            None => run.threads.push(thread),
        }
        if run.threads.len() > draft::MOST_THREADS {
            return Err(ForeignError::at(at, "more threads than any machine has CPUs"));
        }
    }
    run.findings.push(summary_only());
    draft::finish(run, text)
}

/// Only extremes and a mean are known.
pub(super) fn summary_only() -> Finding {
    Finding::new(
        Severity::Note,
        "import.summary",
        "only the least, mean and largest reading are told: there are no percentiles",
    )
    .remedy("measure with a histogram: cyclictest -h 1000")
}

/// Readings of which only the extremes, the mean and the count are known.
pub(super) fn extremes(min: Nanos, max: Nanos, sum: Nanos, count: u64) -> Histogram {
    Histogram {
        buckets: Vec::new(),
        over: 0,
        count,
        min: Some(min),
        max: Some(max),
        sum,
        linear: None,
    }
}

fn summary_line(
    run: &mut Run,
    at: usize,
    line: &str,
    policy: Policy,
) -> Result<(MeasuringThread, Option<Nanos>, Nanos)> {
    let wrong = || {
        ForeignError::at(
            at,
            "a summary line is `T: 0 ( 7163) P:99 I:1000 C: 10000 Min: 14 Act: 57 Avg: 55 Max: 131`",
        )
    };
    let (index, rest) = line[2..].split_once('(').ok_or_else(wrong)?;
    let (tid, mut rest) = rest.split_once(')').ok_or_else(wrong)?;
    let index: u32 = number(at, "the thread", index)?;
    let mut values = [""; 7];
    for (field, value) in FIELDS.iter().zip(&mut values) {
        let (_, after) = rest.split_once(field).ok_or_else(wrong)?;
        let end = FIELDS.iter().filter_map(|next| after.find(next)).min().unwrap_or(after.len());
        (*value, rest) = (after.get(..end).unwrap_or_default(), &after[end..]);
    }
    let [priority, interval, cycles, min, act, average, max] = values;
    // `Act:%5ld` for us, `%8ld` for ns.
    let unit = if act.trim_end().len() >= 8 { Nanos(1) } else { US };
    let scale = unit.0 as f64;
    let take = |name: &str, text: &str| draft::time(at, name, text, scale);
    let count: u64 = number(at, "C", cycles)?;
    if count >= 1 << 50 {
        return Err(ForeignError::at(at, "C counts more cycles than can be"));
    }
    let (min, average, max) = (take("Min", min)?, take("Avg", average)?, take("Max", max)?);
    // The average is cut to whole units, the least reading too.
    if count > 0 && (average.0 + unit.0 <= min.0 || average > max) {
        let why = format!("min {min}, average {average} and max {max} are not in this order");
        return Err(ForeignError::at(at, why));
    }
    draft::say(run, &format!("thread.{index}.tid"), tid.trim());
    draft::say(run, &format!("thread.{index}.act"), act.trim());
    let interval: u64 = number(at, "I", interval)?;
    draft::say(run, &format!("thread.{index}.interval"), interval.to_string());
    let sum = Nanos(average.0.saturating_mul(count).min(1 << 62));
    let readings = extremes(min, max, sum, count);
    let readings = if count == 0 { Histogram::default() } else { readings };
    let priority: u8 = number(at, "P", priority)?;
    let policy = if priority == 0 { Policy::Other } else { policy };
    let interval = Nanos::from_micros(interval.min(3_600_000_000));
    let interval = Some(interval).filter(|interval| *interval > Nanos::ZERO);
    Ok((draft::thread(index, readings, Some((policy, priority))), interval, unit))
}

pub(super) fn write_summary(run: &Run) -> Result<String> {
    let mut text = String::new();
    let own = run.origin.as_ref().filter(|origin| origin.format == Format::Cyclictest.name());
    match own {
        Some(origin) => {
            for (_, line) in origin.said.iter().filter(|(name, _)| name == "line") {
                let _ = writeln!(text, "{line}");
            }
        }
        None => {
            if run.spec.idle == Some(Idle::Shallow) {
                text.push_str("# /dev/cpu_dma_latency set to 0us\n");
            }
        }
    }
    let unit = if run.resolution() == Nanos(1) && own.is_some() { Nanos(1) } else { US };
    let wide = if unit == Nanos(1) { 8 } else { 5 };
    for thread in &run.threads {
        let said = |name: &str| {
            draft::said(run, Format::Cyclictest, &format!("thread.{}.{name}", thread.cpu))
        };
        let all = &thread.readings;
        let whole = |ns: Option<Nanos>| ns.unwrap_or_default().0 / unit.0;
        let average = all.sum.0 / all.count.max(1) / unit.0;
        let act: u64 = said("act").and_then(|act| act.parse().ok()).unwrap_or(average);
        let tid = said("tid").unwrap_or("0").to_owned();
        let interval = match said("interval").and_then(|i| i.parse().ok()) {
            Some(interval) => interval,
            None => draft::interval(run, Format::Cyclictest)?,
        };
        let scheduling = thread.scheduling.ok_or_else(|| {
            let why = "cyclictest names a priority, and this run's is not known: choose csv";
            ForeignError::whole(why)
        })?;
        let _ = writeln!(
            text,
            "T:{:2} ({tid:>5}) P:{:2} I:{interval} C:{:7} Min:{:7} Act:{act:wide$} Avg:{average:wide$} Max:{:8}",
            thread.cpu.0,
            scheduling.priority,
            all.count,
            whole(all.min),
            whole(all.max),
        );
    }
    Ok(text)
}

/// The lines below the histogram.
#[derive(Default)]
struct Foot {
    total: Vec<u64>,
    min: Vec<u64>,
    average: Vec<u64>,
    max: Vec<u64>,
    over: Vec<u64>,
}

pub(super) fn read_histogram(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::CyclictestHistogram, "cyclictest", draft::WAKEUP, US);
    let mut columns: Vec<BTreeMap<u32, u64>> = Vec::new();
    let (mut foot, mut zeros, mut begun, mut rows) = (Foot::default(), false, false, 0u32);
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())) {
        let Some(said) = line.strip_prefix('#') else {
            if begun && line.starts_with(|c: char| c.is_ascii_digit()) {
                let mut words = line.split_whitespace();
                let bucket: u32 = number(at, "the bucket", words.next().unwrap_or_default())?;
                if bucket >= draft::MOST_BUCKETS {
                    return Err(ForeignError::at(at, "the bucket is off any scale"));
                }
                rows = rows.max(bucket + 1);
                let counts: Vec<u64> =
                    words.map(|word| number(at, "the count", word)).collect::<Result<_>>()?;
                if counts.is_empty() || (!columns.is_empty() && columns.len() != counts.len()) {
                    return Err(ForeignError::at(
                        at,
                        "its columns are others than in the first line",
                    ));
                }
                if counts.len() > draft::MOST_THREADS {
                    return Err(ForeignError::at(at, "more columns than any machine has CPUs"));
                }
                columns.resize(counts.len(), BTreeMap::new());
                zeros |= counts.iter().all(|count| *count == 0);
                for (column, count) in columns.iter_mut().zip(counts).filter(|(_, n)| *n > 0) {
                    if column.insert(bucket, count).is_some() {
                        return Err(ForeignError::at(at, "the bucket stands twice"));
                    }
                }
            } else if line.starts_with("policy: ") {
                draft::say(&mut run, "line", line);
            }
            continue;
        };
        let said = said.trim_start();
        match said.split_once(':').map(|(name, values)| (name, numbers(at, values))) {
            _ if said == "Histogram" => begun = true,
            Some(("Total", values)) => foot.total = values?,
            Some(("Min Latencies", values)) => foot.min = values?,
            Some(("Avg Latencies", values)) => foot.average = values?,
            Some(("Max Latencies", values)) => foot.max = values?,
            Some(("Histogram Overflows", values)) => foot.over = values?,
            Some(("Histogram Overflow at cycle number", _)) => {}
            Some((name, _)) if name.starts_with("Thread ") => {
                let (_, list) = said.split_once(':').unwrap_or_default();
                draft::say(&mut run, &format!("overflow.{}", &name[7..]), list.trim_start());
            }
            _ if !begun => draft::say(&mut run, "line", line),
            _ => {}
        }
    }
    let threads = foot.min.len();
    if threads == 0 || foot.average.len() < threads || foot.max.len() < threads {
        return Err(ForeignError::whole(
            "it lacks the lines of min, average and max latencies: is it cut short?",
        ));
    }
    // -H adds a column of sums.
    let summed = columns.len() == threads + 1;
    if !summed && columns.len() != threads && !columns.is_empty() {
        let why = format!("its histogram has {} columns for {threads} threads", columns.len());
        return Err(ForeignError::whole(why));
    }
    columns.resize(threads, BTreeMap::new());
    for (name, on) in [("zeros", zeros), ("summed", summed), ("total", !foot.total.is_empty())] {
        if on {
            draft::say(&mut run, name, "yes");
        }
    }
    for (index, column) in columns.into_iter().enumerate() {
        let over = foot.over.get(index).copied().unwrap_or(0);
        let linear = draft::linear(US, if zeros { rows } else { 0 }, column, over);
        let count = draft::total(&linear)?;
        let told = foot.total.get(index).copied();
        if told.is_some_and(|told| told != count - over) {
            let why =
                format!("thread {index}: its total is not the sum of its buckets: cut short?");
            return Err(ForeignError::whole(why));
        }
        let unit = |value: u64| Nanos(value.saturating_mul(1000).min(1 << 60));
        let (min, max) = (unit(foot.min[index]), unit(foot.max[index]));
        if min > max {
            return Err(ForeignError::whole(format!("thread {index}: its min is above its max")));
        }
        let sum = draft::sum(foot.average[index] as f64, 1e3, count);
        let readings = Histogram::from_linear(linear, Some(min), Some(max), sum);
        run.threads.push(draft::thread(index as u32, readings, None));
    }
    draft::finish(run, text)
}

fn numbers(at: usize, values: &str) -> Result<Vec<u64>> {
    let words = values.split_whitespace().take(draft::MOST_THREADS + 1);
    words.map(|word| number(at, "the value", word)).collect()
}

pub(super) fn write_histogram(run: &Run) -> String {
    let own = run.origin.as_ref().filter(|o| o.format == Format::CyclictestHistogram.name());
    let said = |name: &str| own.and_then(|origin| origin.said(name));
    let mut text = String::new();
    for (_, line) in own.iter().flat_map(|o| &o.said).filter(|(name, _)| name == "line") {
        let _ = writeln!(text, "{line}");
    }
    text.push_str("# Histogram\n");
    let (zeros, summed) = (own.is_none() || said("zeros").is_some(), said("summed").is_some());
    let linear: Vec<_> = run.threads.iter().map(|thread| thread.readings.to_linear(US)).collect();
    let columns: Vec<BTreeMap<u32, u64>> =
        linear.iter().map(|linear| linear.counts.iter().copied().collect()).collect();
    let rows = linear.iter().map(|linear| linear.buckets).max().unwrap_or(0);
    let used: std::collections::BTreeSet<u32> =
        columns.iter().flat_map(|column| column.keys().copied()).collect();
    let all: Vec<u32> = if zeros {
        (0..rows.min(draft::MOST_BUCKETS)).collect()
    } else {
        used.into_iter().collect()
    };
    for row in all {
        let counts = columns.iter().map(|column| column.get(&row).copied().unwrap_or(0));
        let mut counts: Vec<u64> = counts.collect();
        if summed {
            counts.push(counts.iter().sum());
        }
        let _ = writeln!(text, "{row:06} {}", join(&counts, 6, "\t"));
    }
    let with_sum = |mut values: Vec<u64>, sum: fn(&[u64]) -> u64| {
        if summed {
            values.push(sum(&values));
        }
        values
    };
    let add = |values: &[u64]| values.iter().sum();
    let largest = |values: &[u64]| values.iter().copied().max().unwrap_or(0);
    let of =
        |take: &dyn Fn(&MeasuringThread) -> u64| run.threads.iter().map(take).collect::<Vec<u64>>();
    let over: Vec<u64> = linear.iter().map(|linear| linear.over).collect();
    if own.is_none() || said("total").is_some() {
        let inside = columns.iter().map(|column| column.values().sum()).collect();
        let _ = writeln!(text, "# Total: {}", join(&with_sum(inside, add), 9, " "));
    }
    let us = |ns: Option<Nanos>| ns.unwrap_or_default().0 / 1000;
    let _ = writeln!(text, "# Min Latencies: {}", join(&of(&|t| us(t.readings.min)), 5, " "));
    let _ = writeln!(text, "# Avg Latencies: {}", join(&of(&|t| us(t.readings.mean())), 5, " "));
    let max = with_sum(of(&|t| us(t.readings.max)), largest);
    let _ = writeln!(text, "# Max Latencies: {}", join(&max, 5, " "));
    let _ = writeln!(text, "# Histogram Overflows: {}", join(&with_sum(over, add), 5, " "));
    text.push_str("# Histogram Overflow at cycle number:\n");
    for (index, _) in run.threads.iter().enumerate() {
        let list = said(&format!("overflow.{index}")).unwrap_or_default();
        let _ = writeln!(text, "{}", format!("# Thread {index}: {list}").trim_end());
    }
    if own.is_some() {
        text.push('\n');
    }
    text
}

fn join(values: &[u64], width: usize, between: &str) -> String {
    let words: Vec<String> = values.iter().map(|value| format!("{value:0width$}")).collect();
    words.join(between)
}
