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
