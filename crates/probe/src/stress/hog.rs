//! `hog`: an ordinary thread that never sleeps, bound to one CPU. A thread of the program: it ends with it, however that ends.

use quiet_linux::sys::sched;
use quiet_types::{CpuId, CpuSet, run::Throughput};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

/// Its name among the stressors.
pub(crate) const NAME: &str = "hog";
/// Turns between two looks whether it is to end.
const TURNS: u64 = 10_000;

/// Spins until it is dropped.
#[derive(Debug)]
pub(crate) struct Hog {
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    began: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    /// Starts to spin on `cpu`.
    ///
    /// # Errors
    /// When no thread can be started, or it may not run there.
    pub(crate) fn start(cpu: CpuId) -> io::Result<Hog> {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(NAME.to_owned()).spawn({
            let (stop, turns) = (stop.clone(), turns.clone());
            move || {
                let placed = sched::set_affinity(0, &CpuSet::from_iter([cpu]));
                let fine = placed.is_ok();
                let _ = tell.send(placed);
                while fine && !stop.load(Relaxed) {
                    for _ in 0..TURNS {
                        std::hint::spin_loop();
                    }
                    turns.fetch_add(TURNS, Relaxed);
                }
            }
        })?;
        let hog = Hog { stop, turns, began: Instant::now(), thread: Some(thread) };
        told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended at once")))?;
        Ok(hog)
    }

    /// What it did so far.
    pub(crate) fn throughput(&self) -> Throughput {
        super::since(self.began, NAME, self.turns.load(Relaxed) as f64)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spins_where_it_may_and_says_how_often() {
        let here = sched::affinity(0).unwrap().first().unwrap();
        let hog = Hog::start(here).unwrap();
        while hog.throughput().operations < 1.0 {
            thread::yield_now();
        }
        assert_eq!(hog.throughput().stressor, "hog");
        assert!(Hog::start(CpuId(8000)).is_err());
    }
}
