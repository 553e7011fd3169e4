//! Another rate, for a whole file: no frame earlier or later, none more or less.

use crate::{Error, ErrorKind, Result};
use rubato::{Fft, FixedSync, Resampler, audioadapter_buffers::direct::SequentialSliceOfVecs};

/// Frames that are converted at once.
const CHUNK: usize = 4096;

/// A converter, or none where the rates are the same.
pub(super) struct Convert {
    inner: Option<Inner>,
}

struct Inner {
    fft: Fft<f32>,
    waiting: Vec<Vec<f32>>,
    made: Vec<Vec<f32>>,
    /// Frames of its own delay that are still to be left out.
    skip: usize,
    ratio: f64,
    taken: u64,
    given: u64,
}

fn fault(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::of(ErrorKind::Fault, format!("cannot convert the rate: {e}")).because(e)
}

impl Convert {
    pub(super) fn new(from: u32, to: u32, channels: usize) -> Result<Convert> {
        if from == to {
            return Ok(Convert { inner: None });
        }
        let fft = Fft::new(from as usize, to as usize, CHUNK, channels, FixedSync::Input)
            .map_err(fault)?;
        let made = vec![vec![0.0; fft.output_frames_max()]; channels];
        Ok(Convert {
            inner: Some(Inner {
                skip: fft.output_delay(),
                waiting: vec![Vec::new(); channels],
                made,
                ratio: f64::from(to) / f64::from(from),
                taken: 0,
                given: 0,
                fft,
            }),
        })
    }

    /// Takes planar samples, and hands on what they become.
    pub(super) fn push(
        &mut self,
        samples: &[&[f32]],
        sink: &mut dyn FnMut(&[&[f32]]) -> Result<()>,
    ) -> Result<()> {
        let Some(inner) = &mut self.inner else { return sink(samples) };
        inner.taken += samples.first().map_or(0, |s| s.len()) as u64;
        for (waiting, samples) in inner.waiting.iter_mut().zip(samples) {
            waiting.extend_from_slice(samples);
        }
        inner.work(u64::MAX, sink)
    }

    /// The rest, once everything is in.
    pub(super) fn end(&mut self, sink: &mut dyn FnMut(&[&[f32]]) -> Result<()>) -> Result<()> {
        let Some(inner) = &mut self.inner else { return Ok(()) };
        let wanted = (inner.taken as f64 * inner.ratio).ceil() as u64;
        while inner.given < wanted {
            let chunk = inner.fft.input_frames_next();
            inner.waiting.iter_mut().for_each(|w| w.resize(w.len().max(chunk), 0.0));
            inner.work(wanted, sink)?;
        }
        Ok(())
    }
}

impl Inner {
    fn work(&mut self, most: u64, sink: &mut dyn FnMut(&[&[f32]]) -> Result<()>) -> Result<()> {
        let channels = self.waiting.len();
        loop {
            let need = self.fft.input_frames_next();
            if self.waiting[0].len() < need {
                return Ok(());
            }
            let room = self.made[0].len();
            let from = SequentialSliceOfVecs::new(&self.waiting, channels, need).map_err(fault)?;
            let mut to =
                SequentialSliceOfVecs::new_mut(&mut self.made, channels, room).map_err(fault)?;
            let (used, made) = self.fft.process_into_buffer(&from, &mut to, None).map_err(fault)?;
            self.waiting.iter_mut().for_each(|w| drop(w.drain(..used)));
            let skipped = made.min(self.skip);
            self.skip -= skipped;
            let count = ((made - skipped) as u64).min(most - self.given) as usize;
            self.given += count as u64;
            if count > 0 {
                let parts: Vec<&[f32]> =
                    self.made.iter().map(|made| &made[skipped..][..count]).collect();
                sink(&parts)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sine_stays_where_it_was_in_time() {
        for (from, to) in [(44_100u32, 48_000u32), (48_000, 44_100), (96_000, 48_000)] {
            let sine = |n: usize, rate: u32| {
                (2.0 * std::f64::consts::PI * 1000.0 * n as f64 / f64::from(rate)).sin() as f32
            };
            let x: Vec<f32> = (0..20_000).map(|n| sine(n, from)).collect();
            let mut convert = Convert::new(from, to, 1).unwrap();
            let mut y = Vec::new();
            let mut sink = |part: &[&[f32]]| {
                y.extend_from_slice(part[0]);
                Ok(())
            };
            for part in x.chunks(777) {
                convert.push(&[part], &mut sink).unwrap();
            }
            convert.end(&mut sink).unwrap();
            let wanted = (20_000.0 * f64::from(to) / f64::from(from)).ceil() as usize;
            assert_eq!(y.len(), wanted);
            for (n, y) in y.iter().enumerate().take(wanted - 2000).skip(2000) {
                assert!((y - sine(n, to)).abs() < 1e-4, "{from} to {to}, frame {n}");
            }
        }
    }
}
