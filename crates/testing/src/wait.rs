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
