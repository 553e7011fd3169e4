//! Probes and planted faults: what disturbs a shielded CPU stands in the stream and on the screen.
#![allow(clippy::unwrap_used)] // a test may

mod machine;

use machine::{
    Machine, PROGRAM,
    planted::{BURST, Disk, NAME, Planted},
    text,
};
use quiet_testing::{Why, faces::Tmux, skip, skip_part};
use quiet_types::live::Moment;
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// A probe that another command runs is in the stream, with its histogram, and gone from it with its end.
#[test]
fn a_probe_that_measures_elsewhere_is_in_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = |command: &mut Command| {
        // As root this counts for nothing: its own directory is /run/quietcores.
        command.env("XDG_RUNTIME_DIR", dir.path());
    };
    let mut measure = Command::new(PROGRAM);
    let cpu = quiet_testing::own_cpus().first().unwrap().to_string();
    measure.args(["measure", "wakeup", "--cpus", &cpu, "--policy", "other", "--priority", "0"]);
    measure.args(["--interval", "1ms", "--for", "10min", "--label", "sto\u{1b}ry", "--store"]);
    measure.arg(dir.path().join("store")).stdout(Stdio::null()).stderr(Stdio::null());
    runtime(&mut measure);
    let mut measure = measure.spawn().unwrap();
    let name = format!("probe-{}.sock", measure.id());
    let mut top = Command::new(PROGRAM);
    top.args(["top", "--json", "--state"]).arg(dir.path()).stdout(Stdio::piped());
    runtime(&mut top);
    let mut top = top.spawn().unwrap();
    let mut told = BufReader::new(top.stdout.take().unwrap()).lines().map_while(Result::ok);
    let began = std::time::Instant::now();
    let mut next = || -> Moment {
        assert!(began.elapsed() < 3 * machine::PATIENCE, "not in time");
        serde_json::from_str(&told.next().unwrap()).unwrap()
    };
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let moment = next();
        let Some(probe) = moment.probes.into_iter().find(|probe| probe.name == name) else {
            continue;
        };
        if seen
            .last()
            .is_none_or(|last: &quiet_types::live::LiveProbe| last.elapsed < probe.elapsed)
        {
            seen.push(probe);
        }
    }
    for probe in &seen {
        assert_eq!((probe.probe.as_str(), probe.cpus.to_string()), ("wakeup", cpu.clone()));
        assert!(!probe.label.contains('\u{1b}') && probe.told.contains("readings"), "{probe:?}");
        // Every reading and every missed period stands in a column.
        assert_eq!(probe.bars.iter().sum::<u64>(), probe.obtained + probe.missed, "{probe:?}");
    }
    assert!(seen[0].obtained < seen[2].obtained);
    // Killed, it is gone from the stream, and the next one takes its socket away.
    measure.kill().unwrap();
    measure.wait().unwrap();
    while next().probes.iter().any(|probe| probe.name == name) {}
    top.kill().unwrap();
    top.wait().unwrap();
}

/// What is planted on the shield stands in the stream and on the screen, with name and length.
#[test]
fn a_burst_and_a_disks_interrupt_on_the_shield_are_told_of_by_name_and_length() {
    for (program, package) in [("tmux", "tmux"), ("perl", "perl"), ("chrt", "util-linux")] {
        if quiet_testing::program(program).is_none() {
            return skip(Why::Program(program, package));
        }
    }
    let Some(machine) = Machine::take() else { return };
    let applied = machine.apply().output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let mut lines = Command::new(PROGRAM)
        .args(["top", "--json", "--state"])
        .arg(machine.state())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(lines.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut next = || -> Moment { serde_json::from_str(&told.next().unwrap()).unwrap() };
    let top = format!("LC_ALL=C NO_COLOR=1 {PROGRAM} top --state {}", machine.state().display());
    let tmux = Tmux::start((110, 40), &top);
    tmux.shows("[");
    while next().shield.is_none_or(|shield| shield.cpus.is_empty()) {}
    let mut met = |what: &str, test: &dyn Fn(&quiet_types::live::Occupant) -> bool| {
        let began = std::time::Instant::now();
        loop {
            let moment = next();
            let there = moment.cpus.iter().filter(|cpu| cpu.id.0 == machine.cpu);
            let mut foreign = there.flat_map(|cpu| &cpu.occupants).filter(|one| one.foreign);
            if let Some(one) = foreign.find(|one| test(one)) {
                // How soon depends on this machine's load: it is told, and not judged.
                eprintln!("{what} after {:?}: {one:?}", began.elapsed());
                return one.clone();
            }
            assert!(began.elapsed() < machine::PATIENCE, "{what} is not told of: {moment:?}");
        }
    };
    let mut planted = Planted::place(&machine).unwrap();
    planted.go();
    // A look may come in the midst of it: of a whole one all is told. Between two looks it ran once, more often where looks are rare.
    let least = BURST.as_nanos() as u64;
    let whole = |ran: Option<quiet_types::Nanos>| ran.is_some_and(|ran| ran.0 >= least);
    let burst = met("the burst", &|one| one.name == NAME && whole(one.ran));
    assert!(burst.ran.unwrap().0 < least * 100, "{burst:?}");
    tmux.shows("planted-burst ran");
    drop(planted);
    match Disk::towards(&machine) {
        None => skip_part(Why::Machine("no disk can interrupt this CPU".to_owned())),
        Some(disk) => {
            let number = met("the disk", &|one| {
                disk.write();
                one.name.contains(&disk.name) && one.times > 0
            });
            tmux.shows(&format!("IRQ {}", number.number.unwrap()));
        }
    }
    lines.kill().unwrap();
    lines.wait().unwrap();
    drop(tmux);
    let reverted = machine.run("revert");
    assert!(reverted.status.success(), "{}", text(&reverted));
}
