//! Convolutions of planes, and a whole layer in one pass.
//!
//! Lanes are frames: a tile of some outputs by some frames stays in registers, each weight is one
//! broadcast, each input sample one load for all outputs. No width of a layer is padded, and the sum
//! of an output is taken in the same order in every tile: bias, mixin, taps from the oldest.

#[cfg(target_arch = "x86_64")]
use super::amp_lanes::{Avx2, Avx512};
use super::{
    Level,
    amp_lanes::{FUSED, Kernel, Lanes, Plain, Tile, tanh},
};

/// Frames are processed in multiples of this, whatever the instruction set.
pub(crate) const STEP: usize = 16;

/// Rows of samples to read from: row `n` begins at `n * stride`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub data: &'a [f32],
    pub stride: usize,
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

/// What the kernels of a whole layer apply to a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    None,
    Tanh,
    /// The slope below zero.
    Leaky(f32),
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

/// A layer: `a = act(bias + mixin + conv)`, `head += a`, `out = x + one_bias + one a`.
pub(crate) struct Layer<'a> {
    pub mixin: Mac<'a>,
    pub conv: Mac<'a>,
    pub bias: &'a [f32],
    pub act: Act,
    /// The activations, row after row.
    pub a: &'a mut [f32],
    pub a_stride: usize,
    pub head: &'a mut [f32],
    pub head_stride: usize,
    /// The 1x1 and its bias; none where nobody listens to what it makes.
    pub one: Option<One<'a>>,
    /// A multiple of [`STEP`].
    pub frames: usize,
}

/// The second half of a layer.
pub(crate) struct One<'a> {
    pub weights: &'a [f32],
    pub bias: &'a [f32],
    /// Where the residual's frames stand in the rows of the convolution's source.
    pub now: usize,
    pub out: Out<'a>,
}

/// Runs `$body` with `$l` bound to the lanes of a level, instructions enabled.
macro_rules! dispatch {
    ($name:ident, $generic:ident, $job:ty) => {
        pub(crate) fn $name(kernel: Kernel, mut job: $job) {
            job.check();
            match kernel.level() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => {
                    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
                    fn enabled(job: &mut $job) {
                        // SAFETY: this function is entered only where AVX-512 is.
                        let l = unsafe { Avx512::new() };
                        // SAFETY: the job has been checked.
                        unsafe { $generic(l, job) }
                    }
                    // SAFETY: a kernel's level is here.
                    unsafe { enabled(&mut job) }
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => {
                    #[target_feature(enable = "avx2,fma")]
                    fn enabled(job: &mut $job) {
                        // SAFETY: this function is entered only where AVX2 and FMA are.
                        let l = unsafe { Avx2::new() };
                        // SAFETY: the job has been checked.
                        unsafe { $generic(l, job) }
                    }
                    // SAFETY: a kernel's level is here.
                    unsafe { enabled(&mut job) }
                }
                // SAFETY: the job has been checked.
                _ => unsafe { $generic(Plain::<FUSED>, &mut job) },
            }
        }
    };
}

impl Conv<'_> {
    fn check(&self) {
        assert!(self.frames.is_multiple_of(STEP));
        self.mac.check(self.bias.len(), self.frames);
        self.out.check(self.bias.len(), self.frames);
    }
}

impl Layer<'_> {
    fn check(&self) {
        assert!(self.frames.is_multiple_of(STEP));
        let wide = self.bias.len();
        self.mixin.check(wide, self.frames);
        self.conv.check(wide, self.frames);
        let rows = wide.saturating_sub(1);
        assert!(rows * self.a_stride + self.frames <= self.a.len());
        assert!(rows * self.head_stride + self.frames <= self.head.len());
        if let Some(one) = &self.one {
            let outputs = one.bias.len();
            assert_eq!(outputs, self.conv.inputs);
            assert_eq!(one.weights.len(), wide * outputs);
            let last = outputs.saturating_sub(1) * self.conv.src.stride;
            assert!(one.now + last + self.frames <= self.conv.src.data.len());
            one.out.check(outputs, self.frames);
        }
    }
}

dispatch!(conv, conv_lanes, Conv<'_>);
dispatch!(layer, layer_lanes, Layer<'_>);

/// Adds the products of one group of taps to a tile.
///
/// # Safety
/// `mac` has been checked for `outputs` and for frames beyond `t + FV * WIDTH`; `o + OT <= outputs`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "constant bounds are unrolled, iterators are not")]
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
            for (f, v) in v.iter_mut().enumerate() {
                // SAFETY: within the rows that were checked.
                *v = unsafe { l.load(x.wrapping_add(f * L::WIDTH)) };
            }
            for o in 0..OT {
                // SAFETY: within the weights that were checked.
                let w = l.splat(unsafe { *w.wrapping_add(o) });
                for f in 0..FV {
                    sum[o][f] = l.fma(w, v[f], sum[o][f]);
                }
            }
            x = x.wrapping_add(mac.src.stride);
            w = w.wrapping_add(outputs);
        }
    }
    *acc = sum;
}

#[inline(always)]
fn activate<L: Lanes, const FV: usize, const OT: usize>(
    l: L,
    act: Act,
    acc: &mut [[L::V; FV]; OT],
) {
    match act {
        Act::None => {}
        Act::Tanh => {
            for acc in acc.iter_mut().flatten() {
                *acc = tanh(l, *acc);
            }
        }
        Act::Leaky(slope) => {
            let (slope, zero) = (l.splat(slope), l.splat(0.0));
            for acc in acc.iter_mut().flatten() {
                *acc = l.fma(slope, l.min(*acc, zero), l.max(*acc, zero));
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
    for (n, acc) in acc.iter_mut().enumerate() {
        // SAFETY: as the caller vouches.
        *acc = [l.splat(unsafe { *bias.get_unchecked(o + n) }); FV];
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
    for (n, acc) in acc.iter().enumerate() {
        for (f, v) in acc.iter().enumerate() {
            let at = (o + n) * out.stride + t + f * L::WIDTH;
            // SAFETY: as the caller vouches.
            unsafe { l.store(base.wrapping_add(at + out.at), *v) };
            if let Some(also) = out.also {
                // SAFETY: as the caller vouches.
                unsafe { l.store(base.wrapping_add(at + also), *v) };
            }
        }
    }
}

/// The most outputs of a tile `FV` vectors wide: accumulators, inputs and one weight in registers.
const fn most(registers: usize, fv: usize) -> usize {
    let most = (registers - fv - 1) / fv;
    if most > 16 { 16 } else { most }
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
    let mut t = 0;
    while t < job.frames {
        let vectors = (job.frames - t) / L::WIDTH;
        if vectors >= 4 && outputs <= const { most(L::REGISTERS, 4) } {
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
        // SAFETY: as the caller vouches.
        unsafe { accumulate(l, &job.mac, job.bias.len(), o, t, &mut acc) };
        activate(l, job.act, &mut acc);
        // SAFETY: as the caller vouches.
        unsafe { finish(l, &mut job.out, o, t, &acc) };
    }
}

/// # Safety
/// The job has been checked.
#[inline(always)]
unsafe fn layer_lanes<L: Lanes>(l: L, job: &mut Layer<'_>) {
    let wide = job.bias.len();
    let outputs = job.one.as_ref().map_or(0, |one| one.bias.len());
    let mut t = 0;
    while t < job.frames {
        let vectors = (job.frames - t) / L::WIDTH;
        if vectors >= 4 && wide.max(outputs) <= const { most(L::REGISTERS, 4) } {
            tiles!(l.four, 4, wide, |o| First { job, o, t });
            tiles!(l.four, 4, outputs, |o| Second { job, o, t });
            t += 4 * L::WIDTH;
        } else if vectors >= 2 {
            tiles!(l.two, 2, wide, |o| First { job, o, t });
            tiles!(l.two, 2, outputs, |o| Second { job, o, t });
            t += 2 * L::WIDTH;
        } else {
            tiles!(l.one, 1, wide, |o| First { job, o, t });
            tiles!(l.one, 1, outputs, |o| Second { job, o, t });
            t += L::WIDTH;
        }
    }
}

/// Convolution, mixin, activation, head.
struct First<'t, 'j> {
    job: &'t mut Layer<'j>,
    o: usize,
    t: usize,
}

impl<L: Lanes> Tile<L> for First<'_, '_> {
    #[inline(always)]
    unsafe fn run<const FV: usize, const OT: usize>(&mut self, l: L) {
        let (o, t, job) = (self.o, self.t, &mut *self.job);
        let wide = job.bias.len();
        // SAFETY: as the caller vouches.
        let mut acc = unsafe { begin::<L, FV, OT>(l, job.bias, o) };
        // SAFETY: as the caller vouches.
        unsafe { accumulate(l, &job.mixin, wide, o, t, &mut acc) };
        // SAFETY: as the caller vouches.
        unsafe { accumulate(l, &job.conv, wide, o, t, &mut acc) };
        activate(l, job.act, &mut acc);
        for (n, acc) in acc.iter().enumerate() {
            for (f, v) in acc.iter().enumerate() {
                let t = t + f * L::WIDTH;
                let a = job.a.as_mut_ptr().wrapping_add((o + n) * job.a_stride + t);
                let head = job.head.as_mut_ptr().wrapping_add((o + n) * job.head_stride + t);
                // SAFETY: as the caller vouches.
                unsafe { l.store(a, *v) };
                // SAFETY: as the caller vouches.
                let sum = l.add(unsafe { l.load(head) }, *v);
                // SAFETY: as the caller vouches.
                unsafe { l.store(head, sum) };
            }
        }
    }
}

/// 1x1 and residual.
struct Second<'t, 'j> {
    job: &'t mut Layer<'j>,
    o: usize,
    t: usize,
}

impl<L: Lanes> Tile<L> for Second<'_, '_> {
    #[inline(always)]
    unsafe fn run<const FV: usize, const OT: usize>(&mut self, l: L) {
        let (o, t, job) = (self.o, self.t, &mut *self.job);
        let Some(one) = &mut job.one else { return };
        let mac = Mac {
            src: Rows { data: job.a, stride: job.a_stride },
            starts: &[0],
            inputs: job.bias.len(),
            weights: one.weights,
        };
        // SAFETY: as the caller vouches.
        let mut acc = unsafe { begin::<L, FV, OT>(l, one.bias, o) };
        // SAFETY: as the caller vouches.
        unsafe { accumulate(l, &mac, one.bias.len(), o, t, &mut acc) };
        let x = job.conv.src.data.as_ptr().wrapping_add(one.now + t);
        for (n, acc) in acc.iter_mut().enumerate() {
            for (f, v) in acc.iter_mut().enumerate() {
                let at = (o + n) * job.conv.src.stride + f * L::WIDTH;
                // SAFETY: as the caller vouches.
                *v = l.add(unsafe { l.load(x.wrapping_add(at)) }, *v);
            }
        }
        // SAFETY: as the caller vouches.
        unsafe { finish(l, &mut one.out, o, t, &acc) };
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

dispatch!(tanh_all, tanh_lanes, Tanh<'_>);

/// # Safety
/// The job has been checked.
#[inline(always)]
unsafe fn tanh_lanes<L: Lanes>(l: L, job: &mut Tanh<'_>) {
    for part in job.data.chunks_exact_mut(L::WIDTH) {
        // SAFETY: a part is as long as a vector.
        let x = unsafe { l.load(part.as_ptr()) };
        // SAFETY: a part is as long as a vector.
        unsafe { l.store(part.as_mut_ptr(), tanh(l, x)) };
    }
}
