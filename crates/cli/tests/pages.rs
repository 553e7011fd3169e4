//! The pages in a real browser: see `pages/stories.mjs`.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Machine, PROGRAM, text};
use quiet_testing::{Why, program, skip};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

fn serve(machine: &Machine, listen: &str) -> (Child, String) {
    let mut child = Command::new(PROGRAM)
        .args(["serve", "--listen", listen, "--cpus", &machine.cpu.to_string(), "--state"])
        .arg(machine.state())
        .arg("--store")
        .arg(machine.dir().join("store"))
        .env("XDG_RUNTIME_DIR", machine.dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    (child, address.trim().to_owned())
}

/// Ends it with its children, whatever becomes of the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stories_on_a_desktop_and_a_phone() {
    let Some(browser) = program("chromium") else {
        return skip(Why::Program("chromium", "chromium"));
    };
    if program("node").is_none() || program("npm").is_none() {
        return skip(Why::Program("npm", "npm"));
    }
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    if !pages.join("node_modules/playwright-core").is_dir() {
        let got = Command::new("npm").args(["ci", "--ignore-scripts"]).current_dir(&pages).output();
        let got = got.unwrap();
        if !got.status.success() {
            return skip(Why::Machine(format!("npm ci: {}", text(&got))));
        }
    }
    let Some(machine) = Machine::take() else { return };
    let (child, address) = serve(&machine, "127.0.0.1:0");
    let mut server = Some(Ended(child));
    let listen = address.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let mut stories = Command::new("node");
    stories.arg(pages.join("stories.mjs")).arg(browser).arg(&address);
    // Where somebody wants to look at them.
    stories.args(std::env::var_os("QUIETCORES_PICTURES"));
    let mut stories = Ended(stories.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut tell = stories.0.stdin.take().unwrap();
    let is_up = || machine.state().join("journal.jsonl").exists();
    let mut told = Vec::new();
    for line in BufReader::new(stories.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix("do ") {
            Some("expect none") => assert!(!is_up(), "a shield is up: {told:?}"),
            Some("expect up") => assert!(is_up(), "no shield is up: {told:?}"),
            Some("stop the server") => drop(server.take()),
            Some("start the server") => server = Some(Ended(serve(&machine, &listen).0)),
            _ => {}
        }
        if line.starts_with("do ") {
            writeln!(tell).unwrap();
        }
        told.push(line);
    }
    assert_eq!(told.last().map(String::as_str), Some("done"), "{}", told.join("\n"));
}
