//! What amps cost, in the program's own harness: `cargo bench -p quiet-dsp --bench amps`.
//!
//! Each block of one signal is timed over many passes; the least time of each block counts (what
//! interrupts only adds), their mean is the figure and their greatest the worst block. The peak of
//! fused multiply-adds is measured before every row. `QUIET_BENCH_JSON=FILE` keeps the figures;
//! `QUIET_BENCH_PEERS=NAME=PROGRAM,...` runs other engines in turn with ours: each is called with
//! `FILE BLOCK INPUT PASSES` and prints the mean and the worst, ns per sample.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

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
    process::Command,
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

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let input: Vec<f32> = fs::read(fixtures().join("input_8192.f32"))
        .unwrap()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let rounds: usize = var("QUIET_BENCH_ROUNDS").and_then(|r| r.parse().ok()).unwrap_or(3);
    let passes: usize = var("QUIET_BENCH_PASSES").and_then(|r| r.parse().ok()).unwrap_or(20);
    let peers: Vec<(String, String)> = var("QUIET_BENCH_PEERS")
        .iter()
        .flat_map(|list| list.split(','))
        .filter_map(|one| one.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())))
        .collect();
    let mut levels: Vec<SimdLevel> = SimdLevel::all().filter(|l| *l != SimdLevel::Plain).collect();
    if levels.is_empty() {
        levels.push(SimdLevel::Plain);
    }
    let mut json = String::new();
    println!(
        "{:18} {:>5} {:>12} {:>9} {:>9} {:>8} {:>9}",
        "amp", "block", "engine", "ns/sample", "worst", "Gflop/s", "of peak"
    );
    for (name, file, slim) in AMPS {
        if !args.is_empty() && !args.iter().any(|a| name.contains(a.as_str())) {
            continue;
        }
        let amp = Amp::parse(&fs::read(fixtures().join(file)).unwrap()).unwrap();
        for block in [16usize, 64] {
            let setting =
                ProcessSpec { rate: amp.rate(), channels: 1, block: Frames(block as u32) };
            let options = AmpOptions { slim: *slim, ..AmpOptions::default() };
            let flops = amp.flops(&options) as f64;
            let mut best: Vec<(String, f64, f64, Option<f64>)> = Vec::new();
            let mut keep = |engine: &str, (mean, worst): (f64, f64), peak: Option<f64>| match best
                .iter_mut()
                .find(|b| b.0 == engine)
            {
                Some(b) => {
                    b.2 = if mean < b.1 { worst } else { b.2 };
                    b.1 = b.1.min(mean);
                    b.3 = b.3.zip(peak).map(|(a, b)| a.max(b));
                }
                None => best.push((engine.to_owned(), mean, worst, peak)),
            };
            for _ in 0..rounds {
                for level in &levels {
                    let mut stage = amp.prepare_for(&setting, &options, *level).unwrap();
                    let top = gigaflops(*level);
                    let engine = format!("{level:?}").to_lowercase();
                    keep(&engine, cost(&mut *stage, &input, block, passes), Some(top));
                }
                // The peers know no sizes by a number.
                if slim.is_none() {
                    for (peer, program) in &peers {
                        if let Some(cost) =
                            peer_cost(program, &fixtures().join(file), block, passes)
                        {
                            keep(peer, cost, None);
                        }
                    }
                }
            }
            for (engine, mean, worst, peak) in best {
                let share = peak.map(|peak| flops / mean / peak * 100.0);
                let percent = share.map_or("-".to_owned(), |s| format!("{s:.0} %"));
                println!(
                    "{name:18} {block:>5} {engine:>12} {mean:>9.1} {worst:>9.1} {:>8.1} {percent:>9}",
                    flops / mean
                );
                let comma = if json.is_empty() { "" } else { ",\n" };
                write!(
                    json,
                    "{comma}  {{\"amp\": {name:?}, \"block\": {block}, \"engine\": {engine:?}, \"ns_per_sample\": {mean:.2}, \
                     \"worst_ns_per_sample\": {worst:.2}, \"flop_per_sample\": {flops}, \"peak_gflops\": {}}}",
                    peak.map_or("null".to_owned(), |p| format!("{p:.1}"))
                )
                .unwrap();
            }
        }
    }
    if let Some(path) = var("QUIET_BENCH_JSON") {
        fs::write(path, format!("[\n{json}\n]\n")).unwrap();
    }
}

fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

fn peer_cost(program: &str, file: &Path, block: usize, passes: usize) -> Option<(f64, f64)> {
    let out = Command::new(program)
        .arg(file)
        .arg(block.to_string())
        .arg(fixtures().join("input_8192.f32"))
        .arg(passes.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let mut parts = text.lines().last()?.split_whitespace().map(|x| x.parse().ok());
    Some((parts.next()??, parts.next()??))
}
