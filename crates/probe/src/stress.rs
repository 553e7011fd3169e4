//! Work in the background that hurts: named suites, run by stress-ng and a walker of our own.
//!
//! What hurts a real-time thread on an ordinary kernel is long work inside the kernel (tearing
//! down directory entries, page faults, fork), not busy CPUs; see `benches/` for figures.

mod draw;
mod hog;
mod suite;
pub(crate) mod temp;
mod veth;
mod walk;

pub use suite::{StressSuite, suites};

use crate::{Error, ErrorKind, Result, request};
use draw::Draw;
use hog::Hog;
use quiet_linux::{
    Root,
    sys::{process, sched},
};
use quiet_types::{CpuSet, printable, run};
use rustix::process::Signal;
use std::{
    fs::File,
    io::Read,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use temp::TempDir;
use veth::Flood;
use walk::Walk;

/// How long the stressors may take to be at work before a run begins.
const SETTLE: Duration = Duration::from_millis(500);
/// How long they may take to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// What stress-ng complains about.
const SAID: &str = "errors.txt";

/// Stress that runs until [`RunningStress::stop`]; ends with the calling thread also when that is killed.
#[derive(Debug)]
pub struct RunningStress {
    /// stress-ng, where it is needed.
    child: Option<Child>,
    walks: Vec<Walk>,
    floods: Vec<Flood>,
    draws: Vec<Draw>,
    hogs: Vec<Hog>,
    names: Vec<String>,
    command: Vec<String>,
    cpus: CpuSet,
    dir: TempDir,
}

impl RunningStress {
    /// Starts suites (`kernel`) and stressors (`fork`, `fork=4`) on `cpus`, or wherever the
    /// calling thread may run when `cpus` is empty. Returns when they are at work.
    ///
    /// # Errors
    /// A sentence, when stress-ng is not installed, a name is unknown or forbidden, or stress-ng
    /// ends at once.
    pub fn start(names: &[String], cpus: &CpuSet) -> Result<RunningStress> {
        RunningStress::start_in(names, cpus, &std::env::temp_dir())
    }

    /// Whether these names mean something that can be started here.
    ///
    /// # Errors
    /// A sentence, as [`RunningStress::start`] gives it.
    pub fn check(names: &[String]) -> Result<()> {
        let online = request::online(&Root::system()?)?;
        possible(&suite::orders(names, online.len(), &known(names)?)?)
    }

    /// As [`RunningStress::start`], with its files below `dir`: a disk that is to be stressed.
    ///
    /// # Errors
    /// As [`RunningStress::start`], and when `dir` cannot be written.
    pub fn start_in(
        names: &[String],
        cpus: &CpuSet,
        dir: &std::path::Path,
    ) -> Result<RunningStress> {
        let root = Root::system()?;
        let online = request::online(&root)?;
        let known = known(names)?;
        let orders = suite::orders(names, online.len(), &known)?;
        possible(&orders)?;
        temp::clean(dir);
        let dir = TempDir::make(dir).map_err(|e| {
            Error::of(ErrorKind::Stress, format!("cannot make a directory for the stress: {e}"))
                .because(e)
        })?;
        let before = sched::affinity(0).map_err(|e| {
            Error::of(ErrorKind::Stress, format!("cannot read where this thread may run: {e}"))
                .because(e)
        })?;
        let cpus = if cpus.is_empty() { before.clone() } else { cpus.clone() };
        let mut stress = RunningStress {
            child: None,
            walks: Vec::new(),
            floods: Vec::new(),
            draws: Vec::new(),
            hogs: Vec::new(),
            names: names.to_vec(),
            command: Vec::new(),
            cpus,
            dir,
        };
        if !orders.arguments.is_empty() {
            stress.start_stress_ng(orders.arguments, &before)?;
        }
        for _ in 0..orders.walkers {
            let walk = Walk::start(&stress.cpus).map_err(|e| {
                Error::of(ErrorKind::Stress, format!("cannot walk through /proc: {e}")).because(e)
            })?;
            stress.walks.push(walk);
        }
        for _ in 0..orders.floods {
            let flood = Flood::start(&stress.cpus).map_err(|e| {
                Error::of(
                    ErrorKind::Stress,
                    format!("cannot flood a pair of virtual network cards: {e}"),
                )
                .because(e)
            })?;
            stress.floods.push(flood);
        }
        stress.start_drawing(orders.draws, &before)?;
        let on: Vec<_> = stress.cpus.iter().collect();
        for cpu in on.into_iter().cycle().take(orders.hogs) {
            let hog = Hog::start(cpu).map_err(|e| {
                Error::of(ErrorKind::Stress, format!("cannot spin on CPU {cpu}: {e}")).because(e)
            })?;
            stress.hogs.push(hog);
        }
        stress.settle()?;
        Ok(stress)
    }

    fn start_stress_ng(&mut self, mut arguments: Vec<String>, before: &CpuSet) -> Result<()> {
        let path = self.dir.path();
        arguments.extend(
            ["--temp-path", &path.to_string_lossy(), "--metrics-brief", "--yaml"]
                .map(str::to_owned),
        );
        arguments.push(yaml(&self.dir).to_string_lossy().into_owned());
        // As long as it takes: it is ended by a signal. (`--quiet` would keep back the metrics.)
        arguments.extend(["--timeout", "0"].map(str::to_owned));
        let mut command = Command::new("stress-ng");
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null());
        // A file, which unlike a pipe never fills up and needs nobody to read it.
        let said = File::create(path.join(SAID)).map_err(|e| {
            Error::of(ErrorKind::Stress, format!("cannot make a file for the stress: {e}"))
                .because(e)
        })?;
        command.stderr(said).current_dir(path);
        // Affinity is inherited: set it here, start, set it back.
        let cpus = &self.cpus;
        sched::set_affinity(0, cpus).map_err(|e| {
            Error::of(ErrorKind::Stress, format!("cannot confine the stress to CPU {cpus}: {e}"))
                .because(e)
        })?;
        let child = process::spawn_bound(&mut command, Signal::TERM);
        let _ = sched::set_affinity(0, before);
        let child = child.map_err(|e| {
            Error::of(ErrorKind::Stress, format!("cannot start stress-ng: {e}")).because(e)
        })?;
        self.child = Some(child);
        self.command = vec!["stress-ng".to_owned()];
        self.command.append(&mut arguments);
        Ok(())
    }

    fn start_drawing(&mut self, clients: usize, before: &CpuSet) -> Result<()> {
        if clients == 0 {
            return Ok(());
        }
        let cpus = &self.cpus;
        sched::set_affinity(0, cpus).map_err(|e| {
            Error::of(ErrorKind::Stress, format!("cannot confine the stress to CPU {cpus}: {e}"))
                .because(e)
        })?;
        let all = (0..clients).map(|nth| Draw::start(nth, self.dir.path()));
        let all: std::io::Result<Vec<Draw>> = all.collect();
        let _ = sched::set_affinity(0, before);
        self.draws = all.map_err(|e| Error::of(ErrorKind::Stress, e.to_string()).because(e))?;
        Ok(())
    }

    /// CPUs that it may run on.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// What was started, word by word.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Whether it still runs; it may have been ended from outside.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn settle(&mut self) -> Result<()> {
        thread::sleep(SETTLE);
        let began = Instant::now();
        loop {
            if self.draws.iter_mut().any(Draw::ended) {
                return Err(Error::of(
                    ErrorKind::Stress,
                    format!("x11perf ended before it drew: {}", self.said()),
                ));
            }
            // Clients of one server keep each other from it: that one draws is what there is to wait for.
            if self.draws.is_empty() || self.draws.iter().any(Draw::draws) {
                self.draws.iter_mut().for_each(Draw::begin);
                break;
            }
            if began.elapsed() > draw::PATIENCE {
                let waited = draw::PATIENCE.as_secs();
                return Err(Error::of(
                    ErrorKind::Stress,
                    format!("x11perf drew nothing within {waited} s"),
                ));
            }
            thread::sleep(SETTLE);
        }
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = ended {
            return Err(Error::of(
                ErrorKind::Stress,
                format!("stress-ng ended at once ({status}): {}", self.said()),
            ));
        }
        Ok(())
    }

    /// What stands in what was written on standard error.
    fn said(&self) -> String {
        let mut said = String::new();
        if let Ok(file) = File::open(self.dir.path().join(SAID)) {
            let _ = file.take(4096).read_to_string(&mut said);
        }
        printable(said.trim(), 300)
    }

    /// Ends it and says what it did.
    ///
    /// # Errors
    /// When it cannot be waited for. What its metrics lack is left out.
    pub fn stop(mut self) -> Result<run::Stress> {
        let mut own: Vec<run::Throughput> = self.walks.drain(..).map(|w| w.throughput()).collect();
        own.extend(self.floods.drain(..).map(|flood| flood.throughput()));
        own.extend(self.draws.drain(..).map(|draw| draw.throughput()));
        own.extend(self.hogs.drain(..).map(|hog| hog.throughput()));
        self.end()?;
        let mut text = String::new();
        if let Ok(file) = File::open(yaml(&self.dir)) {
            let _ = file.take(1 << 20).read_to_string(&mut text);
        }
        Ok(run::Stress {
            names: std::mem::take(&mut self.names),
            command: std::mem::take(&mut self.command),
            cpus: std::mem::take(&mut self.cpus),
            throughput: throughput(&text).into_iter().chain(own).collect(),
        })
    }

    fn end(&mut self) -> Result<()> {
        self.walks.clear();
        self.hogs.clear();
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        let pid = rustix::process::Pid::from_child(child);
        let failed = |e: std::io::Error| {
            Error::of(ErrorKind::Stress, format!("cannot wait for stress-ng: {e}")).because(e)
        };
        if child.try_wait().map_err(failed)?.is_none() {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let told = Instant::now();
        while child.try_wait().map_err(failed)?.is_none() {
            if told.elapsed() > GRACE {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                child.wait().map_err(failed)?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // Stressors that outlived their parent.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        Ok(())
    }
}

impl Drop for RunningStress {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What one of our own stressors did since it began.
fn since(began: Instant, stressor: &str, operations: f64) -> run::Throughput {
    let per_second = operations / began.elapsed().as_secs_f64().max(1e-9);
    run::Throughput { stressor: stressor.to_owned(), operations, per_second }
}

/// What needs a device that is not here is refused: stress-ng would only leave it out.
fn possible(orders: &suite::Orders) -> Result<()> {
    let gpu = orders.arguments.iter().any(|argument| argument == "--gpu");
    let cards = std::fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    let mut cards = cards.map(|entry| entry.file_name());
    if gpu && !cards.any(|name| name.as_encoded_bytes().starts_with(b"renderD")) {
        return Err(Error::new(
            "stressor gpu draws by a graphics card, and there is none here (/dev/dri/renderD*): leave it out",
        ));
    }
    let draws = (orders.draws > 0).then(|| draw::refusal(std::env::var_os("DISPLAY").as_deref()));
    draws.flatten().map_or(Ok(()), |why| Err(Error::new(why)))
}

/// A private directory for files that come and go; it goes with the value.
pub(crate) fn temp_dir() -> std::io::Result<TempDir> {
    let base = std::env::temp_dir();
    temp::clean(&base);
    TempDir::make(&base)
}

fn yaml(dir: &TempDir) -> PathBuf {
    dir.path().join("metrics.yaml")
}

/// The stressors that there are beside our own; none is asked for where ours are all that is wanted.
fn known(names: &[String]) -> Result<Vec<String>> {
    if suite::all_own(names) { Ok(Vec::new()) } else { known_stressors() }
}

/// The stressors that the installed stress-ng has.
fn known_stressors() -> Result<Vec<String>> {
    let output = Command::new("stress-ng").arg("--stressors").stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .map(str::to_owned)
            .collect()),
        Ok(output) => Err(Error::of(
            ErrorKind::Stress,
            format!(
                "stress-ng cannot tell its stressors ({}{})",
                output.status,
                output.status.signal().map_or("", |_| ", by a signal")
            ),
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::of(
            ErrorKind::Missing,
            "stress-ng is not installed, and all stress is run by it; install the package stress-ng \
             (Debian: `apt install stress-ng`)",
        )),
        Err(e) => {
            Err(Error::of(ErrorKind::Stress, format!("cannot start stress-ng: {e}")).because(e))
        }
    }
}

/// The metrics of stress-ng's YAML: those three lines of each stressor that we need.
fn throughput(text: &str) -> Vec<run::Throughput> {
    let mut all: Vec<run::Throughput> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim().trim_start_matches("- ").split_once(':') else {
            continue;
        };
        let value = value.trim();
        let number = || value.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        match (key, all.last_mut()) {
            ("stressor", _) => all.push(run::Throughput {
                stressor: printable(value, 40),
                operations: 0.0,
                per_second: 0.0,
            }),
            ("bogo-ops", Some(last)) => last.operations = number().unwrap_or(0.0),
            ("bogo-ops-per-second-real-time", Some(last)) => {
                last.per_second = number().unwrap_or(0.0);
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_read_from_the_yaml_that_stress_ng_writes() {
        let text = "---\nsystem-info:\n      cpus: 2\n\nmetrics:\n    - stressor: dentry\n      \
                    bogo-ops: 27499\n      bogo-ops-per-second-usr-sys-time: 9203.4\n      \
                    bogo-ops-per-second-real-time: 9089.735003\n\n    - stressor: fork\n      \
                    bogo-ops: nan\n...\n";
        let all = throughput(text);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].stressor.as_str(), all[0].operations), ("dentry", 27499.0));
        assert_eq!(all[0].per_second, 9089.735003);
        assert_eq!(all[1].operations, 0.0);
    }
}
