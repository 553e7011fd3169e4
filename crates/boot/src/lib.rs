//! What lasts across reboots: boot parameters in the loader's files, and a systemd unit for the
//! run-time part.
//!
//! [`loaders`] finds the boot loader by its files, [`propose`] makes the changes as texts,
//! [`write()`] brings them to the disk, [`undo`] takes them back. The record of it, with every old
//! text whole, is on disk before the first change: a power cut at any instant leaves a machine that
//! boots, and that [`undo`] puts back.
//!
//! Files of others are edited by adding words at the end of a place; files of ours stand beside.

#![forbid(unsafe_code)]

mod choose;
mod detect;
pub mod diff;
mod draft;
mod efi;
mod error;
pub mod form;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grub;
mod grubenv;
mod lines;
mod propose;
mod record;
mod runner;
mod trial;
mod undo;
mod unit;
mod write;

pub use choose::{only_roots, the_loader};
pub use detect::{Loader, LoaderKind, entries_of, loaders};
pub use draft::{DraftedChange, Term};
pub use error::{Error, ErrorKind, Result};
pub use propose::{PersistRequest, Proposal, propose, propose_resumption};
pub use record::{FileChange, Ours, Phase, Record, SCHEMA, record};
pub use runner::{NoRunner, Ran, Runner, SystemRunner};
pub use trial::{how_to_start, start_words};
pub use undo::{Restoration, TakenBack, Undone, undo};
pub use unit::{CHAIN, Service, TUNE, UNIT};
pub use write::{Written, vacant, write};
