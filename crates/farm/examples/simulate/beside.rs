//! The same records as others would keep them: raw files, and series of a Prometheus for a VictoriaMetrics.

use quiet_farm::{
    classic,
    packed::{Adding, take},
};
use quiet_types::{Histogram, farm::FarmRecord};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

/// A counter's readings over the time in which its labels stay: one row of buckets a scrape.
#[derive(Default)]
struct Era {
    cpu: String,
    times: Vec<i64>,
    rows: Vec<u32>,
    last: Vec<u32>,
}

/// Writes both.
pub struct Beside {
    dir: PathBuf,
    eras: BTreeMap<(String, String), Era>,
    files: BTreeMap<String, BufWriter<File>>,
}

impl Beside {
    pub fn new(dir: &Path) -> Beside {
        fs::create_dir_all(dir).unwrap();
        Beside { dir: dir.to_owned(), eras: BTreeMap::new(), files: BTreeMap::new() }
    }

    pub fn take(&mut self, record: &FarmRecord, sealed: &[u8]) {
        let path = self.dir.join(format!("{}.records", record.host));
        let file = self
            .files
            .entry(record.host.clone())
            .or_insert_with(|| BufWriter::with_capacity(16 << 10, File::create(path).unwrap()));
        file.write_all(&(sealed.len() as u32).to_le_bytes()).unwrap();
        file.write_all(sealed).unwrap();
        // As `farm metrics` prints them, with what is beyond.
        let all = record.readings.count;
        let buckets: Vec<u64> =
            classic(&record.readings).into_iter().map(|(_, below)| below).chain([all]).collect();
        let era = self
            .eras
            .entry((record.host.clone(), record.setting.kernel.clone()))
            .or_insert_with(|| Era {
                cpu: record.setting.cpu.clone(),
                last: vec![0; buckets.len()],
                ..Era::default()
            });
        if era.times.last().is_none_or(|last| record.at - last > 300_000) {
            // A counter begins at nothing.
            era.times.push(record.at - 300_000);
            era.rows.extend(&era.last);
        }
        for (below, last) in buckets.into_iter().zip(&mut era.last) {
            *last += u32::try_from(below).unwrap();
        }
        era.times.push(record.at);
        era.rows.extend(&era.last);
    }

    /// Ends the files and writes `series.jsonl`, for VictoriaMetrics' `/api/v1/import`; how many samples are in it.
    pub fn end(mut self) -> u64 {
        for file in self.files.values_mut() {
            file.flush().unwrap();
        }
        let path = self.dir.join("series.jsonl");
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
        let names: Vec<String> = classic(&Histogram::default())
            .into_iter()
            .map(|(edge, _)| format!("{:.9}", (edge + 1) as f64 / 1e9))
            .chain(["+Inf".to_owned()])
            .collect();
        let mut samples = 0;
        for ((host, kernel), era) in &self.eras {
            for (at, le) in names.iter().enumerate() {
                write!(
                    out,
                    "{{\"metric\":{{\"__name__\":\"quietcores_latency_seconds_bucket\",\"host\":\"{host}\",\"kernel\":\"{kernel}\",\
                     \"cpu\":\"{}\",\"chain\":\"guitar\",\"probe\":\"blocks\",\"le\":\"{le}\"}},\"values\":[",
                    era.cpu
                )
                .unwrap();
                let mut comma = "";
                for row in era.rows.chunks(names.len()) {
                    write!(out, "{comma}{}", row[at]).unwrap();
                    comma = ",";
                }
                out.write_all(b"],\"timestamps\":[").unwrap();
                comma = "";
                for time in &era.times {
                    write!(out, "{comma}{time}").unwrap();
                    comma = ",";
                }
                out.write_all(b"]}\n").unwrap();
                samples += era.times.len() as u64;
            }
        }
        out.flush().unwrap();
        samples
    }
}

/// The question from the raw files: histograms by kernel of the records since then, added up. Signatures are not looked at.
pub fn by_kernel(dir: &Path, since: i64) -> BTreeMap<String, Histogram> {
    let mut sums: BTreeMap<String, Adding> = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "records") {
            continue;
        }
        let all = fs::read(path).unwrap();
        let mut rest = &all[..];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (one, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            rest = after;
            let mut part = &one[4..];
            let length = take(&mut part).unwrap() as usize;
            let (head, mut part) = part.split_at(length);
            let head: FarmRecord = serde_json::from_slice(head).unwrap();
            if head.at < since {
                continue;
            }
            let length = take(&mut part).unwrap() as usize;
            let sum = sums.entry(head.setting.kernel).or_default();
            assert!(sum.add(&part[..length]));
        }
    }
    sums.into_iter().map(|(kernel, sum)| (kernel, sum.whole())).collect()
}
