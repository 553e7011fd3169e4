//! Values that tests are made of: single ones, and many with a scatter.

use crate::{Way, budget, example, stats::Random};
use quiet_types::{
    Histogram, Nanos, Run,
    buffers::{Combination, CpuSetting, Trial},
    head::Head,
    history::Line,
    trip::{self, Heard, Opening, RoundTrip, Spread},
};

/// A round trip of so many frames at 96 kHz, heard without a doubt.
pub fn heard(frames: f64) -> Heard {
    Heard {
        frames,
        uncertainty: 0.001,
        milliseconds: frames / 96.0,
        sweep_before: frames,
        sweep_after: frames,
        inverted: false,
        drift_ppm: 0.0,
        drift_uncertainty: 0.01,
        gain_db: -3.0,
        snr_db: 60.0,
        doubt: 0.01,
        clipped: 0,
    }
}

/// A round trip of these openings, in periods of 16 frames. The device has an escape in its name.
pub fn round_trip(cycles: Vec<Opening>) -> RoundTrip {
    let spread = Spread::of(cycles.iter().filter_map(|c| c.heard).map(|h| h.frames));
    let way = Way {
        rate: 96_000,
        period: 16,
        buffer: 32.0,
        converters: true,
        bus: Some(("USB high speed".into(), Some(0.125))),
        ..Way::default()
    };
    RoundTrip {
        head: Head { schema: trip::SCHEMA.into(), id: "x".into(), ..Head::default() },
        device: "alsa: \x1b[2J hw:USB".into(),
        rate: 96_000,
        period: 16,
        buffer: 32,
        mode: "sleep".into(),
        cpus: "0-1".into(),
        real_time: true,
        shielded: false,
        budget: budget(&way, spread.map(|s| s.median)),
        spread,
        cycles,
        findings: Vec::new(),
    }
}

/// A device opened once, and heard.
pub fn opening(frames: f64) -> Opening {
    Opening { heard: Some(heard(frames)), wrong: String::new(), disturbed: 0 }
}

/// Runs around `center` ns, one every `step` seconds from `first`.
pub fn runs(seed: u64, count: usize, center: f64, first: u32, step: u32) -> Vec<Run> {
    runs_of(seed, count, center, first, step, 20_000)
}

/// As [`runs`], of so many readings each.
pub fn runs_of(
    seed: u64,
    count: usize,
    center: f64,
    first: u32,
    step: u32,
    readings: u64,
) -> Vec<Run> {
    let mut random = Random::new(seed);
    let example = example::run();
    (0..count)
        .map(|at| {
            let mut run = example.clone();
            let second = first + at as u32 * step;
            run.id = format!("r{second:04}");
            run.started = Some(format!("2026-11-21T21:{:02}:{:02}.000Z", second / 60, second % 60));
            let level = center * (0.7 + 0.6 * random.unit());
            let all = Histogram::of(
                (0..readings).map(|_| Nanos((level * (1.0 - random.unit()).powf(-0.25)) as u64)),
            );
            let thread = &mut run.threads[0];
            (thread.expected, thread.obtained, thread.missed) = (Some(readings), readings, Some(0));
            thread.corrected = Some(all.clone());
            thread.readings = all;
            run
        })
        .collect()
}

/// Runs in a history: of each kernel so many, with a p99.9 around so many ns.
pub fn lines(kernels: &[(&str, usize, f64)]) -> Vec<Line> {
    let mut random = Random::new(9);
    let mut all = Vec::new();
    for (kernel, count, level) in kernels {
        for _ in 0..*count {
            let at = all.len();
            let mut draw = |level: f64| Some(Nanos((level * (0.85 + 0.3 * random.unit())) as u64));
            all.push(Line {
                id: format!("run-{at:04}"),
                started: Some(format!("2026-11-21T{:02}:{:02}:00.000Z", at / 60, at % 60)),
                host: "box".into(),
                kernel: (*kernel).into(),
                probe: "wakeup".into(),
                policy: Some("fifo 90".into()),
                cpus: "1".into(),
                stress: Some("none".into()),
                tool: "quietcores".into(),
                readings: 10_000,
                p50: draw(8e3),
                p99: draw(30e3),
                p99_9: draw(*level),
                ..Line::default()
            });
        }
    }
    all
}

/// A trial of so many seconds; of its xruns three quarters of the time were late ones.
pub fn trial(seconds: u64, xruns: u64) -> Trial {
    Trial {
        lasted: Nanos::from_secs(seconds),
        expected: 1000 * seconds,
        obtained: 1000 * seconds - 2 * xruns,
        missed: 2 * xruns,
        xruns,
        late: Nanos(xruns * 3_000),
        slow: Nanos(xruns * 1_000),
        ..Trial::default()
    }
}

/// Trials of one combination on shared CPUs.
pub fn combination(size: (u32, u32), mode: &str, stress: &str, trials: Vec<Trial>) -> Combination {
    Combination {
        period: size.0,
        buffer: size.1,
        mode: mode.into(),
        setting: CpuSetting::Shared,
        stress: stress.into(),
        refused: String::new(),
        trials,
    }
}
