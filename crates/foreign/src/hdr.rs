//! HdrHistogram logs, V2: one histogram a line, compressed and in base64. Values are nanoseconds;
//! a tag `cpu3` says whose they are, and histograms of one tag are added.
//!
//! # Source
//! HdrHistogram's `HistogramLogWriter`; RFC 4648 for base64.

use super::{ForeignError, Format, Result, draft};
use hdrhistogram::serialization::{
    Deserializer, V2DeflateSerializer,
    interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag},
};
use quiet_types::{Finding, Histogram, Nanos, Run, Severity};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

/// Three digits: finer than our own buckets.
const DIGITS: u8 = 3;

pub(super) fn read(text: &str) -> Result<Run> {
    let mut run = draft::run(Format::Hdr, "HdrHistogram", draft::WAKEUP, Nanos(1));
    let mut all: BTreeMap<u32, Histogram> = BTreeMap::new();
    for (number, entry) in IntervalLogIterator::new(text.as_bytes()).enumerate() {
        let entry = entry
            .map_err(|_| ForeignError::whole("a line is none of a V2 log: is it cut short?"))?;
        match entry {
            LogEntry::StartTime(since) | LogEntry::BaseTime(since) => {
                run.started = Some(moment(since));
            }
            LogEntry::Interval(interval) => {
                let wrong =
                    |why: &str| ForeignError::whole(format!("histogram {}: {why}", number + 1));
                let bytes = from_base64(interval.encoded_histogram())
                    .ok_or_else(|| wrong("it is no base64"))?;
                let one: hdrhistogram::Histogram<u64> = Deserializer::new()
                    .deserialize(&mut bytes.as_slice())
                    .map_err(|_| wrong("it is no compressed V2 histogram"))?;
                let end = interval.start_timestamp().saturating_add(interval.duration());
                let end = Nanos(end.as_nanos().min(1 << 62) as u64);
                run.lasted = run.lasted.max(Some(end).filter(|end| *end > Nanos::ZERO));
                let digits = |tag: Tag| {
                    tag.as_str().trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
                };
                let cpu: u32 = interval.tag().and_then(digits).unwrap_or(0);
                if all.len() > draft::MOST_THREADS {
                    return Err(wrong("more tags than any machine has CPUs"));
                }
                all.entry(cpu).or_default().merge(&native(&one));
            }
        }
    }
    run.findings.push(
        Finding::new(
            Severity::Note,
            "import.unit",
            "a log does not say its unit: its values are taken as nanoseconds",
        )
        .effect("a log in microseconds shows a thousandth of its latencies"),
    );
    for (cpu, readings) in all {
        run.threads.push(draft::thread(cpu, readings, None));
    }
    draft::finish(run, text)
}

fn moment(since: Duration) -> String {
    let most = Duration::from_secs(1 << 34);
    let at = SystemTime::UNIX_EPOCH.checked_add(since.min(most));
    humantime::format_rfc3339_millis(at.unwrap_or(SystemTime::UNIX_EPOCH)).to_string()
}

fn native(one: &hdrhistogram::Histogram<u64>) -> Histogram {
    let ranges: Vec<(u64, u64, u64)> = one
        .iter_recorded()
        .map(|step| {
            let value = step.value_iterated_to();
            let (lower, upper) = (one.lowest_equivalent(value), one.next_non_equivalent(value));
            (lower, upper, step.count_since_last_iteration())
        })
        .collect();
    let sum: u128 = ranges
        .iter()
        .map(|(lower, upper, n)| u128::from(lower + (upper - lower) / 2) * u128::from(*n))
        .sum();
    if one.is_empty() {
        return Histogram::default();
    }
    let (min, max) = (one.min_nz().min(one.min().max(1)), one.max());
    let min = if one.min() == 0 { 0 } else { one.lowest_equivalent(min) };
    let max = one.highest_equivalent(max);
    let sum = Nanos(sum.min(1 << 62) as u64);
    Histogram::from_ranges(ranges, 0, Some(Nanos(min)), Some(Nanos(max)), sum)
}

pub(super) fn write(run: &Run) -> Result<String> {
    let mut serializer = V2DeflateSerializer::new();
    let mut text = Vec::new();
    let start = run.started.as_deref().and_then(|at| humantime::parse_rfc3339_weak(at).ok());
    let failed = |why: String| ForeignError::whole(format!("the log cannot be made: {why}"));
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(&format!(
        "quietcores {} run {}, values in nanoseconds",
        run.host.program, run.id
    ));
    if let Some(start) = start {
        builder.with_start_time(start).with_base_time(start);
    }
    builder.with_max_value_divisor(1e3);
    let mut log = builder
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| failed(error.to_string()))?;
    for thread in &run.threads {
        let mut one =
            hdrhistogram::Histogram::<u64>::new(DIGITS).map_err(|e| failed(e.to_string()))?;
        let all = &thread.readings;
        let mut put = |value: u64, count: u64| {
            one.record_n(value, count).map_err(|error| failed(error.to_string()))
        };
        let last = all.buckets.len().saturating_sub(1);
        for (at, &(lower, count)) in all.buckets.iter().enumerate() {
            let middle = Nanos(lower + (quiet_types::histogram::upper_of(lower) - lower - 1) / 2);
            let (min, max) = (all.min.unwrap_or(middle), all.max.unwrap_or(middle));
            // The extremes themselves, so that the log's are exact to its own digits.
            let first = u64::from(at == 0).min(count);
            let final_one = u64::from(at == last && all.over == 0).min(count - first);
            put(min.0, first)?;
            put(max.0, final_one)?;
            put(middle.clamp(min, max).0, count - first - final_one)?;
        }
        if let Some(max) = all.max {
            put(max.0, all.over)?;
        }
        let tag = format!("cpu{}", thread.cpu);
        log.write_histogram(
            &one,
            Duration::ZERO,
            // A log has an interval for each histogram: zero where it is not known, as we read it.
            Duration::from_nanos(run.lasted.map_or(0, |lasted| lasted.0)),
            Tag::new(&tag),
        )
        .map_err(|error| failed(format!("{error:?}")))?;
    }
    drop(log);
    String::from_utf8(text).map_err(|error| failed(error.to_string()))
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut held, mut bits) = (0u32, 0);
    for c in text.bytes() {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}
