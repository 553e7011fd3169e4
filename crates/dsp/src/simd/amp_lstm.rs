//! LSTM cells, lanes being hidden units.
//!
//! A frame waits for the one before it, so what counts is the longest chain of dependent steps: each
//! gate's sum is taken in four chains that stay in registers, and what does not hang on the frame before
//! (bias, input) begins them. The rows of i, f and o come halved, so that their sigmoid is
//! (1 + tanh) / 2, and a product of two activations costs one division.
//!
//! Layers that fit into one vector together are laid side by side, each a frame behind the one before
//! it: they are then one layer, of which at the ends of a block only some units take a step. The same holds for
//! two narrower vectors, which hear no more columns than their own layers do.
//!
//! Two such vectors take their sums one after the other, all four gates of one together, so that an output is
//! read once for them; the first one's activations overlap with the second one's sums.
//!
//! Wide layers are a matter of what they read: each weight is used once a frame. There all four gates of a
//! group of units are summed together, so that a unit's output is read once for them, and the last group
//! is half as wide where that suffices. While a group's activations are on their way, the next one's sums
//! are taken.
//!
//! All of this takes the same sums in the same order, so that every width gives the same bits.

// Loops over a tile count to a constant: they are unrolled, while calls of an iterator may stay calls.
#![allow(clippy::needless_range_loop)]

use super::{
    SimdLevel,
    lanes::{Job, Kernel, Lanes},
    tanh::tanh_quick,
};
use crate::amp::net::Cell;
use std::ops::{Deref, DerefMut};

/// Widths are padded to this many units.
const UNITS: usize = 16;
/// A sum's chains.
const CHAINS: usize = 4;

/// Numbers from the beginning of a cache line: no vector of them lies in two.
pub(crate) struct Aligned {
    data: Vec<f32>,
    base: usize,
}

impl Aligned {
    fn new(from: &[f32]) -> Aligned {
        let mut data = vec![0.0; from.len() + 15];
        let base = data.as_ptr().align_offset(64).min(15);
        data.truncate(base + from.len());
        data[base..].copy_from_slice(from);
        Aligned { data, base }
    }
}

impl Deref for Aligned {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.data[self.base..]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.base..]
    }
}

/// Layers side by side as one cell, and where the later ones begin; none where they are too wide, or there is
/// but one.
pub(crate) fn side_by_side(cells: &[Cell]) -> Option<(Cell, Vec<usize>)> {
    let hidden: usize = cells.iter().map(|cell| cell.hidden).sum();
    let first = cells.first()?;
    if cells.len() < 2 || hidden > UNITS {
        return None;
    }
    let mut one = Cell {
        gru: false,
        inputs: first.inputs,
        hidden,
        weights: vec![0.0; first.inputs * 4 * hidden],
        recurrent: vec![0.0; hidden * 4 * hidden],
        bias: vec![0.0; 4 * hidden],
        recurrent_bias: Vec::new(),
        state: Vec::new(),
        cell: Vec::new(),
    };
    let (mut starts, mut at, mut before) = (Vec::new(), 0, 0);
    for cell in cells {
        let own = cell.hidden;
        let copy = |to: &mut [f32], from: &[f32]| {
            for (gate, from) in from.chunks_exact(own).enumerate() {
                to[gate * hidden + at..][..own].copy_from_slice(from);
            }
        };
        copy(&mut one.bias, &cell.bias);
        for (n, from) in cell.weights.chunks_exact(4 * own).enumerate() {
            // The layer before is the input of all but the first.
            let to = if at == 0 { &mut one.weights } else { &mut one.recurrent };
            let n = if at == 0 { n } else { before + n };
            copy(&mut to[n * 4 * hidden..][..4 * hidden], from);
        }
        for (n, from) in cell.recurrent.chunks_exact(4 * own).enumerate() {
            copy(&mut one.recurrent[(at + n) * 4 * hidden..][..4 * hidden], from);
        }
        one.state.extend_from_slice(&cell.state);
        one.cell.extend_from_slice(&cell.cell);
        if at > 0 {
            starts.push(at);
        }
        (before, at) = (at, at + own);
    }
    Some((one, starts))
}

/// One layer's weights as the kernel reads them, and its state.
pub(crate) struct Lstm {
    /// Of the net: they begin the first chain.
    inputs: usize,
    /// Padded to whole vectors.
    units: usize,
    width: usize,
    /// More than one group.
    wide: bool,
    /// Columns: the outputs of the layer before, then the own ones; both padded to a multiple of [`CHAINS`].
    columns: usize,
    /// Where the own ones begin.
    own: usize,
    /// Of the first vector of units and of the second: so many columns have weights that are not 0.
    reach: [usize; 2],
    /// Where the units of each layer but the first begin, of layers that were laid side by side.
    starts: Vec<usize>,
    /// `[group][bias, inputs.., columns..][gate i f g o][lane]`; the last group of wide ones may be of 8.
    weights: Aligned,
    /// What the columns are multiplied with.
    h: Aligned,
    c: Aligned,
    first: (Aligned, Aligned),
}

impl Lstm {
    /// Layers of one net share the width that its widest layer asks for; `before` is the number of units
    /// of the layer before it, 0 for the first.
    pub fn new(
        cell: &Cell,
        starts: Vec<usize>,
        before: usize,
        widest: usize,
        kernel: Kernel,
    ) -> Lstm {
        // Eight lanes suffice for eight units.
        let long = kernel.level() == SimdLevel::Avx512 && widest > 8;
        let width = if long { 16 } else { 8 };
        let wide = cell.hidden > UNITS;
        let units = cell.hidden.next_multiple_of(if wide { 8 } else { width });
        let inputs = if before == 0 { cell.inputs } else { 0 };
        let own = before.next_multiple_of(CHAINS);
        let columns = own + cell.hidden.next_multiple_of(CHAINS);
        let rows = 4 * cell.hidden;
        let reach =
            [0, 1].map(|group| heard(cell, before, own, group * width..(group + 1) * width));
        let mut weights = Vec::with_capacity((1 + inputs + columns) * 4 * units);
        for first in (0..units).step_by(width) {
            let lanes = width.min(units - first);
            let mut column = |from: Option<&[f32]>| {
                for gate in 0..4 {
                    let scale = if gate == 2 { 1.0 } else { 0.5 };
                    for lane in 0..lanes {
                        let unit = first + lane;
                        let w = from.filter(|_| unit < cell.hidden);
                        weights.push(w.map_or(0.0, |w| w[gate * cell.hidden + unit] * scale));
                    }
                }
            };
            column(Some(&cell.bias));
            for n in 0..inputs {
                column(Some(&cell.weights[n * rows..][..rows]));
            }
            for n in 0..own {
                column((n < before).then(|| &cell.weights[n * rows..][..rows]));
            }
            for n in 0..columns - own {
                column((n < cell.hidden).then(|| &cell.recurrent[n * rows..][..rows]));
            }
        }
        // Whoever reads them does so in vectors of 16 at most.
        let room = units.next_multiple_of(UNITS);
        let pad = |own: usize, from: &[f32]| {
            let mut all = vec![0.0; own];
            all.extend_from_slice(from);
            all.resize(own + room, 0.0);
            Aligned::new(&all)
        };
        let first = (pad(own, &cell.state), pad(0, &cell.cell));
        let (h, c) = (pad(own, &cell.state), pad(0, &cell.cell));
        let weights = Aligned::new(&weights);
        Lstm { inputs, units, width, wide, columns, own, reach, starts, weights, h, c, first }
    }

    /// How many frames the last of the layers side by side is behind.
    fn lag(&self) -> usize {
        self.starts.len()
    }

    /// The units that take a step when the first layer would be at frame `t` of `frames`: its frame is
    /// one of them, and so is that of the last.
    fn awake(&self, t: usize, frames: usize) -> (usize, usize) {
        let start = |layer: usize| match layer {
            0 => 0,
            layer => self.starts.get(layer - 1).copied().unwrap_or(self.h.len()),
        };
        let first = (t + 1).saturating_sub(frames);
        (start(first), start((t + 1).min(self.lag() + 1)))
    }

    /// Takes over what the layer before has put out.
    #[inline(always)]
    fn hear(&mut self, before: &Lstm) {
        let from = before.h[before.own..].as_chunks::<CHAINS>().0;
        for (to, from) in self.h[..self.own].as_chunks_mut::<CHAINS>().0.iter_mut().zip(from) {
            *to = *from;
        }
    }

    pub fn reset(&mut self) {
        self.h.copy_from_slice(&self.first.0);
        self.c.copy_from_slice(&self.first.1);
    }
}

/// Columns up to the last that some of these units hear, a multiple of [`CHAINS`].
fn heard(cell: &Cell, before: usize, own: usize, units: std::ops::Range<usize>) -> usize {
    let rows = 4 * cell.hidden;
    let hears = |weights: &[f32], column: usize| {
        let of = |unit: usize| {
            (0..4).any(|gate| weights[column * rows + gate * cell.hidden + unit] != 0.0)
        };
        units.clone().filter(|&unit| unit < cell.hidden).any(of)
    };
    let own_ones = (0..cell.hidden).filter(|&n| hears(&cell.recurrent, n)).map(|n| own + n + 1);
    let others = (0..before).filter(|&n| hears(&cell.weights, n)).map(|n| n + 1);
    own_ones.chain(others).max().unwrap_or(0).next_multiple_of(CHAINS)
}

/// A few layers over some frames, and the scalar product at their end.
pub(crate) struct Run<'a> {
    pub layers: &'a mut [Lstm],
    /// One input for each frame.
    pub input: &'a [f32],
    pub gain: f32,
    /// The head's weights, padded with zeros to the last layer's units and to a multiple of 16.
    pub head: &'a [f32],
    pub bias: f32,
    pub output: &'a mut [f32],
    /// As long as the widest layer, padded.
    pub spare: &'a mut [f32],
}

impl Run<'_> {
    /// Lanes that the layers are laid out for.
    fn width(&self) -> usize {
        self.layers.first().map_or(8, |layer| layer.width)
    }

    fn check(&self) {
        assert_eq!(self.input.len(), self.output.len());
        // All layers are of one kind.
        assert!(self.layers.iter().all(|layer| layer.width == self.width()));
        let mut before = 0;
        for layer in self.layers.iter() {
            let all = (1 + layer.inputs + layer.columns) * 4 * layer.units;
            assert_eq!(layer.weights.len(), all);
            assert!(layer.inputs <= usize::from(before == 0) && layer.own <= before);
            assert!(layer.own + layer.units <= layer.h.len() && layer.columns <= layer.h.len());
            assert!(layer.columns.is_multiple_of(CHAINS) && layer.own.is_multiple_of(CHAINS));
            assert!(layer.reach.iter().all(|&n| n <= layer.columns && n.is_multiple_of(CHAINS)));
            // Only one that is alone can be several.
            assert!(layer.starts.is_empty() || self.layers.len() == 1);
            assert!(layer.units.is_multiple_of(if layer.wide { 8 } else { layer.width }));
            assert!(layer.units <= layer.c.len() && layer.units <= self.spare.len());
            before = layer.h.len() - layer.own;
            assert!(layer.units <= before && before.is_multiple_of(UNITS));
        }
        if let Some(last) = self.layers.last() {
            assert!(last.units <= self.head.len() && self.head.len().is_multiple_of(UNITS));
        }
    }
}

/// Runs the layers.
pub(crate) fn run(kernel: Kernel, job: Run<'_>) {
    let wide = job.width() == 16;
    // Eight lanes suffice for eight units.
    if wide { kernel.run(job) } else { kernel.narrow().run(job) }
}

impl Job for Run<'_> {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, l: L) {
        self.check();
        assert_eq!(self.width(), L::WIDTH);
        // SAFETY: the job has been checked.
        unsafe { run_lanes(l, l.half(), &mut self) }
    }
}

/// `half` is as wide as `l`, or half as wide.
///
/// # Safety
/// The job has been checked, and its layers are laid out for this width.
#[inline(always)]
unsafe fn run_lanes<L: Lanes, H: Lanes>(l: L, half: H, job: &mut Run<'_>) {
    let frames = job.input.len();
    let lag = job.layers.first().map_or(0, Lstm::lag);
    for t in 0..frames + lag {
        let x = [job.input.get(t).map_or(0.0, |x| x * job.gain)];
        if t < lag || t >= frames {
            if let Some(layer) = job.layers.first_mut() {
                // Who does not take this step gets his state back.
                let mut before = [[0.0f32; UNITS]; 2];
                before[0].copy_from_slice(&layer.h[..UNITS]);
                before[1].copy_from_slice(&layer.c[..UNITS]);
                let (first, behind) = layer.awake(t, frames);
                // SAFETY: the job has been checked.
                unsafe { step(l, layer, x.as_ptr(), job.spare) };
                let Lstm { h, c, .. } = layer;
                for (state, before) in [h, c].into_iter().zip(before) {
                    state[..first].copy_from_slice(&before[..first]);
                    if behind < UNITS {
                        state[behind..UNITS].copy_from_slice(&before[behind..]);
                    }
                }
            }
        } else {
            for n in 0..job.layers.len() {
                let (before, layers) = job.layers.split_at_mut(n);
                let Some(layer) = layers.first_mut() else { continue };
                if let Some(before) = before.last() {
                    layer.hear(before);
                }
                if layer.wide {
                    // SAFETY: the job has been checked.
                    unsafe { wide_step(l, half, layer, x.as_ptr(), job.spare) };
                } else {
                    // SAFETY: the job has been checked.
                    unsafe { step(l, layer, x.as_ptr(), job.spare) };
                }
            }
        }
        let Some(heard) = t.checked_sub(lag) else { continue };
        let (units, from) = (job.layers.last())
            .map_or((0, x.as_ptr()), |last| (last.units, last.h[last.own..].as_ptr()));
        // In as many sums as the widest vector has lanes, so that every width adds them alike.
        let mut sum = [l.splat(0.0); UNITS];
        let mut u = 0;
        while u < units {
            for k in 0..UNITS / L::WIDTH {
                if u < units {
                    // SAFETY: a layer's state and the head are as long as its units, padded to 16.
                    let h = unsafe { l.load(from.wrapping_add(u)) };
                    // SAFETY: a layer's state and the head are as long as its units.
                    let w = unsafe { l.load(job.head.as_ptr().wrapping_add(u)) };
                    sum[k] = l.fma(h, w, sum[k]);
                }
                u += L::WIDTH;
            }
        }
        let mut lanes = [0.0f32; UNITS];
        for k in 0..UNITS / L::WIDTH {
            // SAFETY: there is room for all of them.
            unsafe { l.store(lanes.as_mut_ptr().wrapping_add(k * L::WIDTH), sum[k]) };
        }
        let mut wide = UNITS / 2;
        while wide > 0 {
            for n in 0..wide {
                lanes[n] += lanes[n + wide];
            }
            wide /= 2;
        }
        job.output[heard] = lanes[0] + job.bias;
    }
}

/// The sums of some gates of a group of units, in all their columns.
///
/// # Safety
/// `w` leads to the group's weights, `from` to the layer's inputs, `h` to its state.
#[inline(always)]
unsafe fn gates<L: Lanes, const N: usize>(
    l: L,
    layer: (usize, usize),
    gates: [usize; N],
    mut w: *const f32,
    from: *const f32,
    h: *const f32,
) -> [L::V; N] {
    let (inputs, columns) = layer;
    let row = 4 * L::WIDTH;
    let at = |w: *const f32, gate: usize| w.wrapping_add(gate * L::WIDTH);
    let mut acc = [[l.splat(0.0); N]; CHAINS];
    for g in 0..N {
        // SAFETY: within the weights that were checked.
        acc[0][g] = unsafe { l.load(at(w, gates[g])) };
    }
    w = w.wrapping_add(row);
    for n in 0..inputs {
        // SAFETY: as the caller vouches.
        let x = l.splat(unsafe { *from.wrapping_add(n) });
        for g in 0..N {
            // SAFETY: within the weights that were checked.
            acc[0][g] = l.fma(unsafe { l.load(at(w, gates[g])) }, x, acc[0][g]);
        }
        w = w.wrapping_add(row);
    }
    let mut n = 0;
    while n < columns {
        for k in 0..CHAINS {
            // SAFETY: the columns are a multiple of the chains, and within the state.
            let x = l.splat(unsafe { *h.wrapping_add(n + k) });
            for g in 0..N {
                // SAFETY: within the weights that were checked.
                acc[k][g] = l.fma(unsafe { l.load(at(w, k * 4 + gates[g])) }, x, acc[k][g]);
            }
        }
        w = w.wrapping_add(CHAINS * row);
        n += CHAINS;
    }
    let mut sum = acc[0];
    for g in 0..N {
        sum[g] = l.add(l.add(acc[0][g], acc[1][g]), l.add(acc[2][g], acc[3][g]));
    }
    sum
}

/// One frame of one layer, its sums in registers.
///
/// # Safety
/// The layer has been checked; `from` leads to its inputs, `spare` holds its units.
#[inline(always)]
unsafe fn step<L: Lanes>(l: L, layer: &mut Lstm, from: *const f32, spare: &mut [f32]) {
    if L::REGISTERS < 32 && layer.units == 2 * L::WIDTH {
        // SAFETY: as the caller vouches.
        unsafe { pair_step(l, layer, from) };
        return;
    }
    let (h, c) = (layer.h.as_mut_ptr(), layer.c.as_mut_ptr());
    // With one group nobody else reads the old state.
    let alone = layer.units == L::WIDTH;
    let own = layer.own;
    let to = if alone { h.wrapping_add(own) } else { spare.as_mut_ptr() };
    let size = (layer.inputs, layer.columns);
    let group = (1 + layer.inputs + layer.columns) * 4 * L::WIDTH;
    let mut u = 0;
    while u < layer.units {
        let w = layer.weights.as_ptr().wrapping_add(u / L::WIDTH * group);
        // What is waited for longest comes first.
        // SAFETY: as the caller vouches.
        let [i, g, f] = unsafe { gates(l, size, [0, 2, 1], w, from, h) };
        let early = [tanh_quick(l, i), tanh_quick(l, f), tanh_quick(l, g)];
        // SAFETY: as the caller vouches.
        let [o] = unsafe { gates(l, size, [3], w, from, h) };
        // SAFETY: within the state that was checked; `to` is as long as the units.
        unsafe { cell(l, early, tanh_quick(l, o), c.wrapping_add(u), to.wrapping_add(u)) };
        u += L::WIDTH;
    }
    if !alone {
        layer.h[own..][..layer.units].copy_from_slice(&spare[..layer.units]);
    }
}

/// One frame of a layer of two vectors.
///
/// # Safety
/// As for [`step`].
#[inline(always)]
unsafe fn pair_step<L: Lanes>(l: L, layer: &mut Lstm, from: *const f32) {
    let (h, c) = (layer.h.as_mut_ptr(), layer.c.as_mut_ptr());
    let to = h.wrapping_add(layer.own);
    let second =
        layer.weights.as_ptr().wrapping_add((1 + layer.inputs + layer.columns) * 4 * L::WIDTH);
    let size = layer.reach.map(|columns| (layer.inputs, columns));
    // SAFETY: as the caller vouches; no group reaches beyond the columns.
    let [i, f, g, o] = unsafe { halved_gates(l, size[0], layer.weights.as_ptr(), from, h) };
    // SAFETY: as above. The old state is read to the end before any of it is written.
    let sums = unsafe { halved_gates(l, size[1], second, from, h) };
    let early = [tanh_quick(l, i), tanh_quick(l, f), tanh_quick(l, g)];
    // SAFETY: within the state that was checked.
    unsafe { cell(l, early, tanh_quick(l, o), c, to) };
    let [i, f, g, o] = sums;
    let early = [tanh_quick(l, i), tanh_quick(l, f), tanh_quick(l, g)];
    let (c, to) = (c.wrapping_add(L::WIDTH), to.wrapping_add(L::WIDTH));
    // SAFETY: as above.
    unsafe { cell(l, early, tanh_quick(l, o), c, to) };
}

/// From the gates' tanh (as fractions; i, f and g, then o) to a vector of the state and of the output.
///
/// # Safety
/// `c` and `to` lead to a vector.
#[inline(always)]
unsafe fn cell<L: Lanes>(
    l: L,
    early: [(L::V, L::V); 3],
    o: (L::V, L::V),
    c: *mut f32,
    to: *mut f32,
) {
    let ([(ip, iq), (fp, fq), (gp, gq)], (op, oq)) = (early, o);
    let half = l.splat(0.5);
    // sig(i) tanh(g), sig(f), each by one division; likewise sig(o) tanh(c).
    let new = l.div(l.mul(l.add(iq, ip), l.mul(half, gp)), l.mul(iq, gq));
    let keep = l.div(l.mul(half, l.add(fq, fp)), fq);
    // SAFETY: as the caller vouches.
    let state = l.fma(keep, unsafe { l.load(c) }, new);
    // SAFETY: as the caller vouches.
    unsafe { l.store(c, state) };
    let (cp, cq) = tanh_quick(l, state);
    let out = l.div(l.mul(l.mul(half, l.add(oq, op)), cp), l.mul(oq, cq));
    // SAFETY: as the caller vouches.
    unsafe { l.store(to, out) };
}

/// One frame of a wide layer.
///
/// # Safety
/// As for [`step`]. `half` is as wide as `l`, or half as wide.
#[inline(always)]
unsafe fn wide_step<L: Lanes, H: Lanes>(
    l: L,
    half: H,
    layer: &mut Lstm,
    from: *const f32,
    spare: &mut [f32],
) {
    // SAFETY: as the caller vouches.
    let done = unsafe { groups(l, layer, 0, from, spare) };
    // SAFETY: as above; units are a multiple of 8.
    unsafe { groups(half, layer, done, from, spare) };
    let (from, to) = (spare.as_ptr(), layer.h[layer.own..].as_mut_ptr());
    for u in (0..layer.units).step_by(8) {
        // SAFETY: both are as long as the units, a multiple of 8.
        let x = unsafe { half.load(from.wrapping_add(u)) };
        // SAFETY: as above.
        unsafe { half.store(to.wrapping_add(u), x) };
    }
}

/// The units from `u` on that fill vectors; says where it ended.
///
/// # Safety
/// As for [`step`].
#[inline(always)]
unsafe fn groups<L: Lanes>(
    l: L,
    layer: &mut Lstm,
    mut u: usize,
    from: *const f32,
    spare: &mut [f32],
) -> usize {
    let (h, c, to) = (layer.h.as_ptr(), layer.c.as_mut_ptr(), spare.as_mut_ptr());
    let size = (layer.inputs, layer.columns);
    let rows = 4 * (1 + layer.inputs + layer.columns);
    while u + L::WIDTH <= layer.units {
        let w = layer.weights.as_ptr().wrapping_add(u * rows);
        let [i, f, g, o] = if L::REGISTERS == 32 {
            // SAFETY: as the caller vouches.
            unsafe { all_gates::<L, 4>(l, size, 0, w, from, h) }
        } else {
            // SAFETY: as the caller vouches.
            unsafe { halved_gates(l, size, w, from, h) }
        };
        let early = [tanh_quick(l, i), tanh_quick(l, f), tanh_quick(l, g)];
        // SAFETY: within the state that was checked; `to` is as long as the units.
        unsafe { cell(l, early, tanh_quick(l, o), c.wrapping_add(u), to.wrapping_add(u)) };
        u += L::WIDTH;
    }
    u
}

/// All gates of a group of units, two chains after the other two.
///
/// # Safety
/// As for [`gates`].
#[inline(always)]
unsafe fn halved_gates<L: Lanes>(
    l: L,
    size: (usize, usize),
    w: *const f32,
    from: *const f32,
    h: *const f32,
) -> [L::V; 4] {
    // SAFETY: as the caller vouches.
    let mut low = unsafe { all_gates::<L, 2>(l, size, 0, w, from, h) };
    // SAFETY: as the caller vouches.
    let high = unsafe { all_gates::<L, 2>(l, size, 2, w, from, h) };
    for gate in 0..4 {
        low[gate] = l.add(low[gate], high[gate]);
    }
    low
}

/// All gates of a group of units: `C` of the chains from `first` on, added up.
///
/// # Safety
/// As for [`gates`]; there are as many chains.
#[inline(always)]
unsafe fn all_gates<L: Lanes, const C: usize>(
    l: L,
    (inputs, columns): (usize, usize),
    first: usize,
    w: *const f32,
    from: *const f32,
    h: *const f32,
) -> [L::V; 4] {
    let row = 4 * L::WIDTH;
    let mut acc = [[l.splat(0.0); 4]; C];
    if first == 0 {
        for g in 0..4 {
            // SAFETY: within the weights that were checked.
            acc[0][g] = unsafe { l.load(w.wrapping_add(g * L::WIDTH)) };
        }
        for n in 0..inputs {
            // SAFETY: as the caller vouches.
            let x = l.splat(unsafe { *from.wrapping_add(n) });
            let w = w.wrapping_add((1 + n) * row);
            for g in 0..4 {
                // SAFETY: within the weights that were checked.
                acc[0][g] = l.fma(unsafe { l.load(w.wrapping_add(g * L::WIDTH)) }, x, acc[0][g]);
            }
        }
    }
    let mut w = w.wrapping_add((1 + inputs + first) * row);
    let mut n = first;
    while n < columns {
        for k in 0..C {
            // SAFETY: the columns are a multiple of the chains, and within the state.
            let x = l.splat(unsafe { *h.wrapping_add(n + k) });
            for g in 0..4 {
                // SAFETY: within the weights that were checked.
                let w = unsafe { l.load(w.wrapping_add(k * row + g * L::WIDTH)) };
                acc[k][g] = l.fma(w, x, acc[k][g]);
            }
        }
        w = w.wrapping_add(CHAINS * row);
        n += CHAINS;
    }
    let mut sum = acc[0];
    for g in 0..4 {
        sum[g] = l.add(acc[0][g], acc[1][g]);
        if C == 4 {
            sum[g] = l.add(sum[g], l.add(acc[2 % C][g], acc[3 % C][g]));
        }
    }
    sum
}
