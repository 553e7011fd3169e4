//! Where and when a run is made.

use quiet_linux::{Root, sys};
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

/// The moment, as RFC 3339 in UTC with milliseconds, and an id made of it.
pub(crate) fn stamp(root: &Root, probe: Probe) -> (String, String) {
    let (seconds, ns) = sys::clock::wall();
    let (year, month, day) = civil(seconds / 86_400);
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let kind = match probe {
        Probe::Wakeup { .. } => "wakeup",
        Probe::Gap => "gap",
    };
    let random = root.read("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let digits = random.get(..4).unwrap_or("0000");
    (
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", ns / 1_000_000),
        format!("{year:04}{month:02}{day:02}T{h:02}{m:02}{s:02}Z-{kind}-{digits}"),
    )
}

/// Year, month and day of a day since 1970-01-01, by counting in years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, in_era) = (days / 146_097, days % 146_097);
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * in_year + 2) / 153;
    let day = in_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_778, (2026, 11, 21)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
