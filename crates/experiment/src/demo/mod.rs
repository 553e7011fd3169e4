//! The demonstration: music on a card that does not exist, beside a thread that takes its CPU, and then where that thread may not run.
//!
//! The player is `quietcores play` itself, with the deadlines of a card. What is planted is real: threads that keep the CPU.

mod culprit;
mod player;

use crate::{
    Because, Error, ErrorKind, Observer, Result, ShieldWish, Ward, begun, is_root, last_online,
    online, raised, refuse_over_a_shield,
};
use culprit::{Culprits, HOGS, LATE};
use quiet_linux::System;
use quiet_types::{
    CpuId, CpuSet, Finding, Nanos, Severity,
    demo::{DemoPart, Demonstration, SCHEMA},
};
use std::{path::PathBuf, sync::atomic::AtomicBool};

/// Frames a second.
const RATE: u32 = 48_000;
/// Frames a period.
const PERIOD: u32 = 128;
/// Frames in the ring.
const BUFFER: u32 = 2 * PERIOD;

/// What is to be shown.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Length of each part.
    pub length: Nanos,
    /// The CPU that plays; `None` for the last one.
    pub cpu: Option<CpuId>,
    /// The state directory.
    pub state: PathBuf,
}

/// Plays the music twice: on a shared CPU beside what is planted, then on a quiet one.
///
/// As root the second part plays in a shield, and what is planted is a thread of the highest priority that takes the CPU now and then.
/// Otherwise nothing of the machine is changed: what is planted are ordinary threads that never sleep, and for the second part they are
/// bound to other CPUs, as a shield would have it.
///
/// # Errors
/// When the machine cannot be read or a shield is up, the player cannot be started, or `stop` is raised before the first part is over.
pub fn demo(ask: &Demo, stop: &AtomicBool, observer: &dyn Observer) -> Result<Demonstration> {
    let root = is_root();
    refuse_over_a_shield(&System, &ask.state, observer)?;
    let begun = begun::begin("demo")?;
    let online = online()?;
    let cpu = chosen(ask, &online)?;
    let others = online.difference(&CpuSet::from_iter([cpu]));
    observer.begin(Nanos(ask.length.0 * 2));
    let mut parts = Vec::new();
    observer.doing("a shared CPU");
    let how = "what was planted may run on the CPU that plays";
    parts.push(part(ask, cpu, Some(cpu), ("shared", how), stop, observer)?);
    let (mut restored, mut findings) = (None, Vec::new());
    if raised(stop) {
        // What there is, is shown.
    } else if others.is_empty() {
        findings.push(one_cpu());
    } else if root {
        observer.doing("a quiet core");
        let wish = ShieldWish { cpus: Some(CpuSet::from_iter([cpu])), ..ShieldWish::default() };
        let mut ward = Ward::new(wish, &ask.state, stop, observer);
        ward.raise()?;
        let how = "the CPU is shielded: what was planted is still at work, elsewhere";
        parts.push(part(ask, cpu, None, ("quiet", how), stop, observer)?);
        restored = Some(ward.lower()?);
    } else {
        observer.doing("a quiet core");
        let away = others.first();
        let how = "what was planted is bound to another CPU, as a shield would have it";
        parts.push(part(ask, cpu, away, ("quiet", how), stop, observer)?);
        findings.push(no_shield());
    }
    observer.end();
    findings.extend(parts.iter().filter_map(unheard));
    Ok(Demonstration {
        head: begun.head(SCHEMA, "", raised(stop)),
        cpu: cpu.0,
        rate: RATE,
        period: PERIOD,
        buffer: BUFFER,
        planted: planted(root),
        sentence: sentence(&parts),
        parts,
        restored,
        findings,
    })
}

fn chosen(ask: &Demo, online: &CpuSet) -> Result<CpuId> {
    match ask.cpu {
        Some(cpu) if !online.contains(cpu) => Err(Error::asked(format!(
            "cannot play on CPU {cpu}: it is not on line; there are {online}"
        ))),
        Some(cpu) => Ok(cpu),
        None => last_online()?.first().ok_or_else(|| {
            Error::new(ErrorKind::Machine, "the kernel names no CPU that is on line")
        }),
    }
}

/// Plays one part beside what is planted, on `at` or wherever the kernel puts it.
fn part(
    ask: &Demo,
    cpu: CpuId,
    at: Option<CpuId>,
    (name, how): (&str, &str),
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<DemoPart> {
    let culprits = Culprits::start(at, is_root())
        .because(ErrorKind::Measuring, || "cannot plant a thread beside the music".into())?;
    let before = if name == "quiet" { ask.length } else { Nanos::ZERO };
    let music = player::Music { cpu, length: ask.length, state: &ask.state };
    let played = music.play(stop, |done| observer.at(Nanos(before.0 + done.0)));
    drop(culprits);
    let played = played?;
    Ok(DemoPart {
        name: name.to_owned(),
        how: how.to_owned(),
        lasted: played.lasted,
        periods: played.status.blocks,
        lost: played.status.missed,
        real_time: played.status.real_time,
        shielded: played.status.shielded,
        count: played.status.xruns,
        gaps: played.xruns,
    })
}

fn planted(root: bool) -> String {
    match root {
        true => format!(
            "a thread of priority 90 under SCHED_FIFO that keeps its CPU for {} of every {}",
            Nanos(LATE.0.as_nanos() as u64),
            Nanos(LATE.1.as_nanos() as u64)
        ),
        false => format!("{HOGS} ordinary threads that never sleep"),
    }
}

fn sentence(parts: &[DemoPart]) -> String {
    let gaps = |part: &DemoPart| match part.count {
        0 => "no gap".to_owned(),
        1 => "1 gap".to_owned(),
        many => format!("{many} gaps"),
    };
    match parts {
        [shared, quiet] => {
            format!("{} on a shared CPU, {} on a quiet one", gaps(shared), gaps(quiet))
        }
        [shared] => format!("{} on a shared CPU; there was no quiet one", gaps(shared)),
        _ => String::new(),
    }
}

fn one_cpu() -> Finding {
    Finding::new(Severity::Warning, "demo.one_cpu", "This machine has one CPU")
        .evidence("no other CPU is on line")
        .effect("There is no second part: nothing can be kept off the only CPU.")
        .remedy("run it on a machine with two CPUs or more")
}

fn no_shield() -> Finding {
    Finding::new(Severity::Note, "demo.no_shield", "The quiet part had no shield")
        .evidence("it did not run as root")
        .effect("Only what the demonstration planted was kept away; everything else could run on that CPU.")
        .remedy("sudo quietcores demo shows it with a real shield, and puts the machine back")
}

/// More was lost than is kept with its time.
fn unheard(part: &DemoPart) -> Option<Finding> {
    let kept = part.gaps.len() as u64;
    (kept < part.count).then(|| {
        Finding::new(Severity::Note, "demo.unheard", "Not every gap is heard and drawn")
            .evidence(format!(
                "{}: {} gaps, the last {kept} of them with their times",
                part.name, part.count
            ))
            .effect("The beginning of that part sounds better than it was.")
            .remedy("a shorter --for has them all")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_with(count: u64) -> DemoPart {
        DemoPart {
            name: "shared".into(),
            how: String::new(),
            lasted: Nanos(1),
            periods: 9,
            lost: count,
            real_time: false,
            shielded: false,
            gaps: Vec::new(),
            count,
        }
    }

    #[test]
    fn the_sentence_counts() {
        assert_eq!(
            sentence(&[part_with(12), part_with(0)]),
            "12 gaps on a shared CPU, no gap on a quiet one"
        );
        assert_eq!(sentence(&[part_with(1)]), "1 gap on a shared CPU; there was no quiet one");
        assert!(unheard(&part_with(3)).is_some());
        assert!(unheard(&part_with(0)).is_none());
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_by_name() {
        let ask = Demo { length: Nanos(1), cpu: Some(CpuId(70_000)), state: PathBuf::new() };
        let said = chosen(&ask, &"0-3".parse().unwrap()).unwrap_err().to_string();
        assert!(said.contains("CPU 70000") && said.contains("0-3"), "{said}");
    }
}
