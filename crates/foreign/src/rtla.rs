//! rtla: the histograms of `timerlat hist`, and the text of its automatic analysis.
//!
//! `Index` is the lower edge of a bucket in the stated unit. A column is one station of one CPU:
//! `IRQ` the handler, `Thr` the kernel's thread, `Usr` the return to user space. The last station
//! is the run's reading; the earlier ones stand beside it, and are never mixed into it.
//!
//! # Source
//! Linux `tools/tracing/rtla/src/timerlat_hist.c`, `timerlat_aa.c`.

use super::{
    ForeignError, Format, Result,
    draft::{self, number},
};
use quiet_types::{Finding, Histogram, Nanos, Run, Severity, printable, run::Station};
use std::{collections::BTreeMap, fmt::Write};

/// Stations in their order, by the names of the columns.
const STATIONS: [(&str, &str); 3] = [("IRQ", "irq"), ("Thr", "thread"), ("Usr", "user")];

#[derive(Default)]
struct Column {
    station: usize,
    cpu: u32,
    counts: Vec<u64>,
    over: u64,
    count: Option<u64>,
    min: Option<u64>,
    average: Option<u64>,
    max: Option<u64>,
}

pub(super) fn read(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Rtla, "rtla timerlat", draft::WAKEUP, Nanos(1000));
    let mut unit = Nanos(1000);
    let (mut columns, mut rows): (Vec<Column>, Vec<u64>) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())) {
        if let Some(said) = line.strip_prefix('#') {
            if said.contains("(ns)") {
                unit = Nanos(1);
            }
            if let Some(lasted) = said.trim_start().strip_prefix("Duration:") {
                run.lasted = Some(duration(at, lasted)?);
            }
            draft::say(&mut run, "line", line);
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "Index" {
            columns = words.map(|word| column(at, word)).collect::<Result<_>>()?;
            if columns.len() > 3 * draft::MOST_THREADS {
                return Err(ForeignError::at(at, "more columns than any machine has CPUs"));
            }
            continue;
        }
        // The sums over all CPUs, which follow from the rest.
        if first == "ALL:" {
            draft::say(&mut run, "all", "yes");
            break;
        }
        if columns.is_empty() {
            return Err(ForeignError::at(at, "the line `Index   IRQ-000 ...` is missing"));
        }
        let words: Vec<&str> = words.collect();
        if words.len() != columns.len() {
            return Err(ForeignError::at(at, "it has another number of columns than the heading"));
        }
        let index: Option<u64> = match first.strip_suffix(':') {
            Some(_) => None,
            None => Some(number(at, "the index", first)?),
        };
        if let Some(index) = index {
            if rows.last().is_some_and(|last| *last >= index) || index > 1 << 40 {
                return Err(ForeignError::at(at, "the index does not rise"));
            }
            rows.push(index);
        }
        for (column, word) in columns.iter_mut().zip(words) {
            let value = (word != "-").then(|| number::<u64>(at, "the count", word)).transpose()?;
            match first {
                "over:" => column.over = value.unwrap_or(0),
                "count:" => column.count = value,
                "min:" => column.min = value,
                "avg:" => column.average = value,
                "max:" => column.max = value,
                _ => column.counts.push(value.unwrap_or(0)),
            }
        }
    }
    let step = rows.windows(2).map(|pair| pair[1] - pair[0]).chain(rows.first().copied());
    let step = step.fold(0, gcd).max(1);
    let width = Nanos(unit.0.saturating_mul(step));
    if let Some(origin) = &mut run.origin {
        origin.resolution = width;
    }
    draft::say(&mut run, "unit", unit.0.to_string());
    draft::say(&mut run, "step", step.to_string());
    fill(&mut run, columns, &rows, unit, width)?;
    draft::finish(run, text)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `   0 00:10:00`: days and a clock.
fn duration(at: usize, text: &str) -> Result<Nanos> {
    let mut words = text.split_whitespace();
    let days: u64 = number(at, "the days", words.next().unwrap_or_default())?;
    let clock = words.next().unwrap_or_default();
    let parts: Vec<u64> =
        clock.split(':').map(|part| number(at, "the duration", part)).collect::<Result<_>>()?;
    let [hours, minutes, seconds] = parts[..] else {
        return Err(ForeignError::at(at, "a duration is `days hh:mm:ss`"));
    };
    let most = 1u64 << 20;
    let all = ((days.min(most) * 24 + hours.min(most)) * 60 + minutes.min(most)) * 60;
    Ok(Nanos((all + seconds.min(most)).min(1 << 33) * 1_000_000_000))
}

fn column(at: usize, word: &str) -> Result<Column> {
    let wrong = || ForeignError::at(at, format!("`{word}` is no column such as IRQ-000"));
    let (name, cpu) = word.split_once('-').ok_or_else(wrong)?;
    let station = STATIONS.iter().position(|(known, _)| *known == name).ok_or_else(wrong)?;
    Ok(Column { station, cpu: number(at, "the CPU", cpu)?, ..Column::default() })
}

fn fill(
    run: &mut Run,
    columns: Vec<Column>,
    rows: &[u64],
    unit: Nanos,
    width: Nanos,
) -> Result<()> {
    let mut cpus: BTreeMap<u32, Vec<(usize, Histogram, Option<u64>)>> = BTreeMap::new();
    for column in columns {
        let what = format!("{} of CPU {}", STATIONS[column.station].0, column.cpu);
        let counts = rows.iter().zip(&column.counts).map(|(index, count)| {
            u32::try_from(index / (width.0 / unit.0).max(1)).map(|bucket| (bucket, *count))
        });
        let counts: BTreeMap<u32, u64> = counts
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| ForeignError::whole("its index is off any scale"))?;
        let last = counts.keys().last().map_or(0, |last| last + 1);
        let linear = draft::linear(width, last, counts, column.over);
        let held = draft::total(&linear)?;
        if column.count.is_some_and(|count| count != held) {
            let why = format!("{what}: its count is not the sum of its buckets: cut short?");
            return Err(ForeignError::whole(why));
        }
        if column.count.is_none() && held > 0 {
            return Err(ForeignError::whole(format!(
                "{what}: the line `count:` is missing: cut short?"
            )));
        }
        let time = |value: Option<u64>| value.map(|v| Nanos(v.saturating_mul(unit.0).min(1 << 60)));
        let (min, max) = (time(column.min), time(column.max));
        if held > 0 && (min.is_none() || max.is_none() || min > max) {
            return Err(ForeignError::whole(format!(
                "{what}: its min and max are missing, or crossed"
            )));
        }
        let average = column.average.unwrap_or(0) as f64;
        let (min, max) = if held > 0 { (min, max) } else { (None, None) };
        let sum = draft::sum(average, unit.0 as f64, held);
        let readings = Histogram::from_linear(linear, min, max, sum);
        cpus.entry(column.cpu).or_default().push((column.station, readings, column.average));
    }
    for (cpu, mut stations) in cpus {
        stations.sort_by_key(|(station, ..)| *station);
        for (station, _, average) in &stations {
            if let Some(average) = average {
                let name = format!("avg.{}.{cpu}", STATIONS[*station].1);
                draft::say(run, &name, average.to_string());
            }
        }
        let Some((last, readings, _)) = stations.pop() else { continue };
        draft::say(run, &format!("station.{cpu}"), STATIONS[last].1);
        let mut thread = draft::thread(cpu, readings, None);
        thread.stations = stations
            .into_iter()
            .map(|(at, readings, _)| Station { name: STATIONS[at].1.to_owned(), readings })
            .collect();
        run.threads.push(thread);
    }
    Ok(())
}

pub(super) fn write(run: &Run) -> String {
    let said = |name: &str| draft::said(run, Format::Rtla, name);
    let own = run.origin.as_ref().filter(|origin| origin.format == Format::Rtla.name());
    let mut text = String::new();
    match own {
        Some(origin) => {
            for (_, line) in origin.said.iter().filter(|(name, _)| name == "line") {
                let _ = writeln!(text, "{line}");
            }
        }
        None => {
            text.push_str("# RTLA timerlat histogram\n# Time unit is microseconds (us)\n");
            if let Some(seconds) = run.lasted.map(|lasted| lasted.0 / 1_000_000_000) {
                let _ = writeln!(
                    text,
                    "# Duration: {:3} {:02}:{:02}:{:02}",
                    seconds / 86_400,
                    seconds / 3600 % 24,
                    seconds / 60 % 60,
                    seconds % 60
                );
            }
        }
    }
    let unit: u64 = said("unit").and_then(|u| u.parse().ok()).unwrap_or(1000).max(1);
    let step: u64 = said("step").and_then(|s| s.parse().ok()).unwrap_or(1).max(1);
    let width = Nanos(unit.saturating_mul(step));
    // Columns as rtla prints them: CPU by CPU, station by station.
    let mut columns: Vec<(String, String, &Histogram)> = Vec::new();
    for thread in &run.threads {
        let last = said(&format!("station.{}", thread.cpu)).unwrap_or("user");
        let all = thread.stations.iter().map(|s| (s.name.as_str(), &s.readings));
        for (name, readings) in all.chain([(last, &thread.readings)]) {
            let head = STATIONS.iter().find(|(_, n)| *n == name).map_or("Usr", |(head, _)| head);
            columns.push((
                format!("{head}-{:03}", thread.cpu.0),
                format!("{name}.{}", thread.cpu),
                readings,
            ));
        }
    }
    text.push_str("Index");
    for (head, ..) in &columns {
        let _ = write!(text, "   {head}");
    }
    text.push('\n');
    let linear: Vec<_> = columns.iter().map(|(.., readings)| readings.to_linear(width)).collect();
    let counts: Vec<BTreeMap<u32, u64>> =
        linear.iter().map(|linear| linear.counts.iter().copied().collect()).collect();
    let used: std::collections::BTreeSet<u32> =
        counts.iter().flat_map(|c| c.keys().copied()).collect();
    for bucket in used {
        let _ = write!(text, "{:<6}", u64::from(bucket) * step);
        for column in &counts {
            let _ = write!(text, "{:9} ", column.get(&bucket).copied().unwrap_or(0));
        }
        text.push('\n');
    }
    let mut line = |name: &str, take: &dyn Fn(usize) -> Option<u64>| {
        text.push_str(name);
        for at in 0..columns.len() {
            let _ = match take(at) {
                Some(value) => write!(text, "{value:9} "),
                None => write!(text, "{:>9} ", "-"),
            };
        }
        text.push('\n');
    };
    let units = |ns: Option<Nanos>| ns.map(|ns| ns.0 / unit);
    line("over: ", &|at| Some(linear[at].over));
    line("count:", &|at| Some(columns[at].2.count));
    line("min:  ", &|at| units(columns[at].2.min));
    line("avg:  ", &|at| {
        let kept = said(&format!("avg.{}", columns[at].1)).and_then(|text| text.parse().ok());
        kept.or_else(|| units(columns[at].2.mean()))
    });
    line("max:  ", &|at| units(columns[at].2.max));
    text
}

/// `IRQ handler delay: 27.49 us (65.52 %)`.
fn cause(line: &str) -> Option<(&str, f64, f64)> {
    let (name, rest) = line.split_once(':')?;
    let (us, rest) = rest.trim_start().split_once(" us")?;
    let percent = rest.trim().trim_start_matches('(').trim_end_matches(')').trim_end_matches('%');
    let (us, percent) = (us.trim().parse().ok()?, percent.trim().parse().ok()?);
    ((0.0..1e12).contains(&us)).then_some((name.trim(), us, percent))
}

pub(super) fn read_analysis(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::RtlaAnalysis, "rtla timerlat", draft::WAKEUP, Nanos(10));
    let (mut cpu, mut total, mut causes) = (0u32, None, Vec::new());
    for line in text.lines() {
        draft::say(&mut run, "line", line.trim_end());
        if let Some((_, rest)) = line.split_once("CPU ") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            cpu = digits.parse().unwrap_or(cpu);
        }
        match cause(line) {
            Some((name, us, _)) if name.ends_with("latency") => total = Some(us),
            Some((name, us, percent)) => causes.push((name.to_owned(), us, percent)),
            None => {}
        }
    }
    let Some(total) = total else {
        return Err(ForeignError::whole(
            "it has no line `Thread latency: 41.96 us (100%)`: is it cut short?",
        ));
    };
    let value = Nanos((total * 1e3).round() as u64);
    run.threads.push(draft::thread(cpu, Histogram::of([value]), None));
    let list: Vec<String> = causes
        .iter()
        .map(|(name, us, percent)| format!("{} {us} us ({percent} %)", printable(name, 60)))
        .collect();
    run.findings.push(
        Finding::new(
            Severity::Note,
            "import.causes",
            format!("rtla's analysis of one wake-up that was {total} us late"),
        )
        .evidence(list.join("; ")),
    );
    draft::finish(run, text)
}

/// Only of a run that was read from one: causes are not in a run.
pub(super) fn write_analysis(run: &Run) -> Result<String> {
    let own = run.origin.as_ref().filter(|origin| origin.format == Format::RtlaAnalysis.name());
    let origin = own.ok_or_else(|| {
        ForeignError::whole("an analysis names causes, and a run holds readings; see `explain`")
    })?;
    let lines = origin.said.iter().filter(|(name, _)| name == "line");
    Ok(lines.map(|(_, line)| format!("{line}\n")).collect())
}
