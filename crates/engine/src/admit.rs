//! Admission: how long the worst block of a strip takes, measured before it sounds.

use crate::{clock::Ticks, player::ReadyStrip};
use quiet_dsp::{Block, ProcessSpec, simd::Denormals};
use quiet_rt::Clock;
use quiet_types::{Nanos, play::Admission};
use std::time::{Duration, Instant};

/// Frames of the trial: the longest segments of an impulse response come by several times.
const FRAMES: usize = 32_768;
/// Each block counts by the shortest of so many passes: what is left is the strip's own.
const PASSES: usize = 3;
/// What does not seem to fit is tried again, so often and so long at most: a busy machine takes CPUs away for whole blocks.
const MORE_PASSES: usize = 12;
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the strip over noise and silence, on a thread of its own, and hands it back as new.
pub fn admit(mut strip: ReadyStrip, setting: ProcessSpec, clock: Ticks) -> (ReadyStrip, Admission) {
    let period = setting.block.lasting(setting.rate);
    let trial = move || {
        let _flushed = Denormals::flush();
        let block = (setting.block.0 as usize).max(1);
        let blocks = (FRAMES / block).clamp(8, 4096);
        let mut samples = vec![0.0f32; block * setting.channels];
        let mut least = vec![u64::MAX; blocks];
        let began = Instant::now();
        let worst = |least: &[u64]| Nanos(clock.nanos(least.iter().copied().max().unwrap_or(0)));
        for pass in 0..MORE_PASSES {
            let fits = worst(&least) < period;
            if pass >= PASSES && (fits || began.elapsed() >= PATIENCE) {
                break;
            }
            strip.reset();
            let mut seed = 1u32;
            for (at, least) in least.iter_mut().enumerate() {
                // Half of it noise, half silence: what fades away may be the dearer part.
                for sample in &mut samples {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let loud = if at < blocks / 2 { 0.25 } else { 0.0 };
                    *sample = (seed as i32 as f32 / i32::MAX as f32) * loud;
                }
                let before = clock.ticks();
                strip.process(&mut Block::new(&mut samples, setting.channels));
                *least = (*least).min(clock.ticks().saturating_sub(before));
            }
        }
        strip.reset();
        let sum: u64 = least.iter().sum();
        (strip, worst(&least), Nanos(clock.nanos(sum / blocks as u64)))
    };
    match std::thread::spawn(trial).join() {
        Ok((strip, worst, mean)) => (strip, Admission { worst, mean, period }),
        Err(fault) => std::panic::resume_unwind(fault),
    }
}
