//! What a machine does now: the one stream that the terminal's screen, the pages and scripts read.

use crate::{
    CpuId, CpuSet, Nanos,
    plan::{Drift, Resident, ShieldStanding},
    play::{PlayStatus, SoundReading, XrunAt},
    printable,
    shield::Mechanism,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of [`Moment`].
pub const LIVE_SCHEMA: &str = "quietcores.live/1";

/// Most occupants that a moment names of one CPU.
pub const MOST_OCCUPANTS: usize = 8;
/// Most events, lines of drift, residents and playing engines of a moment, each.
pub const MOST_NAMED: usize = 16;

/// The machine at one moment, and what was counted since the one before. Everything in it is bounded; names are fit for a terminal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// [`LIVE_SCHEMA`].
    pub schema: String,
    /// Rises by one; a gap means that the reader was slower than the stream.
    pub number: u64,
    /// When, UTC, RFC 3339.
    pub at: String,
    /// Since the counters were read before; 0 in the first moment, which has counted nothing yet.
    pub since: Nanos,
    /// Whether the machine is quiet, in one sentence.
    pub quiet: Quiet,
    /// The shield; `None` where it cannot be seen, and `unread` says why.
    pub shield: Option<LiveShield>,
    /// Every CPU that is there, by number.
    pub cpus: Vec<LiveCpu>,
    /// How far the list of occupants is behind: threads are looked through at a pace that their number decides.
    pub look: ThreadLook,
    /// Engines that play here, as this user.
    pub sounds: Vec<LiveSound>,
    /// Probes of this user that measure, wherever they were started.
    #[serde(default)]
    pub probes: Vec<LiveProbe>,
    /// The warmest place, thousandths of a degree Celsius; `None` where none may be read without disturbing a shielded CPU.
    pub temperature: Option<i64>,
    /// What happened since the moment before, oldest first.
    pub events: Vec<LiveEvent>,
    /// What could not be read, each with the reason.
    pub unread: Vec<String>,
    /// What the stream itself used of one CPU since it began, as a share; 0.01 is one percent.
    pub cost: f64,
}

/// The answer to the first question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quiet {
    /// In one word.
    pub state: QuietState,
    /// In one sentence.
    pub sentence: String,
    /// What is wrong, each in a sentence; the first one stands in `sentence` too.
    pub wrong: Vec<String>,
}

/// Whether the machine is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuietState {
    /// A shield is up, as it was made, and nothing foreign ran on it.
    Quiet,
    /// A shield is up, and something is wrong with it or ran on it.
    Disturbed,
    /// No shield is up.
    Open,
    /// A shield is up, and its CPUs are lent to everybody.
    Lent,
    /// It cannot be seen.
    Unknown,
}

/// The shield in short; `quietcores status` says all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LiveShield {
    /// Whether one is up.
    pub state: ShieldStanding,
    /// CPUs taken from the kernel's balancing.
    pub cpus: CpuSet,
    /// CPUs left to everybody else.
    pub housekeeping: CpuSet,
    /// How others are kept off.
    pub mechanism: Option<Mechanism>,
    /// Since when, UTC.
    pub since: Option<String>,
    /// Who put it up, in words.
    pub by: Option<String>,
    /// What is not as it was made.
    pub drift: Vec<Drift>,
    /// What runs on it that is not the chain's.
    pub intruders: Vec<Resident>,
    /// What of the chain is not where it should be, in words.
    pub astray: Vec<String>,
    /// Seconds in which it is put back unless it is confirmed.
    pub confirm: Option<u64>,
    /// Whether somebody counts them.
    pub guarded: bool,
    /// Seconds for which its CPUs are everybody's.
    pub lent: Option<u64>,
}

/// One CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveCpu {
    /// Which.
    pub id: CpuId,
    /// Physical core within the package.
    pub core: Option<u32>,
    /// Package.
    pub package: Option<u32>,
    /// The last-level cache's CPUs: the cluster on the map.
    pub cluster: CpuSet,
    /// Whether it runs.
    pub online: bool,
    /// Whether it belongs to a shield that is up.
    pub shielded: bool,
    /// Share of the time that it did not idle, 0 to 1; `None` in the first moment, and where it went off line meanwhile.
    pub busy: Option<f64>,
    /// Share that the host of a virtual machine took.
    pub stolen: Option<f64>,
    /// Its clock. Never asked of a shielded CPU: the answer may cost it an interrupt.
    pub khz: Option<u64>,
    /// Interrupts of devices since the moment before.
    pub device_interrupts: u64,
    /// Timer interrupts.
    pub ticks: u64,
    /// Interrupts that another CPU sent: reschedules, calls, TLB shoot-downs.
    pub from_others: u64,
    /// Who was there, the longest first, interrupts and softirqs behind the threads.
    pub occupants: Vec<Occupant>,
    /// Occupants that are not named.
    pub more: u32,
}

/// Who was on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Occupant {
    /// What it is.
    pub kind: OccupantKind,
    /// Its name.
    pub name: String,
    /// Thread or interrupt; `None` for softirqs and a CPU's own vectors.
    pub number: Option<u32>,
    /// For how long a thread ran, since threads were looked through before. All of it is put down to the CPU where it ran last.
    pub ran: Option<Nanos>,
    /// How often: turns of a thread, interrupts, softirqs.
    pub times: u64,
    /// Whether it belongs there: of the chain, of the engine, or bound to the CPU by the kernel. On CPUs without a shield all do.
    pub foreign: bool,
}

/// Kinds of occupants.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OccupantKind {
    /// A thread of a program.
    Thread,
    /// A thread of the kernel.
    Kernel,
    /// An interrupt of a device.
    Irq,
    /// One that every CPU has for itself.
    Vector,
    /// Deferred work of interrupts.
    Softirq,
}

/// How threads were looked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadLook {
    /// The moment of the last look.
    pub number: u64,
    /// Between the last two looks.
    pub since: Nanos,
    /// How long it took.
    pub took: Nanos,
    /// Threads seen.
    pub threads: u32,
    /// Whether there were more than are looked at.
    pub cut: bool,
}

/// An engine that plays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveSound {
    /// The control socket's name: `play.sock`.
    pub name: String,
    /// The strip.
    pub strip: String,
    /// Whether the input is let through in place of the strip.
    pub bypass: bool,
    /// Whether it was silenced.
    pub mute: bool,
    /// How it goes.
    pub status: PlayStatus,
    /// The same in a line.
    #[serde(default)]
    pub told: String,
    /// The newest xruns.
    pub last_xruns: Vec<XrunAt>,
    /// What stages of the strip tell while it sounds: a tuner's pitch, a compressor's reduction.
    #[serde(default)]
    pub readings: Vec<SoundReading>,
    /// Periods that went wrong since the moment before.
    pub late: u64,
}

/// Columns of a [`LiveProbe`]'s histogram.
pub const PROBE_BARS: usize = 80;

/// A probe that measures: what it has counted so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LiveProbe {
    /// The socket at which it is told: `probe-PID.sock`.
    pub name: String,
    /// `wakeup` or `gap`.
    pub probe: String,
    /// As it was named, or nothing.
    pub label: String,
    /// The measured CPUs.
    pub cpus: CpuSet,
    /// So long it has measured.
    pub elapsed: Nanos,
    /// Of so much.
    pub length: Nanos,
    /// Readings taken.
    pub obtained: u64,
    /// Periods that passed while the thread did not run; of a gap probe none are expected.
    pub missed: u64,
    /// Readings above the threshold.
    pub beyond: u64,
    /// The threshold.
    pub threshold: Nanos,
    /// Half of the readings are no longer; missed periods are within.
    pub p50: Option<Nanos>,
    /// 99 of 100 are no longer.
    pub p99: Option<Nanos>,
    /// The longest.
    pub max: Option<Nanos>,
    /// Readings by length, ten columns a decade: the first one begins at 10 ns and holds what is shorter as well, the last one all from
    /// 0.8 s on.
    #[schemars(length(max = 80))]
    pub bars: Vec<u64>,
    /// Periods missed, or gaps beyond the threshold, since the moment before.
    pub late: u64,
    /// The same in a line.
    pub told: String,
}

/// What a face asks of a playing engine over its control socket: nothing that names a file, and not its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum SoundWish {
    /// The parameters of the strip and their values.
    Params {},
    /// Change a parameter.
    Set {
        /// The parameter.
        param: String,
        /// Its new value.
        value: f32,
    },
    /// Let the input through in place of the strip, or not.
    Bypass {
        /// Or back.
        on: bool,
    },
    /// Silence, or not.
    Mute {
        /// Or back.
        on: bool,
    },
    /// The names of the presets.
    Presets {},
    /// Keep strip and parameters under a name.
    Save {
        /// Letters, digits, `-`, `_` and spaces.
        preset: String,
    },
    /// Call a preset.
    Load {
        /// Its name.
        preset: String,
    },
    /// The names of the strips in the folder of the one that sounds.
    Strips {},
    /// Put another strip of that folder in the place of the one that sounds.
    Strip {
        /// Its name, without `.toml`.
        name: String,
    },
}

impl SoundWish {
    /// In a word or two.
    pub fn word(&self) -> &'static str {
        match self {
            SoundWish::Params {} => "parameters",
            SoundWish::Set { .. } => "set",
            SoundWish::Bypass { .. } => "bypass",
            SoundWish::Mute { .. } => "mute",
            SoundWish::Presets {} | SoundWish::Save { .. } | SoundWish::Load { .. } => "presets",
            SoundWish::Strips {} | SoundWish::Strip { .. } => "strips",
        }
    }
}

/// Long work that a face may start: a verb of the command line, and what it is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobWish {
    /// The verb, as `measure wakeup`.
    pub verb: String,
    /// Its arguments by name: text, numbers, `true`, or a list of them.
    #[serde(default, rename = "with")]
    pub given: BTreeMap<String, Value>,
}

impl JobWish {
    /// In words.
    pub fn what(&self) -> String {
        let given = self.given.iter().map(|(name, value)| match value {
            Value::Bool(true) => format!(", {name}"),
            value => format!(", {name} {}", given_text(value)),
        });
        printable(&format!("{}{}", self.verb, given.collect::<String>()), 300)
    }

    /// How long it is to take, where that is asked for.
    pub fn seconds(&self) -> Option<u64> {
        let length: Nanos = given_text(self.given.get("for")?).parse().ok()?;
        Some(length.0 / 1_000_000_000)
    }
}

/// What was given as the command line takes it: a list is joined by commas.
pub fn given_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(given_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Long work that a face has started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveJob {
    /// Its number.
    pub id: u64,
    /// What was asked.
    pub wish: JobWish,
    /// The same in words.
    pub what: String,
    /// How it stands.
    pub state: JobState,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Seconds since then; of one that is over, until its end.
    pub elapsed: u64,
    /// Seconds that it is to measure, where that was asked for; what goes around it takes longer.
    pub length: Option<u64>,
    /// What it said on its way, the newest last, 50 lines at most.
    pub said: Vec<String>,
    /// The id of what was kept: see `runs/{id}`.
    pub result: Option<String>,
    /// Nothing was kept under an id; what it printed is at `jobs/{id}/result`.
    pub printed: bool,
    /// Rises with every change.
    pub version: u64,
}

/// How a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It runs.
    #[default]
    Running,
    /// It was told to end, and has not yet.
    Ending,
    /// It is done.
    Done,
    /// It ended early because it was told to.
    Ended,
    /// It failed; what it said last is why.
    Failed,
}

impl JobState {
    /// Whether it is not over.
    pub fn is_running(self) -> bool {
        matches!(self, JobState::Running | JobState::Ending)
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Running => "running",
            JobState::Ending => "ending",
            JobState::Done => "done",
            JobState::Ended => "ended",
            JobState::Failed => "failed",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LiveEvent {
    /// When it was seen, UTC, RFC 3339.
    pub at: String,
    /// What.
    pub kind: LiveEventKind,
    /// In words.
    pub said: String,
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LiveEventKind {
    /// A shield was put up.
    Applied,
    /// It stays.
    Confirmed,
    /// It was put back.
    Reverted,
    /// Something is not as it was made any more.
    Drifted,
    /// It is as it was made again.
    Mended,
    /// Its CPUs are everybody's.
    Lent,
    /// They are its own again.
    TakenBack,
    /// Somebody ran on a shielded CPU who does not belong there.
    Intruder,
    /// A period of an engine came late.
    Late,
    /// A CPU came or went.
    Cpu,
    /// An engine began or ended to play.
    Sound,
}

impl LiveEventKind {
    /// Whether it is bad news.
    pub fn is_bad(self) -> bool {
        use LiveEventKind::{Drifted, Intruder, Late};
        matches!(self, Drifted | Intruder | Late)
    }
}

/// Where the memory of a stream ends.
pub const MOST_EVENTS: usize = 200;

/// What is done from a face when somebody asks for it, in its answer's words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deed {
    /// What was asked.
    pub asked: String,
    /// Whether it was done in full.
    pub done: bool,
    /// What came of it, in words.
    pub said: String,
}

/// Version of [`Serving`].
pub const SERVING_SCHEMA: &str = "quietcores.serving/1";

/// Where pages are served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Serving {
    /// [`SERVING_SCHEMA`].
    pub schema: String,
    /// The address of the first page.
    pub address: String,
    /// Lets in who gives it: `?token=` once in a browser, `Authorization: Bearer` in a script.
    pub token: String,
}

impl Serving {
    /// At `address`, for whoever has `token`.
    pub fn new(address: &str, token: &str) -> Serving {
        let (address, token) = (address.to_owned(), token.to_owned());
        Serving { schema: SERVING_SCHEMA.into(), address, token }
    }
}
