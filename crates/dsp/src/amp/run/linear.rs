//! Linear amps: impulse responses, played as any others are.

use super::{super::net::Linear, Error, memory::Planes};
use crate::{
    Block, ProcessSpec, Stage,
    fir::{Fir, Route},
    simd::{SimdLevel, amp_wave::Rows},
};
use quiet_types::{Frames, SampleRate};

/// The FIR of a linear amp, all of whose samples come `gain` times as loud.
fn fir(linear: &Linear, setting: &ProcessSpec, gain: f32, level: SimdLevel) -> Result<Fir, Error> {
    let alike = linear.inputs == linear.outputs;
    let route = |path| Route {
        input: if !alike && linear.inputs == 1 { 0 } else { path },
        output: if !alike && linear.outputs == 1 { 0 } else { path },
        taps: linear.taps[path % linear.taps.len()].iter().map(|tap| tap * gain).collect(),
    };
    let routes: Vec<Route> = (0..setting.channels).map(route).collect();
    Fir::prepare_for(level, setting, &routes)
        .map_err(|error| Error::file(format!("cannot be played: {error}")))
}

/// The stage of a linear amp: a FIR and its bias. The levels before and behind are in its taps.
pub(in super::super) struct LinearStage {
    fir: Fir,
    /// Of each channel, the same again for further ones.
    bias: Vec<f32>,
}

impl LinearStage {
    pub(in super::super) fn new(
        linear: &Linear,
        setting: &ProcessSpec,
        (before, after): (f32, f32),
        level: SimdLevel,
    ) -> Result<LinearStage, Error> {
        let fir = fir(linear, setting, before * after, level)?;
        Ok(LinearStage { fir, bias: linear.bias.iter().map(|bias| bias * after).collect() })
    }
}

impl Stage for LinearStage {
    fn process(&mut self, block: &mut Block<'_>) {
        self.fir.process(block);
        let channels = if self.bias.len() == 1 { block.channels() } else { self.bias.len() };
        for (channel, bias) in block.each().take(channels).zip(self.bias.iter().cycle()) {
            if *bias != 0.0 {
                channel.iter_mut().for_each(|y| *y += bias);
            }
        }
    }

    fn reset(&mut self) {
        self.fir.reset();
    }
}

/// A linear amp at work inside of another.
pub(super) struct LinearRun {
    fir: Fir,
    inputs: usize,
    channels: usize,
    bias: Vec<f32>,
    /// Channel after channel without a gap, as a block wants them; only where there are several.
    block: Vec<f32>,
    out: Planes,
}

impl LinearRun {
    pub(super) fn new(linear: &Linear, chunk: usize, level: SimdLevel) -> Result<LinearRun, Error> {
        // The rate is none of a FIR's business: its taps are at the stream's already.
        let block = Frames(chunk as u32);
        let (inputs, channels) = (linear.inputs, linear.inputs.max(linear.outputs));
        let setting = ProcessSpec { rate: SampleRate(48_000), channels, block };
        let fir = fir(linear, &setting, 1.0, level)?;
        let block = vec![0.0; if channels > 1 { channels * chunk } else { 0 }];
        let out = Planes::new(linear.outputs, chunk);
        Ok(LinearRun { fir, inputs, channels, bias: linear.bias.clone(), block, out })
    }

    pub(super) fn run(&mut self, input: Rows<'_>, frames: usize) -> &Planes {
        if self.channels == 1 {
            let out = &mut self.out.row_mut(0)[..frames];
            out.copy_from_slice(input.row(0, frames));
            self.fir.process(&mut Block::new(out, 1));
        } else {
            let block = &mut self.block[..self.channels * frames];
            for (n, to) in block.chunks_exact_mut(frames.max(1)).enumerate().take(self.inputs) {
                to.copy_from_slice(input.row(n, frames));
            }
            self.fir.process(&mut Block::new(block, self.channels));
            for (n, from) in block.chunks_exact(frames.max(1)).enumerate().take(self.out.rows) {
                self.out.row_mut(n)[..frames].copy_from_slice(from);
            }
        }
        for (n, bias) in self.bias.iter().enumerate().filter(|(_, bias)| **bias != 0.0) {
            self.out.row_mut(n)[..frames].iter_mut().for_each(|y| *y += bias);
        }
        &self.out
    }

    pub(super) fn reset(&mut self) {
        self.fir.reset();
    }
}
