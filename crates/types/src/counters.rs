//! What the kernel counts for each CPU, and may explain a figure.

use crate::CpuId;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// Counters of some CPUs since boot. As JSON they are numbers by path below `/`: `proc/interrupts/LOC/cpu2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Counters {
    cpus: BTreeMap<CpuId, CpuCounters>,
    /// What another version wrote; kept as it was.
    unknown: BTreeMap<String, u64>,
}

/// Counters of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// Time that the host took, in ticks of 1/100 s; `None` where the kernel does not tell.
    pub steal: Option<u64>,
    /// Interrupts.
    pub interrupts: BTreeMap<Interrupt, u64>,
    /// Softirqs, by the kernel's names.
    pub softirqs: BTreeMap<String, u64>,
}

/// A row of `/proc/interrupts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interrupt {
    /// Of a device, by its number.
    Irq(u32),
    /// One that every CPU has for itself, by its name: `LOC`.
    Vector(String),
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interrupt::Irq(number) => write!(f, "{number}"),
            Interrupt::Vector(name) => f.write_str(name),
        }
    }
}

impl From<&str> for Interrupt {
    fn from(row: &str) -> Interrupt {
        // As a number only where it is written back to the same byte.
        match row.parse::<u32>() {
            Ok(number) if number.to_string() == row => Interrupt::Irq(number),
            _ => Interrupt::Vector(row.to_owned()),
        }
    }
}

impl CpuCounters {
    /// What was counted since `before`: a counter that was not there then began at zero. Stolen time only where both tell it.
    pub fn since(&self, before: &CpuCounters) -> CpuCounters {
        CpuCounters {
            steal: self.steal.zip(before.steal).map(|(now, then)| now.saturating_sub(then)),
            interrupts: grown(&self.interrupts, &before.interrupts),
            softirqs: grown(&self.softirqs, &before.softirqs),
        }
    }
}

fn grown<K: Ord + Clone>(now: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let earlier = |key| before.get(key).copied().unwrap_or(0);
    now.iter().map(|(key, n)| (key.clone(), n.saturating_sub(earlier(key)))).collect()
}

impl Counters {
    /// Those of one CPU, where something was counted for it.
    pub fn cpu(&self, cpu: CpuId) -> Option<&CpuCounters> {
        self.cpus.get(&cpu)
    }

    /// Those of one CPU, to be filled.
    pub fn of(&mut self, cpu: CpuId) -> &mut CpuCounters {
        self.cpus.entry(cpu).or_default()
    }

    /// Every CPU of which something is known.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> {
        self.cpus.keys().copied()
    }

    /// What was counted for one CPU since `before`.
    pub fn since(&self, before: &Counters, cpu: CpuId) -> CpuCounters {
        let nothing = CpuCounters::default();
        let now = self.cpu(cpu).unwrap_or(&nothing);
        now.since(before.cpu(cpu).unwrap_or(&nothing))
    }
}

const STEAL: &str = "proc/stat/";
const INTERRUPTS: &str = "proc/interrupts/";
const SOFTIRQS: &str = "proc/softirqs/";

/// The path of a CPU's stolen time: `proc/stat/cpu2/steal`.
pub fn steal_path(cpu: CpuId) -> String {
    format!("{STEAL}cpu{cpu}/steal")
}

impl From<Counters> for BTreeMap<String, u64> {
    fn from(counters: Counters) -> BTreeMap<String, u64> {
        let mut all = counters.unknown;
        for (cpu, of) in counters.cpus {
            all.extend(of.steal.map(|ticks| (steal_path(cpu), ticks)));
            let path = |dir: &str, row: &dyn fmt::Display| format!("{dir}{row}/cpu{cpu}");
            all.extend(of.interrupts.iter().map(|(row, n)| (path(INTERRUPTS, row), *n)));
            all.extend(of.softirqs.iter().map(|(row, n)| (path(SOFTIRQS, row), *n)));
        }
        all
    }
}

impl From<BTreeMap<String, u64>> for Counters {
    fn from(all: BTreeMap<String, u64>) -> Counters {
        let mut counters = Counters::default();
        for (path, n) in all {
            if !counters.take(&path, n) {
                counters.unknown.insert(path, n);
            }
        }
        counters
    }
}

impl Counters {
    /// Whether the path is one that is known here, to the byte.
    fn take(&mut self, path: &str, n: u64) -> bool {
        if let Some(cpu) = path.strip_prefix(STEAL).and_then(|rest| rest.strip_suffix("/steal")) {
            return match cpu_of(cpu) {
                Some(cpu) => {
                    self.of(cpu).steal = Some(n);
                    true
                }
                None => false,
            };
        }
        let Some((rest, cpu)) = path.rsplit_once('/') else { return false };
        let Some(cpu) = cpu_of(cpu) else { return false };
        if let Some(row) = rest.strip_prefix(INTERRUPTS) {
            self.of(cpu).interrupts.insert(row.into(), n);
        } else if let Some(name) = rest.strip_prefix(SOFTIRQS) {
            self.of(cpu).softirqs.insert(name.to_owned(), n);
        } else {
            return false;
        }
        true
    }
}

/// `cpu2`, written as we write it.
fn cpu_of(word: &str) -> Option<CpuId> {
    let digits = word.strip_prefix("cpu")?;
    let number = digits.parse::<u32>().ok()?;
    (number.to_string() == digits).then_some(CpuId(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_json_is_numbers_by_path_in_the_order_of_the_paths() {
        let mut counters = Counters::default();
        for (cpu, ticks) in [(2, 7), (10, 0)] {
            counters.of(CpuId(cpu)).steal = Some(ticks);
        }
        let of = counters.of(CpuId(2));
        of.interrupts.extend([
            (Interrupt::Irq(9), 5),
            (Interrupt::Irq(125), 1),
            ("LOC".into(), 13),
        ]);
        of.softirqs.insert("TIMER".into(), 4);
        let json = concat!(
            r#"{"proc/interrupts/125/cpu2":1,"proc/interrupts/9/cpu2":5,"proc/interrupts/LOC/cpu2":13,"#,
            r#""proc/softirqs/TIMER/cpu2":4,"proc/stat/cpu10/steal":0,"proc/stat/cpu2/steal":7}"#
        );
        assert_eq!(serde_json::to_string(&counters).unwrap(), json);
        assert_eq!(serde_json::from_str::<Counters>(json).unwrap(), counters);
    }

    #[test]
    fn what_was_counted_since_begins_at_zero_and_steal_needs_both() {
        let read = |json: &str| serde_json::from_str::<Counters>(json).unwrap();
        let before = read(
            r#"{"proc/interrupts/9/cpu1":3,"proc/interrupts/8/cpu1":9,"proc/stat/cpu1/steal":2}"#,
        );
        let after = read(
            r#"{"proc/interrupts/9/cpu1":5,"proc/interrupts/7/cpu1":4,"proc/stat/cpu1/steal":9,"proc/stat/cpu2/steal":9}"#,
        );
        let since = after.since(&before, CpuId(1));
        assert_eq!(since.steal, Some(7));
        assert_eq!(since.interrupts, [(Interrupt::Irq(9), 2), (Interrupt::Irq(7), 4)].into());
        assert_eq!(after.since(&before, CpuId(2)).steal, None);
        assert_eq!(after.since(&before, CpuId(3)), CpuCounters::default());
    }

    proptest! {
        /// Whoever wrote them, they come back to the byte.
        #[test]
        fn any_counters_come_back(all in proptest::collection::btree_map(
            "(x/)?proc/(stat|interrupts|softirqs)/(cpu|[A-Z0-9]{1,3})?/?(cpu)?[0-9]{0,3}(/steal)?",
            any::<u64>(),
            0..12,
        )) {
            let json = serde_json::to_string(&all).unwrap();
            let counters: Counters = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(serde_json::to_string(&counters).unwrap(), json);
        }
    }
}
