//! Filter design: coefficients from what is wanted, in f64.
//!
//! # Source
//! R. Bristow-Johnson, Cookbook formulae for audio EQ biquad filter coefficients; analogue
//! prototypes carried over by the bilinear transform, their frequency held.

use std::f64::consts::PI;

/// One second-order section: `b0 b1 b2 a1 a2`, with `a0 = 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section(pub [f64; 5]);

impl Section {
    /// Lets everything through.
    pub const PLAIN: Section = Section([1.0, 0.0, 0.0, 0.0, 0.0]);

    fn of(b: [f64; 3], a: [f64; 3]) -> Section {
        Section([b[0] / a[0], b[1] / a[0], b[2] / a[0], a[1] / a[0], a[2] / a[0]])
    }

    /// Whether its poles lie within the unit circle, and its coefficients are numbers.
    pub fn is_stable(&self) -> bool {
        let [.., a1, a2] = self.0;
        self.0.iter().all(|c| c.is_finite()) && a2.abs() < 1.0 && a1.abs() < 1.0 + a2
    }

    /// Size of its response at `frequency`, as a factor.
    pub fn gain_at(&self, frequency: f64, rate: f64) -> f64 {
        let w = 2.0 * PI * frequency / rate;
        let [b0, b1, b2, a1, a2] = self.0;
        let at = |c0: f64, c1: f64, c2: f64| {
            (c0 + c1 * w.cos() + c2 * (2.0 * w).cos()).hypot(c1 * w.sin() + c2 * (2.0 * w).sin())
        };
        at(b0, b1, b2) / at(1.0, a1, a2)
    }

    /// `(b0 s^2 + b1 s + b2) / (a0 s^2 + a1 s + a2)`, `s` in units of `2 pi frequency`; the
    /// response at `frequency` is held.
    pub fn of_analogue(b: [f64; 3], a: [f64; 3], frequency: f64, rate: f64) -> Section {
        let k = 1.0 / (PI * frequency / rate).tan();
        let over = |c: [f64; 3]| {
            [
                c[0] * k * k + c[1] * k + c[2],
                2.0 * (c[2] - c[0] * k * k),
                c[0] * k * k - c[1] * k + c[2],
            ]
        };
        Section::of(over(b), over(a))
    }
}

/// What a biquad is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the cookbook")]
pub enum FilterShape {
    Lowpass,
    Highpass,
    Bandpass,
    Notch,
    Allpass,
    Peaking,
    LowShelf,
    HighShelf,
    /// First order from here on.
    LowpassFirst,
    HighpassFirst,
    AllpassFirst,
    LowShelfFirst,
    HighShelfFirst,
}

/// How wide a biquad is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    /// Quality.
    Q(f64),
    /// Octaves between the half-gain points.
    Octaves(f64),
    /// Steepness of a shelf, in dB an octave.
    Slope(f64),
}

/// A biquad at `frequency` with `gain` in dB (peaks and shelves alone use it).
pub fn biquad(shape: FilterShape, frequency: f64, gain: f64, width: Width, rate: f64) -> Section {
    let w = 2.0 * PI * frequency / rate;
    let (s, c) = w.sin_cos();
    let a = 10f64.powf(gain / 40.0);
    let alpha = match width {
        Width::Q(q) => s / (2.0 * q),
        Width::Octaves(octaves) => s * (2f64.ln() / 2.0 * octaves * w / s).sinh(),
        Width::Slope(slope) => {
            let slope = slope / 12.0;
            s / 2.0 * ((a + 1.0 / a) * (1.0 / slope - 1.0) + 2.0).max(0.0).sqrt()
        }
    };
    let beta = 2.0 * a.sqrt() * alpha;
    let (p, m) = (a + 1.0, a - 1.0);
    let first = |b: [f64; 2], d: [f64; 2]| {
        Section::of_analogue([0.0, b[0], b[1]], [0.0, d[0], d[1]], frequency, rate)
    };
    match shape {
        FilterShape::Lowpass => Section::of(
            [(1.0 - c) / 2.0, 1.0 - c, (1.0 - c) / 2.0],
            [1.0 + alpha, -2.0 * c, 1.0 - alpha],
        ),
        FilterShape::Highpass => Section::of(
            [(1.0 + c) / 2.0, -(1.0 + c), (1.0 + c) / 2.0],
            [1.0 + alpha, -2.0 * c, 1.0 - alpha],
        ),
        FilterShape::Bandpass => {
            Section::of([alpha, 0.0, -alpha], [1.0 + alpha, -2.0 * c, 1.0 - alpha])
        }
        FilterShape::Notch => {
            Section::of([1.0, -2.0 * c, 1.0], [1.0 + alpha, -2.0 * c, 1.0 - alpha])
        }
        FilterShape::Allpass => {
            Section::of([1.0 - alpha, -2.0 * c, 1.0 + alpha], [1.0 + alpha, -2.0 * c, 1.0 - alpha])
        }
        FilterShape::Peaking => Section::of(
            [1.0 + alpha * a, -2.0 * c, 1.0 - alpha * a],
            [1.0 + alpha / a, -2.0 * c, 1.0 - alpha / a],
        ),
        FilterShape::LowShelf => Section::of(
            [a * (p - m * c + beta), 2.0 * a * (m - p * c), a * (p - m * c - beta)],
            [p + m * c + beta, -2.0 * (m + p * c), p + m * c - beta],
        ),
        FilterShape::HighShelf => Section::of(
            [a * (p + m * c + beta), -2.0 * a * (m + p * c), a * (p + m * c - beta)],
            [p - m * c + beta, 2.0 * (m - p * c), p - m * c - beta],
        ),
        FilterShape::LowpassFirst => one_pole(first([0.0, 1.0], [1.0, 1.0])),
        FilterShape::HighpassFirst => one_pole(first([1.0, 0.0], [1.0, 1.0])),
        FilterShape::AllpassFirst => one_pole(first([-1.0, 1.0], [1.0, 1.0])),
        // Half of the gain, in dB, is reached at the frequency.
        FilterShape::LowShelfFirst => one_pole(first([1.0, a], [1.0, 1.0 / a])),
        FilterShape::HighShelfFirst => one_pole(first([a, 1.0], [1.0 / a, 1.0])),
    }
}

/// Cancels the pole and the zero that a first-order filter gains at the upper end.
fn one_pole(section: Section) -> Section {
    // (1 + z)(x + y z) = x + (x + y) z + y z^2: divide by (1 + z).
    let [b0, _, b2, _, a2] = section.0;
    Section([b0, b2, 0.0, a2, 0.0])
}

/// Quality of pole pair `at` of a Butterworth.
fn butterworth_q(order: usize, at: usize) -> f64 {
    let n = order as f64;
    match order % 2 {
        0 => 1.0 / (2.0 * (PI * (2 * at + 1) as f64 / (2.0 * n)).sin()),
        _ => 1.0 / (2.0 * (PI * (at + 1) as f64 / n).cos()),
    }
}

/// How many sections a Butterworth has.
pub fn butterworth_sections(order: usize) -> usize {
    order.div_ceil(2)
}

/// Section `at` of a Butterworth of `order`; `high` for a highpass. An odd order ends with a
/// section of first order.
pub fn butterworth(order: usize, high: bool, frequency: f64, rate: f64, at: usize) -> Section {
    let (second, first) = if high {
        (FilterShape::Highpass, FilterShape::HighpassFirst)
    } else {
        (FilterShape::Lowpass, FilterShape::LowpassFirst)
    };
    if at == order / 2 {
        return biquad(first, frequency, 0.0, Width::Q(1.0), rate);
    }
    biquad(second, frequency, 0.0, Width::Q(butterworth_q(order, at)), rate)
}

/// How many sections a Linkwitz-Riley has.
pub fn linkwitz_riley_sections(order: usize) -> usize {
    2 * butterworth_sections(order / 2)
}

/// Section `at` of a Linkwitz-Riley of an even `order`: two Butterworths of half of it. Low and
/// high of the same frequency sum to an allpass (turn one where half of the order is odd).
pub fn linkwitz_riley(order: usize, high: bool, frequency: f64, rate: f64, at: usize) -> Section {
    butterworth(order / 2, high, frequency, rate, at % butterworth_sections(order / 2))
}

/// Moves a closed box's resonance from (`f0`, `q0`) to (`ft`, `qt`): the Linkwitz transform.
pub fn linkwitz_transform(f0: f64, q0: f64, ft: f64, qt: f64, rate: f64) -> Section {
    // In units of the frequency midway, at which the bilinear transform holds.
    let middle = (f0 + ft) / 2.0;
    let (o, t) = (f0 / middle, ft / middle);
    Section::of_analogue([1.0, o / q0, o * o], [1.0, t / qt, t * t], middle, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 48_000.0;

    /// The analogue prototype's size at a frequency warped as the bilinear transform warps it.
    fn analogue(b: [f64; 3], a: [f64; 3], f: f64, centre: f64) -> f64 {
        let s = (PI * f / RATE).tan() / (PI * centre / RATE).tan();
        let size = |c: [f64; 3]| (c[2] - c[0] * s * s).hypot(c[1] * s);
        size(b) / size(a)
    }

    #[test]
    fn every_shape_is_its_analogue_prototype() {
        let (f, q, gain) = (900.0, 1.3, 7.0);
        let a: f64 = 10f64.powf(gain / 40.0);
        let r = a.sqrt();
        let cases: [(FilterShape, [f64; 3], [f64; 3]); 13] = [
            (FilterShape::Lowpass, [0.0, 0.0, 1.0], [1.0, 1.0 / q, 1.0]),
            (FilterShape::Highpass, [1.0, 0.0, 0.0], [1.0, 1.0 / q, 1.0]),
            (FilterShape::Bandpass, [0.0, 1.0 / q, 0.0], [1.0, 1.0 / q, 1.0]),
            (FilterShape::Notch, [1.0, 0.0, 1.0], [1.0, 1.0 / q, 1.0]),
            (FilterShape::Allpass, [1.0, -1.0 / q, 1.0], [1.0, 1.0 / q, 1.0]),
            (FilterShape::Peaking, [1.0, a / q, 1.0], [1.0, 1.0 / (a * q), 1.0]),
            (FilterShape::LowShelf, [a, a * r / q, a * a], [a, r / q, 1.0]),
            (FilterShape::HighShelf, [a * a, a * r / q, a], [1.0, r / q, a]),
            (FilterShape::LowpassFirst, [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]),
            (FilterShape::HighpassFirst, [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]),
            (FilterShape::AllpassFirst, [0.0, -1.0, 1.0], [0.0, 1.0, 1.0]),
            (FilterShape::LowShelfFirst, [0.0, 1.0, a], [0.0, 1.0, 1.0 / a]),
            (FilterShape::HighShelfFirst, [0.0, a, 1.0], [0.0, 1.0 / a, 1.0]),
        ];
        for (shape, b, den) in cases {
            let section = biquad(shape, f, gain, Width::Q(q), RATE);
            assert!(section.is_stable(), "{shape:?}");
            for at in [20.0, 200.0, 880.0, 900.0, 5_000.0, 20_000.0] {
                let (ours, wanted) = (section.gain_at(at, RATE), analogue(b, den, at, f));
                assert!((ours - wanted).abs() < 1e-9, "{shape:?} at {at}: {ours} {wanted}");
            }
        }
    }

    #[test]
    fn butterworth_is_maximally_flat_at_every_order() {
        for order in 1..=12 {
            for high in [false, true] {
                let sections: Vec<Section> = (0..butterworth_sections(order))
                    .map(|at| butterworth(order, high, 1_000.0, RATE, at))
                    .collect();
                for at in [50.0, 700.0, 1_000.0, 3_000.0, 15_000.0] {
                    let x = (PI * at / RATE).tan() / (PI * 1_000.0 / RATE).tan();
                    let x = if high { 1.0 / x } else { x };
                    let wanted = 1.0 / (1.0 + x.powi(2 * order as i32)).sqrt();
                    let ours: f64 = sections.iter().map(|s| s.gain_at(at, RATE)).product();
                    assert!((ours - wanted).abs() < 1e-9, "{order} {high} {at}: {ours} {wanted}");
                }
            }
        }
    }

    #[test]
    fn a_width_in_octaves_has_half_the_gain_at_its_edges() {
        // At low frequencies, where the transform warps nothing.
        let section = biquad(FilterShape::Peaking, 100.0, 12.0, Width::Octaves(1.0), RATE);
        for edge in [100.0 / 2f64.sqrt(), 100.0 * 2f64.sqrt()] {
            let db = super::super::decibels(section.gain_at(edge, RATE));
            assert!((db - 6.0).abs() < 0.01, "{db}");
        }
    }

    #[test]
    fn the_linkwitz_transform_swaps_resonances() {
        let section = linkwitz_transform(80.0, 1.2, 25.0, 0.6, RATE);
        let low = |f: f64, f0: f64, q: f64| {
            let s = f / f0;
            s * s / (1.0 - s * s).hypot(s / q)
        };
        for at in [10.0, 25.0, 44.0, 80.0, 300.0] {
            let wanted = low(at, 25.0, 0.6) / low(at, 80.0, 1.2);
            let ours = section.gain_at(at, RATE);
            assert!((ours / wanted - 1.0).abs() < 1e-3, "{at}: {ours} {wanted}");
        }
    }
}
