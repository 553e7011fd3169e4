//! The music's player: `quietcores play` on the card that does not exist, in a process of its own.

use crate::{Because, Error, ErrorKind, Result, raised};
use quiet_types::{CpuId, Nanos, play::Played, printable};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

/// Longest result, bytes.
const LONGEST: u64 = 4 << 20;
/// Beyond its length it has so long to begin and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A part of the music.
#[derive(Debug)]
pub(super) struct Music<'a> {
    pub(super) cpu: CpuId,
    pub(super) length: Nanos,
    pub(super) state: &'a Path,
}

impl Music<'_> {
    /// Plays it; `at` hears how far it is. Once `stop` is raised the player is asked to end, and what it has is given.
    ///
    /// # Errors
    /// When the player cannot be started, ends with an error, or says what cannot be understood.
    pub(super) fn play(&self, stop: &AtomicBool, at: impl Fn(Nanos)) -> Result<Played> {
        let mut child = self.start()?;
        let began = Instant::now();
        let whole = Duration::from_nanos(self.length.0);
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (out, err) = (thread::spawn(|| all_of(out)), thread::spawn(|| all_of(err)));
        let mut asked = false;
        let status = loop {
            let ended = child.try_wait();
            if let Some(status) =
                ended.because(ErrorKind::Measuring, || "cannot wait for the player".into())?
            {
                break status;
            }
            at(Nanos(began.elapsed().min(whole).as_nanos() as u64));
            let late = began.elapsed() > whole + PATIENCE;
            if late {
                let _ = child.kill();
            } else if raised(stop) && !asked {
                asked = true;
                end(&child);
            }
            thread::sleep(Duration::from_millis(50));
        };
        let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        match status.code() {
            // 1: periods were lost, which is what is to be seen.
            Some(0 | 1) => serde_json::from_slice(&out)
                .because(ErrorKind::Measuring, || "cannot understand what the player says".into()),
            _ => {
                let said = String::from_utf8_lossy(&err);
                let last = said.lines().rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
                Err(Error::new(
                    ErrorKind::Measuring,
                    format!("the player ended with {status}: {}", printable(last, 400)),
                ))
            }
        }
    }

    fn start(&self) -> Result<Child> {
        // This very program, also where its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["play", "--host", "null", "--mode", "sleep", "--control", "none", "--json"])
            .args(["--rate", &super::RATE.to_string(), "--period", &super::PERIOD.to_string()])
            .args(["--buffer", &super::BUFFER.to_string(), "--cpu", &self.cpu.0.to_string()])
            .args(["--for", &format!("{}ns", self.length.0)])
            .arg("--state")
            .arg(self.state)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().because(ErrorKind::Measuring, || "cannot start the player".into())
    }
}

fn all_of(from: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(from) = from {
        let _ = from.take(LONGEST).read_to_end(&mut all);
    }
    all
}

/// As Ctrl-C does.
fn end(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::INT);
    }
}
