//! A strip as a plugin: what plays it live and what renders it, in a host's hands, through CLAP and LV2.
//!
//! The host's state names the files: a strip, or an amp and an impulse response. [`StripPlugin`] builds the strip on the
//! host's main thread and sends it through a ring to the audio thread, which crossfades to it; what was heard before
//! comes home through another ring to be dropped. In LV2 the host's worker builds it. The audio thread allocates nothing, waits for nobody and calls no system.

mod entry;
mod heart;
mod lv2;
mod plugin;
mod shared;
mod sounding;
mod wish;

pub use plugin::StripPlugin;
pub use wish::{PluginState, SCHEMA};
