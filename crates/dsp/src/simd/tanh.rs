//! tanh, as the nets use it: a fraction of polynomials, in any lanes.

use super::lanes::Lanes;

/// The range in which the rational tanh is taken; beyond it tanh is 1 to the last bit but one.
const TANH_RANGE: f32 = 9.0;
/// tanh(x) = x P(x^2) / Q(x^2) on it: a minimax fit of the relative error, 2e-8 before rounding.
const P: [f32; 5] = [1.0, 0.133_809_75, 0.003_495_527, 2.060_804_8e-5, 1.335_320_5e-8];
const Q: [f32; 5] = [1.0, 0.467_142_9, 0.025_876_751, 3.285_533_2e-4, 7.775_965_4e-7];

/// tanh, as a fraction: numerator and denominator.
#[inline(always)]
pub(crate) fn tanh_parts<L: Lanes>(l: L, x: L::V) -> (L::V, L::V) {
    let (x, size) = l.clamped(x, TANH_RANGE);
    let u = l.mul(size, size);
    let mut p = l.splat(P[4]);
    let mut q = l.splat(Q[4]);
    p = l.fma(p, u, l.splat(P[3]));
    q = l.fma(q, u, l.splat(Q[3]));
    p = l.fma(p, u, l.splat(P[2]));
    q = l.fma(q, u, l.splat(Q[2]));
    p = l.fma(p, u, l.splat(P[1]));
    q = l.fma(q, u, l.splat(Q[1]));
    p = l.fma(p, u, l.splat(P[0]));
    q = l.fma(q, u, l.splat(Q[0]));
    (l.mul(x, p), q)
}

/// tanh.
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(l: L, x: L::V) -> L::V {
    let (p, q) = tanh_parts(l, x);
    l.div(p, q)
}

/// The same fraction with a shorter chain of dependent steps, for those who wait for it.
#[inline(always)]
pub(crate) fn tanh_quick<L: Lanes>(l: L, x: L::V) -> (L::V, L::V) {
    let (x, size) = l.clamped(x, TANH_RANGE);
    let u = l.mul(size, size);
    let u2 = l.mul(u, u);
    // Written out: a closure might stay a call, through memory.
    let p = l.fma(u, l.splat(P[1]), l.splat(P[0]));
    let q = l.fma(u, l.splat(Q[1]), l.splat(Q[0]));
    let p2 = l.fma(u2, l.splat(P[4]), l.fma(u, l.splat(P[3]), l.splat(P[2])));
    let q2 = l.fma(u2, l.splat(Q[4]), l.fma(u, l.splat(Q[3]), l.splat(Q[2])));
    (l.fma(l.mul(x, u2), p2, l.mul(x, p)), l.fma(u2, q2, q))
}
