//! A process that puts values back when the one that changed them is killed.
//!
//! It is told the old values before they are changed, and then waits for the end of its standard
//! input: that of a killed process ends too. Told that all is done, it changes nothing.

use crate::{Error, ErrorKind, Result, leftover};
use quiet_linux::{
    sys::process,
    trace::{self, Timerlat},
};
use quiet_types::CpuId;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, BufRead, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// What is to be put back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Old {
    /// A CPU that was on.
    On(CpuId),
    /// The settings of the kernel's tracers: file and value.
    Tracers(Vec<(String, String)>),
    /// Trace instances, of whatever name: those of processes that are gone are known by it.
    Traces,
    /// A directory for files that come and go, and processes that work in it.
    Dir(PathBuf),
}

/// What a keeper is told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The process that it waits for: its parent, as that knows itself. Asked for here it may be another one already, where that was
    /// killed while this one began.
    owner: u32,
    old: Old,
}

/// The file that switches a CPU.
pub(crate) fn switch(cpu: CpuId) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/online")
}

const DONE: &str = "done";
/// What is said once the order is understood.
pub const READY: &str = "ready";
/// How long a killed process may take to be gone.
const DEATH: Duration = Duration::from_secs(5);

/// The process that waits. Dropped, it is told that all is done.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    input: Option<ChildStdin>,
}

impl Keeper {
    /// Starts it; it is ready when this returns.
    ///
    /// # Errors
    /// When it cannot be started: then nothing should be changed.
    pub(crate) fn start(old: &Old) -> io::Result<Keeper> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("keeper").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // In a group of its own: Ctrl-C is for the program alone.
        let mut child = command.process_group(0).spawn()?;
        let input = child.stdin.take();
        let mut keeper = Keeper { child, input };
        let order = Order { owner: std::process::id(), old: old.clone() };
        let mut order = serde_json::to_vec(&order)?;
        order.push(b'\n');
        if let Some(input) = &mut keeper.input {
            input.write_all(&order)?;
        }
        let mut ready = String::new();
        if let Some(output) = keeper.child.stdout.take() {
            io::BufReader::new(output).read_line(&mut ready)?;
        }
        if ready.trim_end() != READY {
            return Err(io::Error::other("the process that puts things back did not start"));
        }
        Ok(keeper)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.write_all(DONE.as_bytes());
        }
        let _ = self.child.wait();
    }
}

/// Waits as ordered on standard input, and calls `ready` once the order is understood.
///
/// # Errors
/// When standard input is no order, and when a value cannot be put back.
pub fn run(ready: &mut dyn FnMut()) -> Result<()> {
    let cannot = |e: io::Error| {
        Error::of(ErrorKind::Machine, format!("cannot read what is to be kept: {e}")).because(e)
    };
    // Those that end a session are not for it.
    process::block_signals().map_err(cannot)?;
    let mut input = io::stdin().lock();
    let mut order = String::new();
    io::Read::take(&mut input, 1 << 16).read_line(&mut order).map_err(cannot)?;
    let Order { owner, old } = serde_json::from_str(&order).map_err(|e| {
        Error::of(ErrorKind::Asked, format!("`keeper` is started by others, with an order: {e}"))
            .because(e)
    })?;
    ready();
    let mut rest = String::new();
    let _ = io::Read::take(&mut input, 64).read_line(&mut rest);
    if rest == DONE {
        return Ok(());
    }
    // Its end of the pipe is closed before it is gone, and what lives is not cleaned up after.
    let begun = Instant::now();
    while is_parent(owner) && begun.elapsed() < DEATH {
        thread::sleep(Duration::from_millis(1));
    }
    match old {
        Old::On(cpu) => fs::write(switch(cpu), "1").map_err(|e| {
            Error::of(ErrorKind::Machine, format!("cannot switch CPU {cpu} on again: {e}"))
                .because(e)
        }),
        Old::Tracers(values) => Ok(Timerlat::restore(&values)?),
        Old::Traces => Ok(trace::sweep().map(drop)?),
        Old::Dir(path) => {
            leftover::end(&path);
            Ok(())
        }
    }
}

/// Whether the parent of this process is `owner`: who has ended is nobody's parent any more.
fn is_parent(owner: u32) -> bool {
    rustix::process::getppid()
        .is_some_and(|parent| parent.as_raw_nonzero().get().cast_unsigned() == owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_ended_before_its_keeper_looked_is_not_waited_for() {
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert!(!is_parent(ended.id()));
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!(is_parent(u32::try_from(parent).unwrap()));
    }
}
