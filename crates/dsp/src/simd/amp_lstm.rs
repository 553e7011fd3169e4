//! LSTM cells, lanes being hidden units.
//!
//! All four gates of a group of units stay in registers, in two chains each. The rows of i, f and o
//! come halved, so that their sigmoid is (1 + tanh) / 2, and a product of two activations costs one
//! division. What does not hang on the frame before (bias, input) begins the sums; the products of
//! the next layer overlap with this one's next frame by themselves.

#[cfg(target_arch = "x86_64")]
use super::amp_lanes::{Avx2, Avx512};
use super::{
    Level,
    amp_lanes::{FUSED, Kernel, Lanes, Plain, tanh_quick},
};
use crate::amp::net::Cell;

/// Widths are padded to this many units.
const UNITS: usize = 16;

/// One layer's weights as the kernel reads them, and its state.
pub(crate) struct Lstm {
    inputs: usize,
    /// Padded to whole vectors of `width`.
    units: usize,
    width: usize,
    /// Recurrent columns, padded to an even number.
    columns: usize,
    /// `[group][bias, inputs.., hidden..][gate i f g o][lane]`.
    weights: Vec<f32>,
    h: Vec<f32>,
    c: Vec<f32>,
    first: (Vec<f32>, Vec<f32>),
}

impl Lstm {
    /// Layers of one net share the width that its widest layer asks for.
    pub fn new(cell: &Cell, widest: usize, kernel: Kernel) -> Lstm {
        // Eight lanes suffice for eight units.
        let wide = kernel.level() == Level::Avx512 && widest > 8;
        let width = if wide { 16 } else { 8 };
        let units = cell.hidden.next_multiple_of(width);
        let columns = cell.hidden.next_multiple_of(2);
        let rows = 4 * cell.hidden;
        let mut weights = Vec::with_capacity((1 + cell.inputs + columns) * 4 * units);
        for group in 0..units / width {
            let mut column = |from: Option<&[f32]>| {
                for gate in 0..4 {
                    let scale = if gate == 2 { 1.0 } else { 0.5 };
                    for lane in 0..width {
                        let unit = group * width + lane;
                        let w = from.filter(|_| unit < cell.hidden);
                        weights.push(w.map_or(0.0, |w| w[gate * cell.hidden + unit] * scale));
                    }
                }
            };
            column(Some(&cell.bias));
            for n in 0..cell.inputs {
                column(Some(&cell.weights[n * rows..][..rows]));
            }
            for n in 0..columns {
                column((n < cell.hidden).then(|| &cell.recurrent[n * rows..][..rows]));
            }
        }
        let pad = |from: &[f32]| {
            let mut all = from.to_vec();
            all.resize(units.max(UNITS), 0.0);
            all
        };
        let first = (pad(&cell.state), pad(&cell.cell));
        let (h, c) = first.clone();
        Lstm { inputs: cell.inputs, units, width, columns, weights, h, c, first }
    }

    pub fn reset(&mut self) {
        self.h.copy_from_slice(&self.first.0);
        self.c.copy_from_slice(&self.first.1);
    }
}

/// A few layers over some frames, and the scalar product at their end.
pub(crate) struct Run<'a> {
    pub layers: &'a mut [Lstm],
    /// One input for each frame.
    pub input: &'a [f32],
    pub gain: f32,
    /// The head's weights, padded with zeros to the last layer's units, at least 16.
    pub head: &'a [f32],
    pub bias: f32,
    pub output: &'a mut [f32],
    /// As long as the widest layer, padded.
    pub spare: &'a mut [f32],
}

impl Run<'_> {
    fn check(&self) {
        assert_eq!(self.input.len(), self.output.len());
        let mut inputs = 1;
        for layer in self.layers.iter() {
            let all = (1 + layer.inputs + layer.columns) * 4 * layer.units;
            assert_eq!(layer.weights.len(), all);
            assert!(layer.inputs <= inputs && layer.columns <= layer.units.max(UNITS));
            assert!(layer.units.is_multiple_of(layer.width));
            assert!(layer.units <= layer.h.len() && layer.units <= layer.c.len());
            assert!(layer.units <= self.spare.len());
            inputs = layer.h.len();
        }
        if let Some(last) = self.layers.last() {
            assert!(last.units <= self.head.len());
        }
    }
}

/// Runs the layers.
pub(crate) fn run(kernel: Kernel, mut job: Run<'_>) {
    job.check();
    let width = job.layers.first().map_or(8, |layer| layer.width);
    // All layers are of one kind, or the narrow one serves.
    assert!(job.layers.iter().all(|layer| layer.width == width));
    match kernel.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if width == 16 => {
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn enabled(job: &mut Run<'_>) {
                // SAFETY: this function is entered only where AVX-512 is.
                let l = unsafe { Avx512::new() };
                // SAFETY: the job has been checked.
                unsafe { run_lanes(l, job) }
            }
            // SAFETY: a kernel's level is here.
            unsafe { enabled(&mut job) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx2 => {
            #[target_feature(enable = "avx2,fma")]
            fn enabled(job: &mut Run<'_>) {
                // SAFETY: this function is entered only where AVX2 and FMA are.
                let l = unsafe { Avx2::new() };
                // SAFETY: the job has been checked.
                unsafe { run_lanes(l, job) }
            }
            // SAFETY: a kernel's level is here.
            unsafe { enabled(&mut job) }
        }
        // SAFETY: the job has been checked.
        _ => unsafe { run_lanes(Plain::<FUSED>, &mut job) },
    }
}

/// # Safety
/// The job has been checked, and its layers are laid out for this width.
#[inline(always)]
unsafe fn run_lanes<L: Lanes>(l: L, job: &mut Run<'_>) {
    for t in 0..job.input.len() {
        let x = [job.input[t] * job.gain];
        let mut from = x.as_ptr();
        for layer in job.layers.iter_mut() {
            // SAFETY: the job has been checked; `from` is the input or the layer before.
            unsafe { step(l, layer, from, job.spare) };
            from = layer.h.as_ptr();
        }
        let units = job.layers.last().map_or(0, |layer| layer.units);
        let mut sum = l.splat(0.0);
        let mut u = 0;
        while u < units {
            // SAFETY: a layer's state and the head are as long as its units.
            let h = unsafe { l.load(from.wrapping_add(u)) };
            // SAFETY: a layer's state and the head are as long as its units.
            let w = unsafe { l.load(job.head.as_ptr().wrapping_add(u)) };
            sum = l.fma(h, w, sum);
            u += L::WIDTH;
        }
        let mut lanes = [0.0f32; UNITS];
        // SAFETY: there is room for the widest vector.
        unsafe { l.store(lanes.as_mut_ptr(), sum) };
        let mut wide = UNITS / 2;
        while wide > 0 {
            for n in 0..wide {
                lanes[n] += lanes[n + wide];
            }
            wide /= 2;
        }
        job.output[t] = lanes[0] + job.bias;
    }
}

/// One frame of one layer.
///
/// # Safety
/// The layer has been checked; `from` leads to its inputs, `spare` holds its units.
#[inline(always)]
unsafe fn step<L: Lanes>(l: L, layer: &mut Lstm, from: *const f32, spare: &mut [f32]) {
    let (h, c) = (layer.h.as_ptr(), layer.c.as_mut_ptr());
    // With one group nobody else reads the old state.
    let alone = layer.units == L::WIDTH;
    let to = if alone { layer.h.as_mut_ptr() } else { spare.as_mut_ptr() };
    let mut w = layer.weights.as_ptr();
    let gates = 4 * L::WIDTH;
    let mut u = 0;
    while u < layer.units {
        let mut acc = [[l.splat(0.0); 2]; 4];
        for (g, acc) in acc.iter_mut().enumerate() {
            // SAFETY: within the weights that were checked.
            acc[0] = unsafe { l.load(w.wrapping_add(g * L::WIDTH)) };
        }
        w = w.wrapping_add(gates);
        for n in 0..layer.inputs {
            // SAFETY: as the caller vouches.
            let x = l.splat(unsafe { *from.wrapping_add(n) });
            for (g, acc) in acc.iter_mut().enumerate() {
                // SAFETY: within the weights that were checked.
                let w = unsafe { l.load(w.wrapping_add(g * L::WIDTH)) };
                acc[0] = l.fma(w, x, acc[0]);
            }
            w = w.wrapping_add(gates);
        }
        let mut n = 0;
        while n < layer.columns {
            // SAFETY: within the state that was checked.
            let x = l.splat(unsafe { *h.wrapping_add(n) });
            // SAFETY: the columns are even in number.
            let y = l.splat(unsafe { *h.wrapping_add(n + 1) });
            for (g, acc) in acc.iter_mut().enumerate() {
                // SAFETY: within the weights that were checked.
                let a = unsafe { l.load(w.wrapping_add(g * L::WIDTH)) };
                // SAFETY: within the weights that were checked.
                let b = unsafe { l.load(w.wrapping_add(gates + g * L::WIDTH)) };
                acc[0] = l.fma(a, x, acc[0]);
                acc[1] = l.fma(b, y, acc[1]);
            }
            w = w.wrapping_add(2 * gates);
            n += 2;
        }
        let [i, f, g, o] = acc;
        let sum = |pair: [L::V; 2]| tanh_quick(l, l.add(pair[0], pair[1]));
        let ((ip, iq), (gp, gq), (fp, fq), (op, oq)) = (sum(i), sum(g), sum(f), sum(o));
        let half = l.splat(0.5);
        // sig(i) tanh(g), sig(f), each by one division; likewise sig(o) tanh(c).
        let new = l.div(l.mul(l.mul(half, l.add(iq, ip)), gp), l.mul(iq, gq));
        let keep = l.div(l.mul(half, l.add(fq, fp)), fq);
        // SAFETY: within the state that was checked.
        let cell = l.fma(keep, unsafe { l.load(c.wrapping_add(u)) }, new);
        // SAFETY: within the state that was checked.
        unsafe { l.store(c.wrapping_add(u), cell) };
        let (cp, cq) = tanh_quick(l, cell);
        let out = l.div(l.mul(l.mul(half, l.add(oq, op)), cp), l.mul(oq, cq));
        // SAFETY: as long as the units.
        unsafe { l.store(to.wrapping_add(u), out) };
        u += L::WIDTH;
    }
    if !alone {
        layer.h[..layer.units].copy_from_slice(&spare[..layer.units]);
    }
}
