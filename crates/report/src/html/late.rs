//! Late readings in the order of time.

use super::charts::FORMS;
use crate::svg::{Anchor, Mark, Scale, Svg, tick};
use maud::{Markup, PreEscaped, html};
use quiet_types::{Nanos, Run};

/// Width of a letter of a legend.
const LETTER: f64 = 7.4;

/// Readings of one line that are kept with their time.
pub(super) struct LateTrack {
    /// For the legend.
    pub name: String,
    /// Its colour and mark.
    pub class: &'static str,
    /// When each was, and how late.
    pub points: Vec<(Nanos, Nanos)>,
}

impl LateTrack {
    /// The longest readings of some runs, each by its own clock.
    pub(super) fn of(name: String, class: &'static str, runs: &[&Run]) -> LateTrack {
        let threads = runs.iter().flat_map(|run| &run.threads);
        let points = threads.flat_map(|thread| &thread.worst).map(|one| (one.at, one.value));
        LateTrack { name, class, points: points.collect() }
    }
}

/// When the longest readings were; nothing where no times are known.
pub(super) fn late(tracks: &[LateTrack], lasted: Option<Nanos>) -> Markup {
    if tracks.iter().all(|track| track.points.is_empty()) {
        return html! {};
    }
    html! {
        figure {
            (PreEscaped(drawing(tracks, lasted)))
            p.read.screen {}
            figcaption {
                "The longest readings of each run by the time at which they ended. What comes at even distances has a timer behind it; "
                "what comes in heaps, a visitor."
            }
        }
    }
}

fn drawing(tracks: &[LateTrack], lasted: Option<Nanos>) -> String {
    let all = || tracks.iter().flat_map(|track| &track.points);
    let end = all().map(|point| point.0.0).max().unwrap_or(1).max(lasted.map_or(1, |l| l.0)) as f64;
    let least = all().map(|point| point.1.0).min().unwrap_or(1_000).max(1) as f64;
    let most = all().map(|point| point.1.0).max().unwrap_or(1_000_000).max(1) as f64;
    FORMS
        .map(|(class, width)| {
            let (left, right, top) = (64.0, width - 12.0, 30.0);
            let bottom = top + 150.0;
            let y = Scale { low: least / 1.4, high: most * 1.4, from: bottom, to: top };
            let at = |time: Nanos| left + (right - left) * time.0 as f64 / end;
            let mut svg = Svg::new(width, bottom + 40.0);
            for ns in y.decades() {
                svg.line("grid", (left, y.at(ns)), (right, y.at(ns)));
                svg.text("tick", (left - 7.0, y.at(ns) + 4.0), Anchor::End, &tick(ns));
            }
            if y.decades().len() < 2 {
                svg.text(
                    "tick",
                    (left - 7.0, y.at(most) + 4.0),
                    Anchor::End,
                    &Nanos(most as u64).to_string(),
                );
            }
            for part in 0..=4 {
                let time = end * f64::from(part) / 4.0;
                let x = left + (right - left) * f64::from(part) / 4.0;
                svg.line("small", (x, bottom), (x, bottom + 4.0));
                let anchor = match part {
                    0 => Anchor::Start,
                    4 => Anchor::End,
                    _ => Anchor::Middle,
                };
                svg.text("tick", (x, bottom + 18.0), anchor, &format!("{:.3} s", time / 1e9));
            }
            for (index, track) in tracks.iter().enumerate() {
                let mark = if index % 2 == 0 { Mark::Diamond } else { Mark::Circle };
                for (time, value) in &track.points {
                    svg.mark(
                        &format!("mark {}", track.class),
                        mark,
                        (at(*time), y.at(value.0 as f64)),
                        3.0,
                    );
                }
            }
            hits(&mut svg, tracks, (left, right, top, bottom), end);
            let mut x = left;
            for (index, track) in tracks.iter().filter(|track| !track.name.is_empty()).enumerate() {
                let mark = if index % 2 == 0 { Mark::Diamond } else { Mark::Circle };
                // The whole names are elsewhere on the page.
                let room = ((right - x - 16.0) / LETTER).max(0.0) as usize;
                if room < 3 {
                    break;
                }
                let mut name: String = track.name.chars().take(room).collect();
                if name.len() < track.name.len() {
                    name.pop();
                    name.push('…');
                }
                svg.mark(&format!("mark {}", track.class), mark, (x + 6.0, 9.0), 3.6);
                svg.text("legend", (x + 16.0, 13.0), Anchor::Start, &name);
                x += 34.0 + LETTER * name.chars().count() as f64;
            }
            svg.finish(&format!("chart {class}"), "The longest readings over time")
        })
        .concat()
}

/// Columns to point at.
fn hits(
    svg: &mut Svg,
    tracks: &[LateTrack],
    (left, right, top, bottom): (f64, f64, f64, f64),
    end: f64,
) {
    let columns = 60u32;
    let step = end / f64::from(columns);
    for column in 0..columns {
        let from = step * f64::from(column);
        let is_here = |at: f64| at >= from && (at < from + step || column + 1 == columns);
        let said: Vec<String> = tracks
            .iter()
            .flat_map(|track| track.points.iter().map(move |point| (track, point)))
            .filter(|(_, (at, _))| is_here(at.0 as f64))
            .take(4)
            .map(|(track, (at, value))| format!("{} {value} at {at}", track.name))
            .collect();
        if !said.is_empty() {
            let wide = (right - left) / f64::from(columns);
            let x = left + wide * f64::from(column);
            svg.hit(said.join("; ").trim(), (x, top), (wide, bottom - top));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_late_reading_has_its_mark_and_is_told() {
        let points = vec![(Nanos(0), Nanos(5_000)), (Nanos(2_000_000_000), Nanos(900_000))];
        let track = LateTrack { name: "<x>".into(), class: "a", points };
        let drawn = late(&[track], Some(Nanos::from_secs(2))).into_string();
        // Two marks and one of the legend, in both forms.
        assert_eq!(drawn.matches(r#"<path class="mark a""#).count(), 6, "{drawn}");
        assert!(drawn.contains("900 us at 2 s") || drawn.contains("900 us at"), "{drawn}");
        assert!(!drawn.contains("<x>") && !drawn.contains("NaN"), "{drawn}");
        let none = LateTrack { name: String::new(), class: "a", points: vec![] };
        assert_eq!(late(&[none], None).into_string(), "");
    }
}
