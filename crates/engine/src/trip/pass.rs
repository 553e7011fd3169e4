//! Passes of sound over a device that is opened anew for each.

use super::{hear::hear, sound::TestSignal};
use crate::{Error, ErrorKind, Placed, Result, Setup, Sizes, open};
use quiet_dsp::{Block, Stage};
use quiet_types::{Frames, SampleRate, trip::Opening};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// Which channels the cable joins, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cables {
    /// That plays.
    pub output: usize,
    /// That captures.
    pub input: usize,
}

/// What is kept of a pass: written by the playing thread alone, read when it is over.
#[derive(Debug)]
struct Kept {
    came: Vec<AtomicU32>,
    frames: AtomicUsize,
}

/// Plays a sound once and keeps what comes in meanwhile, to the sample.
#[derive(Debug)]
pub struct Pass {
    sound: Arc<TestSignal>,
    kept: Arc<Kept>,
    cables: Cables,
    at: usize,
}

impl Stage for Pass {
    fn process(&mut self, block: &mut Block<'_>) {
        let at = self.at.min(self.kept.came.len());
        let slots = self.kept.came.get(at..).unwrap_or_default();
        for (slot, sample) in slots.iter().zip(block.channel(self.cables.input).iter()) {
            slot.store(sample.to_bits(), Relaxed);
        }
        for channel in block.each() {
            channel.fill(0.0);
        }
        let sent = self.sound.samples().get(at..).unwrap_or_default();
        for (sample, sent) in block.channel(self.cables.output).iter_mut().zip(sent) {
            *sample = *sent;
        }
        self.at += block.frames();
        self.kept.frames.store(self.at.min(self.kept.came.len()), Relaxed);
    }

    fn reset(&mut self) {
        self.at = 0;
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CycleProgress {
    /// Cycle, from 0.
    pub cycle: u32,
    /// How much of it is done, 0 to 1.
    pub done: f64,
    /// How long one takes.
    pub length: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct MeasuredTrip {
    /// The device in its own words.
    pub about: String,
    /// What it plays at.
    pub sizes: Sizes,
    /// Frames that the host keeps between capture and playback, where it is known.
    pub way: Option<Frames>,
    /// Where the thread ran.
    pub placed: Placed,
    /// Every cycle that was begun and not interrupted.
    pub cycles: Vec<Opening>,
}

/// Passes that may be disturbed before a cycle is given up.
const TRIES: u32 = 3;
/// A device that moves nothing for so long is dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// A time in frames, where the tones can tell so long a round trip.
fn frames(longest: Duration, rate: SampleRate) -> Result<usize> {
    let frames = (longest.as_secs_f64() * f64::from(rate)) as usize;
    let most = TestSignal::MOST;
    if frames <= most {
        return Ok(frames);
    }
    Err(Error::new(format!(
        "cannot wait for a round trip of {}: that is {frames} frames at {} Hz, and by the tones {most} can be told at most, \
         since after 65536 they come round; give --longest {}ms or less, or a lower --rate",
        quiet_types::Nanos(longest.as_nanos() as u64),
        rate.0,
        most * 1000 / (rate.0 as usize).max(1)
    )))
}

/// Measures `cycles` times, with the device opened anew each time; `longest` is the longest round
/// trip that is waited for, `level` the peak of the sound, 0 to 1.
///
/// # Errors
/// A sentence, when the device cannot be opened or stands still, or `longest` is more than can be told at its rate. That nothing can be heard is no
/// error of this: it stands in the cycle.
pub fn measure(
    setup: &Setup,
    cables: Cables,
    (cycles, longest, level): (u32, Duration, f64),
    stop: &AtomicBool,
    step: &mut dyn FnMut(CycleProgress),
) -> Result<Option<MeasuredTrip>> {
    if cables.output >= setup.channels || cables.input >= setup.channels {
        return Err(Error::new(format!(
            "the cable joins output {} and input {}, and there are {} channels; give more with \
             --channels",
            cables.output + 1,
            cables.input + 1,
            setup.channels
        )));
    }
    let mut done: Option<MeasuredTrip> = None;
    for cycle in 0..cycles {
        let mut disturbed = 0;
        let one = loop {
            let opened = open(setup)?;
            let about = opened.about.clone();
            let frames = frames(longest, opened.rate)?;
            let sound = Arc::new(TestSignal::new(opened.rate, frames, level));
            let kept = Arc::new(Kept {
                came: sound.samples().iter().map(|_| AtomicU32::new(0)).collect(),
                frames: AtomicUsize::new(0),
            });
            let pass = Pass { sound: sound.clone(), kept: kept.clone(), cables, at: 0 };
            let mut engine = opened.start(Box::new(pass))?;
            let length = Duration::from_secs_f64(sound.seconds());
            let whole = kept.came.len();
            let (mut last, mut moved) = (0, Instant::now());
            while last < whole {
                if stop.load(Relaxed) {
                    return Ok(done);
                }
                sleep(Duration::from_millis(10));
                let now = kept.frames.load(Relaxed);
                if now > last {
                    (last, moved) = (now, Instant::now());
                } else if engine.ended() || moved.elapsed() > PATIENCE {
                    let sentence = format!(
                        "the device stands still ({about}): no sound has moved for {} s; is its \
                         server running, is its cable in?",
                        PATIENCE.as_secs()
                    );
                    return Err(Error::of(ErrorKind::Device, sentence));
                }
                step(CycleProgress { cycle, done: now as f64 / whole as f64, length });
            }
            let lost = engine.board().xruns.load(Relaxed) + engine.gone();
            let (sizes, placed, way) = (engine.sizes(), engine.placed().clone(), engine.way());
            engine.stop()?;
            let done = done.get_or_insert_with(|| MeasuredTrip {
                about: about.clone(),
                sizes,
                way,
                placed,
                cycles: Vec::new(),
            });
            if (done.sizes, &done.about) != (sizes, &about) {
                let sentence =
                    format!("the device changed between two openings: {} and {about}", done.about);
                return Err(Error::of(ErrorKind::Device, sentence));
            }
            if lost > 0 {
                disturbed += 1;
                if disturbed < TRIES {
                    continue;
                }
                break Opening {
                    heard: None,
                    wrong: format!(
                        "the device ran over or under in each of {TRIES} passes ({lost} times in the \
                         last): play with a longer --period or --buffer, see `quietcores check`"
                    ),
                    disturbed,
                };
            }
            let came: Vec<f32> =
                kept.came.iter().map(|word| f32::from_bits(word.load(Relaxed))).collect();
            break match hear(&sound, &came) {
                Ok(heard) => Opening { heard: Some(heard), wrong: String::new(), disturbed },
                Err(wrong) => Opening { heard: None, wrong: wrong.to_string(), disturbed },
            };
        };
        if let Some(done) = &mut done {
            done.cycles.push(one);
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_frames_than_the_tones_can_tell_are_refused_and_not_fewer_taken() {
        let of = |ms, rate| frames(Duration::from_millis(ms), SampleRate(rate));
        assert_eq!(of(250, 48_000).unwrap(), 12_000);
        assert_eq!(of(8_000, 8_000).unwrap(), 64_000);
        assert_eq!(of(1_333, 48_000).unwrap(), 63_984);
        for (ms, rate, remedy) in [(8_000, 48_000, "--longest 1333ms"), (334, 192_000, "333ms")] {
            let said = of(ms, rate).unwrap_err().to_string();
            assert!(said.contains(remedy) && said.contains("64000"), "{said}");
        }
    }
}
