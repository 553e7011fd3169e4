//! What is handed to a Prometheus: sums as series, once as text and once with native histograms.
//!
//! # Source
//! The OpenMetrics specification, version 1.0; Prometheus' `metrics.proto` (io.prometheus.client), whose native histograms no text
//! of OpenMetrics 1.0 can hold.

use crate::{Collector, FarmQuestion, Result};
use quiet_types::{Histogram, histogram::upper_of};
use std::{collections::BTreeMap, fmt::Write};

/// In which form a scraper wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsForm {
    /// OpenMetrics: classic histograms.
    Text,
    /// Messages of Prometheus' protocol, each with its length before it: classic and native histograms in one.
    Messages,
}

impl MetricsForm {
    /// By what a scraper says that it takes (the header `Accept`): messages where it names them first, else text.
    pub fn of(accept: &str) -> MetricsForm {
        let first = accept.split(',').next().unwrap_or_default();
        let wanted = first.contains("application/vnd.google.protobuf")
            && first.contains("io.prometheus.client.MetricFamily")
            && first.contains("delimited");
        if wanted { MetricsForm::Messages } else { MetricsForm::Text }
    }

    /// What an answer calls itself.
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsForm::Text => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsForm::Messages => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

type Labels = Vec<(String, String)>;

/// What has one name.
struct Family {
    name: &'static str,
    unit: &'static str,
    series: Series,
}

enum Series {
    Histogram(Vec<(Labels, Histogram)>),
    /// In nanoseconds, shown in seconds.
    Gauge(Vec<(Labels, u64)>),
    Counter(Vec<(Labels, u64)>),
}

impl Collector {
    /// The sums of a question as OpenMetrics: by group a classic histogram, its true maximum as a series of its own, expected, late and
    /// missed periods; when each machine was heard last.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn openmetrics(&self, question: &FarmQuestion, now: i64) -> Result<String> {
        Ok(text(&self.families(question, now)?))
    }

    /// The same in either form.
    ///
    /// # Errors
    /// As [`Collector::openmetrics`].
    pub fn metrics(&self, question: &FarmQuestion, now: i64, form: MetricsForm) -> Result<Vec<u8>> {
        let families = self.families(question, now)?;
        Ok(match form {
            MetricsForm::Text => text(&families).into_bytes(),
            MetricsForm::Messages => families.iter().flat_map(message).collect(),
        })
    }

    fn families(&self, question: &FarmQuestion, now: i64) -> Result<Vec<Family>> {
        let (answer, sums) = self.ask_sums(question, now)?;
        let labels = |name: &[String], probe: &str| -> Labels {
            let by = answer.by.iter().cloned().zip(name.iter().cloned());
            by.chain([("probe".to_owned(), probe.to_owned())]).collect()
        };
        let all: Vec<(Labels, Histogram)> =
            sums.into_iter().map(|((name, probe), all)| (labels(&name, &probe), all)).collect();
        let maxima = all.iter().filter_map(|(labels, all)| Some((labels.clone(), all.max?.0)));
        let heard = self.heard()?.into_iter();
        let heard = heard.map(|(host, at)| {
            (vec![("host".to_owned(), host)], u64::try_from(at / 1000).unwrap_or(0) * 1_000_000_000)
        });
        let counted = |of: fn(&quiet_types::farm::FarmGroup) -> u64| {
            let all = answer.groups.iter();
            Series::Counter(all.map(|g| (labels(&g.name, &g.probe), of(g))).collect())
        };
        let family = |name, unit, series| Family { name, unit, series };
        Ok(vec![
            family("quietcores_latency_max_seconds", "seconds", Series::Gauge(maxima.collect())),
            family("quietcores_latency_seconds", "seconds", Series::Histogram(all)),
            family("quietcores_expected_periods", "", counted(|group| group.expected)),
            family("quietcores_late_periods", "", counted(|group| group.late)),
            family("quietcores_missed_periods", "", counted(|group| group.missed)),
            family("quietcores_heard_timestamp_seconds", "seconds", Series::Gauge(heard.collect())),
        ])
    }

    fn heard(&self) -> Result<Vec<(String, i64)>> {
        let mut all = self.db.prepare("select name, newest from hosts order by name")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// Readings at or below each edge of the classic histogram, edges in ns; beyond the last one there may be more.
pub fn classic(all: &Histogram) -> Vec<(u64, u64)> {
    let mut below = 0;
    let mut buckets = all.buckets.iter().peekable();
    edges()
        .map(|edge| {
            while let Some((_, n)) = buckets.next_if(|(lower, _)| upper_of(*lower) <= edge + 1) {
                below += n;
            }
            (edge, below)
        })
        .collect()
}

/// Inclusive upper edges of the classic histogram, in ns, from 1 us to 1 s: four a doubling, each the end of buckets of ours, so that
/// counts are exact.
fn edges() -> impl Iterator<Item = u64> {
    (10..30u32).flat_map(|octave| {
        (0..4).map(move |part| (1u64 << octave) + part * (1 << (octave - 2)) - 1)
    })
}

fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        let name = family.name;
        let kind = match family.series {
            Series::Histogram(_) => "histogram",
            Series::Gauge(_) => "gauge",
            Series::Counter(_) => "counter",
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if !family.unit.is_empty() {
            let _ = writeln!(text, "# UNIT {name} {}", family.unit);
        }
        match &family.series {
            Series::Histogram(all) => {
                for (labels, all) in all {
                    let labels = braced(labels);
                    for (edge, below) in classic(all) {
                        let edge = seconds(edge);
                        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{edge}\"}} {below}");
                    }
                    let count = all.count;
                    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
                    let _ = writeln!(text, "{name}_count{{{labels}}} {count}");
                    let _ = writeln!(text, "{name}_sum{{{labels}}} {}", seconds(all.sum.0));
                }
            }
            Series::Gauge(all) => {
                for (labels, ns) in all {
                    let _ = writeln!(text, "{name}{{{}}} {}", braced(labels), seconds(*ns));
                }
            }
            Series::Counter(all) => {
                for (labels, n) in all {
                    let _ = writeln!(text, "{name}_total{{{}}} {n}", braced(labels));
                }
            }
        }
    }
    text + "# EOF\n"
}

fn braced(labels: &Labels) -> String {
    let one = |(name, value): &(String, String)| format!("{name}=\"{}\"", escaped(value));
    labels.iter().map(one).collect::<Vec<_>>().join(",")
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

/// Buckets a doubling of a native histogram are 2 to this: as fine as ours or finer would say more than was kept.
const SCHEMA: i32 = 5;

/// A native histogram's buckets by index. Bucket i holds what is above 2^((i-1)/32) s and not above 2^(i/32) s. What a bucket of ours
/// holds is counted at its largest value: a quantile is at most 1/64 and one bucket too large, and never too small. Second: how many are 0.
fn native(all: &Histogram) -> (BTreeMap<i32, u64>, u64) {
    let index = |ns: u64| {
        let parts = f64::from(1 << SCHEMA);
        ((ns as f64 / 1e9).log2() * parts).ceil() as i32
    };
    let mut buckets: BTreeMap<i32, u64> = BTreeMap::new();
    let mut none = 0;
    let most = all.max.map_or(u64::MAX, |max| max.0);
    for (lower, n) in &all.buckets {
        match (upper_of(*lower) - 1).min(most) {
            0 => none += n,
            ns => *buckets.entry(index(ns)).or_default() += n,
        }
    }
    if all.over > 0 {
        *buckets.entry(index(most)).or_default() += all.over;
    }
    (buckets, none)
}

/// A message of one family, its length before it.
fn message(family: &Family) -> Vec<u8> {
    let mut all = Wire::default();
    let (name, kind) = match family.series {
        // As this protocol has counters.
        Series::Counter(_) => (format!("{}_total", family.name), 0),
        Series::Gauge(_) => (family.name.to_owned(), 1),
        Series::Histogram(_) => (family.name.to_owned(), 4),
    };
    all.bytes(1, name.as_bytes());
    all.number(3, kind);
    let metric = |all: &mut Wire, labels: &Labels, place: u64, value: Wire| {
        let mut metric = Wire::default();
        for (name, value) in labels {
            let mut label = Wire::default();
            label.bytes(1, name.as_bytes());
            label.bytes(2, value.as_bytes());
            metric.bytes(1, &label.0);
        }
        metric.bytes(place, &value.0);
        all.bytes(4, &metric.0);
    };
    match &family.series {
        Series::Counter(each) => {
            for (labels, n) in each {
                let mut value = Wire::default();
                value.double(1, *n as f64);
                metric(&mut all, labels, 3, value);
            }
        }
        Series::Gauge(each) => {
            for (labels, ns) in each {
                let mut value = Wire::default();
                value.double(1, *ns as f64 / 1e9);
                metric(&mut all, labels, 2, value);
            }
        }
        Series::Histogram(each) => {
            for (labels, histogram) in each {
                metric(&mut all, labels, 7, histogram_message(histogram));
            }
        }
    }
    let mut whole = Wire::default();
    whole.varint(all.0.len() as u64);
    whole.0.extend(all.0);
    whole.0
}

fn histogram_message(all: &Histogram) -> Wire {
    let mut value = Wire::default();
    value.number(1, all.count);
    value.double(2, all.sum.0 as f64 / 1e9);
    let mut last = 0;
    for (edge, below) in classic(all) {
        // Those that add nothing can be left out, but for the first.
        if below != last || edge < 1024 {
            let mut bucket = Wire::default();
            bucket.number(1, below);
            bucket.double(2, edge as f64 / 1e9);
            value.bytes(3, &bucket.0);
        }
        last = below;
    }
    let (buckets, none) = native(all);
    value.zigzag(5, i64::from(SCHEMA));
    value.double(6, 1e-9 / 2.0);
    value.number(7, none);
    // Runs of neighbouring buckets: how far from the last one, how many; then counts as differences.
    let mut spans: Vec<(i32, u64)> = Vec::new();
    let mut next = 0;
    for index in buckets.keys() {
        match spans.last_mut() {
            Some(span) if *index == next => span.1 += 1,
            _ => spans.push((*index - next, 1)),
        }
        next = index + 1;
    }
    for (offset, length) in spans {
        let mut span = Wire::default();
        span.zigzag(1, i64::from(offset));
        span.number(2, length);
        value.bytes(12, &span.0);
    }
    let mut before = 0;
    for n in buckets.values() {
        value.zigzag(13, *n as i64 - before);
        before = *n as i64;
    }
    value
}

/// Protocol Buffers' encoding, as much as is needed (protobuf.dev, "Encoding").
#[derive(Default)]
struct Wire(Vec<u8>);

impl Wire {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn number(&mut self, field: u64, n: u64) {
        self.varint(field << 3);
        self.varint(n);
    }

    fn zigzag(&mut self, field: u64, n: i64) {
        self.number(field, ((n << 1) ^ (n >> 63)) as u64);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trust, example::record};
    use quiet_types::Nanos;

    fn collector() -> (Collector, FarmQuestion, quiet_types::farm::FarmRecord) {
        let mut collector = Collector::in_memory(Trust::FirstKey).unwrap();
        let mut batch = collector.batch().unwrap();
        let one = record("a", 1_700_006_400, 500);
        batch.take_copied(&one).unwrap();
        batch.commit().unwrap();
        let by = ["host".to_owned(), "kernel".to_owned()];
        (collector, FarmQuestion::parse(&[], &by, 19_700).unwrap(), one)
    }

    /// Fields of a message, as they come: number, and what varints, eight bytes or lengths hold.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut n = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                n |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return n;
                }
            }
            n
        }
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let (number, within) = match key & 7 {
                0 => (varint(&mut bytes), 0),
                1 => (u64::from_le_bytes(bytes[..8].try_into().unwrap()), 8),
                _ => {
                    let length = varint(&mut bytes) as usize;
                    (0, length)
                }
            };
            all.push((key >> 3, number, bytes[..within].to_vec()));
            bytes = &bytes[within..];
        }
        all
    }

    #[test]
    fn a_native_histogram_holds_every_reading_no_lower_than_it_was() {
        let (collector, question, one) = collector();
        let bytes = collector.metrics(&question, 1_700_006_400_000, MetricsForm::Messages).unwrap();
        // Each family, its length before it: read as one message whose fields have no numbers.
        let mut rest = &bytes[..];
        let mut families = Vec::new();
        while !rest.is_empty() {
            let (mut length, mut at) = (0usize, 0);
            loop {
                length |= usize::from(rest[at] & 0x7f) << (7 * at);
                at += 1;
                if rest[at - 1] < 0x80 {
                    break;
                }
            }
            families.push(fields(&rest[at..at + length]));
            rest = &rest[at + length..];
        }
        assert_eq!(families.len(), 6);
        let of = |name: &str| {
            let family = families.iter().find(|family| family[0].2 == name.as_bytes()).unwrap();
            fields(&family.last().unwrap().2)
        };
        let counter = of("quietcores_late_periods_total");
        assert_eq!(f64::from_bits(fields(&counter.last().unwrap().2)[0].1), 1.0);
        let max = of("quietcores_latency_max_seconds");
        assert_eq!(f64::from_bits(fields(&max.last().unwrap().2)[0].1), 0.0015);
        let metric = of("quietcores_latency_seconds");
        assert_eq!(metric[0].2[2..], *b"host\x12\x01a");
        let histogram = fields(&metric.last().unwrap().2);
        let zigzag = |n: u64| (n >> 1) as i64 ^ -((n & 1) as i64);
        assert_eq!((histogram[0].0, histogram[0].1), (1, 501));
        let schema = histogram.iter().find(|field| field.0 == 5).unwrap();
        assert_eq!(zigzag(schema.1), i64::from(SCHEMA));
        let mut indices = Vec::new();
        let mut next = 0;
        for span in histogram.iter().filter(|field| field.0 == 12) {
            let span = fields(&span.2);
            next += zigzag(span[0].1);
            for _ in 0..span[1].1 {
                indices.push(next);
                next += 1;
            }
        }
        let mut counts = Vec::new();
        let mut last = 0;
        for delta in histogram.iter().filter(|field| field.0 == 13) {
            last += zigzag(delta.1);
            counts.push(last as u64);
        }
        assert_eq!(indices.len(), counts.len());
        assert_eq!(counts.iter().sum::<u64>(), 501);
        for share in [0.01, 0.5, 0.99, 0.999, 1.0] {
            let mut left = (share * 501.0_f64).ceil() as u64;
            let at = counts.iter().position(|n| {
                let found = left <= *n;
                left = left.saturating_sub(*n);
                found
            });
            let upper = 2f64.powf(indices[at.unwrap()] as f64 / 32.0) * 1e9;
            let truth = one.readings.percentile(share).unwrap().0 as f64;
            assert!(upper >= truth * 0.999_999 && upper < truth * 1.04, "{share}: {upper} {truth}");
        }
    }

    #[test]
    fn who_asks_for_messages_first_gets_them() {
        let proto = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6";
        let text = "application/openmetrics-text;version=1.0.0;q=0.5";
        assert_eq!(MetricsForm::of(&format!("{proto},{text}")), MetricsForm::Messages);
        assert_eq!(MetricsForm::of(&format!("{text},{proto}")), MetricsForm::Text);
        assert_eq!(MetricsForm::of("*/*"), MetricsForm::Text);
        assert_eq!(MetricsForm::of(""), MetricsForm::Text);
    }

    #[test]
    fn metrics_hold_exact_counts_and_the_true_maximum() {
        let (collector, question, one) = collector();
        let text = collector.openmetrics(&question, 1_700_006_400_000).unwrap();
        let labels = "host=\"a\",kernel=\"6.18.4-rt\",probe=\"blocks\"";
        for line in [
            format!("quietcores_latency_seconds_count{{{labels}}} 501"),
            format!("quietcores_latency_max_seconds{{{labels}}} 0.0015"),
            format!("quietcores_late_periods_total{{{labels}}} 1"),
            "quietcores_heard_timestamp_seconds{host=\"a\"} 1700006400.0".to_owned(),
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
}
