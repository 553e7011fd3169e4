//! The head of a FIR: its first taps, summed directly.

#![allow(clippy::needless_range_loop, reason = "vectors in step with each other")]

use super::lanes::{Job, Kernel, Lanes};

/// Taps of a head, put in the order in which they are used.
pub struct HeadTaps {
    /// `by_residue[r * fours + f]` are the taps `16 q + r` of four `q` from `4 f` on; absent ones are 0.
    by_residue: Vec<[f32; 4]>,
    fours: usize,
}

impl HeadTaps {
    /// Samples after the last one that [`HeadTaps::run`] may look at (and not use).
    pub const BEYOND: usize = 64;

    /// Of the first taps of an IR.
    pub fn new(taps: &[f32]) -> HeadTaps {
        let fours = taps.len().div_ceil(64);
        let mut by_residue = vec![[0.0; 4]; 16 * fours];
        for (k, &tap) in taps.iter().enumerate() {
            by_residue[k % 16 * fours + k / 64][k / 16 % 4] = tap;
        }
        HeadTaps { by_residue, fours }
    }

    /// How many samples before the first one it looks at.
    pub fn history(&self) -> usize {
        64 * self.fours
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

/// Residues whose taps go into one sum: they lie so far apart. The order in which sums are added is everybody's.
const APART: usize = 8;

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
            8.. if L::WIDTH == 8 && L::REGISTERS == 16 => wide(l, head, x, from, &mut sums),
            _ => tile::<L, 4, 2>(l, head, x, from, &mut sums),
        };
    }
    // By whole rows, which become vectors.
    let (rows, rest) = out.as_chunks_mut::<16>();
    let (row_sums, _) = sums.as_chunks::<16>();
    for (y, sum) in rows.iter_mut().zip(row_sums) {
        for (y, sum) in y.iter_mut().zip(sum) {
            *y += sum;
        }
    }
    for (y, sum) in rest.iter_mut().zip(&sums[16 * rows.len()..]) {
        *y += sum;
    }
}

/// Vectors of outputs in a [`wide`] tile, from a tap to the one 16 before it, and of all that four such taps see.
const WIDE: usize = 8;
const ROW: usize = 2;
const SEEN: usize = WIDE + 3 * ROW;

/// Eight vectors of outputs, where half of the registers are their sums: a window is read once, and goes to all of them that see it.
/// The sums are added up in the order of [`tile`].
#[inline(always)]
fn wide<L: Lanes>(l: L, head: &HeadTaps, x: &[f32], from: usize, sums: &mut [f32; 64]) -> usize {
    let (fours, zero) = (head.fours, l.splat(0.0));
    let (mut total, mut even) = ([zero; WIDE], [zero; WIDE]);
    for first in 0..APART {
        let mut sum = [zero; WIDE];
        for r in [first, first + APART] {
            for (four, taps) in head.by_residue[r * fours..][..fours].iter().enumerate() {
                let x = &x[64 * (fours - four) - 48 - r + from..][..L::WIDTH * SEEN];
                let taps = taps.map(|tap| l.splat(tap));
                // From the newest: so each sum takes its taps in their order. (As a loop it would stay one.)
                see::<L, 13>(l, x, taps, &mut sum);
                see::<L, 12>(l, x, taps, &mut sum);
                see::<L, 11>(l, x, taps, &mut sum);
                see::<L, 10>(l, x, taps, &mut sum);
                see::<L, 9>(l, x, taps, &mut sum);
                see::<L, 8>(l, x, taps, &mut sum);
                see::<L, 7>(l, x, taps, &mut sum);
                see::<L, 6>(l, x, taps, &mut sum);
                see::<L, 5>(l, x, taps, &mut sum);
                see::<L, 4>(l, x, taps, &mut sum);
                see::<L, 3>(l, x, taps, &mut sum);
                see::<L, 2>(l, x, taps, &mut sum);
                see::<L, 1>(l, x, taps, &mut sum);
                see::<L, 0>(l, x, taps, &mut sum);
            }
        }
        for v in 0..WIDE {
            if first % 2 == 1 {
                total[v] = l.add(total[v], l.add(even[v], sum[v]));
            }
            even[v] = sum[v];
        }
    }
    for v in 0..WIDE {
        l.write(total[v], &mut sums[from + v * L::WIDTH..]);
    }
    WIDE
}

/// Window `I` of those that four taps see.
#[inline(always)]
fn see<L: Lanes, const I: usize>(l: L, x: &[f32], taps: [L::V; 4], sum: &mut [L::V; WIDE]) {
    let window = l.read(&x[I * L::WIDTH..]);
    for k in 0..4 {
        let first = (3 - k) * ROW;
        if I >= first && I - first < WIDE {
            sum[I - first] = l.fma(window, taps[k], sum[I - first]);
        }
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
    let (fours, per_row) = (head.fours, 16 / L::WIDTH);
    let zero = l.splat(0.0);
    let mut total = [zero; V];
    for first in (0..APART).step_by(R) {
        let mut sum = [[zero; V]; R];
        for first in [first, first + APART] {
            // What the next taps see of these, they keep where registers suffice: of the widest vectors, every
            // load lies across cache lines and costs twice.
            let mut windows = [[zero; 14]; R];
            for four in 0..fours {
                for j in 0..R {
                    let r = first + j;
                    let base = 64 * (fours - four) - 48 - r + from;
                    let x = &x[base..base + L::WIDTH * (V + 3 * per_row)];
                    let window = &mut windows[j];
                    for i in (0..V + 3 * per_row).rev() {
                        window[i] = if L::WIDTH == 16 && four > 0 && i >= 4 * per_row {
                            window[i - 4 * per_row]
                        } else {
                            l.read(&x[i * L::WIDTH..])
                        };
                    }
                    let taps = head.by_residue[r * fours + four];
                    for k in 0..4 {
                        let tap = l.splat(taps[k]);
                        for v in 0..V {
                            sum[j][v] = l.fma(window[v + (3 - k) * per_row], tap, sum[j][v]);
                        }
                    }
                }
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
