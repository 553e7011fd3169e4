//! What a playing engine tells.

use crate::{Finding, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`Played`] in JSON.
pub const SCHEMA: &str = "quietcores.played/1";

/// What came of one `play`, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Played {
    /// [`SCHEMA`].
    pub schema: String,
    /// The strip that sounded last.
    pub strip: String,
    /// What it played on, in the device's own words.
    pub device: String,
    /// How long it played.
    pub lasted: Nanos,
    /// The counters at the end.
    pub status: PlayStatus,
    /// Xruns with their times, at most the last thousand.
    pub xruns: Vec<XrunAt>,
    /// What hit the playing thread.
    pub hits: Hits,
    /// The strip's worst block as it was measured before it sounded.
    pub admission: Admission,
    /// What was refused or is doubtful.
    pub findings: Vec<Finding>,
}

/// An xrun and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XrunAt {
    /// Since the start.
    pub at: Nanos,
    /// Periods whose sound came too late.
    pub missed: u32,
}

/// How a strip fits into its period: measured before it sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Admission {
    /// Its longest block.
    pub worst: Nanos,
    /// The mean block.
    pub mean: Nanos,
    /// What there is.
    pub period: Nanos,
}

/// The share of a period above which a strip is warned about: what else happens in a period has
/// to fit as well.
pub const TIGHT: f64 = 0.7;

impl Admission {
    /// The worst block's share of the period.
    pub fn share(&self) -> f64 {
        self.worst.0 as f64 / self.period.0.max(1) as f64
    }

    /// Whether it fits at all.
    pub fn fits(&self) -> bool {
        self.share() < 1.0
    }

    /// Whether two such strips fit together, as a crossfade needs.
    pub fn fits_with(&self, other: &Admission) -> bool {
        self.share() + other.share() < TIGHT
    }
}

/// What hit the thread while it played, by its own counters and its CPU's: after minus before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hits {
    /// Context switches, page faults, migrations.
    pub thread: BTreeMap<String, u64>,
    /// Timer interrupts on its CPU; `None` where it had no CPU of its own.
    pub ticks: Option<u64>,
    /// Other interrupts on its CPU, by name.
    pub irqs: BTreeMap<String, u64>,
    /// How often it was taken in band while it played; `None` where the kernel scheduled it, or the EVL core does not count.
    #[serde(default)]
    pub in_band: Option<u64>,
}

/// A moment of a playing engine, as the terminal and the control socket show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlayStatus {
    /// Frames a second.
    pub rate: u32,
    /// Frames a period.
    pub period: u32,
    /// Frames in the card's ring.
    pub buffer: u32,
    /// `never-sleep` or `sleep`.
    pub mode: String,
    /// CPUs that the thread may run on, read back at the start.
    pub cpus: String,
    /// Whether it runs under a real-time policy, read back at the start.
    pub real_time: bool,
    /// Whether it runs inside a shield.
    pub shielded: bool,
    /// Blocks so far.
    pub blocks: u64,
    /// Xruns so far.
    pub xruns: u64,
    /// Periods whose sound came too late.
    pub missed: u64,
    /// Events that found no room to be told.
    pub dropped_events: u64,
    /// Samples that were not finite, and were silenced.
    pub broken: u64,
    /// Times that something was done about a strip which made such samples block after block: its
    /// history forgotten, at last the input heard in its place.
    #[serde(default)]
    pub cured: u64,
    /// Whether the input took the place of a strip that nothing cured, the last time.
    #[serde(default)]
    pub bypassed: bool,
    /// How often the device was gone.
    pub gone: u64,
    /// DSP load.
    pub load: Load,
    /// Longest time between the ends of two blocks.
    pub between: Nanos,
    /// Most frames that waited when a block began.
    pub waiting: u64,
    /// Peaks since the last reading by this reader, dBFS, by channel; below -120 nothing.
    pub levels: Vec<Level>,
    /// Capture frames for each playback frame, where two cards run on two clocks.
    pub ratio: Option<f64>,
}

/// The parameters of the strip that sounds, as the control socket tells them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knobs {
    /// The strip's name.
    #[serde(default)]
    pub strip: String,
    /// In the strip's order.
    #[serde(default)]
    pub params: Vec<Knob>,
}

/// A parameter that can be changed while it sounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knob {
    /// As it is addressed: `drive.gain`.
    pub name: String,
    /// Of the values: `decibel`, `hertz`, `millisecond`, `frame`, `factor`, `lufs`, `cent`, `switch`, `plain`.
    pub unit: String,
    /// Least value.
    pub low: f32,
    /// Greatest value.
    pub high: f32,
    /// The value now.
    pub value: f32,
    /// What the strip's file says; `None` where the engine does not tell.
    #[serde(default)]
    pub default: Option<f32>,
}

impl Knob {
    /// Whether one hears ratios of it, over more than a decade: it is turned along a logarithm.
    pub fn is_logarithmic(&self) -> bool {
        self.low > 0.0 && self.high / self.low > 30.0
    }

    /// Where the value stands in the range, 0 to 1.
    pub fn share(&self) -> f32 {
        let (low, high, value) = match self.is_logarithmic() {
            true => (self.low.ln(), self.high.ln(), self.value.max(self.low).ln()),
            false => (self.low, self.high, self.value),
        };
        ((value - low) / (high - low).max(f32::MIN_POSITIVE)).clamp(0.0, 1.0)
    }

    /// The value at a share of the range, to four digits.
    pub fn at(&self, share: f32) -> f32 {
        let share = f64::from(share.clamp(0.0, 1.0));
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let value = match self.is_logarithmic() {
            true => low * (high / low).powf(share),
            false => low + (high - low) * share,
        };
        if value == 0.0 || share == 0.0 || share == 1.0 {
            return value as f32;
        }
        let finest = 10f64.powi(value.abs().log10().floor() as i32 - 3);
        // No step is finer than a thousandth of a range that is linear.
        let finest = match self.is_logarithmic() {
            true => finest,
            false => finest.max(10f64.powi(((high - low) / 1000.0).log10().floor() as i32)),
        };
        ((value / finest).round() * finest).clamp(low, high) as f32
    }

    /// The value so many steps on: a hundredth of the range each; a switch turns over.
    pub fn stepped(&self, steps: i32) -> f32 {
        match self.unit.as_str() {
            "switch" => f32::from(u8::from(self.value < 0.5)),
            "decibel" if self.high - self.low <= 200.0 => {
                (self.value + 0.5 * steps as f32).clamp(self.low, self.high)
            }
            _ => self.at(self.share() + steps as f32 / 100.0),
        }
    }
}

/// What a stage tells while it sounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoundReading {
    /// `stage.reading`.
    pub name: String,
    /// Of the value, as a [`Knob`] has it.
    pub unit: String,
    /// Now; `None` where it is no number.
    pub value: Option<f32>,
}

/// How a strip is tuned, of a tuner stage's readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Pitch {
    /// Its stage.
    pub stage: String,
    /// `A4`; empty where nothing sounds clearly.
    pub note: String,
    /// Hundredths of a semitone from it.
    pub cents: f32,
    /// Hz.
    pub hertz: f32,
}

impl Pitch {
    /// Of each tuner among the readings.
    pub fn of(readings: &[SoundReading]) -> Vec<Pitch> {
        let read = |stage: &str, what: &str| {
            let name = format!("{stage}.{what}");
            readings.iter().find(|one| one.name == name).and_then(|one| one.value)
        };
        let stages = readings.iter().filter_map(|one| one.name.strip_suffix(".deviation"));
        stages
            .filter_map(|stage| {
                let (hertz, note) = (read(stage, "pitch")?, read(stage, "note")?);
                let cents = read(stage, "deviation")?;
                let sounds = hertz > 0.0 && (0.0..128.0).contains(&note);
                let note = if sounds { note_name(note.round() as u32) } else { String::new() };
                Some(Pitch { stage: stage.to_owned(), note, cents, hertz })
            })
            .collect()
    }
}

/// `A4` for 69.
fn note_name(number: u32) -> String {
    const NAMES: [&str; 12] = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"];
    format!("{}{}", NAMES[(number % 12) as usize], i64::from(number / 12) - 1)
}

/// How a unit of a parameter is written; its name's last resort is none.
pub fn unit_sign(unit: &str) -> &'static str {
    match unit {
        "decibel" => "dB",
        "hertz" => "Hz",
        "millisecond" => "ms",
        "frame" => "frames",
        "factor" => "x",
        "lufs" => "LUFS",
        "cent" => "cents",
        _ => "",
    }
}

/// DSP load: the used share of a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Mean, percent.
    pub mean: f64,
    /// Percent that half of the blocks do not exceed.
    pub p50: usize,
    /// Percent that 99 of 100 blocks do not exceed.
    pub p99: usize,
    /// The worst block.
    pub worst: Nanos,
    /// When it was, since the start.
    pub worst_at: Nanos,
    /// Blocks by percent of the period; the last place holds all beyond. Trailing zeros are left
    /// out.
    pub histogram: Vec<u64>,
}

/// Peaks of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// What comes in, dBFS.
    pub input: f32,
    /// What goes out, dBFS.
    pub output: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knob(unit: &str, low: f32, high: f32, value: f32) -> Knob {
        Knob { name: "a.b".into(), unit: unit.into(), low, high, value, default: Some(value) }
    }

    #[test]
    fn a_knob_is_turned_along_its_range_and_no_further() {
        let gain = knob("decibel", -60.0, 20.0, 0.0);
        assert_eq!(
            (gain.share(), gain.at(0.75), gain.stepped(1), gain.stepped(-2)),
            (0.75, 0.0, 0.5, -1.0)
        );
        assert_eq!((gain.at(-1.0), gain.at(2.0)), (-60.0, 20.0));
        let corner = knob("hertz", 20.0, 20_000.0, 632.5);
        assert!(corner.is_logarithmic() && (corner.share() - 0.5).abs() < 1e-3);
        assert_eq!(corner.at(0.5), 632.5);
        let treble = knob("plain", 0.0, 1.0, 0.6);
        assert_eq!((treble.at(0.6), treble.stepped(1)), (0.6, 0.61));
        assert_eq!(knob("switch", 0.0, 1.0, 1.0).stepped(1), 0.0);
        assert_eq!(knob("switch", 0.0, 1.0, 0.0).stepped(-1), 1.0);
        for unit in ["decibel", "hertz", "plain"] {
            let one = knob(unit, 1.0, 1.0, 1.0);
            assert!(one.at(0.5) == 1.0 && one.share().is_finite());
        }
    }

    #[test]
    fn a_tuners_readings_are_a_note() {
        let read = |name: &str, value: f32| SoundReading {
            name: format!("tuner.{name}"),
            unit: String::new(),
            value: Some(value),
        };
        let readings = [
            read("pitch", 82.0),
            read("note", 40.0),
            read("deviation", -8.5),
            read("clarity", 0.9),
        ];
        let pitches = Pitch::of(&readings);
        assert_eq!(pitches.len(), 1);
        assert_eq!((pitches[0].note.as_str(), pitches[0].cents), ("E2", -8.5));
        let silent = [read("pitch", 0.0), read("note", 0.0), read("deviation", 0.0)];
        assert_eq!(Pitch::of(&silent)[0].note, "");
        assert_eq!([note_name(0), note_name(60), note_name(69)], ["C-1", "C4", "A4"]);
    }
}
