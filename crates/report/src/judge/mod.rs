//! Judgements: what a run or a proof shows, as data.

pub(crate) mod figures;
mod proof;
mod run;
#[cfg(test)]
mod simulated;

pub(crate) use proof::throughput;
pub use proof::{Judgement, judge_proof};
pub use run::judge_run;
