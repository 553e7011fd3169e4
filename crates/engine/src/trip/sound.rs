//! What is sent in one pass: silence, a sweep, the tones, the sweep again.

use quiet_types::SampleRate;
use std::f64::consts::TAU;

/// Frames in which all tones come round: the longest round trip that they can tell apart.
pub(super) const ROUND: usize = 65_536;

/// Frequencies as multiples of the rate over [`ROUND`]. The first tells the delay within 16
/// frames; every further one has half the factor of two of the one before, and so settles one bit
/// more of the delay, up to 2^16 frames. Odd factors spread them over one octave and a half.
///
/// # Source
/// The method is that of Fons Adriaensen's jack_delay; the frequencies are our own.
pub(super) const TONES: [u32; 13] =
    [4096, 2048, 3072, 3584, 2816, 2432, 1728, 1440, 1200, 3320, 2252, 2626, 1891];

/// Peak of the first tone and of each further one, where the whole peaks at 1 at most.
const LEVELS: (f64, f64) = (0.4, 0.05);

/// Frames of the sweep.
pub(super) const SWEEP: usize = 16_384;
/// Its band, in parts of the rate: the tones lie in its middle.
pub(super) const BAND: (f64, f64) = (0.008, 0.2);
/// Frames over which it fades in and out.
const FADE: usize = 512;
/// Frames of tones that are looked at.
const LOOKED_AT: usize = 98_304;
/// Frames that the tones have less than a whole round to spare.
const SPARE: usize = 1_536;

/// The sound of one pass and where its parts lie.
#[derive(Clone, Debug)]
pub struct TestSignal {
    /// Frames a second.
    pub(super) rate: SampleRate,
    /// Every sample; silence at the end, until the longest round trip is over.
    pub(super) samples: Vec<f32>,
    /// The longest round trip that is waited for, frames.
    pub(super) longest: usize,
    pub(super) sweep_at: usize,
    pub(super) tones_at: usize,
    pub(super) tones_end: usize,
    pub(super) again_at: usize,
    /// Peak of the whole.
    pub(super) level: f64,
}

impl TestSignal {
    /// The longest round trip that can be waited for, frames: 64 000.
    pub const MOST: usize = ROUND - SPARE;

    /// For round trips of up to `longest` frames (at most [`MOST`](TestSignal::MOST)), peaking at `level`, 0 to 1.
    pub fn new(rate: SampleRate, longest: usize, level: f64) -> TestSignal {
        let longest = longest.clamp(64, TestSignal::MOST);
        let lead = (rate.0 as usize / 8).max(1024);
        let sweep_at = lead;
        let tones_at = sweep_at + SWEEP + longest;
        let tones_end = tones_at + longest + LOOKED_AT;
        let again_at = tones_end;
        let mut sound = TestSignal {
            rate,
            samples: vec![0.0; again_at + SWEEP + longest + 2 * FADE],
            longest,
            sweep_at,
            tones_at,
            tones_end,
            again_at,
            level: level.clamp(0.0, 1.0),
        };
        for at in [sweep_at, again_at] {
            for n in 0..SWEEP {
                sound.samples[at + n] += (sound.level * sweep(n as f64)) as f32;
            }
        }
        for n in tones_at..tones_end {
            let fade = fade((n - tones_at).min(tones_end - 1 - n) as f64);
            let sum: f64 = (0..TONES.len())
                .map(|tone| amplitude(tone) * (TAU * turns(tone, n - tones_at)).sin())
                .sum();
            sound.samples[n] += (sound.level * fade * sum) as f32;
        }
        sound
    }

    /// Every sample that is sent.
    pub fn samples(&self) -> &[f32] {
        &self.samples
    }

    /// How long a pass takes.
    pub fn seconds(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate.0.max(1))
    }
}

/// A tone's peak, where the whole peaks at 1.
pub(super) fn amplitude(tone: usize) -> f64 {
    if tone == 0 { LEVELS.0 } else { LEVELS.1 }
}

/// A tone's phase `n` frames after the tones begin, in turns below 1. Each begins elsewhere, so
/// that their peaks do not meet.
pub(super) fn turns(tone: usize, n: usize) -> f64 {
    let whole = u64::from(TONES[tone]) * (n % ROUND) as u64 % ROUND as u64;
    whole as f64 / ROUND as f64 + begins(tone)
}

/// Where a tone begins, in turns.
pub(super) fn begins(tone: usize) -> f64 {
    // As Schroeder has it for equal tones: quadratic in the number.
    let n = tone as f64;
    (n * n / (2.0 * TONES.len() as f64)).fract()
}

fn fade(frames: f64) -> f64 {
    let part = ((frames + 0.5) / FADE as f64).clamp(0.0, 1.0);
    0.5 - 0.5 * (part * TAU / 2.0).cos()
}

/// The sweep at `n` frames, whole or not: its frequency grows exponentially.
pub(super) fn sweep(n: f64) -> f64 {
    let length = SWEEP as f64;
    if !(0.0..length).contains(&n) {
        return 0.0;
    }
    let growth = length / (BAND.1 / BAND.0).ln();
    let turns = BAND.0 * growth * ((n / growth).exp() - 1.0);
    fade(n).min(fade(length - 1.0 - n)) * (TAU * turns).sin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tone_settles_one_bit_and_none_is_near_another() {
        for (n, tone) in TONES.iter().enumerate() {
            assert_eq!(tone.trailing_zeros() as usize, 12 - n, "tone {n}");
        }
        let mut sorted = TONES;
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|two| two[1] - two[0] >= 150), "{sorted:?}");
    }

    #[test]
    fn it_peaks_at_its_level_at_most_and_begins_and_ends_in_silence() {
        let sound = TestSignal::new(SampleRate(48_000), 4_000, 0.5);
        let peak = sound.samples.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert!((0.3..=0.5).contains(&peak), "{peak}");
        assert!(sound.samples[..sound.sweep_at].iter().all(|x| *x == 0.0));
        assert!(sound.samples[sound.again_at + SWEEP..].iter().all(|x| *x == 0.0));
        assert!(sound.samples.len() - sound.again_at - SWEEP >= sound.longest);
    }
}
