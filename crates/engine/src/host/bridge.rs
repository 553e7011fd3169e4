//! Between two clocks: captured frames resampled to the speed of the playback, by a ratio that
//! follows what both cards say of their pointers and when they said so.
//!
//! When the engine's thread woke up does not enter: a straight line through each card's own time
//! stamps tells where both are at one instant, and with it how long sound is on its way. The ratio of
//! the slopes keeps that as it is; a small correction brings it to where it should be.

use super::line::Line;
use crate::{Error, ErrorKind, Result};
use quiet_types::{Frames, SampleRate};
use rubato::{
    Adjustable, Async, FixedAsync, Indexing, PolynomialDegree, Resampler,
    audioadapter_buffers::direct::SequentialSlice,
};

/// The furthest that two clocks may be apart: 0.5 %.
const FURTHEST: f64 = 0.005;

/// A wrong delay is put right within so many seconds, at first and in the long run: as the lines grow
/// longer they deserve more trust than a single reading.
const PATIENCE: (f64, f64) = (4.0, 30.0);

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
    /// Of the playing card's ring, frames.
    buffer: usize,
    rate: f64,
    /// From capture to playback, frames: what is to be, and what was last.
    target: f64,
    delay: f64,
    capture: Line,
    playback: Line,
    /// Since the cards were started: taken from the one, given to the other, frames.
    fetched: u64,
    written: u64,
    /// Since the queue was filled so that the delay is right, s; `None` before.
    aligned: Option<f64>,
    /// Capture frames for each playback frame.
    ratio: f64,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Bridge {
    /// For periods of `period` frames at `rate`, and a playing card with a ring of `buffer` frames.
    pub fn new(
        channels: usize,
        period: Frames,
        buffer: Frames,
        rate: SampleRate,
    ) -> Result<Bridge> {
        let (period, buffer) = (period.0 as usize, buffer.0 as usize);
        let resampler = Async::new_poly(
            1.0,
            1.0 + 2.0 * FURTHEST,
            PolynomialDegree::Septic,
            period,
            channels,
            FixedAsync::Output,
        )
        .map_err(|e| {
            let sentence = format!("cannot make a resampler between the cards: {e}");
            Error::of(ErrorKind::Fault, sentence).because(e)
        })?;
        let room = 8 * period + 2 * resampler.input_frames_max();
        let rate = f64::from(rate);
        // When a period is due, the ring holds all but one. In the queue: what the resampler takes, a
        // period that the capturing card may not have told of yet, and half of one for good measure.
        let target = (buffer - period) as f64 + 2.5 * period as f64 + 8.0;
        let mut bridge = Bridge {
            resampler,
            queue: vec![0.0; room * channels],
            room,
            channels,
            level: 0,
            period,
            buffer,
            rate,
            target,
            delay: target,
            capture: Line::new(rate),
            playback: Line::new(rate),
            fetched: 0,
            written: 0,
            aligned: None,
            ratio: 1.0,
        };
        bridge.restart();
        Ok(bridge)
    }

    /// Both cards were started anew, the ring of the playing one full. What was learned of their
    /// clocks stays.
    pub fn restart(&mut self) {
        self.capture.restart();
        self.playback.restart();
        (self.fetched, self.written, self.level) = (0, self.buffer as u64, 0);
        self.reset();
    }

    /// The cards run on, and the delay is to be as at the start.
    pub fn reset(&mut self) {
        self.aligned = None;
    }

    /// Frames that still fit.
    pub fn free(&self) -> usize {
        self.room - self.level
    }

    /// Appends up to `frames` frames: `fill` is handed the planes, frames a plane, and where to
    /// begin, and says how many it brought.
    pub fn append(&mut self, fill: impl FnOnce(&mut [f32], (usize, usize, usize)) -> usize) {
        let at = self.level;
        let brought = fill(&mut self.queue, (self.channels, self.room, at)).min(self.room - at);
        self.level = at + brought;
        self.fetched += brought as u64;
    }

    /// At `time`, ns, `waiting` frames were there beside those that were fetched.
    pub fn captured(&mut self, time: u64, waiting: u64) {
        self.capture.see(time, (self.fetched + waiting) as f64);
    }

    /// At `time`, ns, `free` frames of the playing card's ring were free.
    pub fn played(&mut self, time: u64, free: u64) {
        self.playback.see(time, (self.written + free) as f64 - self.buffer as f64);
    }

    /// Capture frames for each playback frame.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Makes one period of playback; `false` where too little waits: silence. It is also silent until
    /// both cards have told of something.
    ///
    /// # Real time
    /// No allocation, lock or system call.
    pub fn take(&mut self, samples: &mut [f32]) -> bool {
        self.follow();
        let out = &mut samples[..self.channels * self.period];
        self.written += self.period as u64;
        if self.aligned.is_none() {
            out.fill(0.0);
            // A card that tells of nothing for so long does not capture.
            return self.written < 8 * (self.buffer + self.period) as u64;
        }
        let enough = self.level >= self.resampler.input_frames_next();
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
        self.discard(used.min(self.level));
        Some(())
    }

    fn discard(&mut self, frames: usize) {
        for plane in self.queue.chunks_exact_mut(self.room) {
            plane.copy_within(frames..self.level, 0);
        }
        self.level -= frames;
    }

    /// Once a period, before it is made.
    fn follow(&mut self) {
        let (Some(captured), Some(played)) = (self.capture.newest(), self.playback.newest()) else {
            return;
        };
        let now = captured.max(played);
        let speed = self.capture.rate() / self.playback.rate();
        // What was captured and is not in the resampler's past, and what waits in the ring.
        let queued = self.capture.at(now) - self.fetched as f64;
        let ring = (self.written as f64 - self.playback.at(now)) * speed;
        let Some(age) = &mut self.aligned else {
            return self.align(self.target - queued - ring);
        };
        *age += self.period as f64 / self.rate;
        let patience = (*age / 2.0).clamp(PATIENCE.0, PATIENCE.1);
        self.delay = queued + ring + self.level as f64;
        let wrong = (self.delay - self.target) / (self.rate * patience);
        self.ratio = (speed + wrong).clamp(1.0 - FURTHEST, 1.0 + FURTHEST);
        let _ = self.resampler.set_resample_ratio(1.0 / self.ratio, true);
    }

    /// Fills the queue so that the delay is right.
    fn align(&mut self, level: f64) {
        let most = self.room - 2 * self.period;
        let level = (level.round().max(0.0) as usize).min(most);
        if level < self.level {
            self.discard(self.level - level);
        }
        let silent = level - self.level;
        for plane in self.queue.chunks_exact_mut(self.room) {
            plane.copy_within(0..level - silent, silent);
            plane[..silent].fill(0.0);
        }
        self.resampler.reset();
        (self.level, self.aligned) = (level, Some(0.0));
    }
}

#[cfg(test)]
mod tests;
