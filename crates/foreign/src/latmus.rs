//! latmus's histogram (`-g`): a header of `# ` lines, then `cell count` from the first to the
//! last cell with something in it; cell k holds [k, k+1) us. Where readings were beyond the scale,
//! they are in the last cell, and a `+` stands after its number.
//!
//! # Source
//! libevl `benchmarks/latmus.c`. Its latencies are after the clock's gravity, and negative ones
//! are folded into the histogram by `abs()`.

use super::{
    ForeignError, Format, Result,
    draft::{self, number, time},
};
use quiet_types::{
    Finding, Histogram, Nanos, Run, Severity, histogram::Linear, machine::Policy,
    machine::SchedulerCore, run::Measured,
};
use std::{collections::BTreeMap, fmt::Write};

const US: Nanos = Nanos(1000);

#[derive(Default)]
struct Head {
    min: Option<f64>,
    average: Option<f64>,
    max: Option<f64>,
    count: Option<u64>,
    overruns: u64,
    period: Option<u64>,
    cpu: Option<u32>,
    priority: Option<u8>,
    peak: Option<Nanos>,
    lasted: Option<Nanos>,
}

pub(super) fn read(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Latmus, "latmus", draft::WAKEUP, US);
    let mut head = Head::default();
    let mut counts = BTreeMap::new();
    let mut clipped = false;
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end())) {
        if let Some(said) = line.strip_prefix("# ") {
            head_line(&mut run, &mut head, at, said)?;
        } else if !line.is_empty() {
            let mut words = line.split_whitespace();
            let (Some(cell), Some(count), None) = (words.next(), words.next(), words.next()) else {
                return Err(ForeignError::at(at, "a line of the histogram is `cell count`"));
            };
            if clipped {
                return Err(ForeignError::at(at, "a cell stands after the one with the `+`"));
            }
            clipped = cell.ends_with('+');
            let cell: u32 = number(at, "the cell", cell.strip_suffix('+').unwrap_or(cell))?;
            let count: u64 = number(at, "the count", count)?;
            if cell >= draft::MOST_BUCKETS || counts.insert(cell, count).is_some() {
                return Err(ForeignError::at(
                    at,
                    format!("cell {cell} stands twice, or off any scale"),
                ));
            }
        }
    }
    let (Some(min), Some(average), Some(max), Some(count)) =
        (head.min, head.average, head.max, head.count)
    else {
        return Err(ForeignError::whole(
            "its header lacks min, avg or max latency or the sample count: is it cut short?",
        ));
    };
    if !(min <= average && average <= max) {
        let why = format!("min {min}, avg {average}, max {max} us are not in this order");
        return Err(ForeignError::whole(why));
    }
    let (buckets, over) = if clipped { counts.pop_last().unwrap_or_default() } else { (0, 0) };
    let linear = draft::linear(US, buckets, counts, over);
    let held = draft::total(&linear)?;
    if held != count {
        let why = format!("its header counts {count} samples, its cells hold {held}: cut short?");
        return Err(ForeignError::whole(why));
    }
    if min < 0.0 {
        draft::say(&mut run, "negative minimum", format!("{min:.3}"));
        run.findings.push(
            Finding::new(
                Severity::Warning,
                "import.folded",
                "latencies below zero are folded into the histogram by their size",
            )
            .evidence(format!("min latency: {min:.3} us; the timer is programmed early (gravity)")),
        );
    }
    let ns = |us: f64| Nanos((us.max(0.0) * 1e3).round() as u64);
    let readings = Histogram::from_linear(
        linear,
        Some(ns(min)),
        Some(ns(max)),
        draft::sum(average, 1e3, count),
    );
    let mut thread = draft::thread(
        head.cpu.unwrap_or_default(),
        readings,
        head.priority.map(|p| (Policy::Fifo, p)),
    );
    thread.max_at = head.peak;
    // Without overruns it writes no line of them.
    thread.missed = Some(head.overruns);
    thread.expected = Some(count.saturating_add(head.overruns));
    run.spec.probe = Measured::Wakeup { interval: head.period.map(Nanos::from_micros) };
    run.spec.core = Some(SchedulerCore::Evl);
    run.lasted = head.lasted;
    run.host.arch = said_arch(&run);
    run.threads.push(thread);
    run.findings.push(
        Finding::new(
            Severity::Note,
            "import.gravity",
            "latmus programs its timer early by the clock's gravity",
        )
        .effect("its latencies are not those of cyclictest or of measure wakeup: compare latmus with latmus"),
    );
    draft::finish(run, text)
}

fn said_arch(run: &Run) -> String {
    let version = &run.host.version;
    ["aarch64", "x86_64", "arm", "i686", "riscv64"]
        .into_iter()
        .find(|arch| version.contains(arch))
        .unwrap_or_default()
        .to_owned()
}

fn head_line(run: &mut Run, head: &mut Head, at: usize, said: &str) -> Result<()> {
    let us = |text: &str| {
        number::<f64>(at, "the latency", text).and_then(|us| {
            if us.abs() < 1e12 {
                Ok(us)
            } else {
                Err(ForeignError::at(at, "the latency is no time"))
            }
        })
    };
    match said.split_once(": ") {
        Some(("min latency", text)) => return us(text).map(|us| head.min = Some(us)),
        Some(("avg latency", text)) => return us(text).map(|us| head.average = Some(us)),
        Some(("max latency", text)) => return us(text).map(|us| head.max = Some(us)),
        Some(("sample count", text)) => {
            head.count = Some(number(at, "the sample count", text)?);
            return Ok(());
        }
        Some(("OVERRUNS", text)) => head.overruns = number(at, "OVERRUNS", text)?,
        Some(("sampling period", text)) => {
            let word = text.split_whitespace().next().unwrap_or_default();
            let period = number(at, "the sampling period", word)?;
            if !(1..=60_000_000).contains(&period) {
                return Err(ForeignError::at(at, "the sampling period is none"));
            }
            head.period = Some(period);
        }
        Some(("thread priority", text)) => head.priority = Some(number(at, "the priority", text)?),
        Some(("thread affinity", text)) => {
            let digits: String = text.chars().filter(char::is_ascii_digit).take(6).collect();
            head.cpu = digits.parse().ok();
        }
        Some(("duration (hhmmss)", text)) => head.lasted = Some(hhmmss(at, text)?),
        Some(("peak (hhmmss)", text)) => head.peak = Some(hhmmss(at, text)?),
        Some(("test started on", text)) => run.started = draft::date(text),
        _ if said.starts_with("Linux version ") => {
            let release = said.split_whitespace().nth(2).unwrap_or_default();
            run.host.release = release.to_owned();
            run.host.version = said.to_owned();
        }
        _ => {}
    }
    draft::say(run, "head", said);
    Ok(())
}

fn hhmmss(at: usize, text: &str) -> Result<Nanos> {
    let seconds = text.split(':').try_fold(0u64, |sum, part| {
        let part = time(at, "the time", part, 1.0)?;
        Ok(sum.saturating_mul(60).saturating_add(part.0))
    })?;
    Ok(Nanos(seconds.min(1 << 33) * 1_000_000_000))
}

fn clock(time: Nanos) -> String {
    let seconds = time.0 / 1_000_000_000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// One CPU: latmus measures on one.
pub(super) fn write(run: &Run) -> Result<String> {
    let [thread] = &run.threads[..] else {
        let why = format!(
            "latmus measures on one CPU, the run on {}; measure one, or choose another format",
            run.threads.len()
        );
        return Err(ForeignError::whole(why));
    };
    let readings = &thread.readings;
    let mut text = String::new();
    let own = run.origin.as_ref().filter(|origin| origin.format == Format::Latmus.name());
    match own {
        Some(origin) => {
            for (_, line) in origin.said.iter().filter(|(name, _)| name == "head") {
                let _ = writeln!(text, "# {line}");
            }
        }
        None => text.push_str(&invented_head(run)?),
    }
    let us = |ns: Nanos| ns.0 as f64 / 1e3;
    let min = draft::said(run, Format::Latmus, "negative minimum").map(str::to_owned);
    let min = min.unwrap_or_else(|| format!("{:.3}", us(readings.min.unwrap_or_default())));
    let _ = write!(
        text,
        "# min latency: {min}\n# avg latency: {:.3}\n# max latency: {:.3}\n# sample count: {}\n",
        draft::average(readings, 1e3),
        us(readings.max.unwrap_or_default()),
        readings.count
    );
    cells(&mut text, &readings.to_linear(US));
    Ok(text)
}

/// What is not known has no line; latmus always names its period.
fn invented_head(run: &Run) -> Result<String> {
    let thread = &run.threads[0];
    let mut text = format!(
        "# test started on: {}\n# Linux version {} {}\n# measured by quietcores {}\n",
        draft::date_text(run.started.as_deref(), true),
        run.host.release,
        run.host.version,
        run.host.program
    );
    let period = draft::interval(run, Format::Latmus)?;
    for (name, value) in [
        ("sampling period", Some(format!("{period} microseconds"))),
        ("clocksource", run.clock.as_ref().map(|clock| clock.source.clone())),
        ("context", Some("user".to_owned())),
        ("thread priority", thread.scheduling.map(|got| got.priority.to_string())),
        ("thread affinity", Some(format!("CPU{}", thread.cpu))),
        ("duration (hhmmss)", run.lasted.map(clock)),
        ("peak (hhmmss)", thread.max_at.map(clock)),
        ("OVERRUNS", thread.missed.filter(|missed| *missed > 0).map(|missed| missed.to_string())),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "# {name}: {value}");
        }
    }
    Ok(text)
}

/// From the first cell with something in it to the last; what is beyond stands in the last, whose
/// number has a `+`.
fn cells(text: &mut String, linear: &Linear) {
    let known: BTreeMap<u32, u64> = linear.counts.iter().copied().collect();
    let first = known.keys().next().copied().unwrap_or(0);
    let last = known.keys().last().copied();
    let end = last.map_or(0, |last| last + 1);
    let beyond = linear.buckets.max(end);
    for cell in first..if linear.over > 0 { beyond } else { end } {
        let _ = writeln!(text, "{cell} {}", known.get(&cell).copied().unwrap_or(0));
    }
    if linear.over > 0 {
        let _ = writeln!(text, "{beyond}+ {}", linear.over);
    }
}
