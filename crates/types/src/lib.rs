//! The vocabulary of quietcores as types. No I/O, no clock, no kernel.
//!
//! Every other crate speaks in these words; the JSON that the program prints is these types
//! written by serde, and the committed schemas are derived from them.
//!
//! Without the `std` feature only what runs on the quiet core is left: [`Nanos`], [`CpuId`] and
//! the bucket layout of [`histogram::layout`].
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

pub mod histogram;
mod units;

pub use units::{CpuId, Frames, Nanos, SampleRate};

#[cfg(feature = "std")]
pub mod bench;
#[cfg(feature = "std")]
pub mod boot;
#[cfg(feature = "std")]
pub mod boots;
#[cfg(feature = "std")]
pub mod buffers;
#[cfg(feature = "std")]
pub mod campaign;
#[cfg(feature = "std")]
mod cell;
#[cfg(feature = "std")]
pub mod chain;
#[cfg(feature = "std")]
pub mod check;
#[cfg(feature = "std")]
pub mod compared;
#[cfg(feature = "std")]
pub mod counters;
#[cfg(feature = "std")]
mod cpu_set;
#[cfg(feature = "std")]
pub mod demo;
#[cfg(feature = "std")]
pub mod doctor;
#[cfg(feature = "std")]
pub mod explain;
#[cfg(feature = "std")]
pub mod farm;
#[cfg(feature = "std")]
mod figure;
#[cfg(feature = "file-error")]
mod file_error;
#[cfg(feature = "std")]
pub mod finding;
#[cfg(feature = "std")]
mod first;
#[cfg(feature = "std")]
mod group_path;
#[cfg(feature = "std")]
pub mod head;
#[cfg(feature = "std")]
pub mod heat;
#[cfg(feature = "std")]
pub mod history;
#[cfg(feature = "std")]
mod host;
#[cfg(feature = "std")]
pub mod live;
#[cfg(feature = "std")]
pub mod loan;
#[cfg(feature = "std")]
pub mod lot;
#[cfg(feature = "std")]
pub mod machine;
#[cfg(feature = "std")]
pub mod plan;
#[cfg(feature = "std")]
pub mod play;
#[cfg(feature = "std")]
pub mod prediction;
#[cfg(feature = "std")]
pub mod proof;
#[cfg(feature = "std")]
pub mod reach;
#[cfg(feature = "std")]
pub mod render;
#[cfg(feature = "std")]
pub mod run;
#[cfg(feature = "std")]
pub mod said;
#[cfg(feature = "std")]
pub mod setup;
#[cfg(feature = "std")]
pub mod shield;
#[cfg(feature = "std")]
pub mod surroundings;
#[cfg(feature = "std")]
mod text;
#[cfg(feature = "std")]
mod thread;
#[cfg(feature = "std")]
pub mod trace;
#[cfg(feature = "std")]
pub mod trip;
#[cfg(feature = "std")]
pub mod tune;
#[cfg(feature = "std")]
pub mod watch;
#[cfg(feature = "std")]
pub mod words;

#[cfg(feature = "file-error")]
pub use file_error::FileError;
#[cfg(feature = "std")]
pub use {
    chain::Chain,
    counters::Counters,
    cpu_set::{CpuSet, ParseCpuSetError},
    finding::{Finding, Severity},
    group_path::{GroupPath, NoGroupPath},
    histogram::Histogram,
    machine::Machine,
    plan::Plan,
    proof::Proof,
    run::Run,
    text::{ParseDurationError, printable},
};
