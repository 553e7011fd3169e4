//! Another `quietcores play`, which plays on through all blocks: its counters, asked for at its control socket.

use crate::{Because, Error, ErrorKind, Result};
use quiet_types::{play::PlayStatus, tune::TuneValue};
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// An answer is a line of up to 64 KiB.
const LONGEST: u64 = 64 << 10;
/// Who does not answer by then is not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// The counters so far.
pub(super) fn counters(socket: &Path) -> Result<PlayStatus> {
    let shown = quiet_types::printable(&socket.display().to_string(), 200);
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(b"{\"do\":\"stats\"}\n")?;
        let mut line = Vec::new();
        BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line)?;
        Ok(line)
    };
    let line = ask().because(ErrorKind::Measuring, || {
        format!("cannot ask the player at {shown}; start one with `quietcores play`, or name its socket by --player")
    })?;
    serde_json::from_slice(&line).because(ErrorKind::Measuring, || {
        format!("cannot understand what the player at {shown} said")
    })
}

/// Figures of what it played between two readings: the share of periods that were lost, and the share of a period that 99 of 100 blocks
/// did not exceed; or why there are none.
pub(super) fn between(
    before: &PlayStatus,
    after: &PlayStatus,
) -> std::result::Result<[TuneValue; 2], String> {
    let blocks = after.blocks.checked_sub(before.blocks).filter(|blocks| *blocks > 0);
    let Some(blocks) = blocks else {
        return Err("the player played nothing in it, or was started anew".to_owned());
    };
    let lost =
        after.missed.saturating_sub(before.missed).max(after.xruns.saturating_sub(before.xruns));
    let all = (blocks + lost) as f64;
    let counts: Vec<u64> = after
        .load
        .histogram
        .iter()
        .enumerate()
        .map(|(at, count)| {
            count.saturating_sub(before.load.histogram.get(at).copied().unwrap_or(0))
        })
        .collect();
    let sum: u64 = counts.iter().sum();
    let mut seen = 0;
    let percent = counts.iter().position(|count| {
        seen += count;
        seen as f64 >= sum as f64 * 0.99
    });
    Ok([
        TuneValue { value: lost as f64 / all, half: 0.5 / all },
        TuneValue { value: percent.unwrap_or(0) as f64 / 100.0, half: 0.005 },
    ])
}

/// Whether one plays there.
pub(super) fn check(socket: &Path) -> Result<()> {
    let playing = counters(socket)?;
    if playing.blocks == 0 {
        return Err(Error::asked("the player has played no block yet"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiet_types::{Nanos, play::Load};

    fn status(blocks: u64, xruns: u64, histogram: &[u64]) -> PlayStatus {
        PlayStatus {
            rate: 48_000,
            period: 64,
            buffer: 128,
            mode: "sleep".into(),
            cpus: "1".into(),
            real_time: true,
            shielded: false,
            blocks,
            xruns,
            missed: 0,
            dropped_events: 0,
            broken: 0,
            cured: 0,
            bypassed: false,
            gone: 0,
            load: Load {
                mean: 0.0,
                p50: 0,
                p99: 0,
                worst: Nanos::ZERO,
                worst_at: Nanos::ZERO,
                histogram: histogram.to_vec(),
            },
            between: Nanos::ZERO,
            waiting: 0,
            levels: Vec::new(),
            ratio: None,
        }
    }

    #[test]
    fn only_what_came_between_two_readings_counts() {
        let before = status(1000, 7, &[500, 500]);
        let [lost, load] = between(&before, &status(1998, 9, &[500, 1400, 90, 8])).unwrap();
        assert!((lost.value - 0.002).abs() < 1e-12 && (lost.half - 5e-4).abs() < 1e-12);
        // 900 + 90 of 998 blocks are 99 %.
        assert!((load.value - 0.02).abs() < 1e-12);
        // A player that was started anew in between says nothing.
        assert!(between(&before, &status(12, 0, &[12])).is_err());
        assert!(between(&before, &before).is_err());
    }
}
