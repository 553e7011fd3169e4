//! Two simulated cards, and a thread that wakes up late.

use super::*;
use fastrand::Rng;

fn new(channels: usize, period: usize, buffer: usize) -> Bridge {
    let [period, buffer] = [period, buffer].map(|n| Frames(n as u32));
    Bridge::new(channels, period, buffer, SampleRate(48_000)).unwrap()
}

/// What two clocks and the machine around them are like.
#[derive(Clone, Copy)]
struct World {
    /// How much faster than the nominal rate, ppm.
    capture: f64,
    playback: f64,
    period: usize,
    periods: usize,
    /// A card tells of a period at the next multiple of so many seconds: a jiffy.
    tick: f64,
    /// Stamps are so much late, evenly distributed, s.
    stamped: f64,
    /// The thread wakes up so much late on average, s, and each so many periods by `stall`.
    woken: f64,
    stall: (u32, f64),
}

const QUIET: World = World {
    capture: 0.0,
    playback: 0.0,
    period: 64,
    periods: 3,
    tick: 0.0,
    stamped: 0.0,
    woken: 0.0,
    stall: (u32::MAX, 0.0),
};

/// As an emulator is: jiffies of 4 ms, stamps up to 4 ms late, wake-ups too, stalls of 50 ms.
const EMULATED: World = World {
    period: 1024,
    periods: 8,
    tick: 0.004,
    stamped: 0.004,
    woken: 0.004,
    stall: (100, 0.05),
    ..QUIET
};

/// A card's pointer as the program sees it.
struct Card {
    rate: f64,
    period: f64,
    /// Periods told of, and when it tells of the next one.
    told: u64,
    next: f64,
    frames: u64,
    stamp: f64,
}

impl Card {
    fn new(rate: f64, period: usize, world: &World) -> Card {
        let mut card =
            Card { rate, period: period as f64, told: 0, next: 0.0, frames: 0, stamp: 0.0 };
        card.aim(world, 0.0);
        card
    }

    fn aim(&mut self, world: &World, late: f64) {
        let due = (self.told + 1) as f64 * self.period / self.rate;
        let at = if world.tick > 0.0 { (due / world.tick).ceil() * world.tick } else { due };
        self.next = at + late * world.stamped;
    }

    /// What it says by `now`.
    fn look(&mut self, now: f64, world: &World, noise: &mut Rng) {
        while self.next <= now {
            self.stamp = self.next;
            // The pointer as of the jiffy, which may lie behind the period's end.
            let at = if world.tick > 0.0 {
                (self.next / world.tick).floor() * world.tick
            } else {
                (self.told + 1) as f64 * self.period / self.rate
            };
            self.frames = (at * self.rate + 1e-6) as u64;
            self.told = (self.frames as f64 / self.period) as u64;
            self.aim(world, noise.f64());
        }
    }
}

/// What became of it.
struct Heard {
    /// Worst distance of the ratio from the clocks', ppm; and of the delay from what it should be,
    /// frames: after `settled` seconds.
    ratio: f64,
    delay: f64,
    dry: usize,
    /// Least and most frames in the queue when a period is made.
    level: (usize, usize),
    sound: Vec<f32>,
}

/// Plays `signal` for so many seconds.
fn play(world: World, seconds: f64, settled: f64, signal: impl Fn(u64) -> f64) -> Heard {
    let rate = 48_000.0;
    let World { period, .. } = world;
    let buffer = period * world.periods;
    let mut bridge = new(1, period, buffer);
    let mut noise = Rng::with_seed(5);
    let mut capture = Card::new(rate * (1.0 + world.capture * 1e-6), period, &world);
    let mut playback = Card::new(rate * (1.0 + world.playback * 1e-6), period, &world);
    let truth = capture.rate / playback.rate;
    let (mut fetched, mut written, mut now) = (0u64, buffer as u64, 0.0f64);
    let mut samples = vec![0.0f32; period];
    let mut heard =
        Heard { ratio: 0.0, delay: 0.0, dry: 0, level: (usize::MAX, 0), sound: Vec::new() };
    let ns = |time: f64| (time * 1e9) as u64 + 1_000_000_000;
    let mut turn = 0u32;
    while now < seconds {
        let free = playback.frames + buffer as u64 - written;
        if free < period as u64 {
            // Asleep until the playing card tells of more, and then some.
            now = now.max(playback.next) + world.woken * -(1.0 - noise.f64()).ln();
            turn += 1;
            if turn.is_multiple_of(world.stall.0) {
                now += world.stall.1;
            }
            playback.look(now, &world, &mut noise);
            capture.look(now, &world, &mut noise);
            assert!(playback.frames <= written, "the test's thread is too late for its ring");
            continue;
        }
        let frames = ((capture.frames - fetched) as usize).min(bridge.free());
        bridge.append(|planes, (_, _, at)| {
            for (n, sample) in planes[at..at + frames].iter_mut().enumerate() {
                *sample = signal(fetched + n as u64) as f32;
            }
            frames
        });
        fetched += frames as u64;
        let level = bridge.level;
        heard.dry += usize::from(!bridge.take(&mut samples));
        written += period as u64;
        heard.sound.extend_from_slice(&samples);
        bridge.captured(ns(capture.stamp), capture.frames - fetched);
        bridge.played(ns(playback.stamp), playback.frames + buffer as u64 - written);
        if now > settled {
            heard.ratio = heard.ratio.max((bridge.ratio() - truth).abs() * 1e6);
            // As it really is.
            let ring = (written as f64 - now * playback.rate) * truth;
            let queue = now * capture.rate - fetched as f64 + bridge.level as f64;
            heard.delay = heard.delay.max((queue + ring - bridge.target).abs());
            heard.level = (heard.level.0.min(level), heard.level.1.max(level));
        }
    }
    heard
}

fn sine(frame: u64) -> f64 {
    (std::f64::consts::TAU * frame as f64 * 997.0 / 48_000.0).sin()
}

/// The share of a sine's energy that is no sine, in the last half second.
fn rest(sound: &[f32], truth: f64) -> f64 {
    let last = &sound[sound.len() - 24_000..];
    let omega = std::f64::consts::TAU * 997.0 * truth / 48_000.0;
    let (mut s, mut c, mut all) = (0.0, 0.0, 0.0);
    for (n, x) in last.iter().enumerate() {
        let x = f64::from(*x);
        s += x * (omega * n as f64).sin();
        c += x * (omega * n as f64).cos();
        all += x * x;
    }
    let explained = 2.0 * (s * s + c * c) / last.len() as f64;
    (all - explained).max(0.0) / all
}

#[test]
fn on_a_quiet_machine_the_ratio_is_found_to_a_ppm() {
    for (capture, playback) in [(100.0, 0.0), (-300.0, 0.0), (150.0, -150.0), (0.0, 0.0)] {
        let world = World { capture, playback, ..QUIET };
        let heard = play(world, 40.0, 20.0, sine);
        let truth = (1.0 + capture * 1e-6) / (1.0 + playback * 1e-6);
        let what = format!("{capture} and {playback} ppm");
        assert_eq!(heard.dry, 0, "{what}");
        assert!(heard.ratio < 2.0, "{what}: {} ppm off", heard.ratio);
        assert!(heard.delay < 2.0, "{what}: {} frames off", heard.delay);
        let rest = rest(&heard.sound, truth);
        assert!(rest < 1e-3, "{what}: {rest} of the energy is no sine");
    }
}

#[test]
fn in_an_emulator_it_settles_to_a_few_ppm_and_the_delay_holds() {
    for (capture, playback) in [(300.0, 0.0), (-300.0, 0.0), (20.0, -30.0), (100.0, 100.0)] {
        let world = World { capture, playback, ..EMULATED };
        let heard = play(world, 180.0, 60.0, sine);
        let what = format!("{capture} and {playback} ppm");
        assert_eq!(heard.dry, 0, "{what}");
        assert!(heard.ratio < 15.0, "{what}: {} ppm off", heard.ratio);
        assert!(heard.delay < 20.0, "{what}: {} frames off", heard.delay);
        let period = world.period;
        let (least, most) = heard.level;
        assert!(least > period && most < 8 * period, "{what}: level {least} to {most}");
    }
}

#[test]
fn no_frame_is_lost_or_doubled_on_the_way() {
    // Up and down in equal steps: after the resampler they are the ratio, and a frame more or less
    // would be a step of none or two. Only the turning points are not looked at.
    let top = 48_000;
    let world = World { capture: 300.0, ..EMULATED };
    let heard = play(world, 60.0, 0.0, |frame| {
        let at = frame % (2 * top);
        at.min(2 * top - at) as f64 / top as f64
    });
    let from = heard.sound.iter().position(|x| *x > 0.01).unwrap();
    let inside = |pair: &[f32]| (0.01..0.99).contains(&pair[0]) && (0.01..0.99).contains(&pair[1]);
    let steps = heard.sound[from..].windows(2).filter(|pair| inside(pair));
    let steps: Vec<f64> =
        steps.map(|pair| f64::from(pair[1] - pair[0]).abs() * top as f64).collect();
    assert!(steps.len() > 50 * 48_000, "{}", steps.len());
    assert_eq!(steps.iter().find(|step| (**step - 1.0).abs() > 0.05), None);
}

#[test]
fn where_nothing_comes_there_is_silence_and_after_a_reset_the_same_delay() {
    let mut bridge = new(2, 16, 32);
    let mut samples = vec![1.0f32; 32];
    let second = 1_000_000_000u64;
    let turn = |n: u64| second + n * second * 16 / 48_000;
    // One period after the other, then nothing is captured any more while the other card plays on.
    let mut n = 0;
    let mut run = |bridge: &mut Bridge, n: &mut u64, turns: u64, captures: bool| {
        let mut dry = 0;
        for _ in 0..turns {
            *n += 1;
            bridge.append(|_, _| if captures { 16 } else { 0 });
            dry += usize::from(!bridge.take(&mut samples));
            if captures {
                bridge.captured(turn(*n), 0);
            }
            bridge.played(turn(*n), 0);
        }
        (dry, samples.clone())
    };
    assert_eq!(run(&mut bridge, &mut n, 100, true).0, 0);
    let delay = bridge.delay;
    assert!((delay - bridge.target).abs() < 5.0, "{delay}");
    let (dry, silence) = run(&mut bridge, &mut n, 10, false);
    assert!((5..=9).contains(&dry), "{dry}");
    assert_eq!(silence, [0.0; 32]);
    // What was not captured meanwhile is as if it came now.
    bridge.append(|_, _| 160);
    bridge.reset();
    assert_eq!(run(&mut bridge, &mut n, 20, true).0, 0);
    assert!((bridge.delay - bridge.target).abs() < 5.0, "{}", bridge.delay);
    // A card that never tells of anything.
    let mut bridge = new(1, 16, 32);
    let dry = (0..100).filter(|_| !bridge.take(&mut samples[..16])).count();
    assert!(dry > 50, "{dry}");
}
