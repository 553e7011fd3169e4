//! Keeps the promise that whatever ends a proof leaves the machine as it was.

use crate::verbs::plan::{Wish, machine, make};
use quiet_linux::{Root, System};
use quiet_shield::Setup;
use quiet_types::plan::Applied;
use std::{path::Path, sync::atomic::AtomicBool};

/// Puts shields up and takes them down. Dropped with one up, as by a panic, it takes it down.
pub struct Ward<'a> {
    kernel: &'a System,
    wish: Wish,
    state: &'a Path,
    stop: &'a AtomicBool,
    up: bool,
}

impl<'a> Ward<'a> {
    pub fn new(kernel: &'a System, wish: Wish, state: &'a Path, stop: &'a AtomicBool) -> Ward<'a> {
        Ward { kernel, wish, state, stop, up: false }
    }

    /// The shield that is wished, planned for the machine as it is at this moment.
    pub fn raise(&mut self) -> anyhow::Result<Applied> {
        let plan = make(&self.wish, &machine(&Root::system()?)?)?;
        let program = std::env::current_exe()?;
        let setup = Setup { state: self.state, holder: Some(&program), interrupt: self.stop };
        let applied = quiet_shield::up(self.kernel, &plan, &setup)?;
        self.up = true;
        Ok(applied)
    }

    /// Puts the machine back; whether every value is as it was.
    pub fn lower(&mut self) -> anyhow::Result<bool> {
        if !self.up {
            return Ok(true);
        }
        let reverted = quiet_shield::revert(self.kernel, self.state)?;
        self.up = false;
        Ok(reverted.is_none_or(|reverted| reverted.is_exact()))
    }
}

impl Drop for Ward<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.lower() {
            crate::face::error(
                &error.context("cannot put the machine back; run `quietcores revert`"),
            );
        }
    }
}
