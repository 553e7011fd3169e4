//! Ours, called as other engines are by the benchmarks (`benches/peers`): `driver FILE BLOCK INPUT PASSES [OUTPUT]`.
//!
//! FILE is an amp (`.nam`, `.json`) or the taps of an IR, INPUT a signal, both of f32, little endian; what the first pass
//! makes goes to OUTPUT. Mean and worst block are printed in ns a sample, of the least over the passes. `SLIM=0.0` takes
//! an amp's least size. `benches/neon.py` counts its instructions on aarch64.
#![allow(clippy::unwrap_used, reason = "an example may panic")]

use quiet_dsp::{
    Block, ProcessSpec, Stage,
    amp::{Amp, AmpOptions},
    fir::{Fir, Route},
    simd::Denormals,
};
use quiet_types::{Frames, SampleRate};
use std::{fs, hint::black_box, path::Path, time::Instant};

fn numbers(path: &str) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn stage(file: &str, block: usize) -> Box<dyn Stage> {
    let block = Frames(block as u32);
    if Path::new(file).extension().is_some_and(|end| end == "nam" || end == "json") {
        let slim = std::env::var("SLIM").ok().map(|slim| slim.parse().unwrap());
        let amp = Amp::parse(&fs::read(file).unwrap()).unwrap();
        let setting = ProcessSpec { rate: amp.rate(), channels: 1, block };
        amp.prepare(&setting, &AmpOptions { slim, ..AmpOptions::default() }).unwrap()
    } else {
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block };
        Box::new(Fir::prepare(&setting, &Route::each(1, &numbers(file))).unwrap())
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, block, input, passes, output @ ..] = &words[..] else {
        panic!("driver FILE BLOCK INPUT PASSES [OUTPUT]");
    };
    let (block, passes): (usize, usize) = (block.parse().unwrap(), passes.parse().unwrap());
    let input = numbers(input);
    let mut stage = stage(file, block);
    let _zero = Denormals::flush();
    let mut least = vec![f64::MAX; input.len() / block];
    let (mut heard, mut made) = (vec![0.0f32; block], Vec::new());
    for pass in 0..passes {
        for (part, least) in input.chunks_exact(block).zip(&mut least) {
            heard.copy_from_slice(part);
            let begin = Instant::now();
            stage.process(&mut Block::new(black_box(&mut heard), 1));
            *least = least.min(begin.elapsed().as_nanos() as f64);
            if pass == 0 {
                made.extend(heard.iter().flat_map(|x| x.to_le_bytes()));
            }
        }
    }
    if let Some(output) = output.first() {
        fs::write(output, made).unwrap();
    }
    let mean = least.iter().sum::<f64>() / (least.len() * block) as f64;
    let worst = least.iter().copied().fold(0.0, f64::max) / block as f64;
    println!("{mean:.4} {worst:.4}");
}
