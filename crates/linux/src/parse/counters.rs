//! What the kernel counts for each CPU.

use super::{interrupts, steal};
use quiet_types::{Counters, CpuSet, counters::Interrupt};

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
    let rows = table.irqs.into_iter().map(|row| (Interrupt::Irq(row.number), row.counts));
    let vectors = table.vectors.into_iter().map(|row| (Interrupt::Vector(row.name), row.counts));
    for (row, counts) in rows.chain(vectors) {
        for (cpu, n) in counts {
            if n > 0 && cpus.contains(cpu) {
                found.of(cpu).interrupts.insert(row.clone(), n);
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
        assert_eq!(counters("", "", "", &"0-3".parse().unwrap()), Counters::default());
    }
}
