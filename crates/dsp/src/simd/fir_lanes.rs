//! The vectors that the FIR kernels are written for.

#![allow(clippy::needless_range_loop, reason = "vectors in step with each other")]

/// A vector of `WIDTH` samples. All operations go lane by lane, so that every width gives the same
/// bits wherever multiply-add is fused.
pub(super) trait Lanes: Copy {
    /// 8 or 16.
    const WIDTH: usize;

    fn splat(x: f32) -> Self;

    /// The first `WIDTH` samples.
    ///
    /// # Panics
    /// If there are fewer.
    fn load(from: &[f32]) -> Self;

    /// Into the first `WIDTH` samples.
    ///
    /// # Panics
    /// If there are fewer.
    fn store(self, to: &mut [f32]);

    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    /// `self * b + c`
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// `self * b - c`
    fn mul_sub(self, b: Self, c: Self) -> Self;
    /// `c - self * b`
    fn neg_mul_add(self, b: Self, c: Self) -> Self;

    /// Of rows of sixteen, one after the other in four vectors: vector `k` holds the `k`th four of each row.
    fn fours(rows: [Self; 4]) -> [Self; 4];
    /// Back from `fours`.
    fn rows(fours: [Self; 4]) -> [Self; 4];
    /// Transposes each four by four samples: lanes `4 i ...` of all vectors.
    fn turn(fours: [Self; 4]) -> [Self; 4];
}

/// Eight samples in plain Rust: the oracle, and what runs where nothing better is.
#[derive(Clone, Copy)]
pub(super) struct Plain([f32; 8]);

impl Plain {
    #[inline(always)]
    fn zip(self, b: Plain, f: impl Fn(f32, f32) -> f32) -> Plain {
        let mut to = self;
        for (x, y) in to.0.iter_mut().zip(b.0) {
            *x = f(*x, y);
        }
        to
    }
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

impl Lanes for Plain {
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Plain([x; 8])
    }

    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        let mut to = [0.0; 8];
        to.copy_from_slice(&from[..8]);
        Plain(to)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[..8].copy_from_slice(&self.0);
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |x, y| x + y)
    }

    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |x, y| x - y)
    }

    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |x, y| x * y)
    }

    #[inline(always)]
    fn mul_add(self, b: Self, c: Self) -> Self {
        let mut to = c;
        for (i, z) in to.0.iter_mut().enumerate() {
            *z = fused(self.0[i], b.0[i], *z);
        }
        to
    }

    #[inline(always)]
    fn mul_sub(self, b: Self, c: Self) -> Self {
        let mut to = c;
        for (i, z) in to.0.iter_mut().enumerate() {
            *z = fused(self.0[i], b.0[i], -*z);
        }
        to
    }

    #[inline(always)]
    fn neg_mul_add(self, b: Self, c: Self) -> Self {
        let mut to = c;
        for (i, z) in to.0.iter_mut().enumerate() {
            *z = fused(-self.0[i], b.0[i], *z);
        }
        to
    }

    #[inline(always)]
    fn fours(rows: [Self; 4]) -> [Self; 4] {
        let mut to = rows;
        for (k, to) in to.iter_mut().enumerate() {
            for (lane, x) in to.0.iter_mut().enumerate() {
                let at = 16 * (lane / 4) + 4 * k + lane % 4;
                *x = rows[at / 8].0[at % 8];
            }
        }
        to
    }

    #[inline(always)]
    fn rows(fours: [Self; 4]) -> [Self; 4] {
        let mut to = fours;
        for (j, to) in to.iter_mut().enumerate() {
            for (lane, x) in to.0.iter_mut().enumerate() {
                let at = 8 * j + lane;
                *x = fours[at % 16 / 4].0[at / 16 * 4 + at % 4];
            }
        }
        to
    }

    #[inline(always)]
    fn turn(fours: [Self; 4]) -> [Self; 4] {
        let mut to = fours;
        for (j, to) in to.iter_mut().enumerate() {
            for (lane, x) in to.0.iter_mut().enumerate() {
                *x = fours[lane % 4].0[lane / 4 * 4 + j];
            }
        }
        to
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    /// Eight samples. Only made inside functions that enable AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub struct Avx2(__m256);

    /// Sixteen samples. Only made inside functions that enable AVX-512 F, VL and DQ.
    #[derive(Clone, Copy)]
    pub struct Avx512(__m512);

    /// Calls an intrinsic.
    macro_rules! op {
        ($name:ident($($argument:expr),*)) => {
            // SAFETY: the kernels are instantiated with this vector only inside functions that
            // enable its features, and those are called only where the processor was seen to have them.
            unsafe { $name($($argument),*) }
        };
        ($name:ident::<$constant:literal>($($argument:expr),*)) => {
            // SAFETY: as above.
            unsafe { $name::<$constant>($($argument),*) }
        };
    }

    impl Lanes for Avx2 {
        const WIDTH: usize = 8;

        #[inline(always)]
        fn splat(x: f32) -> Self {
            Avx2(op!(_mm256_set1_ps(x)))
        }

        #[inline(always)]
        fn load(from: &[f32]) -> Self {
            let from = &from[..8];
            // SAFETY: the slice has eight samples; the load asks for no alignment; features as in `op`.
            Avx2(unsafe { _mm256_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f32]) {
            let to = &mut to[..8];
            // SAFETY: as in `load`, and the slice is borrowed for writing.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn add(self, b: Self) -> Self {
            Avx2(op!(_mm256_add_ps(self.0, b.0)))
        }

        #[inline(always)]
        fn sub(self, b: Self) -> Self {
            Avx2(op!(_mm256_sub_ps(self.0, b.0)))
        }

        #[inline(always)]
        fn mul(self, b: Self) -> Self {
            Avx2(op!(_mm256_mul_ps(self.0, b.0)))
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            Avx2(op!(_mm256_fmadd_ps(self.0, b.0, c.0)))
        }

        #[inline(always)]
        fn mul_sub(self, b: Self, c: Self) -> Self {
            Avx2(op!(_mm256_fmsub_ps(self.0, b.0, c.0)))
        }

        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            Avx2(op!(_mm256_fnmadd_ps(self.0, b.0, c.0)))
        }

        #[inline(always)]
        fn fours([a, b, c, d]: [Self; 4]) -> [Self; 4] {
            [
                Avx2(op!(_mm256_permute2f128_ps::<0x20>(a.0, c.0))),
                Avx2(op!(_mm256_permute2f128_ps::<0x31>(a.0, c.0))),
                Avx2(op!(_mm256_permute2f128_ps::<0x20>(b.0, d.0))),
                Avx2(op!(_mm256_permute2f128_ps::<0x31>(b.0, d.0))),
            ]
        }

        #[inline(always)]
        fn rows([a, b, c, d]: [Self; 4]) -> [Self; 4] {
            [
                Avx2(op!(_mm256_permute2f128_ps::<0x20>(a.0, b.0))),
                Avx2(op!(_mm256_permute2f128_ps::<0x20>(c.0, d.0))),
                Avx2(op!(_mm256_permute2f128_ps::<0x31>(a.0, b.0))),
                Avx2(op!(_mm256_permute2f128_ps::<0x31>(c.0, d.0))),
            ]
        }

        #[inline(always)]
        fn turn([a, b, c, d]: [Self; 4]) -> [Self; 4] {
            let low = op!(_mm256_unpacklo_ps(a.0, b.0));
            let high = op!(_mm256_unpackhi_ps(a.0, b.0));
            let low_below = op!(_mm256_unpacklo_ps(c.0, d.0));
            let high_below = op!(_mm256_unpackhi_ps(c.0, d.0));
            [
                Avx2(op!(_mm256_shuffle_ps::<0x44>(low, low_below))),
                Avx2(op!(_mm256_shuffle_ps::<0xee>(low, low_below))),
                Avx2(op!(_mm256_shuffle_ps::<0x44>(high, high_below))),
                Avx2(op!(_mm256_shuffle_ps::<0xee>(high, high_below))),
            ]
        }
    }

    impl Lanes for Avx512 {
        const WIDTH: usize = 16;

        #[inline(always)]
        fn splat(x: f32) -> Self {
            Avx512(op!(_mm512_set1_ps(x)))
        }

        #[inline(always)]
        fn load(from: &[f32]) -> Self {
            let from = &from[..16];
            // SAFETY: the slice has sixteen samples; the load asks for no alignment; features as in `op`.
            Avx512(unsafe { _mm512_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f32]) {
            let to = &mut to[..16];
            // SAFETY: as in `load`, and the slice is borrowed for writing.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn add(self, b: Self) -> Self {
            Avx512(op!(_mm512_add_ps(self.0, b.0)))
        }

        #[inline(always)]
        fn sub(self, b: Self) -> Self {
            Avx512(op!(_mm512_sub_ps(self.0, b.0)))
        }

        #[inline(always)]
        fn mul(self, b: Self) -> Self {
            Avx512(op!(_mm512_mul_ps(self.0, b.0)))
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            Avx512(op!(_mm512_fmadd_ps(self.0, b.0, c.0)))
        }

        #[inline(always)]
        fn mul_sub(self, b: Self, c: Self) -> Self {
            Avx512(op!(_mm512_fmsub_ps(self.0, b.0, c.0)))
        }

        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            Avx512(op!(_mm512_fnmadd_ps(self.0, b.0, c.0)))
        }

        #[inline(always)]
        fn fours([a, b, c, d]: [Self; 4]) -> [Self; 4] {
            let low = op!(_mm512_shuffle_f32x4::<0x44>(a.0, b.0));
            let high = op!(_mm512_shuffle_f32x4::<0xee>(a.0, b.0));
            let low_below = op!(_mm512_shuffle_f32x4::<0x44>(c.0, d.0));
            let high_below = op!(_mm512_shuffle_f32x4::<0xee>(c.0, d.0));
            [
                Avx512(op!(_mm512_shuffle_f32x4::<0x88>(low, low_below))),
                Avx512(op!(_mm512_shuffle_f32x4::<0xdd>(low, low_below))),
                Avx512(op!(_mm512_shuffle_f32x4::<0x88>(high, high_below))),
                Avx512(op!(_mm512_shuffle_f32x4::<0xdd>(high, high_below))),
            ]
        }

        #[inline(always)]
        fn rows(fours: [Self; 4]) -> [Self; 4] {
            Self::fours(fours)
        }

        #[inline(always)]
        fn turn([a, b, c, d]: [Self; 4]) -> [Self; 4] {
            let low = op!(_mm512_unpacklo_ps(a.0, b.0));
            let high = op!(_mm512_unpackhi_ps(a.0, b.0));
            let low_below = op!(_mm512_unpacklo_ps(c.0, d.0));
            let high_below = op!(_mm512_unpackhi_ps(c.0, d.0));
            [
                Avx512(op!(_mm512_shuffle_ps::<0x44>(low, low_below))),
                Avx512(op!(_mm512_shuffle_ps::<0xee>(low, low_below))),
                Avx512(op!(_mm512_shuffle_ps::<0x44>(high, high_below))),
                Avx512(op!(_mm512_shuffle_ps::<0xee>(high, high_below))),
            ]
        }
    }
}
