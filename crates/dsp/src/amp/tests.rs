//! Amps against references: vectors of the known engines, and models in f64 of our own.

use super::*;
use crate::Block;
use quiet_types::Frames;
use std::{fs, path::PathBuf};

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps"))
}

fn samples(name: &str) -> Vec<f32> {
    let bytes = fs::read(fixtures().join(name)).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn load(name: &str) -> Amp {
    Amp::parse(&fs::read(fixtures().join(name)).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn setting(amp: &Amp, block: u32) -> Setting {
    Setting { rate: amp.rate(), channels: 1, block: Frames(block) }
}

/// Plays `input` in blocks of the lengths in `split`, over and over.
fn play(stage: &mut dyn Stage, input: &[f32], split: &[usize]) -> Vec<f32> {
    let mut out = input.to_vec();
    let (mut at, mut turn) = (0, 0);
    while at < out.len() {
        let n = split[turn % split.len()].min(out.len() - at);
        stage.process(&mut Block::new(&mut out[at..at + n], 1));
        (at, turn) = (at + n, turn + 1);
    }
    out
}

/// Energy of the error over that of the signal, and the largest error.
fn error(got: &[f32], wanted: &[f64]) -> (f64, f64) {
    assert_eq!(got.len(), wanted.len());
    let (mut e, mut s, mut most) = (0.0, 0.0, 0.0f64);
    for (g, w) in got.iter().zip(wanted) {
        let d = f64::from(*g) - w;
        (e, s, most) = (e + d * d, s + w * w, most.max(d.abs()));
    }
    (e / s.max(1e-30), most)
}

const VECTORS: &[(&str, Option<f64>, &str, f64)] = &[
    ("BossWN-standard.nam", None, "BossWN-standard", 2e-6),
    ("BossWN-feather.nam", None, "BossWN-feather", 2e-6),
    ("BossWN-nano.nam", None, "BossWN-nano", 2e-6),
    ("BossWN-a2.nam", None, "BossWN-a2", 2e-6),
    ("BossWN-a2.nam", Some(0.0), "BossWN-a2.slim0", 2e-6),
    ("BossLSTM-1x16.nam", None, "BossLSTM-1x16", 3e-5),
    ("BossLSTM-2x8.nam", None, "BossLSTM-2x8", 3e-5),
    ("lstm.nam", None, "lstm", 2e-6),
    ("wavenet.nam", None, "wavenet", 2e-6),
    ("wavenet_a2_max.nam", None, "wavenet_a2_max", 2e-6),
    ("wavenet_condition_dsp.nam", None, "wavenet_condition_dsp", 2e-6),
    ("slimmable_wavenet.nam", None, "slimmable_wavenet", 2e-6),
    ("slimmable_container.nam", None, "slimmable_container", 2e-6),
    ("slimmable_container.nam", Some(0.1), "slimmable_container.slim0.1", 2e-6),
    ("slimmable_container.nam", Some(0.5), "slimmable_container.slim0.5", 2e-6),
    ("syn_wavenet_lite.nam", None, "syn_wavenet_lite", 2e-6),
    ("syn_wavenet_gated.nam", None, "syn_wavenet_gated", 2e-6),
    ("syn_convnet.nam", None, "syn_convnet", 2e-6),
    ("syn_linear.nam", None, "syn_linear", 2e-6),
    ("syn_aida_lstm12.json", None, "syn_aida_lstm12", 2e-6),
    ("syn_aida_gru8.json", None, "syn_aida_gru8", 2e-6),
    // At 44.1 kHz by custom; its reference was made from the same samples.
    ("syn_proteus_lstm40.json", None, "syn_proteus_lstm40", 2e-6),
];

#[test]
fn the_known_engines_reference_outputs_are_met() {
    let input = samples("input_8192.f32");
    let mut bad = Vec::new();
    for (file, slim, reference, tolerance) in VECTORS {
        let amp = load(file);
        let wanted: Vec<f64> =
            samples(&format!("{reference}.ref.f32")).into_iter().map(f64::from).collect();
        let peak = wanted.iter().fold(1.0f64, |m, y| m.max(y.abs()));
        for level in Level::all() {
            let options = Options { slim: *slim, ..Options::default() };
            let mut stage = amp.prepare_for(&setting(&amp, 64), &options, level).unwrap();
            let got = play(&mut *stage, &input, &[64]);
            let (esr, most) = error(&got, &wanted);
            if !(esr <= 1e-10 && most <= tolerance * peak) {
                bad.push(format!("{reference} {level:?}: ESR {esr:e}, at most {most:e}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
