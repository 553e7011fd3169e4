//! A prediction as text.

use crate::text::{Column, Table, findings_text, wrap};
use quiet_types::{Nanos, prediction::Prediction, printable, words};
use std::fmt::Write;

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
    text.push_str(&causes(it, width));
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
                words::rare(one.an_hour),
                words::rare(one.alone),
                words::rare(one.most),
                if one.in_an_hour < words::RAREST {
                    words::rare(one.in_an_hour)
                } else {
                    words::share(one.in_an_hour)
                },
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

/// The causes of a prediction as text; empty where there are none.
fn causes(it: &Prediction, width: usize) -> String {
    if it.causes.is_empty() {
        return String::new();
    }
    let mut text = "\n".to_owned();
    let mut table = Table::new([
        Column::Left("most of the late reading was"),
        Column::Right("readings"),
        Column::Right("an hour"),
        Column::Right("largest"),
        Column::Right("shape"),
        Column::Right("p"),
    ])
    .yields(&["p", "shape", "an hour"]);
    for one in &it.causes {
        let fit = one.fit.as_ref();
        table.row([
            printable(&one.title, 50),
            words::count(one.readings),
            words::significant(one.an_hour),
            one.largest.to_string(),
            fit.map_or("no fit".to_owned(), |fit| format!("{:.2}", fit.shape)),
            fit.map_or(String::new(), |fit| words::p_value(fit.goodness)),
        ]);
    }
    text.push_str(&table.text(width));
    let levels: Vec<String> = it
        .by_cause
        .iter()
        .map(|level| {
            let high =
                level.high.map_or("no end".to_owned(), |high| Nanos(high as u64).to_string());
            let (value, low) = (Nanos(level.value as u64), Nanos(level.low as u64));
            format!("{} {value} [{low}, {high}]", level.name)
        })
        .collect();
    let line = if it.no_mixture.is_empty() {
        format!("all causes together: {} [95 % intervals]", levels.join(", "))
    } else {
        format!("all causes together: not told: {}", it.no_mixture)
    };
    let _ = writeln!(text, "{}", wrap(&line, width, 2));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::{Ask, example, predict};
    use quiet_types::prediction::{Bounded, CauseTail};

    #[test]
    fn buffers_and_claims_stand_in_the_text_and_no_risk_is_shown_as_none() {
        let mut run = example::run();
        run.lasted = Some(Nanos::from_secs(30));
        let claims = vec![(Nanos::from_secs(1), Nanos::from_secs(3600))];
        let text = prediction_text(&predict(&[run], &Ask { claims, ..Ask::default() }), 100);
        assert!(text.contains("dry an hour") && text.contains("claim: no more than one"), "{text}");
        assert!(text.contains("<1e-6"), "{text}");
    }

    #[test]
    fn causes_stand_in_a_table_with_their_levels_below() {
        let mut it = Prediction::default();
        assert_eq!(causes(&it, 100), "");
        it.causes =
            vec![CauseTail { title: "the tick".into(), readings: 50, ..CauseTail::default() }];
        let minute = Bounded { name: "once a minute".into(), value: 2e6, low: 1e6, high: None };
        it.by_cause = vec![minute];
        let text = causes(&it, 100);
        assert!(text.contains("the tick"), "{text}");
        assert!(
            text.contains("all causes together: once a minute 2.00 ms [1.00 ms, no end]"),
            "{text}"
        );
        it.no_mixture = "one fits nothing".into();
        assert!(causes(&it, 100).contains("not told: one fits nothing"));
    }
}
