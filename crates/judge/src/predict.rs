//! What the readings say about longer times than were measured.

use crate::{
    known,
    stats::{
        buffer::Delays,
        events::Events,
        tail::{self, BoundedLevel, Fit, Shown, Tail},
    },
};
use quiet_types::words;
use quiet_types::{
    Finding, Frames, Histogram, Nanos, Run, SampleRate, Severity,
    prediction::{Bounded, Buffer, ClaimVerdict, Claimed, Prediction, SCHEMA, TailFit},
};

mod mixture;

/// What is asked of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Claims: no more than one reading above the first in the second.
    pub claims: Vec<(Nanos, Nanos)>,
    /// Buffers, in frames.
    pub frames: Vec<Frames>,
    /// Frames a second.
    pub rate: SampleRate,
    /// Part of the time that the work takes, 0 to below 1.
    pub load: f64,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask {
            claims: Vec::new(),
            frames: [16, 32, 64, 128, 256, 512, 1024].map(Frames).to_vec(),
            rate: SampleRate(48_000),
            load: 0.5,
        }
    }
}

const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
];

const TIMES: [(&str, u64); 4] = [
    ("once a minute", 60),
    ("once an hour", 3600),
    ("once a night", 8 * 3600),
    ("once a week", 7 * 86_400),
];

/// Predicts from runs that asked the same; all their readings are taken together.
pub fn predict(runs: &[Run], ask: &Ask) -> Prediction {
    let mut all = Histogram::default();
    for run in runs {
        all.merge(&run.readings());
    }
    let seconds = runs.iter().filter_map(thread_seconds).sum();
    if let Some(why) = nothing_to_predict_from(runs) {
        return nothing(runs, &all, seconds, ask, why);
    }
    let mut findings = Vec::new();
    let events = Events::of(runs);
    findings.extend(bursts(&events));
    let found = tail::tail_of(&events.all, 0.9, events.index);
    let (fit, no_fit) = match &found {
        Tail::Fitted(fit) => (Some(fit), String::new()),
        Tail::NoFit(why) => (None, why.clone()),
    };
    let bounded = |name: &str, level: BoundedLevel| Bounded {
        name: name.to_owned(),
        value: level.value,
        low: level.low,
        high: level.high.is_finite().then_some(level.high),
    };
    let percentiles = PERCENTILES
        .iter()
        .filter_map(|(name, q)| {
            let alone = events.index * events.all.count as f64 / all.count.max(1) as f64;
            Some(bounded(name, tail::percentile_of(&all, *q, alone.min(1.0))?))
        })
        .collect();
    let a_second = events.all.count as f64 / seconds.max(1e-9);
    let levels = TIMES
        .iter()
        .filter_map(|(name, every)| {
            let level = fit?.level(a_second * *every as f64)?;
            Some(bounded(name, level))
        })
        .collect();
    findings.extend(fit.into_iter().flat_map(|fit| far_or_heavy(fit, seconds)));
    findings.extend(unlike_or_partial(runs));
    let (causes, by_cause, no_mixture) = mixture::mixture(runs, seconds);
    let claims =
        ask.claims.iter().map(|(limit, every)| claimed(&events, seconds, *limit, *every)).collect();
    let buffers =
        runs.first().map_or(Vec::new(), |first| buffers(first, &all, &events.all, seconds, ask));
    Prediction {
        schema: SCHEMA.to_owned(),
        ids: runs.iter().map(|run| run.id.clone()).collect(),
        readings: all.count,
        lasted: Nanos((seconds * 1e9) as u64),
        percentiles,
        tail: fit.map(|fit| told(fit)),
        no_fit,
        levels,
        causes,
        by_cause,
        no_mixture,
        claims,
        buffers,
        findings,
    }
}

/// What makes the levels of a fit doubtful.
fn far_or_heavy(fit: &Fit, seconds: f64) -> Vec<Finding> {
    let mut findings = Vec::new();
    let reach = TIMES[1].1 as f64 / seconds.max(1e-9);
    if reach > 10.0 {
        findings.push(
            Finding::new(
                Severity::Note,
                "predict.far",
                format!("an hour is {} times what was measured", words::significant(reach)),
            )
            .effect("the level holds only if nothing rarer than what was seen exists"),
        );
    }
    if fit.shape > 0.5 {
        findings.push(Finding::new(
            Severity::Warning,
            "predict.heavy",
            format!(
                "the tail is heavy (shape {}): single readings decide its levels",
                words::significant(fit.shape)
            ),
        ));
    }
    findings
}

/// What makes the runs no good sample of one thing.
fn unlike_or_partial(runs: &[Run]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if runs.len() > 1 && !alike(runs) {
        findings.push(
            Finding::new(Severity::Warning, "predict.unlike", "the runs did not ask the same")
                .effect("their readings are of several kinds, and the levels of none of them"),
        );
    }
    let partial = runs.iter().filter(|run| run.partial).count();
    if partial > 0 {
        findings.push(
            Finding::new(
                Severity::Note,
                "predict.partial",
                format!(
                    "{partial} of {} are last checkpoints of runs that were killed",
                    runs.len()
                ),
            )
            .effect("what ended them may itself have made readings late, and those are missing"),
        );
    }
    findings
}

fn told(fit: &Fit) -> TailFit {
    TailFit {
        threshold: Nanos(fit.threshold as u64),
        excesses: fit.excesses,
        shape: fit.shape,
        shape_error: fit.shape_error,
        scale: fit.scale,
        goodness: fit.goodness,
        end: fit.end(),
    }
}

/// Seconds that all its threads measured, where they are known.
fn thread_seconds(run: &Run) -> Option<f64> {
    Some(run.lasted?.as_secs_f64() * run.threads.len() as f64)
}

fn alike(runs: &[Run]) -> bool {
    let kind = |run: &Run| {
        let tool = run.origin.as_ref().map(|origin| origin.format.clone());
        (run.spec.probe, run.spec.policy, run.host.release.clone(), tool)
    };
    runs.windows(2).all(|two| kind(&two[0]) == kind(&two[1]))
}

/// Why nothing can be said from these runs; `None` where something can.
fn nothing_to_predict_from(runs: &[Run]) -> Option<&'static str> {
    if runs.iter().any(|run| !known::spread(&run.readings())) {
        return Some("only extremes and a mean are known: there is no distribution");
    }
    let silent = runs.iter().any(|run| run.lasted.is_none());
    silent.then_some("how long was measured is not known, so nothing is known of how often")
}

/// What is left to say then.
fn nothing(runs: &[Run], all: &Histogram, seconds: f64, ask: &Ask, why: &str) -> Prediction {
    let claims = ask.claims.iter().map(|(limit, every)| Claimed {
        limit: *limit,
        every: *every,
        seen: 0,
        verdict: ClaimVerdict::TooShort,
        needs: None,
        sentence: format!("no more than one reading above {limit} in {every}: not known ({why})"),
    });
    Prediction {
        schema: SCHEMA.to_owned(),
        ids: runs.iter().map(|run| run.id.clone()).collect(),
        readings: all.count,
        lasted: Nanos((seconds * 1e9) as u64),
        percentiles: Vec::new(),
        tail: None,
        no_fit: why.to_owned(),
        levels: Vec::new(),
        causes: Vec::new(),
        by_cause: Vec::new(),
        no_mixture: String::new(),
        claims: claims.collect(),
        buffers: Vec::new(),
        findings: vec![Finding::new(Severity::Warning, "predict.not_known", why)],
    }
}

/// Whether late readings come in bursts, and what that makes of them.
fn bursts(events: &Events) -> Option<Finding> {
    let p_value = events.p_value.filter(|_| events.index < 1.0)?;
    Some(
        Finding::new(
            Severity::Note,
            "predict.bursts",
            format!(
                "late readings come in bursts: extremal index {}",
                words::significant(events.index)
            ),
        )
        .evidence(format!(
            "by the times of the largest ones; p of independence {}",
            words::p_value(p_value)
        ))
        .effect("a burst counts as one event, in levels and claims"),
    )
}

fn claimed(events: &Events, seconds: f64, limit: Nanos, every: Nanos) -> Claimed {
    let seen = events.above(limit);
    let claim = tail::claim(seen, seconds, every.as_secs_f64());
    let what = format!("no more than one reading above {limit} in {every}");
    let of = format!("{seen} seen in {}", Nanos((seconds * 1e9) as u64));
    let (verdict, needs, sentence) = match claim.verdict {
        Shown::Holds => (ClaimVerdict::Holds, None, format!("{what}: holds at 95 % ({of})")),
        Shown::Broken => (ClaimVerdict::Broken, None, format!("{what}: does not hold ({of})")),
        Shown::Needs(more) => {
            let more = Nanos((more.min(1e9) * 1e9) as u64);
            let time = minutes(more);
            let rest =
                if seen == 0 { "with none above it" } else { "with no further one above it" };
            (
                ClaimVerdict::TooShort,
                Some(more),
                format!("{what}: measured too short ({of}); {time} more {rest} would show it"),
            )
        }
    };
    Claimed { limit, every, seen, verdict, needs, sentence }
}

/// `12 min`, `3.1 h`.
fn minutes(time: Nanos) -> String {
    let minutes = time.as_secs_f64() / 60.0;
    if minutes < 90.0 {
        format!("{:.0} min", minutes.ceil())
    } else {
        format!("{:.1} h", minutes / 60.0)
    }
}

/// Buffers alone, from runs that asked the same.
pub fn buffers_of(runs: &[&Run], ask: &Ask) -> Vec<Buffer> {
    let Some(first) = runs.first() else { return Vec::new() };
    let owned: Vec<Run> = runs.iter().map(|run| (*run).clone()).collect();
    if nothing_to_predict_from(&owned).is_some() {
        return Vec::new();
    }
    let mut all = Histogram::default();
    runs.iter().for_each(|run| all.merge(&run.readings()));
    let events = Events::of(runs.iter().copied());
    let seconds = runs.iter().filter_map(|run| thread_seconds(run)).sum();
    buffers(first, &all, &events.all, seconds, ask)
}

/// A buffer of n frames holds two periods: what is late may take n frames less the work of one.
///
/// A stall is one delay. No buffer runs dry more often than it is filled, and none more often than a shorter one: what is
/// computed for that one is an upper bound of the longer one's too.
fn buffers(
    first: &Run,
    all: &Histogram,
    events: &Histogram,
    seconds: f64,
    ask: &Ask,
) -> Vec<Buffer> {
    let least = if first.is_gap() { first.spec.threshold } else { all.percentile(0.5) };
    let Some(least) = least else { return Vec::new() };
    let Some(delays) = Delays::new(events, least, seconds, ask.load) else { return Vec::new() };
    let mut order: Vec<usize> = (0..ask.frames.len()).collect();
    order.sort_by_key(|at| ask.frames[*at].0);
    let mut bound = [f64::INFINITY; 3];
    let mut found: Vec<(usize, Buffer)> = order
        .into_iter()
        .map(|at| {
            let frames = ask.frames[at];
            let length = frames.lasting(ask.rate);
            let slack = Nanos((length.0 as f64 * (1.0 - ask.load / 2.0)) as u64);
            let dry = delays.dry(slack);
            let fills = f64::from(ask.rate.0) * 3600.0 / f64::from(frames.0.max(1));
            for (bound, got) in bound.iter_mut().zip([dry.an_hour, dry.alone, dry.most]) {
                *bound = bound.min(got).min(fills);
            }
            let [an_hour, alone, most] = bound;
            let in_an_hour = -(-an_hour).exp_m1();
            (at, Buffer { frames: frames.0, length, an_hour, alone, most, in_an_hour })
        })
        .collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, buffer)| buffer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_run_predicts_levels_buffers_and_claims() {
        let mut run = example::run();
        run.lasted = Some(Nanos::from_secs(30));
        let ask = Ask {
            claims: vec![
                (Nanos::from_secs(1), Nanos::from_secs(3600)),
                (Nanos::from_micros(10), Nanos::from_secs(60)),
            ],
            ..Ask::default()
        };
        let it = predict(std::slice::from_ref(&run), &ask);
        assert_eq!(it.percentiles[0].name, "p50");
        assert!(it.tail.is_some() != it.no_fit.is_empty() || it.tail.is_some());
        assert_eq!(it.claims[0].verdict, ClaimVerdict::TooShort);
        assert!(it.claims[0].sentence.contains("with none above it would show it"));
        assert_eq!(it.claims[1].verdict, ClaimVerdict::Broken);
        assert!(it.buffers.windows(2).all(|two| two[0].an_hour >= two[1].an_hour));
        // Nothing is infinite or no number in JSON.
        let back: Prediction = serde_json::from_str(&serde_json::to_string(&it).unwrap()).unwrap();
        assert_eq!(back.ids, it.ids);
        assert!(predict(&[], &ask).buffers.is_empty());
    }

    #[test]
    fn what_is_predicted_from_a_checkpoint_says_so() {
        let said = |run: Run| {
            let it = predict(&[example::run(), run], &Ask::default());
            it.findings.into_iter().find(|finding| finding.id == "predict.partial")
        };
        assert_eq!(said(example::run()), None);
        let partial = Run { partial: true, ..example::run() };
        assert!(said(partial).expect("said").title.starts_with("1 of 2 "));
    }

    /// A run of 200 us periods in which these stalls happened, every other wake-up near 8 us: stall, number.
    fn stalled(seconds: u64, stalls: &[(u64, u64)]) -> Run {
        let mut run = example::run();
        run.lasted = Some(Nanos::from_secs(seconds));
        let expected = seconds * 5000;
        let mut raw = Vec::new();
        let mut corrected = Vec::new();
        let mut missed = 0;
        for &(stall, times) in stalls {
            for _ in 0..times {
                raw.push(Nanos(stall));
                let lost = stall / 200_000;
                missed += lost;
                corrected.extend((0..=lost).map(|k| Nanos(stall - k * 200_000)));
            }
        }
        let quiet = expected.saturating_sub(missed + raw.len() as u64);
        let calm: Vec<Nanos> = (0..quiet).map(|n| Nanos(7_000 + n % 2000)).collect();
        raw.extend(&calm);
        corrected.extend(&calm);
        let thread = &mut run.threads[0];
        thread.readings = Histogram::of(raw);
        thread.corrected = Some(Histogram::of(corrected));
        (thread.missed, thread.obtained) = (Some(missed), thread.readings.count);
        thread.expected = Some(thread.obtained + missed);
        thread.worst.clear();
        run
    }

    #[test]
    fn one_stall_that_several_wake_ups_saw_is_one() {
        let run = stalled(10, &[(1_200_000, 1)]);
        let it = predict(std::slice::from_ref(&run), &Ask { load: 0.0, ..Ask::default() });
        // 360 times 10 s are an hour; buffers up to 0.67 ms run dry by it, once each time.
        for one in &it.buffers {
            let wanted = if one.length.0 < 1_200_000 { 360.0 } else { 0.0 };
            assert!((one.an_hour - wanted).abs() < 1e-6, "{one:?}");
        }
        let claims = vec![(Nanos::from_micros(500), Nanos::from_secs(3600))];
        let it = predict(&[stalled(10, &[(20_000_000, 1)])], &Ask { claims, ..Ask::default() });
        assert_eq!(it.claims[0].seen, 1);
        // A hundred readings of one stall are no tail.
        assert!(it.tail.is_none() && it.levels.is_empty(), "{:?}", it.tail);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..proptest::prelude::ProptestConfig::with_cases(48) })]
        #[test]
        fn no_buffer_is_dry_more_often_than_filled_and_no_longer_one_more_often(
            stalls in proptest::collection::vec((10_000u64..40_000_000, 1u64..60), 0..6),
            seconds in 1u64..4,
            load in 0.0f64..0.99,
            mut frames in proptest::collection::vec(1u32..8192, 1..12),
        ) {
            let run = stalled(seconds, &stalls);
            let ask = Ask { load, frames: frames.iter().copied().map(Frames).collect(), ..Ask::default() };
            let mut buffers = predict(&[run], &ask).buffers;
            proptest::prop_assert_eq!(buffers.iter().map(|one| one.frames).collect::<Vec<_>>(), frames.clone());
            frames.sort_unstable();
            buffers.sort_by_key(|one| one.frames);
            for one in &buffers {
                let fills = 48_000.0 * 3600.0 / f64::from(one.frames);
                for value in [one.an_hour, one.alone, one.most] {
                    proptest::prop_assert!((0.0..=fills).contains(&value), "{:?}", one);
                }
                proptest::prop_assert!((0.0..=1.0).contains(&one.in_an_hour), "{:?}", one);
            }
            for two in buffers.windows(2) {
                let of = |one: &Buffer| [one.an_hour, one.alone, one.most, one.in_an_hour];
                let falls = of(&two[0]).iter().zip(of(&two[1])).all(|(short, long)| *short >= long);
                proptest::prop_assert!(falls, "{:?}", two);
            }
        }
    }
}
