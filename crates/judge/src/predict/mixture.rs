//! Tails by cause: what the attribution parts, each part may fit where the whole does not.

use super::{TIMES, told};
use crate::stats::tail::{CauseReadings, Mixture, Tail, tail_from};
use quiet_types::{
    Histogram, Run,
    explain::Source,
    prediction::{Bounded, CauseTail},
};
use std::collections::BTreeMap;

/// Readings that a tail needs; causes with fewer are one group.
const FEWEST: u64 = 50;
const RARER: &str = "rarer causes";

/// Each cause's tail, and levels of all together; where those cannot be told, why.
pub(super) fn mixture(runs: &[Run], seconds: f64) -> (Vec<CauseTail>, Vec<Bounded>, String) {
    let mut all: BTreeMap<&str, Histogram> = BTreeMap::new();
    let (mut late, mut kept) = (0, 0);
    for explained in runs.iter().filter_map(|run| run.explained.as_deref()) {
        if explained.source != Source::Trace {
            continue;
        }
        for cpu in &explained.cpus {
            (late, kept) = (late + cpu.readings, kept + cpu.explained);
            for share in cpu.causes.iter().filter(|share| share.lengths.count > 0) {
                all.entry(&share.title).or_default().merge(&share.lengths);
            }
        }
    }
    if all.is_empty() {
        return (Vec::new(), Vec::new(), String::new());
    }
    let mut groups: BTreeMap<&str, Histogram> = BTreeMap::new();
    for (title, lengths) in all {
        let name = if lengths.count < FEWEST { RARER } else { title };
        groups.entry(name).or_default().merge(&lengths);
    }
    let (mut causes, mut parts, mut no_mixture) = (Vec::new(), Vec::new(), String::new());
    for (name, lengths) in groups {
        let a_second = lengths.count as f64 / seconds.max(1e-9);
        let (fit, no_fit) = match tail_from(&lengths, 0.0) {
            Tail::Fitted(fit) => {
                let told = told(&fit);
                let (name, readings) = (name.to_owned(), lengths.clone());
                parts.push(CauseReadings { name, fit: *fit, readings, a_second });
                (Some(told), String::new())
            }
            Tail::NoFit(why) => {
                if no_mixture.is_empty() {
                    no_mixture = format!("{name}: {why}");
                }
                (None, why)
            }
        };
        causes.push(CauseTail {
            title: name.to_owned(),
            readings: lengths.count,
            an_hour: a_second * 3600.0,
            largest: lengths.max.unwrap_or_default(),
            fit,
            no_fit,
        });
    }
    causes.sort_by(|a, b| b.readings.cmp(&a.readings).then(a.title.cmp(&b.title)));
    if no_mixture.is_empty() && kept < late {
        no_mixture =
            format!("{} of {late} late readings have no cause: no room was left", late - kept);
    }
    if !no_mixture.is_empty() {
        return (causes, Vec::new(), no_mixture);
    }
    let mixture = Mixture { parts };
    let levels = TIMES.iter().filter_map(|(name, every)| {
        let level = mixture.level(*every as f64)?;
        Some(Bounded {
            name: (*name).to_owned(),
            value: level.value,
            low: level.low,
            high: level.high.is_finite().then_some(level.high),
        })
    });
    (causes, levels.collect(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ask, example, predict, stats::Random};
    use quiet_types::Nanos;
    use quiet_types::{
        CpuId,
        explain::{self, Explained, ExplainedCpu, Share},
        run::Host,
    };

    fn share(title: &str, lengths: Histogram) -> Share {
        Share {
            cause: explain::Cause::Tick,
            title: title.to_owned(),
            total: Some(Nanos::ZERO),
            around: Nanos::ZERO,
            times: lengths.count,
            longest: Nanos::ZERO,
            readings: lengths.count,
            knob: String::new(),
            lengths,
        }
    }

    fn run(causes: Vec<Share>) -> Run {
        let readings = causes.iter().map(|share| share.lengths.count).sum();
        let cpu = ExplainedCpu {
            cpu: CpuId(3),
            readings,
            explained: readings,
            total: Nanos::ZERO,
            named: Nanos::ZERO,
            host: Nanos::ZERO,
            unexplained: Nanos::ZERO,
            causes,
            worst: Vec::new(),
            steal: None,
        };
        let mut run = example::run();
        run.lasted = Some(Nanos::from_secs(100));
        run.explained = Some(Box::new(Explained {
            schema: explain::SCHEMA.to_owned(),
            run: run.id.clone(),
            started: String::new(),
            lasted: Nanos::from_secs(100),
            host: Host::default(),
            source: Source::Trace,
            threshold: Nanos(1_000),
            cpus: vec![cpu],
            findings: Vec::new(),
        }));
        run
    }

    /// Two causes of known distributions: none of their mixture's levels is either one's.
    #[test]
    fn causes_that_fit_one_by_one_are_summed_to_the_known_level() {
        let mut random = Random::new(11);
        let mut draw = |count: usize, floor: f64, scale: f64| {
            let one = |_| Nanos((floor - scale * (1.0 - random.unit()).ln()) as u64);
            Histogram::of((0..count).map(one).collect::<Vec<_>>())
        };
        let (ticks, host) = (draw(20_000, 2e4, 1e4), draw(4_000, 4e6, 1e6));
        let it = predict(&[run(vec![share("tick", ticks), share("host", host)])], &Ask::default());
        assert_eq!(it.no_mixture, "");
        assert_eq!((it.causes.len(), it.causes[0].title.as_str()), (2, "tick"));
        // 40 a second of 4 ms and e^-x of a millisecond; a minute is within what was measured.
        let truth = 4e6 + 1e6 * (40.0f64 * 60.0).ln();
        let minute = &it.by_cause[0];
        assert_eq!(minute.name, "once a minute");
        assert!((minute.value / truth - 1.0).abs() < 0.2, "{} for {truth}", minute.value);
        assert!(minute.low <= truth && minute.high.is_none_or(|high| high >= truth), "{minute:?}");
    }

    #[test]
    fn a_cause_that_fits_nothing_is_named_and_nothing_is_summed() {
        let few = Histogram::of((0..30u64).map(|n| Nanos(20_000 + n)));
        let it = predict(&[run(vec![share("a", few.clone()), share("b", few)])], &Ask::default());
        // 30 and 30 together are enough to try, and have steps, not a tail, or one with an end.
        assert_eq!(it.causes[0].title, RARER);
        assert!(it.by_cause.is_empty() != it.no_mixture.is_empty());
        let none = predict(&[example::run()], &Ask::default());
        assert!(none.causes.is_empty() && none.no_mixture.is_empty());
    }
}
