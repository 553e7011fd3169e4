//! The parts of the page that are figures and charts.

use super::{
    charts::{self, Series},
    class, part,
};
use crate::text;
use maud::{Markup, PreEscaped, html};
use quiet_judge::known;
use quiet_types::words;
use quiet_types::{
    Nanos, Proof, Run,
    proof::{Figure, Role, Verdict},
    run::MeasuringThread,
};

/// The primary figures, large.
pub(super) fn hero(proof: &Proof) -> Markup {
    let primary = proof.figures.iter().filter(|figure| figure.role == Role::Primary);
    html! {
        dl.hero {
            @for figure in primary {
                div {
                    dt { (figure.title) }
                    dd.now {
                        span.was { (words::value(figure.unit, figure.shared.median)) " → " }
                        (words::value(figure.unit, figure.shielded.median))
                    }
                    dd.by { (words::ratio_between(figure.ratio)) }
                }
            }
        }
    }
}

/// The figures of one run, large.
pub(super) fn run_hero(run: &Run) -> Markup {
    let all = run.readings();
    let shown = |value: Option<Nanos>| value.map_or("–".to_owned(), |v| run.figure(v));
    let beyond = run.spec.threshold.zip(run.share_beyond(&all));
    html! {
        dl.hero {
            @for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                div { dt { (name) } dd.now { (shown(all.percentile(q))) } }
            }
            div { dt { "largest" } dd.now { (shown(all.max)) } }
            @if run.is_gap() {
                @let taken = run.share_stolen().map(words::share);
                div { dt { "gap time" } dd.now { (known::or_not(taken)) } }
            } @else {
                @if let Some((threshold, beyond)) = beyond {
                    div { dt { "beyond " (threshold) } dd.now { (words::share(beyond)) } }
                }
                @let missed = run.missed().zip(run.expected());
                @let missed = missed.map(|(missed, expected)| part(missed, expected));
                div { dt { "missed periods" } dd.now { (known::or_not(missed)) } }
            }
        }
    }
}

/// Every figure with its interval drawn.
pub(super) fn figures(proof: &Proof) -> Markup {
    let scale = charts::ratio_scale(proof.figures.iter().map(|figure| figure.ratio));
    let pairs = proof.pairs().len();
    html! {
        h2 { "Figures" }
        p.why {
            "Medians over " (pairs) " pairs of runs, made in turn; " (text::lot(proof)) ". The bar is the 95 % "
            "bootstrap interval of the ratio; the upright line is x1, no change. A figure is better or worse only "
            "when its interval excludes x1 and chance alone, by the exact sign-flip test, gives as much in at most "
            "5 of 100 cases, all figures taken together. Lower is better. The verdict rests on the figures in bold."
        }
        @if proof.figures.is_empty() { p { "No pair of runs is valid: there is no figure." } } @else {
            div.box tabindex="0" {
                table.figures {
                    thead { tr {
                        th { "figure" } th.n { "shared" } th.n { (proof.other()) }
                        th { "ratio" } th.n { "p" } th { "verdict" }
                    } }
                    tbody { @for figure in &proof.figures { (row(figure, scale)) } }
                    tfoot { tr {
                        td.name colspan="3" {}
                        td.ratio { (PreEscaped(charts::interval_axis(scale))) }
                        td.p colspan="2" {}
                    } }
                }
            }
        }
        @for note in words::notes(&proof.figures) { p.why { (note) "." } }
    }
}

fn row(figure: &Figure, scale: (f64, f64)) -> Markup {
    let drawn = if figure.verdict == Verdict::NotShown { "" } else { class(figure.verdict) };
    html! {
        tr {
            td.name.primary[figure.role == Role::Primary] { (figure.title) }
            td.n.was { (words::value(figure.unit, figure.shared.median)) }
            td.n.now { (words::value(figure.unit, figure.shielded.median)) }
            td.ratio {
                (PreEscaped(charts::interval(figure.ratio, drawn, scale)))
                small { (words::ratio_between(figure.ratio)) }
            }
            td.n.p { (words::p_value(figure.p_value)) }
            td.says { span.verdict.(class(figure.verdict)) { (figure.verdict) } }
        }
    }
}

/// Histogram and percentiles.
pub(super) fn distributions(series: &[Series], threshold: Option<Nanos>) -> Markup {
    html! {
        h2 { "Where the readings lie" }
        (charts(series, threshold, "latency"))
    }
}

/// The same without a heading; `axis` is `latency` or `gap`.
pub(super) fn charts(series: &[Series], threshold: Option<Nanos>, axis: &str) -> Markup {
    html! {
        figure {
            (PreEscaped(charts::histogram(series, threshold, axis)))
            p.read.screen {}
            figcaption {
                "Share of readings by " (axis) ". Both axes are logarithmic: the rare late ones on the "
                "right are what a listener hears. "
                @if axis == "latency" {
                    "Missed periods are counted with the time they would have waited; what is "
                    "shorter than the scale stands in its first bin."
                }
            }
        }
        @if let Some(tail) = charts::tail(series, threshold, axis) {
            details {
                summary { "Zoom on the tail" }
                figure {
                    (PreEscaped(tail))
                    p.read.screen {}
                    figcaption { "The same from the 99th percentile of the quietest line on; shares are of all readings." }
                }
            }
        }
        figure {
            (PreEscaped(charts::percentiles(series, threshold)))
            p.read.screen {}
            figcaption {
                @if axis == "latency" { "Latency" } @else { "Gaps" } " by percentile, each further nine as wide as the one before. "
                @if series.iter().any(|one| one.runs.len() > 1) {
                    "Thin lines are single runs (or CPUs), thick ones all of them together."
                }
            }
        }
    }
}

/// Every pair of runs, figure by figure.
pub(super) fn pairs(proof: &Proof) -> Markup {
    let other = proof.other().to_string();
    html! {
        @if !proof.figures.is_empty() {
            h2 { "Run by run" }
            p.why {
                "Each line joins two runs that are neighbours in time. Lines that all lean the same "
                "way are a change; lines that cross are chance."
            }
            div.many {
                @for figure in &proof.figures {
                    figure {
                        figcaption { (figure.title) " " span.verdict.(class(figure.verdict)) { (figure.verdict) } }
                        (PreEscaped(charts::pairs(figure, &other)))
                    }
                }
            }
        }
    }
}

/// The gap probe's histogram.
pub(super) fn stolen(series: &[Series], threshold: Option<Nanos>) -> Markup {
    html! {
        h2 { "Gap time" }
        figure {
            (PreEscaped(charts::histogram(series, threshold, "gap")))
            p.read.screen {}
            figcaption {
                "Time between neighbouring clock reads of a thread that never sleeps. What is "
                "longer than the threshold was taken from it."
            }
        }
    }
}

/// A row a thread of one or several runs of one probe.
pub(super) fn threads(runs: &[&Run], names: &[String]) -> Markup {
    let gap = runs.iter().any(|run| run.is_gap());
    html! {
        h2 { @if gap { "Gaps" } @else { "Wakeup latency" } }
        div.box tabindex="0" {
            table.cards {
                thead { tr {
                    @if runs.len() > 1 { th { "run" } }
                    th.n { "CPU" } th { "policy" } th.n { "min" } th.n { "p50" } th.n { "p99" }
                    th.n { "p99.9" } th.n { "max" } th.n { "beyond" }
                    th.n { @if gap { "gap time" } @else { "missed" } }
                } }
                tbody {
                    @for (run, name) in runs.iter().zip(names) {
                        @for thread in &run.threads {
                            (thread_row(run, thread, (runs.len() > 1).then_some(name)))
                        }
                    }
                }
            }
        }
    }
}

fn thread_row(run: &Run, thread: &MeasuringThread, name: Option<&String>) -> Markup {
    let all = thread.corrected.as_ref().unwrap_or(&thread.readings);
    let shown = |value: Option<Nanos>| value.map_or("–".to_owned(), |v| run.figure(v));
    let gap = run.is_gap();
    html! {
        tr {
            @if let Some(name) = name { td.name { (name) } }
            td.n data-name="CPU" { (thread.cpu) }
            td { (known::policy(thread)) }
            td.n data-name="min" { (shown(thread.readings.min)) }
            @for (q, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")] {
                td.n data-name=(name) { (shown(all.percentile(q))) }
            }
            td.n data-name="max" {
                (shown(thread.readings.max))
                @if let Some(at) = thread.max_at { br; small { "at " (at) } }
            }
            td.n data-name="beyond" {
                @if let (Some(threshold), Some(beyond), Some(expected)) =
                    (run.spec.threshold, thread.beyond, thread.expected)
                {
                    @if gap { (words::count(beyond)) }
                    @else { (part(all.above(threshold), expected)) }
                    br; small { "above " (threshold) }
                } @else { (known::NOT_KNOWN) }
            }
            td.n data-name=(if gap { "gap time" } else { "missed" }) {
                @if gap {
                    @if let (Some(stolen), Some(lasted)) = (thread.stolen, run.lasted) {
                        (part(stolen.0, lasted.0)) br; small { (stolen) }
                    } @else { (known::NOT_KNOWN) }
                } @else if let (Some(missed), Some(expected)) = (thread.missed, thread.expected) {
                    (words::count(missed)) br; small { "of " (words::count(expected)) }
                } @else { (known::NOT_KNOWN) }
            }
        }
    }
}
