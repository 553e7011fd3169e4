//! Neural amps: captures of amplifiers and pedals as small nets.
//!
//! [`Amp::parse`] understands a file (`.nam`, Proteus JSON, AIDA-X and RTNeural JSON) or says what
//! it does not understand and where; nothing is played that was only half understood.
//! [`Amp::prepare`] makes a [`Stage`] of it: memory laid out, weights in the order of the kernels,
//! run in silence until it rests.
//!
//! The sums of every output are taken in one fixed order, so the result does not depend on the
//! length of the blocks nor on the instruction set (fused multiply-add is in all of them but the
//! oldest).

mod json;
mod keras;
mod nam;
pub(crate) mod net;
mod run;
#[cfg(test)]
mod tests;

use crate::{ProcessSpec, Stage, fir::MAX_TAPS, ir::Ir, simd::SimdLevel};
use json::At;
use net::{Linear, Net, Recurrent};
use quiet_types::SampleRate;
use std::fmt;

/// Why an amp is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The file as a whole is none.
    File {
        /// What is wrong with it.
        why: String,
    },
    /// Something in the file is not understood.
    Key {
        /// Where it stands, keys joined by dots.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The amp was captured at another rate than the stream has.
    Rate {
        /// The amp's.
        amp: SampleRate,
        /// The stream's.
        stream: SampleRate,
    },
    /// The amp has other channels than the stream.
    Channels {
        /// The amp's inputs and outputs.
        amp: (usize, usize),
        /// The stream's channels.
        stream: usize,
    },
    /// An option does not suit the amp.
    Option {
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    fn file(why: String) -> Error {
        Error::File { why }
    }

    fn key(path: &str, why: String) -> Error {
        let path = if path.is_empty() { "the file".to_owned() } else { path.to_owned() };
        Error::Key { path, why }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { why } => write!(f, "the amp {why}"),
            Error::Key { path, why } => write!(f, "{path} {why}"),
            Error::Rate { amp, stream } => write!(
                f,
                "the amp was captured at {} Hz and the stream has {} Hz; \
                 run the stream at {0} Hz or put a resampler around the amp",
                amp.0, stream.0
            ),
            Error::Channels { amp: (inputs, outputs), stream } => write!(
                f,
                "the amp takes {} and gives {}; the stream has {stream}",
                count(*inputs),
                count(*outputs)
            ),
            Error::Option { why } => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

/// So many channels, in words.
fn count(channels: usize) -> String {
    if channels == 1 { "1 channel".to_owned() } else { format!("{channels} channels") }
}

/// Where an amp's file comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AmpFormat {
    /// Neural Amp Modeler.
    #[default]
    Nam,
    /// GuitarML Proteus.
    Proteus,
    /// RTNeural, AIDA-X.
    Keras,
    /// An impulse response.
    Wav,
}

impl fmt::Display for AmpFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AmpFormat::Nam => "nam",
            AmpFormat::Proteus => "proteus",
            AmpFormat::Keras => "keras",
            AmpFormat::Wav => "wav",
        })
    }
}

/// What an amp's file says about it.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The kind of file.
    pub format: AmpFormat,
    /// The kind of net, in the file's word.
    pub architecture: String,
    /// The rate it was captured at.
    pub rate: SampleRate,
    /// The file does not say so: it is the format's custom.
    pub rate_assumed: bool,
    /// The capture's name.
    pub name: Option<String>,
    /// Loudness of its output for a standard input, dB.
    pub loudness: Option<f64>,
    /// The analogue level that full scale at its input stands for, dBu.
    pub input_dbu: Option<f64>,
    /// The analogue level that full scale at its output stands for, dBu.
    pub output_dbu: Option<f64>,
    /// Controls that the net has besides the signal.
    pub knobs: usize,
    /// Numbers in the file that the net is made of.
    pub weights: usize,
}

impl Default for About {
    fn default() -> About {
        About {
            format: AmpFormat::Nam,
            architecture: String::new(),
            rate: SampleRate(48_000),
            rate_assumed: true,
            name: None,
            loudness: None,
            input_dbu: None,
            output_dbu: None,
            knobs: 0,
            weights: 0,
        }
    }
}

/// How an amp shall be played.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AmpOptions {
    /// For an amp of several sizes: 0 the smallest, 1 (and none) the whole one.
    pub slim: Option<f64>,
    /// Bring the output to this loudness, dB (players use -18). Needs the file's `loudness`.
    pub loudness: Option<f64>,
    /// What full scale at the interface's input stands for, dBu. Needs the file's `input_level_dbu`.
    pub input_dbu: Option<f64>,
    /// What full scale at the interface's output stands for, dBu. Needs the file's
    /// `output_level_dbu`; not together with `loudness`.
    pub output_dbu: Option<f64>,
    /// Places of the net's controls, 0 to 1; 0.5 where none is given.
    pub knobs: Vec<f32>,
}

#[derive(Clone, Debug)]
struct Size {
    /// Chosen for a slim value below this, if none before it was.
    below: f64,
    net: Net,
    /// Of this size, where the file tells.
    loudness: Option<f64>,
}

impl Size {
    fn whole(net: Net) -> Size {
        Size { below: f64::INFINITY, net, loudness: None }
    }
}

/// An amp, understood.
#[derive(Clone, Debug)]
pub struct Amp {
    about: About,
    sizes: Vec<Size>,
}

impl Amp {
    /// Understands a file.
    ///
    /// # Errors
    /// With the place and the reason, where anything in it is wrong, unknown, not finite or beyond
    /// the bounds that keep memory small.
    pub fn parse(bytes: &[u8]) -> Result<Amp, Error> {
        if [b"RIFF", b"RF64", b"BW64"].iter().any(|start| bytes.starts_with(*start)) {
            return wav(bytes);
        }
        let value = json::parse(bytes)?;
        let at = At::root(&value);
        if !at.is_object() {
            return Err(Error::file("is not a JSON object".to_owned()));
        }
        if nam::is(&at)? {
            nam::parse(&at)
        } else if keras::is_proteus(&at)? {
            keras::proteus(&at)
        } else if keras::is_keras(&at)? {
            keras::keras(&at)
        } else {
            Err(Error::file(
                "has none of the keys that tell its kind: architecture (.nam), state_dict (Proteus), \
                 in_shape and layers (AIDA-X, RTNeural)"
                    .to_owned(),
            ))
        }
    }

    /// What the file says about it.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The rate it was captured at. A linear amp is brought to the stream's. Any other amp of another rate than the stream's is prepared with this
    /// one in its [`ProcessSpec`] and run between two resamplers.
    pub fn rate(&self) -> SampleRate {
        self.about.rate
    }

    /// Channels that it takes and gives. An amp of one and one plays each channel of a stream by itself.
    pub fn channels(&self) -> (usize, usize) {
        let Some(size) = self.sizes.last() else { return (1, 1) };
        // The inputs of a net's controls are none of the stream's.
        let inputs = if self.about.knobs > 0 { 1 } else { size.net.inputs() };
        (inputs, size.net.outputs())
    }

    /// The values of [`AmpOptions::slim`] at which the next larger size begins.
    pub fn slim_steps(&self) -> Vec<f64> {
        self.sizes.iter().map(|size| size.below).filter(|below| below.is_finite()).collect()
    }

    /// Over how many frames an input sample is heard; none where it never ends.
    pub fn receptive_field(&self) -> Option<usize> {
        self.sizes.last().and_then(|size| size.net.receptive())
    }

    /// Multiplications and additions for each frame (an activation counts as none): with the time
    /// they take, what share of the processor's peak the net reaches.
    pub fn flops(&self, options: &AmpOptions) -> u64 {
        self.size(options).map_or(0, |size| size.net.flops())
    }

    fn size(&self, options: &AmpOptions) -> Option<&Size> {
        let slim = options.slim.unwrap_or(1.0);
        self.sizes.iter().find(|size| slim < size.below).or(self.sizes.last())
    }

    /// Makes a stage of it.
    ///
    /// # Errors
    /// If the rates differ, or an option needs what the file lacks; if the amp has several inputs or outputs and the
    /// stream another number of channels than the larger of the two.
    pub fn prepare(
        &self,
        setting: &ProcessSpec,
        options: &AmpOptions,
    ) -> Result<Box<dyn Stage>, Error> {
        self.prepare_for(setting, options, SimdLevel::here())
    }

    /// The same for one instruction set.
    #[doc(hidden)]
    pub fn prepare_for(
        &self,
        setting: &ProcessSpec,
        options: &AmpOptions,
        level: SimdLevel,
    ) -> Result<Box<dyn Stage>, Error> {
        let slim = options.slim.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&slim) {
            return Err(Error::Option { why: format!("slim is {slim}; 0 to 1 are possible") });
        }
        if options.slim.is_some() && self.sizes.len() < 2 {
            return Err(Error::Option {
                why: "slim is given, but the amp has one size".to_owned(),
            });
        }
        let Some(size) = self.size(options) else {
            return Err(Error::file("has no net".to_owned()));
        };
        let (before, after) = self.gains(size, options)?;
        let amp = self.channels();
        if amp != (1, 1) && amp.0.max(amp.1) != setting.channels {
            return Err(Error::Channels { amp, stream: setting.channels });
        }
        let net = match self.with_knobs(&size.net, options)? {
            net if setting.rate == self.about.rate => net,
            // An impulse response is at home at every rate.
            Net::Linear(linear) => linear.at(self.about.rate, setting.rate)?,
            _ => return Err(Error::Rate { amp: self.about.rate, stream: setting.rate }),
        };
        Ok(match &net {
            Net::Linear(linear) => {
                Box::new(run::LinearStage::new(linear, setting, (before, after), level)?)
            }
            net => Box::new(run::AmpStage::new(net, setting, before, after, level)?),
        })
    }

    fn gains(&self, size: &Size, options: &AmpOptions) -> Result<(f32, f32), Error> {
        let lacks = |what: &str, key: &str| Error::Option {
            why: format!("{what} is asked for, but the amp's metadata has no {key}"),
        };
        let mut db = (0.0, 0.0);
        if let Some(interface) = options.input_dbu {
            let level = self.about.input_dbu;
            db.0 =
                interface - level.ok_or_else(|| lacks("input calibration", "input_level_dbu"))?;
        }
        if let Some(target) = options.loudness {
            let own = size.loudness.or(self.about.loudness);
            db.1 += target - own.ok_or_else(|| lacks("loudness", "loudness"))?;
        }
        if let Some(interface) = options.output_dbu {
            if options.loudness.is_some() {
                return Err(Error::Option {
                    why: "loudness and output calibration exclude each other".to_owned(),
                });
            }
            let level = self.about.output_dbu;
            db.1 +=
                level.ok_or_else(|| lacks("output calibration", "output_level_dbu"))? - interface;
        }
        for gain in [db.0, db.1] {
            if !(-120.0..=120.0).contains(&gain) {
                return Err(Error::Option {
                    why: format!("the gain comes to {gain:.1} dB; -120 to 120 are possible"),
                });
            }
        }
        Ok((10f64.powf(db.0 / 20.0) as f32, 10f64.powf(db.1 / 20.0) as f32))
    }

    /// The net with its controls set for good: they only move the biases.
    fn with_knobs(&self, net: &Net, options: &AmpOptions) -> Result<Net, Error> {
        if options.knobs.len() > self.about.knobs {
            return Err(Error::Option {
                why: format!(
                    "{} knobs are set, but the amp has {}",
                    options.knobs.len(),
                    self.about.knobs
                ),
            });
        }
        if let Some(knob) = options.knobs.iter().find(|knob| !(0.0..=1.0).contains(*knob)) {
            return Err(Error::Option {
                why: format!("a knob is set to {knob}; 0 to 1 are possible"),
            });
        }
        let mut net = net.clone();
        if self.about.knobs > 0
            && let Net::Recurrent(Recurrent { cells, .. }) = &mut net
            && let Some(cell) = cells.first_mut()
        {
            let rows = cell.bias.len();
            for n in 1..cell.inputs {
                let knob = options.knobs.get(n - 1).copied().unwrap_or(0.5);
                for row in 0..rows {
                    cell.bias[row] += cell.weights[n * rows + row] * knob;
                }
            }
            cell.weights.truncate(rows);
            cell.inputs = 1;
        }
        Ok(net)
    }
}

/// An impulse response that stands for an amp.
fn wav(bytes: &[u8]) -> Result<Amp, Error> {
    let read =
        Ir::from_wav(bytes).map_err(|error| Error::file(format!("is a WAV file: {error}")))?;
    if read.missing > 0 {
        let why = format!("is a WAV file that ends {} frames early", read.missing);
        return Err(Error::file(why));
    }
    let (frames, outputs) = (read.ir.frames(), read.ir.channels.len());
    // As the reference has it: one is for each channel, two spread one input to two outputs.
    if outputs > 2 {
        let why = format!(
            "is a WAV file of {outputs} channels; an amp's has 1 or 2 (a stage `ir` takes more)"
        );
        return Err(Error::file(why));
    }
    if frames > MAX_TAPS {
        let why = format!("is a WAV file of {frames} samples; {MAX_TAPS} are possible");
        return Err(Error::file(why));
    }
    let about = About {
        format: AmpFormat::Wav,
        architecture: "Linear".to_owned(),
        rate: read.ir.rate,
        rate_assumed: false,
        weights: frames * outputs,
        ..About::default()
    };
    let net = Linear { inputs: 1, outputs, taps: read.ir.channels, bias: vec![0.0; outputs] };
    Ok(Amp { about, sizes: vec![Size::whole(Net::Linear(net))] })
}

impl Linear {
    /// The same responses at another rate.
    fn at(&self, from: SampleRate, to: SampleRate) -> Result<Net, Error> {
        let ir = Ir::new(from, self.taps.clone()).and_then(|ir| ir.resample(to));
        let ir = ir.map_err(|error| Error::file(format!("cannot be played: {error}")))?;
        if ir.frames() > MAX_TAPS {
            let (taps, to) = (ir.frames(), to.0);
            let why = format!("has {taps} taps at {to} Hz; {MAX_TAPS} are possible");
            return Err(Error::file(why));
        }
        Ok(Net::Linear(Linear { taps: ir.channels, ..self.clone() }))
    }
}

/// Bounds of what a file may ask for.
#[derive(Default)]
struct Limits {
    weights: usize,
    held: usize,
    layers: usize,
}

impl Limits {
    const CHANNELS: usize = 1024;
    const HIDDEN: usize = 1024;
    const LAYERS: usize = 1024;
    const TAPS: usize = 1 << 17;
    const DILATION: usize = 1 << 20;
    /// Weights in memory, zeros between groups included.
    const WEIGHTS: usize = 1 << 24;
    /// Samples of history.
    const HELD: usize = 1 << 25;

    fn weights(&self) -> usize {
        self.weights
    }

    /// Numbers that the file holds.
    fn take(&mut self, count: usize, at: &At<'_>) -> Result<(), Error> {
        self.weights = self.weights.saturating_add(count);
        self.hold(count, at)
    }

    fn hold(&mut self, count: usize, at: &At<'_>) -> Result<(), Error> {
        self.held = self.held.saturating_add(count);
        if self.weights > Limits::WEIGHTS || self.held > Limits::HELD {
            return Err(at.refuse(format!(
                "asks for more than {} weights or {} samples of history",
                Limits::WEIGHTS,
                Limits::HELD
            )));
        }
        Ok(())
    }

    fn layer(&mut self, at: &At<'_>) -> Result<(), Error> {
        self.layers += 1;
        if self.layers > Limits::LAYERS {
            return Err(at.refuse(format!("makes more than {} layers", Limits::LAYERS)));
        }
        Ok(())
    }

    /// A convolution's weights and history.
    fn conv(
        &mut self,
        inputs: usize,
        outputs: usize,
        taps: usize,
        dilation: usize,
        at: &At<'_>,
    ) -> Result<(), Error> {
        let weights = inputs.saturating_mul(outputs).saturating_mul(taps);
        let reach = (taps - 1).saturating_mul(dilation).saturating_add(256);
        let history = reach.saturating_mul(inputs);
        self.hold(weights.saturating_add(history), at)
    }
}
