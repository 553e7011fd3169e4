//! The history as pages: what is kept, one of it with its report, two runs compared.

use crate::{
    api,
    guard::Access,
    pages::{Page, Trouble, page},
    state::{App, Problem},
};
use axum::{
    Extension,
    extract::{Path, Query, State},
    http::{HeaderValue, header},
    response::{Html, IntoResponse, Response},
};
use maud::{Markup, html};
use quiet_store::{Kept, KeptKind};
use quiet_types::{
    history::{History, Line, Proven},
    words,
};
use std::sync::Arc;

type AppState = State<Arc<App>>;

/// How many are listed.
const SHOWN: usize = 100;

pub(crate) async fn runs(State(app): AppState, Extension(access): Extension<Access>) -> Page {
    let query = api::RunsQuery { filter: String::new(), last: Some(SHOWN) };
    let read = move |app: &App| Ok::<_, Problem>((api::history(app, &query)?, others(app)));
    let (history, others) = app.blocking(read).await??;
    let body = html! {
        h1 { "Runs and proofs" }
        @if history.runs.is_empty() && history.proofs.is_empty() && others.is_empty() {
            p.none { "Nothing is kept yet: " code { "quietcores measure wakeup" } " measures, " code { "quietcores prove" } " proves." }
        }
        @if !history.proofs.is_empty() { (proofs(&history.proofs)) }
        @if !history.runs.is_empty() { (table(&history)) }
        @if !others.is_empty() {
            section {
                h2 { "Tunes, and what was measured by sound" }
                ul { @for (id, what) in &others { li { a href={ "/runs/" (id) } { (when(id)) } " " (what) } } }
            }
        }
    };
    Ok(page(&app, access, "/runs", "Runs", body))
}

/// What is neither a run nor a proof, newest first.
fn others(app: &App) -> Vec<(String, &'static str)> {
    let entries = app.doors.store.list().unwrap_or_default();
    let what = |kind| match kind {
        KeptKind::Buffers => Some("a table of buffers"),
        KeptKind::RoundTrip => Some("a round trip"),
        KeptKind::Tune => Some("a tune"),
        KeptKind::Run | KeptKind::Proof => None,
    };
    let others =
        entries.iter().rev().filter_map(|entry| Some((entry.id.clone(), what(entry.kind)?)));
    others.take(SHOWN).collect()
}

/// Ids begin with the time: `20261124T160000Z-...`.
fn when(id: &str) -> String {
    id.split('-').next().unwrap_or(id).to_owned()
}

fn proofs(proofs: &[Proven]) -> Markup {
    html! {
        section {
            h2 { "Proofs" }
            ul.kept {
                @for proof in proofs.iter().rev() {
                    li {
                        a href={ "/runs/" (proof.id) } { (proof.started) }
                        " " (proof.question) ": " strong { (proof.sentence) }
                    }
                }
            }
        }
    }
}

fn figure(value: Option<quiet_types::Nanos>) -> String {
    value.map_or_else(|| "not known".into(), |value| value.to_string())
}

fn row(run: &Line) -> Markup {
    let started = run.started.as_deref().unwrap_or(&run.id);
    html! {
        tr data-run=(run.id) {
            td {
                // Without a script, a form with two choices; with it, two presses.
                label.radio { input type="radio" name="a" value=(run.id) aria-label=(format!("{started} as A")); " A" }
                " "
                label.radio { input type="radio" name="b" value=(run.id) aria-label=(format!("{started} as B")); " B" }
                button.pick type="button" hidden aria-pressed="false" aria-label=(format!("Compare {started}")) { "Compare" }
            }
            td { a href={ "/runs/" (run.id) } { (started) } }
            td { (run.probe) @if !run.label.is_empty() { " " (run.label) } }
            td { (run.cpus) }
            td { (figure(run.p50)) }
            td { (figure(run.p99)) }
            td { (figure(run.max)) }
            td { (run.stress.as_deref().unwrap_or("not known")) }
            td { (run.kernel) }
        }
    }
}

fn table(history: &History) -> Markup {
    html! {
        section {
            h2 { "Runs" }
            form #compare action="/compare" method="get" {
                p #picked.note role="status" { "Choose a run A and a run B to compare, or open one." }
                div.wide tabindex="0" role="region" aria-label="Runs" {
                    table {
                        thead { tr {
                            th { "Compare" } th { "Run" } th { "Probe" } th { "CPU" } th { "Median" } th { "p99" } th { "Longest" }
                            th { "Stress" } th { "Kernel" }
                        } }
                        tbody { @for run in history.runs.iter().rev() { (row(run)) } }
                    }
                }
                div.row.radio { button.main type="submit" { "Compare" } }
            }
            p.note { (words::count(history.total)) " runs are kept." }
        }
    }
}

/// One that is kept, with its report within the page.
pub(crate) async fn kept(
    State(app): AppState,
    Extension(access): Extension<Access>,
    Path(id): Path<String>,
) -> Page {
    let (kept, _) = app.blocking(move |app| api::kept(app, &id)).await??;
    let (id, what) = (kept.id().to_owned(), kept.what());
    let body = html! {
        h1 { (when(&id)) ": " (what) }
        p.note {
            (id) ". " a href={ "/runs/" (id) "/report" } { "The report alone" } ", "
            a href={ "/api/v1/runs/" (id) } { "as JSON" } ", " a href="/runs" { "all that is kept" } "."
        }
        iframe.report src={ "/runs/" (id) "/report" } sandbox="allow-scripts" title=(format!("The report of {id}")) {}
    };
    Ok(page(&app, access, "/runs", what, body))
}

/// A report is a page of its own with a style and script of its own: shown apart, where it reaches nothing of this server's.
pub(crate) async fn report(
    State(app): AppState,
    Path(id): Path<String>,
) -> Result<Response, Trouble> {
    let page = app
        .blocking(move |app| {
            Ok::<String, Problem>(match api::kept(app, &id)?.0 {
                Kept::Run(run) => quiet_report::runs_page(&[*run]),
                Kept::Proof(proof) => quiet_report::proof_page(&proof),
                Kept::Buffers(it) => quiet_report::buffers_page(&it),
                Kept::RoundTrip(it) => quiet_report::trip_page(&it),
                Kept::Tune(it) => quiet_report::tune_page(&it),
            })
        })
        .await??;
    Ok(apart(page))
}

/// A page that stands within one of the server's, with a style and a script of its own, and reaches nothing.
pub(crate) fn apart(page: String) -> Response {
    let mut answer = Html(page).into_response();
    let apart = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; \
                 script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(apart));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    answer
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
