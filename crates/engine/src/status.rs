//! How it goes: a reading of the board.

use crate::{Engine, LOADS, METERS, mode_name};
use quiet_types::{
    Nanos,
    machine::Policy,
    play::{Level, Load, PlayStatus},
};
use std::sync::atomic::Ordering::Relaxed;

fn decibels(peak: f32) -> f32 {
    if peak <= 1e-6 { -120.0 } else { (200.0 * peak.log10()).round() / 10.0 }
}

/// The percent that `share` of the blocks do not exceed.
fn percentile(histogram: &[u64], share: f64) -> usize {
    let all: u64 = histogram.iter().sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut so_far = 0;
    histogram
        .iter()
        .position(|n| {
            so_far += n;
            so_far >= wanted
        })
        .unwrap_or(0)
}

/// Reads it; takes the levels, so that one reader at a time sees them.
pub fn status(engine: &Engine, channels: usize) -> PlayStatus {
    let (board, placed, sizes) = (engine.board(), engine.placed(), engine.sizes());
    let word = |word: &std::sync::atomic::AtomicU64| word.load(Relaxed);
    let mut histogram: Vec<u64> = board.loads.iter().map(word).collect();
    debug_assert_eq!(histogram.len(), LOADS);
    while histogram.last() == Some(&0) {
        histogram.pop();
    }
    let blocks = word(&board.blocks);
    let period = f64::from(sizes.period) * 1e9 / f64::from(sizes.rate.0.max(1));
    let busy = word(&board.busy) as f64;
    let mean = if blocks == 0 { 0.0 } else { busy / blocks as f64 / period * 100.0 };
    PlayStatus {
        rate: sizes.rate.0,
        period: sizes.period.0,
        buffer: sizes.buffer.0,
        mode: mode_name(placed.mode).to_owned(),
        cpus: placed.allowed.to_string(),
        real_time: matches!(placed.scheduling.policy, Policy::Fifo | Policy::Rr),
        shielded: placed.shielded,
        blocks,
        xruns: word(&board.xruns),
        missed: word(&board.missed),
        dropped_events: engine.remote.dropped(),
        broken: word(&board.broken),
        cured: word(&board.cured),
        bypassed: word(&board.bypassed) != 0,
        gone: engine.gone(),
        load: Load {
            mean: (mean * 100.0).round() / 100.0,
            p50: percentile(&histogram, 0.5),
            p99: percentile(&histogram, 0.99),
            worst: Nanos(word(&board.worst)),
            worst_at: Nanos(word(&board.worst_at)),
            histogram,
        },
        between: Nanos(word(&board.between)),
        waiting: word(&board.waiting),
        levels: (0..channels.min(METERS))
            .map(|channel| {
                let (input, output) = board.take_peaks(channel);
                Level { input: decibels(input), output: decibels(output) }
            })
            .collect(),
        ratio: engine.ratio(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_first_place_that_holds_so_many() {
        assert_eq!(percentile(&[0, 50, 49, 0, 1], 0.5), 1);
        assert_eq!(percentile(&[0, 50, 49, 0, 1], 0.99), 2);
        assert_eq!(percentile(&[0, 50, 49, 0, 1], 1.0), 4);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    fn full_scale_is_zero_decibels_and_silence_the_floor() {
        assert_eq!([decibels(1.0), decibels(0.5), decibels(0.0)], [0.0, -6.0, -120.0]);
    }
}
