//! The object on the bus: checks who calls and whether he may, and has it done when it is his turn.

use crate::{
    Error,
    acts::{Acts, ThreadWish, Whose},
    authority::{Authority, Manner, Permission, Verdict},
    caller::{Caller, Callers},
    canary::Watched,
    herald::{By, Herald},
    queue::{Place, Queue},
};
use quiet_types::{
    CpuSet,
    loan::LoanTerms,
    machine::{Policy, Scheduling},
};
use serde::Serialize;
use std::{process::Child, sync::PoisonError};
use zbus::{
    OwnedFd, interface,
    message::{Flags, Header},
    object_server::SignalEmitter,
};

/// The object on the bus.
pub(crate) struct Shield {
    pub acts: Acts,
    pub authority: Authority,
    pub callers: Callers,
    pub queue: Queue,
    /// Highest priority that anybody is given.
    pub most_priority: u8,
    pub watched: Watched,
    pub herald: Herald,
}

impl Shield {
    /// Has the canary's listener know who was made real-time.
    async fn look(&self) {
        look(&self.acts, &self.watched).await;
    }

    /// Takes a place for the caller.
    async fn enter(&self, header: &Header<'_>) -> Result<Call, Error> {
        let caller = self.callers.who(header).await?;
        let place = Some(self.queue.place(caller.uid)?);
        let dialogue = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
        Ok(Call { caller, place, dialogue })
    }

    /// Asks whether the caller may; the place is for others while he is asked for a password.
    async fn may(&self, call: &mut Call, action: Permission) -> Result<(), Error> {
        let ask = |manner| self.authority.ask(self.callers.bus(), &call.caller, action, manner);
        let verdict = match ask(Manner::Quietly).await? {
            Verdict::MayWithPassword(_) if call.dialogue => {
                let _dialogue = self.queue.dialogue(call.caller.uid)?;
                drop(call.place.take());
                let verdict = ask(Manner::ByDialogue).await?;
                call.place = Some(self.queue.place(call.caller.uid)?);
                verdict
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::May => Ok(()),
            Verdict::MayNot(sentence) | Verdict::MayWithPassword(sentence) => Err(sentence),
        }
    }

    /// Waits for the caller's turn and acts, on a thread of its own. What becomes of the shield is announced; `chain` is what he applies.
    async fn take_turn<T: Send + 'static>(
        &self,
        call: Call,
        chain: &str,
        act: impl FnOnce(&Acts) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Caller), Error> {
        let Call { caller, place, .. } = call;
        let place = match place {
            Some(place) => place,
            None => self.queue.place(caller.uid)?,
        };
        let turn = self.queue.turn(&place).await?;
        let (acts, herald, uid) = (self.acts.clone(), self.herald.clone(), caller.uid);
        let chain = chain.to_owned();
        let done = tokio::task::spawn_blocking(move || {
            // Held to the end of the act, whatever becomes of the call.
            let (_turn, _place) = (turn, place);
            // What others did is not put down to this caller.
            herald.look(None);
            let done = act(&acts);
            herald.look(Some(By { uid, chain: &chain }));
            done
        });
        let done = done.await.map_err(|_| Error::Failed("the act ended by a panic".into()))??;
        Ok((done, caller))
    }

    /// Asks whether the caller may, waits for his turn and acts.
    async fn act<T: Send + 'static>(
        &self,
        header: &Header<'_>,
        action: Permission,
        act: impl FnOnce(&Acts) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Caller), Error> {
        let mut call = self.enter(header).await?;
        self.may(&mut call, action).await?;
        self.take_turn(call, "", act).await
    }

    /// As [`Shield::act`] with the shield that is up: where it is the caller's own under `own`, else under [`Permission::RevertAny`].
    /// `act` is told whose shield it is to be: by the time of the act it may be another one.
    async fn act_on_shield<T: Send + 'static>(
        &self,
        header: &Header<'_>,
        own: Permission,
        act: impl FnOnce(&Acts, Whose) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Caller), Error> {
        let mut call = self.enter(header).await?;
        let whose = self.may_own(&mut call, own).await?;
        self.take_turn(call, "", move |acts| act(acts, whose)).await
    }

    /// Asks whether the caller may do something with the shield that is up, and tells whose it is to be.
    async fn may_own(&self, call: &mut Call, own: Permission) -> Result<Whose, Error> {
        let (acts, uid) = (self.acts.clone(), call.caller.uid);
        let is_own = tokio::task::spawn_blocking(move || acts.is_left_to(uid)).await;
        let is_own = is_own.map_err(|_| Error::Failed("the look ended by a panic".into()))??;
        self.may(call, if is_own { own } else { Permission::RevertAny }).await?;
        Ok(if is_own { Whose::Of(uid) } else { Whose::Anybodys })
    }
}

/// A call that has its place.
struct Call {
    caller: Caller,
    place: Option<Place>,
    /// The caller waits where he is to be asked for a password.
    dialogue: bool,
}

/// Waits for the end of a watch, which may be long in coming, and gives its place back: on none of the threads that the runtime waits
/// for.
fn bury(mut child: Child, place: Place) -> Result<(), Error> {
    std::thread::Builder::new()
        .name("watch".into())
        .spawn(move || {
            let _place = place;
            let _ = child.wait();
        })
        .map(|_| ())
        .map_err(|e| Error::Failed(format!("cannot start a thread: {e}")))
}

/// Has the canary's listener know who is real-time now; who was started for a shield and has ended is buried.
pub(crate) async fn look(acts: &Acts, watched: &Watched) {
    let acts = acts.clone();
    let looked = tokio::task::spawn_blocking(move || {
        quiet_shield::bury();
        acts.raised()
    });
    if let Ok(raised) = looked.await {
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
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<(String, String, bool)>, Error> {
        let (listed, _) = self.act(&header, Permission::Look, Acts::chains).await?;
        Ok(listed.into_iter().map(|one| (one.name, one.title, one.usable)).collect())
    }

    /// The plan of an approved chain.
    async fn plan(
        &self,
        #[zbus(header)] header: Header<'_>,
        chain: String,
    ) -> Result<String, Error> {
        json(&self.act(&header, Permission::Look, move |acts| acts.plan(&chain)).await?.0)
    }

    /// Applies an approved chain; unless `confirm` is 0, it is put back after so many seconds unless it is confirmed.
    async fn apply(
        &self,
        #[zbus(header)] header: Header<'_>,
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
        let mut call = self.enter(&header).await?;
        self.may(&mut call, Permission::Apply).await?;
        let uid = call.caller.uid;
        let act = move |acts: &Acts| acts.apply(&name, wait, uid);
        let (applied, _) = self.take_turn(call, &chain, act).await?;
        self.look().await;
        json(&applied)
    }

    /// Applies an approved chain for as long as the line that is returned is open: it is put back when the caller ends.
    async fn apply_bound(
        &self,
        #[zbus(header)] header: Header<'_>,
        chain: String,
    ) -> Result<(String, OwnedFd), Error> {
        let name = chain.clone();
        let mut call = self.enter(&header).await?;
        self.may(&mut call, Permission::Apply).await?;
        let uid = call.caller.uid;
        let act = move |acts: &Acts| acts.apply_bound(&name, uid);
        let ((applied, line), _) = self.take_turn(call, &chain, act).await?;
        self.look().await;
        Ok((json(&applied)?, line.into()))
    }

    /// Keeps the shield that is up as the approved chain has it, or only reports drift: until it is taken down or the pipe that is
    /// returned is closed. The pipe has the events, one JSON object a line.
    async fn watch(
        &self,
        #[zbus(header)] header: Header<'_>,
        chain: String,
        report_only: bool,
    ) -> Result<OwnedFd, Error> {
        let mut call = self.enter(&header).await?;
        let whose = match report_only {
            true => {
                self.may(&mut call, Permission::Apply).await?;
                Whose::Anybodys
            }
            // It changes the shield.
            false => self.may_own(&mut call, Permission::Apply).await?,
        };
        let place = self.queue.watch(call.caller.uid)?;
        let act = move |acts: &Acts| acts.watch(whose, &chain, report_only);
        let ((child, events), _) = self.take_turn(call, "", act).await?;
        bury(child, place)?;
        Ok(events.into())
    }

    /// Has `cpus` of the shield that is up watched by the kernel's trace: a line, and a pipe that has `ready`, and once the line is
    /// closed what was seen, as JSON.
    async fn trace(
        &self,
        #[zbus(header)] header: Header<'_>,
        cpus: &str,
    ) -> Result<(OwnedFd, OwnedFd), Error> {
        let cpus = cpus_of(cpus)?.unwrap_or_default();
        let mut call = self.enter(&header).await?;
        self.may(&mut call, Permission::Admit).await?;
        let place = self.queue.watch(call.caller.uid)?;
        let act = move |acts: &Acts| acts.trace(&cpus);
        let ((child, line, seen), _) = self.take_turn(call, "", act).await?;
        bury(child, place)?;
        Ok((line.into(), seen.into()))
    }

    /// Confirms the shield that is up; whether it waited for that.
    async fn confirm(&self, #[zbus(header)] header: Header<'_>) -> Result<bool, Error> {
        let act = |acts: &Acts, whose| acts.confirm(whose);
        Ok(self.act_on_shield(&header, Permission::Apply, act).await?.0)
    }

    /// Lets a thread of the caller's own into the shield that is up: onto `cpus` of it (`""`: all), under `policy` (`fifo`, `rr`, or
    /// `""` for as it is) with `priority`.
    async fn admit(
        &self,
        #[zbus(header)] header: Header<'_>,
        thread: u32,
        cpus: &str,
        policy: &str,
        priority: u8,
    ) -> Result<String, Error> {
        let wish = ThreadWish {
            tid: thread,
            cpus: cpus_of(cpus)?,
            scheduling: scheduling_of(policy, priority, self.most_priority)?,
        };
        let mut call = self.enter(&header).await?;
        self.may(&mut call, Permission::Admit).await?;
        let (uid, process) = (call.caller.uid, self.callers.process(&header).await?);
        let act = move |acts: &Acts| acts.admit(uid, &wish, &|| process.is_there());
        let (admitted, _) = self.take_turn(call, "", act).await?;
        self.look().await;
        self.herald.say("admitted", admitted.thread.tid.to_string(), uid);
        json(&admitted)
    }

    /// Lets a thread of the caller's own out of the shield again, which stays.
    async fn release(
        &self,
        #[zbus(header)] header: Header<'_>,
        thread: u32,
    ) -> Result<String, Error> {
        let mut call = self.enter(&header).await?;
        self.may(&mut call, Permission::Admit).await?;
        let uid = call.caller.uid;
        let act = move |acts: &Acts| acts.release(uid, thread);
        let (released, _) = self.take_turn(call, "", act).await?;
        self.look().await;
        self.herald.say("released", released.thread.tid.to_string(), uid);
        json(&released)
    }

    /// Lends the CPUs of the shield to everybody: for `seconds` at most, until the first sound, the end of a unit of systemd, or that of
    /// the caller.
    async fn lend(
        &self,
        #[zbus(header)] header: Header<'_>,
        seconds: u32,
        until_sound: bool,
        unit: &str,
        while_caller: bool,
    ) -> Result<String, Error> {
        let process = match while_caller {
            true => Some(self.callers.thread(&header).await?),
            false => None,
        };
        let unit = (!unit.is_empty()).then(|| unit.to_owned());
        let terms = LoanTerms { seconds: seconds.into(), until_sound, unit, process };
        let act = move |acts: &Acts, whose| acts.lend(whose, &terms);
        json(&self.act_on_shield(&header, Permission::Apply, act).await?.0)
    }

    /// Takes lent CPUs back; `null` where none are lent.
    async fn take_back(&self, #[zbus(header)] header: Header<'_>) -> Result<String, Error> {
        let act = |acts: &Acts, whose| acts.take_back(whose);
        json(&self.act_on_shield(&header, Permission::Apply, act).await?.0)
    }

    /// Puts the machine back; `null` where nothing was to be done.
    async fn revert(&self, #[zbus(header)] header: Header<'_>) -> Result<String, Error> {
        let act = |acts: &Acts, whose| acts.revert(whose);
        json(&self.act_on_shield(&header, Permission::Revert, act).await?.0)
    }

    /// The shield as it is.
    async fn status(&self, #[zbus(header)] header: Header<'_>) -> Result<String, Error> {
        json(&self.act(&header, Permission::Look, Acts::status).await?.0)
    }

    /// Something was done, by which user, or by 0 where another than this service did it: `applied` (a chain), `confirmed`, `reverted`,
    /// `admitted` and `released` (a thread), `lent` (CPUs), `taken-back`, or `demoted` by the canary (a thread and its name).
    #[zbus(signal)]
    pub(crate) async fn changed(
        emitter: &SignalEmitter<'_>,
        what: &str,
        name: &str,
        uid: u32,
    ) -> zbus::Result<()>;
}
