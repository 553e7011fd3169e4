//! Waiting for what another thread or process does.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Waits until `ask` answers.
///
/// # Panics
/// When it has not for a minute: a machine may be busy.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
