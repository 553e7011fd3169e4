//! The least buffer that works.

use crate::{Error, ErrorKind, Notice, Observer, Result, raised};
use quiet_engine::{Setup, Wire};
use quiet_types::Frames;
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

/// Tries from the least buffer upwards, 2 s each; the first that plays without an xrun: frames a period, frames in the
/// ring.
///
/// # Errors
/// When none does, the engine fails, or `stop` is raised.
pub fn least_buffer(
    setup: &Setup,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<(Frames, Frames)> {
    let mut tries: Vec<(Frames, Frames)> = PERIODS
        .iter()
        .flat_map(|p| COUNTS.iter().map(move |n| (Frames(*p), Frames(p * n))))
        .collect();
    tries.sort_by_key(|(period, buffer)| (*buffer, *period));
    let mut seen = Vec::new();
    for (period, buffer) in tries {
        let setup = Setup { period, buffer, ..setup.clone() };
        let opened = match quiet_engine::open(&setup) {
            Ok(opened) => opened,
            Err(error) => {
                let why = error.to_string();
                observer.event(Notice::Buffer { period, buffer, plays: Err(&why) });
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
            if raised(stop) {
                return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (xruns, blocks) =
            (engine.board().xruns.load(Relaxed), engine.board().blocks.load(Relaxed));
        engine.stop()?;
        observer.event(Notice::Buffer { period: real.0, buffer: real.1, plays: Ok(xruns == 0) });
        if xruns == 0 && blocks > 0 {
            return Ok(real);
        }
    }
    let why = format!(
        "no buffer up to {} frames played for {TRIAL:?} without an xrun; see `quietcores check`",
        PERIODS[9] * COUNTS[2]
    );
    Err(Error::new(ErrorKind::Measuring, why))
}
