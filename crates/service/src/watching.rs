//! A watch over a shield that was made of a chain: the same for root at a terminal and for the service.

use crate::{Error, acts::of_shield};
use quiet_linux::{CommandLines, Options, Root, System, glance, seat, trace::Tracer};
use quiet_shield::{Planned, Watch};
use quiet_types::{Chain, CpuSet, chain::Choice, shield::Shield, trace::Trace, watch::Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The first word of [`trace`].
const READY: &str = "ready\n";

/// What is watched over, and how.
#[derive(Debug)]
pub struct Watching<'a> {
    /// The chain of which the shield was made; its CPUs are those of the shield that is up.
    pub chain: Chain,
    /// The state directory.
    pub state: &'a Path,
    /// As in [`quiet_shield::ApplyOptions`].
    pub holder: Option<&'a Path>,
    /// The regular look.
    pub every: Duration,
    /// Reports drift and changes nothing.
    pub report_only: bool,
    /// Ends the watch when raised.
    pub interrupt: &'a AtomicBool,
}

/// Watches until the shield is taken down, the interrupt is raised, or `report` fails.
///
/// # Errors
/// As [`quiet_shield::watch`].
pub fn watch(
    asked: &Watching<'_>,
    report: &mut dyn FnMut(&Event) -> io::Result<()>,
) -> Result<(), Error> {
    let options = Options { command_lines: CommandLines::None };
    let root = Root::system().map_err(|e| Error::Failed(e.to_string()))?;
    let mut plan = |shield: &Shield| {
        let machine = glance(&root, options).map_err(|error| error.to_string())?;
        let chain = Chain { cpus: Choice::These(shield.cpus.clone()), ..asked.chain.clone() };
        let plan = quiet_plan::plan(&machine, &chain).map_err(|error| error.to_string())?;
        let names = quiet_plan::wanted(&machine, &chain);
        let names = names.into_iter().map(|one| (one.comm, one.users)).collect();
        Ok(Planned { plan, names })
    };
    quiet_shield::watch(Watch {
        kernel: &System,
        state: asked.state,
        holder: asked.holder,
        interrupt: asked.interrupt,
        every: asked.every,
        report_only: asked.report_only,
        plan: &mut plan,
        tell: report,
    })
    .map_err(of_shield)
}

/// How often the kernel's buffers are emptied.
const EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The longest that CPUs are watched.
const LONGEST: Duration = Duration::from_secs(3600);

/// Watches `cpus` by the kernel's trace until standard input ends, and writes on standard output: `ready` and a line's end once it
/// watches, then what it saw, a `Result<Trace, String>` as JSON.
///
/// # Errors
/// When nobody takes it.
pub fn trace(cpus: &CpuSet) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let seen = traced(cpus, || {
        out.write_all(READY.as_bytes())?;
        out.flush()
    });
    let mut out = io::BufWriter::new(out);
    serde_json::to_writer(&mut out, &seen.map_err(|e| e.to_string()))?;
    out.write_all(b"\n")?;
    out.flush()
}

fn traced(cpus: &CpuSet, ready: impl FnOnce() -> io::Result<()>) -> quiet_linux::Result<Trace> {
    let none = |e: io::Error| quiet_linux::Error::io("answer", "the caller", e);
    let online = Root::system()?.read("/sys/devices/system/cpu/online")?;
    let online = online.trim().parse::<CpuSet>();
    let online = online.map_err(|e| none(io::Error::other(e.to_string())))?;
    let mut tracer = Tracer::start(cpus, &online)?;
    seat::keep_off(0, cpus);
    ready().map_err(none)?;
    let input = io::stdin();
    let began = Instant::now();
    // Nothing is written into the line: it is readable at its end.
    while began.elapsed() < LONGEST {
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        if poll(&mut fds, Some(&EVERY)).is_ok_and(|many| many > 0) {
            break;
        }
        tracer.drain()?;
    }
    tracer.stop()
}

/// A flag that is raised once nobody reads the pipe `out` any more: an event may be long in coming.
///
/// # Errors
/// When no thread can be started.
pub fn unread(out: OwnedFd) -> io::Result<Arc<AtomicBool>> {
    let raised = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&raised);
    thread::Builder::new().name("unread".into()).spawn(move || {
        // Nothing is asked for: the kernel reports an error on a pipe without a reader in any case.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while poll(&mut fds, None).is_err() || fds[0].revents().is_empty() {}
        flag.store(true, Ordering::Relaxed);
    })?;
    Ok(raised)
}
