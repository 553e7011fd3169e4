//! Any two sets of runs, compared figure by figure.

use quiet_judge::known;
use quiet_types::words;
use quiet_types::{
    compared::{Compared, ComparedFigure, Method, Side},
    printable,
    proof::Verdict,
};
use std::fmt::Write;

/// A comparison as text, at most `width` columns wide.
pub fn compared_text(compared: &Compared, width: usize) -> String {
    use crate::text::{Column, Table, findings_text, wrap};
    let width = width.max(20);
    let mut text = format!("{}\n\n", wrap(&printable(&compared.sentence, 1000), width, 0));
    let mut table = Table::new([
        Column::Left("figure"),
        Column::Right("A"),
        Column::Right("B"),
        Column::Left("ratio [interval]"),
        Column::Right("p"),
        Column::Left("verdict"),
    ])
    .yields(&["p"]);
    for figure in &compared.figures {
        let show = |value| words::value(figure.unit, value);
        table.row([
            figure.title.clone(),
            show(figure.a.median),
            show(figure.b.median),
            words::ratio_between(figure.ratio),
            words::p_value(figure.p_value),
            figure.verdict.to_string(),
        ]);
    }
    let max = |side: &Side| side.max.map_or("-".to_owned(), |max| max.to_string());
    table.row([
        "max".to_owned(),
        max(&compared.a),
        max(&compared.b),
        String::new(),
        String::new(),
        "not judged".to_owned(),
    ]);
    text.push_str(&table.text(width));
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for figure in compared.figures.iter().filter(|figure| !figure.note.is_empty()) {
        match notes.iter_mut().find(|(note, _)| *note == figure.note) {
            Some((_, titles)) => titles.push(&figure.title),
            None => notes.push((&figure.note, vec![&figure.title])),
        }
    }
    for (note, titles) in notes {
        let line = format!("{}: {note}", titles.join(", "));
        let _ = writeln!(text, "{}", wrap(&printable(&line, 600), width, 2));
    }
    let how = match compared.method {
        Method::Pairs => "runs made in turn, compared in pairs: exact sign-flip test",
        Method::Sets => {
            "two sets of runs: Hodges and Lehmann's shift, Mann and Whitney's exact test"
        }
    };
    let _ = writeln!(text, "{}", wrap(&format!("{how}; 95 % intervals"), width, 0));
    let side = |letter: char, side: &Side| {
        let name = printable(&side.name, 60);
        let runs = side.ids.len();
        format!(
            "{letter}  {name}: {runs} runs, {} readings, {} missed, {}\n",
            words::count(side.readings),
            known::or_not(side.missed.map(words::count)),
            side.lasted.map_or("for a time not known".to_owned(), |time| format!("{time} in all"))
        )
    };
    text.push('\n');
    text.push_str(&side('A', &compared.a));
    text.push_str(&side('B', &compared.b));
    if !compared.differs.is_empty() {
        text.push('\n');
        let mut table =
            Table::new([Column::Left("what differs"), Column::Left("A"), Column::Left("B")]);
        for one in &compared.differs {
            table.row([one.what.clone(), printable(&one.a, 40), printable(&one.b, 40)]);
        }
        text.push_str(&table.text(width));
    }
    if !compared.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&compared.findings, width));
    }
    text
}

/// A comparison as JUnit XML: a test case a figure; a figure that got worse failed, one that is
/// not shown was skipped.
pub fn compared_junit(compared: &Compared) -> String {
    let count = |verdict: Verdict| compared.figures.iter().filter(|f| f.verdict == verdict).count();
    let (name, class) = (xml(&compared.b.name), "quietcores.compare");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{name} against {}\" \
         tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
        xml(&compared.a.name),
        compared.figures.len(),
        count(Verdict::Worse),
        count(Verdict::NotShown)
    );
    for figure in &compared.figures {
        let said = xml(&said(figure));
        let inside = match figure.verdict {
            Verdict::Better => format!("\n      <system-out>{said}</system-out>\n    "),
            Verdict::Worse => format!("\n      <failure message=\"worse: {said}\"/>\n    "),
            Verdict::NotShown => format!("\n      <skipped message=\"not shown: {said}\"/>\n    "),
        };
        let id = xml(&figure.id);
        let _ =
            writeln!(text, "    <testcase classname=\"{class}\" name=\"{id}\">{inside}</testcase>");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// A comparison in the Test Anything Protocol, version 13.
pub fn compared_tap(compared: &Compared) -> String {
    let mut text = format!("TAP version 13\n1..{}\n", compared.figures.len());
    for (at, figure) in compared.figures.iter().enumerate() {
        let (ok, more) = match figure.verdict {
            Verdict::Better => ("ok", ""),
            Verdict::Worse => ("not ok", ""),
            Verdict::NotShown => ("ok", " # SKIP not shown"),
        };
        let _ = writeln!(text, "{ok} {} - {}{more}", at + 1, figure.id);
        let _ = writeln!(text, "# {}", printable(&said(figure), 400).replace('#', " "));
    }
    text
}

fn said(figure: &ComparedFigure) -> String {
    let show = |value| words::value(figure.unit, value);
    let note = if figure.note.is_empty() { String::new() } else { format!("; {}", figure.note) };
    format!(
        "{} from {} to {}, {}, p {}{note}",
        figure.title,
        show(figure.a.median),
        show(figure.b.median),
        words::ratio_between(figure.ratio),
        words::p_value(figure.p_value)
    )
}

/// Text fit for an attribute of XML: markup escaped, characters that XML forbids left out.
fn xml(text: &str) -> String {
    let plain: String =
        text.chars().filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect();
    crate::svg::escape(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::{compare_runs, example::runs};

    #[test]
    fn machines_read_the_verdict() {
        let (a, b) = (runs(1, 6, 20e3, 0, 10), runs(2, 6, 80e3, 600, 10));
        let got = compare_runs(("<a>&\"\u{1b}", &a), ("b", &b));
        let junit = compared_junit(&got);
        assert!(junit.contains("failures=\"") && junit.contains("<failure message=\"worse: p99"));
        assert!(junit.contains("&lt;a&gt;&amp;&quot;\" tests="), "{junit}");
        let tap = compared_tap(&got);
        assert!(
            tap.starts_with(&format!(
                "TAP version 13\n1..{}\nnot ok 1 - wakeup.p99\n",
                got.figures.len()
            )),
            "{tap}"
        );
    }

    #[test]
    fn the_text_names_what_differs() {
        let (a, mut b) = (runs(1, 4, 80e3, 0, 10), runs(2, 4, 20e3, 600, 10));
        for run in &mut b {
            run.host.release = "6.18.0".into();
        }
        let text = compared_text(&compare_runs(("a", &a), ("b", &b)), 100);
        assert!(text.contains("what differs") && text.contains("6.18.0"), "{text}");
    }
}
