//! The kernel's own instrument: its tracer `timerlat`, in a private instance.
//!
//! A timer on each CPU stamps when its interrupt ran, when a thread ran that it woke, and, where
//! that thread is one of user space, when it was back there.
//!
//! # Source
//! Linux `Documentation/trace/timerlat-tracer.rst`, `kernel/trace/trace_osnoise.c`; in instances
//! since 5.16, threads of user space since 6.5.

use super::instance::{Base, Instance, clean, read, write};
use crate::{Error, Result};
use quiet_types::{CpuId, CpuSet, Nanos};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Text that is kept while its line is not whole.
const LONGEST: usize = 1 << 16;

/// Files of tracefs below `osnoise` that are changed, first changed first.
const SETTINGS: [&str; 5] =
    ["stop_tracing_us", "stop_tracing_total_us", "timerlat_period_us", "cpus", "options"];

/// What a file says now, as it would be written back; `None` where there is nothing to put back.
fn setting(path: &Path) -> Option<String> {
    // In one read with room to spare: `cpus` answers a short one with EINVAL.
    let old = read(path).ok()?;
    let workload = ["NO_OSNOISE_WORKLOAD", "OSNOISE_WORKLOAD"];
    if path.ends_with("options") {
        return workload.iter().find(|word| old.contains(**word)).map(|word| (*word).to_owned());
    }
    Some(old.trim().to_owned())
}

/// Which moment was stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerlatContext {
    /// The timer's interrupt.
    Irq,
    /// The thread that it woke.
    Thread,
    /// That thread, back in user space.
    User,
}

/// One stamped moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Where.
    pub cpu: CpuId,
    /// Which.
    pub station: TimerlatContext,
    /// On `CLOCK_MONOTONIC`, to a microsecond.
    pub at: Nanos,
    /// Since the timer was due.
    pub latency: Nanos,
}

/// The tracer, while it runs. What it changed in tracefs is put back when it is dropped.
#[derive(Debug)]
pub struct Timerlat {
    base: Base,
    instance: Option<Instance>,
    pipe: Option<File>,
    /// Files and what they held, last changed last.
    old: Vec<(PathBuf, String)>,
    rest: Vec<u8>,
    user: bool,
}

impl Timerlat {
    /// Starts it on `cpus` with a timer every `period`. With `user`, threads of user space are to
    /// follow it ([`Timerlat::follow`]); else the kernel makes its own, SCHED_FIFO 95.
    ///
    /// # Errors
    /// When tracefs may not be used, or this kernel has no such tracer.
    pub fn start(cpus: &CpuSet, period: Nanos, user: bool) -> Result<Timerlat> {
        let base = Base::find()?;
        let tracers = fs::read_to_string(base.path.join("available_tracers")).unwrap_or_default();
        if !tracers.split_whitespace().any(|name| name == "timerlat") {
            let why = format!(
                "this kernel was built without it (CONFIG_TIMERLAT_TRACER); it has: {}",
                tracers.trim()
            );
            let absent = io::Error::new(io::ErrorKind::NotFound, why);
            return Err(Error::io("use", "the tracer timerlat", absent));
        }
        clean(&base.path);
        let mut it =
            Timerlat { base, instance: None, pipe: None, old: Vec::new(), rest: Vec::new(), user };
        it.prepare(cpus, period)?;
        Ok(it)
    }

    /// Whether the kernel can follow threads of user space (Linux 6.5).
    pub fn follows_users() -> bool {
        Base::find().is_ok_and(|base| base.path.join("osnoise/per_cpu").is_dir())
    }

    /// What [`Timerlat::start`] may change, as it is now: names of files and their values.
    ///
    /// # Errors
    /// When tracefs may not be used.
    pub fn settings() -> Result<Vec<(String, String)>> {
        let dir = Base::find()?.path.join("osnoise");
        let value = |name: &&str| Some(((*name).to_owned(), setting(&dir.join(name))?));
        Ok(SETTINGS.iter().filter_map(value).collect())
    }

    /// Puts [`Timerlat::settings`] back in place of a process that was killed, and removes its instance.
    ///
    /// # Errors
    /// When a value is refused; the others are put back all the same.
    pub fn restore(settings: &[(String, String)]) -> Result<()> {
        let base = Base::find()?;
        clean(&base.path);
        let known = settings.iter().filter(|(name, _)| SETTINGS.contains(&name.as_str()));
        let mut done = Ok(());
        for (name, value) in known.rev() {
            let path = base.path.join("osnoise").join(name);
            if setting(&path).as_ref() != Some(value) {
                done = done.and(write(&path, value));
            }
        }
        done
    }

    fn prepare(&mut self, cpus: &CpuSet, period: Nanos) -> Result<()> {
        let dir = self.base.path.join("osnoise");
        let workload = if self.user { "NO_OSNOISE_WORKLOAD" } else { "OSNOISE_WORKLOAD" };
        let period = (period.0 / 1000).max(100).to_string();
        for (name, value) in [
            ("stop_tracing_us", "0"),
            ("stop_tracing_total_us", "0"),
            ("timerlat_period_us", period.as_str()),
            ("cpus", cpus.to_string().as_str()),
            ("options", workload),
        ] {
            let path = dir.join(name);
            let Some(old) = setting(&path) else { continue };
            if old != value {
                write(&path, value)?;
                self.old.push((path, old));
            }
        }
        let dir = self.instance.insert(Instance::make(&self.base.path, "-timerlat")?).0.clone();
        let file = |name: &str| dir.join(name);
        write(&file("tracing_on"), "0")?;
        write(&file("trace_clock"), "mono")?;
        write(&file("buffer_size_kb"), "1024")?;
        // Before the pipe: a tracer that somebody reads cannot be changed.
        write(&file("current_tracer"), "timerlat")?;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(file("trace_pipe"))
            .map_err(|e| Error::io("open", "the trace of timerlat", e))?;
        write(&file("tracing_on"), "1")?;
        self.pipe = Some(pipe);
        Ok(())
    }

    /// The file by which a thread of user space follows the tracer on `cpu`: that thread, bound to
    /// this CPU alone before it opens it, reads it again and again; each read sleeps until the timer
    /// woke it.
    pub fn follow(&self, cpu: CpuId) -> PathBuf {
        self.base.path.join(format!("osnoise/per_cpu/cpu{cpu}/timerlat_fd"))
    }

    /// Takes what is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn drain(&mut self, take: &mut dyn FnMut(Stamp)) -> Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut bytes = vec![0; 1 << 16];
        loop {
            match pipe.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(n) => self.rest.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Error::io("read", "the trace of timerlat", e)),
            }
            let whole = self.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            String::from_utf8_lossy(&lines).lines().filter_map(stamp).for_each(&mut *take);
            if self.rest.len() > LONGEST {
                self.rest.clear();
            }
        }
    }

    /// Ends the tracing; what is still there can be drained.
    pub fn end(&mut self) {
        if let Some(instance) = &self.instance {
            let _ = write(&instance.0.join("tracing_on"), "0");
        }
    }
}

impl Drop for Timerlat {
    fn drop(&mut self) {
        self.pipe = None;
        if let Some(instance) = self.instance.take() {
            let _ = write(&instance.0.join("tracing_on"), "0");
            let _ = write(&instance.0.join("current_tracer"), "nop");
        }
        for (path, old) in self.old.iter().rev() {
            let _ = write(path, old);
        }
    }
}

/// `<idle>-0 [003] d.h1. 54.029328: #1 context irq timer_latency 932 ns`; any name may stand in front.
fn stamp(line: &str) -> Option<Stamp> {
    let (front, back) = line.rsplit_once("timer_latency")?;
    let mut back = back.split_whitespace();
    let latency = Nanos(back.next()?.parse().ok()?);
    if back.next() != Some("ns") {
        return None;
    }
    let (front, station) = front.rsplit_once("context")?;
    let station = match station.trim() {
        "irq" => TimerlatContext::Irq,
        "thread" => TimerlatContext::Thread,
        "user-ret" => TimerlatContext::User,
        _ => return None,
    };
    let (front, _count) = front.rsplit_once('#')?;
    let at = front.split_whitespace().last()?.strip_suffix(':')?;
    let (seconds, micros) = at.split_once('.')?;
    let at = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    let at = at.checked_add(micros.parse::<u64>().ok().filter(|us| *us < 1_000_000)? * 1000)?;
    let (_, cpu) = front.rsplit_once('[')?;
    let cpu = CpuId(cpu.split_once(']')?.0.parse().ok()?);
    Some(Stamp { cpu, station, at: Nanos(at), latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tracer_are_read_whatever_tasks_call_themselves() {
        let line = "  x [9] #7: context irq-88 [003] d.h1.   54.029328: #1     context    irq timer_latency       932 ns";
        let it = stamp(line).unwrap();
        assert_eq!((it.cpu, it.station), (CpuId(3), TimerlatContext::Irq));
        assert_eq!((it.at, it.latency), (Nanos(54_029_328_000), Nanos(932)));
        let thread = line.replace("   irq timer", "thread timer");
        assert_eq!(stamp(&thread).unwrap().station, TimerlatContext::Thread);
        let user = line.replace("   irq timer", "user-ret timer");
        assert_eq!(stamp(&user).unwrap().station, TimerlatContext::User);
        for nonsense in
            ["", "timer_latency 5 ns", "context irq timer_latency x ns", "CPU:3 [LOST 12 EVENTS]"]
        {
            assert_eq!(stamp(nonsense), None);
        }
    }
}
