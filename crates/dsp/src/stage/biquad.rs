//! Second-order sections in a row, state in f64.

use super::{
    design::{self, FilterShape, Section, Width},
    settled,
};
use crate::{
    Block, ProcessSpec, Stage, Twin,
    strip::{Built, Fault, Given, Key, KeyKind, Room, ValueForm, ValueUnit},
};

/// How often the state is looked over for what nobody hears.
const SETTLE: u32 = 64;

/// Sections one after the other, the same for all channels; coefficients move on ramps.
pub struct Cascade {
    sections: Vec<Moving>,
    /// Channel after channel, section after section.
    states: Vec<[f64; 2]>,
    length: u32,
    until: u32,
}

/// Transposed direct form II, whose coefficients go straight from one set to another. Stable sets
/// form a convex region: all that lie between two of them are stable.
#[derive(Clone, Copy)]
struct Moving {
    start: [f64; 5],
    target: [f64; 5],
    step: [f64; 5],
    /// Frames since the ramp began; there when it is its length.
    done: u32,
}

impl Moving {
    /// The coefficients `after` frames from now.
    fn after(&self, after: u32, length: u32) -> [f64; 5] {
        let done = self.done + after;
        if done >= length {
            return self.target;
        }
        let mut now = self.start;
        now.iter_mut().zip(self.step).for_each(|(c, step)| *c += f64::from(done) * step);
        now
    }
}

impl Cascade {
    /// These sections in order.
    pub fn new(sections: &[Section], setting: ProcessSpec) -> Cascade {
        let length = (super::frames(super::Ramp::MS, setting.rate) as u32).max(1);
        let sections: Vec<Moving> = sections
            .iter()
            .map(|s| Moving { start: s.0, target: s.0, step: [0.0; 5], done: length })
            .collect();
        let states = vec![[0.0; 2]; sections.len() * setting.channels];
        Cascade { sections, states, length, until: SETTLE }
    }

    /// Moves section `at` to other coefficients.
    pub fn go(&mut self, at: usize, section: Section) {
        let Some(moving) = self.sections.get_mut(at) else { return };
        moving.start = moving.after(0, self.length);
        moving.target = section.0;
        moving.done = 0;
        for at in 0..5 {
            moving.step[at] = (section.0[at] - moving.start[at]) / f64::from(self.length);
        }
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    fn run(&mut self, block: &mut Block<'_>, from: usize, count: usize) {
        let (sections, length) = (self.sections.len(), self.length);
        let still = self.sections.iter().all(|s| s.done >= length);
        for (channel, states) in block.each().zip(self.states.chunks_exact_mut(sections.max(1))) {
            let samples = &mut channel[from..][..count];
            if still {
                through(&self.sections, states, samples);
                continue;
            }
            for (frame, x) in samples.iter_mut().enumerate() {
                let mut y = f64::from(*x);
                for (section, state) in self.sections.iter().zip(states.iter_mut()) {
                    y = tick(&section.after(frame as u32 + 1, length), state, y);
                }
                *x = y as f32;
            }
        }
        if !still {
            for section in &mut self.sections {
                section.done = (section.done + count as u32).min(length);
            }
        }
    }
}

fn tick(c: &[f64; 5], state: &mut [f64; 2], x: f64) -> f64 {
    let y = c[0] * x + state[0];
    state[0] = c[1] * x - c[3] * y + state[1];
    state[1] = c[2] * x - c[4] * y;
    y
}

fn through(sections: &[Moving], states: &mut [[f64; 2]], samples: &mut [f32]) {
    if let ([section], [state]) = (sections, &mut *states) {
        let (c, mut s) = (section.target, *state);
        samples.iter_mut().for_each(|x| *x = tick(&c, &mut s, f64::from(*x)) as f32);
        *state = s;
        return;
    }
    for x in samples {
        let mut y = f64::from(*x);
        for (section, state) in sections.iter().zip(states.iter_mut()) {
            y = tick(&section.target, state, y);
        }
        *x = y as f32;
    }
}

impl Stage for Cascade {
    fn process(&mut self, block: &mut Block<'_>) {
        let mut from = 0;
        // A ramp is walked in steps of a fixed grid, so that every split gives the same bits.
        while from < block.frames() {
            let count = (block.frames() - from).min(self.until as usize);
            self.run(block, from, count);
            from += count;
            self.until -= count as u32;
            if self.until == 0 {
                self.until = SETTLE;
                self.states.iter_mut().flatten().for_each(|s| *s = settled(*s));
            }
        }
    }

    fn reset(&mut self) {
        self.states.fill([0.0; 2]);
        self.until = SETTLE;
        for section in &mut self.sections {
            section.done = self.length;
        }
    }
}

const FREQUENCY: Key = Key {
    name: "frequency",
    what: "corner or centre, below half of the rate",
    form: ValueForm::Needed { unit: ValueUnit::Hertz, low: 1.0, high: 96_000.0, live: true },
};

pub(crate) const BIQUAD: KeyKind = KeyKind {
    name: "biquad",
    what: "one filter of second (or first) order",
    keys: &[
        Key {
            name: "type",
            what: "its shape",
            form: ValueForm::Choice {
                of: &[
                    "lowpass",
                    "highpass",
                    "bandpass",
                    "notch",
                    "allpass",
                    "peak",
                    "lowshelf",
                    "highshelf",
                    "lowpass1",
                    "highpass1",
                    "allpass1",
                    "lowshelf1",
                    "highshelf1",
                    "general-notch",
                    "linkwitz-transform",
                    "free",
                ],
                default: None,
            },
        },
        Key {
            name: "frequency",
            what: "corner or centre, below half of the rate; of the zero, for general-notch and \
                   linkwitz-transform",
            form: ValueForm::Number {
                unit: ValueUnit::Hertz,
                low: 0.1,
                high: 96_000.0,
                default: None,
                live: true,
            },
        },
        Key::live("gain", "of peaks and shelves", ValueUnit::Decibel, (-60.0, 60.0), 0.0),
        Key {
            name: "q",
            what: "quality; of the zero, for linkwitz-transform; 0.7071 when left out",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 0.01,
                high: 1000.0,
                default: None,
                live: true,
            },
        },
        Key {
            name: "bandwidth",
            what: "in place of q: octaves, for peak, notch, bandpass, allpass",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 0.01,
                high: 10.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "slope",
            what: "in place of q: dB an octave, for shelves",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 0.1,
                high: 12.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "target",
            what: "frequency of the pole, for general-notch and linkwitz-transform",
            form: ValueForm::Number {
                unit: ValueUnit::Hertz,
                low: 0.1,
                high: 96_000.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "target-q",
            what: "quality of the pole, for linkwitz-transform",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 0.01,
                high: 1000.0,
                default: None,
                live: false,
            },
        },
        Key {
            name: "normalise",
            what: "0 dB at 0 Hz, for general-notch",
            form: ValueForm::Switch { default: false, live: false },
        },
        Key {
            name: "coefficients",
            what: "b0, b1, b2, a1, a2 with a0 = 1, for free",
            form: ValueForm::Numbers {
                unit: ValueUnit::Plain,
                low: -1e6,
                high: 1e6,
                most: 5,
                live: false,
            },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let biquad = Biquad::of(given, f64::from(room.setting.rate.0))?;
        let section = biquad.section().ok_or_else(|| unstable("frequency"))?;
        let most = Some((0, highest(biquad.rate)));
        let live = Live { cascade: Cascade::new(&[section], room.setting), biquad };
        Ok(Built { most, ..Built::of(live) })
    },
};

fn unstable(key: &'static str) -> Fault {
    Fault::at(
        key,
        "this filter would not be stable at this rate",
        "keep frequencies well below half of the rate, and q above 0",
    )
}

pub(crate) fn below_half(given: &Given, key: &'static str, rate: f64) -> Result<f64, Fault> {
    let Some(frequency) = given.maybe(key) else {
        return Err(Fault::at(key, format!("it needs `{key}`"), "write it in Hz"));
    };
    if frequency >= rate / 2.0 {
        let title = format!("{frequency} Hz cannot be told apart at a rate of {rate} Hz");
        return Err(Fault::at(key, title, "stay below half of the rate"));
    }
    Ok(frequency)
}

#[derive(Clone, Copy)]
enum Made {
    Shape(FilterShape),
    /// Two-pole filter with zeros at one frequency and poles at another.
    Notch {
        pole: f64,
        plain: bool,
    },
    Transform {
        pole: f64,
        q: f64,
    },
    Free(Section),
}

#[derive(Clone, Copy)]
struct Biquad {
    made: Made,
    frequency: f64,
    gain: f64,
    width: Width,
    rate: f64,
}

struct Live {
    cascade: Cascade,
    biquad: Biquad,
}

impl Biquad {
    fn of(given: &Given, rate: f64) -> Result<Biquad, Fault> {
        let kind = given.text("type");
        let needs = |key: &'static str| {
            given.maybe(key).ok_or_else(|| {
                let title = format!("`{kind}` needs `{key}`");
                Fault::at("type", title, "see the table of biquads in docs/strip.md")
            })
        };
        let made = match kind {
            "lowpass" => Made::Shape(FilterShape::Lowpass),
            "highpass" => Made::Shape(FilterShape::Highpass),
            "bandpass" => Made::Shape(FilterShape::Bandpass),
            "notch" => Made::Shape(FilterShape::Notch),
            "allpass" => Made::Shape(FilterShape::Allpass),
            "peak" => Made::Shape(FilterShape::Peaking),
            "lowshelf" => Made::Shape(FilterShape::LowShelf),
            "highshelf" => Made::Shape(FilterShape::HighShelf),
            "lowpass1" => Made::Shape(FilterShape::LowpassFirst),
            "highpass1" => Made::Shape(FilterShape::HighpassFirst),
            "allpass1" => Made::Shape(FilterShape::AllpassFirst),
            "lowshelf1" => Made::Shape(FilterShape::LowShelfFirst),
            "highshelf1" => Made::Shape(FilterShape::HighShelfFirst),
            "general-notch" => Made::Notch {
                pole: below_half(given, "target", rate)?,
                plain: given.switch("normalise"),
            },
            "linkwitz-transform" => {
                Made::Transform { pole: below_half(given, "target", rate)?, q: needs("target-q")? }
            }
            _ => match given.numbers("coefficients") {
                &[b0, b1, b2, a1, a2] => Made::Free(Section([b0, b1, b2, a1, a2])),
                _ => {
                    let title = "`free` needs five `coefficients`";
                    return Err(Fault::at("type", title, "b0, b1, b2, a1, a2, with a0 = 1"));
                }
            },
        };
        let frequency = match made {
            Made::Free(_) => given.number("frequency"),
            _ => below_half(given, "frequency", rate)?,
        };
        let widths =
            ["q", "bandwidth", "slope"].iter().filter(|k| given.maybe(k).is_some()).count();
        if widths > 1 {
            let title = "its width is given in more than one way";
            return Err(Fault::new(title, "write one of `q`, `bandwidth` and `slope`"));
        }
        let shelf = matches!(made, Made::Shape(FilterShape::LowShelf | FilterShape::HighShelf));
        if given.maybe("slope").is_some() && !shelf {
            return Err(Fault::at("slope", "only shelves have a `slope`", "write `q`"));
        }
        let width = match (given.maybe("bandwidth"), given.maybe("slope")) {
            (Some(octaves), _) => Width::Octaves(octaves),
            (_, Some(slope)) => Width::Slope(slope),
            _ => Width::Q(given.maybe("q").unwrap_or(std::f64::consts::FRAC_1_SQRT_2)),
        };
        Ok(Biquad { made, frequency, gain: given.number("gain"), width, rate })
    }

    /// What it becomes by a new value; as it was where that would not be stable.
    fn turned(&mut self, param: usize, value: f32) -> Option<Section> {
        let value = f64::from(value);
        let before = *self;
        match param {
            0 if value < self.rate / 2.0 => self.frequency = value,
            1 => self.gain = value,
            2 if matches!(self.width, Width::Q(_)) => self.width = Width::Q(value),
            _ => return None,
        }
        let section = self.section();
        if section.is_none() {
            *self = before;
        }
        section
    }

    fn section(&self) -> Option<Section> {
        let section = match self.made {
            Made::Shape(shape) => {
                design::biquad(shape, self.frequency, self.gain, self.width, self.rate)
            }
            Made::Notch { pole, plain } => self.notch(pole, plain),
            Made::Transform { pole, q } => {
                let Width::Q(q0) = self.width else { return None };
                design::linkwitz_transform(self.frequency, q0, pole, q, self.rate)
            }
            Made::Free(section) => section,
        };
        section.is_stable().then_some(section)
    }

    /// Zeros on the circle at one frequency, poles of quality `q` at another.
    fn notch(&self, pole: f64, plain: bool) -> Section {
        let Width::Q(q) = self.width else { return Section([f64::NAN; 5]) };
        let (z, p) = (
            (std::f64::consts::PI * self.frequency / self.rate).tan(),
            (std::f64::consts::PI * pole / self.rate).tan(),
        );
        let alpha = p / q;
        let gain = if plain { p * p / (z * z) } else { 1.0 };
        let a0 = 1.0 + p * p + alpha;
        Section([
            gain * (1.0 + z * z) / a0,
            -2.0 * gain * (1.0 - z * z) / a0,
            gain * (1.0 + z * z) / a0,
            -2.0 * (1.0 - p * p) / a0,
            (1.0 + p * p - alpha) / a0,
        ])
    }
}

impl Stage for Live {
    fn process(&mut self, block: &mut Block<'_>) {
        self.cascade.process(block);
    }

    fn reset(&mut self) {
        self.cascade.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let section = self.biquad.turned(param, value);
        if let Some(section) = section {
            self.cascade.go(0, section);
        }
        section.is_some()
    }

    fn twin(&self) -> Option<Box<dyn Twin>> {
        Some(Box::new(self.biquad))
    }
}

impl Twin for Biquad {
    fn set(&mut self, param: usize, value: f32) -> bool {
        self.turned(param, value).is_some()
    }
}

const SIDE: Key = Key {
    name: "side",
    what: "what passes",
    form: ValueForm::Choice { of: &["low", "high"], default: None },
};

/// A section of a filter: order, highpass or not, corner, rate, its number.
type Design = fn(usize, bool, f64, f64, usize) -> Section;

/// A lowpass or highpass of several sections, with a live corner.
struct Crossover {
    cascade: Cascade,
    order: usize,
    high: bool,
    rate: f64,
    design: Design,
}

pub(crate) const BUTTERWORTH: KeyKind = KeyKind {
    name: "butterworth",
    what: "lowpass or highpass, maximally flat",
    keys: &[
        SIDE,
        FREQUENCY,
        Key {
            name: "order",
            what: "1 to 12: 6 dB an octave each",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 1.0,
                high: 12.0,
                default: Some(2.0),
                live: false,
            },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| crossover(given, room, design::butterworth, 1),
};

pub(crate) const LINKWITZ_RILEY: KeyKind = KeyKind {
    name: "linkwitz-riley",
    what: "half of a crossover: both halves sum to an allpass (orders 2, 6, 10: turn one of them)",
    keys: &[
        SIDE,
        FREQUENCY,
        Key {
            name: "order",
            what: "2, 4, 6, 8, 10 or 12",
            form: ValueForm::Number {
                unit: ValueUnit::Plain,
                low: 2.0,
                high: 12.0,
                default: Some(4.0),
                live: false,
            },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| crossover(given, room, design::linkwitz_riley, 2),
};

fn crossover(
    given: &Given,
    room: &mut Room<'_>,
    design: Design,
    even: usize,
) -> Result<Built, Fault> {
    let rate = f64::from(room.setting.rate.0);
    let order = given.number("order");
    if order.fract() != 0.0 || !(order as usize).is_multiple_of(even) {
        let help = if even == 2 { "it is 2, 4, 6, 8, 10 or 12" } else { "it is 1 to 12" };
        return Err(Fault::at("order", format!("there is no order {order}"), help));
    }
    let (order, high) = (order as usize, given.text("side") == "high");
    let frequency = below_half(given, "frequency", rate)?;
    let count = match even {
        2 => design::linkwitz_riley_sections(order),
        _ => design::butterworth_sections(order),
    };
    let sections: Vec<Section> =
        (0..count).map(|at| design(order, high, frequency, rate, at)).collect();
    if !sections.iter().all(Section::is_stable) {
        return Err(unstable("frequency"));
    }
    let cascade = Cascade::new(&sections, room.setting);
    let most = Some((0, highest(rate)));
    Ok(Built { most, ..Built::of(Crossover { cascade, order, high, rate, design }) })
}

/// The highest frequency that a filter has at this rate.
fn highest(rate: f64) -> f32 {
    ((rate / 2.0) as f32).next_down()
}

impl Stage for Crossover {
    fn process(&mut self, block: &mut Block<'_>) {
        self.cascade.process(block);
    }

    fn reset(&mut self) {
        self.cascade.reset();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let frequency = f64::from(value);
        if param != 0 || frequency >= self.rate / 2.0 {
            return false;
        }
        for at in 0..self.cascade.sections() {
            let section = (self.design)(self.order, self.high, frequency, self.rate, at);
            self.cascade.go(at, section);
        }
        true
    }
}
