//! Waiting for what another thread or process does.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
