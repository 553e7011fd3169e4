//! A test's knife: ends the program by SIGKILL at its nth act, in debug builds only.

/// Counts one act; `QUIETCORES_FAULT=kill:N` in the environment ends the program at the Nth.
/// Compiled to nothing in release builds.
#[cfg(not(debug_assertions))]
pub fn point() {}

/// Counts one act; `QUIETCORES_FAULT=kill:N` in the environment ends the program at the Nth.
#[cfg(debug_assertions)]
pub fn point() {
    use std::sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    };
    static LAST: OnceLock<Option<u64>> = OnceLock::new();
    static DONE: AtomicU64 = AtomicU64::new(0);
    let last = LAST.get_or_init(|| {
        std::env::var("QUIETCORES_FAULT").ok()?.strip_prefix("kill:")?.parse().ok()
    });
    if let Some(last) = last
        && DONE.fetch_add(1, Ordering::Relaxed) + 1 == *last
    {
        let us = rustix::process::getpid();
        let _ = rustix::process::kill_process(us, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
