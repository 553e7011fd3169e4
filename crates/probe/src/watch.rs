//! Watches CPUs while they are measured: takes the kernel's trace off its buffers, elsewhere.

use crate::{
    Error, ErrorKind, Result,
    keeper::{Keeper, Old},
};
use quiet_linux::{seat, trace::Tracer};
use quiet_types::{
    CpuSet,
    trace::{Trace, Victim},
};
use std::{
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::fd::OwnedFd,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often the buffers are emptied.
const EVERY: Duration = Duration::from_millis(50);

/// What was seen on the measured CPUs.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What happened there; `None` where nothing was watched.
    pub trace: Option<Trace>,
    /// Whose lateness is to be explained.
    pub victims: Vec<Victim>,
    /// Why nothing was watched, where it was asked for.
    pub refused: Option<String>,
}

/// Who may watch CPUs where this process may not: a service.
pub trait TraceLender: fmt::Debug + Send + Sync {
    /// Has `cpus` watched: a line, and a pipe that has `ready` and a line's end once it is watched. When the line is closed, the pipe has
    /// what was seen: a [`Result<Trace, String>`] as JSON.
    ///
    /// # Errors
    /// Why not.
    fn watch(&self, cpus: &CpuSet) -> quiet_linux::Result<(OwnedFd, OwnedFd)>;
}

/// What the pipe of a [`TraceLender`] has first.
pub const READY: &str = "ready\n";
/// No trace is longer: events are bounded where they are taken.
const LONGEST: u64 = 1 << 30;

/// Watches until it is stopped.
#[derive(Debug)]
pub struct CpuWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<quiet_linux::Result<Trace>>>,
    /// Removes the trace's instances should this process be killed. `None` where it could not be started: then `revert`, or the next
    /// watch, does.
    _keeper: Option<Keeper>,
}

impl CpuWatch {
    /// Begins to watch `cpus`; its thread runs on other ones where there are some.
    ///
    /// # Errors
    /// When tracefs is not there or may not be used.
    pub fn start(cpus: &CpuSet, online: &CpuSet) -> Result<CpuWatch> {
        let keeper = Keeper::start(&Old::Traces).ok();
        let mut tracer = Tracer::start(cpus, online)?;
        let (stop, stopped) = channel();
        let watched = cpus.clone();
        let thread = thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || {
                seat::keep_off(0, &watched);
                loop {
                    let ends = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                    if ends {
                        return tracer.stop();
                    }
                    tracer.drain()?;
                }
            })
            .map_err(|e| {
                Error::of(ErrorKind::Machine, format!("cannot start the thread that watches: {e}"))
                    .because(e)
            })?;
        Ok(CpuWatch { stop: Some(stop), thread: Some(thread), _keeper: keeper })
    }

    /// The same by somebody who has the rights.
    ///
    /// # Errors
    /// As the lender says.
    pub fn lent(cpus: &CpuSet, lender: &dyn TraceLender) -> Result<CpuWatch> {
        let (line, pipe) = lender.watch(cpus)?;
        let failed = |why: String| quiet_linux::Error::refused("watch", format!("CPU {cpus}"), why);
        let mut pipe = BufReader::new(File::from(pipe));
        let mut first = String::new();
        let heard = Read::take(&mut pipe, 4096).read_line(&mut first);
        heard.map_err(|e| failed(e.to_string()))?;
        if first != READY {
            // An error in place of it.
            let why = serde_json::from_str::<std::result::Result<(), String>>(&first);
            let why = why.ok().and_then(std::result::Result::err);
            return Err(failed(why.unwrap_or_else(|| "the service did not begin".into())).into());
        }
        let (stop, stopped) = channel::<()>();
        let watched = cpus.clone();
        let thread = thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || {
                seat::keep_off(0, &watched);
                let _ = stopped.recv();
                drop(line);
                let failed = |why: String| {
                    quiet_linux::Error::refused("watch", format!("CPU {watched}"), why)
                };
                let seen: std::result::Result<Trace, String> =
                    serde_json::from_reader(Read::take(pipe, LONGEST))
                        .map_err(|e| failed(format!("what the service saw broke off: {e}")))?;
                seen.map_err(failed)
            })
            .map_err(|e| {
                Error::of(ErrorKind::Machine, format!("cannot start the thread that watches: {e}"))
                    .because(e)
            })?;
        Ok(CpuWatch { stop: Some(stop), thread: Some(thread), _keeper: None })
    }

    /// Stops and hands over what was seen.
    ///
    /// # Errors
    /// When the kernel's buffers could not be read.
    pub fn stop(mut self) -> Result<Trace> {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(trace)) => Ok(trace?),
            _ => Err(Error::of(
                ErrorKind::Measuring,
                "the thread that watches ended without a result",
            )),
        }
    }
}

impl Drop for CpuWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
