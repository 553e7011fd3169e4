//! What the processor draws and how it sleeps: counters that are read twice, and what happened between.

use crate::Root;
use std::{collections::BTreeMap, time::Instant};

/// Domains of `powercap` that stand for a whole package; others are parts of these.
const PACKAGES: &str = "/sys/class/powercap";
const HWMON: &str = "/sys/class/hwmon";
const CPUS: &str = "/sys/devices/system/cpu";
/// More files of a kind are not looked at.
const MOST: usize = 512;

/// Counters at one moment, as far as this machine has them.
///
/// # Source
/// Linux: Documentation/power/powercap/powercap.rst (`energy_uj` counts up to `max_energy_range_uj`), hwmon/sysfs-interface.rst
/// (`energyN_input` in uJ), ABI/testing/sysfs-devices-system-cpu (`cpuidle/stateN/time` in us).
#[derive(Clone, Debug)]
pub struct EnergyReading {
    at: Instant,
    /// uJ by domain, and where it begins anew.
    energy: BTreeMap<String, (u64, Option<u64>)>,
    /// us in states deeper than the first, all CPUs.
    deep: Option<u64>,
    /// CPUs that have idle states.
    with_states: usize,
    /// Ticks of all CPUs: idle, and all.
    ticks: Option<(u64, u64)>,
}

/// What happened between two readings. `None` is not told by this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergySpent {
    /// Power of the packages, W.
    pub watts: Option<f64>,
    /// Share of the time of all CPUs in states deeper than the first.
    pub deep: Option<f64>,
    /// Share of the time of all CPUs without a task.
    pub idle: Option<f64>,
}

impl EnergyReading {
    /// Reads them now. What cannot be read is left out.
    pub fn now(root: &Root) -> EnergyReading {
        let (deep, with_states) = deep(root);
        EnergyReading {
            at: Instant::now(),
            energy: energy(root),
            deep,
            with_states,
            ticks: ticks(root),
        }
    }

    /// What happened since an earlier one.
    pub fn since(&self, before: &EnergyReading) -> EnergySpent {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return EnergySpent::default();
        }
        let joules: Option<f64> = self
            .energy
            .iter()
            .map(|(domain, (now, range))| {
                let (then, _) = before.energy.get(domain)?;
                let spent = match range {
                    _ if now >= then => now - then,
                    Some(range) => (range - then.min(range)).saturating_add(*now),
                    None => return None,
                };
                Some(spent as f64 / 1e6)
            })
            .sum();
        let deep = match (self.deep, before.deep) {
            (Some(now), Some(then)) if self.with_states > 0 => {
                Some(now.saturating_sub(then) as f64 / 1e6 / seconds / self.with_states as f64)
            }
            _ => None,
        };
        let idle = match (self.ticks, before.ticks) {
            (Some((idle, all)), Some((was, before))) if all > before => {
                Some(idle.saturating_sub(was) as f64 / (all - before) as f64)
            }
            _ => None,
        };
        EnergySpent {
            watts: joules.filter(|_| !self.energy.is_empty()).map(|joules| joules / seconds),
            deep: deep.map(|share| share.clamp(0.0, 1.0)),
            idle: idle.map(|share| share.clamp(0.0, 1.0)),
        }
    }
}

fn number(root: &Root, path: &str) -> Option<u64> {
    root.read(path).ok()?.trim().parse().ok()
}

fn energy(root: &Root) -> BTreeMap<String, (u64, Option<u64>)> {
    let mut found = BTreeMap::new();
    // `intel-rapl:0` is a package, `intel-rapl:0:1` a part of it; AMD's have the same names.
    for domain in root.list(PACKAGES).unwrap_or_default().iter().take(MOST) {
        if domain.matches(':').count() != 1 {
            continue;
        }
        let dir = format!("{PACKAGES}/{domain}");
        // `psys` is the whole platform, of which the packages are parts.
        if root.read(&format!("{dir}/name")).is_ok_and(|name| name.trim() == "psys") {
            continue;
        }
        if let Some(now) = number(root, &format!("{dir}/energy_uj")) {
            found.insert(dir.clone(), (now, number(root, &format!("{dir}/max_energy_range_uj"))));
        }
    }
    if !found.is_empty() {
        return found;
    }
    for chip in root.list(HWMON).unwrap_or_default().iter().take(MOST) {
        let dir = format!("{HWMON}/{chip}");
        for file in root.list(&dir).unwrap_or_default().iter().take(MOST) {
            if !(file.starts_with("energy") && file.ends_with("_input")) {
                continue;
            }
            // amd_energy counts cores (`Ecore000`) beside the sockets that they belong to.
            let label = file.replace("_input", "_label");
            let is_core =
                root.read(&format!("{dir}/{label}")).is_ok_and(|l| l.starts_with("Ecore"));
            if let Some(now) = number(root, &format!("{dir}/{file}")).filter(|_| !is_core) {
                found.insert(format!("{dir}/{file}"), (now, None));
            }
        }
    }
    found
}

fn deep(root: &Root) -> (Option<u64>, usize) {
    let (mut sum, mut cpus) = (0u64, 0);
    let names = root.list(CPUS).unwrap_or_default();
    let is_cpu = |name: &&String| {
        name.strip_prefix("cpu")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    for cpu in names.iter().filter(is_cpu) {
        let dir = format!("{CPUS}/{cpu}/cpuidle");
        let states = root.list(&dir).unwrap_or_default();
        let deeper: Vec<u64> = states
            .iter()
            .filter(|state| state.starts_with("state") && *state != "state0")
            .filter_map(|state| number(root, &format!("{dir}/{state}/time")))
            .collect();
        if !deeper.is_empty() {
            cpus += 1;
            sum = sum.saturating_add(deeper.iter().sum());
        }
    }
    ((cpus > 0).then_some(sum), cpus)
}

/// Idle and all ticks of all CPUs, by the first line of `/proc/stat`.
fn ticks(root: &Root) -> Option<(u64, u64)> {
    let text = root.read("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guests are within user.
    let values: Vec<u64> = line.split_whitespace().take(8).map_while(|v| v.parse().ok()).collect();
    let idle = values.get(3)?.saturating_add(*values.get(4)?);
    Some((idle, values.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    fn write(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn energy_that_began_anew_is_counted_on_and_parts_are_not_counted_twice() {
        let dir = tempfile::tempdir().unwrap();
        let rapl = |name: &str| format!("/sys/class/powercap/{name}");
        write(dir.path(), &rapl("intel-rapl:0/energy_uj"), "9000000\n");
        write(dir.path(), &rapl("intel-rapl:0/max_energy_range_uj"), "10000000\n");
        write(dir.path(), &rapl("intel-rapl:0:0/energy_uj"), "5\n");
        write(dir.path(), &rapl("intel-rapl:1/name"), "psys\n");
        write(dir.path(), &rapl("intel-rapl:1/energy_uj"), "7\n");
        let idle = "/sys/devices/system/cpu/cpu0/cpuidle";
        write(dir.path(), &format!("{idle}/state0/time"), "100\n");
        write(dir.path(), &format!("{idle}/state1/time"), "100\n");
        write(dir.path(), "/proc/stat", "cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1\n");
        let root = Root::at(dir.path()).unwrap();
        let before = EnergyReading::now(&root);
        assert_eq!(before.energy.len(), 1);
        write(dir.path(), &rapl("intel-rapl:0/energy_uj"), "1000000\n");
        write(dir.path(), &format!("{idle}/state1/time"), "500100\n");
        write(dir.path(), "/proc/stat", "cpu  60 0 10 120 10 0 0 0 0 0\ncpu0 1\n");
        let mut after = EnergyReading::now(&root);
        after.at = before.at + std::time::Duration::from_secs(1);
        let spent = after.since(&before);
        assert_eq!(spent, EnergySpent { watts: Some(2.0), deep: Some(0.5), idle: Some(0.5) });
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_price() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path()).unwrap();
        let before = EnergyReading::now(&root);
        assert_eq!(EnergyReading::now(&root).since(&before), EnergySpent::default());
    }
}
