//! The routes, and what stands before all of them.

use crate::{
    api, assets, farm_page,
    guard::{Access, COOKIE, CSRF, DoorRules, Turned, check},
    jobs_api, pages, runs_page, sound_page,
    state::{AT_WORK, App, Doors, MomentText, Problem, STREAMS},
    tune_page,
    verbs::VERBS,
    verbs_api,
};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use quiet_live::Onlooker;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Largest body of a request.
const BODY: usize = 64 << 10;
/// A body is there within this.
const BODY_TIME: Duration = Duration::from_secs(5);
/// A dropped file is there within this.
const DROP_TIME: Duration = Duration::from_secs(60);
/// Where files are dropped.
const DROP: &str = "/api/v1/drop";
/// A wrong token is answered after this.
const SLOWLY: Duration = Duration::from_millis(500);

/// The pages and the interface, with all that stands before them. Needs a runtime.
pub fn app(doors: Doors, rules: DoorRules) -> Router {
    let following = Arc::new(AtomicUsize::new(0));
    let moments = bridge(doors.watch.clone(), following.clone());
    let app = Arc::new(App {
        doors,
        rules,
        moments,
        streams: Arc::new(Semaphore::new(STREAMS)),
        work: Arc::new(Semaphore::new(AT_WORK)),
        dropping: Semaphore::new(1),
        deed: tokio::sync::Mutex::new(()),
        guesses: Mutex::new((None, 0)),
        following,
    });
    let asset = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    verbs_api::routes(Router::new())
        .route("/", get(pages::live))
        .route("/machine", get(pages::machine))
        .route("/shield", get(pages::shield))
        .route("/sound", get(sound_page::sound))
        .route("/runs", get(runs_page::runs))
        .route("/runs/{id}", get(runs_page::kept))
        .route("/runs/{id}/report", get(runs_page::report))
        .route("/tune", get(tune_page::tunes))
        .route("/farm", get(farm_page::farm))
        .route("/farm/wall", get(farm_page::wall))
        .route("/compare", get(runs_page::compare))
        .route("/page.css", asset("text/css; charset=utf-8", assets::STYLE))
        .route("/live.js", asset("text/javascript; charset=utf-8", assets::SCRIPT))
        .route("/sound.js", asset("text/javascript; charset=utf-8", assets::SOUND))
        .route("/jobs.js", asset("text/javascript; charset=utf-8", assets::JOBS))
        .route("/icon.svg", asset("image/svg+xml", assets::ICON))
        .route("/api/v1/openapi.json", get(api::described))
        .route("/api/v1/live", get(api::live))
        .route("/api/v1/stream", get(api::stream))
        .route("/api/v1/events", get(api::events))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/machine", get(api::machine))
        .route("/api/v1/plan", get(api::plan))
        .route("/api/v1/apply", post(api::apply))
        .route("/api/v1/confirm", post(api::confirm))
        .route("/api/v1/revert", post(api::revert))
        .route("/api/v1/lend", post(api::lend))
        .route("/api/v1/take-back", post(api::take_back))
        .route("/api/v1/check", get(api::check))
        .route("/api/v1/predict", get(api::predict))
        .route("/api/v1/jobs", get(jobs_api::list).post(verbs_api::start))
        .route("/api/v1/jobs/{id}", get(jobs_api::one))
        .route("/api/v1/jobs/{id}/events", get(jobs_api::events))
        .route("/api/v1/jobs/{id}/result", get(jobs_api::result))
        .route("/api/v1/jobs/{id}/cancel", post(jobs_api::cancel))
        .route("/api/v1/sound", get(api::sounds).post(api::sound))
        .route("/api/v1/sound/{id}", get(api::knobs))
        .route(DROP, post(api::drop_file))
        .route("/api/v1/runs", get(api::runs))
        .route("/api/v1/runs/{id}", get(api::run))
        .route("/api/v1/runs/{id}/report", get(runs_page::report))
        .route("/api/v1/compare", get(api::compare))
        .fallback(|| async {
            Problem(StatusCode::NOT_FOUND, "there is nothing at this address; begin at /".into())
        })
        // A body is bounded before it comes here.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), before))
        .with_state(app)
}

/// Brings moments from the stream's threads, while somebody follows.
fn bridge(watching: Onlooker, following: Arc<AtomicUsize>) -> watch::Receiver<MomentText> {
    let (tell, told) = watch::channel((0, Arc::from("")));
    let follow = move || {
        let mut number = 0;
        while !tell.is_closed() {
            if following.load(Relaxed) == 0 {
                // What happens now is in the pages that are drawn later.
                number = watching.number();
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            let Some(moment) = watching.after(number, Duration::from_millis(500)) else { continue };
            number = moment.number;
            if let Ok(text) = serde_json::to_string(&*moment) {
                tell.send_replace((number, Arc::from(text)));
            }
        }
    };
    // Without a thread there is no stream; the pages say so.
    let _ = std::thread::Builder::new().name("live-bridge".into()).spawn(follow);
    told
}

/// A token in the address.
fn query_token(request: &Request) -> Option<String> {
    let query = request.uri().query()?;
    query.split('&').find_map(|one| one.strip_prefix("token=")).map(str::to_owned)
}

/// What everybody passes: names, tokens, sizes, and the headers of every answer.
async fn before(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let token = query_token(&request);
    let mut answer = match check(&app.rules, request.method(), request.headers(), token.as_deref())
    {
        Err(no) => turn_away(&app, no).await,
        Ok(_) if token.is_some() && request.method() == Method::GET => let_in(&app, &request),
        Ok(access) => match whole(&app, request, access).await {
            Ok((request, _turn)) => next.run(request).await,
            Err(problem) => close(problem.into_response()),
        },
    };
    let headers = answer.headers_mut();
    let mut put = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    put(header::CONTENT_SECURITY_POLICY, POLICY);
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::X_FRAME_OPTIONS, "DENY");
    put(header::REFERRER_POLICY, "no-referrer");
    put(header::CACHE_CONTROL, "no-store");
    put(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    put(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    answer
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

async fn turn_away(app: &App, no: Turned) -> Response {
    if no.guessed {
        if !app.is_patient() {
            let why = "too many wrong tokens: wait a minute";
            return close(Problem(StatusCode::TOO_MANY_REQUESTS, why.into()).into_response());
        }
        tokio::time::sleep(SLOWLY).await;
    }
    close(Problem(no.status, no.why.into()).into_response())
}

/// What is left of a request that was turned away is not read.
fn close(mut answer: Response) -> Response {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The token goes out of the address, and a cookie takes its place.
fn let_in(app: &App, request: &Request) -> Response {
    let path = request.uri().path();
    // Two slashes would name another server.
    let path = if path.starts_with("//") { "/" } else { path };
    let secure = if app.rules.tls.is_some() { "; Secure" } else { "" };
    let session = &app.rules.keys.session;
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, path.to_owned())];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// How large a file may be that is sent there; `None` where no file is taken.
fn most_of(request: &Request) -> Option<usize> {
    if request.method() != Method::POST {
        return None;
    }
    match request.uri().path() {
        DROP => Some(quiet_live::MOST_DROPPED),
        path => {
            let path = path.strip_prefix("/api/v1/")?;
            VERBS.iter().find(|door| door.path == path && !door.looks())?.file()
        }
    }
}

/// The request with its whole body, which is small and soon there, or a dropped file and the only one at a time.
async fn whole(
    app: &App,
    request: Request,
    access: Access,
) -> Result<(Request, Option<SemaphorePermit<'_>>), Problem> {
    let file = most_of(&request);
    let (most, time) = file.map_or((BODY, BODY_TIME), |most| (most, DROP_TIME));
    let too_large = || Problem(StatusCode::PAYLOAD_TOO_LARGE, format!("{most} bytes are the most"));
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(access);
    parts.headers.remove(CSRF);
    let told = parts.headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok());
    if told.and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > most as u64) {
        return Err(too_large());
    }
    let busy = || {
        let why = "another file is on its way: try again in a moment";
        Problem(StatusCode::SERVICE_UNAVAILABLE, why.into())
    };
    let turn = match file {
        Some(_) => Some(app.dropping.try_acquire().map_err(|_| busy())?),
        None => None,
    };
    let body: Bytes = match tokio::time::timeout(time, to_bytes(body, most)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            let why = "the request's body did not come in time";
            return Err(Problem(StatusCode::REQUEST_TIMEOUT, why.into()));
        }
    };
    Ok((Request::from_parts(parts, Body::from(body)), turn))
}
