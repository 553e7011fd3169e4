//! What stands around a chain: limits of the caller, mounts, the kernel log, USB, busy processes;
//! and settings that only the audit wants.

use super::{Reader, reader::does_not_apply};
use crate::parse;
use quiet_types::{
    GroupPath, Machine,
    machine::{Policy, Task},
    surroundings::{
        AudioGroup, BusyProcess, Caller, Mount, Surroundings, UsbController, UsbDevice,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
};

/// `MSR_SMI_COUNT` of Intel processors.
const SMI_COUNT: u64 = 0x34;
/// More records than any kernel log holds.
const MOST_RECORDS: usize = 100_000;
/// A process that uses less of a CPU is not listed, in thousandths.
const BUSY: u64 = 50;

/// What the kernel log says of boot parameters, clocks, firmware, and CPUs taken away.
const TOLD: [&str; 10] = [
    "Unknown kernel command line parameters",
    "unstable",
    "is now offline",
    ": shutdown",
    "isolcpus",
    "nohz_full",
    "NO_HZ",
    "Firmware Bug",
    "rcu_nocbs",
    // Of Arm: which CPUs' clock reads go through the kernel.
    "Trapping CNTVCT access",
];

/// Of each CPU's `cpufreq`.
const FREQUENCY: [&str; 5] = [
    "energy_performance_preference",
    "scaling_min_freq",
    "scaling_max_freq",
    "affected_cpus",
    "scaling_available_governors",
];

const FILES: [&str; 9] = [
    "etc/default/irqbalance",
    "etc/sysconfig/irqbalance",
    "etc/kernel/cmdline",
    "boot/firmware/cmdline.txt",
    "boot/cmdline.txt",
    "proc/swaps",
    "proc/sys/fs/inotify/max_user_watches",
    "sys/kernel/tracing/current_tracer",
    "etc/systemd/system/quietcores.service",
];

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) {
    let uptime_s = uptime(reader);
    let mounts = reader.text_if_allowed("/proc/self/mounts").unwrap_or_default();
    let mounts = parse::mounts(&mounts);
    let files = files(reader, machine, &mounts);
    let (dma_latency_us, dma_latency_writable) = dma_latency(reader);
    machine.surroundings = Some(Surroundings {
        caller: caller(reader),
        mounts,
        kernel_log: kernel_log(reader),
        dma_latency_us,
        dma_latency_writable,
        smi_count: smi_count(reader),
        usb: usb(reader),
        processes: processes(reader, machine, uptime_s),
        systemd: systemd(reader),
        // Asked for by whom it is told to.
        pipewire: None,
        timers: reader
            .names("/etc/systemd/system/timers.target.wants", |name| name.ends_with(".timer")),
        uptime_s: uptime_s.map(|s| s as u64),
        files,
    });
}

/// The real-time budgets of the v1 `cpu` groups that tasks are in, and of those above them.
fn budgets(machine: &Machine, mounts: &[Mount]) -> BTreeSet<String> {
    let has_cpu = |mount: &&Mount| mount.options.iter().any(|option| option == "cpu");
    let mut found = BTreeSet::new();
    let Some(mount) = mounts.iter().filter(|m| m.kind == "cgroup").find(has_cpu) else {
        return found;
    };
    let Ok(mount) = mount.path.parse::<GroupPath>() else { return found };
    let groups: BTreeSet<&GroupPath> =
        machine.tasks.iter().filter_map(|task| task.cpu_group.as_ref()).collect();
    for group in groups.into_iter().flat_map(GroupPath::ancestors) {
        let file = mount.join(&group).join("cpu.rt_runtime_us");
        found.insert(file.trim_start_matches('/').to_owned());
    }
    found
}

fn files(reader: &Reader<'_>, machine: &Machine, mounts: &[Mount]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut paths: Vec<String> = FILES.iter().map(|path| (*path).to_owned()).collect();
    for cpu in machine.online.iter() {
        let base = format!("sys/devices/system/cpu/cpu{cpu}");
        for file in FREQUENCY {
            paths.push(format!("{base}/cpufreq/{file}"));
        }
        for file in ["core_throttle_count", "package_throttle_count"] {
            paths.push(format!("{base}/thermal_throttle/{file}"));
        }
    }
    let faults = "sys/devices/system/cpu/vulnerabilities";
    let names = reader.names(&format!("/{faults}"), |_| true);
    paths.extend(names.iter().map(|name| format!("{faults}/{name}")));
    for card in &machine.network_cards {
        let queues = format!("sys/class/net/{}/queues", card.name);
        for queue in reader.names(&format!("/{queues}"), |name| name.contains('-')) {
            let file = if queue.starts_with("rx-") { "rps_cpus" } else { "xps_cpus" };
            paths.push(format!("{queues}/{queue}/{file}"));
        }
    }
    let queues = "sys/devices/virtual/workqueue";
    for name in reader.names(&format!("/{queues}"), |name| !name.contains("cpumask")) {
        paths.push(format!("{queues}/{name}/cpumask"));
    }
    paths.extend(budgets(machine, mounts));
    for path in paths {
        let masked = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes);
            let is_words = path.contains("cmdline");
            if is_words { mask_words(&text).into_bytes() } else { bytes }
        };
        if let Some(bytes) = reader.bytes_if_allowed(&format!("/{path}"), masked) {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            found.insert(path, text);
        }
    }
    grub(reader, &mut found);
    config_txt(reader, &mut found);
    found
}

/// What of a Raspberry Pi's `config.txt` decides about frequencies and heat; the rest may hold anything.
const CLOCKS: [&str; 9] = [
    "arm_boost",
    "arm_freq",
    "arm_freq_min",
    "core_freq",
    "force_turbo",
    "initial_turbo",
    "over_voltage",
    "over_voltage_delta",
    "temp_soft_limit",
];

fn config_txt(reader: &Reader<'_>, found: &mut BTreeMap<String, String>) {
    for path in ["boot/firmware/config.txt", "boot/config.txt"] {
        let clocks = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes);
            let is_clock = |line: &&str| {
                let name = line.split('=').next().unwrap_or_default().trim();
                CLOCKS.contains(&name)
                    || (line.starts_with('[') && line.ends_with(']') && line.len() < 40)
            };
            let lines = text.lines().map(str::trim).filter(is_clock);
            lines.map(|line| line.to_owned() + "\n").collect::<String>().into_bytes()
        };
        if let Some(bytes) = reader.bytes_if_allowed(&format!("/{path}"), clocks) {
            found.insert(path.to_owned(), String::from_utf8_lossy(&bytes).trim().to_owned());
        }
    }
}

/// Of GRUB's settings only the kernel's parameters: the rest may hold anything.
fn grub(reader: &Reader<'_>, found: &mut BTreeMap<String, String>) {
    let drop_ins = reader.names("/etc/default/grub.d", |name| name.ends_with(".cfg"));
    let mut paths = vec!["etc/default/grub".to_owned()];
    paths.extend(drop_ins.iter().map(|name| format!("etc/default/grub.d/{name}")));
    for path in paths {
        let parameters = |bytes: Vec<u8>| {
            let text = String::from_utf8_lossy(&bytes);
            let lines = text.lines().map(str::trim);
            let lines = lines.filter(|line| line.starts_with("GRUB_CMDLINE_LINUX"));
            lines.map(|line| mask_words(line) + "\n").collect::<String>().into_bytes()
        };
        if let Some(bytes) = reader.bytes_if_allowed(&format!("/{path}"), parameters) {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            found.insert(path, text);
        }
    }
}

/// The text with the values of parameters masked that look like credentials.
fn mask_words(text: &str) -> String {
    let words = text.split(' ').map(parse::mask_parameter);
    words.collect::<Vec<_>>().join(" ")
}

fn uptime(reader: &Reader<'_>) -> Option<f64> {
    let text = reader.text_if_allowed("/proc/uptime")?;
    text.split_whitespace().next()?.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0)
}

fn caller(reader: &Reader<'_>) -> Option<Caller> {
    let status = reader.text_if_allowed("/proc/self/status")?;
    let limits = reader.text_if_allowed("/proc/self/limits")?;
    let limits = parse::limits(&limits);
    let caller = parse::credentials(&status)?;
    let only_audio = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes);
        parse::audio_groups(&text)
            .iter()
            .map(|(name, gid)| format!("{name}:x:{gid}:\n"))
            .collect::<String>()
            .into_bytes()
    };
    let groups = reader.bytes_if_allowed("/etc/group", only_audio).unwrap_or_default();
    let groups = parse::audio_groups(&String::from_utf8_lossy(&groups));
    let member = |gid| caller.groups.contains(&gid);
    Some(Caller {
        uid: caller.uid,
        cap_sys_nice: caller.has(parse::CAP_SYS_NICE),
        cap_ipc_lock: caller.has(parse::CAP_IPC_LOCK),
        rtprio: limits.rtprio,
        memlock: limits.memlock,
        rttime: limits.rttime,
        groups: groups
            .into_iter()
            .map(|(name, gid)| AudioGroup { name, gid, member: member(gid) })
            .collect(),
    })
}

/// The value in force, and whether the caller may ask for another.
fn dma_latency(reader: &Reader<'_>) -> (Option<i32>, Option<bool>) {
    // Opened for writing, since that is the question; nothing is written.
    let read = |path: &str| {
        let mut value = [0; 4];
        OpenOptions::new().read(true).write(true).open(path)?.read_exact(&mut value)?;
        Ok(value.to_vec())
    };
    match reader.device("/dev/cpu_dma_latency", read) {
        Ok(bytes) => {
            let value = bytes.try_into().ok().map(i32::from_ne_bytes);
            (value, Some(true))
        }
        Err(error) if does_not_apply(&error) => (None, None),
        Err(_) => (None, Some(false)),
    }
}

fn smi_count(reader: &Reader<'_>) -> Option<u64> {
    let read = |path: &str| {
        let mut value = [0; 8];
        File::open(path)?.read_exact_at(&mut value, SMI_COUNT)?;
        Ok(value.to_vec())
    };
    let bytes = reader.device("/dev/cpu/0/msr", read).ok()?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

fn kernel_log(reader: &Reader<'_>) -> Option<Vec<String>> {
    let bytes = reader.device("/dev/kmsg", read_log).ok()?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

/// The lines of interest, without their header `level,number,time,flags;`.
fn read_log(path: &str) -> io::Result<Vec<u8>> {
    let mut log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let mut kept = String::new();
    let mut record = vec![0; 8192];
    for _ in 0..MOST_RECORDS {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let text = String::from_utf8_lossy(&record[..length]).into_owned();
                let line = text.lines().next().unwrap_or_default();
                let said = line.split_once(';').map_or(line, |(_, said)| said);
                if TOLD.iter().any(|word| said.contains(word)) {
                    kept += &mask_words(said);
                    kept.push('\n');
                }
            }
            // Overwritten while it was read: the next one is there.
            Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
    }
    Ok(kept.into_bytes())
}

fn usb(reader: &Reader<'_>) -> Vec<UsbController> {
    let bus = "/sys/bus/usb/devices";
    let mut found: Vec<UsbController> = Vec::new();
    for number in reader.numbered(bus, "usb") {
        let hub = reader.real_path(&format!("{bus}/usb{number}"));
        let Some(path) = hub.and_then(|hub| Some(hub.rsplit_once('/')?.0.to_owned())) else {
            continue;
        };
        if !found.iter().any(|known| known.path == path) {
            let driver = reader.link_name(&format!("{path}/driver"));
            found.push(UsbController { path, driver, devices: Vec::new() });
        }
    }
    let is_device = |name: &str| name.contains('-') && !name.contains(':');
    for name in reader.names(bus, is_device) {
        let Some(path) = reader.real_path(&format!("{bus}/{name}")) else { continue };
        let text = |file: &str| reader.text_if_allowed(&format!("{path}/{file}"));
        if text("bDeviceClass").as_deref() == Some("09") {
            continue;
        }
        let (maker, product) = (text("manufacturer"), text("product"));
        let words: Vec<String> = [maker, product].into_iter().flatten().collect();
        let name = if words.is_empty() { format!("USB {name}") } else { words.join(" ") };
        let device = UsbDevice { name, power_control: text("power/control"), path: path.clone() };
        if let Some(of) = found.iter_mut().find(|c| path.starts_with(&format!("{}/", c.path))) {
            of.devices.push(device);
        }
    }
    found
}

fn systemd(reader: &Reader<'_>) -> Option<u32> {
    if !reader.exists("/run/systemd/system") {
        return None;
    }
    // The one file that carries the version in its name; Debian has a directory for each architecture.
    let mut dirs =
        ["/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd"].map(str::to_owned).to_vec();
    let of_architecture = |name: &str| name.contains("-linux-");
    dirs.extend(
        reader
            .names("/usr/lib", of_architecture)
            .iter()
            .map(|name| format!("/usr/lib/{name}/systemd")),
    );
    dirs.iter().filter(|dir| reader.exists(dir)).find_map(|dir| {
        let library = |name: &str| name.starts_with("libsystemd-shared-");
        let names = reader.names(dir, library);
        let rest = names.first()?.strip_prefix("libsystemd-shared-")?.to_owned();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

fn processes(reader: &Reader<'_>, machine: &Machine, uptime_s: Option<f64>) -> Vec<BusyProcess> {
    let is_real_time = |task: &&Task| {
        task.kernel.is_none()
            && matches!(task.scheduling.policy, Policy::Fifo | Policy::Rr | Policy::Deadline)
    };
    let real_time: HashSet<u32> =
        machine.tasks.iter().filter(is_real_time).map(|task| task.pid).collect();
    let mut found = Vec::new();
    for first in machine.tasks.iter().filter(|task| task.tid == task.pid) {
        let pid = first.pid;
        let stat = reader.text_if_allowed(&format!("/proc/{pid}/stat"));
        let Some(used) = stat.as_deref().and_then(parse::used) else { continue };
        // Clock ticks are 1/100 s in every file of the kernel that users read.
        let lived = uptime_s.map(|now| now - first.start as f64 / 100.0).filter(|s| *s >= 10.0);
        let permille = lived.map(|s| (used.ticks as f64 * 10.0 / s) as u64);
        let is_real_time = real_time.contains(&pid);
        if !is_real_time && permille.is_none_or(|share| share < BUSY) {
            continue;
        }
        let mut process = BusyProcess {
            pid,
            comm: first.comm.clone(),
            permille,
            major_faults: Some(used.major_faults),
            ..BusyProcess::default()
        };
        if is_real_time {
            let status = reader.text_if_allowed(&format!("/proc/{pid}/status")).unwrap_or_default();
            process.locked_kib = parse::status_kib(&status, "VmLck");
            process.swapped_kib = parse::status_kib(&status, "VmSwap");
            let limits = reader.text_if_allowed(&format!("/proc/{pid}/limits"));
            process.rttime = limits.and_then(|text| parse::limits(&text).rttime);
        }
        found.push(process);
    }
    found
}
