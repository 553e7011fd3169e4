//! Across reboots.
pub mod diff;
mod error;
pub mod form;
pub mod grubenv;
mod place;

pub use error::{Error, Result};
pub use place::{Found, Owner, Place};
