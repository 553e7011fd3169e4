//! Delay by any time, fractions of a frame included.

use super::frames;
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Fault, Given, Key, KeyKind, Room, ValueForm, ValueUnit},
};
use std::f64::consts::PI;

/// Frames on either side of the point between two samples.
const HALF: usize = 16;
/// No delay is longer.
const LONGEST_MS: f64 = 10_000.0;

pub(crate) const DELAY: KeyKind = KeyKind {
    name: "delay",
    what: "delays its channels; `time` or `frames`, with a fraction",
    keys: &[
        Key {
            name: "time",
            what: "how long",
            form: ValueForm::Number {
                unit: ValueUnit::Millisecond,
                low: 0.0,
                high: LONGEST_MS,
                default: None,
                live: true,
            },
        },
        Key {
            name: "frames",
            what: "how long, in frames in place of `time`",
            form: ValueForm::Number {
                unit: ValueUnit::Frame,
                low: 0.0,
                high: 960_000.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "most",
            what: "the longest time that `time` can be set to live; `time` itself when left out",
            form: ValueForm::Number {
                unit: ValueUnit::Millisecond,
                low: 0.0,
                high: LONGEST_MS,
                default: None,
                live: false,
            },
        },
        Key {
            name: "whole",
            what: "rounds to whole frames: no fraction is interpolated",
            form: ValueForm::Switch { default: false, live: false },
        },
    ],
    shape: KeyKind::SAME,
    build,
};

fn build(given: &Given, room: &mut Room<'_>) -> Result<Built, Fault> {
    let rate = room.setting.rate;
    let wanted = match (given.maybe("time"), given.maybe("frames")) {
        (Some(ms), None) => frames(ms, rate),
        (None, Some(count)) => count,
        _ => {
            let title = "a delay is given by one of `time` and `frames`";
            return Err(Fault::new(title, "`time` is in ms"));
        }
    };
    let most = given.maybe("most").map_or(wanted, |ms| frames(ms, rate).max(wanted));
    let mut built = Built::of(Delay::new(wanted, most, given.switch("whole"), room.setting));
    built.tail = most.ceil() as u32;
    let longest = (most / f64::from(rate.0) * 1e3) as f32;
    let is_borne = frames(f64::from(longest), rate) <= most;
    built.most = Some((0, if is_borne { longest } else { longest.next_down() }));
    Ok(built)
}

/// A ring of samples a channel, and where it is read.
pub struct Delay {
    /// Rings of a power of two, channel after channel.
    rings: Vec<f32>,
    size: usize,
    at: usize,
    now: Tap,
    /// The tap before, while it fades.
    before: Tap,
    fade: u32,
    /// Wanted while a change still fades; begins when that is done.
    next: Option<f64>,
    length: u32,
    most: f64,
    whole: bool,
    setting: ProcessSpec,
}

/// A place in the past between two samples: the frames around it, weighted.
#[derive(Clone)]
struct Tap {
    /// How old the newest of the frames is.
    newest: usize,
    weights: [f32; 2 * HALF],
    count: usize,
}

impl Tap {
    /// A windowed sinc; narrower where there are fewer frames than it wants.
    fn new(delay: f64) -> Tap {
        let base = delay.floor();
        let fraction = delay - base;
        let mut weights = [0.0; 2 * HALF];
        let base = base as usize;
        if fraction < 1e-9 {
            weights[0] = 1.0;
            return Tap { newest: base, weights, count: 1 };
        }
        let half = (base + 1).min(HALF);
        let mut exact = [0.0; 2 * HALF];
        for (k, weight) in exact.iter_mut().enumerate().take(2 * half) {
            // Frame k lies this far from the wanted place.
            let x = (k as f64 - (half - 1) as f64) - fraction;
            let window = 0.5 + 0.5 * (PI * x / half as f64).cos();
            let window = if half == 1 { 1.0 } else { window };
            let sinc = if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) };
            *weight = if half == 1 { 1.0 - x.abs() } else { sinc * window };
        }
        let sum: f64 = exact.iter().sum();
        for (weight, exact) in weights.iter_mut().zip(exact) {
            *weight = (exact / sum) as f32;
        }
        Tap { newest: base + 1 - half, weights, count: 2 * half }
    }

    fn read(&self, ring: &[f32], now: usize) -> f32 {
        let mask = ring.len() - 1;
        let mut sum = 0.0;
        for (k, weight) in self.weights[..self.count].iter().enumerate() {
            sum += weight * ring[now.wrapping_sub(self.newest + k) & mask];
        }
        sum
    }
}

impl Delay {
    /// `wanted` frames, which can be set up to `most`.
    pub fn new(wanted: f64, most: f64, whole: bool, setting: ProcessSpec) -> Delay {
        let wanted = if whole { wanted.round() } else { wanted };
        let size = (most.max(wanted).ceil() as usize + 2 * HALF + 1).next_power_of_two();
        let tap = Tap::new(wanted);
        Delay {
            rings: vec![0.0; size * setting.channels],
            size,
            at: 0,
            now: tap.clone(),
            before: tap,
            fade: 0,
            next: None,
            length: (frames(super::Ramp::MS, setting.rate) as u32).max(1),
            most: most.max(wanted),
            whole,
            setting,
        }
    }
}

impl Delay {
    fn run(&mut self, block: &mut Block<'_>, from: usize, count: usize) {
        let (at, mask) = (self.at, self.size - 1);
        for (channel, ring) in block.each().zip(self.rings.chunks_exact_mut(self.size)) {
            for (frame, x) in channel[from..][..count].iter_mut().enumerate() {
                let now = at.wrapping_add(frame);
                ring[now & mask] = *x;
                let mut y = self.now.read(ring, now);
                if self.fade > 0 {
                    let share = (self.fade - frame as u32) as f32 / self.length as f32;
                    y += share * (self.before.read(ring, now) - y);
                }
                *x = y;
            }
        }
        self.at = self.at.wrapping_add(count);
        self.fade = self.fade.saturating_sub(count as u32);
    }

    fn go(&mut self, wanted: f64) {
        self.before = std::mem::replace(&mut self.now, Tap::new(wanted));
        self.fade = self.length;
    }
}

impl Stage for Delay {
    fn process(&mut self, block: &mut Block<'_>) {
        let mut from = 0;
        while from < block.frames() {
            if self.fade == 0
                && let Some(wanted) = self.next.take()
            {
                self.go(wanted);
            }
            let rest = block.frames() - from;
            let count = if self.fade > 0 { rest.min(self.fade as usize) } else { rest };
            self.run(block, from, count);
            from += count;
        }
    }

    fn reset(&mut self) {
        self.rings.fill(0.0);
        self.at = 0;
        self.fade = 0;
        if let Some(wanted) = self.next.take() {
            self.now = Tap::new(wanted);
        }
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let wanted = frames(f64::from(value), self.setting.rate);
        if param != 0 || wanted > self.most {
            return false;
        }
        self.next = Some(if self.whole { wanted.round() } else { wanted });
        true
    }
}
