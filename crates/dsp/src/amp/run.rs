//! Nets at work. Everything is planar: a row of samples for each channel.

use super::{
    Error,
    net::{Activation, Array, Chain, Conv, Film, Gate, Layer, Net, Place, Recurrent, Wave},
};
use crate::{
    Block, Setting, Stage,
    simd::{
        Denormals, Level, amp_array,
        amp_lanes::Kernel,
        amp_lstm::{self, Lstm},
        amp_wave::{self as wave, Act, Mac, Out, Rows, STEP},
    },
};

/// The most frames that go through a net at once: enough to share each weight's way from memory,
/// few enough to stay in the nearest cache.
const CHUNK: usize = 64;

/// The stage of an amp: one net for each channel.
pub(super) struct AmpStage {
    channels: Vec<Channel>,
    before: f32,
    after: f32,
    chunk: usize,
    /// A chunk of one channel, with room up to the next [`STEP`].
    lane: Planes,
}

struct Channel {
    net: Runner,
    prewarm: usize,
}

impl AmpStage {
    pub fn new(
        net: &Net,
        setting: &Setting,
        before: f32,
        after: f32,
        level: Level,
    ) -> Result<AmpStage, Error> {
        let kernel = Kernel::new(level);
        let chunk = (setting.block.0 as usize).clamp(1, CHUNK).next_multiple_of(STEP);
        let mut channels = Vec::new();
        for _ in 0..setting.channels {
            let mut one = Channel { net: Runner::new(net, chunk, kernel), prewarm: net.prewarm() };
            one.rest(chunk);
            channels.push(one);
        }
        let mut stage = AmpStage { channels, before, after, chunk, lane: Planes::new(1, chunk) };
        // One block of silence says whether the weights lead anywhere.
        let mut probe = vec![0.0; chunk];
        if let Some(first) = stage.channels.first_mut() {
            let _guard = Denormals::flush();
            first.net.run(&probe.clone(), &mut probe);
            if !probe.iter().all(|y| y.is_finite()) {
                return Err(Error::file(
                    "answers silence with numbers that are none: its weights are broken".to_owned(),
                ));
            }
            first.net.reset();
            first.rest(chunk);
        }
        Ok(stage)
    }
}

impl Channel {
    /// Lets the net come to rest in silence.
    fn rest(&mut self, chunk: usize) {
        let _guard = Denormals::flush();
        let silence = vec![0.0; chunk];
        let mut heard = vec![0.0; chunk];
        let mut left = self.prewarm;
        while left > 0 {
            let frames = left.min(chunk);
            self.net.run(&silence[..frames], &mut heard[..frames]);
            left -= frames;
        }
    }
}

impl Stage for AmpStage {
    fn process(&mut self, block: &mut Block<'_>) {
        let _guard = Denormals::flush();
        for (samples, channel) in block.each().zip(&mut self.channels) {
            for part in samples.chunks_mut(self.chunk) {
                let lane = &mut self.lane.row_mut(0)[..part.len()];
                for (to, from) in lane.iter_mut().zip(part.iter()) {
                    // What is no number would stay in a recurrent net for ever.
                    *to = if from.is_finite() { from * self.before } else { 0.0 };
                }
                channel.net.run(lane, part);
                for y in part {
                    *y *= self.after;
                }
            }
        }
    }

    fn reset(&mut self) {
        for channel in &mut self.channels {
            channel.net.reset();
            channel.rest(self.chunk);
        }
    }
}

/// Rows of a chunk each, on cache lines.
pub(crate) struct Planes {
    data: Vec<f32>,
    base: usize,
    rows: usize,
    stride: usize,
}

impl Planes {
    fn new(rows: usize, frames: usize) -> Planes {
        let stride = frames.next_multiple_of(STEP);
        let data = vec![0.0f32; rows * stride + 16];
        let base = line(&data);
        Planes { data, base, rows, stride }
    }

    fn row(&self, n: usize) -> &[f32] {
        &self.data[self.base + n * self.stride..][..self.stride]
    }

    fn row_mut(&mut self, n: usize) -> &mut [f32] {
        &mut self.data[self.base + n * self.stride..][..self.stride]
    }

    fn rows(&self) -> Rows<'_> {
        Rows { data: &self.data[self.base..], stride: self.stride }
    }

    fn all(&mut self) -> &mut [f32] {
        &mut self.data[self.base..][..self.rows * self.stride]
    }

    fn out(&mut self) -> Out<'_> {
        Out { data: &mut self.data[self.base..], stride: self.stride, at: 0, also: None }
    }

    fn clear(&mut self) {
        self.data.fill(0.0);
    }
}

/// Where the first cache line begins.
fn line(data: &[f32]) -> usize {
    data.as_ptr().align_offset(64).min(15)
}

/// The past of some rows. A frame's place recurs after `period`; a chunk at either end stands at the
/// other end too, so that any stretch of a chunk lies in one piece.
struct Ring {
    data: Vec<f32>,
    base: usize,
    stride: usize,
    period: usize,
    chunk: usize,
    at: usize,
}

impl Ring {
    fn new(rows: usize, reach: usize, chunk: usize) -> Ring {
        let period = (reach + 2 * chunk).next_multiple_of(STEP);
        // An odd number of cache lines keeps the rows apart in the cache.
        let lines = (period + 3 * chunk).div_ceil(16) | 1;
        let stride = lines * 16;
        let data = vec![0.0f32; rows * stride + 16];
        let base = line(&data);
        Ring { data, base, stride, period, chunk, at: 0 }
    }

    /// Where a frame of the past is, in a row.
    fn back(&self, by: usize) -> usize {
        let at = self.at + self.period - by;
        self.chunk + if at >= self.period { at - self.period } else { at }
    }

    fn rows(&self) -> Rows<'_> {
        Rows { data: &self.data[self.base..], stride: self.stride }
    }

    fn out(&mut self) -> Out<'_> {
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
    fn write(&mut self, row: usize, from: &[f32]) {
        let out = self.out();
        for at in [Some(out.at), out.also].into_iter().flatten() {
            out.data[row * out.stride + at..][..from.len()].copy_from_slice(from);
        }
    }

    fn advance(&mut self, frames: usize) {
        self.at += frames;
        if self.at >= self.period {
            self.at -= self.period;
        }
    }

    fn clear(&mut self) {
        self.data.fill(0.0);
        self.at = 0;
    }
}

/// A convolution and where its taps stand now.
struct Taps {
    conv: Conv,
    starts: Vec<usize>,
}

impl Taps {
    fn new(conv: &Conv) -> Taps {
        Taps { conv: conv.clone(), starts: vec![0; conv.taps] }
    }

    fn aim(&mut self, ring: &Ring) {
        let last = self.conv.taps - 1;
        for (tap, start) in self.starts.iter_mut().enumerate() {
            *start = ring.back((last - tap) * self.conv.dilation);
        }
    }

    fn mac<'a>(&'a self, src: Rows<'a>) -> Mac<'a> {
        Mac { src, starts: &self.starts, inputs: self.conv.inputs, weights: &self.conv.weights }
    }
}

/// A convolution of one tap, from planes to planes.
fn pointwise(kernel: Kernel, conv: &Conv, src: Rows<'_>, at: usize, out: Out<'_>, frames: usize) {
    let mac = Mac { src, starts: &[at], inputs: conv.inputs, weights: &conv.weights };
    wave::conv(kernel, wave::Conv { mac, bias: &conv.bias, act: Act::None, out, frames });
}

/// A net of any kind. One input.
enum Runner {
    Chain(ChainRun),
    Recurrent(Box<RecurrentRun>),
    Wave(Box<WaveRun>),
}

impl Runner {
    fn new(net: &Net, chunk: usize, kernel: Kernel) -> Runner {
        match net {
            Net::Chain(chain) => Runner::Chain(ChainRun::new(chain, chunk, kernel)),
            Net::Recurrent(net) => {
                Runner::Recurrent(Box::new(RecurrentRun::new(net, chunk, kernel)))
            }
            Net::Wave(wave) => Runner::Wave(Box::new(WaveRun::new(wave, chunk, kernel))),
        }
    }

    /// At most a chunk, mono. `input` need not reach to the next step: what lies beyond is not read.
    fn run(&mut self, input: &[f32], output: &mut [f32]) {
        let frames = input.len();
        let out = match self {
            Runner::Chain(chain) => chain.run(input),
            Runner::Recurrent(net) => net.run(input),
            Runner::Wave(wave) => wave.run(input),
        };
        output.copy_from_slice(&out.row(0)[..frames]);
    }

    /// The same, all channels of the output.
    fn planes(&mut self, input: &[f32]) -> &Planes {
        match self {
            Runner::Chain(chain) => chain.run(input),
            Runner::Recurrent(net) => net.run(input),
            Runner::Wave(wave) => wave.run(input),
        }
    }

    fn reset(&mut self) {
        match self {
            Runner::Chain(chain) => chain.reset(),
            Runner::Recurrent(net) => net.reset(),
            Runner::Wave(wave) => wave.reset(),
        }
    }
}

/// Applies an activation to the first `rows` rows.
fn activate(
    kernel: Kernel,
    activation: &Activation,
    planes: &mut Planes,
    rows: usize,
    frames: usize,
) {
    for row in 0..rows {
        activate_row(kernel, activation, row, &mut planes.row_mut(row)[..frames]);
    }
}

/// `frames` is a multiple of [`STEP`].
fn activate_row(kernel: Kernel, activation: &Activation, channel: usize, row: &mut [f32]) {
    let each = |row: &mut [f32], f: &dyn Fn(f32) -> f32| {
        for x in row.iter_mut() {
            *x = f(*x);
        }
    };
    let leaky = |row: &mut [f32], slope: f32| {
        for x in row.iter_mut() {
            *x = if *x > 0.0 { *x } else { slope * *x };
        }
    };
    match activation {
        Activation::Identity => {}
        Activation::Tanh => wave::tanh_all(kernel, wave::Tanh { data: row }),
        Activation::Sigmoid => sigmoid(kernel, row),
        Activation::Silu => {
            // Rows are at most a chunk long.
            let mut before = [0.0; CHUNK];
            let before = &mut before[..row.len()];
            before.copy_from_slice(row);
            sigmoid(kernel, row);
            for (y, x) in row.iter_mut().zip(before) {
                *y *= *x;
            }
        }
        Activation::FastTanh => each(row, &|x| {
            let (ax, x2) = (x.abs(), x * x);
            x * (2.455_507_5 + 2.455_507_5 * ax + (0.893_229_85 + 0.821_226_67 * ax) * x2)
                / (2.445_066_3 + (2.445_066_3 + x2) * (x + 0.814_642_7 * x * ax).abs())
        }),
        Activation::HardTanh => each(row, &|x| x.clamp(-1.0, 1.0)),
        Activation::Relu => leaky(row, 0.0),
        Activation::LeakyRelu(slope) => leaky(row, *slope),
        Activation::PRelu(slopes) => leaky(row, slopes.get(channel).copied().unwrap_or(0.0)),
        Activation::HardSwish => each(row, &|x| x * (x + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0)),
        Activation::LeakyHardTanh { least, most, below, above } => each(row, &|x| {
            if x < *least {
                (x - least) * below + least
            } else if x > *most {
                (x - most) * above + most
            } else {
                x
            }
        }),
        Activation::Softsign => each(row, &|x| x / (1.0 + x.abs())),
    }
}

fn sigmoid(kernel: Kernel, row: &mut [f32]) {
    for x in row.iter_mut() {
        *x *= 0.5;
    }
    wave::tanh_all(kernel, wave::Tanh { data: row });
    for x in row.iter_mut() {
        *x = 0.5 + 0.5 * *x;
    }
}

/// Convolutions one after the other.
struct ChainRun {
    kernel: Kernel,
    layers: Vec<(Ring, Taps, Activation)>,
    out: Planes,
}

impl ChainRun {
    fn new(chain: &Chain, chunk: usize, kernel: Kernel) -> ChainRun {
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

    fn run(&mut self, input: &[f32]) -> &Planes {
        let frames = input.len();
        let steps = frames.next_multiple_of(STEP);
        if let Some((ring, ..)) = self.layers.first_mut() {
            ring.write(0, input);
        }
        for n in 0..self.layers.len() {
            let (before, after) = self.layers.split_at_mut(n + 1);
            let [.., (ring, taps, act)] = before else { continue };
            taps.aim(ring);
            let mac = taps.mac(ring.rows());
            let (inside, bias) = (Act::of(act), &taps.conv.bias);
            let outputs = taps.conv.outputs;
            wave::conv(
                self.kernel,
                wave::Conv {
                    mac,
                    bias,
                    act: inside.unwrap_or(Act::None),
                    out: self.out.out(),
                    frames: steps,
                },
            );
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

    fn reset(&mut self) {
        for (ring, ..) in &mut self.layers {
            ring.clear();
        }
    }
}

/// A WaveNet at work.
struct WaveRun {
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
    fn new(wave: &Wave, chunk: usize, kernel: Kernel) -> WaveRun {
        let condition = wave.condition.as_ref().map(|net| Runner::new(net, chunk, kernel));
        let given = wave.condition.as_ref().map_or(1, |net| net.outputs());
        let widest = wave
            .arrays
            .iter()
            .flat_map(|array| [array.head.inputs, array.head.outputs])
            .chain(wave.head.iter().flat_map(|(_, conv)| [conv.inputs, conv.outputs]))
            .max()
            .unwrap_or(1);
        let last = wave.arrays.len().saturating_sub(1);
        WaveRun {
            kernel,
            condition,
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
            input: Planes::new(1, chunk),
            given: Planes::new(given, chunk),
            sum: Planes::new(widest, chunk),
            next_sum: Planes::new(widest, chunk),
            out: Planes::new(widest, chunk),
        }
    }

    fn run(&mut self, input: &[f32]) -> &Planes {
        let frames = input.len();
        let steps = frames.next_multiple_of(STEP);
        self.input.row_mut(0)[..frames].copy_from_slice(input);
        if let Some(net) = &mut self.condition {
            let made = net.planes(input);
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
            wave::conv(self.kernel, wave::Conv { mac, bias, act: Act::None, out, frames: steps });
            ring.advance(frames);
        }
        &self.out
    }

    fn reset(&mut self) {
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
            wave::conv(kernel, wave::Conv { mac, bias, act: Act::None, out, frames: steps });
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
            wave::conv(kernel, wave::Conv { mac, bias, act: Act::None, out, frames: steps });
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

/// A recurrent net at work, sample after sample.
struct RecurrentRun {
    kernel: Kernel,
    net: Recurrent,
    /// The layers in a kernel's hands, with the head's weights and room, where all is usual.
    fast: Option<(Vec<Lstm>, Vec<f32>, Vec<f32>)>,
    states: Vec<(Vec<f32>, Vec<f32>)>,
    gates: Vec<f32>,
    more: Vec<f32>,
    planes: Planes,
    out: Planes,
}

impl RecurrentRun {
    fn new(net: &Recurrent, chunk: usize, kernel: Kernel) -> RecurrentRun {
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
            && matches!(&net.dense[..], [(conv, Activation::Identity)] if conv.outputs == 1);
        let fast = usual.then(|| {
            let joined = amp_lstm::side_by_side(&net.cells, kernel);
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
            gates: vec![0.0; rows.next_multiple_of(STEP)],
            more: vec![0.0; rows.next_multiple_of(STEP)],
            planes: Planes::new(widest, chunk),
            out: Planes::new(widest, chunk),
        }
    }

    fn run(&mut self, input: &[f32]) -> &Planes {
        let frames = input.len();
        let steps = frames.next_multiple_of(STEP);
        if let Some((layers, head, spare)) = &mut self.fast {
            let bias = self.net.dense.first().and_then(|(conv, _)| conv.bias.first());
            amp_lstm::run(
                self.kernel,
                amp_lstm::Run {
                    layers,
                    input,
                    gain: self.net.gains.0,
                    head,
                    bias: bias.copied().unwrap_or(0.0),
                    output: &mut self.planes.row_mut(0)[..frames],
                    spare,
                },
            );
            self.finish(input);
            return &self.planes;
        }
        for (t, x) in input.iter().enumerate() {
            let x = [x * self.net.gains.0];
            for n in 0..self.net.cells.len() {
                let cell = &self.net.cells[n];
                let (before, rest) = self.states.split_at_mut(n);
                let input = before.last().map_or(&x[..], |(h, _)| h);
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
        self.finish(input);
        &self.planes
    }

    /// The way around the net, and the gain behind it.
    fn finish(&mut self, input: &[f32]) {
        for (y, x) in self.planes.row_mut(0).iter_mut().zip(input) {
            let skip = if self.net.skip { x * self.net.gains.0 } else { 0.0 };
            *y = (*y + skip) * self.net.gains.1;
        }
    }

    fn reset(&mut self) {
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
