//! How often a buffer runs dry: delays that follow each other add up.
//!
//! A thread that is late by L has L of sound less in its buffer, and catches up with what its
//! work leaves free: at a DSP load of one half, a delay is worked off in the time it took. Delays
//! that come before that add up (queuelat's view). What is known of a run is how often delays of
//! each length come, so they are taken to come at random moments: then the backlog follows
//! Lindley's recursion, and its distribution is a compound geometric one, computed on a grid.

use quiet_types::{Histogram, Nanos, Run};

/// Points of the grid.
const GRID: usize = 1024;

/// What a buffer must stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    /// Length in ns (the upper edge of its bucket), and how many a second.
    parts: Vec<(f64, f64)>,
    /// Measured seconds.
    seconds: f64,
    /// Part of the time that the work takes, 0 to below 1.
    load: f64,
}

/// One buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dry {
    /// How often it runs dry, an hour.
    pub an_hour: f64,
    /// The same where no delay adds to another.
    pub alone: f64,
    /// Upper end of the 95 % interval, by the number of delays that were seen.
    pub most: f64,
    /// The chance that it runs dry at least once in an hour.
    pub in_an_hour: f64,
}

impl Delays {
    /// The delays of a run, with a work that takes the part `load` of the time.
    ///
    /// Of wakeup the readings above the median: what every period has is part of the plan. Of gap
    /// the gaps above its threshold. `None` where nothing was measured.
    pub fn of(run: &Run, load: f64) -> Option<Delays> {
        let least = if run.is_gap() { run.spec.threshold } else { run.readings().percentile(0.5) }?;
        let threads = run.threads.len().max(1) as f64;
        Delays::new(&run.readings(), least, run.lasted?.as_secs_f64() * threads, load)
    }

    /// Delays above `least` in `seconds`.
    pub fn new(all: &Histogram, least: Nanos, seconds: f64, load: f64) -> Option<Delays> {
        if !(seconds > 0.0 && (0.0..1.0).contains(&load)) || all.count == 0 {
            return None;
        }
        let max = all.max.map_or(0.0, |max| max.0 as f64);
        let above = all.buckets.iter().filter(|(lower, _)| *lower > least.0);
        let mut parts: Vec<(f64, f64)> = above
            .map(|&(lower, count)| {
                let upper = quiet_types::histogram::upper_of(lower) as f64;
                (upper.min(max), count as f64 / seconds)
            })
            .collect();
        if all.over > 0 {
            parts.push((max, all.over as f64 / seconds));
        }
        Some(Delays { parts, seconds, load })
    }

    /// Delays a second.
    fn a_second(&self) -> f64 {
        self.parts.iter().map(|(_, rate)| rate).sum()
    }

    /// How often a buffer that holds `slack` of sound beyond the period at work runs dry.
    pub fn dry(&self, slack: Nanos) -> Dry {
        let slack = slack.0 as f64;
        let longer = self.parts.iter().filter(|(length, _)| *length > slack);
        // An empty `sum` is -0.0.
        let alone = longer.fold(0.0, |all, (_, rate)| all + rate);
        let seen = (alone * self.seconds).round() as u64;
        let together = self.adding_up(slack);
        let rate = together.max(alone);
        // The interval of the counted ones; what adds up comes on top of it.
        let most = super::tail::most_likely_rate(seen) / self.seconds + (rate - alone);
        Dry {
            an_hour: rate * 3600.0,
            alone: alone * 3600.0,
            most: most * 3600.0,
            in_an_hour: 1.0 - (-rate * 3600.0).exp(),
        }
    }

    /// Delays a second that find a backlog with which they exceed `slack`.
    fn adding_up(&self, slack: f64) -> f64 {
        let rate = self.a_second();
        if rate <= 0.0 {
            return 0.0;
        }
        // Backlog in ns of sound; worked off at this many ns a ns.
        let speed = if self.load > 0.0 { (1.0 - self.load) / self.load } else { return 0.0 };
        let mean: f64 = self.parts.iter().map(|(l, r)| l * r).sum::<f64>() / rate;
        let part = rate * mean / 1e9 / speed;
        if part >= 1.0 {
            // The work never catches up.
            return rate;
        }
        let step = slack / (GRID - 1) as f64;
        if step <= 0.0 {
            return rate;
        }
        // The equilibrium of the delays' lengths, rounded up to the grid: a bound, never less.
        let mut rest = vec![0.0; GRID + 1];
        for &(length, r) in &self.parts {
            let whole = length / step;
            for (cell, chance) in rest.iter_mut().enumerate().take(GRID) {
                let inside = (whole - cell as f64).clamp(0.0, 1.0);
                if inside == 0.0 {
                    break;
                }
                *chance += r / rate * inside * step / mean;
            }
        }
        // Panjer's recursion for the compound geometric: W = sum of N, P(N = n) = (1 - part) part^n.
        let mut chance = vec![0.0; GRID];
        chance[0] = 1.0 - part;
        // A length in cell k counts as k + 1 steps.
        for at in 1..GRID {
            let sum: f64 = (1..=at).map(|k| rest[k - 1] * chance[at - k]).sum();
            chance[at] = part * sum;
        }
        let mut below = Vec::with_capacity(GRID);
        let mut seen = 0.0;
        for one in &chance {
            seen += one;
            below.push(seen);
        }
        // A delay of length L overflows where the backlog it meets is above slack - L.
        let one = |&(length, r): &(f64, f64)| {
            if length > slack {
                return r;
            }
            let room = ((slack - length) / step).floor() as usize;
            r * (1.0 - below[room.min(GRID - 1)]).max(0.0)
        };
        self.parts.iter().map(one).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Random;

    #[test]
    fn exponential_delays_give_the_known_answer() {
        // M/M/1: mean 1 ms, 100 a second, load 1/2: part 0.1. P(backlog met + delay > b) = e^(-(1-part) b/m).
        let mut random = Random::new(1);
        let all =
            Histogram::of((0..400_000).map(|_| Nanos((-1e6 * (1.0 - random.unit()).ln()) as u64)));
        let delays = Delays::new(&all, Nanos(0), 4000.0, 0.5).unwrap();
        for slack in [2_000_000u64, 4_000_000, 6_000_000] {
            let truth = 100.0 * (-0.9 * slack as f64 / 1e6).exp() * 3600.0;
            let got = delays.dry(Nanos(slack)).an_hour;
            assert!((got / truth - 1.0).abs() < 0.12, "{slack}: {got} for {truth}");
        }
        assert!(delays.dry(Nanos(4_000_000)).an_hour > delays.dry(Nanos(4_000_000)).alone);
    }

    #[test]
    fn a_simulated_queue_runs_dry_as_often_as_computed() {
        let mut random = Random::new(2);
        let lengths = [200e3, 700e3, 1.6e6];
        let all = Histogram::of((0..30_000).map(|at| Nanos(lengths[at % 3] as u64)));
        // 300 a second, load 0.6: speed 2/3.
        let delays = Delays::new(&all, Nanos(0), 100.0, 0.6).unwrap();
        let slack = 2_500_000.0;
        let (mut backlog, mut dry, mut time) = (0.0f64, 0u32, 0.0);
        for _ in 0..400_000 {
            let apart = -(1.0 - random.unit()).ln() / 300.0 * 1e9;
            time += apart;
            backlog = (backlog - apart * (0.4 / 0.6)).max(0.0);
            let length = lengths[random.below(3)];
            dry += u32::from(backlog + length > slack);
            backlog += length;
        }
        let (truth, got) =
            (f64::from(dry) / (time / 1e9) * 3600.0, delays.dry(Nanos(slack as u64)).an_hour);
        assert!((got / truth - 1.0).abs() < 0.1, "{got} for {truth}");
    }

    #[test]
    fn a_longer_buffer_runs_dry_less_often_and_none_seen_is_not_never() {
        let all = Histogram::of((1..=1000u64).map(|n| Nanos(n * 1000)));
        let delays = Delays::new(&all, Nanos(0), 60.0, 0.5).unwrap();
        let often: Vec<f64> =
            [100, 500, 900, 1500].map(|us| delays.dry(Nanos::from_micros(us)).an_hour).to_vec();
        assert!(often.windows(2).all(|two| two[0] >= two[1]), "{often:?}");
        let none = delays.dry(Nanos::from_millis(50));
        assert!((none.most - 180.0).abs() < 2.0 && none.alone == 0.0, "{none:?}");
        assert!(none.alone.is_sign_positive(), "{none:?}");
        // Without work nothing is ever behind, and one delay is as good as its length.
        let idle = Delays::new(&all, Nanos(0), 60.0, 0.0).unwrap().dry(Nanos::from_micros(900));
        assert_eq!(idle.an_hour, idle.alone);
        assert!(Delays::new(&Histogram::default(), Nanos(0), 60.0, 0.5).is_none());
    }
}
