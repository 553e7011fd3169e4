//! A few numbers side by side, in three widths.
//!
//! Every operation rounds once and alike in all of them (but for [`Plain`] without fused
//! multiply-add), so that a kernel written over [`Lanes`] gives the same bits everywhere.

use super::Level;

/// A level that this processor was seen to have: kernels may be entered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(Level);

impl Kernel {
    /// The level asked for, or the best below it that is here.
    pub fn new(level: Level) -> Kernel {
        Kernel(level.min(Level::here()))
    }

    pub fn level(self) -> Level {
        self.0
    }
}

/// A vector's operations. Whoever holds a value of the type may use them: it is made only where the
/// processor has been seen to have the instructions.
pub(crate) trait Lanes: Copy {
    type V: Copy;
    const WIDTH: usize;
    /// Registers of this width.
    const REGISTERS: usize;
    fn splat(self, x: f32) -> Self::V;
    /// # Safety
    /// `WIDTH` numbers can be read there.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// `WIDTH` numbers can be written there.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// `a * b + c`.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `x`, or `range` of its sign where it is larger.
    fn clamp(self, x: Self::V, range: f32) -> Self::V;
    /// What `shift` is told to do.
    type By: Copy;
    /// By `by` lanes, at least 0 and less than `WIDTH`.
    fn by(self, by: usize) -> Self::By;
    /// Lane `n` is lane `n - by` of `now`; of the lanes before them, the last ones of `before`.
    fn shift(self, by: Self::By, before: Self::V, now: Self::V) -> Self::V;

    /// Runs a tile one vector wide and of at most `size` outputs, and says how many they were. Which
    /// sizes there are is a matter of the registers.
    ///
    /// # Safety
    /// As for [`Tile::run`].
    unsafe fn one<T: Tile<Self>>(self, size: usize, tile: &mut T) -> usize;
    /// The same, two vectors wide.
    ///
    /// # Safety
    /// As for [`Tile::run`].
    unsafe fn two<T: Tile<Self>>(self, size: usize, tile: &mut T) -> usize;
    /// The same, four vectors wide.
    ///
    /// # Safety
    /// As for [`Tile::run`].
    unsafe fn four<T: Tile<Self>>(self, size: usize, tile: &mut T) -> usize;
}

/// What is done to some outputs of some frames at once.
pub(crate) trait Tile<L: Lanes> {
    /// Processes `OT` outputs of `FV` vectors of frames.
    ///
    /// # Safety
    /// All that lies inside of what was checked.
    unsafe fn run<const FV: usize, const OT: usize>(&mut self, l: L);
}

macro_rules! menu {
    ($name:ident, $fv:literal: $($n:literal)*) => {
        #[inline(always)]
        unsafe fn $name<T: Tile<Self>>(self, size: usize, tile: &mut T) -> usize {
            $(if size >= $n {
                // SAFETY: as the caller vouches; there are at least as many outputs.
                unsafe { tile.run::<$fv, $n>(self) };
                return $n;
            })*
            0
        }
    };
}

/// Plain code; fused where `FUSED` (aarch64, where the compiler makes NEON of it, and the oracle).
#[derive(Clone, Copy)]
pub(crate) struct Plain<const FUSED: bool>;

/// Whether plain code of this target has a fused multiply-add.
pub(crate) const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

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

impl<const F: bool> Lanes for Plain<F> {
    type V = [f32; 8];
    const WIDTH: usize = 8;
    const REGISTERS: usize = 8;
    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> [f32; 8] {
        // SAFETY: the caller vouches for 8 numbers; unaligned is allowed.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: [f32; 8]) {
        // SAFETY: the caller vouches for 8 numbers; unaligned is allowed.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn fma(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        if F { each!(a, b, c => a.mul_add(b, c)) } else { each!(a, b, c => a * b + c) }
    }
    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a + b)
    }
    #[inline(always)]
    fn mul(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a * b)
    }
    #[inline(always)]
    fn div(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => a / b)
    }
    #[inline(always)]
    fn min(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each!(a, b => if a > b { a } else { b })
    }
    #[inline(always)]
    fn clamp(self, x: [f32; 8], range: f32) -> [f32; 8] {
        each!(x => x.max(-range).min(range))
    }
    type By = usize;
    #[inline(always)]
    fn by(self, by: usize) -> usize {
        by
    }
    #[inline(always)]
    fn shift(self, by: usize, before: [f32; 8], now: [f32; 8]) -> [f32; 8] {
        let mut out = [0.0; 8];
        for (n, out) in out.iter_mut().enumerate() {
            *out = if n < by { before[n + 8 - by] } else { now[n - by] };
        }
        out
    }
    menu!(one, 1: 4 1);
    menu!(two, 2: 2 1);
    menu!(four, 4: 1);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, Tile};
    use std::arch::x86_64::*;

    /// AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());
    /// AVX-512 F.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(());

    impl Avx2 {
        /// # Safety
        /// The processor has AVX2 and FMA.
        #[inline(always)]
        pub(crate) unsafe fn new() -> Avx2 {
            Avx2(())
        }
    }

    impl Avx512 {
        /// # Safety
        /// The processor has AVX-512 F.
        #[inline(always)]
        pub(crate) unsafe fn new() -> Avx512 {
            Avx512(())
        }
    }

    macro_rules! lanes {
        ($name:ident, $v:ident, $width:literal, $registers:literal, $splat:ident, $load:ident,
         $store:ident, $fma:ident, $add:ident, $mul:ident, $div:ident, $min:ident, $max:ident, $($menu:tt)*) => {
            impl Lanes for $name {
                type V = $v;
                const WIDTH: usize = $width;
                const REGISTERS: usize = $registers;
                #[inline(always)]
                fn splat(self, x: f32) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $splat(x) }
                }
                #[inline(always)]
                unsafe fn load(self, p: *const f32) -> $v {
                    // SAFETY: as above; the caller vouches for the numbers.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut f32, v: $v) {
                    // SAFETY: as above; the caller vouches for the room.
                    unsafe { $store(p, v) }
                }
                #[inline(always)]
                fn fma(self, a: $v, b: $v, c: $v) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $fma(a, b, c) }
                }
                #[inline(always)]
                fn add(self, a: $v, b: $v) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $add(a, b) }
                }
                #[inline(always)]
                fn mul(self, a: $v, b: $v) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $mul(a, b) }
                }
                #[inline(always)]
                fn div(self, a: $v, b: $v) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $div(a, b) }
                }
                #[inline(always)]
                fn min(self, a: $v, b: $v) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $min(a, b) }
                }
                #[inline(always)]
                fn max(self, a: $v, b: $v) -> $v {
                    // SAFETY: there is a value of this type, so the instructions are there.
                    unsafe { $max(a, b) }
                }
                $($menu)*
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
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_mul_ps,
        _mm256_div_ps,
        _mm256_min_ps,
        _mm256_max_ps,
        #[inline(always)]
        fn clamp(self, x: __m256, range: f32) -> __m256 {
            self.min(self.max(x, self.splat(-range)), self.splat(range))
        }
        type By = (__m256i, __m256);
        #[inline(always)]
        fn by(self, by: usize) -> (__m256i, __m256) {
            // SAFETY: as for the other operations.
            let lanes = unsafe { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) };
            // SAFETY: as above.
            let by = unsafe { _mm256_set1_epi32(by as i32) };
            // SAFETY: as above. Of a lane's number the last three binary digits count.
            let from = unsafe { _mm256_sub_epi32(lanes, by) };
            // SAFETY: as above.
            let older = unsafe { _mm256_cmpgt_epi32(by, lanes) };
            // SAFETY: as above.
            (from, unsafe { _mm256_castsi256_ps(older) })
        }
        #[inline(always)]
        fn shift(self, by: (__m256i, __m256), before: __m256, now: __m256) -> __m256 {
            // SAFETY: as for the other operations.
            let before = unsafe { _mm256_permutevar8x32_ps(before, by.0) };
            // SAFETY: as above.
            let now = unsafe { _mm256_permutevar8x32_ps(now, by.0) };
            // SAFETY: as above.
            unsafe { _mm256_blendv_ps(now, before, by.1) }
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
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_mul_ps,
        _mm512_div_ps,
        _mm512_min_ps,
        _mm512_max_ps,
        #[inline(always)]
        fn clamp(self, x: __m512, range: f32) -> __m512 {
            // The smaller magnitude, the sign of the first.
            // SAFETY: there is a value of this type, so the instructions are there.
            unsafe { _mm512_range_ps::<0b0010>(x, self.splat(range)) }
        }
        type By = __m512i;
        #[inline(always)]
        fn by(self, by: usize) -> __m512i {
            let lane = |n: i32| 16 + n - by as i32;
            // SAFETY: as for the other operations.
            unsafe {
                _mm512_setr_epi32(
                    lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7),
                    lane(8), lane(9), lane(10), lane(11), lane(12), lane(13), lane(14), lane(15),
                )
            }
        }
        #[inline(always)]
        fn shift(self, by: __m512i, before: __m512, now: __m512) -> __m512 {
            // SAFETY: as for the other operations.
            unsafe { _mm512_permutex2var_ps(before, by, now) }
        }
        menu!(one, 1: 16 12 8 6 4 3 2 1); menu!(two, 2: 12 8 6 4 3 2 1); menu!(four, 4: 6 4 3 2 1);
    );
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// The range in which the rational tanh is taken; beyond it tanh is 1 to the last bit but one.
const TANH_RANGE: f32 = 9.0;
/// tanh(x) = x P(x^2) / Q(x^2) on it: a minimax fit of the relative error, 2e-8 before rounding.
const P: [f32; 5] = [1.0, 0.133_809_75, 0.003_495_527, 2.060_804_8e-5, 1.335_320_5e-8];
const Q: [f32; 5] = [1.0, 0.467_142_9, 0.025_876_751, 3.285_533_2e-4, 7.775_965_4e-7];

/// tanh, as a fraction: numerator and denominator.
#[inline(always)]
pub(crate) fn tanh_parts<L: Lanes>(l: L, x: L::V) -> (L::V, L::V) {
    let x = l.clamp(x, TANH_RANGE);
    let u = l.mul(x, x);
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
    let x = l.clamp(x, TANH_RANGE);
    let u = l.mul(x, x);
    let u2 = l.mul(u, u);
    // Written out: a closure might stay a call, through memory.
    let p = l.fma(u, l.splat(P[1]), l.splat(P[0]));
    let q = l.fma(u, l.splat(Q[1]), l.splat(Q[0]));
    let p2 = l.fma(u2, l.splat(P[4]), l.fma(u, l.splat(P[3]), l.splat(P[2])));
    let q2 = l.fma(u2, l.splat(Q[4]), l.fma(u, l.splat(Q[3]), l.splat(Q[2])));
    (l.fma(l.mul(x, u2), p2, l.mul(x, p)), l.fma(u2, q2, q))
}
