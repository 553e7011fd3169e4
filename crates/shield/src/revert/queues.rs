//! The kernel's unbound work, which comes back to the CPUs of a partition with its end.
//!
//! From Linux 6.8 the kernel itself takes the CPUs of partitions from its unbound workqueues, and gives them back. For that it
//! starts workers, and does not where it is killed meanwhile (`kthread_create_on_node` can be killed): the partition has ended then,
//! and the queues stay off its CPUs until the next one.
//!
//! Source: `update_unbound_workqueue_cpumask` in kernel/cgroup/cpuset.c, `workqueue_unbound_exclude_cpumask` in kernel/workqueue.c.

use super::Hand;
use crate::{change::Change, error::write_reason};
use quiet_types::{
    CpuSet,
    plan::{PutBack, Return},
};

const EFFECTIVE: &str = "/sys/devices/virtual/workqueue/cpumask";
const REQUESTED: &str = "/sys/devices/virtual/workqueue/cpumask_requested";
/// In the root of the groups alone: CPUs of all partitions.
const ISOLATED: &str = "cpuset.cpus.isolated";

impl Hand<'_> {
    /// Gives the shield's CPUs back to the queues where the kernel has not; nothing where it has, or where somebody else isolates CPUs
    /// that the queues are asked for: what is written would give them those too.
    pub(super) fn queues(&self) -> Option<PutBack> {
        let mask = |file: &str| CpuSet::from_mask(self.kernel.read(file).ok()?.trim()).ok();
        let (effective, requested) = (mask(EFFECTIVE)?, mask(REQUESTED)?);
        let missing = requested.difference(&effective);
        if missing.is_empty() || !missing.is_subset(&self.shield.cpus) {
            return None;
        }
        let isolated = self.isolated()?;
        if isolated.intersects(&requested) {
            return None;
        }
        let outcome = match self.act(|kernel| kernel.write(EFFECTIVE, &requested.to_mask())) {
            Err(error) => Return::Refused { reason: write_reason(&error) },
            Ok(()) => match mask(EFFECTIVE) {
                Some(now) if now == requested => Return::Restored,
                _ => Return::Refused {
                    reason: format!("the kernel still keeps its work off CPU {missing}"),
                },
            },
        };
        Some(PutBack { what: EFFECTIVE.to_owned(), outcome })
    }

    /// CPUs of all partitions that there are.
    fn isolated(&self) -> Option<CpuSet> {
        let made = self.past.changes.iter().find_map(|(_, change)| match change {
            Change::Make { path, .. } => Some(path),
            _ => None,
        })?;
        let text =
            made.ancestors().find_map(|group| self.kernel.read(&group.join(ISOLATED)).ok())?;
        text.trim().parse().ok()
    }
}
