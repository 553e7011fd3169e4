//! A chain that names its steps takes those, and what places the chain itself.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_types::{
    CpuId, Machine,
    machine::{KernelThread, Policy, Preemption, Scheduling, Task},
    plan::Action,
    shield::Mechanism,
};

fn plan(steps: &str) -> quiet_types::Plan {
    let text = format!("[chain]\ncpus = \"1\"\n{steps}");
    let chain = quiet_plan::chain::parse(&text, "x.toml", None).unwrap();
    quiet_plan::plan(&quiet_testing::machine_with_cpusets(), &chain).unwrap()
}

fn names(plan: &quiet_types::Plan) -> Vec<String> {
    quiet_plan::factors(plan).0.into_iter().map(|factor| factor.name).collect()
}

#[test]
fn only_the_steps_that_a_chain_names_are_planned() {
    let all = plan("");
    assert!(names(&all).len() > 3, "{:?}", names(&all));
    let some = plan("steps = [\"workqueues\", \"idle\"]");
    assert_eq!(names(&some), ["workqueues", "idle"]);
    // Without the partition there is no group to enter.
    assert_eq!((some.shield.mechanism, some.shield.entry), (Mechanism::Affinity, None));
    assert!(some.reasons.iter().any(|reason| reason.contains("partition")), "{:?}", some.reasons);
    let with = plan("steps = [\"partition\"]");
    assert_eq!((names(&with), with.shield.entry), (vec!["partition".into()], all.shield.entry));
    assert_eq!(names(&plan("steps = []")), Vec::<String>::new());
}

#[test]
fn a_step_that_is_none_here_is_told_and_a_name_that_is_none_is_refused() {
    let other = plan("steps = [\"partition\", \"frequency\"]");
    assert!(other.findings.iter().any(|f| f.id == "plan.no_such_step"), "{:?}", other.findings);
    for wrong in
        ["steps = [\"\"]", "steps = [\"Partition\"]", "steps = [\"a b\"]", "steps = \"idle\""]
    {
        let text = format!("[chain]\n{wrong}\n");
        assert!(quiet_plan::chain::parse(&text, "x.toml", None).is_err(), "{wrong}");
    }
}

/// Where interrupts are threads, timers and softirqs of a CPU have a place above what never sleeps there: else they wait for ever.
#[test]
fn timers_come_above_a_thread_that_never_sleeps() {
    let thread = |tid: u32, comm: &str| Task {
        pid: tid,
        tid,
        start: 1,
        comm: comm.into(),
        command: String::new(),
        state: 'S',
        cpu: CpuId(1),
        allowed: "1".parse().unwrap(),
        scheduling: Scheduling { policy: Policy::Fifo, priority: 1, nice: 0 },
        kernel: Some(KernelThread { movable: false }),
        cgroup: None,
        cpu_group: None,
        unit_group: None,
        exe: None,
        uid: 0,
    };
    let mut machine = quiet_testing::machine_with_cpusets();
    machine.tasks.extend([thread(21, "ktimers/1"), thread(22, "ksoftirqd/1")]);
    let raised = |machine: &Machine, mode: &str| -> Vec<(String, u8)> {
        let text = format!("[chain]\ncpus = \"1\"\nmode = \"{mode}\"\n");
        let chain = quiet_plan::chain::parse(&text, "x.toml", None).unwrap();
        let plan = quiet_plan::plan(machine, &chain).unwrap();
        let steps = plan.steps.into_iter().filter_map(|step| match step.action {
            Action::Schedule { thread, to } => Some((thread.comm, to.priority)),
            _ => None,
        });
        steps.collect()
    };
    for mode in ["sleep", "never-sleep"] {
        machine.kernel.preemption = Preemption::Full;
        assert_eq!(raised(&machine, mode), [], "{mode}: they are no threads' work here");
        machine.kernel.preemption = Preemption::Rt;
        let above = [("ktimers/1".into(), 86), ("ksoftirqd/1".into(), 86)];
        assert_eq!(raised(&machine, mode), above, "{mode}: who plays there is not known");
    }
    // Somebody has chosen already.
    machine.tasks.iter_mut().for_each(|task| task.scheduling.priority = 95);
    assert_eq!(raised(&machine, "never-sleep"), []);
}
