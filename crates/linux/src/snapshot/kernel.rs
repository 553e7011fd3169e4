//! The kernel, the processor, the board, and the hypervisor below.

use super::Reader;
use crate::parse::{self, Wrong};
use quiet_types::{
    Machine,
    machine::{Preemption, RunningKernel},
};
use std::{collections::BTreeMap, io::Read};

/// Boards have two to four names in their device tree, none of them long.
const MOST_COMPATIBLE: usize = 16;
const LONGEST_COMPATIBLE: usize = 100;
/// No kernel's configuration is larger when unpacked.
const LARGEST_CONFIG: u64 = 4 << 20;

pub(super) fn read(reader: &Reader<'_>, machine: &mut Machine) {
    let text = |path: &str| reader.text(path);
    let release = text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = text("/proc/sys/kernel/version").unwrap_or_default();
    let cpu_info = match reader.is_hushed() {
        true => None,
        false => reader.whole_text("/proc/cpuinfo"),
    };
    let info = parse::cpu_info(&cpu_info.unwrap_or_default());
    let config = config(reader, &release);
    machine.kernel = RunningKernel {
        preemption: preemption(reader, &version, config.as_ref()),
        arch: text("/proc/sys/kernel/arch").or_else(|| info.x86.then(|| "x86_64".to_owned())),
        boot_parameters: boot_parameters(reader),
        release,
        version,
        config,
    };
    machine.processor = info.processor.unwrap_or_default();
    machine.board = board(reader);
    machine.compatible = compatible(reader);
    machine.clock_sources = clock_sources(reader);
    machine.hypervisor = hypervisor(reader, machine, info.hypervisor);
}

fn boot_parameters(reader: &Reader<'_>) -> Vec<String> {
    let masked = |bytes: Vec<u8>| {
        let words = parse::boot_parameters(&String::from_utf8_lossy(&bytes));
        let safe: Vec<String> = words.iter().map(|word| parse::mask_parameter(word)).collect();
        if safe == words { bytes } else { parse::print_boot_parameters(&safe).into_bytes() }
    };
    let bytes = reader.bytes_through("/proc/cmdline", masked).unwrap_or_default();
    parse::boot_parameters(&String::from_utf8_lossy(&bytes))
}

fn config(reader: &Reader<'_>, release: &str) -> Option<BTreeMap<String, String>> {
    let packed = "/proc/config.gz";
    if let Some(bytes) = reader.bytes_through(packed, |bytes| bytes) {
        let mut text = Vec::new();
        let unpacked = flate2::read::GzDecoder::new(bytes.as_slice())
            .take(LARGEST_CONFIG)
            .read_to_end(&mut text);
        match unpacked {
            Ok(_) => return Some(parse::config(&String::from_utf8_lossy(&text))),
            Err(error) => {
                reader.complain(packed, &Wrong { line: 1, why: format!("not gzip: {error}") });
            }
        }
    }
    if release.is_empty() || release.contains('/') {
        return None;
    }
    let text = reader.text_if_allowed(&format!("/boot/config-{release}"))?;
    Some(parse::config(&text))
}

fn preemption(
    reader: &Reader<'_>,
    version: &str,
    config: Option<&BTreeMap<String, String>>,
) -> Preemption {
    let has = |option: &str| config.is_some_and(|c| c.get(option).is_some_and(|v| v == "y"));
    let words: Vec<&str> = version.split_whitespace().collect();
    let says = |word: &str| words.contains(&word);
    if reader.text("/sys/kernel/realtime").as_deref() == Some("1")
        || says("PREEMPT_RT")
        || words.windows(2).any(|pair| pair == ["PREEMPT", "RT"])
    {
        return Preemption::Rt;
    }
    // The mode in force stands in parentheses: `none voluntary (full) lazy`.
    let switch = reader.text_if_allowed("/sys/kernel/debug/sched/preempt").unwrap_or_default();
    let in_force = switch.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    match in_force.map(|(mode, _)| mode) {
        Some("none") => Preemption::None,
        Some("voluntary") => Preemption::Voluntary,
        Some("full") => Preemption::Full,
        Some("lazy") => Preemption::Lazy,
        _ if says("PREEMPT_DYNAMIC") || has("PREEMPT_DYNAMIC") => Preemption::Dynamic,
        _ if says("PREEMPT_LAZY") || has("PREEMPT_LAZY") => Preemption::Lazy,
        _ if says("PREEMPT") || has("PREEMPT") => Preemption::Full,
        _ if has("PREEMPT_VOLUNTARY") => Preemption::Voluntary,
        _ if has("PREEMPT_NONE") => Preemption::None,
        _ => Preemption::Unknown,
    }
}

fn board(reader: &Reader<'_>) -> Option<String> {
    let dmi = |name: &str| reader.text(&format!("/sys/class/dmi/id/{name}"));
    let words: Vec<String> = ["sys_vendor", "product_name"].into_iter().filter_map(dmi).collect();
    let board = words.join(" ");
    if !board.trim().is_empty() {
        return Some(board.trim().to_owned());
    }
    let model = reader.text("/proc/device-tree/model")?;
    let model = model.split('\0').next().unwrap_or_default();
    Some(model.chars().take(LONGEST_COMPATIBLE).collect())
        .filter(|model: &String| !model.is_empty())
}

/// Words of the device tree, each ended by a zero byte.
fn compatible(reader: &Reader<'_>) -> Vec<String> {
    let text = reader.text_if_allowed("/proc/device-tree/compatible").unwrap_or_default();
    let words = text.split('\0').map(str::trim).filter(|word| !word.is_empty());
    words
        .take(MOST_COMPATIBLE)
        .map(|word| word.chars().take(LONGEST_COMPATIBLE).collect())
        .collect()
}

fn clock_sources(reader: &Reader<'_>) -> Vec<String> {
    let dir = "/sys/devices/system/clocksource/clocksource0";
    let mut sources: Vec<String> =
        reader.text(&format!("{dir}/current_clocksource")).into_iter().collect();
    let available = reader.text(&format!("{dir}/available_clocksource")).unwrap_or_default();
    for name in available.split_whitespace() {
        if !sources.iter().any(|known| known == name) {
            sources.push(name.to_owned());
        }
    }
    sources
}

/// The most telling sign first; a processor that says no more than "hypervisor" is `unknown`.
fn hypervisor(reader: &Reader<'_>, machine: &Machine, flagged: bool) -> Option<String> {
    if let Some(kind) = reader.text("/sys/hypervisor/type").filter(|kind| !kind.is_empty()) {
        return Some(kind);
    }
    let board = machine.board.as_deref().unwrap_or_default();
    let has_clock = |name: &str| machine.clock_sources.iter().any(|source| source == name);
    let tree = reader.text("/proc/device-tree/hypervisor/compatible").unwrap_or_default();
    let known = [
        ("kvm", has_clock("kvm-clock") || tree.contains("kvm") || board.contains("KVM")),
        ("xen", has_clock("xen") || tree.contains("xen")),
        ("hyperv", has_clock("hyperv_clocksource_tsc_page") || has_clock("hyperv_clocksource_msr")),
        ("vmware", board.starts_with("VMware")),
        ("virtualbox", board.contains("VirtualBox")),
    ];
    let name = known.into_iter().find(|(_, is)| *is).map(|(name, _)| name);
    let virtual_board = flagged || board.starts_with("QEMU");
    name.or(virtual_board.then_some("unknown")).map(str::to_owned)
}
