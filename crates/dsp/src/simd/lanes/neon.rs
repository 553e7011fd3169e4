//! NEON, two registers at a time. (Of plain code the compiler makes scalar instructions.)

#![allow(
    unused_unsafe,
    reason = "intrinsics of what is part of the target need none on newer compilers"
)]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "the two halves of a vector")]

use super::{Job, Lanes, Tile, Token};
use std::arch::aarch64::*;

/// NEON, which is part of the target.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// Its value, which everyone may have.
pub(crate) const BASE: Neon = Neon;

type Two = (float32x4_t, float32x4_t);

/// The same to both halves. Every processor of this target has these instructions.
macro_rules! both {
    ($name:ident($($v:expr),+)) => {
        // SAFETY: NEON is part of the target.
        unsafe { ($name($($v.0),+), $name($($v.1),+)) }
    };
}

/// Four by four, transposed.
#[inline(always)]
fn turned(a: float32x4_t, b: float32x4_t, c: float32x4_t, d: float32x4_t) -> [float32x4_t; 4] {
    // SAFETY: NEON is part of the target.
    unsafe {
        let (ab, ab1) = (vtrn1q_f32(a, b), vtrn2q_f32(a, b));
        let (cd, cd1) = (vtrn1q_f32(c, d), vtrn2q_f32(c, d));
        let wide = |x| vreinterpretq_f64_f32(x);
        [
            vreinterpretq_f32_f64(vzip1q_f64(wide(ab), wide(cd))),
            vreinterpretq_f32_f64(vzip1q_f64(wide(ab1), wide(cd1))),
            vreinterpretq_f32_f64(vzip2q_f64(wide(ab), wide(cd))),
            vreinterpretq_f32_f64(vzip2q_f64(wide(ab1), wide(cd1))),
        ]
    }
}

impl Token for Neon {
    fn run<J: Job>(self, job: J) -> J::Out {
        job.run(self)
    }
}

impl Lanes for Neon {
    type V = Two;
    const WIDTH: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn splat(self, x: f32) -> Two {
        let x = (x, x);
        both!(vdupq_n_f32(x))
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Two {
        let p = (p, p.wrapping_add(4));
        both!(vld1q_f32(p))
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Two) {
        let p = (p, p.wrapping_add(4));
        both!(vst1q_f32(p, v));
    }

    #[inline(always)]
    fn add(self, a: Two, b: Two) -> Two {
        both!(vaddq_f32(a, b))
    }

    #[inline(always)]
    fn sub(self, a: Two, b: Two) -> Two {
        both!(vsubq_f32(a, b))
    }

    #[inline(always)]
    fn mul(self, a: Two, b: Two) -> Two {
        both!(vmulq_f32(a, b))
    }

    #[inline(always)]
    fn div(self, a: Two, b: Two) -> Two {
        both!(vdivq_f32(a, b))
    }

    #[inline(always)]
    fn fma(self, a: Two, b: Two, c: Two) -> Two {
        both!(vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn fms(self, a: Two, b: Two, c: Two) -> Two {
        let c = both!(vnegq_f32(c));
        both!(vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn fnma(self, a: Two, b: Two, c: Two) -> Two {
        both!(vfmsq_f32(c, a, b))
    }

    // Of a number and none, the number.
    #[inline(always)]
    fn min(self, a: Two, b: Two) -> Two {
        both!(vminnmq_f32(a, b))
    }

    #[inline(always)]
    fn max(self, a: Two, b: Two) -> Two {
        both!(vmaxnmq_f32(a, b))
    }

    #[inline(always)]
    fn clamp(self, x: Two, range: f32) -> Two {
        self.min(self.max(x, self.splat(-range)), self.splat(range))
    }

    /// A weight is a lane of a register. To spread it over one of its own takes an A72 a place among its multiplications.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "counted loops are unrolled")]
    unsafe fn add_row<const N: usize, const FV: usize>(
        self,
        weights: *const f32,
        x: &[Two; FV],
        sum: &mut [[Two; FV]; N],
    ) {
        macro_rules! lane {
            ($n:expr, $by:ident::<$lane:literal>($w:expr)) => {
                for f in 0..FV {
                    let (c, x) = (sum[$n][f], x[f]);
                    // SAFETY: NEON is part of the target.
                    sum[$n][f] =
                        unsafe { ($by::<$lane>(c.0, x.0, $w), $by::<$lane>(c.1, x.1, $w)) };
                }
            };
        }
        let mut n = 0;
        while n + 4 <= N {
            // SAFETY: as the caller vouches: there are four more.
            let w = unsafe { vld1q_f32(weights.wrapping_add(n)) };
            lane!(n, vfmaq_laneq_f32::<0>(w));
            lane!(n + 1, vfmaq_laneq_f32::<1>(w));
            lane!(n + 2, vfmaq_laneq_f32::<2>(w));
            lane!(n + 3, vfmaq_laneq_f32::<3>(w));
            n += 4;
        }
        if n + 2 <= N {
            // SAFETY: as the caller vouches: there are two more.
            let w = unsafe { vld1_f32(weights.wrapping_add(n)) };
            lane!(n, vfmaq_lane_f32::<0>(w));
            lane!(n + 1, vfmaq_lane_f32::<1>(w));
            n += 2;
        }
        if n < N {
            // SAFETY: as the caller vouches: there is one more.
            let w = self.splat(unsafe { *weights.wrapping_add(n) });
            for f in 0..FV {
                sum[n][f] = self.fma(w, x[f], sum[n][f]);
            }
        }
    }

    type By = usize;

    #[inline(always)]
    fn by(self, by: usize) -> usize {
        by.min(8)
    }

    #[inline(always)]
    fn shift(self, by: usize, before: Two, now: Two) -> Two {
        let mut all = [0.0f32; 16];
        let at = all.as_mut_ptr();
        // SAFETY: there is room for both.
        unsafe { self.store(at, before) };
        // SAFETY: as above.
        unsafe { self.store(at.wrapping_add(8), now) };
        // SAFETY: eight of them, from one of the first nine on.
        unsafe { self.load(at.wrapping_add(8 - by.min(8))) }
    }

    #[inline(always)]
    fn fours(self, [a, b, c, d]: [Two; 4]) -> [Two; 4] {
        [(a.0, c.0), (a.1, c.1), (b.0, d.0), (b.1, d.1)]
    }

    #[inline(always)]
    fn rows(self, [a, b, c, d]: [Two; 4]) -> [Two; 4] {
        [(a.0, b.0), (c.0, d.0), (a.1, b.1), (c.1, d.1)]
    }

    #[inline(always)]
    fn turn(self, [a, b, c, d]: [Two; 4]) -> [Two; 4] {
        let [a0, b0, c0, d0] = turned(a.0, b.0, c.0, d.0);
        let [a1, b1, c1, d1] = turned(a.1, b.1, c.1, d.1);
        [(a0, a1), (b0, b1), (c0, c1), (d0, d1)]
    }

    type Half = Neon;

    #[inline(always)]
    fn half(self) -> Neon {
        self
    }

    menu!(one, 1: 8 4 1);
    menu!(two, 2: 6 5 4 3 2 1);
    menu!(four, 4: 2 1);
}
