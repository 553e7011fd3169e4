//! Late readings as events: one stall is one event, however many periods it took and however many readings it made late.

use super::{LEVEL, Random};
use quiet_types::{Histogram, Nanos, Run};

/// Fewer times between late readings say nothing about whether they come in bursts.
const FEWEST_TIMES: usize = 20;
/// More are not looked at.
const MOST_TIMES: usize = 2000;
const DRAWS: usize = 400;

/// The readings of some runs, a stall once.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// A reading for every time that a thread woke up: the periods that it missed meanwhile belong to the same event and are
    /// not among them.
    pub all: Histogram,
    /// The extremal index: events by late readings, 1 where nothing shows that late readings come in bursts.
    pub index: f64,
    /// How often chance alone bunches the late readings as much; `None` where too few have a time.
    pub p_value: Option<f64>,
}

impl Events {
    /// Of these runs.
    ///
    /// Periods missed because of one reading are its cluster, known exactly. Whether the readings themselves come in bursts is
    /// told by the times of the largest ones of each thread: between independent ones they are exponential, which is tested by
    /// simulation. Where that is refused, the extremal index is that of the intervals estimator.
    ///
    /// # Source
    /// Ferro, Segers: Inference for clusters of extreme values, Journal of the Royal Statistical Society B 65, 2003.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Events {
        let mut all = Histogram::default();
        let mut gaps: Vec<Vec<f64>> = Vec::new();
        for run in runs {
            let step = if run.is_gap() { Some(Nanos::from_micros(1)) } else { run.interval() };
            let step = step.unwrap_or(Nanos(1)).max(Nanos(1));
            for thread in &run.threads {
                all.merge(&thread.readings);
                let mut times: Vec<u64> = thread.worst.iter().map(|reading| reading.at.0).collect();
                times.sort_unstable();
                let apart = times.windows(2).map(|two| (two[1] - two[0]) as f64 / step.0 as f64);
                if gaps.iter().map(Vec::len).sum::<usize>() < MOST_TIMES {
                    gaps.push(apart.map(|gap| gap.max(1.0)).collect());
                }
            }
        }
        gaps.retain(|gaps| gaps.len() > 1);
        let (index, p_value) = bursts(&gaps);
        Events { all, index, p_value }
    }

    /// Events above a limit.
    pub fn above(&self, limit: Nanos) -> u64 {
        (self.all.above(limit) as f64 * self.index).ceil() as u64
    }
}

/// The extremal index by the times between late readings, thread by thread, and the p-value of their independence.
fn bursts(gaps: &[Vec<f64>]) -> (f64, Option<f64>) {
    let count: usize = gaps.iter().map(Vec::len).sum();
    if count < FEWEST_TIMES {
        return (1.0, None);
    }
    let found = index_of(gaps);
    let mut random = Random::new(0x6275_7273_7473);
    let lower = (0..DRAWS)
        .filter(|_| {
            let drawn: Vec<Vec<f64>> = gaps
                .iter()
                .map(|gaps| gaps.iter().map(|_| 1.0 - 1e6 * (1.0 - random.unit()).ln()).collect())
                .collect();
            index_of(&drawn) <= found
        })
        .count();
    let p_value = (lower + 1) as f64 / (DRAWS + 1) as f64;
    (if p_value <= LEVEL { found.clamp(1.0 / count as f64, 1.0) } else { 1.0 }, Some(p_value))
}

/// The intervals estimator, each thread's times by their own mean.
fn index_of(gaps: &[Vec<f64>]) -> f64 {
    let (mut upper, mut lower) = (0.0, 0.0);
    for gaps in gaps {
        let n = gaps.len() as f64;
        let most = gaps.iter().copied().fold(0.0, f64::max);
        let (a, b) = if most > 2.0 { (1.0, 2.0) } else { (0.0, 0.0) };
        let sum: f64 = gaps.iter().map(|gap| gap - a).sum();
        let squares: f64 = gaps.iter().map(|gap| (gap - a) * (gap - b)).sum();
        if squares > 0.0 {
            upper += n * (2.0 * sum * sum / (n * squares)).min(4.0);
            lower += n;
        }
    }
    if lower > 0.0 { upper / lower } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use quiet_types::run::Reading;

    /// A run of 20 000 periods of 200 us in which the 64 latest readings are at these times, in us.
    fn run(times: impl Iterator<Item = f64>) -> Run {
        let mut run = example::run();
        let thread = &mut run.threads[0];
        thread.readings = Histogram::of((0..20_000u64).map(|n| Nanos(10_000 + n % 5000)));
        let reading =
            |us: f64| Reading { at: Nanos((us * 1e3) as u64), value: Nanos(1), missed: 0 };
        thread.worst = times.take(64).map(reading).collect();
        run
    }

    #[test]
    fn independent_readings_are_events_and_bursts_are_not() {
        let mut random = Random::new(3);
        let mut refused = 0;
        for _ in 0..60 {
            let alone = Events::of([&run((0..64).map(|_| random.unit() * 4e6))]);
            refused += u32::from(alone.index < 1.0);
        }
        assert!(refused <= 7, "independent ones are called bursts in {refused} of 60");
        // Sixteen bursts of four, a period apart.
        for _ in 0..10 {
            let starts: Vec<f64> = (0..16).map(|_| random.unit() * 4e6).collect();
            let times =
                starts.iter().flat_map(|start| (0..4).map(move |n| start + 200.0 * f64::from(n)));
            let events = Events::of([&run(times)]);
            assert!((0.1..0.5).contains(&events.index), "{}", events.index);
        }
    }

    #[test]
    fn one_stall_is_one_event_however_many_periods_it_took() {
        let mut run = example::run();
        let thread = &mut run.threads[0];
        let quiet = || (0..9_900u64).map(|n| Nanos(8_000 + n % 4000));
        let stall = Nanos::from_millis(20);
        thread.readings = Histogram::of(quiet().chain([stall]));
        // What is counted for each missed period: a hundred readings of one stall.
        let pseudo = (0..100u64).map(|k| Nanos(stall.0 - 200_000 * k));
        thread.corrected = Some(Histogram::of(quiet().chain(pseudo)));
        (thread.obtained, thread.missed, thread.expected) = (9_901, Some(99), Some(10_000));
        thread.worst = vec![Reading { at: stall, value: stall, missed: 99 }];
        let events = Events::of([&run]);
        assert_eq!((events.all.count, events.index, events.p_value), (9_901, 1.0, None));
        assert_eq!(events.above(Nanos::from_micros(100)), 1);
        assert_eq!(run.readings().above(Nanos::from_micros(100)), 100);
    }
}
