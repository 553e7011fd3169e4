//! Tables of buffers: which holds, what is possible all the same, text and page.

use crate::{
    html,
    text::{Column, Table, findings_text, wrap},
};
use maud::{Markup, html};
use quiet_judge::at_most_an_hour;
use quiet_types::words;
use quiet_types::{
    buffers::{Buffers, Combination, CpuSetting, Least, Trial},
    history::BySound,
    printable,
};
use std::{collections::BTreeSet, fmt::Write};

fn milliseconds(cell: &Combination, rate: u32) -> String {
    format!("{:.2}", f64::from(cell.buffer) / f64::from(rate.max(1)) * 1e3)
}

/// `3 an hour` in as many digits as it deserves.
fn an_hour(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { words::count(rate.round() as u64) }
}

/// Of the time by which blocks were late in all: how much was waking, how much running.
fn blame(cell: &Combination) -> Option<(f64, f64)> {
    let (late, slow) = (cell.sum(|t| t.late.0), cell.sum(|t| t.slow.0));
    let all = (late + slow) as f64;
    (all > 0.0).then(|| (late as f64 / all, slow as f64 / all))
}

/// A table for a terminal `width` characters wide.
pub fn buffers_text(buffers: &Buffers, width: usize) -> String {
    let mut text = String::new();
    let asked = format!(
        "{}; {} frames a second, DSP load {:.0} %{}; {} cells",
        printable(&buffers.device, 200),
        buffers.rate,
        buffers.load * 100.0,
        buffers.cpu.map_or(String::new(), |cpu| format!(", CPU {cpu}")),
        buffers.cells.len(),
    );
    let _ = writeln!(text, "{}\n", wrap(&asked, width, 2));
    let mut table = Table::new([
        Column::Right("buffer"),
        Column::Right("ms"),
        Column::Left("mode"),
        Column::Left("setting"),
        Column::Left("stress"),
        Column::Right("xruns"),
        Column::Right("missed"),
        Column::Right("of"),
        Column::Right("at most/h"),
        Column::Right("longest"),
        Column::Right("late"),
        Column::Right("slow"),
    ])
    .yields(&["slow", "late", "of", "ms", "longest", "missed", "mode"]);
    for cell in &buffers.cells {
        let mut row = vec![
            format!("{} x {}", cell.period, cell.buffer / cell.period.max(1)),
            milliseconds(cell, buffers.rate),
            cell.mode.clone(),
            cell.setting.to_string(),
            printable(&cell.stress, 30),
        ];
        if cell.trials.is_empty() {
            row.push("not tried".to_owned());
        } else {
            let xruns = cell.sum(|t| t.xruns);
            row.extend([
                words::count(xruns),
                words::count(cell.sum(|t| t.missed)),
                words::count(cell.sum(|t| t.expected)),
                an_hour(at_most_an_hour(xruns, cell.seconds())),
                cell.between().to_string(),
                words::count(cell.sum(|t| t.woke_late)),
                words::count(cell.sum(|t| t.ran_slow)),
            ]);
        }
        table.row(row);
    }
    text.push_str(&table.text(width));
    text.push_str(&wrap(
        "at most/h: xruns an hour that are possible by what was seen (95 %); longest: time between two \
         writes; late, slow: blocks not done in time because the thread woke late, or the work ran slow",
        width,
        2,
    ));
    text.push_str("\n\n");
    for least in &buffers.least {
        let _ = writeln!(text, "{}", wrap(&sentence(least), width, 2));
    }
    let took = took(buffers);
    if !took.is_empty() {
        let mut table = Table::new([
            Column::Right("buffer"),
            Column::Left("mode"),
            Column::Left("setting"),
            Column::Left("stress"),
            Column::Right("interrupts"),
            Column::Right("ticks"),
            Column::Right("switches"),
            Column::Right("calls"),
            Column::Right("latency"),
        ])
        .yields(&["setting", "stress", "mode"]);
        took.into_iter().for_each(|row| table.row(row));
        let _ = write!(text, "\n{}", table.text(width));
        text.push_str(&wrap(TOOK, width, 2));
        text.push('\n');
    }
    if !buffers.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&buffers.findings, width));
    }
    text
}

/// What stands below the table of what the core saw.
const TOOK: &str = "a second: interrupts and ticks of its CPU, context switches and system calls (--calls) of the playing thread; latency: \
                    frames that the host keeps between capture and playback";

/// A row for each cell: what its CPU and its thread had to do a second.
fn took(buffers: &Buffers) -> Vec<Vec<String>> {
    let tried = buffers.cells.iter().filter(|cell| !cell.trials.is_empty());
    tried
        .map(|cell| {
            // Known where each trial knows it.
            let a_second = |of: &dyn Fn(&Trial) -> Option<u64>| {
                let all: Option<Vec<u64>> = cell.trials.iter().map(of).collect();
                all.map_or("-".to_owned(), |all| {
                    rate(all.iter().sum::<u64>() as f64 / cell.seconds().max(1e-9))
                })
            };
            let hit = |trial: &Trial, name: &str| trial.hits.get(name).copied();
            let switches = |trial: &Trial| {
                let own = || {
                    Some(hit(trial, "voluntary_switches")? + hit(trial, "involuntary_switches")?)
                };
                hit(trial, "context_switches").or_else(own)
            };
            let latency = cell.trials.iter().filter_map(|trial| trial.latency).max();
            vec![
                format!("{} x {}", cell.period, cell.buffer / cell.period.max(1)),
                cell.mode.clone(),
                cell.setting.to_string(),
                printable(&cell.stress, 30),
                a_second(&|trial| trial.ticks.map(|_| trial.irqs.values().sum())),
                a_second(&|trial| trial.ticks),
                a_second(&switches),
                a_second(&|trial| hit(trial, "system_calls")),
                latency.map_or("-".to_owned(), |frames| words::count(frames.into())),
            ]
        })
        .collect()
}

/// Of something a second, in as many digits as it deserves.
fn rate(a_second: f64) -> String {
    match a_second {
        0.0 => "0".to_owned(),
        few if few < 10.0 => format!("{few:.1}"),
        many => words::count(many.round() as u64),
    }
}

fn sentence(least: &Least) -> String {
    let arm = format!("{}, {}", least.mode, least.setting);
    match &least.safe {
        None => format!("{arm}: no buffer held"),
        Some(safe) => format!(
            "{arm}: the least that held is {} x {} frames, {:.2} ms: no xrun in {:.0} s, so at most {} \
             an hour (95 %)",
            safe.period,
            safe.buffer / safe.period.max(1),
            safe.milliseconds,
            safe.held,
            an_hour(safe.at_most_an_hour)
        ),
    }
}

/// A table in a line of the history.
pub fn buffers_line(buffers: &Buffers) -> BySound {
    let said: Vec<String> = buffers.least.iter().map(sentence).collect();
    BySound { head: buffers.head.clone(), device: buffers.device.clone(), said: said.join("; ") }
}

/// One self-contained HTML page: a row a buffer, a column for each mode, setting and stress.
pub fn buffers_page(buffers: &Buffers) -> String {
    let title = format!("Buffers of {}", printable(&buffers.device, 120));
    let columns: Vec<(&str, CpuSetting, &str)> = {
        let mut seen = Vec::new();
        for cell in &buffers.cells {
            let column = (cell.mode.as_str(), cell.setting, cell.stress.as_str());
            if !seen.contains(&column) {
                seen.push(column);
            }
        }
        seen
    };
    let rows: BTreeSet<(u32, u32)> = buffers.cells.iter().map(|c| (c.buffer, c.period)).collect();
    let body = html! {
        header {
            p.over { "quietcores buffers of " (buffers.head.host.name) ", " (buffers.head.started) }
            h1.plain { (title) }
            p.why {
                (buffers.rate) " frames a second; the work takes "
                (format!("{:.0} %", buffers.load * 100.0)) " of a period"
                @if let Some(cpu) = buffers.cpu { "; CPU " (cpu) }
            }
        }
        h2 { "The least buffer that held" }
        ul.findings { @for least in &buffers.least { li.note { p.what { (sentence(least)) } } } }
        h2 { "Xruns" }
        p.why {
            "✓ none seen, and how many an hour are possible all the same (95 %); ✗ xruns seen, and how \
             long the longest time between two writes was; of the time lost, what waking late and \
             what running slow had. The deeper the colour, the more xruns a minute:"
        }
        p.heat {
            @for (class, word) in
                [("h0", "none"), ("h1", "below 1"), ("h2", "below 10"), ("h3", "below 100"), ("h4", "more")]
            {
                span.(class) { (word) } " "
            }
        }
        div.box tabindex="0" {
            table {
                thead { tr {
                    th { "buffer" } th.n { "ms" }
                    @for (mode, setting, stress) in &columns {
                        th { (mode) br; (setting) br; small { (printable(stress, 40)) } }
                    }
                } }
                tbody {
                    @for (buffer, period) in &rows {
                        tr {
                            td { (period) " x " (buffer / (*period).max(1)) }
                            td.n { (format!("{:.2}", f64::from(*buffer) / f64::from(buffers.rate.max(1)) * 1e3)) }
                            @for column in &columns {
                                (cell(buffers.cells.iter().find(|c| {
                                    (c.buffer, c.period) == (*buffer, *period)
                                        && (c.mode.as_str(), c.setting, c.stress.as_str()) == *column
                                })))
                            }
                        }
                    }
                }
            }
        }
        h2 { "What its core had to do, a second" }
        p.why { (TOOK) }
        (html::figures_table(
            &["cell", "interrupts", "ticks", "switches", "calls", "latency"],
            &took(buffers).into_iter().map(|mut row| {
                let name = row.drain(..4).collect::<Vec<_>>().join(", ");
                row.insert(0, name);
                row
            }).collect::<Vec<_>>(),
        ))
        (html::findings(&buffers.findings))
        (html::host(&buffers.head.host))
        (html::data(&buffers.head.id))
    };
    let json = serde_json::to_string(buffers).unwrap_or_default();
    html::page(&title, &buffers.head.host.program, &body, &json)
}

/// How hot a cell is: xruns a minute by decades.
fn heat(xruns: u64, seconds: f64) -> &'static str {
    let a_minute = xruns as f64 * 60.0 / seconds.max(1e-3);
    match a_minute {
        0.0 => "h0",
        few if few < 1.0 => "h1",
        some if some < 10.0 => "h2",
        many if many < 100.0 => "h3",
        _ => "h4",
    }
}

/// A mark that needs no colour, and what stands behind it.
fn cell(cell: Option<&Combination>) -> Markup {
    let tried = cell.filter(|cell| !cell.trials.is_empty());
    let heat = tried.map(|cell| heat(cell.sum(|t| t.xruns), cell.seconds()));
    html! {
        td.(heat.unwrap_or_default()) {
            @match (cell, tried) {
                (_, Some(cell)) => {
                    @let xruns = cell.sum(|t| t.xruns);
                    @let most = an_hour(at_most_an_hour(xruns, cell.seconds()));
                    @if xruns == 0 {
                        span.verdict.better { "✓ none" } br;
                        small { "at most " (most) " an hour" }
                    } @else {
                        span.verdict.worse { "✗ " (words::count(xruns)) } br;
                        small {
                            "at most " (most) " an hour" br;
                            (words::count(cell.sum(|t| t.missed))) " of " (words::count(cell.sum(|t| t.expected))) " missed"
                        }
                    }
                    br;
                    small {
                        "longest " (cell.between())
                        @if let Some((late, slow)) = blame(cell) {
                            br; "late " (words::share(late)) ", slow " (words::share(slow))
                        }
                    }
                }
                (Some(cell), None) => { span { "not tried" } br; small { (printable(&cell.refused, 200)) } }
                (None, None) => { "–" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::{
        example::{combination, trial},
        judge_buffers, least_safe,
    };
    use quiet_types::{buffers::SCHEMA, head::Head};

    fn buffers(cells: Vec<Combination>) -> Buffers {
        Buffers {
            head: Head { schema: SCHEMA.into(), id: "x".into(), ..Head::default() },
            device: "null <b>\x1b[2J".into(),
            rate: 48_000,
            load: 0.7,
            cpu: Some(1),
            stress_cpus: Default::default(),
            housekeeping: Default::default(),
            least: least_safe(&cells, 48_000),
            cells,
            restored: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn heat_rises_by_decades_of_xruns_a_minute() {
        let at = |xruns| heat(xruns, 60.0);
        assert_eq!(
            [at(0), at(1), at(9), at(10), at(99), at(100)],
            ["h0", "h2", "h2", "h3", "h3", "h4"]
        );
        assert_eq!((heat(1, 600.0), heat(5, 0.0)), ("h1", "h4"));
    }

    #[test]
    fn text_and_page_show_every_cell_and_no_escape_of_a_device() {
        let mut refused = combination((8, 16), "never-sleep", "none", vec![]);
        refused.refused = "there is no CPU for it".into();
        let all = buffers(vec![
            combination((16, 32), "sleep", "kernel", vec![trial(10, 7)]),
            combination((32, 64), "sleep", "kernel", vec![trial(10, 0)]),
            refused,
        ]);
        let mut all = all;
        let one = &mut all.cells[0].trials[0];
        (one.ticks, one.latency) = (Some(2500), Some(32));
        one.irqs = [("RES".to_owned(), 5), ("9".to_owned(), 20)].into();
        one.hits = [("system_calls".to_owned(), 30_000), ("context_switches".to_owned(), 7)].into();
        let text = buffers_text(&all, 140);
        let row = text.lines().filter(|line| line.contains("16 x 2")).nth(1).unwrap();
        let words: Vec<&str> = row.split_whitespace().skip(6).collect();
        assert_eq!(words.join(" "), "2.5 250 0.7 3 000 32", "{row}");
        assert!(text.contains("16 x 2") && text.contains("not tried"), "{text}");
        assert!(text.contains("sleep, shared: the least that held is 32 x 2"), "{text}");
        assert!(text.contains("no xrun in 10 s, so at most 1 078 an hour"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        let page = buffers_page(&all);
        assert!(
            page.contains(r#"<td class="h3">"#) && page.contains(r#"<td class="h0">"#),
            "{page}"
        );
        assert!(page.contains("✗ 7") && page.contains("✓ none"), "{page}");
        assert!(page.contains("late 75") && page.contains("slow 25"), "{page}");
        assert!(page.contains("null &lt;b&gt;") && !page.contains('\x1b'), "{page}");
        let ids: Vec<String> = judge_buffers(&all).into_iter().map(|f| f.id).collect();
        assert_eq!(ids, ["buffers.refused"]);
    }
}
