//! The audit: what stands in the way of low latency on a machine, greatest effect first.
//!
//! Each check decides from a snapshot alone, and says when a snapshot does not tell.

mod boot;
mod facts;
mod interrupts;
mod irqbalance;
mod kernel;
mod limits;
mod loader;
mod memory;
mod network;
mod noise;
mod power;
mod real_time;
mod scheduling;
mod shield;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod topology;
mod verdict;

use facts::Facts;
pub(crate) use facts::cpus_after_flags;
use quiet_types::{
    Chain, Finding, Machine,
    check::{Checked, Looked, SCHEMA},
};
pub use table::{CHECKS, Check};
use verdict::Verdict;

/// What stands in the way on `machine`: problems first, then by effect. With a chain, its CPUs,
/// interrupts and programs are judged; without, what is isolated and what is known to carry sound.
pub fn check(machine: &Machine, chain: Option<&Chain>) -> Vec<Finding> {
    audit(machine, chain).findings
}

/// As [`check`], and what every check came to, in their order.
pub fn audit(machine: &Machine, chain: Option<&Chain>) -> Checked {
    let facts = Facts::new(machine, chain);
    let mut findings = Vec::new();
    let mut looked = Vec::new();
    for check in CHECKS {
        let verdict = (check.decide)(&facts);
        let (result, because) = verdict.outcome();
        let (id, about) = (check.id.to_owned(), check.about.to_owned());
        looked.push(Looked { id, about, result, because });
        if let Verdict::Found(found) = verdict {
            findings.extend(found.into_iter().map(|f| Finding { id: check.id.into(), ..f }));
        }
    }
    // Stable: within a severity the order of the table, which is by effect.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Checked { schema: SCHEMA.into(), findings, looked, measured: Vec::new() }
}
