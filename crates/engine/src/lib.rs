//! Plays prepared strips: hosts, devices, swaps, counts, round trips; and the same strips offline.
//!
//! [`open`] opens a device and decides where the engine's thread will run; [`Opened::start`] plays.
//! The thread moves periods through [`player`], which obeys a [`Remote`]; a [`quiet_rt::Board`]
//! tells how it goes. What is decided, refused or doubtful is a finding in [`Placed`].
#![forbid(unsafe_code)]

mod admit;
pub mod bench;
mod clock;
pub mod control;
mod engine;
mod error;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod halves;
pub mod host;
#[cfg(feature = "audio")]
pub mod midi;
mod neighbours;
mod place;
mod player;
mod playing;
pub mod render;
mod rtkit;
pub mod setup;
mod shelf;
mod stages;
mod status;
mod strips;
mod taster;
pub mod trial;
pub mod trip;

pub use admit::admit;
pub use clock::Ticks;
pub use engine::{
    Engine, Opened, SeatedThread, SecondThread, mode_name, open, open_from, seat, seat_second,
};
pub use error::{Error, ErrorKind, Result};
pub use halves::{CutAt, CutStrip, Cutter, SecondRest, SecondSide, two_cpus};
pub use place::{Placed, SeatWish, Wait, taken_in_band};
pub use player::{Fade, Player, ReadyStrip, Remote, Told, player};
pub use quiet_dsp::ProcessSpec;
pub use quiet_rt::{Board, LOADS, LoopEvent, LoopMode, METERS, Xrun};
pub use setup::{AudioHost, Setup, Sizes};
pub use shelf::{Empty, Loaded, Shelf, WantedStrip};
pub use stages::Wire;
pub use status::status;
pub use strips::{Strips, read_strip};
pub use taster::{StripTrial, Taster, run_as, supervise, taste_once};
