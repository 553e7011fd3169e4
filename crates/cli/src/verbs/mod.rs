//! One verb a file: its arguments, and what it calls.

pub mod apply;
pub mod bench;
pub mod buffers;
pub mod check;
pub mod compare;
pub mod explain;
pub mod export;
pub mod generate;
pub mod hold;
pub mod import;
pub mod inspect;
pub mod measure;
pub mod persist;
pub mod plan;
pub mod play;
pub mod predict;
pub mod prove;
pub mod render;
pub mod report;
pub mod revert;
pub mod runs;
pub mod status;
pub mod stress;
pub mod strip;
pub mod unpersist;
pub mod worker;
