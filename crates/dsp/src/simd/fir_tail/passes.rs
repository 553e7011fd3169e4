//! What the units do: the passes of the transforms, and the products between them.

#![allow(clippy::needless_range_loop, reason = "vectors in step with each other")]

use super::{
    Chunk, Roots, Row, Segment, What, WorkUnit,
    complex::{Complex, Deal, Twiddles, deal, join, place, split},
};
use crate::simd::lanes::{Job, Lanes};

/// Some units of a segment, on the inputs' rings.
pub(super) struct Units<'a> {
    pub(super) segment: &'a mut Segment,
    pub(super) units: &'a [WorkUnit],
    pub(super) rings: &'a [Vec<Row>],
}

impl Job for Units<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Units { segment: s, units, rings } = self;
        for unit in units {
            match unit.what {
                What::Take { input, from, to } => take(l, s, &rings[input as usize], from, to),
                What::Down { pass, from, to } => columns::<L, false>(l, s, pass, from, to),
                What::Leaf { input, from, to } => leaf(l, s, input as usize, from, to),
                What::Multiply { path, bands, slots, more } => {
                    multiply(l, s, path as usize, bands, slots, more);
                }
                What::Clear => s.work.fill(Chunk::ZERO),
                What::Root { from, to } => root(l, s, from, to),
                What::Up { pass, from, to } => columns::<L, true>(l, s, pass, from, to),
                What::Give { output, from, to } => give(l, s, output as usize, from, to),
            }
        }
    }
}

#[inline(always)]
fn take<L: Lanes>(l: L, s: &mut Segment, ring: &[Row], from: u32, to: u32) {
    let (chunks, mask, start) = (s.part / 16, ring.len() - 1, s.start);
    let w = Twiddles::splat(l, &ROOTS_OF_I);
    let step = if s.halves { chunks / 2 } else { chunks / 4 };
    for i in from as usize..to as usize {
        for v in 0..16 / L::WIDTH {
            let a = input(l, ring, (start + i) & mask, (start + chunks + i) & mask, v);
            let i1 = start + i + step;
            let b = input(l, ring, i1 & mask, (i1 + chunks) & mask, v);
            if s.halves {
                let sum = a.add_product(l, w.sigma, b);
                sum.store(l, &mut s.work[i], v);
                a.mirror(l, sum).store(l, &mut s.work[i + step], v);
            } else {
                let (i2, i3) = (i1 + step, i1 + 2 * step);
                let c = input(l, ring, i2 & mask, (i2 + chunks) & mask, v);
                let d = input(l, ring, i3 & mask, (i3 + chunks) & mask, v);
                let [a, b, c, d] = split(l, [a, b, c, d], w);
                a.store(l, &mut s.work[i], v);
                b.store(l, &mut s.work[i + step], v);
                c.store(l, &mut s.work[i + 2 * step], v);
                d.store(l, &mut s.work[i + 3 * step], v);
            }
        }
    }
}

/// Of the last two parts of input: the earlier one is real, the later one imaginary.
#[inline(always)]
fn input<L: Lanes>(l: L, ring: &[Row], earlier: usize, later: usize, v: usize) -> Complex<L> {
    let at = v * L::WIDTH;
    Complex { re: l.read(&ring[earlier].0[at..]), im: l.read(&ring[later].0[at..]) }
}

/// The roots that split the whole.
const ROOTS_OF_I: Roots = [
    std::f32::consts::FRAC_1_SQRT_2,
    std::f32::consts::FRAC_1_SQRT_2,
    0.923_879_5,
    0.382_683_43,
    0.382_683_43,
    0.923_879_5,
];

/// Forward or back. A column lies in all four quarters of a block, and the blocks follow each other.
#[inline(always)]
fn columns<L: Lanes, const BACK: bool>(l: L, s: &mut Segment, pass: u32, from: u32, to: u32) {
    let Segment { passes, work, .. } = s;
    let pass = &passes[pass as usize];
    let quarter = pass.quarter;
    let (mut at, to) = (from as usize, to as usize);
    while at < to {
        let (block, column) = (at / quarter, at % quarter);
        let count = (quarter - column).min(to - at);
        let w = Twiddles::splat(l, &pass.roots[block]);
        let (low, high) = work[4 * block * quarter..][..4 * quarter].split_at_mut(2 * quarter);
        let (q0, q1) = low.split_at_mut(quarter);
        let (q2, q3) = high.split_at_mut(quarter);
        let q0 = &mut q0[column..][..count];
        let q1 = &mut q1[column..][..count];
        let q2 = &mut q2[column..][..count];
        let q3 = &mut q3[column..][..count];
        for i in 0..count {
            for v in 0..16 / L::WIDTH {
                let q = [
                    Complex::load(l, &q0[i], v),
                    Complex::load(l, &q1[i], v),
                    Complex::load(l, &q2[i], v),
                    Complex::load(l, &q3[i], v),
                ];
                let [a, b, c, d] = if BACK { join(l, q, w) } else { split(l, q, w) };
                a.store(l, &mut q0[i], v);
                b.store(l, &mut q1[i], v);
                c.store(l, &mut q2[i], v);
                d.store(l, &mut q3[i], v);
            }
        }
        at += count;
    }
}

#[inline(always)]
fn leaf<L: Lanes>(l: L, s: &mut Segment, input: usize, from: u32, to: u32) {
    let slots = s.slots;
    for four in from as usize..to as usize {
        let first = 4 * four;
        let work = &s.work[first..first + 4];
        for v in 0..16 / L::WIDTH {
            let mut x = [Complex::<L>::splat(l, 0.0, 0.0); 4];
            for j in 0..4 {
                let (chunk, v) = place::<L>(j, v);
                x[j] = Complex::load(l, &work[chunk], v);
            }
            let x = split(l, deal(l, x, Deal::Fours), Twiddles::load(l, &s.leaves[four][0], v));
            let x = split(l, deal(l, x, Deal::Turn), Twiddles::load(l, &s.leaves[four][1], v));
            for j in 0..4 {
                let chunk = first + j;
                let slot = (chunk / 2 * slots + s.newest) * 2 + chunk % 2;
                x[j].store(l, &mut s.spectra[input][slot], v);
            }
        }
    }
}

#[inline(always)]
fn root<L: Lanes>(l: L, s: &mut Segment, from: u32, to: u32) {
    for four in from as usize..to as usize {
        let first = 4 * four;
        let work = &mut s.work[first..first + 4];
        // All is read before anything is written.
        let mut x = [[Complex::<L>::splat(l, 0.0, 0.0); 4]; 2];
        for v in 0..16 / L::WIDTH {
            for j in 0..4 {
                x[v][j] = Complex::load(l, &work[j], v);
            }
        }
        for v in 0..16 / L::WIDTH {
            let x = deal(l, join(l, x[v], Twiddles::load(l, &s.leaves[four][1], v)), Deal::Turn);
            let x = deal(l, join(l, x, Twiddles::load(l, &s.leaves[four][0], v)), Deal::Rows);
            for j in 0..4 {
                let (chunk, v) = place::<L>(j, v);
                x[j].store(l, &mut work[chunk], v);
            }
        }
    }
}

#[inline(always)]
fn give<L: Lanes>(l: L, s: &mut Segment, output: usize, from: u32, to: u32) {
    let chunks = s.part / 16;
    let out = &mut s.out[output][s.half * chunks..][..chunks];
    let r = ROOTS_OF_I;
    if s.halves {
        let (low, high) = s.work.split_at(chunks / 2);
        let sigma = Complex::splat(l, r[0], r[1]);
        for i in from as usize..to as usize {
            for v in 0..16 / L::WIDTH {
                let (a, b) = (Complex::<L>::load(l, &low[i], v), Complex::load(l, &high[i], v));
                let at = v * L::WIDTH;
                l.write(a.add(l, b).im, &mut out[i].0[at..]);
                let b = a.sub(l, b).times_conjugate(l, sigma);
                l.write(b.im, &mut out[i + chunks / 2].0[at..]);
            }
        }
        return;
    }
    let quarter = chunks / 4;
    let w = Twiddles::splat(l, &r);
    let work = &s.work;
    for i in from as usize..to as usize {
        for v in 0..16 / L::WIDTH {
            let (a, b) =
                (Complex::<L>::load(l, &work[i], v), Complex::load(l, &work[i + quarter], v));
            let c = Complex::load(l, &work[i + 2 * quarter], v);
            let d = Complex::load(l, &work[i + 3 * quarter], v);
            let [a, b, c, d] = join(l, [a, b, c, d], w);
            let at = v * L::WIDTH;
            l.write(a.im, &mut out[i].0[at..]);
            l.write(b.im, &mut out[i + quarter].0[at..]);
            l.write(c.im, &mut out[i + 2 * quarter].0[at..]);
            l.write(d.im, &mut out[i + 3 * quarter].0[at..]);
        }
    }
}

#[inline(always)]
fn multiply<L: Lanes>(
    l: L,
    s: &mut Segment,
    path: usize,
    bands: (u32, u32),
    slots: (u32, u32),
    more: bool,
) {
    let ahead = if s.far() { 2 * s.slots } else { 0 };
    let path = &s.paths[path];
    let spectra = &s.spectra[path.input];
    let (from, to) = (slots.0 as usize, slots.1 as usize);
    // Slots from the oldest to the newest, in a ring.
    let first = s.newest + 1 + from;
    let first = if first >= s.slots { first - s.slots } else { first };
    for band in bands.0 as usize..bands.1 as usize {
        let x = spectra[band * s.slots * 2..][..s.slots * 2].as_chunks().0;
        let h = path.taps[band * s.slots * 2..][2 * from..2 * to].as_chunks().0;
        let work = &mut s.work[2 * band..2 * band + 2];
        // Both chunks of the band beside each other where the registers suffice.
        if L::WIDTH == 16 {
            band_of::<L, 2>(l, work, 0, (x, first), h, more, ahead);
        } else {
            band_of::<L, 2>(l, work, 0, (x, first), h, more, ahead);
            band_of::<L, 2>(l, work, 1, (x, first), h, more, 0);
        }
    }
}

/// Brings a chunk nearer, if there is one.
#[inline(always)]
fn ask(chunk: *const Chunk) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..2 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = chunk.cast::<i8>().wrapping_add(64 * line);
        // SAFETY: SSE is part of the target; addresses that lead nowhere do no harm.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = chunk;
}

/// Two vectors of each pair of chunks: both chunks where one vector is a chunk, else the halves of
/// chunk `c`. The chunks that lie `ahead` of these are asked for, if it is not 0.
///
/// The input's slots are a ring that is begun at one of them: one loop of a length that stays the same, which the processor foresees.
#[inline(always)]
fn band_of<L: Lanes, const V: usize>(
    l: L,
    work: &mut [Chunk],
    c: usize,
    (ring, first): (&[[Chunk; 2]], usize),
    taps: &[[Chunk; 2]],
    more: bool,
    ahead: usize,
) {
    let zero = l.splat(0.0);
    let (mut rr, mut ii, mut ri, mut ir) = ([zero; V], [zero; V], [zero; V], [zero; V]);
    let mut at = first;
    for h in taps {
        let x = &ring[at];
        at += 1;
        at = if at == ring.len() { 0 } else { at };
        if ahead > 0 {
            for chunk in 0..2 {
                ask(x.as_ptr().wrapping_add(ahead + chunk));
                ask(h.as_ptr().wrapping_add(ahead + chunk));
            }
        }
        for k in 0..V {
            let (chunk, v) = if L::WIDTH == 16 { (k, 0) } else { (c, k) };
            let x = Complex::<L>::load(l, &x[chunk], v);
            let h = Complex::load(l, &h[chunk], v);
            rr[k] = l.fma(x.re, h.re, rr[k]);
            ii[k] = l.fma(x.im, h.im, ii[k]);
            ri[k] = l.fma(x.re, h.im, ri[k]);
            ir[k] = l.fma(x.im, h.re, ir[k]);
        }
    }
    for k in 0..V {
        let (chunk, v) = if L::WIDTH == 16 { (k, 0) } else { (c, k) };
        let mut sum = Complex::<L> { re: l.sub(rr[k], ii[k]), im: l.add(ri[k], ir[k]) };
        if more {
            sum = Complex::load(l, &work[chunk], v).add(l, sum);
        }
        sum.store(l, &mut work[chunk], v);
    }
}
