//! Probes that measure, asked at their sockets.

use crate::{clean::clean, sound::numbered_sockets};
use quiet_types::{
    Nanos,
    live::{LiveProbe, PROBE_BARS},
    words,
};
use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// So long a probe has for its answer; it looks for askers twenty times a second.
const PATIENCE: Duration = Duration::from_millis(200);
/// Not asked more often: each look costs the measuring thread some cache misses.
const EVERY: Duration = Duration::from_millis(500);
/// One that did not answer is left alone for so long.
const REST: Duration = Duration::from_secs(3);
/// The longest answer.
const LONGEST: u64 = 16 << 10;
/// Most probes.
const MOST: usize = 4;

/// A probe as it answered last.
struct Heard {
    at: Instant,
    /// Nothing where it did not answer.
    last: Option<LiveProbe>,
    bad: u64,
}

/// The probes of this user.
pub(crate) struct Probes {
    dir: Option<PathBuf>,
    heard: BTreeMap<String, Heard>,
}

impl fmt::Debug for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probes").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Probes {
    /// Those whose sockets lie in `dir`, a private directory of this user's.
    pub(crate) fn at(dir: Option<PathBuf>) -> Probes {
        Probes { dir, heard: BTreeMap::new() }
    }

    /// How they go.
    pub(crate) fn look(&mut self) -> Vec<LiveProbe> {
        let Some(dir) = self.dir.clone() else { return Vec::new() };
        let names = numbered_sockets(&dir, "probe", MOST);
        self.heard.retain(|name, _| names.contains(name));
        names.into_iter().filter_map(|name| self.one(&dir, name)).collect()
    }

    fn one(&mut self, dir: &Path, name: String) -> Option<LiveProbe> {
        if let Some(heard) = self.heard.get(&name) {
            let rest = if heard.last.is_some() { EVERY } else { REST };
            if heard.at.elapsed() < rest {
                return heard.last.clone().map(|last| LiveProbe { late: 0, ..last });
            }
        }
        let before = self.heard.get(&name).filter(|heard| heard.last.is_some());
        let before = before.map(|heard| heard.bad);
        let mut now =
            ask(&dir.join(&name)).ok().map(|probe| LiveProbe { name: name.clone(), ..probe });
        let bad =
            now.as_ref().map_or(0, |now| if now.probe == "gap" { now.beyond } else { now.missed });
        if let Some(now) = &mut now {
            // What was late before one looked is no news.
            now.late = before.map_or(0, |before| bad.saturating_sub(before));
        }
        self.heard.insert(name, Heard { at: Instant::now(), last: now.clone(), bad });
        now
    }
}

/// What it has counted: it is connected to, and says one object.
fn ask(path: &Path) -> io::Result<LiveProbe> {
    let stream = UnixStream::connect(path)?;
    let until = Instant::now() + PATIENCE;
    let mut text = Vec::new();
    let mut bounded = stream.take(LONGEST);
    let mut buffer = [0u8; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        bounded.get_ref().set_read_timeout(Some(left))?;
        match bounded.read(&mut buffer)? {
            0 => break,
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
    let mut probe: LiveProbe = serde_json::from_slice(&text)?;
    probe.probe = clean(&probe.probe, 16);
    probe.label = clean(&probe.label, 64);
    probe.bars.truncate(PROBE_BARS);
    probe.told = told(&probe);
    Ok(probe)
}

/// How it goes, in a line.
pub(crate) fn told(probe: &LiveProbe) -> String {
    let time =
        |value: Option<Nanos>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let bad = match probe.probe.as_str() {
        "gap" => format!("{} beyond {}", words::count(probe.beyond), probe.threshold),
        _ => format!("missed {}", words::count(probe.missed)),
    };
    format!(
        "CPU {}, {} of {}, {} readings, median {}, p99 {}, longest {}, {bad}",
        probe.cpus,
        words::span(probe.elapsed),
        words::span(probe.length),
        words::count(probe.obtained),
        time(probe.p50),
        time(probe.p99),
        time(probe.max)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::net::UnixListener};

    fn answering(dir: &Path, name: &str, answers: Vec<Vec<u8>>) -> std::thread::JoinHandle<()> {
        let listener = UnixListener::bind(dir.join(name)).unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let mut asker = listener.accept().unwrap().0;
                let _ = asker.write_all(&answer);
            }
        })
    }

    #[test]
    fn what_a_probe_missed_since_is_news_and_nonsense_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let says = |missed| {
            let probe = LiveProbe {
                probe: "wakeup".into(),
                label: "a\u{1b}[31mb".into(),
                missed,
                bars: vec![1; 500],
                ..LiveProbe::default()
            };
            serde_json::to_vec(&probe).unwrap()
        };
        let good = answering(dir.path(), "probe-7.sock", vec![says(3), says(5)]);
        let bad = answering(dir.path(), "probe-8.sock", vec![vec![b'x'; 1 << 20]]);
        std::fs::write(dir.path().join("probe-9.sock"), "no socket").unwrap();
        let mut probes = Probes::at(Some(dir.path().into()));
        let first = probes.look();
        assert_eq!(first.len(), 1, "{first:?}");
        assert_eq!((first[0].missed, first[0].late, first[0].bars.len()), (3, 0, PROBE_BARS));
        assert!(!first[0].label.contains('\u{1b}') && first[0].told.contains("missed 3"));
        // Soon after it is shown as it was.
        assert_eq!(probes.look()[0].missed, 3);
        std::thread::sleep(EVERY);
        let then = probes.look();
        assert_eq!((then[0].missed, then[0].late), (5, 2));
        good.join().unwrap();
        bad.join().unwrap();
        std::thread::sleep(EVERY);
        assert!(probes.look().is_empty(), "it has ended");
    }
}
