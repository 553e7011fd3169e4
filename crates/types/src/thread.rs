//! A thread of the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thread, for ever: a number that was given anew has another start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Its name.
    pub comm: String,
}

impl Thread {
    /// Whether both are the same thread, whatever it is called by now.
    pub fn is(&self, other: &Thread) -> bool {
        (self.tid, self.start) == (other.tid, other.start)
    }
}

impl std::fmt::Display for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} ({})", self.tid, crate::printable(&self.comm, 32))
    }
}
