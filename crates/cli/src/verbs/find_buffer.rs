//! The least buffer that works.

use crate::face;
use anyhow::bail;
use quiet_engine::{Setup, Wire};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Periods that are tried, frames.
const PERIODS: [u32; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Periods in a buffer that are tried.
const COUNTS: [u32; 3] = [2, 3, 4];
/// How long each is tried: below 5400 xruns an hour with 95 % confidence, no more is claimed.
const TRIAL: Duration = Duration::from_secs(2);

/// Tries from the least buffer upwards; the first that plays without an xrun.
pub fn find(setup: &Setup, stop: &AtomicBool) -> anyhow::Result<(u32, u32)> {
    let mut tries: Vec<(u32, u32)> =
        PERIODS.iter().flat_map(|p| COUNTS.iter().map(move |n| (*p, p * n))).collect();
    tries.sort_by_key(|(period, buffer)| (*buffer, *period));
    let mut seen = Vec::new();
    for (period, buffer) in tries {
        let setup = Setup { period, buffer, ..setup.clone() };
        let opened = match quiet_engine::open(&setup) {
            Ok(opened) => opened,
            Err(error) => {
                face::say(&format!("period {period}, buffer {buffer}: {error}"));
                continue;
            }
        };
        // A card may give another one than was asked for.
        let real = (opened.period, opened.buffer);
        if seen.contains(&real) {
            continue;
        }
        seen.push(real);
        let mut engine = opened.start(Box::new(Wire))?;
        let began = Instant::now();
        while began.elapsed() < TRIAL && engine.board().xruns.load(Relaxed) == 0 {
            if face::raised(stop) {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (xruns, blocks) =
            (engine.board().xruns.load(Relaxed), engine.board().blocks.load(Relaxed));
        engine.stop()?;
        let word = if xruns > 0 { "xrun" } else { "plays" };
        face::say(&format!("period {}, buffer {}: {word}", real.0, real.1));
        if xruns == 0 && blocks > 0 {
            return Ok(real);
        }
    }
    bail!(
        "no buffer up to {} frames played for {TRIAL:?} without an xrun; see `quietcores check`",
        PERIODS[9] * COUNTS[2]
    )
}
