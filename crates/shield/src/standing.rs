//! How a shield stands, by its journal.

use crate::{
    Kernel, Result, boot_id,
    error::{Error, ErrorKind},
    journal::{Journal, Past, Reader},
};
use quiet_linux::{
    BootId,
    files::{Lock, StateDir},
};
use quiet_types::plan::ShieldStanding;
use std::path::Path;

pub(crate) fn standing(past: &Past, boot: &BootId) -> ShieldStanding {
    match &past.up {
        _ if is_rebooted(past, boot) => ShieldStanding::Rebooted,
        Some(_) if past.reverting.is_none() => ShieldStanding::Up,
        _ => ShieldStanding::Leftover,
    }
}

/// Whether the journal is of an earlier boot.
pub(crate) fn is_rebooted(past: &Past, boot: &BootId) -> bool {
    past.boot_id.as_ref().is_some_and(|id| boot.is_another(id))
}

/// A shield that is up, with the sole right to change it.
pub(crate) struct LockedShield {
    pub state: StateDir,
    reader: Reader,
    _lock: Lock,
}

impl LockedShield {
    /// The one of the state directory `state`; `none` is what is said where there is none.
    ///
    /// # Errors
    /// When none is up, or what is there is not whole; and when somebody else is at work for too long.
    pub fn find(kernel: &dyn Kernel, state: &Path, none: &str) -> Result<LockedShield> {
        let none = || Error::new(ErrorKind::State, none);
        let state = StateDir::open(state)?.ok_or_else(none)?;
        let lock = state.lock_patiently(kernel.lock_file().as_deref())?;
        let mut reader = Reader::default();
        let past = reader.look(&state)?.ok_or_else(none)?;
        if standing(past, &boot_id(kernel)?) != ShieldStanding::Up {
            return Err(Error::new(
                ErrorKind::Leftover,
                "no whole shield is up: `quietcores revert` puts the machine back",
            ));
        }
        Ok(LockedShield { state, reader, _lock: lock })
    }

    /// Makes its journal smaller where that is worth it.
    pub fn compact(&mut self, kernel: &dyn Kernel) {
        self.reader.compact(kernel, &self.state);
    }

    /// What its journal tells.
    pub fn past(&self) -> &Past {
        self.reader.past()
    }

    /// Its journal, to be written further; whoever holds this must outlive it.
    pub fn journal(&mut self) -> Result<Journal> {
        Journal::resume(&self.state, std::mem::take(&mut self.reader))
    }
}
