//! The demonstration: as text, as a page that shows both parts side by side, and as sound in which the gaps are heard.

mod song;
mod wav;

use crate::{
    html,
    svg::{Anchor, Svg},
    text::{Column, Table, findings_text, wrap},
};
use maud::{Markup, PreEscaped, html as markup};
use quiet_types::{
    Nanos,
    demo::{DemoPart, Demonstration},
    printable,
};
use std::fmt::Write;

/// Frames a second of the sound in the page: small enough to be part of it.
const SMALL: u32 = 16_000;
/// Longest sound of a part in the page, s.
const SHOWN: f64 = 12.0;
/// Silence between the parts of the file, s.
const BETWEEN: f64 = 0.7;

/// For a terminal `width` characters wide.
pub fn demo_text(demo: &Demonstration, width: usize) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}\n", wrap(&printable(&demo.sentence, 300), width, 2));
    text.push_str(&table(demo).text(width));
    let _ = writeln!(text);
    for line in explanation(demo) {
        let _ = writeln!(text, "{}", wrap(&line, width, 2));
    }
    if !demo.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&demo.findings, width));
    }
    text
}

/// Both parts one behind the other, as a card would have played them: a lost period is silence. One channel, 16 bits.
pub fn demo_wav(demo: &Demonstration) -> Vec<u8> {
    let mut sound = Vec::new();
    for (at, part) in demo.parts.iter().enumerate() {
        if at > 0 {
            sound.extend(vec![0.0; (BETWEEN * f64::from(demo.rate)) as usize]);
        }
        sound.extend(heard(demo, part, 0.0, seconds(part.lasted), demo.rate));
    }
    wav::wav(&sound, demo.rate)
}

/// One self-contained HTML page, with the sound in it.
pub fn demo_page(demo: &Demonstration) -> String {
    let figures = table(demo);
    let (head, rows) = figures.cells();
    let body = markup! {
        header {
            p.over { "quietcores demo of " (demo.head.host.name) ", " (demo.head.started) }
            h1.plain { (demo.sentence) }
            @for line in explanation(demo) { p.why { (line) } }
        }
        @for part in &demo.parts { (shown(demo, part)) }
        h2 { "In figures" }
        div.box tabindex="0" { table {
            thead { tr { @for (name, right) in &head { th.n[*right] { (name) } } } }
            tbody { @for row in rows { tr {
                @for (cell, (_, right)) in row.iter().zip(&head) { td.n[*right] { (cell) } }
            } } }
        } }
        h2 { "What to do next" }
        p { "A proof says with statistics whether it helps on this machine: " code { "sudo quietcores prove" } "." }
        p { "A chain of yours gets its own cores by questions: " code { "sudo quietcores setup" } "." }
        (html::findings(&demo.findings))
        (html::host(&demo.head.host))
        (html::data(&demo.head.id))
    };
    let json = serde_json::to_string(demo).unwrap_or_default();
    html::page(&demo.sentence, &demo.head.host.program, &body, &json)
}

fn explanation(demo: &Demonstration) -> [String; 2] {
    let period = f64::from(demo.period) / f64::from(demo.rate.max(1)) * 1e3;
    [
        format!(
            "The same music was played on CPU {} with the deadlines of a sound card: a period of {} frames every {period:.1} ms, and a ring \
             of {}. There was no card.",
            demo.cpu, demo.period, demo.buffer
        ),
        format!(
            "Planted beside it: {}. Where the thread that plays did not get its CPU in time, a card would have played silence: a gap, \
             heard as a click.",
            demo.planted
        ),
    ]
}

fn table(demo: &Demonstration) -> Table {
    let mut table = Table::new([
        Column::Left("part"),
        Column::Right("played"),
        Column::Right("gaps"),
        Column::Right("periods lost"),
        Column::Right("share"),
        Column::Left("thread"),
    ])
    .yields(&["thread", "share"]);
    for part in &demo.parts {
        let all = (part.periods + part.lost).max(1);
        let thread = match (part.real_time, part.shielded) {
            (true, true) => "real time, shielded",
            (true, false) => "real time",
            (false, true) => "ordinary, shielded",
            (false, false) => "ordinary",
        };
        table.row([
            part.name.clone(),
            part.lasted.to_string(),
            part.count.to_string(),
            part.lost.to_string(),
            format!("{:.2} %", part.lost as f64 / all as f64 * 100.0),
            thread.to_owned(),
        ]);
    }
    table
}

fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

/// Where sound was lost, s.
fn gaps(demo: &Demonstration, part: &DemoPart) -> Vec<(f64, f64)> {
    let period = f64::from(demo.period) / f64::from(demo.rate.max(1));
    // An xrun is seen when it is over: what was lost lies before it.
    let gap = |at: Nanos, missed: u32| {
        let to = seconds(at);
        ((to - f64::from(missed.max(1)) * period).max(0.0), to)
    };
    part.gaps.iter().map(|gap_at| gap(gap_at.at, gap_at.missed)).collect()
}

/// The part from `from` to `to` s as it would have been heard.
fn heard(demo: &Demonstration, part: &DemoPart, from: f64, to: f64, rate: u32) -> Vec<f32> {
    let frame = |time: f64| ((time - from).max(0.0) * f64::from(rate)).round() as usize;
    let mut sound = song::song(to, rate);
    let before = (from * f64::from(rate)).round() as usize;
    sound.drain(..before.min(sound.len()));
    for (begin, end) in gaps(demo, part) {
        let (begin, end) = (frame(begin).min(sound.len()), frame(end).min(sound.len()));
        sound[begin..end].fill(0.0);
    }
    sound
}

/// The stretch of a part that the page has: its last seconds, where each gap is known.
fn stretch(part: &DemoPart) -> (f64, f64) {
    let end = seconds(part.lasted);
    ((end - SHOWN).max(0.0), end)
}

fn shown(demo: &Demonstration, part: &DemoPart) -> Markup {
    let (from, to) = stretch(part);
    let sound = heard(demo, part, from, to, SMALL);
    let source = format!("data:audio/wav;base64,{}", wav::base64(&wav::wav(&sound, SMALL)));
    let (class, title) = match part.name.as_str() {
        "quiet" => ("b", "On a quiet core"),
        _ => ("a", "On a shared CPU"),
    };
    markup! {
        h2 { (title) ": " (part.count) @if part.count == 1 { " gap" } @else { " gaps" } }
        p.why { (part.how) }
        figure {
            (PreEscaped(drawing(demo, part, class, &sound)))
            audio controls="" src=(source) aria-label=(title) {}
            figcaption { "Its last " (format!("{:.0}", to - from)) " s. Below the wave: where sound was lost." }
        }
    }
}

/// The wave by its highest and lowest samples, and the gaps below it.
fn drawing(demo: &Demonstration, part: &DemoPart, class: &str, sound: &[f32]) -> String {
    const WIDTH: usize = 720;
    let mut svg = Svg::new(WIDTH as f64, 132.0);
    let each = sound.len().div_ceil(WIDTH).max(1);
    for (x, columns) in sound.chunks(each).enumerate() {
        let high = columns.iter().copied().fold(0.0_f32, f32::max);
        let low = columns.iter().copied().fold(0.0_f32, f32::min);
        let y = |value: f32| 52.0 - f64::from(value) * 60.0;
        svg.line(
            &format!("{class} thin"),
            (x as f64, y(high)),
            (x as f64, y(low).max(y(high) + 0.5)),
        );
    }
    let (from, to) = stretch(part);
    let x = |time: f64| (time - from) / (to - from).max(1e-9) * WIDTH as f64;
    let mut inside = 0;
    for (begin, end) in gaps(demo, part).into_iter().filter(|(_, end)| *end > from) {
        inside += 1;
        let (begin, end) = (x(begin.max(from)), x(end.min(to)));
        svg.rect(&format!("{class} area gap"), (begin, 108.0), ((end - begin).max(1.0), 12.0));
    }
    svg.line("grid", (0.0, 120.5), (WIDTH as f64, 120.5));
    svg.text("", (0.0, 131.0), Anchor::Start, &format!("{from:.0} s"));
    svg.text("", (WIDTH as f64, 131.0), Anchor::End, &format!("{to:.0} s"));
    svg.finish("chart", &format!("{} part: the wave, and {inside} gaps in it", part.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{head::Head, play::XrunAt};

    fn part(name: &str, gaps: Vec<XrunAt>) -> DemoPart {
        DemoPart {
            name: name.into(),
            how: "<how>".into(),
            lasted: Nanos(2_000_000_000),
            periods: 745,
            lost: gaps.iter().map(|gap| u64::from(gap.missed)).sum(),
            real_time: false,
            shielded: false,
            count: gaps.len() as u64,
            gaps,
        }
    }

    fn known() -> Demonstration {
        let gap = |at, missed| XrunAt { at: Nanos(at), missed };
        Demonstration {
            head: Head::default(),
            cpu: 1,
            rate: 48_000,
            period: 128,
            buffer: 256,
            planted: "3 ordinary threads that never sleep".into(),
            parts: vec![
                part("shared", vec![gap(500_000_000, 3), gap(1_500_000_000, 30)]),
                part("quiet", Vec::new()),
            ],
            restored: None,
            sentence: "2 gaps on a shared CPU, no gap on a quiet one".into(),
            findings: Vec::new(),
        }
    }

    #[test]
    fn the_sound_is_silent_where_periods_were_lost_and_nowhere_else() {
        let demo = known();
        let file = demo_wav(&demo);
        let sound: Vec<i16> =
            file[44..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        let (part, between) = (2 * 48_000, (BETWEEN * 48_000.0) as usize);
        assert_eq!(sound.len(), 2 * part + between);
        let (shared, quiet) = (&sound[..part], &sound[part + between..]);
        for (at, missed) in [(24_000, 3), (72_000, 30)] {
            let lost = at - missed * 128..at;
            assert!(shared[lost.clone()].iter().all(|sample| *sample == 0));
            assert!(quiet[lost.clone()].iter().any(|sample| sample.unsigned_abs() > 300));
            // Up to the gap and behind it both are the same.
            assert_eq!(shared[lost.start - 500..lost.start], quiet[lost.start - 500..lost.start]);
            assert_eq!(shared[at..at + 500], quiet[at..at + 500]);
        }
    }

    #[test]
    fn the_page_shows_both_parts_and_escapes_what_it_is_given() {
        let page = demo_page(&known());
        assert_eq!(page.matches("<audio").count(), 2);
        assert_eq!(page.matches("data:audio/wav;base64,").count(), 2);
        assert!(page.contains("media-src data:"));
        assert_eq!(page.matches("area gap").count(), 2);
        assert!(
            page.contains("On a shared CPU: 2 gaps") && page.contains("On a quiet core: 0 gaps")
        );
        assert!(!page.contains("<how>"));
    }

    #[test]
    fn the_text_fits_its_width() {
        for width in [60, 100] {
            let text = demo_text(&known(), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.starts_with("2 gaps on a shared CPU"), "{text}");
        }
    }

    #[test]
    fn the_last_seconds_of_a_long_part_are_those_of_the_whole() {
        let mut demo = known();
        demo.parts[0].lasted = Nanos(15_000_000_000);
        demo.parts[0].gaps = vec![XrunAt { at: Nanos(14_000_000_000), missed: 100 }];
        let (from, to) = stretch(&demo.parts[0]);
        assert_eq!((from, to), (3.0, 15.0));
        let part = &demo.parts[0];
        let cut = heard(&demo, part, from, to, SMALL);
        let whole = heard(&demo, part, 0.0, to, SMALL);
        assert_eq!(cut.len(), 12 * 16_000);
        assert_eq!(cut[..], whole[3 * 16_000..]);
    }
}
