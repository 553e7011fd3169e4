//! A graph of PipeWire's that polls: a support plugin whose loop polls where PipeWire's own waits.
//!
//! PipeWire's loops make their system calls through an interface, `Spa:Pointer:Interface:System`, and load what implements it by
//! name: `library.name.system = quietcores/libspa-quietcores` in the description of a data loop. This one makes the same calls as PipeWire's
//! own, except that it looks again and again as long as it may: the thread has one CPU, that CPU is shielded, and the
//! kernel would not stop it for running on. Otherwise, and where nothing has come for a second, it sleeps as PipeWire's own does.
//!
//! # Source
//! PipeWire's `spa/support/system.h`, `spa/support/plugin.h` and `spa/utils/hook.h` (0.3.65 and 1.4 alike).

mod face;
mod right;
mod wait;

pub use face::spa_handle_factory_enum;
