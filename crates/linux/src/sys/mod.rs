//! System calls that no library offers safely, and the processor's counters: all the unsafe code
//! of the program. Each function is safe to call and says how it fails and where it is written.

pub mod calls;
pub mod clock;
pub mod evl;
pub mod freeze;
pub mod memory;
pub mod process;
pub mod sched;
pub mod walls;
