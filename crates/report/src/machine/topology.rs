//! The drawn topology.

use super::{Page, columns};
use quiet_types::{
    CpuSet, Machine,
    machine::{CoreKind, Cpu},
};

/// With more CPUs than this each cache is one line.
const MOST_DRAWN: usize = 64;

/// One box a last-level cache, one cell a core.
pub(super) fn draw(page: &mut Page, machine: &Machine) {
    let cores = machine.cores();
    let small = machine.cpus.len() <= MOST_DRAWN;
    for cache in caches(machine) {
        let inside: Vec<&CpuSet> = cores
            .iter()
            .filter(|core| core.first().is_some_and(|cpu| cache.contains(cpu)))
            .collect();
        let title = title(machine, &cache, inside.len());
        page.line(&format!("  {title}"));
        if small {
            let cells: Vec<String> = inside.iter().map(|core| cell(machine, core)).collect();
            boxes(page, &cells);
        }
    }
    legend(page, machine);
    clusters(page, machine);
}

/// Clusters, with the capacities of their CPUs, where they differ: `clusters CPU 0-1 (capacity 592), CPU 2-5 (capacity 1024)`.
fn clusters(page: &mut Page, machine: &Machine) {
    let mut groups: Vec<(CpuSet, Option<u32>)> = Vec::new();
    for cpu in machine.cpus.iter().filter(|cpu| cpu.online) {
        let alike = |(set, capacity): &&mut (CpuSet, Option<u32>)| {
            *capacity == cpu.capacity
                && cpu.cluster.as_ref().is_none_or(|cluster| set.intersects(cluster))
        };
        match groups.iter_mut().find(alike) {
            Some((set, _)) => set.insert(cpu.id),
            None => groups.push(([cpu.id].into_iter().collect(), cpu.capacity)),
        }
    }
    if groups.len() < 2 || groups.len() > MOST_DRAWN {
        return;
    }
    let told = machine.cpus.iter().any(|cpu| cpu.cluster.is_some());
    let texts = groups.iter().map(|(set, capacity)| match capacity {
        Some(capacity) => format!("CPU {set} (capacity {capacity})"),
        None => format!("CPU {set}"),
    });
    let text = texts.collect::<Vec<_>>().join(", ");
    page.wrapped("  ", format!("{} {text}", if told { "clusters" } else { "kinds" }).split(' '));
}

/// The sets of online CPUs that share a last-level cache, lowest CPU first.
fn caches(machine: &Machine) -> Vec<CpuSet> {
    let mut caches: Vec<CpuSet> = Vec::new();
    for cpu in machine.cpus.iter().filter(|cpu| cpu.online) {
        if !caches.iter().any(|known| known.contains(cpu.id)) {
            let mut cache = cpu.llc.intersection(&machine.online);
            cache.insert(cpu.id);
            caches.push(cache);
        }
    }
    // Where no cache is told, a box a CPU would say what nobody knows.
    let untold = machine.cpus.iter().all(|cpu| cpu.llc_kib.is_none() && cpu.llc.len() == 1);
    if untold && caches.len() > 1 { vec![machine.online.clone()] } else { caches }
}

fn title(machine: &Machine, cache: &CpuSet, cores: usize) -> String {
    let first = cache.first().and_then(|cpu| machine.cpu(cpu));
    let node = first.and_then(|cpu| cpu.node).filter(|_| machine.nodes.len() > 1);
    let package = first.and_then(|cpu| cpu.package);
    let packages = machine.cpus.iter().any(|cpu| cpu.online && cpu.package != package);
    let mut parts = Vec::new();
    if let Some(node) = node {
        parts.push(format!("node {node}"));
    }
    if let Some(package) = package.filter(|_| packages) {
        parts.push(format!("package {package}"));
    }
    parts.push(match first.and_then(|cpu| cpu.llc_kib) {
        Some(kib) if kib >= 1024 && kib % 1024 == 0 => format!("cache {} MiB", kib / 1024),
        Some(kib) => format!("cache {kib} KiB"),
        None => "caches not told".to_owned(),
    });
    parts.push(format!("CPU {cache}"));
    parts.push(if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") });
    parts.join(", ")
}

fn cell(machine: &Machine, core: &CpuSet) -> String {
    let cpus: Vec<&Cpu> = core.iter().filter_map(|cpu| machine.cpu(cpu)).collect();
    let kind = match cpus.first().and_then(|cpu| cpu.kind) {
        Some(CoreKind::Performance) => "P ",
        Some(CoreKind::Efficiency) => "E ",
        None => "",
    };
    let marked = cpus.iter().map(|cpu| format!("{}{}", cpu.id, marks(machine, cpu)));
    format!("{kind}{}", marked.collect::<Vec<_>>().join(" "))
}

fn marks(machine: &Machine, cpu: &Cpu) -> String {
    let holds = |set: &Option<CpuSet>| set.as_ref().is_some_and(|set| set.contains(cpu.id));
    let mut marks = String::new();
    if holds(&machine.isolated) || holds(&machine.cgroups.v2_isolated) {
        marks.push('i');
    }
    if holds(&machine.nohz_full) {
        marks.push('n');
    }
    marks
}

/// Cells side by side, as many rows as the width asks for.
fn boxes(page: &mut Page, cells: &[String]) {
    let wide = cells.iter().map(|cell| columns(cell)).max().unwrap_or(0) + 2;
    let in_row = ((page.style.width.saturating_sub(3)) / (wide + 1)).max(1);
    let edge = |left: char, between: char, right: char, count: usize| {
        let bars = vec!["─".repeat(wide); count];
        format!("  {left}{}{right}", bars.join(&between.to_string()))
    };
    let rows: Vec<&[String]> = cells.chunks(in_row).collect();
    for (at, row) in rows.iter().enumerate() {
        // A row is at most as long as the one above: its upper edge closes that one.
        match at {
            0 => page.line(&edge('┌', '┬', '┐', row.len())),
            _ if row.len() == in_row => page.line(&edge('├', '┼', '┤', row.len())),
            _ => {
                let (open, closed) = (vec!["─".repeat(wide); row.len()], in_row - row.len());
                let rest = vec!["─".repeat(wide); closed].join("┴");
                page.line(&format!("  ├{}┼{rest}┘", open.join("┼")));
            }
        }
        let row_cells = row.iter().map(|cell| format!(" {cell:<0$}", wide - 1));
        page.line(&format!("  │{}│", row_cells.collect::<Vec<_>>().join("│")));
    }
    let last = rows.last().map_or(0, |row| row.len());
    page.line(&edge('└', '┴', '┘', last));
}

fn legend(page: &mut Page, machine: &Machine) {
    let mut words = vec!["one cell a core, its CPUs inside".to_owned()];
    if machine.cpus.len() > MOST_DRAWN {
        words = vec![format!("more than {MOST_DRAWN} CPUs: cores are not drawn")];
    }
    let any = |set: &Option<CpuSet>| set.as_ref().is_some_and(|set| !set.is_empty());
    if any(&machine.isolated) || any(&machine.cgroups.v2_isolated) {
        words.push("i isolated".to_owned());
    }
    if any(&machine.nohz_full) {
        words.push("n nohz_full".to_owned());
    }
    if machine.cpus.iter().any(|cpu| cpu.kind.is_some()) {
        words.push("P performance, E efficiency".to_owned());
    }
    page.wrapped("  ", words.join("; ").split(' '));
}
