//! One address that a Prometheus reads: `/metrics`, and nothing else.

use crate::{
    guard::same,
    server::{HttpLimits, serve, when_raised},
};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{
    net::TcpListener,
    sync::{Arc, atomic::AtomicBool},
};

/// What is answered: how it calls itself, and its bytes.
pub type Scraped = (&'static str, Vec<u8>);

/// Makes an answer from what the scraper takes (its header `Accept`). May take its time.
pub type Scrape = Box<dyn Fn(&str) -> Result<Scraped, String> + Send + Sync>;

/// What is asked of every request.
#[derive(Clone, Default)]
pub struct ScrapeRules {
    /// `host:port` by which it may be called; nothing else is answered (DNS rebinding).
    pub hosts: Vec<String>,
    /// What has to be given as `Authorization: Bearer TOKEN`; `None`: nothing.
    pub token: Option<String>,
}

impl std::fmt::Debug for ScrapeRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScrapeRules").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

struct Shared {
    rules: ScrapeRules,
    scrape: Scrape,
    /// One at a time: each reads the whole database.
    one: tokio::sync::Mutex<()>,
}

fn may(rules: &ScrapeRules, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !rules.hosts.contains(&text(header::HOST).to_ascii_lowercase()) {
        return Err((
            StatusCode::MISDIRECTED_REQUEST,
            "this server does not go by that name; start it with --name\n",
        ));
    }
    let given = text(header::AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default().trim();
    match &rules.token {
        Some(token) if !same(given, token) => {
            Err((StatusCode::UNAUTHORIZED, "send `Authorization: Bearer TOKEN`\n"))
        }
        _ => Ok(()),
    }
}

async fn guarded(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match may(&shared.rules, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(turned) => turned.into_response(),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let accept = accept.unwrap_or_default().to_owned();
    let _one = shared.one.lock().await;
    let work = shared.clone();
    let done = tokio::task::spawn_blocking(move || (work.scrape)(&accept)).await;
    match done {
        Ok(Ok((kind, bytes))) => ([(header::CONTENT_TYPE, kind)], bytes).into_response(),
        Ok(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, why + "\n").into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "it failed\n").into_response(),
    }
}

/// Answers at a socket that listens already, until `stop` is raised.
///
/// # Errors
/// When no runtime can be made of it.
pub fn run_metrics(
    listener: TcpListener,
    (rules, scrape): (ScrapeRules, Scrape),
    limits: HttpLimits,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let shared = Arc::new(Shared { rules, scrape, one: tokio::sync::Mutex::new(()) });
    let app = Router::new()
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(shared.clone(), guarded))
        .with_state(shared);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        serve(listener, (app, None), limits, when_raised(stop)).await;
        std::io::Result::Ok(())
    })?;
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    Ok(())
}
