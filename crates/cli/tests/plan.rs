//! Plans for machines of other kinds, read from their captured files.
#![allow(clippy::unwrap_used)] // a test may

use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Command, Output},
};

fn plan(machine: &str, more: &[&str]) -> Output {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/machines");
    Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["plan", "--json", "--root"])
        .arg(root.join(machine))
        .args(more)
        .output()
        .unwrap()
}

fn planned(machine: &str, more: &[&str]) -> Value {
    let out = plan(machine, more);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{machine}: {said}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn refused(machine: &str, more: &[&str]) -> String {
    let out = plan(machine, more);
    assert_eq!(out.status.code(), Some(2), "{machine}");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn reasons(plan: &Value) -> String {
    plan["reasons"].to_string()
}

fn findings(plan: &Value) -> Vec<&str> {
    plan["findings"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap()).collect()
}

#[test]
fn siblings_are_shielded_together_and_splitting_them_is_warned_of() {
    let plan = planned("ryzen1700", &[]);
    assert_eq!(plan["shield"]["cpus"], "6-7");
    assert_eq!(plan["shield"]["housekeeping"], "0-5,8-15");
    assert!(reasons(&plan).contains("a whole core with its SMT siblings"), "{plan:#}");
    let split = planned("ryzen1700", &["--cpus", "9"]);
    assert_eq!(split["shield"]["cpus"], "9");
    assert!(findings(&split).contains(&"plan.split-core"), "{split:#}");
}

#[test]
fn holes_in_the_numbers_are_no_cpus() {
    let plan = planned("corei7-64", &[]);
    assert_eq!(
        (&plan["shield"]["cpus"], &plan["shield"]["housekeeping"]),
        (&"2".into(), &"0".into())
    );
    let said = refused("corei7-64", &["--cpus", "1"]);
    assert!(said.contains("CPU 1 is not on this machine, which has 0,2"), "{said}");
    let said = refused("corei7-64", &["--cpus", "0,2"]);
    assert!(said.contains("no CPU would be left to the rest of the machine"), "{said}");
}

#[test]
fn of_two_kinds_of_core_the_faster_is_taken_and_partitions_of_others_are_left() {
    let plan = planned("hybrid", &[]);
    assert_eq!(plan["shield"]["mechanism"], "partition_v2");
    // 0-1 holds the boot CPU, 2-3 is somebody else's partition, from 8 on they are slow.
    assert_eq!(plan["shield"]["cpus"], "6-7");
    assert_eq!(plan["shield"]["housekeeping"], "0-1,4-5,8-15");
    assert!(reasons(&plan).contains("of the faster kind"), "{plan:#}");
    let said = refused("hybrid", &["--cpus", "3"]);
    assert!(said.contains("held by the isolated partition /audio.slice already"), "{said}");
    // A sibling that names these CPUs would make the partition invalid on older kernels.
    let steps = plan["steps"].as_array().unwrap();
    let narrowed = steps.iter().any(|step| {
        step["action"]["path"] == "/sys/fs/cgroup/user.slice/cpuset.cpus"
            && step["action"]["value"] == "4-5,8-15"
            && step["old"] == "4-15"
    });
    assert!(narrowed, "{plan:#}");
    let managed = steps.iter().any(|step| step["action"]["number"] == 124);
    assert!(!managed && findings(&plan).contains(&"plan.irq-immovable"), "{plan:#}");
}

#[test]
fn where_the_chains_interrupt_is_stuck_the_chain_is_put() {
    let alone = planned("pi2", &[]);
    assert_eq!(alone["shield"]["cpus"], "3");
    let dir = tempfile::tempdir().unwrap();
    let chain = dir.path().join("usb.toml");
    let text = "[[link]]\nname = \"dac\"\nirq = { action = \"dwc_otg_hcd:usb1\" }\npriority = 85\n";
    std::fs::write(&chain, text).unwrap();
    let plan = planned("pi2", &[chain.to_str().unwrap()]);
    assert_eq!(plan["shield"]["cpus"], "0", "{plan:#}");
    assert!(reasons(&plan).contains("the chain's own interrupt cannot be moved"), "{plan:#}");
}

#[test]
fn a_chain_is_placed_link_by_link_with_rising_priorities() {
    let dir = tempfile::tempdir().unwrap();
    let chain = dir.path().join("room.toml");
    std::fs::write(
        &chain,
        "[chain]\ncpus = \"6-7\"\n\
         [[link]]\nname = \"player\"\nprocess = \"cron\"\ncpus = \"6\"\npriority = 75\n\
         [[link]]\nname = \"output\"\nirq = { card = \"USB\" }\ncpus = \"7\"\npriority = 85\n",
    )
    .unwrap();
    let plan = planned("hybrid", &[chain.to_str().unwrap()]);
    let steps = plan["steps"].as_array().unwrap();
    let of = |what: &str| -> Vec<&Value> {
        steps.iter().map(|step| &step["action"]).filter(|action| action["do"] == what).collect()
    };
    let usb = of("irq").into_iter().find(|irq| irq["number"] == 130).unwrap();
    assert_eq!(usb["cpus"], "7");
    assert_eq!(of("enter")[0]["thread"]["comm"], "cron");
    assert_eq!(of("pin")[0]["cpus"], "6");
    assert_eq!(of("schedule")[0]["to"]["priority"], 75);
    // The last one, so that it is let go first.
    assert_eq!(steps.last().unwrap()["action"]["do"], "hold_latency");
}

#[test]
fn a_loop_that_never_sleeps_has_its_guards_taken_away_knowingly() {
    let plan = planned("hybrid", &["--never-sleep"]);
    assert!(findings(&plan).contains(&"plan.guards-go"), "{plan:#}");
    let text = plan["steps"].to_string();
    assert!(text.contains("sched_rt_runtime_us") && text.contains("fair_server/cpu6/runtime"));
    assert!(findings(&planned("hybrid", &[])).contains(&"plan.guards-stay"));
}
