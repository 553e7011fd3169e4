//! The canary: an ordinary thread that has to run now and then. Where it does not for the better part of a second, real-time
//! threads that were let in have left nobody else a CPU, and those that burn it are taken their priority.
//!
//! rtkit has the idea; here not all threads pay for one. Who took less than half of a CPU meanwhile keeps what he has, unless all of them
//! together took that much and no single one did. Who may run on none of the canary's CPUs takes it nothing: the loop that never sleeps on a
//! shielded CPU. Where they took less, somebody else did, or a host that stopped this machine.

use quiet_linux::{
    Kernel, System,
    seat::{Schedule, Seat, SeatNeed},
    sys::sched::Deadline,
};
use quiet_types::{
    Nanos,
    machine::{Policy, Scheduling},
    plan::Thread,
};
use std::{
    collections::HashSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::UnboundedSender;

/// How often the canary sings.
const SONG: Duration = Duration::from_millis(50);
/// How often it is listened for.
const LOOK: Duration = Duration::from_millis(100);
/// Silence that is too long. Real-time throttling and the fair server give ordinary threads 50 ms in each second: silence of a
/// whole second never comes where they are at work.
const SILENCE: Duration = Duration::from_millis(800);
/// More threads are not looked at.
const MOST: usize = 4096;
/// Of the time between two looks no more counts: who listens and comes later himself was stopped with the whole machine, and that silence
/// says nothing.
const COUNTS: Duration = Duration::from_millis(200);

/// The threads to which priorities were given, for who watches them. What it is about never waits for it.
pub(crate) type Watched = Arc<Mutex<Vec<(Thread, Scheduling)>>>;

/// The end of a silence.
#[derive(Debug)]
pub(crate) struct Silence {
    /// From the last song to when all of them were demoted.
    pub lasted: Duration,
    /// Who was demoted, each with what it had.
    pub demoted: Vec<(Thread, Scheduling)>,
}

/// Starts the canary and who listens to it; `told` hears of threads that were demoted.
///
/// Whoever listens runs under `SCHED_DEADLINE`, before every FIFO thread; where the kernel refuses that, under FIFO 99.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn start(watched: Watched, told: UnboundedSender<Silence>) -> std::io::Result<()> {
    let began = Instant::now();
    let sung = Arc::new(AtomicU64::new(0));
    let (song, singer) = (sung.clone(), Arc::new(AtomicU32::new(0)));
    let sings = singer.clone();
    let now = move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    thread::Builder::new().name("canary".into()).spawn(move || {
        sings.store(quiet_linux::seat::tid(), Ordering::Relaxed);
        loop {
            song.store(now(), Ordering::Relaxed);
            thread::sleep(SONG);
        }
    })?;
    thread::Builder::new().name("listens".into()).spawn(move || {
        first_of_all();
        let mut listener = Listener::default();
        loop {
            thread::sleep(LOOK);
            let last = sung.load(Ordering::Relaxed);
            if listener.hears(now(), last) {
                continue;
            }
            let demoted = silence_ends(&watched, singer.load(Ordering::Relaxed));
            let lasted = Duration::from_nanos(now().saturating_sub(last));
            if !demoted.is_empty() && told.send(Silence { lasted, demoted }).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// What was heard when.
#[derive(Debug, Default)]
struct Listener {
    last: u64,
    /// The last song that was heard.
    sung: u64,
    /// For how long there was none, as far as somebody listened.
    silent: Duration,
}

impl Listener {
    /// Whether all is well at `now`, where the last song was at `sung`.
    fn hears(&mut self, now: u64, sung: u64) -> bool {
        let from = if sung > self.sung {
            self.silent = Duration::ZERO;
            self.sung = sung;
            sung
        } else {
            self.last
        };
        self.silent += Duration::from_nanos(now.saturating_sub(from)).min(COUNTS);
        self.last = now;
        if self.silent < SILENCE {
            return true;
        }
        // What is done about it takes time to show.
        self.silent = Duration::ZERO;
        false
    }
}

fn first_of_all() {
    let ms = Nanos::from_millis;
    // Of thousands of threads it is looked who burns a CPU.
    let deadline = Deadline { runtime: ms(20), deadline: ms(100), period: ms(100) };
    let asked = Seat { schedule: Some(Schedule::Deadline(deadline)), ..Seat::default() };
    if asked.take().is_refused(SeatNeed::Schedule) {
        let highest = Scheduling { policy: Policy::Fifo, priority: 99, nice: 0 };
        let _ = Seat { schedule: Some(Schedule::Under(highest)), ..Seat::default() }.take();
    }
}

/// Takes those their priority that leave the canary no CPU.
fn silence_ends(watched: &Watched, canary: u32) -> Vec<(Thread, Scheduling)> {
    // Somebody who holds the lock may be starved himself: the next look comes soon.
    let threads = match watched.try_lock() {
        Ok(threads) => family(&threads),
        Err(_) => return Vec::new(),
    };
    let own = System.affinity(canary).unwrap_or_default();
    let threads: Vec<Thread> = threads
        .into_iter()
        .filter(|one| System.affinity(one.tid).is_ok_and(|cpus| cpus.intersects(&own)))
        .collect();
    let before: Vec<Option<u64>> = threads.iter().map(|one| time_on_cpu(one.tid)).collect();
    let from = Instant::now();
    thread::sleep(LOOK);
    let over = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let took = threads.iter().zip(&before).map(|(one, before)| {
        let now = time_on_cpu(one.tid)?;
        Some(now.saturating_sub((*before)?))
    });
    let took: Vec<u64> = took.map(Option::unwrap_or_default).collect();
    let guilty = threads.iter().zip(guilty(&took, over)).filter(|(_, guilty)| *guilty);
    let demoted = guilty.filter_map(|(thread, _)| {
        let had = quiet_shield::demote(&System, thread).ok()??;
        Some((thread.clone(), had))
    });
    demoted.collect()
}

/// Who of threads that ran for `took` each left nobody a CPU for `over`, all in nanoseconds: who took half of one, or else, where all
/// together did, who took a tenth of what they took.
fn guilty(took: &[u64], over: u64) -> Vec<bool> {
    let half = over / 2;
    let all = took.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
    let least = match took.iter().any(|one| *one >= half) {
        true => half,
        false if all >= half => all / 10,
        false => return vec![false; took.len()],
    };
    took.iter().map(|one| *one >= least.max(1)).collect()
}

/// Those threads, where they are still the same, the others of their processes, and what these started: a priority is inherited.
fn family(raised: &[(Thread, Scheduling)]) -> Vec<Thread> {
    let still = |thread: &Thread| {
        quiet_shield::thread(&System, thread.tid, thread.tid).is_some_and(|now| now.is(thread))
    };
    let mut waiting: Vec<u32> =
        raised.iter().filter(|(thread, _)| still(thread)).map(|(thread, _)| thread.tid).collect();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(process) = waiting.pop().filter(|_| found.len() < MOST) {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for tid in threads.flatten().filter_map(|one| one.file_name().to_str()?.parse().ok()) {
            if !seen.insert(tid) {
                continue;
            }
            found.extend(quiet_shield::thread(&System, process, tid));
            let children = fs::read_to_string(format!("/proc/{process}/task/{tid}/children"));
            let children = children.unwrap_or_default();
            waiting.extend(
                children.split_ascii_whitespace().filter_map(|one| one.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// Nanoseconds that a thread ran so far.
///
/// # Source
/// `/proc/PID/schedstat`, first field: Documentation/scheduler/sched-stats.rst.
fn time_on_cpu(tid: u32) -> Option<u64> {
    fs::read_to_string(format!("/proc/{tid}/schedstat"))
        .ok()?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_took_no_cpu_is_not_to_blame() {
        // One burns.
        assert_eq!(guilty(&[95 * MS, 20 * MS, 0], 100 * MS), [true, false, false]);
        // Many share it.
        let many = guilty(&[20 * MS, 20 * MS, 20 * MS, 20 * MS, MS], 100 * MS);
        assert_eq!(many, [true, true, true, true, false]);
        // A chain that behaves, while a host stops the machine or somebody else burns.
        assert_eq!(guilty(&[20 * MS, 20 * MS, 0], 100 * MS), [false; 3]);
        assert_eq!(guilty(&[0, 0], 100 * MS), [false; 2]);
        assert_eq!(guilty(&[0, 0], 0), [false; 2]);
    }

    #[test]
    fn silence_is_heard_once_and_a_machine_that_stood_still_is_forgiven() {
        let mut listener = Listener::default();
        // It sings.
        for at in (100..1000).step_by(100) {
            assert!(listener.hears(at * MS, (at - 30) * MS));
        }
        // It is silent from 970 ms on.
        let heard: Vec<u64> =
            (1000..3500).step_by(100).filter(|at| !listener.hears(at * MS, 970 * MS)).collect();
        assert_eq!(heard, [1800, 2600, 3400]);
        // The whole machine stood still for 5 s, and goes on.
        assert!(listener.hears(8400 * MS, 970 * MS));
        assert!(listener.hears(8500 * MS, 970 * MS));
        assert!(listener.hears(8600 * MS, 8550 * MS));
        // On a host that stops it again and again, silence is silence all the same.
        let mut busy = Listener::default();
        let heard = (1u64..20).map(|look| look * 400).find(|at| !busy.hears(at * MS, 0));
        assert_eq!(heard, Some(1600));
        // 50 ms of song in each second are not enough.
        let mut heard = 0;
        for at in (8700..12_700).step_by(100) {
            let sung = at / 1000 * 1000;
            heard += u64::from(!listener.hears(at * MS, sung * MS));
        }
        assert!(heard >= 3, "{heard}");
    }
}
