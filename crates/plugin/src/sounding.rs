//! The audio thread's side.

use crate::{heart::Heart, shared::Shared};
use clack_extensions::{
    params::PluginAudioProcessorParams, tail::PluginTailImpl, tail::TailLength,
};
use clack_plugin::{events::spaces::CoreEventSpace, prelude::*, process::audio::PairedChannels};
use std::sync::atomic::Ordering::Relaxed;

/// What the audio thread holds.
pub struct Sounding<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) heart: Heart,
}

impl Sounding<'_> {
    /// One call of the host.
    pub(crate) fn run(
        &mut self,
        audio: &mut Audio<'_>,
        events: &Events<'_>,
    ) -> Result<ProcessStatus, PluginError> {
        self.hear(events.input);
        let Some(mut port) = audio.port_pair(0) else { return Ok(ProcessStatus::Continue) };
        let Some(mut channels) = port.channels()?.into_f32() else {
            return Err(PluginError::Message("samples of 64 bits, which were not offered"));
        };
        let frames = channels.frames_count() as usize;
        let mut from = 0;
        while from < frames {
            let count = (frames - from).min(self.heart.block());
            self.play(&mut channels, from, count);
            from += count;
        }
        Ok(ProcessStatus::Continue)
    }

    /// Takes levels over that the host changes.
    fn hear(&mut self, events: &InputEvents<'_>) {
        for event in events {
            if let Some(CoreEventSpace::ParamValue(event)) = event.as_core_event() {
                self.shared.hear(event);
            }
        }
        let levels = &self.shared.levels;
        self.heart.level([0, 1].map(|n| f32::from_bits(levels[n].load(Relaxed))));
    }

    fn play(&mut self, channels: &mut PairedChannels<'_, f32>, from: usize, count: usize) {
        let room = self.heart.room(count);
        room.fill(0.0);
        for (n, to) in room.chunks_exact_mut(count).enumerate() {
            match channels.channel_pair(n) {
                Some(ChannelPair::InputOnly(input) | ChannelPair::InputOutput(input, _)) => {
                    to.copy_from_slice(&input[from..][..count]);
                }
                Some(ChannelPair::InPlace(both)) => to.copy_from_slice(&both[from..][..count]),
                _ => {}
            }
        }
        self.heart.play(count);
        for (n, made) in self.heart.room(count).chunks_exact(count).enumerate() {
            match channels.channel_pair(n) {
                Some(ChannelPair::OutputOnly(output) | ChannelPair::InputOutput(_, output)) => {
                    output[from..][..count].copy_from_slice(made);
                }
                Some(ChannelPair::InPlace(both)) => both[from..][..count].copy_from_slice(made),
                _ => {}
            }
        }
    }
}

impl PluginAudioProcessorParams for Sounding<'_> {
    fn flush(&mut self, input: &InputEvents<'_>, _: &mut OutputEvents<'_>) {
        self.hear(input);
    }
}

impl PluginTailImpl for Sounding<'_> {
    fn get(&self) -> TailLength {
        TailLength::Finite(self.shared.tail.load(Relaxed))
    }
}
