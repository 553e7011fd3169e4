//! `runs` and `compare`, from the outside.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_judge::{example, stats::Random};
use quiet_store::Store;
use quiet_types::{Histogram, Nanos, Run};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn quietcores(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(args)
        .current_dir(dir)
        .env("XDG_DATA_HOME", dir.join("data"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Six runs on each of two kernels, the second four times as late.
fn kept() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("data/quietcores"));
    let (example, mut random) = (example::run(), Random::new(4));
    for (kernel, hour, level) in [("6.16.1", 10, 20e3), ("6.17.0", 12, 80e3)] {
        for minute in 0..6 {
            let mut run: Run = example.clone();
            run.id = format!("20261121T{hour}{minute:02}00Z-wakeup-{minute:04}");
            run.started = Some(format!("2026-11-21T{hour}:{minute:02}:00.000Z"));
            run.host.release = kernel.to_owned();
            run.label = if minute < 3 { "early" } else { "late" }.to_owned();
            let level = level * (0.9 + 0.2 * random.unit());
            let draw = |_| Nanos((level * (1.0 - random.unit()).powf(-0.25)) as u64);
            let all = Histogram::of((0..12_000).map(draw));
            let thread = &mut run.threads[0];
            (thread.expected, thread.obtained, thread.missed) = (Some(12_000), 12_000, Some(0));
            thread.corrected = Some(all.clone());
            thread.readings = all;
            store.save_run(&run).unwrap();
        }
    }
    dir
}

#[test]
fn a_regression_between_kernels_is_listed_named_and_ends_with_one() {
    let dir = kept();
    let done = quietcores(dir.path(), &["runs", "--trend", "--all"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    assert!(said.contains("worse: p99 x") && said.contains("since kernel 6.17.0"), "{said}");
    let done = quietcores(dir.path(), &["runs", "kernel=6.16*", "label=late", "--json"]);
    assert_eq!(done.status.code(), Some(0));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&told["schema"], &told["total"]), (&"quietcores.history/2".into(), &3.into()));
    assert_eq!(told["runs"][0]["kernel"], "6.16.1");
    let done = quietcores(dir.path(), &["runs", "color=red"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("`color` is none of id, host"));
}

/// What every verb that takes ids is given.
fn is_taken(dir: &Path, name: &str, id: &str) {
    let done = quietcores(dir, &["report", name, "-o", "page.html", "--json"]);
    assert!(done.status.success(), "{name}: {}", text(&done.stderr));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(told["ids"][0], id);
}

#[test]
fn every_id_that_the_list_prints_is_taken_and_proofs_are_listed() {
    let dir = kept();
    let store = Store::at(dir.path().join("data/quietcores"));
    let proof = example::proof();
    store.save_proof(&proof, "").unwrap();
    // As ids of 0.1.0 may be: the same digits in two years, and one that is the beginning of another.
    let (a, b) = ("20251121T100000Z-wakeup-3f9a", "20261121T100000Z-wakeup-3f9a");
    let c = "20261121T100000123Z-wakeup-3f9a1c2b7d";
    for id in [a, b, c] {
        store.save_run(&Run { id: id.to_owned(), ..example::run() }).unwrap();
    }
    for columns in ["80", "200"] {
        let done = Command::new(env!("CARGO_BIN_EXE_quietcores"))
            .args(["runs", "--all"])
            .env("XDG_DATA_HOME", dir.path().join("data"))
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let said = text(&done.stdout);
        let word = |id: &str| {
            let rest = id.split_once('-').unwrap().1;
            let named = |word: &&str| [id, rest].contains(word);
            said.split_whitespace().find(named).unwrap_or_else(|| panic!("{id}: {said}")).to_owned()
        };
        let ids = store.list().unwrap().into_iter().map(|entry| entry.id);
        for id in ids.collect::<Vec<_>>() {
            is_taken(dir.path(), &word(&id), &id);
        }
        assert_eq!((word(a).as_str(), word(b).as_str()), (a, b), "not by what both end with");
        assert!(
            said.contains("\nproofs\n") && said.contains(proof.sentence.split(' ').next().unwrap())
        );
        let long = said.lines().filter(|line| line.chars().count() > columns.parse().unwrap());
        assert_eq!(long.count(), 0, "{said}");
    }
    let done = quietcores(dir.path(), &["report", "wakeup-3f9a"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("3 ids begin so"), "{}", text(&done.stderr));
    is_taken(dir.path(), "wakeup-3f9a1", c);
    let told: serde_json::Value =
        serde_json::from_slice(&quietcores(dir.path(), &["runs", "--json"]).stdout).unwrap();
    assert_eq!(told["proofs"][0]["id"], proof.id);
    assert!(told["proofs"][0].get("arms").is_none());
}

#[test]
fn a_torn_run_is_set_aside_named_and_the_rest_is_listed() {
    let dir = kept();
    let runs = dir.path().join("data/quietcores/runs");
    let torn = runs.join("20261121T100000Z-wakeup-0000.json");
    let whole = fs::read(&torn).unwrap();
    fs::write(&torn, &whole[..999]).unwrap();
    for more in [&["runs"][..], &["runs", "--rebuild"]] {
        let done = quietcores(dir.path(), more);
        assert_eq!(done.status.code(), Some(0));
        let said = text(&done.stdout);
        assert_eq!(
            said.contains("set aside: 20261121T100000Z-wakeup-0000.json"),
            more.len() == 1,
            "{said}"
        );
        assert!(said.contains("wakeup-0001"));
    }
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 11);
}

#[test]
fn two_kernels_are_compared_and_the_gate_closes_when_the_second_is_worse() {
    let dir = kept();
    let done =
        quietcores(dir.path(), &["compare", "kernel=6.16*", "kernel=6.17*", "--junit", "v.xml"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    assert!(text(&done.stdout).starts_with("Worse: p99 from "), "{}", text(&done.stdout));
    assert!(
        fs::read_to_string(dir.path().join("v.xml")).unwrap().contains("<failure message=\"worse")
    );
    let done = quietcores(dir.path(), &["compare", "20261121T12*", "20261121T10*", "--json"]);
    assert_eq!(done.status.code(), Some(0));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&told["verdict"], &told["method"]), (&"better".into(), &"sets".into()));
    assert!(told["differs"].as_array().unwrap().iter().any(|d| d["what"] == "kernel"));
    let done =
        quietcores(dir.path(), &["compare", "kernel=6.16*", "kernel=6.17*", "--format", "tap"]);
    assert!(text(&done.stdout).starts_with("TAP version 13\n1..5\nnot ok 1 - wakeup.p99\n"));
}

#[test]
fn one_run_a_side_shows_nothing_and_nothing_meant_is_an_error() {
    let dir = kept();
    let one = "data/quietcores/runs/20261121T100000Z-wakeup-0000.json";
    let done = quietcores(dir.path(), &["compare", one, "20261121T1200"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("1 and 1 runs cannot tell a change from chance"));
    for (args, why) in [
        (["compare", "kernel=5*", "last"], "no run is meant by `kernel=5*`"),
        (["compare", one, one], "stands on both sides"),
        (["compare", "1999", "last"], "cannot find 1999"),
    ] {
        let done = quietcores(dir.path(), &args);
        assert_eq!(done.status.code(), Some(2));
        assert!(text(&done.stderr).contains(why), "{}", text(&done.stderr));
    }
}
