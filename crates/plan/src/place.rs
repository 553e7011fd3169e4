//! Whether a chain is where it should be.

use crate::{is_ours, links, lookup::Lookup, sources::stuck_at, warning};
use links::Found;
use quiet_types::{
    Chain, Finding, Machine, Severity,
    chain::{Choice, Link},
    machine::{Policy, Task},
    printable,
    shield::{Mechanism, Shield},
};

/// Threads and interrupts of a link that are named; more are counted.
const TOLD: usize = 6;
/// Findings about what a link is, which hold as much while the shield is up.
const OF_LINKS: [&str; 6] = [
    "plan.link-absent",
    "plan.link-whose",
    "plan.link-deadline",
    "plan.thread-absent",
    "plan.thread-twice",
    "plan.order-broken",
];

/// What of a chain is not where it should be under a shield that is up: links that are not there, that run outside of the shield, on
/// other CPUs or with another priority. `links` are those of [`quiet_types::Plan::links`]; empty where all is in its place.
pub fn astray(machine: &Machine, links: &[Link], shield: &Shield) -> Vec<Finding> {
    astray_on(&Lookup::new(machine), links, shield)
}

pub(crate) fn astray_on(on: &Lookup<'_>, links: &[Link], shield: &Shield) -> Vec<Finding> {
    let cpus = Choice::These(shield.cpus.clone());
    let chain = Chain { cpus, links: links.to_vec(), ..Chain::default() };
    let mut findings = Vec::new();
    // They were within the shield when the plan was made.
    let Ok(found) = links::find(on, &chain, shield, &mut findings) else { return findings };
    findings.retain(|finding| {
        finding.severity > Severity::Note && OF_LINKS.contains(&finding.id.as_str())
    });
    for link in &found {
        let mut wrong = Vec::new();
        for irq in link.irqs.iter().filter(|irq| stuck_at(on, irq).is_none()) {
            if let Some(at) = irq.requested.as_ref().filter(|at| **at != link.cpus) {
                wrong.push(format!("IRQ {} goes to CPU {at}", irq.number));
            }
            let handlers = on.handlers(irq.number);
            wrong.extend(handlers.into_iter().filter_map(|task| other_priority(link, task)));
        }
        for task in &link.tasks {
            wrong.extend(misplaced(link, task, shield));
        }
        if wrong.is_empty() {
            continue;
        }
        let (name, all) = (printable(link.name, 60), wrong.len());
        wrong.truncate(TOLD);
        if all > TOLD {
            wrong.push(format!("and {} more", all - TOLD));
        }
        findings.push(
            warning("chain.astray", format!("link `{name}` is not where the chain has it: {}", wanted(link)))
                .evidence(wrong.join("; "))
                .effect("it is not shielded: others interrupt it as if there were no shield")
                .remedy(
                    "`quietcores watch` with the chain file puts what was restarted where it belongs; without one: \
                     `quietcores revert`, then apply again",
                ),
        );
    }
    findings
}

fn wanted(link: &Found<'_>) -> String {
    let priority = link.priority.map(|priority| format!(", FIFO {priority}")).unwrap_or_default();
    format!("CPU {}{priority}", link.cpus)
}

fn misplaced(link: &Found<'_>, task: &Task, shield: &Shield) -> Option<String> {
    let mut wrong = Vec::new();
    let entered =
        shield.mechanism == Mechanism::Affinity || task.cgroup.as_ref().is_none_or(is_ours);
    if !entered {
        wrong.push("outside of the shield".to_owned());
    }
    if task.allowed != link.cpus {
        wrong.push(format!("on CPU {}", task.allowed));
    }
    let priority = other_priority(link, task).map(|_| task.scheduling.to_string());
    wrong.extend(priority);
    (!wrong.is_empty()).then(|| {
        format!("thread {} ({}) {}", task.tid, printable(&task.comm, 32), wrong.join(", "))
    })
}

fn other_priority(link: &Found<'_>, task: &Task) -> Option<String> {
    let priority = link.priority?;
    let kept = (task.scheduling.policy, task.scheduling.priority) == (Policy::Fifo, priority);
    (!kept)
        .then(|| format!("thread {} ({}) {}", task.tid, printable(&task.comm, 32), task.scheduling))
}
