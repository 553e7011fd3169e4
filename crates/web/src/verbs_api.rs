//! Verbs that are called: what each row of [`VERBS`] answers.

use crate::{
    api::{AppState, Json, bad, body, kept},
    state::{App, Problem},
    verbs::{Place, VERBS, VerbDoor, Way},
};
use axum::{
    Router,
    body::Bytes,
    extract::{Query, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use quiet_live::{VerbAnswer, VerbCall, call_verb};
use quiet_types::live::{JobWish, LiveJob};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long a verb may look, and how long it may act.
const LOOK: Duration = Duration::from_secs(60);
const ACT: Duration = Duration::from_secs(300);

type Given = BTreeMap<String, Value>;

/// All addresses of the table.
pub(crate) fn routes(mut router: Router<Arc<App>>) -> Router<Arc<App>> {
    for door in VERBS {
        let filter = if door.looks() { MethodFilter::GET } else { MethodFilter::POST };
        let answer = move |app: AppState,
                           Query(query): Query<Vec<(String, String)>>,
                           bytes: Bytes| async move {
            answer(door, app.0, query, bytes).await
        };
        router = router.route(&format!("/api/v1/{}", door.path), on(filter, answer));
    }
    router
}

async fn answer(
    door: &'static VerbDoor,
    app: Arc<App>,
    query: Vec<(String, String)>,
    bytes: Bytes,
) -> Result<Response, Problem> {
    // A file is the whole body: then arguments stand in the address, as those of a look do.
    let input = door.file().map(|_| bytes.to_vec());
    let given: Given = match door.looks() || input.is_some() {
        true => query.into_iter().map(|(name, text)| (name, Value::String(text))).collect(),
        false => body(&bytes)?,
    };
    if door.way == Way::Job {
        return Ok(begin(door, app, given, input).await?.into_response());
    }
    let call = checked(door, &app, &given, input).await?;
    let _turn = match door.way {
        Way::Act => Some(app.turn()?),
        _ => None,
    };
    let most = if door.way == Way::Act { ACT } else { LOOK };
    let done = app.blocking(move |app| call_verb(&app.doors.program, call, most)).await?;
    if door.way == Way::Act {
        app.doors.watch.poke();
    }
    done.map_err(bad(StatusCode::CONFLICT)).and_then(|answer| shown(door, answer))
}

async fn checked(
    door: &'static VerbDoor,
    app: &Arc<App>,
    given: &Given,
    input: Option<Vec<u8>>,
) -> Result<VerbCall, Problem> {
    let wanted = given.get("run").filter(|_| door.place == Place::Run).cloned();
    // The store is read where waiting holds nobody up.
    let found = match wanted {
        None => Ok(String::new()),
        Some(id) => {
            let id = quiet_types::live::given_text(&id);
            let find = move |app: &App| kept(app, &id).map(|found| found.1.display().to_string());
            app.blocking(find).await?
        }
    };
    let found = found?;
    door.call(given, input, |_| Ok(found)).map_err(bad(StatusCode::BAD_REQUEST))
}

fn shown(door: &VerbDoor, answer: VerbAnswer) -> Result<Response, Problem> {
    if door.way == Way::Text {
        let said: String =
            answer.said.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).collect();
        let text = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
            (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
            (
                header::HeaderName::from_static("x-quietcores-said"),
                HeaderValue::from_str(&said).unwrap_or(HeaderValue::from_static("")),
            ),
        ];
        return Ok((text, answer.printed).into_response());
    }
    // It is read once, so that nothing but JSON is ever called that.
    let value: Value = serde_json::from_slice(&answer.printed).map_err(|_| {
        let why = format!("{} printed no whole JSON. {}", door.verb, answer.said);
        Problem(StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    Ok(Json(value).into_response())
}

async fn begin(
    door: &'static VerbDoor,
    app: Arc<App>,
    given: Given,
    input: Option<Vec<u8>>,
) -> Result<Json<LiveJob>, Problem> {
    let call = checked(door, &app, &given, input).await?;
    let wish = JobWish { verb: door.verb.to_owned(), given };
    app.doors.jobs.start(wish, call).map(Json).map_err(bad(StatusCode::CONFLICT))
}

/// A job by its wish, as the page of work has it: the same as a POST to the verb's own address.
pub(crate) async fn start(State(app): AppState, bytes: Bytes) -> Result<Json<LiveJob>, Problem> {
    let wish: JobWish = body(&bytes)?;
    let fits =
        |door: &&VerbDoor| door.verb == wish.verb && door.way == Way::Job && door.file().is_none();
    let Some(door) = VERBS.iter().find(fits) else {
        let why = format!("`{}` is no job", quiet_live::clean(&wish.verb, 40));
        return Err(Problem(StatusCode::BAD_REQUEST, why));
    };
    begin(door, app, wish.given, None).await
}
