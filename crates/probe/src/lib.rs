//! Measures: runs a loop of `quiet_rt` in a process of its own, under stress if asked, and hands
//! over a [`quiet_types::Run`] with the state of the machine before and after.
//!
//! [`run`] starts the program again as `worker`. There one thread a CPU is pinned, scheduled and
//! locked in memory, what was refused becomes a finding, and the loop runs. A process of its own
//! has its own page tables (what the rest of the program maps and frees does not interrupt the
//! measured CPU) and can enter a cgroup v2 partition, which takes whole processes.
#![forbid(unsafe_code)]

mod clock;
mod cost;
mod error;
mod host;
mod judge;
pub mod keeper;
mod leftover;
mod reach;
mod request;
mod run;
mod shared;
mod so_far;
pub mod stress;
mod teller;
mod thread;
mod tracer;
mod watch;
pub mod worker;

pub use cost::{Blocks, RunBlock, cost};
pub use error::{Error, ErrorKind, Result};
pub use host::{host, stamp};
pub use quiet_linux::state::read as state;
pub use reach::{Reaching, Special, reach};
pub use request::{RunRequest, Strictness};
pub use run::{Checkpoints, RunProgress, run, saved, watched};
pub use stress::RunningStress;
pub use teller::tell_in;
pub use tracer::tracer;
pub use watch::{CpuWatch, READY, Seen, TraceLender};
