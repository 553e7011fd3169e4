//! A card that does not exist, and keeps a card's deadlines exactly.
//!
//! It runs on the processor's clock: frame n plays at n frames after the start. Captured period k
//! is there at (k + 1) periods; its sound must have been written when the playback ring, full at
//! the start, has run empty: at k periods and one buffer. What comes later is an xrun, also when
//! the look at the pointers came in time and only the processing was too long. Every period of the
//! card is either one that was processed in time or one that is counted as missed.
//!
//! A cable may lead from its output to its input: what plays at frame n is heard at n + delay.

use crate::clock::Ticks;
use quiet_linux::sys::clock::{monotonic, sleep_until};
use quiet_rt::{Clock, Duplex, Look, Xrun};
use quiet_types::{Frames, SampleRate};

/// A cable from output to input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cable {
    /// Frames from playing to hearing; a fraction too.
    pub delay: f64,
    /// Whether it turns the signal over.
    pub inverted: bool,
}

/// Taps of the interpolator for the fraction of a cable's delay.
const TAPS: usize = 64;

struct Line {
    cable: Cable,
    whole: u64,
    /// Windowed sinc; empty where the delay is whole.
    taps: Vec<f32>,
    /// What was written, channel 0 of the strip alone, by frame modulo its length (a power of two).
    ring: Vec<f32>,
}

impl Line {
    fn new(cable: Cable, buffer: u64) -> Line {
        let whole = cable.delay.max(0.0).floor() as u64;
        let fraction = cable.delay.max(0.0) - whole as f64;
        let taps = if fraction == 0.0 { Vec::new() } else { sinc(fraction) };
        let length = (whole + 2 * buffer + 4 * TAPS as u64).next_power_of_two() as usize;
        Line { cable, whole, taps, ring: vec![0.0; length] }
    }

    fn put(&mut self, frame: u64, sample: f32) {
        let mask = self.ring.len() - 1;
        self.ring[frame as usize & mask] = sample;
    }

    /// What is heard at `frame`; nothing of before the start.
    fn heard(&self, frame: u64) -> f32 {
        let mask = self.ring.len() - 1;
        let at = |frame: Option<u64>| frame.map_or(0.0, |n| self.ring[n as usize & mask]);
        let sample = if self.taps.is_empty() {
            at(frame.checked_sub(self.whole))
        } else {
            // The sinc is centred: half of it lies in the future, which the whole part pays for.
            let newest = (frame + TAPS as u64 / 2).checked_sub(self.whole);
            let taps = self.taps.iter().zip(0..);
            taps.map(|(tap, n)| tap * at(newest.and_then(|f| f.checked_sub(n)))).sum()
        };
        if self.cable.inverted { -sample } else { sample }
    }
}

/// A delay of TAPS/2 + `fraction` frames, Blackman-Harris window.
fn sinc(fraction: f64) -> Vec<f32> {
    use std::f64::consts::PI;
    let centre = TAPS as f64 / 2.0 + fraction;
    let taps: Vec<f64> = (0..TAPS)
        .map(|n| {
            let x = n as f64 - centre;
            let sinc = if x.abs() < 1e-12 { 1.0 } else { (PI * x).sin() / (PI * x) };
            let w = 2.0 * PI * (x / TAPS as f64 + 0.5);
            let window =
                0.35875 - 0.48829 * w.cos() + 0.14128 * (2.0 * w).cos() - 0.01168 * (3.0 * w).cos();
            sinc * window
        })
        .collect();
    let sum: f64 = taps.iter().sum();
    taps.iter().map(|tap| (tap / sum) as f32).collect()
}

/// The card.
pub struct Null {
    clock: Ticks,
    /// Ticks of the counter a frame.
    frame: f64,
    /// Frames.
    period: u64,
    buffer: u64,
    /// The counter when frame 0 began.
    start: u64,
    /// Frames taken; always whole periods.
    read: u64,
    /// When the next period is there, in ticks of the counter.
    due: u64,
    /// When its sound must have been written.
    deadline: u64,
    /// A write came after its deadline.
    late: bool,
    /// After an xrun: the first frame that is taken again.
    to: u64,
    line: Option<Line>,
    frames: usize,
}

impl std::fmt::Debug for Null {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Null").field("period", &self.period).finish_non_exhaustive()
    }
}

impl Null {
    /// A card that is started by the first look. `buffer` is at least two periods.
    pub fn new(
        clock: Ticks,
        rate: SampleRate,
        period: Frames,
        buffer: Frames,
        cable: Option<Cable>,
    ) -> Null {
        let (period, buffer) = (u64::from(period.0.max(1)), u64::from(buffer.0.max(2 * period.0)));
        Null {
            clock,
            frame: clock.hertz() / f64::from(rate.0.max(1)),
            period,
            buffer,
            start: 0,
            read: 0,
            due: 0,
            deadline: 0,
            late: false,
            to: 0,
            line: cable.map(|cable| Line::new(cable, buffer)),
            frames: period as usize,
        }
    }

    /// When `frame` begins: the first tick that is not before it.
    fn ticks_at(&self, frame: u64) -> u64 {
        self.start + (frame as f64 * self.frame).ceil() as u64
    }

    /// The frame that is played now.
    fn frame_at(&self, ticks: u64) -> u64 {
        (ticks.saturating_sub(self.start) as f64 / self.frame) as u64
    }

    /// How long the next period is not there.
    pub(crate) fn left_ns(&self) -> u64 {
        self.clock.nanos(self.due.saturating_sub(self.clock.ticks()))
    }

    fn aim(&mut self) {
        self.due = self.ticks_at(self.read + self.period);
        self.deadline = self.ticks_at(self.read + self.buffer);
    }

    fn xrun(&mut self, now: u64) -> Look {
        // The card runs on; the period in progress is the next to be taken. What lies before it is
        // lost: periods that were not processed in time, and those whose deadline was still to come
        // but whose place in the ring is silence now.
        let now = self.frame_at(now);
        self.to = now - now % self.period;
        let missed = (self.to - self.read) / self.period;
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        Look::Xrun(Xrun { capture: true, playback: true, missed })
    }
}

impl Duplex for Null {
    #[inline]
    fn look(&mut self) -> Look {
        if self.start == 0 {
            self.start = self.clock.ticks();
            self.aim();
        }
        let now = self.clock.ticks();
        if now < self.due {
            Look::Empty
        } else if self.late || now > self.deadline {
            self.xrun(now)
        } else {
            Look::Due((self.frame_at(now) - self.read).min(self.buffer) as u32)
        }
    }

    fn wait(&mut self) {
        // Anew each time: in the long run the counter and the clock of the sleep drift apart.
        sleep_until(monotonic() + self.left_ns());
    }

    fn read(&mut self, samples: &mut [f32]) {
        match &self.line {
            None => samples.fill(0.0),
            Some(line) => {
                for channel in samples.chunks_exact_mut(self.frames) {
                    for (sample, frame) in channel.iter_mut().zip(self.read..) {
                        *sample = line.heard(frame);
                    }
                }
            }
        }
    }

    fn write(&mut self, samples: &[f32]) {
        if self.clock.ticks() > self.deadline {
            self.late = true;
            return;
        }
        if let Some(line) = &mut self.line {
            for (sample, frame) in samples.iter().take(self.frames).zip(self.read + self.buffer..) {
                line.put(frame, *sample);
            }
        }
        self.read += self.period;
        self.aim();
    }

    fn late(&self) -> bool {
        self.late
    }

    fn resync(&mut self) -> bool {
        // The playback ring is full of silence again: as far apart as at the start. Whoever is held
        // up between the look and this finds the next xrun.
        let to = self.to;
        if let Some(line) = &mut self.line {
            let all = (line.ring.len() as u64).min(to - self.read);
            for frame in to + self.buffer - all..to + self.buffer {
                line.put(frame, 0.0);
            }
        }
        self.read = to;
        self.late = false;
        self.aim();
        true
    }
}
