//! Everybody asks for everything, members and strangers, rightly and wrongly, while a shield goes up and down and the service is killed:
//! nobody gets what is not his, and the machine is as before in the end.
#![allow(clippy::unwrap_used)] // a test may

mod world;

use quiet_service::client::ServiceClient;
use quiet_testing::bus::{GROUP, group};
use quiet_types::plan::ShieldStanding;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use world::{
    World,
    load::{
        Ends, Lot, METHODS, USERS, Waited, body, held, nobody_hangs, policy_of, sleeper, waited,
    },
    raw::{Body, Raw, Reply},
};

/// Who only looks may do no more than that.
const LOOKS: [&str; 3] = ["ListChains", "Plan", "Status"];

/// One who calls: his user, whether he is in the group, and the thread that is his.
#[derive(Clone, Copy, Debug)]
struct Player {
    uid: u32,
    member: bool,
    own: u32,
}

/// The words that the method takes, with values that are mostly possible; who is meant may be anybody.
fn proper(method: &str, lot: &mut Lot, who: &[u32]) -> Body {
    let chain = lot.of(&["room", "room", "room", "none"]);
    let tid = who[lot.draw(who.len())];
    let cpus = lot.of(&["", "", "0", "0-3", "1"]);
    let body = Body::default();
    match method {
        "Plan" | "ApplyBound" => body.text(chain),
        "Apply" => body.text(chain).number([0, 0, 1, 600, u32::MAX][lot.draw(5)]),
        "Watch" => body.text(chain).flag(lot.draw(2) == 1),
        "Trace" => body.text(cpus),
        "Admit" => {
            let policy = lot.of(&["", "fifo", "fifo", "rr", "deadline"]);
            Body::admit(tid, cpus, policy, [0, 1, 70, 85, 86, 99][lot.draw(6)])
        }
        "Release" => body.number(tid),
        "Lend" => body
            .number([1, 60, 0, u32::MAX][lot.draw(4)])
            .flag(lot.draw(2) == 1)
            .text(lot.of(&["", "", "none.service", "../x"]))
            .flag(lot.draw(4) == 0),
        _ => body,
    }
}

/// Whether what was answered is within what the caller may.
fn is_within(player: Player, method: &str, body: &Body, reply: &Reply) -> Result<(), String> {
    let said = reply.text();
    if said.contains("panic") {
        return Err("it broke".into());
    }
    if let Some(error) = &reply.error {
        let ours = ["NotAllowed", "Asked", "Busy", "Failed"]
            .map(|name| format!("org.quietcores1.Error.{name}"));
        let known = ours.contains(error) || error.starts_with("org.freedesktop.DBus.Error.");
        return if known { Ok(()) } else { Err("no error of its".into()) };
    }
    if LOOKS.contains(&method) {
        return Ok(());
    }
    let begins = |with: &[u8]| body.bytes.starts_with(with);
    match method {
        _ if !player.member => Err("a stranger changed something".into()),
        // The only chain that root has approved.
        "Apply" | "ApplyBound" | "Watch" if !begins(b"\x04\0\0\0room\0") => {
            Err("another chain than the approved one".into())
        }
        "Admit" | "Release" if !begins(&player.own.to_le_bytes()) => Err("another's thread".into()),
        "Admit" if body.bytes.last().is_some_and(|priority| *priority > 85) => {
            Err("a priority that is not given".into())
        }
        _ => Ok(()),
    }
}

/// What a shield changes of this machine, as far as everybody has it.
fn settings() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut keep = |path: String| {
        if let Ok(text) = fs::read_to_string(&path) {
            found.insert(path, text);
        }
    };
    for irq in fs::read_dir("/proc/irq").unwrap().flatten() {
        keep(format!("{}/smp_affinity_list", irq.path().display()));
    }
    keep("/proc/irq/default_smp_affinity".into());
    keep("/sys/devices/virtual/workqueue/cpumask".into());
    for name in ["kernel/timer_migration", "kernel/sched_rt_runtime_us", "vm/stat_interval"] {
        keep(format!("/proc/sys/{name}"));
    }
    found
}

/// Where a thread may run, and under what.
fn seat(tid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let cpus = text.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
    format!("{cpus} policy {:?}", policy_of(tid))
}

/// Processes that the service has started for its journal, and that still stand.
fn started(state: &Path) -> Vec<String> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let lines = numbers.filter_map(|one| fs::read_to_string(one.path().join("cmdline")).ok());
    let lines = lines.map(|line| line.replace('\0', " "));
    let verbs = [" hold ", " guard ", " watch ", " trace "];
    let is_ours = |line: &String| {
        line.contains(state.to_str().unwrap()) && verbs.iter().any(|verb| line.contains(verb))
    };
    lines.filter(is_ours).collect()
}

/// Calls of one player until there were as many as there are to be.
fn play(
    socket: &Path,
    player: Player,
    mut lot: Lot,
    (who, left): (&[u32], &AtomicU64),
    broken: &AtomicBool,
) {
    let games: u32 = group(GROUP).parse().unwrap();
    let groups = if player.member { &[games][..] } else { &[] };
    let mut raw = Raw::connect(socket, player.uid, groups);
    let one_less = |n: u64| n.checked_sub(1);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
        // A caller who comes anew now and then, as programs do.
        if lot.draw(50) == 0 {
            raw = Raw::connect(socket, player.uid, groups);
        }
        raw.interactive = lot.draw(2) == 1;
        let method = lot.of(&METHODS);
        let body = match lot.draw(3) {
            0 => body(&mut lot),
            _ => proper(method, &mut lot, who),
        };
        // Who has gone when it is his turn.
        if lot.draw(40) == 0 {
            let message = raw.of_service(method, &body);
            std::io::Write::write_all(&mut raw.stream, &message).unwrap();
            raw = Raw::connect(socket, player.uid, groups);
            continue;
        }
        let reply = raw.call(method, &body);
        if let Err(why) = is_within(player, method, &body, &reply) {
            broken.store(true, Ordering::Relaxed);
            panic!("{player:?} {method} {body:?}: {why}: {reply:?} {}", reply.text());
        }
    }
}

#[test]
fn whatever_members_and_strangers_call_nobody_gets_what_is_not_his() {
    if quiet_testing::left_out("20 s") {
        return;
    }
    let Some(mut world) = World::new() else { return };
    world.approve("room");
    let (calls, kills) = if quiet_testing::is_long() { (10_000, 40) } else { (1_500, 6) };
    let sleepers: Vec<Ends> = USERS.iter().map(|uid| sleeper(&uid.to_string())).collect();
    let roots = Ends(Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap());
    let player =
        |at: usize, member: bool| Player { uid: USERS[at], member, own: sleepers[at].0.id() };
    let players = [player(0, true), player(1, true), player(2, false)];
    for one in players {
        quiet_testing::until("it is his", || {
            let text = fs::read_to_string(format!("/proc/{}/status", one.own)).ok()?;
            let uid = one.uid;
            text.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}")).then_some(())
        });
    }
    let mut who: Vec<u32> = sleepers.iter().map(|one| one.0.id()).collect();
    who.extend([who[0], who[1], roots.0.id(), world.bus.pid(), 0, 1, 2, u32::MAX]);
    // What nobody may ask for, however it is asked.
    let victims = [players[2].own, roots.0.id(), world.bus.pid()];
    let (before, seats) = (settings(), [players[0].own, players[1].own].map(seat));
    let root = ServiceClient::connect(world.address()).unwrap();
    let act = acts_take(&root);
    let (left, broken) = (AtomicU64::new(calls), AtomicBool::new(false));
    let socket = world.bus.socket.clone();
    let looker = Raw::connect(&socket, 0, &[]);
    let (killed, waits) = waited(looker, || {
        thread::scope(|scope| {
            for (at, player) in (0u64..).zip(players.iter().chain(&players)) {
                let (socket, who, left, broken) = (&socket, &who[..], &left, &broken);
                scope.spawn(move || {
                    play(socket, *player, Lot(4711 + at * 7919), (who, left), broken);
                });
            }
            let mut lot = Lot(99);
            let mut killed = 0;
            while left.load(Ordering::Relaxed) > 0 && !broken.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(lot.draw(200) as u64));
                for tid in victims {
                    assert_eq!(policy_of(tid), Some(0), "{tid}");
                }
                // Spread over the whole storm.
                if killed < kills && left.load(Ordering::Relaxed) < calls / kills * (kills - killed)
                {
                    world.kill();
                    world.start();
                    killed += 1;
                }
            }
            killed
        })
    });
    quiet_testing::report(format_args!("{killed} kills; an act alone takes {act:?}"));
    // One act at a time: a question waits for one that is at work.
    nobody_hangs(&Waited { hundred: waits.hundred + act * 4, ..waits });
    // The next call works, whatever was left.
    let root = ServiceClient::connect(world.address()).unwrap();
    root.take_back().unwrap();
    root.revert().unwrap();
    assert_eq!(root.status().unwrap().state, ShieldStanding::None);
    quiet_testing::until("nobody of its stands any more", || {
        started(&world.state()).is_empty().then_some(())
    });
    assert_eq!(settings(), before);
    assert_eq!([players[0].own, players[1].own].map(seat), seats);
    leaves_nothing(&world, players, &who);
}

/// The slowest of some acts that nobody disturbs.
fn acts_take(root: &ServiceClient) -> Duration {
    let acts = (0..3).flat_map(|_| {
        let since = Instant::now();
        root.apply("room", None).unwrap();
        let up = since.elapsed();
        assert!(root.revert().unwrap().unwrap().is_complete());
        [up, since.elapsed() - up]
    });
    acts.max().unwrap()
}

/// The same calls again, with nobody killed: the service holds what it held before.
fn leaves_nothing(world: &World, players: [Player; 3], who: &[u32]) {
    let socket = world.bus.socket.clone();
    let broken = AtomicBool::new(false);
    let storm = |calls: u64, seed: u64| {
        let left = AtomicU64::new(calls);
        thread::scope(|scope| {
            for (at, player) in (0u64..).zip(players) {
                let (socket, left, broken) = (&socket, &left, &broken);
                scope.spawn(move || play(socket, player, Lot(seed + at), (who, left), broken));
            }
        });
        let root = ServiceClient::connect(world.address()).unwrap();
        root.take_back().unwrap();
        root.revert().unwrap();
    };
    storm(300, 11);
    let before = settled(world, usize::MAX);
    storm(600, 12);
    let after = settled(world, before.1 + 4);
    quiet_testing::report(format_args!("files, threads, kB: {before:?} before, {after:?} after"));
    assert!(after.0 <= before.0 + 2 && after.1 <= before.1 + 4, "{before:?} {after:?}");
    assert!(after.2 < before.2 + 16 * 1024, "{before:?} {after:?}");
}

/// What it holds once watches have ended, and threads that waited for work.
fn settled(world: &World, most: usize) -> (usize, usize, u64) {
    quiet_testing::until("nobody of its stands any more", || {
        started(&world.state()).is_empty().then_some(())
    });
    let since = Instant::now();
    let patience = if most == usize::MAX { 12 } else { 60 };
    let mut now = held(world.service());
    while (most == usize::MAX || now.1 > most) && since.elapsed() < Duration::from_secs(patience) {
        thread::sleep(Duration::from_millis(200));
        now = held(world.service());
    }
    now
}
