//! `campaign`, from the outside: real runs, a real kill, real signals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;

use machine::{Capture, Machine, PROGRAM, text};
use quiet_testing::{Why, is_root, own_cpus, skip_part, until, until_measured};
use quiet_types::{
    Run,
    campaign::{Campaigned, CellStanding},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

const MATRIX: &str = "
[campaign]
name = 'matrix'
cpus = '0'
rounds = 3
for = '120ms'
[[probe]]
kind = 'wakeup'
interval = '1ms'
policy = 'other'
[[probe]]
kind = 'gap'
[[setting]]
name = 'shallow'
[[setting]]
name = 'deep'
idle = 'as-is'
";

fn campaign(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["campaign", "c.toml", "--store", "store", "--state", "state", "--json"]);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command
}

fn with(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    // Whichever CPU is here.
    let own = own_cpus().first().unwrap();
    let text = text.replace("cpus = '0'", &format!("cpus = '{own}'"));
    fs::write(dir.path().join("c.toml"), text).unwrap();
    dir
}

fn told(output: &Output) -> Campaigned {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

/// Every whole run in the store, by id.
fn runs(dir: &Path) -> Vec<Run> {
    let Ok(list) = fs::read_dir(dir.join("store/runs")) else { return Vec::new() };
    let mut paths: Vec<_> = list.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "json"));
    paths.sort();
    paths.iter().map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap()).collect()
}

fn until_kept(dir: &Path, count: usize) {
    until("so many runs", || (runs(dir).len() >= count).then_some(()));
}

#[test]
fn killed_in_the_middle_it_goes_on_and_makes_no_run_twice_and_loses_none() {
    let dir = with(MATRIX);
    let mut kept: BTreeSet<String> = BTreeSet::new();
    for count in [2, 5, 9] {
        let mut child =
            campaign(dir.path(), &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_kept(dir.path(), count);
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        let now: BTreeSet<String> = runs(dir.path()).into_iter().map(|run| run.id).collect();
        assert!(kept.is_subset(&now), "a run is gone");
        kept = now;
        let status = told(&campaign(dir.path(), &["--status"]).output().unwrap());
        assert_eq!((status.done, status.left), (kept.len() as u64, 12 - kept.len() as u64));
    }
    let done = campaign(dir.path(), &[]).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    let (it, all) = (told(&done), runs(dir.path()));
    assert_eq!((it.done, it.left, it.waiting, it.failed), (12, 0, 0, 0));
    let keys: BTreeSet<String> = all.iter().map(|run| run.cell.clone().unwrap().key).collect();
    assert_eq!((all.len(), keys.len()), (12, 12));
    assert!(kept.is_subset(&all.iter().map(|run| run.id.clone()).collect()));
    assert_eq!(it.compared.len(), 2);
    for state in &it.cells {
        let run = all.iter().find(|run| run.id == state.run.as_ref().unwrap().id).unwrap();
        assert_eq!(run.cell.as_ref(), Some(&state.cell));
        let gap = run.is_gap();
        assert_eq!(state.cell.probe, if gap { "gap" } else { "wakeup 1.00 ms" });
        let as_is = run.spec.idle == Some(quiet_types::run::Idle::AsIs);
        assert_eq!(state.cell.setting, if as_is { "deep" } else { "shallow" });
    }
    // All of it is there: nothing is measured any more.
    assert_eq!(campaign(dir.path(), &[]).output().unwrap().status.code(), Some(0));
    assert_eq!(runs(dir.path()).len(), 12);
    // More rounds: only those are made.
    fs::write(dir.path().join("c.toml"), MATRIX.replace("rounds = 3", "rounds = 4")).unwrap();
    assert_eq!(told(&campaign(dir.path(), &["--status"]).output().unwrap()).left, 4);
}

#[test]
fn ended_by_a_signal_it_keeps_what_there_is_and_the_cell_stays_open() {
    let dir = with(&MATRIX.replace("'120ms'", "'20s'"));
    let mut child = campaign(dir.path(), &[]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_measured(child.id());
    let second = campaign(dir.path(), &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second).contains("another campaign is measuring"), "{}", text(&second));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let it = told(&output);
    assert_eq!((it.done, it.left), (0, 12));
    let [run] = &runs(dir.path())[..] else { panic!("one run, cut short, is kept") };
    assert!(run.interrupted == Some(true) && run.cell.is_none());
}

#[test]
fn cells_of_another_kernel_wait_for_its_boot() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let this = release.trim().split_once('.').unwrap().0;
    let settings = format!(
        "[[setting]]\nname = 'this'\nkernel = '{this}.*'\n[[setting]]\nname = 'other'\nkernel = '2.4.*'\n"
    );
    let text_of = MATRIX.split_once("[[setting]]").unwrap().0.replace("rounds = 3", "rounds = 1");
    let dir = with(&(text_of + &settings));
    let output = campaign(dir.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let it = told(&output);
    assert_eq!((it.done, it.left, it.waiting), (2, 0, 2));
    let waits = it.cells.iter().find(|cell| cell.state == CellStanding::Waiting).unwrap();
    assert_eq!(waits.cell.setting, "other");
    assert!(waits.why.starts_with("for a boot of kernel 2.4.*"), "{}", waits.why);
}

#[test]
fn what_is_wrong_is_told_with_its_line_before_anything_is_measured() {
    for (from, to, said) in [
        ("rounds = 3", "rounds = 'x'", "c.toml:5"),
        ("cpus = '0'", "cpus = '9999'", "c.toml:4"),
        ("kind = 'gap'", "kind = 'gap'\nfor = '25h'", "c.toml:13"),
        (
            "[[setting]]",
            "[[stress]]\nname = 's'\nrun = ['nonsense']\n[[setting]]",
            "cannot run stress s",
        ),
        ("[[setting]]", "[[setting]]\nchain = 'absent.toml'", "absent.toml"),
    ] {
        let dir = with(&MATRIX.replacen(from, to, 1));
        let output = campaign(dir.path(), &[]).output().unwrap();
        if to.contains("absent") && !is_root() {
            skip_part(Why::Root);
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{to}: {}", text(&output));
        assert!(text(&output).contains(said), "{to}: {}", text(&output));
        assert_eq!(runs(dir.path()).len(), 0);
    }
    let missing = Command::new(PROGRAM).args(["campaign", "absent.toml"]).output().unwrap();
    assert!(text(&missing).contains("cannot read the campaign file absent.toml"));
}

#[test]
fn killed_under_a_shield_the_next_call_puts_the_machine_back_and_goes_on() {
    let Some(machine) = Machine::take() else { return };
    let cpu = machine.cpu;
    let text_of = MATRIX.replace("cpus = '0'", &format!("cpus = '{cpu}'"));
    let settings = "[[setting]]\nname = 'bare'\n[[setting]]\nname = 'shield'\nshield = true\n";
    let text_of = text_of.split_once("[[setting]]").unwrap().0.replace("rounds = 3", "rounds = 2");
    let dir = with(&(text_of + settings));
    let before = Capture::take();
    let mut child =
        campaign(dir.path(), &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let state = dir.path().join("state");
    let up = || {
        let mut status = Command::new(PROGRAM);
        text(&status.arg("status").arg("--state").arg(&state).output().unwrap())
            .contains("is up since")
    };
    let mut looks = 0;
    while !up() {
        looks += 1;
        assert!(looks < 12_000 && child.try_wait().unwrap().is_none(), "no shield was put up");
        sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    // The guard or the same command takes the left shield down; the rest is measured, and the machine is as it was.
    let output = campaign(dir.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    let all = runs(dir.path());
    assert_eq!(all.len(), 8);
    for run in &all {
        assert_eq!(run.entry.is_some(), run.cell.as_ref().unwrap().setting == "shield");
    }
    // A shield of somebody else's is no left-over of ours.
    let mut machine_state = campaign(dir.path(), &[]);
    fs::write(
        dir.path().join("c.toml"),
        fs::read_to_string(dir.path().join("c.toml")).unwrap().replace("rounds = 2", "rounds = 3"),
    )
    .unwrap();
    let mut apply = Command::new(PROGRAM);
    apply.args(["apply", "--yes", "--cpus", &cpu.to_string(), "--state"]).arg(&state);
    let applied = apply.stdin(Stdio::null()).output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let refused = machine_state.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("a shield is up"), "{}", text(&refused));
    let mut revert = Command::new(PROGRAM);
    assert!(revert.arg("revert").arg("--state").arg(&state).output().unwrap().status.success());
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}
