//! Interrupts: which a source names, and where one is delivered that cannot be moved.

use crate::{irq::fired_on, lookup::Lookup, names::says};
use quiet_types::{
    Chain, CpuSet, Machine,
    chain::{IrqSource, Target},
    machine::{Device, Irq},
};

/// The interrupts that `source` names.
pub(crate) fn irqs<'a>(on: &Lookup<'a>, source: &IrqSource) -> Vec<&'a Irq> {
    let machine = on.machine;
    let of = |devices: &[Device], name: &str| -> Vec<u32> {
        devices
            .iter()
            .filter(|card| card.name == name || says(&card.description, name))
            .flat_map(|card| card.irqs.iter().copied())
            .collect()
    };
    let numbers = match source {
        IrqSource::Number(number) => vec![*number],
        IrqSource::Net(name) => {
            let cards = machine.network_cards.iter().filter(|card| card.name == *name);
            cards.flat_map(|card| card.irqs.iter().copied()).collect()
        }
        IrqSource::Card(name) => of(&machine.sound_cards, name),
        IrqSource::Action(name) => return on.acted(name),
    };
    on.irqs(numbers)
}

/// The numbers of the interrupts that a chain's links name, rising.
pub fn chain_interrupts(machine: &Machine, chain: &Chain) -> Vec<u32> {
    let on = Lookup::new(machine);
    let mut numbers: Vec<u32> = chain
        .links
        .iter()
        .filter_map(|link| match &link.target {
            Target::Irq(source) => Some(irqs(&on, source)),
            Target::Process { .. } => None,
        })
        .flatten()
        .map(|irq| irq.number)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The sound cards that `source` names.
pub(crate) fn cards<'a>(on: &Lookup<'a>, source: &IrqSource) -> Vec<&'a Device> {
    let own = irqs(on, source);
    let behind = |card: &&Device| card.irqs.iter().any(|n| own.iter().any(|irq| irq.number == *n));
    let named = |card: &&Device| match source {
        IrqSource::Card(name) => card.name == *name || says(&card.description, name),
        IrqSource::Net(_) => false,
        _ => behind(card),
    };
    on.machine.sound_cards.iter().filter(named).collect()
}

/// Where an interrupt is delivered that cannot be moved from there; `None` where it can.
pub(crate) fn stuck_at(on: &Lookup<'_>, irq: &Irq) -> Option<CpuSet> {
    if irq.is_of_each_cpu() {
        // Each CPU has its own: none of them is anybody's place.
        return None;
    }
    if irq.immovable.is_some() {
        return place(on.machine, irq);
    }
    let only = on.only?;
    (fired_on(irq) == Some(only)).then(|| [only].into_iter().collect())
}

/// Where one comes to that cannot be moved: as the kernel tells; else where it was counted; else, as long as it has not come, where
/// the others of its controller come to. Its mask is asked last: a controller that steers nothing lets it name every CPU.
fn place(machine: &Machine, irq: &Irq) -> Option<CpuSet> {
    if let Some(told) = irq.effective.as_ref().filter(|cpus| !cpus.is_empty()) {
        return Some(told.clone());
    }
    let counted = irq.fired_on();
    if !counted.is_empty() {
        return Some(counted);
    }
    let kin = machine.irqs.iter().filter(|other| {
        other.immovable.is_some()
            && !other.is_of_each_cpu()
            && other.chip.is_some()
            && other.chip == irq.chip
    });
    let kin = kin.fold(CpuSet::new(), |all, other| all.union(&other.fired_on()));
    if kin.is_empty() { irq.requested.clone() } else { Some(kin) }
}
