//! What is done to an IR before a FIR is built of it.

use super::{Error, Ir, MAX_SAMPLES};
use quiet_types::SampleRate;
use realfft::{RealFftPlanner, num_complex::Complex};
use rubato::{
    Fft, FixedSync, Resampler, WindowFunction, audioadapter_buffers::direct::SequentialSliceOfVecs,
};

/// What a normalised IR has as 1, in its loudest channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalise {
    /// The largest sample.
    Peak,
    /// The root of the sum of squares: noise comes out as loud as it went in.
    Energy,
    /// The sum of magnitudes: nothing that fits into full scale comes out beyond it.
    Sum,
    /// The largest gain at any frequency: no tone comes out louder than it went in.
    Gain,
}

impl Ir {
    /// Only these channels, in this order.
    ///
    /// # Errors
    /// If one is not there.
    pub fn choose(&self, channels: &[usize]) -> Result<Ir, Error> {
        let one = |&asked: &usize| {
            let missing = Error::Channel { asked, channels: self.channels.len() };
            self.channels.get(asked).cloned().ok_or(missing)
        };
        Ir::new(self.rate, channels.iter().map(one).collect::<Result<_, _>>()?)
    }

    /// Only `frames` frames from `from` on, or what there is of them.
    ///
    /// # Errors
    /// If nothing is left.
    pub fn trim(&self, from: usize, frames: usize) -> Result<Ir, Error> {
        let to = from.saturating_add(frames).min(self.frames());
        let cut = |c: &Vec<f32>| c.get(from..to).map(<[f32]>::to_vec).unwrap_or_default();
        Ir::new(self.rate, self.channels.iter().map(cut).collect())
    }

    /// Without the end in which nothing comes within `below` dB of the peak.
    ///
    /// # Errors
    /// If it is silent.
    pub fn trim_end(&self, below: f32) -> Result<Ir, Error> {
        let floor = self.largest(Normalise::Peak)? * decibels(-f64::from(below.abs()));
        let loud = |c: &Vec<f32>| c.iter().rposition(|&x| f64::from(x.abs()) >= floor);
        let last = self.channels.iter().filter_map(loud).max().unwrap_or(0);
        self.trim(0, last + 1)
    }

    /// Without the beginning in which nothing comes within `below` dB of the peak.
    ///
    /// # Errors
    /// If it is silent.
    pub fn trim_start(&self, below: f32) -> Result<Ir, Error> {
        let floor = self.largest(Normalise::Peak)? * decibels(-f64::from(below.abs()));
        let loud = |c: &Vec<f32>| c.iter().position(|&x| f64::from(x.abs()) >= floor);
        let first = self.channels.iter().filter_map(loud).min().unwrap_or(0);
        self.trim(first, self.frames())
    }

    /// Louder by `gain` dB.
    pub fn gain(&self, gain: f32) -> Ir {
        self.scaled(decibels(f64::from(gain)))
    }

    /// Brought to 1 by one factor for all channels.
    ///
    /// # Errors
    /// If it is silent.
    pub fn normalise(&self, by: Normalise) -> Result<Ir, Error> {
        Ok(self.scaled(1.0 / self.largest(by)?))
    }

    /// The same gain at every frequency, as early as can be: what came before the peak is gone.
    ///
    /// # Errors
    /// If a channel is silent.
    pub fn minimum_phase(&self) -> Result<Ir, Error> {
        let channels = self.channels.iter().map(|c| minimum_phase(c));
        Ir::new(self.rate, channels.collect::<Result<_, _>>()?)
    }

    /// At another rate, with the same gain at every frequency that both have. What a filter would let ring
    /// before the first sample is cut off, so that nothing comes later.
    ///
    /// # Errors
    /// If a rate is out of reason, or the result too long.
    pub fn resample(&self, to: SampleRate) -> Result<Ir, Error> {
        if to == self.rate {
            return Ok(self.clone());
        }
        let failed = |why: String| Error::Rate { from: self.rate.0, to: to.0, why };
        for rate in [self.rate.0, to.0] {
            if !RATES.contains(&rate) {
                let why = format!("{rate} Hz is not between {} and {}", RATES.start(), RATES.end());
                return Err(failed(why));
            }
        }
        let (ratio, frames) = (f64::from(to.0) / f64::from(self.rate.0), self.frames());
        if (frames + 1) as f64 * ratio * self.channels.len() as f64 > MAX_SAMPLES as f64 {
            return Err(Error::TooLarge);
        }
        let (from, to_rate) = (self.rate.0 as usize, to.0 as usize);
        let mut channels = Vec::new();
        for channel in &self.channels {
            // Fewer frames a second that make up the same sound are each to be larger.
            let samples = vec![channel.iter().map(|&x| f64::from(x) / ratio).collect::<Vec<f64>>()];
            let window = WindowFunction::BlackmanHarris2;
            let mut resampler = Fft::new_custom(from, to_rate, 4096, 1, 1, window, FixedSync::Both)
                .map_err(|error| failed(error.to_string()))?;
            let view = SequentialSliceOfVecs::new(&samples, 1, frames)
                .map_err(|error| failed(error.to_string()))?;
            let found = resampler
                .process_all(&view, frames, None)
                .map_err(|error| failed(error.to_string()))?;
            channels.push(found.take_data().into_iter().map(|x| x as f32).collect());
        }
        Ir::new(to, channels)
    }

    fn scaled(&self, factor: f64) -> Ir {
        let scale = |c: &Vec<f32>| c.iter().map(|&x| (f64::from(x) * factor) as f32).collect();
        Ir { rate: self.rate, channels: self.channels.iter().map(scale).collect() }
    }

    /// The measure of the loudest channel.
    fn largest(&self, by: Normalise) -> Result<f64, Error> {
        let measure = |c: &Vec<f32>| {
            let magnitudes = c.iter().map(|&x| f64::from(x.abs()));
            match by {
                Normalise::Peak => magnitudes.fold(0.0, f64::max),
                Normalise::Energy => magnitudes.map(|x| x * x).sum::<f64>().sqrt(),
                Normalise::Sum => magnitudes.sum(),
                Normalise::Gain => {
                    let (bins, _) = spectrum(c, (4 * c.len()).next_power_of_two());
                    bins.iter().map(|bin| bin.norm()).fold(0.0, f64::max)
                }
            }
        };
        let largest = self.channels.iter().map(measure).fold(0.0, f64::max);
        if largest > 0.0 { Ok(largest) } else { Err(Error::Silent) }
    }
}

/// Rates between which is resampled.
const RATES: std::ops::RangeInclusive<u32> = 4_000..=1_536_000;

fn decibels(gain: f64) -> f64 {
    10f64.powf(gain / 20.0)
}

fn spectrum(samples: &[f32], points: usize) -> (Vec<Complex<f64>>, RealFftPlanner<f64>) {
    let mut planner = RealFftPlanner::new();
    let forward = planner.plan_fft_forward(points);
    let mut padded = forward.make_input_vec();
    for (to, &x) in padded.iter_mut().zip(samples) {
        *to = f64::from(x);
    }
    let mut bins = forward.make_output_vec();
    // The lengths are the plan's own, so it cannot refuse them.
    let _ = forward.process(&mut padded, &mut bins);
    (bins, planner)
}

/// By folding the cepstrum: what lies before its beginning moves behind it.
fn minimum_phase(samples: &[f32]) -> Result<Vec<f32>, Error> {
    let points = (8 * samples.len()).next_power_of_two().max(4096);
    let (mut bins, mut planner) = spectrum(samples, points);
    let peak = bins.iter().map(|bin| bin.norm()).fold(0.0, f64::max);
    if peak == 0.0 {
        return Err(Error::Silent);
    }
    // Zeros have no logarithm: nothing is taken for quieter than -200 dB.
    for bin in &mut bins {
        *bin = Complex::from(bin.norm().max(1e-10 * peak).ln());
    }
    let (forward, back) = (planner.plan_fft_forward(points), planner.plan_fft_inverse(points));
    let mut cepstrum = back.make_output_vec();
    let _ = back.process(&mut bins, &mut cepstrum);
    for (i, c) in cepstrum.iter_mut().enumerate() {
        let twice = match i {
            i if i == 0 || i == points / 2 => 1.0,
            i if i < points / 2 => 2.0,
            _ => 0.0,
        };
        *c *= twice / points as f64;
    }
    let _ = forward.process(&mut cepstrum, &mut bins);
    for bin in &mut bins {
        *bin = bin.exp();
    }
    // Both ends of a real signal's spectrum are real.
    bins[0].im = 0.0;
    bins[points / 2].im = 0.0;
    let mut found = cepstrum;
    let _ = back.process(&mut bins, &mut found);
    Ok(found[..samples.len()].iter().map(|&x| (x / points as f64) as f32).collect())
}
