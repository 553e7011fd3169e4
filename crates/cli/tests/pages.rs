//! The pages in a real browser: see `pages/stories.mjs`.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{
    Machine, PROGRAM,
    planted::{Disk, Planted},
    soon, text,
};
use quiet_testing::{
    Why,
    faces::{self, Ended, Server},
    program, skip,
    tree::fixture,
};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

fn serve(machine: &Machine, listen: &str) -> Server {
    let cpu = machine.cpu.to_string();
    let state = machine.state();
    Server::start(PROGRAM, (&state, machine.dir()), &["--listen", listen, "--cpus", &cpu])
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
    faces::play(PROGRAM, machine.dir(), &strips.join("story.toml"), &["--user", "root"])
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
    let (mut planted, mut disk) = (None, None);
    let first = serve(&machine, "127.0.0.1:0");
    let (address, listen) = (first.address.clone(), first.at().to_owned());
    let mut server = Some(first);
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
            // The page may be a moment before the last line of the journal is taken away.
            Some("expect none") => soon(&format!("no shield is up: {told:?}"), || !is_up()),
            Some("expect up") => assert!(is_up(), "no shield is up: {told:?}"),
            Some("stop the server") => drop(server.take()),
            Some("stop the engine") => drop(engine.take()),
            Some("place a burst") => planted = Some(Planted::place(&machine).unwrap()),
            Some("let it go") => planted.iter_mut().for_each(Planted::go),
            Some("take the burst away") => drop(planted.take()),
            Some("write to the disk") => {
                disk = disk.take().or_else(|| Disk::towards(&machine));
                if let Some(disk) = &disk {
                    disk.write();
                }
            }
            Some("leave the disk alone") => drop(disk.take()),
            Some("start the server") => server = Some(serve(&machine, &listen)),
            _ => {}
        }
        if line.starts_with("do ") {
            // Which disk; nothing where none can come there.
            writeln!(tell, "{}", disk.as_ref().map_or("", |disk| disk.name.as_str())).unwrap();
        }
        told.push(line);
    }
    assert_eq!(told.last().map(String::as_str), Some("done"), "{}", told.join("\n"));
}
