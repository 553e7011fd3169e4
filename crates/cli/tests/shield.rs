//! The program itself, on the machine that runs the tests: apply, killed at every act, revert, and
//! the machine compared with what it was.
//!
//! These tests change the machine for seconds at a time. They need root and two CPUs, and say so
//! where they are skipped.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, is_mask, mask, read, soon, text, thread};
use quiet_testing::{Why, copy_program, skip, skip_part};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn a_shield_goes_up_is_seen_and_comes_down_without_a_trace() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();

    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let up = Capture::take();
    assert_ne!(before.differences(&up), Vec::<String>::new(), "nothing was changed");

    let again = machine.apply().output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again).contains("a shield is up already"), "{}", text(&again));

    let json = Command::new(PROGRAM)
        .args(["status", "--json", "--state"])
        .arg(machine.state())
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(status["schema"], "quietcores.status/1");
    assert_eq!(status["state"], "up");
    assert_eq!(status["shield"]["cpus"], machine.cpu.to_string());
    assert_eq!(status["drift"], serde_json::json!([]));
    let foreign = status["residents"].as_array().unwrap().iter();
    let foreign: Vec<_> = foreign.filter(|r| r["kind"] == "foreign").collect();
    assert!(foreign.is_empty(), "{foreign:?}");

    machine.revert_to(&before, "after a whole apply");
    let nothing = machine.run("revert");
    assert_eq!(nothing.status.code(), Some(0));
    assert!(text(&nothing).contains("No shield is up"), "{}", text(&nothing));
}

/// The note of a card that `play --host hda` has: of no card that a machine has, so nothing is bound.
fn note_a_card(machine: &Machine, pid: u32, start: &str) {
    let note = serde_json::json!({
        "schema": "quietcores.card/1",
        "boot_id": read("/proc/sys/kernel/random/boot_id").trim(),
        "address": "ffff:ff:1f.7", "driver": "snd_hda_intel", "override": null,
        "player": { "pid": pid, "start": start.parse::<u64>().unwrap() },
    });
    fs::write(machine.state().join("card.json"), note.to_string()).unwrap();
}

#[test]
fn a_card_that_is_taken_is_named_and_never_keeps_a_shield_up() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));

    let own = read("/proc/self/stat");
    let start = own.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    note_a_card(&machine, std::process::id(), start);
    let said = text(&machine.run("status"));
    let playing = format!("Process {} plays on the sound card ffff:ff:1f.7", std::process::id());
    assert!(said.contains(&playing) && said.contains("snd_hda_intel gets it back"), "{said}");

    // Its process is another one's number now.
    note_a_card(&machine, std::process::id(), "1");
    let left = machine.run("status");
    let said = text(&left);
    assert!(said.contains("has left the sound card ffff:ff:1f.7"), "{said}");
    assert_eq!(left.status.code(), Some(1), "{said}");

    // What is no note is an error, but the shield comes down.
    fs::write(machine.state().join("card.json"), "no note\n").unwrap();
    let told = machine.run("status");
    assert_eq!(told.status.code(), Some(2), "{}", text(&told));
    let said = text(&told);
    assert!(said.contains("is up since") && said.contains("card.json"), "{said}");
    let reverted = machine.run("revert");
    assert_eq!(reverted.status.code(), Some(2), "{}", text(&reverted));
    assert!(text(&reverted).contains("card.json"), "{}", text(&reverted));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());

    note_a_card(&machine, std::process::id(), "1");
    let reverted = machine.run("revert");
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert!(text(&reverted).contains("ffff:ff:1f.7"), "{}", text(&reverted));
    assert!(!machine.state().join("card.json").exists());
}

#[test]
fn the_guards_that_never_sleep_takes_away_come_back() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = machine.apply().arg("--never-sleep").output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    assert_eq!(read("/proc/sys/kernel/sched_rt_runtime_us").trim(), "-1", "{}", text(&applied));
    machine.revert_to(&before, "after --never-sleep");
}

#[test]
fn a_chain_is_placed_and_comes_back() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let player = dir.path().join("qcplayer");
    copy_program("/bin/sleep", &player);
    let chain = dir.path().join("room.toml");
    let text_of = "[[link]]\nname = \"player\"\nprocess = \"qcplayer\"\npriority = 70\n";
    fs::write(&chain, text_of).unwrap();
    let mut player = Command::new(&player).arg("600").spawn().unwrap();
    // The name is the new one only when the program has been started.
    let comm = format!("/proc/{}/comm", player.id());
    soon("the player's name", || read(&comm).trim() == "qcplayer");
    let before = Capture::take();
    let applied = machine.apply().arg(&chain).output().unwrap();
    let said = text(&applied);
    let tid = player.id().to_string();
    let placed = thread(&tid, &tid).unwrap().1.1;
    let reverted = machine.run("revert");
    let back = before.differences(&Capture::take());
    player.kill().unwrap();
    player.wait().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{said}");
    let cpus = format!("Cpus_allowed_list:\t{}", machine.cpu);
    // A kernel with budgets for groups of real-time threads may refuse the priority.
    assert!(placed.contains(&cpus), "{placed}: {said}");
    assert!(
        placed.contains("policy 1 priority 70") || said.contains("refused: scheduling"),
        "{said}"
    );
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert_eq!(back, Vec::<String>::new(), "{}", text(&reverted));
}

#[test]
#[cfg(debug_assertions)]
fn killed_at_every_act_of_apply_revert_restores_everything() {
    if quiet_testing::left_out("15 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut kills = 0;
    for act in 1.. {
        let fault = format!("kill:{act}");
        let applied = machine.apply().env("QUIETCORES_FAULT", &fault).output().unwrap();
        if applied.status.signal() != Some(Signal::KILL.as_raw()) {
            assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
            break;
        }
        kills += 1;
        if machine.state().join("journal.jsonl").exists() {
            let status = machine.run("status");
            let said = text(&status);
            let whole = said.contains(" is up since ");
            assert!(whole || said.contains("did not come to its end"), "{fault}: {said}");
        }
        machine.revert_to(&before, &fault);
    }
    machine.revert_to(&before, "after the last act");
    // How much there is to change is the machine's.
    assert!(kills > 10, "only {kills} acts");
    eprintln!("killed {kills} times");
}

#[test]
#[cfg(debug_assertions)]
fn killed_while_reverting_the_next_revert_does_the_rest() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    // Every act is tried against a kernel of our own in the library's tests; here some are.
    for act in (1..).step_by(11) {
        let applied = machine.apply().output().unwrap();
        assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
        let fault = format!("kill:{act}");
        let reverted = Command::new(PROGRAM)
            .args(["revert", "--state"])
            .arg(machine.state())
            .env("QUIETCORES_FAULT", &fault)
            .output()
            .unwrap();
        if reverted.status.signal() != Some(Signal::KILL.as_raw()) {
            assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
            assert!(act > 1, "it was killed at no act");
            break;
        }
        machine.revert_to(&before, &format!("revert with {fault}"));
    }
    machine.revert_to(&before, "after the last act");
}

/// Numbers that differ from run to run; the seed is said so that a failure can be understood.
fn instants(count: usize) -> Vec<Duration> {
    let seed = std::process::id().into();
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| Duration::from_micros(random.u64(..250_000))).collect()
}

#[test]
fn killed_from_outside_at_any_instant_revert_restores_everything() {
    if quiet_testing::left_out("15 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    for instant in instants(6) {
        let mut child =
            machine.apply().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(instant);
        child.kill().unwrap();
        child.wait().unwrap();
        machine.revert_to(&before, &format!("killed after {instant:?}"));
    }
}

#[test]
fn a_sigterm_during_apply_leaves_a_whole_shield_or_none() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    for instant in instants(6) {
        let child = machine.apply().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(instant);
        let pid = rustix::process::Pid::from_child(&child);
        kill_process(pid, Signal::TERM).unwrap();
        let applied = child.wait_with_output().unwrap();
        let up = machine.state().join("journal.jsonl").exists();
        match applied.status.code() {
            Some(0 | 1) => assert!(up, "{}", text(&applied)),
            // Before the program listens, or rolled back.
            _ => assert!(!up, "{instant:?}: {}", text(&applied)),
        }
        machine.revert_to(&before, &format!("SIGTERM after {instant:?}"));
    }
}

#[test]
fn a_full_disk_under_the_journal_changes_nothing() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let before = Capture::take();
    let (mut refused, mut applied) = (0, 0);
    // A file system of its own, of so many pages, that only this command sees.
    // How much is to be noted is the machine's: threads, interrupts.
    let sizes = std::iter::successors(Some(1), |pages| Some(pages + 1 + pages / 8));
    for pages in sizes.take_while(|pages| *pages < 1 << 14) {
        let script = "mount -t tmpfs -o size=$2,mode=700 tmpfs $1 || exit 99; shift 2; \"$@\"; \
                      code=$?; \"$1\" revert --state \"$7\" >&2 || exit 98; exit $code";
        let out = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(dir.path())
            .arg(format!("{}", pages * 4096))
            .args([PROGRAM, "apply", "--yes", "--cpus", &machine.cpu.to_string(), "--state"])
            .arg(dir.path().join("state"))
            .output();
        let Ok(out) = out else {
            return skip(Why::Program("unshare", "util-linux"));
        };
        let said = text(&out);
        match out.status.code() {
            // In a root that is no mount (chroot) unshare itself ends with 1.
            code if code == Some(99) || said.starts_with("unshare:") => {
                return skip(Why::Machine(format!("no mount of our own may be made: {said}")));
            }
            Some(0 | 1) => applied += 1,
            code => {
                assert_eq!(code, Some(2), "{pages} pages: {said}");
                assert!(said.contains("cannot write the journal"), "{pages} pages: {said}");
                assert!(said.contains("No space left on device"), "{pages} pages: {said}");
                refused += 1;
            }
        }
        let now = before.differences(&Capture::take());
        assert_eq!(now, Vec::<String>::new(), "{pages} pages: {said}");
        if applied == 1 {
            break;
        }
    }
    assert!(refused > 1 && applied == 1, "{refused} refused, {applied} applied");
}

/// This very test is the one that is killed, started once more.
#[test]
fn the_shield_of_a_killed_test_is_taken_down_by_the_next_one() {
    const KILLED: &str = "QUIETCORES_KILLED";
    if std::env::var_os(KILLED).is_some() {
        let machine = Machine::take().expect("whoever started this had it");
        assert!(machine.apply().output().unwrap().status.success());
        println!("{}", machine.dir().display());
        let _ = kill_process(getpid(), Signal::KILL);
        unreachable!("it was killed");
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    drop(machine);
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "the_shield_of_a_killed_test_is_taken_down_by_the_next_one"]);
    again.arg("--nocapture");
    let killed = again.env(KILLED, "1").output().unwrap();
    let said = text(&killed);
    assert_eq!(killed.status.signal(), Some(9), "{said}");
    let _machine = Machine::take().expect("it has its CPUs");
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new(), "{said}");
    let left = said.lines().find(|line| quiet_testing::is_public_folder(line.as_ref()));
    fs::remove_dir_all(left.unwrap_or_else(|| panic!("{said}"))).unwrap();
}

#[test]
fn what_somebody_else_changes_is_seen_as_drift_and_left_alone() {
    let Some(machine) = Machine::take() else { return };
    let default = "/proc/irq/default_smp_affinity";
    let before = Capture::take();
    let theirs = mask(machine.cpu);
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));

    fs::write(default, &theirs).unwrap();
    let status = machine.run("status");
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(text(&status).contains(default), "{}", text(&status));

    let reverted = machine.run("revert");
    assert_eq!(reverted.status.code(), Some(1), "{}", text(&reverted));
    let said = text(&reverted);
    assert!(said.contains("changed since by somebody else, left: /proc/irq/default"), "{said}");
    assert!(is_mask(&read(default), machine.cpu), "{}", read(default));

    fs::write(default, before.files[default].trim()).unwrap();
    machine.revert_to(&before, "after their value was taken back");
}

#[test]
fn a_task_that_somebody_puts_onto_the_shield_is_named() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    // Out of every group of the shield, as a careless script might.
    let mounts = read("/proc/self/mountinfo");
    let root = mounts
        .lines()
        .find(|line| line.contains(" - cgroup ") && line.ends_with("cpuset"))
        .map(|line| format!("{}/tasks", line.split(' ').nth(4).unwrap()));
    if let Some(root) = root {
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(root, sleeper.id().to_string()).unwrap();
        let status = machine.run("status");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let said = text(&status);
        assert_eq!(status.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("thread {} (sleep)", sleeper.id())), "{said}");
    } else {
        skip_part(Why::Machine("cpuset is not on cgroup v1 here".to_owned()));
    }
    machine.revert_to(&before, "after the intruder");
}

#[test]
fn a_chain_with_mistakes_gets_file_line_and_remedy_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let chain = dir.path().join("room.toml");
    for (text_of, line, sentence) in [
        ("[chain]\ncpus = \"0-9000\"\n", 2, "CPU numbers end at 8191"),
        ("[chain]\ncpus = \"8000\"\n", 2, "CPU 8000 is not on this machine"),
        ("[chain]\nspeed = 3\n", 2, "unknown field `speed`"),
        ("[[link]]\nname = \"\"\nprocess = \"x\"\n", 2, "a name is empty"),
    ] {
        fs::write(&chain, text_of).unwrap();
        for verb in ["plan", "apply"] {
            let out = Command::new(PROGRAM).arg(verb).arg(&chain).output().unwrap();
            let said = text(&out);
            assert_eq!(out.status.code(), Some(2), "{verb}: {said}");
            assert!(said.contains(&format!("room.toml:{line}:")), "{verb}: {said}");
            assert!(said.contains(sentence), "{verb}: {said}");
            assert!(out.stdout.is_empty());
        }
    }
    let out = Command::new(PROGRAM).args(["plan", "nowhere.toml"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out).contains("cannot read the chain file nowhere.toml"), "{}", text(&out));
    let out = Command::new(PROGRAM).args(["plan", "--cpus", "8000"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out).contains("CPU 8000 is not on this machine"), "{}", text(&out));
}

#[test]
fn without_yes_and_without_a_terminal_nothing_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(PROGRAM)
        .args(["apply", "--state"])
        .arg(dir.path().join("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&out);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("add --yes") || said.contains("without root"), "{said}");
    assert!(!dir.path().join("state").exists());
}
