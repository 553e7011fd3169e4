//! Amps against references: vectors of the known engines, and models in f64 of our own.

mod oracle;

use super::*;
use crate::{Block, simd::lanes::tests::PAIRED};
use oracle::{Chance, Rows};
use proptest::prelude::*;
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

fn setting(amp: &Amp, block: u32) -> ProcessSpec {
    ProcessSpec { rate: amp.rate(), channels: 1, block: Frames(block) }
}

/// Plays `input` in blocks of the lengths in `split`, over and over.
fn play(stage: &mut dyn Stage, input: &[f32], split: &[usize]) -> Vec<f32> {
    play_rows(stage, &[input.to_vec()], 1, split).remove(0)
}

/// The same with several channels, of which `outputs` come back.
fn play_rows(
    stage: &mut dyn Stage,
    input: &[Vec<f32>],
    outputs: usize,
    split: &[usize],
) -> Vec<Vec<f32>> {
    let (channels, frames) = (input.len().max(outputs), input[0].len());
    let mut out = vec![Vec::new(); outputs];
    let (mut at, mut turn) = (0, 0);
    while at < frames {
        let n = split[turn % split.len()].min(frames - at);
        // What is in channels that are none of the input is nobody's business.
        let mut block = vec![f32::NAN; channels * n];
        for (to, from) in block.chunks_mut(n).zip(input) {
            to.copy_from_slice(&from[at..at + n]);
        }
        stage.process(&mut Block::new(&mut block, channels));
        for (to, from) in out.iter_mut().zip(block.chunks(n)) {
            to.extend_from_slice(from);
        }
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
    ("syn_chance_film.nam", None, "syn_chance_film", 2e-6),
    ("syn_chance_condition_linear.nam", None, "syn_chance_condition_linear", 2e-6),
    ("syn_chance_condition_convnet.nam", None, "syn_chance_condition_convnet", 2e-6),
    ("syn_chance_slim.nam", None, "syn_chance_slim", 2e-6),
    ("syn_chance_slim.nam", Some(0.0), "syn_chance_slim.slim0", 2e-6),
    ("syn_chance_slim.nam", Some(0.6), "syn_chance_slim.slim0.6", 2e-6),
    ("syn_chance_slim_no_1x1.nam", Some(0.3), "syn_chance_slim_no_1x1.slim0.3", 2e-6),
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
        for level in SimdLevel::all() {
            let options = AmpOptions { slim: *slim, ..AmpOptions::default() };
            let mut stage = amp.prepare_for(&setting(&amp, 64), &options, level).unwrap();
            let got = play(&mut *stage, &input, &[64]);
            let (esr, most) = error(&got, &wanted);
            // The reference of this one is itself 4e-11 away from f64.
            let esr_most = if *reference == "BossLSTM-1x16" { 1.5e-10 } else { 1e-10 };
            if !(esr <= esr_most && most <= tolerance * peak) {
                bad.push(format!("{reference} {level:?}: ESR {esr:e}, at most {most:e}"));
            }
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Three times above full scale its sums of products make spikes of a few thousands, in which every lost digit is heard.
#[test]
fn small_sigmoids_are_not_lost_where_they_are_multiplied_up() {
    let amp = load("wavenet_a2_max.nam");
    let input: Vec<f32> = noise(99, 0, 4000).into_iter().map(|x| (x * 3.25) as f32).collect();
    let wanted: Vec<f64> =
        samples("wavenet_a2_max.loud.ref.f32").into_iter().map(f64::from).collect();
    for level in SimdLevel::all() {
        let mut stage = amp.prepare_for(&setting(&amp, 64), &AmpOptions::default(), level).unwrap();
        let (esr, most) = error(&play(&mut *stage, &input, &[64]), &wanted);
        // NAM Core in 32 bits: 1.6e-12; here 8e-13, and 1.7e-12 without fused products. Sigmoids that were good to the
        // last bits of 1: 4.6e-12.
        assert!(esr <= 3e-12, "{level:?}: ESR {esr:e}, at most {most:e}");
    }
}

/// Silence, then noise in which louder and softer stretches follow each other.
fn noise(seed: u64, silence: usize, frames: usize) -> Vec<f64> {
    let mut chance = Chance(seed);
    let mut all = vec![0.0; silence];
    all.extend((0..frames).map(|t| {
        let loud = if (t / 50) % 3 == 0 { 0.8 } else { 0.1 };
        f64::from((chance.unit() * loud) as f32)
    }));
    all
}

/// Four units in the last place of 1, the order of what is summed in a net: a net whose sums cancel down to a whisper
/// cannot be told from f64 any closer, whoever sums in f32. (One in 150 random LSTMs is such.)
const ROUNDING: f64 = 4.0 * f32::EPSILON as f64;

/// The amp's output for `x`, on every level and in two splits, all alike; against the oracle's.
fn compare(file: &serde_json::Value, x: &[f64], wanted: &[f64], options: &AmpOptions) {
    compare_rows(file, &vec![x.to_vec()], &vec![wanted.to_vec()], options);
}

/// The same with several channels.
fn compare_rows(file: &serde_json::Value, x: &Rows, wanted: &Rows, options: &AmpOptions) {
    let amp =
        Amp::parse(&serde_json::to_vec(file).unwrap()).unwrap_or_else(|e| panic!("{e}: {file}"));
    let input: Vec<Vec<f32>> = x.iter().map(|x| x.iter().map(|x| *x as f32).collect()).collect();
    let (outputs, wanted) = (wanted.len(), wanted.concat());
    assert_eq!(amp.channels(), (x.len(), outputs));
    let at = ProcessSpec { channels: x.len().max(outputs), ..setting(&amp, 48) };
    let mut fused = Vec::new();
    // Both of what processors with 512-bit vectors do; elsewhere the last one does nothing new.
    let wide = SimdLevel::all().filter(|&level| level == SimdLevel::Avx512);
    for (level, paired) in
        SimdLevel::all().map(|level| (level, false)).chain(wide.map(|level| (level, true)))
    {
        PAIRED.set(Some(paired));
        let mut stage = amp.prepare_for(&at, options, level).unwrap();
        let whole = play_rows(&mut *stage, &input, outputs, &[48]).concat();
        let (esr, most) = error(&whole, &wanted);
        let held = esr <= 1e-10 || most <= ROUNDING;
        assert!(held, "{level:?}: ESR {esr:e}, at most {most:e}: {file}");
        stage.reset();
        let pieces = play_rows(&mut *stage, &input, outputs, &[1, 17, 5, 40, 3, 16]).concat();
        assert_eq!(bits(&whole), bits(&pieces), "{level:?}: {file}");
        if level != SimdLevel::Plain {
            fused.push(bits(&whole));
        }
    }
    PAIRED.set(None);
    assert!(fused.windows(2).all(|two| two[0] == two[1]), "instruction sets differ: {file}");
}

fn bits(samples: &[f32]) -> Vec<u32> {
    samples.iter().map(|s| s.to_bits()).collect()
}

/// So many, a third of them where an emulated processor takes a hundred times as long.
fn cases(cases: u32) -> ProptestConfig {
    let cases = if std::env::var_os("QUIETCORES_EMULATED").is_some() { cases / 3 } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Longer than any of the oracle's nets reaches.
const REACH: usize = 2600;

proptest! {
    #![proptest_config(cases(30))]

    #[test]
    fn wavenets_of_every_kind_are_played_as_described(seed: u64) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (file, y) = oracle::wavenet(seed, &x, 1, 1);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
    }

    #[test]
    fn usual_arrays_of_every_width_are_played_as_described(seed: u64, channels in 1usize..=19) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (file, y) = oracle::usual_wavenet(seed, &x, channels);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
    }

    #[test]
    fn slimmable_wavenets_are_cut_as_described(seed: u64, slim in 0f64..=1.0) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (file, y) = oracle::slimmable_wavenet(seed, &x, slim);
        let arrays = file["config"]["layers"].as_array().unwrap();
        let sizes = |array: &serde_json::Value| {
            array["slimmable"]["kwargs"]["allowed_channels"].as_array().unwrap().len()
        };
        // What has one size is asked for none.
        let slim = arrays.iter().any(|array| sizes(array) > 1).then_some(slim);
        let options = AmpOptions { slim, ..AmpOptions::default() };
        compare(&file, &x[0][REACH..], &y[0][REACH..], &options);
    }

    #[test]
    fn amps_of_several_inputs_and_outputs_are_played_as_described(
        seed: u64, inputs in 1usize..=3, outputs in 1usize..=3, taps in 1usize..700,
    ) {
        let x: Rows = (0..inputs).map(|n| noise(seed ^ n as u64, REACH, 300)).collect();
        let cut = |rows: &Rows| rows.iter().map(|row| row[REACH..].to_vec()).collect::<Rows>();
        let whole = AmpOptions::default();
        let (file, y) = oracle::wavenet(seed, &x, outputs, 1);
        compare_rows(&file, &cut(&x), &cut(&y), &whole);
        let (file, y) = oracle::convnet(seed, &x, outputs);
        compare_rows(&file, &cut(&x), &cut(&y), &whole);
        let short: Rows = cut(&x);
        let (file, y) = oracle::lstm(seed, &short, 24_000, outputs);
        compare_rows(&file, &short, &y, &whole);
        if inputs == outputs || inputs == 1 || outputs == 1 {
            let (second, y) = oracle::linear_of(seed, taps, &x, outputs);
            compare_rows(&second, &cut(&x), &cut(&y), &whole);
            let (first, between) = oracle::wavenet(seed, &x, outputs, 0);
            let (second, y) = oracle::linear_of(seed ^ 1, taps, &between, inputs);
            compare_rows(&oracle::sequential(&[first, second]), &cut(&x), &cut(&y), &whole);
        }
    }

    #[test]
    fn convnets_and_linears_are_played_as_described(seed: u64) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (file, y) = oracle::convnet(seed, &x, 1);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
        let (file, y) = oracle::linear(seed, &x);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn long_linears_are_played_as_described(seed: u64, taps in 300usize..5000) {
        let x: Rows = vec![noise(seed, 0, 6000)];
        let (file, y) = oracle::linear_of(seed, taps, &x, 1);
        compare(&file, &x[0], &y[0], &AmpOptions::default());
    }

    #[test]
    fn sequences_are_played_one_behind_the_other(seed: u64, taps in 1usize..600) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (first, between) = oracle::usual_wavenet(seed, &x, 3);
        // What rests in front hums a constant, which the response behind has heard for long.
        let (second, y) = oracle::linear_of(seed ^ 1, taps, &between, 1);
        let inner = oracle::sequential(&[second]);
        let file = oracle::sequential(&[first, inner]);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
    }
}

proptest! {
    // Half a second of silence in f64 takes its time.
    #![proptest_config(cases(10))]

    #[test]
    fn recurrent_nets_are_played_as_described(seed: u64, knob in 0f32..1.0) {
        let x = noise(seed, 0, 400);
        let rows = vec![x.clone()];
        let (file, y) = oracle::lstm(seed, &rows, 24_000, 1);
        compare(&file, &x, &y[0], &AmpOptions::default());
        let (mut file, y) = oracle::lstm(seed, &rows, 64, 1);
        file["sample_rate"] = serde_json::json!(-1);
        compare(&file, &x, &y[0], &AmpOptions::default());
        file.as_object_mut().unwrap().remove("sample_rate");
        compare(&file, &x, &y[0], &AmpOptions::default());
        let knobs: Vec<f32> = (0..seed % 3).map(|n| knob / (n + 1) as f32).collect();
        let at: Vec<f64> = knobs.iter().map(|k| f64::from(*k)).collect();
        let (file, y) = oracle::keras(seed, &x, &at);
        compare(&file, &x, &y, &AmpOptions { knobs, ..AmpOptions::default() });
    }
}

/// A small amp to be spoilt.
fn small() -> serde_json::Value {
    serde_json::json!({"version": "0.5.4", "architecture": "LSTM", "sample_rate": 48000,
        "config": {"input_size": 1, "hidden_size": 1, "num_layers": 1},
        "weights": vec![0.25; 16]})
}

fn refusal(bytes: &[u8]) -> String {
    Amp::parse(bytes).expect_err("not understood").to_string()
}

#[test]
fn what_is_not_understood_gets_a_sentence() {
    let spoil = |key: &str, value: serde_json::Value| {
        let mut file = small();
        *file.pointer_mut(key).unwrap() = value;
        refusal(&serde_json::to_vec(&file).unwrap())
    };
    assert!(Amp::parse(&serde_json::to_vec(&small()).unwrap()).is_ok());
    assert!(refusal(&vec![b' '; 33 << 20]).contains("MiB"));
    assert!(refusal(b"[1, 2").contains("not JSON"));
    assert!(refusal(b"[1, 2]").contains("not a JSON object"));
    assert!(refusal(b"{}").contains("architecture"));
    let text = serde_json::to_string(&small()).unwrap();
    assert!(refusal(text.replacen("0.25", "NaN", 1).as_bytes()).contains("NaN or infinity"));
    assert!(refusal(text.replacen("0.25", "1e300", 1).as_bytes()).contains("weights holds"));
    assert!(
        refusal(text.replacen("\"num_layers\":1", "\"num_layers\":1,\"x\":1", 1).as_bytes())
            .starts_with("config.x is not a known key")
    );
    assert!(spoil("/weights", serde_json::json!([1.0, 2.0])).contains("too few"));
    assert!(spoil("/weights", serde_json::json!(vec![0.0; 17])).contains("uses only 16"));
    assert!(spoil("/version", serde_json::json!("1.0.0")).starts_with("version is"));
    assert!(spoil("/config/hidden_size", serde_json::json!(1e9)).contains("hidden_size is"));
    assert!(spoil("/architecture", serde_json::json!("CatLSTM")).contains("CatLSTM"));
    let far = serde_json::json!({"version": "0.5.4", "architecture": "ConvNet", "weights": [],
        "config": {"channels": 4, "dilations": [2_147_483_648u64], "batchnorm": false,
                   "activation": "Tanh"}});
    assert!(refusal(&serde_json::to_vec(&far).unwrap()).starts_with("config.dilations[0] is"));
    let wide = serde_json::json!({"version": "0.5.4", "architecture": "ConvNet", "weights": [],
        "config": {"channels": 1024, "dilations": [1, 1_000_000, 1_000_000], "batchnorm": false,
                   "activation": "Tanh"}});
    assert!(refusal(&serde_json::to_vec(&wide).unwrap()).contains("weights"));
}

#[test]
fn huge_promises_are_refused_before_memory_is_taken() {
    let wavenet = |key: &str, value: serde_json::Value| {
        let mut file = serde_json::json!({"version": "0.5.4", "architecture": "WaveNet",
            "weights": [0.0], "config": {"head_scale": 1.0, "head": null, "layers": [{
                "input_size": 1, "condition_size": 1, "channels": 2, "head_size": 1,
                "kernel_size": 3, "dilations": [1, 2], "activation": "Tanh", "gated": false,
                "head_bias": false}]}});
        file["config"]["layers"][0][key] = value;
        refusal(&serde_json::to_vec(&file).unwrap())
    };
    for (key, value) in [
        ("dilations", serde_json::json!([2_147_483_648u64])),
        ("dilations", serde_json::json!(vec![1; 1 << 20])),
        ("kernel_size", serde_json::json!(2_147_483_648u64)),
        ("channels", serde_json::json!(u64::MAX)),
    ] {
        let sentence = wavenet(key, value);
        assert!(sentence.contains(key) && sentence.len() < 400, "{sentence}");
    }
    // Deep as a well.
    let deep = [b"{\"config\":".repeat(1 << 20), b"1".to_vec(), b"}".repeat(1 << 20)].concat();
    assert!(refusal(&deep).len() < 400);
}

#[test]
fn options_that_the_file_cannot_serve_are_refused() {
    let amp = Amp::parse(&serde_json::to_vec(&small()).unwrap()).unwrap();
    let at = setting(&amp, 64);
    let refused = |options: AmpOptions| {
        amp.prepare(&at, &options).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(refused(AmpOptions { slim: Some(0.5), ..AmpOptions::default() }).contains("one size"));
    assert!(
        refused(AmpOptions { loudness: Some(-18.0), ..AmpOptions::default() }).contains("loudness")
    );
    assert!(
        refused(AmpOptions { input_dbu: Some(12.0), ..AmpOptions::default() })
            .contains("input_level")
    );
    assert!(refused(AmpOptions { knobs: vec![0.5], ..AmpOptions::default() }).contains("knobs"));
    let other = ProcessSpec { rate: SampleRate(44_100), ..at };
    let error = amp.prepare(&other, &AmpOptions::default()).err().unwrap();
    assert_eq!(error, Error::Rate { amp: SampleRate(48_000), stream: SampleRate(44_100) });
    assert!(error.to_string().contains("48000 Hz") && error.to_string().contains("44100 Hz"));
}

#[test]
fn loudness_and_calibration_are_gains() {
    let amp = load("lstm.nam");
    let play_with = |options: AmpOptions| {
        let mut stage = amp.prepare(&setting(&amp, 64), &options).unwrap();
        play(&mut *stage, &samples("input_8192.f32")[..512], &[64])
    };
    let (plain, louder) = (
        play_with(AmpOptions::default()),
        play_with(AmpOptions { loudness: Some(-18.0), ..AmpOptions::default() }),
    );
    let gain = 10f64.powf((-18.0 + 37.840_686_797) / 20.0);
    for (a, b) in plain.iter().zip(&louder) {
        assert!((f64::from(*a) * gain - f64::from(*b)).abs() < 1e-6);
    }
}

#[test]
fn a_stray_infinity_does_not_stay() {
    let amp = load("BossLSTM-2x8.nam");
    let mut stage = amp.prepare(&setting(&amp, 16), &AmpOptions::default()).unwrap();
    let heard = play(&mut *stage, &[f32::INFINITY, f32::NAN, 0.5, -0.5], &[3]);
    assert!(heard.iter().all(|y| y.is_finite()));
}

#[test]
fn a_linear_amp_is_at_home_at_every_rate() {
    // A smooth low-pass: what is heard of a slow tone must not depend on the rate.
    let taps: Vec<f32> = (0..480).map(|n| 1e-3 * n as f32 * (-0.05 * n as f32).exp()).collect();
    let file = serde_json::json!({"version": "0.5.4", "architecture": "Linear", "weights": taps,
        "sample_rate": 48000, "config": {"receptive_field": 480, "bias": false}});
    let amp = Amp::parse(&serde_json::to_vec(&file).unwrap()).unwrap();
    let level = |rate: u32| {
        let at = ProcessSpec { rate: SampleRate(rate), channels: 1, block: Frames(64) };
        let mut stage = amp.prepare(&at, &AmpOptions::default()).unwrap();
        let tone = |t: u32| (std::f64::consts::TAU * 500.0 * f64::from(t) / f64::from(rate)).sin();
        let input: Vec<f32> = (0..rate).map(|t| tone(t) as f32).collect();
        let heard = play(&mut *stage, &input, &[64]);
        let rest = &heard[heard.len() / 2..];
        (rest.iter().map(|y| f64::from(y * y)).sum::<f64>() / rest.len() as f64).sqrt()
    };
    let own = level(48_000);
    for rate in [44_100, 88_200, 96_000, 192_000] {
        assert!((level(rate) / own - 1.0).abs() < 0.01, "{rate}: {} against {own}", level(rate));
    }
}

#[test]
fn a_wav_file_is_a_linear_amp() {
    let taps = [0.5f32, -0.25, 0.125];
    let write = |channels: u16| {
        let spec = hound::WavSpec {
            channels,
            sample_rate: 44_100,
            bits_per_sample: 32,
            sample_format: hound::SampleFormat::Float,
        };
        let mut bytes = std::io::Cursor::new(Vec::new());
        let mut writer = hound::WavWriter::new(&mut bytes, spec).unwrap();
        taps.iter().flat_map(|tap| vec![*tap; channels.into()]).for_each(|x| {
            writer.write_sample(x).unwrap();
        });
        writer.finalize().unwrap();
        bytes.into_inner()
    };
    let amp = Amp::parse(&write(1)).unwrap();
    assert_eq!((amp.about().format, amp.rate()), (AmpFormat::Wav, SampleRate(44_100)));
    let mut stage = amp.prepare(&setting(&amp, 16), &AmpOptions::default()).unwrap();
    assert_eq!(play(&mut *stage, &[1.0, 0.0, 0.0, 0.0], &[3]), [0.5, -0.25, 0.125, 0.0]);
    // Two channels: one input is spread to two outputs.
    let wide = Amp::parse(&write(2)).unwrap();
    assert_eq!(wide.channels(), (1, 2));
    let at = ProcessSpec { channels: 2, ..setting(&wide, 16) };
    let mut stage = wide.prepare(&at, &AmpOptions::default()).unwrap();
    let heard = play_rows(&mut *stage, &[vec![1.0, 0.0, 0.0, 0.0]], 2, &[3]);
    assert_eq!(heard, [[0.5, -0.25, 0.125, 0.0], [0.5, -0.25, 0.125, 0.0]]);
    assert!(wide.prepare(&setting(&wide, 16), &AmpOptions::default()).is_err());
    assert!(refusal(&write(3)).contains("3 channels"));
    let whole = write(1);
    assert!(refusal(&whole[..whole.len() - 4]).contains("ends 1 frames early"));
}

#[test]
fn marks_of_editors_and_rates_that_nobody_knows() {
    let mut file = small();
    let text = serde_json::to_vec(&file).unwrap();
    assert!(Amp::parse(&[b"\xef\xbb\xbf", &text[..]].concat()).is_ok());
    file["sample_rate"] = serde_json::json!(-1.0);
    let amp = Amp::parse(&serde_json::to_vec(&file).unwrap()).unwrap();
    assert!(amp.about().rate_assumed && amp.rate() == SampleRate(48_000));
}

#[test]
fn silence_before_the_first_sample_comes_in_whole_blocks() {
    // A cell that does nothing but forget, slowly: what it still knows tells how long it has rested.
    let forget = 1.0 / (1.0 + (-5f64).exp());
    let mut file = small();
    file["weights"] = serde_json::json!([
        0, 0, 0, 0, 0, 0, 0, 0, // weights of the gates
        0, 5, 0, 0, // their biases: input, forget, candidate, output
        0, 1, // state, cell
        1, 0, // head
    ]);
    // Half a second, at least a sample, up to the next 64; NAM Core (daae2d0) in blocks of 64 rests as long.
    let told = [(1, 64), (100, 64), (128, 64), (130, 128), (300, 192), (1000, 512)];
    let untold = [(serde_json::json!(-1), 64), (serde_json::Value::Null, 64)];
    for (rate, rest) in told.map(|(rate, rest)| (rate.into(), rest)).into_iter().chain(untold) {
        file["sample_rate"] = rate;
        if file["sample_rate"].is_null() {
            file.as_object_mut().unwrap().remove("sample_rate");
        }
        let amp = Amp::parse(&serde_json::to_vec(&file).unwrap()).unwrap();
        let wanted = 0.5 * forget.powi(rest + 1).tanh();
        for block in [1, 16, 64, 100, 1024] {
            let mut stage = amp.prepare(&setting(&amp, block), &AmpOptions::default()).unwrap();
            for _ in 0..2 {
                let got = f64::from(play(&mut *stage, &[0.0], &[1])[0]);
                let why = format!("{:?}, blocks of {block}", file.get("sample_rate"));
                assert!((got / wanted - 1.0).abs() < 1e-3, "{why}: {got} for {wanted}");
                stage.reset();
            }
        }
    }
}

#[test]
fn amps_in_amps_agree_on_the_rate() {
    let container = |model: serde_json::Value| {
        let mut file = oracle::container(&model);
        file.as_object_mut().unwrap().remove("sample_rate");
        file
    };
    let parse = |file: &serde_json::Value| Amp::parse(&serde_json::to_vec(file).unwrap());
    let mut other = small();
    other["sample_rate"] = serde_json::json!(44_100);
    // As deep as one likes, each kind in the other.
    let deep = oracle::sequential(&[container(container(oracle::sequential(&[small()]))), small()]);
    assert_eq!(parse(&deep).unwrap().rate(), SampleRate(48_000));
    let why = parse(&oracle::sequential(&[small(), container(other)])).unwrap_err().to_string();
    assert!(why.contains("config.models[1]") && why.contains("44100"), "{why}");
    let mut early = oracle::sequential(&[small()]);
    early["weights"] = serde_json::json!([0.5]);
    assert!(parse(&early).unwrap_err().to_string().contains("export the amp again"));
    assert!(parse(&oracle::sequential(&[])).unwrap_err().to_string().contains("config.models is"));
}

/// A random amp about which all players can agree: the reference refuses a PReLU that has not a slope for each channel,
/// and one whose channels are cut (its release builds read whatever lies behind the slopes).
fn agreed(seed: u64, make: impl Fn(u64) -> serde_json::Value) -> serde_json::Value {
    let fits = |file: &serde_json::Value| {
        let text = file.to_string();
        !text.contains("PReLU") || !(text.contains("0.3,") || text.contains("slimmable"))
    };
    (0..).map(|n| make(seed + 1000 * n)).find(fits).unwrap()
}

/// Where a program is named that plays `.nam` files some other way, 30 random amps of every form sound alike there.
///
/// `QUIETCORES_NAM_PLAYER=PROGRAM`: it is run as `PROGRAM MODEL IN BLOCK OUT [SLIM]`, on numbers of 64 bits, channel
/// after channel. `QUIETCORES_NAM_MODELS=FOLDER`: what is played there, on `input_8192.f32`, beside the random ones.
/// `QUIETCORES_NAM_TABLE=FILE`: where to write how far apart the two are.
#[test]
fn another_player_agrees_on_random_amps_of_every_form() {
    let Some(player) = std::env::var_os("QUIETCORES_NAM_PLAYER") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut bad, mut refused) = (Vec::new(), Vec::new());
    let mut worst = std::collections::BTreeMap::<&str, f64>::new();
    let mut ask = |form: &'static str, file: &[u8], x: &Rows, slim: Option<f64>, skip: usize| {
        let [model, from, to] = ["a.nam", "in", "out"].map(|name| folder.path().join(name));
        fs::write(&model, file).unwrap();
        let bytes: Vec<u8> = x.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
        fs::write(&from, bytes).unwrap();
        let mut asked = std::process::Command::new(&player);
        asked.args([&model, &from]).arg("64").arg(&to).args(slim.map(|slim| slim.to_string()));
        let said = asked.output().unwrap();
        let amp = Amp::parse(file);
        let amp = match amp {
            Ok(amp) => amp,
            Err(error) => return bad.push(format!("{form}: ours {error}")),
        };
        if !said.status.success() {
            let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
            refused.push(format!("{form}: {why}"));
            return;
        }
        let wanted: Vec<f64> = fs::read(&to)
            .unwrap()
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let (inputs, outputs) = amp.channels();
        let at = ProcessSpec { channels: inputs.max(outputs), ..setting(&amp, 64) };
        let mut stage = amp.prepare(&at, &AmpOptions { slim, ..AmpOptions::default() }).unwrap();
        let x: Vec<Vec<f32>> = x.iter().map(|x| x.iter().map(|x| *x as f32).collect()).collect();
        let got = play_rows(&mut *stage, &x, outputs, &[64]).concat();
        // Of one channel where something is left out.
        let (esr, most) = error(&got[skip..], &wanted[skip..]);
        let form_worst = worst.entry(form).or_default();
        *form_worst = form_worst.max(esr);
        if esr > 1e-11 {
            bad.push(format!("{form}, slim {slim:?}: ESR {esr:.1e}, at most {most:.1e}"));
        }
    };
    for seed in 0..30u64 {
        let x = vec![noise(seed, 0, 2000)];
        let bytes = |file: &serde_json::Value| serde_json::to_vec(file).unwrap();
        let any = |x: &Rows, outputs| agreed(seed, |seed| oracle::wavenet(seed, x, outputs, 1).0);
        ask("WaveNet", &bytes(&any(&x, 1)), &x, None, 0);
        let channels = 1 + seed as usize % 19;
        let usual = oracle::usual_wavenet(seed, &x, channels).0;
        ask("usual WaveNet", &bytes(&usual), &x, None, 0);
        ask("SlimmableContainer", &bytes(&oracle::container(&usual)), &x, None, 0);
        let slim = (seed as f64 + 0.5) / 30.0;
        let file = agreed(seed, |seed| oracle::slimmable_wavenet(seed, &x, slim).0);
        let sizes = |file: &serde_json::Value| {
            Amp::parse(&serde_json::to_vec(file).unwrap()).unwrap().slim_steps().len()
        };
        ask("slimmable WaveNet", &bytes(&file), &x, (sizes(&file) > 0).then_some(slim), 0);
        let convnet = |x: &Rows, outputs| agreed(seed, |seed| oracle::convnet(seed, x, outputs).0);
        ask("ConvNet", &bytes(&convnet(&x, 1)), &x, None, 0);
        ask("Linear", &bytes(&oracle::linear(seed, &x).0), &x, None, 0);
        let long = oracle::linear_of(seed, 1000 + 300 * seed as usize, &x, 1).0;
        ask("long Linear", &bytes(&long), &x, None, 0);
        ask("LSTM", &bytes(&oracle::lstm(seed, &x, 0, 1).0), &x, None, 0);
        // How long a sequence rests before its first sample is each player's own.
        let late = vec![noise(seed, 4096, 2000)];
        let second = oracle::linear_of(seed ^ 1, 300, &x, 1).0;
        let both = oracle::sequential(&[usual, second]);
        ask("Sequential", &bytes(&both), &late, None, 4096);
        let (inputs, outputs) = (1 + seed as usize % 3, 1 + seed as usize / 3 % 3);
        let x: Rows = (0..inputs).map(|n| noise(seed ^ n as u64, 0, 2000)).collect();
        ask("WaveNet of channels", &bytes(&any(&x, outputs)), &x, None, 0);
        ask("ConvNet of channels", &bytes(&convnet(&x, outputs)), &x, None, 0);
        ask("LSTM of channels", &bytes(&oracle::lstm(seed, &x, 0, outputs).0), &x, None, 0);
        if Linear::paths(inputs, outputs).is_some() {
            let wide = oracle::linear_of(seed, 1 + 40 * seed as usize, &x, outputs).0;
            ask("Linear of channels", &bytes(&wide), &x, None, 0);
        }
    }
    let mut models = 0;
    if let Some(folder) = std::env::var_os("QUIETCORES_NAM_MODELS") {
        let x = vec![samples("input_8192.f32").into_iter().map(f64::from).collect::<Vec<f64>>()];
        // A spike, and steps between loud and soft.
        let loud = vec![noise(99, 300, 6000).into_iter().map(|x| x * 1.25).collect::<Vec<f64>>()];
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "nam") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let form: &'static str = name.leak();
                models += 1;
                ask(form, &fs::read(&path).unwrap(), &x, None, 0);
                ask(form, &fs::read(&path).unwrap(), &loud, None, 0);
            }
        }
    }
    if let Some(table) = std::env::var_os("QUIETCORES_NAM_TABLE") {
        let text = format!("worst of each form: {worst:#?}\nrefused there: {refused:#?}\n");
        fs::write(table, text).unwrap();
    }
    assert!(bad.is_empty(), "{bad:#?}");
    // One of the thirteen forms may be too new for the other one; every model that it came with has to play.
    assert!(worst.len() >= 12 + models, "that program plays hardly anything: {refused:#?}");
}
