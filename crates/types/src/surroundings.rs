//! What stands around a chain on its machine and is no part of the topology: what the caller may
//! do, how file systems are mounted, what the kernel logged, who burns CPU time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The surroundings of a chain, as one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Surroundings {
    /// What the process that took the snapshot may do. `None`: not told.
    pub caller: Option<Caller>,
    /// Mounted file systems.
    pub mounts: Vec<Mount>,
    /// The lines of the kernel log that speak of boot parameters, clocks, CPUs taken away and
    /// broken firmware. `None` where the log may not be read.
    pub kernel_log: Option<Vec<String>>,
    /// The idle latency in force, us, as `/dev/cpu_dma_latency` reads. The kernel drops a
    /// constraint when its holder ends, so a low value has a living holder.
    pub dma_latency_us: Option<i32>,
    /// Whether the caller may write `/dev/cpu_dma_latency`.
    pub dma_latency_writable: Option<bool>,
    /// System management interrupts since boot (MSR 0x34 of CPU 0). `None` where it may not be read.
    pub smi_count: Option<u64>,
    /// USB controllers and what is plugged in.
    pub usb: Vec<UsbController>,
    /// Processes with real-time threads, and those that use much CPU time.
    pub processes: Vec<BusyProcess>,
    /// Version of the systemd that runs. `None` where none does, or it does not tell.
    pub systemd: Option<u32>,
    /// What the caller's own PipeWire goes by. `None`: none runs, or it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipewire: Option<PipeWireSettings>,
    /// Enabled systemd timers.
    pub timers: Vec<String>,
    /// Seconds since boot.
    pub uptime_s: Option<u64>,
    /// Further settings and files that only the audit wants, by path below `/`, as read. Of GRUB's
    /// files the lines with kernel parameters.
    pub files: BTreeMap<String, String>,
}

/// How PipeWire's graph runs, where no program asks for something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PipeWireSettings {
    /// Samples a second.
    pub rate: u32,
    /// Samples in one run of the graph: its quantum.
    pub quantum: u32,
    /// The least that a program may ask for.
    pub least_quantum: Option<u32>,
    /// The most that a program may ask for.
    pub most_quantum: Option<u32>,
    /// It holds whatever programs ask for.
    pub forced: bool,
}

/// What the process that took a snapshot may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Has `CAP_SYS_NICE`: real-time priorities without a limit.
    pub cap_sys_nice: bool,
    /// Has `CAP_IPC_LOCK`: memory locks without a limit.
    pub cap_ipc_lock: bool,
    /// Soft `RLIMIT_RTPRIO`, `None` for unlimited.
    pub rtprio: Option<u64>,
    /// Soft `RLIMIT_MEMLOCK`, bytes, `None` for unlimited.
    pub memlock: Option<u64>,
    /// Soft `RLIMIT_RTTIME`, us, `None` for unlimited.
    pub rttime: Option<u64>,
    /// Groups of `/etc/group` made for audio or real time that exist here.
    pub groups: Vec<AudioGroup>,
}

/// A group made for audio or real time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AudioGroup {
    /// `audio`, `realtime`, `jackuser`, `pipewire`.
    pub name: String,
    /// Its number.
    pub gid: u32,
    /// Whether the caller is in it.
    pub member: bool,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// Where.
    pub path: String,
    /// `ext4`, `nfs4`, `fuse.sshfs` ...
    pub kind: String,
    /// Its options, as mounted.
    pub options: Vec<String>,
}

/// A USB controller: what hangs on it shares its interrupts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsbController {
    /// Its place in the device tree: `/sys/devices/pci0000:00/0000:00:14.0`.
    pub path: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Devices other than hubs, by the names they give themselves.
    pub devices: Vec<UsbDevice>,
}

/// A USB device that is no hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsbDevice {
    /// Its place in the device tree.
    pub path: String,
    /// Maker and product.
    pub name: String,
    /// `power/control`: `on`, or `auto` where the kernel may suspend it.
    pub power_control: Option<String>,
}

/// A process with real-time threads, or one that uses much CPU time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BusyProcess {
    /// Its number.
    pub pid: u32,
    /// Name of its first thread.
    pub comm: String,
    /// CPU time it used since its start, in thousandths of one CPU.
    pub permille: Option<u64>,
    /// Major page faults since its start.
    pub major_faults: Option<u64>,
    /// Locked memory, KiB.
    pub locked_kib: Option<u64>,
    /// Memory in swap, KiB.
    pub swapped_kib: Option<u64>,
    /// Soft `RLIMIT_RTTIME`, us; `None` for unlimited or not told.
    pub rttime: Option<u64>,
}
