//! Judges runs, and shows them: as text for a terminal, as one HTML page. Pure: no file, no
//! clock, no terminal.
//!
//! Judge and show are two steps with plain data between them: every face prints the same
//! [`quiet_types::Finding`]s and the same [`quiet_types::proof::Figure`]s.
#![forbid(unsafe_code)]

mod buffers;
mod campaign;
pub mod causes;
mod changes;
pub mod check;
mod compare;
mod cost;
pub mod example;
pub mod foreign;
mod html;
mod judge;
mod known;
mod markdown;
mod predict;
pub mod stats;
pub mod svg;
mod text;
mod trend;
mod trip;
pub mod words;

pub use buffers::{
    at_most_an_hour, buffers_line, buffers_page, buffers_text, judge_buffers, least_safe,
};
pub use campaign::{campaign_markdown, campaign_progress, campaign_text, campaigned};
pub use causes::explain;
pub use changes::changes;
pub use compare::{compare_runs, compared_junit, compared_tap, compared_text};
pub use cost::{cost_figures, cost_text};
pub use html::{PAGE_MARK, campaign_page, history_page, proof_page, runs_page};
pub use judge::{Judgement, judge_proof, judge_run};
pub use markdown::{proof_markdown, runs_markdown};
pub use predict::{Ask, predict, prediction_text};
pub use text::{
    Column, Table, explained_text, findings_text, proof_text, run_text, severity_word, wrap,
};
pub use trend::{changes_over_time, history_text};
pub use trip::{Way, budget, judge_trip, trip_line, trip_page, trip_text};

pub mod machine;
pub mod plan;
pub mod watch;
