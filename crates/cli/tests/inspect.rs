//! `quietcores inspect`, as a user calls it.
#![allow(clippy::unwrap_used)]

use quiet_testing::tree;
use quiet_types::Machine;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn fixture(name: &str) -> PathBuf {
    tree::fixture("machines").join(name)
}

/// A copy of a fixture to break.
fn copy(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join(name);
    tree::copy(&fixture(name), &root);
    (dir, root)
}

fn quietcores(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietcores")).args(arguments).output().unwrap()
}

#[test]
fn without_a_verb_it_shows_the_machine_and_what_to_do_next() {
    let done = quietcores(&[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(done.stderr));
    let said = text(done.stdout);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    for words in ["Machine ", release.trim(), "Shield ", "Next:\n", "  quietcores doctor "] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

fn inspect(root: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["inspect", "--root", root.to_str().unwrap()];
    arguments.extend(more);
    quietcores(&arguments)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn machine(done: Output) -> Machine {
    assert_eq!(done.status.code(), Some(0), "{}", text(done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The text as it was last approved by a reader. To renew it after a deliberate change:
/// `quietcores inspect --root fixtures/machines/NAME > crates/cli/tests/inspect/NAME.txt`
fn approved(name: &str, more: &[&str], file: &str) {
    let done = inspect(&fixture(name), more);
    assert_eq!(done.status.code(), Some(0));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inspect").join(file);
    let wanted = fs::read_to_string(&path).unwrap();
    let found = text(done.stdout);
    for (at, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(found, wanted, "{file}, line {}", at + 1);
    }
    assert_eq!(found, wanted);
}

#[test]
fn the_text_of_each_machine_is_as_approved() {
    approved("ryzen1700", &[], "ryzen1700.txt");
    approved("hybrid", &[], "hybrid.txt");
    approved("pi2", &[], "pi2.txt");
    approved("vm2", &["--tasks"], "vm2-tasks.txt");
    approved("corei7-64", &["--tasks"], "corei7-64-tasks.txt");
}

#[test]
fn the_json_of_this_machine_reads_back_as_a_machine() {
    let machine = machine(quietcores(&["inspect", "--json"]));
    assert_eq!(machine.schema, "quietcores.machine/1");
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_eq!(machine.online, cpus.parse().unwrap());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(machine.kernel.release, release.trim());
    let me = std::process::id();
    let me = machine.tasks.iter().find(|task| task.pid == me).unwrap();
    assert!(me.kernel.is_none() && !me.allowed.is_empty());
    assert!(machine.tasks.iter().all(|task| machine.online.contains(task.cpu)));
}

#[test]
fn a_capture_is_announced_and_reads_back_as_the_same_machine() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("my-pc");
    let target = target.to_str().unwrap();
    let done = quietcores(&["inspect", "--capture", target, "--json"]);
    let said = text(done.stderr.clone());
    assert!(said.contains("read it with: quietcores inspect --root"), "{said}");
    assert_eq!(machine(done), machine(inspect(Path::new(target), &["--json"])));
    let again = quietcores(&["inspect", "--capture", target]);
    assert_eq!(again.status.code(), Some(2));
    let said = text(again.stderr);
    assert!(said.contains("it is not empty; name a directory that does not exist yet"), "{said}");
}

#[test]
fn a_malformed_file_is_named_with_its_line_and_the_rest_is_shown() {
    let (_dir, root) = copy("vm2");
    let interrupts = fs::read_to_string(root.join("proc/interrupts")).unwrap();
    fs::write(root.join("proc/interrupts"), interrupts.replace(" 38: ", " 38: x")).unwrap();
    let sentence = "cannot understand /proc/interrupts, line 7: 0 counts for 2 CPUs";
    let found = machine(inspect(&root, &["--json"]));
    assert_eq!(found.unread.len(), 1);
    assert_eq!(found.unread[0].title, sentence);
    assert_eq!(found.irqs.len(), 6);
    let shown = text(inspect(&root, &[]).stdout);
    assert!(shown.contains("\nNot read\n") && shown.contains(sentence), "{shown}");
}

#[test]
fn what_is_no_machine_is_refused_with_a_sentence_and_exit_status_2() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for (root, why) in [
        (missing.as_path(), "cannot open the root"),
        (dir.path(), "it holds no /proc; name a captured tree"),
    ] {
        let done = inspect(root, &["--json"]);
        assert_eq!(done.status.code(), Some(2));
        assert_eq!(done.stdout, b"");
        let said = text(done.stderr);
        assert!(said.starts_with("quietcores: ") && said.contains(why), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(quietcores(&["inspect", "--nonsense"]).status.code(), Some(2));
}

#[test]
fn names_from_the_system_cannot_write_to_the_terminal() {
    let (_dir, root) = copy("vm2");
    for file in ["proc/300/task/300/stat", "proc/cmdline", "proc/cpuinfo", "proc/interrupts"] {
        let path = root.join(file);
        let honest = fs::read_to_string(&path).unwrap();
        let hostile = honest.replace("player", "p\x1b[2J").replace("quiet", "q\x1b]0;x\x07");
        let hostile = hostile.replace("EPYC", "E\x1b[31m").replace("ttyS0", "t\x1b[5m\u{9b}1m");
        fs::write(path, hostile).unwrap();
    }
    let shown = text(inspect(&root, &["--tasks"]).stdout);
    assert!(shown.contains("p\u{fffd}[2J") && shown.contains("q\u{fffd}]0;x"), "{shown}");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

#[test]
fn the_help_has_an_example() {
    let help = text(quietcores(&["inspect", "--help"]).stdout);
    assert!(help.contains("quietcores inspect --capture"), "{help}");
    for flag in ["--json", "--root", "--tasks", "--capture", "--command-lines"] {
        assert!(help.contains(flag), "{flag}");
    }
}
