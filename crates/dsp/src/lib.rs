//! Audio stages on slices.
//!
//! Pure: no file, no clock, no thread. What a stage needs is built by its `prepare` (which may
//! allocate and fail); [`Stage::process`] may do neither, nor lock, nor call the system.

pub mod amp;
mod block;
pub mod fir;
pub mod ir;
pub mod simd;
pub mod stage;
pub mod strip;
pub mod wav;

pub use block::Block;
use quiet_types::{Frames, SampleRate};

/// What a stage is prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Frames a second.
    pub rate: SampleRate,
    /// Channels of every block.
    pub channels: usize,
    /// The longest block that [`Stage::process`] will be handed. Shorter ones come too.
    pub block: Frames,
}

/// One element of a strip, prepared and ready to sound.
///
/// The output depends on the samples alone, never on how they were cut into blocks: every split
/// gives the same bits.
pub trait Stage: Send {
    /// Processes a block in place.
    ///
    /// # Shape
    /// The channels of the [`ProcessSpec`], at most its frames (0 is allowed).
    /// # Real time
    /// Yes: no allocation, lock, system call or panic; the cost does not depend on the samples.
    fn process(&mut self, block: &mut Block<'_>);

    /// How much later the output is than the input.
    fn latency(&self) -> Frames {
        Frames(0)
    }

    /// Forgets all history, as if newly prepared.
    ///
    /// # Real time
    /// Not promised: long histories are cleared.
    fn reset(&mut self);

    /// Changes parameter `param` (its place in the stage's own list) to `value`; a ramp keeps it
    /// from clicking. Unknown parameters and values out of range are refused with `false`.
    ///
    /// # Real time
    /// Yes.
    fn set(&mut self, param: usize, value: f32) -> bool {
        let _ = (param, value);
        false
    }

    /// What refuses the same values as [`Stage::set`], beyond those out of range; `None` where there are no such values. Who plays
    /// the stage elsewhere asks it, since an answer from there would come too late.
    ///
    /// # Real time
    /// No: allocates.
    fn twin(&self) -> Option<Box<dyn Twin>> {
        None
    }
}

/// A stage without its sound: its parameters alone.
pub trait Twin: Send {
    /// As [`Stage::set`].
    ///
    /// # Real time
    /// Yes.
    fn set(&mut self, param: usize, value: f32) -> bool;
}
