//! Chooses what a machine is asked for. Pure: no kernel, no I/O.
#![forbid(unsafe_code)]

pub mod boot;
