//! `measure buffers` as a whole, on the card that does not exist: every period is accounted for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{sleeps, until, until_halted};
use serde_json::Value;
use std::{
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

fn command(more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.args(["measure", "buffers", "--host", "null", "--json"]).args(more);
    command
}

fn run(more: &[&str]) -> Output {
    let store = tempfile::tempdir().unwrap();
    command(more).arg("--store").arg(store.path()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn trials(table: &Value) -> Vec<(u64, &Value)> {
    let cells = table["cells"].as_array().unwrap();
    cells
        .iter()
        .flat_map(|cell| {
            let period = cell["period"].as_u64().unwrap();
            cell["trials"].as_array().unwrap().iter().map(move |trial| (period, trial))
        })
        .collect()
}

/// Every period is obtained or missed, and there are as many as the clock says.
fn accounted(table: &Value) {
    for (period, trial) in trials(table) {
        let number = |name: &str| trial[name].as_u64().unwrap();
        assert_eq!(number("expected"), number("obtained") + number("missed"), "{trial}");
        assert_eq!(number("over"), number("woke_late") + number("ran_slow"), "{trial}");
        assert_eq!(number("xruns") == 0, number("missed") == 0, "{trial}");
        let periods = number("lasted") as f64 * 48e-6 / period as f64;
        // The clock of `lasted` starts with the opening of the thread and ends with the wish to
        // stop: what a busy machine puts between is no period of the card, nor lost.
        let slack = 2.0 * 48e3 / period as f64;
        assert!(
            (number("expected") as f64 - periods).abs() < slack,
            "{periods} by the clock: {trial}"
        );
    }
}

/// How often its playing thread has slept; 0 where there is none.
fn periods(child: &Child) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten();
    let plays = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.trim() == "quiet-engine"
    };
    tasks.flatten().filter(plays).map(|task| sleeps(&task.path())).max().unwrap_or(0)
}

/// Waits until it is within its first cell, however late on a busy machine: a thread that has slept so often plays. What places it sleeps
/// less.
fn plays(child: &Child) {
    until("a thread that plays", || (periods(child) >= 40).then_some(()));
}

#[test]
fn each_combination_is_a_cell_and_each_period_is_accounted_for() {
    let output = run(&[
        "--periods",
        "512,2048",
        "--counts",
        "2,8",
        "--modes",
        "sleep",
        "--stress",
        "none",
        "--for",
        "300ms",
        "--rounds",
        "2",
        "--dsp-load",
        "20%",
    ]);
    let table = json(&output);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{table}");
    assert_eq!(table["schema"], "quietcores.buffers/1");
    let cells = table["cells"].as_array().unwrap();
    let sizes: Vec<(u64, u64)> = cells
        .iter()
        .map(|c| (c["period"].as_u64().unwrap(), c["buffer"].as_u64().unwrap()))
        .collect();
    assert_eq!(sizes, [(512, 1024), (512, 4096), (2048, 4096), (2048, 16384)]);
    assert!(cells.iter().all(|c| c["trials"].as_array().unwrap().len() == 2), "two rounds");
    assert!(cells.iter().all(|c| c["mode"] == "sleep" && c["setting"] == "shared"));
    accounted(&table);
    // A fifth of 10.67 ms, in whole units of work.
    let (_, first) = trials(&table)[0];
    let calibrated = first["calibrated"].as_u64().unwrap() as f64;
    assert!((calibrated / (0.2 * 512.0 / 48e3 * 1e9) - 1.0).abs() < 0.1, "{calibrated}");
    let least = &table["least"][0];
    if let Some(safe) = least["safe"].as_object() {
        let (held, most) =
            (safe["held"].as_f64().unwrap(), safe["at_most_an_hour"].as_f64().unwrap());
        assert!((held * most / 3600.0 - 2.9957).abs() < 1e-3, "{least}");
        assert!(held >= 0.6, "both rounds count: {least}");
    }
}

/// Its trial goes on until it is ended here, so that on no machine the stall comes after it.
#[test]
fn a_stall_is_counted_with_every_period_that_it_cost() {
    let store = tempfile::tempdir().unwrap();
    let child = command(&["--periods", "256", "--counts", "4", "--modes", "sleep"])
        .args(["--stress", "none", "--for", "10min", "--dsp-load", "0", "--store"])
        .arg(store.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    plays(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert!(until_halted(child.id()));
    let stalled = std::time::Instant::now();
    std::thread::sleep(Duration::from_millis(400));
    let least = stalled.elapsed();
    let before = periods(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    until("that it plays again", || (periods(&child) >= before + 10).then_some(()));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let table = json(&output);
    accounted(&table);
    let (_, trial) = trials(&table)[0];
    let number = |name: &str| trial[name].as_u64().unwrap();
    assert!(number("xruns") >= 1, "{trial}");
    // 5.33 ms a period; the ring held three of them.
    let lost = (least.as_secs_f64() / (256.0 / 48e3)) as u64 - 4;
    assert!(number("missed") >= lost, "{lost} periods in {least:?}: {trial}");
    assert!(u128::from(number("between")) + 6_000_000 >= least.as_nanos(), "{trial}");
    assert!(number("woke_late") >= 1 && number("late") as f64 > 0.3e9, "{trial}");
    assert_eq!((output.status.code(), &table["least"][0]["safe"]), (Some(1), &Value::Null));
    let kept: Vec<_> = std::fs::read_dir(store.path().join("buffers")).unwrap().collect();
    assert_eq!(kept.len(), 1, "kept");
}

#[test]
fn what_was_measured_before_an_interruption_is_told() {
    let store = tempfile::tempdir().unwrap();
    let child = command(&["--periods", "1024", "--counts", "4,8", "--modes", "sleep"])
        .args(["--stress", "none", "--for", "60s", "--store"])
        .arg(store.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    plays(&child);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let table = json(&output);
    assert_eq!(
        (&table["interrupted"], table["cells"].as_array().unwrap().len()),
        (&true.into(), 1)
    );
    accounted(&table);
}

#[test]
fn calls_are_counted_or_it_is_said_why_not() {
    let arguments = ["--calls", "--periods", "1024", "--counts", "8", "--modes", "sleep"];
    let output = run(&[&arguments[..], &["--stress", "none", "--for", "500ms"]].concat());
    if !quiet_testing::is_root() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("only root"), "{said}");
        return;
    }
    let table = json(&output);
    let (_, trial) = trials(&table)[0];
    assert_eq!(trial["latency"], 8192, "{trial}");
    let findings = table["findings"].as_array().unwrap();
    if findings.iter().any(|finding| finding["id"] == "play.not_counted") {
        assert_eq!(trial["hits"]["system_calls"], Value::Null, "{trial}");
        return;
    }
    // Asleep, each period is a call at least. Who wakes a period late finds the next one there: that one costs no call, and the first was
    // not done in time.
    let number = |name: &str| trial["hits"][name].as_u64().unwrap();
    let over = trial["over"].as_u64().unwrap();
    assert!(number("system_calls") + over >= trial["obtained"].as_u64().unwrap(), "{trial}");
    assert!(number("context_switches") > 0, "{trial}");
}

#[test]
#[cfg(feature = "audio")]
fn a_servers_period_is_its_own() {
    let output = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["measure", "buffers", "--host", "jack", "--periods", "64"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("leave out --periods"), "{said}");
}

#[test]
fn what_makes_no_sense_is_a_sentence() {
    for (more, says) in [
        (&["--buffer", "64"][..], "leave out --buffer"),
        (&["--for", "1ms"], "10ms to 24h"),
        (&["--dsp-load", "120%"], "0% to 95%"),
        (&["--periods", "0", "--stress", "none"], "1 to 65536"),
        (&["--stress", "no-such-stress"], "no-such-stress"),
        (&["--stress", ""], "a stress has a name"),
    ] {
        let output = run(more);
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(said.contains(says), "{more:?}: {said}");
        assert!(output.status.code().is_some_and(|code| code > 0), "{more:?}");
    }
}
