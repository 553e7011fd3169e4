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

    /// Transposes each group of `WIDTH` rows.
    fn transpose(rows: [Self; 16]) -> [Self; 16];
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
    fn transpose(rows: [Self; 16]) -> [Self; 16] {
        let mut to = rows;
        for (i, row) in to.iter_mut().enumerate() {
            for (j, x) in row.0.iter_mut().enumerate() {
                *x = rows[i / 8 * 8 + j].0[i % 8];
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
        fn transpose(rows: [Self; 16]) -> [Self; 16] {
            let mut to = rows;
            for group in [0, 8] {
                let mut r = [rows[group].0; 8];
                for i in 0..8 {
                    r[i] = rows[group + i].0;
                }
                // Pairs of rows, then fours, then the halves of the registers.
                let mut pairs = [r[0]; 8];
                for i in 0..4 {
                    pairs[2 * i] = op!(_mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]));
                    pairs[2 * i + 1] = op!(_mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]));
                }
                let mut fours = pairs;
                for half in [0, 4] {
                    for i in 0..2 {
                        let (a, b) = (pairs[half + i], pairs[half + 2 + i]);
                        fours[half + 2 * i] = op!(_mm256_shuffle_ps::<0x44>(a, b));
                        fours[half + 2 * i + 1] = op!(_mm256_shuffle_ps::<0xee>(a, b));
                    }
                }
                for i in 0..4 {
                    let (a, b) = (fours[i], fours[4 + i]);
                    to[group + i] = Avx2(op!(_mm256_permute2f128_ps::<0x20>(a, b)));
                    to[group + 4 + i] = Avx2(op!(_mm256_permute2f128_ps::<0x31>(a, b)));
                }
            }
            to
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
        fn transpose(rows: [Self; 16]) -> [Self; 16] {
            let mut r = [rows[0].0; 16];
            for i in 0..16 {
                r[i] = rows[i].0;
            }
            // Pairs of rows, then fours: 4 x 4 within each quarter of the registers.
            let mut pairs = r;
            for i in 0..8 {
                pairs[2 * i] = op!(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]));
                pairs[2 * i + 1] = op!(_mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
            }
            let mut fours = pairs;
            for quad in [0, 4, 8, 12] {
                for i in 0..2 {
                    let (a, b) = (pairs[quad + i], pairs[quad + 2 + i]);
                    fours[quad + 2 * i] = op!(_mm512_shuffle_ps::<0x44>(a, b));
                    fours[quad + 2 * i + 1] = op!(_mm512_shuffle_ps::<0xee>(a, b));
                }
            }
            // Then the quarters: fours[4 q + i] holds columns i, 4 + i, 8 + i, 12 + i of rows 4 q ...
            let mut to = rows;
            for i in 0..4 {
                let even = op!(_mm512_shuffle_f32x4::<0x88>(fours[i], fours[4 + i]));
                let odd = op!(_mm512_shuffle_f32x4::<0xdd>(fours[i], fours[4 + i]));
                let even_below = op!(_mm512_shuffle_f32x4::<0x88>(fours[8 + i], fours[12 + i]));
                let odd_below = op!(_mm512_shuffle_f32x4::<0xdd>(fours[8 + i], fours[12 + i]));
                to[i] = Avx512(op!(_mm512_shuffle_f32x4::<0x88>(even, even_below)));
                to[8 + i] = Avx512(op!(_mm512_shuffle_f32x4::<0xdd>(even, even_below)));
                to[4 + i] = Avx512(op!(_mm512_shuffle_f32x4::<0x88>(odd, odd_below)));
                to[12 + i] = Avx512(op!(_mm512_shuffle_f32x4::<0xdd>(odd, odd_below)));
            }
            to
        }
    }
}
