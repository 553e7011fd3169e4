//! Tables: interrupts, tasks, cgroups, settings.

use super::{Page, name, set_text};
use quiet_types::{
    CpuId, CpuSet, Machine,
    machine::{Irq, Policy, Task},
    printable,
};

/// With more CPUs than this, counts by CPU become a total and the busiest CPU.
const MOST_COLUMNS: usize = 6;

/// The CPUs that an interrupt was counted on.
pub(super) fn counted(irq: &Irq) -> CpuSet {
    irq.counts.iter().filter(|(_, count)| *count > 0).map(|(cpu, _)| *cpu).collect()
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

pub(super) fn irqs(page: &mut Page, machine: &Machine) {
    if machine.irqs.is_empty() {
        return page.line("  none");
    }
    let by_cpu = machine.online.len() <= MOST_COLUMNS;
    let mut head = texts(["IRQ", "allowed", "delivered", ""]);
    let mut right = vec![0];
    if by_cpu {
        head.extend(machine.online.iter().map(|cpu| format!("CPU{cpu}")));
        right.extend(4..4 + machine.online.len());
    } else {
        head.extend(texts(["total", "most on"]));
        right.extend([4, 5]);
    }
    head.push("handlers".to_owned());
    let mut rows = vec![head];
    for irq in &machine.irqs {
        let told = |set: &Option<CpuSet>| match set {
            Some(set) if !set.is_empty() => set.to_string(),
            _ => "?".to_owned(),
        };
        let fixed = if irq.immovable.is_some() { "fixed" } else { "" };
        let mut row = vec![irq.number.to_string(), told(&irq.requested), told(&irq.effective)];
        row.push(fixed.to_owned());
        if by_cpu {
            let of = |cpu: CpuId| irq.counts.iter().find(|c| c.0 == cpu).map_or(0, |c| c.1);
            row.extend(machine.online.iter().map(|cpu| of(cpu).to_string()));
        } else {
            let most = irq.counts.iter().max_by_key(|c| c.1).filter(|c| c.1 > 0);
            row.push(irq.total().to_string());
            row.push(most.map_or_else(|| "-".to_owned(), |(cpu, _)| format!("CPU{cpu}")));
        }
        row.push(irq.actions.iter().map(|action| name(action)).collect::<Vec<_>>().join(", "));
        rows.push(row);
    }
    page.table(&rows, &right);
    if machine.irqs.iter().any(|irq| irq.immovable.is_some()) {
        let mut reasons: Vec<&str> =
            machine.irqs.iter().filter_map(|irq| irq.immovable.as_deref()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        for reason in reasons {
            page.wrapped("  fixed: ", printable(reason, 300).split(' '));
        }
    }
}

/// Those that came at all.
pub(super) fn vectors(page: &mut Page, machine: &Machine) {
    let by_cpu = machine.online.len() <= MOST_COLUMNS;
    let columns: Vec<CpuId> = machine.online.iter().collect();
    let mut rows = Vec::new();
    for vector in &machine.vectors {
        let total: u64 = vector.counts.iter().map(|count| count.1).fold(0, u64::saturating_add);
        if total == 0 {
            continue;
        }
        let mut row = vec![name(&vector.name)];
        let of = |cpu: &CpuId| vector.counts.iter().find(|count| count.0 == *cpu);
        match by_cpu {
            true => row.extend(
                columns.iter().map(|cpu| of(cpu).map_or(String::new(), |c| c.1.to_string())),
            ),
            false => row.push(total.to_string()),
        }
        row.push(name(&vector.description));
        rows.push(row);
    }
    if rows.is_empty() {
        return page.line("  none");
    }
    let mut head = vec![String::new()];
    match by_cpu {
        true => head.extend(columns.iter().map(|cpu| format!("CPU{cpu}"))),
        false => head.push("total".to_owned()),
    }
    rows.insert(0, head);
    let numbers = rows[0].len();
    page.table(&rows, &(0..numbers).collect::<Vec<_>>());
}

pub(super) fn task_summary(page: &mut Page, machine: &Machine) {
    let mut rows = vec![texts(["CPU", "user", "kernel", "fixed", "which are fixed there"])];
    let mut cpus: Vec<CpuId> = machine.online.iter().collect();
    cpus.extend(machine.tasks.iter().map(|task| task.cpu));
    cpus.sort_unstable();
    cpus.dedup();
    for cpu in cpus {
        let here: Vec<&Task> = machine.tasks.iter().filter(|task| task.cpu == cpu).collect();
        let user = here.iter().filter(|task| task.kernel.is_none()).count();
        let movable = here.iter().filter(|task| task.kernel.is_some() && task.movable()).count();
        let fixed: Vec<&&Task> = here.iter().filter(|task| !task.movable()).collect();
        rows.push(vec![
            cpu.to_string(),
            user.to_string(),
            movable.to_string(),
            fixed.len().to_string(),
            families(&fixed),
        ]);
    }
    page.table(&rows, &[0, 1, 2, 3]);
    page.wrapped(
        "  ",
        "user: threads of processes; kernel: kernel threads that may be moved; fixed: kernel \
         threads that may not; --tasks lists them all"
            .split(' '),
    );
}

/// `migration, kworker x4`: names up to their CPU.
fn families(tasks: &[&&Task]) -> String {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for task in tasks {
        let family = task.comm.split(['/', ':']).next().unwrap_or_default();
        match found.iter_mut().find(|(known, _)| *known == family) {
            Some((_, count)) => *count += 1,
            None => found.push((family, 1)),
        }
    }
    let texts = found.iter().map(|(family, count)| match count {
        1 => name(family),
        _ => format!("{} x{count}", name(family)),
    });
    texts.collect::<Vec<_>>().join(", ")
}

pub(super) fn threads(page: &mut Page, machine: &Machine) {
    let mut tasks: Vec<&Task> = machine.tasks.iter().collect();
    tasks.sort_by_key(|task| (task.cpu, task.tid));
    let mut rows = vec![texts(["PSR", "PID", "TID", "POL", "RTPRIO", "ALLOWED", "", "CMD"])];
    for task in tasks {
        let policy = match task.scheduling.policy {
            Policy::Other => "TS",
            Policy::Fifo => "FF",
            Policy::Rr => "RR",
            Policy::Batch => "B",
            Policy::Idle => "IDL",
            Policy::Deadline => "DLN",
            Policy::Ext => "EXT",
        };
        let priority = match task.scheduling.priority {
            0 => "-".to_owned(),
            priority => priority.to_string(),
        };
        let comm = name(&task.comm);
        rows.push(vec![
            task.cpu.to_string(),
            task.pid.to_string(),
            task.tid.to_string(),
            policy.to_owned(),
            priority,
            task.allowed.to_string(),
            if task.movable() { "" } else { "fixed" }.to_owned(),
            match (task.kernel.is_some(), task.command.is_empty()) {
                (true, _) => format!("[{comm}]"),
                (false, true) => comm,
                (false, false) if task.tid != task.pid => {
                    format!("{} ({comm})", name(&task.command))
                }
                (false, false) => name(&task.command),
            },
        ]);
    }
    page.table(&rows, &[0, 1, 2, 4]);
}

pub(super) fn cgroups(page: &mut Page, machine: &Machine) {
    let cgroups = &machine.cgroups;
    match (&cgroups.v1_cpuset, &cgroups.v2) {
        (Some(v1), _) => page.line(&format!("  cpuset is bound to cgroup v1 at {}", name(v1))),
        (None, Some(v2)) if cgroups.v2_cpuset => {
            page.line(&format!("  cpuset is offered by cgroup v2 at {}", name(v2)));
        }
        (None, Some(v2)) => {
            page.line(&format!("  cgroup v2 at {} does not offer cpuset", name(v2)));
        }
        (None, None) => page.line("  no cpuset is mounted"),
    }
    if let (Some(_), Some(v2)) = (&cgroups.v1_cpuset, &cgroups.v2) {
        page.line(&format!("  cgroup v2 is mounted too, at {}", name(v2)));
    }
    if cgroups.groups.is_empty() {
        return;
    }
    let mut rows = vec![texts(["group", "CPUs", "effective", "tasks", "state"])];
    for group in &cgroups.groups {
        let set = |set: &Option<CpuSet>| set.as_ref().map_or_else(|| "-".to_owned(), set_text);
        let state = match (&group.partition, group.load_balance) {
            (Some(partition), _) => name(partition),
            (None, Some(true)) => "load balanced".to_owned(),
            (None, Some(false)) => "not load balanced".to_owned(),
            (None, None) => String::new(),
        };
        rows.push(vec![
            name(&group.path),
            set(&group.cpus),
            set(&group.effective),
            group.tasks.to_string(),
            state,
        ]);
    }
    page.table(&rows, &[3]);
}

pub(super) fn settings(page: &mut Page, machine: &Machine) {
    let rows: Vec<Vec<String>> = machine
        .settings
        .iter()
        .map(|(path, value)| vec![format!("/{}", name(path)), name(value)])
        .collect();
    page.table(&rows, &[]);
}
