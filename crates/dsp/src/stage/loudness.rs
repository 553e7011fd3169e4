//! Loudness by ITU-R BS.1770 and EBU R 128, a constant small cost a frame.
//!
//! The crate `ebur128` sums 400 ms of audio when it is asked, all in one block; here every frame
//! adds to the sum of its 100 ms. The crate is the oracle of the test.

use super::{biquad::Cascade, design::Section};
use crate::{Block, ProcessSpec, Stage};
use quiet_types::SampleRate;
use std::f64::consts::PI;

/// Steps of the histogram, a tenth of a LU each from -70 LUFS.
const BINS: usize = 1000;
/// Quieter blocks never count, in LUFS.
const GATE: f64 = -70.0;

/// Loudness of what went through.
pub struct Loudness {
    weighting: Cascade,
    weighted: Vec<f32>,
    channels: usize,
    /// Frames of 100 ms.
    hop: u32,
    left: u32,
    sum: f64,
    /// Mean squares of the last 3 s, 100 ms each.
    hops: [f64; 30],
    seen: usize,
    counts: Vec<u32>,
    powers: Vec<f64>,
    momentary: f64,
    short: f64,
    integrated: f64,
}

/// The two filters of the K weighting.
fn weighting(rate: f64) -> [Section; 2] {
    let (f, gain, q) = (1681.974450955533, 3.999843853973347, 0.7071752369554196);
    let k = (PI * f / rate).tan();
    let high = 10f64.powf(gain / 20.0);
    let band = high.powf(0.4996667741545416);
    let a0 = 1.0 + k / q + k * k;
    let shelf = Section([
        (high + band * k / q + k * k) / a0,
        2.0 * (k * k - high) / a0,
        (high - band * k / q + k * k) / a0,
        2.0 * (k * k - 1.0) / a0,
        (1.0 - k / q + k * k) / a0,
    ]);
    let (f, q) = (38.13547087602444, 0.5003270373238773);
    let k = (PI * f / rate).tan();
    let a0 = 1.0 + k / q + k * k;
    let highpass = Section([1.0, -2.0, 1.0, 2.0 * (k * k - 1.0) / a0, (1.0 - k / q + k * k) / a0]);
    [shelf, highpass]
}

fn lufs(power: f64) -> f64 {
    if power > 0.0 { -0.691 + 10.0 * power.log10() } else { f64::NEG_INFINITY }
}

impl Loudness {
    /// Every channel counts the same.
    pub fn new(setting: ProcessSpec) -> Loudness {
        let SampleRate(rate) = setting.rate;
        let hop = (rate / 10).max(1);
        Loudness {
            weighting: Cascade::new(&weighting(f64::from(rate)), setting),
            weighted: vec![0.0; setting.channels * setting.block.0 as usize],
            channels: setting.channels,
            hop,
            left: hop,
            sum: 0.0,
            hops: [0.0; 30],
            seen: 0,
            counts: vec![0; BINS],
            powers: vec![0.0; BINS],
            momentary: f64::NEG_INFINITY,
            short: f64::NEG_INFINITY,
            integrated: f64::NEG_INFINITY,
        }
    }

    /// Hears a block, and leaves it is.
    ///
    /// # Real time
    /// Yes; 1000 additions more every 100 ms.
    pub fn hear(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        let weighted = &mut self.weighted[..frames * self.channels];
        weighted.copy_from_slice(block.samples());
        self.weighting.process(&mut Block::new(weighted, self.channels));
        let mut from = 0;
        while from < frames {
            let count = (frames - from).min(self.left as usize);
            for frame in from..from + count {
                for channel in 0..self.channels {
                    self.sum += f64::from(self.weighted[channel * frames + frame]).powi(2);
                }
            }
            from += count;
            self.left -= count as u32;
            if self.left == 0 {
                self.left = self.hop;
                self.turn();
            }
        }
    }

    /// 100 ms are full.
    fn turn(&mut self) {
        self.hops.copy_within(0..29, 1);
        self.hops[0] = std::mem::take(&mut self.sum) / f64::from(self.hop);
        self.seen = (self.seen + 1).min(30);
        let mean = |hops: &[f64]| hops.iter().sum::<f64>() / hops.len() as f64;
        if self.seen < 4 {
            return;
        }
        let power = mean(&self.hops[..4]);
        self.momentary = lufs(power);
        if self.seen == 30 {
            self.short = lufs(mean(&self.hops));
        }
        if self.momentary >= GATE {
            let bin = (((self.momentary - GATE) * 10.0) as usize).min(BINS - 1);
            self.counts[bin] += 1;
            self.powers[bin] += power;
            self.integrated = self.gated();
        }
    }

    fn gated(&self) -> f64 {
        let above = |first: usize| {
            let count: u64 = self.counts[first..].iter().map(|c| u64::from(*c)).sum();
            let power: f64 = self.powers[first..].iter().sum();
            if count == 0 { 0.0 } else { power / count as f64 }
        };
        let relative = lufs(above(0)) - 10.0;
        let first = ((relative - GATE) * 10.0).ceil().clamp(0.0, BINS as f64 - 1.0) as usize;
        lufs(above(first))
    }

    /// The last 400 ms, in LUFS.
    pub fn momentary(&self) -> f64 {
        self.momentary
    }

    /// The last 3 s, in LUFS.
    pub fn short(&self) -> f64 {
        self.short
    }

    /// Everything since the start, gated, in LUFS.
    pub fn integrated(&self) -> f64 {
        self.integrated
    }

    /// Forgets what it heard.
    pub fn reset(&mut self) {
        self.weighting.reset();
        (self.left, self.sum, self.seen) = (self.hop, 0.0, 0);
        self.counts.fill(0);
        self.powers.fill(0.0);
        (self.momentary, self.short, self.integrated) =
            (f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebur128::{EbuR128, Mode};
    use quiet_types::Frames;

    #[test]
    fn it_agrees_with_the_reference_library() {
        let rate = 48_000;
        // Loud, quiet, loud: the relative gate has something to leave out.
        let frames = 12 * rate as usize;
        let mut random = fastrand::Rng::with_seed(1);
        let mut planar = vec![0.0f32; 2 * frames];
        for n in 0..frames {
            let level = [0.3, 0.002, 0.1][n * 3 / frames];
            for channel in 0..2 {
                let noise = random.f32() - 0.5;
                let tone = (n as f32 * 0.05 * (channel + 1) as f32).sin();
                planar[channel * frames + n] = level * (0.6 * tone + noise);
            }
        }
        let mut reference = EbuR128::new(2, rate, Mode::I | Mode::S | Mode::M).unwrap();
        reference.add_frames_planar_f32(&[&planar[..frames], &planar[frames..]]).unwrap();
        let setting = ProcessSpec { rate: SampleRate(rate), channels: 2, block: Frames(441) };
        let mut ours = Loudness::new(setting);
        for from in (0..frames).step_by(441) {
            let count = (frames - from).min(441);
            let mut block: Vec<f32> = planar[from..][..count].to_vec();
            block.extend(&planar[frames + from..][..count]);
            ours.hear(&mut Block::new(&mut block, 2));
        }
        for (what, ours, wanted) in [
            ("momentary", ours.momentary(), reference.loudness_momentary().unwrap()),
            ("short", ours.short(), reference.loudness_shortterm().unwrap()),
            ("integrated", ours.integrated(), reference.loudness_global().unwrap()),
        ] {
            assert!((ours - wanted).abs() < 0.02, "{what}: {ours} LUFS, wanted {wanted}");
        }
    }

    #[test]
    fn a_tone_of_997_hz_at_minus_20_has_the_loudness_of_the_standard() {
        // BS.1770: 0 dBFS in one channel reads -3.01 LUFS.
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block: Frames(48_000) };
        let mut meter = Loudness::new(setting);
        for second in 0..4 {
            let mut tone: Vec<f32> = (0..48_000)
                .map(|n| {
                    let t = f64::from(second * 48_000 + n) / 48_000.0;
                    (0.1 * (2.0 * PI * 997.0 * t).sin()) as f32
                })
                .collect();
            meter.hear(&mut Block::new(&mut tone, 1));
        }
        assert!((meter.integrated() + 23.01).abs() < 0.02, "{}", meter.integrated());
    }
}
