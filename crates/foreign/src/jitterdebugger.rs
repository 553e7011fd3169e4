//! jitterdebugger's JSON: `"cpu": {"0": {"histogram": {"3": 3678}, "count", "min", "max", "avg"}}`.
//!
//! Keys are lower edges in us; the scale ends at 1 ms and what is beyond is in no bucket, so it is
//! `count` less what they hold. `"0"` is the number of a thread, not of a CPU.
//!
//! # Source
//! jitterdebugger `jitterdebugger.c`, `dump_stats`.

use super::{ForeignError, Format, Result, draft};
use quiet_types::{CpuSet, Finding, Histogram, Nanos, Run, Severity};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write};

const US: Nanos = Nanos(1000);

pub(super) fn read(text: &str) -> Result<Run> {
    let file: Value = serde_json::from_str(text).map_err(|error| {
        let why = if error.is_eof() { "it is cut short" } else { "it is no JSON" };
        ForeignError::at(error.line(), format!("{why}: column {}", error.column()))
    })?;
    let mut run = draft::run(Format::Jitterdebugger, "jitterdebugger", draft::WAKEUP, US);
    draft::say(&mut run, "version", file["version"].as_u64().unwrap_or(1).to_string());
    let system = &file["sysinfo"];
    let words = |name: &str| system[name].as_str().unwrap_or_default().to_owned();
    (run.host.name, run.host.release) = (words("nodename"), words("release"));
    (run.host.version, run.host.arch) = (words("version"), words("machine"));
    if !system.is_null() {
        draft::say(&mut run, "sysinfo", system.to_string());
    }
    let online: Option<CpuSet> = system["cpus_online"].as_str().and_then(|set| set.parse().ok());
    let threads = file["cpu"].as_object();
    let threads = threads.ok_or_else(|| ForeignError::whole("it has no `cpu`"))?;
    let mut known: Vec<(u32, &Value)> = threads
        .iter()
        .map(|(key, value)| Ok((draft::number(0, "a thread's key", key)?, value)))
        .collect::<Result<_>>()?;
    known.sort_by_key(|(index, _)| *index);
    if online.is_none() {
        run.findings.push(
            Finding::new(
                Severity::Note,
                "import.cpu_unknown",
                "its CPUs are not told: the number of the thread stands in place of the CPU's",
            )
            .evidence("no sysinfo.cpus_online"),
        );
    }
    for (index, value) in known {
        let wrong = |why: &str| ForeignError::whole(format!("thread {index}: {why}"));
        let mut counts = BTreeMap::new();
        for (key, count) in value["histogram"].as_object().into_iter().flatten() {
            let key: u32 = draft::number(0, "a bucket's key", key)?;
            let count = count.as_u64().ok_or_else(|| wrong("a bucket's count is no number"))?;
            if key >= draft::MOST_BUCKETS {
                return Err(wrong("a bucket is off any scale"));
            }
            counts.insert(key, count);
        }
        let count = value["count"].as_u64().filter(|count| *count < 1 << 50);
        let count = count.ok_or_else(|| wrong("its count is missing"))?;
        let mut linear = draft::linear(US, 0, counts, 0);
        let held = draft::total(&linear)?;
        linear.over =
            count.checked_sub(held).ok_or_else(|| wrong("its buckets hold more than its count"))?;
        let unit = |name: &str| {
            let us = value[name].as_u64().filter(|us| *us < 1 << 40);
            us.map(Nanos::from_micros).ok_or_else(|| wrong(&format!("its {name} is no time")))
        };
        let average = value["avg"].as_f64().filter(|v| (0.0..=1e12).contains(v)).unwrap_or(0.0);
        let readings = if count == 0 {
            Histogram::default()
        } else {
            let (min, max) = (unit("min")?, unit("max")?);
            if min > max {
                return Err(wrong("its min is above its max"));
            }
            let sum = draft::sum(average, 1e3, count);
            Histogram::from_linear(linear, Some(min), Some(max), sum)
        };
        draft::say(&mut run, &format!("thread.{index}.avg"), format!("{average:.2}"));
        let cpu = online.as_ref().and_then(|set| set.iter().nth(index as usize));
        let cpu = cpu.map_or(index, |cpu| cpu.0);
        run.threads.push(draft::thread(cpu, readings, None));
    }
    draft::finish(run, text)
}

pub(super) fn write(run: &Run) -> String {
    let said = |name: &str| draft::said(run, Format::Jitterdebugger, name);
    let mut text = format!("{{\n  \"version\": {},\n", said("version").unwrap_or("1"));
    if let Some(system) = said("sysinfo") {
        let _ = writeln!(text, "  \"sysinfo\": {system},");
    }
    text.push_str("  \"cpu\": {\n");
    for (index, thread) in run.threads.iter().enumerate() {
        let all = &thread.readings;
        let rows: Vec<String> = all
            .to_linear(US)
            .counts
            .iter()
            .map(|(at, count)| format!("        \"{at}\": {count}"))
            .collect();
        let us = |ns: Option<Nanos>| ns.unwrap_or_default().0 / 1000;
        let average =
            draft::average_text(said(&format!("thread.{index}.avg")), draft::average(all, 1e3), 2);
        let end = if index + 1 < run.threads.len() { "," } else { "" };
        let rows =
            if rows.is_empty() { String::new() } else { format!("\n{}\n", rows.join(",\n")) };
        let _ = write!(
            text,
            "    \"{index}\": {{\n      \"histogram\": {{{rows}      }},\n      \"count\": {},\n      \
             \"min\": {},\n      \"max\": {},\n      \"avg\": {average}\n    }}{end}\n",
            all.count,
            us(all.min),
            us(all.max),
        );
    }
    text.push_str("  }\n}\n");
    text
}
