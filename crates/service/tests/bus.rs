//! The service on a real bus: who may and who may not, and what becomes of the machine.
#![allow(clippy::unwrap_used)] // a test may

mod world;

use quiet_service::acts::Acts;
use quiet_service::client::{Refusal, ServiceClient};
use quiet_testing::bus::{ANOTHER, GROUP, STRANGER, group, text};
use quiet_types::{CpuSet, plan::ShieldStanding};
use std::{
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use world::{
    PROGRAM, World,
    load::{Ends, USERS, sleeper, started},
    raw::{Body, Raw},
};

#[test]
fn a_member_of_the_group_applies_and_reverts_and_a_stranger_only_looks() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let games = group(GROUP);
    let root = ServiceClient::connect(world.address()).unwrap();
    assert_eq!(root.chains().unwrap(), [("room".to_owned(), "room".to_owned(), true)]);
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);

    for (method, words) in
        [("Apply", &["string:room", "uint32:0"][..]), ("Confirm", &[][..]), ("Revert", &[][..])]
    {
        let said = text(&world.bus.call(STRANGER, "", method, words));
        assert!(said.contains("org.quietcores1.Error.NotAllowed"), "{method}: {said}");
        assert!(said.contains(&format!("usermod -aG {GROUP}")), "{method}: {said}");
        assert_eq!(root.status().unwrap().state, ShieldStanding::None, "{method}");
    }
    let looked = text(&world.bus.call(STRANGER, "", "Plan", &["string:room"]));
    assert!(looked.contains("quietcores.plan/"), "{looked}");

    let applied = text(&world.bus.call(STRANGER, &games, "Apply", &["string:room", "uint32:0"]));
    assert!(applied.contains("quietcores.applied/"), "{applied}");
    let status = root.status().unwrap();
    assert_eq!(status.state, ShieldStanding::Up);
    assert_eq!(status.shield.unwrap().cpus.to_string(), world.cpu.to_string());
    let again = text(&world.bus.call(STRANGER, &games, "Apply", &["string:room", "uint32:0"]));
    assert!(
        again.contains("org.quietcores1.Error.Failed") && again.contains("up already"),
        "{again}"
    );

    let reverted = text(&world.bus.call(STRANGER, &games, "Revert", &[]));
    assert!(reverted.contains("quietcores.reverted/"), "{reverted}");
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    assert!(root.revert().unwrap().is_none());
}

#[test]
fn what_somebody_else_has_put_up_is_an_administrators_to_put_back_or_to_confirm() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let games = group(GROUP);
    let root = ServiceClient::connect(world.address()).unwrap();
    let own = |uid: &str, method: &str| text(&world.bus.call(uid, &games, method, &[]));
    // Root's own: by the service, and at a terminal of root's, which is not asked for here.
    root.apply("room", Some(600)).unwrap();
    for method in ["Confirm", "Revert"] {
        let said = own(STRANGER, method);
        assert!(said.contains("Error.NotAllowed"), "{method}: {said}");
        assert!(said.contains("sudo quietcores revert"), "{method}: {said}");
        assert!(said.contains("org.quietcores1.revert-any"), "{method}: {said}");
    }
    let status = root.status().unwrap();
    assert_eq!(status.by.unwrap().to_string(), "root");
    assert!(status.confirm.is_some(), "nobody has confirmed it");
    assert!(root.revert().unwrap().unwrap().is_complete());
    // A member's, against another member; then by himself.
    let applied = world.bus.call(STRANGER, &games, "Apply", &["string:room", "uint32:600"]);
    assert!(text(&applied).contains("quietcores.applied/"), "{}", text(&applied));
    assert_eq!(root.status().unwrap().by.unwrap().uid, Some(65534));
    for method in ["Confirm", "Revert"] {
        let said = own(ANOTHER, method);
        assert!(said.contains("Error.NotAllowed"), "{method}: {said}");
    }
    assert!(own(STRANGER, "Confirm").contains("boolean true"));
    assert!(own(STRANGER, "Revert").contains("quietcores.reverted/"));
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
}

#[test]
fn an_unconfirmed_shield_goes_though_the_service_is_killed() {
    if quiet_testing::left_out("10 s") {
        return;
    }
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", Some(3)).unwrap();
    world.kill();
    thread::sleep(Duration::from_secs(1));
    world.start();
    // The state was kept: the new service sees the shield of the old one, until its guard takes it down.
    let mut seen = Vec::new();
    for _ in 0..600 {
        let state = root.status().unwrap().state;
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        if state == ShieldStanding::None {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(seen.last(), Some(&ShieldStanding::None), "{seen:?}");
    // Confirmed, it stays: nobody stands any more who would put it back.
    root.apply("room", Some(600)).unwrap();
    let guard = root.status().unwrap().confirm.unwrap().guard.unwrap();
    assert!(root.confirm().unwrap());
    quiet_testing::until("the guard's end", || {
        let stat = std::fs::read_to_string(format!("/proc/{guard}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
    assert_eq!(root.status().unwrap().state, ShieldStanding::Up);
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn a_question_that_the_service_took_with_it_is_asked_again() {
    let Some(mut world) = World::new() else { return };
    let root = ServiceClient::connect(world.address()).unwrap();
    root.status().unwrap();
    signal(world.service(), "-STOP");
    thread::scope(|scope| {
        let asked = scope.spawn(|| root.status());
        // It has the question, and dies with it.
        thread::sleep(Duration::from_millis(500));
        world.kill();
        world.start();
        assert_eq!(asked.join().unwrap().unwrap().state, ShieldStanding::None);
    });
}

fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A group that is called as a service's; what is in it ends with it.
struct ServiceGroup(std::path::PathBuf);

impl ServiceGroup {
    fn new() -> ServiceGroup {
        let named = std::path::Path::new("/sys/fs/cgroup/systemd");
        let mount = if named.is_dir() { named } else { std::path::Path::new("/sys/fs/cgroup") };
        let group = mount.join(format!("quiet-{}.service", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        ServiceGroup(group)
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.join("cgroup.procs")
    }

    fn inside(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl Drop for ServiceGroup {
    fn drop(&mut self) {
        // Where the test failed, the service is in it still.
        for _ in 0..500 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            for pid in self.inside() {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_holder_and_the_guard_outlive_the_group_of_the_service_that_started_them() {
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    let group = ServiceGroup::new();
    std::fs::write(group.file(), world.service().to_string()).unwrap();
    assert_eq!(group.inside(), [world.service()]);
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", Some(600)).unwrap();
    let status = root.status().unwrap();
    let (holder, guard) = (status.holder, status.confirm.unwrap().guard);
    assert!(holder.is_some() && guard.is_some(), "{holder:?} {guard:?}");
    // As systemd ends a service: all of its group.
    for pid in group.inside() {
        assert!(Some(pid) != holder && Some(pid) != guard, "{pid} is in it still");
        if pid != world.service() {
            signal(pid, "-KILL");
        }
    }
    world.kill();
    world.start();
    let status = root.status().unwrap();
    assert_eq!((status.holder, status.confirm.unwrap().guard), (holder, guard));
    assert_eq!(status.drift, []);
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn what_a_caller_names_is_a_name() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    for name in ["/etc/quietcores/chains/room.toml", "../room", "room\0", "none", "", "a\nb"] {
        if name.contains('\0') {
            continue; // the bus itself takes no such text
        }
        match root.apply(name, None) {
            Err(Refusal::Said(said)) => {
                assert!(said.contains("no name") || said.contains("no chain"), "{name}: {said}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    match root.apply("room", Some(u32::MAX)) {
        Err(Refusal::Said(said)) => assert!(said.contains("are the most"), "{said}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
}

/// A thread of user `uid` that spins, and everything that it starts inherits its priority.
fn spinner(uid: &str) -> Child {
    started(uid, "sh", &["-c", "while :; do :; done"])
}

fn policy_of(tid: u32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(38)?.parse().ok()
}

#[test]
fn a_thread_of_ones_own_is_let_in_and_nobody_elses() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let games = group(GROUP);
    let root = ServiceClient::connect(world.address()).unwrap();
    let mut own = spinner(STRANGER);
    let mut roots = Command::new("sleep").arg("600").spawn().unwrap();
    let admit = |tid: u32, cpus: &str, policy: &str, priority: u8| {
        let words = [
            format!("uint32:{tid}"),
            format!("string:{cpus}"),
            format!("string:{policy}"),
            format!("byte:{priority}"),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        text(&world.bus.call(STRANGER, &games, "Admit", &words))
    };
    let none = admit(own.id(), "", "fifo", 10);
    assert!(none.contains("no shield is up"), "{none}");
    root.apply("room", None).unwrap();
    let cpu = world.cpu.to_string();
    for (tid, cpus, policy, priority, says) in [
        (roots.id(), "", "fifo", 10, "is not a thread of user"),
        (1, "", "fifo", 10, "is not a thread of user"),
        (2, "", "fifo", 10, "is not a thread of user"),
        (4_194_304, "", "fifo", 10, "there is no thread"),
        (own.id(), "0", "fifo", 10, "is not within the shield"),
        (own.id(), "a-b", "fifo", 10, "no list of CPUs"),
        (own.id(), "", "deadline", 10, "the policy is fifo or rr"),
        (own.id(), "", "fifo", 99, "1 to 85 are given"),
        (own.id(), "", "fifo", 0, "1 to 85 are given"),
    ] {
        let said = admit(tid, cpus, policy, priority);
        assert!(said.contains(says), "{tid} {cpus} {policy} {priority}: {said}");
        assert!(said.contains("Error org.quietcores1.Error."), "{said}");
    }
    let may_not = text(&world.bus.call(
        STRANGER,
        "",
        "Admit",
        &[&format!("uint32:{}", own.id()), "string:", "string:fifo", "byte:10"],
    ));
    assert!(may_not.contains("Error.NotAllowed"), "{may_not}");
    assert_eq!(policy_of(own.id()), Some(0), "nothing was done by then");

    let let_in = admit(own.id(), &cpu, "fifo", 10);
    assert!(let_in.contains("quietcores.admitted/"), "{let_in}");
    assert_eq!(policy_of(own.id()), Some(1), "{let_in}");
    let allowed = std::fs::read_to_string(format!("/proc/{}/status", own.id())).unwrap();
    assert!(allowed.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{allowed}");
    assert!(root.status().unwrap().drift.is_empty());

    // Out again, and in; nobody else lets it out.
    let tid = format!("uint32:{}", own.id());
    let others = text(&world.bus.call(ANOTHER, &games, "Release", &[&tid]));
    assert!(others.contains("is not a thread of user 1"), "{others}");
    let out = text(&world.bus.call(STRANGER, &games, "Release", &[&tid]));
    assert!(out.contains("quietcores.released/"), "{out}");
    assert_eq!(policy_of(own.id()), Some(0), "{out}");
    let allowed = std::fs::read_to_string(format!("/proc/{}/status", own.id())).unwrap();
    assert!(!allowed.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{allowed}");
    assert!(root.status().unwrap().drift.is_empty());
    let twice = text(&world.bus.call(STRANGER, &games, "Release", &[&tid]));
    assert!(twice.contains("was not let into the shield"), "{twice}");
    let again = admit(own.id(), &cpu, "fifo", 10);
    assert!(again.contains("quietcores.admitted/"), "{again}");
    assert_eq!(policy_of(own.id()), Some(1), "{again}");

    assert!(root.revert().unwrap().unwrap().is_complete());
    assert_eq!(policy_of(own.id()), Some(0));
    let allowed = std::fs::read_to_string(format!("/proc/{}/status", own.id())).unwrap();
    assert!(!allowed.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{allowed}");
    for child in [&mut own, &mut roots] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// What holds ordinary threads a CPU whatever runs: off, and back when this is dropped, or by a thread before all others after a while.
struct Unbridled {
    throttle: String,
    fair: Vec<(String, String)>,
    rescue: Child,
}

const THROTTLE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

impl Unbridled {
    fn new(runaways: &[u32]) -> Unbridled {
        let throttle = std::fs::read_to_string(THROTTLE).unwrap().trim().to_owned();
        let servers =
            std::fs::read_dir("/sys/kernel/debug/sched/fair_server").into_iter().flatten();
        let files = servers.flatten().map(|cpu| cpu.path().join("runtime").display().to_string());
        let fair: Vec<(String, String)> = files
            .filter_map(|file| Some((file.clone(), std::fs::read_to_string(&file).ok()?)))
            .collect();
        let runaways: Vec<String> = runaways.iter().map(ToString::to_string).collect();
        let rescue = Command::new("chrt")
            .args(["-f", "99", "sh", "-c"])
            .arg(format!("sleep 20; kill -9 {}; echo {throttle} > {THROTTLE}", runaways.join(" ")))
            .spawn()
            .unwrap();
        std::fs::write(THROTTLE, "-1").unwrap();
        for (file, _) in &fair {
            let _ = std::fs::write(file, "0");
        }
        Unbridled { throttle, fair, rescue }
    }
}

impl Drop for Unbridled {
    fn drop(&mut self) {
        let _ = std::fs::write(THROTTLE, &self.throttle);
        for (file, value) in &self.fair {
            let _ = std::fs::write(file, value.trim());
        }
        let _ = self.rescue.kill();
        let _ = self.rescue.wait();
    }
}

#[test]
fn the_canary_takes_a_runaway_its_priority_and_leaves_who_behaves() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", None).unwrap();
    let online: CpuSet =
        std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap().parse().unwrap();
    let others: Vec<u32> = online.iter().map(|cpu| cpu.0).filter(|cpu| *cpu != world.cpu).collect();
    let runaways: Vec<Ends> = others.iter().map(|_| Ends(spinner(STRANGER))).collect();
    let behaves = sleeper(STRANGER);
    for one in runaways.iter().chain([&behaves]) {
        let words = [
            format!("uint32:{}", one.0.id()),
            "string:".into(),
            "string:fifo".into(),
            "byte:80".into(),
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = text(&world.bus.call(STRANGER, &group(GROUP), "Admit", &words));
        assert!(said.contains("quietcores.admitted/"), "{said}");
    }
    let pids: Vec<u32> = runaways.iter().map(|one| one.0.id()).collect();
    thread::sleep(Duration::from_secs(3));
    // It burns a shielded CPU, which is what that is for: nobody else starves.
    assert!(pids.iter().all(|pid| policy_of(*pid) == Some(1)), "within the shield they keep it");
    // Now one comes to each of the other CPUs: by root here, who else could.
    for pid in &pids {
        for file in ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/cpuset/cgroup.procs"] {
            let _ = std::fs::write(file, pid.to_string());
        }
    }
    let unbridled = Unbridled::new(&pids);
    let began = Instant::now();
    let placed: Vec<bool> = others
        .iter()
        .zip(&pids)
        .map(|(cpu, pid)| {
            let cpu = cpu.to_string();
            let done = Command::new("taskset").args(["-pc", &cpu, &pid.to_string()]).output();
            done.is_ok_and(|done| done.status.success())
        })
        .collect();
    // This thread too has waited for a CPU.
    while pids.iter().any(|pid| policy_of(*pid) == Some(1)) && began.elapsed().as_secs() < 25 {
        thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    drop(unbridled);
    let policies: Vec<_> = pids.iter().map(|pid| policy_of(*pid)).collect();
    assert!(placed.iter().all(|placed| *placed), "{placed:?}");
    assert!(policies.iter().all(|policy| *policy == Some(0)), "{policies:?} after {took:?}");
    assert_eq!(policy_of(behaves.0.id()), Some(1), "who behaves keeps it");
    quiet_testing::report(format_args!("demoted after {took:?}"));
    drop(runaways);
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn nonsense_and_floods_leave_the_service_standing() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", world.service())).unwrap().count();
    let files = || std::fs::read_dir(format!("/proc/{}/fd", world.service())).unwrap().count();
    root.status().unwrap();
    let (_, files_before) = (threads(), files());
    // Many callers at a time, each of whom may have four calls at work.
    thread::scope(|scope| {
        for n in 0..16 {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..12 {
                    let words: Vec<String> = match (n + turn) % 6 {
                        0 => vec!["Status".into()],
                        1 => vec!["Plan".into(), format!("string:{}", "x".repeat(turn * 40))],
                        2 => vec!["Apply".into(), "string:room".into(), "uint32:4294967295".into()],
                        3 => vec!["NoSuchMethod".into(), "int32:-1".into()],
                        4 => vec!["Admit".into(), "string:room".into()],
                        _ => vec!["ListChains".into()],
                    };
                    let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
                    let said = text(&world.bus.call(STRANGER, "", &words[0], &rest));
                    assert!(!said.contains("NoReply") && !said.contains("Disconnected"), "{said}");
                }
            });
        }
    });
    // Callers that die between the call and the answer.
    for _ in 0..30 {
        let mut caller = Command::new("dbus-send")
            .arg(format!("--bus={}", world.bus.address))
            .args(["--dest=org.quietcores1", "--print-reply", "/org/quietcores1"])
            .arg("org.quietcores1.Shield.Status")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        caller.kill().unwrap();
        caller.wait().unwrap();
    }
    // Connections that only stand there.
    let standing: Vec<_> =
        (0..200).map(|_| UnixStream::connect(&world.bus.socket).unwrap()).collect();
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    drop(standing);
    assert!(files() <= files_before + 4, "{} files, {files_before} before", files());
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
}

#[test]
fn a_member_lends_the_cpus_of_his_own_shield_and_everybody_hears_of_it() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let games = group(GROUP);
    let root = ServiceClient::connect(world.address()).unwrap();
    let heard = Heard::begin(&world);
    let call =
        |uid: &str, method: &str, words: &[&str]| text(&world.bus.call(uid, &games, method, words));
    let hour = ["uint32:3600", "boolean:false", "string:", "boolean:false"];
    assert!(call(STRANGER, "Lend", &hour).contains("no shield is up"));
    assert!(call(STRANGER, "Apply", &["string:room", "uint32:0"]).contains("applied/"));
    for (words, says) in [
        (["uint32:0", "boolean:false", "string:", "boolean:false"], "1 s to 86400 s"),
        (["uint32:9", "boolean:false", "string:../../x.service", "boolean:false"], "no name of"),
        (["uint32:9", "boolean:false", "string:none.service", "boolean:false"], "does not run"),
    ] {
        let said = call(STRANGER, "Lend", &words);
        assert!(said.contains(says) && root.status().unwrap().loan.is_none(), "{said}");
    }
    // Nobody else's, and nobody's outside of the group.
    let said = call(ANOTHER, "Lend", &hour);
    assert!(said.contains("Error.NotAllowed"), "{said}");
    let said = text(&world.bus.call(STRANGER, "", "Lend", &hour));
    assert!(said.contains("usermod -aG"), "{said}");

    let said = call(STRANGER, "Lend", &hour);
    assert!(said.contains("quietcores.lent/"), "{said}");
    assert!(root.status().unwrap().loan.unwrap().guard.is_some());
    assert!(call(ANOTHER, "TakeBack", &[]).contains("Error.NotAllowed"));
    let said = call(STRANGER, "TakeBack", &[]);
    assert!(said.contains("quietcores.reclaimed/"), "{said}");
    assert!(call(STRANGER, "TakeBack", &[]).contains("\"null\""));
    assert!(root.status().unwrap().loan.is_none());

    // With the caller: he has ended before this is looked at.
    let gone = ["uint32:3600", "boolean:false", "string:", "boolean:true"];
    let said = call(STRANGER, "Lend", &gone);
    let was_lent = said.contains("quietcores.lent/");
    assert!(was_lent || said.contains("NotAllowed"), "{said}");
    let until = Instant::now() + Duration::from_secs(60);
    while root.status().unwrap().loan.is_some() {
        assert!(Instant::now() < until, "still lent");
        thread::sleep(Duration::from_millis(50));
    }
    let member = STRANGER.parse().unwrap();
    let mut wanted = vec![("applied", member), ("lent", member), ("taken-back", member)];
    if was_lent {
        wanted.extend([("lent", member), ("taken-back", 0)]);
    }
    heard.until(&wanted);
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn everybody_hears_also_of_what_the_service_did_not_do() {
    if quiet_testing::left_out("12 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    world.approve("room");
    let heard = Heard::begin(&world);
    let games = group(GROUP);
    // The guard of one that nobody confirms.
    let said = text(&world.bus.call(STRANGER, &games, "Apply", &["string:room", "uint32:1"]));
    assert!(said.contains("applied/"), "{said}");
    let member = STRANGER.parse().unwrap();
    heard.until(&[("applied", member), ("reverted", 0)]);
    // Root's own revert of what a member has put up and confirmed.
    let said = text(&world.bus.call(STRANGER, &games, "Apply", &["string:room", "uint32:60"]));
    assert!(said.contains("applied/"), "{said}");
    assert!(text(&world.bus.call(STRANGER, &games, "Confirm", &[])).contains("boolean true"));
    let own = Command::new(PROGRAM).arg("revert").arg("--state").arg(world.state()).status();
    assert!(own.unwrap().success());
    let again = [("applied", member), ("confirmed", member), ("reverted", 0)];
    heard.until(&[&[("applied", member), ("reverted", 0)], &again[..]].concat());
}

/// What everybody hears on the bus.
struct Heard {
    file: tempfile::NamedTempFile,
    monitor: Child,
}

impl Heard {
    fn begin(world: &World) -> Heard {
        let file = tempfile::NamedTempFile::new().unwrap();
        let monitor = Command::new("dbus-monitor")
            .args(["--address", world.address().unwrap()])
            .arg("type='signal',interface='org.quietcores1.Shield'")
            .stdout(file.reopen().unwrap())
            .spawn()
            .unwrap();
        // The bus gives it a name, which it prints, and takes that away once it listens.
        quiet_testing::until("it listens", || {
            std::fs::read_to_string(file.path()).unwrap().contains("NameLost").then_some(())
        });
        Heard { file, monitor }
    }

    /// What has happened, and for whom it was done.
    fn all(&self) -> Vec<(String, u32)> {
        let text = std::fs::read_to_string(self.file.path()).unwrap();
        let signals = text.split("member=Changed\n").skip(1);
        let one = |signal: &str| {
            let mut lines = signal.lines().map(str::trim);
            let what = lines.next()?.strip_prefix("string \"")?.strip_suffix('"')?.to_owned();
            Some((what, lines.nth(1)?.strip_prefix("uint32 ")?.parse().ok()?))
        };
        signals.filter_map(one).collect()
    }

    /// Waits until just this has happened, in this order.
    fn until(&self, wanted: &[(&str, u32)]) {
        let is_one = |(heard, wanted): (&(String, u32), &(&str, u32))| {
            (heard.0.as_str(), heard.1) == *wanted
        };
        quiet_testing::until(&format!("{wanted:?} is heard"), || {
            let all = self.all();
            assert!(all.iter().zip(wanted).all(is_one), "{all:?}, not {wanted:?}");
            (all.len() >= wanted.len()).then_some(())
        });
        assert_eq!(self.all().len(), wanted.len());
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

/// Processes that the service has started, each with its state.
fn children(service: u32) -> Vec<(u32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{service}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let all = lists.collect::<Vec<_>>().join(" ");
    let state = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid.parse().ok()?, stat.rsplit(')').next()?.trim().chars().next()?.to_string()))
    };
    all.split_ascii_whitespace().filter_map(state).collect()
}

#[test]
fn what_the_service_has_started_is_buried_when_it_ends() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    for turn in 0..2 {
        root.apply("room", Some(600)).unwrap();
        assert!(!children(world.service()).is_empty());
        root.lend(600, false, None, false).unwrap();
        root.take_back().unwrap();
        drop(root.watch("room", true).unwrap());
        // A guard that is killed, and one that ends by itself.
        if turn == 0 {
            signal(root.status().unwrap().confirm.unwrap().guard.unwrap(), "-KILL");
        } else {
            assert!(root.confirm().unwrap());
        }
        root.revert().unwrap();
        let (applied, line) = root.apply_bound("room").unwrap();
        assert!(applied.shield.cpus.contains(quiet_types::CpuId(world.cpu)));
        drop(line);
        quiet_testing::until("nothing of it is left, dead or alive", || {
            children(world.service()).is_empty().then_some(())
        });
        quiet_testing::until("the machine is as before", || {
            (root.status().unwrap().state == ShieldStanding::None).then_some(())
        });
    }
}

/// What changes a shield that is up.
fn changes() -> [(&'static str, Body); 5] {
    let hour = || Body::default().number(3600).flag(false).text("").flag(false);
    [
        ("Confirm", Body::default()),
        ("Lend", hour()),
        ("TakeBack", Body::default()),
        ("Watch", Body::default().text("other").flag(false)),
        ("Revert", Body::default()),
    ]
}

/// Whether the shield that is up stays as it is, whatever the user who has not put it up asks for.
fn is_closed_to(world: &World, uid: u32) {
    let root = ServiceClient::connect(world.address()).unwrap();
    let told = || {
        let status = root.status().unwrap();
        (status.state, status.by, status.confirm, status.loan.map(|loan| loan.since), status.drift)
    };
    let before = told();
    let games: u32 = group(GROUP).parse().unwrap();
    let mut raw = Raw::connect(&world.bus.socket, uid, &[games]);
    for (method, body) in changes() {
        let reply = raw.call(method, &body);
        assert!(reply.is("NotAllowed"), "{uid}: {method}: {:?} {}", reply.error, reply.text());
        assert!(reply.text().contains("org.quietcores1.revert-any"), "{method}: {}", reply.text());
    }
    // Nor in its place, with a thread that is not his, or by letting another's out.
    for (method, body) in [
        ("Apply", Body::default().text("other").number(1)),
        ("ApplyBound", Body::default().text("other")),
        ("Admit", Body::admit(world.service(), "", "fifo", 10)),
        ("Admit", Body::admit(0, "", "", 0)),
        ("Release", Body::default().number(world.service())),
    ] {
        let reply = raw.call(method, &body);
        assert!(reply.error.is_some(), "{uid}: {method}: {}", reply.text());
    }
    // A watch that only reports changes nothing.
    let reply = raw.call("Watch", &Body::default().text("room").flag(true));
    assert_eq!(reply.error, None, "{uid}: {}", reply.text());
    // The guard of what was refused has ended by then.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(told(), before, "{uid}");
}

#[test]
fn of_two_users_only_who_put_the_shield_up_changes_it() {
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    world.approve("other");
    let games: u32 = group(GROUP).parse().unwrap();
    let root = ServiceClient::connect(world.address()).unwrap();
    let call = |world: &World, uid: u32, method: &str, body: &Body| {
        let reply = Raw::connect(&world.bus.socket, uid, &[games]).call(method, body);
        assert_eq!(reply.error, None, "{uid}: {method}: {}", reply.text());
        reply.text()
    };
    let [anna, ben, _] = USERS;
    for (owner, other) in [(anna, ben), (ben, anna)] {
        call(&world, owner, "Apply", &Body::default().text("room").number(600));
        call(&world, owner, "Lend", &changes()[1].1);
        is_closed_to(&world, other);
        // Who it is stands in the journal: the next service knows it too.
        world.kill();
        world.start();
        is_closed_to(&world, other);
        // The other may play on it, and comes home with it.
        let guest = sleeper(&other.to_string());
        call(&world, other, "Admit", &Body::admit(guest.0.id(), "", "fifo", 10));
        assert_eq!(policy_of(guest.0.id()), Some(1));
        let tid = Body::default().number(guest.0.id());
        let reply = Raw::connect(&world.bus.socket, owner, &[games]).call("Release", &tid);
        assert!(reply.is("NotAllowed"), "{:?} {}", reply.error, reply.text());
        for (method, body) in changes() {
            call(&world, owner, method, &body);
        }
        assert_eq!(root.status().unwrap().state, ShieldStanding::None);
        assert_eq!(policy_of(guest.0.id()), Some(0));
        // What there is not is everybody's to put back.
        call(&world, other, "Revert", &Body::default());
    }
}

#[test]
fn what_root_or_nobody_known_has_put_up_is_closed_to_users() {
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    world.approve("other");
    let root = ServiceClient::connect(world.address()).unwrap();
    // At root's terminal, as `quietcores apply` does it.
    let acts = Acts::new(&world.state(), std::path::Path::new(PROGRAM), &world.chains());
    let plan = acts.plan("room").unwrap();
    let setup = quiet_shield::ApplyOptions {
        state: &world.state(),
        holder: None,
        interrupt: &std::sync::atomic::AtomicBool::new(false),
        confirm: None,
    };
    quiet_shield::up(&quiet_linux::System, &plan, &setup).unwrap();
    is_closed_to(&world, USERS[0]);
    // An earlier version did not note for whom; and one that was cut short is nobody else's either.
    let journal = world.state().join("journal.jsonl");
    let whole = std::fs::read_to_string(&journal).unwrap();
    assert!(whole.contains(",\"uid\":0"), "{whole}");
    world.kill();
    std::fs::write(&journal, whole.replacen(",\"uid\":0", "", 1)).unwrap();
    world.start();
    is_closed_to(&world, USERS[0]);
    world.kill();
    let cut = whole.lines().take_while(|line| !line.contains("\"up\"")).count();
    let half: String = whole.split_inclusive('\n').take(cut).collect();
    let half = half.replacen("\"uid\":0", &format!("\"uid\":{}", USERS[1]), 1);
    std::fs::write(&journal, half).unwrap();
    world.start();
    assert_eq!(root.status().unwrap().state, ShieldStanding::Leftover);
    let games: u32 = group(GROUP).parse().unwrap();
    let mut raw = Raw::connect(&world.bus.socket, USERS[0], &[games]);
    assert!(raw.call("Revert", &Body::default()).is("NotAllowed"));
    let mut owner = Raw::connect(&world.bus.socket, USERS[1], &[games]);
    let reply = owner.call("Revert", &Body::default());
    assert_eq!(reply.error, None, "{}", reply.text());
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
}
