//! A card whose input is a file, and whose output becomes one: as fast as the machine can.

use crate::{Error, ErrorKind, Result};
use quiet_rt::{Duplex, Look};
use quiet_types::{Frames, SampleRate};
use std::path::{Path, PathBuf};

/// Longest input in samples of all channels: half an hour of stereo at 96 kHz.
const LONGEST: usize = 2 * 96_000 * 1800;

/// The whole input in memory, and room for the whole output: nothing is read or written meanwhile.
#[derive(Debug)]
pub struct File {
    /// Planar, padded to whole periods.
    input: Vec<Vec<f32>>,
    output: Vec<Vec<f32>>,
    at: usize,
    period: usize,
    /// Frames of the input before padding.
    frames: usize,
    rate: SampleRate,
    to: PathBuf,
}

impl File {
    /// Reads `from`; the output is to be written to `to`.
    ///
    /// # Errors
    /// When the file is no WAV, has no frames or too many.
    pub fn open(from: &Path, to: &Path, channels: usize, period: Frames) -> Result<File> {
        let name = from.display();
        let cannot = |e: hound::Error| {
            let sentence =
                format!("cannot read {name}: {e}; give a WAV file of integers or floats");
            Error::of(ErrorKind::File, sentence).because(e)
        };
        let mut reader = hound::WavReader::open(from).map_err(cannot)?;
        let spec = reader.spec();
        let there = usize::from(spec.channels);
        if reader.len() as usize > LONGEST || there == 0 {
            let sentence = format!(
                "{name} is too long to be held in memory ({} samples); cut it",
                reader.len()
            );
            return Err(Error::of(ErrorKind::File, sentence));
        }
        let samples: Vec<f32> = match spec.sample_format {
            hound::SampleFormat::Float => reader.samples::<f32>().collect::<hound::Result<_>>(),
            hound::SampleFormat::Int => {
                let full = (1u64 << (spec.bits_per_sample.max(1) - 1)) as f32;
                reader.samples::<i32>().map(|s| Ok(s? as f32 / full)).collect()
            }
        }
        .map_err(cannot)?;
        let period = period.0.max(1) as usize;
        let frames = samples.len() / there;
        let padded = frames.div_ceil(period) * period;
        let input = (0..channels)
            .map(|channel| {
                let own = samples.iter().skip(channel % there).step_by(there).copied();
                own.chain(std::iter::repeat(0.0)).take(padded).collect()
            })
            .collect();
        Ok(File {
            input,
            output: vec![vec![0.0; padded]; channels],
            at: 0,
            period,
            frames,
            rate: SampleRate(spec.sample_rate),
            to: to.to_owned(),
        })
    }

    /// Frames a second of the input.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Writes what was made, as 32-bit floats; ends where the input ends, or where it was stopped.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self) -> Result<()> {
        let name = self.to.display();
        let cannot = |e: hound::Error| {
            Error::of(ErrorKind::File, format!("cannot write {name}: {e}")).because(e)
        };
        let spec = hound::WavSpec {
            channels: self.output.len() as u16,
            sample_rate: self.rate.0,
            bits_per_sample: 32,
            sample_format: hound::SampleFormat::Float,
        };
        let mut writer = hound::WavWriter::create(&self.to, spec).map_err(cannot)?;
        for frame in 0..self.frames.min(self.at) {
            for channel in &self.output {
                writer.write_sample(channel[frame]).map_err(cannot)?;
            }
        }
        writer.finalize().map_err(cannot)
    }
}

impl Duplex for File {
    fn look(&mut self) -> Look {
        let left = self.input.first().map_or(0, |channel| channel.len() - self.at);
        if left < self.period { Look::Gone } else { Look::Due(self.period as u32) }
    }

    fn wait(&mut self) {}

    fn read(&mut self, samples: &mut [f32]) {
        for (own, channel) in samples.chunks_exact_mut(self.period).zip(&self.input) {
            own.copy_from_slice(&channel[self.at..][..self.period]);
        }
    }

    fn write(&mut self, samples: &[f32]) {
        for (own, channel) in samples.chunks_exact(self.period).zip(&mut self.output) {
            channel[self.at..][..self.period].copy_from_slice(own);
        }
        self.at += self.period;
    }

    fn resync(&mut self) -> bool {
        true
    }
}
