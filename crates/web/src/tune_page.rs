//! What tunes found on this machine, one beside the other, and work that may be started.

use crate::{
    guard::Access,
    pages::{Page, page},
    state::{App, Problem},
};
use axum::{Extension, extract::State};
use maud::{Markup, html};
use quiet_store::{Kept, KeptKind};
use quiet_types::{
    live::LiveJob,
    tune::{StepSays, Tuned, TunedStep},
};
use std::{collections::BTreeMap, sync::Arc};

/// Tunes that stand beside each other, and how many are listed.
const SHOWN: usize = 6;
const LISTED: usize = 50;

pub(crate) async fn tunes(
    State(app): State<Arc<App>>,
    Extension(access): Extension<Access>,
) -> Page {
    let (tunes, listed) = app.blocking(read).await??;
    let jobs = app.doors.jobs.list();
    let body = html! {
        h1 { "Tune" }
        p.note {
            "A tune tells of every step of a shield whether it helps on this machine, and finds the smallest set that is enough."
        }
        (work(&jobs, access))
        @if tunes.is_empty() {
            p.none { "No tune is kept yet: " code { "quietcores tune" } " makes one." }
        } @else {
            section {
                h2 { "What each step did" }
                (table(&tunes))
                p.note {
                    "By tune, the newest first. A factor below 1 is less latency with the step. Not shown is not the same as does nothing."
                }
            }
            section {
                h2 { "What they say" }
                ul.kept { @for tuned in &tunes { (said(tuned)) } }
            }
        }
        @if listed.len() > tunes.len() {
            section {
                h2 { "Earlier ones" }
                ul { @for id in listed.iter().skip(tunes.len()) { li { a href={ "/runs/" (id) } { (id) } } } }
            }
        }
    };
    Ok(page(&app, access, "/tune", "Tune", body))
}

/// The newest tunes, and the ids of more, newest first.
fn read(app: &App) -> Result<(Vec<Tuned>, Vec<String>), Problem> {
    let entries = app.doors.store.list().unwrap_or_default();
    let mut tunes = Vec::new();
    let mut listed = Vec::new();
    for entry in entries.iter().rev().filter(|entry| entry.kind == KeptKind::Tune).take(LISTED) {
        listed.push(entry.id.clone());
        if tunes.len() < SHOWN
            && let Ok(Kept::Tune(tuned)) = quiet_store::load(&entry.path)
        {
            tunes.push(*tuned);
        }
    }
    Ok((tunes, listed))
}

fn said(tuned: &Tuned) -> Markup {
    html! {
        li {
            a href={ "/runs/" (tuned.head.id) } { (tuned.head.started) }
            " " (tuned.question) ": " strong { (tuned.sentence) }
        }
    }
}

/// Steps by tunes.
fn table(tunes: &[Tuned]) -> Markup {
    let mut steps: BTreeMap<&str, Vec<Option<&TunedStep>>> = BTreeMap::new();
    for (at, tuned) in tunes.iter().enumerate() {
        for step in &tuned.steps {
            let row = steps.entry(&step.factor.name).or_insert_with(|| vec![None; tunes.len()]);
            row[at] = Some(step);
        }
    }
    html! {
        div.wide tabindex="0" role="region" aria-label="Steps by tunes" {
            table {
                thead { tr {
                    th { "Step" }
                    @for tuned in tunes {
                        th { a href={ "/runs/" (tuned.head.id) } { (tuned.head.started.get(..16).unwrap_or(&tuned.head.started)) } }
                    }
                } }
                tbody {
                    @for (name, row) in &steps {
                        tr { td { (name) } @for step in row { td { (cell(*step)) } } }
                    }
                }
            }
        }
    }
}

fn cell(step: Option<&TunedStep>) -> Markup {
    html! {
        @match step {
            None => { span.none { "not tried" } }
            Some(step) => {
                span.good[step.says == StepSays::Helps].bad[step.says == StepSays::Hurts] { (step.says) }
                @if let Some(effect) = step.effects.first() { " x" (format!("{:.2}", effect.ratio.value)) }
                @if step.kept { " " span.tag { "enough" } }
            }
        }
    }
}

/// Long work: what runs, and what may be started.
fn work(jobs: &[LiveJob], access: Access) -> Markup {
    html! {
        section {
            h2 { "Work" }
            @if access == Access::Act {
                form #work.row {
                    label { "What " select name="work" {
                        option value="measure wakeup" { "measure wakeup latency" }
                        option value="measure gap" { "measure gaps" }
                        option value="prove" { "prove a shield" }
                        option value="tune" { "tune" }
                    } }
                    label { "CPUs " input type="text" name="cpus" size="8" placeholder="1" aria-describedby="work-note"; }
                    label { "Seconds " input type="number" name="seconds" min="1" max="86400" value="60"; }
                    button.main type="submit" { "Begin" }
                }
                p #work-note.note {
                    "One at a time. A proof takes 8 pairs, however long that is; it and a tune put a shield up and take it away again, with "
                    "the rights of whoever runs this server."
                }
                p #said role="status" {}
            }
            ol #jobs.jobs data-act[access == Access::Act] { @for job in jobs.iter().rev() { (line(job)) } }
        }
    }
}

fn line(job: &LiveJob) -> Markup {
    html! {
        li data-job=(job.id) data-state=(job.state.word()) {
            strong { (job.what) } " " span.state { (job.state.word()) }
            @if let Some(id) = &job.result { " " a href={ "/runs/" (id) } { "its result" } }
            @if job.printed { " " a href={ "/api/v1/jobs/" (job.id) "/result" } { "its result as JSON" } }
            @if let Some(said) = job.said.last() { p.note { (said) } }
        }
    }
}
