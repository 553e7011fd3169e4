//! Neural amps in a strip.

use super::{Ramp, factor, mix::MOST_CHANNELS};
use crate::{
    Block, Stage,
    amp::{Amp, AmpOptions, Error},
    strip::{Built, Fault, Given, Key, KeyKind, Room, ValueForm, ValueUnit},
};
use quiet_types::Frames;

const fn level(name: &'static str, what: &'static str, live: bool, default: Option<f64>) -> Key {
    let form =
        ValueForm::Number { unit: ValueUnit::Decibel, low: -60.0, high: 60.0, default, live };
    Key { name, what, form }
}

pub(crate) const AMP: KeyKind = KeyKind {
    name: "amp",
    what: "neural amp: .nam, Proteus or AIDA-X file, or a WAV; must be of the stream's rate, unless it is an \
           impulse response",
    keys: &[
        Key { name: "file", what: "the amp's file", form: ValueForm::Text { needed: true } },
        level("input", "level before it", true, Some(0.0)),
        level("output", "level after it", true, Some(0.0)),
        level(
            "loudness",
            "brings it to this loudness, if its file tells it; players use -18",
            false,
            None,
        ),
        level(
            "input-dbu",
            "what full scale stands for at the interface's input, in dBu",
            false,
            None,
        ),
        level("output-dbu", "what full scale stands for at its output, in dBu", false, None),
        Key {
            name: "outputs",
            what: "channels that it gives, of an amp that takes another number of them",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 1.0,
                high: MOST_CHANNELS as f64,
                default: None,
                live: false,
            },
        },
        Key {
            name: "slim",
            what: "0 the smallest, 1 the whole one, for amps of several sizes",
            form: ValueForm::Number {
                unit: ValueUnit::Factor,
                low: 0.0,
                high: 1.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "knobs",
            what: "places of the amp's own controls",
            form: ValueForm::Numbers {
                unit: ValueUnit::Factor,
                low: 0.0,
                high: 1.0,
                most: 16,
                live: false,
            },
        },
    ],
    shape,
    build,
};

fn shape(given: &Given, inputs: usize) -> Result<usize, Fault> {
    if given.maybe("outputs").is_some_and(|outputs| outputs.fract() != 0.0) {
        return Err(Fault::at("outputs", "`outputs` is no whole number", "count channels"));
    }
    Ok(outputs(given).unwrap_or(inputs))
}

fn outputs(given: &Given) -> Option<usize> {
    given.maybe("outputs").map(|outputs| outputs as usize)
}

/// Whether the amp suits the channels that come, and those that are said to go.
fn suits(amp: &Amp, given: &Given, inputs: usize) -> Result<(), Fault> {
    let here = (inputs, outputs(given).unwrap_or(inputs));
    let own = amp.channels();
    if own == here || (own == (1, 1) && outputs(given).is_none()) {
        return Ok(());
    }
    if own == (1, 1) {
        let help = "leave `outputs` out: the amp plays each channel by itself";
        return Err(Fault::at("outputs", "the amp gives as many channels as it takes", help));
    }
    let title = Error::Channels { amp: own, stream: inputs }.to_string();
    if own.0 != inputs {
        return Err(Fault::at("file", title, "put a `mix` before it"));
    }
    let help = match own.0 == own.1 {
        true => "leave `outputs` out".to_owned(),
        false => format!("write `outputs = {}`", own.1),
    };
    Err(Fault::at("file", title, &help))
}

fn build(given: &Given, room: &mut Room<'_>) -> Result<Built, Fault> {
    let bytes = room.loader.load(given.text("file")).map_err(|why| {
        Fault::at("file", why.to_string(), "names are taken from the folder of the strip file")
    })?;
    let amp = Amp::parse(&bytes).map_err(|error| {
        let help = "nothing is played that is only half understood: see docs/strip.md for what is";
        Fault::at("file", error.to_string(), help)
    })?;
    suits(&amp, given, room.inputs)?;
    let options = AmpOptions {
        slim: given.maybe("slim"),
        loudness: given.maybe("loudness"),
        input_dbu: given.maybe("input-dbu"),
        output_dbu: given.maybe("output-dbu"),
        knobs: given.numbers("knobs").iter().map(|knob| *knob as f32).collect(),
    };
    let stage = amp.prepare(&room.setting, &options).map_err(|error| match error {
        Error::Rate { .. } => {
            let help = format!(
                "run the stream at {0} Hz; `quietcores render --rate {0}` converts files, and back",
                amp.rate().0
            );
            Fault::at("file", error.to_string(), &help)
        }
        other => Fault::new(other.to_string(), "leave the option out, or take another amp"),
    })?;
    let ramp = |key: &str| Ramp::new(factor(given.number(key)), room.setting.rate);
    let playing = Playing { amp: stage, input: ramp("input"), output: ramp("output") };
    let mut built = Built::of(playing);
    let about = amp.about();
    // A weight is used once a frame and a channel, or less.
    if options.slim.is_none() {
        let nets = if amp.channels() == (1, 1) { room.setting.channels } else { 1 };
        built.multiply_adds = Some((about.weights * nets) as f64);
    }
    built.tail = amp.receptive_field().unwrap_or(0).min(1 << 20) as u32;
    if about.rate_assumed {
        let rate = about.rate.0;
        built.notes.push(format!("its file does not say its rate: taken for {rate} Hz"));
    }
    Ok(built)
}

/// The amp between two levels.
struct Playing {
    amp: Box<dyn Stage>,
    input: Ramp,
    output: Ramp,
}

fn scale(ramp: &mut Ramp, block: &mut Block<'_>) {
    let mut after = *ramp;
    for channel in block.each() {
        after = ramp.scale(channel);
    }
    *ramp = after;
}

impl Stage for Playing {
    fn process(&mut self, block: &mut Block<'_>) {
        scale(&mut self.input, block);
        self.amp.process(block);
        scale(&mut self.output, block);
    }

    fn latency(&self) -> Frames {
        self.amp.latency()
    }

    fn reset(&mut self) {
        self.input.jump();
        self.output.jump();
        self.amp.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        match param {
            0 => self.input.go(factor(f64::from(value))),
            1 => self.output.go(factor(f64::from(value))),
            _ => return false,
        }
        true
    }
}
