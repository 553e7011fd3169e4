//! What is planted: threads that keep a CPU.

use quiet_linux::sys::sched;
use quiet_types::{
    CpuId, CpuSet,
    machine::{Policy, Scheduling},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::sync_channel,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Ordinary threads that never sleep, where nothing more may be planted.
pub(super) const HOGS: usize = 3;
/// For how long the late thread keeps its CPU, of how much time.
pub(super) const LATE: (Duration, Duration) =
    (Duration::from_millis(30), Duration::from_millis(700));

/// They end when this is dropped.
#[derive(Debug)]
pub(super) struct Culprits {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Culprits {
    /// Starts them on `at`, or wherever the kernel puts them. With `real_time` it is one of the highest priority, which sleeps in between.
    ///
    /// # Errors
    /// When there is no thread to be had, or it is not let onto that CPU or to that priority.
    pub(super) fn start(at: Option<CpuId>, real_time: bool) -> io::Result<Culprits> {
        let mut culprits = Culprits { stop: Arc::default(), threads: Vec::new() };
        for _ in 0..if real_time { 1 } else { HOGS } {
            let (tell, told) = sync_channel(1);
            let stop = culprits.stop.clone();
            let thread = thread::Builder::new().name("late".to_owned()).spawn(move || {
                let placed = place(at, real_time);
                let fine = placed.is_ok();
                let _ = tell.send(placed);
                while fine && !stop.load(Relaxed) {
                    keep(if real_time { LATE.0 } else { Duration::from_millis(10) });
                    if real_time {
                        thread::sleep(LATE.1.saturating_sub(LATE.0));
                    }
                }
            })?;
            culprits.threads.push(thread);
            told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended at once")))?;
        }
        Ok(culprits)
    }
}

fn place(at: Option<CpuId>, real_time: bool) -> io::Result<()> {
    if let Some(cpu) = at {
        sched::set_affinity(0, &CpuSet::from_iter([cpu]))?;
    }
    match real_time {
        true => {
            sched::set_scheduling(0, Scheduling { policy: Policy::Fifo, priority: 90, nice: 0 })
        }
        false => Ok(()),
    }
}

/// Computes, and gives the CPU to nobody.
fn keep(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

impl Drop for Culprits {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
