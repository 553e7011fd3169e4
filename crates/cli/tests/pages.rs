//! The pages in a real browser: see `pages/stories.mjs`.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Machine, PROGRAM, text};
use quiet_testing::{Why, program, skip};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

fn serve(machine: &Machine, listen: &str) -> (Child, String) {
    let mut child = Command::new(PROGRAM)
        .args([
            "serve",
            "--as-root",
            "--listen",
            listen,
            "--cpus",
            &machine.cpu.to_string(),
            "--state",
        ])
        .arg(machine.state())
        .arg("--store")
        .arg(machine.dir().join("store"))
        .env("XDG_RUNTIME_DIR", machine.dir())
        .env("XDG_STATE_HOME", machine.dir().join("own"))
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

/// A file of the fixtures.
fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path).canonicalize().unwrap()
}

/// An engine on the card that does not exist, with two strips to choose from.
fn play(machine: &Machine) -> Ended {
    let strips = machine.dir().join("strips");
    fs::create_dir_all(&strips).unwrap();
    fs::copy(fixture("amps/BossLSTM-1x16.nam"), strips.join("amp.nam")).unwrap();
    let strip = "[strip]\nname = \"story\"\nchannels = 1\n[[stage]]\nkind = \"tuner\"\n\
                 [[stage]]\nkind = \"amp\"\nfile = \"amp.nam\"\n\
                 [[stage]]\nkind = \"gain\"\nname = \"out\"\ngain = -3.0\n";
    fs::write(strips.join("story.toml"), strip).unwrap();
    let other = "[strip]\nname = \"another\"\nchannels = 1\n[[stage]]\nkind = \"gain\"\n";
    fs::write(strips.join("another.toml"), other).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args([
        "play",
        "--host",
        "null",
        "--mode",
        "sleep",
        "--period",
        "512",
        "--channels",
        "1",
    ]);
    command.args(["--buffer", "8192", "--user", "root"]).arg(strips.join("story.toml"));
    command.env("XDG_STATE_HOME", machine.dir().join("own"));
    Ended(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

/// Two short runs, to be compared.
fn measure(machine: &Machine) {
    for _ in 0..2 {
        let mut command = Command::new(PROGRAM);
        command.args(["measure", "wakeup", "--cpus", "0", "--policy", "other", "--priority", "0"]);
        command.args(["--interval", "1ms", "--for", "300ms"]);
        let done = command.arg("--store").arg(machine.dir().join("store")).output().unwrap();
        assert!(done.status.success(), "{}", text(&done));
    }
}

/// Somebody who goes onto the shield and works there for a few ms again and again; `None` where nobody can.
fn plant(machine: &Machine) -> Option<Ended> {
    let name = machine.dir().join("planted-burst");
    let _ = std::os::unix::fs::symlink("/bin/sh", &name);
    let work = "while :; do i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; sleep 0.2; done";
    let cpu = machine.cpu.to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu, "chrt", "-f", "10"]).arg(&name).args(["-c", work]);
    let mut planted = Ended(command.stderr(Stdio::null()).spawn().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(500));
    planted.0.try_wait().unwrap().is_none().then_some(planted)
}

#[test]
fn stories_on_a_desktop_and_a_phone() {
    if quiet_testing::left_out("50 s") {
        return;
    }
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
    measure(&machine);
    let mut engine = Some(play(&machine));
    let mut planted = None;
    let (child, address) = serve(&machine, "127.0.0.1:0");
    let mut server = Some(Ended(child));
    let listen = address.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let mut stories = Command::new("node");
    stories.arg(pages.join("stories.mjs")).arg(browser).arg(&address);
    stories.arg(fixture("amps/wavenet.nam"));
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
            Some("stop the engine") => drop(engine.take()),
            Some("plant a burst") => planted = plant(&machine),
            Some("take the burst away") => drop(planted.take()),
            Some("start the server") => server = Some(Ended(serve(&machine, &listen).0)),
            _ => {}
        }
        if line.starts_with("do ") {
            let refused = line == "do plant a burst" && planted.is_none();
            writeln!(tell, "{}", if refused { "nobody can" } else { "" }).unwrap();
        }
        told.push(line);
    }
    assert_eq!(told.last().map(String::as_str), Some("done"), "{}", told.join("\n"));
}
