//! A farm: what many machines measured becomes one question.
//!
//! A machine that joins makes immutable, signed records ([`make`]) of what its store keeps, which wait in an outbox on disk ([`Outbox`]).
//! A collector adds them up in a database of its own ([`Collector`]): histograms are added exactly, and percentiles are taken from sums.
//! Between them is a stream of NATS JetStream ([`send()`], [`gather()`]), or a folder that was copied.
#![forbid(unsafe_code)]

mod about;
mod agent;
mod ask;
mod collector;
#[cfg(test)]
mod collector_tests;
mod error;
#[cfg(test)]
mod example;
mod folders;
pub mod make;
mod member;
mod metrics;
mod outbox;
pub mod packed;
pub mod sealed;
mod stream;
mod wall;

pub use about::Around;
pub use agent::{Agent, NowHere, Passed};
pub use ask::{FarmField, FarmQuestion};
pub use collector::{
    Arrival, Arrived, Batch, Collector, Trust, clock_words, day_of, day_text, sum_of,
};
pub use error::{Error, Result};
pub use folders::{FolderSum, collect};
pub use make::{Discretion, LiveMinutes};
pub use member::{BOUND, MEMBER_SCHEMA, MemberDir, Membership, STREAM};
pub use metrics::{MetricsForm, classic};
pub use outbox::{Outbox, Thinned, Waiting};
pub use sealed::{HostKey, OpenedRecord, SecretKey, message_id};
pub use stream::{Gathered, ReadTo, Sent, Servers, gather, make_stream, send};
