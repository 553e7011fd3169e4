//! The music of the demonstration: a plucked string, computed.

/// Semitones above A2 of a figure that goes round, an eighth note each.
const FIGURE: [i32; 16] = [0, 7, 12, 16, 19, 16, 12, 7, -4, 3, 8, 12, 15, 12, 8, 3];
/// Seconds of an eighth note.
const EIGHTH: f64 = 0.24;
/// How much of the string's movement is left after each round, and how much of the neighbour's comes in.
const KEPT: f32 = 0.996;

/// `seconds` of it at `rate` frames a second, one channel, within -0.8 to 0.8.
pub(super) fn song(seconds: f64, rate: u32) -> Vec<f32> {
    let frames = (seconds * f64::from(rate)).round().max(0.0) as usize;
    let mut sound = vec![0.0_f32; frames];
    let mut at = 0;
    while (at as f64 * EIGHTH) < seconds {
        let pitch = 110.0 * 2f64.powf(f64::from(FIGURE[at % FIGURE.len()]) / 12.0);
        let begin = (at as f64 * EIGHTH * f64::from(rate)) as usize;
        // Rings on under the next three notes.
        let length = (4.0 * EIGHTH * f64::from(rate)) as usize;
        for (sample, plucked) in sound.iter_mut().skip(begin).zip(string(pitch, rate, length)) {
            *sample += plucked;
        }
        at += 1;
    }
    let peak = sound.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
    if peak > 0.0 {
        sound.iter_mut().for_each(|sample| *sample *= 0.8 / peak);
    }
    sound
}

/// A string after Karplus and Strong: noise that goes round a line and loses its highs.
fn string(pitch: f64, rate: u32, length: usize) -> Vec<f32> {
    let round = (f64::from(rate) / pitch).round().max(2.0) as usize;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64 ^ round as u64;
    let mut noise = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    let mut line: Vec<f32> = (0..round).map(|_| noise()).collect();
    let mut out = Vec::with_capacity(length);
    for n in 0..length {
        let (at, next) = (n % round, (n + 1) % round);
        let sample = line[at];
        line[at] = KEPT * 0.5 * (line[at] + line[next]);
        // The end of a note is no click of its own.
        let left = (length - n) as f32 / length as f32;
        out.push(sample * (left * 8.0).min(1.0));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_song_is_as_long_as_asked_loud_and_always_the_same() {
        let (once, again) = (song(1.5, 8000), song(1.5, 8000));
        assert_eq!(once.len(), 12_000);
        assert_eq!(once, again);
        let peak = once.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        assert!((peak - 0.8).abs() < 1e-4, "{peak}");
        assert!(song(0.0, 8000).is_empty());
    }

    #[test]
    fn a_string_has_its_pitch() {
        // Two rounds apart it is nearly the same, half a round apart it is not.
        let (rate, pitch) = (48_000, 240.0);
        let out = string(pitch, rate, 24_000);
        let likeness = |lag: usize| -> f32 {
            out[4000..8000].iter().zip(&out[4000 + lag..]).map(|(a, b)| a * b).sum()
        };
        assert!(likeness(200) > 0.9 * likeness(0));
        assert!(likeness(100) < 0.5 * likeness(0));
    }
}
