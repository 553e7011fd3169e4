//! `quietcores doctor`: it offers what `check` finds and `plan` has steps for, does what is agreed to, and `revert` takes it back.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, read, text};
use quiet_testing::{
    Why,
    bus::{STRANGER, as_user},
    skip,
};
use quiet_types::{
    Plan,
    check::Checked,
    doctor::{Doctored, MendAnswer, MendWay},
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

#[test]
fn single_settings_are_made_read_back_and_put_back() {
    let Some(machine) = Machine::take() else { return };
    let Some(_timers) = Spoilt::new("/proc/sys/kernel/timer_migration", "0") else {
        return skip(Why::Machine("this kernel has no timer_migration".into()));
    };
    let state = machine.state().to_str().unwrap().to_owned();
    let swappiness = read("/proc/sys/vm/swappiness");
    let before = Capture::take();
    let usual = ["doctor", "--json", "--state", state.as_str()];
    let listed: Doctored = json(&run(&[&usual[..], &["--dry-run"]].concat(), ""));
    // Yes to every single setting that is written to a file, no to all else.
    let (mut answers, mut wanted) = (String::new(), Vec::new());
    for one in &listed.mended {
        let MendWay::Steps { steps, shield } = &one.mend.way else { continue };
        let writes: Option<Vec<(String, String)>> = steps
            .iter()
            .map(|step| match &step.action {
                Action::Write { path, value, .. } if !path.contains("/transparent_hugepage/") => {
                    Some((path.clone(), value.clone()))
                }
                _ => None,
            })
            .collect();
        match writes.filter(|_| !shield) {
            Some(writes) => {
                answers += "y\n";
                wanted.extend(writes);
            }
            None => answers += "n\n",
        }
    }
    assert!(wanted.iter().any(|(path, _)| path.ends_with("timer_migration")), "{wanted:?}");
    let done = run(&usual, &answers);
    let doctored: Doctored = json(&done);
    let applied = doctored.applied.unwrap_or_else(|| panic!("{}", text(&done)));
    assert!(applied.shield.cpus.is_empty());
    for (path, value) in &wanted {
        let refused = applied
            .steps
            .iter()
            .any(|taken| taken.step.action.what() == *path && !taken.outcome.holds());
        assert!(refused || read(path).trim() == value, "{path}: {}", read(path));
    }
    let taken = doctored.mended.iter().filter(|one| one.answer == MendAnswer::Taken);
    assert!(taken.clone().count() > 0 && taken.clone().any(|one| one.still_there == Some(false)));
    let status = text(&machine.run("status"));
    assert!(status.contains("A set of single settings"), "{status}");
    // The journal is one: what is up is not added to.
    let again: Doctored = json(&run(&[&usual[..], &["--yes"]].concat(), ""));
    assert_eq!((again.applied, again.findings[0].id.as_str()), (None, "doctor.shield_up"));
    machine.revert_to(&before, "after single settings");
    assert_eq!(read("/proc/sys/vm/swappiness"), swappiness);
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
    fs::copy(PROGRAM, &program).unwrap();
    let poor = as_user(STRANGER, "", &program).args(["doctor", "--yes"]).output().unwrap();
    assert_eq!(poor.status.code(), Some(1), "{}", text(&poor));
    assert!(text(&poor).contains("sudo quietcores doctor"), "{}", text(&poor));
}
