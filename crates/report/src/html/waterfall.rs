//! A round trip as a waterfall: its parts end to end.

use super::charts::FORMS;
use crate::svg::{Anchor, Svg};
use quiet_types::trip::{BudgetPart, BudgetSource};

/// Between a bar and what stands behind it, in px.
const GAP: f64 = 6.0;

/// A bar: its name, where it begins and how long it is, in ms, and its class.
struct Bar<'a> {
    part: &'a BudgetPart,
    from: f64,
    long: f64,
    class: &'static str,
}

/// The parts of a round trip; `None` where the whole is not known.
pub(crate) fn waterfall(budget: &[BudgetPart]) -> Option<String> {
    let whole = budget.iter().find(|part| part.source == BudgetSource::Measured)?;
    let whole_ms = whole.milliseconds.filter(|ms| *ms > 0.0)?;
    let bars = bars(budget);
    let end = bars.iter().map(|bar| bar.from + bar.long).fold(whole_ms, f64::max);
    let long = |bar: &Bar<'_>| format!("{:.3} ms", bar.long);
    // What stands behind the longest bar has to fit in.
    let letters = bars.iter().map(|bar| long(bar).len()).max().unwrap_or_default();
    let room = GAP + 8.0 * letters as f64;
    Some(
        FORMS
            .map(|(class, width)| {
                let (left, right, tall) =
                    (if class == "wide" { 150.0 } else { 122.0 }, width - room, 24.0);
                let x = |ms: f64| left + (right - left) * (ms / end).clamp(0.0, 1.0);
                let mut svg = Svg::new(width, tall * bars.len() as f64 + 6.0);
                for (at, bar) in bars.iter().enumerate() {
                    let y = tall * at as f64 + 4.0;
                    let (from, to) = (x(bar.from), x(bar.from + bar.long));
                    svg.line("grid", (left, y + tall - 4.0), (right, y + tall - 4.0));
                    svg.text("tick", (left - 8.0, y + 13.0), Anchor::End, &bar.part.name);
                    svg.rect(
                        &format!("fall {}", bar.class),
                        (from, y),
                        ((to - from).max(1.0), tall - 8.0),
                    );
                    svg.text("tick", (to + GAP, y + 13.0), Anchor::Start, &long(bar));
                    let said = format!("{}: {:.4} ms, {}", bar.part.name, bar.long, bar.part.note);
                    svg.hit(&said, (0.0, y - 2.0), (width, tall));
                }
                svg.finish(&format!("chart {class}"), "The parts of the round trip, end to end")
            })
            .concat(),
    )
}

/// What is known, in the order of the way. What adds up is what is neither within another one nor the whole.
fn bars(budget: &[BudgetPart]) -> Vec<Bar<'_>> {
    let known = |part: &&BudgetPart| part.milliseconds.is_some_and(|ms| ms > 0.0);
    let adds =
        |part: &BudgetPart| !part.note.contains("within") && part.source != BudgetSource::Measured;
    let mut at = 0.0;
    let mut placed: Vec<(&str, f64, f64)> = Vec::new();
    for part in budget.iter().filter(known).filter(|part| adds(part)) {
        let long = part.milliseconds.unwrap_or_default();
        placed.push((&part.name, at, long));
        at += long;
    }
    let of = |name: &str| placed.iter().find(|one| one.0 == name).copied();
    let bar = |part| {
        let part: &BudgetPart = part;
        let long = part.milliseconds.unwrap_or_default();
        let (from, class) = match (part.source, of(&part.name)) {
            (BudgetSource::Measured, _) => (0.0, "whole"),
            (BudgetSource::Rest, Some((_, from, _))) => (from, "rest"),
            (_, Some((_, from, _))) if adds(part) => (from, ""),
            _ => {
                let around = ["ring", "rest"].into_iter().find(|name| part.note.contains(name));
                let (from, to) =
                    around.and_then(of).map_or((0.0, long), |(_, from, long)| (from, from + long));
                // What is on the way out stands at the end of what it is within.
                let is_last = part.name.contains("playback");
                (if is_last { (to - long).max(from) } else { from }, "within")
            }
        };
        Bar { part, from, long, class }
    };
    budget.iter().filter(known).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::example::{opening, round_trip};

    #[test]
    fn what_adds_up_ends_where_the_round_trip_does() {
        let trip = round_trip(vec![opening(115.2), opening(115.3)]);
        let bars = bars(&trip.budget);
        let whole = bars.iter().find(|bar| bar.class == "whole").unwrap();
        let sum: f64 =
            bars.iter().filter(|bar| ["", "rest"].contains(&bar.class)).map(|bar| bar.long).sum();
        assert!((sum - whole.long).abs() < 1e-9, "{sum} {}", whole.long);
        let ends = bars.iter().filter(|bar| bar.class != "whole").map(|bar| bar.from + bar.long);
        assert!(ends.fold(0.0, f64::max) <= whole.long + 1e-9);
        let drawn = waterfall(&trip.budget).unwrap();
        assert_eq!(drawn.matches("fall whole").count(), 2, "{drawn}");
        assert!(waterfall(&[]).is_none());
    }

    /// The first attribute of this name.
    fn number(drawn: &str, name: &str) -> f64 {
        let (_, from) = drawn.split_once(&format!(" {name}=\"")).unwrap();
        from.split_once('"').unwrap().0.parse().unwrap()
    }

    #[test]
    fn what_stands_behind_the_longest_bar_is_not_cut_off() {
        let mut trip = round_trip(vec![opening(115.2), opening(115.3)]);
        for times in [1.0, 10.0, 1000.0] {
            for part in &mut trip.budget {
                part.milliseconds = part.milliseconds.map(|ms| ms * times);
            }
            for drawn in waterfall(&trip.budget).unwrap().split_inclusive("</svg>") {
                let width = number(drawn, "width");
                for text in drawn.split("<text").filter(|text| text.contains("=\"start\"")) {
                    let x = number(text, "x");
                    let said = text.split(['>', '<']).nth(1).unwrap();
                    assert!(x + 8.0 * said.len() as f64 <= width + 0.1, "{said} at {x} of {width}");
                }
            }
        }
    }
}
