//! Interrupts: which a source names, and where one is delivered that cannot be moved.

use crate::{
    irq::{delivered, fired_on},
    lookup::Lookup,
    names::says,
};
use quiet_types::{
    CpuSet,
    chain::IrqSource,
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
    if irq.immovable.is_some() {
        return delivered(irq).cloned();
    }
    let only = on.only?;
    (fired_on(irq) == Some(only)).then(|| [only].into_iter().collect())
}
