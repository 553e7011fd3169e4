//! A machine: one snapshot of facts, as read from the kernel's files. No judgement.
//!
//! What a kernel may lack is an `Option`; what should have been readable and was not stands in
//! [`Machine::unread`] with the reason.

use crate::{CpuId, CpuSet, Finding, GroupPath, heat::Heat, surroundings::Surroundings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`Machine`] in JSON.
pub const SCHEMA: &str = "quietcores.machine/1";

/// One snapshot of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// [`SCHEMA`].
    pub schema: String,
    /// The kernel that runs.
    pub kernel: RunningKernel,
    /// What the machine is: maker's name of the processor and of the board, where they are told.
    pub processor: String,
    /// `/sys/class/dmi/id/{sys_vendor,product_name}` or `/proc/device-tree/model`.
    pub board: Option<String>,
    /// What the device tree calls the board, most special first (`raspberrypi,4-model-b`, `brcm,bcm2711`). Empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compatible: Vec<String>,
    /// The hypervisor, where this is a virtual machine: `kvm`, `xen`, `hyperv`, `vmware`,
    /// `virtualbox`, or `unknown`.
    pub hypervisor: Option<String>,
    /// Current and available clock sources, current first.
    pub clock_sources: Vec<String>,
    /// CPUs that run now.
    pub online: CpuSet,
    /// CPUs that could ever run.
    pub possible: CpuSet,
    /// CPUs booted with `isolcpus=`; never those of a partition. `None`: not told.
    pub isolated: Option<CpuSet>,
    /// CPUs booted with `nohz_full=`. `None` where the kernel lacks it.
    pub nohz_full: Option<CpuSet>,
    /// Every present CPU, by number. Numbers may have holes.
    pub cpus: Vec<Cpu>,
    /// `/sys/devices/system/cpu/smt/control`: `on`, `off`, `forceoff`, `notsupported` ...
    pub smt_control: Option<String>,
    /// NUMA nodes.
    pub nodes: Vec<Node>,
    /// Every device interrupt.
    pub irqs: Vec<Irq>,
    /// The per-CPU interrupts without a number (LOC, RES, CAL ...) with counts by CPU.
    pub vectors: Vec<Vector>,
    /// `/proc/irq/default_smp_affinity`.
    pub default_irq_affinity: Option<CpuSet>,
    /// Thermal zones, what cools, and what a board's firmware says. `None` where there is none of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat: Option<Heat>,
    /// Sound cards.
    pub sound_cards: Vec<Device>,
    /// Network cards with a device behind them (no loopback, no tunnels).
    pub network_cards: Vec<Device>,
    /// Every thread, by TID.
    pub tasks: Vec<Task>,
    /// Processes with a data loop of PipeWire's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pipewire: Vec<PipeWireProcess>,
    /// Users whose threads these are, by their names in `/etc/passwd`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, u32>,
    /// How CPUs can be given to groups of tasks.
    pub cgroups: Cgroups,
    /// Masks of the unbound workqueues.
    pub workqueues: Workqueues,
    /// Other settings that matter, by path below `/`, as read: `proc/sys/kernel/sched_rt_runtime_us`.
    pub settings: BTreeMap<String, String>,
    /// What stands around a chain. `None`: not looked at.
    #[serde(default)]
    pub surroundings: Option<Surroundings>,
    /// What should have been there and could not be read or understood.
    pub unread: Vec<Finding>,
}

/// The kernel that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningKernel {
    /// `6.18.44`: `/proc/sys/kernel/osrelease`.
    pub release: String,
    /// `#1 SMP PREEMPT_DYNAMIC ...`: `/proc/sys/kernel/version`.
    pub version: String,
    /// `x86_64`, `aarch64` ... of the snapshot, from `/proc/sys/kernel/arch` or the processor.
    pub arch: Option<String>,
    /// How it preempts.
    pub preemption: Preemption,
    /// `/proc/cmdline`, split as the kernel splits it (double quotes hold blanks together).
    pub boot_parameters: Vec<String>,
    /// Options of `/proc/config.gz` or `/boot/config-RELEASE` that matter, without `CONFIG_`;
    /// `y`, `m`, a value, or `n` for "is not set". `None` where neither file can be read.
    pub config: Option<BTreeMap<String, String>>,
}

/// How a kernel preempts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    /// Not told by anything readable.
    #[default]
    Unknown,
    /// Only at well-defined points.
    None,
    /// `PREEMPT_VOLUNTARY`.
    Voluntary,
    /// `PREEMPT_LAZY`.
    Lazy,
    /// `PREEMPT`: everywhere but in locked sections.
    Full,
    /// `PREEMPT_DYNAMIC`, and the mode in force cannot be read.
    Dynamic,
    /// `PREEMPT_RT`: `/sys/kernel/realtime` is 1.
    Rt,
}

/// What kind of core a CPU belongs to, on machines that have several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CoreKind {
    /// The faster kind: P core, big core.
    Performance,
    /// The thriftier kind: E core, LITTLE core.
    Efficiency,
}

/// One logical CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// Whether it runs.
    pub online: bool,
    /// `topology/core_id`: unique within its package only.
    pub core: Option<u32>,
    /// `topology/physical_package_id`.
    pub package: Option<u32>,
    /// Itself and its SMT siblings.
    pub siblings: CpuSet,
    /// The CPUs of its cluster, itself among them (`topology/cluster_cpus_list`). `None` where the machine has no clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<CpuSet>,
    /// CPUs that share its last-level cache, itself among them.
    pub llc: CpuSet,
    /// Size of that cache in KiB.
    pub llc_kib: Option<u64>,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// `cpu_capacity`, 1024 for the strongest.
    pub capacity: Option<u32>,
    /// Kind of core, where the machine has two.
    pub kind: Option<CoreKind>,
    /// `cpufreq/scaling_governor`.
    pub governor: Option<String>,
    /// `cpufreq/cpuinfo_max_freq`, kHz.
    pub max_khz: Option<u64>,
    /// `cpufreq/scaling_cur_freq`, kHz.
    pub current_khz: Option<u64>,
    /// `power/pm_qos_resume_latency_us`, as read: `n/a` forbids C-states, `0` means no constraint.
    pub resume_latency: Option<String>,
    /// Idle states, shallowest first.
    pub idle_states: Vec<IdleState>,
    /// Time stolen by the host since boot, in ticks of 1/100 s (`/proc/stat`).
    pub steal_ticks: Option<u64>,
}

/// One idle state of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6` ...
    pub name: String,
    /// Exit latency in us.
    pub latency_us: Option<u64>,
    /// Whether it is disabled.
    pub disabled: bool,
    /// How often it was entered.
    pub usage: Option<u64>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// One device interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// Names that its handlers registered: `xhci_hcd`, `snd_hda_intel:card0`. Shared IRQs have several.
    pub actions: Vec<String>,
    /// Interrupt controller: `PCI-MSIX-0000:00:02.0`, `IO-APIC`, `GICv2`.
    pub chip: Option<String>,
    /// Where it may be delivered: `smp_affinity_list`.
    pub requested: Option<CpuSet>,
    /// Where it is delivered: `effective_affinity_list`. Empty on some boards.
    pub effective: Option<CpuSet>,
    /// Interrupts by CPU since boot, in the order of [`Machine::cpus`] that are online.
    pub counts: Vec<(CpuId, u64)>,
    /// NUMA node of the device.
    pub node: Option<u32>,
    /// Why it cannot be moved, where that is known without trying (`/proc/irq/N` without mask
    /// files; per-CPU interrupts). Managed IRQs show only when a write is tried.
    pub immovable: Option<String>,
}

impl Irq {
    /// The CPUs on which it has been counted since boot.
    pub fn fired_on(&self) -> CpuSet {
        self.counts.iter().filter(|(_, count)| *count > 0).map(|(cpu, _)| *cpu).collect()
    }

    /// Whether each CPU has its own of it: a timer, a counter of events, a message between CPUs.
    pub fn is_of_each_cpu(&self) -> bool {
        let own = |action: &String| {
            let told = ["arch_timer", "arm-pmu", "IPI", "riscv-timer", "vgic"];
            told.contains(&action.as_str()) || action.starts_with("kvm guest ")
        };
        self.actions.iter().any(own)
    }

    /// Interrupts on all CPUs since boot.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(count.1))
    }
}

/// A per-CPU interrupt without a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Vector {
    /// `LOC`, `RES`, `CAL`, `TLB`, `NMI`; `IPI0` on Arm.
    pub name: String,
    /// What the kernel calls it.
    pub description: String,
    /// By CPU. Rows that have one number for the whole machine (`ERR`, `MIS`) stand on CPU 0.
    pub counts: Vec<(CpuId, u64)>,
}

/// A sound or network card and what is behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// `card0`, `eth0`.
    pub name: String,
    /// For people: the card's id and long name; the network driver.
    pub description: String,
    /// Its place in the device tree: `/sys/devices/...`.
    pub path: String,
    /// The device that owns the interrupt: PCI address or platform name, with its driver.
    pub controller: Option<String>,
    /// The interrupts of that controller.
    pub irqs: Vec<u32>,
    /// What else hangs on the same controller or shares one of its IRQ lines.
    pub shared_with: Vec<String>,
}

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scheduling {
    /// The policy.
    pub policy: Policy,
    /// 1 to 99 for FIFO and RR, else 0.
    pub priority: u8,
    /// -20 to 19; of meaning for OTHER and BATCH.
    pub nice: i8,
}

/// Who schedules a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerCore {
    /// The kernel.
    #[default]
    Kernel,
    /// The EVL core below it (Xenomai 4).
    Evl,
}

/// A scheduling policy of sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// `SCHED_OTHER`, which ps shows as TS.
    Other,
    /// `SCHED_FIFO`.
    Fifo,
    /// `SCHED_RR`.
    Rr,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_DEADLINE`.
    Deadline,
    /// `SCHED_EXT`.
    Ext,
}

impl Policy {
    /// The policy of a number of the kernel's (`include/uapi/linux/sched.h`); `None` for one that
    /// is not known.
    pub fn from_number(number: i64) -> Option<Policy> {
        Some(match number {
            0 => Policy::Other,
            1 => Policy::Fifo,
            2 => Policy::Rr,
            3 => Policy::Batch,
            5 => Policy::Idle,
            6 => Policy::Deadline,
            7 => Policy::Ext,
            _ => return None,
        })
    }
}

/// One thread, as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Process.
    pub pid: u32,
    /// Thread; equal to `pid` for the first one.
    pub tid: u32,
    /// Start time in clock ticks since boot: with the TID it names one thread for ever.
    pub start: u64,
    /// Name of the thread, at most 15 characters; kernel workers may have more.
    pub comm: String,
    /// Command line, where it may be read and was asked for; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// State letter: `R`, `S`, `D`, `Z` ...
    pub state: char,
    /// CPU it last ran on (PSR).
    pub cpu: CpuId,
    /// CPUs it may run on.
    pub allowed: CpuSet,
    /// How it is scheduled.
    pub scheduling: Scheduling,
    /// `Some` for kernel threads only.
    pub kernel: Option<KernelThread>,
    /// Its cpuset cgroup, as `/proc/PID/cgroup` names it (`/`, `/system.slice/mpd.service`).
    pub cgroup: Option<GroupPath>,
    /// Its group of the v1 `cpu` hierarchy, where there is one: that decides about real-time
    /// budgets (`RT_GROUP_SCHED`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_group: Option<GroupPath>,
    /// Its group in the hierarchy in which systemd keeps its units, where that is another one than that of `cgroup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_group: Option<GroupPath>,
    /// The executable file of its process, where the kernel tells it to the caller; of first threads only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// Real user.
    pub uid: u32,
}

impl Task {
    /// Whether its CPUs can be changed: not so with the kernel's `PF_NO_SETAFFINITY`.
    pub fn movable(&self) -> bool {
        self.kernel.is_none_or(|k| k.movable)
    }
}

/// A process with a data loop of PipeWire's: the server, or a program that plays through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PipeWireProcess {
    /// Its number.
    pub pid: u32,
    /// The version that runs in it, whatever lies on the disk by now.
    pub version: PipeWireVersion,
    /// Whether the plugin is there by which its loops can poll.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub polls: bool,
}

impl PipeWireProcess {
    /// The plugin by which a data loop polls, as PipeWire looks for it: below its folder for plugins, without `.so`.
    pub const POLLING: &str = "quietcores/libspa-quietcores";
}

/// A version of PipeWire: `1.4.2`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct PipeWireVersion {
    /// `1` of `1.4.2`.
    pub major: u32,
    /// `4` of `1.4.2`.
    pub minor: u32,
    /// `2` of `1.4.2`.
    pub micro: u32,
}

impl PipeWireVersion {
    /// The first one whose data loops are set up by its files: `context.data-loops`.
    pub const DATA_LOOPS: PipeWireVersion = PipeWireVersion { major: 1, minor: 2, micro: 0 };
}

impl std::fmt::Display for PipeWireVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// What is special about a kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelThread {
    /// False where `PF_NO_SETAFFINITY` (0x04000000 of the flags in `/proc/PID/stat`) is set.
    pub movable: bool,
}

/// How CPUs can be given to groups of tasks on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cgroups {
    /// Where the cgroup v2 tree is mounted.
    pub v2: Option<GroupPath>,
    /// Whether the v2 root offers the cpuset controller (`cgroup.controllers`).
    pub v2_cpuset: bool,
    /// CPUs in isolated partitions: `cpuset.cpus.isolated` of the v2 root. `None` where the kernel
    /// (before 6.8) does not tell, or cpuset is not v2's.
    pub v2_isolated: Option<CpuSet>,
    /// Where the cgroup v1 cpuset hierarchy is mounted.
    pub v1_cpuset: Option<GroupPath>,
    /// Whether v1 file names carry the `cpuset.` prefix.
    pub v1_prefix: bool,
    /// Every cpuset group below the root of whichever hierarchy holds cpuset, parents first.
    pub groups: Vec<Group>,
}

/// One cgroup with a cpuset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Its path below the mount, `/` for the root.
    pub path: GroupPath,
    /// `cpuset.cpus`, as requested.
    pub cpus: Option<CpuSet>,
    /// `cpuset.cpus.effective` (v2) or `cpuset.effective_cpus` (v1).
    pub effective: Option<CpuSet>,
    /// v2: `member`, `root`, `isolated`, `isolated invalid (reason)`.
    pub partition: Option<String>,
    /// v1: `cpuset.sched_load_balance`.
    pub load_balance: Option<bool>,
    /// Number of threads that it governs: those inside it, and those inside cgroups below it that
    /// have no cpuset of their own.
    pub tasks: u64,
}

/// Masks of the unbound workqueues, `/sys/devices/virtual/workqueue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workqueues {
    /// `cpumask`: in force.
    pub effective: Option<CpuSet>,
    /// `cpumask_requested`: asked for; kernels before 6.8 lack it.
    pub requested: Option<CpuSet>,
    /// `cpumask_isolated`: what partitions take away.
    pub isolated: Option<CpuSet>,
}

impl Vector {
    /// What it is for, by the kernel's own words; by its name on processors whose names say it.
    ///
    /// The numbers of Arm's `IPIn` mean other things from kernel to kernel: only the words tell.
    pub fn meaning(&self) -> Option<VectorMeaning> {
        let says = |words: &str| self.description.to_ascii_lowercase().contains(words);
        let is_ipi = self.name.starts_with("IPI");
        Some(match self.name.as_str() {
            "LOC" => VectorMeaning::Timer,
            "RES" => VectorMeaning::Reschedule,
            "CAL" => VectorMeaning::Call,
            "TLB" => VectorMeaning::Shootdown,
            "NMI" => VectorMeaning::Nmi,
            _ if is_ipi && says("rescheduling") => VectorMeaning::Reschedule,
            _ if is_ipi && says("function call") => VectorMeaning::Call,
            _ if is_ipi && says("irq work") => VectorMeaning::Work,
            _ if is_ipi && says("timer broadcast") => VectorMeaning::Broadcast,
            _ => return None,
        })
    }
}

/// What a per-CPU interrupt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorMeaning {
    /// The CPU's own timer: the tick, and every other timer.
    Timer,
    /// Another CPU asks to look for whom to run.
    Reschedule,
    /// Another CPU asks to run a function.
    Call,
    /// Another CPU changed page tables.
    Shootdown,
    /// The kernel asks itself, or another CPU, to run something in a hard interrupt.
    Work,
    /// Another CPU's timer woke this one, whose own stood still.
    Broadcast,
    /// Non-maskable.
    Nmi,
}

impl Machine {
    /// The CPU with this number.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// What a file held, by its path below `/`, where the snapshot has it among its settings or
    /// surroundings.
    pub fn text(&self, path: &str) -> Option<&str> {
        let beside = || self.surroundings.as_ref().and_then(|around| around.files.get(path));
        self.settings.get(path).or_else(beside).map(|text| text.trim())
    }

    /// The row of `/proc/interrupts` that counts the CPUs' own timers, and its counts: `LOC`, on Arm the interrupts `arch_timer`.
    pub fn timer_interrupts(&self) -> (&'static str, Vec<(CpuId, u64)>) {
        if let Some(row) = self.vectors.iter().find(|row| row.name == "LOC") {
            return ("LOC", row.counts.clone());
        }
        let mut counts: BTreeMap<CpuId, u64> = BTreeMap::new();
        let is_timer = |irq: &&Irq| irq.actions.iter().any(|action| action == "arch_timer");
        for (cpu, count) in self.irqs.iter().filter(is_timer).flat_map(|irq| &irq.counts) {
            *counts.entry(*cpu).or_default() += count;
        }
        ("arch_timer", counts.into_iter().collect())
    }

    /// Whether the device tree calls the board so, or names a chip of it so.
    pub fn is_board(&self, name: &str) -> bool {
        self.compatible.iter().any(|known| known == name)
    }

    /// Whether it is a Raspberry Pi.
    pub fn is_raspberry_pi(&self) -> bool {
        self.compatible.iter().any(|known| known.starts_with("raspberrypi,"))
    }

    /// The physical cores as sets of their online logical CPUs, lowest CPU first.
    pub fn cores(&self) -> Vec<CpuSet> {
        let (mut cores, mut known) = (Vec::new(), CpuSet::new());
        for cpu in self.cpus.iter().filter(|cpu| cpu.online) {
            if !known.contains(cpu.id) {
                let mut core = cpu.siblings.intersection(&self.online);
                core.insert(cpu.id);
                known = known.union(&core);
                cores.push(core);
            }
        }
        cores
    }

    /// The value of a boot parameter, `""` for a bare word, `None` when absent. The last one wins;
    /// what follows `--` is meant for init.
    pub fn boot_parameter(&self, name: &str) -> Option<&str> {
        let words = &self.kernel.boot_parameters;
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words[..end].iter().rev().find_map(|word| match word.split_once('=') {
            Some((key, value)) if key == name => Some(value),
            None if word == name => Some(""),
            _ => None,
        })
    }
}
