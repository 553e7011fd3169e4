//! The program as an ordinary user runs it: it asks the service, and nothing of it has rights.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, text};
use quiet_testing::{Why, program, skip};
use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::{self, sleep},
    time::{Duration, Instant},
};

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>custom</type>
  <listen>unix:path=PLACE/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="false"/><allow receive_sender="*"/>
    <allow send_type="method_call"/>
  </policy>
</busconfig>
"#;

/// The service's own program is another package's: built here, where it is not yet.
fn service() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "-p", "quiet-service", "--bin", "quietcored"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
    let beside = Path::new(PROGRAM).with_file_name("quietcored");
    assert!(beside.is_file(), "{} was not built", beside.display());
    beside
}

struct World {
    machine: Machine,
    address: String,
    processes: Vec<Child>,
    program: PathBuf,
}

impl World {
    fn new() -> Option<World> {
        let machine = Machine::take()?;
        for (name, package) in [("dbus-daemon", "dbus-daemon"), ("setpriv", "util-linux")] {
            if program(name).is_none() {
                return skip(Why::Program(name, package));
            }
        }
        let dir = machine.dir();
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        let conf = dir.join("bus.conf");
        fs::write(&conf, BUS.replace("PLACE", dir.to_str().unwrap())).unwrap();
        let mut bus = Command::new("dbus-daemon")
            .args(["--nofork", "--nopidfile", "--print-address", "--config-file"])
            .arg(&conf)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let started = Command::new(service())
            .args(["--group", "games", "--bus", &address, "--state"])
            .arg(machine.state())
            .arg("--chains")
            .arg(dir.join("chains"))
            .spawn()
            .unwrap();
        // Where everybody may run it.
        let program = dir.join("quietcores");
        fs::copy(PROGRAM, &program).unwrap();
        Some(World { machine, address, processes: vec![started, bus], program })
    }

    /// As `nobody`, in these groups.
    fn run(&self, groups: &str, words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534"]);
        match groups {
            "" => command.arg("--clear-groups"),
            groups => command.args(["--groups", groups]),
        };
        command
            .arg(&self.program)
            .args(words)
            .env("QUIETCORES_BUS", &self.address)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The service may still be on its way up.
    fn comes_up(&self, chain: &str) {
        let since = Instant::now();
        while !text(&self.run("", &["approve"])).contains(chain) {
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "{}",
                text(&self.run("", &["approve"]))
            );
            sleep(Duration::from_millis(50));
        }
    }

    fn up(&self) -> bool {
        self.machine.state().join("journal.jsonl").exists()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.machine.run("revert");
    }
}

fn games() -> String {
    let groups = fs::read_to_string("/etc/group").unwrap();
    let line = groups.lines().find(|line| line.starts_with("games:")).unwrap();
    line.split(':').nth(2).unwrap().to_owned()
}

#[test]
fn a_user_of_the_group_has_a_shield_without_root_and_another_a_sentence() {
    let Some(world) = World::new() else { return };
    let chain = world.machine.dir().join("room.toml");
    fs::write(&chain, format!("[chain]\nname = \"room\"\ncpus = \"{}\"\n", world.machine.cpu))
        .unwrap();
    let approved = Command::new(PROGRAM)
        .arg("approve")
        .arg(&chain)
        .arg("--chains")
        .arg(world.machine.dir().join("chains"))
        .output()
        .unwrap();
    assert!(approved.status.success(), "{}", text(&approved));
    let games = games();
    // The service may still be on its way up.
    let since = Instant::now();
    while !text(&world.run("", &["approve"])).contains("room") {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{}",
            text(&world.run("", &["approve"]))
        );
        sleep(Duration::from_millis(50));
    }
    let before = Capture::take();

    let refused = world.run("", &["apply", "room", "--yes"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("usermod -aG games"), "{}", text(&refused));
    let path = chain.to_str().unwrap();
    let a_path = world.run(&games, &["apply", path, "--yes"]);
    assert_eq!(a_path.status.code(), Some(2));
    assert!(text(&a_path).contains("without root"), "{}", text(&a_path));
    assert!(!world.up());

    // The only approved chain needs no name.
    let applied = world.run(&games, &["apply", "--yes", "--json"]);
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let json: serde_json::Value = serde_json::from_slice(&applied.stdout).unwrap();
    assert_eq!(json["shield"]["cpus"], world.machine.cpu.to_string());
    assert!(world.up());
    let status = world.run("", &["status", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&json["state"], &json["drift"]), (&"up".into(), &serde_json::json!([])));

    let kept = world.run("", &["revert"]);
    assert_eq!(kept.status.code(), Some(2), "{}", text(&kept));
    let confirmed = world.run(&games, &["confirm"]);
    assert!(text(&confirmed).contains("does not wait"), "{}", text(&confirmed));
    let reverted = world.run(&games, &["revert"]);
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn without_the_service_a_user_reads_what_to_do() {
    let Some(mut world) = World::new() else { return };
    let mut service = world.processes.remove(0);
    service.kill().unwrap();
    service.wait().unwrap();
    for (words, says) in [
        (&["apply", "room", "--yes"][..], "sudo quietcores apply"),
        (&["confirm"][..], "sudo quietcores confirm"),
        (&["approve"][..], "sudo quietcores approve"),
    ] {
        let said = world.run("", words);
        assert_eq!(said.status.code(), Some(2), "{}", text(&said));
        assert!(text(&said).contains(says), "{}", text(&said));
        assert!(text(&said).contains("quietcored is not there"), "{}", text(&said));
    }
}

#[test]
fn a_user_plays_inside_the_shield_and_his_process_has_no_right() {
    let Some(world) = World::new() else { return };
    let chain = format!("[chain]\nname = \"room\"\ncpus = \"{}\"\n", world.machine.cpu);
    let chains = world.machine.dir().join("chains");
    fs::create_dir_all(&chains).unwrap();
    fs::write(chains.join("room.toml"), chain).unwrap();
    fs::set_permissions(chains.join("room.toml"), Permissions::from_mode(0o644)).unwrap();
    let games = games();
    world.comes_up("room");
    let applied = world.run(&games, &["apply", "--yes"]);
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));

    let play =
        ["play", "--host", "null", "--mode", "sleep", "--for", "4s", "--control", "none", "--json"];
    thread::scope(|scope| {
        let played = scope.spawn(|| world.run(&games, &play));
        // While it plays: one thread is FIFO on the shield's CPU, and no thread of it has a right.
        let since = Instant::now();
        let seen = loop {
            assert!(
                since.elapsed() < Duration::from_secs(60) && !played.is_finished(),
                "{:?}",
                played.join()
            );
            match fifo_thread(world.machine.cpu) {
                Some(seen) => break seen,
                None => sleep(Duration::from_millis(20)),
            }
        };
        let status = fs::read_to_string(format!("/proc/{seen}/status")).unwrap();
        for line in
            ["Uid:\t65534\t65534\t65534\t65534", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
        let played = played.join().unwrap();
        assert!(matches!(played.status.code(), Some(0 | 1)), "{}", text(&played));
        let json: serde_json::Value = serde_json::from_slice(&played.stdout).unwrap();
        assert_eq!(json["status"]["shielded"], true, "{json}");
        assert_eq!(json["status"]["real_time"], true, "{json}");
    });
    // A stranger plays as well, and is told that he is not inside.
    let outside = world.run("", &["play", "--host", "null", "--for", "1s", "--control", "none"]);
    assert!(
        text(&outside).contains("does not let the thread into the shield"),
        "{}",
        text(&outside)
    );
    let reverted = world.run(&games, &["revert"]);
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
}

/// A FIFO thread of user 65534 that may run on this CPU alone.
fn fifo_thread(cpu: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
    for process in numbers {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for tid in threads.flatten().filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok())
        {
            let Ok(status) = fs::read_to_string(format!("/proc/{tid}/status")) else { continue };
            let Ok(stat) = fs::read_to_string(format!("/proc/{tid}/stat")) else { continue };
            let fifo = stat.rsplit(')').next()?.split_ascii_whitespace().nth(38) == Some("1");
            let there = status.contains(&format!("Cpus_allowed_list:\t{cpu}\n"));
            if fifo && there && status.contains("Uid:\t65534") {
                return Some(tid);
            }
        }
    }
    None
}
