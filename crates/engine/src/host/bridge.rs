//! Between two clocks: captured frames resampled to the speed of the playback, by a ratio that
//! follows the level of what waits.

use crate::{Error, Result};
use rubato::{
    Adjustable, Async, FixedAsync, Indexing, PolynomialDegree, Resampler,
    audioadapter_buffers::direct::SequentialSlice,
};

/// The furthest that two clocks may be apart: 0.5 %.
const FURTHEST: f64 = 0.005;

/// A queue with a resampler at its end.
pub struct Bridge {
    resampler: Async<f32>,
    /// Planar, `room` frames a channel.
    queue: Vec<f32>,
    room: usize,
    channels: usize,
    /// Frames in the queue.
    level: usize,
    period: usize,
    target: f64,
    /// Level, low-passed, frames.
    smooth: f64,
    /// Share of the correction that stays.
    drift: f64,
    ratio: f64,
    /// Of the loop: natural frequency a period, in radians.
    omega: f64,
    /// Low pass of the level, a period.
    alpha: f64,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Bridge {
    /// For periods of `period` frames at `rate`; half full of silence.
    pub fn new(channels: usize, period: usize, rate: u32) -> Result<Bridge> {
        let resampler = Async::new_poly(
            1.0,
            1.0 + 2.0 * FURTHEST,
            PolynomialDegree::Septic,
            period,
            channels,
            FixedAsync::Output,
        )
        .map_err(|e| Error::new(format!("cannot make a resampler between the cards: {e}")))?;
        let room = 8 * period + 2 * resampler.input_frames_max();
        let seconds = period as f64 / f64::from(rate);
        let mut bridge = Bridge {
            resampler,
            queue: vec![0.0; room * channels],
            room,
            channels,
            level: 0,
            period,
            target: 2.5 * period as f64 + 8.0,
            smooth: 0.0,
            drift: 0.0,
            ratio: 1.0,
            omega: std::f64::consts::TAU * 0.05 * seconds,
            alpha: 1.0 - (-std::f64::consts::TAU * seconds).exp(),
        };
        bridge.reset();
        Ok(bridge)
    }

    /// As at the start: the target's worth of silence. What was learned of the clocks stays.
    pub fn reset(&mut self) {
        self.queue.fill(0.0);
        self.level = self.target as usize;
        self.smooth = self.target;
    }

    /// Frames that still fit.
    pub fn free(&self) -> usize {
        self.room - self.level
    }

    /// Appends up to `frames` frames: `fill` is handed the planes, frames a plane, and where to
    /// begin, and says how many it brought.
    pub fn append(&mut self, fill: impl FnOnce(&mut [f32], (usize, usize, usize)) -> usize) {
        let at = self.level;
        let brought = fill(&mut self.queue, (self.channels, self.room, at));
        self.level = (at + brought).min(self.room);
    }

    /// Capture frames for each playback frame.
    pub fn ratio(&self) -> f64 {
        1.0 / self.ratio
    }

    /// Makes one period of playback; `false` where too little waits: silence.
    ///
    /// `since` is how many frames the capturing card will have taken since it last told of some:
    /// cards tell of whole periods, and without it the beat between two cards' periods would look
    /// like a drift.
    pub fn take(&mut self, samples: &mut [f32], since: f64) -> bool {
        self.follow(since.clamp(0.0, 2.0 * self.period as f64));
        let needed = self.resampler.input_frames_next();
        let out = &mut samples[..self.channels * self.period];
        let enough = self.level >= needed;
        let done = enough && self.resample(out).is_some();
        if !done {
            out.fill(0.0);
        }
        done
    }

    fn resample(&mut self, out: &mut [f32]) -> Option<()> {
        let input = SequentialSlice::new(&self.queue[..], self.channels, self.room).ok()?;
        let mut output = SequentialSlice::new_mut(out, self.channels, self.period).ok()?;
        let none: Option<&Indexing> = None;
        let (used, _) = self.resampler.process_into_buffer(&input, &mut output, none).ok()?;
        let used = used.min(self.level);
        for plane in self.queue.chunks_exact_mut(self.room) {
            plane.copy_within(used..self.level, 0);
        }
        self.level -= used;
        Some(())
    }

    /// A loop of second order with critical damping, once a period.
    fn follow(&mut self, since: f64) {
        self.smooth += (self.level as f64 + since - self.smooth) * self.alpha;
        let error = (self.smooth - self.target) / self.period as f64;
        let drift = (self.drift + self.omega * self.omega * error).clamp(-FURTHEST, FURTHEST);
        let wanted = 2.0 * self.omega * error + drift;
        let correction = wanted.clamp(-FURTHEST, FURTHEST);
        // At its limit it learns nothing of the clocks: what is learned there overshoots.
        if correction == wanted {
            self.drift = drift;
        }
        // More waits than should: make fewer frames of each.
        self.ratio = 1.0 - correction;
        let _ = self.resampler.set_resample_ratio(self.ratio, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs two clocks `ppm` apart for `seconds`; gives the learned ratio, the share of a sine's
    /// energy that is no sine in the last second, and how often it ran dry.
    fn run(ppm: f64, seconds: usize) -> (f64, f64, usize) {
        let (rate, period) = (48_000, 64);
        let mut bridge = Bridge::new(1, period, rate).unwrap();
        let (mut captured, mut clock, mut dry) = (0u64, 0.0f64, 0);
        let mut out = Vec::new();
        let mut samples = vec![0.0f32; period];
        for _ in 0..seconds * rate as usize / period {
            clock += period as f64 * (1.0 + ppm * 1e-6);
            // The card tells of whole periods alone.
            while ((captured + period as u64) as f64) <= clock {
                bridge.append(|planes, (_, _, at)| {
                    for (n, sample) in planes[at..at + period].iter_mut().enumerate() {
                        let phase = (captured + n as u64) as f64 * 997.0 / 48_000.0;
                        *sample = (std::f64::consts::TAU * phase).sin() as f32;
                    }
                    period
                });
                captured += period as u64;
            }
            dry += usize::from(!bridge.take(&mut samples, clock - captured as f64));
            out.extend_from_slice(&samples);
        }
        // A sine of that frequency, found by least squares over half a second.
        let last = &out[out.len() - 24_000..];
        let omega = std::f64::consts::TAU * 997.0 * (1.0 + ppm * 1e-6) / 48_000.0;
        let (mut s, mut c, mut all) = (0.0, 0.0, 0.0);
        for (n, x) in last.iter().enumerate() {
            let x = f64::from(*x);
            s += x * (omega * n as f64).sin();
            c += x * (omega * n as f64).cos();
            all += x * x;
        }
        let explained = 2.0 * (s * s + c * c) / last.len() as f64;
        (bridge.ratio(), (all - explained).max(0.0) / all, dry)
    }

    #[test]
    fn the_ratio_finds_the_clocks_and_the_sound_stays_whole() {
        for ppm in [100.0, -300.0] {
            let (ratio, rest, dry) = run(ppm, 30);
            assert!((ratio - 1.0 - ppm * 1e-6).abs() < 20e-6, "{ppm} ppm: ratio {ratio}");
            assert!(rest < 1e-3, "{ppm} ppm: {rest} of the energy is no sine");
            assert_eq!(dry, 0, "{ppm} ppm: ran dry");
        }
    }

    #[test]
    fn a_queue_that_is_far_too_full_finds_its_way_back_without_running_dry() {
        let (rate, period) = (48_000.0, 1024);
        let mut bridge = Bridge::new(1, period, 48_000).unwrap();
        // As after a late start: four periods more than there should be.
        bridge.append(|_, _| 4 * period);
        let mut samples = vec![0.0f32; period];
        for n in 0..(120.0 * rate) as usize / period {
            bridge.append(|_, _| period);
            assert!(bridge.take(&mut samples, 0.0), "dry after {n} periods");
        }
        assert!((bridge.ratio() - 1.0).abs() < 50e-6, "{}", bridge.ratio());
    }

    #[test]
    fn where_nothing_comes_there_is_silence_and_after_a_reset_the_same_latency() {
        let mut bridge = Bridge::new(2, 16, 48_000).unwrap();
        let mut samples = vec![1.0f32; 32];
        let mut taken = 0;
        while bridge.take(&mut samples, 0.0) {
            taken += 1;
        }
        assert!((1..=3).contains(&taken), "{taken}");
        assert_eq!(samples, [0.0; 32]);
        let level = bridge.level;
        bridge.reset();
        assert!(bridge.level > level && bridge.level == 48);
        assert!(bridge.free() > 16);
    }
}
