//! Pages, drawn on the server. maud escapes every name.

use crate::{
    api,
    guard::Access,
    state::{App, Problem},
};
use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};
use quiet_types::{
    Plan,
    live::{LiveCpu, LiveEvent, LiveProbe, LiveSound, Moment, Occupant, PROBE_BARS, QuietState},
    plan::{ShieldStanding, Status},
};
use std::sync::Arc;

type AppState = State<Arc<App>>;

/// A problem as a page.
pub(crate) struct Trouble(Problem);

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Trouble {
        Trouble(problem)
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let Trouble(Problem(status, why)) = self;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                (head("quietcores", None))
                body { main { h1 { "That did not work" } p { (why) } p { a href="/" { "Back" } } } }
            }
        };
        (status, Html(page.into_string())).into_response()
    }
}

/// The head of every page; `csrf` for those that are alive.
fn head(title: &str, csrf: Option<&str>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) }
            link rel="icon" href="/icon.svg" type="image/svg+xml";
            link rel="stylesheet" href="/page.css";
            @if let Some(csrf) = csrf {
                meta name="csrf" content=(csrf);
                script src="/live.js" defer {}
                script src="/sound.js" defer {}
                script src="/jobs.js" defer {}
            }
        }
    }
}

pub(crate) type Page = Result<Html<String>, Trouble>;

const PAGES: [(&str, &str); 7] = [
    ("/", "Live"),
    ("/sound", "Sound"),
    ("/shield", "Shield"),
    ("/machine", "Machine"),
    ("/runs", "Runs"),
    ("/tune", "Tune"),
    ("/farm", "Farm"),
];

pub(crate) fn page(
    app: &App,
    access: Access,
    here: &str,
    title: &str,
    body: Markup,
) -> Html<String> {
    let csrf = if access == Access::Act { app.rules.keys.csrf.as_str() } else { "" };
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&format!("{title} - quietcores"), Some(csrf)))
            body {
                a.skip href="#main" { "To the content" }
                header {
                    span.name { "quietcores" }
                    span.host { (app.doors.host) }
                    nav aria-label="Pages" {
                        @for (to, name) in PAGES {
                            a href=(to) aria-current=[(to == here).then_some("page")] { (name) }
                        }
                    }
                }
                p #away role="status" hidden { "The server does not answer. What is shown is old; it is tried again." }
                main #main { (body) }
                dialog #ask aria-labelledby="question" {
                    p #question {}
                    div.row { button #yes { "Do it" } button #no { "Do not" } }
                }
                footer {
                    @if access == Access::Look {
                        "You may look. To change something open the address that "
                        code { "quietcores serve" } " printed. "
                    }
                    a href="/api/v1/openapi.json" { "Interface for scripts" }
                }
            }
        }
    };
    Html(whole.into_string())
}

fn state_word(state: QuietState) -> &'static str {
    match state {
        QuietState::Quiet => "quiet",
        QuietState::Disturbed => "disturbed",
        QuietState::Lent => "lent",
        QuietState::Open => "open",
        QuietState::Unknown => "unknown",
    }
}

/// The first thing on every page that is alive.
fn sentence(moment: &Moment) -> Markup {
    let state = state_word(moment.quiet.state);
    html! {
        section #verdict.verdict data-state=(state) aria-live="polite" aria-atomic="true" {
            h1 { span #state.badge { (state) } " " span #sentence { (moment.quiet.sentence) } }
            ul #wrong hidden[moment.quiet.wrong.len() < 2] {
                @for one in moment.quiet.wrong.iter().skip(1) { li { (one) } }
            }
        }
    }
}

/// Seconds to a confirmation.
const CONFIRM: u64 = 30;

/// Buttons for what may be done now; the script shows those that fit.
fn deeds(app: &App, access: Access, moment: &Moment) -> Markup {
    let up = moment.shield.as_ref().is_some_and(|s| s.state == ShieldStanding::Up);
    let waits = moment.shield.as_ref().and_then(|s| s.confirm);
    let lent = moment.quiet.state == QuietState::Lent;
    let is_left = moment
        .shield
        .as_ref()
        .is_some_and(|s| matches!(s.state, ShieldStanding::Leftover | ShieldStanding::Rebooted));
    let what = app.doors.hands.what();
    html! {
        @if access == Access::Act {
            section #deeds.row aria-label="What can be done" {
                button #apply data-post="apply" data-body=(format!(r#"{{"confirm":{CONFIRM}}}"#)) hidden[up]
                    data-ask=(format!("Put a shield up ({what})? It is put back after {CONFIRM} s unless you confirm it.")) {
                    "Apply (" (what) ")"
                }
                button #confirm.main data-post="confirm" hidden[waits.is_none()] {
                    "Confirm " span #left { @if let Some(left) = waits { "(" (left) " s left)" } }
                }
                button #revert data-post="revert" hidden[!up && !is_left]
                    data-ask="Put the machine back as it was before the shield?" { "Revert" }
                button #lend data-post="lend" data-body=r#"{"seconds":600}"# hidden[!up || lent]
                    data-ask="Lend the shield's CPUs to everybody for 10 minutes?" { "Lend for 10 min" }
                button #take-back data-post="take-back" hidden[!lent] { "Take back" }
            }
            p #waits.countdown hidden[waits.is_none()] {
                progress #ends max=(CONFIRM) value=(waits.unwrap_or_default()) aria-label="Seconds left to confirm" {}
                " It is put back unless you confirm it."
            }
            p #said role="status" {}
        }
    }
}

fn cpu(cpu: &LiveCpu) -> Markup {
    let busy = cpu.busy.map(|busy| format!("{:.0} %", busy * 100.0));
    html! {
        li.cpu data-cpu=(cpu.id) data-shielded[cpu.shielded] data-off[!cpu.online] {
            h3 { "CPU " (cpu.id) @if cpu.shielded { " " span.tag { "shield" } } }
            p.busy {
                meter min="0" max="1" value=(cpu.busy.unwrap_or_default())
                    aria-label=(format!("CPU {} busy", cpu.id)) {}
                " " span { @if cpu.online { (busy.unwrap_or_default()) } @else { "off line" } }
            }
            ul.who { @for one in &cpu.occupants { (occupant(one)) } }
        }
    }
}

fn occupant(one: &Occupant) -> Markup {
    let what = match (one.ran, one.number) {
        (Some(ran), _) => format!("{} {ran}", one.name),
        (None, Some(number)) => format!("IRQ {number} {} x{}", one.name, one.times),
        (None, None) => format!("{} x{}", one.name, one.times),
    };
    html! { li data-foreign[one.foreign] { (what) } }
}

fn events((number, events): &(u64, Vec<LiveEvent>)) -> Markup {
    html! {
        section {
            h2 { "What happened" }
            ol #events.events data-after=(number) {
                @for event in events.iter().rev().take(50) { (line(event)) }
                @if events.is_empty() { li.none { "Nothing yet." } }
            }
        }
    }
}

pub(crate) fn meters(sound: &LiveSound) -> Markup {
    let one = |side: &str, at: usize, level: f32| {
        html! { label { (side) " " (at + 1) " " meter min="-60" max="0" high="-3" value=(level) {} } }
    };
    html! {
        div.meters {
            @for (at, level) in sound.status.levels.iter().enumerate().take(2) {
                (one("in", at, level.input)) (one("out", at, level.output))
            }
        }
    }
}

/// Columns of a histogram of load.
const COLUMNS: usize = 51;

/// Blocks by the share of a period that they took.
pub(crate) fn loads(sound: &LiveSound) -> Markup {
    let load = &sound.status.load;
    let bars = quiet_live::load_bars(&load.histogram, COLUMNS);
    let said = format!(
        "Blocks by the share of a period that they took, on a logarithmic scale: half within {} %, 99 of 100 within {} %",
        load.p50, load.p99
    );
    html! {
        figure.loads {
            svg viewBox="0 0 102 30" preserveAspectRatio="none" role="img" aria-label=(said) {
                @for (at, tall) in bars.iter().enumerate() {
                    rect x=(2 * at) width="1.8" y=(format!("{:.2}", 30.0 - 30.0 * tall))
                        height=(format!("{:.2}", 30.0 * tall)) class=[(at + 1 == COLUMNS).then_some("late")] {}
                }
            }
            figcaption { span { "0 %" } span { "50 %" } span { "a period, and later" } }
        }
    }
}

/// Columns of a probe's readings on a page.
const PROBE_WIDTH: usize = 2 * PROBE_BARS;

/// A probe that measures, with its readings by length.
fn probe(probe: &LiveProbe) -> Markup {
    let (bars, from, to) = quiet_live::probe_bars(&probe.bars).unwrap_or_default();
    let wide = PROBE_WIDTH as f64 / bars.len().max(1) as f64;
    html! {
        li.sound {
            h3 { "probe " (probe.probe) " " (probe.label) }
            p.told { (probe.told) }
            figure.loads {
                svg viewBox=(format!("0 0 {PROBE_WIDTH} 30")) preserveAspectRatio="none" role="img"
                    aria-label="Readings by their length, logarithmic on both axes" {
                    @for (at, tall) in bars.iter().enumerate() {
                        rect x=(format!("{:.2}", wide * at as f64)) width=(format!("{:.2}", wide * 0.9))
                            y=(format!("{:.2}", 30.0 - 30.0 * tall)) height=(format!("{:.2}", 30.0 * tall)) {}
                    }
                }
                figcaption { span { (from) } span { (to) } }
            }
        }
    }
}

fn sound(sound: &LiveSound, access: Access) -> Markup {
    html! {
        li.sound data-engine=(sound.name) {
            h3 { (sound.strip) }
            p.told { (sound.told) }
            (meters(sound))
            (loads(sound))
            @if access == Access::Act { (switches(sound)) }
        }
    }
}

pub(crate) fn switches(sound: &LiveSound) -> Markup {
    html! {
        div.row {
            button.bypass aria-pressed=(sound.bypass) { "Bypass" }
            button.mute aria-pressed=(sound.mute) { "Mute" }
        }
    }
}

/// The last late moments, with who was there.
pub(crate) fn late((number, events): &(u64, Vec<LiveEvent>)) -> Markup {
    let late = quiet_live::late_moments(events);
    html! {
        section {
            h2 { "Late moments" }
            p.note { "The last ten, with who else was on the engine's CPU meanwhile where that is known; "
                code { "quietcores explain" } " sees everybody." }
            ol #late.events data-after=(number) {
                @for event in &late { (line(event)) }
                @if late.is_empty() { li.none { "None yet." } }
            }
        }
    }
}

fn line(event: &LiveEvent) -> Markup {
    html! {
        li data-bad[event.kind.is_bad()] {
            time datetime=(event.at) { (event.at.get(11..19).unwrap_or_default()) } " " (event.said)
        }
    }
}

pub(crate) async fn live(State(app): AppState, Extension(access): Extension<Access>) -> Page {
    let moment = api::moment(&app).await?;
    let happened = app.doors.watch.history();
    let body = html! {
        (sentence(&moment))
        (deeds(&app, access, &moment))
        section {
            h2 { "Sound" }
            ul #sounds.sounds data-act[access == Access::Act] {
                @for one in &moment.sounds { (sound(one, access)) }
            }
            p #silent.none hidden[!moment.sounds.is_empty()] { "No engine of this user plays." }
            p { a href="/sound" { "Turn its knobs" } }
        }
        section #measuring hidden[moment.probes.is_empty()] {
            h2 { "Measuring" }
            ul #probes.sounds { @for one in &moment.probes { (probe(one)) } }
        }
        section {
            h2 { "Who is on each CPU" }
            p.note {
                "Threads by the time they ran since the last look, then interrupts. "
                span #look { (look(&moment)) }
            }
            ul #cpus.cpus { @for one in ordered(&moment.cpus) { (cpu(one)) } }
        }
        (events(&happened))
    };
    Ok(page(&app, access, "/", "Live", body))
}

fn look(moment: &Moment) -> String {
    format!(
        "{} threads, looked at every {:.1} s; {:.1} % of one CPU for all of this.",
        moment.look.threads,
        moment.look.since.as_secs_f64(),
        moment.cost * 100.0
    )
}

/// Shielded ones first.
fn ordered(cpus: &[LiveCpu]) -> Vec<&LiveCpu> {
    let (mut first, rest): (Vec<&LiveCpu>, Vec<&LiveCpu>) = cpus.iter().partition(|c| c.shielded);
    first.extend(rest);
    first
}

pub(crate) async fn machine(State(app): AppState, Extension(access): Extension<Access>) -> Page {
    let machine = app.blocking(|app| (app.doors.machine)()).await?;
    let machine = machine.map_err(|why| Problem(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let style = quiet_report::machine::MachineStyle::default();
    let text = quiet_report::machine::machine_text(&machine, style);
    let body = html! {
        h1 { "The machine" }
        pre tabindex="0" aria-label="The machine, as text" { (text) }
    };
    Ok(page(&app, access, "/machine", "Machine", body))
}

pub(crate) async fn shield(State(app): AppState, Extension(access): Extension<Access>) -> Page {
    let moment = api::moment(&app).await?;
    let status = app.doors.watch.status();
    let plan = app.blocking(|app| app.doors.hands.plan()).await?;
    let body = html! {
        (sentence(&moment))
        (deeds(&app, access, &moment))
        section { h2 { "As it is" } (standing(&status)) }
        section {
            h2 { "What apply would change" }
            @match &plan { Ok(plan) => (steps(plan)), Err(why) => p.bad { (why) } }
        }
    };
    Ok(page(&app, access, "/shield", "Shield", body))
}

fn standing(status: &Result<Status, String>) -> Markup {
    html! {
        @match status {
            Ok(status) => pre tabindex="0" aria-label="The shield, as text" {
                (quiet_report::plan::status_text(status))
            }
            Err(why) => p.bad { (why) }
        }
    }
}

fn steps(plan: &Plan) -> Markup {
    let short = |text: &str| quiet_live::clean(&text.replace('\n', " "), 300);
    html! {
        p { "Shields CPU " strong { (plan.shield.cpus) } ", leaves CPU " (plan.shield.housekeeping) " to everybody else." }
        ul { @for reason in &plan.reasons { li { (reason) } } }
        div.wide tabindex="0" role="region" aria-label="Steps" {
            table {
                thead { tr { th { "What" } th { "Now" } th { "Then" } th { "Why" } } }
                tbody {
                    @for step in &plan.steps {
                        tr {
                            td { (short(&step.action.what())) }
                            td { (step.old.as_deref().map(short).unwrap_or_else(|| "not there".into())) }
                            td { (short(&step.action.new_value())) }
                            td { (step.why) }
                        }
                    }
                }
            }
        }
        @for finding in &plan.findings { p.bad { (finding.title) } }
    }
}
