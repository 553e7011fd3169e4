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
    own_cpus, own_sockets, program, skip, skip_part,
    tree::fixture,
};
use std::{
    collections::BTreeMap,
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

/// The id of what a verb measures and keeps.
fn kept(machine: &Machine, words: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(words).arg("--json").arg("--state").arg(machine.state());
    let done = command.arg("--store").arg(machine.dir().join("store")).output().unwrap();
    assert!(matches!(done.status.code(), Some(0 | 1)), "{words:?}: {}", text(&done));
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    told["id"].as_str().unwrap_or_default().to_owned()
}

/// Two short runs, to be compared.
fn measure(machine: &Machine) {
    let cpu = own_cpus().first().unwrap().to_string();
    let wakeup = ["measure", "wakeup", "--cpus", &cpu, "--policy", "other", "--priority", "0"];
    for _ in 0..2 {
        kept(machine, &[&wakeup[..], &["--interval", "1ms", "--for", "300ms"]].concat());
    }
}

/// One short result of each kind that has a page of its own: its name, and where the page is.
fn reports(machine: &Machine, at: &str) -> BTreeMap<&'static str, String> {
    let cpu = machine.cpu.to_string();
    let prove = ["prove", "--pairs", "2", "--for", "400ms", "--gap", "100ms", "--explain"];
    let prove = kept(machine, &[&prove[..], &["--stress", "kernel", "--cpus", &cpu]].concat());
    let first = own_cpus().first().unwrap().to_string();
    let null = ["--host", "null", "--mode", "sleep", "--cpu", &first];
    let buffers = ["--periods", "16,64,256", "--counts", "2,3", "--for", "100ms"];
    let buffers = [&["measure", "buffers"], &null[..], &buffers[..], &["--label", "a phone"]];
    let buffers = kept(machine, &buffers.concat());
    let trip = ["--cable", "137.25", "--period", "512", "--buffer", "4096", "--cycles", "3"];
    let trip = kept(machine, &[&["measure", "roundtrip"], &null[..], &trip[..]].concat());
    let [file, page] = ["campaign.toml", "campaign.html"].map(|name| machine.dir().join(name));
    let campaign = format!(
        "[campaign]\nname = \"a phone\"\ncpus = \"{cpu}\"\nrounds = 2\nfor = \"200ms\"\n\
         [[probe]]\nkind = \"wakeup\"\ninterval = \"200us\"\n[[probe]]\nkind = \"gap\"\n\
         [[stress]]\nname = \"none\"\n[[setting]]\nname = \"as it is\"\n\
         [[setting]]\nname = \"behind a shield\"\nshield = true\n"
    );
    fs::write(&file, campaign).unwrap();
    let [file, written] = [&file, &page].map(|path| path.to_str().unwrap());
    kept(machine, &["campaign", file, "--html", written]);
    let served = |id: &str| format!("http://{at}/runs/{id}/report");
    // A farm of one, which needs no server.
    let store = machine.dir().join("store").to_str().unwrap().to_owned();
    let farm = ["farm", "collect", &store, "--store", &store];
    let collected = Command::new(PROGRAM).args(farm).output().unwrap();
    assert!(collected.status.success(), "{}", text(&collected));
    let wall = format!("http://{at}/farm/wall");
    let all = [("proof", served(&prove)), ("buffers", served(&buffers)), ("trip", served(&trip))];
    all.into_iter()
        .chain([("farm", wall)])
        .chain([("campaign", format!("file://{written}"))])
        .collect()
}

#[test]
fn stories_on_a_desktop_and_a_phone() {
    if quiet_testing::left_out("120 s") {
        return;
    }
    let Some(browser) = program("chromium") else {
        return skip(Why::Program("chromium", "chromium"));
    };
    if program("node").is_none() || program("npm").is_none() {
        return skip(Why::Program("npm", "npm"));
    }
    let Some(machine) = Machine::take() else { return };
    // In its turn: two at once in one checkout would take each other's away.
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    if !pages.join("node_modules/playwright-core").is_dir() {
        let got = Command::new("npm").args(["ci", "--ignore-scripts"]).current_dir(&pages).output();
        let got = got.unwrap();
        if !got.status.success() {
            return skip(Why::Machine(format!("npm ci: {}", text(&got))));
        }
    }
    measure(&machine);
    let (mut planted, mut disk) = (None, None);
    // It comes back there: a port of 127.0.0.1 may be another program's by then.
    let [own] = own_sockets();
    let first = serve(&machine, &own.to_string());
    let (address, listen) = (first.address.clone(), first.at().to_owned());
    let mut server = Some(first);
    let reports = reports(&machine, &listen);
    let mut engine = Some(play(&machine));
    let mut stories = Command::new("node");
    stories.arg(pages.join("stories.mjs")).arg(browser).arg(&address);
    stories.arg(fixture("amps/wavenet.nam"));
    stories.env("QUIETCORES_REPORTS", serde_json::to_string(&reports).unwrap());
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
            Some("place a burst") => {
                let lacks = ["perl", "chrt"].into_iter().find(|name| program(name).is_none());
                match lacks {
                    Some(name) => skip_part(Why::Program(
                        name,
                        if name == "perl" { name } else { "util-linux" },
                    )),
                    None => planted = Some(Planted::place(&machine).unwrap()),
                }
            }
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
            // Whether there is a burst, or which disk; nothing where none can come there.
            let disk = disk.as_ref().map(|disk| disk.name.as_str());
            let there = disk.or(planted.as_ref().map(|_| "placed"));
            writeln!(tell, "{}", there.unwrap_or_default()).unwrap();
        }
        // How soon depends on this machine's load: it is told, and not judged.
        if line.starts_with("found ") {
            eprintln!("{line}");
        }
        told.push(line);
    }
    assert_eq!(told.last().map(String::as_str), Some("done"), "{}", told.join("\n"));
}
