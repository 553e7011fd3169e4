//! The symbol `clap_entry`, by which a host finds the plugin.
#![allow(
    unsafe_code,
    reason = "the name of an exported symbol is outside of what the compiler can check"
)]

use crate::StripPlugin;
use clack_plugin::prelude::*;

clack_export_entry!(SinglePluginEntry<StripPlugin>);
