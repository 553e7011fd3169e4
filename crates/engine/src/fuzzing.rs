//! Doors for the fuzz targets, in their builds alone: what reads bytes that others may have written.

pub use crate::{control::fuzzed as control, render::fuzzed as sound, rtkit::fuzzed as dbus};
