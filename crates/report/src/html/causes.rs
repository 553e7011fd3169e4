//! Who took time from the measured CPUs: a table, and a bar for each of the worst readings.

use crate::text::part;
use maud::{Markup, html};
use quiet_types::{
    Nanos, Run,
    explain::{Explained, ExplainedCpu, Late, Source},
};

/// Rows of the table; the rest is one.
const ROWS: usize = 15;
/// Causes that have a letter in the bars.
const LETTERS: &[u8] = b"ABCDEFGHIJ";

pub(super) fn causes(explained: &Explained) -> Markup {
    html! {
        @for cpu in &explained.cpus {
            h2 { "Who took time from CPU " (cpu.cpu) }
            @if explained.source == Source::Trace { (traced(explained, cpu)) } @else { (counted(cpu)) }
        }
        @if !explained.findings.is_empty() { (super::parts::finding_list(&explained.findings)) }
    }
}

/// Who took time in each of several sets of runs, where that was asked.
pub(super) fn side_by_side(sets: &[(String, Vec<&Run>)]) -> Markup {
    let rows = quiet_judge::causes::side_by_side(sets);
    let shown = |rate: &Option<Nanos>| rate.map_or("–".to_owned(), |rate| rate.to_string());
    html! {
        @if !rows.is_empty() {
            h3 { "Who took time, for each second measured" }
            div.box tabindex="0" {
                table {
                    thead { tr { th { "who" } @for (name, _) in sets { th.n { (name) } } } }
                    tbody {
                        @for (title, rates) in rows.iter().take(ROWS) {
                            tr { td.wrap { (title) } @for rate in rates { td.n { (shown(rate)) } } }
                        }
                    }
                }
            }
            @if rows.len() > ROWS { p.why { "And " (rows.len() - ROWS) " more, which took less." } }
        }
    }
}

fn traced(explained: &Explained, cpu: &ExplainedCpu) -> Markup {
    html! {
        p.why {
            (cpu.readings) " readings above " (explained.threshold) ", " (cpu.total) " in all: "
            (part(cpu.named, cpu.total)) " named, " (part(cpu.host, cpu.total)) " the host's, "
            (part(cpu.unexplained, cpu.total)) " unexplained."
            @if let Some(steal) = cpu.steal { " The host itself owns up to " (steal) " of steal." }
        }
        @if !cpu.causes.is_empty() {
            div.box tabindex="0" {
                table {
                    thead { tr {
                        th {} th { "who" } th.n { "time" } th.n { "part" } th.n { "times" } th.n { "longest" }
                    } }
                    tbody {
                        @for (at, share) in cpu.causes.iter().take(ROWS).enumerate() {
                            tr {
                                td { (letter(at)) }
                                td { (share.title) }
                                td.n { (share.total.unwrap_or_default()) }
                                td.n { (part(share.total.unwrap_or_default(), cpu.total)) }
                                td.n { (share.times) }
                                td.n { (share.longest) }
                            }
                        }
                        @let rest = cpu.causes.get(ROWS..).unwrap_or_default();
                        @if !rest.is_empty() {
                            @let sum = Nanos(rest.iter().filter_map(|s| s.total).map(|t| t.0).sum());
                            tr {
                                td {} td { (rest.len()) " more" } td.n { (sum) }
                                td.n { (part(sum, cpu.total)) } td.n {} td.n {}
                            }
                        }
                    }
                }
            }
            h3 { "What removes them" }
            ul {
                @for knob in knobs(cpu) { li { (knob) } }
            }
            h3 { "The worst, part by part" }
            @for late in &cpu.worst { (bar(cpu, late)) }
        }
    }
}

fn counted(cpu: &ExplainedCpu) -> Markup {
    html! {
        p.why { "From counters: how often, not how long." }
        div.box tabindex="0" {
            table {
                thead { tr { th { "what came" } th.n { "times" } } }
                tbody {
                    @for share in &cpu.causes { tr { td { (share.title) } td.n { (share.times) } } }
                }
            }
        }
    }
}

/// Each remedy once, in the order of what it removes.
fn knobs(cpu: &ExplainedCpu) -> Vec<&str> {
    let mut knobs: Vec<&str> = Vec::new();
    for share in cpu.causes.iter().take(ROWS) {
        if !knobs.contains(&share.knob.as_str()) {
            knobs.push(&share.knob);
        }
    }
    knobs
}

fn letter(cause: usize) -> String {
    LETTERS.get(cause).map_or(String::new(), |byte| char::from(*byte).to_string())
}

/// One reading as a bar: parts in their order, told by letter and pattern of shade, not by colour.
fn bar(cpu: &ExplainedCpu, late: &Late) -> Markup {
    let whole = late.value.0.max(1) as f64;
    let title = |cause: usize| cpu.causes.get(cause).map_or("?", |share| share.title.as_str());
    let most = late.sums.iter().take(4).map(|sum| format!("{} {}", sum.length, title(sum.cause)));
    let said = most.collect::<Vec<_>>().join(", ");
    html! {
        figure {
            svg viewBox="0 0 640 24" role="img" aria-label={ (late.value) ": " (said) } {
                rect x="0" y="2" width="640" height="20" fill="none" stroke="currentColor" stroke-opacity=".35" {}
                @for part in &late.parts {
                    @let (x, w) = (part.after.0 as f64 / whole * 640.0, part.length.0 as f64 / whole * 640.0);
                    // Narrower than a hair: it would not be seen.
                    @if w >= 0.3 {
                        @let shade = [".62", ".38", ".22", ".5", ".3", ".14"][part.cause % 6];
                        rect x=(format!("{x:.1}")) y="2" width=(format!("{w:.1}")) height="20"
                            fill="currentColor" fill-opacity=(shade) {
                            title { (part.length) " " (title(part.cause)) }
                        }
                        @if w >= 12.0 {
                            text x=(format!("{:.1}", x + w / 2.0)) y="16" text-anchor="middle"
                                font-size="11" fill="var(--ink)" stroke="var(--paper)" stroke-width="2.5"
                                paint-order="stroke" { (letter(part.cause)) }
                        }
                    }
                }
            }
            figcaption {
                (late.value) " at " (format!("{:.4}", late.at.as_secs_f64())) " s: " (said)
                @if late.sums.len() > 4 { ", " (late.sums.len() - 4) " more" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{
        CpuId,
        explain::{Cause, Part, SCHEMA, Share, Sum},
        run::Host,
    };

    #[test]
    fn causes_are_named_and_hostile_names_stay_text() {
        let share = |title: &str, total| Share {
            cause: Cause::Tick,
            title: title.to_owned(),
            total: Some(Nanos(total)),
            around: Nanos::ZERO,
            times: 1,
            longest: Nanos(total),
            readings: 1,
            knob: "turn it off".to_owned(),
            lengths: Default::default(),
        };
        let part =
            |cause, after, length| Part { cause, after: Nanos(after), length: Nanos(length) };
        let sum = |cause, length| Sum { cause, length: Nanos(length) };
        let late = Late {
            at: Nanos::from_secs(1),
            value: Nanos(1000),
            sums: vec![sum(0, 900), sum(1, 100)],
            parts: vec![part(0, 0, 900), part(1, 900, 100)],
            rest: Nanos::ZERO,
        };
        let explained = Explained {
            schema: SCHEMA.to_owned(),
            run: String::new(),
            started: String::new(),
            lasted: Nanos::from_secs(2),
            host: Host::default(),
            source: Source::Trace,
            threshold: Nanos(500),
            cpus: vec![ExplainedCpu {
                cpu: CpuId(3),
                readings: 1,
                explained: 1,
                total: Nanos(1000),
                named: Nanos(1000),
                host: Nanos::ZERO,
                unexplained: Nanos::ZERO,
                causes: vec![share("<img src=x>", 900), share("tick", 100)],
                worst: vec![late],
                steal: None,
            }],
            findings: Vec::new(),
        };
        let page = causes(&explained).into_string();
        assert!(page.contains("Who took time from CPU 3") && !page.contains("<img"));
        assert!(page.contains("900 ns &lt;img src=x&gt;, 100 ns tick"), "{page}");
        assert_eq!(page.matches("turn it off").count(), 1);
    }
}
