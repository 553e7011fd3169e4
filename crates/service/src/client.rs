//! The other end: what the program asks the service where it runs without root.

use crate::{NAME, PATH};
use quiet_types::{
    CpuSet, Plan,
    plan::{Admitted, Applied, Reverted, Status},
};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};
use zbus::{Connection, connection::Builder, proxy, proxy::CacheProperties};

/// A polkit dialogue, and a shield that waits for a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often a question that changes nothing is asked again where the service went with it.
const AGAIN: u32 = 10;
const SOON: Duration = Duration::from_millis(300);

/// Whether the service went before it could answer.
fn is_gone(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::FDO(error) => matches!(**error, zbus::fdo::Error::NoReply(_)),
        zbus::Error::MethodError(name, ..) => name.as_str().ends_with(".NoReply"),
        _ => false,
    }
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
    fn confirm(&self) -> zbus::Result<bool>;
    #[zbus(allow_interactive_auth)]
    fn revert(&self) -> zbus::Result<String>;
    fn status(&self) -> zbus::Result<String>;
    #[zbus(allow_interactive_auth)]
    fn admit(&self, thread: u32, cpus: &str, policy: &str, priority: u8) -> zbus::Result<String>;
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

    /// The approved chains: name, title, whether it can be used.
    ///
    /// # Errors
    /// As the service says.
    pub fn chains(&self) -> Result<Vec<(String, String, bool)>, Refusal> {
        Ok(self.runtime.block_on(self.shield.list_chains())?)
    }

    /// The plan of an approved chain.
    ///
    /// # Errors
    /// As the service says.
    pub fn plan(&self, chain: &str) -> Result<Plan, Refusal> {
        read(&self.runtime.block_on(self.shield.plan(chain))?)
    }

    /// Applies an approved chain, to be confirmed within so many seconds where they are named.
    ///
    /// # Errors
    /// As the service says.
    pub fn apply(&self, chain: &str, confirm: Option<u32>) -> Result<Applied, Refusal> {
        read(&self.runtime.block_on(self.shield.apply(chain, confirm.unwrap_or(0)))?)
    }

    /// Confirms the shield; whether it waited for that.
    ///
    /// # Errors
    /// As the service says.
    pub fn confirm(&self) -> Result<bool, Refusal> {
        Ok(self.runtime.block_on(self.shield.confirm())?)
    }

    /// Puts the machine back; `None` where nothing was to be done.
    ///
    /// # Errors
    /// As the service says.
    pub fn revert(&self) -> Result<Option<Reverted>, Refusal> {
        read(&self.runtime.block_on(self.shield.revert())?)
    }

    /// Has a thread of one's own let into the shield: onto `cpus` of it (all where there are none), under FIFO with `priority`
    /// where there is one.
    ///
    /// # Errors
    /// As the service says.
    pub fn admit(
        &self,
        thread: u32,
        cpus: Option<&CpuSet>,
        priority: Option<u8>,
    ) -> Result<Admitted, Refusal> {
        let cpus = cpus.map(ToString::to_string).unwrap_or_default();
        let policy = if priority.is_some() { "fifo" } else { "" };
        let asked = self.shield.admit(thread, &cpus, policy, priority.unwrap_or(0));
        read(&self.runtime.block_on(asked)?)
    }

    /// The shield as it is.
    ///
    /// # Errors
    /// As the service says.
    pub fn status(&self) -> Result<Status, Refusal> {
        let mut asked = self.runtime.block_on(self.shield.status());
        for _ in 0..AGAIN {
            // It was killed with the question in hand, and comes up again.
            if !matches!(asked.as_ref().map_err(is_gone), Err(true)) {
                break;
            }
            std::thread::sleep(SOON);
            asked = self.runtime.block_on(self.shield.status());
        }
        read(&asked?)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(|e| {
        Refusal::Said(format!("the service answers what this program does not understand ({e}): are both of one version?"))
    })
}
