//! The wall of a farm, where this machine is a collector, and what this machine has agreed to tell.

use crate::{
    guard::Access,
    pages::{Page, Trouble, page},
    runs_page::apart,
    state::{App, Problem},
};
use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::html;
use quiet_live::{OwnArguments, VerbCall, call_verb};
use quiet_types::{farm::FarmStatus, words};
use std::{sync::Arc, time::Duration};

/// A collector of a thousand machines answers in less.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `serve` was given to know where runs are kept.
const STORE: OwnArguments = OwnArguments { state: false, store: true, shield: false };

fn called(app: &App, line: &[&str], own: OwnArguments) -> Result<Vec<u8>, String> {
    let words = line.iter().map(|word| (*word).to_owned()).collect();
    let call = VerbCall { words, own, input: None };
    call_verb(&app.doors.program, call, PATIENCE).map(|answer| answer.printed)
}

fn wall_of(app: &App) -> Result<Vec<u8>, String> {
    called(app, &["farm", "page", "--out", "-"], STORE)
}

pub(crate) async fn farm(
    State(app): State<Arc<App>>,
    Extension(access): Extension<Access>,
) -> Page {
    let (member, wall) = app
        .blocking(|app| {
            let status = called(app, &["farm", "status", "--json"], STORE);
            let status =
                status.ok().and_then(|text| serde_json::from_slice::<FarmStatus>(&text).ok());
            // Whether there is a collector, without a look at all that it has.
            let nothing = ["farm", "ask", "--json", "until=1970-01-02"];
            (status, called(app, &nothing, STORE).map(|_| ()))
        })
        .await?;
    let body = html! {
        h1 { "Farm" }
        p.note { "Many machines' histograms as one question. " a href="/api/v1/farm/ask" { "The answer as JSON" } "." }
        @if let Some(status) = &member {
            section {
                h2 { "This machine" }
                @match &status.member {
                    None => p.none { "It is in no farm: " code { "quietcores farm join --show" } " lists what would leave it." },
                    Some(member) => {
                        p {
                            "It tells of itself as " b { (member.host) } ". "
                            (words::count(status.waiting as u64)) " records wait."
                        }
                        ul { @for line in &member.leaves { li { (line) } } }
                    }
                }
            }
        }
        section {
            h2 { "All machines" }
            @match wall {
                Ok(()) => iframe.report src="/farm/wall" sandbox="allow-scripts" title="The wall of all machines" {},
                Err(why) => p.none { (why) },
            }
        }
    };
    Ok(page(&app, access, "/farm", "Farm", body))
}

/// The wall alone, as `farm page` writes it.
pub(crate) async fn wall(State(app): State<Arc<App>>) -> Result<Response, Trouble> {
    let made = app.blocking(wall_of).await?;
    let text = made
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is no text".to_owned()))
        .map_err(|why| Problem(StatusCode::CONFLICT, why))?;
    Ok(apart(text).into_response())
}
