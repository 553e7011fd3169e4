//! A small machine that is set up well for a chain: network, player, DSP, USB card.

use quiet_types::{
    Chain, CpuId, CpuSet, GroupPath, Machine,
    chain::{Choice, IrqSource, Link, Owner, Target, User},
    machine::{
        Cgroups, Cpu, Device, Group, IdleState, Irq, KernelThread, Node, Policy, Preemption,
        RunningKernel, Scheduling, Task, Vector, Workqueues,
    },
    surroundings::{
        AudioGroup, BusyProcess, Caller, Mount, Surroundings, UsbController, UsbDevice,
    },
};

pub fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub fn chain() -> Chain {
    let owner = Owner { users: vec![User::Uid(1000)], ..Owner::default() };
    let process = |comm: &str| Target::Process {
        comm: comm.into(),
        threads: vec![],
        owner: owner.clone(),
        pipewire: None,
    };
    let link = |name: &str, target, cpus: &str, priority| Link {
        name: name.into(),
        target,
        cpus: Some(set(cpus)),
        priority: Some(priority),
    };
    Chain {
        name: Some("living room".into()),
        cpus: Choice::These(set("1-3")),
        mode: quiet_types::boot::Mode::SleepingChain,
        smt_off: false,
        steps: None,
        links: vec![
            link("network", Target::Irq(IrqSource::Net("eth0".into())), "2", 55),
            link("player", process("mpd"), "2", 75),
            link("dsp", process("camilladsp"), "3", 80),
            link("output", Target::Irq(IrqSource::Card("DAC".into())), "1", 85),
        ],
    }
}

pub fn task(tid: u32, comm: &str, cpus: &str, policy: Policy, priority: u8) -> Task {
    let allowed = set(cpus);
    Task {
        pid: tid,
        tid,
        start: 1_000,
        comm: comm.into(),
        command: String::new(),
        state: 'S',
        cpu: allowed.first().unwrap(),
        allowed,
        scheduling: Scheduling { policy, priority, nice: 0 },
        kernel: None,
        cgroup: Some(GroupPath::root()),
        cpu_group: None,
        unit_group: None,
        exe: None,
        uid: 1000,
    }
}

pub fn kernel_thread(tid: u32, comm: &str, cpus: &str, priority: u8, movable: bool) -> Task {
    let policy = if priority > 0 { Policy::Fifo } else { Policy::Other };
    Task {
        kernel: Some(KernelThread { movable }),
        uid: 0,
        ..task(tid, comm, cpus, policy, priority)
    }
}

pub fn irq(number: u32, action: &str, cpu: &str, count: u64) -> Irq {
    Irq {
        number,
        actions: vec![action.into()],
        chip: Some("PCI-MSIX-0000:00:14.0".into()),
        requested: Some(set(cpu)),
        effective: Some(set(cpu)),
        counts: vec![(set(cpu).first().unwrap(), count)],
        node: Some(0),
        immovable: None,
    }
}

fn cpu(id: u32) -> Cpu {
    let state = |name: &str, us| IdleState {
        name: name.into(),
        latency_us: Some(us),
        disabled: false,
        usage: Some(100),
    };
    Cpu {
        id: CpuId(id),
        online: true,
        core: Some(id),
        package: Some(0),
        siblings: CpuSet::from_iter([CpuId(id)]),
        llc: set("0-3"),
        cluster: None,
        llc_kib: Some(8192),
        node: Some(0),
        capacity: Some(1024),
        kind: None,
        governor: Some("performance".into()),
        max_khz: Some(3_000_000),
        current_khz: Some(2_990_000),
        resume_latency: Some("0".into()),
        idle_states: vec![state("POLL", 0), state("C1", 2), state("C6", 133)],
        steal_ticks: Some(0),
    }
}

const USB: &str = "/sys/devices/pci0000:00/0000:00:14.0";

fn settings() -> Vec<(&'static str, &'static str)> {
    vec![
        ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
        ("proc/sys/kernel/sched_rt_period_us", "1000000"),
        ("proc/sys/kernel/watchdog", "1"),
        ("proc/sys/kernel/nmi_watchdog", "0"),
        ("proc/sys/kernel/soft_watchdog", "1"),
        ("proc/sys/kernel/watchdog_cpumask", "0"),
        ("proc/sys/kernel/numa_balancing", "0"),
        ("proc/sys/kernel/timer_migration", "1"),
        ("proc/sys/vm/stat_interval", "120"),
        ("proc/sys/vm/swappiness", "10"),
        ("proc/sys/fs/inotify/max_user_watches", "524288"),
        ("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2"),
        ("sys/kernel/mm/ksm/run", "0"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
        ("sys/module/pcie_aspm/parameters/policy", "default [performance] powersave"),
        ("sys/module/snd_hda_intel/parameters/power_save", "0"),
        ("sys/devices/virtual/workqueue/writeback/cpumask", "1"),
        ("sys/devices/system/machinecheck/machinecheck0/check_interval", "300"),
        ("sys/devices/system/machinecheck/machinecheck0/ignore_ce", "1"),
        ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle"),
        ("sys/devices/system/cpu/cpu1/cpufreq/energy_performance_preference", "performance"),
        ("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "0"),
        ("sys/devices/system/cpu/vulnerabilities/spectre_v1", "Mitigation: barriers"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "1"),
        ("sys/kernel/debug/sched/fair_server/cpu1/runtime", "0"),
        ("sys/kernel/debug/sched/fair_server/cpu2/runtime", "0"),
        ("sys/kernel/debug/sched/fair_server/cpu3/runtime", "0"),
        ("sys/kernel/tracing/current_tracer", "nop"),
        ("etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet threadirqs\""),
        ("etc/systemd/system/quietcores.service", "[Service]"),
    ]
}

fn surroundings() -> Surroundings {
    let process = |pid, comm: &str| BusyProcess {
        pid,
        comm: comm.into(),
        permille: Some(80),
        major_faults: Some(12),
        locked_kib: Some(65_536),
        swapped_kib: Some(0),
        rttime: None,
    };
    Surroundings {
        caller: Some(Caller {
            uid: 1000,
            rtprio: Some(95),
            memlock: None,
            groups: vec![AudioGroup { name: "audio".into(), gid: 29, member: true }],
            ..Caller::default()
        }),
        mounts: vec![Mount {
            path: "/".into(),
            kind: "ext4".into(),
            options: vec!["rw".into(), "relatime".into()],
        }],
        kernel_log: Some(vec![]),
        dma_latency_us: Some(0),
        dma_latency_writable: Some(true),
        smi_count: Some(0),
        usb: vec![
            UsbController {
                path: USB.into(),
                driver: Some("xhci_hcd".into()),
                devices: vec![UsbDevice {
                    path: format!("{USB}/usb1/1-2"),
                    name: "Maker DAC".into(),
                    power_control: Some("on".into()),
                }],
            },
            UsbController {
                path: "/sys/devices/pci0000:00/0000:02:00.0".into(),
                ..UsbController::default()
            },
        ],
        processes: vec![process(400, "mpd"), process(500, "camilladsp")],
        systemd: Some(257),
        pipewire: None,
        timers: vec!["apt-daily.timer".into()],
        uptime_s: Some(3_600),
        files: Default::default(),
    }
}

pub fn machine() -> Machine {
    let kernel = RunningKernel {
        release: "6.12.9-rt5".into(),
        version: "#1 SMP PREEMPT_RT".into(),
        arch: Some("x86_64".into()),
        preemption: Preemption::Rt,
        boot_parameters: ["BOOT_IMAGE=/vmlinuz", "root=/dev/sda1", "quiet", "threadirqs"]
            .map(String::from)
            .to_vec(),
        config: Some(
            [
                ("HIGH_RES_TIMERS", "y"),
                ("HZ", "1000"),
                ("NO_HZ_FULL", "y"),
                ("RT_GROUP_SCHED", "n"),
            ]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
        ),
    };
    let mut mpd_output = task(401, "output", "2", Policy::Fifo, 75);
    mpd_output.pid = 400;
    Machine {
        schema: quiet_types::machine::SCHEMA.into(),
        kernel,
        processor: "a processor".into(),
        clock_sources: vec!["tsc".into(), "hpet".into()],
        online: set("0-3"),
        possible: set("0-3"),
        isolated: Some(set("")),
        nohz_full: Some(set("")),
        cpus: (0..4).map(cpu).collect(),
        smt_control: Some("notsupported".into()),
        nodes: vec![Node { id: 0, cpus: set("0-3") }],
        irqs: vec![
            irq(9, "acpi", "0", 20),
            irq(16, "ahci", "0", 9_000),
            irq(124, "xhci_hcd", "1", 90_000_000),
            irq(127, "eth0", "2", 50_000),
        ],
        vectors: vec![Vector {
            name: "CAL".into(),
            description: "Function call interrupts".into(),
            counts: (0..4).map(|cpu| (CpuId(cpu), 50)).collect(),
        }],
        default_irq_affinity: Some(set("0")),
        sound_cards: vec![Device {
            name: "card0".into(),
            description: "DAC: Maker DAC".into(),
            path: format!("{USB}/usb1/1-2/1-2:1.0/sound/card0"),
            controller: Some("0000:00:14.0 xhci_hcd".into()),
            irqs: vec![124],
            shared_with: vec![],
        }],
        network_cards: vec![Device {
            name: "eth0".into(),
            description: "igc".into(),
            path: "/sys/devices/pci0000:00/0000:03:00.0/net/eth0".into(),
            controller: Some("0000:03:00.0 igc".into()),
            irqs: vec![127],
            shared_with: vec![],
        }],
        tasks: vec![
            task(1, "systemd", "0", Policy::Other, 0),
            task(400, "mpd", "2", Policy::Fifo, 75),
            mpd_output,
            task(500, "camilladsp", "3", Policy::Fifo, 80),
            kernel_thread(14, "migration/1", "1", 99, false),
            kernel_thread(15, "ksoftirqd/1", "1", 81, false),
            kernel_thread(16, "rcu_preempt", "0", 1, true),
            kernel_thread(87, "irq/124-xhci_hc", "1", 85, false),
            kernel_thread(88, "irq/127-eth0", "2", 55, false),
            kernel_thread(89, "irq/16-ahci", "0", 50, false),
        ],
        cgroups: Cgroups {
            v2: "/sys/fs/cgroup".parse().ok(),
            v2_cpuset: true,
            v2_isolated: Some(set("1-3")),
            groups: vec![Group {
                path: "/quietcores".parse().unwrap(),
                cpus: Some(set("1-3")),
                effective: Some(set("1-3")),
                partition: Some("isolated".into()),
                load_balance: None,
                tasks: 2,
            }],
            ..Cgroups::default()
        },
        workqueues: Workqueues {
            effective: Some(set("0")),
            requested: Some(set("0-3")),
            isolated: Some(set("1-3")),
        },
        settings: settings().into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        surroundings: Some(surroundings()),
        ..Machine::default()
    }
}
