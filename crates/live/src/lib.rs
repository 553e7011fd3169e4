//! One bounded stream of what the machine does now: below the terminal's screen, the pages and scripts.
//!
//! `gather` reads counters, [`count`] makes a [`Moment`] of two readings without looking at anything, [`Stream`] does both at a pace.
//! The stream keeps off the CPUs of a shield and reads no file whose answer would cost one of them an interrupt.
#![forbid(unsafe_code)]

mod bars;
mod call;
mod clean;
mod count;
mod dropped;
mod events;
mod gather;
mod jobs;
mod pace;
mod probes;
mod sound;
mod stream;
mod verdict;

pub use bars::{load_bars, probe_bars};
pub use call::{OwnArguments, Program, VerbAnswer, VerbCall, call_verb};
pub use clean::clean;
pub use count::{Counted, count};
pub use dropped::{MOST_DROPPED, drop_sound, swap_file};
pub use events::{changes, late_moments};
pub use gather::{CpuReading, Gatherer, ThreadReading, ThreadSeen};
pub use jobs::Jobs;
pub use quiet_types::live::Moment;
pub use sound::{ControlError, Engines, ask, knobs, sound_told, swapped, wish, wished};
pub use stream::{Hands, LiveOptions, Onlooker, StatusReader, Stream};
pub use verdict::verdict;
