//! Shows what was measured, judged and done: as text for a terminal, as Markdown, as one HTML page. Pure: no file, no
//! clock, no terminal.
//!
//! Every face prints the same [`quiet_types::Finding`]s and the same [`quiet_types::proof::Figure`]s; what they mean
//! was decided before, in `quiet-judge`.
#![forbid(unsafe_code)]

mod buffers;
mod campaign;
pub mod check;
mod compare;
mod cost;
mod demo;
mod farm;
mod greeting;
mod html;
mod markdown;
mod predict;
pub mod svg;
mod text;
mod trend;
mod trip;
mod tune;

pub use buffers::{buffers_line, buffers_page, buffers_text};
pub use campaign::{campaign_markdown, campaign_progress, campaign_text};
pub use compare::{compared_junit, compared_tap, compared_text};
pub use cost::cost_text;
pub use demo::{demo_page, demo_text, demo_wav};
pub use farm::farm_text;
pub use greeting::{Greeting, greeting_text};
pub use html::{
    PAGE_MARK, campaign_page, farm_page, history_page, proof_page, runs_page, tune_page,
};
pub use markdown::{proof_markdown, runs_markdown};
pub use predict::prediction_text;
pub use text::{
    Column, Table, explained_text, findings_text, fit, proof_text, run_text, severity_word, wrap,
};
pub use trend::history_text;
pub use trip::{trip_line, trip_page, trip_text};
pub use tune::{boots_design_text, boots_text, design_text, factors_text, tune_line, tune_text};

pub mod doctor;
pub mod loan;
pub mod machine;
pub mod plan;
pub mod setup;
pub mod watch;
