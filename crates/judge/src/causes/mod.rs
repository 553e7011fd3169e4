//! From events and late readings to causes: who took how much time from a CPU.

mod counters;
mod knob;
mod sweep;

pub use knob::{knob, title};

use quiet_types::{
    Finding, Histogram, Nanos, Run, Severity,
    explain::{self, Cause, Explained, ExplainedCpu, Late, Part, Share, Source, Sum},
    trace::{Trace, Victim},
};
use std::collections::BTreeMap;
use sweep::{Facts, Found, Silent, Stretch, sweep};

/// Late readings whose time line is kept, and stretches in each.
const WORST: usize = 10;
const PARTS: usize = 200;
/// The way into an interrupt or another task, or back, is no longer than this: without and with a
/// hypervisor, which takes part in both.
const EDGE: u64 = 2_000;
const EDGE_VIRTUAL: u64 = 5_000;

/// Explains the late readings of a run of ours, of which threshold and times are known: by the trace where there is one, else by counters.
pub fn explain(run: &Run, trace: Option<&Trace>, victims: &[Victim]) -> Explained {
    let virtual_machine = run.host.hypervisor.is_some();
    let mut explained = Explained {
        schema: explain::SCHEMA.to_owned(),
        run: run.id.clone(),
        started: run.started.clone().unwrap_or_default(),
        lasted: run.lasted.unwrap_or_default(),
        host: run.host.clone(),
        source: if trace.is_some() { Source::Trace } else { Source::Counters },
        threshold: run.spec.threshold.unwrap_or_default(),
        cpus: Vec::new(),
        findings: Vec::new(),
    };
    let Some(trace) = trace else {
        explained.cpus = run.threads.iter().map(|thread| counters::cpu(run, thread)).collect();
        return explained;
    };
    let mut kept = BTreeMap::new();
    for victim in victims {
        let silent = match (virtual_machine, trace.smis.get(&victim.cpu)) {
            (true, _) => Silent::Host,
            (false, Some(1..)) => Silent::Firmware,
            _ => Silent::Unexplained,
        };
        let facts = Facts {
            sleeps: !run.is_gap(),
            silent,
            edge: if virtual_machine { EDGE_VIRTUAL } else { EDGE },
        };
        let found = sweep(trace, victim, facts);
        for (why, times) in &found.tick_kept {
            *kept.entry(why.clone()).or_insert(0) += times;
        }
        let mut cpu = cpu(victim, &found, run.monotonic.unwrap_or_default());
        cpu.steal = steal(run, victim);
        explained.cpus.push(cpu);
    }
    explained.findings = findings(&explained, trace, &kept);
    explained
}

/// Ticks of `steal` between before and after; the kernel's unit is 10 ms.
fn steal(run: &Run, victim: &Victim) -> Option<Nanos> {
    let ticks = run.after.counters.since(&run.before.counters, victim.cpu).steal?;
    Some(Nanos::from_millis(ticks.saturating_mul(10)))
}

fn cpu(victim: &Victim, found: &Found, start: Nanos) -> ExplainedCpu {
    let mut shares: Vec<Share> = found.causes.iter().map(share).collect();
    let mut largest: Vec<usize> = (0..found.readings.len()).collect();
    largest.sort_by_key(|at| std::cmp::Reverse(length(victim, *at)));
    largest.truncate(WORST);
    let mut lengths: Vec<Vec<Nanos>> = vec![Vec::new(); shares.len()];
    for (at, stretches) in found.readings.iter().enumerate() {
        let mut mine: BTreeMap<usize, u64> = BTreeMap::new();
        for stretch in stretches {
            *mine.entry(stretch.cause).or_default() += stretch.to - stretch.from;
            let share = &mut shares[stretch.cause];
            share.times += 1;
            share.around.0 += stretch.around;
        }
        if let Some((most, _)) = mine.iter().max_by_key(|(_, length)| **length) {
            lengths[*most].push(length(victim, at));
        }
        for (cause, length) in mine {
            let share = &mut shares[cause];
            share.readings += 1;
            share.longest = share.longest.max(Nanos(length));
            share.total = share.total.map(|total| Nanos(total.0 + length));
        }
    }
    for (share, lengths) in shares.iter_mut().zip(lengths) {
        share.lengths = Histogram::of(lengths);
    }
    // Largest first; who had no part in a late reading is left out.
    let mut order: Vec<usize> = (0..shares.len()).filter(|at| shares[*at].times > 0).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(shares[*at].total), shares[*at].cause.clone()));
    let mut place = vec![0; shares.len()];
    for (to, from) in order.iter().enumerate() {
        place[*from] = to;
    }
    let causes: Vec<Share> = order.iter().map(|at| shares[*at].clone()).collect();
    let of = |is: fn(&Cause) -> bool| {
        let sum = causes.iter().filter(|share| is(&share.cause)).filter_map(|share| share.total);
        Nanos(sum.map(|total| total.0).sum())
    };
    let total = of(|_| true);
    let host = of(|cause| *cause == Cause::Host);
    let unexplained = of(|cause| matches!(cause, Cause::Unexplained | Cause::Unrecorded));
    ExplainedCpu {
        cpu: victim.cpu,
        readings: victim.beyond,
        explained: victim.late.len() as u64,
        total,
        named: total.saturating_sub(host).saturating_sub(unexplained),
        host,
        unexplained,
        worst: largest
            .iter()
            .map(|at| late(victim, *at, &found.readings[*at], &place, start))
            .collect(),
        causes,
        steal: None,
    }
}

fn length(victim: &Victim, at: usize) -> Nanos {
    victim.late.get(at).map_or(Nanos::ZERO, |span| span.to.saturating_sub(span.from))
}

fn share(cause: &Cause) -> Share {
    Share {
        cause: cause.clone(),
        title: title(cause),
        total: Some(Nanos::ZERO),
        around: Nanos::ZERO,
        times: 0,
        longest: Nanos::ZERO,
        readings: 0,
        knob: knob(cause),
        lengths: Histogram::default(),
    }
}

fn late(victim: &Victim, at: usize, stretches: &[Stretch], place: &[usize], start: Nanos) -> Late {
    let span = victim.late[at];
    let parts: Vec<Part> = stretches
        .iter()
        .take(PARTS)
        .map(|stretch| Part {
            cause: place[stretch.cause],
            after: Nanos(stretch.from).saturating_sub(span.from),
            length: Nanos(stretch.to - stretch.from),
        })
        .collect();
    let rest = stretches.get(PARTS..).unwrap_or_default();
    let mut each: BTreeMap<usize, u64> = BTreeMap::new();
    for stretch in stretches {
        *each.entry(place[stretch.cause]).or_default() += stretch.to - stretch.from;
    }
    let mut sums: Vec<Sum> =
        each.into_iter().map(|(cause, ns)| Sum { cause, length: Nanos(ns) }).collect();
    sums.sort_by_key(|sum| (std::cmp::Reverse(sum.length), sum.cause));
    Late {
        at: span.to.saturating_sub(start),
        value: length(victim, at),
        sums,
        parts,
        rest: Nanos(rest.iter().map(|stretch| stretch.to - stretch.from).sum()),
    }
}

/// What each cause took, side by side for several sets of runs: largest first, each in time for a
/// second that was measured; `None` where a set has no trace. Empty without any.
pub fn side_by_side(sets: &[(String, Vec<&Run>)]) -> Vec<(String, Vec<Option<Nanos>>)> {
    let mut all: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut seconds = vec![0.0; sets.len()];
    for (index, (_, runs)) in sets.iter().enumerate() {
        let traced = runs.iter().filter_map(|run| run.explained.as_deref());
        for explained in traced.filter(|explained| explained.source == Source::Trace) {
            for cpu in &explained.cpus {
                seconds[index] += explained.lasted.as_secs_f64();
                for share in &cpu.causes {
                    let row = all.entry(&share.title).or_insert_with(|| vec![0; sets.len()]);
                    row[index] += share.total.unwrap_or_default().0;
                }
            }
        }
    }
    let mut rows: Vec<(&str, Vec<u64>)> = all.into_iter().collect();
    rows.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.iter().sum::<u64>()));
    let rate = |(total, seconds): (&u64, &f64)| {
        (*seconds > 0.0).then(|| Nanos((*total as f64 / seconds) as u64))
    };
    rows.into_iter()
        .map(|(title, totals)| (title.to_owned(), totals.iter().zip(&seconds).map(rate).collect()))
        .collect()
}

fn findings(explained: &Explained, trace: &Trace, kept: &BTreeMap<String, u64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if trace.lost + trace.dropped > 0 {
        findings.push(
            Finding::new(Severity::Warning, "explain.lost", "Events are missing")
                .evidence(format!(
                    "{} were overwritten before they were read, {} found no room.",
                    trace.lost, trace.dropped
                ))
                .effect("Readings of that time have no cause, or a wrong one.")
                .remedy("Explain a shorter run, with less stress, or a higher --threshold."),
        );
    }
    let left: u64 = explained.cpus.iter().map(|cpu| cpu.readings - cpu.explained).sum();
    if left > 0 {
        findings.push(
            Finding::new(Severity::Warning, "explain.left_out", "Not every late reading was kept")
                .evidence(format!("{left} above {} found no room.", explained.threshold))
                .remedy("Explain a shorter run, or a higher --threshold."),
        );
    }
    let known = |name: &str| !trace.absent.iter().any(|absent| absent.starts_with(name));
    let mut lacks = Vec::new();
    for (event, what) in [
        ("irq/irq_handler_entry", "devices' interrupts"),
        ("irq/softirq_entry", "softirqs"),
        ("ipi/ipi_send_cpu", "who sends interrupts (Linux 6.4)"),
        ("csd/csd_queue_cpu", "what another CPU asks for (Linux 6.6)"),
        ("workqueue/workqueue_execute_start", "work items"),
        ("timer/hrtimer_expire_entry", "timers' functions"),
        ("nmi/nmi_handler", "non-maskable interrupts"),
    ] {
        // Older kernels of Arm tell the sender by another event.
        let elsewhere = event == "ipi/ipi_send_cpu" && known("ipi/ipi_raise");
        if !known(event) && !elsewhere {
            lacks.push(what);
        }
    }
    if !lacks.is_empty() {
        findings.push(
            Finding::new(Severity::Note, "explain.absent", "This kernel tells less")
                .evidence(format!("It has no events for: {}.", lacks.join(", ")))
                .effect("Their time is named after what is around it."),
        );
    }
    if !kept.is_empty() {
        let each: Vec<String> =
            kept.iter().map(|(why, times)| format!("{why} ({times} times)")).collect();
        findings.push(
            Finding::new(Severity::Note, "explain.tick", "The tick could not stop")
                .evidence(format!("It is kept by: {}.", each.join(", "))),
        );
    }
    findings
}
