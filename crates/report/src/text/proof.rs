//! A proof as text: the verdict first.

use super::{Column, Table, findings_text, wrap};
use quiet_judge::throughput;
use quiet_types::words;
use quiet_types::{
    Nanos, Proof, printable,
    proof::{Arm, Setting},
};
use std::fmt::Write;

/// Causes that are listed.
const CAUSES: usize = 8;

/// A proof for a terminal `width` characters wide: the verdict in a sentence, the figures with
/// their intervals, maxima and stress by setting, how the machine was left, findings. Ends with a
/// line break.
pub fn proof_text(proof: &Proof, width: usize) -> String {
    let width = width.max(20);
    let mut text = String::new();
    let _ = writeln!(text, "{}\n", wrap(&printable(&proof.sentence, 1000), width, 0));
    if !proof.figures.is_empty() {
        text.push_str(&figures(proof).text(width));
        text.push('\n');
        for note in words::notes(&proof.figures) {
            let _ = writeln!(text, "{}", wrap(&printable(&note, 600), width, 2));
        }
        text.push_str(
            "medians over pairs, [95 % bootstrap interval]; a verdict also needs p <= 0.05 of\n\
             the exact sign-flip test, all figures of the table taken together\n",
        );
        let _ = writeln!(text, "{}\n", wrap(&lot(proof), width, 2));
    }
    text.push_str(&settings(proof).text(width));
    text.push_str(&causes(proof, width));
    let restored = restored(proof);
    let _ = writeln!(text, "\n{}", wrap(&restored, width, 2));
    if !proof.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&proof.findings, width));
    }
    text
}

/// How the order within each pair came about, and what it did.
pub(crate) fn lot(proof: &Proof) -> String {
    let mut text = match proof.lot {
        None => "the order within each pair was fixed, not drawn".to_owned(),
        Some(lot) => format!("the order within each pair was drawn by lot (--seed {})", lot.seed),
    };
    if let Some(order) = &proof.order {
        let _ = write!(
            text,
            ": shared first in {}, second in {}; second run by first {} in p99, p {}",
            order.base_first,
            order.other_first,
            words::ratio(order.ratio),
            words::p_value(order.p_value)
        );
    }
    text
}

fn figures(proof: &Proof) -> Table {
    let other = match proof.other() {
        Setting::Confined => "confined",
        Setting::Sliced => "sliced",
        _ => "shielded",
    };
    let mut table = Table::new([
        Column::Left("figure"),
        Column::Right("shared"),
        Column::Right(other),
        Column::Left("ratio [interval]"),
        Column::Right("p"),
        Column::Left("verdict"),
    ])
    .yields(&["p"]);
    for figure in &proof.figures {
        let show = |value| words::value(figure.unit, value);
        table.row([
            figure.title.clone(),
            show(figure.shared.median),
            show(figure.shielded.median),
            words::ratio_between(figure.ratio),
            words::p_value(figure.p_value),
            figure.verdict.to_string(),
        ]);
    }
    table
}

/// What is shown by setting and never judged: the largest reading, and what the stress did.
fn settings(proof: &Proof) -> Table {
    let mut table = Table::new([
        Column::Left("setting"),
        Column::Right("runs"),
        Column::Right("largest reading"),
        Column::Left("stress, operations a second"),
    ]);
    for setting in [Setting::Shared, proof.other()] {
        let runs = proof.arms_of(setting).count();
        let stress: Vec<String> = throughput(proof, setting)
            .iter()
            .map(|(stressor, rate)| {
                format!("{} {}", printable(stressor, 30), words::significant(*rate))
            })
            .collect();
        let max = largest(proof, setting).map_or("-".to_owned(), |max| max.to_string());
        table.row([setting.to_string(), runs.to_string(), max, stress.join(", ")]);
    }
    table
}

/// Who took time in each setting, for each second measured; empty where that was not asked.
fn causes(proof: &Proof, width: usize) -> String {
    let sets = [Setting::Shared, proof.other()].map(|setting| {
        let arms = proof.arms_of(setting).filter(|arm| arm.void.is_none());
        (setting.to_string(), arms.map(|arm| &arm.wakeup).collect::<Vec<_>>())
    });
    let rows = quiet_judge::causes::side_by_side(&sets);
    if rows.is_empty() {
        return String::new();
    }
    let other = match proof.other() {
        Setting::Confined => "confined",
        Setting::Sliced => "sliced",
        _ => "shielded",
    };
    let mut table = Table::new([
        Column::Left("who took time, for each second measured"),
        Column::Right("shared"),
        Column::Right(other),
    ]);
    let shown = |rate: &Option<Nanos>| rate.map_or("-".to_owned(), |rate| rate.to_string());
    for (title, rates) in rows.iter().take(CAUSES) {
        table.row([printable(title, 60), shown(&rates[0]), shown(&rates[1])]);
    }
    let mut text = format!("\n{}", table.text(width));
    if rows.len() > CAUSES {
        let _ = writeln!(text, "and {} more, which took less", rows.len() - CAUSES);
    }
    text
}

/// The largest reading of all runs in one setting.
pub(crate) fn largest(proof: &Proof, setting: Setting) -> Option<Nanos> {
    proof.arms_of(setting).filter_map(|arm: &Arm| arm.wakeup.readings().max).max()
}

/// How the machine was left, in a sentence.
pub(crate) fn restored(proof: &Proof) -> String {
    match &proof.restored {
        None => "Nothing on the machine had been changed.".to_owned(),
        Some(restored) if restored.exact => {
            "The machine is exactly as it was before: every setting was read back.".to_owned()
        }
        Some(restored) => format!(
            "The machine is NOT as it was before: {}",
            printable(&restored.differences.join("; "), 2000)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::example;

    #[test]
    fn the_verdict_comes_first_and_every_figure_has_its_line() {
        let proof = example::proof();
        let text = proof_text(&proof, 100);
        assert!(text.starts_with("Better: "), "{text}");
        for figure in &proof.figures {
            assert!(text.lines().any(|line| line.starts_with(&figure.title)), "{}", figure.title);
        }
        assert!(text.contains("The machine is exactly as it was before"));
    }

    #[test]
    fn causes_of_both_settings_stand_side_by_side() {
        let mut proof = example::proof();
        assert!(!proof_text(&proof, 100).contains("who took time"));
        for arm in &mut proof.arms {
            // A hundredth of the measured time, or a millionth.
            let part = if arm.setting == Setting::Shared { 20_000_000 } else { 2_000 };
            let explained = serde_json::json!({
                "schema": quiet_types::explain::SCHEMA, "started": "", "lasted": 2_000_000_000,
                "host": arm.wakeup.host, "source": "trace", "threshold": 1000, "findings": [],
                "cpus": [{
                    "cpu": 1, "readings": 1, "explained": 1, "total": part, "named": part, "host": 0,
                    "unexplained": 0, "worst": [],
                    "causes": [{
                        "cause": { "kind": "task", "name": "hog", "priority": 95 }, "title": "task hog",
                        "total": part, "around": 0, "times": 1, "longest": part, "readings": 1, "knob": ""
                    }]
                }]
            });
            arm.wakeup.explained = Some(serde_json::from_value(explained).unwrap());
        }
        let text = proof_text(&proof, 100);
        let line = text.lines().find(|line| line.starts_with("task hog")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[words.len() - 4..], ["10.0", "ms", "1.00", "us"], "{line}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [80, 100] {
            for line in proof_text(&example::proof(), width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}
