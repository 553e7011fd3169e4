//! Every verb has `--json`, and what it prints follows a committed schema.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn quietcores(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietcores"));
    command.args(args).current_dir(dir).env("XDG_DATA_HOME", dir.join("data"));
    command.stdin(Stdio::null()).output().unwrap()
}

fn help(args: &[&str]) -> String {
    let output = quietcores(Path::new("/"), args);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The words of the list of commands in a help.
fn verbs(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let words = list.lines().take_while(|line| line.starts_with(' '));
    let words = words.filter(|line| !line.starts_with("   "));
    let words = words.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    words.filter(|word| word != "help").collect()
}

#[test]
fn every_verb_has_json() {
    let mut all = verbs(&help(&["--help"]));
    assert!(all.len() > 20, "{all:?}");
    all.push("generate".to_owned());
    for verb in all {
        let said = help(&[&verb, "--help"]);
        for probe in verbs(&said) {
            let said = help(&[&verb, &probe, "--help"]);
            assert!(said.contains("--json"), "{verb} {probe} has no --json");
        }
        assert!(said.contains("--json") || !verbs(&said).is_empty(), "{verb} has no --json");
    }
}

fn fixture(name: &str) -> String {
    quiet_testing::tree::fixture(name).display().to_string()
}

/// Whether `value` has what the schema requires, and nothing that it does not know.
fn follows(value: &Value, name: &str) {
    let schemas: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let text = fs::read_to_string(schemas.join(format!("{name}.json"))).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let keys: BTreeSet<&String> = value.as_object().unwrap().keys().collect();
    let known: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert!(keys.is_subset(&known), "{name}: {keys:?} of {known:?}");
    for required in schema["required"].as_array().unwrap() {
        assert!(value.get(required.as_str().unwrap()).is_some(), "{name}: no {required}");
    }
}

#[test]
fn what_is_printed_as_json_follows_its_schema() {
    let dir = tempfile::tempdir().unwrap();
    let run = fixture("results/cyclictest-summary.txt");
    let nuc = fixture("machines/nuc");
    let recipe = dir.path().join("cmdline");
    fs::write(&recipe, "BOOT_IMAGE=/vmlinuz isolcpus=2-3 nohz_full=2-3\n").unwrap();
    let recipe = recipe.display().to_string();
    let mut cases = vec![
        (vec!["import", &run, "--json"], "run"),
        (vec!["import", &recipe, "--json"], "import"),
        (vec!["import", &recipe, "--json", "-o", "room.toml"], "import"),
        (vec!["export", "last", "--format", "csv", "-o", "run.csv", "--json"], "export"),
        (vec!["report", "last", "-o", "page.html", "--json"], "report"),
        (vec!["runs", "--json"], "history"),
        (vec!["generate", "share", "--json"], "generate"),
        (vec!["stress", "--list", "--json"], "suites"),
        (vec!["unpersist", "--root", "tree", "--json"], "unpersist"),
        (vec!["setup", "--root", &nuc, "--yes", "--json"], "setup"),
        (vec!["farm", "status", "--json"], "farm-status"),
        (vec!["farm", "join", "--show", "--json"], "farm-join"),
        (vec!["farm", "join", "--yes", "--all", "--json"], "farm-join"),
        (vec!["farm", "send", "--json"], "farm-send"),
        (vec!["farm", "status", "--json"], "farm-status"),
        (vec!["farm", "collect", "data", "--json"], "farm-collect"),
        (vec!["farm", "ask", "--json"], "farm-answer"),
        (vec!["farm", "metrics", "--json"], "farm-metrics"),
        (vec!["farm", "page", "-o", "wall.html", "--json"], "farm-page"),
        (vec!["farm", "leave", "--json"], "farm-leave"),
    ];
    if cfg!(feature = "audio") {
        cases.push((vec!["play", "--list", "--json"], "devices"));
    }
    fs::create_dir(dir.path().join("tree")).unwrap();
    for (args, name) in cases {
        let output = quietcores(dir.path(), &args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        follows(&value, name);
    }
    assert!(fs::read_to_string(dir.path().join("room.toml")).unwrap().contains("[chain]"));
}

#[test]
fn no_two_shapes_share_a_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../types/src");
    let mut names = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.starts_with("pub const")) {
            if let Some((_, name)) = line.split_once("\"quietcores.") {
                names.push(name.split('"').next().unwrap().to_owned());
            }
        }
    }
    // The record on disk, which no verb prints.
    names.push("persist/1".to_owned());
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    assert!(names.len() > 25, "{names:?}");
}

#[test]
fn a_chain_file_with_nothing_in_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["", "\n\n", "# one day\n"] {
        fs::write(dir.path().join("room.toml"), text).unwrap();
        let output = quietcores(dir.path(), &["plan", "room.toml"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("nothing is in it"));
    }
}
