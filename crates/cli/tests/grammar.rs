//! One grammar for CPUs, times and `none` in all verbs.
#![allow(clippy::unwrap_used)] // a test may

use std::process::{Command, Output, Stdio};

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn cpu_and_cpus_are_one_word() {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/machines/ryzen1700");
    let plan = |word: &str| run(&["plan", word, "2", "--root", machine, "--json"]);
    let (one, many) = (plan("--cpu"), plan("--cpus"));
    assert!(one.status.success(), "{}", text(&one));
    assert_eq!(one.stdout, many.stdout);
    for verb in [&["measure", "gap"][..], &["explain"], &["reach"], &["stress", "fork"], &["play"]]
    {
        for word in ["--cpu", "--cpus"] {
            let refused = run(&[verb, &[word, "x"]].concat());
            let said = text(&refused);
            assert_eq!(refused.status.code(), Some(2), "{verb:?}: {said}");
            assert!(said.contains("invalid value 'x'"), "{verb:?} {word}: {said}");
        }
    }
}

#[test]
fn where_no_cpu_is_given_there_is_one_and_none_is_no_stress() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().to_str().unwrap();
    let counted = run(&["explain", "--counters", "--for", "200ms", "--stress", "none", "--json"]);
    assert!(counted.status.success(), "{}", text(&counted));
    let measured = run(&[
        "measure",
        "wakeup",
        "--policy",
        "other",
        "--priority",
        "0",
        "--interval",
        "1ms",
        "--for",
        "100ms",
        "--stress",
        "none",
        "--store",
        store,
    ]);
    assert!(measured.status.success(), "{}", text(&measured));
}

#[test]
fn a_confirmation_waits_for_seconds_or_a_time() {
    let apply = |confirm: &str| {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let state = state.to_str().unwrap();
        text(&run(&["apply", "--cpus", "4000", "--yes", "--state", state, "--confirm", confirm]))
    };
    for wrong in ["0", "soon", "0s", "400h"] {
        assert!(apply(wrong).contains("invalid value"), "{wrong}");
    }
    for right in ["30", "30s", "5min"] {
        let said = apply(right);
        assert!(!said.contains("invalid value") && said.contains("4000"), "{right}: {said}");
    }
}
