//! What the kernel counts for each CPU.

use super::{IrqRow, interrupts, steal};
use quiet_types::{Counters, CpuSet, counters::Interrupt, machine::Irq};

/// Stolen time, interrupts and softirqs of `cpus` since boot, from `/proc/stat`, `/proc/interrupts` and `/proc/softirqs`. Lines that
/// make no sense, and what was never counted, are left out.
///
/// # Source
/// proc_stat(5), proc_interrupts(5); `show_softirqs` in fs/proc/softirqs.c, which prints the table as that of the interrupts.
pub fn counters(stat: &str, irqs: &str, softirqs: &str, cpus: &CpuSet) -> Counters {
    let mut found = Counters::default();
    for (cpu, ticks) in steal(stat).unwrap_or_default() {
        if cpus.contains(cpu) {
            found.of(cpu).steal = Some(ticks);
        }
    }
    let (table, _) = interrupts(irqs);
    let rows = table.irqs.into_iter().map(|row| (of_device(&row), row.counts));
    let vectors = table
        .vectors
        .into_iter()
        .map(|row| (Interrupt::Vector(vector(row.name, &row.description)), row.counts));
    for (row, counts) in rows.chain(vectors) {
        for (cpu, n) in counts {
            if n > 0 && cpus.contains(cpu) {
                *found.of(cpu).interrupts.entry(row.clone()).or_default() += n;
            }
        }
    }
    let (table, _) = interrupts(softirqs);
    for row in table.vectors {
        for (cpu, n) in row.counts {
            if n > 0 && cpus.contains(cpu) {
                found.of(cpu).softirqs.insert(row.name.clone(), n);
            }
        }
    }
    found
}

/// A numbered row that each CPU has of its own (Arm's timer) is told by its name: its number differs from kernel to kernel.
fn of_device(row: &IrqRow) -> Interrupt {
    let named = Irq { actions: row.actions.clone(), ..Irq::default() };
    match row.actions.first() {
        Some(action) if named.is_of_each_cpu() => Interrupt::Vector(action.clone()),
        _ => Interrupt::Irq(row.number),
    }
}

/// Arm's rows have numbers that differ from kernel to kernel: their words go with them.
fn vector(name: String, description: &str) -> String {
    let words = description.strip_suffix(" interrupts").unwrap_or(description);
    if name.starts_with("IPI") && !words.is_empty() { format!("{name} {words}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::CpuId;

    #[test]
    fn counters_are_those_of_the_cpus_asked_for_even_where_numbers_have_holes() {
        let stat = "cpu 1 1 1 1 1 1 1 9 0 0\ncpu0 1 1 1 1 1 1 1 2 0 0\ncpu2 1 1 1 1 1 1 1 7 0 0\n";
        let irqs = "           CPU0       CPU2\n  9:   3   5  IO-APIC acpi\n 10: 1 0 IO-APIC x\nLOC:  11  13 timers\nERR:  4\n";
        let softirqs = "                    CPU0       CPU1       CPU2\n          HI:          1          0          6\n       TIMER:          1          8          0\n";
        let found = counters(stat, irqs, softirqs, &"2".parse().unwrap());
        assert_eq!(found.cpus().collect::<Vec<_>>(), [CpuId(2)]);
        let two = found.cpu(CpuId(2)).unwrap();
        assert_eq!(two.steal, Some(7));
        assert_eq!(
            two.interrupts,
            [(Interrupt::Irq(9), 5), (Interrupt::Vector("LOC".into()), 13)].into()
        );
        assert_eq!(two.softirqs, [("HI".to_owned(), 6)].into());
        // As Linux 6.12 of arm64 prints it.
        let irqs = "           CPU0       CPU1\n 11:        721        669     GICv3  27 Level     arch_timer\n 20:          0         65  ITS-PCI-MSIX-0000:00:02.0   0 Edge      xhci_hcd\nIPI0:        53         40       Rescheduling interrupts\nIPI1:       363        309       Function call interrupts\n";
        let found = counters("", irqs, "", &"1".parse().unwrap());
        let named = |name: &str| Interrupt::Vector(name.to_owned());
        assert_eq!(
            found.cpu(CpuId(1)).unwrap().interrupts,
            [
                (named("arch_timer"), 669),
                (Interrupt::Irq(20), 65),
                (named("IPI0 Rescheduling"), 40),
                (named("IPI1 Function call"), 309)
            ]
            .into()
        );
        assert_eq!(counters("", "", "", &"0-3".parse().unwrap()), Counters::default());
    }
}
