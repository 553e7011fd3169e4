//! WaveNets: the usual arrays go to their kernel whole, every other layer step by step.

use super::{
    super::net::{Activation, Array, Conv, Film, Gate, Layer, Place, Wave},
    Error, Runner,
    activation::{activate, activate_row},
    memory::{Planes, Ring, Taps, pointwise},
};
use crate::simd::{
    SimdLevel, amp_array,
    amp_wave::{self as wave, Act, Rows, STEP},
    lanes::Kernel,
};

/// A WaveNet at work.
pub(super) struct WaveRun {
    kernel: Kernel,
    condition: Option<Runner>,
    arrays: Vec<ArrayRun>,
    head: Vec<(Activation, Ring, Taps)>,
    scale: f32,
    input: Planes,
    /// The condition, where it is not the input itself.
    given: Planes,
    /// The head's sum on its way through the arrays, and behind the last.
    sum: Planes,
    next_sum: Planes,
    out: Planes,
}

impl WaveRun {
    pub(super) fn new(wave: &Wave, chunk: usize, level: SimdLevel) -> Result<WaveRun, Error> {
        let kernel = Kernel::new(level);
        let condition = wave.condition.as_ref().map(|net| Runner::new(net, chunk, level));
        let inputs = wave.arrays.first().map_or(1, |array| array.rechannel.inputs);
        let given = wave.condition.as_ref().map_or(inputs, |net| net.outputs());
        let widest = wave
            .arrays
            .iter()
            .flat_map(|array| [array.head.inputs, array.head.outputs])
            .chain(wave.head.iter().flat_map(|(_, conv)| [conv.inputs, conv.outputs]))
            .max()
            .unwrap_or(1);
        let last = wave.arrays.len().saturating_sub(1);
        Ok(WaveRun {
            kernel,
            condition: condition.transpose()?,
            arrays: wave
                .arrays
                .iter()
                .enumerate()
                .map(|(n, array)| ArrayRun::new(array, n == last, chunk, kernel))
                .collect(),
            head: wave
                .head
                .iter()
                .map(|(act, conv)| {
                    let ring = Ring::new(conv.inputs, conv.reach(), chunk);
                    (act.clone(), ring, Taps::new(conv))
                })
                .collect(),
            scale: wave.scale,
            input: Planes::new(inputs, chunk),
            given: Planes::new(given, chunk),
            sum: Planes::new(widest, chunk),
            next_sum: Planes::new(widest, chunk),
            out: Planes::new(widest, chunk),
        })
    }

    pub(super) fn run(&mut self, input: Rows<'_>, frames: usize) -> &Planes {
        let steps = frames.next_multiple_of(STEP);
        for row in 0..self.input.rows {
            self.input.row_mut(row)[..frames].copy_from_slice(input.row(row, frames));
        }
        if let Some(net) = &mut self.condition {
            let made = net.run(input, frames);
            for row in 0..self.given.rows {
                self.given.row_mut(row)[..frames].copy_from_slice(&made.row(row)[..frames]);
            }
        }
        let given = if self.condition.is_some() { &self.given } else { &self.input };
        self.sum.all().fill(0.0);
        for n in 0..self.arrays.len() {
            let (before, rest) = self.arrays.split_at_mut(n);
            let Some(array) = rest.first_mut() else { continue };
            let source = before.last().map_or(&self.input, |array| &array.x);
            array.run(source, given, &mut self.sum, &mut self.next_sum, frames, steps);
            std::mem::swap(&mut self.sum, &mut self.next_sum);
        }
        let outputs = self.arrays.last().map_or(1, |array| array.head.conv.outputs);
        for row in 0..outputs {
            let scale = self.scale;
            for (to, from) in self.out.row_mut(row)[..steps].iter_mut().zip(self.sum.row(row)) {
                *to = from * scale;
            }
        }
        for (act, ring, taps) in &mut self.head {
            activate(self.kernel, act, &mut self.out, taps.conv.inputs, steps);
            for row in 0..taps.conv.inputs {
                ring.write(row, &self.out.row(row)[..frames]);
            }
            taps.aim(ring);
            let (mac, bias) = (taps.mac(ring.rows()), &taps.conv.bias);
            let out = self.out.out();
            self.kernel.run(wave::Conv { mac, bias, act: Act::None, out, frames: steps });
            ring.advance(frames);
        }
        &self.out
    }

    pub(super) fn reset(&mut self) {
        if let Some(net) = &mut self.condition {
            net.reset();
        }
        for array in &mut self.arrays {
            array.reset();
        }
        for (_, ring, _) in &mut self.head {
            ring.clear();
        }
        // What lies beyond a short block's end is read and thrown away; it shall be numbers.
        for planes in [&mut self.input, &mut self.given, &mut self.sum, &mut self.next_sum] {
            planes.clear();
        }
    }
}

struct ArrayRun {
    kernel: Kernel,
    rechannel: Conv,
    /// All layers, where nothing unusual is in any of them; then none of `layers`.
    usual: Option<amp_array::Array>,
    layers: Vec<LayerRun>,
    head_ring: Ring,
    head: Taps,
    /// What the layers hand on.
    x: Planes,
    a: Planes,
    z: Planes,
    mix: Planes,
    film: Planes,
    filmed: Planes,
    y: Planes,
}

struct LayerRun {
    layer: Layer,
    ring: Ring,
    taps: Taps,
}

impl ArrayRun {
    fn new(array: &Array, last: bool, chunk: usize, kernel: Kernel) -> ArrayRun {
        let usual = amp_array::Array::new(array, last);
        let layers = if usual.is_some() { &[][..] } else { &array.layers };
        let widest = layers
            .iter()
            .flat_map(|layer| {
                let films = layer.films.iter().flatten().map(|film| film.conv.outputs);
                let heads = layer.head_one.iter().map(|conv| conv.outputs);
                films
                    .chain(heads)
                    .chain([layer.conv.inputs, layer.conv.outputs, layer.mixin.inputs])
                    .collect::<Vec<_>>()
            })
            .max()
            .unwrap_or(1);
        ArrayRun {
            kernel,
            rechannel: array.rechannel.clone(),
            usual,
            layers: layers
                .iter()
                .map(|layer| LayerRun {
                    layer: layer.clone(),
                    ring: Ring::new(layer.conv.inputs, layer.conv.reach(), chunk),
                    taps: Taps::new(&layer.conv),
                })
                .collect(),
            head_ring: Ring::new(
                if array.head.taps > 1 { array.head.inputs } else { 0 },
                array.head.reach(),
                chunk,
            ),
            head: Taps::new(&array.head),
            x: Planes::new(array.rechannel.outputs, chunk),
            a: Planes::new(widest, chunk),
            z: Planes::new(widest, chunk),
            mix: Planes::new(widest, chunk),
            film: Planes::new(widest, chunk),
            filmed: Planes::new(widest, chunk),
            y: Planes::new(widest, chunk),
        }
    }

    /// From `source` (and its condition) to `x`; adds to `sum` and puts the head's result to `next`.
    fn run(
        &mut self,
        source: &Planes,
        given: &Planes,
        sum: &mut Planes,
        next: &mut Planes,
        frames: usize,
        steps: usize,
    ) {
        if let Some(array) = &mut self.usual {
            let io = amp_array::Io {
                source: source.rows(),
                given: given.rows(),
                sum: sum.all(),
                next: next.all(),
                x: self.x.all(),
                frames,
            };
            array.run(self.kernel, io);
            if array.heads() {
                return;
            }
        } else {
            self.run_any(source, given, sum, frames, steps);
        }
        let kernel = self.kernel;
        if self.head.conv.taps == 1 {
            pointwise(kernel, &self.head.conv, sum.rows(), 0, next.out(), steps);
        } else {
            for row in 0..self.head.conv.inputs {
                self.head_ring.write(row, &sum.row(row)[..frames]);
            }
            self.head.aim(&self.head_ring);
            let mac = self.head.mac(self.head_ring.rows());
            let (bias, out) = (&self.head.conv.bias, next.out());
            kernel.run(wave::Conv { mac, bias, act: Act::None, out, frames: steps });
            self.head_ring.advance(frames);
        }
    }

    fn run_any(
        &mut self,
        source: &Planes,
        given: &Planes,
        sum: &mut Planes,
        frames: usize,
        steps: usize,
    ) {
        let kernel = self.kernel;
        pointwise(kernel, &self.rechannel, source.rows(), 0, self.x.out(), steps);
        for LayerRun { layer, ring, taps, .. } in &mut self.layers {
            let (inputs, wide) = (layer.conv.inputs, layer.conv.outputs);
            let narrow = if layer.gate == Gate::None { wide } else { wide / 2 };
            let film = &mut self.film;
            let mut modulate = |place: Place, planes: &mut Planes, rows: usize| {
                if let Some(by) = layer.film(place) {
                    pointwise(kernel, &by.conv, given.rows(), 0, film.out(), steps);
                    apply(by, film, planes, rows, steps);
                }
            };
            for row in 0..inputs {
                self.filmed.row_mut(row)[..steps].copy_from_slice(&self.x.row(row)[..steps]);
            }
            modulate(Place::ConvPre, &mut self.filmed, inputs);
            for row in 0..inputs {
                ring.write(row, &self.filmed.row(row)[..frames]);
            }
            taps.aim(ring);
            let (mac, bias) = (taps.mac(ring.rows()), &taps.conv.bias);
            let out = self.z.out();
            kernel.run(wave::Conv { mac, bias, act: Act::None, out, frames: steps });
            ring.advance(frames);
            modulate(Place::ConvPost, &mut self.z, wide);

            for row in 0..layer.mixin.inputs {
                self.filmed.row_mut(row)[..steps].copy_from_slice(&given.row(row)[..steps]);
            }
            modulate(Place::MixinPre, &mut self.filmed, layer.mixin.inputs);
            pointwise(kernel, &layer.mixin, self.filmed.rows(), 0, self.mix.out(), steps);
            modulate(Place::MixinPost, &mut self.mix, wide);
            for row in 0..wide {
                add(&mut self.z.row_mut(row)[..steps], &self.mix.row(row)[..steps]);
            }
            modulate(Place::ActivationPre, &mut self.z, wide);

            for row in 0..narrow {
                let a = &mut self.a.row_mut(row)[..steps];
                a.copy_from_slice(&self.z.row(row)[..steps]);
                activate_row(kernel, &layer.activation, row, a);
                let gate = match &layer.gate {
                    Gate::None => continue,
                    Gate::Gated(gate) | Gate::Blended(gate) => gate,
                };
                activate_row(kernel, gate, row, &mut self.z.row_mut(narrow + row)[..steps]);
                let g = &self.z.row(narrow + row)[..steps];
                match layer.gate {
                    Gate::Blended(_) => {
                        for ((a, g), z) in a.iter_mut().zip(g).zip(self.z.row(row)) {
                            *a = g * *a + (1.0 - g) * z;
                        }
                    }
                    _ => {
                        for (a, g) in a.iter_mut().zip(g) {
                            *a *= g;
                        }
                    }
                }
            }
            modulate(Place::ActivationPost, &mut self.a, narrow);

            match &layer.head_one {
                Some(conv) => {
                    pointwise(kernel, conv, self.a.rows(), 0, self.y.out(), steps);
                    modulate(Place::HeadOnePost, &mut self.y, conv.outputs);
                    for row in 0..conv.outputs {
                        add(&mut sum.row_mut(row)[..steps], &self.y.row(row)[..steps]);
                    }
                }
                None => {
                    for row in 0..narrow {
                        add(&mut sum.row_mut(row)[..steps], &self.a.row(row)[..steps]);
                    }
                }
            }
            if let Some(conv) = &layer.one {
                pointwise(kernel, conv, self.a.rows(), 0, self.y.out(), steps);
                // As the reference does: only where the layer blends.
                if matches!(layer.gate, Gate::Blended(_)) {
                    modulate(Place::OnePost, &mut self.y, inputs);
                }
                for row in 0..inputs {
                    add(&mut self.x.row_mut(row)[..steps], &self.y.row(row)[..steps]);
                }
            }
        }
    }

    fn reset(&mut self) {
        if let Some(array) = &mut self.usual {
            array.clear();
        }
        for layer in &mut self.layers {
            layer.ring.clear();
        }
        self.head_ring.clear();
        for planes in [&mut self.x, &mut self.a, &mut self.z, &mut self.mix] {
            planes.clear();
        }
        for planes in [&mut self.film, &mut self.filmed, &mut self.y] {
            planes.clear();
        }
    }
}

fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

fn apply(film: &Film, by: &Planes, planes: &mut Planes, rows: usize, frames: usize) {
    for row in 0..rows {
        let x = &mut planes.row_mut(row)[..frames];
        for (x, scale) in x.iter_mut().zip(by.row(row)) {
            *x *= scale;
        }
        if film.shift {
            add(x, &by.row(rows + row)[..frames]);
        }
    }
}
