//! What is asked of an engine, and what it then has.

use crate::{
    Error, Result,
    host::{null::Cable, taken::HdaCard},
    place::SeatWish,
};
use quiet_types::{Frames, SampleRate};
use std::path::PathBuf;

/// What to play on.
#[derive(Clone, Debug, PartialEq)]
pub enum AudioHost {
    /// A card that does not exist, with a cable from its output to its input or without.
    Null(Option<Cable>),
    /// A file in, a file out, as fast as it goes.
    File {
        /// A WAV file.
        input: PathBuf,
        /// Becomes a WAV file of 32-bit floats.
        output: PathBuf,
    },
    /// An Intel-HDA card that this process drives itself.
    Hda(HdaCard),
    /// A sound card.
    #[cfg(feature = "audio")]
    Alsa(Names),
    /// A JACK server, or PipeWire's.
    #[cfg(feature = "audio")]
    Jack(Ports),
}

/// Which devices: names of ALSA, such as `hw:USB` or `hw:1,0`. One at least; twice the same for a
/// card that does both.
#[cfg(feature = "audio")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// What plays; without it, what comes out of the strip is heard by nobody.
    pub playback: Option<String>,
    /// What captures; without it, silence goes into the strip.
    pub capture: Option<String>,
}

/// How the client appears.
#[cfg(feature = "audio")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Its name.
    pub name: String,
    /// What its ports are connected to.
    pub connect: Connect,
}

/// What a client's ports are connected to.
#[cfg(feature = "audio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// The first physical ports.
    Physical,
    /// Its own: what it plays it hears, one period later.
    Own,
}

/// What is asked of an engine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where sound comes from and goes to.
    pub host: AudioHost,
    /// Frames a second.
    pub rate: SampleRate,
    /// Frames a period.
    pub period: Frames,
    /// Frames in the card's ring.
    pub buffer: Frames,
    /// Channels of the strip: the most that there are anywhere within.
    pub channels: usize,
    /// How many of them come in.
    pub inputs: usize,
    /// How many of them go out.
    pub outputs: usize,
    /// Where the thread runs and how it waits.
    pub wish: SeatWish,
}

/// Frames a second, frames a period, frames in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Frames a second.
    pub rate: SampleRate,
    /// Frames a period.
    pub period: Frames,
    /// Frames in the card's ring.
    pub buffer: Frames,
}

/// Most channels of a strip.
const CHANNELS: usize = 64;

impl Setup {
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |sentence: String| Err(Error::new(sentence));
        if !(8_000..=768_000).contains(&self.rate.0) {
            return wrong(format!(
                "the rate is {}; it can be 8000 to 768000 frames a second, such as --rate 48000",
                self.rate
            ));
        }
        if !(1..=65_536).contains(&self.period.0) {
            return wrong(format!(
                "the period is {} frames; it can be 1 to 65536, such as --period 64",
                self.period
            ));
        }
        let least = 2 * self.period.0;
        if !(least..=1 << 20).contains(&self.buffer.0) {
            return wrong(format!(
                "the buffer is {} frames; it can be 2 periods ({least}) to 1048576, such as --buffer {least}",
                self.buffer
            ));
        }
        if !(1..=CHANNELS).contains(&self.channels) {
            return wrong(format!(
                "the strip has {} channels; it can have 1 to {CHANNELS}",
                self.channels
            ));
        }
        if !(1..=self.channels).contains(&self.inputs)
            || !(1..=self.channels).contains(&self.outputs)
        {
            return wrong(format!(
                "{} channels come in and {} go out of a strip of {}",
                self.inputs, self.outputs, self.channels
            ));
        }
        if let AudioHost::Null(Some(cable)) = &self.host {
            let most = 1_000_000.0;
            if !(0.0..=most).contains(&cable.delay) {
                return wrong(format!(
                    "the cable delays {} frames; it can be 0 to {most}",
                    cable.delay
                ));
            }
            if cable.delay.fract() != 0.0 && cable.delay < 64.0 {
                return wrong(format!(
                    "the cable delays {} frames; with a fraction it can be 64 or more",
                    cable.delay
                ));
            }
        }
        Ok(())
    }
}
