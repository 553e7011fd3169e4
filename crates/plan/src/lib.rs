//! From a machine and a chain to a plan. Pure: it sees facts and gives steps, and touches nothing.
//!
//! [`plan`] chooses the CPUs to shield, the way others are kept off them, and the steps in the
//! order in which they must be taken. [`chain::parse`] reads a chain file, [`campaign::parse`]
//! a campaign's.
#![forbid(unsafe_code)]

pub mod boot;
mod calm;
pub mod campaign;
pub mod chain;
pub mod check;
mod choose;
mod factors;
mod file;
mod guards;
mod irq;
mod irqbalance;
mod links;
mod lookup;
pub mod mend;
mod names;
mod owner;
mod pipewire;
mod place;
mod power;
mod priorities;
pub mod propose;
pub mod ready;
pub mod recipe;
mod sources;
mod steps;
mod written;

use lookup::Lookup;
use quiet_types::{
    Chain, CpuSet, Finding, GroupPath, Machine, Plan, Severity,
    chain::Link,
    machine::Group,
    plan::PLAN_SCHEMA,
    shield::{Entry, Mechanism, Shield},
};
use std::fmt;

pub use factors::{factor_of, factors, only, without};
pub use owner::{WantedProcess, wanted};
pub use place::astray;
pub use quiet_types::boot::Mode;
pub use sources::chain_interrupts;
pub use written::chain_text;

/// Why no plan can be made, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    kind: ErrorKind,
    sentence: String,
}

/// What kind of thing stood in the way of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The chain contradicts itself.
    Chain,
    /// A CPU that is named does not exist, or does not run.
    Absent,
    /// A CPU that is named is somebody else's already.
    Taken,
    /// Nothing would be left to the rest of the machine.
    NoRoom,
}

impl PlanError {
    fn chain(sentence: impl Into<String>) -> PlanError {
        PlanError { kind: ErrorKind::Chain, sentence: sentence.into() }
    }

    fn absent(sentence: impl Into<String>) -> PlanError {
        PlanError { kind: ErrorKind::Absent, sentence: sentence.into() }
    }

    fn taken(sentence: impl Into<String>) -> PlanError {
        PlanError { kind: ErrorKind::Taken, sentence: sentence.into() }
    }

    fn no_room(sentence: impl Into<String>) -> PlanError {
        PlanError { kind: ErrorKind::NoRoom, sentence: sentence.into() }
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for PlanError {}

/// Makes the plan of a shield for `chain` on `machine`.
///
/// # Errors
/// When CPUs are asked for that do not exist or do not run, when no CPU would be left to the rest
/// of the machine, or when a link names an interrupt that is not there.
pub fn plan(machine: &Machine, chain: &Chain) -> Result<Plan, PlanError> {
    plan_on(&Lookup::new(machine), chain)
}

fn plan_on(on: &Lookup<'_>, chain: &Chain) -> Result<Plan, PlanError> {
    ascend(chain)?;
    let machine = on.machine;
    let mut reasons = Vec::new();
    let mut findings = Vec::new();
    let cpus = choose::cpus(on, chain, &mut reasons, &mut findings)?;
    let off = if chain.smt_off { choose::siblings(machine, &cpus) } else { CpuSet::new() };
    let housekeeping =
        machine.online.difference(&cpus).difference(&choose::taken(machine)).difference(&off);
    if housekeeping.is_empty() {
        return Err(PlanError::no_room(format!(
            "cannot switch the siblings of {} off: no CPU would be left to the rest of the \
             machine; shield fewer CPUs, or leave SMT as it is",
            say(&cpus)
        )));
    }
    reasons.push(mode_reason(chain.mode));
    let mechanism = mechanism(machine, &mut reasons);
    let shield = Shield { entry: entry(machine, mechanism, &cpus), cpus, housekeeping, mechanism };
    let found = links::find(on, chain, &shield, &mut findings)?;
    let steps = steps::steps(on, &shield, &found, chain.mode, &off, &mut findings);
    let placed = |(link, found): (&Link, &links::Found<'_>)| Link {
        cpus: Some(found.cpus.clone()),
        ..link.clone()
    };
    let links = chain.links.iter().zip(&found).map(placed).collect();
    let plan = Plan {
        schema: PLAN_SCHEMA.into(),
        chain: chain.name.clone(),
        mode: chain.mode,
        shield,
        links,
        reasons,
        steps,
        findings,
    };
    Ok(match &chain.steps {
        Some(names) => chosen(plan, names),
        None => plan,
    })
}

/// The plan with the steps that the chain names, and what places the chain.
fn chosen(plan: Plan, names: &[String]) -> Plan {
    let (known, _) = factors(&plan);
    let off: Vec<String> =
        known.iter().map(|f| f.name.clone()).filter(|name| !names.contains(name)).collect();
    let mut less = without(&plan, &off);
    if !off.is_empty() {
        less.reasons
            .push(format!("The chain takes only some of the steps; left out: {}.", off.join(", ")));
    }
    let there = |name: &&String| known.iter().any(|factor| factor.name == **name);
    for name in names.iter().filter(|name| !there(name)) {
        let name = quiet_types::printable(name, 60);
        let title = format!("The chain names the step {name}, which is none on this machine");
        let finding = Finding::new(Severity::Note, "plan.no_such_step", title)
            .effect("Nothing is done for it.")
            .remedy("`quietcores tune --list` names the steps of this machine.");
        less.findings.push(finding);
    }
    less
}

/// A chain file is checked when it is read; chains come from elsewhere too.
fn ascend(chain: &Chain) -> Result<(), PlanError> {
    let mut last: Option<(&str, u8)> = None;
    for link in &chain.links {
        let Some(priority) = link.priority else { continue };
        if let Some((name, before)) = last.filter(|(_, before)| priority <= *before) {
            return Err(PlanError::chain(format!(
                "priority {priority} of link `{}` does not rise above the {before} of link `{}`: \
                 priorities rise down the chain",
                quiet_types::printable(&link.name, 60),
                quiet_types::printable(name, 60),
            )));
        }
        last = Some((&link.name, priority));
    }
    Ok(())
}

fn mode_reason(mode: Mode) -> String {
    match mode {
        Mode::SleepingChain => {
            "The chain sleeps between periods: the kernel's guards stay, its \
            CPUs keep out of deep idle states, softirq threads get a place in the order of \
            priorities. (--never-sleep for a loop that spins.)"
        }
        Mode::NeverSleepingCore => {
            "The core never sleeps: the kernel's guards against starvation \
            are taken away, periodic kernel work is put off further, transparent huge pages are \
            off. Idle states of its CPUs and softirq threads are left: the one does not occur, the \
            others would wait for ever."
        }
    }
    .into()
}

/// Name of the group that the chain enters.
pub(crate) const SHIELD_GROUP: &str = "quietcores";
/// Name of the unit of systemd, and of its group, that the chain enters where systemd makes it.
pub(crate) const SHIELD_UNIT: &str = "quietcores.slice";
/// The first systemd with `CPUSetPartition=`.
const PARTITIONS: u32 = 261;
/// The v2 group that becomes the partition.
///
/// One that is there already stays the one. A unit of systemd is asked for only where nothing speaks
/// against a partition right below the root: systemd claims no CPUs beside others that name them.
///
/// On CPUs of `isolcpus=domain` Linux 6.12 refuses a partition right below the root ("partition
/// config conflicts with housekeeping setup") and takes a remote one, whose parent is an ordinary
/// group. Kernels that know remote partitions show `cpuset.cpus.isolated`.
pub(crate) fn shield_group(machine: &Machine, cpus: &CpuSet) -> &'static str {
    let at_boot = machine.isolated.as_ref().is_some_and(|isolated| isolated.intersects(cpus));
    if at_boot && machine.cgroups.v2_isolated.is_some() {
        return "quietcores/chain";
    }
    let groups = &machine.cgroups.groups;
    let is = |group: &Group, name: &str| group.path == GroupPath::root().join(name);
    if groups.iter().any(|group| is(group, SHIELD_GROUP)) {
        return SHIELD_GROUP;
    }
    let systemd = machine.surroundings.as_ref().and_then(|around| around.systemd);
    let is_named = groups.iter().any(|group| {
        !group.path.is_root()
            && !is(group, SHIELD_UNIT)
            && group.cpus.as_ref().is_some_and(|named| named.intersects(cpus))
    });
    let is_up = groups.iter().any(|group| is(group, SHIELD_UNIT));
    if is_up || (systemd >= Some(PARTITIONS) && !at_boot && !is_named) {
        SHIELD_UNIT
    } else {
        SHIELD_GROUP
    }
}

/// Whether a group, by its path, is the shield's or within it.
pub(crate) fn is_ours(path: &GroupPath) -> bool {
    [SHIELD_GROUP, SHIELD_UNIT].contains(&path.top())
}

/// Name of the group that everybody else is moved to (v1).
pub(crate) const REST_GROUP: &str = "quietcores-rest";

/// What the group is that stands at the root of the v2 tree as it is seen here, where that is not the kernel's own root, which has
/// no such file, and no partition in which others could be made.
pub(crate) fn contained(machine: &Machine) -> Option<&str> {
    let root = machine.cgroups.groups.iter().find(|group| group.path.is_root())?;
    let kind = root.partition.as_deref()?;
    (!["root", "isolated"].contains(&kind)).then_some(kind)
}

/// What the kernel is asked for in `cpuset.cpus.partition`. A partition that balances within takes its CPUs from all others as
/// well; where a kernel before 6.1 was given isolated ones, it still is right.
///
/// # Source
/// Linux 6.1, kernel/cgroup/cpuset.c: "Add a new isolated cpus.partition type".
pub(crate) fn partition_kind(machine: &Machine) -> &'static str {
    let release = &machine.kernel.release;
    if release.is_empty() || guards::since(release, 6, 1) { "isolated" } else { "root" }
}

/// The strongest way that this machine offers.
fn mechanism(machine: &Machine, reasons: &mut Vec<String>) -> Mechanism {
    let groups = &machine.cgroups;
    if groups.v2.is_some() && groups.v2_cpuset && contained(machine).is_some() {
        reasons.push(
            "Others are kept off by the affinity of every thread that is seen here alone: the cgroup tree of this \
             machine begins with a group of somebody else's (a container). A partition in it needs its CPUs from every \
             group above, which only the host gives: run quietcores there. Any thread may widen itself again."
                .into(),
        );
        Mechanism::Affinity
    } else if groups.v2.is_some() && groups.v2_cpuset {
        reasons.push(if partition_kind(machine) == "isolated" {
            "Others are kept off by a cgroup v2 isolated partition: the kernel itself takes these \
             CPUs from every other group."
                .into()
        } else {
            let release = quiet_types::printable(&machine.kernel.release, 60);
            format!(
                "Others are kept off by a cgroup v2 partition, a root of its own: the kernel itself takes these CPUs from \
                 every other group. Linux 6.1 and newer have isolated ones, within which no thread is moved either; this \
                 is {release}."
            )
        });
        Mechanism::PartitionV2
    } else if let Some(mount) = &groups.v1_cpuset {
        reasons.push(format!(
            "Others are kept off by two cgroup v1 cpusets: on this machine cpuset belongs to the \
             v1 hierarchy at {mount}, so that a v2 partition cannot be had."
        ));
        Mechanism::SetsV1
    } else {
        reasons.push(
            "Others are kept off by the affinity of every thread alone: no cpuset hierarchy is \
             mounted. New threads inherit it, but any may widen itself again."
                .into(),
        );
        Mechanism::Affinity
    }
}

fn entry(machine: &Machine, mechanism: Mechanism, cpus: &CpuSet) -> Option<Entry> {
    match mechanism {
        Mechanism::PartitionV2 => Some(Entry {
            file: machine
                .cgroups
                .v2
                .as_ref()?
                .join(shield_group(machine, cpus))
                .join("cgroup.procs"),
            whole_process: true,
        }),
        Mechanism::SetsV1 => Some(Entry {
            file: machine.cgroups.v1_cpuset.as_ref()?.join(SHIELD_GROUP).join("tasks"),
            whole_process: false,
        }),
        Mechanism::Affinity => None,
    }
}

pub(crate) fn note(id: &str, title: impl Into<String>) -> Finding {
    Finding::new(Severity::Note, id, title)
}

pub(crate) fn warning(id: &str, title: impl Into<String>) -> Finding {
    Finding::new(Severity::Warning, id, title)
}

pub(crate) fn problem(id: &str, title: impl Into<String>) -> Finding {
    Finding::new(Severity::Problem, id, title)
}

pub(crate) fn say(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        chain::Choice,
        machine::Cgroups,
        plan::{Action, GroupValue},
    };

    fn groups(isolated: &str, remote: bool) -> (Vec<String>, String) {
        let machine = Machine {
            isolated: Some(isolated.parse().unwrap()),
            cgroups: Cgroups {
                v2: "/sys/fs/cgroup".parse().ok(),
                v2_cpuset: true,
                // The kernel shows those of isolcpus= here too.
                v2_isolated: remote.then(|| isolated.parse().unwrap()),
                ..Cgroups::default()
            },
            ..quiet_testing::plain_machine("0-3")
        };
        let chain = Chain { cpus: Choice::These("2-3".parse().unwrap()), ..Chain::default() };
        let plan = plan(&machine, &chain).unwrap();
        let made = plan.steps.iter().filter_map(|step| match &step.action {
            Action::Group { path, .. } => Some(path.to_string()),
            _ => None,
        });
        (made.collect(), plan.shield.entry.unwrap().file.into())
    }

    #[test]
    fn in_a_container_no_partition_is_tried() {
        for (root, wanted) in [
            (None, Mechanism::PartitionV2),
            (Some("member"), Mechanism::Affinity),
            (Some("isolated"), Mechanism::PartitionV2),
            (Some("isolated invalid (Parent is not a partition root)"), Mechanism::Affinity),
        ] {
            let mut machine = Machine::default();
            machine.cgroups.v2 = "/sys/fs/cgroup".parse().ok();
            machine.cgroups.v2_cpuset = true;
            let partition = root.map(str::to_owned);
            let group = Group { partition, ..Default::default() };
            machine.cgroups.groups.push(group);
            let mut reasons = Vec::new();
            assert_eq!(mechanism(&machine, &mut reasons), wanted, "{root:?}");
            assert_eq!(reasons[0].contains("run quietcores there"), wanted == Mechanism::Affinity);
        }
    }

    #[test]
    fn a_kernel_that_knows_no_isolated_partition_is_asked_for_another() {
        for (release, wanted) in [
            ("5.10.0-28-amd64", "root"),
            ("5.15.0-119-generic", "root"),
            ("6.0.19", "root"),
            ("6.1.0-25-amd64", "isolated"),
            ("6.12.9", "isolated"),
            ("", "isolated"),
        ] {
            let mut machine = quiet_testing::plain_machine("0-3");
            machine.kernel.release = release.into();
            machine.cgroups.v2 = "/sys/fs/cgroup".parse().ok();
            machine.cgroups.v2_cpuset = true;
            let chain = Chain { cpus: Choice::These("2-3".parse().unwrap()), ..Chain::default() };
            let plan = plan(&machine, &chain).unwrap();
            let asked = plan.steps.iter().find_map(|step| match &step.action {
                Action::Group { files, .. } => files
                    .iter()
                    .find(|file| file.name == "cpuset.cpus.partition")
                    .map(|file| file.value.clone()),
                _ => None,
            });
            assert_eq!(asked, Some(GroupValue::Is(wanted.into())), "{release}");
            let said = plan.reasons.iter().any(|why| why.contains("Linux 6.1 and newer"));
            assert_eq!(said, wanted == "root", "{release}: {:?}", plan.reasons);
        }
    }

    #[test]
    fn cpus_isolated_at_boot_get_a_remote_partition_where_the_kernel_knows_them() {
        let top = "/sys/fs/cgroup/quietcores";
        let below = format!("{top}/chain");
        let entry = |group: &str| format!("{group}/cgroup.procs");
        assert_eq!(groups("", true), (vec![top.into()], entry(top)));
        assert_eq!(groups("2-3", true), (vec![top.into(), below.clone()], entry(&below)));
        assert_eq!(groups("2-3", false), (vec![top.into()], entry(top)));
    }
}
