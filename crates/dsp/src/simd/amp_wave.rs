//! Convolutions of planes, for what is not a usual array of layers.
//!
//! Lanes are frames: a tile of some outputs by some frames stays in registers, each weight is one
//! broadcast, each input sample one load for all outputs. No width of a layer is padded, and the sum
//! of an output is taken in the same order in every tile: bias, mixin, taps from the oldest.
//!
//! Loops over a tile count to a constant: they are unrolled, while calls of an iterator may stay calls.
#![allow(clippy::needless_range_loop)]

use super::{
    lanes::{Job, Lanes, Tile},
    tanh::tanh,
};
use crate::amp::net::Activation;

/// Frames are processed in multiples of this, whatever the instruction set.
pub(crate) const STEP: usize = 16;

/// Rows of samples to read from: row `n` begins at `n * stride`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub data: &'a [f32],
    pub stride: usize,
}

impl<'a> Rows<'a> {
    /// The first frames of a row.
    pub fn row(&self, n: usize, frames: usize) -> &'a [f32] {
        &self.data[n * self.stride..][..frames]
    }
}

/// A convolution's weights, `[tap][input][output]`.
#[derive(Clone, Copy)]
pub(crate) struct Mac<'a> {
    pub src: Rows<'a>,
    /// Where each tap's first frame stands in a row.
    pub starts: &'a [usize],
    pub inputs: usize,
    pub weights: &'a [f32],
}

/// Where results go: row `n` begins at `n * stride + at`, and also at `n * stride + also` where a
/// ring has its mirror.
pub(crate) struct Out<'a> {
    pub data: &'a mut [f32],
    pub stride: usize,
    pub at: usize,
    pub also: Option<usize>,
}

/// What the kernels apply to a sum themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    None,
    Tanh,
    /// The slope below zero.
    Leaky(f32),
}

impl Act {
    /// None where an activation takes a pass of its own.
    pub fn of(activation: &Activation) -> Option<Act> {
        match activation {
            Activation::Identity => Some(Act::None),
            Activation::Tanh => Some(Act::Tanh),
            Activation::Relu => Some(Act::Leaky(0.0)),
            Activation::LeakyRelu(slope) => Some(Act::Leaky(*slope)),
            _ => None,
        }
    }
}

impl Mac<'_> {
    fn check(&self, outputs: usize, frames: usize) {
        assert_eq!(self.weights.len(), self.starts.len() * self.inputs * outputs);
        let last = self.inputs.checked_sub(1).map_or(0, |n| n * self.src.stride);
        for start in self.starts {
            assert!(start + last + frames <= self.src.data.len());
        }
    }
}

impl Out<'_> {
    fn check(&self, outputs: usize, frames: usize) {
        let last = outputs.saturating_sub(1) * self.stride;
        for at in [self.at, self.also.unwrap_or(self.at)] {
            assert!(at + last + frames <= self.data.len());
        }
    }
}

/// `out[o] = act(bias[o] + mac)`.
pub(crate) struct Conv<'a> {
    pub mac: Mac<'a>,
    pub bias: &'a [f32],
    pub act: Act,
    pub out: Out<'a>,
    /// A multiple of [`STEP`].
    pub frames: usize,
}

impl Conv<'_> {
    fn check(&self) {
        assert!(self.frames.is_multiple_of(STEP));
        self.mac.check(self.bias.len(), self.frames);
        self.out.check(self.bias.len(), self.frames);
    }
}

impl Job for Conv<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        self.check();
        // SAFETY: the job has been checked.
        unsafe { conv_lanes(l, &mut self) }
    }
}

/// Adds the products of one group of taps to a tile.
///
/// # Safety
/// `mac` has been checked for `outputs` and for frames beyond `t + FV * WIDTH`; `o + OT <= outputs`.
#[inline(always)]
unsafe fn accumulate<L: Lanes, const FV: usize, const OT: usize>(
    l: L,
    mac: &Mac<'_>,
    outputs: usize,
    o: usize,
    t: usize,
    acc: &mut [[L::V; FV]; OT],
) {
    // A copy of its own stays in registers, whatever is done to the tile before and after.
    let mut sum = *acc;
    let mut w = mac.weights.as_ptr().wrapping_add(o);
    for start in mac.starts {
        let mut x = mac.src.data.as_ptr().wrapping_add(start + t);
        for _ in 0..mac.inputs {
            let mut v = [l.splat(0.0); FV];
            for f in 0..FV {
                // SAFETY: within the rows that were checked.
                v[f] = unsafe { l.load(x.wrapping_add(f * L::WIDTH)) };
            }
            // SAFETY: within the weights that were checked.
            unsafe { l.add_row(w, &v, &mut sum) };
            x = x.wrapping_add(mac.src.stride);
            w = w.wrapping_add(outputs);
        }
    }
    *acc = sum;
}

/// The same for a single output, whose sum is taken in four chains: one alone would be waited for.
///
/// # Safety
/// As for [`accumulate`].
#[inline(always)]
unsafe fn accumulate_one<L: Lanes, const FV: usize>(
    l: L,
    mac: &Mac<'_>,
    t: usize,
    acc: &mut [L::V; FV],
) {
    const CHAINS: usize = 4;
    let mut sum = [[l.splat(0.0); FV]; CHAINS];
    sum[0] = *acc;
    let mut w = mac.weights.as_ptr();
    for start in mac.starts {
        let mut x = mac.src.data.as_ptr().wrapping_add(start + t);
        let mut left = mac.inputs;
        while left > 0 {
            for n in 0..CHAINS {
                if left == 0 {
                    break;
                }
                // SAFETY: within the weights that were checked.
                let weight = l.splat(unsafe { *w });
                for f in 0..FV {
                    // SAFETY: within the rows that were checked.
                    let v = unsafe { l.load(x.wrapping_add(f * L::WIDTH)) };
                    sum[n][f] = l.fma(weight, v, sum[n][f]);
                }
                x = x.wrapping_add(mac.src.stride);
                w = w.wrapping_add(1);
                left -= 1;
            }
        }
    }
    for f in 0..FV {
        acc[f] = l.add(l.add(sum[0][f], sum[1][f]), l.add(sum[2][f], sum[3][f]));
    }
}

#[inline(always)]
pub(super) fn activate<L: Lanes, const FV: usize, const OT: usize>(
    l: L,
    act: Act,
    acc: &mut [[L::V; FV]; OT],
) {
    match act {
        Act::None => {}
        Act::Tanh => {
            for o in 0..OT {
                for f in 0..FV {
                    acc[o][f] = tanh(l, acc[o][f]);
                }
            }
        }
        Act::Leaky(slope) if (0.0..=1.0).contains(&slope) => {
            let slope = l.splat(slope);
            for o in 0..OT {
                for f in 0..FV {
                    let x = acc[o][f];
                    acc[o][f] = l.max(x, l.mul(slope, x));
                }
            }
        }
        Act::Leaky(slope) => {
            let (slope, zero) = (l.splat(slope), l.splat(0.0));
            for o in 0..OT {
                for f in 0..FV {
                    let x = acc[o][f];
                    acc[o][f] = l.fma(slope, l.min(x, zero), l.max(x, zero));
                }
            }
        }
    }
}

/// Bias of a tile.
///
/// # Safety
/// `o + OT <= bias.len()`.
#[inline(always)]
unsafe fn begin<L: Lanes, const FV: usize, const OT: usize>(
    l: L,
    bias: &[f32],
    o: usize,
) -> [[L::V; FV]; OT] {
    let mut acc = [[l.splat(0.0); FV]; OT];
    for n in 0..OT {
        // SAFETY: as the caller vouches.
        acc[n] = [l.splat(unsafe { *bias.get_unchecked(o + n) }); FV];
    }
    acc
}

/// Writes a tile, and its mirror.
///
/// # Safety
/// `out` has been checked for rows up to `o + OT` and frames up to `t + FV * WIDTH`.
#[inline(always)]
unsafe fn finish<L: Lanes, const FV: usize, const OT: usize>(
    l: L,
    out: &mut Out<'_>,
    o: usize,
    t: usize,
    acc: &[[L::V; FV]; OT],
) {
    let base = out.data.as_mut_ptr();
    for n in 0..OT {
        for f in 0..FV {
            let at = (o + n) * out.stride + t + f * L::WIDTH;
            // SAFETY: as the caller vouches.
            unsafe { l.store(base.wrapping_add(at + out.at), acc[n][f]) };
            if let Some(also) = out.also {
                // SAFETY: as the caller vouches.
                unsafe { l.store(base.wrapping_add(at + also), acc[n][f]) };
            }
        }
    }
}

/// The most outputs of a tile `FV` vectors wide: accumulators, inputs and one weight in registers. Eight sums
/// suffice to keep the multipliers busy, and with no more than that the next tile has begun before the
/// last one's activations are done.
pub(super) const fn most(registers: usize, fv: usize) -> usize {
    let most = (registers - fv - 1) / fv;
    let enough = if fv == 1 { 8 } else { 16 };
    if most > enough { enough } else { most }
}

/// Runs tiles over all outputs, as equal in size as can be.
macro_rules! tiles {
    ($l:ident . $menu:ident, $fv:literal, $outputs:expr, |$o:ident| $tile:expr) => {{
        let outputs: usize = $outputs;
        let mut $o = 0;
        while $o < outputs {
            let left = outputs - $o;
            let size = left.div_ceil(left.div_ceil(const { most(L::REGISTERS, $fv) }));
            // SAFETY: the job has been checked, and the tile lies within its outputs and frames.
            $o += unsafe { $l.$menu(size, &mut $tile) };
        }
    }};
}

/// # Safety
/// The job has been checked.
#[inline(always)]
unsafe fn conv_lanes<L: Lanes>(l: L, job: &mut Conv<'_>) {
    let outputs = job.bias.len();
    // A single output has four chains already.
    let narrow = outputs == 1 && L::REGISTERS < 32;
    let mut t = 0;
    while t < job.frames {
        let vectors = (job.frames - t) / L::WIDTH;
        if vectors >= 4 && outputs <= const { most(L::REGISTERS, 4) } && !narrow {
            tiles!(l.four, 4, outputs, |o| ConvTile { job, o, t });
            t += 4 * L::WIDTH;
        } else if vectors >= 2 {
            tiles!(l.two, 2, outputs, |o| ConvTile { job, o, t });
            t += 2 * L::WIDTH;
        } else {
            tiles!(l.one, 1, outputs, |o| ConvTile { job, o, t });
            t += L::WIDTH;
        }
    }
}

struct ConvTile<'t, 'j> {
    job: &'t mut Conv<'j>,
    o: usize,
    t: usize,
}

impl<L: Lanes> Tile<L> for ConvTile<'_, '_> {
    #[inline(always)]
    unsafe fn run<const FV: usize, const OT: usize>(&mut self, l: L) {
        let (o, t, job) = (self.o, self.t, &mut *self.job);
        // SAFETY: as the caller vouches.
        let mut acc = unsafe { begin::<L, FV, OT>(l, job.bias, o) };
        if job.bias.len() == 1 {
            // SAFETY: as the caller vouches.
            unsafe { accumulate_one(l, &job.mac, t, &mut acc[0]) };
        } else {
            // SAFETY: as the caller vouches.
            unsafe { accumulate(l, &job.mac, job.bias.len(), o, t, &mut acc) };
        }
        activate(l, job.act, &mut acc);
        // SAFETY: as the caller vouches.
        unsafe { finish(l, &mut job.out, o, t, &acc) };
    }
}

/// tanh of every number; the length is a multiple of [`STEP`].
pub(crate) struct Tanh<'a> {
    pub data: &'a mut [f32],
}

impl Tanh<'_> {
    fn check(&self) {
        assert!(self.data.len().is_multiple_of(STEP));
    }
}

impl Job for Tanh<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        self.check();
        for part in self.data.chunks_exact_mut(L::WIDTH) {
            l.write(tanh(l, l.read(part)), part);
        }
    }
}
