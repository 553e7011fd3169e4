//! What the readings say about longer times than were measured.

use crate::{
    stats::{
        buffer::Delays,
        tail::{self, Level, Shown, Tail},
    },
    text::{Column, Table, findings_text, wrap},
    words,
};
use quiet_types::{
    Finding, Frames, Histogram, Nanos, Run, SampleRate, Severity,
    prediction::{Bounded, Buffer, ClaimVerdict, Claimed, Prediction, SCHEMA, TailFit},
    printable,
    run::Probe,
};
use std::fmt::Write;

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
    let seconds: f64 =
        runs.iter().map(|run| run.lasted.as_secs_f64() * run.threads.len() as f64).sum();
    let mut findings = Vec::new();
    let found = tail::tail(&all);
    let (fit, no_fit) = match &found {
        Tail::Fitted(fit) => (Some(fit), String::new()),
        Tail::NoFit(why) => (None, why.clone()),
    };
    let bounded = |name: &str, level: Level| Bounded {
        name: name.to_owned(),
        value: level.value,
        low: level.low,
        high: level.high.is_finite().then_some(level.high),
    };
    let percentiles = PERCENTILES
        .iter()
        .filter_map(|(name, q)| Some(bounded(name, tail::percentile(&all, *q)?)))
        .collect();
    let a_second = all.count as f64 / seconds.max(1e-9);
    let levels = TIMES
        .iter()
        .filter_map(|(name, every)| {
            let level = fit?.level(a_second * *every as f64)?;
            Some(bounded(name, level))
        })
        .collect();
    if let Some(fit) = fit {
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
    }
    if runs.len() > 1 && !alike(runs) {
        findings.push(
            Finding::new(Severity::Warning, "predict.unlike", "the runs did not ask the same")
                .effect("their readings are of several kinds, and the levels of none of them"),
        );
    }
    let claims =
        ask.claims.iter().map(|(limit, every)| claimed(&all, seconds, *limit, *every)).collect();
    let buffers = runs.first().map_or(Vec::new(), |first| buffers(first, &all, seconds, ask));
    Prediction {
        schema: SCHEMA.to_owned(),
        ids: runs.iter().map(|run| run.id.clone()).collect(),
        readings: all.count,
        lasted: Nanos((seconds * 1e9) as u64),
        percentiles,
        tail: fit.map(|fit| TailFit {
            threshold: Nanos(fit.threshold as u64),
            excesses: fit.excesses,
            shape: fit.shape,
            shape_error: fit.shape_error,
            scale: fit.scale,
            goodness: fit.goodness,
            end: fit.end(),
        }),
        no_fit,
        levels,
        claims,
        buffers,
        findings,
    }
}

fn alike(runs: &[Run]) -> bool {
    let kind = |run: &Run| {
        let tool = run.origin.as_ref().map(|origin| origin.format.clone());
        (run.spec.probe, run.spec.policy, run.host.release.clone(), tool)
    };
    runs.windows(2).all(|two| kind(&two[0]) == kind(&two[1]))
}

fn claimed(all: &Histogram, seconds: f64, limit: Nanos, every: Nanos) -> Claimed {
    let seen = all.above(limit);
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
pub(crate) fn buffers_of(runs: &[&Run], ask: &Ask) -> Vec<Buffer> {
    let Some(first) = runs.first() else { return Vec::new() };
    let mut all = Histogram::default();
    runs.iter().for_each(|run| all.merge(&run.readings()));
    let seconds = runs.iter().map(|run| run.lasted.as_secs_f64() * run.threads.len() as f64).sum();
    buffers(first, &all, seconds, ask)
}

/// A buffer of n frames holds two periods: what is late may take n frames less the work of one.
fn buffers(first: &Run, all: &Histogram, seconds: f64, ask: &Ask) -> Vec<Buffer> {
    let least = match first.spec.probe {
        Probe::Gap => first.spec.threshold,
        Probe::Wakeup { .. } => all.percentile(0.5).unwrap_or_default(),
    };
    let Some(delays) = Delays::new(all, least, seconds, ask.load) else { return Vec::new() };
    ask.frames
        .iter()
        .map(|frames| {
            let length = frames.lasting(ask.rate);
            let slack = Nanos((length.0 as f64 * (1.0 - ask.load / 2.0)) as u64);
            let dry = delays.dry(slack);
            Buffer {
                frames: frames.0,
                length,
                an_hour: dry.an_hour,
                alone: dry.alone,
                most: dry.most,
                in_an_hour: dry.in_an_hour,
            }
        })
        .collect()
}

fn span(low: f64, high: Option<f64>) -> String {
    let time = |ns: f64| Nanos(ns.max(0.0) as u64).to_string();
    format!("[{}, {}]", time(low), high.map_or("no bound".to_owned(), time))
}

/// A prediction as text, at most `width` columns wide.
pub fn prediction_text(it: &Prediction, width: usize) -> String {
    let width = width.max(20);
    let runs =
        if it.ids.len() == 1 { "1 run".to_owned() } else { format!("{} runs", it.ids.len()) };
    let mut text = format!("{runs}, {} readings in {}\n\n", words::count(it.readings), it.lasted);
    let time = |ns: f64| Nanos(ns.max(0.0) as u64).to_string();
    let mut table =
        Table::new([Column::Left("level"), Column::Right("value"), Column::Left("95 % interval")]);
    for one in it.percentiles.iter().chain(&it.levels) {
        table.row([one.name.clone(), time(one.value), span(one.low, one.high)]);
    }
    text.push_str(&table.text(width));
    text.push('\n');
    let line = match &it.tail {
        Some(fit) => format!(
            "tail: generalized Pareto above {}, {} readings, shape {:.2} +- {:.2}, goodness p {}{}",
            fit.threshold,
            words::count(fit.excesses),
            fit.shape,
            fit.shape_error,
            words::p_value(fit.goodness),
            fit.end.map_or(String::new(), |end| format!(", ends at {}", time(end)))
        ),
        None => format!("tail: no fit: {}; nothing is said beyond what was seen", it.no_fit),
    };
    let _ = writeln!(text, "{}", wrap(&line, width, 2));
    for claim in &it.claims {
        let _ = writeln!(text, "{}", wrap(&format!("claim: {}", claim.sentence), width, 2));
    }
    if !it.buffers.is_empty() {
        text.push('\n');
        let mut table = Table::new([
            Column::Right("buffer"),
            Column::Right("length"),
            Column::Right("dry an hour"),
            Column::Right("alone"),
            Column::Right("at most"),
            Column::Right("chance in an hour"),
        ]);
        for one in &it.buffers {
            table.row([
                one.frames.to_string(),
                one.length.to_string(),
                words::significant(one.an_hour),
                words::significant(one.alone),
                words::significant(one.most),
                words::share(one.in_an_hour),
            ]);
        }
        text.push_str(&table.text(width));
    }
    if !it.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&it.findings, width));
    }
    printable_lines(&text)
}

/// Ids and reasons come from files: no control character but the line break.
fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line, 400))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_run_predicts_levels_buffers_and_claims() {
        let mut run = example::run();
        run.lasted = Nanos::from_secs(30);
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
        let text = prediction_text(&it, 100);
        assert!(text.contains("dry an hour") && text.contains("claim: no more than one"), "{text}");
        // Nothing is infinite or no number in JSON.
        let back: Prediction = serde_json::from_str(&serde_json::to_string(&it).unwrap()).unwrap();
        assert_eq!(back.ids, it.ids);
        assert!(predict(&[], &ask).buffers.is_empty());
    }
}
