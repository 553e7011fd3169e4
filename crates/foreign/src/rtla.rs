//! rtla: the histograms of `timerlat hist` and `osnoise hist`, and the text of its automatic analysis.
//!
//! `Index` is the lower edge of a bucket in the stated unit. A column is one station of one CPU:
//! `IRQ` the handler, `Thr` the kernel's thread, `Usr` the return to user space. The last station
//! is the run's reading; the earlier ones stand beside it, and are never mixed into it. Of osnoise
//! a column is `CPU`, and a reading is one noise.
//!
//! Below the table rtla 6.10 and newer sum timerlat's CPUs up, under `ALL:`. All of it follows from the
//! table but the averages, which are kept as they were said.
//!
//! # Source
//! Linux `tools/tracing/rtla/src/timerlat_hist.c`, `osnoise_hist.c`, `timerlat_aa.c`.

use super::{
    ForeignError, Format, Result,
    draft::{self, number},
};
use quiet_types::{
    Finding, Histogram, Nanos, Run, Severity, printable,
    run::{Measured, Station},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// Stations in their order, by the names of the columns.
const STATIONS: [(&str, &str); 4] =
    [("IRQ", "irq"), ("Thr", "thread"), ("Usr", "user"), ("CPU", "noise")];
/// The one of osnoise.
const NOISE: usize = 3;
/// Cells of zeros that are written again: more than in any file that is read.
const MOST_CELLS: u64 = 1 << 26;

#[derive(Default)]
struct Column {
    station: usize,
    cpu: u32,
    counts: Vec<u64>,
    over: u64,
    count: Option<u64>,
    min: Option<u64>,
    average: Option<String>,
    max: Option<u64>,
}

impl Column {
    /// The cell of a line below the buckets.
    fn set(&mut self, at: usize, line: &str, word: &str) -> Result<()> {
        let cell = || (word != "-").then(|| number::<u64>(at, "the cell", word)).transpose();
        match line {
            "over:" => self.over = cell()?.unwrap_or(0),
            "count:" => self.count = cell()?,
            "min:" => self.min = cell()?,
            "max:" => self.max = cell()?,
            "avg:" if word == "-" => self.average = None,
            "avg:" if self.station == NOISE => {
                draft::time(at, "the average", word, 1000.0)?;
                self.average = Some(word.to_owned());
            }
            "avg:" => self.average = cell()?.map(|average| average.to_string()),
            _ => {
                let why = format!("rtla has no line `{}`", printable(line, 30));
                return Err(ForeignError::at(at, why));
            }
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        STATIONS[self.station].1
    }
}

/// Where in a file a line stands.
#[derive(PartialEq)]
enum Part {
    Table,
    Sums,
    /// What rtla says of its stop, of an analysis or of events that it missed.
    After,
}

pub(super) fn read(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Rtla, "rtla timerlat", draft::WAKEUP, Nanos(1000));
    let mut unit = Nanos(1000);
    let (mut columns, mut rows): (Vec<Column>, Vec<u64>) = (Vec::new(), Vec::new());
    let (mut sums, mut part): (Vec<Column>, Part) = (Vec::new(), Part::Table);
    for (at, raw) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let line = raw.trim_end();
        if part == Part::After && !line.starts_with("ALL:") {
            if line.starts_with("# RTLA") || line.starts_with("Index") {
                return Err(ForeignError::at(at, "a second histogram begins: one file holds one"));
            }
            draft::say(&mut run, "after", raw);
            continue;
        }
        if let Some(said) = line.strip_prefix('#') {
            if said.contains("(ns)") {
                unit = Nanos(1);
            }
            if let Some(lasted) = said.trim_start().strip_prefix("Duration:") {
                run.lasted = Some(duration(at, lasted)?);
            }
            draft::say(&mut run, "line", raw);
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if first == "Index" {
            columns = heading(at, words)?;
            continue;
        }
        if columns.is_empty() {
            return Err(ForeignError::at(
                at,
                "the line `Index   IRQ-000 ...` is missing: by --no-header and --no-index rtla leaves out \
                 which CPUs it measured, and how wide a bucket is",
            ));
        }
        if first == "ALL:" {
            if !sums.is_empty() || part != Part::After {
                return Err(ForeignError::at(at, "`ALL:` stands once, below the line `max:`"));
            }
            sums = sums_heading(at, words, &columns)?;
            part = Part::Sums;
            continue;
        }
        let below = if part == Part::Sums { &mut sums } else { &mut columns };
        let words: Vec<&str> = words.collect();
        if words.len() != below.len() {
            return Err(ForeignError::at(at, "it has another number of columns than the heading"));
        }
        if first.ends_with(':') {
            for (column, word) in below.iter_mut().zip(words) {
                column.set(at, first, word)?;
            }
            if first == "max:" {
                part = Part::After;
            }
            continue;
        }
        let index: u64 = number(at, "the index", first)?;
        if part == Part::Sums || rows.last().is_some_and(|last| *last >= index) || index > 1 << 40 {
            return Err(ForeignError::at(at, "the index does not rise"));
        }
        rows.push(index);
        for (column, word) in columns.iter_mut().zip(words) {
            column.counts.push(number(at, "the count", word)?);
        }
    }
    if part == Part::Sums {
        return Err(ForeignError::whole("its sums of all CPUs have no end: cut short?"));
    }
    if columns.iter().any(|column| column.station == NOISE) {
        run.spec.probe = Measured::Gap;
        if let Some(origin) = &mut run.origin {
            origin.program = "rtla osnoise".to_owned();
        }
    }
    check_sums(&mut run, &columns, &sums)?;
    let step = rows.windows(2).map(|pair| pair[1] - pair[0]).chain(rows.first().copied());
    let step = step.fold(0, gcd).max(1);
    let width = Nanos(unit.0.saturating_mul(step));
    if let Some(origin) = &mut run.origin {
        origin.resolution = width;
    }
    draft::say(&mut run, "unit", unit.0.to_string());
    draft::say(&mut run, "step", step.to_string());
    // With --with-zeros every bucket has a line.
    let empty = |at: usize| columns.iter().all(|column| column.counts[at] == 0);
    let each = rows.iter().zip(0u64..).all(|(row, at)| *row == at * step);
    if each && (0..rows.len()).any(empty) {
        draft::say(&mut run, "rows", rows.len().to_string());
    }
    fill(&mut run, columns, &rows, unit, width)?;
    draft::finish(run, text)
}

/// The sums of all CPUs say what the table says; what does not follow from it is kept.
fn check_sums(run: &mut Run, columns: &[Column], sums: &[Column]) -> Result<()> {
    for sum in sums {
        let these = || columns.iter().filter(|column| column.station == sum.station);
        let count = these().try_fold(0u64, |all, one| all.checked_add(one.count.unwrap_or(0)));
        let measured = || these().filter(|column| column.count != Some(0));
        let (min, max) = (
            measured().filter_map(|one| one.min).min(),
            measured().filter_map(|one| one.max).max(),
        );
        // Where nothing was counted the cells mean nothing: some versions print the largest number there.
        if sum.count != count || (count != Some(0) && (sum.min, sum.max) != (min, max)) {
            return Err(ForeignError::whole(format!(
                "`ALL:` says other counts or extremes of {} than the CPUs: cut short?",
                STATIONS[sum.station].0
            )));
        }
        let average = sum.average.as_ref().filter(|_| count != Some(0));
        draft::say(run, &format!("all.{}", sum.name()), average.map_or("-", |text| text));
    }
    Ok(())
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

/// `Index   IRQ-000   Thr-000 ...`, without its first word.
fn heading<'a>(at: usize, words: impl Iterator<Item = &'a str>) -> Result<Vec<Column>> {
    let columns = words.map(|word| column(at, word)).collect::<Result<Vec<Column>>>()?;
    if columns.len() > 3 * draft::MOST_THREADS {
        return Err(ForeignError::at(at, "more columns than any machine has CPUs"));
    }
    if columns.is_empty() {
        return Err(ForeignError::at(at, "rtla names no CPU: it measured nothing"));
    }
    let noise = columns.iter().filter(|column| column.station == NOISE).count();
    if noise > 0 && noise < columns.len() {
        return Err(ForeignError::at(at, "it has columns of timerlat and of osnoise"));
    }
    Ok(columns)
}

/// `ALL:        IRQ       Thr ...`, without its first word: of the columns that the table has.
fn sums_heading<'a>(
    at: usize,
    words: impl Iterator<Item = &'a str>,
    columns: &[Column],
) -> Result<Vec<Column>> {
    let sums = words.map(|word| all(at, word)).collect::<Result<Vec<Column>>>()?;
    let mut known: Vec<usize> = columns.iter().map(|column| column.station).collect();
    known.sort_unstable();
    known.dedup();
    if !sums.iter().map(|sum| sum.station).eq(known) {
        return Err(ForeignError::at(at, "`ALL:` sums up other columns than the heading has"));
    }
    Ok(sums)
}

/// A column of the sums.
fn all(at: usize, word: &str) -> Result<Column> {
    let station = STATIONS.iter().position(|(known, _)| *known == word);
    let wrong = || ForeignError::at(at, "`ALL:` sums up what is no column of rtla's");
    Ok(Column { station: station.ok_or_else(wrong)?, ..Column::default() })
}

fn fill(
    run: &mut Run,
    columns: Vec<Column>,
    rows: &[u64],
    unit: Nanos,
    width: Nanos,
) -> Result<()> {
    let mut cpus: BTreeMap<u32, Vec<(usize, Histogram, Option<String>)>> = BTreeMap::new();
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
                "{what}: the line `count:` is missing: cut short, or by --no-summary?"
            )));
        }
        let time = |value: Option<u64>| value.map(|v| Nanos(v.saturating_mul(unit.0).min(1 << 60)));
        let (min, max) = (time(column.min), time(column.max));
        if held > 0 && (min.is_none() || max.is_none() || min > max) {
            return Err(ForeignError::whole(format!(
                "{what}: its min and max are missing, or crossed"
            )));
        }
        let average = column.average.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0.0);
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
                draft::say(run, &name, average);
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
            let tool = if run.is_gap() { "osnoise" } else { "timerlat" };
            let _ = writeln!(text, "# RTLA {tool} histogram\n# Time unit is microseconds (us)");
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
    let mut columns: Vec<Written<'_>> = Vec::new();
    for thread in &run.threads {
        let usual = if run.is_gap() { "noise" } else { "user" };
        let last = said(&format!("station.{}", thread.cpu)).unwrap_or(usual);
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
    let mut used: BTreeSet<u32> = counts.iter().flat_map(|c| c.keys().copied()).collect();
    let rows: u32 = said("rows").and_then(|rows| rows.parse().ok()).unwrap_or(0);
    if u64::from(rows).saturating_mul(columns.len() as u64) <= MOST_CELLS {
        used.extend(0..rows);
    }
    for bucket in used {
        let _ = write!(text, "{:<6}", u64::from(bucket) * step);
        for column in &counts {
            let _ = write!(text, "{:9} ", column.get(&bucket).copied().unwrap_or(0));
        }
        text.push('\n');
    }
    let units = |ns: Option<Nanos>| units(ns, unit);
    let every = 0..columns.len();
    let of = |at: usize| columns[at].2;
    line(&mut text, "over: ", every.clone().map(|at| Some(linear[at].over.to_string())));
    line(&mut text, "count:", every.clone().map(|at| Some(of(at).count.to_string())));
    line(&mut text, "min:  ", every.clone().map(|at| units(of(at).min)));
    line(
        &mut text,
        "avg:  ",
        every.clone().map(|at| {
            let kept = said(&format!("avg.{}", columns[at].1)).map(str::to_owned);
            kept.or_else(|| mean(run, of(at).sum.0, of(at).count, unit))
        }),
    );
    line(&mut text, "max:  ", every.map(|at| units(of(at).max)));
    write_sums(&mut text, run, unit, &columns);
    for (_, line) in own.iter().flat_map(|origin| &origin.said).filter(|(name, _)| name == "after")
    {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// A column's heading, its name in what was kept, and its readings.
type Written<'a> = (String, String, &'a Histogram);

/// Whole units, as rtla prints them.
fn units(ns: Option<Nanos>, unit: u64) -> Option<String> {
    ns.map(|ns| (ns.0 / unit).to_string())
}

/// Of noise rtla prints two digits.
fn mean(run: &Run, sum: u64, count: u64, unit: u64) -> Option<String> {
    match run.is_gap() {
        _ if count == 0 => None,
        true => Some(format!("{:.2}", sum as f64 / count as f64 / unit as f64)),
        false => Some((sum / count / unit).to_string()),
    }
}

/// The sums of all CPUs, where the file had some.
fn write_sums(text: &mut String, run: &Run, unit: u64, columns: &[Written<'_>]) {
    let said = |name: &str| draft::said(run, Format::Rtla, name);
    let units = |ns: Option<Nanos>| units(ns, unit);
    // Runs that were imported before their averages were kept say `all` alone.
    let older = said("all").is_some();
    let names = STATIONS.iter().filter(|(_, name)| {
        let begins = format!("{name}.");
        (older || said(&format!("all.{name}")).is_some())
            && columns.iter().any(|column| column.1.starts_with(&begins))
    });
    let sums: Vec<(&str, &str)> = names.copied().collect();
    if sums.is_empty() {
        return;
    }
    let these = |name: &str| {
        let begins = format!("{name}.");
        let these = columns.iter().filter(move |column| column.1.starts_with(&begins));
        these.map(|(.., readings)| *readings)
    };
    let count = |name: &str| these(name).fold(0u64, |all, one| all.saturating_add(one.count));
    let names = || sums.iter().map(|(_, name)| *name);
    text.push_str("ALL:  ");
    for (head, _) in &sums {
        // As rtla has it, `IRQ` stands a blank further left than its column.
        let _ = write!(text, "{head:>width$}", width = if *head == "IRQ" { 9 } else { 10 });
    }
    text.push('\n');
    line(text, "count:", names().map(|name| Some(count(name).to_string())));
    line(text, "min:  ", names().map(|name| units(these(name).filter_map(|one| one.min).min())));
    line(
        text,
        "avg:  ",
        names().map(|name| {
            let kept = said(&format!("all.{name}")).filter(|text| *text != "-");
            let sum = these(name).map(|one| u128::from(one.sum.0)).sum::<u128>();
            let sum = u64::try_from(sum).unwrap_or(u64::MAX);
            kept.map(str::to_owned).or_else(|| mean(run, sum, count(name), unit))
        }),
    );
    line(text, "max:  ", names().map(|name| units(these(name).filter_map(|one| one.max).max())));
}

/// A line of cells of nine digits, as every line of rtla's tables is.
fn line(text: &mut String, name: &str, cells: impl Iterator<Item = Option<String>>) {
    text.push_str(name);
    for cell in cells {
        let _ = write!(text, "{:>9} ", cell.as_deref().unwrap_or("-"));
    }
    text.push('\n');
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
