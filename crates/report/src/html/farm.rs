//! The wall of a farm: each machine a small histogram over time; from it to a machine, to a run, to its causes by links within the page.

use super::{charts, class, page, parts};
use crate::farm::{ahead, made_of, name};
use crate::svg::{Scale, Svg};
use charts::Series;
use maud::{Markup, PreEscaped, html};
use quiet_types::{
    Nanos,
    farm::{FarmAnswer, FarmDay, FarmGroup, FarmMachine, FarmRecord, FarmWall, WallMachine},
    words,
};

/// Kept runs that have a section of their own, in all.
const MOST_RUNS: usize = 2_000;
/// A small picture's size, px.
const SMALL: (f64, f64) = (168.0, 56.0);
/// Its scale: 1 us to 100 ms.
const SCALE: (f64, f64) = (1e3, 1e8);

const STYLE: &str = ".wall{display:grid;grid-template-columns:repeat(auto-fill,minmax(176px,1fr));gap:10px}\
.wall a{display:block;text-decoration:none;color:inherit;border:1px solid currentColor;border-radius:4px;padding:4px 6px;overflow:hidden}\
.wall a:focus,.wall a:hover{outline:2px solid currentColor}.wall strong{display:block;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\
.wall small{display:block;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.wall .silent{opacity:.55}\
.deep{display:none}.deep:target{display:block}\
svg.small{width:100%;height:auto}svg.small .u{fill:currentColor;opacity:.18}svg.small .v{fill:currentColor;opacity:.42}svg.small .w{fill:currentColor;opacity:.85}";

/// The page.
pub fn farm_page(wall: &FarmWall) -> String {
    let answer = &wall.answer;
    let silent: Vec<&str> = answer.silent.iter().map(|m| m.host.as_str()).collect();
    let ends = (wall.days.first(), wall.days.last());
    let mut runs = 0;
    let mut sections = Vec::new();
    for (at, machine) in wall.machines.iter().enumerate() {
        let room = MOST_RUNS - runs;
        let shown = &machine.kept[..machine.kept.len().min(room)];
        runs += shown.len();
        sections.push(deep(at, machine, shown, &wall.days));
    }
    let body = html! {
        style { (PreEscaped(STYLE)) }
        header {
            p.over { "quietcores farm" @if let (Some(first), Some(last)) = ends { ", " (first) " to " (last) } }
            h1.plain { (words::count(answer.machines)) @if answer.machines == 1 { " machine" } @else { " machines" } }
            p.lede { (made_of(answer)) "." }
        }
        (groups(answer))
        (said(answer))
        h2 #wall { "The wall" }
        p.why {
            "A column a day, from " (Nanos(SCALE.0 as u64)) " below to " (Nanos(SCALE.1 as u64)) " above. Dark: up to p99. "
            "Lighter: to p99.9. Lightest: to the largest. The worst machines come first. A machine leads to its runs, a run to its causes."
        }
        div.wall {
            @for (at, machine) in wall.machines.iter().enumerate() {
                a href=(format!("#m{at}")) class=[silent.contains(&machine.about.host.as_str()).then_some("silent")] {
                    strong { (machine.about.host) }
                    (PreEscaped(small(machine, wall.days.len())))
                    small { (figures(&machine.about)) }
                    small { (machine.about.kernel) }
                }
            }
        }
        @for section in sections { (section) }
        (parts::data("farm"))
    };
    let json = serde_json::to_string(answer).unwrap_or_default();
    page("farm", env!("CARGO_PKG_VERSION"), &body, &json)
}

fn figures(about: &FarmMachine) -> String {
    let time = |time: Option<Nanos>| time.map_or("–".to_owned(), |time| time.to_string());
    let late =
        about.late_share.map_or(String::new(), |share| format!(", late {}", words::share(share)));
    format!("p99.9 {}, max {}{late}", time(about.p99_9), time(about.max))
}

fn groups(answer: &FarmAnswer) -> Markup {
    let time = |time: Option<Nanos>| time.map_or("–".to_owned(), |time| time.to_string());
    let row = |group: &FarmGroup| {
        let counts = [name(group), words::count(group.machines), words::count(group.expected)];
        let times = [group.p50, group.p99, group.p99_9, group.max].map(time);
        let late = group.late_share.map_or("–".to_owned(), words::share);
        counts.into_iter().chain(times).chain([late, words::count(group.missed)]).collect()
    };
    html! {
        (parts::figures_table(
            &["group", "machines", "expected", "p50", "p99", "p99.9", "max", "late", "missed"],
            &answer.groups.iter().take(60).map(row).collect::<Vec<_>>(),
        ))
    }
}

/// What changed, who is silent, whose clock is wrong, what was refused.
fn said(answer: &FarmAnswer) -> Markup {
    html! {
        @if !answer.changes.is_empty() {
            h2 { "What changed" }
            @for change in answer.changes.iter().take(60) {
                p { span.verdict.(class(change.verdict)) { (change.verdict) } ": " (change.sentence) }
            }
        }
        @for clock in &answer.clocks { p.why { "The clock of " (clock.host) " is " (ahead(clock.ahead)) "." } }
        @for machine in &answer.silent { p.why { (machine.host) " has said nothing since " (machine.newest) "." } }
        @for one in &answer.refused { p.why { (one.records) " records were refused: " (one.why) "." } }
    }
}

/// The days of the machine's first course, each as three bars above each other.
fn small(machine: &WallMachine, days: usize) -> String {
    let mut svg = Svg::new(SMALL.0, SMALL.1);
    let scale = Scale { low: SCALE.0, high: SCALE.1, from: SMALL.1, to: 0.0 };
    let width = SMALL.0 / days.max(1) as f64;
    let empty = Vec::new();
    let course = machine.courses.first().map_or(&empty, |(_, days)| days);
    for (at, day) in course {
        let left = *at as f64 * width;
        let mut bar = |class: &str, from: Option<Nanos>, to: Option<Nanos>| {
            let (Some(from), Some(to)) = (from, to) else { return };
            let (low, high) = (scale.at(from.0 as f64), scale.at(to.0 as f64));
            svg.rect(class, (left, high), ((width - 0.5).max(0.5), (low - high).max(0.8)));
        };
        bar("w", day.p50, day.p99);
        bar("v", day.p99, day.p99_9);
        bar("u", day.p99_9, day.max);
    }
    svg.finish("small", &format!("{} over time", machine.about.host))
}

fn deep(at: usize, machine: &WallMachine, runs: &[FarmRecord], days: &[String]) -> Markup {
    html! {
        section.deep id=(format!("m{at}")) {
            h2 { (machine.about.host) }
            p { (machine.about.cpu) ", " (machine.about.kernel) ", newest " (machine.about.newest) ". " a href="#wall" { "Back to the wall" } }
            @for (probe, course) in &machine.courses { (course_table(probe, course, days)) }
            h3 { "Kept" }
            @if runs.is_empty() { p.why { "No run, proof or tune of it is here." } }
            ul {
                @for (n, run) in runs.iter().enumerate() {
                    li { a href=(format!("#m{at}r{n}")) { (run.id) } " " (one_line(run)) }
                }
            }
        }
        @for (n, run) in runs.iter().enumerate() { (one_run(at, n, machine, run)) }
    }
}

fn course_table(probe: &str, course: &[(usize, FarmDay)], days: &[String]) -> Markup {
    let time = |time: Option<Nanos>| time.map_or("–".to_owned(), |time| time.to_string());
    let row = |(at, day): &(usize, FarmDay)| {
        let name = days.get(*at).cloned().unwrap_or_default();
        let times = [day.p50, day.p99, day.p99_9, day.max].map(time);
        let counts = [day.expected, day.late, day.missed].map(words::count);
        [name].into_iter().chain(times).chain(counts).collect()
    };
    html! {
        h3 { (probe) ", day by day" }
        (parts::figures_table(
            &["day", "p50", "p99", "p99.9", "max", "expected", "late", "missed"],
            &course.iter().rev().take(14).map(row).collect::<Vec<_>>(),
        ))
    }
}

fn one_line(run: &FarmRecord) -> String {
    let figure = run.readings.percentile(0.999);
    match (figure, run.says.is_empty()) {
        (Some(p), true) => format!("p99.9 {p}"),
        (Some(p), false) => format!("p99.9 {p}, {}", run.says),
        (None, _) => run.says.clone(),
    }
}

fn one_run(at: usize, n: usize, machine: &WallMachine, run: &FarmRecord) -> Markup {
    let mut steps: Vec<&str> = run.setting.steps.iter().map(String::as_str).collect();
    steps.truncate(40);
    html! {
        section.deep id=(format!("m{at}r{n}")) {
            h2 { (run.id) }
            p { a href=(format!("#m{at}")) { "Back to " (machine.about.host) } }
            p { (one_line(run)) }
            @if run.readings.count > 0 {
                (PreEscaped(charts::histogram(&[Series {
                    name: String::new(), class: "b", whole: run.readings.clone(), least: run.readings.min, runs: Vec::new(),
                }], run.setting.threshold, "latency")))
            }
            p.why {
                (run.setting.probe) ", " (run.setting.policy) @if !run.setting.stress.is_empty() { ", stress " (run.setting.stress) }
                @if let Some(expected) = run.expected { ", " (words::count(expected)) " periods expected" }
                @if let Some(late) = run.late { ", " (words::count(late)) " late" }
                @if let Some(missed) = run.missed { ", " (words::count(missed)) " missed" }
                "."
            }
            h3 { "Causes of late readings" }
            @if run.causes.is_empty() { p.why { "None are told: `measure --explain` tells them." } }
            ol {
                @for cause in &run.causes {
                    li { (cause.title) @if let Some(total) = cause.total { ", " (total) } ", in " (cause.readings) " readings" }
                }
            }
            @if !steps.is_empty() { p.why { "Steps: " (steps.join(", ")) } }
            @if !run.setting.parameters.is_empty() { p.why { "Boot parameters: " code { (run.setting.parameters.join(" ")) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{Histogram, farm::FarmCause};

    #[test]
    fn a_machine_leads_to_a_run_and_a_run_to_its_cause_within_the_page() {
        let run = FarmRecord {
            id: "run-1".into(),
            readings: Histogram::of([Nanos(5_000), Nanos(90_000)]),
            causes: vec![FarmCause {
                title: "IRQ 36 <eth0>".into(),
                total: Some(Nanos(8_000)),
                readings: 1,
            }],
            ..FarmRecord::default()
        };
        let day = FarmDay {
            p50: Some(Nanos(4_000)),
            p99: Some(Nanos(9_000)),
            p99_9: Some(Nanos(20_000)),
            max: Some(Nanos(90_000)),
            ..FarmDay::default()
        };
        let machine = WallMachine {
            about: FarmMachine { host: "studio-a".into(), ..FarmMachine::default() },
            courses: vec![("blocks".into(), vec![(0, day.clone()), (1, day)])],
            kept: vec![run],
        };
        let wall = FarmWall {
            answer: FarmAnswer { machines: 1, ..FarmAnswer::default() },
            days: vec!["2026-11-23".into(), "2026-11-24".into()],
            machines: vec![machine],
        };
        let page = farm_page(&wall);
        for (link, target) in [("#m0", "id=\"m0\""), ("#m0r0", "id=\"m0r0\"")] {
            assert!(page.contains(&format!("href=\"{link}\"")) && page.contains(target), "{link}");
        }
        assert!(page.contains("IRQ 36 &lt;eth0&gt;") && !page.contains("<eth0>"));
        assert_eq!(page.matches("class=\"w\"").count(), 2);
    }
}
