//! A driver of Intel-HDA sound controllers in user space that is polled: while it plays there is no interrupt and no system call.
//!
//! [`Controller`] resets a controller and asks its codecs; [`Codec`] knows their widgets and finds ways between jacks and
//! converters; [`Streams`] moves sound both ways and makes xruns of positions. All of it is written against [`Door`], a device's
//! registers and the memory that is shared with it: numbers of the device's are bounded before they are used, every wait has an
//! end, and no index leaves the memory.
#![deny(unsafe_code)]

mod codec;
mod controller;
#[cfg(any(test, fuzzing))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzzing uses a part of it"))]
mod fake;
mod find;
mod format;
#[cfg(fuzzing)]
pub mod fuzzing;
mod loan;
mod note;
mod registers;
mod streams;
mod sys;
#[cfg(test)]
mod tests;
mod track;

pub use codec::{Codec, SoundPath, Widget, WidgetKind};
pub use controller::{Controller, Fault};
pub use find::{Fence, PciCard, cards};
pub use format::LinkFormat;
pub use loan::{BorrowedCard, LoanWish, guard_card, put_back, taken};
pub use registers::{Door, Pages, Registers};
pub use streams::{CardError, CardWish, Found, Streams, room};
pub use sys::Card;
pub use track::{Moved, Track};
