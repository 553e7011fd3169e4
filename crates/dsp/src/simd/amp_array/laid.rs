//! Any number of channels: they lie in the nearest cache, and tiles of them in registers.

use super::{Array, EDGE as SPAN, Io, Layer, Tap, add_taps, all, get, put, put_rows};
use crate::simd::{
    amp_wave::{Act, STEP, activate, most},
    lanes::{Lanes, Tile},
};

/// Any number of channels, in memory; `C` of them where that is known beforehand (0: it is not, and the array
/// says how many), which then go from array to array and from layer to layer, with one of condition. Says how
/// many frames went through: one [`STEP`] or two, in tiles of `FV` vectors, which are a step.
///
/// With two, a layer's weights serve both while they are near, and where the one waits for what it has just
/// made, the other has work. Where vectors are a step long and two of them are [`paired`], each weight is read once for
/// both: of 512-bit loads a processor has as many a cycle as of multiply-adds, and a row that begins anywhere takes two.
///
/// [`paired`]: super::super::lanes::paired
///
/// Long, and one function: most of it names what a tile reads and writes, for one tile after the other.
///
/// # Safety
/// The array has been checked with this, and has `C` channels and one of condition if `C` is not 0.
#[allow(clippy::too_many_lines, reason = "most of it names what a tile reads and writes")]
#[inline(always)]
pub(super) unsafe fn laid_pass<L: Lanes, const FV: usize, const C: usize>(
    l: L,
    array: &mut Array,
    io: &mut Io<'_>,
    t: usize,
) -> usize {
    let steps = if io.frames - t > STEP { 2 } else { 1 };
    let frames = (steps * STEP).min(io.frames - t);
    let stride = io.source.stride;
    let base = array.room.as_ptr().align_offset(64).min(15);
    let head = array.room.as_mut_ptr().wrapping_add(base);
    let acts = head.wrapping_add(array.wide * SPAN);
    let moved = acts.wrapping_add(array.wide * SPAN);
    let past = array.past.as_mut_ptr();
    let target = |layer: &Layer| {
        let (now, also) = layer.now();
        let at = |n: usize| past.wrapping_add(layer.ring + n);
        To { at: at(now), also: also.map(at), stride: layer.stride }
    };
    let rows = |at: *const f32| Tap { at: at.wrapping_add(t), stride };
    let whole = |at: *mut f32| To { at: at.wrapping_add(t), also: None, stride };

    if let Some(first) = array.layers.first() {
        let conv = &array.rechannel;
        let tile = Sum::<FV> {
            bias: conv.bias.as_ptr(),
            beside: None,
            weights: conv.weights.as_ptr(),
            outputs: if C == 0 { conv.outputs } else { C },
            inputs: conv.inputs,
            taps: &[rows(io.source.data.as_ptr())],
            given: None,
            act: Act::None,
            head: None,
            to: target(first),
            o: 0,
            t: 0,
        };
        // SAFETY: the rows have been checked; a ring holds an edge beyond its last frame.
        unsafe { tile.run_all::<L, C>(l, steps, array.paired) };
    }
    let (channels, wide) = if C == 0 { (array.channels, array.wide) } else { (C, C) };
    let given = if C == 0 { array.given } else { 1 };
    for n in 0..wide {
        for step in 0..steps {
            let from = io.sum.as_ptr().wrapping_add(n * stride + t + step * STEP);
            // SAFETY: the rows have been checked.
            let row: [L::V; FV] = unsafe { get(l, from) };
            // SAFETY: the room has a row for each sum.
            unsafe { put(l, head.wrapping_add(n * SPAN + step * STEP), &row) };
        }
    }
    for n in 0..array.layers.len() {
        let layer = &array.layers[n];
        let ring = past.wrapping_add(layer.ring);
        let (now, _) = layer.now();
        let mut to = moved;
        for (k, tap) in array.taps[..layer.taps].iter_mut().enumerate() {
            let by = (layer.taps - 1 - k) * layer.dilation;
            // What lies less than a narrow vector back is waited for less than a shuffle costs.
            if by == 0 || by >= L::WIDTH || L::WIDTH < STEP {
                *tap = Tap { at: ring.wrapping_add(layer.back(by)), stride: layer.stride };
                continue;
            }
            *tap = Tap { at: to, stride: SPAN };
            let shift = l.by(by);
            for o in 0..channels {
                let before = ring.wrapping_add(o * layer.stride + layer.back(L::WIDTH));
                // SAFETY: a ring reaches two edges further back than its layer.
                let mut before = unsafe { l.load(before) };
                for step in 0..steps {
                    let at = ring.wrapping_add(o * layer.stride + now + step * STEP);
                    // SAFETY: these are the newest frames.
                    let mut row: [L::V; FV] = unsafe { get(l, at) };
                    for f in 0..FV {
                        let now = row[f];
                        row[f] = l.shift(shift, before, now);
                        before = now;
                    }
                    // SAFETY: the room has rows for the taps that lie less than a step back.
                    unsafe { put(l, to.wrapping_add(step * STEP), &row) };
                }
                to = to.wrapping_add(SPAN);
            }
        }
        let weights = array.weights.as_ptr().wrapping_add(layer.weights);
        let mixin = weights.wrapping_add(wide);
        let tile = Sum::<FV> {
            bias: weights,
            beside: None,
            weights: mixin.wrapping_add(given * wide),
            outputs: wide,
            inputs: channels,
            taps: &array.taps[..layer.taps],
            given: Some((mixin, rows(io.given.data.as_ptr()), given)),
            act: layer.act,
            head: Some(head),
            to: To { at: acts, also: None, stride: SPAN },
            o: 0,
            t: 0,
        };
        // SAFETY: the weights follow each other as they were laid out, the rows have been checked.
        unsafe { tile.run_all::<L, C>(l, steps, array.paired) };
        let to = match array.layers.get(n + 1) {
            Some(next) => Some(target(next)),
            None => (!array.last).then(|| whole(io.x.as_mut_ptr())),
        };
        if let Some(to) = to {
            let bias = mixin.wrapping_add((given + layer.taps * channels) * wide);
            let x = Tap { at: ring.wrapping_add(now), stride: layer.stride };
            let tile = Sum::<FV> {
                bias,
                beside: Some(x),
                weights: bias.wrapping_add(channels),
                outputs: channels,
                inputs: wide,
                taps: &[Tap { at: acts, stride: SPAN }],
                given: None,
                act: Act::None,
                head: None,
                to,
                o: 0,
                t: 0,
            };
            // SAFETY: as above.
            unsafe { tile.run_all::<L, C>(l, steps, array.paired) };
        }
        array.layers[n].advance(frames);
    }
    let made = Tap { at: head, stride: SPAN };
    if let Some(conv) = &array.head {
        let tile = Sum::<FV> {
            bias: conv.bias.as_ptr(),
            beside: None,
            weights: conv.weights.as_ptr(),
            outputs: conv.outputs,
            inputs: wide,
            taps: &[made],
            given: None,
            act: Act::None,
            head: None,
            to: whole(io.next.as_mut_ptr()),
            o: 0,
            t: 0,
        };
        // SAFETY: the rows have been checked, and there is a weight for each input and output.
        unsafe { tile.run_few(l, steps) };
    } else {
        for n in 0..wide {
            for step in 0..steps {
                // SAFETY: the room has a row for each sum.
                let row: [L::V; FV] = unsafe { get(l, head.wrapping_add(n * SPAN + step * STEP)) };
                let to = io.sum.as_mut_ptr().wrapping_add(n * stride + t + step * STEP);
                // SAFETY: the rows have been checked.
                unsafe { put(l, to, &row) };
            }
        }
    }
    steps * STEP
}

/// Where rows go, and where they stand once more.
#[derive(Clone, Copy)]
struct To {
    at: *mut f32,
    also: Option<*mut f32>,
    stride: usize,
}

/// `act(bias + beside + given + taps)` for some outputs at a time, kept and added to the head's sums.
struct Sum<'a, const FV: usize> {
    bias: *const f32,
    /// Rows that are added as they are.
    beside: Option<Tap>,
    /// `[tap][input][output]`.
    weights: *const f32,
    outputs: usize,
    inputs: usize,
    taps: &'a [Tap],
    /// Weights, rows and how many: before the taps.
    given: Option<(*const f32, Tap, usize)>,
    act: Act,
    head: Option<*mut f32>,
    to: To,
    /// The first output of a tile, and its first frame.
    o: usize,
    t: usize,
}

impl<const FV: usize> Sum<'_, FV> {
    /// All outputs, `C` of them where that is known beforehand; two steps in one tile where they are `paired` and a
    /// step is one vector.
    ///
    /// # Safety
    /// All that it names is there, so many steps in a row, each of `FV` vectors.
    #[inline(always)]
    unsafe fn run_all<L: Lanes, const C: usize>(mut self, l: L, steps: usize, paired: bool) {
        if FV == 1 && paired {
            macro_rules! wide {
                ($vectors:literal: $($n:literal)*) => {{
                    // SAFETY: as the caller vouches; a second step's frames follow the first one's.
                    $(unsafe { Tile::<L>::run::<$vectors, $n>(&mut self, l) };
                    self.o += $n;)*
                    return;
                }};
            }
            match (C, steps) {
                (8, 2) => wide!(2: 8),
                (12, 1) => wide!(1: 12),
                (12, 2) => wide!(2: 6 6),
                (16, 1) => wide!(1: 16),
                (16, 2) => wide!(2: 8 8),
                _ => {}
            }
        }
        for step in 0..steps {
            (self.t, self.o) = (step * STEP, 0);
            macro_rules! tiles {
                ($($n:literal)*) => {{
                    // SAFETY: as the caller vouches; the tiles make up `C`.
                    $(unsafe { Tile::<L>::run::<FV, $n>(&mut self, l) };
                    self.o += $n;)*
                }};
            }
            match (FV, C) {
                (_, 2) => tiles!(2),
                (_, 3) => tiles!(3),
                (_, 4) => tiles!(4),
                (2, 6) => tiles!(6),
                (2, 8) => tiles!(4 4),
                (1, 12) | (2, 12) => tiles!(6 6),
                (1, 16) => tiles!(8 8),
                (2, 16) => tiles!(6 5 5),
                // SAFETY: as the caller vouches.
                _ => unsafe { self.run_any(l) },
            }
        }
    }

    /// The outputs of one step, in tiles as equal in size as can be.
    ///
    /// # Safety
    /// As for [`Sum::run_all`].
    #[inline(always)]
    unsafe fn run_any<L: Lanes>(&mut self, l: L) {
        while self.o < self.outputs {
            let left = self.outputs - self.o;
            let size = left.div_ceil(left.div_ceil(const { most(L::REGISTERS, FV) }));
            self.o += if FV == 1 {
                // SAFETY: as the caller vouches; a tile is no larger than it is told.
                unsafe { l.one(size, self) }
            } else {
                // SAFETY: as above.
                unsafe { l.two(size, self) }
            };
        }
    }

    /// Few outputs, which take little time: fewer kinds of tiles.
    ///
    /// # Safety
    /// As for [`Sum::run_all`].
    #[inline(always)]
    unsafe fn run_few<L: Lanes>(mut self, l: L, steps: usize) {
        for step in 0..steps {
            (self.t, self.o) = (step * STEP, 0);
            while self.o < self.outputs {
                if self.outputs - self.o >= 4 {
                    // SAFETY: as the caller vouches; there are as many left.
                    unsafe { Tile::<L>::run::<FV, 4>(&mut self, l) };
                    self.o += 4;
                } else {
                    // SAFETY: as above.
                    unsafe { Tile::<L>::run::<FV, 1>(&mut self, l) };
                    self.o += 1;
                }
            }
        }
    }
}

impl<L: Lanes, const W: usize> Tile<L> for Sum<'_, W> {
    #[inline(always)]
    unsafe fn run<const FV: usize, const OT: usize>(&mut self, l: L) {
        let (o, t) = (self.o, self.t);
        let mut acc = [[l.splat(0.0); FV]; OT];
        for n in 0..OT {
            // SAFETY: as the caller vouches.
            acc[n] = [unsafe { all(l, self.bias.wrapping_add(o + n)) }; FV];
        }
        if let Some(x) = self.beside {
            for n in 0..OT {
                // SAFETY: as the caller vouches.
                let x: [L::V; FV] = unsafe { get(l, x.at.wrapping_add((o + n) * x.stride + t)) };
                for f in 0..FV {
                    acc[n][f] = l.add(x[f], acc[n][f]);
                }
            }
        }
        if let Some((weights, rows, count)) = self.given {
            let weights = weights.wrapping_add(o);
            // SAFETY: as the caller vouches.
            unsafe { add_taps(l, weights, self.outputs, (&[rows], t), count, &mut acc) };
        }
        let weights = self.weights.wrapping_add(o);
        // SAFETY: as the caller vouches.
        unsafe { add_taps(l, weights, self.outputs, (self.taps, t), self.inputs, &mut acc) };
        activate(l, self.act, &mut acc);
        if let Some(head) = self.head {
            for n in 0..OT {
                let at = head.wrapping_add((o + n) * SPAN + t);
                // SAFETY: as the caller vouches.
                let mut row: [L::V; FV] = unsafe { get(l, at) };
                for f in 0..FV {
                    row[f] = l.add(row[f], acc[n][f]);
                }
                // SAFETY: as the caller vouches.
                unsafe { put(l, at, &row) };
            }
        }
        let at = o * self.to.stride + t;
        // SAFETY: as the caller vouches.
        unsafe { put_rows(l, self.to.at.wrapping_add(at), self.to.stride, &acc) };
        if let Some(also) = self.to.also {
            // SAFETY: as the caller vouches.
            unsafe { put_rows(l, also.wrapping_add(at), self.to.stride, &acc) };
        }
    }
}
