//! The program as an ordinary user runs it: it asks the service, and nothing of it has rights.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{Capture, Machine, PROGRAM, text};
use quiet_testing::{
    Why,
    bus::{Bus, GROUP, STRANGER, as_user, group},
    copy_program,
    faces::Server,
    program, skip,
};
use quiet_types::{CpuSet, lot::Lot};
use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::{self, sleep},
    time::{Duration, Instant},
};

/// The service's own program is another package's: built here, where it is not yet. Without a cargo it has to be there. `./test` has built
/// all programs, and runs other steps of Cargo's meanwhile, whose lock would be waited for.
fn service() -> Option<PathBuf> {
    let beside = Path::new(PROGRAM).with_file_name("quietcored");
    if std::env::var_os("QUIETCORES_BUILT").is_some() && beside.is_file() {
        return Some(beside);
    }
    let cargo = Some(PathBuf::from(env!("CARGO"))).filter(|path| path.is_file());
    let Some(cargo) = cargo.or_else(|| program("cargo")) else {
        return if beside.is_file() { Some(beside) } else { skip(Why::Program("cargo", "cargo")) };
    };
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "-p", "quiet-service", "--bin", "quietcored"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
    assert!(beside.is_file(), "{} was not built", beside.display());
    Some(beside)
}

struct World {
    bus: Bus,
    service: Child,
    program: PathBuf,
    machine: Machine,
}

impl World {
    fn new() -> Option<World> {
        let machine = Machine::take()?;
        let dir = machine.dir();
        let bus = Bus::start(dir)?;
        let service = bus.serve(&service()?, &machine.state(), &dir.join("chains"));
        // Where everybody may run it.
        let program = dir.join("quietcores");
        copy_program(PROGRAM, &program);
        Some(World { bus, service, program, machine })
    }

    /// As `nobody`, in these groups.
    fn run(&self, groups: &str, words: &[&str]) -> Output {
        as_user(STRANGER, groups, &self.program)
            .args(words)
            .env("QUIETCORES_BUS", &self.bus.address)
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
        let _ = self.service.kill();
        let _ = self.service.wait();
        let _ = self.machine.run("revert");
    }
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
    let games = group(GROUP);
    world.comes_up("room");
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
fn pages_of_an_ordinary_user_reach_the_machine_through_the_service_alone() {
    let Some(world) = World::new() else { return };
    let chain = world.machine.dir().join("room.toml");
    let text_of_chain = format!("[chain]\nname = \"room\"\ncpus = \"{}\"\n", world.machine.cpu);
    fs::write(&chain, text_of_chain).unwrap();
    let chains = world.machine.dir().join("chains");
    let approve =
        Command::new(PROGRAM).arg("approve").arg(&chain).arg("--chains").arg(&chains).output();
    assert!(approve.unwrap().status.success());
    let own = world.machine.dir().join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o777)).unwrap();
    world.comes_up("room");
    let serve = |groups: &str, name: &str| {
        let mut command = as_user(STRANGER, groups, &world.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--store"]).arg(own.join(name));
        command.env("QUIETCORES_BUS", &world.bus.address).env("HOME", &own);
        let dirs = ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME"];
        command.envs(dirs.map(|dir| (dir, own.join(name))));
        Server::of(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    };
    for name in ["member", "stranger"] {
        fs::create_dir(own.join(name)).unwrap();
        fs::set_permissions(own.join(name), Permissions::from_mode(0o777)).unwrap();
    }
    let member = serve(&group(GROUP), "member");
    let stranger = serve("", "stranger");
    let before = Capture::take();

    let (status, said) = stranger.ask("POST", "/api/v1/apply", "{}");
    assert!(status >= 400 && said.contains("usermod -aG games"), "{status} {said}");
    assert!(!world.up());

    let (status, said) = member.ask("POST", "/api/v1/apply", r#"{"confirm":600}"#);
    assert_eq!(status, 200, "{said}");
    assert!(world.up());
    let (status, said) = member.ask("GET", "/api/v1/status", "");
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((status, &json["state"]), (200, &"up".into()), "{said}");
    let (status, said) = member.ask("POST", "/api/v1/confirm", "{}");
    assert!(status == 200 && said.contains("stays until"), "{status} {said}");

    // Somebody else's shield is not a stranger's to end.
    let (status, said) = stranger.ask("POST", "/api/v1/revert", "{}");
    assert!(status >= 400 && world.up(), "{status} {said}");
    let (status, said) = member.ask("POST", "/api/v1/revert", "{}");
    assert_eq!(status, 200, "{said}");
    assert!(!world.up());
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
}

#[test]
fn setup_without_root_takes_an_approved_chain_and_leaves_a_new_one_to_root() {
    if quiet_testing::left_out("6 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    let chain = world.machine.dir().join("room.toml");
    fs::write(&chain, format!("[chain]\nname = \"room\"\ncpus = \"{}\"\n", world.machine.cpu))
        .unwrap();
    let chains = world.machine.dir().join("chains");
    let approve =
        Command::new(PROGRAM).arg("approve").arg(&chain).arg("--chains").arg(&chains).output();
    assert!(approve.unwrap().status.success());
    let games = group(GROUP);
    world.comes_up("room");
    let before = Capture::take();

    let done = world.run(&games, &["setup", "--yes", "--json", "--no-proof"]);
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", text(&done));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&json["chain"], &json["up"]), (&"room".into(), &true.into()), "{}", text(&done));
    assert!(world.up());
    let reverted = world.run(&games, &["revert"]);
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());

    // Described by arguments it is a new one: written, and root's to approve.
    let open = world.machine.dir().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let out = open.join("mine.toml");
    let new =
        ["setup", "--yes", "--player", "engine", "--card", "none", "--out", out.to_str().unwrap()];
    let new = world.run(&games, &new);
    assert_eq!(new.status.code(), Some(1), "{}", text(&new));
    assert!(text(&new).contains("sudo quietcores approve"), "{}", text(&new));
    assert!(out.is_file() && !world.up());
}

#[test]
fn without_the_service_a_user_reads_what_to_do() {
    let Some(mut world) = World::new() else { return };
    world.service.kill().unwrap();
    world.service.wait().unwrap();
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
    let games = group(GROUP);
    world.comes_up("room");
    let applied = world.run(&games, &["apply", "--yes"]);
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));

    let play =
        ["play", "--host", "null", "--mode", "sleep", "--for", "8s", "--control", "none", "--json"];
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
    assert!(text(&outside).contains("The thread is not let into the shield"), "{}", text(&outside));
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

/// A world in which `room` is approved.
fn with_room() -> Option<(World, String)> {
    let world = World::new()?;
    let chain = format!("[chain]\nname = \"room\"\ncpus = \"{}\"\n", world.machine.cpu);
    let chains = world.machine.dir().join("chains");
    fs::create_dir_all(&chains).unwrap();
    fs::write(chains.join("room.toml"), chain).unwrap();
    fs::set_permissions(chains.join("room.toml"), Permissions::from_mode(0o644)).unwrap();
    world.comes_up("room");
    Some((world, group(GROUP)))
}

#[test]
fn a_user_measures_inside_the_shield() {
    let Some((world, games)) = with_room() else { return };
    let cpu = world.machine.cpu.to_string();
    let store = world.machine.dir().join("runs");
    fs::create_dir(&store).unwrap();
    fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
    let applied = world.run(&games, &["apply", "--yes"]);
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let words = ["wakeup", "--cpus", &cpu, "--for", "300ms", "--interval", "1ms", "--json"];
    let words = [&["measure"], &words[..], &["--store", store.to_str().unwrap()]].concat();
    let run = world.run(&games, &words);
    assert!(run.status.success(), "{}", text(&run));
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let thread = &json["threads"][0];
    assert_eq!(thread["allowed"], cpu, "{json}");
    assert_eq!(thread["scheduling"]["policy"], "fifo", "{thread}");
    assert_eq!(thread["scheduling"]["priority"], 85, "the most that a user is given");
    let found: Vec<_> = json["findings"].as_array().unwrap().iter().map(|f| &f["id"]).collect();
    assert!(!found.contains(&&"run.outside_shield".into()), "{found:?}");

    // Who took the time is seen as well: by the service.
    if fs::read_dir("/sys/kernel/tracing").is_ok_and(|mut dir| dir.next().is_some()) {
        let words = ["explain", "--cpus", &cpu, "--probe", "gap", "--for", "300ms", "--json"];
        let told = world.run(&games, &words);
        assert!(told.status.success(), "{}", text(&told));
        let json: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert!(!json["findings"].to_string().contains("explain.counters"), "{json}");
        assert_eq!(json["source"], "trace", "{json}");
    }

    // Outside the group he measures as he can, and reads why.
    let words = ["measure", "gap", "--cpus", &cpu, "--for", "50ms"];
    let words = [&words[..], &["--store", store.to_str().unwrap()]].concat();
    let outside = world.run("", &words);
    assert!(text(&outside).contains("does not let the thread onto CPU"), "{}", text(&outside));
    let reverted = world.run(&games, &["revert"]);
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
}

#[test]
fn a_user_proves_an_approved_chain_and_a_kill_puts_the_machine_back() {
    if quiet_testing::left_out("8 s") {
        return;
    }
    let Some((world, games)) = with_room() else { return };
    let store = world.machine.dir().join("runs");
    fs::create_dir(&store).unwrap();
    fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
    let before = Capture::take();
    // The shielded arm first: a long one is killed.
    let first = (0..).find(|seed| !Lot { seed: *seed, pairs: 1 }.shared_first(0)).unwrap();
    let seed = first.to_string();
    let words = |length: &'static str| {
        let words = ["prove", "room", "--pairs", "1", "--for", length, "--gap", "0s"];
        let words = [&words[..], &["--seed", &seed]].concat();
        let store = store.to_str().unwrap();
        [&words[..], &["--stress", "dentry", "--json", "--store", store]].concat()
    };
    let proved = world.run(&games, &words("300ms"));
    assert_eq!(proved.status.code(), Some(1), "one pair gives no verdict: {}", text(&proved));
    let json: serde_json::Value = serde_json::from_slice(&proved.stdout).unwrap();
    assert_eq!(json["shield"]["cpus"], world.machine.cpu.to_string());
    assert_eq!(json["restored"]["exact"], true, "{}", json["restored"]);
    let settings: Vec<_> =
        json["arms"].as_array().unwrap().iter().map(|arm| arm["setting"].as_str()).collect();
    assert!(settings.contains(&Some("shielded")), "{settings:?}");
    for arm in json["arms"].as_array().unwrap() {
        let outside = arm["wakeup"]["findings"].to_string().contains("run.outside_shield");
        let thread = &arm["wakeup"]["threads"][0];
        let inside = thread["scheduling"]["policy"] == "fifo" && !outside;
        assert_eq!(inside, arm["setting"] == "shielded", "{thread}");
    }
    assert!(json["findings"].to_string().contains("prove.unlike"), "{}", json["findings"]);
    let commands = json["commands"].to_string();
    assert!(commands.contains("quietcores prove room"), "{commands}");
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());

    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--groups", &games]);
    let mut proving = command
        .arg(&world.program)
        .args(words("60s"))
        .env("QUIETCORES_BUS", &world.bus.address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the shield of an arm", || {
        world.machine.run("status").status.code() == Some(0) && world.up()
    });
    proving.kill().unwrap();
    proving.wait().unwrap();
    wait_for("the machine to be put back", || !world.up());
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new());
    let stranger = world.run("", &words("300ms"));
    assert_eq!(stranger.status.code(), Some(2), "{}", text(&stranger));
    assert!(text(&stranger).contains("usermod -aG games"), "{}", text(&stranger));
}

#[test]
fn a_watch_of_the_service_mends_and_ends_with_its_reader() {
    if quiet_testing::left_out("8 s") {
        return;
    }
    let Some((world, games)) = with_room() else { return };
    let nobody = world.run(&games, &["watch", "room"]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody).contains("no shield is up"), "{}", text(&nobody));
    let applied = world.run(&games, &["apply", "--yes"]);
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let watch = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--groups", &games]);
        command
            .arg(&world.program)
            .args(["watch", "room", "--json"])
            .env("QUIETCORES_BUS", &world.bus.address)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut watching = watch();
    let mut events = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = |what: &str| loop {
        let event: serde_json::Value =
            serde_json::from_str(&events.next().expect(what).unwrap()).unwrap();
        if event.to_string().contains(what) {
            break event;
        }
    };
    next("started");
    // Somebody opens the shielded CPU to new interrupts.
    let mask = "/proc/irq/default_smp_affinity";
    let kept = fs::read_to_string(mask).unwrap();
    let online: CpuSet = machine::read("/sys/devices/system/cpu/online").parse().unwrap();
    fs::write(mask, online.to_mask()).unwrap();
    if fs::read_to_string(mask).unwrap() != kept {
        next("default_smp_affinity");
        wait_for("the mask to be mended", || fs::read_to_string(mask).unwrap() == kept);
    }
    // Who stops reading ends the process that watches.
    let watchers = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
        let state = world.machine.state().to_str().unwrap().to_owned();
        lines
            .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
            .filter(|line| line.contains("quietcored watch room") && line.contains(&state))
            .count()
    };
    assert_eq!(watchers(), 1);
    watching.kill().unwrap();
    watching.wait().unwrap();
    wait_for("the watch to end", || watchers() == 0);
    // Four at a time, and no fifth.
    let mut several = Vec::new();
    for many in 1..=4 {
        let mut one = watch();
        let mut line = String::new();
        BufReader::new(one.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("started"), "{line}");
        several.push(one);
        assert_eq!(watchers(), many);
    }
    let fifth = world.run(&games, &["watch", "room"]);
    assert!(text(&fifth).contains("4 watches and traces of one user"), "{}", text(&fifth));
    // They end well with the shield.
    let reverted = world.run(&games, &["revert"]);
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    for one in several {
        let ended = one.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", text(&ended));
    }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what} is waited for in vain");
        sleep(Duration::from_millis(20));
    }
}
