//! What a strip costs here: a frame, a block, each stage, cold, and the smallest period.

use crate::{Error, Result, render::Description};
use quiet_dsp::{
    Block, Stage,
    simd::{Denormals, SimdLevel, peak},
    strip::{Edge, FileSource, Strip},
};
use quiet_types::{
    Finding, Frames, Nanos, SampleRate, Severity,
    bench::{Bench, BlockCost, Carried, SCHEMA, StageCost},
};
use std::{hint::black_box, time::Instant};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct BenchSpec {
    /// Frames a second.
    pub rate: SampleRate,
    /// Frames a block.
    pub block: Frames,
    /// Channels that come in.
    pub channels: usize,
    /// How long to measure, about.
    pub length: Nanos,
    /// The share of a period that the worst block may use.
    pub margin: f64,
}

/// Frames of the sound: the longest segments of an impulse response come by several times.
const FRAMES: usize = 65_536;
/// Periods that are tried.
const PERIODS: [u32; 9] = [8, 16, 32, 48, 64, 128, 256, 512, 1024];
/// Rounds of multiply-adds in one reading of the peak: some 0.2 ms.
const ROUNDS: u32 = 20_000;
/// More than any cache holds here.
const FLUSH: usize = 64 << 20;

/// Measures `strip`; `step` hears how much of it is done, 0 to 1.
///
/// # Errors
/// If the strip cannot be prepared.
pub fn bench(
    strip: &Description,
    loader: &mut dyn FileSource,
    wanted: &BenchSpec,
    step: &mut dyn FnMut(f64),
) -> Result<Bench> {
    let mut prepare = |block: Frames| {
        strip.prepare(wanted.channels, wanted.rate, block, loader).map_err(Error::strip)
    };
    let level = SimdLevel::here();
    let mut playing = prepare(wanted.block)?;
    let block = (wanted.block.0 as usize).max(1);
    let period = Frames(block as u32).lasting(wanted.rate);
    let mut findings: Vec<Finding> = Vec::new();
    for note in playing.notes() {
        findings.push(Finding::new(Severity::Note, "bench.file", note.clone()));
    }

    let mut trial = Trial::new(&playing, block);
    let mut peaks = Vec::new();
    let begun = Instant::now();
    let (mut passes, long) = (0u32, std::time::Duration::from_nanos(wanted.length.0));
    while passes < 8 || begun.elapsed() < long {
        peaks.push(peak_rate(level));
        // Stages are watched in passes of their own: reading the clock costs, too.
        if passes % 2 == 1 {
            trial.watched(&mut playing);
        } else {
            trial.pass(&mut playing);
        }
        passes += 1;
        step(0.7 * (begun.elapsed().as_secs_f64() / long.as_secs_f64().max(1e-9)).min(1.0));
    }
    let cold = trial.cold(&mut playing);
    step(0.8);
    peaks.push(peak_rate(level));
    let fma_peak = peaks.iter().copied().fold(0.0, f64::max);
    let clock_kept = kept(&peaks);
    findings.extend(throttled(clock_kept));

    let whole = trial.whole(period, block);
    if whole.longest.0 > 2 * whole.worst.0.max(1) {
        let title = format!(
            "the longest block took {}, the strip's own worst one {}: the machine came between",
            whole.longest, whole.worst
        );
        findings.push(
            Finding::new(Severity::Note, "bench.disturbed", title)
                .remedy("play on a shielded CPU; `quietcores explain` names who came between"),
        );
    }
    let stages = trial.stages(&playing, block, fma_peak);
    let smallest = smallest(&mut prepare, wanted, step)?;
    if smallest.is_none() {
        let title = "no period up to 1024 frames is long enough for this strip here";
        findings.push(
            Finding::new(Severity::Problem, "bench.too-slow", title)
                .remedy("choose a smaller amp or a shorter impulse response"),
        );
    }
    step(1.0);
    Ok(Bench {
        schema: SCHEMA.to_owned(),
        rate: wanted.rate.0,
        block: block as u32,
        channels: [playing.inputs() as u32, playing.outputs() as u32],
        latency: playing.latency().0,
        period,
        simd: match level {
            SimdLevel::Plain => "plain",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
        }
        .to_owned(),
        whole,
        stages,
        cold,
        clock_mhz: clock_mhz(),
        clock_kept,
        fma_peak,
        smallest,
        margin: wanted.margin,
        findings,
    })
}

/// How much of the multiply-add rate of the first third was left in the last.
fn kept(peaks: &[f64]) -> f64 {
    let third = (peaks.len() / 3).max(1);
    let most = |list: &[f64]| list.iter().copied().fold(0.0, f64::max);
    most(&peaks[peaks.len() - third..]) / most(&peaks[..third]).max(1e-9)
}

fn throttled(clock_kept: f64) -> Option<Finding> {
    (clock_kept < 0.93).then(|| {
        let title = format!(
            "the multiply-add rate fell to {:.0} % while measuring: the clock was throttled, or \
             somebody else ran here",
            100.0 * clock_kept
        );
        Finding::new(Severity::Warning, "bench.throttled", title)
            .remedy("fix the clock and let the machine rest; then measure again")
    })
}

/// The shortest period in which the strip is done in time.
fn smallest(
    prepare: &mut dyn FnMut(Frames) -> Result<Strip>,
    wanted: &BenchSpec,
    step: &mut dyn FnMut(f64),
) -> Result<Option<Carried>> {
    for (at, frames) in PERIODS.iter().enumerate() {
        step(0.8 + 0.2 * at as f64 / PERIODS.len() as f64);
        let mut strip = prepare(Frames(*frames))?;
        let mut trial = Trial::new(&strip, *frames as usize);
        for _ in 0..3 {
            trial.pass(&mut strip);
        }
        let length = Frames(*frames).lasting(wanted.rate);
        let worst = trial.worst();
        if worst.0 as f64 <= wanted.margin * length.0 as f64 {
            return Ok(Some(Carried { frames: *frames, length, worst }));
        }
    }
    Ok(None)
}

/// Thousands of millions of multiply-adds a second, now.
fn peak_rate(level: SimdLevel) -> f64 {
    let before = Instant::now();
    let (sum, count) = peak::multiply_adds(level, black_box(ROUNDS));
    let taken = before.elapsed().as_nanos() as f64;
    black_box(sum);
    count as f64 / taken.max(1.0)
}

/// As the kernel says; many virtual machines do not know.
fn clock_mhz() -> Option<f64> {
    let text =
        std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").ok()?;
    text.trim().parse::<f64>().ok().map(|khz| khz / 1000.0)
}

/// A sound, and how long its blocks took.
struct Trial {
    sound: Vec<f32>,
    work: Vec<f32>,
    frames: usize,
    blocks: usize,
    width: usize,
    /// The shortest of each block, ns.
    least: Vec<u64>,
    longest: u64,
    /// The shortest of each block of each stage, stage after stage.
    stages: Vec<u64>,
    /// What two readings of the clock take.
    clock: u64,
}

impl Trial {
    fn new(strip: &Strip, frames: usize) -> Trial {
        let width = strip.width();
        let blocks = (FRAMES / frames).max(16);
        let mut seed = 1u32;
        // Half of it noise, half silence: what fades away may be the dearer part.
        let sound = (0..blocks * frames)
            .map(|n| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let loud = if n < blocks * frames / 2 { 0.25 } else { 0.0 };
                seed as i32 as f32 / i32::MAX as f32 * loud
            })
            .collect();
        let clock = (0..1000)
            .map(|_| {
                let before = Instant::now();
                before.elapsed().as_nanos() as u64
            })
            .min()
            .unwrap_or(0);
        let stages = strip.stages().count();
        Trial {
            sound,
            work: vec![0.0; width * frames],
            frames,
            blocks,
            width,
            least: vec![u64::MAX; blocks],
            longest: 0,
            stages: vec![u64::MAX; blocks * stages],
            clock,
        }
    }

    fn load(&mut self, block: usize) {
        let part = &self.sound[block * self.frames..][..self.frames];
        self.work.chunks_exact_mut(self.frames).for_each(|channel| channel.copy_from_slice(part));
    }

    fn pass(&mut self, strip: &mut Strip) {
        let _flushed = Denormals::flush();
        strip.reset();
        for at in 0..self.blocks {
            self.load(at);
            let before = Instant::now();
            strip.process(&mut Block::new(&mut self.work, self.width));
            let taken = (before.elapsed().as_nanos() as u64).saturating_sub(self.clock);
            self.least[at] = self.least[at].min(taken);
            self.longest = self.longest.max(taken);
        }
    }

    fn watched(&mut self, strip: &mut Strip) {
        let _flushed = Denormals::flush();
        strip.reset();
        for at in 0..self.blocks {
            self.load(at);
            let mut begun = Instant::now();
            let (stages, blocks, clock) = (&mut self.stages, self.blocks, self.clock);
            strip.process_watched(&mut Block::new(&mut self.work, self.width), &mut |edge| {
                match edge {
                    Edge::Begin(_) => begun = Instant::now(),
                    Edge::End(stage) => {
                        let taken = (begun.elapsed().as_nanos() as u64).saturating_sub(clock);
                        let least = &mut stages[stage * blocks + at];
                        *least = (*least).min(taken);
                    }
                }
            });
        }
    }

    /// The mean block of some, each after the caches were filled with something else.
    fn cold(&mut self, strip: &mut Strip) -> Nanos {
        let _flushed = Denormals::flush();
        let mut other = vec![1u8; FLUSH];
        let rounds = 24;
        let mut sum = 0;
        strip.reset();
        for at in 0..rounds {
            self.load(at % self.blocks);
            other.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&other);
            let before = Instant::now();
            strip.process(&mut Block::new(&mut self.work, self.width));
            sum += (before.elapsed().as_nanos() as u64).saturating_sub(self.clock);
        }
        Nanos(sum / rounds as u64)
    }

    fn worst(&self) -> Nanos {
        Nanos(self.least.iter().copied().max().unwrap_or(0))
    }

    fn whole(&self, period: Nanos, frames: usize) -> BlockCost {
        let mean = self.least.iter().sum::<u64>() as f64 / self.blocks as f64;
        let of_period = |ns: f64| 100.0 * ns / period.0.max(1) as f64;
        let worst = self.worst();
        BlockCost {
            ns_per_frame: mean / frames as f64,
            mean: Nanos(mean.round() as u64),
            worst,
            longest: Nanos(self.longest),
            load: of_period(mean),
            worst_load: of_period(worst.0 as f64),
        }
    }

    fn stages(&self, strip: &Strip, frames: usize, fma_peak: f64) -> Vec<StageCost> {
        let own = self.stages.chunks_exact(self.blocks);
        strip
            .stages()
            .zip(own)
            .map(|(stage, times)| {
                let sum = times.iter().sum::<u64>() as f64;
                let ns = sum / (self.blocks * frames) as f64;
                let worst = Nanos(times.iter().copied().max().unwrap_or(0));
                StageCost {
                    name: stage.name.to_owned(),
                    kind: stage.kind.to_owned(),
                    ns_per_frame: ns,
                    worst,
                    multiply_adds: stage.multiply_adds,
                    of_peak: stage
                        .multiply_adds
                        .map(|count| 100.0 * count / (ns.max(1e-9) * fma_peak)),
                }
            })
            .collect()
    }
}
