//! Who calls, by the bus's own word.

use crate::Error;
use quiet_linux::System;
use quiet_types::plan::Thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};
use zbus::{
    Connection,
    fdo::{ConnectionCredentials, DBusProxy},
    message::Header,
    names::{BusName, UniqueName},
};

/// So many callers are remembered.
const MOST: usize = 512;

/// A caller, as the bus knew him when he connected.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// His unique name on the bus.
    pub name: String,
    /// His user.
    pub uid: u32,
    /// The groups of his process, where this bus says them.
    pub groups: Option<Vec<u32>>,
}

/// The callers that are known. A unique name is never another's for as long as the bus runs.
#[derive(Clone, Debug)]
pub(crate) struct Callers {
    /// A connection of its own: on that of the service an answer of the bus would wait behind everybody's calls.
    bus: Connection,
    known: Arc<Mutex<HashMap<String, Caller>>>,
}

impl Callers {
    /// With nobody known; the bus is asked by `bus`.
    pub fn new(bus: Connection) -> Callers {
        Callers { bus, known: Arc::default() }
    }

    /// Where the bus, and others on it, are asked.
    pub fn bus(&self) -> &Connection {
        &self.bus
    }

    /// Who sent this message.
    ///
    /// # Errors
    /// When he is gone already, or the bus does not say who he is.
    pub async fn who(&self, header: &Header<'_>) -> Result<Caller, Error> {
        let sender = header.sender().ok_or_else(unknown)?;
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(caller) = known().get(sender.as_str()) {
            return Ok(caller.clone());
        }
        let told = self.told(sender).await?;
        let (uid, groups) = (told.unix_user_id().ok_or_else(unknown)?, told.unix_group_ids());
        let caller = Caller { name: sender.to_string(), uid, groups: groups.cloned() };
        let mut known = known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(caller.name.clone(), caller.clone());
        Ok(caller)
    }

    /// The process of who sent this message.
    ///
    /// # Errors
    /// As [`Callers::who`].
    pub async fn process(&self, header: &Header<'_>) -> Result<CallerProcess, Error> {
        let told = self.told(header.sender().ok_or_else(unknown)?).await?;
        let pid = told.process_id();
        if let Some(handle) = told.into_process_fd() {
            return Ok(CallerProcess::Handle(handle.into()));
        }
        let number = pid.and_then(|pid| quiet_shield::thread(&System, pid, pid));
        Ok(number.map_or(CallerProcess::Unknown, CallerProcess::Number))
    }

    /// As [`Callers::process`], as who it is now.
    ///
    /// # Errors
    /// As [`Callers::who`]; and when it has ended, or the bus does not say which one it is.
    pub async fn thread(&self, header: &Header<'_>) -> Result<Thread, Error> {
        let told = self.told(header.sender().ok_or_else(unknown)?).await?;
        let thread = told.process_id().and_then(|pid| quiet_shield::thread(&System, pid, pid));
        let handle = told.into_process_fd().map(|handle| CallerProcess::Handle(handle.into()));
        // The number is that of the process as long as that has not ended.
        thread.filter(|_| handle.is_none_or(|handle| handle.is_there())).ok_or_else(unknown)
    }

    async fn told(&self, sender: &UniqueName<'_>) -> Result<ConnectionCredentials, Error> {
        let bus = DBusProxy::new(&self.bus).await?;
        bus.get_connection_credentials(BusName::from(sender)).await.map_err(|_| unknown())
    }
}

fn unknown() -> Error {
    Error::NotAllowed("the bus does not say who calls".into())
}

/// The process that has connected.
#[derive(Debug)]
pub(crate) enum CallerProcess {
    /// By a handle of the kernel's, which the bus took when it connected (`ProcessFD`, dbus 1.15.8 and newer).
    Handle(OwnedFd),
    /// By its number, as it was when it called: the number may have been another's before.
    Number(Thread),
    /// The bus does not say.
    Unknown,
}

impl CallerProcess {
    /// Whether it still runs. Where the bus did not say which one it is, that is believed.
    pub fn is_there(&self) -> bool {
        match self {
            CallerProcess::Handle(handle) => {
                // A handle of a process that has ended can be read from.
                let mut ended = [PollFd::new(handle, PollFlags::IN)];
                poll(&mut ended, Some(&Timespec::default())) == Ok(0)
            }
            CallerProcess::Number(process) => {
                let now = quiet_shield::thread(&System, process.tid, process.tid);
                now.is_some_and(|now| now.is(process))
            }
            CallerProcess::Unknown => true,
        }
    }
}
