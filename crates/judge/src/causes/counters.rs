//! Causes where nothing may be watched: how often, from counters before and after.

use super::{knob, title};
use quiet_types::{
    Nanos, Run,
    counters::Interrupt,
    explain::{Cause, ExplainedCpu, Share},
    run::MeasuringThread,
};

pub(super) fn cpu(run: &Run, thread: &MeasuringThread) -> ExplainedCpu {
    let since = run.after.counters.since(&run.before.counters, thread.cpu);
    let softirqs = since.softirqs.into_iter().map(|(name, n)| (Cause::Softirq { name }, n));
    let mut causes: Vec<(Cause, u64)> =
        since.interrupts.into_iter().map(|(row, n)| (interrupt(row), n)).chain(softirqs).collect();
    let counted = |name| thread.counters.get(name).copied().unwrap_or(0);
    let others = Cause::Task { name: "others (involuntary switches)".to_owned(), priority: 0 };
    causes.push((others, counted("involuntary_switches")));
    causes.push((Cause::Blocked, counted("major_faults")));
    causes.retain(|(_, times)| *times > 0);
    causes.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    ExplainedCpu {
        cpu: thread.cpu,
        readings: thread.beyond.unwrap_or_default(),
        explained: 0,
        total: Nanos::ZERO,
        named: Nanos::ZERO,
        host: Nanos::ZERO,
        unexplained: Nanos::ZERO,
        causes: causes.into_iter().map(|(cause, times)| share(cause, times)).collect(),
        worst: Vec::new(),
        steal: since.steal.map(|ticks| Nanos::from_millis(ticks.saturating_mul(10))),
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

fn interrupt(row: Interrupt) -> Cause {
    let unknown = || "?".to_owned();
    let name = match row {
        Interrupt::Irq(number) => return Cause::Irq { number, name: unknown() },
        Interrupt::Vector(name) => name,
    };
    match name.as_str() {
        "LOC" => Cause::Timer { function: unknown() },
        "RES" => Cause::Reschedule { sender: unknown(), site: unknown() },
        "CAL" => Cause::Call { function: unknown(), sender: unknown(), site: unknown() },
        "TLB" => {
            Cause::Call { function: "flush_tlb".to_owned(), sender: unknown(), site: unknown() }
        }
        "NMI" => Cause::Nmi,
        _ => Cause::Vector { name },
    }
}
