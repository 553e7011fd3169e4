//! The round trip by sound: thirteen tones whose phases tell the delay, and a sweep to check them.
//!
//! [`TestSignal`] is what is sent in one pass, [`hear`] what comes of it; both are pure. [`Pass`] plays
//! a sound and keeps what comes in, sample by sample; [`measure`] opens a device for each cycle
//! and lets it run through one pass.

mod hear;
mod pass;
mod sound;
mod sweep;
mod tones;

#[cfg(test)]
mod tests;

pub use hear::{Unheard, hear};
pub use pass::{Cables, CycleProgress, MeasuredTrip, Pass, measure};
pub use sound::TestSignal;
