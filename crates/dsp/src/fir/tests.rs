use super::*;
use quiet_types::{Frames, SampleRate};

/// White noise between -1 and 1, the same each time.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed.into());
    (0..len).map(|_| 2.0 * random.f32() - 1.0).collect()
}

/// Noise that decays by 60 dB.
fn ir(len: usize, seed: u32) -> Vec<f32> {
    let mut taps = noise(len, seed);
    for (k, tap) in taps.iter_mut().enumerate() {
        *tap *= (-6.9 * k as f32 / len as f32).exp();
    }
    taps
}

fn setting(channels: usize, block: u32) -> ProcessSpec {
    ProcessSpec { rate: SampleRate(48_000), channels, block: Frames(block) }
}

/// The output at `at`, summed in f64.
fn truth(x: &[f32], h: &[f32], at: usize) -> f64 {
    h.iter().take(at + 1).enumerate().map(|(k, &h)| f64::from(h) * f64::from(x[at - k])).sum()
}

fn play(fir: &mut dyn Stage, x: &[f32], mut blocks: impl Iterator<Item = usize>) -> Vec<f32> {
    let mut y = x.to_vec();
    let mut rest = &mut y[..];
    while !rest.is_empty() {
        let count = blocks.next().unwrap().min(rest.len());
        let (now, later) = rest.split_at_mut(count);
        fir.process(&mut Block::new(now, 1));
        rest = later;
    }
    y
}

fn mono(level: SimdLevel, h: &[f32]) -> Fir {
    Fir::prepare_for(level, &setting(1, 1024), &Route::each(1, h)).unwrap()
}

fn assert_true(y: &[f32], x: &[f32], h: &[f32], at: impl Iterator<Item = usize>, what: &str) {
    let sum: f64 = h.iter().map(|h| f64::from(h.abs())).sum();
    for at in at {
        let error = (f64::from(y[at]) - truth(x, h, at)).abs();
        assert!(error <= 4e-7 * sum, "{what}: {error:e} off at {at}, of {sum}");
    }
}

/// Lengths around every border of the plan.
const LENGTHS: &[usize] = &[
    1, 2, 15, 16, 17, 64, 255, 256, 257, 300, 384, 511, 512, 513, 640, 1000, 1024, 2049, 4000,
    5000, 8192, 20_000,
];

#[test]
fn equals_the_direct_sum_at_every_length_and_level() {
    for level in SimdLevel::all() {
        for &len in LENGTHS {
            let (x, h) = (noise(3 * len.max(700), 1), ir(len, 2));
            let y = play(&mut mono(level, &h), &x, std::iter::repeat(64));
            let step = (x.len() / 500).max(1) | 1;
            let at = (0..x.len()).step_by(step).chain(x.len() - 200..x.len());
            assert_true(&y, &x, &h, at, &format!("{level:?}, {len} taps"));
        }
    }
}

#[test]
fn every_split_gives_the_same_bits() {
    for &len in &[100, 300, 1000, 5000, 70_000] {
        let (x, h) = (noise(2 * len + 5000, 3), ir(len, 4));
        let whole = play(&mut mono(SimdLevel::here(), &h), &x, std::iter::repeat(1024));
        let mut splits: Vec<Box<dyn Iterator<Item = usize>>> = vec![
            Box::new([1, 16, 3, 0, 64, 1000, 7, 128, 31].into_iter().cycle()),
            Box::new(noise(100_000, 5).into_iter().map(|x| (x.abs() * 1023.0) as usize + 1)),
        ];
        for block in [1, 15, 16, 17, 32, 48, 63, 64, 65, 100, 128, 480, 512] {
            splits.push(Box::new(std::iter::repeat(block)));
        }
        for (i, split) in splits.into_iter().enumerate() {
            let y = play(&mut mono(SimdLevel::here(), &h), &x, split);
            let same = y.iter().zip(&whole).position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(same, None, "{len} taps, split {i}");
        }
    }
}

#[test]
fn fused_levels_give_the_same_bits() {
    let fused: Vec<SimdLevel> =
        SimdLevel::all().filter(|&level| level > SimdLevel::Plain).collect();
    for &len in LENGTHS {
        let (x, h) = (noise(3 * len + 2000, 6), ir(len, 7));
        let outputs: Vec<_> =
            fused.iter().map(|&l| play(&mut mono(l, &h), &x, std::iter::repeat(64))).collect();
        for pair in outputs.windows(2) {
            let same = pair[0].iter().zip(&pair[1]).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{len} taps");
        }
    }
}

#[test]
fn a_matrix_sums_its_routes() {
    let (frames, lengths) = (6000, [700, 20, 3000]);
    let pairs = [(0, 1), (2, 1), (2, 0)];
    let routes: Vec<Route> = pairs
        .iter()
        .zip(lengths)
        .map(|(&(input, output), len)| Route { input, output, taps: ir(len, len as u32) })
        .collect();
    let mut fir = Fir::prepare(&setting(3, 100), &routes).unwrap();
    let x: Vec<Vec<f32>> = (0..3).map(|c| noise(frames, 20 + c)).collect();
    let mut y = vec![Vec::new(); 3];
    for from in (0..frames).step_by(100) {
        let mut block: Vec<f32> = x.iter().flat_map(|x| x[from..from + 100].to_vec()).collect();
        fir.process(&mut Block::new(&mut block, 3));
        for (y, block) in y.iter_mut().zip(block.chunks(100)) {
            y.extend_from_slice(block);
        }
    }
    let sum: f64 = routes.iter().flat_map(|r| &r.taps).map(|h| f64::from(h.abs())).sum();
    for at in (0..frames).step_by(37) {
        for (output, y) in y.iter().enumerate() {
            let here = routes.iter().filter(|r| r.output == output);
            let wanted: f64 = here.map(|r| truth(&x[r.input], &r.taps, at)).sum();
            assert!((f64::from(y[at]) - wanted).abs() <= 4e-7 * sum, "{output} at {at}");
        }
    }
    assert!(y[2].iter().all(|&y| y == 0.0), "no route leads there");
}

#[test]
fn reset_is_as_good_as_new() {
    let (x, h) = (noise(9000, 30), ir(5000, 31));
    let mut fir = mono(SimdLevel::here(), &h);
    let fresh = play(&mut fir, &x, std::iter::repeat(48));
    fir.reset();
    assert!(play(&mut fir, &x, std::iter::repeat(48)) == fresh);
}

#[test]
fn a_change_lets_the_old_ring_out() {
    let (x, a, b) = (noise(9000, 40), ir(2000, 41), ir(700, 42));
    let (fade, at, block) = (256, 3000, 50);
    let new = |h: &[f32]| Fir::prepare(&setting(1, block as u32), &Route::each(1, h)).unwrap();
    let mut both = Crossfade::prepare(&setting(1, block as u32), new(&a), Frames(fade));
    let mut y = x.clone();
    for (i, block) in y.chunks_mut(block).enumerate() {
        if i * 50 == at {
            assert!(both.change(new(&b)).is_ok());
            assert!(both.change(new(&b)).is_err(), "one change at a time");
        }
        both.process(&mut Block::new(block, 1));
    }
    assert!(!both.changing());
    assert_eq!(both.spent().unwrap().taps(), a.len());
    assert!(both.spent().is_none());
    let share = |n: usize| match n {
        n if n < at => 0.0,
        n => ((n - at + 1) as f64 / (f64::from(fade) + 1.0)).min(1.0),
    };
    let wanted = |n: usize| -> f64 {
        let sum = |h: &[f32], part: &dyn Fn(usize) -> f64| -> f64 {
            let taps = h.iter().take(n + 1).enumerate();
            taps.map(|(k, &h)| f64::from(h) * f64::from(x[n - k]) * part(n - k)).sum()
        };
        sum(&a, &|m| 1.0 - share(m)) + sum(&b, &share)
    };
    let sum: f64 = a.iter().chain(&b).map(|h| f64::from(h.abs())).sum();
    for n in (0..x.len()).step_by(7) {
        assert!((f64::from(y[n]) - wanted(n)).abs() <= 4e-7 * sum, "at {n}");
    }
}

#[test]
fn what_cannot_be_convolved_is_refused_with_its_place() {
    let prepare = |routes: &[Route]| Fir::prepare(&setting(2, 64), routes).err().unwrap();
    let route = |input, output, taps: &[f32]| Route { input, output, taps: taps.to_vec() };
    assert_eq!(prepare(&[]), Error::NoRoute);
    assert_eq!(
        prepare(&[route(0, 2, &[1.0])]),
        Error::Channel { route: 0, channel: 2, channels: 2 }
    );
    assert_eq!(prepare(&[route(0, 0, &[])]), Error::Taps { route: 0, taps: 0 });
    let long = vec![0.0; MAX_TAPS + 1];
    assert_eq!(prepare(&[route(0, 0, &long)]), Error::Taps { route: 0, taps: MAX_TAPS + 1 });
    let bad = [1.0, f32::NAN];
    assert_eq!(prepare(&[route(0, 0, &bad)]), Error::NotFinite { route: 0, tap: 1 });
    let twice = [route(0, 1, &[1.0]), route(0, 1, &[1.0])];
    assert_eq!(prepare(&twice), Error::Twice { route: 1 });
}

/// The whole promise: every block size, and the longest IRs, against the direct sum. An emulated processor takes some 300 times as long:
/// there each length has every eighth size, another eighth than the length before it, and each of the longest IRs has one size.
#[test]
fn every_block_size_and_length_class_is_true() {
    let is_emulated = std::env::var_os("QUIETCORES_EMULATED").is_some();
    for (turn, &len) in LENGTHS.iter().chain(&[65_536, 262_144, MAX_TAPS]).enumerate() {
        let (x, h) = (noise(2 * len + 3000, 8), ir(len, 9));
        let whole = play(&mut mono(SimdLevel::here(), &h), &x, std::iter::repeat(1024));
        let step = (x.len() / 300).max(1) | 1;
        assert_true(&whole, &x, &h, (0..x.len()).step_by(step), &format!("{len} taps"));
        let (blocks, thinned) = if len <= 8192 { (1..=1024, 8) } else { (1000..=1024, 25) };
        let apart = if is_emulated { thinned } else { 1 };
        for block in blocks.skip(turn % apart).step_by(apart) {
            let y = play(&mut mono(SimdLevel::here(), &h), &x, std::iter::repeat(block));
            assert!(
                y.iter().zip(&whole).all(|(a, b)| a.to_bits() == b.to_bits()),
                "{len} @{block}"
            );
        }
    }
}

/// What a step costs by the plan's own estimate: the share, and at most a unit more.
#[test]
fn no_step_is_given_more_than_its_share_and_a_unit() {
    for len in [1000, 8192, 65_536, 262_144] {
        let mut fir = mono(SimdLevel::here(), &ir(len, 50));
        let unit = |p: &Periodic| p.units.iter().map(|u| i64::from(u.cost)).max().unwrap_or(0);
        let largest = fir.tail.iter().map(unit).max().unwrap_or(0);
        let most = (fir.share >> SHARE_BITS) + largest + 1;
        let left = |fir: &Fir| -> Vec<usize> { fir.tail.iter().map(|p| p.next).collect() };
        let cost = |p: &Periodic, from: usize, to: usize| -> i64 {
            p.units[from..to].iter().map(|u| i64::from(u.cost)).sum()
        };
        for _ in 0..6000 {
            let before = left(&fir);
            fir.process(&mut Block::new(&mut [0.0; STEP], 1));
            let now = fir.position;
            let mut spent = 0;
            for (p, before) in fir.tail.iter().zip(before) {
                let part = p.segment.part() as u64;
                spent += if (now + part - p.phase).is_multiple_of(part) {
                    cost(p, before, p.units.len()) + cost(p, 0, p.next)
                } else {
                    cost(p, before, p.next)
                };
            }
            assert!(spent <= most, "{len} taps: {spent} cycles at {now}, at most {most}");
        }
    }
}
