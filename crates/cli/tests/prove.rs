//! `prove` on the machine that runs the tests: whatever ends it, the machine is as it was.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;

use machine::{Capture, Machine, PROGRAM, text};
use quiet_types::{
    Proof,
    lot::Lot,
    proof::{Setting, Verdict},
};
use rustix::process::Signal;
use std::{
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

/// As short as a proof can be and still measure.
fn short(machine: &Machine, pairs: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["prove", "--pairs", pairs, "--for", "200ms", "--gap", "100ms"]);
    command.args(["--stress", "dentry", "--json", "--cpus", &machine.cpu.to_string()]);
    command.arg("--state").arg(machine.state());
    command.arg("--store").arg(machine.dir().join("store"));
    command.stdin(Stdio::null());
    command
}

/// Waits until a shield stands.
fn until_shielded(machine: &Machine, child: &mut Child) {
    for _ in 0..6_000 {
        if text(&machine.run("status")).contains("is up since") {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "prove ended before it put up a shield");
        sleep(Duration::from_millis(20));
    }
    panic!("no shield in 120 s");
}

fn signal(child: &Child, which: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), which).unwrap();
}

#[test]
fn two_settings_are_measured_in_turn_and_the_machine_is_as_it_was() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let output = short(&machine, "2").args(["--explain", "--seed", "8"]).output().unwrap();
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    // Two pairs never make a verdict.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let proof: Proof = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(proof.verdict, Verdict::NotShown);
    let settings: Vec<_> = proof.arms.iter().map(|arm| (arm.pair, arm.setting)).collect();
    let (a, b) = (Setting::Shared, Setting::Shielded);
    let lot = proof.lot.unwrap();
    assert_eq!((lot.seed, lot.pairs), (8, 2));
    let pair =
        |pair| if lot.shared_first(pair) { [(pair, a), (pair, b)] } else { [(pair, b), (pair, a)] };
    assert_eq!(settings, [pair(0), pair(1)].concat());
    assert!(proof.commands[0].contains("--seed 8"), "{}", proof.commands[0]);
    for arm in &proof.arms {
        let thread = &arm.wakeup.threads[0];
        assert_eq!(thread.expected, Some(1000));
        assert_eq!(thread.expected, Some(thread.obtained + thread.missed.unwrap()));
        assert_eq!(thread.allowed.as_ref().unwrap().to_string(), machine.cpu.to_string());
        assert_eq!(arm.wakeup.entry.is_some(), arm.setting == b);
        let explained = arm.wakeup.explained.as_ref().unwrap();
        assert_eq!((&explained.run, explained.cpus.len()), (&arm.wakeup.id, 1));
        let stress = arm.wakeup.stress.as_ref().unwrap();
        assert_eq!(stress.cpus.contains(quiet_types::CpuId(machine.cpu)), arm.setting == a);
    }
    assert!(proof.restored.unwrap().exact);
    assert!(proof.shield.unwrap().steps.iter().any(|step| step.outcome.holds()));
    let kept = machine.dir().join("store/proofs").join(&proof.id);
    assert!(kept.join("proof.json").exists() && kept.join("report.html").exists());
}

#[test]
fn ended_by_a_signal_it_puts_the_machine_back_and_judges_what_there_is() {
    let Some(machine) = Machine::take() else { return };
    // One by whose lot something is measured before the first shield.
    let seed =
        (0..).find(|seed| Lot { seed: *seed, pairs: 50 }.shared_first(0)).unwrap().to_string();
    for which in [Signal::INT, Signal::TERM] {
        let before = Capture::take();
        let mut proof = short(&machine, "50");
        let mut child = proof.args(["--seed", &seed]).stdout(Stdio::piped()).spawn().unwrap();
        until_shielded(&machine, &mut child);
        signal(&child, which);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{which:?}");
        let proof: Proof = serde_json::from_slice(&output.stdout).unwrap();
        assert!(proof.interrupted && proof.verdict == Verdict::NotShown);
        assert!(proof.sentence.starts_with("Interrupted: none is given"), "{}", proof.sentence);
        assert_eq!(before.differences(&Capture::take()), Vec::<String>::new(), "{which:?}");
    }
}

#[test]
fn killed_under_a_shield_it_is_found_and_reverted() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut child = short(&machine, "50").stdout(Stdio::null()).spawn().unwrap();
    until_shielded(&machine, &mut child);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    // Its guard is at work, or done: who comes next is refused with the way on, or finds the machine as it was.
    let again = short(&machine, "1").output().unwrap();
    match again.status.code() {
        Some(1) => {}
        Some(2) => assert!(text(&again).contains("quietcores revert"), "{}", text(&again)),
        _ => panic!("{}", text(&again)),
    }
    machine.revert_to(&before, "killed");
}

#[test]
fn without_root_only_the_stress_is_kept_off_and_said_so() {
    if quiet_testing::left_out("15 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    // A place that nobody may write to, in a directory that nobody may enter but by this path.
    let dir = quiet_testing::public_folder();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let program = dir.path().join("quietcores");
    quiet_testing::copy_program(PROGRAM, &program);
    let before = Capture::take();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg(&program).args(["prove", "--pairs", "1", "--for", "200ms", "--gap", "0s"]);
    command.args(["--stress", "dentry", "--json", "--cpus", &machine.cpu.to_string()]);
    command.arg("--store").arg(dir.path().join("store")).current_dir(dir.path());
    command.env("TMPDIR", dir.path()).env("HOME", dir.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let proof: Proof = serde_json::from_slice(&output.stdout).unwrap();
    assert!(proof.arms.iter().any(|arm| arm.setting == Setting::Confined));
    assert!(proof.findings.iter().any(|finding| finding.id == "prove.not_root"));
    assert!(proof.shield.is_none() && proof.restored.is_none());
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn what_cannot_be_written_later_is_refused_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("mine.html");
    std::fs::write(&page, "not a page of quietcores").unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["prove", "--html"]).arg(&page).arg("--store").arg(dir.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("did not write"), "{}", text(&output));
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "not a page of quietcores");
}

#[test]
fn a_stress_that_cannot_be_started_is_refused_before_a_shield_is_put_up() {
    let Some(machine) = Machine::take() else { return };
    // No program is found there.
    let output = short(&machine, "2").env("PATH", machine.dir()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("stress-ng is not installed"), "{said}");
    let left = std::fs::read_dir(machine.state()).map_or(0, |files| files.count());
    assert_eq!(left, 0, "a shield was put up: its journal is there");
}
