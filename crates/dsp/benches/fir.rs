//! FIRs against their peers, in turn, with the processor's peak beside them.
//!
//! `cargo bench -p quiet-dsp --bench fir -- [PASSES [PEER]]`, on one CPU (`taskset -c 1`); `benches/fir.sh` builds the
//! driver of zita-convolver (PEER), runs this and keeps what it prints.
//!
//! A pass plays two seconds of noise through each engine in turn, block after block, each block timed by
//! itself. Passes are repeated; a block's time is its least over the passes, at the same place of the stream
//! (so that what the engine does there is the same, and what the machine did is not counted). From these, after
//! the first third of the pass: the mean, and the worst. `start us` is the worst block of that first third, which
//! begins with cold caches: each engine runs after another one.

use fft_convolver::FFTConvolver;
use quiet_dsp::{
    Block, ProcessSpec, Stage,
    fir::{Fir, Route},
    simd::{Denormals, SimdLevel, peak::gigaflops},
};
use quiet_types::{Frames, SampleRate};
use std::{
    hint::black_box,
    process::Command,
    time::{Duration, Instant},
};

const TAPS: [usize; 4] = [1024, 8192, 65_536, 262_144];
const BLOCKS: [usize; 2] = [16, 64];
/// Samples of a pass that are timed.
const TIMED: usize = 98_304;

fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed.into());
    (0..len).map(|_| 2.0 * random.f32() - 1.0).collect()
}

/// The least time of each block, in nanoseconds.
struct Least(Vec<f64>);

impl Least {
    fn new(blocks: usize) -> Least {
        Least(vec![f64::INFINITY; blocks])
    }

    /// ns a sample; the worst block over the mean one; the worst block in us, and that of the start.
    fn figures(&self, block: usize) -> (f64, f64, f64, f64) {
        let (start, steady) = self.0.split_at(self.0.len() / 3);
        let mean = steady.iter().sum::<f64>() / steady.len() as f64;
        let worst = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        (mean / block as f64, worst(steady) / mean, worst(steady) / 1e3, worst(start) / 1e3)
    }
}

/// Times each block of a pass, less what reading the clock costs.
fn pass(
    least: &mut Least,
    block: usize,
    sound: &[f32],
    clock: f64,
    mut play: impl FnMut(&mut [f32]),
) {
    let mut samples = vec![0.0; block];
    for (least, x) in least.0.iter_mut().zip(sound.chunks_exact(block)) {
        samples.copy_from_slice(x);
        let begin = Instant::now();
        play(black_box(&mut samples));
        let took = begin.elapsed().as_secs_f64() * 1e9 - clock;
        *least = least.min(took);
    }
}

fn clock() -> f64 {
    let mut least = Duration::MAX;
    for _ in 0..10_000 {
        let begin = Instant::now();
        least = least.min(begin.elapsed());
    }
    least.as_secs_f64() * 1e9
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let passes: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(15);
    let peer = words.next();
    let _zero = Denormals::flush();
    let clock = clock();
    println!(
        "{passes} passes of {TIMED} samples; clock {clock:.0} ns; vectors: {:?}",
        SimdLevel::here()
    );
    println!("taps\tblock\tengine\tns/sample\tworst/mean\tworst us\tstart us");
    let sound = noise(TIMED, 1);
    let silence = vec![0.0; TIMED];
    for taps in TAPS {
        let ir: Vec<f32> = noise(taps, 2).iter().map(|x| x / taps as f32).collect();
        for block in BLOCKS {
            let setting =
                ProcessSpec { rate: SampleRate(48_000), channels: 1, block: Frames(block as u32) };
            let levels: Vec<SimdLevel> =
                SimdLevel::all().filter(|&level| level > SimdLevel::Plain).collect();
            let mut ours: Vec<Fir> = levels
                .iter()
                .map(|&level| Fir::prepare_for(level, &setting, &Route::each(1, &ir)))
                .collect::<Result<_, _>>()
                .expect("a plain IR");
            let mut theirs = FFTConvolver::<f32>::default();
            theirs.init(block, &ir).expect("a plain IR");
            let mut least: Vec<Least> = levels.iter().map(|_| Least::new(TIMED / block)).collect();
            let mut silent = Least::new(TIMED / block);
            let mut other = Least::new(TIMED / block);
            let mut zita = f64::INFINITY;
            let mut zita_worst = Vec::new();
            let mut peak = 0f64;
            for i in 0..passes {
                peak = peak.max(gigaflops(SimdLevel::here()));
                for (fir, least) in ours.iter_mut().zip(&mut least) {
                    fir.reset();
                    pass(least, block, &sound, clock, |x| fir.process(&mut Block::new(x, 1)));
                }
                if let Some(fir) = ours.last_mut() {
                    fir.reset();
                    pass(&mut silent, block, &silence, clock, |x| {
                        fir.process(&mut Block::new(x, 1));
                    });
                }
                // The uniform one is slow at long IRs: fewer passes.
                if i < 2 || taps * 4 / block <= 8192 {
                    let mut out = vec![0.0; block];
                    pass(&mut other, block, &sound, clock, |x| {
                        theirs.process(x, &mut out).expect("a block of the set size");
                        black_box(&mut out);
                    });
                }
                if let Some(peer) = peer.as_ref().filter(|_| i < 2) {
                    let (mean, worst) = zita_pass(peer, taps, block);
                    zita = zita.min(mean);
                    zita_worst.push(worst);
                }
            }
            let print = |name: &str, least: &Least| {
                let (mean, ratio, worst, start) = least.figures(block);
                println!("{taps}\t{block}\t{name}\t{mean:.1}\t{ratio:.2}\t{worst:.2}\t{start:.2}");
            };
            for (level, least) in levels.iter().zip(&least) {
                print(&format!("quietcores {level:?}"), least);
            }
            print("quietcores, silence", &silent);
            print("fft-convolver", &other);
            if peer.is_some() {
                let worst = zita_worst.iter().copied().fold(f64::INFINITY, f64::min);
                let ratio = worst / (zita * block as f64);
                println!(
                    "{taps}\t{block}\tzita-convolver\t{zita:.1}\t{ratio:.2}\t{:.2}",
                    worst / 1e3
                );
            }
            let cut = ours.last().map(Fir::cut).unwrap_or_default();
            println!("# {taps}@{block}: {cut:?}; peak {peak:.0} Gflop/s");
        }
    }
}

/// The mean and the worst block, in ns; all its threads on this CPU.
fn zita_pass(peer: &str, taps: usize, block: usize) -> (f64, f64) {
    let out = Command::new(peer)
        .args([taps.to_string(), block.to_string(), TIMED.to_string()])
        .output()
        .expect("the driver starts");
    let text = String::from_utf8_lossy(&out.stdout);
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(f64::NAN));
    (numbers.next().unwrap_or(f64::NAN), numbers.next().unwrap_or(f64::NAN))
}
