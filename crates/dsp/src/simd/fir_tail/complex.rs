//! Complex numbers by the vector, and the butterflies that split a block by four roots and join it again.

use super::{Chunk, Roots};
use crate::simd::lanes::Lanes;

/// A vector of complex numbers.
#[derive(Clone, Copy)]
pub(super) struct Complex<L: Lanes> {
    pub(super) re: L::V,
    pub(super) im: L::V,
}

impl<L: Lanes> Complex<L> {
    #[inline(always)]
    pub(super) fn splat(l: L, re: f32, im: f32) -> Self {
        Complex { re: l.splat(re), im: l.splat(im) }
    }

    /// Vector `v` of a chunk.
    #[inline(always)]
    pub(super) fn load(l: L, from: &Chunk, v: usize) -> Self {
        Complex { re: l.read(&from.re[v * L::WIDTH..]), im: l.read(&from.im[v * L::WIDTH..]) }
    }

    #[inline(always)]
    pub(super) fn store(self, l: L, to: &mut Chunk, v: usize) {
        l.write(self.re, &mut to.re[v * L::WIDTH..]);
        l.write(self.im, &mut to.im[v * L::WIDTH..]);
    }

    #[inline(always)]
    pub(super) fn add(self, l: L, b: Self) -> Self {
        Complex { re: l.add(self.re, b.re), im: l.add(self.im, b.im) }
    }

    #[inline(always)]
    pub(super) fn sub(self, l: L, b: Self) -> Self {
        Complex { re: l.sub(self.re, b.re), im: l.sub(self.im, b.im) }
    }

    /// `self + i b`
    #[inline(always)]
    pub(super) fn add_turned(self, l: L, b: Self) -> Self {
        Complex { re: l.sub(self.re, b.im), im: l.add(self.im, b.re) }
    }

    /// `self - i b`
    #[inline(always)]
    pub(super) fn sub_turned(self, l: L, b: Self) -> Self {
        Complex { re: l.add(self.re, b.im), im: l.sub(self.im, b.re) }
    }

    /// `self + w b`
    #[inline(always)]
    pub(super) fn add_product(self, l: L, w: Self, b: Self) -> Self {
        let re = l.fma(w.re, b.re, self.re);
        let im = l.fma(w.re, b.im, self.im);
        Complex { re: l.fnma(w.im, b.im, re), im: l.fma(w.im, b.re, im) }
    }

    /// `self + i w b`
    #[inline(always)]
    pub(super) fn add_turned_product(self, l: L, w: Self, b: Self) -> Self {
        let re = l.fnma(w.im, b.re, self.re);
        let im = l.fnma(w.im, b.im, self.im);
        Complex { re: l.fnma(w.re, b.im, re), im: l.fma(w.re, b.re, im) }
    }

    /// `2 self - b`: the other side of a butterfly whose one side is `b`.
    #[inline(always)]
    pub(super) fn mirror(self, l: L, b: Self) -> Self {
        let two = l.splat(2.0);
        Complex { re: l.fms(self.re, two, b.re), im: l.fms(self.im, two, b.im) }
    }

    /// `self` times the conjugate of `w`.
    #[inline(always)]
    pub(super) fn times_conjugate(self, l: L, w: Self) -> Self {
        Complex {
            re: l.fma(self.im, w.im, l.mul(self.re, w.re)),
            im: l.fnma(self.re, w.im, l.mul(self.im, w.re)),
        }
    }
}

/// Three roots, in all lanes or lane by lane.
#[derive(Clone, Copy)]
pub(super) struct Twiddles<L: Lanes> {
    pub(super) sigma: Complex<L>,
    pub(super) tau: Complex<L>,
    pub(super) both: Complex<L>,
}

impl<L: Lanes> Twiddles<L> {
    #[inline(always)]
    pub(super) fn splat(l: L, r: &Roots) -> Self {
        Twiddles {
            sigma: Complex::splat(l, r[0], r[1]),
            tau: Complex::splat(l, r[2], r[3]),
            both: Complex::splat(l, r[4], r[5]),
        }
    }

    #[inline(always)]
    pub(super) fn load(l: L, r: &[[f32; 16]; 6], v: usize) -> Self {
        let at = v * L::WIDTH;
        Twiddles {
            sigma: Complex { re: l.read(&r[0][at..]), im: l.read(&r[1][at..]) },
            tau: Complex { re: l.read(&r[2][at..]), im: l.read(&r[3][at..]) },
            both: Complex { re: l.read(&r[4][at..]), im: l.read(&r[5][at..]) },
        }
    }
}

/// The values of `q0 + q1 y + q2 y^2 + q3 y^3` at the four roots.
#[inline(always)]
pub(super) fn split<L: Lanes>(l: L, q: [Complex<L>; 4], w: Twiddles<L>) -> [Complex<L>; 4] {
    let s = q[0].add_product(l, w.sigma, q[2]);
    let d = q[0].mirror(l, s);
    let u = q[1].add_product(l, w.sigma, q[3]);
    let v = q[1].mirror(l, u);
    let a = s.add_product(l, w.tau, u);
    let c = d.add_turned_product(l, w.tau, v);
    [a, s.mirror(l, a), c, d.mirror(l, c)]
}

/// Back from `split`, times four.
#[inline(always)]
pub(super) fn join<L: Lanes>(l: L, o: [Complex<L>; 4], w: Twiddles<L>) -> [Complex<L>; 4] {
    let (s, a) = (o[0].add(l, o[1]), o[0].sub(l, o[1]));
    let (d, b) = (o[2].add(l, o[3]), o[2].sub(l, o[3]));
    [
        s.add(l, d),
        a.sub_turned(l, b).times_conjugate(l, w.tau),
        s.sub(l, d).times_conjugate(l, w.sigma),
        a.add_turned(l, b).times_conjugate(l, w.both),
    ]
}

/// Vector `j` of the four that hold chunks (all of them, or two): the chunk, and the vector in it.
#[inline(always)]
pub(super) fn place<L: Lanes>(j: usize, v: usize) -> (usize, usize) {
    let each = 16 / L::WIDTH;
    (4 / each * v + j / each, j % each)
}

/// How vectors are dealt out anew.
#[derive(Clone, Copy)]
pub(super) enum Deal {
    Fours,
    Rows,
    Turn,
}

/// Real and imaginary parts alike. (A function or a closure as argument might stay a call: it has no features.)
#[inline(always)]
pub(super) fn deal<L: Lanes>(l: L, x: [Complex<L>; 4], how: Deal) -> [Complex<L>; 4] {
    let re = [x[0].re, x[1].re, x[2].re, x[3].re];
    let im = [x[0].im, x[1].im, x[2].im, x[3].im];
    let (re, im) = match how {
        Deal::Fours => (l.fours(re), l.fours(im)),
        Deal::Rows => (l.rows(re), l.rows(im)),
        Deal::Turn => (l.turn(re), l.turn(im)),
    };
    let mut to = x;
    for i in 0..4 {
        to[i] = Complex { re: re[i], im: im[i] };
    }
    to
}
