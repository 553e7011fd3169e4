//! One run: where it may go, and what is to be known of it.

use crate::{Because, ErrorKind, Result, is_root};
use quiet_linux::{Root, System};
use quiet_probe::Seen;
use quiet_types::{
    CpuSet, Finding, Run, Severity, explain::Explained, loan::LoanEnd, shield::Entry,
};
use std::path::Path;

/// The door into the shield that is up around these CPUs; a shield around others does not matter.
///
/// # Errors
/// When the state directory cannot be read.
pub fn door(cpus: &CpuSet, state: &Path) -> Result<Option<Entry>> {
    if !is_root() {
        return Ok(None);
    }
    // What is measured in a shield is to be the shield.
    quiet_shield::take_back(&System, state, LoanEnd::Sound, None)?;
    let shield = quiet_shield::current(&System, state)?;
    Ok(shield.filter(|shield| cpus.is_subset(&shield.cpus)).and_then(|shield| shield.entry))
}

/// CPUs that run now.
///
/// # Errors
/// When the kernel does not say so.
pub fn online() -> Result<CpuSet> {
    let path = "/sys/devices/system/cpu/online";
    let text = Root::system()?.read(path)?;
    text.trim().parse().because(ErrorKind::Machine, || format!("cannot understand {path}"))
}

/// CPU 0 does most of the kernel's own work: the last one is the likelier choice.
///
/// # Errors
/// As [`online`].
pub fn last_online() -> Result<CpuSet> {
    Ok(online()?.iter().last().into_iter().collect())
}

/// Adds what the judge sees in the run to what the probe knows, each kind once.
pub fn judged(run: &mut Run) {
    for finding in quiet_judge::judge_run(run) {
        if !run.findings.iter().any(|known| known.id == finding.id) {
            run.findings.push(finding);
        }
    }
}

/// The causes of a run's late readings, and why they are only counted where that is so.
pub fn explained(run: &Run, seen: &Seen) -> Explained {
    let mut explained = quiet_judge::explain(run, seen.trace.as_ref(), &seen.victims);
    if let Some(why) = &seen.refused {
        explained.findings.push(
            Finding::new(Severity::Warning, "explain.counters", "The kernel was not watched")
                .evidence(format!("{why}."))
                .effect("Counters show how often what came, not how long it took.")
                .remedy("Run as root, on a kernel with tracefs (CONFIG_EVENT_TRACING)."),
        );
    }
    explained
}
