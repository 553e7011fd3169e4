//! What all threads of a host see.

use crate::wish::{HIGHEST, LOWEST};
use clack_plugin::{events::event_types::ParamValueEvent, prelude::*};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What all threads see.
#[derive(Debug, Default)]
pub struct Shared {
    /// Bits of the levels before and behind, dB.
    pub(crate) levels: [AtomicU32; 2],
    /// Frames that the strip sounds on.
    pub(crate) tail: AtomicU32,
}

impl PluginShared<'_> for Shared {}

impl Shared {
    /// Keeps what a host says of a level.
    pub(crate) fn hear(&self, event: &ParamValueEvent) {
        let (Some(id), value) = (event.param_id(), event.value() as f32) else { return };
        let range = LOWEST..=HIGHEST;
        if let Some(level) = self.levels.get(id.get() as usize).filter(|_| range.contains(&value)) {
            level.store(value.to_bits(), Relaxed);
        }
    }
}
