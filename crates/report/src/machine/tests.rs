use super::*;
use quiet_types::{
    CpuId,
    machine::{Irq, KernelThread, Policy, Scheduling, Task},
};

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// `count` CPUs, two to a core, eight to a cache.
fn big(count: u32) -> Machine {
    let cpu = |id: u32| Cpu {
        id: CpuId(id),
        online: true,
        core: Some(id / 2),
        package: Some(0),
        siblings: [CpuId(id & !1), CpuId(id | 1)].into_iter().collect(),
        llc: (id & !7..(id & !7) + 8).map(CpuId).collect(),
        cluster: None,
        llc_kib: Some(32 << 10),
        node: Some(0),
        capacity: None,
        kind: None,
        governor: Some("performance".into()),
        max_khz: Some(3_500_000),
        current_khz: None,
        resume_latency: Some("0".into()),
        idle_states: Vec::new(),
        steal_ticks: None,
    };
    let mut machine = Machine { cpus: (0..count).map(cpu).collect(), ..Machine::default() };
    machine.online = (0..count).map(CpuId).collect();
    machine.possible = machine.online.clone();
    machine
}

fn task(tid: u32, comm: &str, cpu: u32, kernel: Option<KernelThread>) -> Task {
    Task {
        pid: tid,
        tid,
        start: 0,
        comm: comm.into(),
        command: String::new(),
        state: 'S',
        cpu: CpuId(cpu),
        allowed: set("0-7"),
        scheduling: Scheduling { policy: Policy::Fifo, priority: 50, nice: 0 },
        kernel,
        cgroup: None,
        cpu_group: None,
        unit_group: None,
        exe: None,
        uid: 0,
    }
}

fn lines(machine: &Machine, style: MachineStyle, title: &str) -> Vec<String> {
    let text = machine_text(machine, style);
    let found = text.lines().skip_while(|line| *line != title).skip(1);
    found.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn cores_are_drawn_as_cells_of_their_cache() {
    let mut machine = big(16);
    machine.isolated = Some(set("6-7"));
    machine.nohz_full = Some(set("7"));
    assert_eq!(
        lines(&machine, MachineStyle::default(), "Topology"),
        [
            "  cache 32 MiB, CPU 0-7, 4 cores",
            "  ┌────────┬────────┬────────┬────────┐",
            "  │ 0 1    │ 2 3    │ 4 5    │ 6i 7in │",
            "  └────────┴────────┴────────┴────────┘",
            "  cache 32 MiB, CPU 8-15, 4 cores",
            "  ┌───────┬───────┬───────┬───────┐",
            "  │ 8 9   │ 10 11 │ 12 13 │ 14 15 │",
            "  └───────┴───────┴───────┴───────┘",
            "  one cell a core, its CPUs inside; i isolated; n nohz_full",
        ]
    );
}

#[test]
fn a_row_of_cells_that_is_too_wide_is_broken_and_its_edges_meet() {
    let mut machine = big(8);
    machine.cpus.iter_mut().for_each(|cpu| cpu.siblings = [cpu.id].into_iter().collect());
    let style = MachineStyle { width: 40, ..MachineStyle::default() };
    machine
        .cpus
        .iter_mut()
        .for_each(|cpu| cpu.kind = Some(quiet_types::machine::CoreKind::Efficiency));
    assert_eq!(
        lines(&machine, style, "Topology")[1..6],
        [
            "  ┌─────┬─────┬─────┬─────┬─────┬─────┐",
            "  │ E 0 │ E 1 │ E 2 │ E 3 │ E 4 │ E 5 │",
            "  ├─────┼─────┼─────┴─────┴─────┴─────┘",
            "  │ E 6 │ E 7 │",
            "  └─────┴─────┘",
        ]
    );
}

#[test]
fn a_machine_of_128_cpus_takes_a_line_a_cache_and_no_columns_a_cpu() {
    let mut machine = big(128);
    let counts = (0..128).map(|cpu| (CpuId(cpu), u64::from(cpu == 77))).collect();
    machine.irqs = vec![Irq { number: 9, counts, actions: vec!["acpi".into()], ..Irq::default() }];
    let topology = lines(&machine, MachineStyle::default(), "Topology");
    assert_eq!(topology.len(), 17);
    assert_eq!(topology[1], "  cache 32 MiB, CPU 8-15, 4 cores");
    assert_eq!(topology[16], "  more than 64 CPUs: cores are not drawn");
    let irqs = lines(&machine, MachineStyle::default(), "IRQs");
    assert_eq!(
        irqs[1].split_whitespace().collect::<Vec<_>>(),
        ["9", "?", "?", "1", "CPU77", "acpi"]
    );
}

#[test]
fn no_line_is_wider_than_asked_and_only_colour_brings_escapes() {
    let mut machine = big(16);
    machine.processor = "A processor with a long name ".repeat(8);
    machine.kernel.boot_parameters = (0..60).map(|n| format!("parameter{n}=value")).collect();
    machine.tasks = vec![task(5, "a-long-name-of-a-task", 3, None), task(6, "x\x1b[2J", 3, None)];
    for width in [40, 64, 80, 120] {
        for tasks in [Tasks::Summary, Tasks::Every] {
            let style = MachineStyle { width, colour: Colour::Plain, tasks };
            let text = machine_text(&machine, style);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert!(!line.ends_with(' '), "{line:?}");
            }
            assert!(!text.contains('\x1b'));
            let coloured = machine_text(&machine, MachineStyle { colour: Colour::Ansi, ..style });
            assert_eq!(coloured.replace("\x1b[1m", "").replace("\x1b[0m", ""), text);
        }
    }
}

#[test]
fn threads_are_listed_as_ps_lists_them_and_fixed_ones_are_marked() {
    let mut machine = big(8);
    let thread = |movable| Some(KernelThread { movable });
    machine.tasks = vec![
        task(30, "migration/1", 1, thread(false)),
        task(31, "irq/43-xhci_hcd", 0, thread(true)),
        Task { pid: 7, command: "mpd --no-daemon".into(), ..task(9, "output", 1, None) },
    ];
    let every = MachineStyle { tasks: Tasks::Every, ..MachineStyle::default() };
    let rows: Vec<Vec<String>> = lines(&machine, every, "Threads, by the CPU they last ran on")
        .iter()
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    assert_eq!(rows[0], ["PSR", "PID", "TID", "POL", "RTPRIO", "ALLOWED", "CMD"]);
    assert_eq!(rows[1], ["0", "31", "31", "FF", "50", "0-7", "[irq/43-xhci_hcd]"]);
    assert_eq!(rows[2], ["1", "7", "9", "FF", "50", "0-7", "mpd", "--no-daemon", "(output)"]);
    assert_eq!(rows[3], ["1", "30", "30", "FF", "50", "0-7", "fixed", "[migration/1]"]);
    let summary = lines(&machine, MachineStyle::default(), "Tasks, by the CPU they last ran on");
    assert_eq!(
        summary[2].split_whitespace().collect::<Vec<_>>(),
        ["1", "1", "0", "1", "migration"]
    );
}
