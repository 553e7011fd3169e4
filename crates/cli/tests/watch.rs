//! `watch` and `apply --confirm`, on the machine that runs the tests.
//!
//! These tests change the machine for seconds at a time. They need root and two CPUs, and say so
//! where they are skipped.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, is_mask, mask, read, soon, text, thread};
use quiet_testing::{Why, copy_program, public_folder, skip_part};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A watch with its events in a file.
struct Watched {
    child: Child,
    events: PathBuf,
}

impl Watched {
    fn start(machine: &Machine, more: &[&str]) -> Watched {
        let events = machine.dir().join("events.jsonl");
        let child = Command::new(PROGRAM)
            .args(["watch", "--json", "--state"])
            .arg(machine.state())
            .args(more)
            .stdout(File::create(&events).unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let watched = Watched { child, events };
        soon("it has begun", || watched.any(|event| event["event"] == "started"));
        watched
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.events).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn any(&self, test: impl Fn(&Value) -> bool) -> bool {
        self.events().iter().any(test)
    }

    /// It ends by itself, well.
    fn ended(mut self) -> Vec<Value> {
        let status = self.child.wait().unwrap();
        let events = self.events();
        assert_eq!(status.code(), Some(0), "{events:?}");
        assert_eq!(events.last().unwrap()["event"], "ended");
        events
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A player of its own name, not running yet, and a chain with it.
fn player(dir: &Path) -> (PathBuf, PathBuf) {
    let program = dir.join("qcplayer");
    copy_program("/bin/sleep", &program);
    let chain = dir.join("room.toml");
    fs::write(&chain, "[[link]]\nname = \"player\"\nprocess = \"qcplayer\"\npriority = 70\n")
        .unwrap();
    (program, chain)
}

fn allowed(pid: u32) -> String {
    let pid = pid.to_string();
    thread(&pid, &pid).map_or_else(String::new, |found| found.1.1)
}

#[test]
fn a_link_that_is_started_is_placed_at_once_and_what_others_write_is_put_right() {
    let Some(machine) = Machine::take() else { return };
    let (program, chain) = player(machine.dir());
    let before = Capture::take();
    let applied = machine.apply().arg(&chain).output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));

    // Only what the kernel tells: the next regular look is far away.
    let mut watched = Watched::start(&machine, &["--every", "1h", chain.to_str().unwrap()]);
    soon("the link's absence", || {
        watched.any(|event| event["finding"]["id"] == "plan.link-absent")
    });
    let missing = watched.events()[0]["missing"].to_string();
    let mut player = Command::new(&program).arg("600").spawn().unwrap();
    if missing.contains("programs and threads") {
        skip_part(Why::Machine(format!("this kernel does not tell of programs: {missing}")));
    } else {
        let cpus = format!("Cpus_allowed_list:\t{} ", machine.cpu);
        soon("the player's place", || allowed(player.id()).contains(&cpus));
        soon("its event", || watched.any(|event| event["cause"] == "process"));
    }
    watched.child.kill().unwrap();
    drop(watched);

    let default = "/proc/irq/default_smp_affinity";
    let ours = read(default);
    let watched = Watched::start(&machine, &["--every", "1s", chain.to_str().unwrap()]);
    fs::write(default, mask(machine.cpu)).unwrap();
    soon("the mask", || read(default) == ours);
    let own = read(&format!("/proc/{}/status", watched.child.id()));
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap();
    let own: quiet_types::CpuSet = own.parse().unwrap();
    assert!(!own.contains(quiet_types::CpuId(machine.cpu)), "the watch may run on {own}");

    let reverted = machine.run("revert");
    let back = before.differences(&Capture::take());
    player.kill().unwrap();
    player.wait().unwrap();
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert_eq!(back, Vec::<String>::new(), "{}", text(&reverted));
    watched.ended();
}

/// Ends with what it stands for.
struct Player(Child);

impl Player {
    /// Starts the program as a user; returns once it has its name.
    fn start(program: &Path, uid: u32) -> Player {
        let child = Command::new(program).arg("600").uid(uid).spawn().unwrap();
        let comm = format!("/proc/{}/comm", child.id());
        soon("the player's name", || read(&comm).trim() == "qcplayer");
        Player(child)
    }

    /// CPUs, policy and priority.
    fn place(&self) -> String {
        allowed(self.0.id())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_strangers_program_of_a_links_name_stays_an_ordinary_process() {
    let Some(machine) = Machine::take() else { return };
    let (program, chain) = player(machine.dir());
    // Anybody may run it from here.
    let public = public_folder();
    let theirs = public.path().join("qcplayer");
    copy_program(&program, &theirs);
    let before = Capture::take();
    let early = Player::start(&theirs, 65534);
    let alone = Command::new(PROGRAM).args(["plan", "--verbose"]).arg(&chain).output().unwrap();
    assert!(
        text(&alone).contains("user = 65534") || text(&alone).contains("user = \"nobody\""),
        "{}",
        text(&alone)
    );
    let own = Player::start(&program, 0);
    let applied = machine.apply().arg(&chain).output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let on_shield = format!("Cpus_allowed_list:\t{} ", machine.cpu);
    assert!(own.place().contains(&on_shield), "{}: {}", own.place(), text(&applied));
    let ordinary = |stranger: &Player| {
        let place = stranger.place();
        assert!(!place.contains(&on_shield) && place.contains("policy 0"), "{place}");
    };
    ordinary(&early);

    let watched = Watched::start(&machine, &["--every", "1s", chain.to_str().unwrap()]);
    let late = Player::start(&theirs, 65534);
    drop(own);
    let own = Player::start(&program, 0);
    soon("the link's place", || own.place().contains(&on_shield));
    ordinary(&early);
    ordinary(&late);
    drop(watched);

    // Restarted while nobody watches: it is outside, and a stranger is not taken for it.
    drop(own);
    let gone = machine.run("status");
    assert_eq!(gone.status.code(), Some(1), "{}", text(&gone));
    assert!(text(&gone).contains("link `player` is left alone"), "{}", text(&gone));
    let own = Player::start(&program, 0);
    let astray = machine.run("status");
    assert_eq!(astray.status.code(), Some(1), "{}", text(&astray));
    assert!(
        text(&astray).contains("link `player` is not where the chain has it"),
        "{}",
        text(&astray)
    );
    drop((own, early, late));
    machine.revert_to(&before, "after strangers");
}

#[test]
fn a_watch_that_only_reports_changes_nothing() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let nothing = machine.run("watch");
    assert_eq!(nothing.status.code(), Some(2));
    assert!(text(&nothing).contains("no shield is up to watch over"), "{}", text(&nothing));
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let journal = machine.state().join("journal.jsonl");
    let noted = fs::read(&journal).unwrap();

    let default = "/proc/irq/default_smp_affinity";
    let ours = read(default);
    let theirs = mask(machine.cpu);
    let watched = Watched::start(&machine, &["--every", "1s", "--report-only"]);
    fs::write(default, &theirs).unwrap();
    soon("the drift", || {
        watched
            .any(|event| event["step"]["action"]["path"] == default && event["outcome"].is_null())
    });
    assert!(is_mask(&read(default), machine.cpu), "{}", read(default));
    assert_eq!(fs::read(&journal).unwrap(), noted, "the journal was written");
    fs::write(default, ours.trim()).unwrap();
    machine.revert_to(&before, "after a watch that reports");
    let drifts = watched.ended();
    let drifts = drifts.iter().filter(|event| event["step"]["action"]["path"] == default);
    assert_eq!(drifts.count(), 1, "told more than once");
}

fn apply_to_confirm(machine: &Machine, seconds: &str) -> Command {
    let mut command = machine.apply();
    command.args(["--confirm", seconds]);
    command
}

fn guard(machine: &Machine) -> Option<u64> {
    let out = Command::new(PROGRAM)
        .args(["status", "--json", "--state"])
        .arg(machine.state())
        .output()
        .unwrap();
    serde_json::from_slice::<Value>(&out.stdout).unwrap()["confirm"]["guard"].as_u64()
}

fn journal_closes(machine: &Machine) {
    let journal = machine.state().join("journal.jsonl");
    soon("the end of the shield", || !journal.exists());
}

#[test]
fn a_shield_that_nobody_confirms_is_put_back_by_itself() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = apply_to_confirm(&machine, "1").output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    assert!(text(&applied).contains("quietcores confirm"), "{}", text(&applied));
    journal_closes(&machine);
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    let late = machine.run("confirm");
    assert_eq!(late.status.code(), Some(2));
    assert!(text(&late).contains("no shield is up"), "{}", text(&late));
}

#[test]
fn a_shield_that_is_confirmed_stays_and_its_guard_goes() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = apply_to_confirm(&machine, "600").output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let pid = guard(&machine).unwrap();
    let confirmed = machine.run("confirm");
    assert_eq!(confirmed.status.code(), Some(0), "{}", text(&confirmed));
    soon("the guard's end", || !Path::new(&format!("/proc/{pid}/stat")).exists());
    assert!(machine.state().join("journal.jsonl").exists());
    let again = machine.run("confirm");
    assert!(text(&again).contains("does not wait for a confirmation"), "{}", text(&again));
    machine.revert_to(&before, "after it was confirmed");
}

#[test]
fn where_the_guard_was_killed_the_next_command_does_its_work() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = apply_to_confirm(&machine, "600").output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let pid = guard(&machine).unwrap();
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    soon("the guard's end", || guard(&machine).is_none());
    let status = machine.run("status");
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(text(&status).contains("was not confirmed"), "{}", text(&status));
    let next = machine.run("confirm");
    assert_eq!(next.status.code(), Some(2), "{}", text(&next));
    assert!(text(&next).contains("An earlier shield was not confirmed"), "{}", text(&next));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new(), "{}", text(&next));
}

#[test]
#[cfg(debug_assertions)]
fn an_apply_that_is_killed_half_way_is_put_back_by_its_guard() {
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    for act in [12, 40, 70] {
        let fault = format!("kill:{act}");
        let mut apply = apply_to_confirm(&machine, "1");
        let applied = apply.env("QUIETCORES_FAULT", &fault).output().unwrap();
        // A machine with little to change has fewer acts.
        let whole = matches!(applied.status.code(), Some(0 | 1)) && act > 12;
        assert!(applied.status.code().is_none() || whole, "{fault}: {}", text(&applied));
        journal_closes(&machine);
        let now = before.differences(&Capture::take());
        assert_eq!(now, Vec::<String>::new(), "{fault}");
    }
}

#[test]
fn the_guard_of_a_shield_that_is_over_gives_way_to_the_next_ones() {
    if quiet_testing::left_out("5 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = apply_to_confirm(&machine, "600").output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let first = Pid::from_raw(guard(&machine).unwrap().try_into().unwrap()).unwrap();
    // It sees nothing of what comes now.
    kill_process(first, Signal::STOP).unwrap();
    machine.revert_to(&before, "while its guard was stopped");
    let second = apply_to_confirm(&machine, "600")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    soon("a journal", || machine.state().join("journal.jsonl").exists());
    std::thread::sleep(Duration::from_millis(300));
    kill_process(first, Signal::CONT).unwrap();
    let applied = second.wait_with_output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let second = guard(&machine).unwrap();
    assert_ne!(second, u64::try_from(first.as_raw_nonzero().get()).unwrap());
    machine.revert_to(&before, "after the second shield");
}

/// A thread of the process under FIFO, and its CPUs.
fn fifo_thread(pid: u32) -> Option<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    tasks.map(|task| task.file_name().into_string().unwrap()).find_map(|tid| {
        let (_, (_, place)) = thread(&pid.to_string(), &tid)?;
        place.contains("policy 1 ").then_some((tid, place))
    })
}

#[test]
fn who_plays_as_root_stays_where_it_plays_also_where_a_shield_has_no_door() {
    if quiet_testing::left_out("5 s") {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    let before = Capture::take();
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let cpu = machine.cpu.to_string();
    let watched = Watched::start(&machine, &["--every", "1s"]);
    let playing = Command::new(PROGRAM)
        .args(["play", "--host", "null", "--mode", "sleep", "--for", "10min", "--control", "none"])
        .arg("--state")
        .arg(machine.state())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let playing = Player(playing);
    let on_shield = format!("Cpus_allowed_list:\t{cpu} ");
    soon("it plays on the shield", || {
        fifo_thread(playing.0.id()).is_some_and(|(_, place)| place.contains(&on_shield))
    });
    // Another one goes there by itself, where it can: twice the watch takes it off, and looked at everybody for that.
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let looks = |n: u32| {
        let pinned =
            Command::new("taskset").args(["-pc", &cpu, &stranger.id().to_string()]).output();
        match pinned.unwrap().status.success() {
            true => soon("the stranger is off", || !allowed(stranger.id()).contains(&on_shield)),
            false => std::thread::sleep(Duration::from_secs(2)),
        }
        let place = fifo_thread(playing.0.id()).map(|(_, place)| place).unwrap_or_default();
        assert!(place.contains(&on_shield), "after look {n}: {place}");
    };
    looks(1);
    looks(2);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let status = text(&machine.run("status"));
    drop(playing);
    machine.revert_to(&before, &status);
    watched.ended();
}
