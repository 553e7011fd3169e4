//! What comes of one pass, and why nothing does.

use super::{sound::TestSignal, sweep, tones};
use quiet_types::trip::Heard;
use std::fmt;

/// Frames by which the sweep and the tones may differ: a converter's filters delay frequencies
/// differently, by less than this in the band of the tones.
const AGREE: f64 = 1.0;

/// Why a pass tells no round trip.
#[derive(Clone, Debug, PartialEq)]
pub enum Unheard {
    /// Nothing of what was sent came back.
    Silent {
        /// The loudest sample that came in, dBFS.
        peak_db: f64,
        /// The longest round trip that was waited for, ms.
        longest_ms: f64,
    },
    /// The tones came back too late.
    Late {
        /// The round trip by the tones alone, frames.
        frames: f64,
        /// The longest round trip that was waited for, ms.
        longest_ms: f64,
    },
    /// The tones came back later than was waited for, by a whole round of them.
    Round {
        /// The longest round trip that was waited for, ms.
        longest_ms: f64,
    },
    /// The sweep came back and the tones tell nothing certain.
    Unclear {
        /// The share of the tones' time in which they were clear.
        clear: f64,
        /// The round trip by the sweep alone, frames.
        sweep: f64,
    },
    /// The tones came back and the sweep did not.
    NoSweep {
        /// The round trip by the tones alone, frames.
        tones: f64,
    },
    /// The two methods do not say the same.
    Disagree {
        /// By the tones, at the moment of the sweep, frames.
        tones: f64,
        /// By the sweep, frames.
        sweep: f64,
        /// Whether it was the sweep after the tones.
        after: bool,
    },
    /// The two methods do not agree on which way up the signal comes back.
    Polarity,
    /// The round trip changed while it was measured.
    Slipped {
        /// By so many frames.
        frames: f64,
        /// At about this time of the pass, seconds.
        at: f64,
    },
    /// Sound was missing, or something else was heard, in an otherwise clean pass.
    Lost {
        /// At about this time of the pass, seconds.
        at: f64,
    },
}

impl fmt::Display for Unheard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unheard::Silent { peak_db, longest_ms } => write!(
                f,
                "no signal came back within {longest_ms:.0} ms (the loudest sample that came in is at \
                 {peak_db:.0} dBFS): lead the output back to the input with a cable, turn the levels \
                 up, or wait for longer with --longest"
            ),
            Unheard::Late { frames, longest_ms } => write!(
                f,
                "the tones came back after {frames:.0} frames, later than was waited for \
                 ({longest_ms:.0} ms): wait for longer with --longest"
            ),
            Unheard::Round { longest_ms } => write!(
                f,
                "the tones began after the {longest_ms:.0} ms that were waited for, and no sweep came back: the round trip is \
                 longer, and after 65536 frames the tones have come round and tell nothing; wait for longer with --longest, \
                 or play with a smaller --buffer or a lower --rate"
            ),
            Unheard::Unclear { clear, sweep } => write!(
                f,
                "the sweep came back after {sweep:.1} frames, and the tones were clear for {:.0} % of \
                 their time only: too much noise, or sound was lost; raise --level",
                clear * 100.0
            ),
            Unheard::NoSweep { tones } => write!(
                f,
                "the tones say {tones:.3} frames, and no sweep came back to check them: something on \
                 the way takes the sweep out (an effect, a noise gate?)"
            ),
            Unheard::Disagree { tones, sweep, after } => write!(
                f,
                "the two methods disagree: the tones say {tones:.3} frames and the sweep {} them \
                 {sweep:.3}; sound was lost or an effect is on the way",
                if *after { "after" } else { "before" }
            ),
            Unheard::Polarity => f.write_str(
                "the two methods disagree on the polarity: a filter on the way turns phases",
            ),
            Unheard::Slipped { frames, at } => write!(
                f,
                "the round trip changed by {frames:+.2} frames about {at:.2} s into the pass: sound \
                 was lost or repeated, and the device counted no xrun"
            ),
            Unheard::Lost { at } => write!(
                f,
                "sound was lost, or something else was heard, about {at:.2} s into the pass, and the \
                 device counted no xrun"
            ),
        }
    }
}

/// What `came` in while `sound` was played from the same frame on.
///
/// # Errors
/// [`Unheard`], where no round trip can be told with confidence.
pub fn hear(sound: &TestSignal, came: &[f32]) -> Result<Heard, Unheard> {
    let rate = f64::from(sound.rate);
    let tones = tones::track(sound, came);
    // Where the tones say nothing, the sweep is looked for without a drift.
    let line = tones.line();
    let drift = line.as_ref().map_or(0.0, |line| line.slope);
    let before = sweep::find(sound, came, sound.sweep_at, drift);
    let after = sweep::find(sound, came, sound.again_at, drift);
    let longest_ms = sound.longest as f64 / rate * 1e3;
    let line = match (line, &before) {
        (Some(line), _) => line,
        (None, Some(found)) => {
            return Err(Unheard::Unclear { clear: tones.clear(), sweep: found.delay });
        }
        (None, None) => {
            let peak = came.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            return Err(Unheard::Silent { peak_db: decibels(f64::from(peak)), longest_ms });
        }
    };
    if before.is_none() && line.delay > sound.longest as f64 {
        return Err(Unheard::Late { frames: line.delay, longest_ms });
    }
    // What began late is no sound that was lost on the way: the sweeps would be there.
    if (line.slip.is_some() || line.lost.is_some()) && before.is_none() && after.is_none() {
        return Err(Unheard::Round { longest_ms });
    }
    if let Some((at, frames)) = line.slip {
        return Err(Unheard::Slipped { frames, at: at / rate });
    }
    if let Some(at) = line.lost {
        return Err(Unheard::Lost { at: at / rate });
    }
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Unheard::NoSweep { tones: line.delay });
    };
    for (found, is_after) in [(&before, false), (&after, true)] {
        let tones = line.at(found.at);
        if (tones - found.delay).abs() > AGREE {
            return Err(Unheard::Disagree { tones, sweep: found.delay, after: is_after });
        }
        if found.inverted != line.inverted {
            return Err(Unheard::Polarity);
        }
    }
    Ok(Heard {
        frames: line.delay,
        uncertainty: line.uncertainty,
        milliseconds: line.delay / rate * 1e3,
        sweep_before: before.delay,
        sweep_after: after.delay,
        inverted: line.inverted,
        drift_ppm: line.slope * 1e6,
        drift_uncertainty: line.slope_uncertainty * 1e6,
        gain_db: decibels(line.gain),
        snr_db: line.snr_db,
        doubt: line.doubt,
        clipped: clipped(came),
    })
}

fn decibels(ratio: f64) -> f64 {
    20.0 * ratio.max(1e-10).log10()
}

/// Frames at full scale: three in a row or more of one sign are no accident.
fn clipped(came: &[f32]) -> u64 {
    const FULL: f32 = 0.9999;
    let (mut all, mut row, mut sign) = (0u64, 0u64, 0i8);
    for sample in came {
        let now = i8::from(*sample >= FULL) - i8::from(*sample <= -FULL);
        row = if now != 0 && now == sign { row + 1 } else { u64::from(now != 0) };
        sign = now;
        all += match row {
            3 => 3,
            4.. => 1,
            _ => 0,
        };
    }
    all
}
