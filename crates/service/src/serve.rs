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
use std::{io::Write, pin::pin, time::Duration};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, MissedTickBehavior, timeout},
};
use zbus::{Connection, connection::Builder, object_server::SignalEmitter};

/// How often it looks who was made real-time by others: by root's own `apply`, or a watch.
const LOOK: Duration = Duration::from_secs(5);
/// How often it looks for what others did with the shield.
const NEWS: Duration = Duration::from_millis(500);
/// An act, or a look, that takes longer is taken for one that never ends.
const LONGEST: Duration = Duration::from_secs(600);

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
    // When the loop last came round, as it does at each look.
    let (round, came) = tokio::sync::watch::channel(Instant::now());
    if let Some(every) = notify::watchdog() {
        let say = move || {
            if came.borrow().elapsed() < LONGEST {
                notify::say("WATCHDOG=1");
            }
        };
        tokio::spawn(beat(queue.clone(), every, say));
    }
    let mut looks = tokio::time::interval(LOOK);
    loop {
        round.send_replace(Instant::now());
        tokio::select! {
            _ = term.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            _ = looks.tick() => look(&acts, &watched).await,
            Some(silence) = demoted.recv() => report(&herald, &acts, &queue, silence).await,
            () = bus.closed() => return Err(Error::Failed("the bus has gone".into())),
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

/// Says each `every` that the service lives: that this thread runs, and that the acts get on. An act may take long on a
/// machine that is far too busy; what holds the turn for longer than [`LONGEST`] is found out by systemd.
async fn beat(queue: Queue, every: Duration, say: impl Fn()) {
    let mut beats = tokio::time::interval(every);
    // What was held up is said once.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let (asked, mut turn) = (Instant::now(), pin!(queue.own_turn()));
        while timeout(every, turn.as_mut()).await.is_err() {
            if asked.elapsed() < LONGEST {
                say();
            }
        }
        say();
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, rc::Rc};

    /// On a clock that stands still where anything is to be done.
    #[tokio::test(start_paused = true)]
    async fn a_long_act_is_no_death_and_one_without_an_end_is() {
        let (queue, every, said) = (Queue::new(), Duration::from_secs(6), Rc::new(Cell::new(None)));
        let last = said.clone();
        let beats = beat(queue.clone(), every, move || last.set(Some(Instant::now())));
        let quiet = async {
            // How long nothing was said, at the most, in so many seconds.
            let longest = async |seconds: u64| {
                let mut longest = Duration::ZERO;
                for _ in 0..seconds {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    longest = longest.max(said.get().map_or(Duration::MAX, |at| at.elapsed()));
                }
                longest
            };
            let two = every * 2 + Duration::from_secs(1);
            assert!(longest(60).await <= two);
            let turn = queue.own_turn().await;
            assert!(longest(LONGEST.as_secs() - 30).await <= two);
            drop(turn);
            assert!(longest(60).await <= two);
            let turn = queue.own_turn().await;
            assert!(longest(LONGEST.as_secs() + 75).await >= Duration::from_secs(60));
            drop(turn);
            tokio::time::sleep(two).await;
            assert!(longest(60).await <= two);
        };
        tokio::select! {
            () = beats => {}
            () = quiet => {}
        }
    }
}
