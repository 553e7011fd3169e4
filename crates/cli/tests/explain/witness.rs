//! A second witness of what ran on a CPU: the kernel's own text of a few events, in a trace instance of
//! the test's own, on another clock than the readings: the processor's counter, or where the kernel has no
//! such trace clock the monotonic one that nobody slews, to a microsecond. It shares with what is tested
//! neither the clock nor the reader.

use quiet_linux::sys::clock::monotonic;
use quiet_testing::{Why, skip};
use quiet_types::CpuId;
use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Beginning and end of something, ns of `CLOCK_MONOTONIC`.
pub type Span = (u64, u64);

/// Marks at each end.
const MARKS: usize = 16;

pub struct Witness {
    /// The mount; the instance below it.
    mount: tempfile::TempDir,
    dir: PathBuf,
}

impl Witness {
    /// Writes down these events (`workqueue/workqueue_execute_start`) from now on; `None`, with the reason
    /// on standard error, where it may not.
    pub fn start(events: &[&str]) -> Option<Witness> {
        let clock = if cfg!(target_arch = "x86_64") { "x86-tsc" } else { "mono_raw" };
        let it = Witness::on(clock, events)?;
        it.mark();
        Some(it)
    }

    fn on(clock: &str, events: &[&str]) -> Option<Witness> {
        let mount = tempfile::tempdir().unwrap();
        let done = Command::new("mount").args(["-t", "tracefs", "none"]).arg(mount.path()).output();
        if !done.is_ok_and(|output| output.status.success()) {
            return skip(Why::Machine("tracefs cannot be mounted".to_owned()));
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("witness-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let dir = mount.path().join("instances").join(name);
        let it = Witness { mount, dir };
        let set = || -> std::io::Result<()> {
            fs::create_dir(&it.dir)?;
            fs::write(it.dir.join("trace_clock"), clock)?;
            fs::write(it.dir.join("buffer_size_kb"), "8192")?;
            for event in events {
                fs::write(it.dir.join("events").join(event).join("enable"), "1")?;
            }
            Ok(())
        };
        if let Err(why) = set() {
            return skip(Why::Machine(format!(
                "no trace of {events:?} on the clock {clock}: {why}"
            )));
        }
        Some(it)
    }

    /// Ties the two clocks together here, a few times: the quickest is the truest.
    fn mark(&self) {
        let file = fs::OpenOptions::new().write(true).open(self.dir.join("trace_marker"));
        let mut file = file.unwrap();
        for _ in 0..MARKS {
            file.write_all(format!("witness {}", monotonic()).as_bytes()).unwrap();
        }
    }

    /// Ends it: what lay on `cpu` between two events whose text has `about` in it.
    pub fn spans(self, cpu: CpuId, entry: &str, exit: &str, about: &str) -> Vec<Span> {
        self.mark();
        fs::write(self.dir.join("tracing_on"), "0").unwrap();
        let text = fs::read_to_string(self.dir.join("trace")).unwrap();
        let (mut marks, mut open, mut ticks) = (Vec::new(), None, Vec::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // `kworker/1:1-77  [001] d..2. 98765432: workqueue_execute_start: work struct ...`
            let Some((front, rest)) = line.split_once(": ") else { continue };
            let time = |at: &str| at.parse::<u64>().ok().or_else(|| nanos_of_micros(at));
            let Some(at) = front.split_whitespace().last().and_then(time) else { continue };
            let (name, told) = rest.split_once(": ").unwrap_or((rest, ""));
            if let Some(mono) = told.strip_prefix("witness ") {
                marks.push((at, mono.trim().parse::<u64>().unwrap()));
            } else if !front.contains(&format!("[{:03}]", cpu.0)) || !told.contains(about) {
                continue;
            } else if name == entry {
                open = Some(at);
            } else if name == exit
                && let Some(from) = open.take()
            {
                ticks.push((from, at));
            }
        }
        let rate = |first: (u64, u64), last: (u64, u64)| {
            (last.1 - first.1) as f64 / (last.0 - first.0) as f64
        };
        // The clock was read before the mark was written: the shorter ago, the later it says that this was.
        let rough = rate(marks[0], marks[marks.len() - 1]);
        let truest = |marks: &[(u64, u64)]| {
            let said = |mark: &(u64, u64)| mark.1 as f64 - (mark.0 - marks[0].0) as f64 * rough;
            *marks.iter().max_by(|a, b| said(a).total_cmp(&said(b))).unwrap()
        };
        let (first, last) = (truest(&marks[..MARKS]), truest(&marks[marks.len() - MARKS..]));
        let rate = rate(first, last);
        let nanos = |at: u64| first.1 + (at.saturating_sub(first.0) as f64 * rate) as u64;
        ticks.into_iter().map(|(from, to)| (nanos(from), nanos(to))).collect()
    }
}

/// The kernel's tracer osnoise: its thread spins on a CPU and tells what it lost to whom.
pub struct Osnoise {
    witness: Witness,
    cpus: String,
    /// The tracers' threshold, us, as it was.
    beyond: String,
}

impl Osnoise {
    /// Starts it on one CPU alone; `None` where the kernel has none.
    pub fn start(cpu: CpuId) -> Option<Osnoise> {
        let noise = ["irq", "softirq", "thread", "nmi"].map(|kind| format!("osnoise/{kind}_noise"));
        let mut events: Vec<&str> = noise.iter().map(String::as_str).collect();
        events.push("osnoise/sample_threshold");
        let witness = Witness::on("mono", &events)?;
        let file = witness.mount.path().join("osnoise/cpus");
        // It answers a read without much room with EINVAL, as `read_to_string` makes them.
        let mut cpus = [0; 4096];
        let n = fs::File::open(&file).and_then(|mut file| file.read(&mut cpus)).unwrap();
        let cpus = String::from_utf8_lossy(&cpus[..n]).into_owned();
        fs::write(&file, cpu.to_string()).unwrap();
        // Unset it is 1 us. An emulated CPU takes longer to read its clock: each turn would be a sample.
        let threshold = witness.mount.path().join("tracing_thresh");
        let beyond = fs::read_to_string(&threshold).unwrap();
        fs::write(threshold, "20").unwrap();
        fs::write(witness.dir.join("current_tracer"), "osnoise").unwrap();
        Some(Osnoise { witness, cpus, beyond })
    }

    /// How many samples it has told of by now.
    pub fn told(&self) -> usize {
        let text = fs::read_to_string(self.witness.dir.join("trace")).unwrap();
        text.lines().filter(|line| line.contains(": sample_threshold:")).count()
    }

    /// Ends it: each of its samples on `CLOCK_MONOTONIC`, and what it says that others took of it, ns.
    pub fn samples(self) -> Vec<(Span, u64)> {
        fs::write(self.witness.dir.join("tracing_on"), "0").unwrap();
        let text = fs::read_to_string(self.witness.dir.join("trace")).unwrap();
        // `start 5.071077442 duration 7597 ns`, on the clock of osnoise's own.
        let mut samples: Vec<(u64, u64, u64)> = Vec::new();
        let mut parts = Vec::new();
        for line in text.lines() {
            let Some((front, told)) = line.rsplit_once(" start ") else { continue };
            let mut words = told.split_whitespace();
            let nanos = |word: &str| -> Option<u64> {
                let (seconds, rest) = word.split_once('.')?;
                Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + rest.parse::<u64>().ok()?)
            };
            let Some(start) = words.next().and_then(nanos) else { continue };
            let Some(length) = words.nth(1).and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            if let Some((head, _)) = front.split_once(": sample_threshold:") {
                let at = head.split_whitespace().last().and_then(nanos_of_micros).unwrap();
                samples.push((start, length, at));
            } else {
                parts.push((start, length));
            }
        }
        // It is told just after it ended: the least of it is what lies between the clocks.
        let between =
            samples.iter().map(|(start, length, at)| *at as i64 - (start + length) as i64);
        let between = between.min().unwrap_or(0);
        let mono = |at: u64| (at as i64 + between) as u64;
        let of = |from: u64, to: u64| -> u64 {
            parts.iter().filter(|part| (from..to).contains(&part.0)).map(|part| part.1).sum()
        };
        samples
            .iter()
            .map(|(start, length, _)| {
                let end = start + length;
                ((mono(*start), mono(end)), of(*start, end))
            })
            .collect()
    }
}

impl Drop for Osnoise {
    fn drop(&mut self) {
        let _ = fs::write(self.witness.dir.join("current_tracer"), "nop");
        let mount = self.witness.mount.path();
        let _ = fs::write(mount.join("osnoise/cpus"), self.cpus.trim());
        let _ = fs::write(mount.join("tracing_thresh"), self.beyond.trim());
    }
}

/// `12.000345`: seconds and microseconds.
fn nanos_of_micros(word: &str) -> Option<u64> {
    let (seconds, micros) = word.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000)
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
        let _ = Command::new("umount").arg(self.mount.path()).output();
    }
}
