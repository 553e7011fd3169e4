//! One self-contained HTML page: no network, no script needed, fit for a phone and for paper.
//!
//! maud escapes every text; what is not escaped ([`maud::PreEscaped`]) is drawn by
//! [`crate::svg`], which escapes itself, or is the page's own style and script.

mod buffers;
mod campaign;
mod causes;
mod charts;
mod course;
mod farm;
mod history;
mod late;
mod maps;
mod parts;
mod sections;
mod tune;
mod waterfall;

use crate::text;
pub use campaign::campaign_page;
use charts::Series;
pub use farm::farm_page;
pub use history::history_page;
use late::LateTrack;
use maud::{DOCTYPE, Markup, PreEscaped, html};
pub(crate) use parts::{data, figures_table, findings, host};
use quiet_judge::{known, throughput};
use quiet_types::{
    Histogram, Proof, Run, proof::Setting, proof::Verdict, run::MeasuringThread, words,
};
pub use tune::tune_page;
pub(crate) use waterfall::waterfall;

/// Stands near the beginning of every page: how an earlier page is told from a foreign file.
pub const PAGE_MARK: &str = r#"<meta name="generator" content="quietcores">"#;

/// Forbids the page everything but its own style, script and sound: no request can leave it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      media-src data:; base-uri 'none'; form-action 'none'";

/// The page of a proof: verdict, figures with intervals, distributions, every run, what was done
/// to the machine and how it was left, the machine, and the data themselves.
pub fn proof_page(proof: &Proof) -> String {
    let other = proof.other();
    let word = words::verdict(proof);
    let (_, rest) = proof.sentence.split_once(": ").unwrap_or(("", &proof.sentence));
    let body = html! {
        header {
            p.over { "quietcores proof of " (proof.host.name) ", " (when(&proof.started)) }
            h1 class=(class(proof.verdict)) { (capital(&word)) }
            p.lede { (rest) }
            (sections::hero(proof))
            p.why { (proof.question) @if proof.interrupted { " (ended before its time)" } }
        }
        (sections::figures(proof))
        (sections::distributions(&wakeups(proof), Some(proof.spec.threshold)))
        (late_readings(proof))
        (sections::pairs(proof))
        (stolen(proof))
        (causes::side_by_side(&[Setting::Shared, other].map(|setting| {
            let arms = proof.arms_of(setting).filter(|arm| arm.void.is_none());
            (setting.to_string(), arms.map(|arm| &arm.wakeup).collect::<Vec<_>>())
        })))
        (findings(&proof.findings))
        (parts::applied(proof))
        (parts::stress(&throughput(proof, Setting::Shared), &throughput(proof, other), other))
        (parts::arms(proof))
        (parts::machine(&proof.machine, &proof.host))
        @if let Some(arm) = proof.arms.first() { (parts::state(&arm.wakeup)) }
        (parts::commands(&proof.commands))
        (data(&proof.id))
    };
    let json = serde_json::to_string(proof).unwrap_or_default();
    page(&format!("{}: {}", capital(&word), proof.question), &proof.host.program, &body, &json)
}

/// The page of one or several runs: a row a thread, distributions over each other, findings, and
/// the data themselves.
pub fn runs_page(runs: &[Run]) -> String {
    let first = runs.first();
    let title = match runs {
        [one] => text::asked(one),
        many => format!("{} runs", many.len()),
    };
    let several = runs.len() > 1;
    let body = html! {
        header {
            p.over {
                "quietcores " @if several { "runs" } @else { "run" }
                @if let Some(run) = first { " of " (run.host.name) ", " (began(run.started.as_deref())) }
            }
            h1.plain { (capital(&title)) }
            @if let [run] = runs { (sections::run_hero(run)) }
        }
        @for probe in [false, true] {
            @let these: Vec<&Run> =
                runs.iter().filter(|run| run.is_gap() == probe).collect();
            @if let Some(run) = these.first() {
                @let names = names(&these);
                (sections::threads(&these, &names))
                @if these.iter().any(|run| known::spread(&run.readings())) {
                    (sections::distributions(
                        &series(&these, &names), run.spec.threshold
                    ))
                } @else {
                    p.why { "Only extremes and a mean are known: there is no distribution to draw." }
                }
                (late::late(&late_tracks(&these, &names), these.iter().filter_map(|run| run.lasted).max()))
                (buffers::buffers(&columns(&these, &names)))
            }
        }
        @for run in runs {
            @if let Some(explained) = &run.explained { (causes::causes(explained)) }
        }
        @for (run, name) in runs.iter().zip(names(&runs.iter().collect::<Vec<_>>())) {
            @let found = text::findings(run);
            @if !found.is_empty() {
                @if several { h2 { "Findings of " (name) } } @else { h2 { "Findings" } }
                (parts::finding_list(&found))
            }
        }
        @if let Some(run) = first {
            @if run.origin.is_some() && run.host.release.is_empty() {
                h2 { "The machine" }
                p { "Its name, its processor and its kernel are " (known::NOT_KNOWN) "." }
            } @else { (host(&run.host)) }
            (parts::clock(run))
            (parts::state(run))
        }
        (data(first.map_or("", |run| &run.id)))
    };
    let json = match runs {
        [one] => serde_json::to_string(one),
        many => serde_json::to_string(many),
    };
    let program = first.map_or("", |run| &run.host.program);
    page(&title, program, &body, &json.unwrap_or_default())
}

pub(crate) fn page(title: &str, program: &str, body: &Markup, json: &str) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                (PreEscaped(PAGE_MARK))
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main {
                    (body)
                    footer { p { "Written by quietcores " (program) ". This page asks nothing of the network." } }
                }
                script type="application/json" id="data" { (PreEscaped(inert(json))) }
                script { (PreEscaped(include_str!("page.js"))) }
            }
        }
    }
    .into_string()
}

/// JSON that no HTML parser mistakes for markup: `<`, `>` and `&` occur in strings alone, where
/// `\u003c` means the same; U+2028 and U+2029 end a line in older scripts.
fn inert(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                safe.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => safe.push(c),
        }
    }
    safe
}

fn wakeups(proof: &Proof) -> Vec<Series> {
    [(Setting::Shared, "a"), (proof.other(), "b")]
        .map(|(setting, class)| {
            let valid = proof.arms_of(setting).filter(|arm| arm.void.is_none());
            let runs: Vec<&Run> = valid.map(|arm| &arm.wakeup).collect();
            let least = least(&runs);
            let runs: Vec<Histogram> = runs.iter().map(|run| run.readings()).collect();
            Series { name: setting.to_string(), class, least, whole: merged(&runs), runs }
        })
        .into()
}

/// The longest readings of all valid arms, by the time within each.
fn late_readings(proof: &Proof) -> Markup {
    let tracks = [(Setting::Shared, "a"), (proof.other(), "b")].map(|(setting, class)| {
        let valid = proof.arms_of(setting).filter(|arm| arm.void.is_none());
        let runs: Vec<&Run> = valid.map(|arm| &arm.wakeup).collect();
        LateTrack::of(setting.to_string(), class, &runs)
    });
    late::late(&tracks, proof.arms.iter().filter_map(|arm| arm.wakeup.lasted).max())
}

/// A track a run, in the colours of the lines above it.
fn late_tracks(runs: &[&Run], names: &[String]) -> Vec<LateTrack> {
    let named = runs.iter().zip(names).zip(CLASSES.iter().cycle());
    named
        .map(|((run, name), class)| {
            let name = if runs.len() > 1 { name.clone() } else { String::new() };
            LateTrack::of(name, class, &[run])
        })
        .take(CLASSES.len())
        .collect()
}

fn stolen(proof: &Proof) -> Markup {
    let series: Vec<Series> = [(Setting::Shared, "a"), (proof.other(), "b")]
        .map(|(setting, class)| {
            let gaps = proof.arms_of(setting).filter_map(|arm| arm.gap.as_ref());
            let runs: Vec<Histogram> = gaps.map(Run::readings).collect();
            Series {
                name: setting.to_string(),
                class,
                least: None,
                whole: merged(&runs),
                runs: Vec::new(),
            }
        })
        .into();
    let gap = proof.arms.iter().find_map(|arm| arm.gap.as_ref());
    html! { @if let Some(gap) = gap { (sections::stolen(&series, gap.spec.threshold)) } }
}

/// The smallest reading taken by any thread.
fn least(runs: &[&Run]) -> Option<quiet_types::Nanos> {
    runs.iter().flat_map(|run| &run.threads).filter_map(|thread| thread.readings.min).min()
}

fn merged(runs: &[Histogram]) -> Histogram {
    let mut whole = Histogram::default();
    for run in runs {
        whole.merge(run);
    }
    whole
}

/// A column a run where there is room for them, else one for all.
fn columns<'a>(runs: &[&'a Run], names: &[String]) -> Vec<(String, Vec<&'a Run>)> {
    if runs.len() > CLASSES.len() {
        return vec![("all runs".to_owned(), runs.to_vec())];
    }
    let each = runs.iter().zip(names).map(|(run, name)| (name.clone(), vec![*run]));
    each.collect()
}

/// A line a run; of a single run, a line a CPU.
fn series(runs: &[&Run], names: &[String]) -> Vec<Series> {
    let lines: Vec<(String, Vec<&MeasuringThread>)> = match runs {
        [run] if (2..=CLASSES.len()).contains(&run.threads.len()) => {
            run.threads.iter().map(|t| (format!("CPU {}", t.cpu), vec![t])).collect()
        }
        [run] => vec![(String::new(), run.threads.iter().collect())],
        many => many
            .iter()
            .zip(names)
            .map(|(run, name)| (name.clone(), run.threads.iter().collect()))
            .collect(),
    };
    let line = |((name, threads), class): ((String, Vec<&MeasuringThread>), &&'static str)| {
        let each: Vec<Histogram> =
            threads.iter().map(|t| t.corrected.as_ref().unwrap_or(&t.readings).clone()).collect();
        Series {
            name,
            class,
            least: threads.iter().filter_map(|thread| thread.readings.min).min(),
            whole: merged(&each),
            runs: if each.len() > CLASSES.len() { each } else { Vec::new() },
        }
    };
    lines.into_iter().zip(CLASSES.iter().cycle()).map(line).collect()
}

/// Colours and dashes of the page's style, in the order in which lines take them.
const CLASSES: [&str; 6] = ["b", "a", "c", "d", "e", "f"];

/// A class for each of these: what is shared and what is shielded look the same on every page, the others take the rest in order.
fn classes<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<&'static str> {
    let fixed = |name: &str| match name {
        _ if name.contains("shared") => Some("a"),
        _ if name.contains("shielded") => Some("b"),
        _ => None,
    };
    let has_fixed = names.clone().any(|name| fixed(name).is_some());
    let free = CLASSES.iter().filter(move |class| !has_fixed || !["a", "b"].contains(class));
    let mut free = free.cycle();
    let mut taken = Vec::new();
    for name in names {
        // Two of one kind: the second takes what is free.
        let own = fixed(name).filter(|class| !taken.contains(class));
        taken.push(own.or_else(|| free.next().copied()).unwrap_or("f"));
    }
    taken
}

/// A run's label, else its id; with its number in front where two would be named alike.
fn names(runs: &[&Run]) -> Vec<String> {
    let name = |run: &&Run| {
        let text = if run.label.is_empty() { &run.id } else { &run.label };
        quiet_types::printable(text, 28)
    };
    let names: Vec<String> = runs.iter().map(name).collect();
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    if unique.len() == names.len() {
        return names;
    }
    names.iter().enumerate().map(|(at, name)| format!("{} {name}", at + 1)).collect()
}

/// `2026-11-21 21:30 UTC` of an RFC 3339 time.
fn when(started: &str) -> String {
    match (started.get(..10), started.get(11..16)) {
        (Some(day), Some(time)) => format!("{day} {time} UTC"),
        _ => started.to_owned(),
    }
}

/// The same, where it is known.
fn began(started: Option<&str>) -> String {
    started.map_or_else(|| "undated".to_owned(), when)
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NotShown => "not-shown",
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + chars.as_str())
        .unwrap_or_default()
}

/// A cell's share of the whole.
fn part(count: u64, whole: u64) -> String {
    words::share(count as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests;
