//! Judgement and faces: what a run and a machine say, as text, data and pages. Pure.
#![forbid(unsafe_code)]

pub mod machine;
pub mod plan;
