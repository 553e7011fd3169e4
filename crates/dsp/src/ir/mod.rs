//! Impulse responses: read, made ready, handed to a FIR.
//!
//! Everything here runs before the sound starts: it allocates, and it may fail.

mod prepare;
mod read;

pub use prepare::Normalise;
pub use read::Wav;

use crate::fir::Route;
use quiet_types::SampleRate;
use std::fmt;

/// The most samples that an IR may have in all channels together.
pub const MAX_SAMPLES: usize = 1 << 24;
/// The most channels.
pub const MAX_CHANNELS: usize = 64;

/// An impulse response of one or more channels, all of the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Ir {
    /// Frames a second.
    pub rate: SampleRate,
    /// The samples of each channel.
    pub channels: Vec<Vec<f32>>,
}

/// Why an IR cannot be read or made ready.
#[derive(Debug)]
pub enum Error {
    /// The bytes cannot be had.
    Read(std::io::Error),
    /// They are not WAV, or of a kind that is not read.
    Wav(String),
    /// A text's line is not like the others.
    Text {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The bytes do not make whole frames.
    Uneven {
        /// How many bytes there are.
        bytes: usize,
        /// Bytes in a frame.
        frame: usize,
    },
    /// There is no sample in it.
    Empty,
    /// It has more samples than [`MAX_SAMPLES`], or more channels than [`MAX_CHANNELS`].
    TooLarge,
    /// Samples are not finite numbers.
    NotFinite {
        /// Of the first one, counted from 0.
        channel: usize,
        /// Of the first one, counted from 0.
        frame: usize,
        /// How many there are in all.
        count: usize,
    },
    /// A channel is asked for that it does not have.
    Channel {
        /// Counted from 0.
        asked: usize,
        /// How many there are.
        channels: usize,
    },
    /// Its channels fit the stream's in no way.
    Fit {
        /// Of the IR.
        channels: usize,
        /// Of the stream.
        stream: usize,
    },
    /// It is silent, so nothing can be made of it.
    Silent,
    /// It cannot be brought from one rate to another.
    Rate {
        /// Frames a second.
        from: u32,
        /// Frames a second.
        to: u32,
        /// What stands in the way.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(source) => write!(f, "the IR cannot be read: {source}"),
            Error::Wav(why) => write!(f, "the IR is no WAV file that can be read: {why}"),
            Error::Text { line, why } => write!(f, "line {line} of the IR: {why}"),
            Error::Uneven { bytes, frame } => write!(
                f,
                "the IR has {bytes} bytes, which is no multiple of the {frame} in a frame: is it \
                 of another format?"
            ),
            Error::Empty => write!(f, "the IR has no samples"),
            Error::TooLarge => write!(
                f,
                "the IR has more than {MAX_SAMPLES} samples or {MAX_CHANNELS} channels: trim it"
            ),
            Error::NotFinite { channel, frame, count } => {
                write!(f, "frame {frame} of channel {channel} of the IR is not a finite number")?;
                match count - 1 {
                    0 => Ok(()),
                    more => write!(f, ", nor are {more} others"),
                }
            }
            Error::Channel { asked, channels } => {
                write!(f, "the IR has no channel {asked}: it has {channels}, counted from 0")
            }
            Error::Fit { channels, stream } => write!(
                f,
                "an IR of {channels} channels fits no stream of {stream}: it needs 1, {stream}, or \
                 {} (every input to every output); choose channels",
                stream * stream
            ),
            Error::Silent => write!(f, "the IR is silent"),
            Error::Rate { from, to, why } => {
                write!(f, "the IR cannot be resampled from {from} to {to} Hz: {why}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read(source) => Some(source),
            _ => None,
        }
    }
}

impl Ir {
    /// Of samples, if they make one.
    ///
    /// # Errors
    /// If there are none or too many, or one is not finite.
    /// # Panics
    /// If the channels differ in length: a fault of the caller.
    pub fn new(rate: SampleRate, channels: Vec<Vec<f32>>) -> Result<Ir, Error> {
        let frames = channels.first().map_or(0, Vec::len);
        assert!(channels.iter().all(|channel| channel.len() == frames), "uneven channels");
        if frames == 0 {
            return Err(Error::Empty);
        }
        if channels.len() > MAX_CHANNELS || frames > MAX_SAMPLES / channels.len() {
            return Err(Error::TooLarge);
        }
        for (channel, samples) in channels.iter().enumerate() {
            if let Some(frame) = samples.iter().position(|x| !x.is_finite()) {
                let all = channels.iter().flatten();
                let count = all.filter(|x| !x.is_finite()).count();
                return Err(Error::NotFinite { channel, frame, count });
            }
        }
        Ok(Ir { rate, channels })
    }

    /// Samples in each channel.
    pub fn frames(&self) -> usize {
        self.channels.first().map_or(0, Vec::len)
    }

    /// The routes of a FIR for a stream of `channels` channels: an IR of one channel goes to each of them, one
    /// of as many channels goes channel by channel, one of their square leads from every input to every
    /// output (left to left, left to right, right to left, right to right).
    ///
    /// # Errors
    /// If it has another number of channels.
    pub fn routes(&self, channels: usize) -> Result<Vec<Route>, Error> {
        let own = self.channels.len();
        if own == 1 && channels > 0 {
            return Ok(Route::each(channels, &self.channels[0]));
        }
        let place = |i: usize| match own {
            n if n == channels => Some((i, i)),
            n if n == channels * channels => Some((i / channels, i % channels)),
            _ => None,
        };
        let routes = self.channels.iter().enumerate().map(|(i, taps)| {
            let (input, output) = place(i)?;
            Some(Route { input, output, taps: taps.clone() })
        });
        let routes: Option<Vec<Route>> = routes.collect();
        routes.ok_or(Error::Fit { channels: own, stream: channels })
    }
}

#[cfg(test)]
mod tests;
