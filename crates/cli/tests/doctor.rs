//! `quietcores doctor`: it offers what `check` finds and `plan` has steps for, does what is agreed to, and `revert` takes it back.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, read, text};
use quiet_testing::{
    Why,
    bus::{STRANGER, as_user},
    copy_program, skip,
};
use quiet_types::{
    Plan,
    check::Checked,
    doctor::{Doctored, Mend, MendAnswer, MendWay},
    plan::Action,
};
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

fn run(arguments: &[&str], answers: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it has heard all.
    let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
    child.wait_with_output().unwrap()
}

fn json<T: serde::de::DeserializeOwned>(output: &Output) -> T {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

/// The oracles are `check` and `plan`.
#[test]
fn on_every_machine_it_offers_what_check_finds_by_steps_that_plan_has() {
    for name in ["corei7-64", "hybrid", "nuc", "numa2", "pi2", "ryzen1700", "vm2"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/machines").join(name);
        let root = ["--root", dir.to_str().unwrap(), "--json"];
        let done = run(&[&["doctor"], &root[..]].concat(), "");
        assert!(matches!(done.status.code(), Some(0 | 1)), "{name}: {}", text(&done));
        let doctored: Doctored = json(&done);
        let checked: Checked = json(&run(&[&["check"], &root[..]].concat(), ""));
        let found: Vec<_> = doctored.mended.iter().map(|one| one.mend.finding.clone()).collect();
        assert_eq!(found, checked.findings, "{name}");
        let plan: Plan = json(&run(&[&["plan"], &root[..]].concat(), ""));
        let mut offered = 0;
        for one in &doctored.mended {
            assert_eq!((one.answer, one.still_there), (MendAnswer::NotAsked, None));
            let MendWay::Steps { steps, .. } = &one.mend.way else { continue };
            offered += 1;
            let known = |what: &str| what == "/proc/sys/vm/swappiness";
            for step in steps {
                assert!(
                    plan.steps.contains(step) || known(&step.action.what()),
                    "{name}: {step:?}"
                );
            }
        }
        assert!(offered > 0, "{name}: nothing is offered");
        let said = text(&run(&["doctor", root[0], root[1]], ""));
        assert!(said.contains("mended now"), "{said}");
    }
}

/// A setting that stands in the way, until it is dropped.
struct Spoilt(&'static str, String);

impl Spoilt {
    fn new(path: &'static str, value: &str) -> Option<Spoilt> {
        let was = fs::read_to_string(path).ok()?;
        fs::write(path, value).ok()?;
        Some(Spoilt(path, was))
    }
}

impl Drop for Spoilt {
    fn drop(&mut self) {
        fs::write(self.0, &self.1).unwrap();
    }
}

/// Yes to those mends, no to all else that is asked about; the order is that of the questions.
fn answers(listed: &Doctored, shields: bool, yes: impl Fn(&Mend) -> bool) -> String {
    let is_shield = |mend: &Mend| matches!(mend.way, MendWay::Steps { shield: true, .. });
    let mut asked: Vec<&Mend> = listed.mended.iter().map(|one| &one.mend).collect();
    asked.retain(|mend| matches!(mend.way, MendWay::Steps { .. }) && (shields || !is_shield(mend)));
    asked.sort_by_key(|mend| (!is_shield(mend), mend.finding.id != "irq.balance"));
    asked.iter().map(|mend| if yes(mend) { "y\n" } else { "n\n" }).collect()
}

/// The single settings that a mend writes, where it does nothing else.
fn writes(mend: &Mend) -> Option<Vec<(String, String)>> {
    let MendWay::Steps { steps, shield: false } = &mend.way else { return None };
    let one = |step: &quiet_types::plan::Step| match &step.action {
        Action::Write { path, value, .. } if !path.contains("/transparent_hugepage/") => {
            Some((path.clone(), value.clone()))
        }
        _ => None,
    };
    steps.iter().map(one).collect()
}

const TIMERS: &str = "/proc/sys/kernel/timer_migration";

#[test]
fn settings_are_mended_one_by_one_taken_back_one_by_one_and_put_back_together() {
    let Some(machine) = Machine::take() else { return };
    let Some(_timers) = Spoilt::new(TIMERS, "0") else {
        return skip(Why::Machine("this kernel has no timer_migration".into()));
    };
    let state = machine.state().to_str().unwrap().to_owned();
    let swappiness = read("/proc/sys/vm/swappiness");
    let before = Capture::take();
    let usual = ["doctor", "--json", "--state", state.as_str()];
    let list = || json::<Doctored>(&run(&[&usual[..], &["--dry-run"]].concat(), ""));
    let listed = list();
    let wanted: Vec<(String, String)> =
        listed.mended.iter().filter_map(|one| writes(&one.mend)).flatten().collect();
    assert!(wanted.iter().any(|(path, _)| path == TIMERS), "{wanted:?}");
    let done = run(&usual, &answers(&listed, true, |mend| writes(mend).is_some()));
    let doctored: Doctored = json(&done);
    let applied = doctored.applied.unwrap_or_else(|| panic!("{}", text(&done)));
    assert!(applied.shield.cpus.is_empty());
    let held = |path: &str| {
        let mut steps = applied.steps.iter();
        steps.any(|taken| taken.step.action.what() == path && taken.outcome.holds())
    };
    assert!(held(TIMERS), "{applied:?}");
    let hold = |but: &str| {
        for (path, value) in wanted.iter().filter(|(path, _)| held(path) && path != but) {
            assert_eq!(read(path).trim(), value, "{path}");
        }
    };
    hold("");
    let taken = doctored.mended.iter().filter(|one| one.answer == MendAnswer::Taken);
    assert!(taken.clone().count() > 0 && taken.clone().any(|one| one.still_there == Some(false)));
    let status = text(&machine.run("status"));
    assert!(status.contains("A set of single settings"), "{status}");

    // One of them is taken back, and the others stay.
    let undo = [&usual[..], &["--undo", "noise.timers"]].concat();
    let undone = run(&undo, "");
    assert_eq!(undone.status.code(), Some(0), "{}", text(&undone));
    let steps = json::<Doctored>(&undone).undone;
    assert_eq!(steps.iter().map(|one| one.step.action.what()).collect::<Vec<_>>(), [TIMERS]);
    assert_eq!(read(TIMERS).trim(), "0");
    hold(TIMERS);
    let status = text(&machine.run("status"));
    assert!(!status.contains("timer_migration"), "it is as it was, and no drift: {status}");
    let twice = run(&undo, "");
    assert_eq!(twice.status.code(), Some(2), "{}", text(&twice));
    assert!(text(&twice).contains("no mend of `noise.timers` is up"), "{}", text(&twice));

    // It is offered again, and added to what is up; who stops in the middle has what was up.
    let listed = list();
    let timers = |mend: &Mend| mend.finding.id == "noise.timers";
    let all = answers(&listed, false, timers);
    let until = all.find('y').unwrap() + 2;
    let cut = run(&usual, &all[..until]);
    if until < all.len() {
        assert_eq!(cut.status.code(), Some(2), "{}", text(&cut));
        assert!(text(&cut).contains("nothing on this machine is changed"), "{}", text(&cut));
        assert_eq!(read(TIMERS).trim(), "0");
        hold(TIMERS);
    }
    let again: Doctored = json(&run(&usual, &all));
    let offered =
        again.mended.iter().any(|one| matches!(one.mend.way, MendWay::Steps { shield: true, .. }));
    assert_eq!(again.findings.iter().any(|one| one.id == "doctor.shield_up"), offered);
    assert_eq!(read(TIMERS).trim(), "1");
    machine.revert_to(&before, "after single settings");
    assert_eq!(read("/proc/sys/vm/swappiness"), swappiness);
}

#[test]
fn who_stops_in_the_middle_has_the_machine_as_it_was() {
    let Some(machine) = Machine::take() else { return };
    let Some(_timers) = Spoilt::new(TIMERS, "0") else {
        return skip(Why::Machine("this kernel has no timer_migration".into()));
    };
    let state = machine.state().to_str().unwrap().to_owned();
    let before = Capture::take();
    let usual = ["doctor", "--json", "--state", state.as_str()];
    let listed: Doctored = json(&run(&[&usual[..], &["--dry-run"]].concat(), ""));
    let all = answers(&listed, true, |mend| mend.finding.id == "noise.timers");
    let until = all.find('y').unwrap() + 2;
    let cut = run(&usual, &all[..until]);
    if until < all.len() {
        assert_eq!(cut.status.code(), Some(2), "{}", text(&cut));
        assert!(text(&cut).contains("is put back"), "{}", text(&cut));
        assert!(!machine.state().join("journal.jsonl").exists());
    }
    machine.run("revert");
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn yes_puts_a_shield_up_and_a_second_look_finds_it() {
    let Some(machine) = Machine::take() else { return };
    let (state, before) = (machine.state().to_str().unwrap().to_owned(), Capture::take());
    let done = run(&["doctor", "--yes", "--json", "--state", &state], "");
    let doctored: Doctored = json(&done);
    let none = doctored.mended.iter().find(|one| one.mend.finding.id == "shield.none");
    if let Some(none) = none {
        assert_eq!(
            (none.answer, none.still_there),
            (MendAnswer::Taken, Some(false)),
            "{}",
            text(&done)
        );
        assert!(!doctored.applied.unwrap().shield.cpus.is_empty());
    }
    machine.revert_to(&before, "after the mends");
}

#[test]
fn an_end_of_input_mends_nothing_and_without_root_there_are_commands() {
    let Some(machine) = Machine::take() else { return };
    let (state, before) = (machine.state().to_str().unwrap().to_owned(), Capture::take());
    let cut = run(&["doctor", "--state", &state], "");
    assert_eq!(cut.status.code(), Some(2), "{}", text(&cut));
    assert!(text(&cut).contains("nothing on this machine is changed"), "{}", text(&cut));
    assert!(!machine.state().join("journal.jsonl").exists());
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());

    let program = machine.dir().join("quietcores");
    copy_program(PROGRAM, &program);
    let poor = as_user(STRANGER, "", &program).args(["doctor", "--yes"]).output().unwrap();
    assert_eq!(poor.status.code(), Some(1), "{}", text(&poor));
    assert!(text(&poor).contains("sudo quietcores doctor"), "{}", text(&poor));
}
