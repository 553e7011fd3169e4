//! oslat's report: `008 (us):  881 1475 (including overflows)`, a column a CPU.
//!
//! A bucket is named by its upper edge: `001` holds gaps below 1 us.
//!
//! # Source
//! rt-tests `src/oslat/oslat.c`, `write_summary`.

use super::{ForeignError, Format, Result, draft, rt_json};
use quiet_types::{Nanos, Run, machine::Policy, run::Measured};
use std::{collections::BTreeMap, fmt::Write};

const US: Nanos = Nanos(1000);

/// The rows below the buckets.
#[derive(Default)]
struct Rows {
    cpus: Vec<String>,
    megahertz: Vec<String>,
    least: Vec<String>,
    average: Vec<String>,
    most: Vec<String>,
    lasted: Vec<String>,
    /// Upper edge in us, and a count a CPU.
    buckets: Vec<(u32, Vec<u64>)>,
    digits: usize,
}

pub(super) fn read(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Oslat, "oslat", Measured::Gap, US);
    let mut rows = Rows::default();
    let (mut overflows, mut named) = (false, None);
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        let Some((name, rest)) = line.split_once(':') else {
            if rows.cpus.is_empty() {
                draft::say(&mut run, "line", line);
            }
            continue;
        };
        let values = rest.split('(').next().unwrap_or_default();
        let words =
            || values.split_whitespace().take(draft::MOST_THREADS).map(str::to_owned).collect();
        match name.trim() {
            "Core" => rows.cpus = words(),
            "Counter Freq" => rows.megahertz = words(),
            "Minimum" => rows.least = words(),
            "Average" => rows.average = words(),
            "Maximum" => rows.most = words(),
            "Duration" => rows.lasted = words(),
            "Max-Min" => {}
            _ if rows.cpus.is_empty() => {
                if name.trim() == "Thread priority" {
                    let digits: String = values.chars().filter(char::is_ascii_digit).collect();
                    let priority: u8 = digits.parse().unwrap_or(0);
                    let policy = if priority > 0 { Policy::Fifo } else { Policy::Other };
                    named = Some((policy, priority));
                }
                draft::say(&mut run, "line", line);
            }
            bucket if bucket.ends_with("(us)") => {
                let key = bucket.trim_end_matches("(us)").trim();
                rows.digits = key.len();
                let edge: u32 = draft::number(at, "the bucket", key)?;
                if edge == 0 || edge >= draft::MOST_BUCKETS {
                    return Err(ForeignError::at(
                        at,
                        "a bucket of oslat is named by its upper edge, from 1",
                    ));
                }
                let counts = values.split_whitespace().take(draft::MOST_THREADS + 1);
                let counts: Vec<u64> = counts
                    .map(|count| draft::number(at, "the count", count))
                    .collect::<Result<_>>()?;
                if counts.len() != rows.cpus.len() {
                    return Err(ForeignError::at(
                        at,
                        "it has another number of columns than the line of cores",
                    ));
                }
                overflows |= rest.contains("including overflows");
                rows.buckets.push((edge, counts));
            }
            _ => {}
        }
    }
    let threads = rows.cpus.len();
    let short = [&rows.least, &rows.average, &rows.most].iter().any(|row| row.len() != threads);
    if threads == 0 || short || rows.buckets.is_empty() {
        return Err(ForeignError::whole(
            "it lacks the lines of cores, buckets, minimum, average or maximum: is it cut short?",
        ));
    }
    draft::say(&mut run, "digits", rows.digits.to_string());
    if overflows {
        draft::say(&mut run, "overflows", "yes");
    }
    for index in 0..threads {
        let counts: BTreeMap<u32, u64> =
            rows.buckets.iter().map(|(edge, counts)| (edge - 1, counts[index])).collect();
        let us = |text: &str| draft::time(0, "the time", text, 1000.0);
        let average: f64 = draft::number(0, "the average", &rows.average[index])?;
        let (least, most) = (us(&rows.least[index])?, us(&rows.most[index])?);
        let readings = rt_json::gaps(index as u32, counts, average, least, most)?;
        draft::say(&mut run, &format!("thread.{index}.avg"), &rows.average[index]);
        for (name, row) in [("freq", &rows.megahertz), ("duration", &rows.lasted)] {
            if let Some(value) = row.get(index) {
                draft::say(&mut run, &format!("thread.{index}.{name}"), value);
            }
        }
        let seconds = rows.lasted.get(index).and_then(|text| text.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        run.lasted = run.lasted.max(seconds.map(|s| Nanos((s.min(1e9) * 1e9) as u64)));
        let cpu = draft::number(0, "the core", &rows.cpus[index])?;
        run.threads.push(draft::thread(cpu, readings, named));
    }
    draft::finish(run, text)
}

pub(super) fn write(run: &Run) -> String {
    let own = run.origin.as_ref().filter(|origin| origin.format == Format::Oslat.name());
    let mut text = String::new();
    match own {
        Some(origin) => {
            for (_, line) in origin.said.iter().filter(|(name, _)| name == "line") {
                let _ = writeln!(text, "{line}");
            }
        }
        None => {
            let _ = writeln!(
                text,
                "oslat (exported by quietcores {}, run {})",
                run.host.program, run.id
            );
            if let Some(lasted) = run.lasted {
                let _ = writeln!(text, "Total runtime: \t\t{} seconds", lasted.0 / 1_000_000_000);
            }
            let _ = write!(text, "CPU list: \t\t{}\nTest completed.\n\n", run.spec.cpus);
        }
    }
    let said = |index: usize, name: &str| {
        draft::said(run, Format::Oslat, &format!("thread.{index}.{name}")).map(str::to_owned)
    };
    let row = |take: &dyn Fn(usize) -> String| {
        (0..run.threads.len()).map(|index| format!(" {}", take(index))).collect::<String>()
    };
    let thread = |index: usize| &run.threads[index];
    let _ = writeln!(text, "        Core:\t{}", row(&|at| thread(at).cpu.to_string()));
    let dash = || "-".to_owned();
    let megahertz =
        |at: usize| said(at, "freq").or_else(|| rt_json::megahertz(run)).unwrap_or_else(dash);
    let _ = writeln!(text, "Counter Freq:\t{} (Mhz)", row(&megahertz));
    let linear: Vec<_> = run.threads.iter().map(|t| t.readings.to_linear(US)).collect();
    let scale = linear.iter().map(|linear| linear.buckets).max().unwrap_or(0);
    let digits =
        draft::said(run, Format::Oslat, "digits").and_then(|d| d.parse().ok()).unwrap_or(3);
    let columns: Vec<BTreeMap<u32, u64>> =
        linear.iter().map(|linear| linear.counts.iter().copied().collect()).collect();
    for bucket in 0..scale.min(draft::MOST_BUCKETS) {
        let last = bucket + 1 == scale;
        let count = |at: usize| {
            let over = if last { linear[at].over } else { 0 };
            (columns[at].get(&bucket).copied().unwrap_or(0) + over).to_string()
        };
        let and = if last { " (including overflows)" } else { "" };
        let edge = bucket + 1;
        let _ = writeln!(text, "    {edge:0digits$} (us):\t{}{and}", row(&count));
    }
    let least = |at: usize| rt_json::edge(thread(at).readings.min);
    let most = |at: usize| thread(at).readings.max.unwrap_or_default().0.div_ceil(1000);
    let average = |at: usize| {
        draft::average_text(
            said(at, "avg").as_deref(),
            draft::average(&thread(at).readings, 1e3),
            3,
        )
    };
    let lasted =
        |at: usize| said(at, "duration").or_else(|| rt_json::seconds(run)).unwrap_or_else(dash);
    let _ = writeln!(text, "     Minimum:\t{} (us)", row(&|at| least(at).to_string()));
    let _ = writeln!(text, "     Average:\t{} (us)", row(&average));
    let _ = writeln!(text, "     Maximum:\t{} (us)", row(&|at| most(at).to_string()));
    let apart = |at: usize| most(at).saturating_sub(least(at)).to_string();
    let _ = writeln!(text, "     Max-Min:\t{} (us)", row(&apart));
    let _ = writeln!(text, "    Duration:\t{} (sec)\n", row(&lasted));
    text
}
