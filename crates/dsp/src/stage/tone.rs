//! Tone stack: the passive network of treble, middle and bass in many guitar amplifiers.
//!
//! # Source
//! D. T. Yeh, J. O. Smith, Discretization of the '59 Fender Bassman tone stack (DAFx 2006): the
//! network's transfer function, carried over by the bilinear transform. A test solves the network
//! itself, node by node, and compares.

use super::{Ramp, settled};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Key, KeyKind, ValueForm, ValueUnit},
};

/// While a knob turns, the filter is made anew this often, in frames.
const GRID: u32 = 16;

const fn knob(name: &'static str) -> Key {
    Key {
        name,
        what: "0 to 1",
        form: ValueForm::Number {
            unit: ValueUnit::Factor,
            low: 0.0,
            high: 1.0,
            default: Some(0.5),
            live: true,
        },
    }
}

pub(crate) const TONE: KeyKind = KeyKind {
    name: "tone",
    what: "tone stack of a guitar amplifier: treble, middle, bass, as the passive network",
    keys: &[
        knob("treble"),
        knob("middle"),
        knob("bass"),
        Key {
            name: "circuit",
            what: "values of the parts",
            form: ValueForm::Choice { of: &["american", "british"], default: Some("american") },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let parts = if given.text("circuit") == "british" { BRITISH } else { AMERICAN };
        let knobs = [given.number("treble"), given.number("middle"), given.number("bass")];
        Ok(Built::of(Tone::new(parts, knobs, room.setting)))
    },
};

/// Resistors in ohms, capacitors in farads.
#[derive(Clone, Copy)]
struct Parts {
    treble: f64,
    bass: f64,
    middle: f64,
    slope: f64,
    c1: f64,
    c2: f64,
    c3: f64,
}

const AMERICAN: Parts = Parts {
    treble: 250e3,
    bass: 1e6,
    middle: 25e3,
    slope: 56e3,
    c1: 250e-12,
    c2: 20e-9,
    c3: 20e-9,
};

const BRITISH: Parts = Parts {
    treble: 220e3,
    bass: 1e6,
    middle: 22e3,
    slope: 33e3,
    c1: 470e-12,
    c2: 22e-9,
    c3: 22e-9,
};

/// The filter of third order, its knobs on ramps.
struct Tone {
    parts: Parts,
    knobs: [Ramp; 3],
    rate: f64,
    b: [f64; 4],
    a: [f64; 3],
    states: Vec<[f64; 3]>,
    until: u32,
}

impl Tone {
    fn new(parts: Parts, knobs: [f64; 3], setting: ProcessSpec) -> Tone {
        let (b, a) = digital(&parts, knobs, f64::from(setting.rate.0));
        Tone {
            parts,
            knobs: knobs.map(|knob| Ramp::new(knob, setting.rate)),
            rate: f64::from(setting.rate.0),
            b,
            a,
            states: vec![[0.0; 3]; setting.channels],
            until: GRID,
        }
    }
}

/// Coefficients of `s`, from the constant up, above and below.
fn network(p: &Parts, [t, m, l]: [f64; 3]) -> ([f64; 4], [f64; 4]) {
    // A logarithmic pot, as these amplifiers have it: little in its lower half.
    let l = (3.4 * (l - 1.0)).exp();
    let (r1, r2, r3, r4) = (p.treble, p.bass, p.middle, p.slope);
    let (c1, c2, c3) = (p.c1, p.c2, p.c3);
    let b1 = t * c1 * r1 + m * c3 * r3 + l * (c1 + c2) * r2 + (c1 + c2) * r3;
    let b2 = t * (c1 * c2 + c1 * c3) * r1 * r4 - m * m * (c1 + c2) * c3 * r3 * r3
        + m * (c1 * c3 * r1 * r3 + (c1 + c2) * c3 * r3 * r3)
        + l * (c1 * c2 * r1 * r2 + c1 * c2 * r2 * r4 + c1 * c3 * r2 * r4)
        + l * m * (c1 + c2) * c3 * r2 * r3
        + (c1 * c2 * r1 * r3 + c1 * c2 * r3 * r4 + c1 * c3 * r3 * r4);
    let c = c1 * c2 * c3;
    let b3 = l * m * c * (r1 + r4) * r2 * r3 - m * m * c * (r1 + r4) * r3 * r3
        + m * c * (r1 + r4) * r3 * r3
        + t * c * r1 * r3 * r4
        - t * m * c * r1 * r3 * r4
        + t * l * c * r1 * r2 * r4;
    let a1 = (c1 * r1 + (c1 + c2) * r3 + (c2 + c3) * r4) + m * c3 * r3 + l * (c1 + c2) * r2;
    let a2 = m * (c1 * c3 * r1 * r3 - c2 * c3 * r3 * r4 + (c1 + c2) * c3 * r3 * r3)
        + l * m * (c1 + c2) * c3 * r2 * r3
        - m * m * (c1 + c2) * c3 * r3 * r3
        + l * (c1 * c2 * (r4 + r1) + (c1 + c2) * c3 * r4) * r2
        + (c1 * (c2 + c3) * r1 * r4
            + c1 * c2 * r3 * r4
            + c1 * c2 * r1 * r3
            + (c1 + c2) * c3 * r3 * r4);
    let a3 = l * m * c * (r1 + r4) * r2 * r3 - m * m * c * (r1 + r4) * r3 * r3
        + m * c * ((r4 + r1) * r3 * r3 - r1 * r3 * r4)
        + l * c * r1 * r2 * r4
        + c * r1 * r3 * r4;
    ([0.0, b1, b2, b3], [1.0, a1, a2, a3])
}

fn digital(parts: &Parts, knobs: [f64; 3], rate: f64) -> ([f64; 4], [f64; 3]) {
    let (b, a) = network(parts, knobs);
    let k = 2.0 * rate;
    // s = k (1 - z) / (1 + z), all times (1 + z)^3.
    let over = |c: [f64; 4]| {
        let c = [c[0], c[1] * k, c[2] * k * k, c[3] * k * k * k];
        [
            c[0] + c[1] + c[2] + c[3],
            3.0 * c[0] + c[1] - c[2] - 3.0 * c[3],
            3.0 * c[0] - c[1] - c[2] + 3.0 * c[3],
            c[0] - c[1] + c[2] - c[3],
        ]
    };
    let (b, a) = (over(b), over(a));
    (b.map(|c| c / a[0]), [a[1] / a[0], a[2] / a[0], a[3] / a[0]])
}

impl Stage for Tone {
    fn process(&mut self, block: &mut Block<'_>) {
        let mut from = 0;
        while from < block.frames() {
            let count = (block.frames() - from).min(self.until as usize);
            for (channel, s) in block.each().zip(&mut self.states) {
                for x in &mut channel[from..][..count] {
                    let y = self.b[0] * f64::from(*x) + s[0];
                    s[0] = self.b[1] * f64::from(*x) - self.a[0] * y + s[1];
                    s[1] = self.b[2] * f64::from(*x) - self.a[1] * y + s[2];
                    s[2] = self.b[3] * f64::from(*x) - self.a[2] * y;
                    *x = y as f32;
                }
            }
            from += count;
            self.until -= count as u32;
            if self.until == 0 {
                self.until = GRID;
                self.states.iter_mut().flatten().for_each(|s| *s = settled(*s));
                if self.knobs.iter().any(|knob| knob.still().is_none()) {
                    for _ in 0..GRID {
                        self.knobs.iter_mut().for_each(|knob| _ = knob.next());
                    }
                    let mut knobs = self.knobs;
                    (self.b, self.a) =
                        digital(&self.parts, std::array::from_fn(|k| knobs[k].next()), self.rate);
                }
            }
        }
    }

    fn reset(&mut self) {
        self.states.fill([0.0; 3]);
        self.until = GRID;
        self.knobs.iter_mut().for_each(Ramp::jump);
        (self.b, self.a) = digital(&self.parts, self.knobs.map(|knob| knob.target()), self.rate);
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let Some(knob) = self.knobs.get_mut(param) else { return false };
        knob.go(f64::from(value));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{Frames, SampleRate};

    type Complex = (f64, f64);

    fn mul(a: Complex, b: Complex) -> Complex {
        (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
    }

    fn div(a: Complex, b: Complex) -> Complex {
        let n = b.0 * b.0 + b.1 * b.1;
        ((a.0 * b.0 + a.1 * b.1) / n, (a.1 * b.0 - a.0 * b.1) / n)
    }

    /// Output over input of the network, solved node by node: an equation a node, Gauss.
    fn solved(p: &Parts, [t, m, l]: [f64; 3], w: f64) -> Complex {
        let l = (3.4 * (l - 1.0)).exp();
        // 0 in, 1 top of the treble pot, 2 its wiper, 3 its foot, 4 after the slope resistor,
        // 5 top of the middle pot, 6 its wiper, 7 ground.
        let mut matrix = [[(0.0, 0.0); 7]; 6];
        let mut part = |a: usize, b: usize, y: Complex| {
            for (here, there) in [(a, b), (b, a)] {
                if (1..=6).contains(&here) {
                    let row = &mut matrix[here - 1];
                    row[here - 1] = (row[here - 1].0 + y.0, row[here - 1].1 + y.1);
                    match there {
                        0 => row[6] = (row[6].0 + y.0, row[6].1 + y.1),
                        7 => {}
                        _ => row[there - 1] = (row[there - 1].0 - y.0, row[there - 1].1 - y.1),
                    }
                }
            }
        };
        let r = |ohm: f64| (1.0 / ohm.max(1e-3), 0.0);
        part(0, 1, (0.0, w * p.c1));
        part(1, 2, r((1.0 - t) * p.treble));
        part(2, 3, r(t * p.treble));
        part(0, 4, r(p.slope));
        part(4, 3, (0.0, w * p.c2));
        part(3, 5, r(l * p.bass));
        part(5, 6, r((1.0 - m) * p.middle));
        part(6, 7, r(m * p.middle));
        part(4, 6, (0.0, w * p.c3));
        for at in 0..6 {
            let pivot = matrix[at][at];
            let row = matrix[at].map(|value| div(value, pivot));
            matrix[at] = row;
            for (_, other) in matrix.iter_mut().enumerate().filter(|(other, _)| *other != at) {
                let factor = other[at];
                for (value, mine) in other.iter_mut().zip(row) {
                    let minus = mul(factor, mine);
                    *value = (value.0 - minus.0, value.1 - minus.1);
                }
            }
        }
        matrix[1][6]
    }

    #[test]
    fn the_transfer_function_is_that_of_the_network() {
        for parts in [AMERICAN, BRITISH] {
            for knobs in [[0.5; 3], [0.9, 0.2, 0.7], [0.1, 0.95, 0.3], [0.99, 0.01, 0.99]] {
                for f in [20.0, 100.0, 500.0, 2_000.0, 15_000.0] {
                    let w = 2.0 * std::f64::consts::PI * f;
                    let (b, a) = network(&parts, knobs);
                    let at = |c: [f64; 4]| (c[0] - c[2] * w * w, c[1] * w - c[3] * w * w * w);
                    let (ours, wanted) = (div(at(b), at(a)), solved(&parts, knobs, w));
                    let apart = (ours.0 - wanted.0).hypot(ours.1 - wanted.1);
                    assert!(apart < 1e-5, "{knobs:?} at {f} Hz: {ours:?} {wanted:?}");
                }
            }
        }
    }

    #[test]
    fn turning_a_knob_ends_where_a_new_stage_begins() {
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block: Frames(64) };
        let mut turned = Tone::new(AMERICAN, [0.5; 3], setting);
        let wanted = Tone::new(AMERICAN, [1.0, 0.0, 0.25], setting);
        for (param, value) in [(0, 1.0), (1, 0.0), (2, 0.25)] {
            assert!(turned.set(param, value));
        }
        let mut quiet = [0.0; 2048];
        turned.process(&mut Block::new(&mut quiet, 1));
        assert_eq!((turned.b, turned.a), (wanted.b, wanted.a));
    }
}
