//! A few numbers side by side, and the tokens without which there are none.
//!
//! A vector's operations are methods of a [token](Lanes), a value without size. A token of instructions that not
//! every processor has comes from [`Token::detect`], which asks the processor, or is the half of one. So whoever
//! can write `l.add(a, b)` may: a kernel that takes a token cannot be called where its instructions are absent.
//!
//! Every operation rounds once and alike in all of them (but for [`Plain`] where the target has no fused
//! multiply-add), so that a kernel written over [`Lanes`] gives the same bits everywhere.

use super::SimdLevel;

/// A proof that this processor has certain instructions.
pub(crate) trait Token: Copy {
    /// The token, if the processor has them. Elsewhere they are part of the target, and nobody asks.
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Option<Self>;
    /// Runs a job where the compiler may use these instructions.
    fn run<J: Job>(self, job: J) -> J::Out;
}

/// A kernel with what it works on.
pub(crate) trait Job {
    type Out;
    /// Does the work. Implementations are `#[inline(always)]`: what stays a call has no vector instructions.
    fn run<L: Lanes>(self, l: L) -> Self::Out;
}

/// One of the tokens, chosen when a stage is prepared.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {
    Base(Base),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Kernel {
    /// Of the level asked for, or of the best below it that is here.
    pub fn new(level: SimdLevel) -> Kernel {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(l) = Avx512::detect().filter(|_| level >= SimdLevel::Avx512) {
                return Kernel::Avx512(l);
            }
            if let Some(l) = Avx2::detect().filter(|_| level >= SimdLevel::Avx2) {
                return Kernel::Avx2(l);
            }
        }
        let _ = level;
        Kernel::Base(BASE)
    }

    pub fn level(self) -> SimdLevel {
        match self {
            Kernel::Base(_) => SimdLevel::Plain,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(_) => SimdLevel::Avx2,
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(_) => SimdLevel::Avx512,
        }
    }

    /// The same with vectors of 8.
    pub fn narrow(self) -> Kernel {
        match self {
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(l) => Kernel::Avx2(l.half()),
            narrow => narrow,
        }
    }

    /// Runs a job with its instructions.
    #[inline]
    pub fn run<J: Job>(self, job: J) -> J::Out {
        match self {
            Kernel::Base(l) => l.run(job),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2(l) => l.run(job),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512(l) => l.run(job),
        }
    }
}

/// A vector's operations, as methods of a token.
pub(crate) trait Lanes: Token {
    type V: Copy;
    /// 8 or 16.
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
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a * b - c`
    fn fms(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `x`, or `range` of its sign where it is larger.
    fn clamp(self, x: Self::V, range: f32) -> Self::V;
    /// The same, and a number of the same square, which may be there sooner.
    #[inline(always)]
    fn clamped(self, x: Self::V, range: f32) -> (Self::V, Self::V) {
        let x = self.clamp(x, range);
        (x, x)
    }

    /// Adds to each of `N` rows of `FV` vectors `x` times the row's weight.
    ///
    /// # Safety
    /// `N` numbers can be read at `weights`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "counted loops are unrolled")]
    unsafe fn add_row<const N: usize, const FV: usize>(
        self,
        weights: *const f32,
        x: &[Self::V; FV],
        sum: &mut [[Self::V; FV]; N],
    ) {
        for n in 0..N {
            // SAFETY: as the caller vouches.
            let w = self.splat(unsafe { *weights.wrapping_add(n) });
            for f in 0..FV {
                sum[n][f] = self.fma(w, x[f], sum[n][f]);
            }
        }
    }

    /// What `shift` is told to do.
    type By: Copy;
    /// By `by` lanes, at least 0 and less than `WIDTH`.
    fn by(self, by: usize) -> Self::By;
    /// Lane `n` is lane `n - by` of `now`; of the lanes before them, the last ones of `before`.
    fn shift(self, by: Self::By, before: Self::V, now: Self::V) -> Self::V;

    /// Of rows of sixteen, one after the other in four vectors: vector `k` holds the `k`th four of each row.
    fn fours(self, rows: [Self::V; 4]) -> [Self::V; 4];
    /// Back from `fours`.
    fn rows(self, fours: [Self::V; 4]) -> [Self::V; 4];
    /// Transposes each four by four samples: lanes `4 i ...` of all vectors.
    fn turn(self, fours: [Self::V; 4]) -> [Self::V; 4];

    /// Eight lanes, on a processor that has these.
    type Half: Lanes;
    fn half(self) -> Self::Half;

    /// The first `WIDTH` numbers.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    fn read(self, from: &[f32]) -> Self::V {
        let from = &from[..Self::WIDTH];
        // SAFETY: the slice has `WIDTH` numbers.
        unsafe { self.load(from.as_ptr()) }
    }

    /// Into the first `WIDTH` numbers.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    fn write(self, v: Self::V, to: &mut [f32]) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the slice has `WIDTH` numbers, borrowed for writing.
        unsafe { self.store(to.as_mut_ptr(), v) }
    }

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

mod plain;

/// What every processor of the target has.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) use plain::{BASE, Plain as Base};

#[cfg(target_arch = "aarch64")]
mod neon;
/// What every processor of the target has.
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{BASE, Neon as Base};

#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// Whether tiles of 512-bit vectors are made for few loads: two steps share a weight that is read, and of one step more
/// outputs share a row. So it is where a processor multiplies and adds two of them a cycle and loads no more than that.
/// The bits are the same.
///
/// Measured: Intel's server processors gain (`benches/DIARY.md`, "Two steps in a tile"). AMD's Zen 4 takes two cycles for
/// such a vector and loses. Zen 5 was not measured and stays as it was.
pub(crate) fn paired() -> bool {
    #[cfg(test)]
    if let Some(paired) = tests::PAIRED.get() {
        return paired;
    }
    #[cfg(target_arch = "x86_64")]
    return x86::is_intel();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
pub(crate) mod tests;
