//! Where interrupts come to, by what the kernel shows and by their counts.

use quiet_types::{CpuId, Machine, machine::Irq};

/// Some boards tell no effective CPU and deliver every device's interrupts to one CPU, whatever is
/// asked for: seen by the counts alone.
pub(crate) fn only_cpu(machine: &Machine) -> Option<CpuId> {
    let told = |irq: &Irq| irq.effective.as_ref().is_some_and(|at| !at.is_empty());
    if machine.irqs.iter().any(told) || machine.online.len() < 2 {
        return None;
    }
    let mut at = machine.irqs.iter().filter_map(fired_on);
    let first = at.next()?;
    // Two interrupts on one CPU may be chance.
    let alike = at.try_fold(1, |count, cpu| (cpu == first).then_some(count + 1))?;
    (alike > 2).then_some(first)
}

/// The one CPU that an interrupt has fired on; `None` where it has not, or on several (timers).
pub(crate) fn fired_on(irq: &Irq) -> Option<CpuId> {
    let mut fired = irq.counts.iter().filter(|(_, count)| *count > 0);
    let (cpu, _) = fired.next()?;
    fired.next().is_none().then_some(*cpu)
}
