//! Round trips: where the time goes, and the text.

use crate::{
    html,
    text::{Column, Table, findings_text, wrap},
};
use maud::html;
use quiet_types::{
    history::BySound,
    printable,
    trip::{BudgetPart, BudgetSource, Opening, RoundTrip, Spread},
};
use std::fmt::Write;

/// A round trip for a terminal `width` characters wide.
pub fn trip_text(trip: &RoundTrip, width: usize) -> String {
    let mut text = String::new();
    let asked = format!(
        "{}; {} frames a second, period {}, ring {}, {}",
        printable(&trip.device, 200),
        trip.rate,
        trip.period,
        trip.buffer,
        trip.mode
    );
    let _ = writeln!(text, "{}\n", wrap(&asked, width, 2));
    text.push_str(&cycles(&trip.cycles).text(width));
    for (at, cycle) in trip.cycles.iter().enumerate().filter(|(_, c)| !c.wrong.is_empty()) {
        let line = format!("cycle {}: {}", at + 1, printable(&cycle.wrong, 600));
        let _ = writeln!(text, "{}", wrap(&line, width, 2));
    }
    if let Some(spread) = &trip.spread {
        let _ = writeln!(text, "\n{}", wrap(&summary(spread, trip.rate), width, 2));
        text.push('\n');
        text.push_str(&parts(&trip.budget).text(width));
    }
    if !trip.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&trip.findings, width));
    }
    text
}

/// A round trip in a line of the history.
pub fn trip_line(trip: &RoundTrip) -> BySound {
    let said = match &trip.spread {
        Some(spread) => summary(spread, trip.rate),
        None => "no round trip could be told".to_owned(),
    };
    BySound { head: trip.head.clone(), device: trip.device.clone(), said }
}

/// One self-contained HTML page: the cycles, and where the time goes.
pub fn trip_page(trip: &RoundTrip) -> String {
    let title = format!("Round trip of {}", printable(&trip.device, 120));
    let table = |table: &Table| {
        let (head, rows) = table.cells();
        html! {
            // So many columns are cards on a phone, each figure with its name.
            div.box tabindex="0" { table.cards[head.len() > 8] {
                thead { tr { @for (name, right) in &head { th.n[*right] { (name) } } } }
                tbody { @for row in rows { tr {
                    @for (cell, (name, right)) in row.iter().zip(&head) { td.n[*right] data-name=(name) { (cell) } }
                } } }
            } }
        }
    };
    let body = html! {
        header {
            p.over { "quietcores roundtrip of " (trip.head.host.name) ", " (trip.head.started) }
            h1.plain { (title) }
            p.why {
                (trip.rate) " frames a second, period " (trip.period) ", ring " (trip.buffer) ", " (trip.mode)
            }
        }
        h2 { (trip_line(trip).said) }
        (table(&cycles(&trip.cycles)))
        @for (at, cycle) in trip.cycles.iter().enumerate().filter(|(_, c)| !c.wrong.is_empty()) {
            p.why { "cycle " (at + 1) ": " (printable(&cycle.wrong, 600)) }
        }
        @if trip.spread.is_some() {
            h2 { "Where the time goes" }
            @if let Some(fall) = html::waterfall(&trip.budget) {
                figure {
                    (maud::PreEscaped(fall))
                    p.read.screen {}
                    figcaption { "What adds up stands end to end: the strip, the ring, the rest. Pale bars are within another one." }
                }
            }
            (table(&parts(&trip.budget)))
        }
        (html::findings(&trip.findings))
        (html::host(&trip.head.host))
        (html::data(&trip.head.id))
    };
    let json = serde_json::to_string(trip).unwrap_or_default();
    html::page(&title, &trip.head.host.program, &body, &json)
}

fn summary(spread: &Spread, rate: u32) -> String {
    let ms = |frames: f64| frames / f64::from(rate.max(1)) * 1e3;
    let mut line = format!("round trip {:.3} frames, {:.4} ms", spread.median, ms(spread.median));
    if spread.cycles > 1 {
        let _ = write!(
            line,
            " (median of {} cycles; {:.3} to {:.3}, standard deviation {:.4})",
            spread.cycles, spread.least, spread.most, spread.deviation
        );
    }
    line
}

fn cycles(cycles: &[Opening]) -> Table {
    let mut table = Table::new([
        Column::Right("cycle"),
        Column::Right("frames"),
        Column::Right("+-"),
        Column::Right("ms"),
        Column::Right("sweep"),
        Column::Left("polarity"),
        Column::Right("drift ppm"),
        Column::Right("gain dB"),
        Column::Right("SNR dB"),
        Column::Right("doubt"),
        Column::Right("disturbed"),
    ])
    .yields(&["sweep", "doubt", "drift ppm", "gain dB", "polarity", "SNR dB", "disturbed"]);
    for (at, cycle) in cycles.iter().enumerate() {
        let mut row = vec![(at + 1).to_string()];
        match &cycle.heard {
            Some(heard) => row.extend([
                format!("{:.3}", heard.frames),
                format!("{:.3}", heard.uncertainty),
                format!("{:.4}", heard.milliseconds),
                format!("{:.2}", heard.sweep_before),
                if heard.inverted { "inverted" } else { "upright" }.to_owned(),
                format!("{:+.2}", heard.drift_ppm),
                format!("{:+.1}", heard.gain_db),
                format!("{:.0}", heard.snr_db),
                format!("{:.3}", heard.doubt),
            ]),
            None => row.extend(std::iter::repeat_n("-".to_owned(), 9)),
        }
        row.push(cycle.disturbed.to_string());
        table.row(row);
    }
    table
}

fn parts(budget: &[BudgetPart]) -> Table {
    let mut table = Table::new([
        Column::Left("the way"),
        Column::Right("frames"),
        Column::Right("ms"),
        Column::Right("slides ms"),
        Column::Left(""),
    ]);
    for part in budget {
        let shown = |value: Option<f64>, digits: usize| match (value, part.source) {
            (Some(value), _) => format!("{value:.digits$}"),
            (None, BudgetSource::Unknown) => "unknown".to_owned(),
            (None, _) => "-".to_owned(),
        };
        let slides = match part.slides {
            Some(ms) => format!("{ms}"),
            None if matches!(part.name.as_str(), "ADC" | "DAC") => "unknown".to_owned(),
            None => String::new(),
        };
        table.row([
            part.name.clone(),
            shown(part.frames, 2),
            shown(part.milliseconds, 4),
            slides,
            printable(&part.note, 100),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::example::{opening, round_trip};

    #[test]
    fn the_text_holds_its_width_and_no_escape_of_a_device() {
        let text = trip_text(&round_trip(vec![opening(115.2), opening(115.3)]), 120);
        assert!(text.contains("round trip 115.250 frames, 1.2005 ms"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }
}
