//! A card's clock against the processor's: a straight line through what the card says of itself.

/// How far back the line remembers, s: its slope is good to a few ppm with stamps that are a
/// millisecond off, and still follows a crystal that warms up.
const MEMORY: f64 = 30.0;

/// Before anything is seen, the nominal rate counts as much as this, s^2: readings off by 1 ms
/// against clocks that are 500 ppm apart.
const PRIOR: f64 = 4.0;

/// A reading beyond so many times the usual distance counts for less, so that a stamp that was
/// taken late hardly moves the line.
const FAR: f64 = 4.0;

/// So many readings beyond that in a row, all on one side, are no accident: the line begins anew.
const JUMP: i32 = 32;

/// Weighted least squares with exponential forgetting, over (time, frames) in deviation from the
/// nominal rate. Readings may come at any intervals.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Nominal, frames a second.
    rate: f64,
    /// The first reading: ns, frames.
    anchor: Option<(u64, f64)>,
    /// When the newest one was taken, ns: the times below are from there.
    newest: u64,
    /// Sums of weights, times and their squares; of deviations, and of times and deviations.
    sums: [f64; 5],
    /// What was known of the slope before: its weight, and frames a second beside the nominal rate.
    before: (f64, f64),
    /// How far readings lie from the line, frames.
    spread: f64,
    readings: u32,
    beyond: i32,
}

impl Line {
    /// Of a clock that should make `rate` frames a second.
    pub(super) fn new(rate: f64) -> Line {
        Line {
            rate,
            anchor: None,
            newest: 0,
            sums: [0.0; 5],
            before: (PRIOR, 0.0),
            spread: 0.0,
            readings: 0,
            beyond: 0,
        }
    }

    /// The count begins anew, at any frame; what was learned of the rate stays.
    pub(super) fn restart(&mut self) {
        let [s0, s1, s2, ..] = self.sums;
        let known = if s0 > 0.0 { s2 - s1 * s1 / s0 } else { 0.0 };
        self.before = (self.before.0 + known.max(0.0), self.slope());
        self.sums = [0.0; 5];
        (self.anchor, self.readings, self.beyond) = (None, 0, 0);
    }

    /// When the newest reading was taken, ns; `None` where there is none.
    pub(super) fn newest(&self) -> Option<u64> {
        self.anchor.map(|_| self.newest)
    }

    /// The clock's frames a second, as far as is known.
    pub(super) fn rate(&self) -> f64 {
        self.rate + self.slope()
    }

    /// Frames by `time`, ns.
    pub(super) fn at(&self, time: u64) -> f64 {
        let Some((began, frames)) = self.anchor else { return 0.0 };
        let since = seconds(time, self.newest);
        frames + self.rate * seconds(time, began) + self.height() + self.slope() * since
    }

    /// Takes a reading: the card was at `frames` at `time`, ns. One that is no newer than the last
    /// is passed over.
    pub(super) fn see(&mut self, time: u64, frames: f64) {
        let (began, first) = *self.anchor.get_or_insert_with(|| {
            self.newest = time;
            (time, frames)
        });
        let passed = seconds(time, self.newest);
        if passed < 0.0 || (passed == 0.0 && self.readings > 0) {
            return;
        }
        self.newest = time;
        let [s0, s1, s2, y0, y1] = self.sums;
        let keep = (-passed / MEMORY).exp();
        let shifted =
            [s0, s1 - passed * s0, s2 + passed * (passed * s0 - 2.0 * s1), y0, y1 - passed * y0];
        self.sums = shifted.map(|sum| sum * keep);
        self.before.0 *= keep;
        let deviation = frames - first - self.rate * seconds(time, began);
        let off = if self.readings == 0 { 0.0 } else { deviation - self.height() };
        let far = FAR * self.spread + self.rate * 50e-6;
        let weight = if off.abs() <= far || self.readings < 8 { 1.0 } else { far / off.abs() };
        self.readings = self.readings.saturating_add(1);
        let share = 1.0 / f64::from(self.readings.min(64));
        self.spread += (off.abs().min(far) - self.spread) * share;
        if weight < 1.0 {
            self.beyond = if (self.beyond < 0) == (off < 0.0) { self.beyond } else { 0 };
            self.beyond += if off < 0.0 { -1 } else { 1 };
            if self.beyond.abs() >= JUMP {
                *self = Line::new(self.rate);
                return self.see(time, frames);
            }
        } else {
            self.beyond = 0;
        }
        self.sums[0] += weight;
        self.sums[3] += weight * deviation;
    }

    /// Frames a second beside the nominal rate.
    fn slope(&self) -> f64 {
        let [s0, s1, s2, y0, y1] = self.sums;
        let (weight, slope) = self.before;
        if s0 <= 0.0 {
            return slope;
        }
        (y1 - s1 * y0 / s0 + weight * slope) / (s2 - s1 * s1 / s0 + weight)
    }

    /// Deviation at the newest reading.
    fn height(&self) -> f64 {
        let [s0, s1, _, y0, _] = self.sums;
        if s0 <= 0.0 { 0.0 } else { (y0 - self.slope() * s1) / s0 }
    }
}

/// From `from` to `to`, s.
fn seconds(to: u64, from: u64) -> f64 {
    // Differences of times a day apart are exact in 53 bits of ns.
    (to as i128 - from as i128) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of a clock that runs `ppm` fast, `late(n)` s late.
    fn seen(ppm: f64, seconds: f64, late: impl Fn(u64) -> f64) -> Line {
        let mut line = Line::new(48_000.0);
        let period = 1024.0 / (48_000.0 * (1.0 + ppm * 1e-6));
        for n in 0..(seconds / period) as u64 {
            let at = (n as f64 * period + late(n)) * 1e9;
            line.see(1_000_000_000 + at as u64, n as f64 * 1024.0);
        }
        line
    }

    fn ppm(line: &Line) -> f64 {
        (line.rate() / 48_000.0 - 1.0) * 1e6
    }

    #[test]
    fn exact_stamps_tell_the_rate_within_seconds() {
        for off in [-300.0, 0.0, 77.0, 1000.0] {
            let line = seen(off, 30.0, |_| 0.0);
            assert!((ppm(&line) - off).abs() < 1.0, "{off}: {}", ppm(&line));
        }
    }

    #[test]
    fn stamps_that_are_late_now_and_then_hardly_move_it() {
        // Every 50th stamp is 30 ms late, which is 1440 frames.
        let line = seen(100.0, 40.0, |n| if n % 50 == 49 { 0.03 } else { 0.0 });
        assert!((ppm(&line) - 100.0).abs() < 1.0, "{}", ppm(&line));
    }

    #[test]
    fn a_count_that_jumps_is_followed_and_a_restart_keeps_the_rate() {
        let mut line = seen(100.0, 40.0, |_| 0.0);
        let from = line.newest().unwrap();
        for n in 1..200u64 {
            let at = from + (n as f64 * 1024.0 / 48_004.8 * 1e9) as u64;
            line.see(at, 5_000_000.0 + n as f64 * 1024.0);
        }
        let (last, there) = (line.newest().unwrap(), 5_000_000.0 + 199.0 * 1024.0);
        assert!((line.at(last) - there).abs() < 5.0, "{} for {there}", line.at(last));
        let mut line = seen(100.0, 40.0, |_| 0.0);
        line.restart();
        assert_eq!(line.newest(), None);
        line.see(from, 7.0);
        assert!((ppm(&line) - 100.0).abs() < 1.0, "{}", ppm(&line));
        assert!((line.at(from + 1_000_000_000) - 7.0 - 48_004.8).abs() < 0.1);
    }
}
