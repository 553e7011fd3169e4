//! The constructed machines, against what is known of them.
#![allow(clippy::unwrap_used)]

use quiet_linux::{Options, Root, snapshot};
use quiet_types::{
    CpuId, Machine,
    machine::{CoreKind, Device, Irq, Policy, Preemption, Task},
};

fn machine(name: &str) -> Machine {
    let dir = quiet_testing::tree::fixture("machines").join(name);
    let machine = snapshot(&Root::at(dir).unwrap(), Options::default()).unwrap();
    assert_eq!(machine.unread, [], "{name}");
    machine
}

fn cores(machine: &Machine) -> Vec<String> {
    machine.cores().iter().map(|core| core.to_string()).collect()
}

/// The last-level caches by their CPUs.
fn caches(machine: &Machine) -> Vec<String> {
    let mut caches: Vec<String> = machine.cpus.iter().map(|cpu| cpu.llc.to_string()).collect();
    caches.dedup();
    caches
}

fn irq(machine: &Machine, number: u32) -> &Irq {
    machine.irqs.iter().find(|irq| irq.number == number).unwrap()
}

fn task<'m>(machine: &'m Machine, comm: &str) -> &'m Task {
    machine.tasks.iter().find(|task| task.comm == comm).unwrap_or_else(|| panic!("no {comm}"))
}

fn card<'m>(cards: &'m [Device], name: &str) -> &'m Device {
    cards.iter().find(|card| card.name == name).unwrap()
}

#[test]
fn ryzen1700_has_two_caches_and_its_card_is_alone_on_its_controller() {
    let machine = machine("ryzen1700");
    assert_eq!(cores(&machine), ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"]);
    assert_eq!(caches(&machine), ["0-7", "8-15"]);
    assert_eq!(machine.cpus[9].llc_kib, Some(8192));
    assert_eq!(machine.kernel.preemption, Preemption::Voluntary);
    assert_eq!(machine.board.as_deref(), Some("MSI MS-7A34"));
    assert_eq!(machine.boot_parameter("isolcpus"), Some("6,7"));
    assert_eq!(machine.isolated.as_ref().unwrap().to_string(), "6-7");
    assert_eq!(machine.nohz_full.as_ref().unwrap().to_string(), "6-7");
    assert_eq!(machine.workqueues.effective.as_ref().unwrap().to_string(), "0-5,8-15");
    let usb = card(&machine.sound_cards, "card0");
    assert_eq!(usb.description, "USB: Scarlett 2i2 USB");
    assert_eq!(usb.controller.as_deref(), Some("0000:2a:00.3 xhci_hcd"));
    assert_eq!(usb.irqs, [41]);
    assert_eq!(usb.shared_with, [""; 0]);
    assert_eq!(card(&machine.sound_cards, "card1").irqs, [43]);
    let net = card(&machine.network_cards, "enp34s0");
    assert_eq!((net.description.as_str(), &net.irqs[..]), ("r8169", &[36][..]));
    assert_eq!(net.controller.as_deref(), Some("0000:22:00.0 r8169"));
    let xhci = irq(&machine, 41);
    assert_eq!((xhci.total(), &xhci.effective), (401_992, &None));
    assert_eq!(xhci.counts[2], (CpuId(2), 401_992));
    assert_eq!(machine.cpus[3].governor.as_deref(), Some("ondemand"));
    assert_eq!(machine.cpus[3].idle_states[1].latency_us, Some(400));
    assert_eq!(machine.cgroups.v1_cpuset.as_deref(), Some("/sys/fs/cgroup/cpuset"));
    assert!(machine.cgroups.v1_prefix && machine.cgroups.v2.is_none());
    let jack: Vec<&Task> = machine.tasks.iter().filter(|task| task.comm == "jackd").collect();
    assert_eq!((jack[1].pid, jack[1].tid, jack[1].uid), (2100, 2103, 1000));
    assert_eq!(jack[1].scheduling.policy, Policy::Fifo);
    assert!(task(&machine, "rcu_sched").movable() && !task(&machine, "migration/6").movable());
}

#[test]
fn corei7_64_has_cpus_0_and_2_only_and_ten_threads_stay_on_the_isolated_one() {
    let machine = machine("corei7-64");
    assert_eq!(machine.online.to_string(), "0,2");
    assert_eq!(cores(&machine), ["0", "2"]);
    assert_eq!(machine.kernel.preemption, Preemption::Rt);
    assert_eq!(machine.boot_parameter("irqaffinity"), Some("0"));
    assert_eq!(machine.boot_parameter("nohz"), Some("off"));
    assert_eq!(machine.boot_parameter("noht"), Some(""));
    assert_eq!(machine.default_irq_affinity.as_ref().unwrap().to_string(), "0");
    assert_eq!(irq(&machine, 4).actions, ["idma64.8", "serial"]);
    assert_eq!(irq(&machine, 365).counts, [(CpuId(0), 51_001), (CpuId(2), 0)]);
    assert_eq!(card(&machine.network_cards, "enp2s0").irqs, [367]);
    assert_eq!(machine.tasks.len(), 137);
    let on = |cpu| machine.tasks.iter().filter(move |task| task.cpu == CpuId(cpu));
    assert_eq!(on(2).count(), 10);
    assert!(on(2).all(|task| !task.movable() && task.allowed.to_string() == "2"));
    assert_eq!(on(0).filter(|task| task.kernel.is_none()).count(), 31);
    let posix = task(&machine, "posixcputmr/2");
    assert_eq!((posix.scheduling.policy, posix.scheduling.priority), (Policy::Fifo, 99));
    let xhci = task(&machine, "irq/365-xhci_hc");
    assert_eq!((xhci.tid, xhci.scheduling.priority, xhci.movable()), (118, 50, true));
    assert_eq!(task(&machine, "thermald").command, "/usr/sbin/thermald --no-daemon --dbus-enable");
    assert_eq!(machine.cgroups, Default::default());
}

#[test]
fn pi2_takes_every_device_interrupt_on_cpu_0_and_its_card_shares_with_the_network() {
    let machine = machine("pi2");
    assert_eq!(cores(&machine), ["0", "1", "2", "3"]);
    assert_eq!(machine.board.as_deref(), Some("Raspberry Pi 2 Model B Rev 1.1"));
    let devices = machine.irqs.iter().filter(|irq| irq.actions != ["arch_timer"]);
    for irq in devices {
        assert!(irq.counts.iter().all(|(cpu, count)| *cpu == CpuId(0) || *count == 0), "{irq:?}");
        assert_eq!(irq.effective, None);
    }
    assert_eq!(irq(&machine, 24).actions, ["VCHIQ doorbell"]);
    let usb = card(&machine.sound_cards, "card1");
    assert_eq!(usb.controller.as_deref(), Some("3f980000.usb dwc_otg"));
    assert_eq!(usb.irqs, [62]);
    assert_eq!(usb.shared_with, ["USB 1-1.1: SMSC95xx Ethernet"]);
    let net = card(&machine.network_cards, "eth0");
    assert_eq!(
        (net.irqs[0], net.shared_with[0].as_str()),
        (62, "USB 1-1.4: BurrBrown USB Audio CODEC")
    );
    assert_eq!(card(&machine.sound_cards, "card0").controller, None);
    assert_eq!(machine.vectors[0].description, "usb_fiq");
    assert_eq!(machine.cpus[0].llc_kib, None);
}

#[test]
fn hybrid_knows_its_kinds_its_managed_interrupts_and_its_partitions() {
    let machine = machine("hybrid");
    assert_eq!(cores(&machine).len(), 12);
    let kinds: Vec<CoreKind> = machine.cpus.iter().filter_map(|cpu| cpu.kind).collect();
    assert_eq!(kinds[..8], [CoreKind::Performance; 8]);
    assert_eq!(kinds[8..], [CoreKind::Efficiency; 8]);
    assert_eq!(caches(&machine), ["0-15"]);
    assert_eq!(machine.kernel.preemption, Preemption::Full);
    assert_eq!(machine.boot_parameter("dyndbg"), Some("file drivers/usb/* +p"));
    assert_eq!(machine.boot_parameter("rd.luks.key"), Some("***"));
    assert_eq!(machine.nohz_full, None);
    let fixed: Vec<u32> =
        machine.irqs.iter().filter(|irq| irq.immovable.is_some()).map(|irq| irq.number).collect();
    assert_eq!(fixed, [121, 122, 123, 124, 125, 126, 127, 128]);
    assert_eq!(irq(&machine, 122).requested.as_ref().unwrap().to_string(), "2-3");
    assert_eq!(irq(&machine, 145).chip.as_deref(), Some("IR-PCI-MSIX-0000:00:14.3"));
    let usb = card(&machine.sound_cards, "card1");
    assert_eq!(usb.irqs, [130, 131]);
    assert_eq!(
        usb.shared_with,
        ["USB 1-10: AX211 Bluetooth", "USB 1-6: Chicony Integrated Camera"]
    );
    assert_eq!(card(&machine.sound_cards, "card0").shared_with, [""; 0]);
    let cgroups = &machine.cgroups;
    assert!(cgroups.v2_cpuset && cgroups.v1_cpuset.is_none());
    assert_eq!(cgroups.v2_isolated.as_ref().unwrap().to_string(), "2-3");
    let paths: Vec<&str> = cgroups.groups.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/",
            "/audio.slice",
            "/audio2.slice",
            "/system.slice",
            "/user.slice",
            "/user.slice/desktop.scope"
        ]
    );
    assert_eq!(cgroups.groups[1].partition.as_deref(), Some("isolated"));
    let invalid = cgroups.groups[2].partition.as_deref();
    assert_eq!(invalid, Some("isolated invalid (Cpu list in cpuset.cpus not exclusive)"));
    // cron's service has no cpuset of its own: its slice governs it.
    assert_eq!(
        cgroups.groups.iter().map(|group| group.tasks).collect::<Vec<_>>(),
        [35, 1, 0, 1, 0, 1]
    );
    assert_eq!(machine.cpus[4].resume_latency.as_deref(), Some("n/a"));
    assert_eq!(machine.workqueues.requested.as_ref().unwrap().to_string(), "0-15");
    assert_eq!(machine.workqueues.isolated.as_ref().unwrap().to_string(), "2-3");
    assert_eq!(machine.settings["sys/kernel/debug/sched/fair_server/cpu2/runtime"], "50000000");
    assert_eq!(task(&machine, "a) S (b").command, "a) S (b --token ***");
    assert!(task(&machine, "irq/130-xhci_hcd").movable());
    let unbound = task(&machine, "kworker/u64:3-events_unbound");
    assert!(!unbound.movable() && unbound.allowed.len() == 16, "a full mask is not movable");
}

#[test]
fn vm2_is_a_virtual_machine_with_v1_cpusets_and_one_managed_queue() {
    let machine = machine("vm2");
    assert_eq!(cores(&machine), ["0", "1"]);
    assert_eq!(caches(&machine), ["0-1"]);
    assert_eq!(machine.hypervisor.as_deref(), Some("kvm"));
    assert_eq!(machine.clock_sources, ["tsc", "kvm-clock"]);
    assert_eq!(machine.cpus[1].steal_ticks, Some(7));
    assert_eq!(machine.kernel.preemption, Preemption::Dynamic);
    assert_eq!(machine.sound_cards, []);
    let net = card(&machine.network_cards, "eth0");
    assert_eq!(net.controller.as_deref(), Some("0000:00:03.0 virtio-pci"));
    assert_eq!((&net.irqs[..], &net.shared_with[..]), (&[37, 38, 39][..], &[][..]));
    assert!(irq(&machine, 36).immovable.is_some() && irq(&machine, 38).immovable.is_none());
    let cgroups = &machine.cgroups;
    assert_eq!(cgroups.v1_cpuset.as_deref(), Some("/sys/fs/cgroup/cpuset"));
    assert_eq!(cgroups.v2.as_deref(), Some("/sys/fs/cgroup/unified"));
    assert!(!cgroups.v2_cpuset && cgroups.v1_prefix);
    assert_eq!(&*cgroups.groups[1].path, "/audio");
    assert_eq!((cgroups.groups[1].load_balance, cgroups.groups[1].tasks), (Some(false), 1));
    assert_eq!(task(&machine, "player").cgroup.as_deref(), Some("/audio"));
    for (name, movable) in [
        ("kthreadd", true),
        ("pool_workqueue_release", true),
        ("kworker/R-rcu_gp", false),
        ("kworker/u8:1-events_unbound", false),
        ("ksoftirqd/1", false),
        ("init", true),
    ] {
        assert_eq!(task(&machine, name).movable(), movable, "{name}");
    }
}
