//! Nets at work. Everything is planar: a row of samples for each channel.

use super::{Error, net::Net};
use crate::{
    Block, ProcessSpec, Stage,
    simd::{Denormals, SimdLevel, amp_wave::STEP, lanes::Kernel},
};
use chain::ChainRun;
use linear::LinearRun;
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
        let mut channels = Vec::new();
        for _ in 0..setting.channels {
            let prewarm = net.prewarm().next_multiple_of(REST);
            let mut one = Channel { net: Runner::new(net, chunk, level)?, prewarm };
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
/// A net of any kind. One input.
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

    /// At most a chunk, mono. `input` need not reach to the next step: what lies beyond is not read.
    fn run(&mut self, input: &[f32], output: &mut [f32]) {
        let frames = input.len();
        let out = match self {
            Runner::Chain(chain) => chain.run(input),
            Runner::Linear(linear) => linear.run(input),
            Runner::Series(series) => series.run(input),
            Runner::Recurrent(net) => net.run(input),
            Runner::Wave(wave) => wave.run(input),
        };
        output.copy_from_slice(&out.row(0)[..frames]);
    }

    /// The same, all channels of the output.
    fn planes(&mut self, input: &[f32]) -> &Planes {
        match self {
            Runner::Chain(chain) => chain.run(input),
            Runner::Linear(linear) => linear.run(input),
            Runner::Series(series) => series.run(input),
            Runner::Recurrent(net) => net.run(input),
            Runner::Wave(wave) => wave.run(input),
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
    before: Vec<Runner>,
    last: Runner,
    lane: Planes,
}

impl SeriesRun {
    fn new(nets: &[Net], chunk: usize, level: SimdLevel) -> Result<SeriesRun, Error> {
        let Some((last, before)) = nets.split_last() else {
            return Err(Error::file("is a sequence of nothing".to_owned()));
        };
        let before = before.iter().map(|net| Runner::new(net, chunk, level));
        Ok(SeriesRun {
            before: before.collect::<Result<_, _>>()?,
            last: Runner::new(last, chunk, level)?,
            lane: Planes::new(1, chunk),
        })
    }

    fn run(&mut self, input: &[f32]) -> &Planes {
        let lane = &mut self.lane.row_mut(0)[..input.len()];
        lane.copy_from_slice(input);
        for net in &mut self.before {
            let made = net.planes(lane);
            lane.copy_from_slice(&made.row(0)[..lane.len()]);
        }
        self.last.planes(lane)
    }

    fn reset(&mut self) {
        self.before.iter_mut().for_each(Runner::reset);
        self.last.reset();
    }
}
