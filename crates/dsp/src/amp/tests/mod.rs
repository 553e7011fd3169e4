//! Amps against references: vectors of the known engines, and models in f64 of our own.

mod oracle;

use super::*;
use crate::Block;
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
    let amp =
        Amp::parse(&serde_json::to_vec(file).unwrap()).unwrap_or_else(|e| panic!("{e}: {file}"));
    let input: Vec<f32> = x.iter().map(|x| *x as f32).collect();
    let mut fused = Vec::new();
    for level in SimdLevel::all() {
        let mut stage = amp.prepare_for(&setting(&amp, 48), options, level).unwrap();
        let whole = play(&mut *stage, &input, &[48]);
        let (esr, most) = error(&whole, wanted);
        let held = esr <= 1e-10 || most <= ROUNDING;
        assert!(held, "{level:?}: ESR {esr:e}, at most {most:e}: {file}");
        stage.reset();
        let pieces = play(&mut *stage, &input, &[1, 17, 5, 40, 3, 16]);
        assert_eq!(bits(&whole), bits(&pieces), "{level:?}: {file}");
        if level != SimdLevel::Plain {
            fused.push(bits(&whole));
        }
    }
    assert!(fused.windows(2).all(|two| two[0] == two[1]), "instruction sets differ: {file}");
}

fn bits(samples: &[f32]) -> Vec<u32> {
    samples.iter().map(|s| s.to_bits()).collect()
}

/// Longer than any of the oracle's nets reaches.
const REACH: usize = 2600;

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

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
    fn convnets_and_linears_are_played_as_described(seed: u64) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (file, y) = oracle::convnet(seed, &x);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
        let (file, y) = oracle::linear(seed, &x);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn long_linears_are_played_as_described(seed: u64, taps in 300usize..5000) {
        let x: Rows = vec![noise(seed, 0, 6000)];
        let (file, y) = oracle::linear_of(seed, taps, &x);
        compare(&file, &x[0], &y[0], &AmpOptions::default());
    }

    #[test]
    fn sequences_are_played_one_behind_the_other(seed: u64, taps in 1usize..600) {
        let x: Rows = vec![noise(seed, REACH, 400)];
        let (first, between) = oracle::usual_wavenet(seed, &x, 3);
        // What rests in front hums a constant, which the response behind has heard for long.
        let (second, y) = oracle::linear_of(seed ^ 1, taps, &between);
        let inner = oracle::sequential(&[second]);
        let file = oracle::sequential(&[first, inner]);
        compare(&file, &x[0][REACH..], &y[0][REACH..], &AmpOptions::default());
    }
}

proptest! {
    // Half a second of silence in f64 takes its time.
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn recurrent_nets_are_played_as_described(seed: u64, knob in 0f32..1.0) {
        let x = noise(seed, 0, 400);
        let (file, y) = oracle::lstm(seed, &x, 24_000);
        compare(&file, &x, &y, &AmpOptions::default());
        let (mut file, y) = oracle::lstm(seed, &x, 64);
        file["sample_rate"] = serde_json::json!(-1);
        compare(&file, &x, &y, &AmpOptions::default());
        file.as_object_mut().unwrap().remove("sample_rate");
        compare(&file, &x, &y, &AmpOptions::default());
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
    assert!(refusal(&write(2)).contains("several channels"));
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
        serde_json::json!({"version": "0.7.0", "architecture": "SlimmableContainer",
            "config": {"submodels": [{"max_value": 1.0, "model": model}]}})
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
