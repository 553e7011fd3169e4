//! `top`: the stream as a screen of a terminal, with keys.
//!
//! [`Screen`] holds what is shown and understands keys; [`draw`] puts it into a frame, wherever that is; [`run`] brings both together
//! with a terminal.
#![forbid(unsafe_code)]

mod draw;
mod look;
mod panels;
mod run;
mod screen;

pub use draw::draw;
pub use look::TopLook;
pub use run::{TopSetup, run};
pub use screen::{Cover, KeyPress, Screen, TopOrder};
