//! A shield under what services do: threads by the ten thousands that live for a moment, and programs that a link starts, which
//! inherit its priority. On the machine that runs the tests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;

use machine::{Capture, Machine, PROGRAM, read, text, thread};
use quiet_testing::{Why, copy_program, is_long, report, skip, skip_part, until};
use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread::{Builder, park, sleep},
    time::{Duration, Instant},
};

/// Threads that the service starts in all, and how many of them are left when it has done so.
const ALL: usize = 200_000;
const LEFT: usize = 500;
/// What the page of the program promises.
const LARGEST: u64 = 8 << 20;
const PROMISED: Duration = Duration::from_secs(5);

/// Ends with what holds it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A copy of `program` that the kernel calls `name`.
fn copy(program: &Path, machine: &Machine, name: &str) -> std::path::PathBuf {
    let to = machine.dir().join(name);
    copy_program(program, &to);
    to
}

/// Where a thread is and how it is scheduled.
fn place(pid: u32, tid: u32) -> Option<String> {
    thread(&pid.to_string(), &tid.to_string()).map(|found| found.1.1)
}

fn threads_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Is started by the test below, under a name of its own: threads called `worker`, a thousand a second, that live for half a second;
/// then some that stay. Tells by a file that it is done.
#[test]
fn service() {
    let Ok(done) = env::var("QUIETCORES_SERVICE") else { return };
    // It ends with whoever started it.
    Builder::new()
        .spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        })
        .unwrap();
    let start = |life: Option<Duration>| {
        let worker = Builder::new().name("worker".to_owned()).stack_size(64 << 10);
        worker.spawn(move || match life {
            Some(life) => sleep(life),
            None => loop {
                park();
            },
        })
    };
    let began = Instant::now();
    for at in 0..ALL - LEFT {
        while at as f64 / 1000.0 > began.elapsed().as_secs_f64() {
            sleep(Duration::from_millis(20));
        }
        // A moment later there is room again.
        while start(Some(Duration::from_millis(500))).is_err() {
            sleep(Duration::from_millis(20));
        }
    }
    sleep(Duration::from_secs(1));
    for _ in 0..LEFT {
        start(None).unwrap();
    }
    fs::write(done, "").unwrap();
    park();
}

#[test]
fn two_hundred_thousand_threads_of_a_link_leave_a_small_journal_and_a_quick_revert() {
    if !is_long() {
        return skip(Why::Long("minutes"));
    }
    let Some(machine) = Machine::take() else { return };
    let (done, chain) = (machine.dir().join("done"), machine.dir().join("chain.toml"));
    let program = copy(&env::current_exe().unwrap(), &machine, "qcservice");
    // The first thread is nobody's, so that none of those that it starts inherits anything: a watch places each.
    let link =
        "[[link]]\nname = \"s\"\nprocess = \"qcservice\"\nthreads = [\"worker\"]\npriority = 70\n";
    fs::write(&chain, link).unwrap();
    let service = Command::new(program)
        .args(["--exact", "service", "--nocapture", "--test-threads", "1"])
        .env("QUIETCORES_SERVICE", &done)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut service = Running(service.unwrap());
    let pid = service.0.id();
    until("the service", || threads_of(pid).get(2).copied());
    let (before, usual) = (Capture::take(), place(pid, pid).unwrap());
    let applied = machine.apply().arg(&chain).output().unwrap();
    assert!(matches!(applied.status.code(), Some(0 | 1)), "{}", text(&applied));
    let events = machine.dir().join("events.jsonl");
    let watch = Command::new(PROGRAM)
        .args(["watch", "--json", "--every", "1s", "--state"])
        .arg(machine.state())
        .arg(&chain)
        .stdout(File::create(&events).unwrap())
        .spawn();
    let mut watch = Running(watch.unwrap());
    let journal = machine.state().join("journal.jsonl");
    let (mut largest, mut written, mut last, mut compacted) = (0, 0, 0, 0);
    while !done.exists() {
        assert!(service.0.try_wait().unwrap().is_none(), "the service ended");
        assert!(watch.0.try_wait().unwrap().is_none(), "the watch ended: {}", tail(&events));
        let size = fs::metadata(&journal).unwrap().len();
        written += size.saturating_sub(last);
        compacted += u32::from(size < last);
        (last, largest) = (size, largest.max(size));
        sleep(Duration::from_millis(20));
    }
    // The last ones are placed as all before them.
    let placed = |one: &String| one.contains(&format!("list:\t{}", machine.cpu));
    let count = || {
        let all = threads_of(pid);
        all.into_iter().filter_map(|tid| place(pid, tid)).filter(placed).count()
    };
    until("the last ones in their place", || (count() >= LEFT).then_some(()));
    largest = largest.max(fs::metadata(&journal).unwrap().len());
    let began = Instant::now();
    let reverted = machine.run("revert");
    let took = began.elapsed();
    report(format_args!(
        "{ALL} threads: the journal had {largest} bytes at most, of {written} written, and was compacted {compacted} times; \
         revert took {took:?}"
    ));
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert_eq!(before.differences(&Capture::take()), Vec::<String>::new(), "{}", text(&reverted));
    let (all, others): (Vec<u32>, Vec<(u32, String)>) = (
        threads_of(pid),
        threads_of(pid)
            .into_iter()
            .filter_map(|tid| Some((tid, place(pid, tid)?)))
            .filter(|(_, now)| *now != usual)
            .collect(),
    );
    assert!(all.len() > LEFT && others.is_empty(), "{} threads; {others:?}", all.len());
    // It placed some hundreds at least; how many, decides the disk, to which each note goes before its act.
    assert!(written > 100 << 10, "only {written} bytes were noted");
    assert!(largest < LARGEST, "{largest} bytes");
    assert!(took < PROMISED, "{took:?}");
    service.0.stdin.take();
    assert!(watch.0.wait().unwrap().success(), "{}", tail(&events));
}

/// The last lines of a file.
fn tail(path: &Path) -> String {
    let text = read(path.to_str().unwrap());
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.join("\n")
}

/// Programs that sleep for so many seconds, as their words tell.
fn sleepers(words: &[String]) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if let (Some(pid), Some(word)) = (pid, words.iter().find(|w| line == format!("sleep {w} ")))
        {
            found.insert(word.clone(), pid);
        }
    }
    found
}

/// What a link starts before it got its priority, and after: children, a child's child, one whose parent has ended. By the seconds that they
/// sleep, which are nobody else's: those of the turn before may not have ended yet, and another test may run beside this one.
fn words(turn: u64) -> (String, [String; 3]) {
    let word =
        |at: u64| (100_000_000 + 10 * u64::from(std::process::id()) + 4 * turn + at).to_string();
    (word(1), [word(2), word(3), word(4)])
}

#[test]
fn what_a_link_started_meanwhile_does_not_keep_its_priority() {
    let Some(machine) = Machine::take() else { return };
    let program = copy(Path::new("/bin/sh"), &machine, "qcforks");
    let chain = machine.dir().join("chain.toml");
    fs::write(&chain, "[[link]]\nname = \"f\"\nprocess = \"qcforks\"\npriority = 70\n").unwrap();
    for ends in [false, true] {
        let when = format!("the link has ended: {ends}");
        let (early, late) = words(u64::from(ends));
        let [child, grandchild, orphan] = &late;
        let script = format!(
            "sleep {early} & read _; sleep {child} & (sleep {grandchild} & wait) & (sleep {orphan} &); read _; wait"
        );
        let child = Command::new(&program).args(["-c", &script]).stdin(Stdio::piped()).spawn();
        let mut link = Running(child.unwrap());
        let pid = link.0.id();
        let first =
            until("a first child", || sleepers(std::slice::from_ref(&early)).get(&early).copied());
        let _ends = [first].map(Ends);
        let (before, usual) = (Capture::take(), place(pid, pid).unwrap());
        let applied = machine.apply().arg(&chain).output().unwrap();
        let said = text(&applied);
        assert!(matches!(applied.status.code(), Some(0 | 1)), "{when}: {said}");
        let theirs = place(pid, pid).unwrap();
        if !theirs.contains("policy 1 priority 70") {
            assert!(said.contains("refused: scheduling"), "{when}: {theirs}: {said}");
            machine.revert_to(&before, &when);
            return skip_part(Why::Machine(format!("the kernel refuses the priority: {said}")));
        }
        link.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let heirs = until("children", || Some(sleepers(&late)).filter(|all| all.len() == 3));
        let _end = heirs.values().copied().map(Ends).collect::<Vec<_>>();
        for (word, heir) in &heirs {
            let has = place(*heir, *heir).unwrap();
            assert_eq!(has, theirs, "{when}: sleep {word} inherits what the link has");
        }
        if ends {
            link.0.kill().unwrap();
            link.0.wait().unwrap();
        }
        machine.revert_to(&before, &when);
        for (word, heir) in heirs.iter().chain([(&early, &first)]) {
            let has = place(*heir, *heir).unwrap_or_default();
            assert_eq!(has, usual, "{when}: sleep {word}, started by the link");
        }
    }
}

/// Ends a program that is nobody's child here.
struct Ends(u32);

impl Drop for Ends {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
