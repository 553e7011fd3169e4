//! By what the journal tells threads apart.

use quiet_types::plan::Thread;

/// A thread, for ever: its number and its start time.
pub(crate) type Key = (u32, u64);

/// The [`Key`] of a thread.
pub(crate) fn key(thread: &Thread) -> Key {
    (thread.tid, thread.start)
}
