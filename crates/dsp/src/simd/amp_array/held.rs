//! Few channels: they stay in registers all the way.

use super::{Array, Io, Tap, add_taps, all, get, put, put_rows};
use crate::simd::{amp_wave::activate, lanes::Lanes};

/// `sum += weights x`, everything of it in registers.
///
/// # Safety
/// `C * C` weights can be read there.
#[inline(always)]
unsafe fn add_held<L: Lanes, const C: usize, const FV: usize>(
    l: L,
    weights: *const f32,
    x: &[[L::V; FV]; C],
    to: &mut [[L::V; FV]; C],
) {
    let mut sum = *to;
    for i in 0..C {
        for o in 0..C {
            // SAFETY: as the caller vouches.
            let w = unsafe { all(l, weights.wrapping_add(i * C + o)) };
            for f in 0..FV {
                sum[o][f] = l.fma(w, x[i][f], sum[o][f]);
            }
        }
    }
    *to = sum;
}

/// `C` channels in registers, all the way. Says how many frames went through.
///
/// Long, and one function: its rows live from the first line to the last, and cut up they would go through memory.
///
/// # Safety
/// The array has been checked with this, has `C` channels everywhere and one of condition.
#[allow(
    clippy::too_many_lines,
    reason = "its rows live in registers from the first line to the last"
)]
#[inline(always)]
pub(super) unsafe fn held_pass<L: Lanes, const C: usize, const FV: usize>(
    l: L,
    array: &mut Array,
    io: &mut Io<'_>,
    t: usize,
) -> usize {
    let wide = FV * L::WIDTH;
    let frames = wide.min(io.frames - t);
    let stride = io.source.stride;
    let zero = l.splat(0.0);
    let mut x = [[zero; FV]; C];
    for o in 0..C {
        x[o] = [l.splat(array.rechannel.bias[o]); FV];
    }
    for i in 0..array.rechannel.inputs {
        // SAFETY: the rows have been checked.
        let v: [L::V; FV] = unsafe { get(l, io.source.data.as_ptr().wrapping_add(i * stride + t)) };
        for o in 0..C {
            let at = array.rechannel.weights.as_ptr().wrapping_add(i * C + o);
            // SAFETY: there is a weight for each input and channel.
            let w = unsafe { all(l, at) };
            for f in 0..FV {
                x[o][f] = l.fma(w, v[f], x[o][f]);
            }
        }
    }
    let sum = io.sum.as_mut_ptr().wrapping_add(t);
    let mut head = [[zero; FV]; C];
    for o in 0..C {
        // SAFETY: the rows have been checked.
        head[o] = unsafe { get(l, sum.wrapping_add(o * stride)) };
    }
    // SAFETY: the rows have been checked.
    let given: [L::V; FV] = unsafe { get(l, io.given.data.as_ptr().wrapping_add(t)) };
    let past = array.past.as_mut_ptr();
    let count = array.layers.len();
    for (n, layer) in array.layers.iter_mut().enumerate() {
        let ring = past.wrapping_add(layer.ring);
        let (now, also) = layer.now();
        // SAFETY: a ring holds an edge beyond its last frame.
        unsafe { put_rows(l, ring.wrapping_add(now), layer.stride, &x) };
        if let Some(also) = also {
            // SAFETY: its mirror is an edge long.
            unsafe { put_rows(l, ring.wrapping_add(also), layer.stride, &x) };
        }
        let mut w = array.weights.as_ptr().wrapping_add(layer.weights);
        let mut acc = [[zero; FV]; C];
        for o in 0..C {
            // SAFETY: within the layer's weights.
            let bias = unsafe { all(l, w.wrapping_add(o)) };
            // SAFETY: within the layer's weights.
            let mixin = unsafe { all(l, w.wrapping_add(C + o)) };
            for f in 0..FV {
                acc[o][f] = l.fma(mixin, given[f], bias);
            }
        }
        w = w.wrapping_add(2 * C);
        for k in (1..layer.taps).rev() {
            let by = k * layer.dilation;
            if by < L::WIDTH {
                let before = ring.wrapping_add(layer.back(L::WIDTH));
                let shift = l.by(by);
                let mut moved = [[zero; FV]; C];
                for o in 0..C {
                    // SAFETY: a ring reaches two edges further back than its layer.
                    let mut before = unsafe { l.load(before.wrapping_add(o * layer.stride)) };
                    for f in 0..FV {
                        moved[o][f] = l.shift(shift, before, x[o][f]);
                        before = x[o][f];
                    }
                }
                // SAFETY: within the layer's weights.
                unsafe { add_held(l, w, &moved, &mut acc) };
            } else {
                let tap = Tap { at: ring.wrapping_add(layer.back(by)), stride: layer.stride };
                // SAFETY: within the layer's weights and its ring.
                unsafe { add_taps(l, w, C, (&[tap], 0), C, &mut acc) };
            }
            w = w.wrapping_add(C * C);
        }
        // SAFETY: within the layer's weights.
        unsafe { add_held(l, w, &x, &mut acc) };
        w = w.wrapping_add(C * C);
        activate(l, layer.act, &mut acc);
        for o in 0..C {
            for f in 0..FV {
                head[o][f] = l.add(head[o][f], acc[o][f]);
            }
        }
        layer.advance(frames);
        if array.last && n + 1 == count {
            break;
        }
        for o in 0..C {
            // SAFETY: within the layer's weights.
            let bias = unsafe { all(l, w.wrapping_add(o)) };
            for f in 0..FV {
                x[o][f] = l.add(x[o][f], bias);
            }
        }
        // SAFETY: within the layer's weights.
        unsafe { add_held(l, w.wrapping_add(C), &acc, &mut x) };
    }
    if !array.last {
        // SAFETY: the rows have been checked.
        unsafe { put_rows(l, io.x.as_mut_ptr().wrapping_add(t), stride, &x) };
    }
    let Some(conv) = &array.head else {
        // SAFETY: the rows have been checked.
        unsafe { put_rows(l, sum, stride, &head) };
        return wide;
    };
    for h in 0..conv.outputs {
        let mut sum = [l.splat(conv.bias[h]); FV];
        for o in 0..C {
            let at = conv.weights.as_ptr().wrapping_add(o * conv.outputs + h);
            // SAFETY: there is a weight for each input and output.
            let w = unsafe { all(l, at) };
            for f in 0..FV {
                sum[f] = l.fma(w, head[o][f], sum[f]);
            }
        }
        // SAFETY: the rows have been checked.
        unsafe { put(l, io.next.as_mut_ptr().wrapping_add(h * stride + t), &sum) };
    }
    wide
}
