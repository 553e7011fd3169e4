//! Engines that play, asked over their control sockets.

use crate::clean::clean;
use quiet_types::{
    live::{LiveSound, MOST_NAMED},
    play::{PlayStatus, XrunAt},
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
/// A swap or a preset is made ready before it is answered.
const PATIENCE_FOR_ACTS: Duration = Duration::from_secs(20);
/// One that did not answer is left alone for so long.
const REST: Duration = Duration::from_secs(3);
/// The longest answer.
const LONGEST: usize = 256 << 10;
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
}

struct Line {
    stream: UnixStream,
    pid: u32,
    bad: u64,
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
        let names = sockets(&dir);
        self.lines.retain(|name, _| names.contains(name));
        self.resting.retain(|name, until| names.contains(name) && Instant::now() < *until);
        let mut found = Vec::new();
        for name in names {
            if self.resting.contains_key(&name) {
                continue;
            }
            match self.one(&dir, &name) {
                Ok(sound) => found.push(sound),
                Err(_) => {
                    // Nobody may listen there any more.
                    self.lines.remove(&name);
                    self.resting.insert(name, Instant::now() + REST);
                }
            }
        }
        found
    }

    /// Processes of those that play.
    pub fn processes(&self) -> BTreeSet<u32> {
        self.lines.values().map(|line| line.pid).collect()
    }

    fn one(&mut self, dir: &Path, name: &str) -> io::Result<LiveSound> {
        let is_new = !self.lines.contains_key(name);
        if is_new {
            let stream = open(&dir.join(name), PATIENCE)?;
            let pid = socket_peercred(&stream).map(|who| who.pid.as_raw_nonzero().get())?;
            let pid = u32::try_from(pid).unwrap_or_default();
            self.lines.insert(name.to_owned(), Line { stream, pid, bad: 0 });
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
            status,
            last_xruns: stats.last_xruns.into_iter().take(MOST_NAMED).collect(),
            late,
        })
    }
}

/// Names of control sockets, which `play` calls `play.sock` or `play-PID.sock`.
fn sockets(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let mut names: Vec<String> = entries
        .flatten()
        .take(1000)
        .filter(is_socket)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_control(name))
        .collect();
    names.sort_unstable();
    names.truncate(MOST);
    names
}

fn is_control(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("play").and_then(|rest| rest.strip_suffix(".sock")) else {
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
