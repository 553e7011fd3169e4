//! A test in namespaces of its own: a disk that is full, a network that is cut.

use crate::{Why, is_root, skip};
use std::{env, process::Command, thread};

const WITHIN: &str = "QUIETCORES_WITHIN";

/// Whether the test that calls this runs in namespaces of its own. Where it does not yet, it is run again there, by `unshare FLAGS` and
/// after `setup`, a shell's words; then this is false, and the caller returns. What `setup` mounts or links ends with the test.
///
/// # Panics
/// Where the test fails there; with what it printed. In a thread without a test's name.
#[track_caller]
pub fn within(flags: &str, setup: &str) -> bool {
    if env::var_os(WITHIN).is_some() {
        return true;
    }
    if !is_root() {
        skip::<()>(Why::Root);
        return false;
    }
    let script = format!("{{ {setup}; }} >&2 || exit 77; exec \"$0\" \"$@\"");
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let output = Command::new("unshare")
        .args([flags, "sh", "-c", &script])
        .arg(env::current_exe().unwrap_or_else(|error| panic!("no program: {error}")))
        .args(["--exact", name.unwrap_or_else(|| panic!("a test has a name")), "--nocapture"])
        .env(WITHIN, "1")
        .output()
        .unwrap_or_else(|error| panic!("cannot start unshare: {error}"));
    let said =
        [output.stdout, output.stderr].map(|part| String::from_utf8_lossy(&part).into_owned());
    if output.status.code() == Some(77) {
        let why = said[1].trim().lines().last().unwrap_or_default().to_owned();
        skip::<()>(Why::Machine(format!("no such namespaces here: {why}")));
        return false;
    }
    assert!(
        output.status.success() && said[0].contains("1 passed"),
        "in namespaces of its own ({}):\n{}{}",
        output.status,
        said[0],
        said[1]
    );
    false
}
