//! The estimators against signals whose delay is known.

use super::{TestSignal, Unheard, hear};
use fastrand::Rng;
use quiet_types::{SampleRate, trip::Heard};

const RATE: u32 = 48_000;
const LONGEST: usize = 12_000;

/// Of a normal distribution, by Box and Muller.
fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// The sound `delay` frames later, by a windowed sinc over 64 frames: the capturing clock may be
/// faster by `ppm`.
fn later(sound: &TestSignal, delay: f64, ppm: f64) -> Vec<f32> {
    let samples = sound.samples();
    let middle = samples.len() as f64 / 2.0;
    let mut taps = taps(-delay - (-delay).floor());
    (0..samples.len())
        .map(|n| {
            let at = n as f64 - delay - ppm * 1e-6 * (n as f64 - middle);
            if ppm != 0.0 {
                taps = self::taps(at - at.floor());
            }
            let first = at.floor() as i64 - 31;
            let sample = |k: i64| usize::try_from(k).ok().and_then(|k| samples.get(k));
            let products =
                (first..).zip(&taps).map(|(k, tap)| sample(k).map_or(0.0, |x| tap * f64::from(*x)));
            products.sum::<f64>() as f32
        })
        .collect()
}

/// Weights of the 64 samples around a place `fraction` after the 32nd of them.
fn taps(fraction: f64) -> [f64; 64] {
    let pi = std::f64::consts::PI;
    let (sine, mut taps) = ((pi * fraction).sin(), [0.0; 64]);
    for (n, tap) in taps.iter_mut().enumerate() {
        let t = fraction + 31.0 - n as f64;
        // The sine of pi t, of which only the sign depends on n.
        let sine = if (31 - n as i64) % 2 == 0 { sine } else { -sine };
        let sinc = if t.abs() < 1e-12 { 1.0 } else { sine / (pi * t) };
        let w = pi * t / 32.0;
        *tap = sinc
            * (0.35875 + 0.48829 * w.cos() + 0.14128 * (2.0 * w).cos() + 0.01168 * (3.0 * w).cos());
    }
    taps
}

fn sound() -> TestSignal {
    TestSignal::new(SampleRate(RATE), LONGEST, 0.25)
}

/// What is told at the middle of the tones of a delay that is `delay` in the middle of the pass.
fn expected(sound: &TestSignal, delay: f64, ppm: f64) -> f64 {
    let tones = (sound.tones_at + sound.longest + sound.tones_end) as f64 / 2.0;
    delay + ppm * 1e-6 * (tones - sound.samples().len() as f64 / 2.0)
}

fn heard(delay: f64, ppm: f64, change: impl Fn(&mut Vec<f32>)) -> Result<(Heard, f64), Unheard> {
    let sound = sound();
    let mut came = later(&sound, delay, ppm);
    change(&mut came);
    hear(&sound, &came).map(|heard| (heard, expected(&sound, delay, ppm)))
}

#[test]
fn whole_and_fractional_delays_are_exact() {
    for delay in [0.0, 1.0, 137.0, 137.25, 4_096.5, 11_900.9] {
        let (heard, truth) = heard(delay, 0.0, |_| ()).unwrap();
        assert!((heard.frames - truth).abs() < 1e-3, "{} for {truth}", heard.frames);
        assert!((heard.sweep_before - truth).abs() < 0.01, "{} for {truth}", heard.sweep_before);
        assert!((heard.sweep_after - truth).abs() < 0.01, "{} for {truth}", heard.sweep_after);
        assert!(heard.drift_ppm.abs() < 0.01, "{}", heard.drift_ppm);
        assert!(!heard.inverted && heard.clipped == 0 && heard.doubt < 0.01, "{heard:?}");
        assert!(heard.gain_db.abs() < 0.01 && heard.snr_db > 60.0, "{heard:?}");
        assert!((heard.milliseconds - heard.frames / 48.0).abs() < 1e-9);
    }
}

#[test]
fn polarity_and_level_are_told() {
    let (heard, truth) = heard(517.75, 0.0, |came| {
        for sample in came {
            *sample *= -0.01;
        }
    })
    .unwrap();
    assert!(heard.inverted && (heard.frames - truth).abs() < 1e-3, "{heard:?}");
    assert!((heard.gain_db + 40.0).abs() < 0.01, "{}", heard.gain_db);
}

#[test]
fn noise_widens_the_interval_and_the_truth_lies_within_three_of_it() {
    for (seed, level) in [(1, 1e-3), (2, 1e-2), (3, 3e-2)] {
        let (heard, truth) = heard(1000.37, 0.0, |came| {
            let mut random = Rng::with_seed(seed);
            for sample in came {
                *sample += (level * normal(&mut random)) as f32;
            }
        })
        .unwrap();
        let error = (heard.frames - truth).abs();
        assert!(error < 3.0 * heard.uncertainty && error < 0.02, "{heard:?}");
        // 0.25 x (0.4, 12 of 0.05): a power of 5.47e-3.
        let snr = 10.0 * (0.25f64.powi(2) * (0.16 + 12.0 * 0.0025) / 2.0 / level.powi(2)).log10();
        assert!((heard.snr_db - snr).abs() < 0.5, "{} for {snr}", heard.snr_db);
    }
}

#[test]
fn drift_is_told_up_to_500_ppm_and_more_and_does_not_bend_the_delay() {
    for ppm in [-2000.0, -500.0, -7.0, 122.5, 500.0] {
        let (heard, truth) = heard(777.5, ppm, |_| ()).unwrap();
        assert!((heard.drift_ppm - ppm).abs() < 0.05, "{} for {ppm}", heard.drift_ppm);
        assert!((heard.frames - truth).abs() < 0.02, "{} for {truth}", heard.frames);
    }
}

#[test]
fn clipping_is_counted_and_the_delay_stays() {
    let (heard, truth) = heard(300.0, 0.0, |came| {
        for sample in came {
            *sample = (*sample * 6.0).clamp(-1.0, 1.0);
        }
    })
    .unwrap();
    assert!(heard.clipped > 100, "{}", heard.clipped);
    assert!((heard.frames - truth).abs() < 0.05, "{}", heard.frames);
}

#[test]
fn a_lost_period_is_never_missed() {
    let sound = sound();
    let whole = later(&sound, 500.0, 0.0);
    // A multiple of 16 frames leaves the phase of the first tone as it was.
    for period in [16, 64, 256, 1024] {
        // In the tones, right before them, right after them, in the sweep that follows.
        for at in [sound.tones_at + 50_000, sound.tones_at + 300, sound.again_at - 200] {
            let mut came = whole.clone();
            came.drain(at..at + period);
            came.resize(whole.len(), 0.0);
            let wrong = hear(&sound, &came).unwrap_err();
            match wrong {
                Unheard::Slipped { frames, at: when } => {
                    assert!((frames + period as f64).abs() < 0.01, "{period}: {frames}");
                    assert!((when - at as f64 / 48e3).abs() < 0.1, "{when}");
                }
                Unheard::Disagree { .. } | Unheard::Lost { .. } | Unheard::NoSweep { .. } => {}
                other => panic!("{period} at {at}: {other:?}"),
            }
        }
        // Lost, and silence in its place: the delay is the same after.
        let mut came = whole.clone();
        let at = sound.tones_at + sound.longest + 30_000;
        came[at..at + period].fill(0.0);
        let wrong = hear(&sound, &came).unwrap_err();
        assert!(matches!(wrong, Unheard::Lost { .. }), "{period}: {wrong:?}");
    }
}

#[test]
fn silence_noise_and_a_foreign_sound_are_no_round_trip() {
    let sound = sound();
    let silent = hear(&sound, &vec![0.0; sound.samples().len()]).unwrap_err();
    assert!(matches!(silent, Unheard::Silent { .. }), "{silent:?}");
    assert!(silent.to_string().contains("no signal came back"), "{silent}");
    let mut random = Rng::with_seed(7);
    for _ in 0..3 {
        let noise: Vec<f32> =
            sound.samples().iter().map(|_| (0.3 * normal(&mut random)) as f32).collect();
        let wrong = hear(&sound, &noise).unwrap_err();
        assert!(matches!(wrong, Unheard::Silent { .. }), "{wrong:?}");
    }
    let hum: Vec<f32> = (0..sound.samples().len())
        .map(|n| (0.5 * (n as f64 * std::f64::consts::TAU / 16.0).sin()) as f32)
        .collect();
    let wrong = hear(&sound, &hum).unwrap_err();
    assert!(matches!(wrong, Unheard::Silent { .. }), "{wrong:?}");
    // Longer than is waited for.
    let late = later(&sound, LONGEST as f64 + 8_000.0, 0.0);
    let wrong = hear(&sound, &late).unwrap_err();
    assert!(
        matches!(wrong, Unheard::Late { frames, .. } if (frames - 20e3).abs() < 1.0),
        "{wrong:?}"
    );
}

/// Beyond 65 536 frames the tones have come round: they would tell 4 464 frames here.
#[test]
fn a_round_of_the_tones_is_not_taken_for_lost_sound() {
    let sound = TestSignal::new(SampleRate(RATE), TestSignal::MOST, 0.25);
    for delay in [65_700.0, 70_000.0, 76_543.25] {
        let wrong = hear(&sound, &later(&sound, delay, 0.0)).unwrap_err();
        assert!(matches!(wrong, Unheard::Round { .. }), "{delay}: {wrong:?}");
        assert!(wrong.to_string().contains("--longest"), "{wrong}");
    }
    let longest = hear(&sound, &later(&sound, 63_900.5, 0.0)).unwrap();
    assert!((longest.frames - 63_900.5).abs() < 1e-3, "{longest:?}");
}

#[test]
fn without_the_sweep_the_tones_are_not_believed() {
    let sound = sound();
    let mut came = later(&sound, 500.0, 0.0);
    came[..sound.tones_at].fill(0.0);
    let wrong = hear(&sound, &came).unwrap_err();
    assert!(
        matches!(wrong, Unheard::NoSweep { tones } if (tones - 500.0).abs() < 1e-3),
        "{wrong:?}"
    );
    // And tones that were moved by a whole turn of the first one are found out by it.
    let mut came = later(&sound, 500.0, 0.0);
    let moved = later(&sound, 564.0, 0.0);
    let from = sound.tones_at - 100;
    came[from..sound.again_at].copy_from_slice(&moved[from..sound.again_at]);
    let wrong = hear(&sound, &came).unwrap_err();
    assert!(matches!(wrong, Unheard::Disagree { .. }), "{wrong:?}");
    assert!(wrong.to_string().contains("disagree"), "{wrong}");
}
