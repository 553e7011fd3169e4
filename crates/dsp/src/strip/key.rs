//! What may be written about a stage: its keys, with ranges and units, once for the parser, the
//! live parameters and the documentation.

use super::FileSource;
use crate::{ProcessSpec, Stage};
use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueUnit {
    /// dB.
    Decibel,
    /// Hz.
    Hertz,
    /// ms.
    Millisecond,
    /// Frames, with a fraction where that makes sense.
    Frame,
    /// A factor or ratio.
    Factor,
    /// A count or a coefficient.
    Plain,
    /// LUFS.
    Lufs,
    /// Hundredths of a semitone.
    Cent,
    /// 0 or 1.
    Switch,
}

impl fmt::Display for ValueUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueUnit::Decibel => "dB",
            ValueUnit::Hertz => "Hz",
            ValueUnit::Millisecond => "ms",
            ValueUnit::Frame => "frames",
            ValueUnit::Factor => "x",
            ValueUnit::Plain => "",
            ValueUnit::Lufs => "LUFS",
            ValueUnit::Cent => "cents",
            ValueUnit::Switch => "0/1",
        })
    }
}

/// The form of a key's value.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields say it: range, default, whether it is live")]
pub enum ValueForm {
    /// A number within a range; without a default it may be left out.
    Number { unit: ValueUnit, low: f64, high: f64, default: Option<f64>, live: bool },
    /// A number that must be given.
    Needed { unit: ValueUnit, low: f64, high: f64, live: bool },
    /// true or false.
    Switch { default: bool, live: bool },
    /// One of these words; without a default it must be given.
    Choice { of: &'static [&'static str], default: Option<&'static str> },
    /// A text, such as a file's name.
    Text { needed: bool },
    /// A list of numbers; empty when left out.
    Numbers { unit: ValueUnit, low: f64, high: f64, most: usize, live: bool },
    /// Rows of numbers; must be given.
    Rows { unit: ValueUnit, low: f64, high: f64, most: usize, live: bool },
}

/// One key of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// What it may be.
    pub form: ValueForm,
}

impl Key {
    /// A number that may change while it sounds.
    pub(crate) const fn live(
        name: &'static str,
        what: &'static str,
        unit: ValueUnit,
        (low, high): (f64, f64),
        default: f64,
    ) -> Key {
        let default = Some(default);
        Key { name, what, form: ValueForm::Number { unit, low, high, default, live: true } }
    }
}

/// A kind of stage: its keys, and how it is built.
pub struct KeyKind {
    /// As it is written after `kind =`.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    /// How many channels come out where so many go in.
    pub(crate) shape: fn(&Given, usize) -> Result<usize, Fault>,
    /// Builds it; may allocate, load and fail.
    pub(crate) build: fn(&Given, &mut Room<'_>) -> Result<Built, Fault>,
}

impl KeyKind {
    /// As many channels out as in.
    pub(crate) const SAME: fn(&Given, usize) -> Result<usize, Fault> = |_, inputs| Ok(inputs);
}

/// What a stage is built in.
pub(crate) struct Room<'a> {
    /// Its rate, its longest block, and the channels that its blocks will have.
    pub setting: ProcessSpec,
    /// How many of the channels come in; fewer than `setting.channels` where more go out.
    pub inputs: usize,
    /// Where files come from.
    pub loader: &'a mut dyn FileSource,
}

/// A built stage, and what can be read from it while it sounds.
pub(crate) struct Built {
    pub stage: Box<dyn Stage>,
    pub readings: Vec<(String, ValueUnit, Gauge)>,
    pub notes: Vec<String>,
    /// Frames for which it sounds on when its input has ended, where it knows them.
    pub tail: u32,
    /// Multiply-adds a frame, where it knows them.
    pub multiply_adds: Option<f64>,
    /// The greatest value of a live parameter, where this stage as it was built bears less than its kind.
    pub most: Option<(usize, f32)>,
}

impl Built {
    pub(crate) fn boxed(stage: Box<dyn Stage>) -> Built {
        let (readings, notes) = (Vec::new(), Vec::new());
        Built { stage, readings, notes, tail: 0, multiply_adds: None, most: None }
    }

    pub(crate) fn of(stage: impl Stage + 'static) -> Built {
        Built::boxed(Box::new(stage))
    }
}

/// A number that the quiet core writes and anybody reads.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicU32>);

impl Gauge {
    pub(crate) fn put(&self, value: f32) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// The newest value.
    pub fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Why a stage cannot be built, and which of its keys is at fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub key: Option<&'static str>,
    pub title: String,
    pub help: String,
}

impl Fault {
    pub(crate) fn at(key: &'static str, title: impl Into<String>, help: &str) -> Fault {
        Fault { key: Some(key), title: title.into(), help: help.to_owned() }
    }

    pub(crate) fn new(title: impl Into<String>, help: &str) -> Fault {
        Fault { key: None, title: title.into(), help: help.to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Switch(bool),
    Text(String),
    Numbers(Vec<f64>),
    Rows(Vec<Vec<f64>>),
}

/// The checked keys of one stage.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub(crate) values: BTreeMap<&'static str, Value>,
    pub(crate) spans: BTreeMap<&'static str, Range<usize>>,
}

impl Given {
    pub(crate) fn number(&self, key: &str) -> f64 {
        self.maybe(key).unwrap_or(0.0)
    }

    pub(crate) fn maybe(&self, key: &str) -> Option<f64> {
        match self.values.get(key) {
            Some(Value::Number(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn switch(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::Switch(true)))
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        match self.values.get(key) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    pub(crate) fn numbers(&self, key: &str) -> &[f64] {
        match self.values.get(key) {
            Some(Value::Numbers(list)) => list,
            _ => &[],
        }
    }

    pub(crate) fn rows(&self, key: &str) -> &[Vec<f64>] {
        match self.values.get(key) {
            Some(Value::Rows(rows)) => rows,
            _ => &[],
        }
    }
}

/// A parameter that can be changed while the strip sounds.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveParam {
    /// `stage.param`.
    pub name: String,
    /// What it counts.
    pub unit: ValueUnit,
    /// The least value.
    pub low: f32,
    /// The greatest value.
    pub high: f32,
    /// What the strip file says.
    pub value: f32,
}

/// The live parameters of a stage, in the order of its `set`.
pub(crate) fn params(stage: &str, kind: &KeyKind, given: &Given) -> Vec<LiveParam> {
    let mut found = Vec::new();
    let mut add = |name: String, unit, low: f64, high: f64, value: f64| {
        let (low, high, value) = (low as f32, high as f32, value as f32);
        found.push(LiveParam { name: format!("{stage}.{name}"), unit, low, high, value });
    };
    for key in kind.keys {
        match key.form {
            ValueForm::Number { unit, low, high, default, live: true } => {
                let value = given.maybe(key.name).or(default).unwrap_or(low);
                add(key.name.into(), unit, low, high, value);
            }
            ValueForm::Needed { unit, low, high, live: true } => {
                add(key.name.into(), unit, low, high, given.number(key.name));
            }
            ValueForm::Switch { live: true, .. } => {
                let value = f64::from(u8::from(given.switch(key.name)));
                add(key.name.into(), ValueUnit::Switch, 0.0, 1.0, value);
            }
            ValueForm::Numbers { unit, low, high, live: true, .. } => {
                for (at, value) in given.numbers(key.name).iter().enumerate() {
                    add(format!("{}.{at}", key.name), unit, low, high, *value);
                }
            }
            ValueForm::Rows { unit, low, high, live: true, .. } => {
                for (row, values) in given.rows(key.name).iter().enumerate() {
                    for (at, value) in values.iter().enumerate() {
                        add(format!("{}.{row}.{at}", key.name), unit, low, high, *value);
                    }
                }
            }
            _ => {}
        }
    }
    found
}
