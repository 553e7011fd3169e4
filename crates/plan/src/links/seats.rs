//! Which CPUs of a shield each link gets.

use crate::{
    PlanError,
    lookup::Lookup,
    say,
    sources::{irqs, stuck_at},
};
use quiet_types::{
    Chain, CpuId, CpuSet, Machine,
    chain::{Link, Target},
    printable,
    shield::Shield,
};

/// Links without CPUs of their own that share a CPU.
struct Seat<'a> {
    links: Vec<usize>,
    /// The CPUs of the process that they feed, where it names some.
    told: Option<&'a CpuSet>,
}

/// A seat for each process, which the interrupts right before it share: what they wake is there. One for the interrupts at the end.
fn seats(links: &[Link]) -> Vec<Seat<'_>> {
    let mut found = Vec::new();
    let mut waiting = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let is_free = link.cpus.is_none();
        match &link.target {
            Target::Irq(_) if is_free => waiting.push(at),
            Target::Irq(_) => {}
            Target::Process { .. } => {
                waiting.extend(is_free.then_some(at));
                if !waiting.is_empty() {
                    let links = std::mem::take(&mut waiting);
                    found.push(Seat { links, told: link.cpus.as_ref() });
                }
            }
        }
    }
    if !waiting.is_empty() {
        found.push(Seat { links: waiting, told: None });
    }
    found
}

/// How many cores the links want.
pub(crate) fn wanted(links: &[Link]) -> usize {
    seats(links).iter().filter(|seat| seat.told.is_none()).count().max(1)
}

/// The CPUs of every link. Those without CPUs of their own go to one core each as long as there are some, then to SMT siblings, then
/// round again; an interrupt that cannot be moved stays where it is.
pub(crate) fn of(
    on: &Lookup<'_>,
    chain: &Chain,
    shield: &Shield,
) -> Result<Vec<CpuSet>, PlanError> {
    let mut given: Vec<CpuSet> = Vec::new();
    for link in &chain.links {
        let cpus = link.cpus.clone().unwrap_or_default();
        if !cpus.is_subset(&shield.cpus) {
            return Err(PlanError::chain(format!(
                "link `{}` is to run on {}, which is not within the shield ({}); widen `cpus` \
                 of the chain or move the link",
                printable(&link.name, 60),
                say(&cpus),
                say(&shield.cpus)
            )));
        }
        given.push(cpus);
    }
    let seats = seats(&chain.links);
    let fixed = |seat: &Seat<'_>| {
        let own = seat.links.iter().filter_map(|at| match &chain.links[*at].target {
            Target::Irq(source) => Some(irqs(on, source)),
            Target::Process { .. } => None,
        });
        let at = own.flatten().find_map(|irq| stuck_at(on, irq))?;
        at.intersection(&shield.cpus).first()
    };
    let fixed: Vec<Option<CpuId>> = seats.iter().map(fixed).collect();
    let all = in_turn(on.machine, &shield.cpus);
    let used: CpuSet = fixed.iter().copied().flatten().collect();
    let free: Vec<CpuId> = all.iter().copied().filter(|cpu| !used.contains(*cpu)).collect();
    let mut turn = (if free.is_empty() { &all } else { &free }).iter().cycle();
    for (seat, fixed) in seats.iter().zip(fixed) {
        let cpus: CpuSet = match (seat.told, fixed) {
            (Some(told), _) => told.clone(),
            (None, Some(cpu)) => [cpu].into_iter().collect(),
            (None, None) => turn.next().copied().into_iter().collect(),
        };
        for at in &seat.links {
            given[*at] = cpus.clone();
        }
    }
    Ok(given)
}

/// The first CPU of each core, then the second ones, and so on.
fn in_turn(machine: &Machine, cpus: &CpuSet) -> Vec<CpuId> {
    let mut all: Vec<(usize, CpuId)> = Vec::new();
    for core in machine.cores() {
        all.extend(core.intersection(cpus).iter().enumerate());
    }
    let known: CpuSet = all.iter().map(|(_, cpu)| *cpu).collect();
    all.extend(cpus.difference(&known).iter().map(|cpu| (0, cpu)));
    all.sort_unstable();
    all.into_iter().map(|(_, cpu)| cpu).collect()
}
