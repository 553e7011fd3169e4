//! The head of a FIR: its first taps, summed directly.

#![allow(clippy::needless_range_loop, reason = "vectors in step with each other")]

use super::lanes::{Job, Kernel, Lanes};

/// Taps of a head, put in the order in which they are used.
pub struct HeadTaps {
    /// `by_residue[r * rows + q]` is tap `16 q + r`; absent ones are 0.
    by_residue: Vec<f32>,
    rows: usize,
}

impl HeadTaps {
    /// Samples after the last one that [`HeadTaps::run`] may look at (and not use).
    pub const BEYOND: usize = 64;

    /// Of the first taps of an IR.
    pub fn new(taps: &[f32]) -> HeadTaps {
        let rows = taps.len().div_ceil(64) * 4;
        let mut by_residue = vec![0.0; 16 * rows];
        for (k, &tap) in taps.iter().enumerate() {
            by_residue[k % 16 * rows + k / 16] = tap;
        }
        HeadTaps { by_residue, rows }
    }

    /// How many samples before the first one it looks at.
    pub fn history(&self) -> usize {
        16 * self.rows
    }

    /// Adds to `out[i]` the sum of tap `k` times `x[at + i - k]`, always in the same order.
    ///
    /// # Shape
    /// At most 64 outputs; `at` is at least [`HeadTaps::history`], and [`HeadTaps::BEYOND`] samples follow it.
    pub fn run(&self, kernel: Kernel, x: &[f32], at: usize, out: &mut [f32]) {
        let x = &x[at - self.history()..at + HeadTaps::BEYOND];
        kernel.run(Sums { head: self, x, out });
    }
}

/// A head's sums for some outputs.
struct Sums<'a> {
    head: &'a HeadTaps,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Job for Sums<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        // One vector of outputs would be all loads across cache lines; two half as wide cross half of them.
        if self.out.len() <= 16 {
            sums(l.half(), self.head, self.x, self.out);
        } else {
            sums(l, self.head, self.x, self.out);
        }
    }
}

#[inline(always)]
fn sums<L: Lanes>(l: L, head: &HeadTaps, x: &[f32], out: &mut [f32]) {
    let mut sums = [0.0; 64];
    let vectors = out.len().div_ceil(L::WIDTH);
    let mut done = 0;
    while done < vectors {
        let from = done * L::WIDTH;
        done += match vectors - done {
            1 => tile::<L, 1, 8>(l, head, x, from, &mut sums),
            2 | 3 => tile::<L, 2, 4>(l, head, x, from, &mut sums),
            // Eight outputs see most of a window again.
            8.. if L::WIDTH == 8 && L::REGISTERS == 16 => {
                tile::<L, 8, 1>(l, head, x, from, &mut sums)
            }
            _ => tile::<L, 4, 2>(l, head, x, from, &mut sums),
        };
    }
    for (y, sum) in out.iter_mut().zip(sums) {
        *y += sum;
    }
}

/// `V` vectors of outputs, `R` residues of taps at a time: `V * R` sums run beside each other.
#[inline(always)]
fn tile<L: Lanes, const V: usize, const R: usize>(
    l: L,
    head: &HeadTaps,
    x: &[f32],
    from: usize,
    sums: &mut [f32; 64],
) -> usize {
    let (rows, per_row) = (head.rows, 16 / L::WIDTH);
    let zero = l.splat(0.0);
    let (mut total, mut odd) = ([zero; V], [zero; V]);
    for first in (0..16).step_by(R) {
        let mut sum = [[zero; V]; R];
        // What the next taps see of these, they keep where registers suffice: of the widest vectors, every
        // load lies across cache lines and costs twice.
        let mut windows = [[zero; 14]; R];
        for row in (0..rows).step_by(4) {
            for j in 0..R {
                let r = first + j;
                let base = 16 * (rows - 3 - row) - r + from;
                let x = &x[base..base + L::WIDTH * (V + 3 * per_row)];
                let window = &mut windows[j];
                for i in (0..V + 3 * per_row).rev() {
                    window[i] = if L::WIDTH == 16 && row > 0 && i >= 4 * per_row {
                        window[i - 4 * per_row]
                    } else {
                        l.read(&x[i * L::WIDTH..])
                    };
                }
                let taps = &head.by_residue[r * rows + row..][..4];
                for k in 0..4 {
                    let tap = l.splat(taps[k]);
                    for v in 0..V {
                        sum[j][v] = l.fma(window[v + (3 - k) * per_row], tap, sum[j][v]);
                    }
                }
            }
        }
        if R == 1 {
            for v in 0..V {
                let (before, now) = (odd[v], sum[0][v]);
                if first % 2 == 1 {
                    total[v] = l.add(total[v], l.add(before, now));
                }
                odd[v] = now;
            }
        }
        for j in (1..R).step_by(2) {
            for v in 0..V {
                total[v] = l.add(total[v], l.add(sum[j - 1][v], sum[j][v]));
            }
        }
    }
    for v in 0..V {
        l.write(total[v], &mut sums[from + v * L::WIDTH..]);
    }
    V
}
