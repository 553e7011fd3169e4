//! Dither: rounds to whole steps of a sample format, with noise in place of distortion.

use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Fault, Key, KeyKind, ValueForm, ValueUnit},
};

/// Error feedback of Lipshitz, Vanderkooy and Wannamaker (1991), made for 44.1 kHz.
const LIPSHITZ: [f64; 5] = [2.033, -2.165, 1.959, -1.590, 0.6149];

pub(crate) const DITHER: KeyKind = KeyKind {
    name: "dither",
    what: "rounds to a number of bits with noise; belongs at the end",
    keys: &[
        Key {
            name: "bits",
            what: "8 to 24",
            form: ValueForm::Needed { unit: ValueUnit::Plain, low: 8.0, high: 24.0, live: false },
        },
        Key {
            name: "type",
            what: "plain rounding; noise of one step, or of two (triangular); the latter blue; \
                   shaped away from where the ear is keen",
            form: ValueForm::Choice {
                of: &["none", "rectangular", "triangular", "highpass", "lipshitz"],
                default: Some("triangular"),
            },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let bits = given.number("bits");
        if bits.fract() != 0.0 {
            return Err(Fault::at("bits", "there are no half bits", "write a whole number"));
        }
        let noise = match given.text("type") {
            "none" => Noise::None,
            "rectangular" => Noise::Rectangular,
            "highpass" => Noise::Highpass,
            "lipshitz" => Noise::Lipshitz,
            _ => Noise::Triangular,
        };
        Ok(Built::of(Dither::new(bits as u32, noise, room.setting)))
    },
};

#[derive(Clone, Copy, PartialEq)]
enum Noise {
    None,
    Rectangular,
    Triangular,
    Highpass,
    Lipshitz,
}

struct Dither {
    steps: f64,
    noise: Noise,
    channels: Vec<Channel>,
}

#[derive(Clone)]
struct Channel {
    seed: u64,
    last: f64,
    errors: [f64; 5],
}

impl Channel {
    fn new(at: usize) -> Channel {
        let seed = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(at as u64 + 1) | 1;
        Channel { seed, last: 0.0, errors: [0.0; 5] }
    }

    /// Evenly spread in [-0.5, 0.5). Xorshift: the same in every run.
    fn even(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    fn noise(&mut self, noise: Noise) -> f64 {
        match noise {
            Noise::None => 0.0,
            Noise::Rectangular => self.even(),
            Noise::Triangular | Noise::Lipshitz => self.even() + self.even(),
            Noise::Highpass => {
                let now = self.even();
                now - std::mem::replace(&mut self.last, now)
            }
        }
    }
}

impl Dither {
    fn new(bits: u32, noise: Noise, setting: ProcessSpec) -> Dither {
        let channels = (0..setting.channels).map(Channel::new).collect();
        Dither { steps: f64::from(1u32 << (bits - 1)), noise, channels }
    }
}

impl Stage for Dither {
    fn process(&mut self, block: &mut Block<'_>) {
        for (samples, channel) in block.each().zip(&mut self.channels) {
            for x in samples {
                let mut wanted = f64::from(*x) * self.steps;
                if self.noise == Noise::Lipshitz {
                    let back: f64 = LIPSHITZ.iter().zip(channel.errors).map(|(c, e)| c * e).sum();
                    wanted -= back;
                }
                let rounded = (wanted + channel.noise(self.noise)).round();
                let kept = rounded.clamp(-self.steps, self.steps - 1.0);
                if self.noise == Noise::Lipshitz {
                    channel.errors.copy_within(0..4, 1);
                    // What was clipped is no rounding error: fed back it would grow.
                    channel.errors[0] = rounded - wanted;
                }
                *x = (kept / self.steps) as f32;
            }
        }
    }

    fn reset(&mut self) {
        for (at, channel) in self.channels.iter_mut().enumerate() {
            *channel = Channel::new(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{Frames, SampleRate};

    fn run(noise: Noise, x: &[f32]) -> Vec<f32> {
        let setting = ProcessSpec { rate: SampleRate(44_100), channels: 1, block: Frames(0) };
        let mut out = x.to_vec();
        Dither::new(16, noise, setting).process(&mut Block::new(&mut out, 1));
        out
    }

    const STEP: f64 = 1.0 / 32_768.0;

    #[test]
    fn everything_lands_on_a_step_and_within_the_format() {
        let x: Vec<f32> = (0..5000).map(|n| 1.2 * (n as f32 * 0.01).sin()).collect();
        for noise in [Noise::None, Noise::Rectangular, Noise::Triangular, Noise::Lipshitz] {
            for y in run(noise, &x) {
                let steps = f64::from(y) / STEP;
                assert_eq!(steps, steps.round());
                assert!((-32_768.0..=32_767.0).contains(&steps));
            }
        }
    }

    #[test]
    fn the_mean_error_is_none_and_the_noise_has_its_known_power() {
        // A level between two steps, which plain rounding would lose.
        let x = vec![(0.3 * STEP) as f32; 400_000];
        for (noise, power) in [(Noise::Rectangular, 0.21), (Noise::Triangular, 0.25)] {
            let errors: Vec<f64> =
                run(noise, &x).iter().map(|y| (f64::from(*y)) / STEP - 0.3).collect();
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            let square = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
            assert!(mean.abs() < 5e-3, "{mean}");
            // Rectangular: 0.3 * 0.7. Triangular: a step squared / 4, whatever the level.
            assert!((square - power).abs() < 5e-3, "{square}");
        }
    }

    #[test]
    fn shaped_noise_is_least_where_the_ear_is_keen() {
        let n = 1 << 15;
        let error = |noise| -> Vec<f64> {
            let x: Vec<f32> = (0..n).map(|k| 0.5 * (k as f32 * 0.0123).sin()).collect();
            run(noise, &x).iter().zip(&x).map(|(y, x)| f64::from(*y) - f64::from(*x)).collect()
        };
        // Power around 3.5 kHz by projection on some tones there.
        let power = |e: &[f64]| -> f64 {
            (0..40)
                .map(|k| {
                    let w = 2.0 * std::f64::consts::PI * (3400.0 + 5.0 * f64::from(k)) / 44_100.0;
                    let (mut c, mut s) = (0.0, 0.0);
                    for (at, e) in e.iter().enumerate() {
                        c += e * (w * at as f64).cos();
                        s += e * (w * at as f64).sin();
                    }
                    c * c + s * s
                })
                .sum()
        };
        let (plain, shaped) = (power(&error(Noise::Triangular)), power(&error(Noise::Lipshitz)));
        assert!(shaped < plain / 50.0, "{shaped} {plain}");
    }
}
