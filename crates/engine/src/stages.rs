//! The strip that is none: a wire.

use quiet_dsp::{Block, Stage};

/// Hands the input on as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire;

impl Stage for Wire {
    fn process(&mut self, _: &mut Block<'_>) {}

    fn reset(&mut self) {}
}
