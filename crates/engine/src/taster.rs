//! A strip that is to be swapped in is tried by another process first: one that makes its reader break off, hang or eat memory does so
//! there, and what sounds goes on.
//!
//! Two processes: the taster, which is started before this one goes behind its walls and understands nothing of what it is sent; and for
//! each strip one of its own, behind walls, which reads the strip, runs some blocks through it, and ends.

use crate::{Error, ErrorKind, Result, Shelf, Strips, WantedStrip};
use quiet_dsp::{Block, ProcessSpec};
use quiet_linux::{
    rights::{self, Less, RunAs},
    walls::{Use, Walls, refuse_calls},
};
use quiet_types::{Frames, SampleRate};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// A strip that takes longer to be read and prepared is refused: no stage waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory that one strip may take.
const MOST_MEMORY: u64 = 4 << 30;
/// Longest order, and longest answer.
const LONGEST: u64 = 4 << 20;
/// So much of it is run.
const BLOCKS: usize = 16;
const READY: &str = "ready\n";

/// What is to be tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StripTrial {
    pub(crate) strips: Strips,
    pub(crate) wanted: WantedStrip,
    /// Frames a second.
    pub(crate) rate: u32,
    pub(crate) channels: usize,
    pub(crate) block: u32,
    /// What may be read: nothing else is.
    pub(crate) read: Vec<PathBuf>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Taste {
    Good,
    Refused(String),
}

/// The process that has strips tried.
#[derive(Debug)]
pub struct Taster {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Taster {
    /// Starts `PROGRAM taster`, which calls [`supervise`]; it gives up what `less` says, and stands when this returns. To be called before
    /// this process may start no other any more.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, less: Option<&Less>) -> Result<Taster> {
        let failed = |e: io::Error| {
            let sentence = format!("cannot start the process that tries strips: {e}");
            Error::of(ErrorKind::Machine, sentence).because(e)
        };
        let mut command = Command::new(program);
        command.arg("taster");
        match less {
            Some(Less::User(user)) => drop(command.arg("--as").arg(shown(user))),
            Some(Less::Capabilities) => drop(command.arg("--powerless")),
            None => {}
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let mut output = BufReader::new(output);
        let mut ready = String::new();
        Read::take(&mut output, 16).read_line(&mut ready).map_err(failed)?;
        let taster = Taster { child, input: Some(input), output };
        if ready != READY {
            return Err(failed(io::Error::other("it ended at once")));
        }
        Ok(taster)
    }

    /// Has a strip tried. Not to be called in real time: it takes as long as reading the strip, and a minute at most.
    ///
    /// # Errors
    /// [`ErrorKind::Strip`] where it is no strip, or whoever read it broke off; [`ErrorKind::Machine`] where nobody tries any more.
    pub fn taste(&mut self, trial: &StripTrial) -> Result<()> {
        let failed = |e: io::Error| {
            let sentence = format!("the process that tries strips is gone: {e}");
            Error::of(ErrorKind::Machine, sentence).because(e)
        };
        let mut order = serde_json::to_vec(trial).map_err(|e| failed(e.into()))?;
        order.push(b'\n');
        let input = self.input.as_mut().ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        input.write_all(&order).map_err(failed)?;
        let mut answer = String::new();
        Read::take(&mut self.output, LONGEST).read_line(&mut answer).map_err(failed)?;
        match serde_json::from_str(&answer).map_err(|e| failed(e.into()))? {
            Taste::Good => Ok(()),
            Taste::Refused(why) => Err(Error::of(ErrorKind::Strip, why)),
        }
    }
}

impl Drop for Taster {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may have a strip in hand.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `1000:1000:29,1000`.
fn shown(user: &RunAs) -> String {
    let groups: Vec<String> = user.groups.iter().map(ToString::to_string).collect();
    format!("{}:{}:{}", user.uid, user.gid, groups.join(","))
}

/// What [`Taster::start`] writes after `--as`.
///
/// # Errors
/// A sentence, where it is nothing of the kind.
pub fn run_as(text: &str) -> Result<RunAs> {
    let none = || Error::new("`taster` is started by `play`, with UID:GID:GROUP,...");
    let number = |text: &str| text.parse::<u32>().map_err(|_| none());
    let [uid, gid, groups] = text.split(':').collect::<Vec<_>>()[..] else { return Err(none()) };
    let groups = groups.split(',').filter(|one| !one.is_empty()).map(number);
    Ok(RunAs {
        uid: number(uid)?,
        gid: number(gid)?,
        groups: groups.collect::<Result<_>>()?,
        name: uid.to_owned(),
    })
}

/// What the taster does: hands each order on standard input to a `PROGRAM taster --once`, and its answer on; it reads neither.
///
/// # Errors
/// When the rights cannot be given up, or nobody takes an answer.
pub fn supervise(program: &Path, less: Option<&Less>) -> Result<()> {
    let failed = |e: io::Error| Error::of(ErrorKind::Machine, e.to_string()).because(e);
    rights::no_new().map_err(failed)?;
    if let Some(less) = less {
        less.give_up()?;
    }
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    output.write_all(READY.as_bytes()).and_then(|()| output.flush()).map_err(failed)?;
    loop {
        let mut order = Vec::new();
        Read::take(&mut input, LONGEST).read_until(b'\n', &mut order).map_err(failed)?;
        if order.is_empty() {
            return Ok(());
        }
        let mut answer = once(program, &order).unwrap_or_else(|why| {
            let why = format!("whoever tried this strip first {why}; it is not swapped in");
            serde_json::to_vec(&Taste::Refused(why)).unwrap_or_default()
        });
        answer.push(b'\n');
        output.write_all(&answer).and_then(|()| output.flush()).map_err(failed)?;
    }
}

/// The answer to one order, or what became of the process that was to give it.
fn once(program: &Path, order: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let failed = |e: io::Error| format!("could not begin ({e})");
    let mut child = Command::new(program)
        .args(["taster", "--once"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // One that ended early does not read it all.
        let _ = input.write_all(order);
    }
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => sleep(Duration::from_millis(2)),
            ended => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match ended {
                    Err(e) => failed(e),
                    Ok(_) => format!("was not done within {} s", PATIENCE.as_secs()),
                });
            }
        }
    };
    if !status.success() {
        return Err(format!("broke off ({status})"));
    }
    // It fits into the pipe, or the process would have waited.
    let mut answer = Vec::new();
    let output = child.stdout.take().ok_or("gave no answer")?;
    output.take(LONGEST).read_to_end(&mut answer).map_err(failed)?;
    match answer.is_empty() || answer.contains(&b'\n') {
        true => Err("gave no answer".into()),
        false => Ok(answer),
    }
}

/// What the process for one strip does: goes behind its walls, reads the order on standard input, prepares the strip, runs some blocks
/// through it, and answers on standard output.
///
/// # Errors
/// When standard input has no order. A strip that is none is an answer.
pub fn taste_once() -> Result<()> {
    let failed = |e: io::Error| Error::of(ErrorKind::Machine, e.to_string()).because(e);
    let mut order = Vec::new();
    Read::take(io::stdin().lock(), LONGEST).read_to_end(&mut order).map_err(failed)?;
    let trial: StripTrial =
        serde_json::from_slice(&order).map_err(|e| Error::new(e.to_string()).because(e))?;
    for (what, most) in [
        (Resource::As, MOST_MEMORY),
        (Resource::Cpu, PATIENCE.as_secs()),
        (Resource::Core, 0),
        // It writes nothing but its answer, into a pipe.
        (Resource::Fsize, 0),
    ] {
        let _ = setrlimit(what, Rlimit { current: Some(most), maximum: Some(most) });
    }
    let _ = rustix::process::nice(10);
    rights::no_new().map_err(failed)?;
    let walls = Walls::bare();
    for place in &trial.read {
        let _ = walls.allow(place, Use::Read);
    }
    // Where the kernel has none of these, another process is what is left.
    let _ = (refuse_calls(), walls.close());
    let answer = match tried(trial) {
        Ok(()) => Taste::Good,
        Err(error) => Taste::Refused(quiet_types::printable(&error.to_string(), 4000)),
    };
    let answer = serde_json::to_vec(&answer).map_err(|e| failed(e.into()))?;
    let mut out = io::stdout().lock();
    out.write_all(&answer).and_then(|()| out.flush()).map_err(failed)
}

fn tried(trial: StripTrial) -> Result<()> {
    let StripTrial { mut strips, wanted, rate, channels, block, .. } = trial;
    let nonsense = || Error::new("the order names no rate, no channels or no block");
    if rate == 0 || channels == 0 || channels > 1024 || block == 0 || block > 1 << 20 {
        return Err(nonsense());
    }
    let setting = ProcessSpec { rate: SampleRate(rate), channels, block: Frames(block) };
    let mut strip = strips.load(&wanted, setting)?.strip;
    let mut samples = vec![0.0; channels * block as usize];
    for turn in 0..BLOCKS {
        // A click, and what comes after it.
        samples.fill(if turn == 0 { 0.5 } else { 0.0 });
        strip.process(&mut Block::new(&mut samples, channels));
    }
    Ok(())
}

impl StripTrial {
    /// That `wanted` is loaded from `strips` for `setting`, with nothing read but what is in the folders `read`.
    pub fn new(
        strips: &Strips,
        wanted: &WantedStrip,
        setting: ProcessSpec,
        read: &[PathBuf],
    ) -> StripTrial {
        StripTrial {
            strips: strips.clone(),
            wanted: wanted.clone(),
            rate: setting.rate.0,
            channels: setting.channels,
            block: setting.block.0,
            read: read.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_written_and_read() {
        let user = RunAs { uid: 1000, gid: 100, groups: vec![29, 100], name: "1000".into() };
        assert_eq!(run_as(&shown(&user)).unwrap(), user);
        let alone = RunAs { groups: Vec::new(), ..user };
        assert_eq!(run_as(&shown(&alone)).unwrap(), alone);
        for wrong in ["", "1000", "1000:100", "1000:100:x", "-1:0:", "1:2:3:4"] {
            assert!(run_as(wrong).is_err(), "{wrong}");
        }
    }
}
