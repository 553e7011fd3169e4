//! Files that are read and replaced whole.
//!
//! | room | what |
//! | --- | --- |
//! | [`read`], [`take`] | no more than a bound, and ordinary files only |
//! | [`write_whole`], [`directory`] | a file of our own: aside, synced, renamed |
//! | [`Replacement`], [`settle`] | a file of others: with its owner and attributes, also for a boot loader that knows no journal |
//! | [`Tree`] | files of a machine that outlive a reboot, the running one or a tree |
//! | [`StateDir`] | our own directory, and the sole right to change the machine |

mod aside;
mod new;
mod read;
mod state;
mod tree;

pub use aside::{FileOwner, Replacement, aside_name, remove_settled, settle, sweep, sync};
pub use new::{Replace, directory, make_dir, room, write_whole};
pub use read::{read, read_text, take, take_text};
pub use state::{DEFAULT_STATE, Lock, StateDir, stamp};
pub use tree::{FoundFile, NewText, Tree, split};
