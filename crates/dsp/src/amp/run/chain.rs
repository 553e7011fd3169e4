//! Convolutions one after the other: linear amps and ConvNets.

use super::{
    super::net::{Activation, Chain},
    activation::activate,
    memory::{Planes, Ring, Taps},
};
use crate::simd::{
    amp_wave::{self as wave, Act, Rows, STEP},
    lanes::Kernel,
};

/// Convolutions one after the other.
pub(super) struct ChainRun {
    kernel: Kernel,
    layers: Vec<(Ring, Taps, Activation)>,
    out: Planes,
}

impl ChainRun {
    pub(super) fn new(chain: &Chain, chunk: usize, kernel: Kernel) -> ChainRun {
        let layers: Vec<_> = chain
            .layers
            .iter()
            .map(|(conv, act)| {
                (Ring::new(conv.inputs, conv.reach(), chunk), Taps::new(conv), act.clone())
            })
            .collect();
        let widest = chain.layers.iter().map(|(conv, _)| conv.outputs).max().unwrap_or(1);
        ChainRun { kernel, layers, out: Planes::new(widest, chunk) }
    }

    pub(super) fn run(&mut self, input: Rows<'_>, frames: usize) -> &Planes {
        let steps = frames.next_multiple_of(STEP);
        if let Some((ring, taps, _)) = self.layers.first_mut() {
            for row in 0..taps.conv.inputs {
                ring.write(row, input.row(row, frames));
            }
        }
        for n in 0..self.layers.len() {
            let (before, after) = self.layers.split_at_mut(n + 1);
            let [.., (ring, taps, act)] = before else { continue };
            taps.aim(ring);
            let mac = taps.mac(ring.rows());
            let (inside, bias) = (Act::of(act), &taps.conv.bias);
            let outputs = taps.conv.outputs;
            let (act_inside, out) = (inside.unwrap_or(Act::None), self.out.out());
            self.kernel.run(wave::Conv { mac, bias, act: act_inside, out, frames: steps });
            if inside.is_none() {
                activate(self.kernel, act, &mut self.out, outputs, steps);
            }
            ring.advance(frames);
            if let Some((next, ..)) = after.first_mut() {
                for row in 0..outputs {
                    next.write(row, &self.out.row(row)[..frames]);
                }
            }
        }
        &self.out
    }

    pub(super) fn reset(&mut self) {
        for (ring, ..) in &mut self.layers {
            ring.clear();
        }
    }
}
