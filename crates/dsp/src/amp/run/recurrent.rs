//! LSTMs and GRUs, with what stands before and behind them.

use super::{
    super::net::{Activation, Recurrent},
    activation::activate,
    memory::{Planes, pointwise},
};
use crate::simd::{
    amp_lstm::{self, Lstm},
    amp_wave::{Rows, STEP},
    lanes::Kernel,
};

/// A recurrent net at work, sample after sample.
pub(super) struct RecurrentRun {
    kernel: Kernel,
    net: Recurrent,
    /// The layers in a kernel's hands, with the head's weights and room, where all is usual.
    fast: Option<(Vec<Lstm>, Vec<f32>, Vec<f32>)>,
    states: Vec<(Vec<f32>, Vec<f32>)>,
    /// A frame's inputs.
    now: Vec<f32>,
    gates: Vec<f32>,
    more: Vec<f32>,
    planes: Planes,
    out: Planes,
}

impl RecurrentRun {
    pub(super) fn new(net: &Recurrent, chunk: usize, kernel: Kernel) -> RecurrentRun {
        let rows = net.cells.iter().map(|c| c.bias.len()).max().unwrap_or(0);
        let widest = net
            .cells
            .iter()
            .map(|cell| cell.hidden)
            .chain(net.dense.iter().map(|(conv, _)| conv.outputs))
            .max()
            .unwrap_or(1);
        let hidden = net.cells.iter().map(|c| c.hidden).max().unwrap_or(0);
        let usual = net.cells.iter().all(|cell| !cell.gru)
            && net.cells.first().is_some_and(|cell| cell.inputs == 1)
            && matches!(&net.dense[..], [(conv, Activation::Identity)] if conv.outputs == 1);
        let fast = usual.then(|| {
            let joined = amp_lstm::side_by_side(&net.cells);
            let mut head = net.dense.first().map_or(Vec::new(), |(conv, _)| conv.weights.clone());
            let (layers, room) = match joined {
                Some((cell, starts)) => {
                    // The head hears the last layer alone.
                    let before = starts.last().copied().unwrap_or(0);
                    head.splice(..0, std::iter::repeat_n(0.0, before));
                    let room = cell.hidden.next_multiple_of(STEP);
                    (vec![Lstm::new(&cell, starts, 0, cell.hidden, kernel)], room)
                }
                None => {
                    let before = std::iter::once(0).chain(net.cells.iter().map(|c| c.hidden));
                    let layers =
                        net.cells.iter().zip(before).map(|(cell, before)| {
                            Lstm::new(cell, Vec::new(), before, hidden, kernel)
                        });
                    (layers.collect(), hidden.next_multiple_of(STEP))
                }
            };
            head.resize(room, 0.0);
            (layers, head, vec![0.0; room])
        });
        RecurrentRun {
            kernel,
            net: net.clone(),
            fast,
            states: net.cells.iter().map(|c| (c.state.clone(), c.cell.clone())).collect(),
            now: vec![0.0; net.cells.first().map_or(1, |cell| cell.inputs)],
            gates: vec![0.0; rows.next_multiple_of(STEP)],
            more: vec![0.0; rows.next_multiple_of(STEP)],
            planes: Planes::new(widest, chunk),
            out: Planes::new(widest, chunk),
        }
    }

    pub(super) fn run(&mut self, input: Rows<'_>, frames: usize) -> &Planes {
        let steps = frames.next_multiple_of(STEP);
        let first = input.row(0, frames);
        if let Some((layers, head, spare)) = &mut self.fast {
            let bias = self.net.dense.first().and_then(|(conv, _)| conv.bias.first());
            amp_lstm::run(
                self.kernel,
                amp_lstm::Run {
                    layers,
                    input: first,
                    gain: self.net.gains.0,
                    head,
                    bias: bias.copied().unwrap_or(0.0),
                    output: &mut self.planes.row_mut(0)[..frames],
                    spare,
                },
            );
            self.finish(first);
            return &self.planes;
        }
        for t in 0..frames {
            for (n, x) in self.now.iter_mut().enumerate() {
                *x = input.row(n, frames)[t] * self.net.gains.0;
            }
            for n in 0..self.net.cells.len() {
                let cell = &self.net.cells[n];
                let (before, rest) = self.states.split_at_mut(n);
                let input = before.last().map_or(&self.now[..], |(h, _)| h);
                let Some((h, c)) = rest.first_mut() else { continue };
                let rows = cell.bias.len();
                let gates = &mut self.gates[..rows];
                gates.copy_from_slice(&cell.bias);
                for (x, w) in input.iter().zip(cell.weights.chunks_exact(rows)) {
                    for (g, w) in gates.iter_mut().zip(w) {
                        *g += x * w;
                    }
                }
                let more = &mut self.more[..rows];
                if cell.gru {
                    more.copy_from_slice(&cell.recurrent_bias);
                }
                let into = if cell.gru { more } else { gates };
                for (h, w) in h.iter().zip(cell.recurrent.chunks_exact(rows)) {
                    for (g, w) in into.iter_mut().zip(w) {
                        *g += h * w;
                    }
                }
                let hidden = cell.hidden;
                let sig = |x: f32| 1.0 / (1.0 + (-x).exp());
                for k in 0..hidden {
                    let g = |gate: usize| self.gates[gate * hidden + k];
                    let m = |gate: usize| self.more[gate * hidden + k];
                    if cell.gru {
                        let z = sig(g(0) + m(0));
                        let r = sig(g(1) + m(1));
                        let new = (g(2) + r * m(2)).tanh();
                        h[k] = (1.0 - z) * new + z * h[k];
                    } else {
                        c[k] = sig(g(1)) * c[k] + sig(g(0)) * g(2).tanh();
                        h[k] = sig(g(3)) * c[k].tanh();
                    }
                }
            }
            if let Some((h, _)) = self.states.last() {
                for (row, h) in h.iter().enumerate() {
                    self.planes.row_mut(row)[t] = *h;
                }
            }
        }
        for (conv, act) in &self.net.dense {
            pointwise(self.kernel, conv, self.planes.rows(), 0, self.out.out(), steps);
            activate(self.kernel, act, &mut self.out, conv.outputs, steps);
            std::mem::swap(&mut self.planes, &mut self.out);
        }
        self.finish(first);
        &self.planes
    }

    /// The way around the net, and the gain behind it.
    fn finish(&mut self, input: &[f32]) {
        for (y, x) in self.planes.row_mut(0).iter_mut().zip(input) {
            let skip = if self.net.skip { x * self.net.gains.0 } else { 0.0 };
            *y = (*y + skip) * self.net.gains.1;
        }
    }

    pub(super) fn reset(&mut self) {
        for ((h, c), cell) in self.states.iter_mut().zip(&self.net.cells) {
            h.copy_from_slice(&cell.state);
            c.copy_from_slice(&cell.cell);
        }
        for layer in self.fast.iter_mut().flat_map(|(layers, ..)| layers) {
            layer.reset();
        }
        self.planes.clear();
        self.out.clear();
    }
}
