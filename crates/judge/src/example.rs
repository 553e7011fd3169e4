//! A proof with invented readings, for tests and for looking at the page. Nothing in it was
//! measured; it says so of itself.

mod values;

pub use values::{combination, heard, lines, opening, round_trip, runs, runs_of, trial};

use crate::{judge_proof, stats::Random};
use quiet_types::{
    CpuId, CpuSet, Finding, Histogram, Machine, Nanos, Proof, Run, Severity,
    campaign::{Cell, CellStanding, CellState},
    histogram::Linear,
    history::Line,
    lot::{self, Lot},
    machine::{self, Cpu, Policy, Preemption, RunningKernel, Scheduling},
    plan::Outcome,
    proof::{self, Arm, Restored, Setting, ShieldMade, StepTaken, Verdict},
    run::{self, Host, MeasuringThread, Probe, Reading, RunClock, Spec, State, Stress, Throughput},
    shield::Mechanism,
};
use std::{collections::BTreeMap, sync::LazyLock};

const PAIRS: u32 = 8;
const INTERVAL: Nanos = Nanos::from_micros(200);
const EXPECTED: u64 = 15_000;
const LOT: Lot = Lot { seed: 1999, pairs: PAIRS };

/// Eight pairs on CPU 3: shared with a heavy tail (p99 of some 600 us), shielded without (20 us).
/// Judged. The same on every call.
pub fn proof() -> Proof {
    static PROOF: LazyLock<Proof> = LazyLock::new(invent);
    PROOF.clone()
}

fn invent() -> Proof {
    let mut random = Random::new(0x1999);
    let mut arms = Vec::new();
    for pair in 0..PAIRS {
        let mut settings = [Setting::Shared, Setting::Shielded];
        if !LOT.shared_first(pair) {
            settings.reverse();
        }
        arms.extend(settings.map(|setting| arm(&mut random, pair, setting)));
    }
    let mut proof = Proof {
        schema: proof::SCHEMA.into(),
        id: "20261121T213000Z-prove-3f9a".into(),
        started: "2026-11-21T21:30:00.000Z".into(),
        lasted: Nanos::from_secs(78),
        interrupted: false,
        host: host(),
        question: "CPU 3 shared with everybody, against CPU 3 shielded (invented readings)".into(),
        spec: wakeup_spec(),
        lot: Some(LOT),
        arms,
        order: None,
        figures: Vec::new(),
        verdict: Verdict::NotShown,
        sentence: String::new(),
        shield: Some(applied()),
        restored: Some(Restored { exact: true, differences: Vec::new() }),
        commands: vec![
            "quietcores inspect".into(),
            "sudo quietcores prove --cpus 3 --stress kernel --pairs 8".into(),
        ],
        findings: vec![
            Finding::new(
                Severity::Note,
                "example.constructed",
                "the readings of this proof are invented",
            )
            .evidence("drawn from log-normal distributions with a fixed seed"),
        ],
        machine: Box::new(machine()),
    };
    judge_proof(&proof).into_proof(&mut proof);
    proof
}

/// One run of the wakeup probe with invented readings: the first shared arm of [`proof()`].
pub fn run() -> Run {
    arm(&mut Random::new(0x1999), 0, Setting::Shared).wakeup
}

/// A campaign of six rounds, shared against shielded under the suite `kernel`, and a third setting
/// that still waits: its cells, and the runs there are, with invented readings.
pub fn campaign() -> (Vec<CellState>, Vec<Run>) {
    let mut random = Random::new(0x2026);
    let (mut cells, mut runs) = (Vec::new(), Vec::new());
    for round in 1..=6u32 {
        let settings = [Some(Setting::Shared), Some(Setting::Shielded), None];
        for (place, at) in lot::order(LOT.seed, u64::from(round), 3).into_iter().enumerate() {
            let (place, setting) = (place as u32, settings[at]);
            let name = setting.map_or("other kernel".to_owned(), |setting| setting.to_string());
            let cell = Cell {
                campaign: "shield".into(),
                probe: "wakeup".into(),
                stress: "kernel".into(),
                key: format!("{round}-{name}"),
                setting: name,
                round,
                lot: Some(LOT.seed),
                place,
                rank: at as u32,
            };
            let Some(setting) = setting else {
                cells.push(CellState {
                    cell,
                    state: CellStanding::Left,
                    why: String::new(),
                    run: None,
                });
                continue;
            };
            let mut run = arm(&mut random, round - 1, setting).wakeup;
            let at = 4 * round + place;
            run.started = Some(format!("2026-11-21T22:{at:02}:00.000Z"));
            run.id = format!("20261121T22{at:02}00Z-wakeup-{at:04}");
            run.cell = Some(cell.clone());
            let all = run.readings();
            let line = Line {
                id: run.id.clone(),
                started: run.started.clone(),
                kernel: run.host.release.clone(),
                p50: all.percentile(0.5),
                p99: all.percentile(0.99),
                p99_9: all.percentile(0.999),
                max: all.max,
                missed: run.missed(),
                beyond: run.share_beyond(&all),
                ..Line::default()
            };
            let (why, run_line) = (String::new(), Some(line));
            cells.push(CellState { cell, state: CellStanding::Done, why, run: run_line });
            runs.push(run);
        }
    }
    (cells, runs)
}

fn arm(random: &mut Random, pair: u32, setting: Setting) -> Arm {
    let id =
        |probe: &str| format!("20261121T2130{pair:02}Z-{probe}-{:04x}", random_id(pair, setting));
    let room = (0.15 * normal(random)).exp();
    let (readings, missed) = wakeups(random, room, setting);
    let wakeup = finish(&id("wakeup"), wakeup_spec(), setting, readings, missed, random);
    let gap = gap(&id("gap"), random, room, setting);
    Arm { pair, setting, wakeup, gap: Some(gap), void: None }
}

fn random_id(pair: u32, setting: Setting) -> u32 {
    (pair * 2 + setting as u32 + 1).wrapping_mul(0x9e37) & 0xffff
}

/// One latency, in ns.
fn latency(random: &mut Random, room: f64, setting: Setting) -> f64 {
    let lot = random.unit();
    match setting {
        // The kernel's locked sections, other interrupts, cold caches.
        Setting::Shared if lot < 0.10 => 150e3 * room * (0.75 * normal(random)).exp(),
        Setting::Shared if lot < 0.35 => 22e3 * room * (0.5 * normal(random)).exp(),
        Setting::Shared => 9.4e3 * (0.28 * normal(random)).exp(),
        _ if lot < 0.0004 => 90e3 * (0.8 * normal(random)).exp(),
        _ if lot < 0.02 => 17e3 * room * (0.25 * normal(random)).exp(),
        _ => 10.1e3 * (0.16 * normal(random)).exp(),
    }
}

/// What the probe would have seen period by period: raw readings and their times, and the number
/// of periods missed by each.
fn wakeups(random: &mut Random, room: f64, setting: Setting) -> (Vec<Reading>, u64) {
    let (mut readings, mut missed, mut period) = (Vec::new(), 0, 0);
    while period < EXPECTED {
        let value = Nanos(latency(random, room, setting) as u64 + 2800);
        let lost = (value.0 / INTERVAL.0).min(EXPECTED - period - 1);
        let at = Nanos(period * INTERVAL.0 + value.0);
        readings.push(Reading { at, value, missed: lost });
        missed += lost;
        period += 1 + lost;
    }
    (readings, missed)
}

fn finish(
    id: &str,
    spec: Spec,
    setting: Setting,
    readings: Vec<Reading>,
    missed: u64,
    random: &mut Random,
) -> Run {
    let raw = Histogram::of(readings.iter().map(|r| r.value));
    let every = readings
        .iter()
        .flat_map(|r| (0..=r.missed).map(|k| r.value.saturating_sub(Nanos(k * INTERVAL.0))));
    let corrected = with_linear(Histogram::of(every.clone()), &spec, every);
    let mut worst = readings.clone();
    worst.sort_by_key(|r| std::cmp::Reverse(r.value));
    worst.truncate(64);
    let thread = MeasuringThread {
        cpu: CpuId(3),
        scheduling: Some(Scheduling { policy: Policy::Fifo, priority: 90, nice: 0 }),
        allowed: Some(cpus("3")),
        slice: None,
        memory_locked: Some(true),
        expected: Some(readings.len() as u64 + missed),
        obtained: readings.len() as u64,
        missed: Some(missed),
        beyond: Some(readings.iter().filter(|r| r.value > spec.threshold).count() as u64),
        stolen: Some(Nanos::ZERO),
        max_at: worst.first().map(|r| r.at),
        readings: raw,
        corrected: Some(corrected),
        worst,
        counters: BTreeMap::from([("involuntary".into(), 0), ("faults".into(), 0)]),
        stations: Vec::new(),
    };
    let lasted = Nanos(EXPECTED * INTERVAL.0);
    new_run(id, spec, setting, lasted, thread, random)
}

fn with_linear(
    mut whole: Histogram,
    spec: &Spec,
    values: impl Iterator<Item = Nanos>,
) -> Histogram {
    let (mut counts, mut over) = (BTreeMap::new(), 0);
    for value in values {
        match value.0 / spec.bucket.0 {
            at if at < u64::from(spec.buckets) => *counts.entry(at as u32).or_insert(0) += 1,
            _ => over += 1,
        }
    }
    let counts = counts.into_iter().collect();
    whole.linear = Some(Linear { width: spec.bucket, buckets: spec.buckets, counts, over });
    whole
}

fn gap(id: &str, random: &mut Random, room: f64, setting: Setting) -> Run {
    let (hits, size) = if setting == Setting::Shared { (900, 45e3) } else { (250, 7e3) };
    let gaps: Vec<Nanos> =
        (0..hits).map(|_| Nanos((size * room * (0.6 * normal(random)).exp()) as u64)).collect();
    let spec = Spec { probe: Probe::Gap, threshold: Nanos::from_micros(5), ..wakeup_spec() };
    let quiet = (0..20_000).map(|_| Nanos(22 + (random.below(9) as u64)));
    let beyond: Vec<Nanos> = gaps.iter().copied().filter(|g| *g > spec.threshold).collect();
    let readings = Histogram::of(quiet.chain(gaps.iter().copied()));
    let thread = MeasuringThread {
        cpu: CpuId(3),
        scheduling: Some(Scheduling { policy: Policy::Fifo, priority: 90, nice: 0 }),
        allowed: Some(cpus("3")),
        slice: None,
        memory_locked: Some(true),
        expected: Some(readings.count),
        obtained: readings.count,
        missed: Some(0),
        beyond: Some(beyond.len() as u64),
        stolen: Some(Nanos(beyond.iter().map(|g| g.0).sum())),
        max_at: Some(Nanos::from_millis(700)),
        readings,
        corrected: None,
        worst: Vec::new(),
        counters: BTreeMap::new(),
        stations: Vec::new(),
    };
    new_run(id, spec, setting, Nanos::from_secs(1), thread, random)
}

fn new_run(
    id: &str,
    spec: Spec,
    setting: Setting,
    lasted: Nanos,
    thread: MeasuringThread,
    random: &mut Random,
) -> Run {
    let state = State {
        files: BTreeMap::from([
            ("proc/sys/kernel/sched_rt_runtime_us".into(), "950000".into()),
            ("proc/irq/default_smp_affinity".into(), "f".into()),
        ]),
        counters: BTreeMap::from([("proc/stat/cpu3/steal".into(), 0)]).into(),
    };
    Run {
        schema: run::SCHEMA.into(),
        id: id.into(),
        label: setting.to_string(),
        spec: spec.into(),
        started: Some("2026-11-21T21:30:00.000Z".into()),
        monotonic: Some(Nanos::from_secs(3600)),
        lasted: Some(lasted),
        interrupted: Some(false),
        partial: false,
        host: host(),
        clock: Some(RunClock {
            source: "tsc".into(),
            hertz: 2.25e9,
            drift_ppm: 0.4,
            read: Nanos(20),
            floor: Nanos(44),
            step: Nanos(1),
            told_hertz: None,
            why: String::new(),
            placing: Nanos(30),
        }),
        threads: vec![thread],
        stress: Some(stress(setting, random)),
        explained: None,
        cell: None,
        entry: None,
        before: state.clone(),
        after: state,
        findings: Vec::new(),
        origin: None,
    }
}

fn stress(setting: Setting, random: &mut Random) -> Stress {
    let part = if setting == Setting::Shared { 1.0 } else { 0.78 };
    let throughput = [("dentry", 41_000.0), ("fault", 163_000.0), ("fork", 1_900.0)]
        .map(|(stressor, rate)| {
            let per_second = (rate * part * (0.05 * normal(random)).exp()).round();
            Throughput { stressor: stressor.into(), operations: per_second * 3.0, per_second }
        })
        .to_vec();
    Stress {
        names: vec!["kernel".into()],
        command: "stress-ng --dentry 2 --fault 2 --fork 1".split(' ').map(str::to_owned).collect(),
        cpus: cpus(if setting == Setting::Shared { "0-3" } else { "0-2" }),
        throughput,
    }
}

fn wakeup_spec() -> Spec {
    Spec {
        probe: Probe::wakeup(INTERVAL),
        cpus: cpus("3"),
        policy: Policy::Fifo,
        priority: 90,
        length: Nanos::from_secs(3),
        threshold: Nanos::from_micros(100),
        bucket: Nanos::from_micros(1),
        buckets: 400,
        idle: run::Idle::Shallow,
        core: Default::default(),
    }
}

fn applied() -> ShieldMade {
    let step = |what: &str, old: &str, new: &str, why: &str, outcome: Outcome| StepTaken {
        what: what.into(),
        old: old.into(),
        new: new.into(),
        why: why.into(),
        outcome,
    };
    let verified = || Outcome::Done { seen: String::new() };
    let irqs = "device interrupts are handled elsewhere";
    ShieldMade {
        mechanism: Some(Mechanism::SetsV1),
        cpus: cpus("3"),
        housekeeping: cpus("0-2"),
        steps: vec![
            step(
                "/sys/fs/cgroup/cpuset/quietcores/rest/cpuset.cpus",
                "",
                "0-2",
                "everybody else runs elsewhere",
                verified(),
            ),
            step("/proc/irq/default_smp_affinity", "f", "7", irqs, verified()),
            step("/proc/irq/24/smp_affinity_list", "0-3", "0-2", irqs, verified()),
            step(
                "/proc/irq/36/smp_affinity_list",
                "3",
                "0-2",
                irqs,
                Outcome::Refused { reason: "Input/output error (a managed interrupt)".into() },
            ),
            step(
                "/sys/devices/virtual/workqueue/cpumask",
                "f",
                "7",
                "unbound kernel work runs elsewhere",
                verified(),
            ),
        ],
    }
}

fn host() -> Host {
    Host {
        name: "example".into(),
        release: "6.12.48".into(),
        version: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1".into(),
        arch: "x86_64".into(),
        processor: "Invented Processor N100".into(),
        hypervisor: None,
        boot_id: "6d1c3b0e-0000-4000-8000-000000000000".into(),
        program: env!("CARGO_PKG_VERSION").into(),
    }
}

fn machine() -> Machine {
    let cpu = |number: u32| Cpu {
        id: CpuId(number),
        online: true,
        core: Some(number),
        package: Some(0),
        siblings: CpuSet::from_iter([CpuId(number)]),
        llc: cpus("0-3"),
        cluster: None,
        llc_kib: Some(6144),
        node: Some(0),
        capacity: None,
        kind: None,
        governor: Some("performance".into()),
        max_khz: Some(3_400_000),
        current_khz: Some(3_392_112),
        resume_latency: Some("0".into()),
        idle_states: Vec::new(),
        steal_ticks: Some(0),
    };
    Machine {
        schema: machine::SCHEMA.into(),
        kernel: RunningKernel {
            release: "6.12.48".into(),
            version: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1".into(),
            arch: Some("x86_64".into()),
            preemption: Preemption::Full,
            boot_parameters: "ro quiet preempt=full threadirqs"
                .split(' ')
                .map(str::to_owned)
                .collect(),
            config: None,
        },
        processor: "Invented Processor N100".into(),
        board: Some("Constructed Board 1".into()),
        clock_sources: vec!["tsc".into(), "hpet".into()],
        online: cpus("0-3"),
        possible: cpus("0-3"),
        isolated: Some(CpuSet::new()),
        cpus: (0..4).map(cpu).collect(),
        ..Machine::default()
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}

/// A standard normal number (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}
