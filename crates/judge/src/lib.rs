//! What runs show. Pure: no file, no clock, no terminal.
//!
//! From runs to data: [`stats`] has the figures and their tests, everything else says what they mean as
//! [`quiet_types::Finding`]s, verdicts and sentences. Faces show them and decide nothing.
//!
//! | question | answer |
//! | --- | --- |
//! | may this run be believed? | [`judge_run`] |
//! | is the one setting better than the other? | [`judge_proof`], [`compare_runs`], [`campaigned`]: one judge |
//! | did something change over weeks? | [`changes_over_time`] |
//! | who took the time? | [`explain`] |
//! | which of many steps did something? | [`screen`]; as `tune` tells it: [`tune`] |
//! | how often will a buffer run dry? | [`predict`], [`judge_buffers`] |
//! | what is a round trip made of? | [`judge_trip`], [`budget`] |
#![forbid(unsafe_code)]

mod buffers;
mod campaign;
pub mod causes;
mod changes;
mod compare;
mod cost;
pub mod example;
mod figures;
pub mod known;
mod predict;
mod proof;
mod run;
pub mod screen;
#[cfg(test)]
mod simulated;
pub mod stats;
mod trend;
mod trip;
pub mod tune;

pub use buffers::{at_most_an_hour, judge_buffers, least_safe};
pub use campaign::{RunsBySetting, campaigned, groups};
pub use causes::explain;
pub use changes::{changes, to_follow};
pub use compare::compare_runs;
pub use cost::cost_figures;
pub use figures::figure_of;
pub use predict::{Ask, buffers_of, predict};
pub use proof::{Judgement, judge_proof, throughput};
pub use run::judge_run;
pub use trend::{changes_over_time, series_of};
pub use trip::{Way, budget, judge_trip};
