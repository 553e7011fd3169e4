//! From two readings of counters to what each CPU had to do. Pure.

use crate::gather::{CpuReading, ThreadReading, ThreadSeen};
use quiet_types::{
    CpuId, CpuSet, Nanos,
    counters::{CpuCounters, Interrupt},
    live::{LiveCpu, MOST_OCCUPANTS, Occupant, OccupantKind},
    machine::Vector,
    machine::VectorMeaning,
    plan::{ResidentKind, ShieldStanding, Status},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// All that is known at one time.
#[derive(Debug)]
pub struct Counted<'a> {
    /// The reading before; `None` in the first moment.
    pub before: Option<&'a CpuReading>,
    /// The reading now.
    pub now: &'a CpuReading,
    /// The last look at threads.
    pub threads: &'a ThreadReading,
    /// The shield, where it can be seen.
    pub status: Option<&'a Status>,
    /// Processes of engines that play: they belong on a shield.
    pub engines: &'a BTreeSet<u32>,
    /// Clocks, in kHz.
    pub clocks: &'a BTreeMap<CpuId, u64>,
    /// Core, package and cluster of each CPU.
    pub places: &'a BTreeMap<CpuId, (Option<u32>, Option<u32>, CpuSet)>,
}

impl Counted<'_> {
    /// CPUs of a shield that is up.
    pub fn shielded(&self) -> CpuSet {
        let up = self.status.filter(|status| status.state == ShieldStanding::Up);
        up.and_then(|status| status.shield.as_ref()).map(|s| s.cpus.clone()).unwrap_or_default()
    }

    fn is_lent(&self) -> bool {
        self.status.is_some_and(|status| status.loan.is_some())
    }

    /// Whether a thread that ran on a shielded CPU does not belong there.
    fn is_foreign(&self, thread: &ThreadSeen) -> bool {
        let Some(status) = self.status else { return false };
        let known = status.residents.iter().find(|resident| {
            resident.number == thread.tid
                && !matches!(resident.kind, ResidentKind::Irq)
                && thread.name.starts_with(resident.name.trim_end_matches('…'))
        });
        match known {
            Some(resident) => resident.kind.is_intruder(),
            _ if self.engines.contains(&thread.pid) => false,
            // What the kernel has bound there was there before.
            _ if thread.kernel.is_some_and(|kernel| !kernel.movable) => false,
            _ => {
                let door = status.shield.as_ref().and_then(|shield| shield.entry.as_ref());
                let within = door.and_then(|entry| entry.file.parent());
                // The mount stands before the group's own path.
                let is_within = |group: &quiet_types::GroupPath| {
                    within.as_ref().is_some_and(|within| {
                        !group.is_root() && within.as_str().ends_with(group.as_str())
                    })
                };
                !thread.group.as_ref().is_some_and(is_within)
            }
        }
    }

    fn is_chain_irq(&self, number: u32) -> bool {
        let residents = self.status.into_iter().flat_map(|status| &status.residents);
        residents.into_iter().any(|resident| {
            resident.number == number
                && resident.kind == ResidentKind::Chain
                && !resident.why.contains("thread")
        })
    }
}

/// What every CPU had to do.
pub fn count(all: &Counted<'_>) -> Vec<LiveCpu> {
    let shielded = all.shielded();
    let mut threads: BTreeMap<CpuId, Vec<&ThreadSeen>> = BTreeMap::new();
    for thread in &all.threads.ran {
        threads.entry(thread.cpu).or_default().push(thread);
    }
    let empty = Vec::new();
    let one = |cpu| cpu_now(all, cpu, &shielded, threads.get(&cpu).unwrap_or(&empty));
    all.now.present.iter().map(one).collect()
}

fn cpu_now(all: &Counted<'_>, id: CpuId, shielded: &CpuSet, threads: &[&ThreadSeen]) -> LiveCpu {
    let now = all.now;
    // One that was off line has begun anew: its counters may be kept or not.
    let stayed = all.before.filter(|b| b.online.contains(id) && now.online.contains(id));
    let counted = stayed.map(|before| now.counters.since(&before.counters, id)).unwrap_or_default();
    let is_shielded = shielded.contains(id);
    let is_closed = is_shielded && !all.is_lent();
    let mut occupants: Vec<Occupant> = threads
        .iter()
        .map(|thread| Occupant {
            kind: if thread.kernel.is_some() { OccupantKind::Kernel } else { OccupantKind::Thread },
            name: thread.name.clone(),
            number: Some(thread.tid),
            ran: Some(thread.ran),
            times: thread.turns,
            foreign: is_closed && all.is_foreign(thread),
        })
        .collect();
    occupants.extend(interrupts(all, &counted, is_closed));
    occupants.sort_by_key(|one| {
        (Reverse(one.foreign), Reverse(one.ran.is_some()), Reverse((one.ran, one.times)))
    });
    let more = occupants.len().saturating_sub(MOST_OCCUPANTS);
    occupants.truncate(MOST_OCCUPANTS);
    let (core, package, cluster) = all.places.get(&id).cloned().unwrap_or_default();
    let (busy, stolen) = shares(stayed, now, id).unzip();
    let sum = |wanted: fn(&Interrupt) -> bool| {
        let rows = counted.interrupts.iter().filter(|(row, _)| wanted(row));
        rows.fold(0u64, |sum, (_, n)| sum.saturating_add(*n))
    };
    LiveCpu {
        id,
        core,
        package,
        cluster,
        online: now.online.contains(id),
        shielded: is_shielded,
        busy,
        stolen,
        khz: all.clocks.get(&id).copied(),
        device_interrupts: sum(|row| matches!(row, Interrupt::Irq(_))),
        ticks: sum(|row| meaning(row) == Some(VectorMeaning::Timer)),
        from_others: sum(is_from_others),
        occupants,
        more: u32::try_from(more).unwrap_or(u32::MAX),
    }
}

fn interrupts(all: &Counted<'_>, counted: &CpuCounters, is_closed: bool) -> Vec<Occupant> {
    let row = |(row, n): (&Interrupt, &u64)| {
        let (kind, name, number) = match row {
            Interrupt::Irq(number) => {
                let name = all.now.names.get(number).cloned().unwrap_or_default();
                (OccupantKind::Irq, name, Some(*number))
            }
            Interrupt::Vector(name) => (OccupantKind::Vector, crate::clean(name, 48), None),
        };
        let foreign = is_closed && number.is_some_and(|number| !all.is_chain_irq(number));
        Occupant { kind, name, number, ran: None, times: *n, foreign }
    };
    let soft = |(name, n): (&String, &u64)| Occupant {
        kind: OccupantKind::Softirq,
        name: crate::clean(name, 48),
        number: None,
        ran: None,
        times: *n,
        foreign: false,
    };
    let hard = counted.interrupts.iter().filter(|(_, n)| **n > 0).map(row);
    hard.chain(counted.softirqs.iter().filter(|(_, n)| **n > 0).map(soft)).collect()
}

/// Busy and stolen, of the time between.
fn shares(before: Option<&CpuReading>, now: &CpuReading, id: CpuId) -> Option<(f64, f64)> {
    let (then, now) = (before?.times.get(&id)?, now.times.get(&id)?);
    // The kernel's idle time may run backwards a little.
    let busy = now.busy.saturating_sub(then.busy);
    let idle = now.idle.saturating_sub(then.idle);
    let stolen = now.stolen.saturating_sub(then.stolen);
    let all = busy.saturating_add(idle).saturating_add(stolen);
    let share =
        |part: u64| if all == 0 { 0.0 } else { (part as f64 / all as f64 * 1e3).round() / 1e3 };
    Some((share(busy), share(stolen)))
}

fn meaning(row: &Interrupt) -> Option<VectorMeaning> {
    let Interrupt::Vector(name) = row else { return None };
    if name == "arch_timer" {
        return Some(VectorMeaning::Timer);
    }
    let (name, description) = name.split_once(' ').unwrap_or((name, ""));
    let row =
        Vector { name: name.to_owned(), description: description.to_owned(), counts: Vec::new() };
    row.meaning()
}

fn is_from_others(row: &Interrupt) -> bool {
    use VectorMeaning::{Broadcast, Call, Reschedule, Shootdown};
    matches!(meaning(row), Some(Reschedule | Call | Shootdown | Broadcast))
}

/// The time that the counters of a moment are of.
pub(crate) fn since(before: Option<&CpuReading>, now: &CpuReading) -> Nanos {
    Nanos(before.map_or(0, |before| now.at.0.saturating_sub(before.at.0)))
}
