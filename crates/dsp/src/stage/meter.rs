//! Meter: peak, RMS and loudness, for whoever reads them; the sound passes untouched.

use super::{decibels, loudness::Loudness, settled, smoothing};
use crate::{
    Block, ProcessSpec, Stage,
    strip::{Built, Gauge, Key, KeyKind, ValueForm, ValueUnit},
};

pub(crate) const METER: KeyKind = KeyKind {
    name: "meter",
    what: "reads peak and RMS of each channel, and loudness; changes nothing",
    keys: &[
        Key {
            name: "loudness",
            what: "momentary, short and integrated, too",
            form: ValueForm::Switch { default: false, live: false },
        },
        Key {
            name: "window",
            what: "time constant of RMS",
            form: ValueForm::Number {
                unit: ValueUnit::Millisecond,
                low: 1.0,
                high: 10_000.0,
                default: Some(300.0),
                live: false,
            },
        },
        Key {
            name: "fall",
            what: "time in which a peak falls by 8.7 dB",
            form: ValueForm::Number {
                unit: ValueUnit::Millisecond,
                low: 1.0,
                high: 100_000.0,
                default: Some(400.0),
                live: false,
            },
        },
    ],
    shape: KeyKind::SAME,
    build: |given, room| {
        let (window, fall) = (given.number("window"), given.number("fall"));
        let meter = Meter::new(window, fall, given.switch("loudness"), room.setting);
        let mut readings = Vec::new();
        for (at, channel) in meter.channels.iter().enumerate() {
            readings.push((format!("peak.{at}"), ValueUnit::Decibel, channel.shown[0].clone()));
            readings.push((format!("rms.{at}"), ValueUnit::Decibel, channel.shown[1].clone()));
            readings.push((format!("top.{at}"), ValueUnit::Decibel, channel.shown[2].clone()));
        }
        if meter.loudness.is_some() {
            for (name, cell) in ["momentary", "short", "integrated"].iter().zip(&meter.shown) {
                readings.push(((*name).to_owned(), ValueUnit::Lufs, cell.clone()));
            }
        }
        let mut built = Built::of(meter);
        built.readings = readings;
        Ok(built)
    },
};

struct Meter {
    channels: Vec<Channel>,
    mean: f64,
    fall: f64,
    loudness: Option<Loudness>,
    shown: [Gauge; 3],
}

#[derive(Default)]
struct Channel {
    peak: f64,
    power: f64,
    top: f64,
    /// Peak, RMS, and the highest peak of all.
    shown: [Gauge; 3],
}

impl Meter {
    fn new(window: f64, fall: f64, loudness: bool, setting: ProcessSpec) -> Meter {
        Meter {
            channels: (0..setting.channels).map(|_| Channel::default()).collect(),
            mean: smoothing(window, setting.rate),
            fall: smoothing(fall, setting.rate),
            loudness: loudness.then(|| Loudness::new(setting)),
            shown: Default::default(),
        }
    }
}

impl Stage for Meter {
    fn process(&mut self, block: &mut Block<'_>) {
        for (samples, channel) in block.each().zip(&mut self.channels) {
            for x in samples {
                let size = f64::from(x.abs());
                channel.peak = size.max(channel.peak * self.fall);
                channel.power = size * size + self.mean * (channel.power - size * size);
                channel.top = channel.top.max(size);
            }
            channel.peak = settled(channel.peak);
            channel.power = settled(channel.power);
            let values = [channel.peak, channel.power.max(0.0).sqrt(), channel.top];
            for (cell, value) in channel.shown.iter().zip(values) {
                cell.put(decibels(value) as f32);
            }
        }
        if let Some(loudness) = &mut self.loudness {
            loudness.hear(block);
            let values = [loudness.momentary(), loudness.short(), loudness.integrated()];
            for (cell, value) in self.shown.iter().zip(values) {
                cell.put(value as f32);
            }
        }
    }

    fn reset(&mut self) {
        for channel in &mut self.channels {
            (channel.peak, channel.power, channel.top) = (0.0, 0.0, 0.0);
        }
        if let Some(loudness) = &mut self.loudness {
            loudness.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{Frames, SampleRate};

    #[test]
    fn a_sine_reads_its_peak_and_3_db_less() {
        let setting = ProcessSpec { rate: SampleRate(48_000), channels: 1, block: Frames(48_000) };
        let mut meter = Meter::new(100.0, 400.0, false, setting);
        for _ in 0..2 {
            let mut sine: Vec<f32> =
                (0..48_000).map(|n| 0.5 * (n as f32 * 0.130_899_7).sin()).collect();
            let before = sine.clone();
            meter.process(&mut Block::new(&mut sine, 1));
            assert_eq!(sine, before);
        }
        let [peak, rms, top] = [0, 1, 2].map(|k| meter.channels[0].shown[k].get());
        assert!((top + 6.02).abs() < 0.01, "{top}");
        assert!((peak + 6.02).abs() < 0.05, "{peak}");
        assert!((rms + 9.03).abs() < 0.05, "{rms}");
    }
}
