//! Simulated machines on which steps do what was planted, or nothing: how often a screening says what is not so, and how often it
//! finds what is.

use super::{SPARE, Screened, hadamard, order_for, resolves, screen};
use crate::stats::Random;
use quiet_types::lot;

/// Steps of the simulated plan.
const STEPS: usize = 9;
/// How often the whole design is measured.
const REPEATS: usize = 2;

/// A standard normal number (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// The logarithm of how slow the machine is, block by block.
type Noise = fn(&mut Random, n: usize) -> Vec<f64>;

/// Each breaks an assumption that a test might rest on.
const MACHINES: [(&str, Noise); 5] = [
    ("quiet", |r, n| (0..n).map(|_| 0.2 * normal(r)).collect()),
    ("grows slower all the time", |r, n| {
        (0..n).map(|at| 0.1 * at as f64 + 0.2 * normal(r)).collect()
    }),
    ("remembers", |r, n| {
        let mut level = 0.0;
        let mut next = || {
            level = 0.9 * level + 0.3 * normal(r);
            level
        };
        (0..n).map(|_| next()).collect()
    }),
    ("heavy tails", |r, n| (0..n).map(|_| -0.3 * (1.0 - r.unit()).ln() / 1.2).collect()),
    ("the host strikes one block in five", |r, n| {
        (0..n).map(|_| 0.1 * normal(r) + if r.unit() < 0.2 { 3.0 } else { 0.0 }).collect()
    }),
];

/// What was planted: main effects by step, and what pairs of steps do together only.
#[derive(Clone, Default)]
struct Planted {
    main: Vec<(usize, f64)>,
    together: Vec<(usize, usize, f64)>,
}

impl Planted {
    fn level(&self, on: &[bool]) -> f64 {
        let main = self.main.iter().filter(|(step, _)| on[*step]).map(|(_, effect)| effect);
        let both = self.together.iter().filter(|(a, b, _)| on[*a] && on[*b]).map(|one| one.2);
        main.chain(both.collect::<Vec<f64>>().iter()).sum()
    }
}

/// One screening: latency, and missed periods that come with it.
fn screened(seed: u32, noise: Noise, planted: &Planted, flips: usize) -> Vec<Vec<Screened>> {
    let mut random = Random::new(u64::from(seed) + 1);
    let order = order_for(STEPS).unwrap();
    let design = hadamard(order).unwrap();
    let pairs = order * REPEATS;
    assert!(pairs >= STEPS + SPARE);
    let levels = noise(&mut random, 2 * pairs);
    let (mut rows, mut latency, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    let columns = lot::order(seed, 1 << 20, order - 1);
    let drawn: Vec<usize> =
        (0..REPEATS).flat_map(|turn| lot::order(seed, turn as u64, order)).collect();
    for (pair, row) in drawn.into_iter().enumerate() {
        let coin = if random.bits() & 1 == 1 { 1.0 } else { -1.0 };
        let row: Vec<f64> = columns[..STEPS]
            .iter()
            .map(|column| coin * f64::from(design[row][column + 1]))
            .collect();
        let mut block = |at: usize, sign: f64| {
            let on: Vec<bool> = row.iter().map(|value| value * sign > 0.0).collect();
            let level = levels[2 * pair + at] + planted.level(&on);
            // Periods are missed where it is slow: rare, whole numbers, most of them none.
            let rate = 0.3 * level.min(4.0).exp();
            let (limit, mut count, mut product) = ((-rate).exp(), 0.0f64, random.unit());
            while product > limit && count < 500.0 {
                count += 1.0;
                product *= random.unit();
            }
            (level, (count + 0.5).ln())
        };
        let (first, second) = (block(0, 1.0), block(1, -1.0));
        latency.push(first.0 - second.0);
        missed.push(first.1 - second.1);
        rows.push(row);
    }
    screen(&rows, &[latency, missed], flips, u64::from(seed)).unwrap()
}

/// In how many of `many` screenings something is shown of a step that does nothing.
fn false_ones(noise: Noise, planted: &Planted, many: u32, flips: usize) -> u32 {
    let idle = |step: usize| !planted.main.iter().any(|(known, _)| *known == step);
    let wrong = |all: Vec<Vec<Screened>>| {
        all.iter()
            .flat_map(|one| one.iter().enumerate())
            .any(|(step, it)| idle(step) && it.is_shown())
    };
    (0..many).filter(|seed| wrong(screened(*seed, noise, planted, flips))).count() as u32
}

/// Three steps that do much, two of which do more together: interactions must not be taken for effects.
fn busy() -> Planted {
    Planted {
        main: vec![(0, -1.5), (4, -0.8), (7, 0.6)],
        together: vec![(0, 4, 0.5), (2, 5, 0.0), (1, 3, 0.0)],
    }
}

#[test]
fn a_step_that_does_nothing_is_shown_in_less_than_one_tune_of_twenty() {
    let long = quiet_testing::is_long();
    let (many, flips) = if long { (2000, 1024) } else { (30, 200) };
    for (name, noise) in MACHINES {
        for (what, planted) in [("nothing planted", Planted::default()), ("three planted", busy())]
        {
            let wrong = false_ones(noise, &planted, many, flips);
            // 30 at 5 %: 8 or more would come once in 10^4 draws of one machine. Of 2000, 5 % are 100.
            let most = if long { 100 } else { 7 };
            assert!(wrong <= most, "{name}, {what}: {wrong} of {many}");
        }
    }
}

#[test]
fn what_two_steps_do_together_only_is_no_effect_of_either() {
    let planted = Planted { main: Vec::new(), together: vec![(1, 2, -1.0)] };
    // Together they also are main effects, of half the size each: what is left must be no third step.
    let all = screened(11, MACHINES[0].1, &planted, 512);
    let shown: Vec<usize> = (0..STEPS).filter(|step| all[0][*step].is_shown()).collect();
    assert_eq!(shown, [1, 2]);
    assert!((all[0][1].effect + 0.5).abs() < 0.2, "{:?}", all[0][1]);
}

#[test]
fn effects_of_three_times_the_stated_resolution_are_found_with_their_size() {
    let pairs = order_for(STEPS).unwrap() * REPEATS;
    // Two blocks of 0.2 each make a difference of 0.2 times the root of 2.
    let step = resolves(0.2 * 2f64.sqrt(), pairs, STEPS, 2 * STEPS);
    assert!((0.1..0.4).contains(&step), "{step}");
    let planted = Planted { main: vec![(2, -3.0 * step), (6, -3.0 * step)], ..Planted::default() };
    let many = if quiet_testing::is_long() { 1000 } else { 30 };
    let exact = (0..many)
        .filter(|seed| {
            let all = screened(*seed, MACHINES[0].1, &planted, 512);
            let shown = |at: usize| all[0][at].is_shown() && all[0][at].effect < 0.0;
            shown(2) && shown(6)
        })
        .count();
    assert!(exact * 10 >= many as usize * 9, "{exact} of {many}");
}

#[test]
fn the_power_curve() {
    let pairs = order_for(STEPS).unwrap() * REPEATS;
    let step = resolves(0.2 * 2f64.sqrt(), pairs, STEPS, 2 * STEPS);
    let many = if quiet_testing::is_long() { 1000 } else { 30 };
    let mut before = 0;
    for (times, least, most) in
        [(0.25, 0.0, 0.5), (0.5, 0.0, 0.8), (1.0, 0.45, 1.0), (1.5, 0.9, 1.0), (3.0, 0.95, 1.0)]
    {
        let planted = Planted { main: vec![(3, -times * step)], ..Planted::default() };
        let found = (0..many)
            .filter(|seed| screened(*seed, MACHINES[0].1, &planted, 512)[0][3].is_shown())
            .count();
        let share = found as f64 / f64::from(many);
        assert!((least..=most).contains(&share), "{times}: {share}");
        assert!(found + 3 >= before, "{times}: {found} after {before}");
        before = found;
    }
}

#[test]
fn rows_that_say_too_little_give_no_verdict() {
    let row = vec![1.0, -1.0];
    assert_eq!(screen(&vec![row.clone(); 7], &[vec![1.0; 7]], 64, 1), None);
    // Enough rows, and two steps that are always on together.
    assert_eq!(screen(&vec![vec![1.0, 1.0]; 20], &[vec![1.0; 20]], 64, 1), None);
    assert_eq!(screen(&[], &[], 64, 1), None);
    assert!(resolves(0.1, 10, 9, 9).is_infinite());
}

#[test]
fn a_machine_without_noise_shows_what_is_there_and_no_more() {
    let planted = Planted { main: vec![(1, -0.7)], ..Planted::default() };
    let all = screened(3, |_, n| vec![0.0; n], &planted, 1024);
    let shown: Vec<usize> = (0..STEPS).filter(|step| all[0][*step].is_shown()).collect();
    assert_eq!(shown, [1]);
    assert!((all[0][1].effect + 0.7).abs() < 1e-9 && all[0][1].visible < 1e-6);
}

#[test]
fn lenth_s_error_is_that_of_the_effects_that_are_noise() {
    let mut random = Random::new(5);
    let mut effects: Vec<f64> = (0..31).map(|_| 0.3 * normal(&mut random)).collect();
    effects.extend([5.0, -7.0]);
    let error = super::lenth(&effects);
    assert!((0.2..0.4).contains(&error), "{error}");
    assert_eq!(super::lenth(&[]), 0.0);
}
