//! The sigmoid of whole rows, each result good to its own last bits.
//!
//! Taken as half of a tanh and a half it would be good to the last bits of 1: where it is small, hardly a digit of it
//! would be left, and nets that multiply it (SiLU, gates, FiLM) hear that.

use super::lanes::{Job, Lanes};

/// Beyond it, the result is 1 or as good as nothing.
const RANGE: f32 = 87.0;
/// Added and taken away again, it leaves a whole number.
const WHOLE: f32 = 12_582_912.0;
/// The natural logarithm of 2, in two parts; a whole number of two digits times the first one is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// e^r for |r| up to half of it.
const SERIES: [f32; 8] =
    [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];

/// The sigmoid of every number; the length is a multiple of [`STEP`](super::amp_wave::STEP).
pub(crate) struct Sigmoid<'a> {
    pub data: &'a mut [f32],
}

impl Job for Sigmoid<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let zero = l.splat(0.0);
        for part in self.data.chunks_exact_mut(L::WIDTH) {
            let x = l.sub(zero, l.clamp(l.read(part), RANGE));
            let whole = l.splat(WHOLE);
            let n = l.sub(l.fma(x, l.splat(std::f32::consts::LOG2_E), whole), whole);
            let r = l.fnma(n, l.splat(LN_2[1]), l.fnma(n, l.splat(LN_2[0]), x));
            let mut e = l.splat(SERIES[7]);
            for term in SERIES[..7].iter().rev() {
                e = l.fma(e, r, l.splat(*term));
            }
            // Two to the nth: the exponent alone.
            l.write(n, part);
            for n in part.iter_mut() {
                *n = f32::from_bits(((*n as i32 + 127) as u32) << 23);
            }
            let e = l.mul(e, l.read(part));
            let one = l.splat(1.0);
            l.write(l.div(one, l.add(one, e)), part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{SimdLevel, lanes::Kernel};

    #[test]
    fn small_results_are_as_good_as_large_ones() {
        let x: Vec<f32> = (-1760..1760).map(|n| n as f32 / 20.0).collect();
        let mut fused = Vec::new();
        for level in SimdLevel::all() {
            let mut y = x.clone();
            Kernel::new(level).run(Sigmoid { data: &mut y });
            for (x, y) in x.iter().zip(&y) {
                let wanted = 1.0 / (1.0 + (-f64::from(x.clamp(-RANGE, RANGE))).exp());
                let off = (f64::from(*y) / wanted - 1.0).abs();
                assert!(off < 3e-7, "{level:?}: {x} gives {y}, off by {off:e}");
            }
            if level != SimdLevel::Plain {
                fused.push(y.iter().map(|y| y.to_bits()).collect::<Vec<_>>());
            }
        }
        assert!(fused.windows(2).all(|two| two[0] == two[1]));
    }
}
