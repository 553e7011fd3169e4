//! The page of a campaign: every probe under every stress, its settings over each other.

use super::{
    began, capital,
    charts::Series,
    class, classes,
    course::{Track, course},
    least, merged, page, parts, sections,
};
use crate::campaign::{Middle, campaign_progress};
use maud::{Markup, PreEscaped, html};
use quiet_judge::{RunsBySetting, groups};
use quiet_types::words;
use quiet_types::{
    Histogram, Nanos, Run,
    campaign::{Campaigned, Versus},
    proof::Role,
};
/// The page of a campaign and its runs: how far it is, what its settings show against each other,
/// and for each probe and stress the distributions, the figure of every run in the order of time,
/// causes where they were asked for, and buffers.
pub fn campaign_page(it: &Campaigned, runs: &[Run]) -> String {
    let groups = groups(&it.cells, runs);
    let first = runs.first();
    let body = html! {
        header {
            p.over {
                "quietcores campaign"
                @if let Some(run) = first { " on " (run.host.name) ", from " (began(run.started.as_deref())) }
            }
            h1.plain { (capital(&it.name)) }
            p.lede { (campaign_progress(it)) }
        }
        @if it.compared.len() > 1 { (overview(it)) }
        @for group in &groups { (section(it, group)) }
        (parts::findings(&it.findings))
        @if let Some(run) = first {
            (parts::host(&run.host))
            (parts::state(run))
        }
        (parts::data(&it.name))
    };
    let json = serde_json::to_string(it).unwrap_or_default();
    let program = first.map_or("", |run| &run.host.program);
    page(&format!("campaign {}", it.name), program, &body, &json)
}

/// Every verdict in one table.
fn overview(it: &Campaigned) -> Markup {
    html! {
        h2 { "What is shown" }
        div.box tabindex="0" {
            table {
                thead { tr {
                    th { "probe" } th { "stress" } th { "setting" } th { "against" } th { "primary figures" } th { "verdict" }
                } }
                tbody {
                    @for versus in &it.compared {
                        tr {
                            td { (versus.probe) } td { (versus.stress) }
                            td { (versus.other) } td { (versus.base) }
                            td.wrap { (primary(versus)) }
                            td { span.verdict.(class(versus.compared.verdict)) { (versus.compared.verdict) } }
                        }
                    }
                }
            }
        }
    }
}

fn primary(versus: &Versus) -> String {
    let figures = versus.compared.figures.iter().filter(|figure| figure.role == Role::Primary);
    let said: Vec<String> = figures
        .map(|figure| format!("{} {}", figure.title, words::ratio_between(figure.ratio)))
        .collect();
    said.join(", ")
}

fn section(it: &Campaigned, group: &RunsBySetting<'_>) -> Markup {
    let measured: Vec<&(&str, Vec<&Run>)> =
        group.settings.iter().filter(|(_, runs)| !runs.is_empty()).collect();
    let Some(first) = measured.first().and_then(|(_, runs)| runs.first()) else { return html! {} };
    let gap = first.is_gap();
    let series: Vec<Series> = measured
        .iter()
        .zip(classes(measured.iter().map(|(name, _)| *name)))
        .map(|((name, runs), class)| {
            let each: Vec<Histogram> = runs.iter().map(|run| run.readings()).collect();
            Series {
                name: (*name).to_owned(),
                class,
                least: least(runs),
                whole: merged(&each),
                runs: each,
            }
        })
        .collect();
    let columns: Vec<(String, Vec<&Run>)> =
        measured.iter().map(|(name, runs)| ((*name).to_owned(), runs.clone())).collect();
    html! {
        h2 { (capital(group.probe)) ", " @if group.stress == "none" { "no stress" } @else { "stress " (group.stress) } }
        (table(it, group, gap))
        @for versus in it.compared.iter().filter(|v| (v.probe.as_str(), v.stress.as_str()) == (group.probe, group.stress)) {
            p { span.verdict.(class(versus.compared.verdict)) { (capital(&versus.compared.verdict.to_string())) }
                ": " (versus.other) " against " (versus.base) ", "
                @let (_, rest) = versus.compared.sentence.split_once(": ").unwrap_or(("", &versus.compared.sentence));
                span.calm { (rest) }
            }
        }
        (sections::charts(&series, first.spec.threshold, if gap { "gap" } else { "latency" }))
        (order(&measured, gap))
        (super::causes::side_by_side(&columns))
        (super::buffers::buffers(&columns))
    }
}

fn table(it: &Campaigned, group: &RunsBySetting<'_>, gap: bool) -> Markup {
    let shown = |time: Option<Nanos>| time.map_or("–".to_owned(), |time| time.to_string());
    let row = |(name, _): &(&str, Vec<&Run>)| {
        let middle = Middle::of(it, group.probe, group.stress, name);
        let runs = [(*name).to_owned(), middle.runs.to_string()];
        let times = [middle.p50, middle.p99, middle.p99_9, middle.max].map(shown);
        let beyond = middle.beyond.map_or("–".to_owned(), words::share);
        let missed = middle.missed.map_or("–".to_owned(), words::count);
        runs.into_iter().chain(times).chain([beyond, missed]).collect()
    };
    let rows: Vec<Vec<String>> = group.settings.iter().map(row).collect();
    let beyond = if gap { "gap time" } else { "beyond" };
    html! {
        (parts::figures_table(&["setting", "runs", "p50", "p99", "p99.9", "largest", beyond, "missed"], &rows))
        p.why { "Medians over runs; the largest reading of all of them, which is never judged." }
    }
}

/// The figure of every run, in the order in which they were made.
fn order(measured: &[&(&str, Vec<&Run>)], gap: bool) -> Markup {
    let mut all: Vec<(Option<&str>, usize, &Run)> = Vec::new();
    for (index, (_, runs)) in measured.iter().enumerate() {
        all.extend(runs.iter().map(|run| (run.started.as_deref(), index, *run)));
    }
    all.sort_by_key(|(started, ..)| *started);
    let figure = if gap { "largest gap" } else { "p99" };
    let mut tracks: Vec<Track> = measured
        .iter()
        .zip(classes(measured.iter().map(|(name, _)| *name)))
        .map(|((name, _), class)| Track { name: (*name).to_owned(), class, points: Vec::new() })
        .collect();
    let mut marks: Vec<(usize, String)> = Vec::new();
    let mut boot: Option<&str> = None;
    for (place, (started, index, run)) in all.iter().enumerate() {
        let readings = run.readings();
        let value = if gap { readings.max } else { readings.percentile(0.99) };
        let Some(value) = value else { continue };
        let said = format!("{}: {figure} {value}, {}", measured[*index].0, began(*started));
        tracks[*index].points.push((place, value, said));
        // A run that could not tell its boot says nothing of another one.
        let told = Some(run.host.boot_id.as_str()).filter(|id| !id.is_empty());
        if let (Some(before), Some(now)) = (boot, told)
            && before != now
        {
            marks.push((place, run.host.release.clone()));
        }
        boot = told.or(boot);
    }
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return html! {} };
    let ends = (began(first.0), began(last.0));
    html! {
        figure {
            (PreEscaped(course(&tracks, &marks, (&ends.0, &ends.1), &format!("{figure} of every run"))))
            p.read.screen {}
            figcaption {
                @if gap { "The largest gap" } @else { "p99" } " of every run in the order of time. "
                @if !marks.is_empty() { "An upright line is a reboot, with the kernel that came. " }
                "What drifts under all settings alike is the machine's or the neighbours'."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_judge::{campaigned, example};
    use quiet_types::campaign::{Cell, CellStanding, CellState};

    #[test]
    fn a_campaign_shows_each_setting_its_verdict_and_what_is_left() {
        let (cells, runs) = example::campaign();
        let it = campaigned("two <kernels>", cells, &runs, Nanos::from_secs(70));
        let page = campaign_page(&it, &runs);
        assert!(page.contains("Two &lt;kernels&gt;") && !page.contains("<kernels>"));
        assert!(page.contains("are left (about 70 s)"), "{page}");
        assert!(page.contains("Wakeup, stress kernel") && page.contains("Which buffer stands it"));
        assert_eq!(page.matches("chart wide").count(), 4, "histogram, tail, percentiles, order");
        assert!(
            page.contains(r#"<span class="verdict better">Better</span>: shielded against shared"#)
        );
    }

    #[test]
    fn a_campaign_of_nothing_is_a_page_too() {
        let cell = Cell { campaign: "x".into(), ..Cell::default() };
        let state = CellState { cell, state: CellStanding::Left, why: String::new(), run: None };
        let it = campaigned("x", vec![state], &[], Nanos::from_secs(1));
        assert!(campaign_page(&it, &[]).contains("0 of 1 runs are done"));
    }
}
