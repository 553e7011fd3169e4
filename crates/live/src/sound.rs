//! Engines that play, asked over their control sockets.

use crate::clean::clean;
use quiet_types::{
    live::{Deed, LiveSound, MOST_NAMED, SoundWish},
    play::{Knobs, PlayStatus, SoundReading, XrunAt},
};
use rustix::net::sockopt::socket_peercred;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// So long an engine has for an answer: its control thread answers within milliseconds.
const PATIENCE: Duration = Duration::from_millis(150);
/// A swap is tried and made ready before it is answered: a minute at most.
const PATIENCE_FOR_ACTS: Duration = Duration::from_secs(75);
/// One that did not answer is left alone for so long.
const REST: Duration = Duration::from_secs(3);
/// One that has something else in hand, such as a swap, is shown as it was for so long: a strip may take a minute to be tried.
const BUSY: Duration = Duration::from_secs(70);
/// Most readings of an engine's stages.
const MOST_READINGS: usize = 64;
/// The longest answer.
const LONGEST: usize = 256 << 10;
/// Most parameters of a strip that are shown.
const MOST_KNOBS: usize = 512;
/// Most engines.
const MOST: usize = 4;

/// Why an engine was not asked, or did not do it.
#[derive(Debug)]
pub enum ControlError {
    /// There is none of that name.
    Absent(String),
    /// It does not answer.
    Silent(io::Error),
    /// Its own sentence.
    Said(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Absent(name) => write!(f, "no engine plays under the name `{name}`"),
            ControlError::Silent(error) => write!(f, "the engine does not answer: {error}"),
            ControlError::Said(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for ControlError {}

/// The answer to `stats`, as far as it is shown.
#[derive(Deserialize)]
struct Stats {
    #[serde(flatten)]
    status: PlayStatus,
    #[serde(default)]
    strip: String,
    #[serde(default)]
    bypass: bool,
    #[serde(default)]
    mute: bool,
    #[serde(default)]
    last_xruns: Vec<XrunAt>,
    #[serde(default)]
    readings: Vec<SoundReading>,
}

struct Line {
    stream: UnixStream,
    pid: u32,
    bad: u64,
    /// As it answered last, and when.
    last: Option<(Instant, LiveSound)>,
}

/// The engines of this user.
pub struct Engines {
    dir: Option<PathBuf>,
    lines: BTreeMap<String, Line>,
    resting: BTreeMap<String, Instant>,
}

impl fmt::Debug for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engines").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Engines {
    /// Those whose control sockets lie in `dir`, a private directory of this user's.
    pub fn at(dir: Option<PathBuf>) -> Engines {
        Engines { dir, lines: BTreeMap::new(), resting: BTreeMap::new() }
    }

    /// How they go.
    pub fn look(&mut self) -> Vec<LiveSound> {
        let Some(dir) = self.dir.clone() else { return Vec::new() };
        let names = numbered_sockets(&dir, "play", MOST);
        self.lines.retain(|name, _| names.contains(name));
        self.resting.retain(|name, until| names.contains(name) && Instant::now() < *until);
        let mut found = Vec::new();
        for name in names {
            if self.resting.contains_key(&name) {
                continue;
            }
            match self.one(&dir, &name) {
                Ok(sound) => {
                    if let Some(line) = self.lines.get_mut(&name) {
                        line.last = Some((Instant::now(), sound.clone()));
                    }
                    found.push(sound);
                }
                Err(error) => found.extend(self.silent(&dir, name, error.kind())),
            }
        }
        found
    }

    /// Processes of those that play.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.lines.values().map(|line| line.pid).collect()
    }

    /// One that did not answer: where it is only slow it is shown as it was, and asked anew by another line.
    fn silent(&mut self, dir: &Path, name: String, why: io::ErrorKind) -> Option<LiveSound> {
        let line = self.lines.get_mut(&name);
        let known = line.and_then(|line| Some((line.last.clone()?, &mut line.stream)));
        if let (io::ErrorKind::TimedOut, Some(((at, last), stream))) = (why, known)
            && at.elapsed() < BUSY
            && let Ok(fresh) = open(&dir.join(&name), PATIENCE)
        {
            // The answer that comes late goes with the old line.
            *stream = fresh;
            return Some(LiveSound { late: 0, ..last });
        }
        // Nobody may listen there any more.
        self.lines.remove(&name);
        self.resting.insert(name, Instant::now() + REST);
        None
    }

    fn one(&mut self, dir: &Path, name: &str) -> io::Result<LiveSound> {
        let is_new = !self.lines.contains_key(name);
        if is_new {
            let stream = open(&dir.join(name), PATIENCE)?;
            let pid = socket_peercred(&stream).map(|who| who.pid.as_raw_nonzero().get())?;
            let pid = u32::try_from(pid).unwrap_or_default();
            self.lines.insert(name.to_owned(), Line { stream, pid, bad: 0, last: None });
        }
        let Some(line) = self.lines.get_mut(name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let answer = exchange(&mut line.stream, &json!({"do": "stats"}), PATIENCE)?;
        let stats: Stats = serde_json::from_value(answer)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        let bad = stats.status.missed.saturating_add(stats.status.xruns);
        // What went wrong before one looked is no news.
        let late = if is_new { 0 } else { bad.saturating_sub(line.bad) };
        line.bad = bad;
        let mut status = stats.status;
        status.load.histogram.truncate(512);
        status.levels.truncate(64);
        Ok(LiveSound {
            name: clean(name, 64),
            strip: clean(&stats.strip, 64),
            bypass: stats.bypass,
            mute: stats.mute,
            told: sound_told(&status),
            status,
            last_xruns: stats.last_xruns.into_iter().take(MOST_NAMED).collect(),
            readings: stats.readings.into_iter().take(MOST_READINGS).map(readable).collect(),
            late,
        })
    }
}

fn readable(one: SoundReading) -> SoundReading {
    SoundReading { name: clean(&one.name, 64), unit: clean(&one.unit, 16), ..one }
}

/// How an engine goes, in a line.
pub fn sound_told(status: &PlayStatus) -> String {
    format!(
        "CPU {}, {} Hz/{}, DSP load {:.0} %, worst {}, late {}, xruns {}",
        status.cpus,
        status.rate,
        status.period,
        status.load.mean,
        status.load.worst,
        status.missed,
        status.xruns
    )
}

/// Names of sockets that are called `KIND.sock` or `KIND-PID.sock`.
pub(crate) fn numbered_sockets(dir: &Path, kind: &str, most: usize) -> Vec<String> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let mut names: Vec<String> = entries
        .flatten()
        .take(1000)
        .filter(is_socket)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_numbered(name, kind))
        .collect();
    names.sort_unstable();
    names.truncate(most);
    names
}

/// Those of engines, which `play` makes.
fn is_control(name: &str) -> bool {
    is_numbered(name, "play")
}

fn is_numbered(name: &str, kind: &str) -> bool {
    let Some(rest) = name.strip_prefix(kind).and_then(|rest| rest.strip_suffix(".sock")) else {
        return false;
    };
    rest.is_empty()
        || rest.strip_prefix('-').is_some_and(|pid| {
            !pid.is_empty() && pid.len() <= 10 && pid.bytes().all(|b| b.is_ascii_digit())
        })
}

/// Has the engine of that name do something: one of its control socket's own requests. Its answer.
///
/// # Errors
/// When there is no such engine, it does not answer, or it refuses.
pub fn ask(dir: &Path, name: &str, request: &Value) -> Result<Value, ControlError> {
    if !is_control(name) {
        return Err(ControlError::Absent(clean(name, 64)));
    }
    let mut stream = match open(&dir.join(name), PATIENCE_FOR_ACTS) {
        Ok(stream) => stream,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(ControlError::Absent(clean(name, 64)));
        }
        Err(e) => return Err(ControlError::Silent(e)),
    };
    let answer = exchange(&mut stream, request, PATIENCE_FOR_ACTS).map_err(ControlError::Silent)?;
    match answer.get("error").and_then(Value::as_str) {
        Some(sentence) => Err(ControlError::Said(clean(sentence, 500))),
        None => Ok(answer),
    }
}

/// The same for what faces ask for.
///
/// # Errors
/// As for [`ask`].
pub fn wish(dir: &Path, name: &str, wish: &SoundWish) -> Result<Value, ControlError> {
    let request = serde_json::to_value(wish);
    let request = request.map_err(|e| ControlError::Silent(io::Error::other(e)))?;
    ask(dir, name, &request)
}

/// The same as a deed, in words.
///
/// # Errors
/// As for [`ask`].
pub fn wished(dir: &Path, name: &str, asked: &SoundWish) -> Result<Deed, ControlError> {
    let answer = wish(dir, name, asked)?;
    let on = |on: bool| if on { "on" } else { "off" };
    let said = match asked {
        SoundWish::Bypass { on: is } => format!("bypass {}", on(*is)),
        SoundWish::Mute { on: is } => format!("mute {}", on(*is)),
        SoundWish::Set { param, value } => format!("{} {value}", clean(param, 64)),
        SoundWish::Save { preset } => format!("kept as {}", clean(preset, 64)),
        SoundWish::Load { preset } => format!("{} is called", clean(preset, 64)),
        SoundWish::Strip { .. } => swapped(&answer),
        SoundWish::Params {} | SoundWish::Presets {} | SoundWish::Strips {} => String::new(),
    };
    Ok(Deed { asked: asked.word().into(), done: true, said })
}

/// What a swap came to, in words.
pub fn swapped(answer: &Value) -> String {
    let strip = clean(answer["strip"].as_str().unwrap_or("the strip"), 64);
    let share = answer["share"].as_f64().unwrap_or_default() * 100.0;
    format!("{strip} sounds with it; its worst block takes {share:.0} % of a period")
}

/// The parameters of the strip that sounds.
///
/// # Errors
/// As for [`ask`].
pub fn knobs(dir: &Path, name: &str) -> Result<Knobs, ControlError> {
    let answer = ask(dir, name, &json!({"do": "params"}))?;
    let mut knobs: Knobs = serde_json::from_value(answer)
        .map_err(|e| ControlError::Silent(io::Error::new(io::ErrorKind::InvalidData, e)))?;
    knobs.params.truncate(MOST_KNOBS);
    knobs.strip = clean(&knobs.strip, 64);
    for knob in &mut knobs.params {
        // One of such a name is shown, and cannot be turned.
        (knob.name, knob.unit) = (clean(&knob.name, 128), clean(&knob.unit, 16));
    }
    Ok(knobs)
}

fn open(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

fn exchange(stream: &mut UnixStream, request: &Value, patience: Duration) -> io::Result<Value> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let until = Instant::now() + patience;
    let (mut got, mut buffer) = (Vec::new(), [0u8; 16 << 10]);
    loop {
        if let Some(end) = got.iter().position(|b| *b == b'\n') {
            return Ok(serde_json::from_slice(&got[..end])?);
        }
        if got.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer has no end"));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => got.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        }
    }
}
