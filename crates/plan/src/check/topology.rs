//! What the audio CPUs share with others.

use super::{
    facts::{Facts, cpus},
    verdict::{NO_QUIET, Verdict, fine, moot, note, unknown, warning},
};
use quiet_types::{
    CpuSet,
    finding::When,
    machine::{CoreKind, Cpu},
};

fn quiet_cpus<'a>(f: &Facts<'a>) -> Vec<&'a Cpu> {
    f.machine.cpus.iter().filter(|cpu| f.quiet.contains(cpu.id)).collect()
}

pub(super) fn sibling_busy(f: &Facts) -> Verdict {
    let shared =
        f.machine.cpus.iter().any(|cpu| cpu.siblings.intersection(&f.machine.online).len() > 1);
    if !shared {
        return fine("no two online CPUs share a core");
    }
    if f.quiet.is_empty() {
        return note("two CPUs share each core on this machine (SMT)")
            .evidence(format!(
                "/sys/devices/system/cpu/{}/topology/thread_siblings_list is \
                    {}; /sys/devices/system/cpu/smt/control is {}",
                f.machine.cpus.first().map(|c| format!("cpu{}", c.id)).unwrap_or_default(),
                f.machine.cpus.first().map(|c| c.siblings.to_string()).unwrap_or_default(),
                f.machine.smt_control.as_deref().unwrap_or("not told")
            ))
            .effect("what runs on one slows the other by its use of the same units and caches")
            .remedy(
                "nothing yet: when a chain gets CPUs, give it whole cores (`quietcores plan` does)",
            )
            .when(When::RunTime)
            .into();
    }
    let split: Vec<&Cpu> = quiet_cpus(f)
        .into_iter()
        .filter(|cpu| !cpu.siblings.intersection(&f.machine.online).is_subset(&f.quiet))
        .collect();
    if split.is_empty() {
        return fine(format!("{} are whole cores", cpus(&f.quiet)));
    }
    let strangers = split.iter().fold(CpuSet::new(), |all, cpu| all.union(&cpu.siblings));
    let strangers = strangers.intersection(&f.machine.online).difference(&f.quiet);
    let first = split[0];
    warning(format!(
        "{} share a core with {}, which is left to everybody",
        cpus(&f.quiet),
        cpus(&strangers)
    ))
    .evidence(format!(
        "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list is {}",
        first.id, first.siblings
    ))
    .effect(
        "whatever runs there takes up to half of the core and its caches from \
            the audio thread, whenever it likes",
    )
    .remedy(format!(
        "shield {} too, or take it offline while you play (/sys/devices/system/cpu/cpuN/online)",
        cpus(&strangers)
    ))
    .when(When::RunTime)
    .into()
}

/// The groups of online CPUs that share a last-level cache.
fn caches(f: &Facts) -> Vec<CpuSet> {
    let mut caches: Vec<CpuSet> = Vec::new();
    for cpu in f.machine.cpus.iter().filter(|cpu| cpu.online && !cpu.llc.is_empty()) {
        let llc = cpu.llc.intersection(&f.machine.online);
        if !caches.contains(&llc) {
            caches.push(llc);
        }
    }
    caches
}

pub(super) fn cache_shared(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let caches = caches(f);
    if caches.is_empty() {
        return unknown("the caches are not told");
    }
    if caches.len() < 2 {
        return moot("all CPUs share one last-level cache: there is no other to move to");
    }
    let shared = caches.iter().find(|llc| llc.intersects(&f.quiet) && !llc.is_subset(&f.quiet));
    let whole = caches.iter().find(|llc| !llc.intersects(&f.quiet));
    let Some(llc) = shared else {
        return fine("the chain has its last-level cache to itself");
    };
    note(format!("the chain shares its last-level cache with {}", cpus(&llc.difference(&f.quiet))))
        .evidence(format!(
            "/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list: {llc}; {} \
            such caches",
            caches.len()
        ))
        .effect(
            "a neighbour that streams through memory pushes out the chain's \
                coefficients and buffers",
        )
        .remedy(match whole {
            Some(other) => format!(
                "keep heavy work on {}, or give the chain all CPUs of one cache",
                cpus(other)
            ),
            None => "give the chain all CPUs of one cache".into(),
        })
        .when(When::RunTime)
        .into()
}

pub(super) fn cache_spread(f: &Facts) -> Verdict {
    if f.quiet.len() < 2 {
        return moot("the chain has not two CPUs");
    }
    let caches = caches(f);
    let used: Vec<&CpuSet> = caches.iter().filter(|llc| llc.intersects(&f.quiet)).collect();
    if used.len() < 2 {
        return fine("the chain's CPUs share one last-level cache");
    }
    if used.iter().all(|llc| llc.is_subset(&f.quiet)) {
        return fine("the chain has several whole caches");
    }
    let room = caches.iter().any(|llc| llc.len() >= f.quiet.len());
    warning(format!("the chain's CPUs {} lie on {} last-level caches", f.quiet, used.len()))
        .evidence(format!(
            "/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list: {}",
            used.iter().map(|llc| llc.to_string()).collect::<Vec<_>>().join(" and ")
        ))
        .effect(
            "each block goes from link to link through memory, some hundred \
                nanoseconds a line, in place of the cache",
        )
        .remedy(if room {
            "choose CPUs under one cache"
        } else {
            "put links that exchange most on CPUs of one cache"
        })
        .when(When::RunTime)
        .into()
}

pub(super) fn weak_core(f: &Facts) -> Verdict {
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let best = f.machine.cpus.iter().filter_map(|cpu| cpu.capacity).max();
    let weak: Vec<&Cpu> = quiet_cpus(f)
        .into_iter()
        .filter(|cpu| {
            cpu.kind == Some(CoreKind::Efficiency)
                || best.zip(cpu.capacity).is_some_and(|(best, own)| own * 10 < best * 8)
        })
        .collect();
    if weak.is_empty() {
        return fine("the chain is not on the weaker kind of core");
    }
    let set: CpuSet = weak.iter().map(|cpu| cpu.id).collect();
    warning(format!(
        "{} of the chain {} of the weaker kind",
        cpus(&set),
        if set.len() == 1 { "is" } else { "are" }
    ))
    .evidence(match weak[0].capacity.zip(best).filter(|(own, best)| own < best) {
        Some((own, best)) => format!(
            "/sys/devices/system/cpu/cpu{}/cpu_capacity is {own}, the strongest has {best}",
            weak[0].id
        ),
        None => "/sys/devices/cpu_atom/cpus, or the highest frequency of each CPU".into(),
    })
    .effect(
        "the same block takes longer, and these cores have shallower caches: \
            less time is left of each period",
    )
    .remedy("choose performance cores for links that compute; an interrupt alone may stay")
    .when(When::RunTime)
    .into()
}

pub(super) fn far_node(f: &Facts) -> Verdict {
    if f.machine.nodes.iter().filter(|node| !node.cpus.is_empty()).count() < 2 {
        return moot("there is one NUMA node");
    }
    if f.quiet.is_empty() {
        return moot(NO_QUIET);
    }
    let far = f.own_irqs().iter().find(|irq| {
        let node = irq.node.and_then(|id| f.machine.nodes.iter().find(|node| node.id == id));
        node.is_some_and(|node| !node.cpus.intersects(&f.quiet))
    });
    let Some(irq) = far else {
        return fine("the card is on the node of the chain, or the machine does not tell");
    };
    warning(format!(
        "the card of IRQ {} is on another NUMA node than {}",
        irq.number,
        cpus(&f.quiet)
    ))
    .evidence(format!("/proc/irq/{}/node is {}", irq.number, irq.node.unwrap_or_default()))
    .effect("every register and buffer is reached through the other processor")
    .remedy("choose CPUs of that node, or another slot for the card")
    .when(When::RunTime)
    .into()
}
