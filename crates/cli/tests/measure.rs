//! `measure` and `stress` from the outside, on the machine that the test runs on.
//!
//! No test depends on speed: known stalls are injected and judged by time stamps taken around
//! them, and deadlines only end a test that has failed already.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_linux::sys::clock::monotonic;
use quiet_testing::{
    Why, cpus, is_root, own_cpus, program, skip, sleeps, until, until_halted, until_measured,
};
use quiet_types::{Nanos, Run, machine::Policy, run};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

fn quietcores() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `measure` with its store in `dir`; on a machine whose CPUs stay as they are.
fn measure(dir: &Path, arguments: &[&str]) -> Command {
    quiet_testing::machine_still();
    let mut command = quietcores();
    command.arg("measure").args(arguments).arg("--store").arg(dir).env("TMPDIR", dir);
    command
}

fn run_of(output: &Output) -> Run {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Fields of `/proc/PID/stat` after the name: state, parent, ...
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn children(of: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|fields| fields[1] == of.to_string()))
        .collect()
}

fn descendants(of: u32) -> Vec<u32> {
    children(of).into_iter().flat_map(|pid| [vec![pid], descendants(pid)].concat()).collect()
}

fn name(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}

/// The measuring process, once its thread goes from period to period.
fn worker(child: &Child) -> u32 {
    until_measured(child.id())
}

/// The same, with readings: a slow processor is seen to run long before it has one, and each of `wakeup` is a sleep.
fn woken(child: &Child) -> u32 {
    let worker = worker(child);
    until("readings", || (wakes(worker) >= 100).then_some(()));
    worker
}

/// Voluntary switches of the threads beside the main one: one each time a thread falls asleep.
fn wakes(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter(|entry| entry.file_name().to_string_lossy() != pid.to_string())
        .map(|entry| sleeps(&entry.path()))
        .sum()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn last_cpu() -> String {
    own_cpus().iter().last().unwrap().to_string()
}

fn stress_ng_is_missing() -> bool {
    let missing = program("stress-ng").is_none();
    if missing {
        skip::<()>(Why::Program("stress-ng", "stress-ng"));
    }
    missing
}

#[test]
fn every_expected_period_is_obtained_or_missed_and_the_json_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = last_cpu();
    let output = measure(
        dir.path(),
        &[
            "wakeup",
            "--cpus",
            &cpu,
            "--interval",
            "500us",
            "--for",
            "1s",
            "--label",
            "a b",
            "--json",
        ],
    )
    .output()
    .unwrap();
    let run = run_of(&output);
    let thread = &run.threads[0];
    assert_eq!(thread.expected, Some(2000));
    assert_eq!(thread.obtained + thread.missed.unwrap(), 2000);
    assert_eq!(thread.readings.count, thread.obtained);
    assert_eq!(thread.corrected.as_ref().unwrap().count, 2000);
    let linear = thread.readings.linear.as_ref().unwrap();
    assert_eq!(linear.counts.iter().map(|c| c.1).sum::<u64>() + linear.over, thread.obtained);
    assert_eq!(thread.allowed.as_ref().unwrap().to_string(), cpu);
    assert_eq!(run.spec.cpus.to_string(), cpu);
    assert!(
        run.lasted >= Some(Nanos::from_secs(1))
            && run.interrupted == Some(false)
            && run.label == "a b"
    );
    assert_eq!(thread.worst[0].value, thread.readings.max.unwrap());
    assert_eq!(Some(thread.worst[0].at), thread.max_at);
    assert!(run.before.files.contains_key("proc/irq/default_smp_affinity"));
    if is_root() {
        assert_eq!(thread.scheduling.unwrap().policy, Policy::Fifo);
        assert_eq!(thread.scheduling.unwrap().priority, 90);
        assert_eq!(thread.memory_locked, Some(true));
        assert_eq!(thread.counters["major_faults"], 0);
        assert_eq!(thread.counters["minor_faults"], 0, "all memory was there before");
    } else {
        assert!(run.findings.iter().any(|f| f.id == "run.policy"));
    }
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(serde_json::to_value(&run).unwrap(), printed);
    let kept = fs::read(dir.path().join(format!("runs/{}.json", run.id))).unwrap();
    assert_eq!(serde_json::from_slice::<Run>(&kept).unwrap(), run);
}

#[test]
fn a_gap_run_accounts_for_all_of_its_time() {
    let dir = tempfile::tempdir().unwrap();
    // As an ordinary thread: this test shall not take the CPU from others.
    let arguments = ["gap", "--cpus", &last_cpu(), "--policy", "other", "--for", "300ms", "--json"];
    let run = run_of(&measure(dir.path(), &arguments).output().unwrap());
    let thread = &run.threads[0];
    assert_eq!(thread.expected, Some(thread.obtained));
    assert_eq!(thread.readings.count, thread.obtained);
    assert!(thread.corrected.is_none());
    // The sum of the gaps is the time that the run was asked to last, and one gap at most.
    let (sum, max) = (thread.readings.sum, thread.readings.max.unwrap());
    assert!(sum.0 + 1 >= 300_000_000 && sum.0 <= 300_000_000 + max.0, "{sum:?} {max:?}");
    assert!(thread.stolen.unwrap() <= sum);
    assert!(run.clock.as_ref().unwrap().floor > Nanos::ZERO);
}

#[test]
fn a_stop_of_known_length_is_found_with_its_length_and_its_missed_periods() {
    let dir = tempfile::tempdir().unwrap();
    let interval = 1_000_000;
    let arguments = ["wakeup", "--interval", "1ms", "--for", "5s", "--policy", "other", "--json"];
    let child = measure(dir.path(), &arguments).spawn().unwrap();
    let worker = woken(&child);

    let before_stop = monotonic();
    signal(worker, Signal::STOP);
    assert!(until_halted(worker));
    let stands = monotonic();
    let woken = wakes(worker);
    thread::sleep(Duration::from_millis(300));
    let before_go = monotonic();
    signal(worker, Signal::CONT);
    // Two more: the first switch of the stopped thread may be the end of the stop itself.
    until("the worker goes on", || (wakes(worker) > woken + 2).then_some(()));
    let goes = monotonic();

    let run = run_of(&child.wait_with_output().unwrap());
    let thread = &run.threads[0];
    let found = |r: &&run::Reading| {
        let end = run.monotonic.unwrap().0 + r.at.0;
        end >= before_go && end - r.value.0 <= stands + interval
    };
    let stall = thread.worst.iter().find(found).expect("the stop is among the worst readings");
    let second = thread.worst.iter().filter(|r| *r != stall).map(|r| r.value.0).max().unwrap_or(0);
    // From the first expiry within the stop, at most one period after its begin, until after the
    // signal to go on; and no longer than from before the first signal until seen to go.
    assert!(stall.value.0 >= before_go - stands - interval, "{stall:?}");
    assert!(stall.value.0 <= goes - before_stop + interval + second, "{stall:?}");
    assert_eq!(stall.missed, stall.value.0 / interval);
    assert_eq!((thread.expected, thread.obtained + thread.missed.unwrap()), (Some(5000), 5000));
    let corrected = thread.corrected.as_ref().unwrap();
    assert!(corrected.above(Nanos(interval)) + 1 >= stall.missed, "each missed period has waited");
    assert!(run.findings.iter().any(|f| f.id == "run.missed"));
}

#[test]
fn ctrl_c_ends_a_run_with_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let child = measure(dir.path(), &["wakeup", "--for", "1h", "--json"]).spawn().unwrap();
    let worker = woken(&child);
    // To both, as a terminal does to a whole foreground group, or a service manager.
    signal(worker, Signal::TERM);
    signal(child.id(), Signal::INT);
    let run = run_of(&child.wait_with_output().unwrap());
    let thread = &run.threads[0];
    assert!(run.interrupted == Some(true) && run.lasted < Some(Nanos::from_secs(3600)));
    assert!(thread.obtained >= 50);
    assert_eq!(thread.expected, Some(thread.obtained + thread.missed.unwrap()));
    assert!(run.findings.iter().any(|f| f.id == "run.interrupted"));
}

/// The run that is kept in `dir`; none yet, or one being replaced, is `None`.
fn kept(dir: &Path) -> Option<Run> {
    let file = fs::read_dir(dir.join("runs")).ok()?.flatten().map(|entry| entry.path());
    let path = file.into_iter().find(|path| path.extension().is_some_and(|end| end == "json"))?;
    Some(serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
}

/// What is kept of a run that was killed: honest to the last period, and marked wherever it is shown.
fn is_a_partial_run(dir: &Path, run: &Run, probe: &str) {
    assert!(run.partial && run.interrupted.is_none() && run.clock.is_none());
    let thread = &run.threads[0];
    assert!(thread.obtained > 0);
    assert_eq!(thread.expected, Some(thread.obtained + thread.missed.unwrap()));
    assert_eq!(thread.readings.count, thread.obtained);
    let corrected = thread.corrected.as_ref().map(|all| all.count);
    assert_eq!(corrected, thread.expected.filter(|_| probe == "wakeup"));
    assert!(thread.readings.min <= thread.readings.max && thread.readings.max.is_some());
    let linear = thread.readings.linear.as_ref().unwrap();
    assert_eq!(linear.counts.iter().map(|(_, n)| n).sum::<u64>() + linear.over, thread.obtained);
    assert!(run.lasted > Some(Nanos::ZERO) && run.lasted < Some(Nanos::from_secs(3600)));
    assert!(run.findings.iter().any(|finding| finding.id == "run.partial"));
    if let Some(interval) = run.interval() {
        // No more periods than time: those that are due since the last one ran are not counted yet.
        assert!(thread.expected.unwrap() <= run.lasted.unwrap().0 / interval.0);
    }

    let ask =
        |arguments: &[&str]| quietcores().args(arguments).arg("--store").arg(dir).output().unwrap();
    let listed = ask(&["runs", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(
        (&listed["runs"][0]["id"], &listed["runs"][0]["partial"]),
        (&run.id.as_str().into(), &true.into())
    );
    let shown = ask(&["runs"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("(partial)"), "{shown:?}");
    let other = dir.join("other.json");
    let again = Run { id: format!("{}-again", run.id), ..run.clone() };
    fs::write(&other, serde_json::to_vec(&again).unwrap()).unwrap();
    let compared = ask(&["compare", &run.id, other.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(said.contains("it is a checkpoint"), "{compared:?}");
    assert!(!said.contains("Better") && !said.contains("Worse"), "{said}");
}

#[test]
fn what_was_measured_outlives_a_program_that_is_killed() {
    for probe in ["wakeup", "gap"] {
        let dir = tempfile::tempdir().unwrap();
        let arguments = [probe, "--for", "1h", "--policy", "other", "--checkpoint", "50ms"];
        let mut child = measure(dir.path(), &arguments).spawn().unwrap();
        let first =
            until("a checkpoint", || kept(dir.path()).filter(|run| run.threads[0].obtained > 0));
        // Replaced by the next one, under the same id.
        until("a later one", || kept(dir.path()).filter(|run| run.lasted > first.lasted));
        signal(child.id(), Signal::KILL);
        assert!(!child.wait().unwrap().success());
        let run = kept(dir.path()).unwrap();
        assert_eq!(run.id, first.id);
        is_a_partial_run(dir.path(), &run, probe);
    }
}

#[test]
fn what_was_measured_outlives_a_measuring_process_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    // No checkpoint would be due for an hour: what is in shared memory is saved when the process dies.
    let arguments = ["wakeup", "--for", "1h", "--policy", "other", "--checkpoint", "1h"];
    let child = measure(dir.path(), &arguments).spawn().unwrap();
    signal(woken(&child), Signal::KILL);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("what was measured until then is kept as"), "{said}");
    let run = kept(dir.path()).unwrap();
    assert!(run.threads[0].obtained >= 50);
    is_a_partial_run(dir.path(), &run, "wakeup");
}

#[test]
fn the_whole_run_takes_the_place_of_its_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let arguments =
        ["wakeup", "--for", "1h", "--policy", "other", "--checkpoint", "50ms", "--json"];
    let child = measure(dir.path(), &arguments).spawn().unwrap();
    let partial = until("a checkpoint", || kept(dir.path()));
    signal(child.id(), Signal::INT);
    let run = run_of(&child.wait_with_output().unwrap());
    assert!(partial.partial && !run.partial && run.clock.is_some());
    assert_eq!(run.id, partial.id);
    assert_eq!(kept(dir.path()).unwrap(), run);
    assert_eq!(fs::read_dir(dir.path().join("runs")).unwrap().count(), 1);
    assert!(run.threads[0].obtained >= partial.threads[0].obtained);
}

#[test]
fn nothing_outlives_a_killed_program() {
    if stress_ng_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["wakeup", "--for", "1h", "--policy", "other", "--stress", "fork=1"];
    let mut child = measure(dir.path(), &arguments).spawn().unwrap();
    worker(&child);
    let born = |pid: u32| stat(pid).map(|fields| fields[19].clone());
    let all: Vec<(u32, Option<String>)> =
        descendants(child.id()).into_iter().map(|pid| (pid, born(pid))).collect();
    assert!(all.len() >= 3, "worker, stress-ng, stressor: {all:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // A zombie has ended: whoever inherits it may take its time to notice.
    let lives = |pid: u32| stat(pid).is_some_and(|fields| fields[0] != "Z");
    until("worker and stress end", || {
        all.iter().all(|(pid, at)| born(*pid) != *at || !lives(*pid)).then_some(())
    });

    // The directory that it left is removed by the next one.
    let left = || {
        fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with("quietcores-stress-"))
            .count()
    };
    let mut stress = quietcores();
    // stress-ng takes more than a second to begin on a slow processor.
    stress.args(["stress", "fork=1", "--for", "3s", "--json"]).env("TMPDIR", dir.path());
    let output = stress.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(left(), 0);
    let done: run::Stress = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done.throughput.len(), 1);
    assert_eq!(done.throughput[0].stressor, "fork");
    assert!(done.throughput[0].operations > 0.0 && done.throughput[0].per_second > 0.0);
}

#[test]
fn stress_stays_on_its_cpus_and_is_written_into_the_run() {
    if stress_ng_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cpu = last_cpu();
    let arguments = [
        "wakeup",
        "--for",
        "10s",
        "--policy",
        "other",
        "--stress",
        "dentry=1,fork=1",
        "--stress-cpus",
        &cpu,
        "--json",
    ];
    let child = measure(dir.path(), &arguments).spawn().unwrap();
    worker(&child);
    let stress: Vec<u32> =
        descendants(child.id()).into_iter().filter(|p| name(*p)[0].contains("stress-ng")).collect();
    assert!(!stress.is_empty());
    for pid in stress {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        assert!(allowed.is_none_or(|list| list.trim() == cpu), "{allowed:?}");
    }
    let run = run_of(&child.wait_with_output().unwrap());
    let stress = run.stress.unwrap();
    assert_eq!(stress.cpus.to_string(), cpu);
    assert_eq!(stress.names, ["dentry=1", "fork=1"]);
    let names: Vec<&str> = stress.throughput.iter().map(|t| t.stressor.as_str()).collect();
    assert_eq!(names, ["dentry", "fork"]);
    assert!(stress.throughput.iter().all(|t| t.operations > 0.0));

    // Not told where, it runs wherever the program may: on the measured CPU too.
    let arguments = ["wakeup", "--for", "200ms", "--stress", "fork=1", "--json"];
    let run = run_of(&measure(dir.path(), &arguments).output().unwrap());
    assert_eq!(run.stress.unwrap().cpus, own_cpus());
}

#[test]
fn what_cannot_be_asked_is_answered_by_a_sentence_and_status_2() {
    let dir = tempfile::tempdir().unwrap();
    let all = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    for (arguments, sentence) in [
        (vec!["wakeup", "--interval", "0us"], "10us to 1s"),
        (vec!["wakeup", "--interval", "2s"], "10us to 1s"),
        (vec!["wakeup", "--interval", "200"], "is not a duration"),
        (vec!["wakeup", "--for", "0s"], "1ns to 24h"),
        (vec!["wakeup", "--for", "25h"], "1ns to 24h"),
        (vec!["wakeup", "--for", "100us"], "before its first period"),
        (vec!["wakeup", "--priority", "0"], "1 to 99"),
        (vec!["wakeup", "--policy", "rr", "--priority", "100"], "1 to 99"),
        (vec!["wakeup", "--policy", "other", "--priority", "5"], "no priority"),
        (vec!["wakeup", "--policy", "mystery"], "invalid value"),
        (vec!["wakeup", "--cpus", "8000"], "CPU 8000 does not exist here or is offline"),
        (vec!["wakeup", "--cpus", ""], "no CPU is named"),
        (vec!["wakeup", "--cpus", "3-1"], "upwards"),
        (vec!["wakeup", "--stress-cpus", "8000", "--stress", "kernel"], "stress cannot run"),
        (vec!["wakeup", "--stress", "nonsense"], "stress"),
        (vec!["gap", "--cpus", all.trim(), "--policy", "fifo"], "no CPU to the rest"),
        (vec!["wakeup", "--buckets", "2000000"], "buckets"),
    ] {
        let output = measure(dir.path(), &arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(sentence), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty() && !said.contains("panicked"), "{arguments:?}: {said}");
    }
    let worker = quietcores().arg("worker").output().unwrap();
    assert_eq!(worker.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&worker.stderr).contains("started by `measure`"));
}

#[test]
fn a_refused_policy_is_a_finding_and_with_strict_an_error() {
    let dir = tempfile::tempdir().unwrap();
    // Before it is counted: somebody else's shield confines this process too.
    quiet_testing::machine_still();
    // Pinned to one CPU of several, the kernel refuses SCHED_DEADLINE to everybody.
    if cpus() < 2 {
        return skip(Why::OneCpu);
    }
    let arguments = ["wakeup", "--for", "200ms", "--policy", "deadline", "--json"];
    let run = run_of(&measure(dir.path(), &arguments).output().unwrap());
    let finding = run.findings.iter().find(|f| f.id == "run.policy").unwrap();
    assert!(finding.evidence.contains("not permitted"), "{finding:?}");
    assert!(finding.remedy.contains("root domain"), "{finding:?}");
    assert_eq!(run.threads[0].scheduling.unwrap().policy, Policy::Other);
    let strict = measure(dir.path(), &arguments).arg("--strict").output().unwrap();
    assert_eq!(strict.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&strict.stderr).contains("deadline"), "{strict:?}");
}

/// Here the kernel has neither; where one has, its lab shows the figures (lab/guest/trace).
#[test]
fn instruments_that_this_kernel_lacks_are_said_to_be_missing() {
    let evl = Path::new("/dev/evl/control").exists();
    let mut said = Vec::new();
    let mut all = vec![(vec!["tracer", "--for", "1s"], "timerlat")];
    if !evl {
        all.push((vec!["wakeup", "--core", "evl"], "/dev/evl/control"));
    }
    all.push((vec!["tracer", "--for", "1s", "--explain"], "tells no causes"));
    all.push((vec!["wakeup", "--latmus"], "--core evl"));
    for (arguments, word) in all {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_quietcores"))
            .arg("measure")
            .args(arguments)
            .arg("--store")
            .arg(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            said.push("measured");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{text}");
        // Without root tracefs itself is out of reach.
        assert!(text.contains(word) || text.contains("tracefs"), "{text}");
        let kept = fs::read_dir(dir.path().join("runs")).map_or(0, |runs| runs.count());
        assert_eq!(kept, 0);
    }
    assert!(said.len() <= 1);
}
