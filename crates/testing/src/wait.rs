//! Waiting for what another thread or process does.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often a thread fell asleep of its own accord; `task` is its folder below `/proc/PID/task`. 0 where it has ended.
///
/// # Source
/// `voluntary_ctxt_switches`, proc_pid_status(5).
pub fn sleeps(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// A process's file below `/proc/PID/task`, of each of its threads that are there still.
fn of_threads(pid: u32, file: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join(file)).ok()).collect()
}

/// The fields of a thread's `stat` after its name: its state is the first.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_ascii_whitespace().collect())
}

/// Waits until each thread of a process stands still that was sent SIGSTOP: on a busy machine the one that takes the signal comes late, and
/// the others run on until then. False where it has ended meanwhile.
///
/// # Panics
/// As [`until`].
#[must_use]
#[track_caller]
pub fn until_halted(pid: u32) -> bool {
    until("a stopped process", || {
        let stats = of_threads(pid, "stat");
        let all = |state: &str| stats.iter().all(|stat| fields(stat).first() == Some(&state));
        if all("Z") { Some(false) } else { all("T").then_some(true) }
    })
}

/// Waits until the measuring process of the program `pid` measures, and gives its number: a thread of it beside the first one fell
/// asleep 50 times, or ran for a fifth of a second without.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_measured(pid: u32) -> u32 {
    until("a process that measures", || {
        let numbers = fs::read_dir("/proc").ok()?.flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let worker = numbers.into_iter().find(|number: &u32| {
            let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            fields(&stat).get(1) == Some(&&*pid.to_string())
                && words.split(|byte| *byte == 0).nth(1) == Some(b"worker")
        })?;
        let tasks = fs::read_dir(format!("/proc/{worker}/task")).ok()?.flatten();
        let others = tasks.filter(|task| task.file_name().to_str() != Some(&worker.to_string()));
        let measures = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let ticks = fields(&stat).into_iter().skip(11).take(2);
            // A hundred a second, whatever the kernel's own are.
            let ran: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
            ran >= 20 || sleeps(&task.path()) >= 50
        };
        others.into_iter().any(measures).then_some(worker)
    })
}

/// Waits until `ask` answers.
///
/// # Panics
/// When it has not for a minute: a machine may be busy.
#[track_caller]
pub fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, ask)
}

/// As [`until`], for what has timers of its own that are longer.
///
/// # Panics
/// When it has not answered within `patience`.
#[track_caller]
pub fn until_within<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < patience, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
