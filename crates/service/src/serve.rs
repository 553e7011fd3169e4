//! The service on the bus: checks who calls and whether he may, then does one act at a time.

use crate::{
    Error, NAME, PATH,
    acts::{Acts, ThreadWish},
    authority::{Authority, Permission},
    caller::Caller,
    canary::{self, Watched},
    notify,
};
use quiet_types::{
    CpuSet,
    machine::{Policy, Scheduling},
    plan::Thread,
};
use serde::Serialize;
use std::{
    collections::HashMap,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::{Mutex as Turn, Semaphore};
use zbus::{
    Connection, connection::Builder, interface, message::Header, object_server::SignalEmitter,
};

/// How many calls of one user may be at work or wait.
const OF_ONE_USER: u32 = 4;
/// Of all.
const OF_ALL: usize = 64;
/// So long a call waits for those before it.
const PATIENCE: Duration = Duration::from_millis(900);

/// The object on the bus.
struct Shield {
    acts: Acts,
    authority: Authority,
    /// One act at a time: the journal has one writer.
    turn: Arc<Turn<()>>,
    places: Arc<Semaphore>,
    at_work: Arc<Mutex<HashMap<u32, u32>>>,
    /// Highest priority that anybody is given.
    most_priority: u8,
    watched: Watched,
}

/// A caller's place among those at work; given back when dropped, also when the caller's call is cancelled.
struct Place {
    uid: u32,
    at_work: Arc<Mutex<HashMap<u32, u32>>>,
    _of_all: tokio::sync::OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = at_work.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                at_work.remove(&self.uid);
            }
        }
    }
}

impl Shield {
    fn place(&self, uid: u32) -> Result<Place, Error> {
        let many = || Error::Busy("too many calls wait already: try again".into());
        let of_all = self.places.clone().try_acquire_owned().map_err(|_| many())?;
        let mut at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let count = at_work.entry(uid).or_default();
        if *count >= OF_ONE_USER {
            return Err(many());
        }
        *count += 1;
        Ok(Place { uid, at_work: self.at_work.clone(), _of_all: of_all })
    }

    /// Has the canary's listener know who was made real-time.
    async fn look(&self) {
        look(&self.acts, &self.watched).await;
    }

    /// Asks whether the caller may, waits for his turn and acts, on a thread of its own.
    async fn act<T: Send + 'static>(
        &self,
        (bus, header): (&Connection, &Header<'_>),
        action: Permission,
        act: impl FnOnce(&Acts) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Caller), Error> {
        let caller = Caller::of(bus, header).await?;
        let place = self.place(caller.uid)?;
        self.authority.ask(bus, &caller, action).await?;
        let turn = tokio::time::timeout(PATIENCE, self.turn.clone().lock_owned())
            .await
            .map_err(|_| Error::Busy("the service is at work for somebody: try again".into()))?;
        let acts = self.acts.clone();
        let done = tokio::task::spawn_blocking(move || {
            // Held to the end of the act, whatever becomes of the call.
            let (_turn, _place) = (turn, place);
            act(&acts)
        });
        let done = done.await.map_err(|_| Error::Failed("the act ended by a panic".into()))??;
        Ok((done, caller))
    }
}

async fn look(acts: &Acts, watched: &Watched) {
    let acts = acts.clone();
    if let Ok(raised) = tokio::task::spawn_blocking(move || acts.raised()).await {
        *watched.lock().unwrap_or_else(PoisonError::into_inner) = raised;
    }
}

fn cpus_of(text: &str) -> Result<Option<CpuSet>, Error> {
    let shown = || quiet_types::printable(text, 60);
    match text {
        "" => Ok(None),
        text if text.len() > 4096 => Err(Error::Asked("that is no list of CPUs".into())),
        text => text
            .parse()
            .map(Some)
            .map_err(|e| Error::Asked(format!("`{}` is no list of CPUs: {e}", shown()))),
    }
}

fn scheduling_of(policy: &str, priority: u8, most: u8) -> Result<Option<Scheduling>, Error> {
    let policy = match policy {
        "" => return Ok(None),
        "fifo" => Policy::Fifo,
        "rr" => Policy::Rr,
        other => {
            let other = quiet_types::printable(other, 20);
            return Err(Error::Asked(format!(
                "the policy is fifo or rr, or left out; not `{other}`"
            )));
        }
    };
    if !(1..=most).contains(&priority) {
        return Err(Error::NotAllowed(format!("priority {priority}: 1 to {most} are given")));
    }
    Ok(Some(Scheduling { policy, priority, nice: 0 }))
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|e| Error::Failed(format!("cannot write this as JSON: {e}")))
}

/// What is answered is JSON as the program prints it with `--json` (`docs/schema`).
#[interface(name = "org.quietcores1.Shield")]
impl Shield {
    /// The approved chains: name, title, whether each can be used.
    async fn list_chains(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<(String, String, bool)>, Error> {
        let (listed, _) = self.act((bus, &header), Permission::Look, Acts::chains).await?;
        Ok(listed.into_iter().map(|one| (one.name, one.title, one.usable)).collect())
    }

    /// The plan of an approved chain.
    async fn plan(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
        chain: String,
    ) -> Result<String, Error> {
        json(&self.act((bus, &header), Permission::Look, move |acts| acts.plan(&chain)).await?.0)
    }

    /// Applies an approved chain; unless `confirm` is 0, it is put back after so many seconds unless it is confirmed.
    async fn apply(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
        chain: String,
        confirm: u32,
    ) -> Result<String, Error> {
        if u64::from(confirm) > quiet_shield::LONGEST_WAIT {
            let most = quiet_shield::LONGEST_WAIT;
            return Err(Error::Asked(format!(
                "confirmed after {confirm} s: {most} s are the most"
            )));
        }
        let name = chain.clone();
        let wait = (confirm > 0).then_some(u64::from(confirm));
        let act = move |acts: &Acts| acts.apply(&name, wait);
        let (applied, caller) = self.act((bus, &header), Permission::Apply, act).await?;
        self.look().await;
        emitter.changed("applied", &chain, caller.uid).await?;
        json(&applied)
    }

    /// Confirms the shield that is up; whether it waited for that.
    async fn confirm(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<bool, Error> {
        let (waited, caller) = self.act((bus, &header), Permission::Apply, Acts::confirm).await?;
        emitter.changed("confirmed", "", caller.uid).await?;
        Ok(waited)
    }

    /// Lets a thread of the caller's own into the shield that is up: onto `cpus` of it (`""`: all), under `policy` (`fifo`, `rr`, or
    /// `""` for as it is) with `priority`.
    #[expect(clippy::too_many_arguments, reason = "three are the bus's own")]
    async fn admit(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
        thread: u32,
        cpus: &str,
        policy: &str,
        priority: u8,
    ) -> Result<String, Error> {
        let caller = Caller::of(bus, &header).await?;
        let wish = ThreadWish {
            tid: thread,
            cpus: cpus_of(cpus)?,
            scheduling: scheduling_of(policy, priority, self.most_priority)?,
        };
        let act = move |acts: &Acts| acts.admit(caller.uid, &wish);
        let (admitted, caller) = self.act((bus, &header), Permission::Admit, act).await?;
        self.look().await;
        emitter.changed("admitted", &admitted.thread.tid.to_string(), caller.uid).await?;
        json(&admitted)
    }

    /// Puts the machine back; `null` where nothing was to be done.
    async fn revert(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<String, Error> {
        let (done, caller) = self.act((bus, &header), Permission::Revert, Acts::revert).await?;
        if done.is_some() {
            emitter.changed("reverted", "", caller.uid).await?;
        }
        json(&done)
    }

    /// The shield as it is.
    async fn status(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String, Error> {
        json(&self.act((bus, &header), Permission::Look, Acts::status).await?.0)
    }

    /// Something was done, for which user: `applied` (a chain), `confirmed`, `reverted`, `admitted` (a thread), or `demoted` by the
    /// canary (a thread and its name).
    #[zbus(signal)]
    async fn changed(
        emitter: &SignalEmitter<'_>,
        what: &str,
        name: &str,
        uid: u32,
    ) -> zbus::Result<()>;
}

/// How often it looks who was made real-time by others: by root's own `apply`, or a watch.
const LOOK: Duration = Duration::from_secs(5);

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
    let turn = Arc::new(Turn::new(()));
    let watched = Watched::default();
    let (told, mut demoted) = tokio::sync::mpsc::unbounded_channel();
    canary::start(watched.clone(), told)
        .map_err(|e| Error::Failed(format!("cannot start the canary: {e}")))?;
    let shield = Shield {
        acts: acts.clone(),
        most_priority,
        watched: watched.clone(),
        authority,
        turn: turn.clone(),
        places: Arc::new(Semaphore::new(OF_ALL)),
        at_work: Arc::default(),
    };
    let builder = match address {
        Some(address) => Builder::address(address),
        None => Builder::system(),
    };
    let bus = builder.serve_at(PATH, shield).name(NAME).build().await?;
    notify::say("READY=1\nSTATUS=Waits for calls");
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
            Some(threads) = demoted.recv() => report(&bus, &acts, &turn, threads).await,
            () = bus.closed() => return Err(Error::Failed("the bus has gone".into())),
            () = beat() => {
                // Whoever holds the turn for ever is found out by systemd.
                let _turn = turn.lock().await;
                notify::say("WATCHDOG=1");
            }
        }
    }
    notify::say("STOPPING=1");
    // An act that is under way ends first.
    let _turn = turn.lock().await;
    Ok(())
}

/// Notes who was demoted, and tells everybody who listens.
async fn report(
    bus: &Connection,
    acts: &Acts,
    turn: &Turn<()>,
    threads: Vec<(Thread, Scheduling)>,
) {
    let _turn = turn.lock().await;
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
