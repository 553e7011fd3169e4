//! `quietcores setup`: what is proposed on every machine of the fixtures, the conversation by piped answers, and the way to a shield.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, text};
use quiet_testing::{
    Why, program, skip, skip_part,
    tree::{copy, fixture as fixture_of},
};
use quiet_types::setup::SetUp;
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const MACHINES: [&str; 7] = ["corei7-64", "hybrid", "nuc", "numa2", "pi2", "ryzen1700", "vm2"];

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs it in `dir`, with these answers on standard input.
fn setup(dir: &Path, arguments: &[&str], answers: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .arg("setup")
        .args(arguments)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it has heard all.
    let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
    child.wait_with_output().unwrap()
}

fn fixture(name: &str) -> String {
    home().join("fixtures/machines").join(name).to_str().unwrap().to_owned()
}

fn json(output: &Output) -> SetUp {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

/// The chain of the defaults on each machine, as it was approved; `QUIETCORES_BLESS=1` takes a change over.
#[test]
fn the_defaults_of_each_machine_are_as_approved() {
    let dir = tempfile::tempdir().unwrap();
    let mut changed = Vec::new();
    for name in MACHINES {
        let done = setup(dir.path(), &["--root", &fixture(name), "--yes", "--json"], "");
        let set = json(&done);
        assert_eq!((set.schema.as_str(), set.up, set.applied), ("quietcores.setup/1", false, None));
        let absent = set.plan.findings.iter().find(|f| f.id.starts_with("plan.link-"));
        assert_eq!(absent, None, "{name}");
        let now = format!("{}# CPU {}\n", set.text.unwrap(), set.plan.shield.cpus);
        let file = home().join(format!("crates/cli/tests/setup/{name}.toml"));
        if std::env::var_os("QUIETCORES_BLESS").is_some() {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, &now).unwrap();
        }
        if fs::read_to_string(&file).unwrap_or_default() != now {
            changed.push(format!("{} would be\n{now}", file.display()));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "nothing is written for another machine"
    );
}

#[test]
fn answers_are_taken_by_number_and_name_and_an_end_of_input_is_none() {
    let (dir, nuc) = (tempfile::tempdir().unwrap(), fixture("nuc"));
    let done = setup(dir.path(), &["--root", &nuc, "--json"], "camilladsp\n2\n9\n1\n\n");
    let answers = json(&done).answers.unwrap();
    let players: Vec<&str> = answers.players.iter().map(|kind| kind.name()).collect();
    assert_eq!((players, answers.card, answers.cores), (vec!["camilladsp"], None, 1));
    assert!(
        text(&done).contains("`9` is no answer: write a number from 1 to 3"),
        "{}",
        text(&done)
    );

    let cut = setup(dir.path(), &["--root", &nuc], "1\n1\n");
    assert_eq!((cut.status.code(), cut.stdout.len()), (Some(2), 0), "{}", text(&cut));
    for said in ["nothing on this machine is changed", "How many cores may it have?", "--yes"] {
        assert!(text(&cut).contains(said), "{}", text(&cut));
    }
    // Arguments are answers that nobody is asked for.
    let asked = ["--root", &nuc, "--player", "mpd", "--card", "none", "--cores", "3", "--last"];
    let done = setup(dir.path(), &asked, "");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    assert!(text(&done).contains("cpus = \"auto:3\""), "{}", text(&done));
    for (wrong, says) in [
        (&["--card", "XYZ"][..], "name one of DAC, or none"),
        (&["--cores", "4"], "1 to 3 are to be had here"),
        (&["--player", "radio"], "mpd, camilladsp, jack, pipewire, engine"),
    ] {
        let arguments = [&["--root", nuc.as_str(), "--yes"], wrong].concat();
        let refused = setup(dir.path(), &arguments, "");
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused).contains(says), "{}", text(&refused));
    }
}

#[test]
fn a_dry_run_writes_nothing_and_a_file_that_is_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let engine = ["--player", "engine", "--card", "none"];
    let dry = setup(dir.path(), &[&engine[..], &["--yes", "--dry-run"]].concat(), "");
    assert_eq!(dry.status.code(), Some(0), "{}", text(&dry));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(text(&dry).contains("Nothing on the machine is changed."), "{}", text(&dry));

    fs::write(dir.path().join("engine.toml"), "# mine\n").unwrap();
    let taken = setup(dir.path(), &[&engine[..], &["--yes"]].concat(), "");
    assert_eq!(taken.status.code(), Some(2), "{}", text(&taken));
    assert!(text(&taken).contains("--force"), "{}", text(&taken));
    assert_eq!(fs::read_to_string(dir.path().join("engine.toml")).unwrap(), "# mine\n");
}

/// What a user of the machine would type, with the CPU and the journal of the test.
fn here<'a>(state: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = ["--player", "engine", "--card", "none", "--json", "--state", state];
    [&usual[..], more].concat()
}

#[test]
fn yes_ends_with_a_confirmed_shield_that_revert_takes_back() {
    let Some(machine) = Machine::take() else { return };
    let (state, before) = (machine.state().to_str().unwrap().to_owned(), Capture::take());
    let done = setup(machine.dir(), &here(&state, &["--yes", "--no-proof"]), "");
    let set = json(&done);
    assert!(set.up && matches!(done.status.code(), Some(0 | 1)), "{}", text(&done));
    assert_eq!(set.applied.unwrap().shield.cpus, set.plan.shield.cpus);
    let file = machine.dir().join(set.file.unwrap());
    assert_eq!(fs::read_to_string(&file).unwrap(), set.text.unwrap());
    let status = text(&machine.run("status"));
    assert!(
        status.contains("A shield of CPU") && !status.contains("quietcores confirm"),
        "{status}"
    );
    machine.revert_to(&before, "after a setup");
}

#[test]
fn who_says_no_or_nothing_under_the_shield_has_the_machine_as_it_was() {
    if quiet_testing::left_out("6 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let (state, before) = (machine.state().to_str().unwrap().to_owned(), Capture::take());
    let is_as_it_was = |when: &str| {
        assert!(!machine.state().join("journal.jsonl").exists(), "{when}");
        assert_eq!(before.differences(&Capture::take()), Vec::<String>::new(), "{when}");
    };
    let cores = setup(machine.dir(), &here(&state, &["--yes", "--dry-run"]), "");
    // Where the machine has one core there is nothing to be said about their number.
    let number = if json(&cores).found.most_cores == 0 { "" } else { "\n" };

    let no = setup(machine.dir(), &here(&state, &[]), &format!("{number}\ny\nn\n"));
    assert_eq!(no.status.code(), Some(1), "{}", text(&no));
    let set = json(&no);
    assert!(!set.up && set.applied.is_some(), "{}", text(&no));
    assert_eq!(set.findings[0].id, "setup.does_not_play");
    is_as_it_was("no");

    let silent = setup(machine.dir(), &here(&state, &[]), &format!("{number}\ny\n"));
    assert_eq!(silent.status.code(), Some(2), "{}", text(&silent));
    assert!(text(&silent).contains("the machine is put back"), "{}", text(&silent));
    is_as_it_was("the end of input");

    let never = setup(machine.dir(), &here(&state, &[]), &format!("{number}\nn\n"));
    assert_eq!(never.status.code(), Some(0), "{}", text(&never));
    assert_eq!(json(&never).findings[0].id, "setup.not_applied");
    is_as_it_was("no at the plan");
}

#[test]
fn the_proof_has_the_shield_give_way_and_come_back() {
    let Some(machine) = Machine::take() else { return };
    let (state, before) = (machine.state().to_str().unwrap().to_owned(), Capture::take());
    let store = machine.dir().join("store");
    let more = ["--yes", "--pairs", "1", "--store", store.to_str().unwrap()];
    let done = setup(machine.dir(), &here(&state, &more), "");
    let set = json(&done);
    let proof = set.proof.unwrap_or_else(|| panic!("{}", text(&done)));
    assert!(set.up, "{}", text(&done));
    assert!(store.join("proofs").join(&proof.id).join("proof.json").is_file());
    machine.revert_to(&before, "after a proven setup");
}

/// Every file below `dir`, with its text.
fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => {
                let text = fs::read(entry.path()).unwrap_or_default();
                found.insert(entry.path(), String::from_utf8_lossy(&text).into_owned());
            }
        }
    }
    found
}

/// The files of a boot loader lie over those of this machine, in a place of the test's own.
#[test]
fn last_asks_the_next_boots_for_what_was_applied_and_unpersist_takes_it_back() {
    let Some(machine) = Machine::take() else { return };
    if program("unshare").is_none() {
        return skip(Why::Program("unshare", "util-linux"));
    }
    let (state, before) = (machine.state().to_str().unwrap().to_owned(), Capture::take());
    let place = machine.dir().join("place");
    copy(&fixture_of("boot").join("raspberry-pi"), &place);
    fs::create_dir(place.join("units")).unwrap();
    let script = "mount --bind \"$1/boot\" /boot && mount --bind \"$1/units\" /etc/systemd/system && cd \"$2\" && shift 2 && exec \"$@\"";
    let within = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&place).arg(machine.dir());
        command.arg(PROGRAM).args(words).args(["--state", &state]).stdin(Stdio::null());
        command.output().unwrap()
    };
    let cpu = machine.cpu.to_string();
    let fit = within(&["persist", "--cpus", &cpu, "--dry-run"]);
    if fit.status.code() == Some(2) || text(&fit).starts_with("unshare:") {
        return skip(Why::Machine(format!(
            "no loader's files can be laid over its own: {}",
            text(&fit)
        )));
    }
    let loader = files(&place);
    let asked = ["setup", "--player", "engine", "--card", "none", "--json", "--yes", "--no-proof"];
    let without = within(&[&asked[..], &["--dry-run"]].concat());
    assert_eq!(json(&without).persisted, None, "{}", text(&without));
    assert_eq!(files(&place), loader, "a dry run asks no loader for anything");

    let done = within(&[&asked[..], &["--last"]].concat());
    let set = json(&done);
    let Some(persisted) = set.persisted else {
        // The only CPU that an interrupt of the disk leaves alone may be the one that boots: no boot isolates that.
        let why = set.findings.iter().find(|finding| finding.id == "setup.not_lasting");
        let evidence = why.map(|why| why.evidence.clone()).unwrap_or_default();
        assert!(evidence.contains("boots the machine"), "{}", text(&done));
        assert_eq!(files(&place), loader);
        machine.revert_to(&before, "after a setup that cannot last");
        return skip_part(Why::Machine(evidence));
    };
    assert!(set.up && matches!(done.status.code(), Some(0 | 1)), "{}", text(&done));
    let asks = format!("isolcpus=managed_irq,domain,{}", set.plan.shield.cpus);
    assert!(persisted.asked.words().contains(&asks), "{persisted:?}");
    let command_line = fs::read_to_string(place.join("boot/firmware/cmdline.txt")).unwrap();
    assert!(command_line.contains(&asks), "{command_line}");
    assert_ne!(files(&place), loader);
    // What is up stays up, and goes by itself.
    let taken = within(&["unpersist"]);
    assert_eq!(taken.status.code(), Some(0), "{}", text(&taken));
    assert_eq!(files(&place), loader);
    let status = text(&machine.run("status"));
    assert!(status.contains("A shield of CPU"), "{status}");
    machine.revert_to(&before, "after a setup that lasts");
}
