//! DC block.

use super::{
    biquad::{Cascade, below_half},
    design::{FilterShape, Width, biquad},
};
use crate::strip::{Built, Key, KeyKind, ValueForm, ValueUnit};

pub(crate) const DC: KeyKind = KeyKind {
    name: "dc",
    what: "takes away what does not move: a highpass of first order",
    keys: &[Key {
        name: "frequency",
        what: "corner",
        form: ValueForm::Number {
            unit: ValueUnit::Hertz,
            low: 0.1,
            high: 1000.0,
            default: Some(5.0),
            live: false,
        },
    }],
    shape: KeyKind::SAME,
    build: |given, room| {
        let rate = f64::from(room.setting.rate.0);
        let frequency = below_half(given, "frequency", rate)?;
        let section = biquad(FilterShape::HighpassFirst, frequency, 0.0, Width::Q(1.0), rate);
        Ok(Built::of(Cascade::new(&[section], room.setting)))
    },
};
