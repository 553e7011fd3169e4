//! Trials of buffers: DSP work of a calibrated length in every period, and an account of the
//! blocks that were not done in time: woken late, or run slow.

use crate::{Placed, Result, Setup, Sizes, Ticks, open};
use quiet_dsp::{Block, Stage, simd::Denormals};
use quiet_linux::{Root, state};
use quiet_rt::Clock;
use quiet_types::{CpuSet, Nanos, buffers::Trial, machine::Policy};
use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// Biquads in a row.
const SECTIONS: usize = 8;
/// Samples that go through them in one unit of work.
const SAMPLES: usize = 4;

/// Work as a strip does it: samples through biquads, in units of a few hundred operations.
#[derive(Clone, Debug)]
struct Work {
    state: [[f32; 2]; SECTIONS],
}

impl Work {
    fn new() -> Work {
        Work { state: [[0.1, -0.1]; SECTIONS] }
    }

    fn run(&mut self, units: u64, mut sample: f32) -> f32 {
        // A peak at an eighth of the rate, no gain, transposed direct form II; it never dies away.
        const B: [f32; 3] = [1.02, -1.3, 0.88];
        const A: [f32; 2] = [-1.3, 0.90];
        for _ in 0..units * SAMPLES as u64 {
            for [first, second] in &mut self.state {
                let out = B[0] * sample + *first;
                *first = B[1] * sample - A[0] * out + *second;
                *second = B[2] * sample - A[1] * out;
                sample = out;
            }
            sample = sample.clamp(-0.5, 0.5) + 1e-3;
        }
        sample
    }
}

/// How much work fills a part of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrated {
    /// ns for a thousand units.
    thousand: f64,
}

/// Measures the work, undisturbed: the shortest of many short readings, some 50 ms in all.
pub fn calibrate(clock: Ticks) -> Calibrated {
    let _flushed = Denormals::flush();
    let (mut work, mut thousand) = (Work::new(), f64::INFINITY);
    let began = Instant::now();
    // Enough readings that one of them was not disturbed; each shorter than a time slice.
    while began.elapsed() < Duration::from_millis(50) {
        let before = clock.ticks();
        black_box(work.run(black_box(100), 0.1));
        let took = clock.nanos(clock.ticks().saturating_sub(before));
        thousand = thousand.min(took as f64 * 10.0);
    }
    Calibrated { thousand: thousand.max(1.0) }
}

/// What the playing thread counts; times in ticks.
#[derive(Debug, Default)]
struct Counts {
    over: AtomicU64,
    woke_late: AtomicU64,
    ran_slow: AtomicU64,
    late: AtomicU64,
    slow: AtomicU64,
}

/// Holds blocks against the times at which they should have begun and ended.
///
/// A card's periods begin at even distances, and a block never begins before its period is there:
/// so the earliest beginnings of the past tell when the next one is due. Cards' clocks and ours
/// differ, so what is due follows the blocks slowly, and at once where a block is early.
#[derive(Clone, Copy, Debug)]
struct Account {
    period: f64,
    /// Time from when a block is due until the ring has run dry.
    dry: f64,
    calibrated: f64,
    /// When the next block is due.
    due: Option<f64>,
}

/// Of a block that was not done within its period.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Over {
    late: f64,
    slow: f64,
}

impl Account {
    fn block(&mut self, begin: u64, end: u64) -> Option<Over> {
        let (begin, took) = (begin as f64, end.saturating_sub(begin) as f64);
        let due = self.due.unwrap_or(begin).min(begin);
        let (late, slow) = (begin - due, (took - self.calibrated).max(0.0));
        // What is due follows a clock that is slower than ours by up to 100 ppm within a fortieth
        // of a period.
        let follow = late / 256.0;
        // After an xrun the card begins anew, and whoever was late for the whole ring is not so
        // for the next period.
        let dry = late + took > self.dry;
        self.due = (!dry).then_some(due + follow + self.period);
        (late + took > self.period).then_some(Over { late, slow })
    }
}

/// Does the work in every block, and keeps the account.
struct Load {
    work: Work,
    units: u64,
    account: Account,
    clock: Ticks,
    counts: Arc<Counts>,
}

impl Stage for Load {
    fn process(&mut self, block: &mut Block<'_>) {
        let begin = self.clock.ticks();
        let sample = block.samples().first().copied().unwrap_or(0.0);
        black_box(self.work.run(self.units, sample));
        let end = self.clock.ticks();
        if let Some(over) = self.account.block(begin, end) {
            let add = |word: &AtomicU64, n: u64| word.store(word.load(Relaxed) + n, Relaxed);
            let counts = &*self.counts;
            add(&counts.over, 1);
            add(if over.late >= over.slow { &counts.woke_late } else { &counts.ran_slow }, 1);
            add(&counts.late, over.late as u64);
            add(&counts.slow, over.slow as u64);
        }
    }

    fn reset(&mut self) {}
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct TrialSpec {
    /// Share of a period that the work takes, 0 to 1.
    pub load: f64,
    /// The work's own speed; `None`: measured first.
    pub calibrated: Option<Calibrated>,
    /// How long to play.
    pub length: Duration,
}

/// One trial and what it was made on.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The figures.
    pub trial: Trial,
    /// What it played at.
    pub sizes: Sizes,
    /// Where the thread ran.
    pub placed: Placed,
    /// The device in its own words.
    pub about: String,
}

/// Plays silence under load for a while, and says what came of it. `step` hears how long it has
/// played.
///
/// # Errors
/// A sentence, when the device cannot be opened or the thread cannot be started.
pub fn trial(
    setup: &Setup,
    wanted: TrialSpec,
    stop: &AtomicBool,
    step: &mut dyn FnMut(Duration),
) -> Result<Tried> {
    let opened = open(setup)?;
    let (clock, about) = (opened.clock(), opened.about.clone());
    let calibrated = wanted.calibrated.unwrap_or_else(|| calibrate(clock));
    let period = f64::from(opened.period) / f64::from(opened.rate) * clock.hertz();
    // Ticks for one unit.
    let unit = calibrated.thousand / 1e3 * clock.hertz() / 1e9;
    let units = (wanted.load.clamp(0.0, 1.0) * period / unit).round();
    let counts = Arc::new(Counts::default());
    let account = Account {
        period,
        dry: period * (f64::from(opened.buffer) / f64::from(opened.period) - 1.0),
        calibrated: units * unit,
        due: None,
    };
    let load =
        Load { work: Work::new(), units: units as u64, account, clock, counts: counts.clone() };
    let mut engine = opened.start(Box::new(load))?;
    // From here on periods are due: placing the thread takes its time.
    let began = Instant::now();
    while began.elapsed() < wanted.length && !stop.load(Relaxed) && !engine.ended() {
        sleep(Duration::from_millis(10).min(wanted.length));
        step(began.elapsed());
    }
    let (lasted, latency) = (began.elapsed(), engine.way().map(|frames| frames.0));
    let hits = engine.stop()?;
    let (board, placed, sizes) = (engine.board(), engine.placed().clone(), engine.sizes());
    let word = |word: &AtomicU64| word.load(Relaxed);
    let nanos = |ticks: u64| Nanos(clock.nanos(ticks));
    let (obtained, xruns) = (word(&board.blocks) - word(&board.late), word(&board.xruns));
    let mut missed = word(&board.missed);
    if !matches!(setup.host, crate::AudioHost::Null(_)) {
        // Cards do not say how much was lost: what the clock says and was not processed.
        let due = lasted.as_secs_f64() * f64::from(sizes.rate) / f64::from(sizes.period.0.max(1));
        let by_clock = (due as u64).saturating_sub(obtained);
        missed = if xruns == 0 { 0 } else { by_clock.max(xruns) };
    }
    let policy = match placed.scheduling.policy {
        Policy::Fifo => format!("fifo {}", placed.scheduling.priority),
        Policy::Rr => format!("rr {}", placed.scheduling.priority),
        _ => format!("other, nice {}", placed.scheduling.nice),
    };
    let trial = Trial {
        lasted: Nanos(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX)),
        policy,
        expected: obtained + missed,
        obtained,
        missed,
        xruns,
        between: Nanos(word(&board.between)),
        calibrated: nanos(account.calibrated as u64),
        over: word(&counts.over),
        woke_late: word(&counts.woke_late),
        ran_slow: word(&counts.ran_slow),
        late: nanos(word(&counts.late)),
        slow: nanos(word(&counts.slow)),
        hits: hits.thread,
        ticks: hits.ticks,
        irqs: hits.irqs,
        latency,
        steal: steal(&placed, &placed.allowed),
    };
    Ok(Tried { trial, sizes, placed, about })
}

/// What the hypervisor took since the thread was placed: of one CPU alone, else it says nothing.
fn steal(placed: &Placed, cpus: &CpuSet) -> Option<Nanos> {
    /// The kernel's unit towards programs, whatever its own tick: 100 a second.
    const TICK: u64 = 10_000_000;
    let cpu = cpus.first().filter(|_| cpus.len() == 1)?;
    let after = state::counters(&Root::system().ok()?, cpus);
    after.since(&placed.state.counters, cpu).steal.map(|ticks| Nanos(ticks * TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Periods of 1000 ticks, a ring of three, work of 500.
    fn account() -> Account {
        Account { period: 1000.0, dry: 2000.0, calibrated: 500.0, due: None }
    }

    #[test]
    fn who_woke_late_and_who_ran_slow_are_told_apart() {
        let mut account = account();
        // On time, a little late but done in time.
        assert_eq!(account.block(10_000, 10_500), None);
        assert_eq!(account.block(11_100, 11_600), None);
        // Woken 700 late.
        let late = account.block(12_700, 13_200).unwrap();
        assert!((late.late - 700.0).abs() < 5.0 && late.slow == 0.0, "{late:?}");
        // On time again, and 650 slower than calibrated.
        let slow = account.block(13_000, 14_150).unwrap();
        assert!(slow.late == 0.0 && (slow.slow - 650.0).abs() < 1e-9, "{slow:?}");
    }

    #[test]
    fn a_stall_is_one_block_and_the_next_ring_begins_anew() {
        let mut account = account();
        account.block(10_000, 10_500);
        let stall = account.block(61_000, 61_500).unwrap();
        assert!((stall.late - 50_000.0).abs() < 5.0, "{stall:?}");
        // The card was started again, at another phase.
        assert_eq!(account.block(62_345, 62_845), None);
        assert_eq!(account.block(63_345, 63_845), None);
        // A stall within the work, of which the loop learns after: that is one, too.
        let slow = account.block(64_345, 114_345).unwrap();
        assert!(slow.late == 0.0 && slow.slow == 49_500.0, "{slow:?}");
        assert_eq!(account.block(115_400, 115_900), None);
    }

    #[test]
    fn a_card_that_is_slower_than_our_clock_is_not_called_late() {
        let mut account = account();
        // 100 ppm: after 20 000 periods two whole periods behind.
        let over = (0..20_000u64)
            .filter_map(|n| {
                let begin = 10_000 + n * 1000 + n / 10;
                account.block(begin, begin + 500)
            })
            .count();
        assert_eq!(over, 0);
    }

    #[test]
    fn calibrated_work_takes_about_what_it_should() {
        // As it was calibrated: an emulator's floating point takes longer so.
        let _flushed = Denormals::flush();
        let clock = Ticks::plain();
        let calibrated = calibrate(clock);
        let mut work = Work::new();
        let units = (2e6 / calibrated.thousand * 1e3) as u64;
        let least = (0..200)
            .map(|_| {
                let before = clock.ticks();
                black_box(work.run(units, 0.1));
                clock.ticks() - before
            })
            .min()
            .unwrap();
        // The shortest reading is the work itself, on a machine however busy.
        assert!((1e6..4e6).contains(&(least as f64)), "{least} ns for 2 ms");
        assert!(work.state.iter().flatten().all(|x| x.is_finite()));
    }
}
