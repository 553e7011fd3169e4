//! An array of a WaveNet's layers, depth first: a few frames go through all of them before the next do.
//!
//! Nothing is paid for a layer but its arithmetic, so blocks of 16 frames cost a frame no more than long
//! ones do, and what one layer made is still at hand when the next one wants it. Few channels stay in
//! registers all the way where there are 32 of them; many lie in the nearest cache, in tiles.
//!
//! A tap that is less than a vector back would read what has just been written together with what lay
//! there before, which processors wait for: it is put together of the two by a shuffle.
//!
//! Every sum is taken in one order, in both ways and at every width: bias, condition, taps from the oldest.
//!
//! Loops over a tile count to a constant: they are unrolled, while calls of an iterator may stay calls in
//! functions as long as these, and then the tile goes through memory.
#![allow(clippy::needless_range_loop)]

mod held;
mod laid;

use super::{
    amp_wave::{Act, Rows, STEP},
    lanes::{Job, Kernel, Lanes, paired},
};
use crate::amp::net::{self, Gate};
use held::held_pass;
use laid::laid_pass;

/// The most frames of a pass: what a ring repeats of its ends.
const EDGE: usize = 2 * STEP;

/// An array at work: its weights as they are read, and its past.
pub(crate) struct Array {
    rechannel: net::Conv,
    layers: Vec<Layer>,
    /// Of all layers: bias, mixin, taps, bias and weights of the 1x1.
    weights: Vec<f32>,
    /// Rows of rings.
    past: Vec<f32>,
    /// A step's head sums, activations, and taps that were put together.
    room: Vec<f32>,
    taps: Vec<Tap>,
    /// Channels between the layers; of their convolutions' results; of the condition.
    channels: usize,
    wide: usize,
    given: usize,
    /// None where it is applied elsewhere.
    head: Option<net::Conv>,
    /// What the last layer hands on is heard by nobody.
    last: bool,
    /// As [`paired`] says.
    paired: bool,
}

/// A layer and its ring: `channels` rows `stride` apart, in which a frame's place recurs after `period`,
/// and what stands at one end stands at the other too.
struct Layer {
    act: Act,
    taps: usize,
    dilation: usize,
    weights: usize,
    ring: usize,
    stride: usize,
    period: usize,
    at: usize,
}

/// Where a tap's rows are.
#[derive(Clone, Copy)]
struct Tap {
    at: *const f32,
    stride: usize,
}

// SAFETY: the pointers are written anew in every step before they are read.
unsafe impl Send for Tap {}

impl Layer {
    /// Where the frame `by` before the newest stands in a row.
    fn back(&self, by: usize) -> usize {
        let at = self.at + self.period - by;
        EDGE + if at >= self.period { at - self.period } else { at }
    }

    /// Where the newest frames go, and where they stand once more.
    fn now(&self) -> (usize, Option<usize>) {
        let now = EDGE + self.at;
        let also = if self.at < EDGE {
            Some(now + self.period)
        } else if self.at + EDGE > self.period {
            Some(now - self.period)
        } else {
            None
        };
        (now, also)
    }

    fn advance(&mut self, frames: usize) {
        self.at += frames;
        if self.at >= self.period {
            self.at -= self.period;
        }
    }
}

/// What an array reads and writes: rows, all of the same stride.
pub(crate) struct Io<'a> {
    /// The input's rows, and the condition's.
    pub source: Rows<'a>,
    pub given: Rows<'a>,
    /// The head's sums so far; and with this array's where it applies no head.
    pub sum: &'a mut [f32],
    /// What the head makes of them.
    pub next: &'a mut [f32],
    /// What the last layer hands on.
    pub x: &'a mut [f32],
    /// Whole steps of [`STEP`] are read and written.
    pub frames: usize,
}

impl Array {
    /// None where a layer has more than convolution, mixin, activation and 1x1.
    pub fn new(array: &net::Array, last: bool) -> Option<Array> {
        let (channels, wide) = (array.rechannel.outputs, array.head.inputs);
        let given = array.layers.first()?.mixin.inputs;
        let (mut layers, mut weights, mut rows) = (Vec::new(), Vec::new(), 0);
        for layer in &array.layers {
            let one = layer.one.as_ref()?;
            let act = Act::of(&layer.activation)?;
            let usual = layer.gate == Gate::None
                && layer.head_one.is_none()
                && layer.films.iter().all(Option::is_none)
                && (layer.conv.inputs, layer.conv.outputs) == (channels, wide)
                && (layer.mixin.inputs, layer.mixin.outputs, layer.mixin.taps) == (given, wide, 1)
                && (one.inputs, one.outputs, one.taps) == (wide, channels, 1);
            if !usual || layer.mixin.bias.iter().any(|&b| b != 0.0) {
                return None;
            }
            let (taps, dilation) = (layer.conv.taps, layer.conv.dilation);
            let period = (layer.conv.reach() + 2 * EDGE).next_multiple_of(STEP);
            // An odd number of cache lines keeps the rows apart in the cache.
            let stride = ((period + 3 * EDGE).div_ceil(16) | 1) * 16;
            let at = weights.len();
            for part in [&layer.conv.bias, &layer.mixin.weights, &layer.conv.weights] {
                weights.extend_from_slice(part);
            }
            for part in [&one.bias, &one.weights] {
                weights.extend_from_slice(part);
            }
            let all = wide * (1 + given + taps * channels) + channels * (1 + wide);
            assert_eq!(weights.len() - at, all);
            layers.push(Layer {
                act,
                taps,
                dilation,
                weights: at,
                ring: rows,
                stride,
                period,
                at: 0,
            });
            rows += channels * stride;
        }
        // What is read of a ring in one piece lies within it.
        let near = |layer: &Layer| layer.taps.min(1 + (STEP - 1) / layer.dilation.max(1));
        let short = layers.iter().map(near).max().unwrap_or(1);
        let taps = layers.iter().map(|layer| layer.taps).max().unwrap_or(1);
        let (past, base) = lines(rows);
        for layer in &mut layers {
            layer.ring += base;
        }
        let (room, _) = lines((2 * wide + short * channels) * EDGE);
        let head = (array.head.taps == 1).then(|| array.head.clone());
        let rechannel = array.rechannel.clone();
        assert_eq!(rechannel.weights.len(), rechannel.inputs * channels);
        assert_eq!(rechannel.bias.len(), channels);
        if let Some(head) = &head {
            assert_eq!(head.weights.len(), wide * head.outputs);
            assert_eq!(head.bias.len(), head.outputs);
        }
        Some(Array {
            rechannel,
            layers,
            weights,
            past,
            room,
            taps: vec![Tap { at: std::ptr::null(), stride: 0 }; taps],
            channels,
            wide,
            given,
            head,
            last,
            paired: paired(),
        })
    }

    /// Whether the head is applied here.
    pub fn heads(&self) -> bool {
        self.head.is_some()
    }

    pub fn clear(&mut self) {
        self.past.fill(0.0);
        for layer in &mut self.layers {
            layer.at = 0;
        }
    }

    fn check(&self, io: &Io<'_>) {
        let frames = io.frames.next_multiple_of(STEP);
        let room = |rows: usize| rows.saturating_sub(1) * io.source.stride + frames;
        assert_eq!(io.source.stride, io.given.stride);
        assert!(room(self.rechannel.inputs) <= io.source.data.len());
        assert!(room(self.given) <= io.given.data.len());
        assert!(room(self.wide) <= io.sum.len());
        assert!(self.head.as_ref().is_none_or(|head| room(head.outputs) <= io.next.len()));
        assert!(self.last || room(self.channels) <= io.x.len());
    }

    /// Runs some frames through all layers.
    pub fn run(&mut self, kernel: Kernel, io: Io<'_>) {
        kernel.run(Passes { array: self, io });
    }
}

/// An array, and some frames for it.
struct Passes<'a, 'io> {
    array: &'a mut Array,
    io: Io<'io>,
}

impl Job for Passes<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        self.array.check(&self.io);
        // SAFETY: it has been checked.
        unsafe { passes(l, self.array, &mut self.io) }
    }
}

/// Zeros, and where the first cache line of them begins, behind which there are `count`.
fn lines(count: usize) -> (Vec<f32>, usize) {
    let zeros = vec![0.0f32; count + 16];
    let base = zeros.as_ptr().align_offset(64).min(15);
    (zeros, base)
}

/// # Safety
/// The array has been checked with this.
#[inline(always)]
unsafe fn passes<L: Lanes>(l: L, array: &mut Array, io: &mut Io<'_>) {
    let held = array.wide == array.channels
        && array.given == 1
        && array.head.as_ref().is_none_or(|head| head.outputs <= array.channels);
    macro_rules! pass {
        ($name:ident $(, $n:literal)* => $t:expr) => {
            // SAFETY: as the caller vouches; the widths are the array's.
            unsafe { $name::<L $(, $n)*>(l, array, io, $t) }
        };
    }
    let mut t = 0;
    while t < io.frames {
        let two = io.frames - t > STEP;
        t += if L::WIDTH == STEP {
            match array.channels {
                2 if held && two => pass!(held_pass, 2, 2 => t),
                2 if held => pass!(held_pass, 2, 1 => t),
                3 if held => pass!(held_pass, 3, 1 => t),
                4 if held && two => pass!(held_pass, 4, 2 => t),
                4 if held => pass!(held_pass, 4, 1 => t),
                6 if held => pass!(held_pass, 6, 1 => t),
                8 if held && two && array.paired => pass!(laid_pass, 1, 8 => t),
                8 if held => pass!(held_pass, 8, 1 => t),
                12 if held => pass!(laid_pass, 1, 12 => t),
                16 if held => pass!(laid_pass, 1, 16 => t),
                _ => pass!(laid_pass, 1, 0 => t),
            }
        } else if L::REGISTERS >= 16 {
            match array.channels {
                2 if held => pass!(laid_pass, 2, 2 => t),
                3 if held => pass!(laid_pass, 2, 3 => t),
                4 if held => pass!(laid_pass, 2, 4 => t),
                6 if held => pass!(laid_pass, 2, 6 => t),
                8 if held => pass!(laid_pass, 2, 8 => t),
                12 if held => pass!(laid_pass, 2, 12 => t),
                16 if held => pass!(laid_pass, 2, 16 => t),
                _ => pass!(laid_pass, 2, 0 => t),
            }
        } else {
            pass!(laid_pass, 2, 0 => t)
        };
    }
}

/// # Safety
/// `FV` vectors can be read there.
#[inline(always)]
unsafe fn get<L: Lanes, const FV: usize>(l: L, at: *const f32) -> [L::V; FV] {
    let mut all = [l.splat(0.0); FV];
    for f in 0..FV {
        // SAFETY: as the caller vouches.
        all[f] = unsafe { l.load(at.wrapping_add(f * L::WIDTH)) };
    }
    all
}

/// # Safety
/// `FV` vectors can be written there.
#[inline(always)]
unsafe fn put<L: Lanes, const FV: usize>(l: L, at: *mut f32, all: &[L::V; FV]) {
    for f in 0..FV {
        // SAFETY: as the caller vouches.
        unsafe { l.store(at.wrapping_add(f * L::WIDTH), all[f]) };
    }
}

/// Rows of a ring or of planes, and its mirror.
///
/// # Safety
/// `FV` vectors can be written to `rows` rows there.
#[inline(always)]
unsafe fn put_rows<L: Lanes, const FV: usize, const N: usize>(
    l: L,
    at: *mut f32,
    stride: usize,
    rows: &[[L::V; FV]; N],
) {
    for n in 0..N {
        // SAFETY: as the caller vouches.
        unsafe { put(l, at.wrapping_add(n * stride), &rows[n]) };
    }
}

/// Each lane of a vector the number there.
///
/// # Safety
/// It can be read.
#[inline(always)]
unsafe fn all<L: Lanes>(l: L, at: *const f32) -> L::V {
    // SAFETY: as the caller vouches.
    l.splat(unsafe { *at })
}

/// `sum += weights x` for `N` of `outputs` outputs and some taps one after the other.
///
/// # Safety
/// Each tap has `inputs` rows of `FV` vectors, and there are as many rows of `outputs` weights.
#[inline(always)]
unsafe fn add_taps<L: Lanes, const N: usize, const FV: usize>(
    l: L,
    mut weights: *const f32,
    outputs: usize,
    (taps, t): (&[Tap], usize),
    inputs: usize,
    to: &mut [[L::V; FV]; N],
) {
    // A copy of its own stays in registers, whatever is done to the tile before and after.
    let mut sum = *to;
    for tap in taps {
        let mut at = tap.at.wrapping_add(t);
        for _ in 0..inputs {
            // SAFETY: as the caller vouches.
            let x: [L::V; FV] = unsafe { get(l, at) };
            // SAFETY: as the caller vouches.
            unsafe { l.add_row(weights, &x, &mut sum) };
            at = at.wrapping_add(tap.stride);
            weights = weights.wrapping_add(outputs);
        }
    }
    *to = sum;
}
