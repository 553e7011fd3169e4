//! Single facts, from trees that hold little else.
#![allow(clippy::unwrap_used)]

use quiet_linux::{Options, Root, snapshot};
use quiet_testing::tree;
use quiet_types::{
    CpuId, Machine,
    machine::{CoreKind, Preemption},
};

/// The machine with these files, and two CPUs where they say nothing else.
fn machine(files: &[(&str, &str)]) -> Machine {
    let two = [("proc/version", ""), ("sys/devices/system/cpu/online", "0-1\n")];
    let dir = tree::of(&[&two, files].concat());
    let machine = snapshot(&Root::at(dir.path()).unwrap(), Options::default()).unwrap();
    assert_eq!(machine.unread, []);
    machine
}

#[test]
fn a_bare_machine_has_its_online_cpus_and_little_more() {
    let machine = machine(&[]);
    assert_eq!(machine.cpus.len(), 2);
    assert_eq!(machine.possible.to_string(), "0-1");
    assert_eq!((machine.isolated, machine.nohz_full), (None, None));
    assert_eq!(machine.kernel.preemption, Preemption::Unknown);
    assert_eq!(machine.cpus[1].siblings.to_string(), "1");
}

#[test]
fn a_cpu_that_is_offline_is_present_and_no_core() {
    let cpu3 = "sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us";
    let machine = machine(&[(cpu3, "0"), ("sys/devices/system/cpu/possible", "0-7")]);
    assert_eq!(machine.cpus.len(), 3);
    let offline = machine.cpu(CpuId(3)).unwrap();
    assert!(!offline.online && offline.resume_latency.as_deref() == Some("0"));
    assert_eq!(machine.cores().len(), 2);
}

#[test]
fn kinds_of_cores_are_told_by_capacity_where_it_differs_much() {
    let kinds = |strong: &str, weak: &str| -> Vec<Option<CoreKind>> {
        let file = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
        let (first, second) = (file(0), file(1));
        let machine = machine(&[(&first, strong), (&second, weak)]);
        machine.cpus.iter().map(|cpu| cpu.kind).collect()
    };
    let both = [Some(CoreKind::Performance), Some(CoreKind::Efficiency)];
    assert_eq!(kinds("1024", "485"), both);
    assert_eq!(kinds("1024", "768"), both);
    assert_eq!(kinds("1024", "1009"), [None, None]);
    assert_eq!(kinds("0", "0"), [None, None]);
}

#[test]
fn preemption_is_told_by_what_is_in_force_before_what_was_built() {
    use Preemption::{Dynamic, Full, Lazy, None, Rt, Unknown, Voluntary};
    let version = "proc/sys/kernel/version";
    let switch = "sys/kernel/debug/sched/preempt";
    let release = ("proc/sys/kernel/osrelease", "1");
    let config = "boot/config-1";
    for (files, wanted) in [
        (vec![(version, "#1 SMP PREEMPT_RT Mon")], Rt),
        (vec![(version, "#1 SMP PREEMPT RT Mon")], Rt),
        (vec![("sys/kernel/realtime", "1\n")], Rt),
        (vec![("sys/kernel/realtime", "0\n"), (version, "#1 SMP PREEMPT Mon")], Full),
        (vec![(version, "#1 SMP PREEMPT_DYNAMIC Mon")], Dynamic),
        (vec![(version, "#1 SMP PREEMPT_DYNAMIC"), (switch, "none (voluntary) full\n")], Voluntary),
        (vec![(version, "#1 SMP PREEMPT_DYNAMIC"), (switch, "(none) voluntary full\n")], None),
        (vec![(version, "#1 SMP PREEMPT_DYNAMIC"), (switch, "none full (lazy)\n")], Lazy),
        (vec![(version, "#1 SMP"), release, (config, "CONFIG_PREEMPT_VOLUNTARY=y\n")], Voluntary),
        (vec![(version, "#1 SMP"), release, (config, "CONFIG_PREEMPT_NONE=y\n")], None),
        (vec![(version, "#1 SMP Mon")], Unknown),
    ] {
        assert_eq!(machine(&files).kernel.preemption, wanted, "{files:?}");
    }
}

#[test]
fn the_hypervisor_is_told_by_its_most_telling_sign() {
    let vendor = "sys/class/dmi/id/sys_vendor";
    let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let flag = ("proc/cpuinfo", "vendor_id : x\nflags : fpu hypervisor\n");
    for (files, wanted) in [
        (vec![], None),
        (vec![flag], Some("unknown")),
        (vec![flag, (clocks, "tsc kvm-clock\n")], Some("kvm")),
        (vec![flag, ("sys/hypervisor/type", "xen\n"), (clocks, "kvm-clock")], Some("xen")),
        (vec![flag, (vendor, "VMware, Inc.\n")], Some("vmware")),
        (vec![(vendor, "QEMU\n")], Some("unknown")),
        (vec![(clocks, "arch_sys_counter"), (vendor, "Dell Inc.\n")], None),
    ] {
        assert_eq!(machine(&files).hypervisor.as_deref(), wanted, "{files:?}");
    }
}

#[test]
fn interrupts_that_cannot_move_say_why() {
    let machine = machine(&[
        (
            "proc/interrupts",
            "       CPU0 CPU1\n 11: 5 5 GICv3 27 Level arch_timer\n 12: 5 0 GICv3 64 Level eth0\n \
             13: 1 0 PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n 14: 1 0 IO-APIC 1-edge cascade\n",
        ),
        ("proc/irq/11/smp_affinity_list", "0-1\n"),
        ("proc/irq/12/smp_affinity_list", "0-1\n"),
        ("proc/irq/12/effective_affinity_list", "\n"),
        ("proc/irq/13/smp_affinity_list", "0\n"),
        ("sys/kernel/debug/irq/irqs/13", "handler: handle_edge_irq\n IRQD_AFFINITY_MANAGED\n"),
    ]);
    let why: Vec<Option<&str>> = machine.irqs.iter().map(|irq| irq.immovable.as_deref()).collect();
    assert!(why[0].unwrap().starts_with("per CPU"));
    assert_eq!(why[1], None);
    assert!(why[2].unwrap().starts_with("managed"));
    assert_eq!(why[3], Some("/proc/irq/14 has no affinity file"));
    assert!(machine.irqs[1].effective.as_ref().unwrap().is_empty());
}

/// A task of the second thread's PID in this cgroup.
fn stat(tid: u32) -> String {
    format!(
        "{tid} (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0"
    )
}

#[test]
fn cpusets_of_a_container_and_without_prefix_are_found() {
    let status = "Uid:\t0\nCpus_allowed_list:\t0-1\n";
    let machine = machine(&[
        (
            "proc/self/mountinfo",
            "9 8 0:1 /box/7 /cg/cpu\\040set rw - cgroup cgroup rw,cpuset,noprefix\n",
        ),
        ("cg/cpu set/cpus", "0-1"),
        ("cg/cpu set/sched_load_balance", "0"),
        ("cg/cpu set/player/cpus", "1"),
        ("cg/cpu set/player/below/tasks", ""),
        ("cg/cpu set/player/sched_load_balance", "1"),
        ("proc/5/task/5/stat", &stat(5)),
        ("proc/5/task/5/status", status),
        ("proc/5/task/5/cgroup", "2:cpuset:/box/7/player\n0::/\n"),
        ("proc/6/task/6/stat", &stat(6)),
        ("proc/6/task/6/status", status),
        ("proc/6/task/6/cgroup", "2:cpuset:/box/7\n0::/\n"),
        ("proc/7/task/7/status", "gone before it was read"),
    ]);
    let cgroups = &machine.cgroups;
    assert_eq!(cgroups.v1_cpuset.as_deref(), Some("/cg/cpu set"));
    assert!(!cgroups.v1_prefix);
    let seen: Vec<(&str, u64, Option<bool>)> =
        cgroups.groups.iter().map(|g| (g.path.as_str(), g.tasks, g.load_balance)).collect();
    assert_eq!(seen, [("/", 1, Some(false)), ("/player", 1, Some(true))]);
    assert_eq!(machine.tasks.len(), 2);
}
