//! Control while it plays: one line of JSON a request, one line an answer.
//!
//! [`Session`] carries requests out, whoever makes them; [`Server`] brings them from a Unix socket.
//! Neither shares anything with the real-time side but the rings of [`crate::Remote`], so whatever
//! comes in here costs other CPUs' time at most.

mod request;
mod server;
mod session;

#[cfg(fuzzing)]
pub use request::fuzzed;
pub use request::{Request, Swap};
pub use server::{CLIENTS, LINE, Server, private_dir};
pub use session::Session;
