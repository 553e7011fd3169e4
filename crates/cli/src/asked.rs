//! The service that holds the rights, for verbs that run without root.

use crate::verbs::plan::Wished;
use anyhow::{anyhow, bail};
use quiet_experiment::ShieldLender;
use quiet_linux::{Error, seat::SeatLender};
use quiet_probe::TraceLender;
use quiet_service::{
    MOST_PRIORITY,
    acts::{Acts, ThreadWish},
    approved::is_name,
    client::{Refusal, ServiceClient},
};
use quiet_types::{
    CpuId, CpuSet, Plan,
    machine::Scheduling,
    plan::{Admitted, Applied, ShieldStanding, Status},
    shield::{Entry, Shield},
    words,
};
use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// Names another bus than the system's: for tests.
const BUS: &str = "QUIETCORES_BUS";

/// The service, where this is not root and the journal is that of the machine.
///
/// # Errors
/// When there is no bus.
pub fn service() -> Result<ServiceClient, Refusal> {
    ServiceClient::connect(std::env::var(BUS).ok().as_deref())
}

/// Whether a verb about the journal in `state` is the service's to do: not root's, and of the machine's own journal.
pub fn is_for_service(state: &Path) -> bool {
    !crate::face::is_root() && state == Path::new(quiet_shield::DEFAULT_STATE)
}

/// The shield that is up, as the service says, with who lets threads into it; without root the journal is nobody's to read.
pub fn shield(state: &Path) -> (Option<Shield>, Option<Arc<dyn SeatLender>>) {
    if !is_for_service(state) {
        return (None, None);
    }
    let Ok(service) = service() else { return (None, None) };
    match service.status() {
        Ok(Status { state: ShieldStanding::Up, shield: Some(shield), .. }) => {
            (Some(shield), Some(Arc::new(Lender(Mutex::new(service)))))
        }
        _ => (None, None),
    }
}

/// Without root a chain is named, not given: the name that is meant, where the service is to be asked; where none is named and only one
/// is approved, that one.
///
/// # Errors
/// When several are approved and none is named.
pub fn approved(wish: &Wished, state: &Path) -> anyhow::Result<Option<String>> {
    match wish.cpus.is_some() || wish.never_sleep || wish.smt_off {
        true => Ok(None),
        false => approved_by(wish.chain.as_deref(), state),
    }
}

/// The same of a chain alone.
///
/// # Errors
/// As [`approved`].
pub fn approved_by(chain: Option<&Path>, state: &Path) -> anyhow::Result<Option<String>> {
    if !is_for_service(state) {
        return Ok(None);
    }
    if let Some(chain) = chain {
        let name = chain.to_str().filter(|name| is_name(name) && !chain.exists());
        return Ok(name.map(str::to_owned));
    }
    let Ok(chains) = service().and_then(|service| service.chains()) else { return Ok(None) };
    let usable: Vec<String> =
        chains.into_iter().filter(|chain| chain.2).map(|chain| chain.0).collect();
    match &usable[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => bail!("several chains are approved: name one of {}", several.join(", ")),
    }
}

/// An approved chain whose shield the service puts up for this process.
#[derive(Debug)]
pub struct LentShield {
    chain: String,
    service: Mutex<ServiceClient>,
    /// Closed, it ends the shield.
    line: Mutex<Option<OwnedFd>>,
}

impl LentShield {
    /// The approved chain of that name.
    ///
    /// # Errors
    /// When there is no bus.
    pub fn of(chain: String) -> Result<LentShield, Refusal> {
        Ok(LentShield { chain, service: Mutex::new(service()?), line: Mutex::new(None) })
    }

    fn ask<T>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&ServiceClient) -> Result<T, Refusal>,
    ) -> Result<T, Error> {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        question(&service).map_err(|why| {
            Error::refused(doing, format!("the chain `{}`", self.chain), why.to_string())
        })
    }

    fn hold(&self, line: Option<OwnedFd>) {
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }
}

impl ShieldLender for LentShield {
    fn chain(&self) -> &str {
        &self.chain
    }

    fn plan(&self) -> Result<Plan, Error> {
        self.ask("plan", |service| service.plan(&self.chain))
    }

    fn raise(&self) -> Result<Applied, Error> {
        let (applied, line) = self.ask("apply", |service| service.apply_bound(&self.chain))?;
        self.hold(Some(line));
        Ok(applied)
    }

    fn lower(&self) -> Result<bool, Error> {
        let done = self.ask("put back", ServiceClient::revert);
        // Where the service has gone, its guard does it.
        self.hold(None);
        Ok(done?.is_none_or(|done| done.is_exact()))
    }
}

/// Who seats threads of a process without root, where there is somebody.
pub fn lender() -> Option<Arc<dyn SeatLender>> {
    service().ok().map(|service| Arc::new(Lender(Mutex::new(service))) as Arc<dyn SeatLender>)
}

/// Who watches and seats for this process, where it is the service that does.
pub type Lent = Option<Arc<dyn TraceLender>>;

/// The door into the shield that is up around these CPUs, and who watches them where it is the service that opens it.
///
/// # Errors
/// When the state directory cannot be read.
pub fn door(cpus: &CpuSet, state: &Path) -> anyhow::Result<(Option<Entry>, Lent)> {
    if !is_for_service(state) {
        return Ok((quiet_experiment::door(cpus, state)?, None));
    }
    let around = shield(state).0.filter(|shield| cpus.is_subset(&shield.cpus));
    let lent = around.is_some().then(traces).flatten();
    Ok((around.and_then(|shield| shield.entry), lent))
}

/// Who watches CPUs of the shield for a process without root, where there is somebody.
pub fn traces() -> Lent {
    service().ok().map(|service| Arc::new(Traces(Mutex::new(service))) as Arc<dyn TraceLender>)
}

/// The service, asked by who explains.
#[derive(Debug)]
struct Traces(Mutex<ServiceClient>);

impl TraceLender for Traces {
    fn watch(&self, cpus: &CpuSet) -> Result<(OwnedFd, OwnedFd), Error> {
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused =
            |why: Refusal| Error::refused("watch", format!("CPU {cpus}"), why.to_string());
        service.trace(cpus).map_err(refused)
    }
}

/// The priority where none is named: no higher than the service gives a user, where it is the service that gives it.
pub fn usual_priority(usual: u8, lent: bool) -> u8 {
    if lent { usual.min(MOST_PRIORITY) } else { usual }
}

/// The service, asked from the thread that is to be seated.
#[derive(Debug)]
struct Lender(Mutex<ServiceClient>);

impl SeatLender for Lender {
    fn lend(
        &self,
        tid: u32,
        cpu: Option<CpuId>,
        schedule: Option<Scheduling>,
    ) -> Result<(), Error> {
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus: Option<CpuSet> = cpu.map(|cpu| [cpu].into_iter().collect());
        let admitted = service.admit(tid, cpus.as_ref(), schedule);
        is_seated(tid, admitted.map_err(|why| why.to_string()))
    }
}

/// Who seats threads of root's own in a shield without a door: whoever is within one is known by the journal alone, and a watch takes
/// everybody else off.
pub fn own_lender(shield: Option<&Shield>, state: &Path) -> Option<Arc<dyn SeatLender>> {
    shield.filter(|shield| shield.entry.is_none())?;
    Some(Arc::new(Own(Acts::at(state))))
}

#[derive(Debug)]
struct Own(Acts);

impl SeatLender for Own {
    fn lend(
        &self,
        tid: u32,
        cpu: Option<CpuId>,
        scheduling: Option<Scheduling>,
    ) -> Result<(), Error> {
        let cpus = cpu.map(|cpu| [cpu].into_iter().collect());
        let wish = ThreadWish { tid, cpus, scheduling };
        let uid = rustix::process::geteuid().as_raw();
        // Whoever asks is the thread itself.
        let admitted = self.0.admit(uid, &wish, &|| true);
        is_seated(tid, admitted.map_err(|why| why.sentence()))
    }
}

/// Whether all that was asked for a thread was done.
fn is_seated(tid: u32, admitted: Result<Admitted, String>) -> Result<(), Error> {
    let refused = |why: String| Error::refused("seat", format!("thread {tid}"), why);
    let admitted = admitted.map_err(refused)?;
    let held_back = admitted.steps.iter().find(|taken| !taken.outcome.holds());
    held_back.map_or(Ok(()), |taken| {
        let (what, became) = (taken.step.action.what(), words::outcome(&taken.outcome));
        Err(refused(format!("{what}: {became}")))
    })
}

/// What a user reads where the service did not do it: `what` could not be done, and `sudo quietcores VERB` does it.
pub fn refused(refusal: Refusal, what: &str, verb: &str) -> anyhow::Error {
    match refusal {
        Refusal::Said(said) => anyhow!("cannot {what}: {said}"),
        Refusal::NoService(why) => anyhow!(
            "cannot {what} without root, and the service quietcored is not there ({why}): \
             sudo quietcores {verb}"
        ),
    }
}
