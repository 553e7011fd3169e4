//! What the page of a farm is drawn from, and what is handed to a Prometheus.

use crate::{Collector, FarmQuestion, Result, collector::DAY, day_text};
use quiet_types::farm::{FarmWall, WallMachine};
use std::{collections::BTreeMap, fmt::Write};

/// Days that are drawn; the newest.
const DRAWN: i64 = 30;
/// Kept records of a machine.
const KEPT: usize = 20;

impl Collector {
    /// The wall of the machines that a question chooses, the worst first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn wall(&self, question: &FarmQuestion, now: i64) -> Result<FarmWall> {
        let answer = self.ask(question, now)?;
        let (each, abouts) = self.ask_machines(&question.by_host(), now)?;
        let last = self
            .db
            .query_row("select max(day) from days", [], |row| row.get::<_, Option<i64>>(0))?;
        let last = last.unwrap_or(now / DAY);
        let days: Vec<String> = (last - DRAWN + 1..=last).map(day_text).collect();
        let place: BTreeMap<&str, usize> =
            days.iter().enumerate().map(|(at, day)| (day.as_str(), at)).collect();
        let mut machines: BTreeMap<String, WallMachine> = BTreeMap::new();
        for group in each.groups {
            let host = group.name.first().cloned().unwrap_or_default();
            let machine = machines.entry(host.clone()).or_default();
            machine.about.host = host;
            let course: Vec<_> = group
                .days
                .into_iter()
                .filter_map(|day| Some((*place.get(day.day.as_str())?, day)))
                .collect();
            if !course.is_empty() {
                machine.courses.push((group.probe, course));
            }
        }
        let mut all = Vec::new();
        for (host, mut machine) in machines {
            machine.about = abouts.get(&host).cloned().unwrap_or(machine.about);
            machine.kept = self.kept_of(&host, KEPT)?;
            // What plays comes first, since it is what the wall is looked at for.
            machine.courses.sort_by_key(|(probe, course)| {
                (probe != "blocks", std::cmp::Reverse(course.len()))
            });
            all.push(machine);
        }
        let bad =
            |m: &WallMachine| (m.about.late_share.unwrap_or(0.0), m.about.p99_9.map_or(0, |t| t.0));
        all.sort_by(|a, b| bad(b).partial_cmp(&bad(a)).unwrap_or(std::cmp::Ordering::Equal));
        Ok(FarmWall { answer, days, machines: all })
    }

    /// The sums of a question as OpenMetrics: by group a classic histogram, its true maximum as a series of its own, expected, late and
    /// missed periods; when each machine was heard last.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn openmetrics(&self, question: &FarmQuestion, now: i64) -> Result<String> {
        let (answer, sums) = self.ask_sums(question, now)?;
        let mut text = String::new();
        let labels = |name: &[String], probe: &str| {
            let mut all: Vec<String> = answer
                .by
                .iter()
                .zip(name)
                .map(|(by, value)| format!("{by}=\"{}\"", escaped(value)))
                .collect();
            all.push(format!("probe=\"{}\"", escaped(probe)));
            all.join(",")
        };
        text += "# TYPE quietcores_latency_seconds histogram\n# UNIT quietcores_latency_seconds seconds\n";
        for ((name, probe), all) in &sums {
            let labels = labels(name, probe);
            let mut below = 0;
            let mut buckets = all.buckets.iter().peekable();
            for edge in edges() {
                while let Some((_, n)) = buckets
                    .next_if(|(lower, _)| quiet_types::histogram::upper_of(*lower) <= edge + 1)
                {
                    below += n;
                }
                let _ = writeln!(
                    text,
                    "quietcores_latency_seconds_bucket{{{labels},le=\"{}\"}} {below}",
                    seconds(edge)
                );
            }
            let _ = writeln!(
                text,
                "quietcores_latency_seconds_bucket{{{labels},le=\"+Inf\"}} {}",
                all.count
            );
            let _ = writeln!(text, "quietcores_latency_seconds_count{{{labels}}} {}", all.count);
            let _ =
                writeln!(text, "quietcores_latency_seconds_sum{{{labels}}} {}", seconds(all.sum.0));
        }
        text += "# TYPE quietcores_latency_max_seconds gauge\n# UNIT quietcores_latency_max_seconds seconds\n";
        for ((name, probe), all) in &sums {
            if let Some(max) = all.max {
                let _ = writeln!(
                    text,
                    "quietcores_latency_max_seconds{{{}}} {}",
                    labels(name, probe),
                    seconds(max.0)
                );
            }
        }
        for what in ["expected", "late", "missed"] {
            let _ = writeln!(text, "# TYPE quietcores_{what}_periods counter");
            for group in &answer.groups {
                let n = match what {
                    "expected" => group.expected,
                    "late" => group.late,
                    _ => group.missed,
                };
                let _ = writeln!(
                    text,
                    "quietcores_{what}_periods_total{{{}}} {n}",
                    labels(&group.name, &group.probe)
                );
            }
        }
        text += "# TYPE quietcores_heard_timestamp_seconds gauge\n# UNIT quietcores_heard_timestamp_seconds seconds\n";
        for (host, newest) in self.heard()? {
            let _ = writeln!(
                text,
                "quietcores_heard_timestamp_seconds{{host=\"{}\"}} {}",
                escaped(&host),
                newest / 1000
            );
        }
        text += "# EOF\n";
        Ok(text)
    }

    fn heard(&self) -> Result<Vec<(String, i64)>> {
        let mut all = self.db.prepare("select name, newest from hosts order by name")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// Inclusive upper edges of the classic histogram, in ns, from 1 us to 1 s: four a doubling, each the end of buckets of ours, so that
/// counts are exact.
fn edges() -> impl Iterator<Item = u64> {
    (10..30u32).flat_map(|octave| {
        (0..4).map(move |part| (1u64 << octave) + part * (1 << (octave - 2)) - 1)
    })
}

/// ns as seconds, exactly.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let text = text.trim_end_matches('0');
    if text.ends_with('.') { format!("{text}0") } else { text.to_owned() }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trust, example::record};
    use quiet_types::Nanos;

    #[test]
    fn metrics_hold_exact_counts_and_the_true_maximum() {
        let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
        let mut batch = collector.batch().unwrap();
        let one = record("a", 1_700_006_400, 500);
        batch.take_copied(&one).unwrap();
        batch.commit().unwrap();
        let question =
            FarmQuestion::parse(&[], &["host".to_owned(), "kernel".to_owned()], 19_700).unwrap();
        let text = collector.openmetrics(&question, 1_700_006_400_000).unwrap();
        let labels = "host=\"a\",kernel=\"6.18.4-rt\",probe=\"blocks\"";
        for line in [
            format!("quietcores_latency_seconds_count{{{labels}}} 501"),
            format!("quietcores_latency_max_seconds{{{labels}}} 0.0015"),
            format!("quietcores_late_periods_total{{{labels}}} 1"),
            "quietcores_heard_timestamp_seconds{host=\"a\"} 1700006400".to_owned(),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let mut last = 0;
        let mut bounds = 0;
        for line in text.lines().filter(|line| line.contains("_bucket")) {
            let edge = line.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
            let n: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(n >= last);
            last = n;
            if let Ok(edge) = edge.parse::<f64>() {
                let edge = (edge * 1e9).round() as u64;
                let truth: u64 = one.readings.count - one.readings.above(Nanos(edge));
                assert_eq!(n, truth, "{line}");
                bounds += 1;
            }
        }
        // The last one is +Inf, which is a number too.
        assert_eq!((bounds, last), (81, 501));
    }

    #[test]
    fn a_wall_has_every_machine_with_its_days() {
        let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
        let mut batch = collector.batch().unwrap();
        for day in 0..3 {
            batch.take_copied(&record("a", 1_700_006_400 + day * 86_400, 50)).unwrap();
        }
        batch.take_copied(&record("b", 1_700_006_400, 5)).unwrap();
        batch.commit().unwrap();
        let question = FarmQuestion::parse(&[], &[], 19_700).unwrap();
        let wall = collector.wall(&question, 1_700_200_000_000).unwrap();
        let told: Vec<(&str, usize)> =
            wall.machines.iter().map(|m| (m.about.host.as_str(), m.courses[0].1.len())).collect();
        assert_eq!(told, [("b", 1), ("a", 3)]);
        assert_eq!(wall.days.len(), 30);
    }
}
