//! `quietcores prove --slice`: what a short slice is worth to an ordinary thread, without any right.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Machine, PROGRAM, text};
use quiet_testing::{
    Why,
    bus::{STRANGER, as_user},
    copy_program, skip,
};
use quiet_types::{Nanos, Proof, proof::Setting};
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, process::Command};

#[test]
fn the_slices_of_both_settings_differ_in_the_kernel_and_there_is_a_verdict() {
    if quiet_testing::left_out("12 s") {
        return;
    }
    // Nothing is changed, and nobody else is to change the machine meanwhile.
    let Some(machine) = Machine::take() else { return };
    let (program, store) = (machine.dir().join("quietcores"), machine.dir().join("store"));
    copy_program(PROGRAM, &program);
    fs::create_dir(&store).unwrap();
    for dir in [machine.dir(), &store] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let cpu = machine.cpu.to_string();
    let done = as_user(STRANGER, "", &program)
        .args(["prove", "--slice", "--cpus", &cpu, "--pairs", "6", "--for", "400ms", "--json"])
        .args(["--store", store.to_str().unwrap()])
        .output()
        .unwrap();
    if text(&done).contains("came with Linux 6.12") {
        return skip(Why::Machine("this kernel has no slices (before 6.12)".into()));
    }
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", text(&done));
    let proof: Proof = serde_json::from_slice(&done.stdout).unwrap();
    let slices = |setting: Setting| -> BTreeSet<Option<Nanos>> {
        let threads = proof.arms_of(setting).flat_map(|arm| &arm.wakeup.threads);
        threads.map(|thread| thread.slice).collect()
    };
    let (shared, sliced) = (slices(Setting::Shared), slices(Setting::Sliced));
    assert_eq!(sliced, BTreeSet::from([Some(Nanos::from_micros(150))]));
    assert!(shared.is_disjoint(&sliced) && !shared.is_empty(), "{shared:?}");
    assert_eq!((proof.arms.len(), proof.other(), &proof.shield), (12, Setting::Sliced, &None));
    assert!(proof.figures.iter().any(|figure| figure.id == "wakeup.p99"), "{}", proof.sentence);
    let opens = ["Better: ", "Worse: ", "Not shown: "];
    assert!(opens.iter().any(|word| proof.sentence.starts_with(word)), "{}", proof.sentence);
    assert!(proof.findings.iter().any(|finding| finding.id == "prove.slices"));
    let hogs = proof.arms.iter().flat_map(|arm| &arm.wakeup.stress);
    assert!(hogs.clone().count() == 12 && hogs.clone().all(|stress| stress.names == ["hog=3"]));
}

#[test]
fn a_slice_that_the_kernel_does_not_give_and_a_chain_beside_it_are_refused() {
    let run = |words: &[&str]| Command::new(PROGRAM).arg("prove").args(words).output().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().to_str().unwrap();
    let long = run(&["--slice=10s", "--pairs", "1", "--store", store]);
    assert_eq!(long.status.code(), Some(2), "{}", text(&long));
    assert!(
        text(&long).contains("100us to 100ms") || text(&long).contains("6.12"),
        "{}",
        text(&long)
    );
    for beside in [&["room.toml"][..], &["--priority", "50"], &["--stress", "kernel"]] {
        let refused = run(&[&["--slice"], beside].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused).contains("cannot be used with"), "{}", text(&refused));
    }
}
