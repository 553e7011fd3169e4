//! Connections: few, bounded, and not for long.

use crate::tls::TlsIdentity;
use axum::{Router, body::Body, extract::Request};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::AbortHandle,
};

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections at a time. Beyond them the oldest one that asks nothing gives way.
    pub connections: usize,
    /// A request's head is there within this, also the next one of a connection that stays.
    pub head: Duration,
}

impl Default for HttpLimits {
    fn default() -> HttpLimits {
        HttpLimits { connections: 128, head: Duration::from_secs(5) }
    }
}

/// Most bytes of a head, and of what is buffered of a connection.
const BUFFER: usize = 16 << 10;

/// A connection, and how many requests of it are being answered.
struct Held {
    task: AbortHandle,
    asks: Arc<AtomicUsize>,
}

type Table = Arc<Mutex<BTreeMap<u64, Held>>>;

/// Counts a request that is being answered; while it lives, the connection does not give way.
#[derive(Clone, Debug)]
pub(crate) struct Asking(#[expect(dead_code, reason = "counts by being dropped")] Arc<Count>);

#[derive(Debug)]
struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Serves `app` at `listener` until `stop` comes, encrypted where it has a certificate.
pub async fn serve(
    listener: TcpListener,
    (app, tls): (Router, Option<TlsIdentity>),
    limits: HttpLimits,
    stop: impl Future<Output = ()>,
) {
    let table = Table::default();
    tokio::pin!(stop);
    for number in 0.. {
        let stream = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors: those that end give some back.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        if !make_room(&table, limits.connections) {
            continue;
        }
        let asks = Arc::new(AtomicUsize::new(0));
        let of = (app.clone(), asks.clone(), table.clone());
        let acceptor = tls.as_ref().map(TlsIdentity::acceptor);
        let task = tokio::spawn(async move {
            let (app, asks, table) = of;
            // Nagle's waits would hold moments back.
            let _ = stream.set_nodelay(true);
            match acceptor {
                None => talk(stream, app, asks, limits).await,
                Some(acceptor) => {
                    let shaken = tokio::time::timeout(limits.head, acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        talk(stream, app, asks, limits).await;
                    }
                }
            }
            lock(&table).remove(&number);
        });
        let held = Held { task: task.abort_handle(), asks };
        lock(&table).insert(number, held);
        // It may have ended before it was noted.
        if task.is_finished() {
            lock(&table).remove(&number);
        }
    }
    for (_, held) in std::mem::take(&mut *lock(&table)) {
        held.task.abort();
    }
}

/// One connection, to its end.
async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    app: Router,
    asks: Arc<AtomicUsize>,
    limits: HttpLimits,
) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        answer(app.clone(), asks.clone(), request)
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(BUFFER)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn lock(table: &Table) -> std::sync::MutexGuard<'_, BTreeMap<u64, Held>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is room for one more; the oldest that asks nothing gives way.
fn make_room(table: &Table, most: usize) -> bool {
    let mut table = lock(table);
    if table.len() < most {
        return true;
    }
    let idle = table.iter().find(|(_, held)| held.asks.load(Relaxed) == 0).map(|(n, _)| *n);
    match idle.and_then(|number| table.remove(&number)) {
        Some(held) => {
            held.task.abort();
            true
        }
        None => false,
    }
}

async fn answer(
    app: Router,
    asks: Arc<AtomicUsize>,
    request: hyper::Request<Incoming>,
) -> Result<axum::response::Response, Infallible> {
    asks.fetch_add(1, Relaxed);
    let asking = Asking(Arc::new(Count(asks)));
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(asking.clone());
    let answer = TowerToHyperService::new(app).call(request).await;
    drop(asking);
    answer
}

/// Ends a tenth of a second after `stop` is raised, at the latest.
pub(crate) async fn when_raised(stop: &std::sync::atomic::AtomicBool) {
    while !stop.load(Relaxed) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Serves at a socket that listens already, until `stop` is raised; the thread that calls it is the only one that takes requests.
///
/// # Errors
/// When no runtime can be made of it.
pub fn run(
    listener: std::net::TcpListener,
    (doors, rules): (crate::Doors, crate::DoorRules),
    limits: HttpLimits,
    stop: &std::sync::atomic::AtomicBool,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let raised = when_raised(stop);
        let tls = rules.tls.clone();
        serve(listener, (crate::app(doors, rules), tls), limits, raised).await;
        std::io::Result::Ok(())
    })?;
    // A deed that is under way ends on its own.
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}
