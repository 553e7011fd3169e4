//! A figure over time: one point a run, a line where something else changed.

use super::charts::FORMS;
use crate::svg::{Anchor, Mark, Scale, Svg, tick};
use quiet_types::Nanos;

/// One line of points.
pub(crate) struct Track {
    /// For the legend.
    pub name: String,
    /// `a`, `b` ...
    pub class: &'static str,
    /// Place in the order of time, the figure, and what is said of it.
    pub points: Vec<(usize, Nanos, String)>,
}

/// The figure of every run in the order of time. `marks` are places before which something changed,
/// with its name; `ends` are the times of the first and the last run.
pub(crate) fn course(
    tracks: &[Track],
    marks: &[(usize, String)],
    ends: (&str, &str),
    title: &str,
) -> String {
    let all = || tracks.iter().flat_map(|track| &track.points);
    let count = all().map(|point| point.0 + 1).max().unwrap_or(1);
    let least = all().map(|point| point.1.0).min().unwrap_or(1_000).max(1) as f64;
    let most = all().map(|point| point.1.0).max().unwrap_or(1_000_000).max(1) as f64;
    FORMS
        .map(|(class, width)| {
            let named = tracks.iter().filter(|track| !track.name.is_empty()).count();
            let columns = if class == "wide" { 3 } else { 1 };
            let rows = named.div_ceil(columns) as f64 * 18.0;
            let (left, right, top) = (64.0, width - 12.0, 12.0 + rows);
            let bottom = top + if class == "wide" { 220.0 } else { 190.0 };
            let y = Scale { low: least / 1.4, high: most * 1.4, from: bottom, to: top };
            let at = |place: usize| left + (right - left) * (place as f64 + 0.5) / count as f64;
            let mut svg = Svg::new(width, bottom + 34.0);
            let decades = y.decades();
            for ns in &decades {
                svg.line("grid", (left, y.at(*ns)), (right, y.at(*ns)));
                svg.text("tick", (left - 7.0, y.at(*ns) + 4.0), Anchor::End, &tick(*ns));
            }
            if decades.len() < 2 {
                // Too narrow for decades: its two ends are told.
                for ns in [least, most] {
                    let text = Nanos(ns as u64).to_string();
                    svg.text("tick", (left - 7.0, y.at(ns) + 4.0), Anchor::End, &text);
                }
            }
            let mut free = f64::MIN;
            for (place, name) in marks {
                let x = left + (right - left) * *place as f64 / count as f64;
                svg.line("limit", (x, top), (x, bottom));
                if x >= free {
                    let room = ((right - x) / 7.0) as usize;
                    let name = quiet_types::printable(name, room.clamp(4, 24));
                    svg.text("limit", (x + 4.0, top + 11.0), Anchor::Start, &name);
                    free = x + 7.0 * name.chars().count() as f64 + 8.0;
                }
            }
            let size = if count > 200 { 1.6 } else { 3.2 };
            for (index, track) in tracks.iter().enumerate() {
                let mark = if index % 2 == 0 { Mark::Diamond } else { Mark::Circle };
                let class = format!("mark {}", track.class);
                let points: Vec<(f64, f64)> =
                    track.points.iter().map(|p| (at(p.0), y.at(p.1.0 as f64))).collect();
                svg.path(&format!("thin {}", track.class), &points);
                for point in points {
                    svg.mark(&class, mark, point, size);
                }
            }
            // Some 150 columns to point at, however many runs there are.
            let step = count.div_ceil(150);
            for from in (0..count).step_by(step) {
                let here = all().filter(|point| (from..from + step).contains(&point.0));
                let said: Vec<&str> = here.take(4).map(|point| point.2.as_str()).collect();
                if !said.is_empty() {
                    let (x, next) = (
                        left + (right - left) * from as f64 / count as f64,
                        left + (right - left) * (from + step).min(count) as f64 / count as f64,
                    );
                    svg.hit(&said.join("; "), (x, top), (next - x, bottom - top));
                }
            }
            svg.text("tick", (left, bottom + 17.0), Anchor::Start, ends.0);
            svg.text("tick", (right, bottom + 17.0), Anchor::End, ends.1);
            let legend = tracks.iter().filter(|track| !track.name.is_empty());
            for (index, track) in legend.enumerate() {
                let wide = (right - left) / columns as f64;
                let (x, line) =
                    (left + wide * (index % columns) as f64, (index / columns) as f64 * 18.0);
                let mark = if index % 2 == 0 { Mark::Diamond } else { Mark::Circle };
                svg.mark(&format!("mark {}", track.class), mark, (x + 6.0, line + 9.0), 3.6);
                let name = quiet_types::printable(&track.name, (wide / 7.2) as usize - 3);
                svg.text("legend", (x + 16.0, line + 13.0), Anchor::Start, &name);
            }
            svg.finish(&format!("chart {class}"), title)
        })
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_mark_and_nothing_makes_no_nonsense() {
        let points = (0..5).map(|n| (n, Nanos(1000 << n), format!("run <{n}>"))).collect();
        let track = Track { name: "x".into(), class: "a", points };
        let chart = course(&[track], &[(2, "kernel <6>".into())], ("then", "now"), "p99");
        // Five marks and one of the legend, in both forms.
        assert_eq!(chart.matches(r#"<path class="mark a""#).count(), 12);
        assert!(chart.contains("kernel &lt;6") && !chart.contains("run <"), "{chart}");
        let none = course(&[], &[], ("", ""), "p99");
        assert!(none.starts_with("<svg") && !none.contains("NaN"));
    }
}
