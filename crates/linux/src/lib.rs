//! The door to the kernel.
//!
//! [`Root`] is where files are read: the running system, or a captured tree of one. [`Kernel`] is
//! what changes things; [`System`] is the real one. `sys` holds all unsafe code of the program.
#![deny(unsafe_code)]

mod anonymous;
mod boot_id;
mod capture;
pub mod clock;
mod energy;
mod error;
pub mod evl;
pub mod fault;
pub mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod insist;
mod kernel;
pub mod marks;
pub mod parse;
mod pipewire;
pub mod rights;
mod root;
pub mod seat;
mod snapshot;
pub mod state;
pub mod sys;
pub mod trace;
pub mod walls;

pub use boot_id::BootId;
pub use capture::{Captured, capture, capture_anonymous};
pub use energy::{EnergyReading, EnergySpent};
pub use error::{Error, ErrorKind, Result, plain};
pub use insist::{Hindrance, Insist};
pub use kernel::{Kernel, System, unit_file};
pub use pipewire::pipewire_settings;
pub use root::Root;
pub use snapshot::{CommandLines, Options, cgroup_mounts, glance, identity, snapshot};
