//! The small service that holds the rights: `quietcored`.
//!
//! Ordinary users have no right to move interrupts and threads. They ask this service over the system bus. It takes names of
//! chains that root has approved, never a path and never a command. Whether a user may is polkit's to decide; where there is
//! no polkit, members of one group may ([`authority`]). All that it changes goes through the journal of [`quiet_shield`], one
//! act at a time ([`acts`]).
//!
//! [`client`] is the other end: what the program asks where it runs without root.
#![forbid(unsafe_code)]

pub mod acts;
pub mod approved;
pub mod authority;
mod caller;
mod calls;
mod canary;
pub mod client;
mod error;
mod herald;
mod notify;
mod queue;
pub mod serve;
pub mod watching;

pub use error::Error;

/// Name of the service on the bus.
pub const NAME: &str = "org.quietcores1";
/// Its one object.
pub const PATH: &str = "/org/quietcores1";
/// Highest real-time priority that a user's thread is given, unless root says otherwise.
pub const MOST_PRIORITY: u8 = 85;
/// Where approved chains lie.
pub const CHAINS: &str = "/etc/quietcores/chains";
