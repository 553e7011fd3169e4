//! Device interrupts and per-CPU vectors.

use super::Reader;
use crate::parse::{self, IrqRow};
use quiet_types::{Machine, machine::Irq};

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) {
    let path = "/proc/interrupts";
    machine.default_irq_affinity = reader.mask("/proc/irq/default_smp_affinity");
    let Some(text) = reader.whole_text(path) else { return };
    let (table, wrong) = parse::interrupts(&text);
    wrong.iter().for_each(|wrong| reader.complain(path, wrong));
    machine.vectors = table.vectors;
    machine.irqs = table.irqs.into_iter().map(|row| irq(reader, row)).collect();
    machine.irqs.sort_by_key(|irq| irq.number);
}

fn irq(reader: &Reader<'_>, row: IrqRow) -> Irq {
    let number = row.number;
    let proc = |name: &str| format!("/proc/irq/{number}/{name}");
    let sys = |name: &str| reader.text(&format!("/sys/kernel/irq/{number}/{name}"));
    // The row's chip and actions are one text, to be guessed apart; these files (kernel 4.10 and
    // newer) hold them one by one.
    let chip = sys("chip_name").filter(|chip| !chip.is_empty()).or_else(|| row.chip.clone());
    let actions = match sys("actions") {
        Some(text) if !text.is_empty() => text.split(',').map(str::to_owned).collect(),
        _ => row.actions.clone(),
    };
    Irq {
        number,
        actions,
        requested: reader.cpus(&proc("smp_affinity_list")),
        effective: reader.cpus(&proc("effective_affinity_list")),
        node: reader.number::<i64>(&proc("node")).and_then(|node| u32::try_from(node).ok()),
        immovable: immovable(reader, &row, chip.as_deref()),
        counts: row.counts,
        chip,
    }
}

/// Why it cannot be moved, where a file says so. Kernels before 6.12 leave the mask file writable
/// and refuse the write.
fn immovable(reader: &Reader<'_>, row: &IrqRow, chip: Option<&str>) -> Option<String> {
    let number = row.number;
    let dir = format!("/proc/irq/{number}");
    let state = reader.text_if_allowed(&format!("/sys/kernel/debug/irq/irqs/{number}"));
    if state.is_some_and(|text| text.contains("IRQD_AFFINITY_MANAGED")) {
        return Some("managed: its driver spreads it over the CPUs itself".to_owned());
    }
    // Numbers 16 to 31 of an Arm GIC are private to each CPU.
    if chip.is_some_and(|chip| chip.starts_with("GIC"))
        && row.hwirq.is_some_and(|hwirq| (16..32).contains(&hwirq))
    {
        return Some("per CPU: the interrupt controller gives each CPU its own".to_owned());
    }
    if !reader.exists(&format!("{dir}/smp_affinity_list"))
        && !reader.exists(&format!("{dir}/smp_affinity"))
    {
        return Some(format!("{dir} has no affinity file"));
    }
    reader
        .is_read_only(&format!("{dir}/smp_affinity_list"))
        .then(|| "managed or per CPU: the kernel lets nobody write its affinity".to_owned())
}
