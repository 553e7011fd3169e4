//! AVX2 and AVX-512. The tokens cannot be made outside of this file; in it, `detect` and `half` make them.

use super::{Job, Lanes, Tile, Token};
use std::arch::x86_64::*;

/// By the name that the processor gives its maker.
pub(super) fn is_intel() -> bool {
    let maker = __cpuid(0);
    [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
}

/// A token whose instructions are asked for, and enabled, from one list.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident: $($feature:tt)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(());

        impl Token for $name {
            fn detect() -> Option<$name> {
                ($(is_x86_feature_detected!($feature))&&+).then_some($name(()))
            }

            #[inline]
            fn run<J: Job>(self, job: J) -> J::Out {
                #[target_feature($(enable = $feature),+)]
                fn enabled<J: Job>(l: $name, job: J) -> J::Out {
                    job.run(l)
                }
                // SAFETY: `self` is a token that `detect` gave out, which saw every feature of `enabled`.
                unsafe { enabled(self, job) }
            }
        }
    };
}

token! {
    /// AVX2 and FMA.
    Avx2: "avx2" "fma"
}
token! {
    /// AVX-512 F, VL, DQ and BW, and all of [`Avx2`].
    Avx512: "avx512f" "avx512vl" "avx512dq" "avx512bw" "avx2" "fma"
}

/// Calls an intrinsic of the token `self`.
macro_rules! op {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: this is a method of a token, and there is one only where the instructions are.
        unsafe { $name($($argument),*) }
    };
    ($name:ident::<$constant:literal>($($argument:expr),*)) => {
        // SAFETY: as above.
        unsafe { $name::<$constant>($($argument),*) }
    };
}

macro_rules! lanes {
    ($name:ident, $v:ident, $width:literal, $registers:literal, $splat:ident, $load:ident, $store:ident,
     $add:ident, $sub:ident, $mul:ident, $div:ident, $fma:ident, $fms:ident, $fnma:ident, $min:ident, $max:ident,
     $($rest:tt)*) => {
        impl Lanes for $name {
            type V = $v;
            const WIDTH: usize = $width;
            const REGISTERS: usize = $registers;
            #[inline(always)]
            fn splat(self, x: f32) -> $v {
                op!($splat(x))
            }
            #[inline(always)]
            unsafe fn load(self, p: *const f32) -> $v {
                // SAFETY: as in `op`; the caller vouches for the numbers.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut f32, v: $v) {
                // SAFETY: as in `op`; the caller vouches for the room.
                unsafe { $store(p, v) }
            }
            #[inline(always)]
            fn add(self, a: $v, b: $v) -> $v {
                op!($add(a, b))
            }
            #[inline(always)]
            fn sub(self, a: $v, b: $v) -> $v {
                op!($sub(a, b))
            }
            #[inline(always)]
            fn mul(self, a: $v, b: $v) -> $v {
                op!($mul(a, b))
            }
            #[inline(always)]
            fn div(self, a: $v, b: $v) -> $v {
                op!($div(a, b))
            }
            #[inline(always)]
            fn fma(self, a: $v, b: $v, c: $v) -> $v {
                op!($fma(a, b, c))
            }
            #[inline(always)]
            fn fms(self, a: $v, b: $v, c: $v) -> $v {
                op!($fms(a, b, c))
            }
            #[inline(always)]
            fn fnma(self, a: $v, b: $v, c: $v) -> $v {
                op!($fnma(a, b, c))
            }
            #[inline(always)]
            fn min(self, a: $v, b: $v) -> $v {
                op!($min(a, b))
            }
            #[inline(always)]
            fn max(self, a: $v, b: $v) -> $v {
                op!($max(a, b))
            }
            $($rest)*
        }
    };
}

lanes!(
    Avx2,
    __m256,
    8,
    16,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_div_ps,
    _mm256_fmadd_ps,
    _mm256_fmsub_ps,
    _mm256_fnmadd_ps,
    _mm256_min_ps,
    _mm256_max_ps,
    #[inline(always)]
    fn clamp(self, x: __m256, range: f32) -> __m256 {
        self.clamped(x, range).0
    }
    #[inline(always)]
    fn clamped(self, x: __m256, range: f32) -> (__m256, __m256) {
        // Magnitudes as whole numbers: those units have nothing else to do, while minima of fractions take the
        // multipliers' place.
        let (sign, most) = (self.splat(-0.0), self.splat(range));
        let size = op!(_mm256_andnot_ps(sign, x));
        let sign = op!(_mm256_and_ps(sign, x));
        let (size, most) = (op!(_mm256_castps_si256(size)), op!(_mm256_castps_si256(most)));
        let size = op!(_mm256_min_epi32(size, most));
        let size = op!(_mm256_castsi256_ps(size));
        (op!(_mm256_or_ps(size, sign)), size)
    }
    type By = (__m256i, __m256);
    #[inline(always)]
    fn by(self, by: usize) -> (__m256i, __m256) {
        let lanes = op!(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        let by = op!(_mm256_set1_epi32(by as i32));
        // Of a lane's number the last three binary digits count.
        let from = op!(_mm256_sub_epi32(lanes, by));
        let older = op!(_mm256_cmpgt_epi32(by, lanes));
        (from, op!(_mm256_castsi256_ps(older)))
    }
    #[inline(always)]
    fn shift(self, by: (__m256i, __m256), before: __m256, now: __m256) -> __m256 {
        let before = op!(_mm256_permutevar8x32_ps(before, by.0));
        let now = op!(_mm256_permutevar8x32_ps(now, by.0));
        op!(_mm256_blendv_ps(now, before, by.1))
    }
    #[inline(always)]
    fn fours(self, [a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
        [
            op!(_mm256_permute2f128_ps::<0x20>(a, c)),
            op!(_mm256_permute2f128_ps::<0x31>(a, c)),
            op!(_mm256_permute2f128_ps::<0x20>(b, d)),
            op!(_mm256_permute2f128_ps::<0x31>(b, d)),
        ]
    }
    #[inline(always)]
    fn rows(self, [a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
        [
            op!(_mm256_permute2f128_ps::<0x20>(a, b)),
            op!(_mm256_permute2f128_ps::<0x20>(c, d)),
            op!(_mm256_permute2f128_ps::<0x31>(a, b)),
            op!(_mm256_permute2f128_ps::<0x31>(c, d)),
        ]
    }
    #[inline(always)]
    fn turn(self, [a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
        let low = op!(_mm256_unpacklo_ps(a, b));
        let high = op!(_mm256_unpackhi_ps(a, b));
        let low_below = op!(_mm256_unpacklo_ps(c, d));
        let high_below = op!(_mm256_unpackhi_ps(c, d));
        [
            op!(_mm256_shuffle_ps::<0x44>(low, low_below)),
            op!(_mm256_shuffle_ps::<0xee>(low, low_below)),
            op!(_mm256_shuffle_ps::<0x44>(high, high_below)),
            op!(_mm256_shuffle_ps::<0xee>(high, high_below)),
        ]
    }
    type Half = Avx2;
    #[inline(always)]
    fn half(self) -> Avx2 {
        self
    }
    menu!(one, 1: 4 1); menu!(two, 2: 6 5 4 3 2 1); menu!(four, 4: 2 1);
);
lanes!(
    Avx512,
    __m512,
    16,
    32,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_div_ps,
    _mm512_fmadd_ps,
    _mm512_fmsub_ps,
    _mm512_fnmadd_ps,
    _mm512_min_ps,
    _mm512_max_ps,
    #[inline(always)]
    fn clamp(self, x: __m512, range: f32) -> __m512 {
        // The smaller magnitude, the sign of the first.
        op!(_mm512_range_ps::<0b0010>(x, self.splat(range)))
    }
    type By = __m512i;
    #[inline(always)]
    fn by(self, by: usize) -> __m512i {
        let lane = |n: i32| 16 + n - by as i32;
        op!(_mm512_setr_epi32(
            lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7),
            lane(8), lane(9), lane(10), lane(11), lane(12), lane(13), lane(14), lane(15)
        ))
    }
    #[inline(always)]
    fn shift(self, by: __m512i, before: __m512, now: __m512) -> __m512 {
        op!(_mm512_permutex2var_ps(before, by, now))
    }
    #[inline(always)]
    fn fours(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        let low = op!(_mm512_shuffle_f32x4::<0x44>(a, b));
        let high = op!(_mm512_shuffle_f32x4::<0xee>(a, b));
        let low_below = op!(_mm512_shuffle_f32x4::<0x44>(c, d));
        let high_below = op!(_mm512_shuffle_f32x4::<0xee>(c, d));
        [
            op!(_mm512_shuffle_f32x4::<0x88>(low, low_below)),
            op!(_mm512_shuffle_f32x4::<0xdd>(low, low_below)),
            op!(_mm512_shuffle_f32x4::<0x88>(high, high_below)),
            op!(_mm512_shuffle_f32x4::<0xdd>(high, high_below)),
        ]
    }
    #[inline(always)]
    fn rows(self, fours: [__m512; 4]) -> [__m512; 4] {
        self.fours(fours)
    }
    #[inline(always)]
    fn turn(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        let low = op!(_mm512_unpacklo_ps(a, b));
        let high = op!(_mm512_unpackhi_ps(a, b));
        let low_below = op!(_mm512_unpacklo_ps(c, d));
        let high_below = op!(_mm512_unpackhi_ps(c, d));
        [
            op!(_mm512_shuffle_ps::<0x44>(low, low_below)),
            op!(_mm512_shuffle_ps::<0xee>(low, low_below)),
            op!(_mm512_shuffle_ps::<0x44>(high, high_below)),
            op!(_mm512_shuffle_ps::<0xee>(high, high_below)),
        ]
    }
    type Half = Avx2;
    #[inline(always)]
    fn half(self) -> Avx2 {
        // `detect` has seen these features too.
        Avx2(())
    }
    menu!(one, 1: 16 12 8 6 4 3 2 1); menu!(two, 2: 12 8 6 4 3 2 1); menu!(four, 4: 6 4 3 2 1);
);
