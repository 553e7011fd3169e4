//! The probes against their peers, in turn: `measure wakeup` against cyclictest, `measure gap`
//! against oslat.
//!
//! `cargo bench -p quietcores --bench peers -- [CPU [PAIRS [SECONDS]]]`, as root, with Debian's
//! rt-tests installed; `benches/peers.sh` does that and keeps the result. Pairs are interleaved
//! (their order swaps from pair to pair) and each figure is the median over the pairs.

use anyhow::{Context, bail};
use quiet_types::{Nanos, Run};
use serde::Serialize;
use serde_json::Value;
use std::process::Command;

#[derive(Serialize)]
struct Pair {
    ours: Figures,
    theirs: Figures,
}

#[derive(Clone, Copy, Serialize)]
struct Figures {
    min: f64,
    p50: f64,
    p99: f64,
}

#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    cpu: u32,
    seconds: u64,
    wakeup: Vec<Wakeup>,
    gap: Gap,
}

#[derive(Serialize)]
struct Machine {
    processor: String,
    hypervisor: Option<String>,
    cpus: usize,
    release: String,
    clock: String,
}

#[derive(Serialize)]
struct Wakeup {
    interval_us: u64,
    pairs: Vec<Pair>,
    /// Ours over theirs, of the medians over the pairs.
    ratio: Figures,
    /// The median of each pair's own ratio.
    pair_ratio: Figures,
}

#[derive(Serialize)]
struct Gap {
    /// ns a turn, pair by pair: ours, oslat's, and one bare clock read.
    turns: Vec<[f64; 3]>,
    medians: [f64; 3],
}

fn main() -> anyhow::Result<()> {
    // cargo adds `--bench`.
    let mut numbers =
        std::env::args().skip(1).filter(|word| !word.starts_with("--")).map(|word| word.parse());
    let mut next = |usual: u64| numbers.next().unwrap_or(Ok(usual));
    let (cpu, pairs, seconds) = (next(1)?, next(7)?, next(3)?);
    let mut wakeup = Vec::new();
    for interval in [100, 200, 500, 1000] {
        wakeup.push(wakeups(cpu, pairs, seconds, interval)?);
    }
    let (gap, run) = gaps(cpu, pairs, seconds)?;
    let machine = Machine {
        processor: run.host.processor,
        hypervisor: run.host.hypervisor,
        cpus: std::thread::available_parallelism()?.get(),
        release: run.host.release.split('-').next().unwrap_or_default().to_owned(),
        clock: run.clock.context("a run of ours names its clock")?.source,
    };
    println!(
        "{}, {} CPUs, {}, Linux {}, clock {}",
        machine.processor,
        machine.cpus,
        machine.hypervisor.as_deref().map_or("no hypervisor".to_owned(), |h| format!("{h} guest")),
        machine.release,
        machine.clock
    );
    println!("CPU {cpu}, FIFO 90, {pairs} interleaved pairs of {seconds} s, medians\n");
    println!(
        "wakeup latency, us        quietcores              cyclictest          ratio of medians      median of pair ratios"
    );
    println!(
        "interval              min    p50    p99      min    p50    p99      min   p50   p99        min   p50   p99"
    );
    for w in &wakeup {
        let (ours, theirs) = (medians(&w.pairs, |p| p.ours), medians(&w.pairs, |p| p.theirs));
        let us =
            |f: Figures| format!("{:6.2} {:6.2} {:6.1}", f.min / 1e3, f.p50 / 1e3, f.p99 / 1e3);
        let times = |f: Figures| format!("{:5.2} {:5.2} {:5.2}", f.min, f.p50, f.p99);
        println!(
            "{:>5} us           {}   {}    {}      {}",
            w.interval_us,
            us(ours),
            us(theirs),
            times(w.ratio),
            times(w.pair_ratio)
        );
    }
    let [ours, theirs, read] = gap.medians;
    println!(
        "\ngap, ns a turn: quietcores {ours:.1}, oslat {theirs:.1}, bare clock read {read:.1}"
    );
    let results =
        Results { schema: "quietcores.peers/1", machine, cpu: cpu as u32, seconds, wakeup, gap };
    if let Some(path) = std::env::var_os("PEERS_JSON") {
        std::fs::write(path, serde_json::to_string_pretty(&results)? + "\n")?;
    }
    Ok(())
}

fn wakeups(cpu: u64, pairs: u64, seconds: u64, interval: u64) -> anyhow::Result<Wakeup> {
    let mut all = Vec::new();
    for pair in 0..pairs {
        let both = if pair % 2 == 0 {
            let ours = ours(cpu, seconds, interval)?;
            Pair { ours, theirs: cyclictest(cpu, seconds, interval)? }
        } else {
            let theirs = cyclictest(cpu, seconds, interval)?;
            Pair { ours: ours(cpu, seconds, interval)?, theirs }
        };
        all.push(both);
    }
    let (ours, theirs) = (medians(&all, |p| p.ours), medians(&all, |p| p.theirs));
    let over = |a: Figures, b: Figures| Figures {
        min: a.min / b.min,
        p50: a.p50 / b.p50,
        p99: a.p99 / b.p99,
    };
    let pair_ratio = medians(&all, |p| over(p.ours, p.theirs));
    Ok(Wakeup { interval_us: interval, pairs: all, ratio: over(ours, theirs), pair_ratio })
}

fn medians(pairs: &[Pair], of: impl Fn(&Pair) -> Figures) -> Figures {
    let one = |field: fn(Figures) -> f64| median(pairs.iter().map(|p| field(of(p))).collect());
    Figures { min: one(|f| f.min), p50: one(|f| f.p50), p99: one(|f| f.p99) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The readings as they were taken, as cyclictest has them; to 10 ns, by the linear histogram.
fn ours(cpu: u64, seconds: u64, interval: u64) -> anyhow::Result<Figures> {
    let run = measure(&[
        "wakeup",
        "--cpus",
        &cpu.to_string(),
        "--interval",
        &format!("{interval}us"),
        "--for",
        &format!("{seconds}s"),
        "--bucket",
        "10ns",
        "--buckets",
        "200000",
    ])?;
    let thread = run.threads.first().context("a run has a thread")?;
    let linear = thread.readings.linear.as_ref().context("a run has a linear histogram")?;
    let counts = linear.counts.iter().map(|(at, n)| (f64::from(*at) * 10.0, *n)).collect();
    let min = thread.readings.min.unwrap_or(Nanos::ZERO).0 as f64;
    Ok(figures(counts, linear.over, min))
}

fn cyclictest(cpu: u64, seconds: u64, interval: u64) -> anyhow::Result<Figures> {
    let text = peer(
        "cyclictest",
        &[
            "-m",
            "-p90",
            "--policy=fifo",
            "-t1",
            &format!("-a{cpu}"),
            // Off the measured CPU, as quietcores keeps its own main thread.
            &format!("--mainaffinity={}", if cpu == 0 { 1 } else { 0 }),
            "-i",
            &interval.to_string(),
            "-d0",
            "-D",
            &seconds.to_string(),
            "-N",
            "-q",
            "-h",
            "2000000",
        ],
    )?;
    let thread = &text["thread"]["0"];
    let counts = histogram(thread)?;
    let held: u64 = counts.iter().map(|(_, n)| n).sum();
    // Rounded as ours are; its histogram loses what is beyond, the number of cycles tells.
    let counts = counts.into_iter().map(|(ns, n)| ((ns / 10.0).floor() * 10.0, n)).collect();
    let over = thread["cycles"].as_u64().unwrap_or(held).saturating_sub(held);
    Ok(figures(counts, over, thread["min"].as_f64().context("cyclictest gave no min")?))
}

/// Percentiles of counts by value; `over` readings lie beyond them all.
fn figures(mut counts: Vec<(f64, u64)>, over: u64, min: f64) -> Figures {
    counts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = counts.iter().map(|c| c.1).sum::<u64>() + over;
    let at = |share: f64| {
        let rank = (share * total as f64).ceil() as u64;
        let mut seen = 0;
        let found = counts.iter().find(|(_, n)| {
            seen += n;
            seen >= rank
        });
        found.map_or(f64::INFINITY, |c| c.0)
    };
    Figures { min, p50: at(0.5), p99: at(0.99) }
}

fn gaps(cpu: u64, pairs: u64, seconds: u64) -> anyhow::Result<(Gap, Run)> {
    let mut turns = Vec::new();
    let mut last = None;
    for _ in 0..pairs {
        let run = measure(&["gap", "--cpus", &cpu.to_string(), "--for", &format!("{seconds}s")])?;
        let thread = run.threads.first().context("a run has a thread")?;
        // The most frequent turn would be flattering: this is all time over all turns.
        let ours = thread.readings.sum.0 as f64 / thread.obtained as f64;
        let text = peer(
            "oslat",
            &["-c", &cpu.to_string(), "-D", &seconds.to_string(), "-b", "32", "-f", "90", "-z"],
        )?;
        let thread = &text["thread"]["0"];
        let reads: u64 = histogram(thread)?.iter().map(|(_, n)| n).sum();
        let duration = thread["duration"].as_f64().context("oslat gave no duration")?;
        let read = run.clock.as_ref().context("a run of ours names its clock")?.read;
        turns.push([ours, duration * 1e9 / reads as f64, read.0 as f64]);
        last = Some(run);
    }
    let column = |at: usize| median(turns.iter().map(|t| t[at]).collect());
    let medians = [column(0), column(1), column(2)];
    Ok((Gap { turns, medians }, last.context("at least one pair is needed")?))
}

fn measure(arguments: &[&str]) -> anyhow::Result<Run> {
    let program = env!("CARGO_BIN_EXE_quietcores");
    let store = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.arg("measure").args(arguments).arg("--store").arg(store.path()).args([
        "--policy",
        "fifo",
        "--priority",
        "90",
        "--strict",
        "--json",
    ]);
    let output = command.output()?;
    if !output.status.success() {
        bail!("quietcores: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs one of rt-tests and reads its JSON.
fn peer(name: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    let file = tempfile::NamedTempFile::new()?;
    let output = Command::new(name)
        .args(arguments)
        .arg(format!("--json={}", file.path().display()))
        .output()
        .with_context(|| format!("cannot start {name}; install rt-tests"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_str(&std::fs::read_to_string(file.path())?)?)
}

fn histogram(thread: &Value) -> anyhow::Result<Vec<(f64, u64)>> {
    let counts = thread["histogram"].as_object().context("the peer gave no histogram")?;
    counts
        .iter()
        .map(|(key, n)| Ok((key.parse::<f64>()?, n.as_u64().context("a count is a number")?)))
        .collect()
}
