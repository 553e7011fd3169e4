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
