//! Judgements: what a run or a proof shows, as data.

mod proof;
mod run;

pub(crate) use proof::throughput;
pub use proof::{Judgement, judge_proof};
pub use run::judge_run;
