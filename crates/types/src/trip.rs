//! A round trip: from playback to capture, measured by sound.

use crate::{Finding, head::Head};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of [`RoundTrip`] in JSON.
pub const SCHEMA: &str = "quietcores.roundtrip/1";

/// A round trip, measured once for every time that the device was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundTrip {
    /// What, when and where.
    #[serde(flatten)]
    pub head: Head,
    /// The device in its own words.
    pub device: String,
    /// Frames a second.
    pub rate: u32,
    /// Frames a period.
    pub period: u32,
    /// Frames in the card's ring.
    pub buffer: u32,
    /// `never-sleep` or `sleep`.
    pub mode: String,
    /// CPUs that the thread might run on, read back.
    pub cpus: String,
    /// Whether it ran under a real-time policy, read back.
    pub real_time: bool,
    /// Whether it ran inside a shield.
    pub shielded: bool,
    /// One for each time the device was opened.
    pub cycles: Vec<Opening>,
    /// Over the cycles in which a round trip was heard; `None` where there was none.
    pub spread: Option<Spread>,
    /// Where the time goes, in the order of the way.
    pub budget: Vec<BudgetPart>,
    /// What to know beside the figures.
    pub findings: Vec<Finding>,
}

/// One opening of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Opening {
    /// What was heard.
    pub heard: Option<Heard>,
    /// Why nothing can be said, in a sentence; empty where something was heard.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wrong: String,
    /// Passes that were thrown away because the device ran over or under meanwhile.
    pub disturbed: u32,
}

/// What one pass of sound says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heard {
    /// From playback to capture in frames, at the middle of the tones.
    pub frames: f64,
    /// Half of the 95 % interval of `frames`, by the scatter of the tones.
    pub uncertainty: f64,
    /// The same round trip in milliseconds.
    pub milliseconds: f64,
    /// What the sweep before the tones says, in frames.
    pub sweep_before: f64,
    /// What the sweep after the tones says, in frames.
    pub sweep_after: f64,
    /// Whether the signal comes back upside down.
    pub inverted: bool,
    /// How much the capturing clock is faster than the playing one, in parts per million.
    pub drift_ppm: f64,
    /// Half of the 95 % interval of `drift_ppm`.
    pub drift_uncertainty: f64,
    /// What comes back over what was sent, dB.
    pub gain_db: f64,
    /// The tones over all else that came back with them, dB.
    pub snr_db: f64,
    /// The farthest that a tone's phase lay from where it should, in half turns: 0 is perfect, 0.5
    /// says nothing. Above 0.3 no round trip is told.
    pub doubt: f64,
    /// Frames at full scale, three in a row or more.
    pub clipped: u64,
}

/// Round trips of several cycles, frames.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// How many.
    pub cycles: u32,
    /// The shortest.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The longest.
    pub most: f64,
    /// Standard deviation; 0 of one cycle.
    pub deviation: f64,
}

/// A part of the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetPart {
    /// In words.
    pub name: String,
    /// Milliseconds; `None` where nobody knows.
    pub milliseconds: Option<f64>,
    /// The same in frames.
    pub frames: Option<f64>,
    /// Where the figure comes from.
    pub source: BudgetSource,
    /// What to know about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Milliseconds of the same part in the core isolation slides (Focusrite 2i2 at 96 kHz, 16
    /// frames x 2, 1.2 ms in all); `None` where they say unknown.
    pub slides: Option<f64>,
}

/// Where a figure of the budget comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetSource {
    /// Follows from the settings of the device.
    Set,
    /// Follows from the kind of bus.
    Bus,
    /// Measured by sound.
    Measured,
    /// What is left of the measured whole.
    Rest,
    /// Nobody knows.
    Unknown,
}

impl Spread {
    /// Of some round trips; `None` of none.
    pub fn of(frames: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut all: Vec<f64> = frames.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let (least, most) = (*all.first()?, *all.last()?);
        let n = all.len();
        let median = (all[(n - 1) / 2] + all[n / 2]) / 2.0;
        let mean = all.iter().sum::<f64>() / n as f64;
        let squares: f64 = all.iter().map(|x| (x - mean).powi(2)).sum();
        let deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        let cycles = u32::try_from(n).unwrap_or(u32::MAX);
        Some(Spread { cycles, least, median, most, deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_least_median_most() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.5, 10.0));
        assert!((spread.deviation - 4.082_482_904_638_63).abs() < 1e-9);
        assert_eq!(Spread::of([7.0]).unwrap().deviation, 0.0);
        assert_eq!(Spread::of([]), None);
    }
}
