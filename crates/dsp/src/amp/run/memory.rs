//! The samples that a net works on: rows of a chunk, rings of the past, and where taps stand in them.

use super::super::net::Conv;
use crate::simd::{
    amp_wave::{self as wave, Act, Mac, Out, Rows, STEP},
    lanes::Kernel,
};

/// Rows of a chunk each, on cache lines.
pub(super) struct Planes {
    data: Vec<f32>,
    base: usize,
    pub(super) rows: usize,
    stride: usize,
}

impl Planes {
    pub(super) fn new(rows: usize, frames: usize) -> Planes {
        let stride = frames.next_multiple_of(STEP);
        let data = vec![0.0f32; rows * stride + 16];
        let base = line(&data);
        Planes { data, base, rows, stride }
    }

    pub(super) fn row(&self, n: usize) -> &[f32] {
        &self.data[self.base + n * self.stride..][..self.stride]
    }

    pub(super) fn row_mut(&mut self, n: usize) -> &mut [f32] {
        &mut self.data[self.base + n * self.stride..][..self.stride]
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows { data: &self.data[self.base..], stride: self.stride }
    }

    pub(super) fn all(&mut self) -> &mut [f32] {
        &mut self.data[self.base..][..self.rows * self.stride]
    }

    pub(super) fn out(&mut self) -> Out<'_> {
        Out { data: &mut self.data[self.base..], stride: self.stride, at: 0, also: None }
    }

    pub(super) fn clear(&mut self) {
        self.data.fill(0.0);
    }
}

/// Where the first cache line begins.
fn line(data: &[f32]) -> usize {
    data.as_ptr().align_offset(64).min(15)
}

/// The past of some rows. A frame's place recurs after `period`; a chunk at either end stands at the
/// other end too, so that any stretch of a chunk lies in one piece.
pub(super) struct Ring {
    data: Vec<f32>,
    base: usize,
    stride: usize,
    period: usize,
    chunk: usize,
    at: usize,
}

impl Ring {
    pub(super) fn new(rows: usize, reach: usize, chunk: usize) -> Ring {
        let period = (reach + 2 * chunk).next_multiple_of(STEP);
        // An odd number of cache lines keeps the rows apart in the cache.
        let lines = (period + 3 * chunk).div_ceil(16) | 1;
        let stride = lines * 16;
        let data = vec![0.0f32; rows * stride + 16];
        let base = line(&data);
        Ring { data, base, stride, period, chunk, at: 0 }
    }

    /// Where a frame of the past is, in a row.
    pub(super) fn back(&self, by: usize) -> usize {
        let at = self.at + self.period - by;
        self.chunk + if at >= self.period { at - self.period } else { at }
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows { data: &self.data[self.base..], stride: self.stride }
    }

    pub(super) fn out(&mut self) -> Out<'_> {
        let at = self.chunk + self.at;
        let also = if self.at < self.chunk {
            Some(at + self.period)
        } else if self.at + self.chunk > self.period {
            Some(at - self.period)
        } else {
            None
        };
        Out { data: &mut self.data[self.base..], stride: self.stride, at, also }
    }

    /// Writes the newest frames of a row.
    pub(super) fn write(&mut self, row: usize, from: &[f32]) {
        let out = self.out();
        for at in [Some(out.at), out.also].into_iter().flatten() {
            out.data[row * out.stride + at..][..from.len()].copy_from_slice(from);
        }
    }

    pub(super) fn advance(&mut self, frames: usize) {
        self.at += frames;
        if self.at >= self.period {
            self.at -= self.period;
        }
    }

    pub(super) fn clear(&mut self) {
        self.data.fill(0.0);
        self.at = 0;
    }
}

/// A convolution and where its taps stand now.
pub(super) struct Taps {
    pub(super) conv: Conv,
    starts: Vec<usize>,
}

impl Taps {
    pub(super) fn new(conv: &Conv) -> Taps {
        Taps { conv: conv.clone(), starts: vec![0; conv.taps] }
    }

    pub(super) fn aim(&mut self, ring: &Ring) {
        let last = self.conv.taps - 1;
        for (tap, start) in self.starts.iter_mut().enumerate() {
            *start = ring.back((last - tap) * self.conv.dilation);
        }
    }

    pub(super) fn mac<'a>(&'a self, src: Rows<'a>) -> Mac<'a> {
        Mac { src, starts: &self.starts, inputs: self.conv.inputs, weights: &self.conv.weights }
    }
}

/// A convolution of one tap, from planes to planes.
pub(super) fn pointwise(
    kernel: Kernel,
    conv: &Conv,
    src: Rows<'_>,
    at: usize,
    out: Out<'_>,
    frames: usize,
) {
    let mac = Mac { src, starts: &[at], inputs: conv.inputs, weights: &conv.weights };
    kernel.run(wave::Conv { mac, bias: &conv.bias, act: Act::None, out, frames });
}
