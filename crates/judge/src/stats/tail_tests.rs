//! Known answers for the tail.

use super::{Random, tail::*};
use quiet_types::{Histogram, Nanos};

/// A body below 20 us and one reading in five above, with a GPD tail.
fn body_and_tail(random: &mut Random, count: usize, shape: f64, scale: f64) -> Histogram {
    Histogram::of((0..count).map(|_| {
        let above = random.unit() < 0.2;
        let ns = if above { 20e3 + draw(random, shape, scale) } else { 5e3 + 15e3 * random.unit() };
        Nanos(ns as u64)
    }))
}

#[test]
fn known_shapes_and_scales_are_recovered() {
    for (seed, shape) in [(1, -0.3), (2, 0.0), (3, 0.25), (4, 0.6)] {
        let mut random = Random::new(seed);
        let all = body_and_tail(&mut random, 60_000, shape, 30e3);
        let Tail::Fitted(fit) = tail(&all) else { panic!("{shape}: {:?}", tail(&all)) };
        assert!((fit.shape - shape).abs() < 3.0 * fit.shape_error + 0.02, "{shape}: {fit:?}");
        // The scale grows with the threshold: back to 20 us.
        let scale = fit.scale - fit.shape * (fit.threshold - 20e3);
        assert!((scale / 30e3 - 1.0).abs() < 0.15, "{shape}: {scale}");
        assert!(fit.shape_error < 0.1 && fit.goodness >= 0.05);
        assert_eq!(fit.end().is_some(), shape < 0.0);
    }
}

#[test]
fn the_interval_of_a_level_holds_the_truth_about_as_often_as_it_says() {
    if quiet_testing::left_out("6 s") {
        return;
    }
    let (mut held, mut fitted) = (0, 0);
    let mut random = Random::new(11);
    let (shape, scale) = (0.15, 30e3);
    // One reading in a million: one of 200 000 in the tail.
    let truth = 20e3 + scale * (2e5f64.powf(shape) - 1.0) / shape;
    for _ in 0..60 {
        let all = body_and_tail(&mut random, 12_000, shape, scale);
        if let Tail::Fitted(fit) = tail(&all) {
            fitted += 1;
            let level = fit.level(1e6).unwrap();
            assert!(level.low <= level.value && level.value <= level.high);
            held += u32::from((level.low..=level.high).contains(&truth));
        }
    }
    assert!(fitted >= 45, "{fitted}");
    assert!(f64::from(held) >= 0.88 * f64::from(fitted), "{held} of {fitted}");
}

#[test]
fn a_mixture_has_no_fit_until_it_is_split_by_cause() {
    let mut random = Random::new(5);
    // Ticks of 5 us and a host that takes 4 ms now and then: nothing between.
    let ticks =
        Histogram::of((0..50_000).map(|_| Nanos((20e3 + draw(&mut random, -0.1, 2e3)) as u64)));
    let host = Histogram::of((0..400).map(|_| Nanos((4e6 + draw(&mut random, 0.0, 1e6)) as u64)));
    let mut all = ticks.clone();
    all.merge(&host);
    assert!(matches!(tail(&all), Tail::NoFit(_)), "{:?}", tail(&all));
    let part = |name: &str, all: &Histogram, from: f64| match tail_from(all, from) {
        // 100 s were measured.
        Tail::Fitted(fit) => {
            let (readings, a_second) = (all.clone(), all.count as f64 / 100.0);
            CauseReadings { name: name.to_owned(), fit: *fit, readings, a_second }
        }
        Tail::NoFit(why) => panic!("{name}: {why}"),
    };
    let mixture = Mixture { parts: vec![part("tick", &ticks, 0.9), part("host", &host, 0.0)] };
    // The host alone reaches so far: 4 times a second, e^-x of a millisecond each.
    let truth = 4e6 + 1e6 * (4.0f64 * 3600.0).ln();
    let level = mixture.level(3600.0).unwrap();
    assert!((level.value / truth - 1.0).abs() < 0.25, "{level:?} for {truth}");
    assert!((level.low..=level.high).contains(&truth), "{level:?} for {truth}");
    let at_five = mixture.a_second(5e6);
    assert!((at_five - 4.0 * (-1.0f64).exp()).abs() < 0.3, "{at_five}");
}

#[test]
fn levels_of_a_mixture_are_within_their_intervals_as_often_as_they_say() {
    if quiet_testing::left_out("6 s") {
        return;
    }
    let mut random = Random::new(12);
    let (mut held, mut fitted) = (0, 0);
    // In 100 s: ten ticks a second, and a host that comes four times a second with a light end or none.
    for shape in [-0.2, 0.0, 0.2] {
        let truth = {
            let times = 4.0 * 3600.0f64;
            4e6 + 1e6 * if shape == 0.0 { times.ln() } else { (times.powf(shape) - 1.0) / shape }
        };
        for _ in 0..30 {
            let of = |count: usize, from: f64, shape: f64, scale: f64, random: &mut Random| {
                let all = Histogram::of(
                    (0..count).map(|_| Nanos((from + draw(random, shape, scale)) as u64)),
                );
                match tail_from(&all, 0.0) {
                    Tail::Fitted(fit) => Some(CauseReadings {
                        name: String::new(),
                        fit: *fit,
                        a_second: all.count as f64 / 100.0,
                        readings: all,
                    }),
                    Tail::NoFit(_) => None,
                }
            };
            let ticks = of(1000, 2e4, 0.0, 5e3, &mut random);
            let host = of(400, 4e6, shape, 1e6, &mut random);
            let (Some(ticks), Some(host)) = (ticks, host) else { continue };
            let level = Mixture { parts: vec![ticks, host] }.level(3600.0).unwrap();
            assert!(level.low <= level.value && level.value <= level.high);
            fitted += 1;
            held += u32::from((level.low..=level.high).contains(&truth));
        }
    }
    assert!(fitted >= 60, "{fitted}");
    assert!(f64::from(held) >= 0.88 * f64::from(fitted), "{held} of {fitted}");
}

#[test]
fn too_few_readings_and_too_coarse_ones_have_no_fit() {
    let few = Histogram::of((0..400u64).map(Nanos));
    let Tail::NoFit(why) = tail(&few) else { panic!() };
    assert_eq!(why, "400 readings; a tail needs 500 or more");
    let coarse = Histogram::of((0..5000u64).map(|n| Nanos(1000 * (n % 4))));
    assert!(matches!(tail(&coarse), Tail::NoFit(_)));
    assert!(matches!(tail(&Histogram::default()), Tail::NoFit(_)));
}

#[test]
fn percentile_intervals_hold_the_truth_as_often_as_they_say() {
    let mut random = Random::new(8);
    for (q, count) in [(0.5, 500), (0.99, 2000), (0.999, 20_000)] {
        let truth = -1e5 * (1.0f64 - q).ln();
        let held = (0..300)
            .filter(|_| {
                let draws = (0..count).map(|_| Nanos(draw(&mut random, 0.0, 1e5) as u64));
                let level = percentile(&Histogram::of(draws), q).unwrap();
                (level.low..=level.high).contains(&truth)
            })
            .count();
        // Bucket edges widen it a little.
        assert!((273..=300).contains(&held), "{q}: {held}");
    }
    // 100 readings say nothing from above about the 999th of 1000.
    let hundred = Histogram::of((1..=100u64).map(Nanos));
    assert_eq!(percentile(&hundred, 0.999).unwrap().high, f64::INFINITY);
}

#[test]
fn a_claim_holds_is_broken_or_tells_the_time_that_it_still_needs() {
    // None seen: 3 times the claimed time.
    assert!((most_likely_rate(0) - 2.9957).abs() < 1e-3);
    assert!((most_likely_rate(3) - 7.7537).abs() < 1e-3);
    assert_eq!(claim(0, 3.1 * 3600.0, 3600.0).verdict, Shown::Holds);
    let Shown::Needs(more) = claim(0, 600.0, 3600.0).verdict else { panic!() };
    assert!((more - (2.9957 * 3600.0 - 600.0)).abs() < 2.0, "{more}");
    assert_eq!(claim(9, 3600.0, 3600.0).verdict, Shown::Broken);
    assert!(matches!(claim(1, 3600.0, 3600.0).verdict, Shown::Needs(_)));
}

#[test]
fn the_incomplete_gamma_function_is_that_of_a_library() {
    for a in [0.01, 0.3, 0.5, 1.0, 1.7, 5.0, 9.99, 10.0, 33.0, 250.0, 4000.0] {
        for of_a in [0.001, 0.1, 0.5, 0.9, 0.99, 1.0, 1.01, 1.2, 2.0, 5.0, 20.0] {
            let x = a * of_a;
            let (ours, theirs) = (gamma_below(a, x), statrs::function::gamma::gamma_lr(a, x));
            assert!((ours - theirs).abs() < 1e-9, "P({a}, {x}): {ours}, {theirs}");
        }
    }
}

#[test]
fn the_gamma_function_agrees_with_tables() {
    for (a, x, truth) in [
        (0.5, 1.920_729_4, 0.95),
        (1.0, 1.0, 0.632_120_56),
        (5.0, 2.0, 0.052_653),
        (10.0, 12.0, 0.757_608),
    ] {
        assert!((gamma_below(a, x) - truth).abs() < 1e-5, "{a} {x}: {}", gamma_below(a, x));
    }
}
