//! The steps of a plan by what they are for: those together that need each other, or of which one does the work of the other.

use quiet_types::{
    Plan,
    plan::{Action, Step},
    shield::Mechanism,
    tune::{Factor, LeftOut},
};

/// The steps that make the place, without which nobody can enter it.
const PARTITION: &str = "partition";

/// What a step belongs to; `None` for one that places the chain itself.
fn factor(step: &Step, plan: &Plan) -> Option<String> {
    let name = match &step.action {
        Action::Group { .. } | Action::MoveTasks { .. } => PARTITION,
        Action::Assign { .. } | Action::Ban { .. } => "irqbalance",
        Action::Irq { cpus, .. } if cpus.intersects(&plan.shield.cpus) => return None,
        Action::Irq { .. } => "interrupts",
        Action::Confine { .. } if plan.shield.mechanism == Mechanism::Affinity => "threads",
        Action::Confine { .. } => "kernel_threads",
        Action::Schedule { thread, .. } if is_kernels(&thread.comm) => "kernel_priorities",
        Action::Enter { .. }
        | Action::Pin { .. }
        | Action::Schedule { .. }
        | Action::DropIn { .. } => return None,
        Action::HoldLatency => "idle",
        Action::Write { path, .. } => return written(path),
    };
    Some(name.to_owned())
}

/// What a file that is written belongs to.
fn written(path: &str) -> Option<String> {
    let file = path.rsplit('/').next().unwrap_or_default();
    let group = path.starts_with("/sys/fs/cgroup") || path.contains("cgroup");
    Some(match file {
        // The budget of the chain's own threads, where there are groups with one.
        "cpu.rt_runtime_us" => return None,
        _ if group || file.starts_with("cpuset.") => PARTITION.to_owned(),
        _ if path.contains("/workqueue/") => "workqueues".to_owned(),
        "default_smp_affinity" => "new_interrupts".to_owned(),
        "pm_qos_resume_latency_us" => "idle".to_owned(),
        "energy_performance_preference" | "scaling_governor" | "scaling_min_freq" => {
            "frequency".to_owned()
        }
        "watchdog_cpumask" | "nmi_watchdog" => "watchdog".to_owned(),
        "online" => "siblings".to_owned(),
        "control" => "usb_awake".to_owned(),
        _ if path.contains("/transparent_hugepage/") => "huge_pages".to_owned(),
        _ if path.contains("_server/") => "deadline_servers".to_owned(),
        _ if path.contains("/ksm/") => "ksm".to_owned(),
        _ => file.to_owned(),
    })
}

fn is_kernels(comm: &str) -> bool {
    ["ksoftirqd/", "ktimers/", "rcu"].iter().any(|begin| comm.starts_with(begin))
}

/// The factors of a plan, in the order of their first steps, and what is none.
pub fn factors(plan: &Plan) -> (Vec<Factor>, Vec<LeftOut>) {
    let (mut factors, mut left): (Vec<Factor>, Vec<LeftOut>) = Default::default();
    for step in &plan.steps {
        let what = step.action.what();
        let Some(name) = factor(step, plan) else {
            let why = match step.action {
                Action::DropIn { .. } => "it counts from the next start of who reads it",
                _ => "it places the chain itself, which is not what is measured",
            };
            left.push(LeftOut { what, why: why.to_owned() });
            continue;
        };
        match factors.iter_mut().find(|factor| factor.name == name) {
            Some(factor) => factor.steps.push(what),
            None => factors.push(Factor { name, steps: vec![what], why: step.why.clone() }),
        }
    }
    (factors, left)
}

/// The name of the factor that a step of the plan belongs to; `None` for what is no factor.
pub fn factor_of(plan: &Plan, step: &Step) -> Option<String> {
    factor(step, plan)
}

/// The plan without the factors of these names. Without the partition nobody enters it: affinity is what is left, and the chain's
/// threads are not put into a group that is not there.
pub fn without(plan: &Plan, names: &[String]) -> Plan {
    let mut less = plan.clone();
    let off = |name: &str| names.iter().any(|off| off == name);
    less.steps.retain(|step| factor(step, plan).is_none_or(|name| !off(&name)));
    if off(PARTITION) && plan.shield.entry.is_some() {
        less.steps.retain(|step| !matches!(step.action, Action::Enter { .. }));
        less.shield.mechanism = Mechanism::Affinity;
        less.shield.entry = None;
    }
    less
}

/// The plan of these factors alone: without what places the chain, too.
pub fn only(plan: &Plan, names: &[String]) -> Plan {
    let (all, _) = factors(plan);
    let off: Vec<String> =
        all.into_iter().map(|factor| factor.name).filter(|name| !names.contains(name)).collect();
    let mut part = without(plan, &off);
    part.steps.retain(|step| factor(step, plan).is_some());
    part.links.clear();
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::plan::{Form, Need};

    fn plan() -> Plan {
        let cpus = quiet_types::chain::Choice::These("1".parse().unwrap());
        let chain = quiet_types::Chain { cpus, ..Default::default() };
        crate::plan(&quiet_testing::machine_with_cpusets(), &chain).unwrap()
    }

    #[test]
    fn what_needs_each_other_is_one_factor_and_every_step_has_its_place() {
        let plan = plan();
        let (factors, left) = factors(&plan);
        let names: Vec<&str> = factors.iter().map(|factor| factor.name.as_str()).collect();
        assert_eq!(names, ["new_interrupts", "partition", "workqueues", "kernel_threads", "idle"]);
        let steps: usize = factors.iter().map(|factor| factor.steps.len()).sum();
        assert_eq!(steps + left.len(), plan.steps.len());
        assert!(factors[1].steps.len() >= 4, "{:?}", factors[1]);
    }

    #[test]
    fn without_its_partition_a_plan_has_no_door_and_all_its_other_steps() {
        let plan = plan();
        assert!(plan.shield.entry.is_some());
        let less = without(&plan, &["partition".into()]);
        assert_eq!(
            (less.shield.entry.as_ref(), less.shield.mechanism),
            (None, Mechanism::Affinity)
        );
        let (left, _) = factors(&less);
        // The threads are still the kernel's alone: what a step does is not changed by what is beside it.
        assert!(left.iter().all(|factor| factor.name != "partition"));
        assert_eq!(without(&plan, &[]), plan);
        let part = only(&plan, &["idle".into()]);
        assert_eq!(part.steps.len(), 1);
        assert_eq!(only(&plan, &[]).steps, []);
    }

    #[test]
    fn a_file_of_no_known_kind_is_a_factor_by_its_name() {
        assert_eq!(written("/proc/sys/vm/stat_interval").as_deref(), Some("stat_interval"));
        assert_eq!(written("/sys/fs/cgroup/x/cpu.rt_runtime_us"), None);
        let mut plan = plan();
        let write = Action::Write {
            path: "/proc/sys/kernel/nmi_watchdog".into(),
            request: None,
            value: "0".into(),
            form: Form::Text,
        };
        plan.steps.push(Step {
            action: write,
            old: None,
            why: String::new(),
            need: Need::BestEffort,
        });
        assert_eq!(
            factor_of(&plan, &plan.steps[plan.steps.len() - 1]).as_deref(),
            Some("watchdog")
        );
    }
}
