//! Where and when a run is made.

use quiet_linux::Root;
use quiet_types::run::{Host, Probe};

/// The machine that a run is made on.
pub fn host(root: &Root) -> Host {
    let read = |path: &str| root.read_if_there(path).ok().flatten().unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name));
        line.and_then(|l| l.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let guest = field("flags").is_some_and(|f| f.split_whitespace().any(|w| w == "hypervisor"));
    let vendor = read("/sys/class/dmi/id/sys_vendor").to_lowercase();
    let hypervisor = match read("/sys/hypervisor/type").as_str() {
        "" if !guest => None,
        "" if root.exists("/sys/module/kvm_guest") || vendor.contains("qemu") => Some("kvm".into()),
        "" => {
            let clock = read("/sys/devices/system/clocksource/clocksource0/available_clocksource");
            Some(if clock.contains("kvm-clock") { "kvm".into() } else { "unknown".into() })
        }
        kind => Some(kind.to_owned()),
    };
    Host {
        name: read("/proc/sys/kernel/hostname"),
        release: read("/proc/sys/kernel/osrelease"),
        version: read("/proc/sys/kernel/version"),
        arch: std::env::consts::ARCH.to_owned(),
        processor: field("model name").or_else(|| field("Model")).unwrap_or_default(),
        hypervisor,
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// This moment as RFC 3339 in UTC with milliseconds, and an id made of it, `kind` and four random
/// digits: `20261121T213000Z-wakeup-3f9a`.
pub fn stamp(root: &Root, kind: &str) -> (String, String) {
    let now = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
    let random = root.read("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let digits = random.get(..4).unwrap_or("0000");
    let compact: String = now.chars().take(19).filter(|c| !"-:".contains(*c)).collect();
    let id = format!("{compact}Z-{kind}-{digits}");
    (now, id)
}

/// The probe's name within an id.
pub(crate) fn kind(probe: Probe) -> &'static str {
    match probe {
        Probe::Wakeup { .. } => "wakeup",
        Probe::Gap => "gap",
    }
}
