//! A chain that names its steps takes those, and what places the chain itself.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_types::shield::Mechanism;

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
