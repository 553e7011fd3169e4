//! What every answer is made from.

use crate::{guard::DoorRules, server::Asking};
use axum::{
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use quiet_live::{Hands, Jobs, Onlooker, Program};
use quiet_store::Store;
use quiet_types::Machine;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};

/// Reads the machine, without disturbing a CPU.
pub type MachineReader = Box<dyn Fn() -> Result<Machine, String> + Send + Sync>;

/// All that the pages reach.
pub struct Doors {
    /// The stream.
    pub watch: Onlooker,
    /// What may be done.
    pub hands: Arc<dyn Hands>,
    /// Control sockets of this user's engines.
    pub engines: Option<PathBuf>,
    /// Where sounds are kept that are dropped onto a page.
    pub sounds: Option<PathBuf>,
    /// The history.
    pub store: Store,
    /// Calls verbs.
    pub program: Program,
    /// Long work.
    pub jobs: Jobs,
    /// The machine.
    pub machine: MachineReader,
    /// Its name.
    pub host: String,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doors").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Clients of the stream at a time.
pub(crate) const STREAMS: usize = 48;
/// What blocks may wait for, at a time.
pub(crate) const AT_WORK: usize = 6;
/// How long one waits for a place among them: a machine that is busy for seconds is no reason to refuse a page.
const TURN: Duration = Duration::from_secs(20);
/// Wrong tokens in a minute, before more are turned away unread.
const GUESSES: usize = 10;

/// A moment's number, and the moment as JSON.
pub(crate) type MomentText = (u64, Arc<str>);

/// What every answer is made from.
pub(crate) struct App {
    pub doors: Doors,
    pub rules: DoorRules,
    /// The moments as JSON, one text for all.
    pub moments: watch::Receiver<MomentText>,
    pub streams: Arc<Semaphore>,
    pub work: Arc<Semaphore>,
    /// One file at a time.
    pub dropping: Semaphore,
    /// One deed at a time.
    pub deed: tokio::sync::Mutex<()>,
    pub guesses: Mutex<(Option<Instant>, usize)>,
    pub following: Arc<AtomicUsize>,
}

impl App {
    /// Does what may wait for a disk, the kernel or a service, on a thread for that.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<App>,
        work: impl FnOnce(&App) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        // A page that asks on is no reason to refuse another: it waits for its turn, a bounded time.
        let turn = tokio::time::timeout(TURN, self.work.clone().acquire_owned());
        let Ok(Ok(place)) = turn.await else {
            return Err(Problem(StatusCode::SERVICE_UNAVAILABLE, "busy: ask again".into()));
        };
        let app = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&app)
        });
        done.await.map_err(|_| Problem(StatusCode::INTERNAL_SERVER_ERROR, "it failed".into()))
    }

    /// The turn to do something: one deed at a time.
    pub fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, Problem> {
        let why = "something is being done already: look again in a moment";
        self.deed.try_lock().map_err(|_| Problem(StatusCode::CONFLICT, why.into()))
    }

    /// Whether another wrong token is looked at.
    pub fn is_patient(&self) -> bool {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        if guesses.0.is_none_or(|since| since.elapsed() > Duration::from_secs(60)) {
            *guesses = (Some(Instant::now()), 0);
        }
        guesses.1 += 1;
        guesses.1 <= GUESSES
    }
}

/// What went wrong, as an answer.
#[derive(Debug)]
pub(crate) struct Problem(pub StatusCode, pub String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::json!({"error": self.1}).to_string();
        (self.0, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// Keeps a connection from giving way as long as it is followed.
pub(crate) fn asking(request: &Request) -> Option<Asking> {
    request.extensions().get::<Asking>().cloned()
}
