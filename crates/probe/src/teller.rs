//! Tells whoever asks what a probe has counted so far: a socket that is looked at between two looks at the measuring process.
//!
//! Where nobody asks, the shared words are not read. Who asks sends nothing, gets one object and is let go; what does not fit into the
//! socket's room is lost, so nobody holds the measurement up.

use crate::{RunRequest, so_far};
use quiet_linux::sys::clock;
use quiet_types::{
    Histogram, Nanos,
    live::{LiveProbe, PROBE_BARS},
    run::Probe,
};
use std::{
    fs,
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Most askers at one look.
const MOST: usize = 4;
/// Most files that are looked at for what killed probes left.
const MOST_LEFT: usize = 1000;

static WHERE: OnceLock<fn() -> Option<PathBuf>> = OnceLock::new();

/// Has every probe of this program told to who asks at a socket `probe-PID.sock` in a private directory, which is asked for when
/// one begins to measure. Without it no probe is told. The first call counts.
pub fn tell_in(dir: fn() -> Option<PathBuf>) {
    let _ = WHERE.set(dir);
}

/// A socket, as long as a probe measures.
pub(crate) struct Teller {
    listener: UnixListener,
    path: PathBuf,
}

impl Teller {
    /// `None` where nobody said where, or none can be made: the measurement does without.
    pub(crate) fn open() -> Option<Teller> {
        Teller::within(&WHERE.get()?()?)
    }

    fn within(dir: &Path) -> Option<Teller> {
        sweep(dir);
        let path = dir.join(format!("probe-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&path).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some(Teller { listener, path })
    }

    /// Answers whoever has asked since.
    pub(crate) fn answer(&self, words: &[AtomicU64], request: &RunRequest) {
        for _ in 0..MOST {
            let Ok((mut asker, _)) = self.listener.accept() else { return };
            let Some(now) = now(words, request) else { continue };
            let Ok(text) = serde_json::to_vec(&now) else { continue };
            let _ = asker.set_nonblocking(true).and_then(|()| asker.write_all(&text));
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes away the sockets of probes that were killed: nobody listens there.
fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let names = entries.flatten().take(MOST_LEFT).map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("probe-") && name.ends_with(".sock")
    };
    for path in names.filter(is_ours) {
        let gone = UnixStream::connect(&path)
            .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
        if gone {
            let _ = fs::remove_file(path);
        }
    }
}

/// What is counted; `None` before the loops began.
fn now(words: &[AtomicU64], request: &RunRequest) -> Option<LiveProbe> {
    let threads = so_far::glance(words, &request.spec)?;
    let mut all = Histogram::default();
    let (mut obtained, mut missed, mut beyond) = (0, 0, 0);
    for thread in &threads {
        all.merge(thread.corrected.as_ref().unwrap_or(&thread.readings));
        obtained += thread.obtained;
        missed += thread.missed.unwrap_or_default();
        beyond += thread.beyond.unwrap_or_default();
    }
    let start = so_far::start(words).load(Relaxed);
    Some(LiveProbe {
        probe: match request.spec.probe {
            Probe::Gap => "gap".into(),
            Probe::Wakeup { .. } => "wakeup".into(),
        },
        label: quiet_types::printable(&request.label, 64),
        cpus: request.spec.cpus.clone(),
        elapsed: Nanos(clock::monotonic().saturating_sub(start)),
        length: request.spec.length,
        obtained,
        missed,
        beyond,
        threshold: request.spec.threshold,
        p50: all.percentile(0.5),
        p99: all.percentile(0.99),
        max: all.max,
        bars: bars(&all),
        ..LiveProbe::default()
    })
}

/// Ten columns a decade from 10 ns on.
fn bars(all: &Histogram) -> Vec<u64> {
    let mut bars = vec![0u64; PROBE_BARS];
    for (lower, count) in &all.buckets {
        let at = ((*lower as f64).max(10.0).log10() - 1.0) * 10.0;
        let at = (at.floor() as usize).min(PROBE_BARS - 1);
        bars[at] = bars[at].saturating_add(*count);
    }
    bars[PROBE_BARS - 1] = bars[PROBE_BARS - 1].saturating_add(all.over);
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn every_reading_stands_in_a_column() {
        let all = Histogram::of([1, 9, 10, 100, 1_000, 5_000_000, u64::MAX / 2].map(Nanos));
        let bars = bars(&all);
        assert_eq!(bars.iter().sum::<u64>(), 7);
        assert_eq!((bars[0], bars[PROBE_BARS - 1]), (3, 1), "{bars:?}");
    }

    #[test]
    fn a_socket_ends_with_its_probe_and_one_that_a_killed_probe_left_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join("probe-1.sock");
        drop(UnixListener::bind(&left).unwrap());
        let other = dir.path().join("play-1.sock");
        drop(UnixListener::bind(&other).unwrap());
        let teller = Teller::within(dir.path()).unwrap();
        assert!(!left.exists() && other.exists());
        // A second one of the same program does without.
        assert!(Teller::within(dir.path()).is_none());
        let path = teller.path.clone();
        let mut asker = UnixStream::connect(&path).unwrap();
        let spec = quiet_types::run::Spec {
            probe: Probe::Gap,
            cpus: quiet_types::CpuSet::from_iter([quiet_types::CpuId(0)]),
            policy: quiet_types::machine::Policy::Other,
            priority: 0,
            length: Nanos::from_secs(1),
            threshold: Nanos::from_micros(100),
            bucket: Nanos::from_micros(1),
            buckets: 10,
            idle: quiet_types::run::Idle::AsIs,
            core: Default::default(),
        };
        let words: Vec<AtomicU64> = (0..so_far::words(&spec)).map(|_| AtomicU64::new(0)).collect();
        // The loops have not begun: it is let go without an answer.
        teller.answer(&words, &RunRequest::new(spec));
        let mut said = String::new();
        asker.read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
        drop(teller);
        assert!(!path.exists());
    }
}
