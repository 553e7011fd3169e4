//! The `--json` of rt-tests: cyclictest and oslat; of the other tools their extremes.
//!
//! cyclictest's keys are lower edges, oslat's upper ones (its first bucket is `1`). cyclictest
//! counts readings beyond its scale nowhere: they are `cycles` less what its buckets hold. Two
//! keys of the head contain a colon, and `cmdline` is written without escapes: a quote in an
//! argument makes no JSON, and is read all the same.
//!
//! # Source
//! rt-tests `src/lib/rt-utils.c` `rt_write_json`, `src/cyclictest/cyclictest.c`, `src/oslat/oslat.c`.

use super::{
    ForeignError, Format, Result,
    cyclictest::{extremes, summary_only},
    draft,
};
use quiet_types::{
    Histogram, Nanos, Run,
    histogram::Linear,
    machine::Policy,
    run::{Measured, MeasuringThread},
};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap, fmt::Write};

const US: Nanos = Nanos(1000);

/// The fields of the head, in their order, that a run has no room for.
const SAID: [&str; 10] = [
    "file_version",
    "cmdline:",
    "rt_test_version:",
    "start_time",
    "end_time",
    "return_code",
    "sysname",
    "version",
    "realtime",
    "num_threads",
];

/// `cmdline` escaped, where it was not.
fn mended(text: &str) -> Cow<'_, str> {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return Cow::Borrowed(text);
    }
    let Some(key) = text.find("\"cmdline") else { return Cow::Borrowed(text) };
    let Some(begin) = text[key..].find(": \"").map(|at| key + at + 3) else {
        return Cow::Borrowed(text);
    };
    // It ends with its line: the next begins with a quoted key.
    let Some(end) = text[begin..].find("\",\n").map(|at| begin + at) else {
        return Cow::Borrowed(text);
    };
    let escaped = serde_json::to_string(&text[begin..end]).unwrap_or_default();
    let escaped = escaped.trim_matches('"').to_owned();
    Cow::Owned(format!("{}{escaped}{}", &text[..begin], &text[end..]))
}

pub(super) fn read(text: &str, format: Format) -> Result<Run> {
    let mended = mended(text);
    let file: Value = serde_json::from_str(&mended).map_err(|error| {
        let why = if error.is_eof() { "it is cut short" } else { "it is no JSON" };
        ForeignError::at(error.line(), format!("{why}: column {}", error.column()))
    })?;
    let oslat = format == Format::OslatJson;
    let probe = if oslat { Measured::Gap } else { draft::WAKEUP };
    let unit = match file["resolution_in_ns"].as_u64() {
        Some(1) => Nanos(1),
        _ => US,
    };
    let command = file["cmdline:"].as_str().or(file["cmdline"].as_str()).unwrap_or_default();
    let version = file["rt_test_version:"].as_str().unwrap_or_default();
    let tool =
        command.split_whitespace().next().unwrap_or(if oslat { "oslat" } else { "cyclictest" });
    let tool = tool.rsplit('/').next().unwrap_or_default();
    let mut run = draft::run(format, format!("{tool} {version}").trim(), probe, unit);
    let system = &file["sysinfo"];
    for name in SAID {
        let value = [&file[name], &system[name]].into_iter().find(|value| !value.is_null());
        if let Some(value) = value {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            draft::say(&mut run, name, value);
        }
    }
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    run.host.name = words(&system["nodename"]);
    run.host.release = words(&system["release"]);
    run.host.version = words(&system["version"]);
    run.host.arch = words(&system["machine"]);
    let date = |name: &str| file[name].as_str().and_then(draft::date);
    run.started = date("start_time");
    let moment = |text: Option<String>| humantime::parse_rfc3339_weak(&text?).ok();
    if let (Some(from), Some(to)) = (moment(date("start_time")), moment(date("end_time"))) {
        // Whole seconds: what began and ended in the same one says nothing of how long it took.
        let lasted = to.duration_since(from).ok().filter(|lasted| !lasted.is_zero());
        run.lasted = lasted.map(|lasted| Nanos(lasted.as_nanos() as u64));
    }
    run.label = command.chars().take(200).collect();
    let named = settings(&mut run, command, oslat);
    let threads = file["thread"].as_object().ok_or_else(|| {
        ForeignError::whole("it has no `thread`: is it the JSON of cyclictest or oslat?")
    })?;
    let mut threads: Vec<(u32, &Value)> = threads
        .iter()
        .map(|(key, thread)| Ok((draft::number(0, "a thread's key", key)?, thread)))
        .collect::<Result<_>>()?;
    threads.sort_by_key(|(index, _)| *index);
    for (index, value) in threads {
        let thread = if oslat {
            oslat_thread(&mut run, index, value, named)?
        } else {
            cyclictest_thread(&mut run, index, value, unit, named)?
        };
        run.threads.push(thread);
    }
    if run.threads.iter().all(|thread| thread.readings.buckets.is_empty()) {
        run.findings.push(summary_only());
    }
    draft::finish(run, text)
}

/// What the command line asked for; nothing without one.
fn settings(run: &mut Run, command: &str, oslat: bool) -> Option<(Policy, u8)> {
    if command.is_empty() {
        return None;
    }
    let number = |short: &str, long: &str| {
        draft::option(command, short, long).and_then(|value| value.parse::<u64>().ok())
    };
    if oslat {
        let priority = number("-f", "--rtprio").unwrap_or(0).min(99) as u8;
        return Some((if priority > 0 { Policy::Fifo } else { Policy::Other }, priority));
    }
    if let Some(us) = number("-i", "--interval").filter(|us| (1..=3_600_000_000).contains(us)) {
        run.spec.probe = Measured::Wakeup { interval: Some(Nanos::from_micros(us)) };
    }
    let priority = number("-p", "--priority").or(number("-p", "--prio")).unwrap_or(0).min(99) as u8;
    let usual = if priority > 0 { Policy::Fifo } else { Policy::Other };
    let policy = draft::option(command, "--policy", "--policy").map_or(usual, draft::policy);
    // A real-time policy without a priority is none that the tool could have had.
    let real_time = matches!(policy, Policy::Fifo | Policy::Rr);
    (priority > 0 || !real_time).then_some((policy, priority))
}

fn wrong(index: u32, why: &str) -> ForeignError {
    ForeignError::whole(format!("thread {index}: {why}"))
}

/// Bucket key and count, with the key made a lower edge.
fn buckets(index: u32, value: &Value, upper: bool) -> Result<BTreeMap<u32, u64>> {
    let mut counts = BTreeMap::new();
    for (key, count) in value.as_object().into_iter().flatten() {
        let key: u64 = draft::number(0, "a bucket's key", key)?;
        let key = if upper { key.checked_sub(1) } else { Some(key) };
        let key = key.and_then(|key| u32::try_from(key).ok()).filter(|key| *key < u32::MAX);
        let (Some(key), Some(count)) = (key, count.as_u64()) else {
            return Err(wrong(index, "a bucket is off any scale, or its count is no number"));
        };
        counts.insert(key, count);
    }
    Ok(counts)
}

fn units(index: u32, value: &Value, name: &str, unit: Nanos) -> Result<Nanos> {
    let value = value[name].as_f64().filter(|v| (0.0..=1e15).contains(v));
    let value = value.ok_or_else(|| wrong(index, &format!("its {name} is missing, or no time")))?;
    Ok(Nanos((value * unit.0 as f64).round() as u64))
}

fn cyclictest_thread(
    run: &mut Run,
    index: u32,
    value: &Value,
    unit: Nanos,
    named: Option<(Policy, u8)>,
) -> Result<MeasuringThread> {
    // The other tools of rt-tests: a sender and a receiver.
    let receiver = &value["receiver"];
    let (value, samples) = match receiver.is_object() {
        true => (receiver, value["sender"]["samples"].as_u64()),
        false => (value, value["cycles"].as_u64()),
    };
    let count = samples.filter(|count| *count < 1 << 50);
    let count = count.ok_or_else(|| wrong(index, "its cycles are missing, or no count"))?;
    let average = value["avg"].as_f64().filter(|v| (0.0..=1e15).contains(v)).unwrap_or(0.0);
    let cpu = value["cpu"].as_u64().and_then(|cpu| u32::try_from(cpu).ok());
    for name in ["cpu", "node"] {
        if let Some(number) = value[name].as_i64() {
            draft::say(run, &format!("thread.{index}.{name}"), number.to_string());
        }
    }
    draft::say(run, &format!("thread.{index}.avg"), format!("{average:.2}"));
    let readings = if count == 0 {
        Histogram::default()
    } else {
        let (min, max) = (units(index, value, "min", unit)?, units(index, value, "max", unit)?);
        if min > max {
            return Err(wrong(index, "its min is above its max"));
        }
        let sum = draft::sum(average, unit.0 as f64, count);
        match value["histogram"].as_object() {
            None => extremes(min, max, sum, count),
            Some(buckets) if buckets.is_empty() => extremes(min, max, sum, count),
            Some(_) => {
                let counts = buckets(index, &value["histogram"], false)?;
                let mut linear = draft::linear(unit, 0, counts, 0);
                let held = draft::total(&linear)?;
                linear.over = count
                    .checked_sub(held)
                    .ok_or_else(|| wrong(index, "its buckets hold more than its cycles"))?;
                Histogram::from_linear(linear, Some(min), Some(max), sum)
            }
        }
    };
    Ok(draft::thread(cpu.unwrap_or(index), readings, named))
}

fn oslat_thread(
    run: &mut Run,
    index: u32,
    value: &Value,
    named: Option<(Policy, u8)>,
) -> Result<MeasuringThread> {
    let counts = buckets(index, &value["histogram"], true)?;
    let cpu = value["cpu"].as_u64().and_then(|cpu| u32::try_from(cpu).ok());
    let average = value["avg"].as_f64().filter(|v| (0.0..=1e15).contains(v)).unwrap_or(0.0);
    for name in ["freq", "avg", "duration"] {
        if let Some(number) = value[name].as_f64() {
            let digits = [("freq", 0), ("avg", 6), ("duration", 3)]
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(0, |(_, digits)| *digits);
            draft::say(run, &format!("thread.{index}.{name}"), format!("{number:.digits$}"));
        }
    }
    let seconds = value["duration"].as_f64().filter(|seconds| *seconds > 0.0);
    run.lasted = run.lasted.max(seconds.map(|s| Nanos((s.min(1e9) * 1e9) as u64)));
    let (min, max) = (units(index, value, "min", US)?, units(index, value, "max", US)?);
    Ok(draft::thread(cpu.unwrap_or(index), gaps(index, counts, average, min, max)?, named))
}

/// oslat's readings: the last bucket holds what is beyond the scale too. `min` and `max` are
/// upper edges of their microsecond.
pub(super) fn gaps(
    index: u32,
    mut counts: BTreeMap<u32, u64>,
    average: f64,
    min: Nanos,
    max: Nanos,
) -> Result<Histogram> {
    let last = counts.keys().last().copied();
    let mut over = 0;
    if let Some(last) = last.filter(|last| max.0 > (u64::from(*last) + 1) * 1000) {
        over = counts.remove(&last).unwrap_or(0);
        counts.insert(last, 0);
    }
    let scale = last.map_or(0, |last| last + 1);
    let linear = Linear { over, ..draft::linear(US, scale, counts, 0) };
    let count = draft::total(&linear)?;
    if min > max {
        return Err(wrong(index, "its minimum is above its maximum"));
    }
    let min = Nanos(min.0.saturating_sub(1000));
    Ok(Histogram::from_linear(linear, Some(min), Some(max), draft::sum(average, 1e3, count)))
}

pub(super) fn write(run: &Run, format: Format) -> String {
    let own = run.origin.as_ref().filter(|origin| origin.format == format.name());
    let said = |name: &str| own.and_then(|origin| origin.said(name)).map(str::to_owned);
    let oslat = format == Format::OslatJson;
    let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let command = said("cmdline:").unwrap_or_else(|| {
        let tool = if oslat { "oslat" } else { "cyclictest" };
        format!("{tool} (exported by quietcores {}, run {})", run.host.program, run.id)
    });
    let version = said("rt_test_version:").unwrap_or_else(|| "2.40".to_owned());
    let start =
        said("start_time").unwrap_or_else(|| draft::date_text(run.started.as_deref(), false));
    let end =
        said("end_time").unwrap_or_else(|| draft::date_text(draft::end(run).as_deref(), false));
    let or = |name: &str, usual: &str| said(name).unwrap_or_else(|| usual.to_owned());
    let realtime = if run.host.version.contains("PREEMPT_RT") { "1" } else { "0" };
    let mut text = format!(
        "{{\n  \"file_version\": {},\n  \"cmdline:\": {},\n  \"rt_test_version:\": {},\n  \
         \"start_time\": {},\n  \"end_time\": {},\n  \"return_code\": {},\n  \"sysinfo\": {{\n    \
         \"sysname\": {},\n    \"nodename\": {},\n    \"release\": {},\n    \"version\": {},\n    \
         \"machine\": {},\n    \"realtime\": {}\n  }},\n  \"num_threads\": {},\n",
        or("file_version", "1"),
        quoted(&command),
        quoted(&version),
        quoted(&start),
        quoted(&end),
        or("return_code", "0"),
        quoted(&or("sysname", "Linux")),
        quoted(&run.host.name),
        quoted(&run.host.release),
        quoted(&run.host.version),
        quoted(&run.host.arch),
        or("realtime", realtime),
        run.threads.len(),
    );
    let unit = if own.is_some() && run.resolution() == Nanos(1) { Nanos(1) } else { US };
    if !oslat {
        let _ = writeln!(text, "  \"resolution_in_ns\": {},", u8::from(unit == Nanos(1)));
    }
    text.push_str("  \"thread\": {\n");
    for (index, thread) in run.threads.iter().enumerate() {
        let said = |name: &str| said(&format!("thread.{index}.{name}"));
        let _ = writeln!(text, "    \"{index}\": {{");
        if oslat {
            text.push_str(&oslat_text(run, thread, &said));
        } else {
            text.push_str(&cyclictest_text(thread, unit, &said));
        }
        text.push_str(if index + 1 < run.threads.len() { "    },\n" } else { "    }\n" });
    }
    text.push_str("  }\n}\n");
    text
}

fn histogram_text(linear: &Linear, upper: bool) -> String {
    let shift = u64::from(upper);
    let mut rows: BTreeMap<u64, u64> =
        linear.counts.iter().map(|(at, count)| (u64::from(*at) + shift, *count)).collect();
    if upper && linear.over > 0 {
        // The last bucket holds what is beyond it too.
        let last = u64::from(linear.buckets.max(1));
        *rows.entry(last).or_insert(0) += linear.over;
    }
    let rows: Vec<String> =
        rows.iter().map(|(at, count)| format!("        \"{at}\": {count}")).collect();
    // Without a histogram the tools print the braces on one line.
    let rows = if rows.is_empty() { String::new() } else { format!("\n{}\n", rows.join(",\n")) };
    format!("      \"histogram\": {{{rows}      }}")
}

fn cyclictest_text(
    thread: &MeasuringThread,
    unit: Nanos,
    said: &dyn Fn(&str) -> Option<String>,
) -> String {
    let all = &thread.readings;
    let whole = |ns: Option<Nanos>| ns.unwrap_or_default().0 / unit.0;
    let mut linear = all.to_linear(unit);
    linear.counts.retain(|(_, count)| *count > 0);
    let mut text = format!("{},\n", histogram_text(&linear, false));
    let average = draft::average(all, unit.0 as f64);
    let average = draft::average_text(said("avg").as_deref(), average, 2);
    let _ = write!(
        text,
        "      \"cycles\": {},\n      \"min\": {},\n      \"max\": {},\n      \"avg\": {average},\n      \
         \"cpu\": {},\n      \"node\": {}\n",
        all.count,
        whole(all.min),
        whole(all.max),
        said("cpu").unwrap_or_else(|| thread.cpu.to_string()),
        said("node").unwrap_or_else(|| "-1".to_owned()),
    );
    text
}

fn oslat_text(
    run: &Run,
    thread: &MeasuringThread,
    said: &dyn Fn(&str) -> Option<String>,
) -> String {
    let all = &thread.readings;
    let average = draft::average(all, 1e3);
    let seconds = said("duration").or_else(|| seconds(run)).unwrap_or_else(|| "null".to_owned());
    let megahertz = said("freq").or_else(|| megahertz(run)).unwrap_or_else(|| "null".to_owned());
    format!(
        "      \"cpu\": {},\n      \"freq\": {megahertz},\n      \"min\": {},\n      \"avg\": {},\n      \
         \"max\": {},\n      \"duration\": {seconds},\n{}\n",
        thread.cpu,
        edge(all.min),
        draft::average_text(said("avg").as_deref(), average, 6),
        all.max.unwrap_or_default().0.div_ceil(1000),
        histogram_text(&all.to_linear(US), true),
    )
}

/// How long it measured, as oslat writes it.
pub(super) fn seconds(run: &Run) -> Option<String> {
    run.lasted.map(|lasted| format!("{:.3}", lasted.as_secs_f64()))
}

/// The counter's rate, as oslat writes it.
pub(super) fn megahertz(run: &Run) -> Option<String> {
    run.clock.as_ref().map(|clock| format!("{:.0}", clock.hertz / 1e6))
}

/// The upper edge of the microsecond in which the least reading lies.
pub(super) fn edge(ns: Option<Nanos>) -> u64 {
    ns.unwrap_or_default().0 / 1000 + 1
}
