//! Experiments: what arranges shields, probes, stresses and the engine, and leaves the machine as it was.
//!
//! | experiment | what it answers |
//! | --- | --- |
//! | [`prove()`] | is a shielded CPU quieter than a shared one, pair by pair, by lot? |
//! | [`prove_slice`] | is an ordinary thread with a short slice woken sooner beside a hog? |
//! | [`tune()`] | which steps of a plan help, and which set of them is enough? |
//! | [`campaign()`] | a declared matrix of runs, measured until all of it is there |
//! | [`buffers()`] | which buffers hold, under which stress |
//! | [`demo()`] | how does a late thread sound, and how a quiet core? |
//! | [`least_buffer`] | the least buffer that plays now |
//!
//! None of them prints, reads arguments or knows a terminal: an [`Observer`] hears what happens, a flag that is raised ends
//! them early. Whatever ends one, a [`Ward`] puts the machine back.
#![forbid(unsafe_code)]

mod arms;
mod begun;
mod buffers;
mod campaign;
mod demo;
mod error;
mod find_buffer;
mod observer;
mod prove;
mod run;
mod slices;
mod tune;
mod ward;
mod wish;

pub use begun::{Begun, begin, name, seed};
pub use buffers::{Grid, buffers};
pub use campaign::{
    LARGEST_CAMPAIGN, Workplace, campaign, campaign_status, parse_campaign, read_campaign,
};
pub use demo::{Demo, demo};
pub use error::{Because, Error, ErrorKind, Result};
pub use find_buffer::least_buffer;
pub use observer::{Notice, Observer, Silent};
pub use prove::{Proving, prove, refuse_over_a_shield};
/// Where the journal lies where nobody says.
pub use quiet_shield::DEFAULT_STATE;
pub use run::{door, explained, judged, last_online, online};
pub use slices::{Slicing, prove_slice};
pub use tune::{
    BootAsk, BootsGone, begin_boots, boots_go_on, boots_status, end_boots, finish_boots,
    prepare_boots, reboot,
};
pub use tune::{DuplexAsk, Pick, TriedWrite, Tuning, measured_here, tunable, tune};
pub use ward::{ShieldLender, Ward, make_way, put_back_overdue};
pub use wish::{ShieldWish, chain_text, machine, plan, plan_to_apply, read_chain};

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a flag was raised.
pub(crate) fn raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// Whether this process may change the machine.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
