//! Causes where nothing may be watched: how often, from counters before and after.

use super::{knob, title};
use quiet_types::{
    Nanos, Run,
    explain::{Cause, Cpu, Share},
    run::Thread,
};

pub(super) fn cpu(run: &Run, thread: &Thread) -> Cpu {
    let suffix = format!("/cpu{}", thread.cpu);
    let mut causes: Vec<(Cause, u64)> = Vec::new();
    for (key, after) in &run.after.counters {
        let times = after.saturating_sub(run.before.counters.get(key).copied().unwrap_or(0));
        let Some(key) = key.strip_suffix(&suffix).filter(|_| times > 0) else { continue };
        let cause = match key.split_once("proc/interrupts/").or(key.split_once("proc/softirqs/")) {
            Some((_, name)) if key.starts_with("proc/softirqs/") => {
                Cause::Softirq { name: name.to_owned() }
            }
            Some((_, name)) => interrupt(name),
            None => continue,
        };
        causes.push((cause, times));
    }
    let counted = |name| thread.counters.get(name).copied().unwrap_or(0);
    let others = Cause::Task { name: "others (involuntary switches)".to_owned(), priority: 0 };
    causes.push((others, counted("involuntary_switches")));
    causes.push((Cause::Blocked, counted("major_faults")));
    causes.retain(|(_, times)| *times > 0);
    causes.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let key = format!("proc/stat/cpu{}/steal", thread.cpu);
    let steal = run.before.counters.get(&key).zip(run.after.counters.get(&key));
    Cpu {
        cpu: thread.cpu,
        readings: thread.beyond.unwrap_or_default(),
        explained: 0,
        total: Nanos::ZERO,
        named: Nanos::ZERO,
        host: Nanos::ZERO,
        unexplained: Nanos::ZERO,
        causes: causes.into_iter().map(|(cause, times)| share(cause, times)).collect(),
        worst: Vec::new(),
        steal: steal.map(|(a, b)| Nanos::from_millis(b.saturating_sub(*a).saturating_mul(10))),
    }
}

fn share(cause: Cause, times: u64) -> Share {
    Share {
        title: title(&cause),
        knob: knob(&cause),
        cause,
        total: None,
        around: Nanos::ZERO,
        times,
        longest: Nanos::ZERO,
        readings: 0,
        lengths: quiet_types::Histogram::default(),
    }
}

/// A row of /proc/interrupts.
fn interrupt(row: &str) -> Cause {
    let unknown = || "?".to_owned();
    match (row, row.parse()) {
        (_, Ok(number)) => Cause::Irq { number, name: unknown() },
        ("LOC", _) => Cause::Timer { function: unknown() },
        ("RES", _) => Cause::Reschedule { sender: unknown(), site: unknown() },
        ("CAL", _) => Cause::Call { function: unknown(), sender: unknown(), site: unknown() },
        ("TLB", _) => {
            Cause::Call { function: "flush_tlb".to_owned(), sender: unknown(), site: unknown() }
        }
        ("NMI", _) => Cause::Nmi,
        (name, _) => Cause::Vector { name: name.to_owned() },
    }
}
