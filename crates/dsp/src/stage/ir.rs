//! Impulse responses in a strip.

use super::decibels;
use crate::{
    fir::{Fir, MAX_TAPS, Route},
    ir::{Ir, Normalise},
    strip::{Built, Fault, Given, Key, KeyKind, Room, ValueForm, ValueUnit},
};
use quiet_types::SampleRate;

const fn number(
    name: &'static str,
    what: &'static str,
    unit: ValueUnit,
    low: f64,
    high: f64,
) -> Key {
    Key { name, what, form: ValueForm::Number { unit, low, high, default: None, live: false } }
}

pub(crate) const IR: KeyKind = KeyKind {
    name: "ir",
    what: "convolves with an impulse response, without latency: one channel of it goes to each, as \
           many go channel by channel, their square from every input to every output",
    keys: &[
        Key {
            name: "file",
            what: "WAV, text (.txt, .csv), raw floats (.f32, .raw, .f64); converted to the \
                   stream's rate",
            form: ValueForm::Text { needed: false },
        },
        Key {
            name: "format",
            what: "of the file, where its name does not end with it",
            form: ValueForm::Choice {
                of: &["auto", "wav", "text", "f32", "f64"],
                default: Some("auto"),
            },
        },
        Key {
            name: "taps",
            what: "in place of a file: the samples themselves, for every channel",
            form: ValueForm::Numbers {
                unit: ValueUnit::Factor,
                low: -1e6,
                high: 1e6,
                most: 65_536,
                live: false,
            },
        },
        Key {
            name: "channels",
            what: "channels of the file that are used, counted from 0; all when left out",
            form: ValueForm::Numbers {
                unit: ValueUnit::Plain,
                low: 0.0,
                high: 63.0,
                most: 64,
                live: false,
            },
        },
        number(
            "rate",
            "of raw files and texts; the stream's when left out",
            ValueUnit::Hertz,
            1e3,
            768e3,
        ),
        number("gain", "level", ValueUnit::Decibel, -120.0, 60.0),
        Key {
            name: "normalise",
            what: "to the largest sample, or to the energy",
            form: ValueForm::Choice { of: &["none", "peak", "energy"], default: Some("none") },
        },
        number(
            "trim-start",
            "leaves out what is so far below the peak before it",
            ValueUnit::Decibel,
            0.0,
            200.0,
        ),
        number(
            "trim-end",
            "leaves out what is so far below the peak at the end",
            ValueUnit::Decibel,
            0.0,
            200.0,
        ),
        number(
            "frames",
            "no longer than this, at the stream's rate",
            ValueUnit::Frame,
            1.0,
            1_048_576.0,
        ),
        Key {
            name: "minimum-phase",
            what: "the same response as early as can be",
            form: ValueForm::Switch { default: false, live: false },
        },
    ],
    shape: KeyKind::SAME,
    build,
};

fn build(given: &Given, room: &mut Room<'_>) -> Result<Built, Fault> {
    let rate = room.setting.rate;
    let mut notes = Vec::new();
    let mut ir = read(given, room, &mut notes)?;
    let refused = |error: crate::ir::Error| {
        Fault::new(error.to_string(), "see the table of `ir` in docs/strip.md")
    };
    let chosen: Vec<usize> = given.numbers("channels").iter().map(|c| *c as usize).collect();
    if !chosen.is_empty() {
        ir = ir.choose(&chosen).map_err(refused)?;
    }
    if let Some(below) = given.maybe("trim-start") {
        ir = ir.trim_start(below as f32).map_err(refused)?;
    }
    if let Some(below) = given.maybe("trim-end") {
        ir = ir.trim_end(below as f32).map_err(refused)?;
    }
    if ir.rate != rate {
        notes.push(format!("converted from {} Hz to {} Hz", ir.rate.0, rate.0));
        ir = ir.resample(rate).map_err(refused)?;
    }
    if given.switch("minimum-phase") {
        ir = ir.minimum_phase().map_err(refused)?;
    }
    if let Some(frames) = given.maybe("frames") {
        ir = ir.trim(0, frames as usize).map_err(refused)?;
    }
    match given.text("normalise") {
        "peak" => ir = ir.normalise(Normalise::Peak).map_err(refused)?,
        "energy" => ir = ir.normalise(Normalise::Energy).map_err(refused)?,
        _ => {}
    }
    if let Some(gain) = given.maybe("gain") {
        ir = ir.gain(gain as f32);
    }
    if ir.frames() > MAX_TAPS {
        let title = format!("{} taps are more than {MAX_TAPS}", ir.frames());
        return Err(Fault::new(title, "cut it with `trim-end` or `frames`"));
    }
    let loudest = loudest(&ir);
    if loudest > 40.0 {
        notes.push(format!("it raises some sounds by up to {loudest:.0} dB"));
    }
    let routes: Vec<Route> = ir.routes(room.setting.channels).map_err(refused)?;
    let fir = Fir::prepare(&room.setting, &routes)
        .map_err(|error| Fault::new(error.to_string(), "choose other channels of the file"))?;
    let mut built = Built::of(fir);
    built.tail = ir.frames() as u32;
    built.notes = notes;
    Ok(built)
}

/// The most that any sound can gain, dB: the sum of all sizes of a channel.
fn loudest(ir: &Ir) -> f64 {
    let sums = ir.channels.iter().map(|taps| taps.iter().map(|x| f64::from(x.abs())).sum::<f64>());
    decibels(sums.fold(0.0, f64::max))
}

fn read(given: &Given, room: &mut Room<'_>, notes: &mut Vec<String>) -> Result<Ir, Fault> {
    let file = given.text("file");
    let rate = match given.maybe("rate") {
        Some(rate) => SampleRate(rate as u32),
        None => room.setting.rate,
    };
    match (file, given.numbers("taps")) {
        ("", []) => {
            return Err(Fault::new("`ir` needs `file` or `taps`", "name a WAV file"));
        }
        ("", taps) => {
            let taps = taps.iter().map(|tap| *tap as f32).collect();
            return Ir::new(rate, vec![taps])
                .map_err(|error| Fault::at("taps", error.to_string(), "write numbers"));
        }
        (_, []) => {}
        _ => {
            let title = "`ir` has both `file` and `taps`";
            return Err(Fault::at("taps", title, "leave one of them out"));
        }
    }
    let bytes = room.loader.load(file).map_err(|why| {
        Fault::at("file", why.to_string(), "names are taken from the folder of the strip file")
    })?;
    let wrong = |error: crate::ir::Error| {
        Fault::at("file", error.to_string(), "see the table of `ir` in docs/strip.md")
    };
    let end = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let kind = match given.text("format") {
        "auto" => end.as_str(),
        named => named,
    };
    match kind {
        "txt" | "csv" | "text" => {
            let text = String::from_utf8_lossy(&bytes);
            Ir::from_text(&text, rate).map_err(wrong)
        }
        "f32" | "raw" => Ir::from_f32(&bytes, 1, rate).map_err(wrong),
        "f64" => Ir::from_f64(&bytes, 1, rate).map_err(wrong),
        _ => {
            let wav = Ir::from_wav(&bytes[..]).map_err(wrong)?;
            if wav.missing > 0 {
                notes.push(format!("its file ends {} frames early", wav.missing));
            }
            Ok(wav.ir)
        }
    }
}
