//! Long work as jobs: begun, told of and ended under `/api/v1/jobs`.

use crate::{
    api::{Answer, AppState, Json, bad},
    state::{Problem, asking},
};
use axum::{
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream::unfold;
use quiet_types::live::LiveJob;
use std::{convert::Infallible, time::Duration};

/// Between two looks at a job that somebody follows.
const LOOK: Duration = Duration::from_millis(500);
/// So many looks without news, and a word is sent all the same: who is gone is noticed.
const SILENT: u32 = 20;

pub(crate) async fn list(State(app): AppState) -> Json<Vec<LiveJob>> {
    Json(app.doors.jobs.list())
}

fn none() -> Problem {
    Problem(StatusCode::NOT_FOUND, "there is no job of that number".into())
}

pub(crate) async fn one(State(app): AppState, Path(id): Path<u64>) -> Answer<LiveJob> {
    app.doors.jobs.get(id).map(Json).ok_or_else(none)
}

/// What it printed, where it kept nothing under an id.
pub(crate) async fn result(State(app): AppState, Path(id): Path<u64>) -> Result<Response, Problem> {
    let printed = app.doors.jobs.printed(id).ok_or_else(|| {
        let why = "nothing is here of a job of that number: what it kept is at runs/{id}";
        Problem(StatusCode::NOT_FOUND, why.into())
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], printed.to_string()).into_response())
}

pub(crate) async fn cancel(State(app): AppState, Path(id): Path<u64>) -> Answer<LiveJob> {
    app.doors.jobs.cancel(id).map(Json).map_err(bad(StatusCode::CONFLICT))
}

/// What is sent of a job that is followed.
struct Sent {
    version: Option<u64>,
    silent: u32,
    over: bool,
}

/// A job as server-sent events: each time it changes, and with its end the stream ends.
pub(crate) async fn events(
    State(app): AppState,
    Path(id): Path<u64>,
    request: Request,
) -> Response {
    let Ok(place) = app.streams.clone().try_acquire_owned() else {
        let why = "too many follow the stream already";
        return Problem(StatusCode::SERVICE_UNAVAILABLE, why.into()).into_response();
    };
    if app.doors.jobs.get(id).is_none() {
        return none().into_response();
    }
    let held = (place, asking(&request), app);
    let begun = Sent { version: None, silent: 0, over: false };
    let stream = unfold((begun, held), move |(mut sent, held)| async move {
        if sent.over {
            return None;
        }
        loop {
            let job = held.2.doors.jobs.get(id)?;
            sent.silent += 1;
            if sent.version != Some(job.version) || (sent.silent > SILENT && job.state.is_running())
            {
                (sent.version, sent.silent, sent.over) =
                    (Some(job.version), 0, !job.state.is_running());
                let text = serde_json::to_string(&job).unwrap_or_default();
                let event = Bytes::from(format!("data: {text}\n\n"));
                return Some((Ok::<Bytes, Infallible>(event), (sent, held)));
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}
