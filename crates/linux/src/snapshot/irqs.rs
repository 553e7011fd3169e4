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
        Some(text) if !text.is_empty() && text != "(null)" => {
            text.split(',').map(str::to_owned).collect()
        }
        _ => row.actions.clone(),
    };
    Irq {
        number,
        immovable: immovable(reader, &row, &actions, chip.as_deref()),
        actions,
        requested: reader.cpus(&proc("smp_affinity_list")),
        effective: reader.cpus(&proc("effective_affinity_list")),
        node: reader.number::<i64>(&proc("node")).and_then(|node| u32::try_from(node).ok()),
        counts: row.counts,
        chip,
    }
}

/// Why it cannot be moved, where that is known without trying: by a file, or by what its controller is. Kernels before 6.12 leave the
/// mask file writable and refuse the write.
fn immovable(
    reader: &Reader<'_>,
    row: &IrqRow,
    actions: &[String],
    chip: Option<&str>,
) -> Option<String> {
    let number = row.number;
    let dir = format!("/proc/irq/{number}");
    let state = reader.text_if_allowed(&format!("/sys/kernel/debug/irq/irqs/{number}"));
    if state.is_some_and(|text| text.contains("IRQD_AFFINITY_MANAGED")) {
        return Some("managed: its driver spreads it over the CPUs itself".to_owned());
    }
    // Numbers 16 to 31 of an Arm GIC are private to each CPU.
    let is_private = chip.is_some_and(|chip| chip.starts_with("GIC"))
        && row.hwirq.is_some_and(|hwirq| (16..32).contains(&hwirq));
    let named = Irq { actions: actions.to_vec(), ..Irq::default() };
    if is_private || named.is_of_each_cpu() {
        return Some("per CPU: the interrupt controller gives each CPU its own".to_owned());
    }
    if let Some((_, why)) =
        STUCK_CHIPS.iter().find(|(name, _)| chip.is_some_and(|chip| chip.starts_with(name)))
    {
        return Some((*why).to_owned());
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

/// Controllers that deliver to one CPU, by how the kernel calls them, and why.
///
/// # Source
/// drivers/irqchip/irq-bcm2835.c and irq-bcm2836.c: no `irq_set_affinity`, and one register that routes all devices to one core;
/// drivers/pci/controller/pcie-brcmstb.c: every MSI comes by one interrupt of the controller's own, and `brcm_msi_set_affinity`
/// answers EINVAL.
const STUCK_CHIPS: [(&str, &str); 4] = [
    (
        "ARMCTRL",
        "the board's interrupt controller sends every device's interrupts to one CPU and steers none",
    ),
    (
        "bcm2836",
        "the board's interrupt controller sends every device's interrupts to one CPU and steers none",
    ),
    (
        "BRCM STB",
        "every MSI behind this PCI Express controller comes by one interrupt of the controller's own, and the kernel steers none",
    ),
    (
        "brcm-msi",
        "every MSI behind this PCI Express controller comes by one interrupt of the controller's own, and the kernel steers none",
    ),
];
