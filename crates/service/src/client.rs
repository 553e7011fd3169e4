//! The other end: what the program asks the service where it runs without root.

use crate::{NAME, PATH};
use quiet_types::{
    CpuSet, Plan,
    loan::{Lent, Reclaimed},
    machine::{Policy, Scheduling},
    plan::{Admitted, Applied, Released, Reverted, Status},
};
use serde::de::DeserializeOwned;
use std::{
    fmt,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};
use zbus::{Connection, connection::Builder, proxy, proxy::CacheProperties};

/// A polkit dialogue, and a shield that waits for a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// So long it is asked again where the service went with a question that changes nothing, or is at work for others.
const AGAIN: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_millis(300);

/// Whether the service went before it could answer.
fn is_gone(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::FDO(error) => matches!(**error, zbus::fdo::Error::NoReply(_)),
        zbus::Error::MethodError(name, ..) => name.as_str().ends_with(".NoReply"),
        _ => false,
    }
}

/// Whether nobody has the service's name: it is on its way up, where it was there a moment ago.
fn is_away(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::FDO(error) => matches!(
            **error,
            zbus::fdo::Error::ServiceUnknown(_) | zbus::fdo::Error::NameHasNoOwner(_)
        ),
        zbus::Error::MethodError(name, ..) => {
            [".ServiceUnknown", ".NameHasNoOwner"].iter().any(|end| name.as_str().ends_with(end))
        }
        _ => false,
    }
}

/// Whether the service said that nothing was done, and that it is to be asked again.
fn is_busy(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::MethodError(name, ..) if name.as_str() == "org.quietcores1.Error.Busy")
}

#[proxy(
    interface = "org.quietcores1.Shield",
    default_service = "org.quietcores1",
    default_path = "/org/quietcores1"
)]
trait Shield {
    fn list_chains(&self) -> zbus::Result<Vec<(String, String, bool)>>;
    fn plan(&self, chain: &str) -> zbus::Result<String>;
    #[zbus(allow_interactive_auth)]
    fn apply(&self, chain: &str, confirm: u32) -> zbus::Result<String>;
    #[zbus(allow_interactive_auth)]
    fn apply_bound(&self, chain: &str) -> zbus::Result<(String, zbus::OwnedFd)>;
    #[zbus(allow_interactive_auth)]
    fn trace(&self, cpus: &str) -> zbus::Result<(zbus::OwnedFd, zbus::OwnedFd)>;
    #[zbus(allow_interactive_auth)]
    fn watch(&self, chain: &str, report_only: bool) -> zbus::Result<zbus::OwnedFd>;
    #[zbus(allow_interactive_auth)]
    fn confirm(&self) -> zbus::Result<bool>;
    #[zbus(allow_interactive_auth)]
    fn revert(&self) -> zbus::Result<String>;
    fn status(&self) -> zbus::Result<String>;
    #[zbus(allow_interactive_auth)]
    fn admit(&self, thread: u32, cpus: &str, policy: &str, priority: u8) -> zbus::Result<String>;
    fn release(&self, thread: u32) -> zbus::Result<String>;
    #[zbus(allow_interactive_auth)]
    fn lend(
        &self,
        seconds: u32,
        until_sound: bool,
        unit: &str,
        while_caller: bool,
    ) -> zbus::Result<String>;
    #[zbus(allow_interactive_auth)]
    fn take_back(&self) -> zbus::Result<String>;
}

/// Why the service did not do it.
#[derive(Debug)]
pub enum Refusal {
    /// There is no bus here, or no such service on it.
    NoService(String),
    /// The service's own sentence.
    Said(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoService(why) => write!(f, "the service {NAME} is not to be had: {why}"),
            Refusal::Said(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<zbus::Error> for Refusal {
    fn from(error: zbus::Error) -> Refusal {
        match error {
            zbus::Error::MethodError(name, said, _) => {
                let said = said.unwrap_or_else(|| name.to_string());
                match name.starts_with(NAME) {
                    true => Refusal::Said(said),
                    false => Refusal::NoService(said),
                }
            }
            other => Refusal::NoService(other.to_string()),
        }
    }
}

/// The service, as it is asked by a program without a runtime of its own.
pub struct ServiceClient {
    runtime: tokio::runtime::Runtime,
    shield: ShieldProxy<'static>,
}

impl fmt::Debug for ServiceClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceClient").field("path", &PATH).finish_non_exhaustive()
    }
}

impl ServiceClient {
    /// At the bus of `address`; `None` is the system's.
    ///
    /// # Errors
    /// When there is no bus. Whether the service is there shows at the first call: the bus starts it.
    pub fn connect(address: Option<&str>) -> Result<ServiceClient, Refusal> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Refusal::NoService(e.to_string()))?;
        let shield = runtime.block_on(async {
            let builder = match address {
                Some(address) => Builder::address(address),
                None => Builder::system(),
            };
            let bus: Connection = builder.method_timeout(PATIENCE).build().await?;
            ShieldProxy::builder(&bus).cache_properties(CacheProperties::No).build().await
        })?;
        Ok(ServiceClient { runtime, shield })
    }

    /// The answer to a question; `changes` something where it is heard, and is asked once then, unless the service is busy.
    fn answer<T, F: Future<Output = zbus::Result<T>>>(
        &self,
        changes: bool,
        question: impl Fn() -> F,
    ) -> Result<T, Refusal> {
        let since = Instant::now();
        let mut was_gone = false;
        loop {
            let error = match self.runtime.block_on(question()) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // Killed with the question in hand, it comes up again.
            was_gone |= !changes && is_gone(&error);
            let again = is_busy(&error) || was_gone && (is_gone(&error) || is_away(&error));
            if !again || since.elapsed() > AGAIN {
                return Err(error.into());
            }
            std::thread::sleep(SOON);
        }
    }

    /// The approved chains: name, title, whether it can be used.
    ///
    /// # Errors
    /// As the service says.
    pub fn chains(&self) -> Result<Vec<(String, String, bool)>, Refusal> {
        self.answer(false, || self.shield.list_chains())
    }

    /// The plan of an approved chain.
    ///
    /// # Errors
    /// As the service says.
    pub fn plan(&self, chain: &str) -> Result<Plan, Refusal> {
        read(&self.answer(false, || self.shield.plan(chain))?)
    }

    /// Applies an approved chain, to be confirmed within so many seconds where they are named.
    ///
    /// # Errors
    /// As the service says.
    pub fn apply(&self, chain: &str, confirm: Option<u32>) -> Result<Applied, Refusal> {
        read(&self.answer(true, || self.shield.apply(chain, confirm.unwrap_or(0)))?)
    }

    /// Applies an approved chain for as long as the line that is returned is open: the end of this process, whatever it is, puts
    /// the machine back.
    ///
    /// # Errors
    /// As the service says.
    pub fn apply_bound(&self, chain: &str) -> Result<(Applied, OwnedFd), Refusal> {
        let (applied, line) = self.runtime.block_on(self.shield.apply_bound(chain))?;
        Ok((read(&applied)?, line.into()))
    }

    /// Has CPUs of the shield watched by the kernel's trace: the line that ends it when it is closed, and the pipe that has `ready`, and
    /// what was seen in the end.
    ///
    /// # Errors
    /// As the service says.
    pub fn trace(&self, cpus: &CpuSet) -> Result<(OwnedFd, OwnedFd), Refusal> {
        let (line, seen) = self.runtime.block_on(self.shield.trace(&cpus.to_string()))?;
        Ok((line.into(), seen.into()))
    }

    /// Has the shield watched over, as one of the approved chain, until it is taken down or the pipe that is returned is closed. The
    /// pipe has the events, one JSON object a line.
    ///
    /// # Errors
    /// As the service says.
    pub fn watch(&self, chain: &str, report_only: bool) -> Result<OwnedFd, Refusal> {
        Ok(self.runtime.block_on(self.shield.watch(chain, report_only))?.into())
    }

    /// Confirms the shield; whether it waited for that.
    ///
    /// # Errors
    /// As the service says.
    pub fn confirm(&self) -> Result<bool, Refusal> {
        self.answer(true, || self.shield.confirm())
    }

    /// Puts the machine back; `None` where nothing was to be done.
    ///
    /// # Errors
    /// As the service says.
    pub fn revert(&self) -> Result<Option<Reverted>, Refusal> {
        read(&self.answer(true, || self.shield.revert())?)
    }

    /// Has a thread of one's own let into the shield: onto `cpus` of it (all where there are none), under
    /// `schedule` (FIFO or RR) where there is one.
    ///
    /// # Errors
    /// As the service says.
    pub fn admit(
        &self,
        thread: u32,
        cpus: Option<&CpuSet>,
        schedule: Option<Scheduling>,
    ) -> Result<Admitted, Refusal> {
        let cpus = cpus.map(ToString::to_string).unwrap_or_default();
        let (policy, priority) = match schedule {
            Some(Scheduling { policy: Policy::Rr, priority, .. }) => ("rr", priority),
            Some(Scheduling { priority, .. }) => ("fifo", priority),
            None => ("", 0),
        };
        read(&self.answer(true, || self.shield.admit(thread, &cpus, policy, priority))?)
    }

    /// Has a thread of one's own let out of the shield again.
    ///
    /// # Errors
    /// As the service says.
    pub fn release(&self, thread: u32) -> Result<Released, Refusal> {
        read(&self.answer(true, || self.shield.release(thread))?)
    }

    /// Has the CPUs of the shield lent to everybody: for so many seconds at most, until the first sound, the end of a unit of systemd, or,
    /// with `while_caller`, that of this process.
    ///
    /// # Errors
    /// As the service says.
    pub fn lend(
        &self,
        seconds: u32,
        until_sound: bool,
        unit: Option<&str>,
        while_caller: bool,
    ) -> Result<Lent, Refusal> {
        let unit = unit.unwrap_or_default();
        read(&self.answer(true, || self.shield.lend(seconds, until_sound, unit, while_caller))?)
    }

    /// Has lent CPUs taken back; `None` where none are lent.
    ///
    /// # Errors
    /// As the service says.
    pub fn take_back(&self) -> Result<Option<Reclaimed>, Refusal> {
        read(&self.answer(true, || self.shield.take_back())?)
    }

    /// The shield as it is.
    ///
    /// # Errors
    /// As the service says.
    pub fn status(&self) -> Result<Status, Refusal> {
        read(&self.answer(false, || self.shield.status())?)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(|e| {
        Refusal::Said(format!("the service answers what this program does not understand ({e}): are both of one version?"))
    })
}
