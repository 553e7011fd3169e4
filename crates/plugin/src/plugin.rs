//! The main thread's side: state, files, swaps.

use crate::{
    heart::{Way, heart},
    shared::Shared,
    sounding::Sounding,
    wish::{CHANNELS, HIGHEST, LONGEST, LOWEST, PluginState},
};
use clack_extensions::{
    audio_ports::{
        AudioPortFlags, AudioPortInfo, AudioPortInfoWriter, AudioPortType, PluginAudioPorts,
        PluginAudioPortsImpl,
    },
    latency::{HostLatency, PluginLatency, PluginLatencyImpl},
    params::{
        ParamDisplayWriter, ParamInfo, ParamInfoFlags, ParamInfoWriter, PluginMainThreadParams,
        PluginParams,
    },
    state::{PluginState as StateExtension, PluginStateImpl},
    tail::PluginTail,
};
use clack_plugin::{
    events::spaces::CoreEventSpace,
    prelude::*,
    stream::{InputStream, OutputStream},
    utils::Cookie,
};
use quiet_dsp::Stage as _;
use quiet_engine::ProcessSpec;
use quiet_types::{Frames, SampleRate};
use std::{
    cell::{Cell, RefCell},
    ffi::CStr,
    fmt::Write as _,
    io::{Read as _, Write as _},
    sync::atomic::Ordering::Relaxed,
};

/// The plugin: a strip for two channels.
#[derive(Debug)]
pub struct StripPlugin;

impl Plugin for StripPlugin {
    type AudioProcessor<'a> = Sounding<'a>;
    type Shared<'a> = Shared;
    type MainThread<'a> = StripMain<'a>;

    fn declare_extensions(builder: &mut PluginExtensions<Self>, _: Option<&Shared>) {
        builder
            .register::<PluginAudioPorts>()
            .register::<PluginLatency>()
            .register::<PluginParams>()
            .register::<StateExtension>()
            .register::<PluginTail>();
    }
}

impl DefaultPluginFactory for StripPlugin {
    fn get_descriptor() -> PluginDescriptor {
        use clack_plugin::plugin::features::{AUDIO_EFFECT, STEREO};
        PluginDescriptor::new("org.quietcores.strip", "quietcores strip")
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_description("Amps, impulse responses and strips of quietcores")
            .with_features([AUDIO_EFFECT, STEREO])
    }

    fn new_shared(_: HostSharedHandle<'_>) -> Result<Shared, PluginError> {
        Ok(Shared::default())
    }

    fn new_main_thread<'a>(
        host: HostMainThreadHandle<'a>,
        shared: &'a Shared,
    ) -> Result<StripMain<'a>, PluginError> {
        Ok(StripMain {
            host: RefCell::new(host),
            shared,
            state: RefCell::default(),
            live: RefCell::default(),
            latency: Cell::new(0),
        })
    }
}

/// What the main thread holds.
pub struct StripMain<'a> {
    host: RefCell<HostMainThreadHandle<'a>>,
    shared: &'a Shared,
    state: RefCell<PluginState>,
    live: RefCell<Option<Way>>,
    /// As the host was told last.
    latency: Cell<u32>,
}

impl<'a> PluginMainThread<'a, Shared> for StripMain<'a> {}

impl<'a> PluginAudioProcessor<'a, Shared, StripMain<'a>> for Sounding<'a> {
    fn activate(
        _host: HostAudioProcessorHandle<'a>,
        main: &StripMain<'a>,
        shared: &'a Shared,
        config: PluginAudioConfiguration,
    ) -> Result<Sounding<'a>, PluginError> {
        main.activate(shared, config)
    }

    fn deactivate(self, main: &StripMain<'a>) {
        main.deactivate();
    }

    fn process(
        &mut self,
        _: Process<'_>,
        mut audio: Audio<'_>,
        events: Events<'_>,
    ) -> Result<ProcessStatus, PluginError> {
        self.run(&mut audio, &events)
    }
}

impl StripMain<'_> {
    /// Builds what the state names, ready to sound.
    pub(crate) fn activate<'s>(
        &self,
        shared: &'s Shared,
        config: PluginAudioConfiguration,
    ) -> Result<Sounding<'s>, PluginError> {
        // Whole rates alone, as cards have them.
        let rate = SampleRate(config.sample_rate.round().clamp(1_000.0, 768_000.0) as u32);
        let block = Frames(config.max_frames_count.clamp(1, 1 << 16));
        let strip = self.state.borrow().strip(rate, block, CHANNELS)?;
        shared.tail.store(strip.tail().0, Relaxed);
        self.tell_latency(strip.latency().0);
        let setting = ProcessSpec { rate, channels: CHANNELS, block };
        let levels = [0, 1].map(|n| f32::from_bits(shared.levels[n].load(Relaxed)));
        let (heart, way) = heart(strip, setting, levels)?;
        *self.live.borrow_mut() = Some(way);
        Ok(Sounding { shared, heart })
    }

    pub(crate) fn deactivate(&self) {
        *self.live.borrow_mut() = None;
    }

    fn tell_latency(&self, latency: u32) {
        let before = self.latency.replace(latency);
        let host = self.host.borrow();
        if before != latency
            && let Some(extension) = host.get_extension::<HostLatency>()
        {
            extension.changed(&host);
        }
    }

    /// Takes a new state over. What sounds is crossfaded to it; where it is of another latency, the host
    /// is asked to start the plugin anew, as CLAP wants it.
    fn take(&self, state: PluginState) -> Result<(), PluginError> {
        let mut live = self.live.borrow_mut();
        if let Some(live) = live.as_mut() {
            let strip = live.build(&state)?;
            if strip.latency().0 == self.latency.get() {
                let tail = strip.tail().0;
                live.swap(strip)?;
                self.shared.tail.store(tail, Relaxed);
            } else {
                self.host.borrow().request_restart();
            }
        }
        for (level, value) in self.shared.levels.iter().zip([state.input, state.output]) {
            level.store(value.to_bits(), Relaxed);
        }
        *self.state.borrow_mut() = state;
        Ok(())
    }
}

impl PluginStateImpl for StripMain<'_> {
    fn save(&self, output: &mut OutputStream<'_>) -> Result<(), PluginError> {
        let [input, behind] = [0, 1].map(|n| f32::from_bits(self.shared.levels[n].load(Relaxed)));
        let state = PluginState { input, output: behind, ..self.state.borrow().clone() };
        output.write_all(&serde_json::to_vec(&state)?)?;
        Ok(())
    }

    fn load(&self, input: &mut InputStream<'_>) -> Result<(), PluginError> {
        let mut bytes = Vec::new();
        input.take(LONGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST {
            return Err(PluginError::Message("the state is longer than any of this plugin's"));
        }
        self.take(PluginState::parse(&bytes)?)
    }
}

impl PluginLatencyImpl for StripMain<'_> {
    fn get(&self) -> u32 {
        self.latency.get()
    }
}

impl PluginAudioPortsImpl for StripMain<'_> {
    fn count(&self, _: bool) -> u32 {
        1
    }

    fn get(&self, index: u32, is_input: bool, writer: &mut AudioPortInfoWriter<'_>) {
        if index == 0 {
            writer.set(&AudioPortInfo {
                id: ClapId::new(u32::from(!is_input)),
                name: if is_input { b"in" } else { b"out" },
                channel_count: CHANNELS as u32,
                flags: AudioPortFlags::IS_MAIN,
                port_type: Some(AudioPortType::STEREO),
                in_place_pair: Some(ClapId::new(u32::from(is_input))),
            });
        }
    }
}

impl PluginMainThreadParams for StripMain<'_> {
    fn count(&self) -> u32 {
        2
    }

    fn get_info(&self, index: u32, info: &mut ParamInfoWriter<'_>) {
        const NAMES: [&[u8]; 2] = [b"input", b"output"];
        let Some(name) = NAMES.get(index as usize) else { return };
        info.set(&ParamInfo {
            id: ClapId::new(index),
            flags: ParamInfoFlags::IS_AUTOMATABLE,
            cookie: Cookie::empty(),
            name,
            module: b"",
            min_value: f64::from(LOWEST),
            max_value: f64::from(HIGHEST),
            default_value: 0.0,
        });
    }

    fn get_value(&self, id: ClapId) -> Option<f64> {
        let level = self.shared.levels.get(id.get() as usize)?;
        Some(f64::from(f32::from_bits(level.load(Relaxed))))
    }

    fn value_to_text(
        &self,
        _: ClapId,
        value: f64,
        writer: &mut ParamDisplayWriter<'_>,
    ) -> std::fmt::Result {
        write!(writer, "{value:.1} dB")
    }

    fn text_to_value(&self, _: ClapId, text: &CStr) -> Option<f64> {
        text.to_str().ok()?.trim().trim_end_matches("dB").trim().parse().ok()
    }

    fn flush(&self, input: &InputEvents<'_>, _: &mut OutputEvents<'_>) {
        for event in input {
            if let Some(CoreEventSpace::ParamValue(event)) = event.as_core_event() {
                self.shared.hear(event);
            }
        }
    }
}
