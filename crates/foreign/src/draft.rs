//! What every reader needs: an empty run, threads, numbers and dates of foreign files.

use super::{ForeignError, Format, Result};
use quiet_types::{
    CpuId, CpuSet, Finding, Histogram, Nanos, Run, Severity,
    histogram::Linear,
    machine::{Policy, Scheduling},
    printable,
    run::{self, Asked, Host, Measured, MeasuringThread, Origin},
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Buckets beyond it are no scale that a tool of ours would print.
pub(super) const MOST_BUCKETS: u32 = 10_000_000;
/// More threads than any machine that these tools ran on.
pub(super) const MOST_THREADS: usize = 8192;

/// Wake-ups at an interval that the file has not named yet.
pub(super) const WAKEUP: Measured = Measured::Wakeup { interval: None };

/// A run with nothing in it yet: nothing is known of it.
pub(super) fn run(format: Format, program: &str, probe: Measured, resolution: Nanos) -> Run {
    Run {
        schema: run::SCHEMA.to_owned(),
        id: String::new(),
        label: String::new(),
        spec: Asked {
            probe,
            cpus: CpuSet::default(),
            policy: None,
            priority: None,
            length: None,
            threshold: None,
            bucket: None,
            buckets: None,
            idle: None,
            core: None,
        },
        started: None,
        monotonic: None,
        lasted: None,
        interrupted: None,
        partial: false,
        host: Host::default(),
        clock: None,
        threads: Vec::new(),
        stress: None,
        entry: None,
        explained: None,
        cell: None,
        before: run::State::default(),
        after: run::State::default(),
        findings: Vec::new(),
        origin: Some(Origin {
            format: format.name().to_owned(),
            program: program.to_owned(),
            resolution,
            said: Vec::new(),
        }),
    }
}

/// Keeps what the file says besides.
pub(super) fn say(run: &mut Run, name: &str, text: impl Into<String>) {
    if let Some(origin) = &mut run.origin {
        origin.said.push((name.to_owned(), text.into()));
    }
}

/// What the file of this format said; nothing for a run of another origin.
pub(super) fn said<'a>(run: &'a Run, format: Format, name: &str) -> Option<&'a str> {
    run.origin.as_ref().filter(|origin| origin.format == format.name())?.said(name)
}

/// One thread with its readings, and its policy and priority where the file names them.
pub(super) fn thread(
    cpu: u32,
    readings: Histogram,
    named: Option<(Policy, u8)>,
) -> MeasuringThread {
    MeasuringThread {
        cpu: CpuId(cpu),
        scheduling: named.map(|(policy, priority)| Scheduling { policy, priority, nice: 0 }),
        allowed: None,
        slice: None,
        memory_locked: None,
        expected: None,
        obtained: readings.count,
        missed: None,
        readings,
        corrected: None,
        max_at: None,
        beyond: None,
        stolen: None,
        worst: Vec::new(),
        counters: BTreeMap::new(),
        stations: Vec::new(),
    }
}

/// Completes the run: id, CPUs, and what to know about it.
pub(super) fn finish(mut run: Run, text: &str) -> Result<Run> {
    if run.threads.is_empty() {
        return Err(ForeignError::whole("it holds no measuring thread"));
    }
    let format = run.origin.as_ref().map(|origin| origin.format.clone()).unwrap_or_default();
    let tool = format.split('-').next().unwrap_or_default();
    let started = run.started.as_deref().unwrap_or_default();
    let stamp: String = started.chars().filter(char::is_ascii_digit).take(14).collect();
    let when = match stamp.len() {
        14 => format!("{}T{}Z", &stamp[..8], &stamp[8..]),
        _ => "undated".to_owned(),
    };
    run.id = format!("{when}-{tool}-{:08x}", fold(text));
    run.spec.cpus = run.threads.iter().map(|thread| thread.cpu).collect();
    let first = run.threads.first().and_then(|thread| thread.scheduling);
    (run.spec.policy, run.spec.priority) = (first.map(|s| s.policy), first.map(|s| s.priority));
    if run.is_gap() {
        // A clock read that was made is expected; none can be missed.
        for thread in &mut run.threads {
            (thread.expected, thread.missed) = (Some(thread.obtained), Some(0));
        }
    }
    run.findings.push(
        Finding::new(
            Severity::Note,
            "import.claims",
            format!("the settings are those that {tool} claims; nobody read them back"),
        )
        .effect("affinity, policy and idle states may have been others than stated"),
    );
    if run.missed().is_none() {
        run.findings.push(
            Finding::new(
                Severity::Note,
                "import.missed_unknown",
                format!("how many periods were missed is not known: {tool} skips them in silence"),
            )
            .effect("percentiles and averages may look better than they were"),
        );
    }
    let over: u64 = run.threads.iter().map(|thread| thread.readings.over).sum();
    if over > 0 {
        run.findings.push(
            Finding::new(
                Severity::Warning,
                "import.over_scale",
                format!("{over} readings lie beyond the tool's scale"),
            )
            .evidence("counted by it, or the difference of all readings and those in its buckets")
            .effect("each counts as large as the largest: percentiles among them are upper bounds"),
        );
    }
    Ok(run)
}

/// FNV-1a, folded to 32 bits: the same file has the same id.
fn fold(text: &str) -> u32 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 32) as u32 ^ hash as u32
}

/// Equal buckets from counts that rise; the scale ends at `buckets`.
pub(super) fn linear(width: Nanos, buckets: u32, counts: BTreeMap<u32, u64>, over: u64) -> Linear {
    let last = counts.keys().last().map_or(0, |last| last + 1);
    let counts = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    Linear { width, buckets: buckets.max(last), counts, over }
}

/// All counts, refused where they are more than can be counted.
pub(super) fn total(linear: &Linear) -> Result<u64> {
    let add = |sum: u64, count: &u64| sum.checked_add(*count);
    let mut counts = linear.counts.iter().map(|(_, count)| count).chain([&linear.over]);
    counts
        .try_fold(0u64, add)
        .filter(|sum| *sum < 1 << 60)
        .ok_or_else(|| ForeignError::whole("its counts add up to more than can be counted"))
}

/// A whole number, with what it is called.
pub(super) fn number<T: std::str::FromStr>(line: usize, name: &str, text: &str) -> Result<T> {
    text.trim().parse().map_err(|_| {
        ForeignError::at(
            line,
            format!("{name} is `{}`, which is no number of ours", printable(text, 30)),
        )
    })
}

/// A time with a fraction in `unit` ns, as `6.554` us.
pub(super) fn time(line: usize, name: &str, text: &str, unit: f64) -> Result<Nanos> {
    let value: f64 = number(line, name, text)?;
    if !(0.0..=1e18).contains(&(value * unit)) {
        return Err(ForeignError::at(
            line,
            format!("{name} is `{}`: no time", printable(text, 30)),
        ));
    }
    Ok(Nanos((value * unit).round() as u64))
}

/// The sum that an average stands for.
pub(super) fn sum(average: f64, unit: f64, count: u64) -> Nanos {
    Nanos((average * unit * count as f64).clamp(0.0, 1e18).round() as u64)
}

/// The average in units, unrounded.
pub(super) fn average(readings: &Histogram, unit: f64) -> f64 {
    readings.sum.0 as f64 / readings.count.max(1) as f64 / unit
}

/// The average as the tool wrote it where that still is the average, else written anew.
pub(super) fn average_text(kept: Option<&str>, value: f64, digits: usize) -> String {
    let half = 0.51 * 10f64.powi(-(digits as i32));
    match kept.and_then(|text| Some((text, text.parse::<f64>().ok()?))) {
        Some((text, old)) if (old - value).abs() <= half => text.to_owned(),
        _ => format!("{value:.digits$}"),
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Wed Dec 22 11:26:36 2021` (no time zone told: taken as UTC), or `Sun, 22 Nov 2026 01:13:13
/// +0000`, as RFC 3339.
pub(super) fn date(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let (month, day, clock, year, zone) = match words[..] {
        [_, month, day, clock, year] => (month, day, clock, year, "+0000"),
        [_, day, month, year, clock, zone] => (month, day, clock, year, zone),
        _ => return None,
    };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let (day, year): (u32, i32) = (day.parse().ok()?, year.parse().ok()?);
    let local =
        humantime::parse_rfc3339(&format!("{year:04}-{month:02}-{day:02}T{clock}Z")).ok()?;
    let digits = zone.get(1..5)?.parse::<u64>().ok()?;
    let offset = Duration::from_secs((digits / 100 * 60 + digits % 100) * 60);
    let utc = if zone.starts_with('-') { local + offset } else { local.checked_sub(offset)? };
    Some(humantime::format_rfc3339_millis(utc).to_string())
}

/// A moment that we wrote, for another tool's header: `Sun, 22 Nov 2026 01:13:13 +0000`, or in
/// the form of `asctime`.
///
/// Nothing for one that is not known.
pub(super) fn date_text(started: Option<&str>, asctime: bool) -> String {
    let Some(started) = started else { return String::new() };
    let moment = humantime::parse_rfc3339_weak(started).unwrap_or(UNIX_EPOCH);
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let day = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(seconds / 86_400 % 7) as usize];
    let text = humantime::format_rfc3339_seconds(moment).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().unwrap_or(1).clamp(1, 12);
    let (month, year, clock) = (MONTHS[month - 1], part(0, 4), part(11, 19));
    if asctime {
        let date = part(8, 10).trim_start_matches('0');
        format!("{day} {month} {date:>2} {clock} {year}")
    } else {
        format!("{day}, {} {month} {year} {clock} +0000", part(8, 10))
    }
}

/// `started` plus `lasted`, where both are known.
pub(super) fn end(run: &Run) -> Option<String> {
    let moment = humantime::parse_rfc3339_weak(run.started.as_deref()?).ok()?;
    let end: SystemTime = moment.checked_add(Duration::from_nanos(run.lasted?.0))?;
    Some(humantime::format_rfc3339_millis(end).to_string())
}

/// The value of an option in a command line: `-i 200`, `-i200`, `--interval=200`.
pub(super) fn option<'a>(command: &'a str, short: &str, long: &str) -> Option<&'a str> {
    let words: Vec<&str> = command.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        if *word == short || *word == long {
            return words.get(at + 1).copied();
        }
        if let Some(value) = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
        word.strip_prefix(short).filter(|rest| !word.starts_with("--") && !rest.is_empty())
    })
}

/// FIFO, or the policy of this name.
pub(super) fn policy(name: &str) -> Policy {
    match name.trim_start_matches("SCHED_").to_ascii_lowercase().as_str() {
        "rr" => Policy::Rr,
        "other" | "normal" => Policy::Other,
        "batch" => Policy::Batch,
        "idle" => Policy::Idle,
        "deadline" => Policy::Deadline,
        _ => Policy::Fifo,
    }
}

/// The interval of a wakeup run in us, for a format that cannot be written without one.
pub(super) fn interval(run: &Run, format: Format) -> Result<u64> {
    // Gaps have none: what these formats hold of them are distances to a period of a millisecond.
    let interval = if run.is_gap() { Some(Nanos::from_millis(1)) } else { run.interval() };
    let why = format!("{format} names an interval, and this run's is not known: choose csv");
    interval.map(|interval| interval.0 / 1000).ok_or_else(|| ForeignError::whole(why))
}
