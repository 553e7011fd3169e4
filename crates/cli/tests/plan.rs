//! Plans for machines of other kinds, read from their captured files.
#![allow(clippy::unwrap_used)] // a test may

use serde_json::Value;
use std::process::{Command, Output};

fn plan(machine: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["plan", "--json", "--root"])
        .arg(quiet_testing::tree::fixture("machines").join(machine))
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
    assert!(said.contains("held by the partition /audio.slice already"), "{said}");
    // A sibling that names these CPUs is narrowed only where the kernel refuses the claim beside it.
    let steps = plan["steps"].as_array().unwrap();
    let narrowed = steps.iter().any(|step| {
        let narrow = &step["action"]["narrow"][0];
        narrow["path"] == "/sys/fs/cgroup/user.slice/cpuset.cpus"
            && narrow["value"] == "4-5,8-15"
            && narrow["old"] == "4-15"
    });
    assert!(narrowed, "{plan:#}");
    assert!(findings(&plan).contains(&"plan.unit-names-shield"), "{plan:#}");
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
fn of_two_memory_nodes_the_one_of_the_card_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let chosen = |link: &str| {
        let chain = dir.path().join("node.toml");
        std::fs::write(&chain, format!("[[link]]\nname = \"one\"\n{link}\npriority = 85\n"))
            .unwrap();
        let plan = planned("numa2", &[chain.to_str().unwrap()]);
        (plan["shield"]["cpus"].as_str().unwrap().to_owned(), reasons(&plan))
    };
    // Even numbers are on node 0, with the sound card; odd ones on node 1, with the network.
    let (cpus, why) = chosen("irq = { card = \"HDSPMx579bcc\" }");
    assert!(cpus == "6" && why.contains("on the memory node of the chain's card"), "{cpus} {why}");
    let (cpus, why) = chosen("irq = { net = \"eth0\" }");
    assert!(cpus == "7" && why.contains("on the memory node of the chain's card"), "{cpus} {why}");
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

fn written<'a>(plan: &'a Value, path: &str) -> Option<&'a str> {
    let steps = plan["steps"].as_array().unwrap().iter();
    let mut found = steps.filter(|step| step["action"]["path"] == path);
    found.next().map(|step| step["action"]["value"].as_str().unwrap())
}

#[test]
fn the_two_modes_take_different_steps_knowingly() {
    let sleeping = planned("hybrid", &[]);
    let spinning = planned("hybrid", &["--never-sleep"]);
    let governor = "/sys/devices/system/cpu/cpu6/cpufreq/scaling_governor";
    let resume = "/sys/devices/system/cpu/cpu6/power/pm_qos_resume_latency_us";
    for plan in [&sleeping, &spinning] {
        assert_eq!(written(plan, governor), Some("performance"), "{plan:#}");
    }
    assert_eq!(written(&sleeping, resume), Some("n/a"), "{sleeping:#}");
    assert_eq!(written(&spinning, resume), None, "{spinning:#}");
    assert!(reasons(&sleeping).contains("The chain sleeps between periods"), "{sleeping:#}");
    assert!(reasons(&spinning).contains("The core never sleeps"), "{spinning:#}");
    let dir = tempfile::tempdir().unwrap();
    let chain = dir.path().join("spin.toml");
    std::fs::write(&chain, "[chain]\nmode = \"never-sleep\"\n").unwrap();
    let by_file = planned("hybrid", &[chain.to_str().unwrap()]);
    assert_eq!(by_file["steps"], spinning["steps"]);
}

#[test]
fn siblings_are_switched_off_on_request() {
    let plan = planned("ryzen1700", &["--cpus", "9", "--smt-off"]);
    assert_eq!(plan["shield"]["housekeeping"], "0-7,10-15");
    assert_eq!(written(&plan, "/sys/devices/system/cpu/cpu8/online"), Some("0"), "{plan:#}");
    assert!(!findings(&plan).contains(&"plan.split-core"), "{plan:#}");
}

#[test]
fn a_usb_card_and_its_hub_stay_awake() {
    let dir = tempfile::tempdir().unwrap();
    let chain = dir.path().join("room.toml");
    std::fs::write(&chain, "[[link]]\nname = \"out\"\nirq = { card = \"USB\" }\npriority = 85\n")
        .unwrap();
    let plan = planned("hybrid", &[chain.to_str().unwrap()]);
    let hub = "/sys/devices/pci0000:00/0000:00:14.0/usb1";
    for device in [hub.to_owned(), format!("{hub}/1-3")] {
        assert_eq!(written(&plan, &format!("{device}/power/control")), Some("on"), "{plan:#}");
    }
}
