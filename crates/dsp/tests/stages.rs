//! What holds for every stage that a strip may name: no allocation, and the same bits however the
//! sound is cut.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use assert_no_alloc::{AllocDisabler, assert_no_alloc, violation_count};
use quiet_dsp::{
    Block, Stage,
    simd::Denormals,
    strip::{Description, KINDS, Strip},
};
use quiet_types::{Frames, SampleRate};

#[global_allocator]
static COUNTED: AllocDisabler = AllocDisabler;

const RATE: u32 = 48_000;
const BLOCK: usize = 256;
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/amps");

/// A strip of each kind, with what it needs; some kinds twice, where they have two ways to work.
const STRIPS: &[(&str, &str)] = &[
    ("gain", "gain = -3.0\ninvert = true"),
    ("polarity", ""),
    ("delay", "time = 7.3\nmost = 20.0"),
    ("delay", "frames = 3.5"),
    ("mix", "matrix = [[0.5, 0.5], [1.0, -1.0], [0.0, 2.0]]"),
    ("biquad", "type = \"peak\"\nfrequency = 900.0\ngain = 6.0\nq = 2.0"),
    ("biquad", "type = \"highshelf\"\nfrequency = 4000.0\ngain = -9.0\nslope = 6.0"),
    ("biquad", "type = \"general-notch\"\nfrequency = 80.0\ntarget = 90.0\nq = 1.0"),
    (
        "biquad",
        "type = \"linkwitz-transform\"\nfrequency = 80.0\nq = 1.2\ntarget = 30.0\ntarget-q = 0.6",
    ),
    ("biquad", "type = \"free\"\ncoefficients = [0.2, 0.1, 0.0, -0.5, 0.1]"),
    ("butterworth", "side = \"high\"\nfrequency = 80.0\norder = 5"),
    ("linkwitz-riley", "side = \"low\"\nfrequency = 2000.0\norder = 8"),
    ("eq", "gains = [1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0, -3.0, -4.0, -5.0]"),
    ("tone", "treble = 0.8\nmiddle = 0.2"),
    ("gate", "threshold = -20.0\nhold = 1.0\nrelease = 2.0"),
    ("compressor", "threshold = -30.0\nmakeup = 6.0"),
    ("compressor", "detector = \"rms\""),
    ("limiter", "ceiling = -12.0"),
    ("dc", ""),
    ("dither", "bits = 16"),
    ("dither", "bits = 12\ntype = \"lipshitz\""),
    ("meter", "loudness = true"),
    ("tuner", ""),
    ("ir", "file = \"long.f32\"\ngain = -20.0"),
    ("ir", "taps = [0.5, 0.0, -0.25]"),
    ("amp", "file = \"BossWN-nano.nam\""),
    ("amp", "file = \"BossLSTM-2x8.nam\""),
];

fn strip(text: &str) -> Strip {
    let description = Description::parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let mut loader = |name: &str| match name {
        // Longer than its head, so that it has a tail.
        "long.f32" => Ok(sound(1500)
            .iter()
            .flat_map(|x| if x.is_finite() { *x } else { 0.0 }.to_le_bytes())
            .collect()),
        amp => std::fs::read(format!("{FIXTURES}/{amp}")).map_err(|e| e.to_string()),
    };
    description.prepare(2, SampleRate(RATE), Frames(BLOCK as u32), &mut loader).unwrap()
}

fn of_kind(kind: &str, keys: &str) -> Strip {
    strip(&format!("[[stage]]\nkind = \"{kind}\"\n{keys}\n"))
}

/// Bursts, silence, a step, and numbers that are none.
fn sound(frames: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut samples = vec![0.0f32; 2 * frames];
    for (n, x) in samples.iter_mut().enumerate() {
        let loud = [0.9, 0.0, 1e-3, 0.4][n / 700 % 4];
        *x = loud * (2.0 * random.f32() - 1.0);
    }
    samples[frames / 3] = f32::NAN;
    samples[frames / 2] = 1e-42;
    samples
}

/// Plays two channels in blocks of the lengths that `cut` tells; parameters change at a third.
fn play(strip: &mut Strip, x: &[f32], mut cut: impl FnMut() -> usize) -> Vec<f32> {
    let _flushed = Denormals::flush();
    let (frames, width) = (x.len() / 2, strip.width());
    let turn = frames / 3;
    let params: Vec<(usize, f32)> = strip
        .params()
        .iter()
        .enumerate()
        .filter(|(_, param)| !param.name.ends_with(".bypass"))
        .map(|(at, p)| (at, if p.unit.to_string() == "Hz" { 500.0 } else { 0.7 * p.high.min(4.0) }))
        .collect();
    let mut out = vec![0.0; strip.outputs() * frames];
    let mut work = vec![0.0; width * BLOCK];
    let mut from = 0;
    while from < frames {
        if from == turn {
            assert_no_alloc(|| params.iter().for_each(|(at, value)| _ = strip.set(*at, *value)));
        }
        let end = if from < turn { turn } else { frames };
        let count = cut().clamp(1, BLOCK).min(end - from);
        let work = &mut work[..width * count];
        for channel in 0..2 {
            work[channel * count..][..count]
                .copy_from_slice(&x[channel * frames + from..][..count]);
        }
        assert_no_alloc(|| strip.process(&mut Block::new(work, width)));
        for channel in 0..strip.outputs() {
            out[channel * frames + from..][..count]
                .copy_from_slice(&work[channel * count..][..count]);
        }
        from += count;
    }
    out
}

fn bits(samples: &[f32]) -> Vec<u32> {
    samples.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn every_kind_is_tested_here() {
    for kind in KINDS {
        assert!(STRIPS.iter().any(|(name, _)| *name == kind.name), "{}", kind.name);
    }
}

#[test]
fn every_split_gives_the_same_bits_and_nothing_allocates() {
    let x = sound(6000);
    let before = violation_count();
    for (kind, keys) in STRIPS {
        let mut one = of_kind(kind, keys);
        let whole = play(&mut one, &x, || BLOCK);
        assert!(whole.iter().all(|y| y.is_finite()), "{kind}: {keys}");
        for fixed in [1, 16, 17, 64] {
            let cut = play(&mut of_kind(kind, keys), &x, || fixed);
            assert_eq!(bits(&cut), bits(&whole), "{kind} in blocks of {fixed}: {keys}");
        }
        let mut random = fastrand::Rng::with_seed(3);
        let uneven = || random.usize(1..=BLOCK);
        let cut = play(&mut of_kind(kind, keys), &x, uneven);
        assert_eq!(bits(&cut), bits(&whole), "{kind} in uneven blocks: {keys}");
    }
    assert_eq!(violation_count(), before, "a stage allocates");
}

#[test]
fn a_reset_stage_is_as_new() {
    let x = sound(2000);
    for (kind, keys) in STRIPS {
        // Parameters stay where they were put, so none is changed here.
        let whole = |strip: &mut Strip| {
            let mut work = vec![0.0; strip.width() * 250];
            let mut out = Vec::new();
            for part in x[..2000].chunks(250) {
                for channel in work.chunks_exact_mut(250) {
                    channel.copy_from_slice(part);
                }
                strip.process(&mut Block::new(&mut work, strip.width()));
                out.extend(bits(&work));
            }
            out
        };
        let mut strip = of_kind(kind, keys);
        let first = whole(&mut strip);
        strip.reset();
        assert_eq!(whole(&mut strip), first, "{kind}: {keys}");
    }
}

/// Size of the response at `frequency`, by projection once it has settled.
fn response(strip: &mut Strip, frequency: f64) -> f64 {
    let w = 2.0 * std::f64::consts::PI * frequency / f64::from(RATE);
    let (mut re, mut im, mut count) = (0.0, 0.0, 0u32);
    for block in 0..400 {
        let mut work = vec![0.0f32; BLOCK * strip.width()];
        for (n, x) in work.iter_mut().enumerate().take(BLOCK) {
            *x = (w * (block * BLOCK + n) as f64).sin() as f32;
        }
        strip.process(&mut Block::new(&mut work, strip.width()));
        if block >= 200 {
            for (n, y) in work.iter().enumerate().take(BLOCK) {
                let phase = w * (block * BLOCK + n) as f64;
                re += f64::from(*y) * phase.sin();
                im += f64::from(*y) * phase.cos();
                count += 1;
            }
        }
    }
    2.0 * re.hypot(im) / f64::from(count)
}

fn decibels(factor: f64) -> f64 {
    20.0 * factor.log10()
}

#[test]
fn linkwitz_riley_halves_sum_to_one() {
    for (order, sign) in [(2, -1.0), (4, 1.0), (6, -1.0), (8, 1.0), (12, 1.0)] {
        let mut text = String::from("[[stage]]\nkind = \"split\"\n");
        for side in ["low", "high"] {
            text.push_str(&format!(
                "[[stage.branch]]\n[[stage.branch.stage]]\nkind = \"linkwitz-riley\"\n\
                 name = \"{side}\"\nside = \"{side}\"\nfrequency = 1000.0\norder = {order}\n"
            ));
            if side == "high" && sign < 0.0 {
                text.push_str("[[stage.branch.stage]]\nkind = \"polarity\"\n");
            }
        }
        for at in [100.0, 900.0, 1000.0, 1200.0, 8000.0] {
            let db = decibels(response(&mut strip(&text), at));
            assert!(db.abs() < 0.02, "order {order} at {at} Hz: {db} dB");
        }
    }
}

#[test]
fn an_eq_band_has_its_gain_at_its_centre() {
    let mut gains = ["0.0"; 10];
    gains[5] = "6.0";
    let keys = format!("gains = [{}]", gains.join(", "));
    assert!((decibels(response(&mut of_kind("eq", &keys), 1000.0)) - 6.0).abs() < 0.01);
    assert!(decibels(response(&mut of_kind("eq", &keys), 100.0)).abs() < 0.2);
}

#[test]
fn a_fraction_of_a_frame_is_a_delay_of_its_phase() {
    for delay in [20.25, 33.5, 100.9] {
        let mut strip = of_kind("delay", &format!("frames = {delay}"));
        let frequency = 3000.0;
        let w = 2.0 * std::f64::consts::PI * frequency / f64::from(RATE);
        let mut worst: f64 = 0.0;
        for block in 0..8 {
            let mut work = vec![0.0f32; 2 * BLOCK];
            for (n, x) in work.iter_mut().enumerate().take(BLOCK) {
                *x = (w * (block * BLOCK + n) as f64).sin() as f32;
            }
            strip.process(&mut Block::new(&mut work, 2));
            if block > 2 {
                for (n, y) in work.iter().enumerate().take(BLOCK) {
                    let wanted = (w * ((block * BLOCK + n) as f64 - delay)).sin();
                    worst = worst.max((f64::from(*y) - wanted).abs());
                }
            }
        }
        assert!(worst < 2e-4, "{delay} frames: {worst}");
    }
}

#[test]
fn a_gate_lets_through_what_is_loud_and_takes_its_range_from_the_rest() {
    let keys = "threshold = -40.0\nrange = -60.0\nattack = 0.0\nhold = 0.0\nrelease = 1.0";
    for (level, wanted) in [(0.1f32, 0.1), (0.001, 1e-6)] {
        let mut gate = of_kind("gate", keys);
        let mut work = vec![0.0; 2 * BLOCK];
        for _ in 0..20 {
            work.fill(level);
            gate.process(&mut Block::new(&mut work, 2));
        }
        assert!((f64::from(work[BLOCK - 1]) / wanted - 1.0).abs() < 1e-3, "{}", work[BLOCK - 1]);
    }
}

#[test]
fn branches_are_aligned_before_they_are_summed() {
    // One way is late by a limiter's look-ahead; the sum must not comb.
    let text = "
[[stage]]
kind = \"split\"
name = \"ways\"
[[stage.branch]]
gain = -6.0206
[[stage.branch.stage]]
kind = \"limiter\"
ceiling = 20.0
[[stage.branch]]
name = \"dry\"
gain = -6.0206
";
    let mut strip = strip(text);
    assert_eq!(strip.latency(), Frames(72));
    let x =
        sound(2000).into_iter().map(|x| if x.is_finite() { x } else { 0.0 }).collect::<Vec<_>>();
    let mut y = Vec::new();
    for part in x[..2000].chunks(BLOCK) {
        let mut work = [part, part].concat();
        strip.process(&mut Block::new(&mut work, 2));
        y.extend_from_slice(&work[..part.len()]);
    }
    for (y, x) in y[72..].iter().zip(&x) {
        assert!((y - x).abs() < 1e-5, "{y} {x}");
    }
    assert!(strip.param("dry.gain").is_some() && strip.param("ways-1.gain").is_some());
}

#[test]
fn a_bypassed_stage_is_a_wire_of_its_latency() {
    let mut strip = of_kind("limiter", "ceiling = -40.0\nbypass = true");
    let x = sound(500).into_iter().map(|x| if x.is_finite() { x } else { 0.0 }).collect::<Vec<_>>();
    let mut work = [&x[..250], &x[..250]].concat();
    strip.process(&mut Block::new(&mut work, 2));
    assert_eq!(work[72..250], x[..178]);
    let bypass = strip.param("limiter.bypass").unwrap();
    assert!(strip.set(bypass, 0.0));
    assert!(!strip.set(bypass, 2.0), "out of its range");
}

#[test]
fn a_stage_on_one_channel_leaves_the_others_in_time() {
    let mut strip = strip(
        "[[stage]]\nkind = \"limiter\"\non = [1]\nceiling = 20.0\n\n\
         [[stage]]\nkind = \"gain\"\non = [0]\ngain = -20.0\n",
    );
    let mut work = vec![0.0; 200];
    (work[0], work[100]) = (1.0, 1.0);
    strip.process(&mut Block::new(&mut work, 2));
    assert!((work[72] - 0.1).abs() < 1e-6, "channel 0 waits for channel 1");
    assert_eq!(work[172], 1.0);
}
