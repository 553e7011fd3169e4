//! `tune` on the machine that runs the tests: a verdict for every step, and whatever ends it, the machine is as it was.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;

use machine::{Capture, Machine, PROGRAM, read, text};
use quiet_types::tune::{BlockPart, StepSays, Tuned};
use rustix::process::Signal;
use std::{
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::{scope, sleep},
    time::Duration,
};

/// Of no use to latency, and nobody else's.
const IDLE: &str = "/proc/sys/fs/lease-break-time";

/// As short as a tune can be and still measure.
fn short(machine: &Machine) -> Command {
    with(machine, &[])
}

/// The same, with `more` in place of what stands there usually.
fn with(machine: &Machine, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["tune", "--json"]);
    let cpu = machine.cpu.to_string();
    for (name, value) in
        [("--for", "15s"), ("--block", "50ms"), ("--stress", "none"), ("--cpus", &cpu)]
    {
        if !more.contains(&name) {
            command.args([name, value]);
        }
    }
    command.args(more);
    command.arg("--state").arg(machine.state());
    command.arg("--store").arg(machine.dir().join("store"));
    command.stdin(Stdio::null());
    command
}

/// `FILE=VALUE` with another value than it has.
fn another(path: &str) -> String {
    format!("{path}={}", read(path).trim().parse::<u64>().unwrap() + 1)
}

fn until_shielded(machine: &Machine, child: &mut Child) {
    for _ in 0..6_000 {
        if text(&machine.run("status")).contains("is up since") {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "tune ended before it put up a shield");
        sleep(Duration::from_millis(20));
    }
    panic!("no shield in 120 s");
}

fn signal(child: &Child, which: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), which).unwrap();
}

#[test]
fn every_step_has_a_verdict_and_a_step_that_somebody_undoes_is_void() {
    if quiet_testing::left_out("16 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    if read(IDLE).is_empty() {
        let why = format!("{IDLE} cannot be read");
        return quiet_testing::skip(quiet_testing::Why::Machine(why));
    }
    let (before, old) = (Capture::take(), read(IDLE));
    let (page, chain) = (machine.dir().join("tune.html"), machine.dir().join("tuned.toml"));
    let done = AtomicBool::new(false);
    let output = scope(|threads| {
        // Somebody who puts the value back as soon as it is another one.
        threads.spawn(|| {
            // Not the first time, when it is looked at whether it can be had at all.
            let (mut times, mut was) = (0, false);
            while !done.load(Ordering::Relaxed) {
                let is = read(IDLE) != old;
                times += u32::from(is && !was);
                was = is;
                if is && times > 1 {
                    let _ = std::fs::write(IDLE, &old);
                }
                sleep(Duration::from_millis(5));
            }
        });
        let mut command = short(&machine);
        command.args(["--try", &another(IDLE), "--keep-off", "stat_interval", "--seed", "8"]);
        command.arg("--html").arg(&page).arg("--output").arg(&chain);
        let output = command.output();
        done.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("fewer than 5"), "the family's level is stated: {said}");
    let tuned: Tuned = serde_json::from_slice(&output.stdout).unwrap();
    assert!(tuned.restored.as_ref().unwrap().exact, "{:?}", tuned.restored);
    let step = |name: &str| tuned.steps.iter().find(|step| step.factor.name == name);
    assert!(tuned.steps.len() >= 3, "{:?}", tuned.steps);
    let undone = step("lease-break-time").unwrap();
    assert_eq!(undone.says, StepSays::Void);
    assert!(undone.void * 2 > tuned.design.pairs && !undone.kept, "{}", undone.void);
    // What was forbidden is told, and was never in force.
    assert!(step("stat_interval").is_none());
    assert!(tuned.left_out.iter().any(|left| left.what == "stat_interval"), "{:?}", tuned.left_out);
    assert!(tuned.blocks.iter().all(|block| !block.on.iter().any(|on| on == "stat_interval")));
    // Each step is on in one block of every pair, and off in the other.
    let screening: Vec<_> =
        tuned.blocks.iter().filter(|block| block.part == BlockPart::Screening).collect();
    assert_eq!(screening.len(), 2 * tuned.design.pairs as usize);
    for pair in screening.chunks(2) {
        for step in &tuned.steps {
            let asked = |nth: usize| {
                let block = pair[nth];
                block.on.iter().chain(&block.void).any(|name| *name == step.factor.name)
            };
            assert_ne!(asked(0), asked(1), "{}", step.factor.name);
        }
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("What each step does"));
    let plan = Command::new(PROGRAM).arg("plan").arg(&chain).output().unwrap();
    assert!(plan.status.success(), "{}", text(&plan));
    let kept = machine.dir().join("store/tunes").join(format!("{}.json", tuned.head.id));
    assert!(kept.exists());
    let mut runs = Command::new(PROGRAM);
    runs.args(["runs", "--store"]).arg(machine.dir().join("store"));
    assert!(text(&runs.output().unwrap()).contains("lease-break-time"));
    let mut report = Command::new(PROGRAM);
    report.args(["report", "last", "--force", "-o"]).arg(&page);
    report.arg("--store").arg(machine.dir().join("store"));
    let report = report.output().unwrap();
    assert!(report.status.success(), "{}", text(&report));
}

#[test]
fn killed_under_a_shield_the_machine_is_put_back() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut child = short(&machine).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until_shielded(&machine, &mut child);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    machine.revert_to(&before, "killed");
}

#[test]
fn ended_by_a_signal_it_judges_what_there_is() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut child = short(&machine).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until_shielded(&machine, &mut child);
    // Past the first look, so that there is a block.
    sleep(Duration::from_secs(3));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    match output.status.code() {
        Some(0 | 1) => {
            let tuned: Tuned = serde_json::from_slice(&output.stdout).unwrap();
            assert!(tuned.restored.unwrap().exact);
        }
        // On a busy machine nothing may have been measured yet.
        code => assert_eq!(code, Some(2), "{}", text(&output)),
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_changed() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    for (more, word) in [
        (vec!["--keep-off", "no-such-step"], "no step here is called no-such-step"),
        (vec!["--try", "/etc/passwd=x"], "below /proc/sys or /sys"),
        (vec!["--try", "/proc/sys/../../etc/passwd=x"], "below /proc/sys or /sys"),
        (vec!["--try", "/proc/sys/vm/no-such-file=1"], "not there"),
        (vec!["--try", "/proc/sys/vm/stat_interval=7"], "is tried already"),
        (vec!["--margin", "0.5"], "the margin is 0.5"),
        (vec!["--for", "1s"], "too little"),
        (vec!["--block", "1ms"], "a block is measured for"),
        (vec!["--stress", "no-such-stress"], "no-such-stress"),
        (vec!["--choose", "cpu", "--cpus", "4095"], "4095"),
        (vec!["--probe", "player", "--player", "/nowhere/play.sock"], "cannot ask the player"),
        (vec!["--boot", "root=/dev/other"], "is not switched"),
        (vec!["--boot", "systemd.unit=rescue.target"], "is not switched"),
        (vec!["--boot", "threadirqs quiet"], "no plain word"),
        (vec!["--boot", "preempt=full", "preempt=none"], "named twice"),
        (vec!["--boot", "--boots", "5"], "in pairs"),
        (vec!["--boot", "--blocks", "0"], "1 to 1000 blocks"),
        (vec!["--boot-end"], "no tune of boot parameters is under way"),
        (vec!["--boot-go-on"], "no tune of boot parameters is under way"),
    ] {
        let output = with(&machine, &more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", text(&output));
        assert!(text(&output).contains(word), "{more:?}: {}", text(&output));
    }
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn of_boots_there_is_nothing_where_none_were_asked_for_and_what_is_torn_is_refused() {
    let Some(machine) = Machine::take() else { return };
    let status = || {
        let mut command = Command::new(PROGRAM);
        command.args(["tune", "--boot-status", "--state"]).arg(machine.state()).output().unwrap()
    };
    assert_eq!(status().status.code(), Some(0));
    assert!(text(&status()).contains("No tune of boot parameters is under way"));
    let room = machine.state().join("tune-boot");
    std::fs::create_dir_all(&room).unwrap();
    for (content, word) in [
        (r#"{"schema":"quietcores.boot-tune/1","id":"#, "cannot understand"),
        (r#"{"schema":"x"}"#, "cannot understand"),
    ] {
        std::fs::write(room.join("tune.json"), content).unwrap();
        let output = status();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(word), "{}", text(&output));
    }
}

#[test]
fn what_plays_is_asked_while_the_steps_come_and_go() {
    if quiet_testing::left_out("16 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let socket = machine.dir().join("play.sock");
    let mut player = Command::new(PROGRAM)
        .args(["play", "--host", "null", "--period", "256", "--mode", "sleep", "--control"])
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    quiet_testing::until("a player that listens", || {
        assert!(player.try_wait().unwrap().is_none(), "the player ended");
        std::os::unix::net::UnixStream::connect(&socket).ok()
    });
    let socket = socket.display().to_string();
    let output = with(&machine, &["--probe", "player", "--player", &socket]).output().unwrap();
    signal(&player, Signal::INT);
    player.wait().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
    let tuned: Tuned = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tuned.design.responses[0].id, "player.lost");
    let told = tuned.blocks.iter().filter(|block| block.values.len() == 2).count();
    assert!(told * 2 > tuned.blocks.len(), "{told} of {}", tuned.blocks.len());
    assert!(tuned.blocks.iter().flat_map(|block| &block.values).all(|one| one.half > 0.0));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn the_best_of_a_choice_is_told_and_the_machine_is_as_it_was() {
    if quiet_testing::left_out("50 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    for what in ["priority", "mode", "period"] {
        let output = short(&machine).args(["--choose", what]).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
        let tuned: Tuned = serde_json::from_slice(&output.stdout).unwrap();
        let choice = &tuned.choices[0];
        assert_eq!(choice.what, what);
        // An emulated processor has time for fewer.
        let least = if quiet_testing::in_lab() { 1 } else { 6 };
        assert!(choice.tried.iter().any(|one| one.blocks >= least), "{choice:?}");
        assert!(tuned.steps.is_empty() && tuned.restored.unwrap().exact);
    }
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn the_steps_of_this_machine_are_listed_without_any_right() {
    let output = Command::new(PROGRAM).args(["tune", "--list", "--json"]).output().unwrap();
    // A machine of one CPU has no plan.
    let online: quiet_types::CpuSet = read("/sys/devices/system/cpu/online").parse().unwrap();
    if online.len() > 1 {
        assert!(output.status.success(), "{}", text(&output));
        let list: quiet_types::said::FactorList = serde_json::from_slice(&output.stdout).unwrap();
        assert!(!list.factors.is_empty());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
        assert!(list.factors.iter().all(|factor| factor.name.chars().all(plain)), "{list:?}");
    } else {
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    }
}
