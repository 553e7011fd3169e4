//! CPUs: topology, caches, power, and what the host steals.

use super::Reader;
use crate::parse::{self, Wrong};
use quiet_types::{
    CpuId, CpuSet, Machine,
    machine::{CoreKind, Cpu, IdleState, Node},
};

const CPUS: &str = "/sys/devices/system/cpu";

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) {
    let present = reader.numbered(CPUS, "cpu");
    let most = present.iter().filter(|cpu| **cpu >= 8192).count();
    if most > 0 {
        let why = format!("{most} CPUs have numbers above 8191");
        reader.complain(CPUS, &Wrong { line: 1, why });
    }
    let present: CpuSet = present.into_iter().map(CpuId).collect();
    machine.online = reader.cpus(&format!("{CPUS}/online")).unwrap_or_default();
    // Very small kernels have no cpuN directories for CPUs that they have.
    let present = present.union(&machine.online);
    machine.possible = reader.cpus(&format!("{CPUS}/possible")).unwrap_or_else(|| present.clone());
    machine.isolated = reader.cpus(&format!("{CPUS}/isolated"));
    machine.nohz_full = reader.cpus(&format!("{CPUS}/nohz_full"));
    machine.smt_control = reader.text(&format!("{CPUS}/smt/control"));
    nodes(reader, machine);
    machine.cpus = present.iter().map(|id| cpu(reader, machine, id)).collect();
    kinds(reader, machine);
    stolen(reader, machine);
}

fn nodes(reader: &Reader<'_>, machine: &mut Machine) {
    let dir = "/sys/devices/system/node";
    for id in reader.numbered(dir, "node") {
        if let Some(cpus) = reader.cpus(&format!("{dir}/node{id}/cpulist")) {
            machine.nodes.push(Node { id, cpus });
        }
    }
}

fn cpu(reader: &Reader<'_>, machine: &Machine, id: CpuId) -> Cpu {
    let dir = format!("{CPUS}/cpu{id}");
    let with_itself = |set: Option<CpuSet>| {
        let mut set = set.unwrap_or_default();
        set.insert(id);
        set
    };
    let (llc, llc_kib) = last_level_cache(reader, &dir);
    // A package number of -1 means that the firmware does not tell.
    let told =
        |path: String| reader.number::<i64>(&path).and_then(|number| u32::try_from(number).ok());
    let frequency = format!("{dir}/cpufreq");
    let scales = reader.exists(&frequency);
    let scaling = |name: &str| scales.then(|| format!("{frequency}/{name}"));
    Cpu {
        id,
        online: machine.online.contains(id),
        core: told(format!("{dir}/topology/core_id")),
        package: told(format!("{dir}/topology/physical_package_id")),
        siblings: with_itself(reader.cpus(&format!("{dir}/topology/thread_siblings_list"))),
        cluster: cluster(reader, &dir, id),
        llc: with_itself(llc),
        llc_kib,
        node: machine.nodes.iter().find(|node| node.cpus.contains(id)).map(|node| node.id),
        capacity: reader.number(&format!("{dir}/cpu_capacity")),
        kind: None,
        governor: scaling("scaling_governor").and_then(|path| reader.text(&path)),
        max_khz: scaling("cpuinfo_max_freq").and_then(|path| reader.number(&path)),
        current_khz: scaling("scaling_cur_freq")
            .filter(|_| !reader.is_hushed())
            .and_then(|path| reader.text(&path))
            .and_then(|text| text.parse().ok()),
        resume_latency: reader.text(&format!("{dir}/power/pm_qos_resume_latency_us")),
        idle_states: idle_states(reader, &dir),
        steal_ticks: None,
    }
}

/// The CPUs of its cluster. Where the firmware tells none the kernel gives each CPU one of its own, without a number.
fn cluster(reader: &Reader<'_>, cpu: &str, id: CpuId) -> Option<CpuSet> {
    let number: i64 =
        reader.text_if_allowed(&format!("{cpu}/topology/cluster_id"))?.parse().ok()?;
    if number < 0 {
        return None;
    }
    reader.cpus(&format!("{cpu}/topology/cluster_cpus_list")).filter(|cpus| cpus.contains(id))
}

/// The CPUs that share the cache of the highest level, and its size in KiB.
fn last_level_cache(reader: &Reader<'_>, cpu: &str) -> (Option<CpuSet>, Option<u64>) {
    let dir = format!("{cpu}/cache");
    let level = |index: &u32| reader.number::<u32>(&format!("{dir}/index{index}/level"));
    let last = reader
        .numbered(&dir, "index")
        .into_iter()
        .filter_map(|index| level(&index).map(|level| (level, index)))
        .max();
    let Some((_, index)) = last else { return (None, None) };
    let size_file = format!("{dir}/index{index}/size");
    let size = reader.text(&size_file).and_then(|text| {
        let kib = text.strip_suffix('K').and_then(|kib| kib.parse().ok());
        if kib.is_none() {
            let why = format!("`{text}` is not a size such as 8192K");
            reader.complain(&size_file, &Wrong { line: 1, why });
        }
        kib
    });
    (reader.cpus(&format!("{dir}/index{index}/shared_cpu_list")), size)
}

fn idle_states(reader: &Reader<'_>, cpu: &str) -> Vec<IdleState> {
    let dir = format!("{cpu}/cpuidle");
    let state = |number| {
        let file = |name: &str| format!("{dir}/state{number}/{name}");
        Some(IdleState {
            name: reader.text(&file("name"))?,
            latency_us: reader.number(&file("latency")),
            disabled: reader.number::<u8>(&file("disable")).is_some_and(|disable| disable != 0),
            usage: reader.number(&file("usage")),
        })
    };
    reader.numbered(&dir, "state").into_iter().filter_map(state).collect()
}

/// Intel names its two kinds of core; elsewhere a CPU with at most three quarters of the
/// strongest one's capacity is of the thrifty kind (the smallest step between kinds that boards
/// show is about one half).
fn kinds(reader: &Reader<'_>, machine: &mut Machine) {
    let core = reader.cpus("/sys/devices/cpu_core/cpus");
    let atom = reader.cpus("/sys/devices/cpu_atom/cpus");
    if let (Some(core), Some(atom)) = (core, atom) {
        for cpu in &mut machine.cpus {
            cpu.kind = if core.contains(cpu.id) {
                Some(CoreKind::Performance)
            } else if atom.contains(cpu.id) {
                Some(CoreKind::Efficiency)
            } else {
                None
            };
        }
        return;
    }
    let strongest = machine.cpus.iter().filter_map(|cpu| cpu.capacity).max().unwrap_or(0);
    let is_thrifty =
        |capacity: u32| strongest > 0 && u64::from(capacity) * 4 <= u64::from(strongest) * 3;
    if machine.cpus.iter().filter_map(|cpu| cpu.capacity).any(is_thrifty) {
        for cpu in &mut machine.cpus {
            cpu.kind = cpu.capacity.map(|capacity| match is_thrifty(capacity) {
                true => CoreKind::Efficiency,
                false => CoreKind::Performance,
            });
        }
    }
}

fn stolen(reader: &Reader<'_>, machine: &mut Machine) {
    let path = "/proc/stat";
    let Some(text) = reader.whole_text(path) else { return };
    match parse::steal(&text) {
        Ok(stolen) => {
            for (id, ticks) in stolen {
                if let Some(cpu) = machine.cpus.iter_mut().find(|cpu| cpu.id == id) {
                    cpu.steal_ticks = Some(ticks);
                }
            }
        }
        Err(wrong) => reader.complain(path, &wrong),
    }
}
