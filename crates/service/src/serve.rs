//! The service on the bus, from its start to its end.

use crate::{
    Error, NAME, PATH,
    acts::Acts,
    authority::Authority,
    caller::Callers,
    calls::{Shield, look},
    canary::{self, Watched},
    notify,
    queue::Queue,
};
use quiet_types::{machine::Scheduling, plan::Thread};
use std::{io::Write, sync::Arc, time::Duration};
use tokio::sync::Notify;
use zbus::{Connection, connection::Builder, object_server::SignalEmitter};

/// How often it looks who was made real-time by others: by root's own `apply`, or a watch.
const LOOK: Duration = Duration::from_secs(5);
/// How often it looks whether CPUs that are lent are taken back.
const LOAN_LOOK: Duration = Duration::from_millis(500);

/// Serves on the bus at `address` (none: the system's) until this process is told to end. Nobody is given a priority above
/// `most_priority`.
///
/// # Errors
/// When the bus cannot be reached or lets somebody else have the name.
pub async fn serve(
    acts: Acts,
    authority: Authority,
    most_priority: u8,
    address: Option<&str>,
) -> Result<(), Error> {
    let queue = Queue::new();
    let watched = Watched::default();
    let (told, mut demoted) = tokio::sync::mpsc::unbounded_channel();
    canary::start(watched.clone(), told)
        .map_err(|e| Error::Failed(format!("cannot start the canary: {e}")))?;
    let loans = Arc::new(Notify::new());
    let shield = Shield {
        loans: loans.clone(),
        acts: acts.clone(),
        most_priority,
        watched: watched.clone(),
        authority,
        callers: Callers::new(connected(address).await?),
        queue: queue.clone(),
        watches: Shield::watches(),
    };
    let bus = builder(address).serve_at(PATH, shield).name(NAME).build().await?;
    notify::say("READY=1\nSTATUS=Waits for calls");
    if acts.is_lent() {
        loans.notify_one();
    }
    tokio::spawn(taken_back(bus.clone(), acts.clone(), loans));
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|e| Error::Failed(format!("cannot listen to SIGTERM: {e}")))?;
    let mut alive = notify::watchdog().map(tokio::time::interval);
    let mut looks = tokio::time::interval(LOOK);
    let mut beat = async || match &mut alive {
        Some(alive) => drop(alive.tick().await),
        None => std::future::pending().await,
    };
    loop {
        tokio::select! {
            _ = term.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            _ = looks.tick() => look(&acts, &watched).await,
            Some(threads) = demoted.recv() => report(&bus, &acts, &queue, threads).await,
            () = bus.closed() => return Err(Error::Failed("the bus has gone".into())),
            () = beat() => {
                // Whoever holds the turn for ever is found out by systemd.
                let _turn = queue.own_turn().await;
                notify::say("WATCHDOG=1");
            }
        }
    }
    notify::say("STOPPING=1");
    // An act that is under way ends first.
    let _turn = queue.own_turn().await;
    Ok(())
}

fn builder(address: Option<&str>) -> Builder<'_> {
    match address {
        Some(address) => Builder::address(address),
        None => Builder::system(),
    }
}

async fn connected(address: Option<&str>) -> Result<Connection, Error> {
    Ok(builder(address).build().await?)
}

/// Tells everybody who listens when CPUs that were lent are taken back, by whomever.
async fn taken_back(bus: Connection, acts: Acts, loans: Arc<Notify>) {
    loop {
        loans.notified().await;
        loop {
            tokio::time::sleep(LOAN_LOOK).await;
            let acts = acts.clone();
            let lent = tokio::task::spawn_blocking(move || acts.is_lent()).await;
            if !lent.unwrap_or_default() {
                break;
            }
        }
        if let Ok(emitter) = SignalEmitter::new(&bus, PATH) {
            let _ = Shield::changed(&emitter, "taken-back", "", 0).await;
        }
    }
}

/// Notes who was demoted, and tells everybody who listens.
async fn report(bus: &Connection, acts: &Acts, queue: &Queue, threads: Vec<(Thread, Scheduling)>) {
    let _turn = queue.own_turn().await;
    let (acts, noted) = (acts.clone(), threads.clone());
    let noted = tokio::task::spawn_blocking(move || acts.note_demoted(&noted)).await;
    let mut said = Vec::new();
    if let Ok(Err(why)) = noted {
        said.push(format!("not noted in the journal: {}", why.sentence()));
    }
    let emitter = SignalEmitter::new(bus, PATH);
    for (thread, had) in threads {
        said.push(format!(
            "Thread {} ({}) left no CPU to anybody else: its priority, {had}, is taken away",
            thread.tid,
            quiet_types::printable(&thread.comm, 20)
        ));
        if let Ok(emitter) = &emitter {
            let name = format!("{} {}", thread.tid, thread.comm);
            let _ = Shield::changed(emitter, "demoted", &name, 0).await;
        }
    }
    for line in said {
        let _ = writeln!(std::io::stderr(), "quietcored: {line}");
    }
}
