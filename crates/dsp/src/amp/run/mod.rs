//! Nets at work. Everything is planar: a row of samples for each channel.

use super::{Error, net::Net};
use crate::{
    Block, ProcessSpec, Stage,
    simd::{
        Denormals, SimdLevel,
        amp_wave::{Rows, STEP},
        lanes::Kernel,
    },
};
use chain::ChainRun;
use linear::LinearRun;
pub(super) use linear::LinearStage;
use memory::Planes;
use recurrent::RecurrentRun;
use wave::WaveRun;

mod activation;
mod chain;
mod linear;
mod memory;
mod recurrent;
mod wave;

/// The most frames that go through a net at once: enough to share each weight's way from memory,
/// few enough to stay in the nearest cache.
const CHUNK: usize = 64;

/// Silence comes in whole blocks of so many frames, however long the blocks of the stream are.
/// NAM Core rests in whole blocks of the stream; its own renderer's are of 64.
const REST: usize = 64;

/// The stage of an amp: one net for each channel, or one for all where it has several inputs or outputs.
pub(super) struct AmpStage {
    channels: Vec<Channel>,
    before: f32,
    after: f32,
    chunk: usize,
    /// A chunk of each input, with room up to the next [`STEP`].
    lanes: Planes,
}

struct Channel {
    net: Runner,
    inputs: usize,
    outputs: usize,
    /// A multiple of [`REST`].
    prewarm: usize,
}

impl AmpStage {
    pub fn new(
        net: &Net,
        setting: &ProcessSpec,
        before: f32,
        after: f32,
        level: SimdLevel,
    ) -> Result<AmpStage, Error> {
        let chunk = (setting.block.0 as usize).clamp(1, CHUNK).next_multiple_of(STEP);
        let (inputs, outputs) = (net.inputs(), net.outputs());
        let count = if (inputs, outputs) == (1, 1) { setting.channels } else { 1 };
        let mut channels = Vec::new();
        for _ in 0..count {
            let prewarm = net.prewarm().next_multiple_of(REST);
            let net = Runner::new(net, chunk, level)?;
            let mut one = Channel { net, inputs, outputs, prewarm };
            one.rest(chunk);
            channels.push(one);
        }
        let lanes = Planes::new(inputs, chunk);
        let mut stage = AmpStage { channels, before, after, chunk, lanes };
        // One block of silence says whether the weights lead anywhere.
        if let Some(first) = stage.channels.first_mut() {
            let _guard = Denormals::flush();
            let heard = first.net.run(stage.lanes.rows(), chunk);
            let mut heard = (0..outputs).flat_map(|row| &heard.row(row)[..chunk]);
            if !heard.all(|y| y.is_finite()) {
                return Err(Error::file(
                    "answers silence with numbers that are none: its weights are broken".to_owned(),
                ));
            }
            first.net.reset();
            first.rest(chunk);
        }
        Ok(stage)
    }

    /// All channels through one net.
    fn process_together(&mut self, block: &mut Block<'_>) {
        let AmpStage { channels, before, after, chunk, lanes } = self;
        let Some(Channel { net, inputs, outputs, .. }) = channels.first_mut() else { return };
        let mut at = 0;
        while at < block.frames() {
            let frames = (block.frames() - at).min(*chunk);
            for (n, from) in block.each().take(*inputs).enumerate() {
                heard(&from[at..][..frames], *before, lanes.row_mut(n));
            }
            let out = net.run(lanes.rows(), frames);
            for (n, to) in block.each().take(*outputs).enumerate() {
                for (to, y) in to[at..][..frames].iter_mut().zip(out.row(n)) {
                    *to = y * *after;
                }
            }
            at += frames;
        }
    }
}

/// What a net is given of some samples.
fn heard(from: &[f32], gain: f32, to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        // What is no number would stay in a recurrent net for ever.
        *to = if from.is_finite() { from * gain } else { 0.0 };
    }
}

impl Channel {
    /// Lets the net come to rest in silence.
    fn rest(&mut self, chunk: usize) {
        let _guard = Denormals::flush();
        let silence = Planes::new(self.inputs, chunk);
        let mut left = self.prewarm;
        while left > 0 {
            let frames = left.min(chunk);
            self.net.run(silence.rows(), frames);
            left -= frames;
        }
    }
}

impl Stage for AmpStage {
    fn process(&mut self, block: &mut Block<'_>) {
        let _guard = Denormals::flush();
        if self.channels.first().is_some_and(|one| (one.inputs, one.outputs) != (1, 1)) {
            return self.process_together(block);
        }
        for (samples, channel) in block.each().zip(&mut self.channels) {
            for part in samples.chunks_mut(self.chunk) {
                heard(part, self.before, self.lanes.row_mut(0));
                let out = channel.net.run(self.lanes.rows(), part.len());
                for (to, y) in part.iter_mut().zip(out.row(0)) {
                    *to = y * self.after;
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

/// A net of any kind.
enum Runner {
    Chain(ChainRun),
    Linear(Box<LinearRun>),
    Recurrent(Box<RecurrentRun>),
    Series(Box<SeriesRun>),
    Wave(Box<WaveRun>),
}

impl Runner {
    fn new(net: &Net, chunk: usize, level: SimdLevel) -> Result<Runner, Error> {
        let kernel = Kernel::new(level);
        Ok(match net {
            Net::Chain(chain) => Runner::Chain(ChainRun::new(chain, chunk, kernel)),
            Net::Recurrent(net) => {
                Runner::Recurrent(Box::new(RecurrentRun::new(net, chunk, kernel)))
            }
            Net::Linear(linear) => Runner::Linear(Box::new(LinearRun::new(linear, chunk, level)?)),
            Net::Series(nets) => Runner::Series(Box::new(SeriesRun::new(nets, chunk, level)?)),
            Net::Wave(wave) => Runner::Wave(Box::new(WaveRun::new(wave, chunk, level)?)),
        })
    }

    /// At most a chunk. `input` need not reach to the next step: what lies beyond is not read.
    fn run(&mut self, input: Rows<'_>, frames: usize) -> &Planes {
        match self {
            Runner::Chain(chain) => chain.run(input, frames),
            Runner::Linear(linear) => linear.run(input, frames),
            Runner::Series(series) => series.run(input, frames),
            Runner::Recurrent(net) => net.run(input, frames),
            Runner::Wave(wave) => wave.run(input, frames),
        }
    }

    fn reset(&mut self) {
        match self {
            Runner::Chain(chain) => chain.reset(),
            Runner::Linear(linear) => linear.reset(),
            Runner::Series(series) => series.reset(),
            Runner::Recurrent(net) => net.reset(),
            Runner::Wave(wave) => wave.reset(),
        }
    }
}

/// Nets one behind the other.
struct SeriesRun {
    first: Runner,
    rest: Vec<Runner>,
}

impl SeriesRun {
    fn new(nets: &[Net], chunk: usize, level: SimdLevel) -> Result<SeriesRun, Error> {
        let Some((first, rest)) = nets.split_first() else {
            return Err(Error::file("is a sequence of nothing".to_owned()));
        };
        let rest = rest.iter().map(|net| Runner::new(net, chunk, level));
        Ok(SeriesRun {
            first: Runner::new(first, chunk, level)?,
            rest: rest.collect::<Result<_, _>>()?,
        })
    }

    fn run(&mut self, input: Rows<'_>, frames: usize) -> &Planes {
        let mut made = self.first.run(input, frames);
        for net in &mut self.rest {
            made = net.run(made.rows(), frames);
        }
        made
    }

    fn reset(&mut self) {
        self.first.reset();
        self.rest.iter_mut().for_each(Runner::reset);
    }
}
