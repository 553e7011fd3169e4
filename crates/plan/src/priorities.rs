//! Priorities of kernel threads that serve a chain, and the budgets that allow them.

use crate::{
    Mode,
    links::Found,
    note,
    steps::{List, thread},
    warning,
};
use quiet_types::{
    CpuId, GroupPath,
    machine::{Policy, Preemption, Scheduling, Task},
    plan::{Action, Form, Need},
};

/// What `play` has where nobody says otherwise.
const PLAYS: u8 = 85;
/// The most that softirqs get: above it are the kernel's own stoppers.
const MOST: u8 = 98;
/// Below every link, above ordinary threads; as tuned's real-time profiles have it.
const SOFTIRQ: u8 = 2;
const RCU: u8 = 4;

impl List<'_> {
    /// `ksoftirqd`, `ktimers` and `rcuc` of the chain's CPUs get a place in the order of priorities,
    /// where interrupts are threads: as ordinary threads they would wait behind every link.
    ///
    /// Where something never sleeps, or nobody knows what will be there, the first two come above it. From Linux 6.9 on a timer belongs to
    /// the CPU on which it is begun, nohz_full or not, and the timers of a sound card's driver may be begun by whoever plays.
    ///
    /// # Source
    /// Linux 6.9 and later, kernel/time/timer.c: a timer is queued on the CPU that begins it; `invoke_softirq` in kernel/softirq.c, for
    /// threadirqs.
    pub fn softirqs(&mut self, links: &[Found<'_>]) {
        let machine = self.machine;
        let threaded = machine.kernel.preemption == Preemption::Rt
            || machine.boot_parameter("threadirqs").is_some();
        if !threaded {
            return;
        }
        for cpu in self.shield.cpus.clone().iter() {
            let here = |link: &&Found<'_>| link.cpus.contains(cpu) && link.priority.is_some();
            let priorities = || links.iter().filter(here).filter_map(|link| link.priority);
            let lowest = match priorities().min() {
                Some(lowest) if self.mode != Mode::NeverSleepingCore => lowest,
                _ => {
                    self.above(cpu, priorities().max().unwrap_or(PLAYS).max(PLAYS));
                    continue;
                }
            };
            let served = links.iter().filter(here).filter(|link| !link.irqs.is_empty());
            let served = served.filter_map(|link| Some((link.priority?, link.name))).max();
            let names =
                [format!("ksoftirqd/{cpu}"), format!("ktimers/{cpu}"), format!("rcuc/{cpu}")];
            for task in self.on.kernel(&names) {
                let Some(at) = names.iter().position(|name| *name == task.comm) else { continue };
                let (priority, why) = match (at, served) {
                    (0 | 1, Some((irq, name))) if irq > 1 => (
                        irq - 1,
                        format!(
                            "work that the interrupt of link `{name}` leaves to it comes right after \
                             the interrupt"
                        ),
                    ),
                    (0 | 1, _) => (
                        SOFTIRQ.min(lowest.saturating_sub(1)),
                        "above ordinary threads, below every link".to_owned(),
                    ),
                    _ => (
                        RCU.min(lowest.saturating_sub(1)),
                        "callbacks of RCU run above ordinary threads, below every link".to_owned(),
                    ),
                };
                self.serve(cpu, task, priority, lowest, why);
            }
        }
    }

    /// Timers and softirqs of a CPU above what plays there at `highest`.
    fn above(&mut self, cpu: CpuId, highest: u8) {
        for task in self.on.kernel(&[format!("ksoftirqd/{cpu}"), format!("ktimers/{cpu}")]) {
            let now = task.scheduling;
            let priority = (highest + 1).min(MOST);
            if now.policy == Policy::Fifo && now.priority >= priority {
                continue;
            }
            self.push(
                Need::BestEffort,
                Action::Schedule {
                    thread: thread(task),
                    to: Scheduling { policy: Policy::Fifo, priority, nice: 0 },
                },
                Some(now.to_string()),
                "timers that are begun on this CPU belong to it: below a thread that never sleeps \
                 they would wait for ever",
            );
        }
    }

    fn serve(&mut self, cpu: CpuId, task: &Task, priority: u8, lowest: u8, why: String) {
        if priority == 0 {
            self.findings.push(
                note("plan.no-priority-left", format!("{} stays below the chain", task.comm))
                    .evidence(format!("the lowest link on CPU {cpu} has priority {lowest}"))
                    .effect("softirq work waits while a link runs")
                    .remedy("give the links priorities from 10 upwards"),
            );
            return;
        }
        let now = task.scheduling;
        // Where somebody has chosen one that fits, it stays.
        let fits = now.policy == Policy::Fifo
            && ((priority < lowest && now.priority < lowest) || now.priority == priority);
        if fits {
            return;
        }
        let to = Scheduling { policy: Policy::Fifo, priority, nice: 0 };
        self.push(
            Need::BestEffort,
            Action::Schedule { thread: thread(task), to },
            Some(now.to_string()),
            why,
        );
    }

    /// Under `RT_GROUP_SCHED` a v1 `cpu` group without a budget of its own refuses real-time
    /// scheduling to its threads.
    pub fn budget(&mut self, task: &Task) {
        let machine = self.machine;
        let Some(group) = task.cpu_group.as_ref().filter(|group| !group.is_root()) else { return };
        let Some(mount) = machine.surroundings.as_ref().and_then(|around| {
            let cpu = |options: &[String]| options.iter().any(|option| option == "cpu");
            around.mounts.iter().find(|mount| mount.kind == "cgroup" && cpu(&mount.options))
        }) else {
            return;
        };
        let Ok(mut path) = mount.path.parse::<GroupPath>() else { return };
        let file = |path: &GroupPath| path.join("cpu.rt_runtime_us");
        // The snapshot names files from `/` on.
        let number = |path: &GroupPath| {
            machine.text(file(path).trim_start_matches('/'))?.parse::<i64>().ok()
        };
        let Some(mut above) = number(&path) else { return };
        for part in group.parts() {
            path = path.join(part);
            match number(&path) {
                Some(0) => {}
                Some(own) => {
                    above = own;
                    continue;
                }
                None => return,
            }
            let written = file(&path);
            let planned = self.budgets.contains(&written);
            // Half of what is above: what stands beside it may have claimed its own.
            let value = if above < 0 { 475_000 } else { above / 2 };
            if value == 0 {
                self.findings.push(
                    warning(
                        "plan.no-budget",
                        format!("{} may not run in real time", say_task(task)),
                    )
                    .evidence(format!("cpu.rt_runtime_us of group {group} and above it is 0"))
                    .effect("its link keeps the scheduling that it has")
                    .remedy("give the group a budget, or start the program outside it"),
                );
                return;
            }
            if !planned {
                self.budgets.insert(written.clone());
                self.set(
                    written.trim_start_matches('/'),
                    &value.to_string(),
                    Form::Text,
                    format!(
                        "{} is in a group without real-time budget (RT_GROUP_SCHED): SCHED_FIFO \
                         would be refused",
                        say_task(task)
                    ),
                );
            }
            above = value;
        }
    }
}

fn say_task(task: &Task) -> String {
    format!("thread {} ({})", task.tid, quiet_types::printable(&task.comm, 32))
}
