//! Eight numbers in plain Rust: the oracle, and what runs where nothing better is.
#![cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "NEON does its work"))]

use super::{Job, Lanes, Tile, Token};

/// Nothing is asked of the processor.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

/// Its value, which everyone may have.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) const BASE: Plain = Plain;

type Eight = [f32; 8];

macro_rules! each {
    ($($v:ident),+ => $e:expr) => {{
        let mut out = [0.0f32; 8];
        for (n, out) in out.iter_mut().enumerate() {
            $(let $v = $v[n];)+
            *out = $e;
        }
        out
    }};
}

/// Fused where the target always can; elsewhere it would be a call into libm.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}

impl Token for Plain {
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Option<Plain> {
        Some(Plain)
    }

    fn run<J: Job>(self, job: J) -> J::Out {
        job.run(self)
    }
}

impl Lanes for Plain {
    type V = Eight;
    const WIDTH: usize = 8;
    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Eight {
        [x; 8]
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Eight {
        // SAFETY: the caller vouches for 8 numbers; unaligned is allowed.
        unsafe { p.cast::<Eight>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Eight) {
        // SAFETY: the caller vouches for 8 numbers; unaligned is allowed.
        unsafe { p.cast::<Eight>().write_unaligned(v) }
    }

    #[inline(always)]
    fn add(self, a: Eight, b: Eight) -> Eight {
        each!(a, b => a + b)
    }

    #[inline(always)]
    fn sub(self, a: Eight, b: Eight) -> Eight {
        each!(a, b => a - b)
    }

    #[inline(always)]
    fn mul(self, a: Eight, b: Eight) -> Eight {
        each!(a, b => a * b)
    }

    #[inline(always)]
    fn div(self, a: Eight, b: Eight) -> Eight {
        each!(a, b => a / b)
    }

    #[inline(always)]
    fn fma(self, a: Eight, b: Eight, c: Eight) -> Eight {
        each!(a, b, c => fused(a, b, c))
    }

    #[inline(always)]
    fn fms(self, a: Eight, b: Eight, c: Eight) -> Eight {
        each!(a, b, c => fused(a, b, -c))
    }

    #[inline(always)]
    fn fnma(self, a: Eight, b: Eight, c: Eight) -> Eight {
        each!(a, b, c => fused(-a, b, c))
    }

    #[inline(always)]
    fn min(self, a: Eight, b: Eight) -> Eight {
        each!(a, b => if a < b { a } else { b })
    }

    #[inline(always)]
    fn max(self, a: Eight, b: Eight) -> Eight {
        each!(a, b => if a > b { a } else { b })
    }

    #[inline(always)]
    fn clamp(self, x: Eight, range: f32) -> Eight {
        each!(x => x.max(-range).min(range))
    }

    type By = usize;

    #[inline(always)]
    fn by(self, by: usize) -> usize {
        by
    }

    #[inline(always)]
    fn shift(self, by: usize, before: Eight, now: Eight) -> Eight {
        let mut out = [0.0; 8];
        for (n, out) in out.iter_mut().enumerate() {
            *out = if n < by { before[n + 8 - by] } else { now[n - by] };
        }
        out
    }

    #[inline(always)]
    fn fours(self, rows: [Eight; 4]) -> [Eight; 4] {
        let mut to = rows;
        for (k, to) in to.iter_mut().enumerate() {
            for (lane, x) in to.iter_mut().enumerate() {
                let at = 16 * (lane / 4) + 4 * k + lane % 4;
                *x = rows[at / 8][at % 8];
            }
        }
        to
    }

    #[inline(always)]
    fn rows(self, fours: [Eight; 4]) -> [Eight; 4] {
        let mut to = fours;
        for (j, to) in to.iter_mut().enumerate() {
            for (lane, x) in to.iter_mut().enumerate() {
                let at = 8 * j + lane;
                *x = fours[at % 16 / 4][at / 16 * 4 + at % 4];
            }
        }
        to
    }

    #[inline(always)]
    fn turn(self, fours: [Eight; 4]) -> [Eight; 4] {
        let mut to = fours;
        for (j, to) in to.iter_mut().enumerate() {
            for (lane, x) in to.iter_mut().enumerate() {
                *x = fours[lane % 4][lane / 4 * 4 + j];
            }
        }
        to
    }

    type Half = Plain;

    #[inline(always)]
    fn half(self) -> Plain {
        self
    }

    menu!(one, 1: 4 1);
    menu!(two, 2: 2 1);
    menu!(four, 4: 1);
}
