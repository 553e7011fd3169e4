//! The interface for scripts: JSON under `/api/v1`.

use crate::state::{App, Problem, asking};
use axum::{
    body::{Body, Bytes},
    extract::{Path, Query, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream::unfold;
use quiet_judge::Ask;
use quiet_live::Hands;
use quiet_store::{Filter, Kept, KeptKind};
use quiet_types::{
    Frames, Machine, Plan, Run, SampleRate,
    check::Checked,
    compared::Compared,
    history::{History, SCHEMA},
    live::{Deed, LiveEvent, LiveSound, Moment, SoundWish},
    plan::Status,
    play::Knobs,
    prediction::Prediction,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    convert::Infallible,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// An answer in JSON.
pub(crate) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => asked(error).into_response(),
        }
    }
}

pub(crate) type Answer<T> = Result<Json<T>, Problem>;
pub(crate) type AppState = State<Arc<App>>;

/// What a moment may be old, and how long one is waited for.
const AGE: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(30);

pub(crate) fn bad(status: StatusCode) -> impl Fn(String) -> Problem {
    move |why| Problem(status, why)
}

fn asked<E: std::fmt::Display>(error: E) -> Problem {
    Problem(StatusCode::BAD_REQUEST, quiet_live::clean(&format!("{error:#}"), 2000))
}

pub(crate) async fn moment(app: &Arc<App>) -> Result<Arc<Moment>, Problem> {
    let moment = app.blocking(|app| app.doors.watch.recent(AGE, WAIT)).await?;
    let none =
        || Problem(StatusCode::SERVICE_UNAVAILABLE, "the machine was not looked at yet".into());
    moment.ok_or_else(none)
}

pub(crate) async fn described() -> Json<Value> {
    Json(crate::openapi())
}

pub(crate) async fn live(State(app): AppState) -> Answer<Moment> {
    Ok(Json((*moment(&app).await?).clone()))
}

pub(crate) async fn events(State(app): AppState) -> Json<Vec<LiveEvent>> {
    Json(app.doors.watch.events())
}

pub(crate) async fn status(State(app): AppState) -> Answer<Status> {
    moment(&app).await?;
    app.doors.watch.status().map(Json).map_err(bad(StatusCode::SERVICE_UNAVAILABLE))
}

pub(crate) async fn machine(State(app): AppState) -> Answer<Machine> {
    let machine = app.blocking(|app| (app.doors.machine)()).await?;
    machine.map(Json).map_err(bad(StatusCode::SERVICE_UNAVAILABLE))
}

pub(crate) async fn plan(State(app): AppState) -> Answer<Plan> {
    let plan = app.blocking(|app| app.doors.hands.plan()).await?;
    plan.map(Json).map_err(bad(StatusCode::CONFLICT))
}

/// Follows one less when it is dropped.
struct Follower(Arc<AtomicUsize>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The number after `after=` in the address: the moment that the page has seen last.
fn seen(request: &Request) -> Option<u64> {
    let words = request.uri().query()?.split('&');
    words.filter_map(|word| word.strip_prefix("after=")).next()?.parse().ok()
}

/// Moments as server-sent events. Who is slow misses moments, and no event; so does who comes again and names the last one.
pub(crate) async fn stream(State(app): AppState, request: Request) -> Response {
    let Ok(place) = app.streams.clone().try_acquire_owned() else {
        let why = "too many follow the stream already";
        return Problem(StatusCode::SERVICE_UNAVAILABLE, why.into()).into_response();
    };
    app.following.fetch_add(1, Relaxed);
    let held = (place, asking(&request), Follower(app.following.clone()));
    // A number from before this server began is none of its own.
    let last = seen(&request).filter(|seen| *seen <= app.doors.watch.number()).unwrap_or(0);
    let state = (app.moments.clone(), app.clone(), last, held);
    let stream = unfold(state, |(mut moments, app, mut last, held)| async move {
        let next = match tokio::time::timeout(Duration::from_secs(10), moments.changed()).await {
            Ok(Ok(())) => Some(moments.borrow_and_update().clone()),
            Ok(Err(_)) => return None,
            // A word now and then, so that a client that is gone is noticed.
            Err(_) => None,
        };
        let text = match next {
            Some((number, _)) if last > 0 && number > last + 1 => {
                let caught_up = app.doors.watch.after(last, Duration::ZERO);
                caught_up.and_then(|moment| {
                    last = moment.number;
                    serde_json::to_string(&*moment).ok().map(Arc::from)
                })
            }
            Some((number, text)) if number > last => {
                last = number;
                Some(text)
            }
            _ => None,
        };
        let text = text.map_or(":\n\n".to_owned(), |text| format!("data: {text}\n\n"));
        Some((Ok::<Bytes, Infallible>(Bytes::from(text)), (moments, app, last, held)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

/// A shield for a while, unless it is confirmed.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyBody {
    /// Put back after so many seconds unless it is confirmed; `null` or left out: it stays.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3600))]
    confirm: Option<u64>,
}

/// A loan.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LendBody {
    /// For so many seconds.
    #[schemars(range(min = 1, max = 86400))]
    seconds: u64,
}

pub(crate) fn body<T: for<'a> Deserialize<'a>>(bytes: &Bytes) -> Result<T, Problem> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|e| asked(format!("cannot understand the body: {e}")))
}

/// One deed at a time, on a thread of its own.
async fn deed(
    app: Arc<App>,
    act: impl FnOnce(&dyn Hands) -> Result<Deed, String> + Send + 'static,
) -> Answer<Deed> {
    let _turn = app.turn()?;
    let done = app.blocking(move |app| act(&*app.doors.hands)).await?;
    app.doors.watch.poke();
    done.map(Json).map_err(bad(StatusCode::CONFLICT))
}

pub(crate) async fn apply(State(app): AppState, bytes: Bytes) -> Answer<Deed> {
    let asked_for: ApplyBody = body(&bytes)?;
    if asked_for.confirm.is_some_and(|seconds| !(1..=3600).contains(&seconds)) {
        return Err(asked("`confirm` is 1 to 3600 seconds"));
    }
    deed(app, move |hands| hands.apply(asked_for.confirm)).await
}

pub(crate) async fn confirm(State(app): AppState) -> Answer<Deed> {
    deed(app, |hands| hands.confirm()).await
}

pub(crate) async fn revert(State(app): AppState) -> Answer<Deed> {
    deed(app, |hands| hands.revert()).await
}

pub(crate) async fn lend(State(app): AppState, bytes: Bytes) -> Answer<Deed> {
    let terms: LendBody = body(&bytes)?;
    if !(1..=86_400).contains(&terms.seconds) {
        return Err(asked("`seconds` is 1 to 86400"));
    }
    deed(app, move |hands| hands.lend(terms.seconds)).await
}

pub(crate) async fn take_back(State(app): AppState) -> Answer<Deed> {
    deed(app, |hands| hands.take_back()).await
}

pub(crate) async fn sounds(State(app): AppState) -> Answer<Vec<LiveSound>> {
    Ok(Json(moment(&app).await?.sounds.clone()))
}

/// What a playing engine is asked for: nothing that names a file, and not its end.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
pub(crate) struct SoundBody {
    /// Its control socket's name, as the stream has it.
    engine: String,
    #[serde(flatten)]
    wish: SoundWish,
}

/// Does something with the folder of control sockets.
pub(crate) async fn engine<T: Send + 'static>(
    app: &Arc<App>,
    act: impl FnOnce(&std::path::Path, &App) -> Result<T, String> + Send + 'static,
) -> Result<T, Problem> {
    let act = move |app: &App| {
        let dir = app.doors.engines.as_ref();
        act(dir.ok_or("there is no private directory for control sockets")?, app)
    };
    app.blocking(act).await?.map_err(bad(StatusCode::CONFLICT))
}

pub(crate) async fn sound(State(app): AppState, bytes: Bytes) -> Answer<Value> {
    let SoundBody { engine: name, wish } = body(&bytes)?;
    let act = move |dir: &std::path::Path, _: &App| {
        quiet_live::wish(dir, &name, &wish).map_err(|e| e.to_string())
    };
    engine(&app, act).await.map(Json)
}

pub(crate) async fn knobs(State(app): AppState, Path(name): Path<String>) -> Answer<Knobs> {
    let act = move |dir: &std::path::Path, _: &App| {
        quiet_live::knobs(dir, &name).map_err(|e| e.to_string())
    };
    engine(&app, act).await.map(Json)
}

/// Onto which engine a file is dropped, and the file's name.
#[derive(Debug, Deserialize)]
pub(crate) struct DropQuery {
    engine: String,
    name: String,
}

/// An amp or an impulse response, as it is, for an engine that plays.
pub(crate) async fn drop_file(
    State(app): AppState,
    Query(to): Query<DropQuery>,
    bytes: Bytes,
) -> Answer<Deed> {
    let act = move |dir: &std::path::Path, app: &App| {
        let folder = app.doors.sounds.as_ref();
        let folder = folder.ok_or("this user has no folder for dropped files")?;
        quiet_live::drop_sound((dir, &to.engine), folder, (&to.name, &bytes))
    };
    engine(&app, act).await.map(Json)
}

/// Which runs.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RunsQuery {
    #[serde(default)]
    pub filter: String,
    pub last: Option<usize>,
}

/// Most runs of an answer.
const MOST_RUNS: usize = 500;

pub(crate) fn history(app: &App, query: &RunsQuery) -> Result<History, Problem> {
    let filter = Filter::parse(&query.filter).map_err(asked)?;
    let index = app.doors.store.index().map_err(asked)?;
    let most = query.last.unwrap_or(20).min(MOST_RUNS);
    let mut history = History {
        schema: SCHEMA.to_owned(),
        total: index.count(&filter).map_err(asked)?,
        runs: index.lines(&filter, most).map_err(asked)?,
        ..History::default()
    };
    if query.filter.is_empty() {
        let mut entries = app.doors.store.list().map_err(asked)?;
        entries.retain(|entry| entry.kind == KeptKind::Proof);
        let more = entries.len().saturating_sub(most);
        let proofs = entries.iter().skip(more);
        history.proofs = proofs.filter_map(|entry| quiet_store::proven(&entry.path).ok()).collect();
    }
    Ok(history)
}

pub(crate) async fn runs(State(app): AppState, Query(query): Query<RunsQuery>) -> Answer<History> {
    app.blocking(move |app| history(app, &query)).await?.map(Json)
}

/// A run by its id, or the beginning of one, and its file; never by a path.
pub(crate) fn kept(app: &App, id: &str) -> Result<(Kept, PathBuf), Problem> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.len() > 200 || !id.chars().all(fine) || id.starts_with('.') {
        return Err(Problem(StatusCode::NOT_FOUND, "there is no run of that name".into()));
    }
    let not_there = |e: quiet_store::Error| {
        Problem(StatusCode::NOT_FOUND, quiet_live::clean(&e.to_string(), 500))
    };
    let none = |why: &str| Problem(StatusCode::NOT_FOUND, why.to_owned());
    let entries = app.doors.store.list().map_err(asked)?;
    let mut meant = entries.iter().filter(|entry| entry.id == id);
    let mut like = entries.iter().filter(|entry| entry.id.starts_with(id));
    let entry = match (meant.next(), like.next(), like.next()) {
        (Some(one), ..) | (None, Some(one), None) => one,
        (None, None, _) => return Err(none("there is no run of that name")),
        _ => return Err(none("several are meant: give more of the id")),
    };
    Ok((quiet_store::load(&entry.path).map_err(not_there)?, entry.path.clone()))
}

pub(crate) async fn run(State(app): AppState, Path(id): Path<String>) -> Answer<Value> {
    let (kept, _) = app.blocking(move |app| kept(app, &id)).await??;
    let value = match kept {
        Kept::Run(run) => serde_json::to_value(run),
        Kept::Proof(proof) => serde_json::to_value(proof),
        Kept::Buffers(it) => serde_json::to_value(it),
        Kept::RoundTrip(it) => serde_json::to_value(it),
        Kept::Tune(it) => serde_json::to_value(it),
    };
    value.map(Json).map_err(asked)
}

pub(crate) async fn check(State(app): AppState) -> Answer<Checked> {
    let checked = app.blocking(|app| app.doors.hands.check()).await?;
    checked.map(Json).map_err(bad(StatusCode::CONFLICT))
}

/// From which runs, for which buffers.
#[derive(Debug, Deserialize)]
pub(crate) struct PredictQuery {
    #[serde(default)]
    runs: String,
    #[serde(default)]
    frames: String,
    rate: Option<u32>,
    load: Option<f64>,
}

/// Most buffers of a prediction.
const MOST_BUFFERS: usize = 32;

fn predicted(app: &App, query: &PredictQuery) -> Result<Prediction, Problem> {
    let runs = side(app, &query.runs)?;
    if runs.is_empty() {
        return Err(asked("name runs: runs=ID,ID"));
    }
    let mut ask = Ask::default();
    if !query.frames.is_empty() {
        let frames =
            query.frames.split(',').take(MOST_BUFFERS).map(|text| text.trim().parse::<u32>());
        let frames = frames.collect::<Result<Vec<u32>, _>>().map_err(asked)?;
        ask.frames = frames.into_iter().map(Frames).collect();
    }
    ask.rate = query.rate.map_or(ask.rate, SampleRate);
    ask.load = query.load.unwrap_or(ask.load);
    if ask.rate.0 == 0 || ask.frames.iter().any(|frames| frames.0 == 0) {
        return Err(asked("a buffer has frames, and a rate"));
    }
    if !(0.0..=0.99).contains(&ask.load) {
        return Err(asked("`load` is 0 to 0.99: else nothing is left to work delays off"));
    }
    Ok(quiet_judge::predict(&runs, &ask))
}

pub(crate) async fn predict(
    State(app): AppState,
    Query(query): Query<PredictQuery>,
) -> Answer<Prediction> {
    app.blocking(move |app| predicted(app, &query)).await?.map(Json)
}

/// Two sides.
#[derive(Debug, Deserialize)]
pub(crate) struct CompareQuery {
    #[serde(default)]
    pub a: String,
    #[serde(default)]
    pub b: String,
}

/// The runs of a list of ids.
fn side(app: &App, names: &str) -> Result<Vec<Run>, Problem> {
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).take(64);
    names
        .map(|name| match kept(app, name)?.0 {
            Kept::Run(run) => Ok(*run),
            other => Err(asked(format!("{} is {}, and no run", other.id(), other.what()))),
        })
        .collect()
}

pub(crate) fn compared(app: &App, query: &CompareQuery) -> Result<Compared, Problem> {
    let (a, b) = (side(app, &query.a)?, side(app, &query.b)?);
    if a.is_empty() || b.is_empty() {
        return Err(asked("name runs on both sides: a=ID,ID&b=ID,ID"));
    }
    if let Some(both) = a.iter().find(|run| b.iter().any(|other| other.id == run.id)) {
        return Err(asked(format!("{} stands on both sides", both.id)));
    }
    Ok(quiet_judge::compare_runs((&query.a, &a), (&query.b, &b)))
}

pub(crate) async fn compare(
    State(app): AppState,
    Query(query): Query<CompareQuery>,
) -> Answer<Compared> {
    app.blocking(move |app| compared(app, &query)).await?.map(Json)
}
