//! Linear amps: an impulse response, played as any other is.

use super::{super::net::Linear, Error, memory::Planes};
use crate::{
    Block, ProcessSpec, Stage,
    fir::{Fir, Route},
    simd::SimdLevel,
};
use quiet_types::{Frames, SampleRate};

/// A linear amp at work.
pub(super) struct LinearRun {
    fir: Fir,
    bias: f32,
    out: Planes,
}

impl LinearRun {
    pub(super) fn new(linear: &Linear, chunk: usize, level: SimdLevel) -> Result<LinearRun, Error> {
        // The rate is none of a FIR's business: its taps are at the stream's already.
        let block = Frames(chunk as u32);
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block };
        let fir = Fir::prepare_for(level, &setting, &Route::each(1, &linear.taps))
            .map_err(|error| Error::file(format!("cannot be played: {error}")))?;
        Ok(LinearRun { fir, bias: linear.bias, out: Planes::new(1, chunk) })
    }

    pub(super) fn run(&mut self, input: &[f32]) -> &Planes {
        let out = &mut self.out.row_mut(0)[..input.len()];
        out.copy_from_slice(input);
        self.fir.process(&mut Block::new(out, 1));
        if self.bias != 0.0 {
            out.iter_mut().for_each(|y| *y += self.bias);
        }
        &self.out
    }

    pub(super) fn reset(&mut self) {
        self.fir.reset();
    }
}
