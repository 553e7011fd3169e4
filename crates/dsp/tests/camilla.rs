//! CamillaDSP configurations become strips that sound the same, and what is lost is listed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use quiet_dsp::{
    Block, Stage,
    strip::{Description, camilla},
};
use quiet_types::{Frames, SampleRate};

const CONFIG: &str = r#"
title: "living room"
devices:
  samplerate: 48000
  chunksize: 1024
  capture: { type: Alsa, channels: 2, device: "hw:0", format: S16_LE }
  playback: { type: Alsa, channels: 4, device: "hw:1", format: S32_LE }
filters:
  low: { type: BiquadCombo, parameters: { type: LinkwitzRileyLowpass, freq: 2000, order: 4 } }
  high: { type: BiquadCombo, parameters: { type: LinkwitzRileyHighpass, freq: 2000, order: 4 } }
  late: { type: Delay, parameters: { delay: 343, unit: mm } }
  down: { type: Gain, parameters: { gain: -6.0, inverted: true } }
  half: { type: Gain, parameters: { gain: 0.5, scale: linear } }
  peak: { type: Biquad, parameters: { type: Peaking, freq: 100, q: 2.0, gain: -7.3 } }
  room: { type: Conv, parameters: { type: Values, values: [0.0, 1.0] } }
  fader: { type: Volume, parameters: { fader: Aux1 } }
  soft: { type: Limiter, parameters: { clip_limit: -3.0, soft_clip: true } }
  idle: { type: Gain, parameters: { gain: 0 } }
mixers:
  four:
    channels: { in: 2, out: 4 }
    mapping:
      - { dest: 0, sources: [ { channel: 0, gain: 0 } ] }
      - { dest: 1, sources: [ { channel: 1, gain: 0 } ] }
      - { dest: 2, sources: [ { channel: 0, gain: 0, inverted: true } ] }
      - { dest: 3, sources: [ { channel: 1, gain: -6, mute: true }, { channel: 0, gain: 0.25, scale: linear } ] }
pipeline:
  - { type: Filter, names: [half, room, fader, soft] }
  - { type: Mixer, name: four }
  - { type: Filter, channels: [1, 3], names: [down, late] }
  - { type: Filter, channels: [0], names: [down], bypassed: true }
"#;

#[test]
fn filters_mixers_and_pipeline_are_carried_over() {
    let imported = camilla::import(CONFIG).unwrap();
    let strip = Description::parse(&imported.strip, "room.toml").unwrap();
    let mut none = |_: &str| Err(String::from("no files"));
    let mut strip = strip.prepare(2, SampleRate(48_000), Frames(64), &mut none).unwrap();
    assert_eq!((strip.inputs(), strip.outputs()), (2, 4));
    let mut work = vec![0.0f32; 4 * 64];
    (work[0], work[64]) = (1.0, 0.5);
    strip.process(&mut Block::new(&mut work, 4));
    // Half, then one frame later by the taps.
    assert_eq!(work[1], 0.5);
    // Row 2 turns it, row 3 takes a quarter of channel 0; 1 and 3 are turned, halved and late by
    // 1 ms: 48 frames.
    assert_eq!(work[2 * 64 + 1], -0.5);
    let half = 10f32.powf(-6.0 / 20.0);
    assert!((work[64 + 49] + 0.25 * half).abs() < 1e-6, "{}", work[64 + 49]);
    assert!((work[3 * 64 + 49] + 0.125 * half).abs() < 1e-6);
    let lost = imported.lost.join("\n");
    for word in ["devices", "fader", "soft", "`idle`", "`low`", "`peak`"] {
        assert!(lost.contains(word), "{word} is not listed in:\n{lost}");
        assert!(imported.strip.contains(&format!("# Not carried over: {}", imported.lost[0])));
    }
    assert_eq!(imported.lost.len(), 7, "{lost}");
}

#[test]
fn every_filter_becomes_a_stage_that_can_be_built() {
    let parameters = [
        ("Biquad", "type: Free, a1: 0.1, a2: 0.2, b0: 1.0, b1: 0.0, b2: 0.0"),
        ("Biquad", "type: Highpass, freq: 80, q: 0.5"),
        ("Biquad", "type: Lowpass, freq: 80, q: 0.5"),
        ("Biquad", "type: Peaking, freq: 80, bandwidth: 0.5, gain: 3"),
        ("Biquad", "type: Highshelf, freq: 80, slope: 6, gain: 3"),
        ("Biquad", "type: Lowshelf, freq: 80, q: 0.7, gain: -3"),
        ("Biquad", "type: HighshelfFO, freq: 80, gain: 3"),
        ("Biquad", "type: LowshelfFO, freq: 80, gain: 3"),
        ("Biquad", "type: HighpassFO, freq: 80"),
        ("Biquad", "type: LowpassFO, freq: 80"),
        ("Biquad", "type: AllpassFO, freq: 80"),
        ("Biquad", "type: Allpass, freq: 80, q: 0.5"),
        ("Biquad", "type: Bandpass, freq: 80, q: 0.5"),
        ("Biquad", "type: Notch, freq: 80, bandwidth: 0.5"),
        ("Biquad", "type: GeneralNotch, freq_p: 80, freq_z: 90, q_p: 1.0, normalize_at_dc: true"),
        (
            "Biquad",
            "type: LinkwitzTransform, freq_act: 80, q_act: 1.2, freq_target: 30, q_target: 0.6",
        ),
        ("BiquadCombo", "type: ButterworthHighpass, freq: 80, order: 5"),
        ("BiquadCombo", "type: Tilt, gain: 3"),
        (
            "BiquadCombo",
            "type: FivePointPeq, fls: 60, qls: 0.7, gls: 2, fp1: 200, qp1: 1, gp1: 1, fp2: 500, \
             qp2: 1, gp2: 1, fp3: 2000, qp3: 1, gp3: 1, fhs: 8000, qhs: 0.7, ghs: -2",
        ),
        ("BiquadCombo", "type: GraphicEqualizer, gains: [1, 2, 3, -4, 5]"),
        ("Delay", "delay: 1.5, unit: ms, subsample: true"),
        ("Dither", "type: Shibata48, bits: 16"),
        ("Limiter", "clip_limit: -3.0"),
        ("DiffEq", "a: [2.0, 0.2], b: [1.0, 1.0]"),
    ];
    for (kind, parameters) in parameters {
        let text = format!(
            "filters:\n  f: {{ type: {kind}, parameters: {{ {parameters} }} }}\n\
             pipeline:\n  - {{ type: Filter, channels: [0], names: [f, f] }}\n"
        );
        let imported = camilla::import(&text).unwrap_or_else(|e| panic!("{parameters}: {e}"));
        assert!(!imported.lost.iter().any(|l| l.starts_with("the filter")), "{:?}", imported.lost);
        let strip = Description::parse(&imported.strip, "f.toml").unwrap();
        let mut none = |_: &str| Err(String::from("no files"));
        strip
            .prepare(1, SampleRate(48_000), Frames(64), &mut none)
            .unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn what_is_no_configuration_is_refused_with_the_reason() {
    for (text, why) in [
        ("[1, 2", "this is not YAML"),
        ("- 1\n", "it has no keys"),
        ("pipeline: [{type: Filter, names: [x]}]", "names `x`, which `filters` does not define"),
        ("pipeline: [{type: Oven}]", "is of type `Oven`"),
        (
            "mixers: {m: {channels: {in: 1, out: 1}, mapping: [{dest: 3, sources: [{channel: 0}]}]}}\n\
             pipeline: [{type: Mixer, name: m}]",
            "maps a channel that it does not have",
        ),
    ] {
        let error = camilla::import(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // Aliases of aliases must not fill the memory.
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let before = format!("*a{}, ", n - 1).repeat(9);
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", before.trim_end_matches(", ")));
    }
    assert!(camilla::import(&bomb).is_err());
}

proptest! {
    #[test]
    fn no_text_makes_the_import_panic(text in "(filters|mixers|pipeline|: |\n|  |- |\\{|\\}|\\[|\\]|type|Filter|Gain|names|x|1e9|&a|\\*a|,){0,60}") {
        let _ = camilla::import(&text);
    }
}
