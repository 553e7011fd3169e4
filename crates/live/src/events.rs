//! What happened between two moments. Pure.

use crate::verdict::visit;
use quiet_types::{
    CpuId, CpuSet, Nanos,
    live::{
        LiveCpu, LiveEvent, LiveEventKind, LiveProbe, LiveShield, LiveSound, MOST_NAMED, Occupant,
    },
    plan::ShieldStanding,
    words,
};
use std::collections::{BTreeMap, BTreeSet};

/// What became of the shield.
pub fn changes(before: &LiveShield, now: &LiveShield) -> Vec<(LiveEventKind, String)> {
    use LiveEventKind as Kind;
    let (was_up, is_up) = (before.state == ShieldStanding::Up, now.state == ShieldStanding::Up);
    let mut found = Vec::new();
    let is_another = was_up && is_up && before.since != now.since;
    if was_up && (!is_up || is_another) {
        found.push((Kind::Reverted, format!("CPU {}: the shield was put back", before.cpus)));
    }
    if is_up && (!was_up || is_another) {
        let by = now.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
        found.push((Kind::Applied, format!("CPU {}: a shield was put up{by}", now.cpus)));
        if is_another {
            return found;
        }
    }
    if !is_up {
        return found;
    }
    // Also of one that was not whole yet when it was seen last: it may be confirmed before the next look.
    if before.confirm.is_some() && now.confirm.is_none() {
        found.push((Kind::Confirmed, format!("CPU {}: the shield stays", now.cpus)));
    }
    if !was_up {
        return found;
    }
    match (before.lent, now.lent) {
        (None, Some(left)) => {
            let span = words::span(Nanos(left.saturating_mul(1_000_000_000)));
            found.push((Kind::Lent, format!("CPU {}: lent to everybody for {span}", now.cpus)));
        }
        (Some(_), None) => {
            found.push((Kind::TakenBack, format!("CPU {}: taken back", now.cpus)));
        }
        _ => {}
    }
    let what = |shield: &LiveShield| -> BTreeSet<String> {
        shield.drift.iter().map(|drift| drift.what.clone()).collect()
    };
    let (then, is) = (what(before), what(now));
    for drift in now.drift.iter().filter(|drift| !then.contains(&drift.what)) {
        let now = drift.now.as_deref().unwrap_or("gone");
        found.push((Kind::Drifted, format!("{}: {now}, and was made {}", drift.what, drift.ours)));
    }
    for mended in then.difference(&is) {
        found.push((Kind::Mended, format!("{mended}: as it was made again")));
    }
    found
}

/// CPUs that came and went.
pub(crate) fn of_cpus(before: &CpuSet, now: &CpuSet) -> Vec<(LiveEventKind, String)> {
    let gone = before.difference(now);
    let came = now.difference(before);
    let say = |cpus: CpuSet, what: &str| {
        (!cpus.is_empty()).then(|| (LiveEventKind::Cpu, format!("CPU {cpus} {what}")))
    };
    say(gone, "went off line").into_iter().chain(say(came, "came on line")).collect()
}

/// Periods that came late, with who else was on the engine's CPUs meanwhile.
pub(crate) fn of_sounds(sounds: &[LiveSound], cpus: &[LiveCpu]) -> Vec<(LiveEventKind, String)> {
    let late = sounds.iter().filter(|sound| sound.late > 0);
    late.map(|sound| {
        let periods = if sound.late == 1 { "period" } else { "periods" };
        let at = sound.status.cpus.parse::<CpuSet>().unwrap_or_default();
        let said = format!("{} {periods} of {} came late", sound.late, sound.strip);
        (LiveEventKind::Late, meanwhile(said, &at, cpus))
    })
    .collect()
}

/// The same of what probes missed.
pub(crate) fn of_probes(probes: &[LiveProbe], cpus: &[LiveCpu]) -> Vec<(LiveEventKind, String)> {
    let late = probes.iter().filter(|probe| probe.late > 0);
    late.map(|probe| {
        let (one, several) =
            if probe.probe == "gap" { ("gap", "gaps") } else { ("period", "periods") };
        let what = if probe.late == 1 { one } else { several };
        let beyond = match probe.probe.as_str() {
            "gap" => format!("beyond {}", probe.threshold),
            _ => "missed".to_owned(),
        };
        let said =
            format!("probe {} on CPU {}: {} {what} {beyond}", probe.probe, probe.cpus, probe.late);
        (LiveEventKind::Late, meanwhile(said, &probe.cpus, cpus))
    })
    .collect()
}

/// With who else was there, where that is known.
fn meanwhile(said: String, at: &CpuSet, cpus: &[LiveCpu]) -> String {
    let beside: Vec<String> = cpus
        .iter()
        .filter(|cpu| at.contains(cpu.id))
        .flat_map(|cpu| cpu.occupants.iter().filter(|one| one.foreign).take(3))
        .map(visit)
        .take(3)
        .collect();
    match beside.is_empty() {
        true => said,
        false => format!("{said}; meanwhile {}", beside.join(", ")),
    }
}

/// How many late moments faces keep in sight.
const LATE_SHOWN: usize = 10;

/// The last late moments of engines, newest first, with who was there meanwhile.
pub fn late_moments(events: &[LiveEvent]) -> Vec<&LiveEvent> {
    let late = events.iter().rev().filter(|event| event.kind == LiveEventKind::Late);
    late.take(LATE_SHOWN).collect()
}

/// Engines that began and ended.
pub(crate) fn of_engines(before: &[LiveSound], now: &[LiveSound]) -> Vec<(LiveEventKind, String)> {
    let has = |sounds: &[LiveSound], name: &str| sounds.iter().any(|sound| sound.name == name);
    let came = now.iter().filter(|sound| !has(before, &sound.name));
    let went = before.iter().filter(|sound| !has(now, &sound.name));
    let came = came.map(|s| (LiveEventKind::Sound, format!("{} plays", s.strip)));
    came.chain(went.map(|s| (LiveEventKind::Sound, format!("{} has ended", s.strip)))).collect()
}

/// Between two events about one who comes again and again.
const AGAIN: Nanos = Nanos(2_000_000_000);
/// Most who are remembered.
const MOST_VISITORS: usize = 256;

/// Who was met on a shielded CPU, and when that was said last.
#[derive(Debug, Default)]
pub(crate) struct Visitors(BTreeMap<(CpuId, String, Option<u32>), Visitor>);

#[derive(Debug)]
struct Visitor {
    said: Nanos,
    ran: u64,
    times: u64,
}

impl Visitors {
    /// Who is new, or has come again for a while; `threads` where a new look at them is in.
    pub(crate) fn met(
        &mut self,
        at: Nanos,
        cpus: &[LiveCpu],
        threads: bool,
    ) -> Vec<(LiveEventKind, String)> {
        let mut found = Vec::new();
        let foreign = |cpu: &LiveCpu| {
            let of = cpu.occupants.iter().filter(|one| one.foreign);
            let now = of.filter(|one| threads || one.ran.is_none());
            now.map(|one| (cpu.id, one.clone())).collect::<Vec<_>>()
        };
        for (cpu, one) in cpus.iter().filter(|cpu| cpu.shielded).flat_map(foreign) {
            let key = (cpu, one.name.clone(), one.number);
            if !self.0.contains_key(&key) && self.0.len() >= MOST_VISITORS {
                // The one of whom nothing was said for longest.
                let oldest =
                    self.0.iter().min_by_key(|(_, who)| who.said).map(|(key, _)| key.clone());
                oldest.and_then(|key| self.0.remove(&key));
            }
            let is_new = !self.0.contains_key(&key);
            let who = self.0.entry(key).or_insert(Visitor { said: at, ran: 0, times: 0 });
            who.ran = who.ran.saturating_add(one.ran.map_or(0, |ran| ran.0));
            who.times = who.times.saturating_add(one.times);
            if is_new || at.0.saturating_sub(who.said.0) >= AGAIN.0 {
                let sum =
                    Occupant { ran: one.ran.map(|_| Nanos(who.ran)), times: who.times, ..one };
                found.push((LiveEventKind::Intruder, format!("CPU {cpu}: {}", visit(&sum))));
                *who = Visitor { said: at, ran: 0, times: 0 };
            }
        }
        found.truncate(MOST_NAMED);
        found
    }
}

/// With the time at which it was seen.
pub(crate) fn at(when: &str, found: Vec<(LiveEventKind, String)>) -> Vec<LiveEvent> {
    let event = |(kind, said)| LiveEvent { at: when.to_owned(), kind, said };
    found.into_iter().take(MOST_NAMED).map(event).collect()
}
