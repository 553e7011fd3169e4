//! Units of systemd, by their groups: nobody is asked about them.

use crate::Kernel;
use quiet_types::GroupPath;

/// Units stand no deeper among slices.
const DEEPEST: u32 = 4;
/// The groups of the system's units, on either kind of cgroup.
const UNITS: [&str; 2] = ["/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"];
/// Whether this may be the name of a unit that runs something.
pub(super) fn is_unit(name: &str) -> bool {
    let is_whole = |begin: &str| !begin.is_empty();
    let known =
        [".service", ".scope"].iter().any(|end| name.strip_suffix(end).is_some_and(is_whole));
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    known && name.len() <= 255 && name.chars().all(plain)
}

/// The group of a unit of the system's that runs: systemd removes it when the unit has ended.
pub(super) fn unit_group(kernel: &dyn Kernel, unit: &str) -> Option<GroupPath> {
    fn below(kernel: &dyn Kernel, slice: &GroupPath, unit: &str, deep: u32) -> Option<GroupPath> {
        let names = kernel.list(slice).ok()?;
        if names.iter().any(|name| name == unit) {
            return Some(slice.join(unit));
        }
        let mut slices = names.iter().filter(|name| deep > 0 && name.ends_with(".slice"));
        slices.find_map(|name| below(kernel, &slice.join(name), unit, deep - 1))
    }
    UNITS.iter().find_map(|root| below(kernel, &root.parse().ok()?, unit, DEEPEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_name_and_never_a_path() {
        for name in ["apt-daily.service", "run-r1.scope", "getty@tty1.service", "a\\x2db.service"] {
            assert!(is_unit(name), "{name}");
        }
        for name in ["", ".service", "apt", "a/b.service", "../x.service", "a b.service", "x.slice"]
        {
            assert!(!is_unit(name), "{name}");
        }
        assert!(!is_unit(&format!("{}.service", "x".repeat(300))));
    }
}
