//! What may still run on the shielded CPUs, by a fresh look at the machine.

use crate::{
    change::{Change, effective_file, irq_file, irq_of},
    journal::Past,
    served::actions,
    tasks,
};
use quiet_linux::{
    Kernel,
    parse::{self, IrqRow},
};
use quiet_types::{
    CpuSet,
    plan::{Resident, ResidentKind},
    printable,
    shield::Shield,
};
use std::collections::{HashMap, HashSet};

/// Threads and interrupts that may run on the shield, intruders first.
pub(crate) fn residents(kernel: &dyn Kernel, shield: &Shield, past: &Past) -> Vec<Resident> {
    let chain = chain_irqs(shield, past);
    let mut found = threads(kernel, shield, past, &chain);
    found.extend(interrupts(kernel, shield, past, &chain));
    found.sort_by(|a, b| (a.kind, &a.name, a.number).cmp(&(b.kind, &b.name, b.number)));
    found
}

/// Interrupts that the plan put onto the shield. The last word counts: a number may serve another
/// device by now.
fn chain_irqs(shield: &Shield, past: &Past) -> HashSet<u32> {
    let mut last = HashMap::new();
    for (_, change) in &past.changes {
        if let Change::Irq { number, new, .. } = change {
            last.insert(*number, new.is_subset(&shield.cpus));
        }
    }
    last.into_iter().filter(|(_, ours)| *ours).map(|(number, _)| number).collect()
}

fn threads(
    kernel: &dyn Kernel,
    shield: &Shield,
    past: &Past,
    chain: &HashSet<u32>,
) -> Vec<Resident> {
    let inside: HashSet<u32> = match &shield.entry {
        Some(entry) => {
            tasks::listed(kernel, &entry.threads()).unwrap_or_default().into_iter().collect()
        }
        None => HashSet::new(),
    };
    let placed = placed(shield, past);
    let may_run = |tid| kernel.affinity(tid).is_ok_and(|cpus| cpus.intersects(&shield.cpus));
    let mut found = Vec::new();
    let look = |_, task: tasks::Identity| {
        let Ok(allowed) = kernel.affinity(task.thread.tid) else { return };
        let cpus = allowed.intersection(&shield.cpus);
        let (kind, why) = if inside.contains(&task.thread.tid)
            || placed.contains(&(task.thread.tid, task.thread.start))
        {
            (ResidentKind::Chain, "placed on the shield".to_owned())
        } else if irq_of(&task.thread.comm).is_some_and(|irq| task.kernel && chain.contains(&irq)) {
            (ResidentKind::Chain, "serves an interrupt of the chain".to_owned())
        } else if task.kernel {
            kernel_thread(&task.thread.comm, task.movable, &allowed)
        } else {
            (ResidentKind::Foreign, format!("it may run on CPU {allowed}: placed so since"))
        };
        found.push(Resident {
            cpus,
            kind,
            name: printable(&task.thread.comm, 32),
            number: task.thread.tid,
            why,
            since: None,
        });
    };
    // Without `/proc` there is nothing to be said.
    let _ = tasks::each(kernel, may_run, look);
    found
}

fn kernel_thread(comm: &str, movable: bool, allowed: &CpuSet) -> (ResidentKind, String) {
    let why = match comm {
        _ if comm.starts_with("irq/") => "it follows its interrupt",
        _ if comm.starts_with("kworker/u") => {
            "worker of the unbound workqueues; woken where their mask allows"
        }
        _ if comm.starts_with("kworker/R-") => "rescue worker, for times without memory",
        _ if !movable && allowed.len() == 1 => "the kernel has one for this CPU",
        _ if !movable => "the kernel forbids moving it",
        _ => return (ResidentKind::Kernel, format!("it may run on CPU {allowed}")),
    };
    (ResidentKind::Fixed, why.to_owned())
}

/// Threads that the plan itself pinned onto the shield.
fn placed(shield: &Shield, past: &Past) -> HashSet<(u32, u64)> {
    let mut placed = HashSet::new();
    for (_, change) in &past.changes {
        if let Change::Affinity { threads, .. } = change {
            for one in threads.iter().filter(|one| one.new.intersects(&shield.cpus)) {
                placed.insert((one.thread.tid, one.thread.start));
            }
        }
    }
    placed
}

fn interrupts(
    kernel: &dyn Kernel,
    shield: &Shield,
    past: &Past,
    chain: &HashSet<u32>,
) -> Vec<Resident> {
    let counts = counts(kernel, &shield.cpus);
    let before: HashMap<u32, u64> = past.irqs.iter().copied().collect();
    let tried: HashMap<u32, bool> = past
        .outcomes
        .iter()
        .filter_map(|(step, outcome)| match step.action {
            quiet_types::plan::Action::Irq { number, .. } => Some((number, outcome.holds())),
            _ => None,
        })
        .collect();
    let names = kernel.list("/proc/irq").unwrap_or_default();
    let mut found = Vec::new();
    for number in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let read = |file: String| kernel.read(&file).ok()?.parse::<CpuSet>().ok();
        let delivered = read(effective_file(number)).filter(|cpus| !cpus.is_empty());
        let Some(at) = delivered.or_else(|| read(irq_file(number))) else { continue };
        let cpus = at.intersection(&shield.cpus);
        let now = counts.get(&number).copied();
        let name = actions(kernel, number);
        // Nobody has asked for it (the PC's cascade): it cannot fire.
        if cpus.is_empty() || (name.is_empty() && now.is_none()) {
            continue;
        }
        let (kind, why) = match tried.get(&number) {
            _ if chain.contains(&number) => (ResidentKind::Chain, "an interrupt of the chain"),
            Some(false) => (ResidentKind::Irq, "the kernel refused to move it"),
            Some(true) => (ResidentKind::Irq, "it moves when it next fires, or was put here since"),
            None => (ResidentKind::Irq, "it cannot be moved, or was put here since"),
        };
        found.push(Resident {
            cpus,
            kind,
            name,
            number,
            why: why.into(),
            since: now.and_then(|now| Some(now.saturating_sub(*before.get(&number)?))),
        });
    }
    found
}

/// Deliveries of every numbered interrupt on `cpus`, since boot.
pub(crate) fn counts(kernel: &dyn Kernel, cpus: &CpuSet) -> HashMap<u32, u64> {
    let text = kernel.read("/proc/interrupts").unwrap_or_default();
    let (table, _) = parse::interrupts(&text);
    let sum = |row: &IrqRow| {
        row.counts.iter().filter(|(cpu, _)| cpus.contains(*cpu)).map(|(_, count)| count).sum()
    };
    table.irqs.iter().map(|row| (row.number, sum(row))).collect()
}
