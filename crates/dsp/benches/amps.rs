//! What amps cost, in the program's own harness: `cargo bench -p quiet-dsp --bench amps`.
//!
//! Each block of one signal is timed over many passes; the least time of each block counts (what interrupts only
//! adds), their mean is a round's figure and their greatest its worst block. The table has the medians of the rounds.
//! The peak of fused multiply-adds is measured before every round. `QUIET_BENCH_JSON=FILE` keeps the figures,
//! `QUIET_BENCH_LEVELS=avx2,avx512` takes only these. `QUIET_BENCH_PEERS=NAME=PROGRAM,...` runs other engines in turn with
//! ours (`peers` says how): each is heard before it is timed, and one that fails is a line of the table and an exit
//! code of 1.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

mod peers;

use peers::{Peer, median};
use quiet_dsp::{
    Block, ProcessSpec, Stage,
    amp::{Amp, AmpOptions},
    simd::{SimdLevel, peak::gigaflops},
};
use quiet_types::Frames;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

const AMPS: &[(&str, &str, Option<f64>)] = &[
    ("WaveNet standard", "BossWN-standard.nam", None),
    ("WaveNet lite", "syn_wavenet_lite.nam", None),
    ("WaveNet feather", "BossWN-feather.nam", None),
    ("WaveNet nano", "BossWN-nano.nam", None),
    ("A2 full", "BossWN-a2.nam", None),
    ("A2 lite", "BossWN-a2.nam", Some(0.0)),
    ("LSTM 1x16", "BossLSTM-1x16.nam", None),
    ("LSTM 2x8", "BossLSTM-2x8.nam", None),
    ("Proteus LSTM 40", "syn_proteus_lstm40.json", None),
];

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps"))
}

/// Mean and worst ns per sample: over the blocks, of the least over the passes.
fn cost(stage: &mut dyn Stage, input: &[f32], block: usize, passes: usize) -> (f64, f64) {
    let blocks = input.len() / block;
    let mut least = vec![f64::MAX; blocks];
    let mut heard = vec![0.0f32; block];
    for _ in 0..passes {
        for (part, least) in input.chunks_exact(block).zip(&mut least) {
            heard.copy_from_slice(part);
            let start = Instant::now();
            stage.process(&mut Block::new(&mut heard, 1));
            *least = least.min(start.elapsed().as_nanos() as f64);
        }
    }
    std::hint::black_box(&heard);
    let mean = least.iter().sum::<f64>() / (blocks * block) as f64;
    (mean, least.iter().fold(0.0, |m: f64, x| m.max(*x)) / block as f64)
}

/// The figures of one engine in one row of the table, a round each.
struct Row {
    engine: String,
    means: Vec<f64>,
    worst: Vec<f64>,
    peaks: Vec<f64>,
    /// Of a peer: its difference to ours, or why there are no figures.
    heard: Option<Result<f64, String>>,
}

impl Row {
    fn new(engine: String, heard: Option<Result<f64, String>>) -> Row {
        Row { engine, means: Vec::new(), worst: Vec::new(), peaks: Vec::new(), heard }
    }

    fn keep(&mut self, (mean, worst): (f64, f64)) {
        self.means.push(mean);
        self.worst.push(worst);
    }
}

/// One amp at one block size: our levels and the peers in turn, so many rounds.
struct Comparison<'a> {
    amp: &'a Amp,
    options: AmpOptions,
    file: &'a Path,
    block: usize,
    input: &'a [f32],
    signal: &'a Path,
    rounds: usize,
    passes: usize,
}

impl Comparison<'_> {
    fn setting(&self) -> ProcessSpec {
        let block = Frames(self.block as u32);
        ProcessSpec { rate: self.amp.rate(), channels: 1, block }
    }

    /// What we make of it.
    fn ours(&self) -> Vec<f32> {
        let mut stage = self.amp.prepare(&self.setting(), &self.options).unwrap();
        let mut heard = self.input.to_vec();
        for part in heard.chunks_mut(self.block) {
            stage.process(&mut Block::new(part, 1));
        }
        heard
    }

    fn rows(&self, levels: &[SimdLevel], peers: &[Peer]) -> Vec<Row> {
        let what = (self.file, self.block, self.signal);
        let mut rows: Vec<Row> = (levels.iter())
            .map(|level| Row::new(format!("{level:?}").to_lowercase(), None))
            .collect();
        let ours = if peers.is_empty() { Vec::new() } else { self.ours() };
        rows.extend(peers.iter().map(|peer| {
            let heard = peer.check(what, &ours).and_then(|heard| match heard.late {
                0 => Ok(heard.off),
                late => Err(format!("is {late} samples late")),
            });
            Row::new(peer.name.clone(), Some(heard))
        }));
        for _ in 0..self.rounds {
            let (own, others) = rows.split_at_mut(levels.len());
            for (row, level) in own.iter_mut().zip(levels) {
                let mut stage =
                    self.amp.prepare_for(&self.setting(), &self.options, *level).unwrap();
                row.peaks.push(gigaflops(*level));
                row.keep(cost(&mut *stage, self.input, self.block, self.passes));
            }
            for (row, peer) in others.iter_mut().zip(peers) {
                if !matches!(row.heard, Some(Ok(_))) {
                    continue;
                }
                match peer.time(what, self.passes) {
                    Ok(figures) => row.keep(figures),
                    Err(why) => row.heard = Some(Err(why)),
                }
            }
        }
        rows
    }
}

/// A line of the table, and one of the JSON; whether there are figures.
fn tell(name: &str, block: usize, flops: f64, row: &Row, json: &mut String) -> bool {
    let engine = &row.engine;
    let comma = if json.is_empty() { "" } else { ",\n" };
    let begin =
        format!("{comma}  {{\"amp\": {name:?}, \"block\": {block}, \"engine\": {engine:?}, ");
    if let Some(Err(why)) = &row.heard {
        println!("{name:18} {block:>5} {engine:>18} error: {why}");
        write!(json, "{begin}\"error\": {why:?}}}").unwrap();
        return false;
    }
    let (mean, worst) = (median(&row.means), median(&row.worst));
    let peak = (!row.peaks.is_empty()).then(|| median(&row.peaks));
    let share = peak.map_or("-".to_owned(), |peak| format!("{:.0} %", flops / mean / peak * 100.0));
    let off = match row.heard {
        Some(Ok(off)) => format!("{off:.1e}"),
        _ => "-".to_owned(),
    };
    println!(
        "{name:18} {block:>5} {engine:>18} {mean:>9.1} {:>10.3} {:>8.1} {share:>8} {off:>8}",
        worst / mean,
        flops / mean
    );
    let peak = peak.map_or("null".to_owned(), |p| format!("{p:.1}"));
    let apart = if off == "-" { "null" } else { &off };
    write!(
        json,
        "{begin}\"ns_per_sample\": {mean:.2}, \"worst_ns_per_sample\": {worst:.2}, \"flop_per_sample\": {flops}, \
         \"peak_gflops\": {peak}, \"difference\": {apart}}}"
    )
    .unwrap();
    true
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let signal = fixtures().join("input_8192.f32");
    let input = peers::read(&signal).unwrap();
    let number = |name: &str| var(name).and_then(|r| r.parse().ok());
    let rounds: usize = number("QUIET_BENCH_ROUNDS").unwrap_or(3);
    let passes: usize = number("QUIET_BENCH_PASSES").unwrap_or(20);
    let peers = peers::of("QUIET_BENCH_PEERS");
    let wanted = var("QUIET_BENCH_LEVELS");
    let mut levels: Vec<SimdLevel> = SimdLevel::all()
        .filter(|level| match &wanted {
            Some(names) => names.split(',').any(|n| n == format!("{level:?}").to_lowercase()),
            None => *level != SimdLevel::Plain,
        })
        .collect();
    if levels.is_empty() {
        levels.push(SimdLevel::Plain);
    }
    let (mut json, mut well) = (String::new(), true);
    println!(
        "{:18} {:>5} {:>18} {:>9} {:>10} {:>8} {:>8} {:>8}",
        "amp", "block", "engine", "ns/sample", "worst/mean", "Gflop/s", "of peak", "off by"
    );
    for (name, file, slim) in AMPS {
        if !args.is_empty() && !args.iter().any(|a| name.contains(a.as_str())) {
            continue;
        }
        let file = fixtures().join(file);
        let amp = Amp::parse(&fs::read(&file).unwrap()).unwrap();
        for block in [16usize, 64] {
            let options = AmpOptions { slim: *slim, ..AmpOptions::default() };
            let flops = amp.flops(&options) as f64;
            let (amp, file, input, signal) = (&amp, &*file, &*input, &*signal);
            let comparison =
                Comparison { amp, options, file, block, input, signal, rounds, passes };
            // The peers know no sizes by a number.
            let peers = if slim.is_none() { &peers[..] } else { &[] };
            for row in comparison.rows(&levels, peers) {
                well &= tell(name, block, flops, &row, &mut json);
            }
        }
    }
    if let Some(path) = var("QUIET_BENCH_JSON") {
        fs::write(path, format!("[\n{json}\n]\n")).unwrap();
    }
    ExitCode::from(u8::from(!well))
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}
