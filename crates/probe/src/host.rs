//! Where and when a run is made.

use crate::Result;
use quiet_linux::{Root, identity};
use quiet_types::run::{Host, Probe};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The machine that a run is made on.
///
/// # Errors
/// When the root cannot be read at all.
pub fn host(root: &Root) -> Result<Host> {
    let read = |path: &str| root.read_if_there(path).ok().flatten().unwrap_or_default();
    let machine = identity(root)?;
    Ok(Host {
        name: read("/proc/sys/kernel/hostname"),
        release: machine.kernel.release,
        version: machine.kernel.version,
        arch: std::env::consts::ARCH.to_owned(),
        processor: machine.processor,
        hypervisor: machine.hypervisor,
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// This moment as RFC 3339 in UTC with milliseconds, and an id made of it, `kind` and twelve random
/// digits: `20261121T213000123Z-wakeup-3f9a07c1b2d4`. Ids sort by time, also beside those of 0.1.0, which
/// had no milliseconds.
pub fn stamp(root: &Root, kind: &str) -> (String, String) {
    let now = humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string();
    let compact: String = now.chars().filter(|c| !"-:.".contains(*c)).collect();
    let id = format!("{compact}-{kind}-{}", random(root));
    (now, id)
}

/// Twelve hexadecimal digits that nobody else draws: the kernel's own, else a hash keyed at random by
/// the standard library.
fn random(root: &Root) -> String {
    let uuid = root.read("/proc/sys/kernel/random/uuid").unwrap_or_default();
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    if digits.len() == 12 {
        return digits;
    }
    let drawn = RandomState::new().build_hasher().finish();
    format!("{:012x}", drawn & 0xffff_ffff_ffff)
}

/// The probe's name within an id.
pub(crate) fn kind(probe: Probe) -> &'static str {
    match probe {
        Probe::Wakeup { .. } => "wakeup",
        Probe::Gap => "gap",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_of_one_second_do_not_collide_and_sort_by_time() {
        let nowhere = tempfile::tempdir().unwrap();
        // The kernel's numbers, and where there are none.
        for root in [Root::system().unwrap(), Root::at(nowhere.path()).unwrap()] {
            let stamps: Vec<(String, String)> = (0..5000).map(|_| stamp(&root, "gap")).collect();
            let ids: BTreeSet<&String> = stamps.iter().map(|(_, id)| id).collect();
            assert_eq!(ids.len(), stamps.len());
            for (time, id) in &stamps {
                let digits: String = time.chars().filter(char::is_ascii_digit).collect();
                let when = id.split('Z').next().unwrap_or_default();
                assert_eq!(when.replace('T', ""), digits, "{id}");
                assert_eq!(id.rsplit('-').next().map(str::len), Some(12));
            }
        }
    }
}
