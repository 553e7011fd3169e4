//! What is measured or played under a shield of its own is killed by SIGKILL, and nothing of it is left: settings, groups, processes,
//! trace instances, files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;

use machine::{Capture, Machine, PATIENCE, PROGRAM, a_look, read, soon, text};
use quiet_linux::System;
use quiet_shield::{ApplyOptions, ErrorKind, Tether};
use quiet_testing::{Why, is_long, is_root, skip};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::AtomicBool,
    thread::sleep,
    time::{Duration, Instant},
};

/// In what the page of the program promises, on a machine that is not overloaded.
const PROMISED: Duration = Duration::from_secs(2);

/// A program that is to be killed, in a process group of its own, with a directory for temporary files of its own.
struct Victim<'a> {
    child: Child,
    machine: &'a Machine,
    tmp: PathBuf,
    said: PathBuf,
}

impl<'a> Victim<'a> {
    fn start(machine: &'a Machine, words: &[&str]) -> Victim<'a> {
        let (tmp, said) = (machine.dir().join("tmp"), machine.dir().join("said"));
        fs::create_dir_all(&tmp).unwrap();
        let child = Command::new(PROGRAM)
            .args(words)
            .arg("--state")
            .arg(machine.state())
            .env("TMPDIR", &tmp)
            .env("XDG_DATA_HOME", machine.dir().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        Victim { child, machine, tmp, said }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Kills it alone, or with its group, and waits for its end.
    fn kill(&mut self, group: bool) {
        let _ = match group {
            true => kill_process_group(self.pid(), Signal::KILL),
            false => kill_process(self.pid(), Signal::KILL),
        };
        self.child.wait().unwrap();
    }

    /// Waits until `there` is something, and fails where the program ends before.
    fn until<T>(&mut self, what: &str, there: impl Fn(&Victim<'_>) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = there(self) {
                return found;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "no {what}: it ended: {}", read(self.said.to_str().unwrap()));
            assert!(begun.elapsed() < PATIENCE, "no {what} within {} s", PATIENCE.as_secs());
            sleep(Duration::from_millis(10));
        }
    }

    fn until_shielded(&mut self) {
        self.until("shield", |victim| {
            text(&victim.machine.run("status")).contains("is up since").then_some(())
        });
    }

    /// What is left of it, but for the machine's settings.
    fn left(&self) -> Vec<String> {
        let state = self.machine.state();
        let mut found = Vec::new();
        if state.join("journal.jsonl").exists() {
            found.push("a journal".to_owned());
        }
        for entry in fs::read_dir(&self.tmp).unwrap().flatten() {
            found.push(entry.path().display().to_string());
        }
        let mark = format!("quietcores-{}-", self.child.id());
        let traces = quiet_linux::trace::instances().unwrap_or_default();
        found.extend(traces.into_iter().filter(|name| name.starts_with(&mark)));
        found.extend(processes(|one| {
            let ours = self.machine.dir().to_str().unwrap().as_bytes();
            let holds = |bytes: &[u8]| bytes.windows(ours.len()).any(|part| part == ours);
            holds(&one.words) || holds(&one.environment) || one.dir.starts_with(self.machine.dir())
        }));
        found
    }

    /// Waits until nothing is left and the machine is as `before`: how long that took.
    fn gone(&self, before: &Capture, when: &str) -> Duration {
        let begun = Instant::now();
        let mut is_late = false;
        loop {
            let mut left = self.left();
            left.extend(before.differences(&Capture::take()));
            if left.is_empty() {
                return begun.elapsed();
            }
            if begun.elapsed() > PROMISED && !std::mem::replace(&mut is_late, true) {
                eprintln!("{when}: left after {:?}: {left:#?}", begun.elapsed());
            }
            assert!(begun.elapsed() < PATIENCE, "{when}: {left:#?}");
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

struct One {
    pid: i32,
    words: Vec<u8>,
    environment: Vec<u8>,
    dir: PathBuf,
}

/// Processes of which `is` holds, with their words.
fn processes(is: impl Fn(&One) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let file = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let dir = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let one = One { pid, words: file("cmdline"), environment: file("environ"), dir };
        // A zombie has no words.
        if one.pid != std::process::id().cast_signed() && !one.words.is_empty() && is(&one) {
            let words = String::from_utf8_lossy(&one.words).replace('\0', " ");
            found.push(format!("process {pid}: {words}"));
        }
    }
    found
}

/// The processes `PROGRAM VERB` that serve the state directory, or are children of `parent`.
fn helpers(verb: &str, state: &Path, parent: u32) -> Vec<Pid> {
    let state = state.to_str().unwrap();
    let all = processes(|one| {
        let mut words = one.words.split(|byte| *byte == 0).skip(1);
        let is_verb = words.next() == Some(verb.as_bytes());
        let of = read(&format!("/proc/{}/status", one.pid));
        let is_child = of.lines().any(|line| *line == format!("PPid:\t{parent}"));
        is_verb && (is_child || words.any(|word| word == state.as_bytes()))
    });
    let number = |line: &String| line.split([' ', ':']).nth(1)?.parse().ok();
    all.iter().filter_map(number).filter_map(Pid::from_raw).collect()
}

/// A proof of which each shield stands for `each` at least.
fn prove<'a>(machine: &'a Machine, each: &str) -> Victim<'a> {
    let cpu = machine.cpu.to_string();
    let mut words = vec!["prove", "--pairs", "40", "--for", each, "--gap", "100ms"];
    words.extend(["--stress", "kernel", "--explain", "--cpus", &cpu]);
    Victim::start(machine, &words)
}

/// Kills proofs at `count` instants of their first pairs, drawn by lot; the time each took to be gone.
fn killed_at(count: u32) -> Vec<Duration> {
    let Some(machine) = Machine::take() else { return Vec::new() };
    let before = Capture::take();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let told = std::env::var("QUIETCORES_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = told.unwrap_or(clock.as_nanos() as u64);
    eprintln!("QUIETCORES_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut took = Vec::new();
    for turn in 0..count {
        // Through an arm of each setting, whose stress alone takes a second to begin.
        let delay = Duration::from_millis(random.u64(..8000));
        let when = format!("turn {turn}, killed after {delay:?}");
        took.push(killed(&machine, &before, (turn % 2 == 0, &when), |_| sleep(delay)));
    }
    took
}

/// Kills proofs while what is to clean up after them begins; the time each took to be gone.
fn killed_beginning(count: u32) -> Vec<Duration> {
    let Some(machine) = Machine::take() else { return Vec::new() };
    let before = Capture::take();
    let keeper_begins = |victim: &Victim<'_>| {
        let begun = Instant::now();
        while helpers("keeper", &machine.state(), victim.child.id()).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "no keeper within {} s", PATIENCE.as_secs());
        }
    };
    let turn = |turn| {
        let when = format!("turn {turn}, killed beside a keeper that begins");
        killed(&machine, &before, (turn % 2 == 0, &when), keeper_begins)
    };
    (0..count).map(turn).collect()
}

/// Kills a proof, with its group or alone, when `wait` returns; the time that it took to be gone.
fn killed(
    machine: &Machine,
    before: &Capture,
    (with_group, when): (bool, &str),
    wait: impl FnOnce(&Victim<'_>),
) -> Duration {
    let mut victim = prove(machine, "300ms");
    wait(&victim);
    victim.kill(with_group);
    let gone = victim.gone(before, when);
    eprintln!("{when}: all of it was gone after {gone:?}");
    gone
}

#[test]
fn a_proof_that_is_killed_leaves_nothing() {
    if quiet_testing::left_out("10 s") {
        return;
    }
    killed_at(4);
    killed_beginning(2);
}

#[test]
fn a_proof_that_is_killed_at_thirty_instants_leaves_nothing_after_two_seconds() {
    if !is_long() {
        return skip(Why::Long("minutes, and wants a machine that does nothing else"));
    }
    let mut took = killed_at(30);
    took.extend(killed_beginning(10));
    let late: Vec<_> = took.iter().filter(|took| **took > PROMISED).collect();
    assert!(late.is_empty(), "{late:?}");
}

#[test]
fn a_guard_that_is_killed_is_replaced_and_the_next_one_does_its_work() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut victim = prove(&machine, a_look());
    victim.until_shielded();
    let guard = |not: &[Pid]| {
        let not = not.to_vec();
        move |victim: &Victim<'_>| {
            let all = helpers("guard", &victim.machine.state(), victim.child.id());
            all.into_iter().find(|pid| !not.contains(pid))
        }
    };
    let first = victim.until("guard", guard(&[]));
    kill_process(first, Signal::KILL).unwrap();
    let second = victim.until("second guard", guard(&[first]));
    kill_process(second, Signal::KILL).unwrap();
    victim.until("third guard", guard(&[first, second]));
    victim.until("word of it", |victim| {
        let said = read(victim.said.to_str().unwrap());
        // The second one may have been killed before it stood.
        said.contains("was killed; another one stands").then_some(())
    });
    victim.until_shielded();
    victim.kill(false);
    victim.gone(&before, "after two guards were killed");
}

#[test]
fn one_guard_stands_however_many_shields_come_and_go() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut victim = prove(&machine, "50ms");
    victim.until("third shield that is over", |victim| {
        let files = fs::read_dir(victim.machine.state()).into_iter().flatten().flatten();
        let is_over =
            |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with("journal-");
        (files.filter(is_over).count() >= 3).then_some(())
    });
    let guards = helpers("guard", &machine.state(), victim.child.id());
    assert_eq!(guards.len(), 1, "{guards:?}");
    victim.kill(true);
    victim.gone(&before, "after three shields");
}

#[test]
fn a_word_that_a_user_writes_into_its_line_does_not_send_a_guard_home() {
    let Some(machine) = Machine::take() else { return };
    let state = machine.state();
    let plan = serde_json::from_value::<quiet_types::Plan>(serde_json::json!({
        "schema": quiet_types::plan::PLAN_SCHEMA, "chain": null, "mode": "sleeping_chain", "reasons": [], "steps": [],
        "findings": [], "shield": {
            "cpus": machine.cpu.to_string(), "housekeeping": "0", "mechanism": "affinity", "entry": null,
        },
    }))
    .unwrap();
    let interrupt = AtomicBool::new(false);
    let setup = ApplyOptions { state: &state, holder: None, interrupt: &interrupt, confirm: None };
    for words in ["done", "done\n", "back\ndone", "\u{0}\u{ff}"] {
        let tether = Tether::start(Path::new(PROGRAM), &state).unwrap();
        // Somebody else may be at work with the machine for a moment.
        soon("its turn", || {
            match quiet_shield::up_tethered(&System, &plan, &setup, &tether, 65534) {
                Err(error) if error.kind() == ErrorKind::Busy => false,
                applied => applied.is_ok_and(|applied| applied.steps.is_empty()),
            }
        });
        let mut line = fs::File::from(tether.into_line());
        line.write_all(words.as_bytes()).unwrap();
        sleep(Duration::from_millis(300));
        let journal = state.join("journal.jsonl");
        assert!(journal.exists(), "{words:?}: the line is held still");
        drop(line);
        soon("the end of the shield", || !journal.exists());
    }
}

#[test]
fn where_the_guard_is_killed_with_its_owner_the_next_command_puts_the_machine_back() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let mut victim = prove(&machine, a_look());
    // Stopped it starts no other guard.
    loop {
        victim.until_shielded();
        kill_process(victim.pid(), Signal::STOP).unwrap();
        if text(&machine.run("status")).contains("is up since") {
            break;
        }
        kill_process(victim.pid(), Signal::CONT).unwrap();
    }
    for guard in helpers("guard", &machine.state(), victim.child.id()) {
        kill_process(guard, Signal::KILL).unwrap();
    }
    victim.kill(false);
    let again = machine.apply().output().unwrap();
    assert!(matches!(again.status.code(), Some(0 | 1)), "{}", text(&again));
    assert!(text(&again).contains("whoever asked for it was killed"), "{}", text(&again));
    machine.revert_to(&before, "after the next shield");
    victim.gone(&before, "after the next shield");
}

#[test]
fn whoever_puts_up_a_shield_for_a_while_leaves_nothing_when_killed() {
    let Some(machine) = Machine::take() else { return };
    let cpu = machine.cpu.to_string();
    let file = machine.dir().join("campaign.toml");
    let text = format!(
        "[campaign]\nname = \"killed\"\ncpus = \"{cpu}\"\nrounds = 1\nfor = \"60s\"\n\
         [[probe]]\nkind = \"wakeup\"\n[[stress]]\nname = \"kernel\"\nrun = [\"kernel\"]\n\
         [[setting]]\nname = \"here\"\nshield = true\n"
    );
    fs::write(&file, text).unwrap();
    let campaign = ["campaign", file.to_str().unwrap()];
    let play = ["play", "--host", "null", "--shield", "--cpu", &cpu, "--for", "60s"];
    let play = [&play[..], &["--control", "none", "--mode", "sleep"]].concat();
    let buffers = ["measure", "buffers", "--host", "null", "--shield", "--cpu", &cpu];
    let buffers = [&buffers[..], &["--periods", "64", "--counts", "2", "--for", "60s"]].concat();
    let buffers = [&buffers[..], &["--stress", "kernel", "--modes", "sleep"]].concat();
    let before = Capture::take();
    for words in [&campaign[..], &play, &buffers] {
        let mut victim = Victim::start(&machine, words);
        // The shared cells of a table of buffers come first: no reason to wait for them here.
        if words[1] != "buffers" {
            victim.until_shielded();
        } else {
            sleep(Duration::from_secs(2));
        }
        victim.kill(words[0] == "play");
        let took = victim.gone(&before, words[0]);
        eprintln!("{}: all of it was gone after {took:?}", words[0]);
    }
}

#[test]
fn a_trace_whose_program_is_killed_is_taken_off_by_its_keeper_or_named_and_removed_by_revert() {
    if quiet_testing::left_out("8 s") {
        return;
    }
    if !is_root() {
        return skip(Why::Root);
    }
    let Some(machine) = Machine::take() else { return };
    if let Err(why) = quiet_linux::trace::instances() {
        return skip(Why::Machine(why.to_string()));
    }
    let cpu = machine.cpu.to_string();
    let before = Capture::take();
    let traces = |victim: &Victim<'_>| {
        let mark = format!("quietcores-{}-", victim.child.id());
        let all = quiet_linux::trace::instances().unwrap();
        all.into_iter().filter(|name| name.starts_with(&mark)).collect::<Vec<_>>()
    };
    for verb in [&["explain", "--for", "60s"][..], &["reach", "--each", "20s"]] {
        for kill_keeper in [false, true] {
            let words = [verb, &["--cpu", &cpu]].concat();
            let mut command = Command::new(PROGRAM);
            command.args(&words).env("TMPDIR", machine.dir().join("tmp"));
            fs::create_dir_all(machine.dir().join("tmp")).unwrap();
            let said = machine.dir().join("said");
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(fs::File::create(&said).unwrap()).process_group(0);
            let child = command.spawn().unwrap();
            let tmp = machine.dir().join("tmp");
            let mut victim = Victim { child, machine: &machine, tmp, said };
            let names = victim
                .until("trace", |victim| Some(traces(victim)).filter(|names| names.len() == 2));
            if kill_keeper {
                kill_process(victim.pid(), Signal::STOP).unwrap();
                for keeper in helpers("keeper", &machine.state(), victim.child.id()) {
                    kill_process(keeper, Signal::KILL).unwrap();
                }
                victim.kill(false);
                let seen = machine.run("status");
                assert_eq!(seen.status.code(), Some(1), "{}", text(&seen));
                for name in &names {
                    assert!(text(&seen).contains(name), "{}", text(&seen));
                }
                let reverted = machine.run("revert");
                assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
                assert_eq!(traces(&victim), Vec::<String>::new());
                let seen = machine.run("status");
                assert_eq!(seen.status.code(), Some(0), "{}", text(&seen));
                let _ = fs::remove_dir_all(&victim.tmp);
                fs::create_dir_all(&victim.tmp).unwrap();
            } else {
                victim.kill(true);
            }
            victim.gone(&before, verb[0]);
        }
    }
}
