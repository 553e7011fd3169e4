//! The round trip by sound: thirteen tones whose phases tell the delay, and a sweep to check them.
//!
//! [`Sound`] is what is sent in one pass, [`hear`] what comes of it; both are pure. [`Pass`] plays
//! a sound and keeps what comes in, sample by sample; [`measure`] opens a device for each cycle
//! and lets it run through one pass.

mod hear;
mod pass;
mod sound;
mod sweep;
mod tones;

#[cfg(test)]
mod tests;

pub use hear::{Wrong, hear};
pub use pass::{Cables, Measured, Pass, Step, measure};
pub use sound::Sound;
