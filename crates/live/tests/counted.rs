//! What is made of counters that were made for it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quiet_linux::{Root, parse::CpuTimes};
use quiet_live::{Counted, CpuReading, Gatherer, ThreadReading, ThreadSeen, count};
use quiet_types::{
    Counters, CpuId, CpuSet, Nanos,
    live::{LiveCpu, MOST_OCCUPANTS, OccupantKind},
    machine::KernelThread,
    plan::{STATUS_SCHEMA, Status},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

fn reading(at: u64, online: &str, counters: &str, times: &[(u32, u64, u64)]) -> CpuReading {
    CpuReading {
        at: Nanos(at),
        present: "0-3".parse().unwrap(),
        online: online.parse().unwrap(),
        counters: serde_json::from_str::<Counters>(counters).unwrap(),
        times: times
            .iter()
            .map(|(cpu, busy, idle)| {
                (CpuId(*cpu), CpuTimes { busy: *busy, idle: *idle, stolen: 0 })
            })
            .collect(),
        names: BTreeMap::from([(24, "ahci".to_owned())]),
        unread: Vec::new(),
    }
}

fn status(cpus: &str, residents: &str) -> Status {
    let json = format!(
        r#"{{"schema":"{STATUS_SCHEMA}","state":"up","since":"2026-11-24T12:00:00Z","drift":[],"residents":{residents},
        "holder":null,"refused":[],"shield":{{"cpus":"{cpus}","housekeeping":"0","mechanism":"partition_v2",
        "entry":{{"file":"/sys/fs/cgroup/quietcores/cgroup.procs","whole_process":true}}}}}}"#
    );
    serde_json::from_str(&json).unwrap()
}

fn counted(
    before: Option<&CpuReading>,
    now: &CpuReading,
    threads: &ThreadReading,
    status: Option<&Status>,
) -> Vec<LiveCpu> {
    count(&Counted {
        before,
        now,
        threads,
        status,
        engines: &BTreeSet::from([77]),
        clocks: &BTreeMap::new(),
        places: &BTreeMap::new(),
    })
}

fn seen(tid: u32, name: &str, cpu: u32, ran: u64) -> ThreadSeen {
    ThreadSeen {
        tid,
        pid: tid,
        name: name.into(),
        kernel: None,
        cpu: CpuId(cpu),
        ran: Nanos(ran),
        turns: 1,
        group: None,
    }
}

#[test]
fn shares_and_interrupts_are_what_was_counted_between() {
    let before = reading(
        1_000,
        "0-1",
        r#"{"proc/interrupts/24/cpu1":5,"proc/interrupts/LOC/cpu1":100,"proc/interrupts/TLB/cpu1":1,"proc/softirqs/TIMER/cpu1":2}"#,
        &[(0, 100, 100), (1, 10, 990)],
    );
    let now = reading(
        2_000,
        "0-1",
        r#"{"proc/interrupts/24/cpu1":8,"proc/interrupts/LOC/cpu1":350,"proc/interrupts/TLB/cpu1":2,"proc/interrupts/CAL/cpu1":4,"proc/softirqs/TIMER/cpu1":2}"#,
        &[(0, 125, 175), (1, 10, 1090)],
    );
    let cpus = counted(Some(&before), &now, &ThreadReading::default(), None);
    assert_eq!(cpus.len(), 4);
    assert_eq!((cpus[0].busy, cpus[1].busy), (Some(0.25), Some(0.0)));
    assert_eq!((cpus[1].device_interrupts, cpus[1].ticks, cpus[1].from_others), (3, 250, 5));
    let irq = cpus[1].occupants.iter().find(|one| one.kind == OccupantKind::Irq).unwrap();
    assert_eq!((irq.name.as_str(), irq.number, irq.times), ("ahci", Some(24), 3));
    // Without a shield nobody is foreign, and what did not count is not named.
    assert!(cpus[1].occupants.iter().all(|one| !one.foreign && one.name != "TIMER"));
    assert_eq!((cpus[2].online, cpus[2].busy), (false, None));
}

#[test]
fn the_first_moment_and_a_cpu_that_came_count_nothing() {
    let now = reading(9, "0-2", r#"{"proc/interrupts/LOC/cpu2":350}"#, &[(0, 1, 1), (2, 5, 5)]);
    let cpus = counted(None, &now, &ThreadReading::default(), None);
    assert!(cpus.iter().all(|cpu| cpu.busy.is_none() && cpu.ticks == 0));
    let before = reading(1, "0-1", r#"{"proc/interrupts/LOC/cpu2":300}"#, &[(0, 1, 1)]);
    let cpus = counted(Some(&before), &now, &ThreadReading::default(), None);
    assert_eq!((cpus[2].online, cpus[2].busy, cpus[2].ticks), (true, None, 0));
    assert_eq!((cpus[3].online, cpus[3].busy), (false, None));
}

#[test]
fn counters_that_run_backwards_or_wrap_count_nothing() {
    let before =
        reading(1, "0", &format!(r#"{{"proc/interrupts/24/cpu0":{}}}"#, u32::MAX), &[(0, 50, 50)]);
    let now = reading(2, "0", r#"{"proc/interrupts/24/cpu0":3}"#, &[(0, 60, 40)]);
    let cpus = counted(Some(&before), &now, &ThreadReading::default(), None);
    assert_eq!((cpus[0].device_interrupts, cpus[0].busy), (0, Some(1.0)));
}

#[test]
fn on_a_shield_is_foreign_who_is_not_the_chains_the_engines_or_bound_there() {
    let bound = ThreadSeen {
        kernel: Some(KernelThread { movable: false }),
        ..seen(1, "ksoftirqd/1", 1, 1)
    };
    let movable = ThreadSeen {
        kernel: Some(KernelThread { movable: true }),
        ..seen(2, "kworker/u8:1", 1, 1)
    };
    let engine = ThreadSeen { pid: 77, ..seen(3, "play", 1, 9) };
    let within =
        ThreadSeen { group: Some("/quietcores".parse().unwrap()), ..seen(4, "inside", 1, 1) };
    let outside =
        ThreadSeen { group: Some("/".parse().unwrap()), ..seen(5, "burst", 1, 2_000_000) };
    let elsewhere = seen(6, "burst", 0, 5);
    let chain = seen(7, "mpd", 1, 3);
    let threads = ThreadReading {
        ran: vec![bound, movable, engine, within, outside, elsewhere, chain],
        ..ThreadReading::default()
    };
    let residents = r#"[{"cpus":"1","kind":"chain","name":"mpd","number":7,"why":"placed","since":null},
        {"cpus":"1","kind":"chain","name":"snd","number":25,"why":"the chain's","since":3}]"#;
    let status = status("1", residents);
    let before = reading(1, "0-1", "{}", &[]);
    let now = reading(
        2,
        "0-1",
        r#"{"proc/interrupts/24/cpu1":2,"proc/interrupts/25/cpu1":2,"proc/interrupts/24/cpu0":2}"#,
        &[],
    );
    let cpus = counted(Some(&before), &now, &threads, Some(&status));
    let foreign = |cpu: usize| -> Vec<&str> {
        let of = cpus[cpu].occupants.iter().filter(|one| one.foreign);
        of.map(|one| one.name.as_str()).collect()
    };
    assert_eq!(foreign(1), ["burst", "kworker/u8:1", "ahci"]);
    assert_eq!(foreign(0), [""; 0]);
    assert!(cpus[1].shielded && !cpus[0].shielded);
    let said = quiet_live::verdict(None, &cpus, &[]);
    assert!(said.wrong.is_empty());
}

#[test]
fn a_moment_stays_small_whoever_runs() {
    let ran = (0..10_000).map(|n| seen(n, "many", 0, u64::from(n))).collect();
    let threads = ThreadReading { ran, ..ThreadReading::default() };
    let now = reading(2, "0-3", "{}", &[]);
    let cpus = counted(Some(&now), &now, &threads, None);
    assert_eq!(cpus[0].occupants.len(), MOST_OCCUPANTS);
    assert_eq!(cpus[0].more, 10_000 - MOST_OCCUPANTS as u32);
    // The longest are named.
    assert_eq!(cpus[0].occupants[0].number, Some(9_999));
}

/// A thread in a tree.
fn thread(root: &Path, pid: u32, tid: u32, comm: &str, (start, cpu): (u64, u32), schedstat: &str) {
    let dir = root.join(format!("proc/{pid}/task/{tid}"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("schedstat"), schedstat).unwrap();
    let stat = format!(
        "{tid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0 0 0 0\n"
    );
    fs::write(dir.join("stat"), stat).unwrap();
}

#[test]
fn threads_that_come_go_and_follow_one_another_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    thread(at, 10, 10, "old", (5, 0), "1000 0 3\n");
    thread(at, 11, 11, "goes", (5, 0), "1000 0 3\n");
    let mut gatherer = Gatherer::new(Root::at(at).unwrap());
    let first = gatherer.threads(&CpuSet::new());
    assert_eq!((first.threads, first.ran.len(), first.since), (2, 0, Nanos(0)));
    // One ran on; one went, and its number is another's; one is new, with a name that would move the cursor.
    thread(at, 10, 10, "old", (5, 1), "1500 0 5\n");
    thread(at, 11, 11, "heir", (9, 0), "700 0 1\n");
    thread(at, 12, 12, "\u{1b}[2Jnew", (9, 0), "40 0 2\n");
    let second = gatherer.threads(&"1".parse().unwrap());
    let told: Vec<_> =
        second.ran.iter().map(|t| (t.name.as_str(), t.cpu.0, t.ran.0, t.turns)).collect();
    assert_eq!(told, [("old", 1, 500, 2), ("heir", 0, 700, 1), ("\u{fffd}[2Jnew", 0, 40, 2)]);
    // Who stands still is not named; a number that comes again with more time is told by its start.
    thread(at, 12, 12, "third", (30, 0), "90 0 9\n");
    let third = gatherer.threads(&CpuSet::new());
    let told: Vec<_> = third.ran.iter().map(|t| (t.name.as_str(), t.ran.0)).collect();
    assert_eq!(told, [("third", 90)]);
    fs::remove_dir_all(at.join("proc/10")).unwrap();
    assert_eq!(gatherer.threads(&CpuSet::new()).threads, 2);
}

#[test]
fn ten_thousand_threads_are_looked_at_and_ten_thousand_more_are_no_trouble() {
    let dir = tempfile::tempdir().unwrap();
    for tid in 1..=10_000 {
        let at = dir.path().join(format!("proc/1/task/{tid}"));
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("schedstat"), "1 1 1\n").unwrap();
    }
    let mut gatherer = Gatherer::new(Root::at(dir.path()).unwrap());
    let look = gatherer.threads(&CpuSet::new());
    assert_eq!((look.threads, look.cut, look.ran.len()), (10_000, false, 0));
}

#[test]
fn files_that_make_no_sense_are_no_end() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("proc/stat", "cpu0 x y\ncpu99999999 1 2 3 4\n"),
        ("proc/interrupts", "nothing"),
        ("proc/softirqs", ""),
        ("sys/devices/system/cpu/online", "0-99999999999"),
        ("proc/7/task/7/schedstat", "x"),
        ("proc/8/task/8/schedstat", "1 2 3"),
        ("proc/8/task/8/stat", "8 (x"),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut gatherer = Gatherer::new(Root::at(dir.path()).unwrap());
    let reading = gatherer.cpus();
    assert!(reading.online.is_empty() && !reading.unread.is_empty());
    gatherer.threads(&CpuSet::new());
    assert_eq!(gatherer.threads(&CpuSet::new()).ran, []);
    assert_eq!(gatherer.temperature(true), None);
}

#[test]
fn a_sensor_that_asks_a_cpu_and_the_clock_of_a_shielded_one_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
    put("sys/class/thermal/thermal_zone0/temp", "71000\n");
    put("sys/class/thermal/thermal_zone1/type", "cpu-thermal\n");
    put("sys/class/thermal/thermal_zone1/temp", "48500\n");
    for (cpu, related) in [(0, "0 1"), (1, "0 1"), (2, "2"), (3, "3")] {
        put(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/related_cpus"), related);
        put(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"), "2400000\n");
    }
    let mut gatherer = Gatherer::new(Root::at(dir.path()).unwrap());
    assert_eq!(gatherer.temperature(false), Some(71_000));
    assert_eq!(gatherer.temperature(true), Some(48_500));
    let online: CpuSet = "0-3".parse().unwrap();
    let asked = |gatherer: &mut Gatherer, shielded: &str| -> Vec<u32> {
        gatherer.clocks(&online, &shielded.parse().unwrap()).keys().map(|cpu| cpu.0).collect()
    };
    // CPU 0 shares its clock with the shielded one.
    assert_eq!(asked(&mut gatherer, "1,3"), [2]);
    assert_eq!(gatherer.clocks(&online, &CpuSet::new()).len(), 4);
}
