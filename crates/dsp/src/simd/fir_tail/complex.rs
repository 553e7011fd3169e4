//! Complex numbers by the vector, and the butterflies that split a block by four roots and join it again.

use super::{Chunk, Roots};
use crate::simd::fir_lanes::Lanes;

/// A vector of complex numbers.
#[derive(Clone, Copy)]
pub(super) struct Complex<L> {
    pub(super) re: L,
    pub(super) im: L,
}

impl<L: Lanes> Complex<L> {
    #[inline(always)]
    pub(super) fn splat(re: f32, im: f32) -> Self {
        Complex { re: L::splat(re), im: L::splat(im) }
    }

    /// Vector `v` of a chunk.
    #[inline(always)]
    pub(super) fn load(from: &Chunk, v: usize) -> Self {
        Complex { re: L::load(&from.re[v * L::WIDTH..]), im: L::load(&from.im[v * L::WIDTH..]) }
    }

    #[inline(always)]
    pub(super) fn store(self, to: &mut Chunk, v: usize) {
        self.re.store(&mut to.re[v * L::WIDTH..]);
        self.im.store(&mut to.im[v * L::WIDTH..]);
    }

    #[inline(always)]
    pub(super) fn add(self, b: Self) -> Self {
        Complex { re: self.re.add(b.re), im: self.im.add(b.im) }
    }

    #[inline(always)]
    pub(super) fn sub(self, b: Self) -> Self {
        Complex { re: self.re.sub(b.re), im: self.im.sub(b.im) }
    }

    /// `self + i b`
    #[inline(always)]
    pub(super) fn add_turned(self, b: Self) -> Self {
        Complex { re: self.re.sub(b.im), im: self.im.add(b.re) }
    }

    /// `self - i b`
    #[inline(always)]
    pub(super) fn sub_turned(self, b: Self) -> Self {
        Complex { re: self.re.add(b.im), im: self.im.sub(b.re) }
    }

    /// `self + w b`
    #[inline(always)]
    pub(super) fn add_product(self, w: Self, b: Self) -> Self {
        let re = w.re.mul_add(b.re, self.re);
        let im = w.re.mul_add(b.im, self.im);
        Complex { re: w.im.neg_mul_add(b.im, re), im: w.im.mul_add(b.re, im) }
    }

    /// `self + i w b`
    #[inline(always)]
    pub(super) fn add_turned_product(self, w: Self, b: Self) -> Self {
        let re = w.im.neg_mul_add(b.re, self.re);
        let im = w.im.neg_mul_add(b.im, self.im);
        Complex { re: w.re.neg_mul_add(b.im, re), im: w.re.mul_add(b.re, im) }
    }

    /// `2 self - b`: the other side of a butterfly whose one side is `b`.
    #[inline(always)]
    pub(super) fn mirror(self, b: Self) -> Self {
        let two = L::splat(2.0);
        Complex { re: self.re.mul_sub(two, b.re), im: self.im.mul_sub(two, b.im) }
    }

    /// `self` times the conjugate of `w`.
    #[inline(always)]
    pub(super) fn times_conjugate(self, w: Self) -> Self {
        Complex {
            re: self.im.mul_add(w.im, self.re.mul(w.re)),
            im: self.re.neg_mul_add(w.im, self.im.mul(w.re)),
        }
    }
}

/// Three roots, in all lanes or lane by lane.
#[derive(Clone, Copy)]
pub(super) struct Twiddles<L> {
    pub(super) sigma: Complex<L>,
    pub(super) tau: Complex<L>,
    pub(super) both: Complex<L>,
}

impl<L: Lanes> Twiddles<L> {
    #[inline(always)]
    pub(super) fn splat(r: &Roots) -> Self {
        Twiddles {
            sigma: Complex::splat(r[0], r[1]),
            tau: Complex::splat(r[2], r[3]),
            both: Complex::splat(r[4], r[5]),
        }
    }

    #[inline(always)]
    pub(super) fn load(r: &[[f32; 16]; 6], v: usize) -> Self {
        let at = v * L::WIDTH;
        Twiddles {
            sigma: Complex { re: L::load(&r[0][at..]), im: L::load(&r[1][at..]) },
            tau: Complex { re: L::load(&r[2][at..]), im: L::load(&r[3][at..]) },
            both: Complex { re: L::load(&r[4][at..]), im: L::load(&r[5][at..]) },
        }
    }
}

/// The values of `q0 + q1 y + q2 y^2 + q3 y^3` at the four roots.
#[inline(always)]
pub(super) fn split<L: Lanes>(q: [Complex<L>; 4], w: Twiddles<L>) -> [Complex<L>; 4] {
    let s = q[0].add_product(w.sigma, q[2]);
    let d = q[0].mirror(s);
    let u = q[1].add_product(w.sigma, q[3]);
    let v = q[1].mirror(u);
    let a = s.add_product(w.tau, u);
    let c = d.add_turned_product(w.tau, v);
    [a, s.mirror(a), c, d.mirror(c)]
}

/// Back from `split`, times four.
#[inline(always)]
pub(super) fn join<L: Lanes>(o: [Complex<L>; 4], w: Twiddles<L>) -> [Complex<L>; 4] {
    let (s, a) = (o[0].add(o[1]), o[0].sub(o[1]));
    let (d, b) = (o[2].add(o[3]), o[2].sub(o[3]));
    [
        s.add(d),
        a.sub_turned(b).times_conjugate(w.tau),
        s.sub(d).times_conjugate(w.sigma),
        a.add_turned(b).times_conjugate(w.both),
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
pub(super) fn deal<L: Lanes>(x: [Complex<L>; 4], how: Deal) -> [Complex<L>; 4] {
    let re = [x[0].re, x[1].re, x[2].re, x[3].re];
    let im = [x[0].im, x[1].im, x[2].im, x[3].im];
    let (re, im) = match how {
        Deal::Fours => (L::fours(re), L::fours(im)),
        Deal::Rows => (L::rows(re), L::rows(im)),
        Deal::Turn => (L::turn(re), L::turn(im)),
    };
    let mut to = x;
    for i in 0..4 {
        to[i] = Complex { re: re[i], im: im[i] };
    }
    to
}
