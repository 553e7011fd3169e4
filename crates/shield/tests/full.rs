//! A journal that cannot be written any more while a thread is let in or out: at whatever byte.
#![allow(clippy::unwrap_used)] // a test may

mod shielded;

use quiet_shield::{Entrant, ErrorKind, admit, release, revert};
use quiet_testing::fake::at;
use quiet_types::machine::{Policy, Scheduling};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shielded::{ALL, ANNA, is_as_before, shielded};
use std::{env, fs, path::Path, process::Command};

/// Set in the process that may be refused bytes.
const WITHIN: &str = "QUIETCORES_FULL";
const FIFO: Scheduling = Scheduling { policy: Policy::Fifo, priority: 70, nice: 0 };

fn entrant() -> Entrant {
    let (scheduling, mount) = (Some(FIFO), Some(at("")));
    Entrant { tid: 100, uid: ANNA, cpus: None, scheduling, mount, most: 2 }
}

/// Runs the test of that name in a process of its own, in which what is too long for a file is an error and no signal.
fn is_within(name: &str) -> bool {
    if env::var_os(WITHIN).is_some() {
        return true;
    }
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(WITHIN, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
    false
}

/// Calls `run` where no file may be longer than `most` bytes.
fn limited<T>(most: u64, run: impl FnOnce() -> T) -> T {
    let whole = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(most), ..whole }).unwrap();
    let done = run();
    setrlimit(Resource::Fsize, whole).unwrap();
    done
}

fn length(state: &Path) -> u64 {
    fs::metadata(state.join("journal.jsonl")).unwrap().len()
}

#[test]
fn who_is_let_in_when_the_disk_is_full_is_put_back_and_that_is_said() {
    if !is_within("who_is_let_in_when_the_disk_is_full_is_put_back_and_that_is_said") {
        return;
    }
    for hierarchy in ALL {
        let mut acted = 0;
        let (_, kernel, _dir, state) = shielded(hierarchy, 0);
        let begun = length(&state);
        admit(&kernel, &state, &entrant(), &|| true).unwrap();
        let ended = length(&state);
        for room in (0..ended - begun).step_by(7) {
            let (before, kernel, _dir, state) = shielded(hierarchy, 0);
            let raised_up = kernel.world.borrow().clone();
            let acts = kernel.acts.get();
            let most = length(&state) + room;
            let done = limited(most, || admit(&kernel, &state, &entrant(), &|| true));
            let when = format!("{hierarchy:?}, {room} bytes are left");
            let why = done.expect_err(&when);
            assert_eq!(why.kind(), ErrorKind::Journal, "{when}: {why}");
            is_as_before(&kernel, &raised_up, &format!("{when}: {why}"));
            if kernel.acts.get() > acts {
                acted += 1;
                let back = why.rolled_back().expect(&when);
                assert!(!back.items.is_empty() && back.is_exact(), "{when}: {back:#?}");
                assert!(why.to_string().contains("was put back"), "{when}: {why}");
            }
            // With room again all goes on.
            admit(&kernel, &state, &entrant(), &|| true).expect(&when);
            release(&kernel, &state, 100, ANNA).expect(&when);
            is_as_before(&kernel, &raised_up, &when);
            assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{when}");
            is_as_before(&kernel, &before, &when);
        }
        assert!(acted > 10, "{hierarchy:?}: {acted}");
    }
}

#[test]
fn what_cannot_be_put_back_when_the_disk_is_full_is_said_to_be_left() {
    if !is_within("what_cannot_be_put_back_when_the_disk_is_full_is_said_to_be_left") {
        return;
    }
    for hierarchy in ALL {
        let (_, kernel, _dir, state) = shielded(hierarchy, 0);
        let begun = length(&state);
        let acts = kernel.acts.get();
        admit(&kernel, &state, &entrant(), &|| true).unwrap();
        let (took, ended) = (kernel.acts.get() - acts, length(&state));
        // The last thing that is told is what came of the priority; the first thing that is put back is the priority.
        let (before, kernel, _dir, state) = shielded(hierarchy, 0);
        let most = length(&state) + (ended - begun) - 1;
        kernel.refuse.set(Some((kernel.acts.get() + took + 1, 1)));
        let why = limited(most, || admit(&kernel, &state, &entrant(), &|| true)).unwrap_err();
        kernel.refuse.set(None);
        assert!(!why.rolled_back().unwrap().is_complete(), "{hierarchy:?}: {why}");
        assert!(why.to_string().contains("failed in part"), "{hierarchy:?}: {why}");
        assert_eq!(kernel.world.borrow().tasks[&100].scheduling, FIFO, "{hierarchy:?}");
        // It stays noted, and a revert knows it.
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact(), "{hierarchy:?}");
        is_as_before(&kernel, &before, &format!("{hierarchy:?}"));
    }
}

#[test]
fn who_is_let_out_when_the_disk_is_full_is_out() {
    if !is_within("who_is_let_out_when_the_disk_is_full_is_out") {
        return;
    }
    for hierarchy in ALL {
        let (before, kernel, _dir, state) = shielded(hierarchy, 0);
        let raised_up = kernel.world.borrow().clone();
        admit(&kernel, &state, &entrant(), &|| true).unwrap();
        let done = limited(length(&state), || release(&kernel, &state, 100, ANNA));
        let why = done.unwrap_err();
        assert_eq!(why.kind(), ErrorKind::Journal);
        assert!(why.rolled_back().unwrap().is_exact(), "{why}");
        is_as_before(&kernel, &raised_up, &format!("{hierarchy:?}"));
        release(&kernel, &state, 100, ANNA).unwrap();
        assert!(revert(&kernel, &state).unwrap().unwrap().is_exact());
        is_as_before(&kernel, &before, &format!("{hierarchy:?}"));
    }
}
