//! Ten thousand swaps, block by block: no click, no leak, no allocation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use assert_no_alloc::{AllocDisabler, assert_no_alloc, reset_violation_count, violation_count};
use quiet_dsp::{Block, Stage};
use quiet_engine::{Fade, LoopEvent, player};
use quiet_rt::{Process, Tell};
use quiet_types::{Frames, SampleRate};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

#[global_allocator]
static WATCHED: AllocDisabler = AllocDisabler;

/// Scales what comes; counts those alive.
struct Gain(f32, Arc<AtomicI64>, Vec<f32>);

impl Gain {
    fn boxed(gain: f32, alive: &Arc<AtomicI64>) -> Box<dyn Stage> {
        alive.fetch_add(1, Relaxed);
        // Owns memory, so that dropping it on the wrong side is seen.
        Box::new(Gain(gain, alive.clone(), vec![0.0; 64]))
    }
}

impl Drop for Gain {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Relaxed);
    }
}

impl Stage for Gain {
    fn process(&mut self, block: &mut Block<'_>) {
        self.2[0] = self.0;
        for sample in block.samples() {
            *sample *= self.2[0];
        }
    }

    fn reset(&mut self) {}

    fn set(&mut self, _: usize, _: f32) -> bool {
        true
    }
}

const RATE: u32 = 48_000;
const BLOCK: usize = 48;
const FADE: usize = 960;

#[derive(Default)]
struct Told(u64);

impl Tell for Told {
    fn tell(&mut self, event: LoopEvent) {
        self.0 += u64::from(matches!(event, LoopEvent::Done(_)));
    }
}

fn ten_thousand(fade: Fade) {
    let alive = Arc::new(AtomicI64::new(0));
    let (mut player, mut remote, _told) =
        player(Gain::boxed(1.0, &alive), 1, Frames(BLOCK as u32), SampleRate(RATE));
    let mut told = Told::default();
    let (mut samples, mut last, mut last_step) = ([0.0f32; BLOCK], 0.0f64, 0.0f64);
    let (mut frame, mut swapped, mut worst) = (0u64, 0u64, 0.0f64);
    // A sine of 480 Hz: its second difference is (2 pi 480 / 48000)^2 of its level.
    let omega = std::f64::consts::TAU * 480.0 / f64::from(RATE);
    reset_violation_count();
    while told.0 < 10_000 {
        if swapped < 10_000 {
            let gain = if swapped.is_multiple_of(2) { 0.25 } else { 1.0 };
            if remote.swap(Gain::boxed(gain, &alive), fade).is_ok() {
                swapped += 1;
            }
        }
        for sample in &mut samples {
            *sample = (omega * frame as f64).sin() as f32;
            frame += 1;
        }
        assert_no_alloc(|| player.process(&mut samples, BLOCK, &mut told));
        for sample in samples {
            let step = f64::from(sample) - last;
            if frame > 2 * BLOCK as u64 {
                worst = worst.max((step - last_step).abs());
            }
            (last, last_step) = (f64::from(sample), step);
        }
        remote.collect();
        let waiting = alive.load(Relaxed);
        assert!(waiting <= 256 + 12, "{waiting} strips alive: a leak");
    }
    assert_eq!(violation_count(), 0, "the real-time side allocated or freed");
    // (g s)'' = g s'' + 2 g' s' + g'' s, where the gain's slope may turn over from one fade to the
    // next; a click would be of the order of 1.
    let bound = omega * omega + 2.0 * omega / FADE as f64 + 2.0 / FADE as f64;
    assert!(worst < 1.1 * bound, "second difference {worst}, allowed {bound}");
    // The process is still sound: parameters and bypass, no click either.
    for turn in 0..200 {
        if turn % 20 == 0 {
            remote.bypass(turn % 40 == 0).unwrap();
        }
        remote.set(0, 1.0).unwrap();
        for sample in &mut samples {
            *sample = (omega * frame as f64).sin() as f32;
            frame += 1;
        }
        assert_no_alloc(|| player.process(&mut samples, BLOCK, &mut told));
        for sample in samples {
            let step = f64::from(sample) - last;
            assert!((step - last_step).abs() < 1.1 * bound, "a click by bypass at {frame}");
            (last, last_step) = (f64::from(sample), step);
        }
    }
    // Silence comes and goes by a ramp, and is silence.
    remote.bypass(false).unwrap();
    for turn in 0..200 {
        if turn % 50 == 0 {
            remote.mute(turn % 100 == 0).unwrap();
        }
        for sample in &mut samples {
            *sample = (omega * frame as f64).sin() as f32;
            frame += 1;
        }
        assert_no_alloc(|| player.process(&mut samples, BLOCK, &mut told));
        let is_silent = turn % 100 < 50 && (turn % 100) * BLOCK > FADE + BLOCK;
        for sample in samples {
            assert!(!is_silent || sample == 0.0, "sound in the silence at {frame}");
            let step = f64::from(sample) - last;
            assert!((step - last_step).abs() < 1.1 * bound, "a click by mute at {frame}");
            (last, last_step) = (f64::from(sample), step);
        }
    }
    assert_eq!(violation_count(), 0);
    drop(player);
    remote.collect();
    drop(remote);
    assert_eq!(alive.load(Relaxed), 0, "all dropped");
}

// One test: the allocator's count is for the whole process.
#[test]
fn ten_thousand_swaps_do_not_click_leak_or_allocate() {
    ten_thousand(Fade::Cross);
    ten_thousand(Fade::Through);
    reset_violation_count();
    assert_no_alloc(|| drop(std::hint::black_box(Box::new(1u64))));
    assert_eq!(violation_count(), 2, "an allocation would have been seen");
}

#[test]
fn of_replacements_that_wait_the_newest_alone_is_heard_however_long_nobody_collects() {
    let alive = Arc::new(AtomicI64::new(0));
    let (mut player, mut remote, _told) =
        player(Gain::boxed(1.0, &alive), 1, Frames(BLOCK as u32), SampleRate(RATE));
    let mut told = Told::default();
    reset_violation_count();
    for round in 0..3 {
        for gain in 1..=200u8 {
            assert!(remote.replace(Gain::boxed(f32::from(gain), &alive), Fade::Cross).is_ok());
        }
        // Eight orders a block, and the longest way: a fade that is under way, then the last one.
        let mut heard = 0.0;
        for _ in 0..200 / 8 + 2 * FADE / BLOCK + 3 {
            let mut samples = [1.0; BLOCK];
            assert_no_alloc(|| player.process(&mut samples, BLOCK, &mut told));
            heard = samples[BLOCK - 1];
        }
        assert_eq!((heard, told.0), (200.0, 200 * (round + 1)));
        assert_eq!(remote.collect(), 200);
    }
    assert_eq!(violation_count(), 0);
    drop((player, remote));
    assert_eq!(alive.load(Relaxed), 0);
}
