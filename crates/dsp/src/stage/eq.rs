//! Graphic EQ: peaks side by side, a gain each.

use super::{
    biquad::Cascade,
    design::{FilterShape, Section, Width, biquad},
};
use crate::{
    Block, Stage,
    strip::{Built, Fault, Given, Key, KeyKind, Room, ValueForm, ValueUnit},
};

/// No EQ has more bands.
const MOST_BANDS: usize = 40;

pub(crate) const EQ: KeyKind = KeyKind {
    name: "eq",
    what: "graphic EQ: bands side by side; those above 0.45 of the rate are left out",
    keys: &[
        Key {
            name: "gains",
            what: "a gain a band: 10 for octaves from 31.25 Hz, 31 for thirds from 20 Hz; any \
                   number with `low` and `high`",
            form: ValueForm::Numbers {
                unit: ValueUnit::Decibel,
                low: -40.0,
                high: 40.0,
                most: MOST_BANDS,
                live: true,
            },
        },
        Key {
            name: "low",
            what: "where the lowest band begins; bands are spread evenly on a logarithmic scale",
            form: ValueForm::Number {
                unit: ValueUnit::Hertz,
                low: 1.0,
                high: 20_000.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "high",
            what: "where the highest band ends",
            form: ValueForm::Number {
                unit: ValueUnit::Hertz,
                low: 10.0,
                high: 96_000.0,
                default: None,
                live: false,
            },
        },
    ],
    shape: KeyKind::SAME,
    build,
};

/// Centres, and the width of each in octaves.
fn bands(given: &Given) -> Result<(Vec<f64>, f64), Fault> {
    let count = given.numbers("gains").len();
    match (given.maybe("low"), given.maybe("high"), count) {
        (_, _, 0) => Err(Fault::new("an EQ needs `gains`", "write 10 or 31 of them")),
        (None, None, 10) => Ok(((0..10).map(|k| 1000.0 * 2f64.powi(k - 5)).collect(), 1.0)),
        (None, None, 31) => {
            let third = |k: i32| 1000.0 * 10f64.powf(f64::from(k - 17) / 10.0);
            Ok(((0..31).map(third).collect(), 1.0 / 3.0))
        }
        (Some(low), Some(high), count) if low < high => {
            let octaves = (high / low).log2() / count as f64;
            let centre = |k: usize| low * 2f64.powf(octaves * (k as f64 + 0.5));
            Ok(((0..count).map(centre).collect(), octaves))
        }
        _ => Err(Fault::at(
            "gains",
            format!("{count} bands have no places of their own"),
            "write 10 or 31 gains, or `low` and `high` (`low` below `high`)",
        )),
    }
}

fn build(given: &Given, room: &mut Room<'_>) -> Result<Built, Fault> {
    let rate = f64::from(room.setting.rate.0);
    let (centres, octaves) = bands(given)?;
    let eq = Eq { centres, octaves, rate, cascade: Cascade::new(&[], room.setting) };
    let gains = given.numbers("gains").iter().enumerate();
    let sections: Vec<Section> = gains.map(|(at, gain)| eq.section(at, *gain)).collect();
    Ok(Built::of(Eq { cascade: Cascade::new(&sections, room.setting), ..eq }))
}

struct Eq {
    centres: Vec<f64>,
    octaves: f64,
    rate: f64,
    cascade: Cascade,
}

impl Eq {
    fn section(&self, at: usize, gain: f64) -> Section {
        let centre = self.centres[at];
        if centre > 0.45 * self.rate {
            return Section::PLAIN;
        }
        biquad(FilterShape::Peaking, centre, gain, Width::Octaves(self.octaves), self.rate)
    }
}

impl Stage for Eq {
    fn process(&mut self, block: &mut Block<'_>) {
        self.cascade.process(block);
    }

    fn reset(&mut self) {
        self.cascade.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        if param >= self.centres.len() {
            return false;
        }
        self.cascade.go(param, self.section(param, f64::from(value)));
        true
    }
}
