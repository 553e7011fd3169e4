//! `lend`, on the machine that runs the tests: it needs root and two CPUs.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, soon, text};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

fn lend(machine: &Machine, words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("lend").arg("--state").arg(machine.state()).args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

fn status(machine: &Machine) -> Value {
    let out = Command::new(PROGRAM)
        .args(["status", "--json", "--state"])
        .arg(machine.state())
        .output()
        .unwrap();
    serde_json::from_slice(&out.stdout).unwrap()
}

fn up(machine: &Machine) {
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
}

fn lent(machine: &Machine, words: &[&str]) {
    let out = lend(machine, words);
    assert_eq!(out.status.code(), Some(0), "{words:?}: {}", text(&out));
}

/// Whether what is started now may run on the shield.
fn is_everybodys(machine: &Machine) -> bool {
    let seen = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let seen = text(&seen);
    let cpus = seen.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let cpus: quiet_types::CpuSet = cpus.trim().parse().unwrap();
    cpus.iter().any(|cpu| cpu.0 == machine.cpu)
}

fn guard(machine: &Machine) -> Pid {
    let pid = status(machine)["loan"]["guard"].as_i64().unwrap();
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

#[test]
fn the_cpus_come_back_by_time_by_hand_and_by_who_plays() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let none = lend(&machine, &[]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none).contains("no shield is up"), "{}", text(&none));
    up(&machine);
    assert!(!is_everybodys(&machine));
    let nothing = lend(&machine, &["--return"]);
    assert!(text(&nothing).contains("No CPU is lent"), "{}", text(&nothing));

    lent(&machine, &["--for", "1s"]);
    soon("the end of a second", || status(&machine)["loan"].is_null());
    assert!(!is_everybodys(&machine));

    // By hand, and at once again: the guard of the first loan is on its way out, or not.
    for _ in 0..4 {
        lent(&machine, &["--for", "1h"]);
        assert!(is_everybodys(&machine));
        let now = status(&machine);
        assert_eq!((&now["state"], &now["drift"]), (&"up".into(), &serde_json::json!([])));
        assert_eq!(now["residents"], serde_json::json!([]), "everybody may be there");
        assert!(now["loan"]["guard"].is_u64(), "{now}");
        let said = text(&machine.run("status"));
        assert!(said.contains("everybody's for 1 h"), "{said}");
        let back = lend(&machine, &["--return"]);
        assert_eq!(back.status.code(), Some(0), "{}", text(&back));
        assert!(!is_everybodys(&machine));
    }

    lent(&machine, &["--until-sound"]);
    let play = ["play", "--host", "null", "--mode", "sleep", "--for", "100ms", "--control", "none"];
    let played = Command::new(PROGRAM).args(play).arg("--state").arg(machine.state()).output();
    let played = played.unwrap();
    assert!(matches!(played.status.code(), Some(0 | 1)), "{}", text(&played));
    assert!(!is_everybodys(&machine));
    assert!(status(&machine)["loan"].is_null());

    // A revert of a lent shield.
    lent(&machine, &["--for", "1h"]);
    let guard = guard(&machine);
    machine.revert_to(&before, "while lent");
    let file = format!("/proc/{}/stat", guard.as_raw_nonzero());
    soon("the guard's end", || !Path::new(&file).exists());
}

#[test]
fn a_command_has_them_as_long_as_it_runs() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    up(&machine);
    let words = ["--", "sh", "-c", "grep Cpus_allowed_list /proc/self/status; exit 7"];
    let out = lend(&machine, &words);
    assert_eq!(out.status.code(), Some(7), "{}", text(&out));
    let list = text(&out);
    let cpus = list.split_ascii_whitespace().nth(1).unwrap();
    let cpus: quiet_types::CpuSet = cpus.parse().unwrap();
    assert!(cpus.iter().any(|cpu| cpu.0 == machine.cpu), "{list}");
    assert!(!is_everybodys(&machine) && status(&machine)["loan"].is_null());
    let none = lend(&machine, &["--", "/not/there"]);
    assert_eq!(none.status.code(), Some(2), "{}", text(&none));
    assert!(!is_everybodys(&machine));

    // Killed, it is the guard that takes them back.
    let mut command = Command::new(PROGRAM);
    command.arg("lend").arg("--state").arg(machine.state()).args(["--", "sleep", "600"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    soon("the loan", || status(&machine)["loan"]["guard"].is_u64() && is_everybodys(&machine));
    let pid = child.id();
    let own = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    soon("the end of the loan", || status(&machine)["loan"].is_null());
    // What it had started runs on; nobody is to wait for it.
    for pid in own.split_ascii_whitespace() {
        // The guard is one of them, and may have ended.
        let killed = kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL);
        assert!(matches!(killed, Ok(()) | Err(Errno::SRCH)), "{killed:?}");
    }
    assert!(!is_everybodys(&machine));
    machine.revert_to(&before, "after commands");
}

#[test]
fn where_its_guard_was_killed_the_next_command_takes_them_back() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    up(&machine);
    lent(&machine, &["--for", "1h"]);
    kill_process(guard(&machine), Signal::KILL).unwrap();
    soon("the guard's end", || status(&machine)["loan"]["guard"].is_null());
    let said = text(&machine.run("status"));
    assert!(said.contains("quietcores lend --return"), "{said}");
    let next = machine.run("confirm");
    assert_eq!(next.status.code(), Some(0), "{}", text(&next));
    assert!(status(&machine)["loan"].is_null());
    assert!(!is_everybodys(&machine));
    machine.revert_to(&before, "after its guard was killed");
}

#[test]
fn of_programs_that_lend_at_one_instant_each_loan_is_whole() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    up(&machine);
    for turn in 0..3 {
        let begin = |seconds: u32| {
            let mut command = Command::new(PROGRAM);
            command.arg("lend").arg("--state").arg(machine.state());
            command.args(["--for", &format!("{seconds}s")]).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let lenders: Vec<_> = (0..5).map(|one| begin(3600 + one)).collect();
        let ended: Vec<_> =
            lenders.into_iter().map(|one| one.wait_with_output().unwrap()).collect();
        let codes: Vec<_> = ended.iter().map(|one| one.status.code()).collect();
        assert!(codes.contains(&Some(0)), "turn {turn}: {codes:?} {}", text(&ended[0]));
        // Who came while another was at it says so.
        for one in ended.iter().filter(|one| one.status.code() != Some(0)) {
            assert!(text(one).contains("is changing this machine"), "turn {turn}: {}", text(one));
        }
        let now = status(&machine);
        assert!(now["loan"]["guard"].is_u64() && is_everybodys(&machine), "turn {turn}: {now}");
        let back = lend(&machine, &["--return"]);
        assert_eq!(back.status.code(), Some(0), "turn {turn}: {}", text(&back));
        assert!(status(&machine)["loan"].is_null() && !is_everybodys(&machine), "turn {turn}");
    }
    machine.revert_to(&before, "after five at a time");
}

#[test]
#[cfg(debug_assertions)]
fn killed_at_every_act_a_revert_puts_all_back() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    for act in 1.. {
        up(&machine);
        let mut command = Command::new(PROGRAM);
        command.arg("lend").arg("--state").arg(machine.state()).args(["--for", "1h"]);
        command.env("QUIETCORES_FAULT", format!("kill:{act}")).stdin(Stdio::null());
        let out = command.output().unwrap();
        if act % 2 == 0 && out.status.code().is_none() {
            let next = machine.run("confirm");
            assert_eq!(next.status.code(), Some(0), "act {act}: {}", text(&next));
        }
        machine.revert_to(&before, &format!("killed at act {act}"));
        if out.status.code().is_some() {
            // A loan on cgroup v2 is its record and one write; on v1 there are more groups.
            let v2 = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
            let least = if v2.is_ok_and(|all| all.contains("cpuset")) { 2 } else { 3 };
            assert!(act > least, "killed at {} acts only", act - 1);
            break;
        }
    }
}
