//! irqbalance knows nothing of partitions: it spreads interrupts onto them unless it is told.

use crate::steps::{List, thread};
use quiet_types::{
    CpuSet,
    plan::{Action, Need},
};

const FILES: [&str; 2] = ["etc/default/irqbalance", "etc/sysconfig/irqbalance"];
/// A mask; where it is set, the list below is passed over. Deprecated.
const MASK: &str = "IRQBALANCE_BANNED_CPUS";
const LIST: &str = "IRQBALANCE_BANNED_CPULIST";

impl List<'_> {
    /// Bans the shield's CPUs: in its file, for when it is started again, and by its socket, for the
    /// one that runs.
    pub fn irqbalance(&mut self) {
        let machine = self.machine;
        let shield = &self.shield.cpus;
        if let Some((path, text)) = FILES.iter().find_map(|path| Some((path, machine.text(path)?)))
        {
            let mask = value(text, MASK).filter(|value| !value.is_empty());
            let mask = mask.and_then(|value| CpuSet::from_mask(value).ok());
            let (name, old) = match mask {
                Some(mask) => (MASK, Some(mask)),
                None => (LIST, value(text, LIST).and_then(|value| value.parse().ok())),
            };
            // What it bans by itself, it bans no more once it is told anything.
            let before: CpuSet = old.clone().unwrap_or_else(|| {
                let booted = machine.isolated.clone().unwrap_or_default();
                booted.union(&machine.nohz_full.clone().unwrap_or_default())
            });
            if !shield.is_subset(&before) {
                let all = before.union(shield);
                let value = if name == MASK { all.to_mask() } else { all.to_string() };
                let old = old.map_or_else(|| "not set".to_owned(), |old| format!("CPU {old}"));
                self.push(
                    Need::BestEffort,
                    Action::Assign { path: format!("/{path}"), name: name.into(), value },
                    Some(old),
                    "irqbalance, when it is started again, keeps interrupts off the shield",
                );
            }
        }
        // Anybody may take its name: the one that moves interrupts is root's.
        let runs = machine.tasks.iter().find(|task| {
            task.comm == "irqbalance"
                && task.pid == task.tid
                && task.kernel.is_none()
                && task.uid == 0
        });
        if let Some(task) = runs {
            let cpus = self.shield.cpus.clone();
            self.push(
                Need::BestEffort,
                Action::Ban { daemon: thread(task), cpus },
                None,
                "the irqbalance that runs keeps interrupts off the shield",
            );
        }
    }
}

/// The last value given to a variable in a file of `NAME=value` lines, without quotes.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().rev();
    let mut values = lines.filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
    values.next().map(|value| value.trim().trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_assignment_counts_and_comments_do_not() {
        let text = "#IRQBALANCE_BANNED_CPULIST=9\nIRQBALANCE_BANNED_CPULIST=1\nIRQBALANCE_BANNED_CPULIST=\"2-3\"\n";
        assert_eq!(value(text, LIST), Some("2-3"));
        assert_eq!(value(text, MASK), None);
    }
}
