//! What a host keeps for the plugin: its state.

use quiet_dsp::strip::Strip;
use quiet_engine::{
    Error, ErrorKind, ProcessSpec, Result,
    render::{Description, Files},
};
use quiet_types::{Frames, SampleRate};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The schema of [`PluginState`] in JSON.
pub const SCHEMA: &str = "quietcores.plugin/1";
/// Channels of the plugin in CLAP.
pub(crate) const CHANNELS: usize = 2;
/// No state is longer, bytes.
pub(crate) const LONGEST: u64 = 1 << 16;

/// The plugin's state, as a host keeps it: JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginState {
    /// [`SCHEMA`].
    pub schema: String,
    /// A strip's description, in place of the two below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip: Option<PathBuf>,
    /// A neural amp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amp: Option<PathBuf>,
    /// An impulse response, behind the amp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ir: Option<PathBuf>,
    /// Level before the strip, dB.
    #[serde(default)]
    pub input: f32,
    /// Level after it, dB.
    #[serde(default)]
    pub output: f32,
}

impl Default for PluginState {
    fn default() -> PluginState {
        PluginState {
            schema: SCHEMA.to_owned(),
            strip: None,
            amp: None,
            ir: None,
            input: 0.0,
            output: 0.0,
        }
    }
}

impl PluginState {
    /// Reads a state.
    ///
    /// # Errors
    /// A sentence, where it is none of this version's.
    pub fn parse(bytes: &[u8]) -> Result<PluginState> {
        let state: PluginState = serde_json::from_slice(bytes).map_err(|e| {
            Error::of(ErrorKind::Asked, format!("the state is none of this plugin's: {e}"))
        })?;
        let other = |why: String| Err(Error::of(ErrorKind::Asked, why));
        if state.schema != SCHEMA {
            let kept = quiet_types::printable(&state.schema, 40);
            return other(format!("the state is of {kept}; this plugin knows {SCHEMA}"));
        }
        if state.strip.is_some() && (state.amp.is_some() || state.ir.is_some()) {
            return other("the state names a strip, and an amp or an IR beside it".to_owned());
        }
        for level in [state.input, state.output] {
            if !(LOWEST..=HIGHEST).contains(&level) {
                return other(format!("a level is {level} dB; {LOWEST} to {HIGHEST} are possible"));
            }
        }
        Ok(state)
    }

    fn description(&self) -> Result<(Description, Files)> {
        let strip = |e: quiet_types::FileError| Error::of(ErrorKind::Strip, e.to_string());
        if let Some(path) = &self.strip {
            return quiet_engine::read_strip(path);
        }
        let mut stages = Vec::new();
        for (kind, path) in [("amp", &self.amp), ("ir", &self.ir)] {
            let Some(path) = path else { continue };
            let Some(path) = path.to_str() else {
                let why = format!("the name {} is not UTF-8: rename the file", path.display());
                return Err(Error::of(ErrorKind::File, why));
            };
            stages.push((kind, path));
        }
        Ok((Description::of_files(&stages).map_err(strip)?, Files::here()))
    }

    /// The strip that is named: for all of `channels`, or where it takes fewer for the first.
    pub(crate) fn strip(&self, rate: SampleRate, block: Frames, channels: usize) -> Result<Strip> {
        let (description, mut files) = self.description()?;
        let inputs = description.channels().unwrap_or(channels).min(channels);
        let strip = description
            .prepare(inputs, rate, block, &mut files)
            .map_err(|e| Error::of(ErrorKind::Strip, e.to_string()))?;
        if strip.outputs() > channels {
            let outputs = strip.outputs();
            let why = format!("the strip gives {outputs} channels; the plugin has {channels}");
            return Err(Error::of(ErrorKind::Strip, why));
        }
        Ok(strip)
    }
}

/// Of the plugin's own levels, dB.
pub(crate) const LOWEST: f32 = -60.0;
/// Of the plugin's own levels, dB.
pub(crate) const HIGHEST: f32 = 24.0;

/// A level of `channels` channels that can be moved while it sounds.
pub(crate) fn level(decibels: f32, setting: ProcessSpec) -> Result<Strip> {
    let text = format!("[[stage]]\nkind = \"gain\"\nname = \"level\"\ngain = {decibels:?}\n");
    let wrong = |e: quiet_types::FileError| Error::of(ErrorKind::Fault, e.to_string());
    let description = Description::parse(&text, "the plugin").map_err(wrong)?;
    let ProcessSpec { rate, channels, block } = setting;
    description.prepare(channels, rate, block, &mut Files::here()).map_err(wrong)
}
