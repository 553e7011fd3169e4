//! What is spoilt, one thing at a time, and what must be found.

use super::good::{irq, kernel_thread, set, task};
use quiet_types::{
    Chain, CpuId, Finding, Machine,
    Severity::{self, Note, Problem, Warning},
    chain::{IrqSource, Target},
    heat::{Cooler, FirmwareFlags, Heat, Trip, Zone},
    machine::{CoreKind, Node, Policy, Preemption},
    surroundings::{BusyProcess, Mount, Surroundings, UsbDevice},
};

/// A machine that differs from the good one in one thing.
pub struct Case {
    pub id: &'static str,
    pub severity: Severity,
    /// Words of the title.
    pub says: &'static str,
    pub spoil: fn(&mut Machine, &mut Option<Chain>),
    /// Other findings that follow from it.
    pub brings: &'static [&'static str],
}

const fn case(
    id: &'static str,
    severity: Severity,
    says: &'static str,
    spoil: fn(&mut Machine, &mut Option<Chain>),
) -> Case {
    Case { id, severity, says, spoil, brings: &[] }
}

impl Case {
    const fn and(mut self, brings: &'static [&'static str]) -> Case {
        self.brings = brings;
        self
    }
}

fn around(m: &mut Machine) -> &mut Surroundings {
    m.surroundings.as_mut().unwrap()
}

fn put(m: &mut Machine, path: &str, value: &str) {
    m.settings.insert(path.into(), value.into());
}

fn boot(m: &mut Machine, words: &str) {
    m.kernel.boot_parameters.extend(words.split(' ').map(String::from));
}

fn config(m: &mut Machine, name: &str, value: &str) {
    m.kernel.config.as_mut().unwrap().insert(name.into(), value.into());
}

fn find<'m>(m: &'m mut Machine, comm: &str) -> &'m mut quiet_types::machine::Task {
    m.tasks.iter_mut().find(|t| t.comm == comm).unwrap()
}

fn isolate(m: &mut Machine) {
    m.cgroups.v2_isolated = Some(set(""));
    m.cgroups.groups.clear();
    m.isolated = Some(set("1-3"));
    asked(m, "isolcpus=managed_irq,domain,1-3 rcu_nocbs=1-3");
}

/// Boot parameters in force and in the loader's file, `threadirqs` among them.
fn asked(m: &mut Machine, words: &str) {
    m.kernel.boot_parameters.retain(|word| !word.starts_with("isolcpus"));
    boot(m, words);
    put(m, "etc/default/grub", &format!("GRUB_CMDLINE_LINUX=\"threadirqs rcu_nocbs=1-3 {words}\""));
}

fn mount(m: &mut Machine, path: &str, kind: &str, option: &str) {
    let options = vec!["rw".into(), option.into()];
    around(m).mounts.push(Mount { path: path.into(), kind: kind.into(), options });
}

pub const CASES: &[Case] = &[
    case("limits.rtprio", Problem, "may not run real-time", |m, _| {
        around(m).caller.as_mut().unwrap().rtprio = Some(0);
    }),
    case("limits.rtprio", Warning, "up to 80 only", |m, _| {
        around(m).caller.as_mut().unwrap().rtprio = Some(80);
    }),
    case("link.absent", Problem, "`player`", |m, _| {
        m.tasks.retain(|t| t.pid != 400);
    }),
    case("link.absent", Problem, "programs of its name are not those", |m, _| {
        m.tasks.iter_mut().filter(|t| t.pid == 400).for_each(|t| t.uid = 65534);
    })
    .and(&["shield.foreign_tasks", "sched.above_chain"]),
    case("link.absent", Problem, "no interrupt of this machine", |_, c| {
        c.as_mut().unwrap().links[0].target = Target::Irq(IrqSource::Net("wlan0".into()));
    })
    .and(&["irq.on_quiet"]),
    case("kernel.preemption", Problem, "does not preempt itself", |m, _| {
        m.kernel.preemption = Preemption::None;
    }),
    case("kernel.preemption", Problem, "only at chosen points", |m, _| {
        m.kernel.preemption = Preemption::Dynamic;
        boot(m, "preempt=voluntary");
    })
    .and(&["boot.not_booted"]),
    case("kernel.preemption", Warning, "lazily", |m, _| {
        m.kernel.preemption = Preemption::Lazy;
    }),
    case("kernel.timers", Problem, "switched off", |m, _| boot(m, "highres=off")),
    case("kernel.timers", Problem, "has no high-resolution", |m, _| {
        config(m, "HIGH_RES_TIMERS", "n");
    }),
    case("vm.guest", Note, "kvm", |m, _| m.hypervisor = Some("kvm".into())),
    case("vm.guest", Problem, "takes CPU time away", |m, _| {
        m.hypervisor = Some("kvm".into());
        m.cpus[1].steal_ticks = Some(30_000);
    }),
    case("cpu.single", Warning, "only one CPU", |m, c| {
        *c = None;
        m.online = set("0");
        m.cpus.truncate(1);
        m.cgroups.v2_isolated = None;
        m.cgroups.groups.clear();
    }),
    case("sched.rt_group", Warning, "refused", |m, _| config(m, "RT_GROUP_SCHED", "y"))
        .and(&["sched.throttle"]),
    case("sched.not_real_time", Warning, "camilladsp", |m, _| {
        find(m, "camilladsp").scheduling.policy = Policy::Other;
        find(m, "camilladsp").scheduling.priority = 0;
    })
    .and(&["sched.own_priority", "sched.priority_order"]),
    case("sched.priority_order", Problem, "`player` runs above `dsp`", |m, _| {
        find(m, "camilladsp").scheduling.priority = 60;
    })
    .and(&["sched.own_priority", "sched.above_chain"]),
    case("sched.priority_order", Warning, "camilladsp", |m, c| {
        *c = None;
        find(m, "irq/124-xhci_hc").scheduling.priority = 50;
    })
    .and(&["irq.thread_priority", "irq.on_quiet", "sched.softirq_threads"]),
    case("shield.partition_invalid", Problem, "not in force", |m, _| {
        m.cgroups.groups[0].partition =
            Some("isolated invalid (Cpu list in cpuset.cpus not exclusive)".into());
    }),
    case("boot.isolcpus_void", Problem, "CPU 0 of isolcpus=", |m, _| {
        isolate(m);
        asked(m, "isolcpus=0-3");
    }),
    case("boot.isolcpus_void", Problem, "names no CPU", |m, _| {
        put(m, "etc/default/grub", "GRUB_CMDLINE_LINUX=\"threadirqs isolcpus=\"");
        boot(m, "isolcpus=");
    }),
    case("boot.isolcpus_void", Warning, "does not have", |m, _| {
        isolate(m);
        asked(m, "isolcpus=1-7");
    }),
    case("boot.nohz_contradiction", Problem, "nohz=off", |m, _| {
        put(m, "etc/default/grub", "GRUB_CMDLINE_LINUX=\"threadirqs nohz_full=1-3\"");
        boot(m, "nohz_full=1-3 nohz=off");
    }),
    case("boot.nohz_contradiction", Problem, "without NO_HZ_FULL", |m, _| {
        put(m, "etc/default/grub", "GRUB_CMDLINE_LINUX=\"threadirqs nohz_full=1-3\"");
        boot(m, "nohz_full=1-3");
        config(m, "NO_HZ_FULL", "n");
    }),
    case("power.deep_idle", Warning, "C6, which takes 133 us", |m, _| {
        around(m).dma_latency_us = Some(2_000_000_000);
    }),
    case("power.governor", Warning, "governor powersave", |m, _| {
        m.cpus[1].governor = Some("powersave".into());
    }),
    case("smt.sibling_busy", Warning, "share a core with CPU 0", |m, _| {
        m.cpus[0].siblings = set("0-1");
        m.cpus[1].siblings = set("0-1");
    }),
    case("smt.sibling_busy", Note, "SMT", |m, c| {
        *c = None;
        m.cgroups.v2_isolated = None;
        m.cgroups.groups.clear();
        m.cpus[0].siblings = set("0-1");
        m.cpus[1].siblings = set("0-1");
    })
    .and(&["shield.none"]),
    case("shield.none", Warning, "no CPU is set apart", |m, c| {
        *c = None;
        m.cgroups.v2_isolated = None;
        m.cgroups.groups.clear();
    }),
    case("shield.none", Warning, "nothing sets CPUs 1-3 of the chain apart", |m, _| {
        m.tasks.push(task(900, "browser", "0-3", Policy::Other, 0));
        m.cgroups.v2_isolated = None;
        m.cgroups.groups.clear();
    }),
    case("shield.none", Warning, "nothing sets CPU 3 of the chain apart", |m, _| {
        m.tasks.push(task(900, "browser", "0,3", Policy::Other, 0));
        m.cgroups.v2_isolated = Some(set("1-2"));
        m.cgroups.groups.clear();
    })
    .and(&["shield.inconsistent", "shield.foreign_tasks"]),
    case("shield.foreign_tasks", Warning, "1 foreign thread may run", |m, _| {
        m.tasks.push(task(900, "browser", "0-3", Policy::Other, 0));
    }),
    case("irq.on_quiet", Warning, "1 foreign interrupt is", |m, _| {
        m.irqs.push(irq(30, "ahci", "3", 77));
    }),
    case("irq.on_quiet", Note, "last came to CPUs 1-3", |m, _| {
        m.irqs.push(irq(30, "ahci", "3", 77));
        m.irqs[4].requested = Some(set("0"));
    }),
    case("irq.on_quiet", Note, "1 more foreign interrupt may come", |m, _| {
        m.irqs[1].requested = Some(set("0-3"));
    }),
    case("irq.card_shared", Warning, "shares IRQ 124 with USB 1-3: Webcam", |m, _| {
        m.sound_cards[0].shared_with.push("USB 1-3: Webcam".into());
    }),
    case("irq.card_elsewhere", Warning, "away from the chain on CPUs 1-3", |m, _| {
        let card = &mut m.irqs[2];
        (card.requested, card.effective) = (Some(set("0")), Some(set("0")));
    }),
    case("irq.card_stuck", Problem, "cannot be moved off CPU 0", |m, _| {
        let card = &mut m.irqs[2];
        (card.requested, card.effective) = (Some(set("0")), Some(set("0")));
        card.immovable = Some("no smp_affinity".into());
    }),
    case("irq.card_stuck", Warning, "every device interrupt of this machine", |m, _| {
        for irq in &mut m.irqs {
            (irq.requested, irq.effective) = (Some(set("0-3")), Some(set("")));
            irq.counts = vec![(CpuId(0), 5_000)];
        }
    })
    .and(&[
        "irq.card_elsewhere",
        "irq.on_quiet",
        "irq.delivery",
        "irq.net_far",
        "irq.net_with_card",
    ]),
    case("irq.card_stuck", Note, "stays on CPU 1", |m, _| {
        m.irqs[2].immovable = Some("no smp_affinity".into());
    }),
    case("irq.balance", Warning, "irqbalance runs", |m, _| {
        m.tasks.push(task(300, "irqbalance", "0", Policy::Other, 0));
        put(m, "etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=1");
    }),
    case("irq.thread_priority", Warning, "FIFO priority 50", |m, c| {
        for link in &mut c.as_mut().unwrap().links {
            link.priority = None;
        }
        find(m, "irq/127-eth0").scheduling.priority = 50;
    }),
    case("irq.net_with_card", Warning, "same CPU 1", |m, _| {
        let net = &mut m.irqs[3];
        (net.requested, net.effective) = (Some(set("1")), Some(set("1")));
    })
    .and(&["irq.net_far"]),
    case("sched.above_chain", Warning, "1 foreign thread above it", |m, _| {
        m.tasks.push(task(901, "jackdaw", "0-3", Policy::Fifo, 90));
    })
    .and(&["shield.foreign_tasks"]),
    case("sched.priority_equal", Warning, "same priority", |m, _| {
        find(m, "irq/127-eth0").scheduling.priority = 75;
    })
    .and(&["sched.own_priority"]),
    case("sched.own_priority", Warning, "priority 80", |m, _| {
        find(m, "camilladsp").scheduling.priority = 79;
    }),
    case("sched.unpinned", Warning, "pinned to none", |m, _| {
        for name in ["mpd", "camilladsp"] {
            find(m, name).allowed = set("2-3");
        }
    }),
    case("sched.runtime_limit", Warning, "limit ends", |m, _| {
        around(m).processes[0].rttime = Some(200_000);
    }),
    case("shield.kernel_threads", Warning, "1 kernel thread may run", |m, _| {
        m.tasks.push(kernel_thread(40, "kcompactd0", "0-3", 0, true));
    }),
    case("shield.workqueues", Warning, "kernel work", |m, _| {
        m.workqueues.effective = Some(set("0-3"));
    }),
    case("shield.inconsistent", Warning, "not the same", |m, _| {
        m.nohz_full = Some(set("2-3"));
    })
    .and(&["boot.nohz_full_sleeping"]),
    case("shield.systemd_undoes", Warning, "systemd owns", |m, _| {
        m.cgroups.groups[0].path = "/audio.slice".parse().unwrap();
    }),
    case("topology.cache_spread", Warning, "2 last-level caches", |m, _| {
        for (at, cpu) in m.cpus.iter_mut().enumerate() {
            cpu.llc = if at < 2 { set("0-1") } else { set("2-3") };
        }
    })
    .and(&["topology.cache_shared"]),
    case("topology.weak_core", Warning, "weaker kind", |m, _| {
        m.cpus[3].kind = Some(CoreKind::Efficiency);
    }),
    case("topology.far_node", Warning, "another NUMA node", |m, _| {
        m.nodes[0].cpus = set("0");
        m.nodes.push(Node { id: 1, cpus: set("1-3") });
    }),
    case("noise.smi", Warning, "firmware has stopped", |m, _| around(m).smi_count = Some(500)),
    case("noise.smi", Note, "firmware has stopped", |m, _| around(m).smi_count = Some(5)),
    case("power.throttled", Problem, "slows the CPUs down now", |m, _| {
        let cooler = |kind: &str, state| Cooler {
            name: "cooling_device0".into(),
            kind: kind.into(),
            state: Some(state),
            most: Some(9),
        };
        m.heat = Some(Heat {
            coolers: vec![cooler("cpufreq-cpu2", 3), cooler("pwm-fan", 1)],
            ..Heat::default()
        });
    }),
    case("power.throttled", Warning, "has slowed the CPUs down since boot (throttled)", |m, _| {
        let firmware = Some(FirmwareFlags::from_word("sys/x/get_throttled", 0x4_0000));
        m.heat = Some(Heat { firmware, ..Heat::default() });
    }),
    case("power.throttled", Note, "82.0 C, and CPUs are slowed down at 85.0 C", |m, _| {
        let trip = |kind: &str, temperature| Trip { kind: kind.into(), temperature };
        m.heat = Some(Heat {
            zones: vec![Zone {
                name: "thermal_zone0".into(),
                kind: "cpu-thermal".into(),
                temperature: Some(82_000),
                trips: vec![
                    trip("active", 60_000),
                    trip("passive", 85_000),
                    trip("critical", 110_000),
                ],
            }],
            ..Heat::default()
        });
    }),
    case("power.supply", Problem, "too low now", |m, _| {
        let firmware = Some(FirmwareFlags::from_word("sys/x/get_throttled", 0x1_0001));
        m.heat = Some(Heat { firmware, ..Heat::default() });
    }),
    case("power.supply", Warning, "was too low", |m, _| {
        let firmware = Some(FirmwareFlags::from_word("sys/x/get_throttled", 0x1_0000));
        m.heat = Some(Heat { firmware, ..Heat::default() });
    }),
    case("power.capped", Note, "may run at 1800 of 3000 MHz", |m, _| {
        put(m, "sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", "1800000");
    }),
    case("power.firmware_clocks", Note, "force_turbo=1", |m, _| {
        m.compatible = vec!["raspberrypi,4-model-b".into(), "brcm,bcm2711".into()];
        put(
            m,
            "boot/firmware/config.txt",
            "[pi5]\narm_freq=3000\n[all]\nforce_turbo=1\nover_voltage=6",
        );
    }),
    case("power.firmware_clocks", Note, "may run at 1800 MHz", |m, _| {
        m.compatible = vec!["raspberrypi,4-model-b".into(), "brcm,bcm2711".into()];
        m.cpus.iter_mut().for_each(|cpu| cpu.max_khz = Some(1_500_000));
        m.cpus.iter_mut().for_each(|cpu| cpu.current_khz = Some(1_500_000));
        // Of another board.
        put(m, "boot/firmware/config.txt", "[pi5]\narm_boost=1\n[all]");
    }),
    case(
        "kernel.clock_trapped",
        Note,
        "programs on CPUs 2-3 read the clock by way of the kernel",
        |m, _| {
            let log = &mut around(m).kernel_log;
            let line = |cpu: u32| format!("CPU{cpu}: Trapping CNTVCT access");
            log.get_or_insert_default().extend([line(2), line(3)]);
        },
    ),
    case("power.throttled", Warning, "heat", |m, _| {
        put(m, "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "7");
    }),
    case("limits.memlock", Warning, "64 KiB", |m, _| {
        around(m).caller.as_mut().unwrap().memlock = Some(65_536);
    }),
    case("memory.swapped", Warning, "in swap", |m, _| {
        around(m).processes[1].swapped_kib = Some(900);
    }),
    case("noise.tracers", Warning, "perf", |m, _| {
        m.tasks.push(task(902, "perf", "0", Policy::Other, 0));
    }),
    case("noise.tracers", Warning, "function_graph", |m, _| {
        put(m, "sys/kernel/tracing/current_tracer", "function_graph");
    }),
    case("noise.ksm", Warning, "equal pages", |m, _| put(m, "sys/kernel/mm/ksm/run", "1")),
    case("noise.numa_balancing", Warning, "unmaps", |m, _| {
        put(m, "proc/sys/kernel/numa_balancing", "1");
        m.nodes.push(Node { id: 1, cpus: set("") });
    }),
    case("kernel.clock", Warning, "hpet", |m, _| m.clock_sources.reverse()),
    case("kernel.clock", Warning, "unstable", |m, _| {
        let line = "clocksource: Marking TSC unstable due to clocksource watchdog";
        around(m).kernel_log = Some(vec![line.into()]);
    }),
    case("kernel.debug", Warning, "KASAN", |m, _| config(m, "KASAN", "y")),
    case("irq.busy", Warning, "2500 times a second", |m, _| {
        m.irqs.push(irq(40, "brcmfmac", "0", 9_000_000));
    }),
    case("power.preference", Warning, "save energy", |m, _| {
        m.cpus[1].governor = Some("powersave".into());
        let base = "sys/devices/system/cpu/cpu1/cpufreq";
        put(m, &format!("{base}/energy_performance_preference"), "balance_power");
        put(m, &format!("{base}/scaling_min_freq"), "3000000");
        put(m, &format!("{base}/scaling_max_freq"), "3000000");
    }),
    case("boot.idle_poll", Warning, "idle=poll", |m, _| boot(m, "idle=poll")),
    case("boot.nohz_full_sleeping", Warning, "CPU 2, on which 2 audio threads", |m, _| {
        m.nohz_full = Some(set("1-3"));
    }),
    case("boot.managed_irq", Warning, "lacks managed_irq", |m, _| {
        isolate(m);
        asked(m, "isolcpus=1-3");
        m.irqs.push(irq(50, "nvme0q1", "0", 10));
    }),
    case("boot.isolcpus_and_partition", Warning, "both claim", |m, _| {
        let groups = m.cgroups.groups.clone();
        isolate(m);
        m.cgroups.v2_isolated = Some(set("1-3"));
        m.cgroups.groups = groups;
    }),
    case("boot.kthread_cpus_void", Warning, "no effect", |m, _| boot(m, "kthread_cpus=0")),
    case("boot.unknown_parameter", Warning, "`isolcpu` is no boot parameter", |m, _| {
        boot(m, "isolcpu=1-3");
    }),
    case("boot.unknown_parameter", Warning, "does not know", |m, _| {
        let line = "Unknown kernel command line parameters \"rcu_nocbs=1-3 BOOT_IMAGE=/v\", will be \
                    passed to user space.";
        around(m).kernel_log = Some(vec![line.into()]);
    }),
    case("boot.duplicate_parameter", Warning, "skew_tick", |m, _| {
        boot(m, "skew_tick=1 skew_tick=0");
    }),
    case("boot.too_long", Warning, "fill all the room", |m, _| {
        m.kernel.boot_parameters.push("x".repeat(2040));
    }),
    case("irq.default_mask", Warning, "device that comes now", |m, _| {
        m.default_irq_affinity = Some(set("0-3"));
    }),
    case("noise.packets", Warning, "received packets", |m, _| {
        put(m, "sys/class/net/eth0/queues/rx-0/rps_cpus", "f");
    }),
    case("noise.packets", Note, "transmit queue", |m, _| {
        put(m, "sys/class/net/eth0/queues/tx-0/xps_cpus", "2");
    }),
    case("kernel.threadirqs", Warning, "no threads", |m, _| {
        m.kernel.preemption = Preemption::Full;
        m.kernel.boot_parameters.pop();
        put(m, "etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet\"");
    }),
    case("kernel.tick", Warning, "250 times a second", |m, _| {
        config(m, "HIGH_RES_TIMERS", "n");
        config(m, "HZ", "250");
    })
    .and(&["kernel.timers"]),
    case("kernel.tick", Note, "goes on", |m, _| config(m, "HZ_PERIODIC", "y")),
    case("sched.softirq_threads", Note, "below the player", |m, _| {
        find(m, "ksoftirqd/1").scheduling.priority = 0;
        find(m, "ksoftirqd/1").scheduling.policy = Policy::Other;
    }),
    case("sched.fair_server", Note, "50 ms in every 1000 ms", |m, _| {
        put(m, "sys/kernel/debug/sched/fair_server/cpu1/runtime", "50000000");
    }),
    case("sched.fair_server", Note, "the server of sched_ext may take 40 ms", |m, _| {
        put(m, "sys/kernel/debug/sched/ext_server/cpu2/runtime", "40000000");
    }),
    case("sched.extended", Warning, "by rusty_1.0 of sched_ext", |m, _| {
        put(m, "sys/kernel/sched_ext/state", "enabled");
        put(m, "sys/kernel/sched_ext/root/ops", "rusty_1.0");
    }),
    case("sched.throttle", Note, "50 ms of every 1000 ms", |m, _| {
        m.kernel.release = "5.10.0-rt".into();
    }),
    case("sched.rtkit", Note, "rtkit", |m, c| {
        m.tasks.push(task(301, "rtkit-daemon", "0", Policy::Other, 0));
        for link in &mut c.as_mut().unwrap().links {
            link.priority = None;
        }
        let dsp = find(m, "camilladsp");
        (dsp.scheduling.policy, dsp.scheduling.priority) = (Policy::Rr, 20);
    })
    .and(&["sched.priority_order", "sched.above_chain"]),
    case("sched.crowded", Note, "while CPU 3 is unused", |m, c| {
        c.as_mut().unwrap().links[2].cpus = Some(set("2"));
        find(m, "camilladsp").allowed = set("2");
    }),
    case("limits.rttime", Note, "200000 us", |m, _| {
        around(m).caller.as_mut().unwrap().rttime = Some(200_000);
    }),
    case("irq.net_far", Note, "that it feeds", |m, _| {
        let net = &mut m.irqs[3];
        (net.requested, net.effective) = (Some(set("0")), Some(set("0")));
    }),
    case("irq.delivery", Note, "does not tell where", |m, _| {
        m.irqs[2].effective = Some(set(""));
    }),
    case("topology.cache_shared", Note, "with CPU 0", |m, _| {
        m.cpus[3].llc = set("3");
        for cpu in &mut m.cpus[..3] {
            cpu.llc = set("0-2");
        }
    })
    .and(&["topology.cache_spread"]),
    case("power.resume_zero", Note, "resume latency of 0", |m, _| {
        m.cpus[1].resume_latency = Some("n/a".into());
    }),
    case("power.slow_clock", Note, "1000 of 3000 MHz", |m, _| {
        m.cpus[1].current_khz = Some(1_000_000);
    }),
    case("power.daemons", Note, "power-profiles", |m, _| {
        m.tasks.push(task(302, "power-profiles-", "0", Policy::Other, 0));
    }),
    case("power.daemons", Note, "intel_lpmd", |m, _| {
        m.tasks.push(task(303, "intel_lpmd", "0", Policy::Other, 0));
    }),
    case("power.latency_denied", Note, "may not write", |m, _| {
        around(m).dma_latency_writable = Some(false);
    }),
    case("power.usb_suspend", Note, "may suspend Maker DAC", |m, _| {
        around(m).usb[0].devices[0].power_control = Some("auto".into());
        around(m).usb[0].devices.push(UsbDevice::default());
    }),
    case("power.links", Note, "put to sleep", |m, _| {
        put(m, "sys/module/pcie_aspm/parameters/policy", "default [powersave]");
    }),
    case("power.hda_save", Note, "10 s of silence", |m, _| {
        put(m, "sys/module/snd_hda_intel/parameters/power_save", "10");
    }),
    case("power.cstate_boot", Note, "limited", |m, _| boot(m, "processor.max_cstate=1")),
    case("noise.ipis", Note, "other CPUs", |m, _| {
        m.vectors[0].counts[1] = (CpuId(1), 900_000);
    }),
    case("noise.tick", Note, "250 timer interrupts", |m, c| {
        for link in &mut c.as_mut().unwrap().links {
            link.cpus = None;
        }
        c.as_mut().unwrap().cpus = quiet_types::chain::Choice::Auto;
        m.cgroups.v2_isolated = None;
        m.cgroups.groups.clear();
        m.nohz_full = Some(set("1"));
        m.vectors[0].name = "LOC".into();
        m.vectors[0].counts[1] = (CpuId(1), 900_000);
    })
    .and(&["shield.none"]),
    case("noise.watchdog", Note, "soft lockup watchdog watches", |m, _| {
        put(m, "proc/sys/kernel/watchdog_cpumask", "0-3");
    }),
    case("noise.statistics", Note, "every 1 s", |m, _| put(m, "proc/sys/vm/stat_interval", "1")),
    case("noise.machine_checks", Note, "300 s", |m, _| {
        put(m, "sys/devices/system/machinecheck/machinecheck0/ignore_ce", "0");
    }),
    case("noise.firmware_timer", Note, "fwupd-refresh.timer", |m, _| {
        around(m).timers.push("fwupd-refresh.timer".into());
    }),
    case("noise.thp", Note, "huge pages", |m, _| {
        put(m, "sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
    }),
    case("noise.timers", Note, "may not leave", |m, _| {
        put(m, "proc/sys/kernel/timer_migration", "0");
    }),
    case("noise.hogs", Note, "1 program", |m, _| {
        let permille = Some(700);
        let hog =
            BusyProcess { pid: 903, comm: "miner".into(), permille, ..BusyProcess::default() };
        around(m).processes.push(hog);
    }),
    case("noise.background", Note, "packagekitd", |m, _| {
        m.tasks.push(task(904, "packagekitd", "0", Policy::Other, 0));
    }),
    case("cpu.taken_offline", Note, "1 times", |m, _| {
        around(m).kernel_log = Some(vec!["smpboot: CPU 3 is now offline".into()]);
    }),
    case("boot.rcu_callbacks", Note, "RCU callbacks", |m, _| {
        isolate(m);
        m.kernel.boot_parameters.retain(|word| !word.starts_with("rcu_nocbs"));
        put(m, "etc/default/grub", "isolcpus=managed_irq,domain,1-3 threadirqs");
    }),
    case("boot.rcu_poll", Note, "rcu_nocb_poll", |m, _| boot(m, "rcu_nocb_poll")),
    case("boot.not_booted", Note, "not in force", |m, _| {
        put(m, "etc/default/grub", "GRUB_CMDLINE_LINUX=\"threadirqs isolcpus=1-3\"");
    }),
    case("boot.not_booted", Note, "stands in no loader file", |m, _| {
        put(m, "etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet\"");
    }),
    case("shield.not_persistent", Note, "until the next reboot", |m, _| {
        m.settings.remove("etc/systemd/system/quietcores.service");
    }),
    case("shield.mechanism", Note, "v1", |m, _| {
        m.cgroups.v2_cpuset = false;
        m.cgroups.v1_cpuset = "/sys/fs/cgroup/cpuset".parse().ok();
    }),
    case("shield.mechanism", Note, "container", |m, _| {
        m.cgroups.v2 = "/sys/fs/cgroup".parse().ok();
        m.cgroups.v2_cpuset = true;
        m.cgroups.groups = vec![quiet_types::machine::Group {
            partition: Some("member".into()),
            ..Default::default()
        }];
    }),
    case("shield.mechanism", Note, "no cgroup hierarchy", |m, _| m.cgroups = Default::default())
        .and(&["shield.none"]),
    case("memory.unlocked", Note, "no memory locked", |m, _| {
        around(m).processes[0].locked_kib = Some(0);
    }),
    case("memory.swappiness", Note, "60", |m, _| put(m, "proc/sys/vm/swappiness", "60")),
    case("memory.network_files", Note, "/mnt/music", |m, _| {
        mount(m, "/mnt/music", "nfs4", "relatime");
    }),
    case("memory.slow_files", Note, "/mnt/stick", |m, _| {
        mount(m, "/mnt/stick", "fuseblk", "relatime");
    }),
    case("memory.access_times", Note, "/home", |m, _| mount(m, "/home", "ext4", "strictatime")),
    case("memory.watches", Note, "8192", |m, _| {
        put(m, "proc/sys/fs/inotify/max_user_watches", "8192");
    }),
    case("limits.group", Note, "groups audio", |m, _| {
        let caller = around(m).caller.as_mut().unwrap();
        caller.groups[0].member = false;
        caller.rtprio = Some(0);
    })
    .and(&["limits.rtprio"]),
    case("limits.group_twice", Warning, "more than once", |m, _| {
        let caller = around(m).caller.as_mut().unwrap();
        let again = caller.groups[0].clone();
        caller.groups.push(again);
    }),
    case("limits.root", Note, "as root", |m, _| around(m).caller.as_mut().unwrap().uid = 0),
    case("kernel.mitigations", Note, "security", |m, _| {
        boot(m, "mitigations=off");
        put(m, "sys/devices/system/cpu/vulnerabilities/meltdown", "Vulnerable");
    }),
    case("kernel.config_unknown", Note, "cannot be read", |m, _| m.kernel.config = None),
    case("machine.no_card", Note, "no sound card", |m, c| {
        m.sound_cards.clear();
        c.as_mut().unwrap().links.pop();
        m.irqs.remove(2);
        m.tasks.retain(|t| t.comm != "irq/124-xhci_hc");
    }),
    case("machine.unread", Note, "1 file", |m, _| {
        m.unread.push(Finding::new(Warning, "inspect.unread", "cannot read /proc/x"));
    }),
];
