//! The service on the bus, from its start to its end.

use crate::{
    Error, NAME, PATH,
    acts::Acts,
    authority::Authority,
    caller::Callers,
    calls::{Shield, look},
    canary::{self, Silence, Watched},
    herald::{Herald, Notice},
    notify,
    queue::Queue,
};
use std::{io::Write, time::Duration};
use tokio::{sync::mpsc::UnboundedReceiver, time::MissedTickBehavior};
use zbus::{Connection, connection::Builder, object_server::SignalEmitter};

/// How often it looks who was made real-time by others: by root's own `apply`, or a watch.
const LOOK: Duration = Duration::from_secs(5);
/// How often it looks for what others did with the shield.
const NEWS: Duration = Duration::from_millis(500);

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
    let (herald, notices) = Herald::new(&acts);
    let shield = Shield {
        herald: herald.clone(),
        acts: acts.clone(),
        most_priority,
        watched: watched.clone(),
        authority,
        callers: Callers::new(connected(address).await?),
        queue: queue.clone(),
    };
    let bus = builder(address).serve_at(PATH, shield).name(NAME).build().await?;
    notify::say("READY=1\nSTATUS=Waits for calls");
    tokio::spawn(announce(bus.clone(), herald.clone(), queue.clone(), notices));
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|e| Error::Failed(format!("cannot listen to SIGTERM: {e}")))?;
    let mut alive = notify::watchdog().map(|every| {
        let mut alive = tokio::time::interval(every);
        // What an act held up is said once.
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        alive
    });
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
            Some(silence) = demoted.recv() => report(&herald, &acts, &queue, silence).await,
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

/// Sends the signals, and looks in between for what others have done.
async fn announce(
    bus: Connection,
    herald: Herald,
    queue: Queue,
    mut notices: UnboundedReceiver<Notice>,
) {
    let Ok(emitter) = SignalEmitter::new(&bus, PATH) else { return };
    let mut looks = tokio::time::interval(NEWS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(notice) = notices.recv() => {
                let Notice { what, name, uid } = notice;
                let _ = Shield::changed(&emitter, what, &name, uid).await;
            }
            // Who is at work looks himself.
            _ = looks.tick() => if let Some(turn) = queue.free_turn() {
                let herald = herald.clone();
                let look = move || {
                    let _turn = turn;
                    herald.look(None);
                };
                let _ = tokio::task::spawn_blocking(look).await;
            },
        }
    }
}

/// Notes who was demoted, and tells everybody who listens.
async fn report(herald: &Herald, acts: &Acts, queue: &Queue, silence: Silence) {
    let _turn = queue.own_turn().await;
    let Silence { lasted, demoted } = silence;
    let (acts, noted) = (acts.clone(), demoted.clone());
    let noted = tokio::task::spawn_blocking(move || acts.note_demoted(&noted)).await;
    let mut said = Vec::new();
    if let Ok(Err(why)) = noted {
        said.push(format!("not noted in the journal: {}", why.sentence()));
    }
    for (thread, had) in demoted {
        said.push(format!(
            "Thread {} ({}) left no CPU to anybody else for {:.2} s: its priority, {had}, is taken away",
            thread.tid,
            quiet_types::printable(&thread.comm, 20),
            lasted.as_secs_f64()
        ));
        herald.say("demoted", format!("{} {}", thread.tid, thread.comm), 0);
    }
    for line in said {
        let _ = writeln!(std::io::stderr(), "quietcored: {line}");
    }
}
