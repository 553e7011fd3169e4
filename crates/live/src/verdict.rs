//! Whether the machine is quiet, in one sentence. Pure.

use quiet_types::{
    live::{LiveCpu, LiveShield, LiveSound, MOST_NAMED, Occupant, OccupantKind, Quiet, QuietState},
    plan::ShieldStanding,
    words,
};

/// The verdict on a moment.
pub fn verdict(shield: Option<&LiveShield>, cpus: &[LiveCpu], sounds: &[LiveSound]) -> Quiet {
    let Some(shield) = shield else {
        let sentence = "The shield cannot be seen from here.".to_owned();
        return Quiet { state: QuietState::Unknown, sentence, wrong: Vec::new() };
    };
    let mut wrong = late(sounds);
    match shield.state {
        ShieldStanding::Up => {}
        ShieldStanding::None => {
            let sentence = "No shield is up: every CPU is everybody's.".to_owned();
            return Quiet { state: QuietState::Open, sentence, wrong };
        }
        ShieldStanding::Leftover | ShieldStanding::Rebooted => {
            let sentence = match shield.state {
                ShieldStanding::Rebooted => {
                    "The shield went with the last boot: apply it again, or revert to clear its journal."
                }
                _ => {
                    "An earlier apply or revert did not come to its end: revert puts the machine back."
                }
            };
            wrong.insert(0, sentence.to_owned());
            return Quiet { state: QuietState::Disturbed, sentence: sentence.to_owned(), wrong };
        }
    }
    let which = named(shield);
    if let Some(left) = shield.lent {
        let sentence =
            format!("{which} lent to everybody for {} more.", words::span(seconds(left)));
        return Quiet { state: QuietState::Lent, sentence, wrong };
    }
    wrong.extend(of_shield(shield));
    wrong.extend(visitors(cpus));
    wrong.truncate(MOST_NAMED);
    let waits = shield.confirm.map(|left| {
        format!(" It is put back in {} unless it is confirmed.", words::span(seconds(left)))
    });
    let (state, sentence) = match wrong.first() {
        None => (QuietState::Quiet, format!("{which} quiet: nothing foreign runs there.")),
        Some(first) => {
            let not = which.replace(" is", " is not").replace(" are", " are not");
            let more = match wrong.len() {
                1 => String::new(),
                several => format!(" (and {} more)", several - 1),
            };
            (QuietState::Disturbed, format!("{not} quiet: {}{more}.", first.trim_end_matches('.')))
        }
    };
    Quiet { state, sentence: sentence + &waits.unwrap_or_default(), wrong }
}

fn seconds(left: u64) -> quiet_types::Nanos {
    quiet_types::Nanos(left.saturating_mul(1_000_000_000))
}

/// `CPU 3 is`, `CPUs 2-3 are`.
fn named(shield: &LiveShield) -> String {
    match shield.cpus.len() {
        1 => format!("CPU {} is", shield.cpus),
        _ => format!("CPUs {} are", shield.cpus),
    }
}

fn of_shield(shield: &LiveShield) -> Vec<String> {
    let drift = shield.drift.iter().map(|drift| {
        let now = drift.now.as_deref().unwrap_or("gone");
        format!("{} is {now}, and was made {}", drift.what, drift.ours)
    });
    let may = shield.intruders.iter().map(|one| format!("{} may run there: {}", one.name, one.why));
    let unguarded = (shield.confirm.is_some() && !shield.guarded)
        .then(|| "nobody counts the seconds to the confirmation: confirm or revert".to_owned());
    drift.chain(shield.astray.iter().cloned()).chain(unguarded).chain(may).collect()
}

fn visitors(cpus: &[LiveCpu]) -> Vec<String> {
    let shielded = cpus.iter().filter(|cpu| cpu.shielded);
    let of = |cpu: &LiveCpu| {
        let foreign = cpu.occupants.iter().filter(|one| one.foreign);
        foreign.map(|one| format!("{} on CPU {}", visit(one), cpu.id)).collect::<Vec<_>>()
    };
    shielded.flat_map(of).collect()
}

/// `stress-ng (2.1 ms)`, `IRQ 24 ahci (3 times)`.
pub(crate) fn visit(one: &Occupant) -> String {
    let times = |n: u64| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    match (one.kind, one.number, one.ran) {
        (_, _, Some(ran)) => format!("{} ran {ran}", one.name),
        (OccupantKind::Irq, Some(number), None) => {
            format!("IRQ {number} {} came {}", one.name, times(one.times))
        }
        _ => format!("{} came {}", one.name, times(one.times)),
    }
}

fn late(sounds: &[LiveSound]) -> Vec<String> {
    let late = sounds.iter().filter(|sound| sound.late > 0);
    late.map(|sound| match sound.late {
        1 => format!("a period of {} came late", sound.strip),
        several => format!("{several} periods of {} came late", sound.strip),
    })
    .collect()
}
