//! Which CPUs to shield.

use crate::{
    PlanError,
    links::seats,
    lookup::Lookup,
    note, say,
    sources::{irqs, stuck_at},
    warning,
};
use quiet_types::{
    Chain, CpuId, CpuSet, Finding, Machine,
    chain::{Choice, Target},
    machine::{CoreKind, Group, Irq},
};
use std::collections::{HashMap, HashSet};

/// The CPUs to shield, with the reasons in words.
pub(crate) fn cpus(
    on: &Lookup<'_>,
    chain: &Chain,
    reasons: &mut Vec<String>,
    findings: &mut Vec<Finding>,
) -> Result<CpuSet, PlanError> {
    let machine = on.machine;
    let asked = match &chain.cpus {
        Choice::These(cpus) => Some(cpus.clone()),
        Choice::Auto => {
            // Links that name CPUs have chosen already.
            let named = chain.links.iter().filter_map(|link| link.cpus.as_ref());
            let named = named.fold(CpuSet::new(), |all, cpus| all.union(cpus));
            (!named.is_empty()).then_some(named)
        }
        Choice::Cores(_) => None,
    };
    let cpus = match asked {
        Some(cpus) => {
            exist(machine, &cpus)?;
            not_taken(machine, &cpus)?;
            reasons.push(format!("{} to be shielded: asked for.", say(&cpus)));
            cpus
        }
        None => best_cores(on, chain, reasons)?,
    };
    let open = machine.online.difference(&taken(machine));
    if open.difference(&cpus).is_empty() {
        return Err(PlanError::no_room(format!(
            "cannot shield {}: no CPU would be left to the rest of the machine, which has {}; \
             leave at least one out",
            say(&cpus),
            say(&open)
        )));
    }
    if !chain.smt_off {
        split_cores(machine, &cpus, findings);
    }
    boot_cpu(on, chain, &cpus, findings);
    Ok(cpus)
}

fn exist(machine: &Machine, cpus: &CpuSet) -> Result<(), PlanError> {
    if cpus.is_empty() {
        return Err(PlanError::chain("no CPU is named; write a list such as 2-3, or auto"));
    }
    let there: CpuSet = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let known = there.union(&machine.online);
    let unknown = cpus.difference(&known);
    if !unknown.is_empty() {
        return Err(PlanError::absent(format!(
            "{} not on this machine, which has {known}; see `quietcores inspect`",
            are(&unknown)
        )));
    }
    let off = cpus.difference(&machine.online);
    if !off.is_empty() {
        return Err(PlanError::absent(format!(
            "{} offline; switch it on first (echo 1 > /sys/devices/system/cpu/cpuN/online), or \
             choose among {}",
            are(&off),
            machine.online
        )));
    }
    Ok(())
}

/// CPUs that partitions of others hold; those of a shield of ours are not meant, nor those of
/// `isolcpus=`, which the kernel shows in the same file (`cpuset.cpus.isolated`). A claim on them
/// would make a partition of others invalid, even where ours is refused and taken back.
pub(crate) fn taken(machine: &Machine) -> CpuSet {
    let mut held = machine.cgroups.v2_isolated.clone().unwrap_or_default();
    held = held.difference(&machine.isolated.clone().unwrap_or_default());
    let mut own = CpuSet::default();
    for group in &machine.cgroups.groups {
        let cpus = group.cpus.clone().unwrap_or_default();
        if crate::is_ours(&group.path) {
            own = own.union(&cpus);
            // Somebody may have rewritten what was asked for, and the partition stands all the same.
            if is_partition(group) {
                own = own.union(&group.effective.clone().unwrap_or_default());
            }
        } else if is_partition(group) {
            held = held.union(&cpus);
        }
    }
    held.difference(&own)
}

/// Whether a group is a valid partition; the root group always is one, and is not meant.
fn is_partition(group: &Group) -> bool {
    !group.path.is_root() && matches!(group.partition.as_deref(), Some("isolated" | "root"))
}

/// Running SMT siblings of `cpus` that are not among them, nor in somebody's partition.
pub(crate) fn siblings(machine: &Machine, cpus: &CpuSet) -> CpuSet {
    let cores = machine.cores();
    let shared = cores.iter().filter(|core| core.intersects(cpus));
    let all = shared.fold(CpuSet::new(), |all, core| all.union(core));
    all.difference(cpus).difference(&taken(machine))
}

fn not_taken(machine: &Machine, cpus: &CpuSet) -> Result<(), PlanError> {
    let both = cpus.intersection(&taken(machine));
    if both.is_empty() {
        return Ok(());
    }
    let holder = machine.cgroups.groups.iter().find(|group| {
        is_partition(group) && group.cpus.as_ref().is_some_and(|held| held.intersects(&both))
    });
    let holder = holder.map_or_else(
        || "an isolated partition of cgroup v2".to_owned(),
        |group| format!("the partition {}", quiet_types::printable(&group.path, 100)),
    );
    Err(PlanError::taken(format!(
        "{} held by {holder} already; end that one first, or shield others of {}",
        are(&both),
        machine.online.difference(&taken(machine))
    )))
}

fn are(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus} is") } else { format!("CPUs {cpus} are") }
}

/// What speaks for and against a core; compared in this order, smaller is better.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Merit {
    /// The chain's own interrupt is stuck on another core.
    away_from_chain: bool,
    /// A slower kind of core.
    slow: bool,
    /// Cards of the chain that hang on another memory node.
    far: usize,
    /// In another cluster than the first core that was chosen: it has another cache and another frequency.
    other_cluster: bool,
    /// Interrupts that cannot leave it.
    stuck: usize,
    /// The kernel's boot CPU, where timers and interrupts gather.
    boot: bool,
    /// Not isolated at boot, while others are.
    unprepared: bool,
    /// Other CPUs that share its last-level cache.
    crowd: usize,
    /// Interrupts delivered there since boot, by order of magnitude.
    interrupts: u32,
    /// Higher numbers first.
    number: std::cmp::Reverse<u32>,
}

fn best_cores(
    on: &Lookup<'_>,
    chain: &Chain,
    reasons: &mut Vec<String>,
) -> Result<CpuSet, PlanError> {
    let machine = on.machine;
    let mut cores = machine.cores();
    let taken = taken(machine);
    cores.retain(|core| !core.intersects(&taken));
    if cores.len() < 2 {
        return Err(PlanError::no_room(if machine.online.len() < 2 {
            "this machine has one CPU: nothing can be given to the chain alone".to_owned()
        } else {
            format!(
                "this machine has one core with {}: shielding it would leave nothing; name one of \
                 them with --cpus to split the core knowingly",
                say(&machine.online)
            )
        }));
    }
    let own = own_irqs(on, chain);
    let wanted: Vec<&Irq> = own.iter().copied().filter(|irq| stuck_at(on, irq).is_some()).collect();
    let whole = Whole::of(on, &own, &wanted);
    let spare = cores.len() - 1;
    let count = match chain.cpus {
        Choice::Cores(asked) if asked as usize > spare => {
            return Err(PlanError::no_room(format!(
                "auto:{asked} asks for more cores than this machine can give: one of {} stays with the rest; write \
                 auto:{spare} at most",
                cores.len()
            )));
        }
        Choice::Cores(cores) => cores as usize,
        _ => seats::wanted(&chain.links).min(spare),
    };
    let mut ranked: Vec<(Merit, &CpuSet)> =
        cores.iter().map(|core| (merit(machine, core, &whole), core)).collect();
    ranked.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let count = leave_a_fast_one(chain, &ranked, count.max(1), reasons);
    stay_together(machine, &mut ranked);
    ranked.truncate(count);
    let chosen = ranked.iter().fold(CpuSet::new(), |all, (_, core)| all.union(core));
    match ranked.as_slice() {
        [(merit, core)] => reasons.push(explain(machine, core, merit, &whole)),
        several => {
            let want = seats::wanted(&chain.links);
            let need = match chain.cpus {
                Choice::Cores(_) => "asked for by number".to_owned(),
                _ if want > several.len() => format!("of {want} that the links would need; one core stays with the rest"),
                _ => "one for each process with the interrupts that feed it, one for those at the end".to_owned(),
            };
            reasons.push(format!(
                "{} to be shielded, chosen: {} cores, {need}.",
                say(&chosen),
                several.len()
            ));
            let parts = several.iter().map(|(merit, core)| explain(machine, core, merit, &whole));
            reasons.extend(parts);
        }
    }
    inverse(on, &wanted, &chosen, reasons);
    Ok(chosen)
}

fn own_irqs<'a>(on: &Lookup<'a>, chain: &Chain) -> Vec<&'a Irq> {
    let of = chain.links.iter().filter_map(|link| match &link.target {
        Target::Irq(source) => Some(irqs(on, source)),
        Target::Process { .. } => None,
    });
    of.flatten().collect()
}

/// Where the machine has two kinds of core, a chain that does not ask for a number leaves one of the faster kind to the rest: on little
/// cores alone a desktop or a network share stands still, and with it who feeds the chain.
fn leave_a_fast_one(
    chain: &Chain,
    ranked: &[(Merit, &CpuSet)],
    count: usize,
    reasons: &mut Vec<String>,
) -> usize {
    let fast = ranked.iter().filter(|(merit, _)| !merit.slow).count();
    let two_kinds = fast < ranked.len();
    let asked = matches!(chain.cpus, Choice::Cores(_));
    if asked || !two_kinds || fast < 2 || count < fast {
        return count;
    }
    reasons.push(format!(
        "One of the {fast} cores of the faster kind stays with the rest: on the others alone the desktop, the network and the disk would \
         be slow, and they feed the chain. Links share a core for that; auto:{fast} gives them all."
    ));
    fast - 1
}

/// Puts cores of the first one's cluster before others of equal merit: links hand blocks over within one cache, and no frequency is
/// shared with the rest.
fn stay_together(machine: &Machine, ranked: &mut [(Merit, &CpuSet)]) {
    let cluster = |core: &CpuSet| {
        core.first().and_then(|cpu| machine.cpu(cpu)).and_then(|cpu| cpu.cluster.as_ref())
    };
    let Some(first) = ranked.first().and_then(|(_, core)| cluster(core)) else { return };
    for (merit, core) in ranked.iter_mut() {
        merit.other_cluster = cluster(core).is_some_and(|cluster| !cluster.intersects(first));
    }
    ranked.sort_unstable_by(|a, b| a.0.cmp(&b.0));
}

/// Says why the chain goes to its interrupt, where the interrupt cannot come to the chain.
fn inverse(on: &Lookup<'_>, wanted: &[&Irq], chosen: &CpuSet, reasons: &mut Vec<String>) {
    for irq in wanted {
        let Some(at) = stuck_at(on, irq).filter(|at| at.intersects(chosen)) else { continue };
        if irq.is_of_each_cpu() {
            continue;
        }
        let why = irq
            .immovable
            .as_deref()
            .unwrap_or("every device's interrupts have come to that CPU, whatever was asked");
        reasons.push(format!(
            "The chain goes to its interrupt, because the interrupt cannot come to the chain: IRQ {} ({}) stays on {}; {why}. All that \
             can leave that CPU does.",
            irq.number,
            quiet_types::printable(&irq.actions.join(", "), 80),
            say(&at),
        ));
    }
}

/// What the merits of all cores are taken from.
struct Whole {
    /// The chain has an interrupt that cannot be moved, and where.
    wanted: Option<CpuSet>,
    /// Where interrupts of others are that cannot be moved, of those that have come.
    stuck: Vec<CpuSet>,
    /// Whether any interrupt cannot be moved.
    any_stuck: bool,
    /// Of each interrupt of the chain the CPUs of its memory node, where it tells one.
    near: Vec<CpuSet>,
    /// Whether an interrupt of the chain tells its node.
    told: bool,
    /// Interrupts delivered to each CPU since boot.
    counts: HashMap<CpuId, u64>,
    cpus: HashMap<CpuId, usize>,
    strongest: Option<u32>,
    boot: Option<CpuId>,
    isolated: CpuSet,
}

impl Whole {
    fn of(on: &Lookup<'_>, own: &[&Irq], wanted: &[&Irq]) -> Whole {
        let machine = on.machine;
        let at = |irqs: &[&Irq]| {
            let places = irqs.iter().filter_map(|irq| stuck_at(on, irq));
            places.fold(CpuSet::new(), |all, at| all.union(&at))
        };
        let ours: HashSet<u32> = wanted.iter().map(|irq| irq.number).collect();
        let (mut stuck, mut any_stuck) = (Vec::new(), false);
        let mut counts: HashMap<CpuId, u64> = HashMap::new();
        for irq in &machine.irqs {
            for (cpu, count) in &irq.counts {
                *counts.entry(*cpu).or_default() += count;
            }
            let Some(at) = stuck_at(on, irq) else { continue };
            any_stuck = true;
            if !ours.contains(&irq.number) && irq.total() > 0 {
                stuck.push(at);
            }
        }
        let node = |irq: &&Irq| {
            let node = machine.nodes.iter().find(|node| Some(node.id) == irq.node)?;
            (!node.cpus.is_empty()).then(|| node.cpus.clone())
        };
        Whole {
            wanted: (!wanted.is_empty()).then(|| at(wanted)),
            stuck,
            any_stuck,
            near: own.iter().filter_map(node).collect(),
            told: own.iter().any(|irq| irq.node.is_some()),
            counts,
            cpus: machine.cpus.iter().enumerate().map(|(at, cpu)| (cpu.id, at)).collect(),
            strongest: machine.cpus.iter().filter_map(|cpu| cpu.capacity).max(),
            boot: machine.cpus.iter().map(|cpu| cpu.id).min(),
            isolated: machine.isolated.clone().unwrap_or_default(),
        }
    }
}

fn merit(machine: &Machine, core: &CpuSet, whole: &Whole) -> Merit {
    let first = core.first().unwrap_or(CpuId(0));
    let cpu = whole.cpus.get(&first).map(|at| &machine.cpus[*at]);
    let count: u64 = core.iter().filter_map(|cpu| whole.counts.get(&cpu)).sum();
    Merit {
        away_from_chain: whole.wanted.as_ref().is_some_and(|at| !at.intersects(core)),
        stuck: whole.stuck.iter().filter(|at| at.intersects(core)).count(),
        slow: cpu.is_some_and(|cpu| {
            cpu.kind == Some(CoreKind::Efficiency)
                || (cpu.kind.is_none() && cpu.capacity.is_some() && cpu.capacity < whole.strongest)
        }),
        far: whole.near.iter().filter(|near| !near.intersects(core)).count(),
        other_cluster: false,
        boot: whole.boot.is_some_and(|boot| core.contains(boot)),
        unprepared: !whole.isolated.is_empty() && !core.is_subset(&whole.isolated),
        crowd: cpu.map_or(0, |cpu| cpu.llc.difference(core).len()),
        interrupts: count.checked_ilog10().map_or(0, |digits| digits + 1),
        number: std::cmp::Reverse(first.0),
    }
}

fn explain(machine: &Machine, core: &CpuSet, merit: &Merit, whole: &Whole) -> String {
    let mut why = Vec::new();
    if whole.wanted.is_some() && !merit.away_from_chain {
        why.push("the chain's own interrupt cannot be moved and is delivered there".to_owned());
    }
    if core.len() > 1 {
        why.push("a whole core with its SMT siblings".into());
    }
    if machine.cpus.iter().any(|cpu| cpu.kind == Some(CoreKind::Efficiency)) && !merit.slow {
        why.push(match kinds(machine, core) {
            Some((own, least)) => {
                format!("of the faster kind (capacity {own}; the others have {least})")
            }
            None => "of the faster kind".into(),
        });
    }
    let nodes = machine.nodes.iter().filter(|node| !node.cpus.is_empty()).count();
    if nodes > 1 && merit.far == 0 && whole.told {
        why.push("on the memory node of the chain's card".into());
    }
    if merit.stuck == 0 && whole.any_stuck {
        why.push("no immovable interrupt of others is delivered there".into());
    }
    if merit.boot {
        why.push("although it is the boot CPU".into());
    } else {
        why.push("not the boot CPU, where the kernel's own work gathers".into());
    }
    if !merit.unprepared && machine.isolated.as_ref().is_some_and(|set| !set.is_empty()) {
        why.push("isolated at boot already".into());
    }
    format!("{} to be shielded, chosen: {}.", say(core), why.join(", "))
}

/// The capacity of a core, and the least on the machine, where they differ.
fn kinds(machine: &Machine, core: &CpuSet) -> Option<(u32, u32)> {
    let own = core.first().and_then(|cpu| machine.cpu(cpu)).and_then(|cpu| cpu.capacity)?;
    let least = machine.cpus.iter().filter_map(|cpu| cpu.capacity).min()?;
    (least < own).then_some((own, least))
}

fn split_cores(machine: &Machine, cpus: &CpuSet, findings: &mut Vec<Finding>) {
    for core in machine.cores() {
        let ours = core.intersection(cpus);
        let theirs = core.difference(cpus);
        if !ours.is_empty() && !theirs.is_empty() {
            findings.push(
                warning(
                    "plan.split-core",
                    format!("{} shares its core with {}", say(&ours), say(&theirs)),
                )
                .evidence(format!("one core has {}", say(&core)))
                .effect(
                    "what runs on the sibling takes execution units and caches from the chain: \
                     latency then depends on it",
                )
                .remedy(format!(
                    "shield the whole core (--cpus {}), or switch the sibling off (--smt-off)",
                    cpus.union(&core)
                )),
            );
        }
    }
}

fn boot_cpu(on: &Lookup<'_>, chain: &Chain, cpus: &CpuSet, findings: &mut Vec<Finding>) {
    let machine = on.machine;
    let Some(boot) = machine.cpus.iter().map(|cpu| cpu.id).min() else { return };
    if cpus.contains(boot) {
        let comes = |irq: &&Irq| stuck_at(on, irq).is_some_and(|at| at.contains(boot));
        let needed = own_irqs(on, chain).iter().any(comes);
        findings.push(
            note("plan.boot-cpu", "the boot CPU is to be shielded")
                .effect(
                    "some of the kernel's own work cannot leave it (timekeeping, interrupts that \
                     boards deliver nowhere else)",
                )
                .remedy(match needed {
                    true => "none: the chain's interrupt comes there and nowhere else; what else stays there is told above",
                    false => "choose another CPU unless the chain's interrupt is stuck there",
                }),
        );
    }
}
