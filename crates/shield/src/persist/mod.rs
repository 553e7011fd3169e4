//! Across reboots.
pub mod diff;
pub mod form;
pub mod grubenv;
