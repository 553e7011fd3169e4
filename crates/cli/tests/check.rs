//! `quietcores check` and `quietcores import`, as a user calls them.
#![allow(clippy::unwrap_used)]

use quiet_types::{Severity, check::Checked};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn top(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn machine(name: &str) -> String {
    top("fixtures/machines").join(name).to_str().unwrap().to_owned()
}

fn recipe(name: &str) -> String {
    top("fixtures/recipes").join(name).to_str().unwrap().to_owned()
}

fn quietcores(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quietcores")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn code(arguments: &[&str]) -> i32 {
    let done = quietcores(arguments);
    done.status.code().unwrap_or_else(|| panic!("{arguments:?}: {}", text(&done.stderr)))
}

/// The text as it was last approved by a reader. To renew it after a deliberate change:
/// `quietcores check --root fixtures/machines/NAME > crates/cli/tests/check/NAME.txt`
#[test]
fn the_findings_of_each_machine_are_as_approved() {
    for name in ["ryzen1700", "corei7-64", "pi2", "hybrid", "vm2"] {
        let done = quietcores(&["check", "--root", &machine(name)]);
        let path = top("crates/cli/tests/check").join(format!("{name}.txt"));
        let wanted = fs::read_to_string(&path).unwrap_or_default();
        let found = text(&done.stdout);
        for (at, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(found, wanted, "{name}.txt, line {}", at + 1);
        }
        assert_eq!(found, wanted, "{name}");
        let said = text(&done.stderr);
        assert!(said.lines().all(|line| line.starts_with("next: quietcores ")), "{said}");
    }
}

#[test]
fn the_json_of_this_machine_reads_back_and_every_id_is_explained() {
    let done = quietcores(&["check", "--json", "--all"]);
    assert!(done.status.code() < Some(2), "{}", text(&done.stderr));
    let checked: Checked = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(checked.schema, "quietcores.check/1");
    let page = fs::read_to_string(top("docs/checks.md")).unwrap();
    for finding in &checked.findings {
        assert!(page.contains(&format!("- `{}`: ", finding.id)), "{}", finding.id);
    }
    let problem = checked.findings.iter().any(|f| f.severity == Severity::Problem);
    assert_eq!(done.status.code(), Some(problem.into()));
    assert!(checked.looked.len() > 90, "{}", checked.looked.len());
}

#[test]
fn the_exit_status_follows_the_level() {
    let (bad, fair) = (machine("corei7-64"), machine("vm2"));
    for (root, level, status) in
        [(&bad, "problem", 1), (&bad, "warning", 1), (&fair, "problem", 0), (&fair, "note", 1)]
    {
        assert_eq!(code(&["check", "--root", root, "--fail-on", level]), status, "{root} {level}");
    }
    assert_eq!(code(&["check", "--root", "/nonexistent"]), 2);
    assert_eq!(code(&["check", "--fail-on", "sometimes"]), 2);
}

#[test]
fn all_lists_what_is_fine_and_what_is_not_told() {
    let root = machine("vm2");
    let plain = text(&quietcores(&["check", "--root", &root]).stdout);
    let all = text(&quietcores(&["check", "--root", &root, "--all"]).stdout);
    for heading in ["Fine: ", "Not told by this snapshot: ", "Does not apply here: "] {
        assert!(all.contains(heading) && !plain.contains(heading), "{heading}");
    }
}

#[test]
fn a_chain_that_does_not_fit_is_answered_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.toml");
    fs::write(&path, "[chain]\ncpus = \"7\"\n").unwrap();
    let done = quietcores(&["check", path.to_str().unwrap(), "--root", &machine("vm2")]);
    assert_eq!(done.status.code(), Some(2));
    let said = text(&done.stderr);
    assert!(said.contains("CPU 7 is not on this machine") && said.contains(":2:"), "{said}");
    assert!(done.stdout.is_empty());
}

#[test]
fn a_chain_is_judged_link_by_link() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.toml");
    fs::write(&path, "[[link]]\nname = \"player\"\nprocess = \"nobody\"\ncpus = \"1\"\n").unwrap();
    let done = quietcores(&["check", path.to_str().unwrap(), "--root", &machine("vm2"), "--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", text(&done.stderr));
    let checked: Checked = serde_json::from_slice(&done.stdout).unwrap();
    let absent = checked.findings.iter().find(|f| f.id == "link.absent").unwrap();
    assert!(absent.title.contains("`player`"), "{}", absent.title);
}

#[test]
fn a_capture_of_this_machine_is_checked_with_its_surroundings() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("here");
    let root = root.to_str().unwrap();
    assert_eq!(code(&["inspect", "--capture", root]), 0);
    let done = quietcores(&["check", "--root", root, "--json", "--all"]);
    assert!(done.status.code() < Some(2), "{}", text(&done.stderr));
    let checked: Checked = serde_json::from_slice(&done.stdout).unwrap();
    let about = |id: &str| checked.looked.iter().find(|look| look.id == id).unwrap();
    for id in ["limits.rttime", "memory.access_times"] {
        let looked = about(id);
        assert_ne!(looked.result, quiet_types::check::CheckOutcome::Unknown, "{}", looked.because);
    }
}

#[test]
fn an_imported_recipe_can_be_planned_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    for (file, root) in [
        ("tuned-realtime-variables.conf", "ryzen1700"),
        ("cmdline.txt", "pi2"),
        ("rtirq.conf", "hybrid"),
    ] {
        let chain = dir.path().join(format!("{file}.toml"));
        let chain = chain.to_str().unwrap();
        let done = quietcores(&["import", &recipe(file), "-o", chain]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let done = quietcores(&["plan", chain, "--root", &machine(root)]);
        assert_eq!(done.status.code(), Some(0), "{file}: {}", text(&done.stderr));
        assert!(code(&["check", chain, "--root", &machine(root)]) < 2);
    }
}

#[test]
fn import_reads_standard_input_and_never_overwrites() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("chain.toml");
    fs::write(&path, "mine").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_quietcores"))
        .args(["import", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"isolcpus=2-3 quiet\n").unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    assert!(text(&done.stdout).contains("cpus = \"2-3\""), "{}", text(&done.stdout));
    let done = quietcores(&["import", &recipe("rtirq.conf"), "-o", path.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("does not exist yet"), "{}", text(&done.stderr));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn what_is_no_recipe_is_refused_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("letter");
    fs::write(&path, "Dear all,\n").unwrap();
    let path = path.to_str().unwrap();
    for (arguments, said) in [
        (vec!["import", path], "name what it is with --format"),
        (vec!["import", path, "--format", "cset"], "no listing"),
        (vec!["import", "/nonexistent"], "cannot read"),
        (vec!["import", "/proc"], "cannot read"),
    ] {
        let done = quietcores(&arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        let told = text(&done.stderr).replace("\n", " ");
        assert!(told.contains(said), "{arguments:?}: {told}");
    }
    fs::write(path, [0xff, 0xfe, 0x00]).unwrap();
    let told = text(&quietcores(&["import", path]).stderr);
    assert!(told.contains("not UTF-8"), "{told}");
}
