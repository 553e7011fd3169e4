//! `reach` ended by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_testing::{Why, is_root, own_cpus, skip, until};
use quiet_types::{Nanos, reach::Reach};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    process::{Command, Stdio},
};

/// Whether its thread that acts is there: the signal is listened to long before.
fn acts(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let name = |dir: fs::DirEntry| fs::read_to_string(dir.path().join("comm")).unwrap_or_default();
    threads.map(name).any(|name| name.trim() == "reach")
}

#[test]
fn ctrl_c_ends_it_at_once_with_what_there_is() {
    if let Err(why) = quiet_linux::trace::instances() {
        return skip(if is_root() { Why::Machine(why.to_string()) } else { Why::Root });
    }
    let last = own_cpus().iter().last().unwrap().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["reach", "--cpus", &last, "--each", "1min", "--only", "proc", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    until("an act begins", || (acts(child.id()) || !alive(child.id())).then_some(()));
    let _ = kill_process(pid, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let reach: Reach = serde_json::from_slice(&output.stdout).unwrap();
    assert!(reach.interrupted);
    // A minute each: nothing was slept out.
    assert_eq!(reach.acts.len(), 1);
    assert!(reach.acts.iter().all(|act| act.lasted < Nanos::from_secs(60)), "{:?}", reach.acts);
}

/// Not ended, as it does where the kernel's trace may not be used.
fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
