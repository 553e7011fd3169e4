//! Pages, drawn on the server. maud escapes every name.

use crate::{
    api,
    guard::Access,
    state::{App, Problem},
};
use axum::{
    Extension,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};
use quiet_store::Kept;
use quiet_types::{
    Plan,
    live::{LiveCpu, LiveEvent, LiveSound, Moment, Occupant, QuietState},
    plan::{ShieldStanding, Status},
    words,
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
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "quietcores" }
                    link rel="icon" href="/icon.svg" type="image/svg+xml";
                    link rel="stylesheet" href="/page.css";
                }
                body { main { h1 { "That did not work" } p { (why) } p { a href="/" { "Back" } } } }
            }
        };
        (status, Html(page.into_string())).into_response()
    }
}

type Page = Result<Html<String>, Trouble>;

const PAGES: [(&str, &str); 4] =
    [("/", "Live"), ("/machine", "Machine"), ("/shield", "Shield"), ("/runs", "Runs")];

fn page(app: &App, access: Access, here: &str, title: &str, body: Markup) -> Html<String> {
    let csrf = if access == Access::Act { app.rules.keys.csrf.as_str() } else { "" };
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="csrf" content=(csrf);
                title { (title) " - quietcores" }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/page.css";
                script src="/live.js" defer {}
            }
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
                button #apply data-post="apply" data-body=r#"{"confirm":30}"# hidden[up]
                    data-ask=(format!("Put a shield up ({what})? It is put back after 30 s unless you confirm it.")) {
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

fn events(events: &[LiveEvent]) -> Markup {
    html! {
        section {
            h2 { "What happened" }
            ol #events.events {
                @for event in events.iter().rev().take(50) {
                    li data-bad[event.kind.is_bad()] {
                        time datetime=(event.at) { (event.at.get(11..19).unwrap_or_default()) } " " (event.said)
                    }
                }
                @if events.is_empty() { li.none { "Nothing yet." } }
            }
        }
    }
}

fn sound(sound: &LiveSound, access: Access) -> Markup {
    let status = &sound.status;
    html! {
        li.sound data-engine=(sound.name) {
            h3 { (sound.strip) }
            p.told {
                "CPU " (status.cpus) ", " (status.rate) " Hz, period " (status.period) ", DSP load "
                (format!("{:.0} %", status.load.mean)) ", worst " (status.load.worst) ", late "
                (status.missed) ", xruns " (status.xruns)
            }
            div.meters {
                @for (at, level) in status.levels.iter().enumerate().take(2) {
                    label { "in " (at + 1) " " meter min="-60" max="0" high="-3" value=(level.input) {} }
                    label { "out " (at + 1) " " meter min="-60" max="0" high="-3" value=(level.output) {} }
                }
            }
            @if access == Access::Act {
                div.row {
                    button.bypass aria-pressed=(sound.bypass) { "Bypass" }
                    button.mute aria-pressed=(sound.mute) { "Mute" }
                }
            }
        }
    }
}

pub(crate) async fn live(State(app): AppState, Extension(access): Extension<Access>) -> Page {
    let moment = api::moment(&app).await?;
    let happened = app.doors.watch.events();
    let body = html! {
        (sentence(&moment))
        (deeds(&app, access, &moment))
        section {
            h2 { "Sound" }
            ul #sounds.sounds data-act[access == Access::Act] {
                @for one in &moment.sounds { (sound(one, access)) }
            }
            p #silent.none hidden[!moment.sounds.is_empty()] { "No engine of this user plays." }
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

pub(crate) async fn runs(State(app): AppState, Extension(access): Extension<Access>) -> Page {
    let query = api::RunsQuery { filter: String::new(), last: Some(100) };
    let history = app.blocking(move |app| api::history(app, &query)).await??;
    let body = html! {
        h1 { "Runs" }
        @if history.runs.is_empty() {
            p.none { "Nothing is kept yet: " code { "quietcores measure wakeup" } " measures." }
        } @else {
            form action="/compare" method="get" {
                p.note { "Choose a run A and a run B to compare, or open one." }
                div.wide tabindex="0" role="region" aria-label="Runs" {
                    table {
                        thead { tr { th { "A" } th { "B" } th { "Run" } th { "Probe" } th { "CPU" } th { "Stress" } th { "Kernel" } } }
                        tbody {
                            @for run in history.runs.iter().rev() {
                                tr {
                                    td { input type="radio" name="a" value=(run.id) aria-label=(format!("{} as A", run.id)); }
                                    td { input type="radio" name="b" value=(run.id) aria-label=(format!("{} as B", run.id)); }
                                    td { a href={ "/runs/" (run.id) } { (run.started.as_deref().unwrap_or(&run.id)) } }
                                    td { (run.probe) }
                                    td { (run.cpus) }
                                    td { (run.stress.as_deref().unwrap_or("not known")) }
                                    td { (run.kernel) }
                                }
                            }
                        }
                    }
                }
                div.row { button.main type="submit" { "Compare" } }
            }
            p.note { (words::count(history.total)) " runs are kept." }
        }
    };
    Ok(page(&app, access, "/runs", "Runs", body))
}

/// A report is a page of its own with a style and script of its own: shown apart, where it reaches nothing of this server's.
pub(crate) async fn run(State(app): AppState, Path(id): Path<String>) -> Result<Response, Trouble> {
    let page = app
        .blocking(move |app| {
            Ok::<String, Problem>(match api::kept(app, &id)? {
                Kept::Run(run) => quiet_report::runs_page(&[*run]),
                Kept::Proof(proof) => quiet_report::proof_page(&proof),
                Kept::Buffers(it) => quiet_report::buffers_page(&it),
                Kept::RoundTrip(it) => quiet_report::trip_page(&it),
                Kept::Tune(it) => quiet_report::tune_page(&it),
            })
        })
        .await??;
    let mut answer = Html(page).into_response();
    let apart = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; \
                 script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(apart));
    Ok(answer)
}

pub(crate) async fn compare(
    State(app): AppState,
    Extension(access): Extension<Access>,
    Query(query): Query<api::CompareQuery>,
) -> Page {
    let compared = app.blocking(move |app| api::compared(app, &query)).await??;
    let body = html! {
        h1 { "B compared with A" }
        pre tabindex="0" aria-label="The comparison, as text" { (quiet_report::compared_text(&compared, 100)) }
        p { a href="/runs" { "Other runs" } }
    };
    Ok(page(&app, access, "/runs", "Comparison", body))
}
