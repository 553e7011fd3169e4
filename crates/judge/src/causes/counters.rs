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
    let call = |function: String| Cause::Call { function, sender: unknown(), site: unknown() };
    // Arm's rows bring their words with them: `IPI0 Rescheduling`.
    let says = |word: &str| name.starts_with("IPI") && name.contains(word);
    match name.as_str() {
        "LOC" | "arch_timer" | "riscv-timer" => Cause::Timer { function: unknown() },
        "RES" => Cause::Reschedule { sender: unknown(), site: unknown() },
        "CAL" => call(unknown()),
        "TLB" => call("flush_tlb".to_owned()),
        "NMI" => Cause::Nmi,
        _ if says("Rescheduling") => Cause::Reschedule { sender: unknown(), site: unknown() },
        _ if says("Function call") => call(unknown()),
        _ if says("IRQ work") => Cause::Vector { name: "irq_work".to_owned(), sender: None },
        _ if says("Timer broadcast") => {
            Cause::Vector { name: "timer_broadcast".to_owned(), sender: None }
        }
        _ => Cause::Vector { name, sender: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_rows_are_causes_by_their_words_whatever_their_numbers() {
        let of = |name: &str| title(&interrupt(Interrupt::Vector(name.to_owned())));
        assert_eq!(of("arch_timer"), "timer interrupt");
        assert_eq!(of("arch_timer"), of("LOC"));
        assert_eq!(of("IPI0 Rescheduling"), of("RES"));
        // Linux of 32-bit Arm has the same messages at other numbers.
        assert_eq!(of("IPI2 Rescheduling"), of("RES"));
        assert_eq!(of("IPI1 Function call"), of("CAL"));
        assert_eq!(of("IPI5 IRQ work"), "interrupt irq_work");
        assert_eq!(of("IPI4 Timer broadcast"), "interrupt timer_broadcast");
        assert_eq!(of("IPI6 CPU backtrace"), "interrupt IPI6 CPU backtrace");
    }
}
