//! What the links of a chain are on this machine.

use crate::{PlanError, choose::stuck_at, note, say, warning};
use quiet_types::{
    Chain, CpuId, CpuSet, Finding, Machine,
    chain::{IrqSource, Target},
    machine::{Device, Irq, Task},
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
    pub tasks: Vec<&'a Task>,
}

/// The interrupts that `source` names.
pub(crate) fn irqs<'a>(machine: &'a Machine, source: &IrqSource) -> Vec<&'a Irq> {
    let of = |devices: &[Device], name: &str| -> Vec<u32> {
        devices
            .iter()
            .filter(|card| card.name == name || says(&card.description, name))
            .flat_map(|card| card.irqs.iter().copied())
            .collect()
    };
    let numbers = match source {
        IrqSource::Number(number) => vec![*number],
        IrqSource::Net(name) => {
            let cards = machine.network_cards.iter().filter(|card| card.name == *name);
            cards.flat_map(|card| card.irqs.iter().copied()).collect()
        }
        IrqSource::Card(name) => of(&machine.sound_cards, name),
        IrqSource::Action(name) => {
            let named = machine.irqs.iter().filter(|irq| irq.actions.iter().any(|a| a == name));
            named.map(|irq| irq.number).collect()
        }
    };
    machine.irqs.iter().filter(|irq| numbers.contains(&irq.number)).collect()
}

/// The sound cards that `source` names.
pub(crate) fn cards<'a>(machine: &'a Machine, source: &IrqSource) -> Vec<&'a Device> {
    let own = irqs(machine, source);
    let behind = |card: &&Device| card.irqs.iter().any(|n| own.iter().any(|irq| irq.number == *n));
    let named = |card: &&Device| match source {
        IrqSource::Card(name) => card.name == *name || says(&card.description, name),
        IrqSource::Net(_) => false,
        _ => behind(card),
    };
    machine.sound_cards.iter().filter(named).collect()
}

/// Whether `name` stands in a card's description as a word.
pub(crate) fn says(description: &str, name: &str) -> bool {
    description.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == name)
}

/// Finds every link, and gives those without CPUs of their own one each, in turn.
pub(crate) fn find<'a>(
    machine: &'a Machine,
    chain: &'a Chain,
    shield: &Shield,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Found<'a>>, PlanError> {
    let all: Vec<CpuId> = shield.cpus.iter().collect();
    let mut turn = all.iter().cycle();
    let mut found = Vec::new();
    for link in &chain.links {
        let cpus = match &link.cpus {
            Some(cpus) if !cpus.is_subset(&shield.cpus) => {
                return Err(PlanError(format!(
                    "link `{}` is to run on {}, which is not within the shield ({}); widen `cpus` \
                     of the chain or move the link",
                    printable(&link.name, 60),
                    say(cpus),
                    say(&shield.cpus)
                )));
            }
            Some(cpus) => cpus.clone(),
            None => turn.next().into_iter().copied().collect(),
        };
        let mut one = Found {
            name: &link.name,
            target: &link.target,
            cpus,
            priority: link.priority,
            irqs: Vec::new(),
            tasks: Vec::new(),
        };
        match &link.target {
            Target::Irq(source) => {
                one.irqs = irq_link(machine, &link.name, source, findings);
                stuck(machine, &one, findings);
            }
            Target::Process { comm, threads } => {
                one.tasks = process(machine, comm, threads);
                if one.tasks.is_empty() {
                    findings.push(
                        warning(
                            "plan.link-absent",
                            format!("link `{}` is not running", printable(&link.name, 60)),
                        )
                        .evidence(format!("no process is called `{}`", printable(comm, 32)))
                        .remedy("start it, then apply again"),
                    );
                }
                if shield.mechanism == Mechanism::PartitionV2 {
                    delegated(&one, findings);
                }
            }
        }
        found.push(one);
    }
    Ok(found)
}

fn irq_link<'a>(
    machine: &'a Machine,
    name: &str,
    source: &IrqSource,
    findings: &mut Vec<Finding>,
) -> Vec<&'a Irq> {
    let found = irqs(machine, source);
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
    let managed =
        link.tasks.iter().find_map(|task| Some((task, manager(task.cgroup.as_deref()?)?)));
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
fn manager(path: &str) -> Option<&str> {
    let mut parts = path.trim_matches('/').split('/');
    let unit = parts.find(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
    parts.next().map(|_| unit)
}

/// Tells of interrupts that will not come to where the link is.
fn stuck(machine: &Machine, link: &Found<'_>, findings: &mut Vec<Finding>) {
    for irq in &link.irqs {
        let Some(at) = stuck_at(machine, irq).filter(|at| !at.intersects(&link.cpus)) else {
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

pub(crate) fn process<'a>(machine: &'a Machine, comm: &str, threads: &[String]) -> Vec<&'a Task> {
    // The kernel keeps 15 characters of a name.
    let cut = |name: &str| name.chars().take(15).collect::<String>();
    let leaders: Vec<u32> = machine
        .tasks
        .iter()
        .filter(|task| task.kernel.is_none() && task.pid == task.tid)
        .filter(|task| cut(&task.comm) == cut(comm))
        .map(|task| task.pid)
        .collect();
    machine
        .tasks
        .iter()
        .filter(|task| leaders.contains(&task.pid))
        .filter(|task| threads.is_empty() || threads.iter().any(|t| cut(t) == cut(&task.comm)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::manager;

    #[test]
    fn groups_below_services_and_scopes_are_another_managers() {
        for (path, unit) in [
            ("/user.slice/user-1.slice/user@1.service/app.slice/p.service", Some("user@1.service")),
            ("/machine.slice/docker-ab.scope/init.scope", Some("docker-ab.scope")),
            ("/system.slice/box.service/payload", Some("box.service")),
            ("/system.slice/mpd.service", None),
            ("/user.slice/user-1.slice/session-2.scope", None),
            ("/", None),
        ] {
            assert_eq!(manager(path), unit, "{path}");
        }
    }
}
