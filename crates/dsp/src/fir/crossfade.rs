//! From one FIR to another while both sound.

use super::Fir;
use crate::{Block, ProcessSpec, Stage};
use quiet_types::Frames;

/// Plays a [`Fir`], and moves to another one without a click.
///
/// What fades is the **input**: the new FIR is fed more and more, the old one less and less, and their outputs
/// are added. So what was played before rings out through the old IR, as it does in a room, and the new one
/// needs no history. The old FIR is done one IR's length after the fade.
///
/// Nothing is built or dropped here: a new FIR comes in by value, the old one is taken home.
pub struct Crossfade {
    now: Fir,
    before: Option<Before>,
    spent: Option<Fir>,
    fade: u32,
    /// The old FIR's block.
    scratch: Vec<f32>,
    channels: usize,
}

struct Before {
    fir: Fir,
    /// Frames since the change.
    age: u64,
}

impl Crossfade {
    /// Begins with `fir`; each change takes `fade` frames.
    ///
    /// Both FIRs must be prepared for `setting`.
    pub fn prepare(setting: &ProcessSpec, fir: Fir, fade: Frames) -> Crossfade {
        let scratch = vec![0.0; setting.channels * setting.block.0 as usize];
        let channels = setting.channels;
        Crossfade { now: fir, before: None, spent: None, fade: fade.0, scratch, channels }
    }

    /// Moves to `next` from the next block on. While an earlier change is under way, or its FIR has not been
    /// taken home, nothing happens and `next` comes back.
    ///
    /// # Errors
    /// `next` itself.
    /// # Real time
    /// Yes: FIRs are moved, none is built or dropped.
    #[expect(clippy::result_large_err, reason = "a box would have to be dropped here")]
    pub fn change(&mut self, next: Fir) -> Result<(), Fir> {
        if self.before.is_some() || self.spent.is_some() {
            return Err(next);
        }
        let fir = std::mem::replace(&mut self.now, next);
        self.before = Some(Before { fir, age: 0 });
        Ok(())
    }

    /// The FIR that has rung out, to be dropped somewhere else.
    ///
    /// # Real time
    /// Yes.
    pub fn spent(&mut self) -> Option<Fir> {
        self.spent.take()
    }

    /// Whether two FIRs sound.
    pub fn changing(&self) -> bool {
        self.before.is_some()
    }
}

impl Stage for Crossfade {
    fn process(&mut self, block: &mut Block<'_>) {
        let Some(before) = &mut self.before else {
            return self.now.process(block);
        };
        let frames = block.frames();
        let mut old = Block::new(&mut self.scratch[..frames * self.channels], self.channels);
        for (new, old) in block.each().zip(old.each()) {
            for (i, (new, old)) in new.iter_mut().zip(old).enumerate() {
                let x = *new;
                // What one gets, the other lacks: the sum is the input itself.
                *new = x * share(before.age + i as u64, self.fade);
                *old = x - *new;
            }
        }
        self.now.process(block);
        before.fir.process(&mut old);
        for (new, old) in block.samples().iter_mut().zip(old.samples()) {
            *new += *old;
        }
        before.age += frames as u64;
        if before.age >= u64::from(self.fade) + before.fir.taps() as u64 {
            self.spent = self.before.take().map(|before| before.fir);
        }
    }

    fn latency(&self) -> Frames {
        self.now.latency()
    }

    fn reset(&mut self) {
        self.now.reset();
        if let Some(before) = self.before.take() {
            self.spent = Some(before.fir);
        }
    }
}

/// The new FIR's part of the input, `age` frames after the change: a straight line.
fn share(age: u64, fade: u32) -> f32 {
    if age >= u64::from(fade) { 1.0 } else { (age + 1) as f32 / (fade as f32 + 1.0) }
}
