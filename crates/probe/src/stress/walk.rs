//! `proc-walk`: reads the status of every process a hundred times a second, as `top` did at 0.01 s
//! in latencytest (1999). A thread of the program: it ends with it, however that ends.

use quiet_linux::sys::sched;
use quiet_types::{CpuSet, run::Throughput};
use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Its name among the stressors.
pub(crate) const NAME: &str = "proc-walk";
/// Time from one walk to the next.
const EVERY: Duration = Duration::from_millis(10);

/// Walks until it is dropped.
#[derive(Debug)]
pub(crate) struct Walk {
    stop: Arc<AtomicBool>,
    walks: Arc<AtomicU64>,
    began: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Walk {
    /// Starts to walk on `cpus`.
    ///
    /// # Errors
    /// When no thread can be started, or it may not run there.
    pub(crate) fn start(cpus: &CpuSet) -> io::Result<Walk> {
        let (stop, walks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(NAME.to_owned()).spawn({
            let (stop, walks, cpus) = (stop.clone(), walks.clone(), cpus.clone());
            move || {
                let placed = sched::set_affinity(0, &cpus);
                let fine = placed.is_ok();
                let _ = tell.send(placed);
                while fine && !stop.load(Relaxed) {
                    let next = Instant::now() + EVERY;
                    walk();
                    walks.fetch_add(1, Relaxed);
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            }
        })?;
        let walk = Walk { stop, walks, began: Instant::now(), thread: Some(thread) };
        told.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended at once")))?;
        Ok(walk)
    }

    /// What it did so far.
    pub(crate) fn throughput(&self) -> Throughput {
        super::since(self.began, NAME, self.walks.load(Relaxed) as f64)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Once through /proc: `stat` and `statm` of every process, which take the locks that top takes.
fn walk() {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes()[0].is_ascii_digit() {
            for file in ["stat", "statm"] {
                let _ = fs::read(entry.path().join(file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_walks_where_it_may_and_says_how_often() {
        let here = sched::affinity(0).unwrap();
        let walk = Walk::start(&here).unwrap();
        while walk.throughput().operations < 3.0 {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(walk.throughput().stressor, "proc-walk");
        let nowhere: CpuSet = "8000".parse().unwrap();
        assert!(Walk::start(&nowhere).is_err());
    }
}
