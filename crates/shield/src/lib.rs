//! Puts a shield up, keeps it across reboots, and takes it down.
#![forbid(unsafe_code)]

pub mod persist;
