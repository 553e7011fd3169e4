//! What the links of a chain are on this machine.

pub(crate) mod seats;
#[cfg(test)]
mod tests;
mod threads;

use crate::{
    PlanError,
    lookup::Lookup,
    note, owner, problem, say,
    sources::{irqs, stuck_at},
    warning,
};
use quiet_types::{
    Chain, CpuSet, Finding, GroupPath, Machine,
    chain::{IrqSource, Link, Owner, Target},
    machine::{Irq, Task},
    printable,
    shield::{Mechanism, Shield},
};

/// A link that was found.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub name: &'a str,
    pub target: &'a Target,
    pub cpus: CpuSet,
    pub priority: Option<u8>,
    pub irqs: Vec<&'a Irq>,
    /// First threads of its processes.
    pub firsts: Vec<&'a Task>,
    /// Threads that are placed.
    pub tasks: Vec<&'a Task>,
    /// Those among its threads that nobody places, because they are in no list.
    pub unlisted: Vec<&'a Task>,
}

/// Finds every link. Those without CPUs of their own get one each, in turn; an interrupt shares that of the process that it feeds.
pub(crate) fn find<'a>(
    on: &Lookup<'a>,
    chain: &'a Chain,
    shield: &Shield,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Found<'a>>, PlanError> {
    let seats = seats::of(on, chain, shield)?;
    let mut found = Vec::new();
    for (link, cpus) in chain.links.iter().zip(seats) {
        let mut one = Found {
            name: &link.name,
            target: &link.target,
            cpus,
            priority: link.priority,
            irqs: Vec::new(),
            firsts: Vec::new(),
            tasks: Vec::new(),
            unlisted: Vec::new(),
        };
        match &link.target {
            Target::Irq(source) => {
                one.irqs = irq_link(on, &link.name, source, findings);
                stuck(on, &one, findings);
            }
            Target::Process { comm, owner, .. } => {
                let (ours, others) = owner::processes(on, comm, owner);
                whose(on.machine, link, &ours, &others, findings);
                one.firsts = ours;
                if shield.mechanism == Mechanism::PartitionV2 {
                    delegated(&one, findings);
                }
            }
        }
        found.push(one);
    }
    threads::share_out(on, &mut found, findings);
    Ok(found)
}

/// Says which processes of a link's name are not taken for it, and why.
fn whose(
    machine: &Machine,
    link: &Link,
    ours: &[&Task],
    others: &[&Task],
    findings: &mut Vec<Finding>,
) {
    let Target::Process { comm, owner, .. } = &link.target else { return };
    let (name, comm) = (printable(&link.name, 60), printable(comm, 32));
    let told: Vec<String> = others.iter().take(4).map(|first| owner::who(machine, first)).collect();
    let told =
        format!("{}{}", told.join("; "), if others.len() > told.len() { " ..." } else { "" });
    findings.push(match (ours.is_empty(), others.is_empty()) {
        (false, true) => return,
        (true, true) => {
            warning("plan.link-absent", format!("link `{name}` is not running"))
                .evidence(format!("no process is called `{comm}`"))
                .remedy("start it, then apply again")
        }
        (false, false) => note(
            "plan.link-stranger",
            format!("processes called `{comm}` that are not those of link `{name}` are left alone"),
        )
        .evidence(told)
        .remedy(format!("if they are the link's as well, name their users in it: {}", owner::line(machine, others))),
        (true, false) if *owner == Owner::default() => problem(
            "plan.link-whose",
            format!("link `{name}` is left alone: the chain does not say whose `{comm}` it is, and none is root's"),
        )
        .evidence(told)
        .effect("it gets no CPU and no priority; anybody may give a program that name")
        .remedy(format!("if it is the link, add to it: {}", owner::line(machine, others))),
        (true, false) => problem(
            "plan.link-whose",
            format!("link `{name}` is left alone: no `{comm}` is the one that the chain means"),
        )
        .evidence(told)
        .effect("it gets no CPU and no priority")
        .remedy("start it as the link says (`user`, `exe`, `unit`), or correct these"),
    });
}

fn irq_link<'a>(
    on: &Lookup<'a>,
    name: &str,
    source: &IrqSource,
    findings: &mut Vec<Finding>,
) -> Vec<&'a Irq> {
    let found = irqs(on, source);
    if found.is_empty() {
        findings.push(
            warning("plan.link-absent", format!("link `{}` has no interrupt", printable(name, 60)))
                .evidence(format!("nothing on this machine is {}", describe(source)))
                .remedy("plug the device in, or see `quietcores inspect` for the names"),
        );
    }
    found
}

/// Tells of a link that leaves a group which another manager than systemd's first process made: one below a unit that
/// delegates (a login session's manager, a container).
fn delegated(link: &Found<'_>, findings: &mut Vec<Finding>) {
    let managed = link.firsts.iter().find_map(|task| Some((task, manager(task.cgroup.as_ref()?)?)));
    let Some((task, unit)) = managed else { return };
    findings.push(
        note(
            "plan.link-delegated",
            format!("link `{}` leaves a group that {} manages", printable(link.name, 60), printable(unit, 80)),
        )
        .evidence(format!(
            "process {} is in {}",
            task.pid,
            printable(task.cgroup.as_deref().unwrap_or_default(), 200)
        ))
        .effect(
            "while it is shielded, limits of that group (memory, CPU share) do not hold for it; `revert` brings it back",
        )
        .remedy("none for a player of a login session; what must keep the limits of a container cannot be a link"),
    );
}

/// The unit that passes its groups on to another manager, if `path` is such a group: below services and scopes systemd's first process
/// makes none itself.
fn manager(path: &GroupPath) -> Option<&str> {
    let mut parts = path.parts();
    let unit = parts.find(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
    parts.next().map(|_| unit)
}

/// Tells of interrupts that will not come to where the link is.
fn stuck(on: &Lookup<'_>, link: &Found<'_>, findings: &mut Vec<Finding>) {
    for irq in &link.irqs {
        let Some(at) = stuck_at(on, irq).filter(|at| !at.intersects(&link.cpus)) else {
            continue;
        };
        let why = irq.immovable.clone().unwrap_or_else(|| {
            "this machine delivers every device's interrupts to that CPU, by its counts".into()
        });
        findings.push(
            warning(
                "plan.link-stuck",
                format!(
                    "IRQ {} of link `{}` stays on {}",
                    irq.number,
                    printable(link.name, 60),
                    say(&at)
                ),
            )
            .evidence(why)
            .effect(format!(
                "what it wakes on {} waits for a CPU that everybody else may use",
                say(&link.cpus)
            ))
            .remedy(format!(
                "shield {} for the chain: leave out `cpus`, and it is chosen",
                say(&at)
            )),
        );
    }
}

fn describe(source: &IrqSource) -> String {
    match source {
        IrqSource::Net(name) => format!("the network card `{}`", printable(name, 40)),
        IrqSource::Card(name) => format!("the sound card `{}`", printable(name, 40)),
        IrqSource::Number(number) => format!("IRQ {number}"),
        IrqSource::Action(name) => format!("an IRQ with action `{}`", printable(name, 40)),
    }
}

/// The threads of a link's processes, of those that its list names.
pub(crate) fn process<'a>(
    on: &Lookup<'a>,
    comm: &str,
    threads: &[String],
    owner: &Owner,
) -> Vec<&'a Task> {
    let (ours, _) = owner::processes(on, comm, owner);
    let named = |task: &Task| threads.iter().any(|wanted| owner::is_thread(wanted, &task.comm));
    let mut tasks = on.threads(&ours);
    tasks.retain(|task| threads.is_empty() || named(task));
    tasks
}
