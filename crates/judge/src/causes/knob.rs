//! Causes in words, and what removes each.

use quiet_types::{explain::Cause, printable};

/// A cause in words.
pub fn title(cause: &Cause) -> String {
    let text = match cause {
        Cause::Task { name, priority: 0 } => format!("task {name}"),
        Cause::Task { name, priority: 100 } => format!("task {name}, above every FIFO task"),
        Cause::Task { name, priority } => format!("task {name}, real-time {priority}"),
        Cause::FairServer { name } => format!("fair server or throttling, for {name}"),
        Cause::Work { function } => format!("work item {function}"),
        Cause::Irq { number, name } => format!("IRQ {number} ({name})"),
        Cause::Tick => "tick".to_owned(),
        Cause::Timer { function } if function == "?" => "timer interrupt".to_owned(),
        Cause::Timer { function } => format!("timer {function}"),
        Cause::Call { function, sender, site } => match (function.as_str(), sender.as_str()) {
            ("?", "?") => "function call from another CPU".to_owned(),
            ("?", sender) => format!("function call from another CPU, from {sender}"),
            (function, sender) if site == "?" && sender != "?" => {
                format!("IPI to run {function}, from {sender}")
            }
            (function, "?") => format!("IPI to run {function}"),
            (function, sender) => format!("IPI to run {function}, from {sender} in {site}"),
        },
        Cause::Reschedule { sender, .. } if sender == "?" => "reschedule IPI".to_owned(),
        Cause::Reschedule { sender, site } if site == "?" => {
            format!("reschedule IPI, from {sender}")
        }
        Cause::Reschedule { sender, site } => format!("reschedule IPI, from {sender} in {site}"),
        Cause::Vector { name, sender: Some(sender) } => format!("interrupt {name}, from {sender}"),
        Cause::Vector { name, sender: None } => format!("interrupt {name}"),
        Cause::Softirq { name } => format!("softirq {name}"),
        Cause::Nmi => "NMI".to_owned(),
        Cause::Stopped => "stopped by a signal".to_owned(),
        Cause::Slept => "slept".to_owned(),
        Cause::Blocked => "waited for a disk or a lock".to_owned(),
        Cause::Idle => "waking from idle".to_owned(),
        Cause::Masked { name } => format!("interrupts off in {name}"),
        Cause::Host => "host: nothing here ran".to_owned(),
        Cause::Firmware => "firmware (SMI): nothing here ran".to_owned(),
        Cause::Unexplained => "unexplained: no event".to_owned(),
        Cause::Unrecorded => "unrecorded: events are missing".to_owned(),
    };
    printable(&text, 160)
}

/// What removes a cause, in a sentence.
pub fn knob(cause: &Cause) -> String {
    let text = match cause {
        Cause::Task { name, .. } if bound(name) => {
            "A thread of the kernel that is bound to this CPU: remove what gives it work here \
             (nohz_full=, rcu_nocbs=, no CPU hotplug)."
        }
        Cause::Task { priority: 0, .. } => {
            "Keep tasks off this CPU: `quietcores apply --cpus N`; or a real-time policy for yours."
        }
        Cause::Task { .. } => {
            "A real-time task of a higher priority: give it another CPU, or a lower priority."
        }
        Cause::FairServer { .. } => {
            "Keep ordinary tasks off this CPU (`quietcores apply --cpus N`), or let the loop sleep; \
             the fair server is set in /sys/kernel/debug/sched/fair_server/."
        }
        Cause::Work { function } if function.contains("vmstat") => {
            "Statistics of memory: raise vm.stat_interval, or isolate the CPU at boot (nohz_full=)."
        }
        Cause::Work { .. } => {
            "Keep unbound work away: /sys/devices/virtual/workqueue/cpumask; bound work ends where \
             nothing on this CPU asks for it."
        }
        Cause::Irq { .. } => {
            "Move it: /proc/irq/N/smp_affinity_list (`quietcores apply` does); where the kernel \
             refuses, the device's queues are managed (isolcpus=managed_irq at boot)."
        }
        Cause::Tick => "nohz_full= at boot, with one task alone on the CPU.",
        Cause::Timer { .. } => {
            "A timer that was armed on this CPU: keep who arms it off; kernel.timer_migration for \
             those that may move."
        }
        Cause::Call { function, .. } if function.contains("tlb") => {
            "A process with threads on this CPU and others changes its memory: keep its threads \
             off, or put the loop in a process of its own."
        }
        Cause::Call { .. } => {
            "Stop who asks (profilers, membarrier, module loading), or confine it to other CPUs."
        }
        Cause::Reschedule { .. } => "Another CPU wakes tasks here: keep them off this CPU.",
        Cause::Vector { name, .. } if name == "timer_broadcast" => {
            "This CPU's own timer stands still in a deep idle state, and another wakes it: forbid deep idle states \
             (/dev/cpu_dma_latency held at 0, as the shield does)."
        }
        Cause::Vector { .. } => "See what arms it; profilers and watchdogs do.",
        Cause::Softirq { name } => match name.as_str() {
            "NET_RX" | "NET_TX" => {
                "Move the card's IRQ, and take this CPU out of its rps_cpus and xps_cpus."
            }
            "RCU" => "rcu_nocbs= at boot.",
            "SCHED" => "Take the CPU out of load balancing: an isolated partition.",
            "TIMER" => "Timers of whoever runs here: keep them off.",
            "BLOCK" => "Disk requests end where they began: keep who writes off this CPU.",
            _ => "Move the interrupt that it belongs to.",
        },
        Cause::Nmi => "kernel.nmi_watchdog=0, and no profiler.",
        Cause::Stopped => "Something sends it SIGSTOP, or debugs it.",
        Cause::Slept => "It gave the CPU away by itself.",
        Cause::Blocked => "Lock its memory, and let it touch no file.",
        Cause::Idle => {
            "Forbid deep idle states: /dev/cpu_dma_latency held at 0 (the shield does). In a \
             virtual machine the host wakes a halted CPU: let it spin."
        }
        Cause::Masked { .. } => {
            "A kernel with PREEMPT_RT switches interrupts off for less; keep the task off this CPU."
        }
        Cause::Host => {
            "Only the host can: pin virtual CPUs to processors of their own, or use the bare machine."
        }
        Cause::Firmware => "Firmware settings: USB legacy support, power management, fan control.",
        Cause::Unexplained => "Firmware or the hardware, or what this kernel does not trace.",
        Cause::Unrecorded => "A shorter run or a higher threshold.",
    };
    text.to_owned()
}

/// Whether a task's name is one of the kernel's threads of one CPU: `ksoftirqd/1`.
fn bound(name: &str) -> bool {
    let bound =
        ["ksoftirqd/", "migration/", "cpuhp/", "rcuc/", "ktimers/", "irq_work/", "idle_inject/"];
    bound.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_chose_as_a_name_prints_harmless() {
        let cause = Cause::Task { name: "\x1b[2Jevil".to_owned(), priority: 0 };
        assert!(!title(&cause).contains('\x1b'));
    }

    #[test]
    fn a_thread_of_the_kernel_is_not_told_to_be_moved() {
        let of = |name: &str| knob(&Cause::Task { name: name.to_owned(), priority: 0 });
        assert_ne!(of("ksoftirqd/1"), of("firefox"));
    }
}
