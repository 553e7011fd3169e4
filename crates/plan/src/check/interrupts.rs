//! Where interrupts are delivered, and who shares those of the sound card.

use super::{
    facts::{Facts, count, cpus, irq_name, some, task_name},
    verdict::{NO_QUIET, Verdict, fine, moot, note, problem, unknown, warning},
};
use crate::sources::stuck_at;
use quiet_types::{
    CpuSet,
    finding::{Finding, When},
    machine::{Device, Irq, Policy},
    printable,
};
use std::collections::HashSet;

/// Interrupts a second on average since boot from which a device that is not audio is named.
const BUSY: u64 = 2_000;

const NO_CARD: &str = "this machine has no sound card";
pub(super) fn card_shared(f: &Facts) -> Verdict {
    if f.machine.sound_cards.is_empty() {
        return moot(NO_CARD);
    }
    let found = f.cards().into_iter().filter_map(|card| shared(f, card)).collect();
    Verdict::of(found, "nothing else uses the interrupts of the sound cards")
}

fn shared(f: &Facts, card: &Device) -> Option<Finding> {
    let others = &card.shared_with;
    if others.is_empty() {
        return None;
    }
    let numbers: Vec<String> = card.irqs.iter().map(u32::to_string).collect();
    let behind = card.controller.as_deref().unwrap_or("its controller");
    Some(
        warning(format!(
            "{} shares {} with {}",
            named(card),
            if numbers.is_empty() {
                "its controller".into()
            } else {
                format!("IRQ {}", numbers.join(", "))
            },
            some(others, 4)
        ))
        .evidence(format!("{behind} at {}; /proc/interrupts", card.path))
        .effect(
            "every transfer of the other device runs the same interrupt \
                handler, in front of or in the middle of an audio period",
        )
        .remedy(better_port(f, card))
        .when(When::Hands),
    )
}

/// Where else the card could be plugged in.
fn better_port(f: &Facts, card: &Device) -> String {
    if !card.path.contains("/usb") {
        return "disable the other device in the firmware or leave its driver out; a \
            card in another slot gets another line"
            .into();
    }
    let others = || f.around.usb.iter().filter(|usb| !below(&card.path, &usb.path));
    match others().find(|usb| usb.devices.is_empty()) {
        Some(usb) => format!(
            "plug the card into a port of {}, on which there is nothing, or unplug the others",
            usb.path.rsplit('/').next().unwrap_or(&usb.path)
        ),
        None if others().next().is_some() => {
            "unplug the others, or move them to another controller: each has something on it".into()
        }
        None => "unplug the others if you can; this machine has one USB controller".into(),
    }
}

fn below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn named(card: &Device) -> String {
    match card.description.is_empty() {
        true => printable(&card.name, 60),
        false => format!("{} ({})", printable(&card.name, 30), printable(&card.description, 60)),
    }
}

pub(super) fn card_stuck(f: &Facts) -> Verdict {
    let own = f.own_irqs();
    if own.is_empty() {
        return moot("no interrupt belongs to the chain or a sound card");
    }
    let stuck: Vec<&Irq> = own.iter().copied().filter(|irq| irq.immovable.is_some()).collect();
    let none = stuck.is_empty();
    let mut found: Vec<Finding> = stuck
        .into_iter()
        .map(|irq| {
            let at = stuck_at(&f.on, irq).map_or("an unknown CPU".into(), |at| cpus(&at));
            let away = at_odds(f, irq);
            let finding = if away {
                problem(format!("{} cannot be moved off {at}", irq_name(irq)))
            } else {
                note(format!("{} stays on {at}, whatever is asked", irq_name(irq)))
            };
            finding
                .evidence(format!(
                    "/proc/irq/{}: {}",
                    irq.number,
                    irq.immovable.as_deref().unwrap_or_default()
                ))
                .effect("the chain must run where its interrupt is, or each period crosses CPUs")
                .remedy(
                    "give the chain the CPU on which the interrupt is, and push the others away",
                )
                .when(When::RunTime)
        })
        .collect();
    if none {
        found.extend(all_on_one(f));
    }
    Verdict::of(
        found,
        "the chain's interrupts have masks that can be written; whether the \
            kernel takes a write shows only when one is tried",
    )
}

/// Boards whose interrupt controller knows one CPU only accept masks, and nothing moves.
fn all_on_one(f: &Facts) -> Option<Finding> {
    let active: Vec<&Irq> =
        f.machine.irqs.iter().filter(|irq| irq.total() > 0 && !of_the_cpu(irq)).collect();
    let only = active.first().map(|irq| delivered(irq)).filter(|cpus| cpus.len() == 1)?;
    let silent = active.iter().all(|irq| !is_told(irq) && delivered(irq) == only);
    let wide = active.iter().any(|irq| irq.requested.as_ref().is_some_and(|mask| mask.len() > 1));
    (silent && wide && active.len() > 2 && f.machine.online.len() > 1).then(|| {
        warning(format!("every device interrupt of this machine has come to {}", cpus(&only)))
            .evidence(format!(
                "{} interrupts in /proc/interrupts, although their masks in \
                /proc/irq allow more CPUs",
                active.len()
            ))
            .effect(
                "the card's interrupt very likely cannot be moved: a chain \
                elsewhere is woken across CPUs",
            )
            .remedy(
                "give the chain the CPU on which the interrupts are, and push \
                tasks away from it",
            )
            .when(When::RunTime)
    })
}

fn at_odds(f: &Facts, irq: &Irq) -> bool {
    !f.quiet.is_empty() && stuck_at(&f.on, irq).is_some_and(|at| !at.intersects(&f.quiet))
}

pub(super) fn on_quiet(f: &Facts) -> Verdict {
    if let Some(moot) = f.not_apart() {
        return moot;
    }
    let own = f.own_numbers();
    let others: Vec<&Irq> = f
        .machine
        .irqs
        .iter()
        .filter(|irq| !own.contains(&irq.number) && irq.total() > 0 && !of_the_cpu(irq))
        .collect();
    let (here, elsewhere): (Vec<&Irq>, Vec<&Irq>) =
        others.into_iter().partition(|irq| delivered(irq).intersects(&f.quiet));
    let may: Vec<&Irq> = elsewhere
        .into_iter()
        .filter(|irq| irq.requested.as_ref().is_some_and(|mask| mask.intersects(&f.quiet)))
        .collect();
    // A mask takes effect when the interrupt next fires.
    let (leaving, here): (Vec<&Irq>, Vec<&Irq>) =
        here.into_iter().partition(|irq| irq.immovable.is_none() && is_sent_away(irq, &f.quiet));
    let mut found = Vec::new();
    if !here.is_empty() {
        found.push(on_quiet_now(f, &here));
    }
    if !leaving.is_empty() {
        let names: Vec<String> = leaving.iter().map(|irq| irq_name(irq)).collect();
        found.push(
            note(format!(
                "{} last came to {} and may no more",
                count(leaving.len(), "foreign interrupt"),
                cpus(&f.quiet)
            ))
            .evidence(format!(
                "{}: effective_affinity_list below /proc/irq is there, \
                    smp_affinity_list is not",
                some(&names, 6)
            ))
            .effect("each comes there once more at most, unless the kernel ignores its mask")
            .remedy("see whether their counts there still grow (quietcores status)")
            .when(When::RunTime),
        );
    }
    if !may.is_empty() && all_on_one(f).is_none() {
        let names: Vec<String> = may.iter().map(|irq| irq_name(irq)).collect();
        found.push(
            note(format!(
                "{} may come to {}",
                count(may.len(), "more foreign interrupt"),
                cpus(&f.quiet)
            ))
            .evidence(format!("{}: /proc/irq/*/smp_affinity_list", some(&names, 6)))
            .effect("the kernel may choose that CPU when a device or a CPU comes back")
            .remedy("write the housekeeping CPUs to their masks; `quietcores apply` does")
            .when(When::RunTime),
        );
    }
    Verdict::of(
        found,
        format!("no foreign interrupt that was ever seen may come to {}", cpus(&f.quiet)),
    )
}

fn is_sent_away(irq: &Irq, from: &CpuSet) -> bool {
    irq.requested.as_ref().is_some_and(|mask| !mask.is_empty() && !mask.intersects(from))
}

fn on_quiet_now(f: &Facts, here: &[&Irq]) -> Finding {
    let fixed = here.iter().filter(|irq| irq.immovable.is_some()).count();
    let active = here.iter().any(|irq| counted(irq, &f.quiet) > 0);
    let names: Vec<String> =
        here.iter().map(|irq| format!("{} {}x", irq_name(irq), counted(irq, &f.quiet))).collect();
    let verb = if here.len() == 1 { "is" } else { "are" };
    let title = format!(
        "{} {verb} delivered to {}",
        count(here.len(), "foreign interrupt"),
        cpus(&f.quiet)
    );
    let finding = if active { warning(title) } else { note(title) };
    finding
        .evidence(format!(
            "{}; /proc/irq/*/effective_affinity_list, counts on these CPUs since \
            boot from /proc/interrupts",
            some(&names, 6)
        ))
        .effect("each one stops the audio thread for its handler and cools its caches")
        .remedy(match fixed {
            0 => "write the housekeeping CPUs to their masks; `quietcores apply` does".into(),
            n => format!("`quietcores apply` moves them but for {n} that cannot be moved"),
        })
        .when(When::RunTime)
}

/// Whether it is a timer or a counter that each CPU has of its own.
fn of_the_cpu(irq: &Irq) -> bool {
    irq.is_of_each_cpu() || irq.actions.iter().any(|action| action == "timer")
}

/// Where an interrupt goes: where the kernel says so, else where it was counted, else where it may.
pub(super) fn delivered(irq: &Irq) -> CpuSet {
    if is_told(irq) {
        return irq.effective.clone().unwrap_or_default();
    }
    let seen: CpuSet = irq.counts.iter().filter(|(_, n)| *n > 0).map(|(cpu, _)| *cpu).collect();
    if seen.is_empty() { irq.requested.clone().unwrap_or_default() } else { seen }
}

fn is_told(irq: &Irq) -> bool {
    irq.effective.as_ref().is_some_and(|cpus| !cpus.is_empty())
}

fn counted(irq: &Irq, on: &CpuSet) -> u64 {
    irq.counts.iter().filter(|(cpu, _)| on.contains(*cpu)).map(|(_, count)| count).sum()
}

pub(super) fn card_elsewhere(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let cards = f.cards();
    let irqs: Vec<&Irq> = cards.iter().flat_map(|card| f.irqs_of(card)).collect();
    let used: Vec<&Irq> = irqs.into_iter().filter(|irq| irq.total() > 0).collect();
    if used.is_empty() {
        return moot("no interrupt of a sound card has been seen");
    }
    // Which of several cards plays is not known: one on the quiet CPUs is enough.
    let near = used.iter().any(|irq| delivered(irq).intersects(&f.quiet));
    if cards.len() > 1 && near {
        return fine("the interrupts of one of the sound cards go to the chain's CPUs");
    }
    if all_on_one(f).is_some() {
        return fine("nothing can be moved on this machine; see irq.card_stuck");
    }
    let away: Vec<String> = used
        .into_iter()
        .filter(|irq| irq.immovable.is_none() && !delivered(irq).intersects(&f.quiet))
        .map(|irq| format!("{} to {}", irq_name(irq), cpus(&delivered(irq))))
        .collect();
    if away.is_empty() {
        return fine("the sound card's interrupts go to the chain's CPUs");
    }
    warning(format!(
        "the sound card's interrupts are delivered away from the chain on {}",
        cpus(&f.quiet)
    ))
    .evidence(format!(
        "{}; effective_affinity_list below /proc/irq, or else counts in \
            /proc/interrupts",
        some(&away, 4)
    ))
    .effect(
        "whatever runs on that CPU delays the card, and each period needs a \
            wakeup across CPUs",
    )
    .remedy("give the chain file a link for the card's IRQ and apply it")
    .when(When::RunTime)
    .into()
}

pub(super) fn delivery(f: &Facts) -> Verdict {
    let own = f.own_irqs();
    if own.is_empty() {
        return moot("no interrupt belongs to the chain or a sound card");
    }
    let blind: Vec<String> = own
        .iter()
        .filter(|irq| irq.immovable.is_none() && irq.total() > 0 && !is_told(irq))
        .map(|irq| format!("{} was counted on {}", irq_name(irq), cpus(&delivered(irq))))
        .collect();
    if blind.is_empty() {
        return fine(
            "the kernel tells where each is delivered; only counts while playing prove it",
        );
    }
    note("the kernel does not tell where the chain's interrupts are delivered")
        .evidence(format!(
            "effective_affinity_list below /proc/irq is empty; since boot {}",
            some(&blind, 4)
        ))
        .effect("a mask that was accepted may have moved nothing")
        .remedy(
            "while it plays, see which CPU counts in /proc/interrupts; `quietcores \
            apply` does this",
        )
        .when(When::RunTime)
        .into()
}

pub(super) fn default_mask(f: &Facts) -> Verdict {
    if let Some(moot) = f.not_apart() {
        return moot;
    }
    let Some(mask) = &f.machine.default_irq_affinity else {
        return unknown("/proc/irq/default_smp_affinity could not be read");
    };
    if !mask.intersects(&f.quiet) {
        return fine(format!("new interrupts go to {}", cpus(mask)));
    }
    warning(format!("a device that comes now may get its interrupt on {}", cpus(&f.quiet)))
        .evidence(format!("/proc/irq/default_smp_affinity allows {}", cpus(mask)))
        .effect("after a replug or a resume a foreign interrupt lands on the audio CPU")
        .remedy(
            "write the mask of the housekeeping CPUs there (`quietcores \
                apply`), or boot with irqaffinity=",
        )
        .when(When::RunTime)
        .into()
}

pub(super) fn thread_priority(f: &Facts) -> Verdict {
    if !f.threads_irqs() {
        return moot("interrupts are not handled in threads on this kernel");
    }
    let own = f.own_irqs();
    if own.is_empty() {
        return moot("no interrupt belongs to the chain or a sound card");
    }
    let threads = f.own_handlers();
    if threads.is_empty() {
        return unknown("no irq/N-name thread of these interrupts was seen");
    }
    let ours: HashSet<u32> = threads.iter().map(|task| task.tid).collect();
    let highest_other = f
        .machine
        .tasks
        .iter()
        .filter(|t| t.comm.starts_with("irq/") && t.scheduling.policy == Policy::Fifo)
        .filter(|t| !ours.contains(&t.tid))
        .map(|t| t.scheduling.priority)
        .max()
        .unwrap_or(0);
    let level: Vec<_> = threads
        .iter()
        .filter(|t| t.scheduling.priority <= highest_other && !t.comm.contains("-s-"))
        .collect();
    let found = level
        .into_iter()
        .map(|t| {
            warning(format!(
                "{} has FIFO priority {}, no more than the interrupt threads of other devices",
                task_name(t),
                t.scheduling.priority
            ))
            .evidence(format!("highest of the others: {highest_other}; /proc/{}/stat", t.tid))
            .effect("a disk or a network card is served before the sound card when both are due")
            .remedy("give it a priority of its own in the chain file, above the links before it")
            .when(When::RunTime)
        })
        .collect();
    Verdict::of(found, "the chain's interrupt threads come before those of other devices")
}

pub(super) fn busy(f: &Facts) -> Verdict {
    let Some(uptime) = f.around.uptime_s.filter(|s| *s >= 60) else {
        return unknown("the time since boot is not known, or too short to judge rates");
    };
    let own = f.own_numbers();
    let found = f
        .machine
        .irqs
        .iter()
        .filter(|irq| !own.contains(&irq.number) && irq.total() / uptime >= BUSY)
        .map(|irq| {
            warning(format!("{} interrupts {} times a second", irq_name(irq), irq.total() / uptime))
                .evidence(format!(
                    "{} interrupts in {uptime} s since boot, an average; /proc/interrupts",
                    irq.total()
                ))
                .effect("a driver that never rests takes time from every CPU that serves it")
                .remedy(
                    "find out what the device does; if nobody needs it, leave \
                        its driver out (a wireless chip that was not used took \
                        most of a core on one board)",
                )
                .when(When::RunTime)
        })
        .collect();
    Verdict::of(found, format!("no device that is not audio interrupts {BUSY} times a second"))
}
