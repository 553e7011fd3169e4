//! Tables of buffers: which holds, what is possible all the same, text and page.

use crate::{
    html,
    stats::tail::most_likely_rate,
    text::{Column, Table, findings_text, wrap},
    words,
};
use maud::{Markup, html};
use quiet_types::{
    Finding, Nanos, Severity,
    buffers::{Buffers, Cell, Least, Safe, Setting},
    history::BySound,
    printable,
};
use std::{collections::BTreeSet, fmt::Write};

/// Xruns an hour that are possible, at 95 %, where `seen` were seen in `seconds`.
pub fn at_most_an_hour(seen: u64, seconds: f64) -> f64 {
    most_likely_rate(seen) / seconds.max(1e-9) * 3600.0
}

/// For each mode and setting the least buffer without an xrun, nor one of any longer buffer,
/// under any stress. Of buffers of one length the one with the longer periods costs less: it wins.
pub fn least_safe(cells: &[Cell], rate: u32) -> Vec<Least> {
    let arms: BTreeSet<(&str, Setting)> =
        cells.iter().map(|cell| (cell.mode.as_str(), cell.setting)).collect();
    let one = |(mode, setting): (&str, Setting)| {
        let tried = || {
            cells.iter().filter(move |cell| {
                cell.mode == mode && cell.setting == setting && cell.seconds() > 0.0
            })
        };
        let bad = tried().filter(|cell| cell.sum(|t| t.xruns) > 0).map(|cell| cell.buffer).max();
        let sizes = tried().map(|cell| (cell.buffer, std::cmp::Reverse(cell.period)));
        let size = sizes.filter(|size| bad.is_none_or(|bad| size.0 > bad)).min();
        let safe = size.map(|(buffer, std::cmp::Reverse(period))| {
            let held = tried()
                .filter(|cell| (cell.buffer, cell.period) == (buffer, period))
                .map(Cell::seconds)
                .fold(f64::INFINITY, f64::min);
            Safe {
                period,
                buffer,
                milliseconds: f64::from(buffer) / f64::from(rate.max(1)) * 1e3,
                held,
                at_most_an_hour: at_most_an_hour(0, held),
            }
        });
        Least { mode: mode.to_owned(), setting, safe }
    };
    arms.into_iter().map(one).collect()
}

/// What the figures say beyond themselves.
pub fn judge_buffers(buffers: &Buffers) -> Vec<Finding> {
    let mut findings = Vec::new();
    let refused: Vec<&Cell> = buffers.cells.iter().filter(|c| !c.refused.is_empty()).collect();
    if let Some(cell) = refused.first() {
        let title =
            format!("{} of {} cells could not be tried", refused.len(), buffers.cells.len());
        findings.push(Finding::new(Severity::Warning, "buffers.refused", title).evidence(format!(
            "{}: {}",
            name(cell),
            cell.refused
        )));
    }
    let trials = || buffers.cells.iter().flat_map(|cell| &cell.trials);
    let steal: u64 = trials().filter_map(|t| Some(t.steal?.0)).sum();
    let lasted: u64 = trials().map(|t| t.lasted.0).sum();
    if steal > lasted / 10_000 && steal > 0 {
        findings.push(
            Finding::new(
                Severity::Warning,
                "buffers.steal",
                "the hypervisor took the CPU away meanwhile",
            )
            .evidence(format!(
                "{} in {}, {}",
                Nanos(steal),
                Nanos(lasted),
                words::share(steal as f64 / lasted.max(1) as f64)
            ))
            .effect(
                "no setting inside this machine helps against it; a thread that never sleeps \
                     meets it more often than one that sleeps, since it always runs",
            )
            .remedy("give the virtual machine CPUs of its own on its host"),
        );
    }
    if buffers.restored == Some(false) {
        findings.push(
            Finding::new(
                Severity::Problem,
                "buffers.restored",
                "the machine is not as it was before",
            )
            .remedy("`quietcores status` tells whether something of a shield is left"),
        );
    }
    findings
}

fn name(cell: &Cell) -> String {
    format!(
        "{} x {}, {}, {}, stress {}",
        cell.period,
        cell.buffer / cell.period.max(1),
        cell.mode,
        cell.setting,
        printable(&cell.stress, 60)
    )
}

fn milliseconds(cell: &Cell, rate: u32) -> String {
    format!("{:.2}", f64::from(cell.buffer) / f64::from(rate.max(1)) * 1e3)
}

/// `3 an hour` in as many digits as it deserves.
fn an_hour(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { words::count(rate.round() as u64) }
}

/// Of the time by which blocks were late in all: how much was waking, how much running.
fn blame(cell: &Cell) -> Option<(f64, f64)> {
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
    if !buffers.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&buffers.findings, width));
    }
    text
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
    let columns: Vec<(&str, Setting, &str)> = {
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
             what running slow had."
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
        (html::findings(&buffers.findings))
        (html::host(&buffers.head.host))
        (html::data(&buffers.head.id))
    };
    let json = serde_json::to_string(buffers).unwrap_or_default();
    html::page(&title, &buffers.head.host.program, &body, &json)
}

/// A mark that needs no colour, and what stands behind it.
fn cell(cell: Option<&Cell>) -> Markup {
    let tried = cell.filter(|cell| !cell.trials.is_empty());
    html! {
        td {
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
    use quiet_types::buffers::{SCHEMA, Trial};
    use quiet_types::head::Head;

    fn trial(seconds: u64, xruns: u64) -> Trial {
        Trial {
            lasted: Nanos::from_secs(seconds),
            expected: 1000 * seconds,
            obtained: 1000 * seconds - 2 * xruns,
            missed: 2 * xruns,
            xruns,
            late: Nanos(xruns * 3_000),
            slow: Nanos(xruns * 1_000),
            ..Trial::default()
        }
    }

    fn cell(size: (u32, u32), mode: &str, stress: &str, trials: Vec<Trial>) -> Cell {
        Cell {
            period: size.0,
            buffer: size.1,
            mode: mode.into(),
            setting: Setting::Shared,
            stress: stress.into(),
            refused: String::new(),
            trials,
        }
    }

    fn buffers(cells: Vec<Cell>) -> Buffers {
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
    fn none_seen_is_three_in_the_time_and_some_seen_are_poisson() {
        assert!((at_most_an_hour(0, 60.0) - 179.7).abs() < 0.1);
        // Tables of the Poisson distribution, 95 % one-sided.
        for (seen, most) in [(1, 4.744), (2, 6.296), (5, 10.513), (10, 16.962)] {
            assert!((at_most_an_hour(seen, 3600.0) - most).abs() < 2e-3, "{seen}");
        }
    }

    #[test]
    fn the_least_safe_buffer_has_no_longer_one_that_fails() {
        let cells = vec![
            cell((16, 32), "sleep", "none", vec![trial(10, 0)]),
            cell((16, 32), "sleep", "kernel", vec![trial(10, 7)]),
            cell((32, 64), "sleep", "none", vec![trial(10, 0)]),
            cell((32, 64), "sleep", "kernel", vec![trial(10, 0)]),
            cell((16, 64), "sleep", "kernel", vec![trial(10, 0)]),
            cell((64, 128), "sleep", "kernel", vec![trial(10, 0), trial(10, 1)]),
            cell((64, 256), "sleep", "kernel", vec![trial(10, 0), trial(20, 0)]),
            cell((64, 512), "sleep", "kernel", vec![trial(10, 0)]),
            cell((16, 32), "never-sleep", "kernel", vec![trial(5, 0)]),
            cell((32, 64), "never-sleep", "kernel", vec![trial(9, 0)]),
        ];
        let least = least_safe(&cells, 48_000);
        let of = |mode: &str| least.iter().find(|l| l.mode == mode).unwrap().safe.unwrap();
        let sleep = of("sleep");
        assert_eq!((sleep.period, sleep.buffer, sleep.held), (64, 256, 30.0), "128 failed once");
        assert!((sleep.at_most_an_hour - 3600.0 / 30.0 * 2.9957).abs() < 0.1);
        assert_eq!(of("never-sleep").buffer, 32);
        let all_bad = least_safe(&[cell((16, 32), "sleep", "x", vec![trial(1, 1)])], 48_000);
        assert_eq!(all_bad[0].safe, None);
        // Two buffers of one length: the longer periods.
        let two = [(16, 64), (32, 64)].map(|size| cell(size, "sleep", "x", vec![trial(1, 0)]));
        assert_eq!(least_safe(&two, 48_000)[0].safe.unwrap().period, 32);
    }

    #[test]
    fn text_and_page_show_every_cell_and_no_escape_of_a_device() {
        let mut refused = cell((8, 16), "never-sleep", "none", vec![]);
        refused.refused = "there is no CPU for it".into();
        let all = buffers(vec![
            cell((16, 32), "sleep", "kernel", vec![trial(10, 7)]),
            cell((32, 64), "sleep", "kernel", vec![trial(10, 0)]),
            refused,
        ]);
        let text = buffers_text(&all, 140);
        assert!(text.contains("16 x 2") && text.contains("not tried"), "{text}");
        assert!(text.contains("sleep, shared: the least that held is 32 x 2"), "{text}");
        assert!(text.contains("no xrun in 10 s, so at most 1 078 an hour"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        let page = buffers_page(&all);
        assert!(page.contains("✗ 7") && page.contains("✓ none"), "{page}");
        assert!(page.contains("late 75") && page.contains("slow 25"), "{page}");
        assert!(page.contains("null &lt;b&gt;") && !page.contains('\x1b'), "{page}");
        let ids: Vec<String> = judge_buffers(&all).into_iter().map(|f| f.id).collect();
        assert_eq!(ids, ["buffers.refused"]);
    }
}
