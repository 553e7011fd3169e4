//! The service under abuse, on a real bus: nothing is done that nobody may, nobody waits for somebody else, and nothing is left behind.
#![allow(clippy::unwrap_used)] // a test may

mod world;

use quiet_service::client::ServiceClient;
use quiet_testing::{
    Why,
    bus::{GROUP, STRANGER, as_user, group},
    copy_program, skip_part,
};
use quiet_types::plan::ShieldStanding;
use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use world::{
    World,
    load::{Ends, Lot, METHODS, USERS, body, held, nobody_hangs, policy_of, sleeper, waited},
    polkit::{self, Temper},
    raw::{Body, Raw, Reply},
};

#[test]
fn ten_thousand_random_calls_do_nothing_and_leave_nothing() {
    if quiet_testing::left_out("17 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    let socket = world.bus.socket.clone();
    let storm = |calls: u64, seed: u64| {
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            for (at, uid) in (0u64..).zip([USERS[0], USERS[0], USERS[1], USERS[1]]) {
                let (socket, done) = (&socket, &done);
                scope.spawn(move || {
                    let mut lot = Lot(seed + at * 7919);
                    let mut raw = Raw::connect(socket, uid, &[]);
                    for _ in 0..calls / 4 {
                        raw.interactive = lot.draw(2) == 1;
                        let method = match lot.draw(10) {
                            0 => lot.of(&["", "NoSuchMethod", "apply", "Introspect", "Get", "Set"]),
                            _ => lot.of(&METHODS),
                        };
                        let body = body(&mut lot);
                        let message = match lot.draw(20) {
                            0 => {
                                let to = "org.quietcores1";
                                let other =
                                    lot.of(&["/", "/org/quietcores1/x", "/org/quietcores1"]);
                                let face = lot.of(&[
                                    "org.freedesktop.DBus.Properties",
                                    "x.y",
                                    "org.quietcores1.Shield",
                                ]);
                                let method = if method.is_empty() { "Get" } else { method };
                                raw.message((to, other, face, method), &body)
                            }
                            _ => {
                                let method = if method.is_empty() { "X" } else { method };
                                raw.of_service(method, &body)
                            }
                        };
                        let reply: Reply = raw.ask(&message);
                        let looks =
                            ["ListChains", "Plan", "Status", "Introspect"].contains(&method);
                        assert!(reply.error.is_some() || looks, "{method} {body:?}: {reply:?}");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        done.into_inner()
    };
    storm(800, 1);
    let before = held(world.service());
    let (done, waited) = waited(Raw::connect(&socket, USERS[2], &[]), || storm(10_000, 4711));
    assert_eq!(done, 10_000);
    nobody_hangs(&waited);
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    assert!(!world.state().join("journal.jsonl").exists());
    // Threads that wait for work end after a while; a few take turns at what the service does by itself twice a second.
    let since = Instant::now();
    let few = before.1 + 4;
    while held(world.service()).1 > few && since.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(200));
    }
    let after = held(world.service());
    quiet_testing::report(format_args!("files, threads, kB: {before:?} before, {after:?} after"));
    assert!(after.0 <= before.0 + 2 && after.1 <= few, "{before:?} {after:?}");
    assert!(after.2 < before.2 + 16 * 1024, "{before:?} {after:?}");
}

#[test]
fn bytes_that_are_no_message_and_connections_that_stand_half_open_harm_nobody() {
    if quiet_testing::left_out("12 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    let socket = world.bus.socket.clone();
    let before = held(world.service());
    let caller = Raw::connect(&socket, USERS[2], &[]);
    let ((), waited) = waited(caller, || {
        let mut lot = Lot(99);
        let mut open = Vec::new();
        for turn in 0..600 {
            // The bus itself lets 64 stand before it who have not said who they are.
            match if turn < 80 { turn % 4 } else { 2 + turn % 2 } {
                // Nothing is said at all; or something that is no greeting.
                0 => open.push(Raw::stream(&socket, USERS[0], &[])),
                1 => {
                    let mut stream = Raw::stream(&socket, USERS[0], &[]);
                    let said: Vec<u8> = (0..lot.draw(300)).map(|_| lot.draw(256) as u8).collect();
                    let _ = stream.write_all(&said);
                    open.push(stream);
                }
                // A message that never ends.
                2 => {
                    let mut raw = Raw::connect(&socket, USERS[0], &[]);
                    let message = raw.of_service("Plan", &Body::default().text(&"x".repeat(3000)));
                    let _ = raw.stream.write_all(&message[..lot.draw(message.len())]);
                    open.push(raw.stream);
                }
                // One with bytes that are others'.
                _ => {
                    let mut raw = Raw::connect(&socket, USERS[0], &[]);
                    let mut message = raw.of_service("Admit", &Body::admit(1, "", "fifo", 10));
                    for _ in 0..=lot.draw(6) {
                        let at = lot.draw(message.len());
                        message[at] = lot.draw(256) as u8;
                    }
                    let _ = raw.stream.write_all(&message);
                    raw.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                    let _ = raw.stream.read(&mut [0; 64]);
                    open.push(raw.stream);
                }
            }
        }
        thread::sleep(Duration::from_millis(500));
    });
    nobody_hangs(&waited);
    let root = ServiceClient::connect(world.address()).unwrap();
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    let after = held(world.service());
    assert!(after.0 <= before.0 + 2, "{before:?} {after:?}");
}

#[test]
fn a_flood_of_one_user_or_of_two_keeps_nobody_else_waiting() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let socket = world.bus.socket.clone();
    ServiceClient::connect(world.address()).unwrap().status().unwrap();
    let before = held(world.service());
    // One connection brings all calls to the service, so that of another stands behind all of them: a program that was not built to
    // be quick takes a millisecond for each on a busy machine.
    let connections = if world::quick().is_some() { 24 } else { 3 };
    for users in [&USERS[..1], &USERS[..2]] {
        let caller = Raw::connect(&socket, USERS[2], &[]);
        let ((), waited) = waited(caller, || {
            thread::scope(|scope| {
                for at in 0..connections {
                    let (socket, uid) = (&socket, users[at % users.len()]);
                    scope.spawn(move || {
                        let mut raw = Raw::connect(socket, uid, &[]);
                        // As many as the bus lets one have in flight, and none of the answers is read in between.
                        for _ in 0..10 {
                            let mut last = Vec::new();
                            for call in 0..100 {
                                last = raw.of_service(
                                    ["ListChains", "Status"][call % 2],
                                    &Body::default(),
                                );
                                if call < 99 {
                                    raw.stream.write_all(&last).unwrap();
                                }
                            }
                            raw.ask(&last);
                        }
                    });
                }
            });
        });
        nobody_hangs(&waited);
    }
    // Callers that do not wait for what they asked for.
    for _ in 0..100 {
        let mut raw = Raw::connect(&socket, USERS[0], &[]);
        let message = raw.of_service("Status", &Body::default());
        raw.stream.write_all(&message).unwrap();
    }
    let since = Instant::now();
    while held(world.service()).1 > before.1 + 2 && since.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(200));
    }
    let after = held(world.service());
    quiet_testing::report(format_args!("files, threads, kB: {before:?} before, {after:?} after"));
    assert!(after.0 <= before.0 + 2, "{before:?} {after:?}");
    assert!(after.2 < before.2 + 32 * 1024, "{before:?} {after:?}");
}

/// The numbers of the kernel's own threads.
fn of_kernel() -> Vec<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
    let is_kernels = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|text| text.contains("PPid:\t2\n"))
    };
    numbers.filter(is_kernels).collect()
}

#[test]
fn whoever_lies_about_a_number_moves_nobody() {
    if quiet_testing::left_out("15 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", None).unwrap();
    let games: u32 = group(GROUP).parse().unwrap();
    let mut raw = Raw::connect(&world.bus.socket, USERS[0], &[games]);
    let bens = sleeper("1");
    let mut lies =
        vec![0, 1, 2, u32::MAX, u32::MAX / 2, world.service(), world.bus.pid(), bens.0.id()];
    lies.extend(of_kernel());
    lies.push(std::process::id());
    let seats = |tids: &[u32]| -> Vec<_> {
        let seat = |tid: &u32| {
            (*tid, policy_of(*tid), fs::read_to_string(format!("/proc/{tid}/cgroup")).ok())
        };
        tids.iter().map(seat).collect()
    };
    let before = seats(&lies);
    for lie in &lies {
        for body in [Body::admit(*lie, "", "fifo", 10), Body::admit(*lie, "", "", 0)] {
            let reply = raw.call("Admit", &body);
            assert!(reply.is("NotAllowed"), "{lie}: {:?} {}", reply.error, reply.text());
        }
        let reply = raw.call("Release", &Body::default().number(*lie));
        assert!(reply.is("NotAllowed"), "{lie}: {:?} {}", reply.error, reply.text());
    }
    // Threads of the kernel come and go.
    for (now, then) in seats(&lies).iter().zip(&before) {
        assert!(now == then || now.1.is_none(), "{then:?}: {now:?}");
    }
    // A file that runs as its owner is not who started it: the real user is he, the effective one is not.
    let place = rustix::fs::statvfs(world.chains()).unwrap();
    if place.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID) {
        assert!(root.revert().unwrap().unwrap().is_complete());
        return skip_part(Why::Machine("temporary files are mounted nosuid here".into()));
    }
    let suid = world.chains().join("suid");
    copy_program("/bin/sleep", &suid);
    fs::set_permissions(&suid, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    fs::set_permissions(world.chains(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let raised = Ends(as_user(STRANGER, "", &suid).arg("600").spawn().unwrap());
    quiet_testing::until("it runs as root", || {
        let text = fs::read_to_string(format!("/proc/{}/status", raised.0.id())).ok()?;
        text.contains("Uid:\t65534\t0").then_some(())
    });
    let reply = raw.call("Admit", &Body::admit(raised.0.id(), "", "fifo", 10));
    assert!(reply.is("NotAllowed"), "{:?} {}", reply.error, reply.text());
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn a_number_that_roots_process_gets_while_it_is_asked_for_brings_it_nothing() {
    if quiet_testing::left_out("15 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    let last = Path::new("/proc/sys/kernel/ns_last_pid");
    if !last.exists() {
        return skip_part(Why::Machine(
            "this kernel has no ns_last_pid: no number can be given anew".into(),
        ));
    }
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", None).unwrap();
    let games: u32 = group(GROUP).parse().unwrap();
    let mut raw = Raw::connect(&world.bus.socket, USERS[0], &[games]);
    let mut lot = Lot(7);
    let (mut given, mut admitted) = (0, 0);
    for _ in 0..150 {
        let mut first = sleeper(STRANGER);
        let pid = first.0.id();
        let whose = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        quiet_testing::until("it is his", || {
            whose().contains("Uid:\t65534\t65534\t65534").then_some(())
        });
        let message = raw.of_service("Admit", &Body::admit(pid, "", "fifo", 10));
        let wait = Duration::from_micros(lot.draw(80_000) as u64);
        let (second, reply) = thread::scope(|scope| {
            let asked = scope.spawn(|| raw.ask(&message));
            thread::sleep(wait);
            first.0.kill().unwrap();
            first.0.wait().unwrap();
            fs::write(last, (pid - 1).to_string()).unwrap();
            let second = Ends(Command::new("sleep").arg("600").spawn().unwrap());
            (second, asked.join().unwrap())
        });
        admitted += u32::from(reply.error.is_none());
        if second.0.id() != pid {
            continue;
        }
        given += 1;
        assert_eq!(policy_of(pid), Some(0), "{wait:?}: {reply:?}");
        let allowed = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(
            !allowed.contains(&format!("Cpus_allowed_list:\t{}\n", world.cpu)),
            "{wait:?}: {allowed}"
        );
    }
    quiet_testing::report(format_args!(
        "{given} of 150 numbers were given anew; {admitted} were let in first"
    ));
    // How many, decides who else starts processes here.
    assert!(given > 0, "none was given anew");
    assert!(root.revert().unwrap().unwrap().is_complete());
}

#[test]
fn callers_that_die_before_the_act_leave_a_whole_state() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", None).unwrap();
    let own = sleeper(STRANGER);
    let games = group(GROUP);
    let mut lot = Lot(3);
    for turn in 0..60 {
        let words = if turn % 2 == 0 {
            vec![
                "Admit".to_owned(),
                format!("uint32:{}", own.0.id()),
                "string:".into(),
                "string:fifo".into(),
                "byte:10".into(),
            ]
        } else {
            vec!["Release".to_owned(), format!("uint32:{}", own.0.id())]
        };
        let mut caller = as_user(STRANGER, &games, "dbus-send")
            .arg(format!("--bus={}", world.bus.address))
            .args(["--dest=org.quietcores1", "--print-reply", "/org/quietcores1"])
            .arg(format!("org.quietcores1.Shield.{}", words[0]))
            .args(&words[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_micros(lot.draw(60_000) as u64));
        caller.kill().unwrap();
        caller.wait().unwrap();
    }
    let status = root.status().unwrap();
    assert_eq!((status.state, status.drift.len()), (ShieldStanding::Up, 0), "{:?}", status.drift);
    assert!(root.revert().unwrap().unwrap().is_complete());
    assert_eq!(policy_of(own.0.id()), Some(0));
}

#[test]
fn what_an_admitted_process_starts_has_no_priority_however_much_that_is() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let root = ServiceClient::connect(world.address()).unwrap();
    root.apply("room", None).unwrap();
    let games: u32 = group(GROUP).parse().unwrap();
    let mut raw = Raw::connect(&world.bus.socket, USERS[0], &[games]);
    // It starts others, which start others, as soon as it is told to.
    let go = world.chains().join("go");
    let script = format!(
        "f() {{ [ $1 = 0 ] && exec sleep 600; f $(($1 - 1)) & f $(($1 - 1)) & wait; }}; while [ ! -e {} ]; do sleep 0.05; done; f 7",
        go.display()
    );
    fs::set_permissions(world.chains(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let bomb = Ends(as_user(STRANGER, "", "setsid").args(["sh", "-c", &script]).spawn().unwrap());
    quiet_testing::until("it is his", || {
        let text = fs::read_to_string(format!("/proc/{}/status", bomb.0.id())).ok()?;
        (text.contains("Uid:\t65534\t65534\t65534") && text.contains("Name:\tsh")).then_some(())
    });
    let reply = raw.call("Admit", &Body::admit(bomb.0.id(), "", "fifo", 10));
    assert_eq!(reply.error, None, "{}", reply.text());
    assert_eq!(policy_of(bomb.0.id()), Some(1));
    let family = || -> Vec<u32> {
        let numbers = fs::read_dir("/proc").unwrap().flatten();
        let numbers = numbers.filter_map(|one| one.file_name().to_str()?.parse::<u32>().ok());
        let session = bomb.0.id().to_string();
        let is_of = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = stat
                .rsplit(')')
                .next()
                .map(|rest| rest.split_ascii_whitespace().nth(3).map(str::to_owned));
            fields.flatten() == Some(session.clone())
        };
        numbers.filter(is_of).collect()
    };
    let caller = Raw::connect(&world.bus.socket, USERS[2], &[]);
    let (many, waited) = waited(caller, || {
        fs::write(&go, "").unwrap();
        let many =
            quiet_testing::until("they are many", || Some(family()).filter(|all| all.len() > 200));
        thread::sleep(Duration::from_millis(500));
        many
    });
    nobody_hangs(&waited);
    let raised: Vec<u32> = many.iter().copied().filter(|pid| policy_of(*pid) == Some(1)).collect();
    assert_eq!(raised, [bomb.0.id()]);
    assert!(root.revert().unwrap().unwrap().is_complete());
    assert_eq!(policy_of(bomb.0.id()), Some(0));
    for pid in family() {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
    }
}

#[test]
fn killed_at_thirty_instants_it_keeps_its_state_and_the_next_call_works() {
    if quiet_testing::left_out("16 s") {
        return;
    }
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    let own = sleeper(STRANGER);
    let allowed = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        text.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap().to_owned()
    };
    let before = (allowed(own.0.id()), allowed(std::process::id()));
    let games: u32 = group(GROUP).parse().unwrap();
    let mut lot = Lot(30);
    let mut seen = [0; 3];
    for _ in 0..30 {
        let (socket, tid) = (world.bus.socket.clone(), own.0.id());
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let at_work = scope.spawn(|| {
                let mut raw = Raw::connect(&socket, USERS[0], &[games]);
                let calls = [
                    ("Apply", Body::default().text("room").number(0)),
                    ("Admit", Body::admit(tid, "", "fifo", 10)),
                    ("Release", Body::default().number(tid)),
                    ("Revert", Body::default()),
                ];
                while !over.load(Ordering::Relaxed) {
                    for (method, body) in &calls {
                        raw.call(method, body);
                    }
                }
            });
            thread::sleep(Duration::from_millis(lot.draw(400) as u64));
            world.kill();
            over.store(true, Ordering::Relaxed);
            at_work.join().unwrap();
        });
        world.start();
        // The next call works, and says what there is; the one after that puts it back.
        let mut raw = Raw::connect(&world.bus.socket, USERS[0], &[games]);
        let status = raw.call("Status", &Body::default());
        assert_eq!(status.error, None, "{}", status.text());
        let state = ["\"state\":\"none\"", "\"state\":\"up\"", "\"state\":\"leftover\""];
        let at = state.iter().position(|state| status.text().contains(state)).unwrap();
        seen[at] += 1;
        let reverted = raw.call("Revert", &Body::default());
        assert_eq!(reverted.error, None, "{}", reverted.text());
        assert!(!reverted.text().contains("\"is\":\"refused\""), "{}", reverted.text());
        let status = raw.call("Status", &Body::default()).text();
        assert!(status.contains("\"state\":\"none\""), "{status}");
        assert_eq!(policy_of(own.0.id()), Some(0));
        assert_eq!((allowed(own.0.id()), allowed(std::process::id())), before);
    }
    quiet_testing::report(format_args!("none, up, half-way after the kill: {seen:?}"));
}

#[test]
fn a_polkit_that_never_answers_holds_up_nobody_and_lets_nobody_in() {
    if quiet_testing::left_out("29 s") {
        return;
    }
    let Some(world) = World::new() else { return };
    world.approve("room");
    polkit::start(&world.bus.address, Temper::Silent);
    let games: u32 = group(GROUP).parse().unwrap();
    let root = Raw::connect(&world.bus.socket, 0, &[]);
    // Root's calls need no polkit; those of others come to an end.
    let ((), waited) = waited(root, || {
        thread::scope(|scope| {
            for uid in USERS {
                let world = &world;
                scope.spawn(move || {
                    let mut raw = Raw::connect(&world.bus.socket, uid, &[games]);
                    raw.interactive = true;
                    for (method, body) in [
                        ("Apply", Body::default().text("room").number(0)),
                        ("Revert", Body::default()),
                        ("Status", Body::default()),
                    ] {
                        let reply = raw.call(method, &body);
                        assert!(reply.is("Busy"), "{method}: {:?} {}", reply.error, reply.text());
                        assert!(reply.text().contains("try again"), "{}", reply.text());
                        let most = if method == "Status" { 2 } else { 7 };
                        let most = Duration::from_secs(most) + raw.ping() * 10;
                        assert!(reply.took < most, "{method}: {:?}", reply.took);
                    }
                });
            }
        });
    });
    nobody_hangs(&waited);
    assert!(!world.state().join("journal.jsonl").exists());
}

#[test]
fn a_dialogue_that_nobody_answers_holds_up_no_other_call() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let asked = polkit::start(&world.bus.address, Temper::WaitsForPassword);
    let mut anna: Vec<Raw> = (0..6)
        .map(|_| {
            let mut raw = Raw::connect(&world.bus.socket, USERS[0], &[]);
            raw.interactive = true;
            let message = raw.of_service("Apply", &Body::default().text("room").number(0));
            raw.stream.write_all(&message).unwrap();
            raw
        })
        .collect();
    quiet_testing::until("she is asked", || {
        (asked.dialogues.load(Ordering::Relaxed) == 1).then_some(())
    });
    // Her own other calls, another's, and root's.
    for uid in [USERS[0], USERS[1], 0] {
        let caller = Raw::connect(&world.bus.socket, uid, &[]);
        let ((), waited) = waited(caller, || thread::sleep(Duration::from_millis(300)));
        nobody_hangs(&waited);
    }
    // Who does not wait for a dialogue is told at once, and who does gets one of his own.
    let mut ben = Raw::connect(&world.bus.socket, USERS[1], &[]);
    let reply = ben.call("Apply", &Body::default().text("room").number(0));
    assert!(reply.is("NotAllowed"), "{:?} {}", reply.error, reply.text());
    ben.interactive = true;
    let message = ben.of_service("Apply", &Body::default().text("room").number(0));
    ben.stream.write_all(&message).unwrap();
    quiet_testing::until("he is asked too", || {
        (asked.dialogues.load(Ordering::Relaxed) == 2).then_some(())
    });
    let mut root = Raw::connect(&world.bus.socket, 0, &[]);
    let reply = root.call("Apply", &Body::default().text("room").number(0));
    assert_eq!(reply.error, None, "{}", reply.text());
    let reply = root.call("Revert", &Body::default());
    assert_eq!(reply.error, None, "{}", reply.text());
    // Nobody is asked any longer who has gone.
    assert_eq!(asked.cancelled.load(Ordering::Relaxed), 0);
    anna.clear();
    quiet_testing::until("her dialogue is closed", || {
        (asked.cancelled.load(Ordering::Relaxed) == 1).then_some(())
    });
}

#[test]
fn a_password_that_is_typed_once_the_caller_has_gone_does_nothing() {
    let Some(world) = World::new() else { return };
    world.approve("room");
    let asked = polkit::start(&world.bus.address, Temper::TakesPassword);
    let mut anna = Raw::connect(&world.bus.socket, USERS[0], &[]);
    anna.interactive = true;
    let message = anna.of_service("Apply", &Body::default().text("room").number(0));
    anna.stream.write_all(&message).unwrap();
    quiet_testing::until("she is asked", || {
        (asked.dialogues.load(Ordering::Relaxed) == 1).then_some(())
    });
    drop(anna);
    // The bus has seen it by then, and the service has not yet looked.
    thread::sleep(Duration::from_millis(50));
    asked.typed.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_secs(2));
    let root = ServiceClient::connect(world.address()).unwrap();
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    // For who is there it is done.
    let mut ben = Raw::connect(&world.bus.socket, USERS[1], &[]);
    ben.interactive = true;
    let reply = ben.call("Apply", &Body::default().text("room").number(0));
    assert_eq!(reply.error, None, "{}", reply.text());
    assert!(root.revert().unwrap().unwrap().is_complete());
}
