//! Lends the CPUs of a shield to everybody for a while, and takes them back.
//!
//! What keeps everybody off them is opened ([`fence`]); all else stays: interrupts, the chain's threads, the group. The journal keeps every
//! note, so a revert of a lent shield finds what was opened as it was before, and leaves it. Before anything is opened, a process of its
//! own stands that takes the CPUs back ([`guard_loan`]); it is found by its lock. Should it be killed, [`crate::overdue`] does its work.

mod acts;
mod fence;
mod sound;
mod unit;
mod wait;

pub use acts::{LONGEST, LoanOptions, lend, take_back};
pub(crate) use acts::{overdue, standing_loan};
pub(crate) use fence::Fence;
pub use wait::guard_loan;
