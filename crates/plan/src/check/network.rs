//! The network's interrupts beside those of the sound card and the player.

use super::{
    facts::{Facts, cpus, irq_name},
    interrupts::delivered,
    verdict::{Verdict, fine, moot, note, warning},
};
use quiet_types::{
    CpuSet,
    chain::{IrqSource, Target},
    finding::When,
    machine::Irq,
    printable,
};

pub(super) fn network_beside_card(f: &Facts) -> Verdict {
    let nics = f.machine.network_cards.iter().flat_map(|nic| f.irqs_of(nic));
    let nics: Vec<&Irq> = nics.filter(|irq| irq.total() > 0).collect();
    let cards: Vec<&Irq> = f.cards().iter().flat_map(|card| f.irqs_of(card)).collect();
    if nics.is_empty() || cards.is_empty() {
        return moot("this needs a network card and a sound card with interrupts");
    }
    if f.machine.online.len() < 2 {
        return moot("there is only one CPU");
    }
    for card in cards.iter().filter(|irq| irq.total() > 0) {
        let at = delivered(card);
        let clash = nics
            .iter()
            .find(|nic| at.len() == 1 && delivered(nic) == at && nic.number != card.number);
        if let Some(nic) = clash {
            return warning(format!(
                "{} and {} are delivered to the same {}",
                irq_name(card),
                irq_name(nic),
                cpus(&at)
            ))
            .evidence(format!(
                "/proc/irq/{}/effective_affinity_list and \
                    /proc/irq/{}/effective_affinity_list are both {at}; {} CPUs \
                    are online",
                card.number,
                nic.number,
                f.machine.online.len()
            ))
            .effect("a burst of packets holds up the sound card's interrupt")
            .remedy(
                "give the network's interrupt another CPU: near the player \
                    that it feeds, not near the card",
            )
            .when(When::RunTime)
            .into();
        }
    }
    fine("network and sound card have their interrupts on different CPUs")
}

pub(super) fn network_far(f: &Facts) -> Verdict {
    let links = f.links();
    let net = links.iter().position(|link| matches!(&link.target, Target::Irq(IrqSource::Net(_))));
    let Some((link, next)) = net.and_then(|at| Some((&links[at], links.get(at + 1)?))) else {
        return moot("the chain has no network link that feeds another");
    };
    let player: CpuSet = match &next.cpus {
        Some(cpus) => cpus.clone(),
        None => f.link_tasks(next).iter().fold(CpuSet::new(), |all, t| all.union(&t.allowed)),
    };
    let far: Vec<&Irq> = f
        .link_irqs(link)
        .into_iter()
        .filter(|irq| irq.total() > 0 && !delivered(irq).intersects(&player))
        .collect();
    if player.is_empty() || far.is_empty() {
        return fine("the network's interrupt is where the link that it feeds runs");
    }
    note(format!(
        "{} is delivered to {}, the `{}` that it feeds runs on {}",
        irq_name(far[0]),
        cpus(&delivered(far[0])),
        printable(&next.name, 40),
        cpus(&player)
    ))
    .evidence(format!("/proc/irq/{}/effective_affinity_list", far[0].number))
    .effect("each packet goes through another CPU's caches before the player sees it")
    .remedy("give both links the same CPU in the chain file")
    .when(When::RunTime)
    .into()
}
