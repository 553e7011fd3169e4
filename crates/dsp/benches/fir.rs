//! FIRs against their peers, in turn, with the processor's peak beside them.
//!
//! `cargo bench -p quiet-dsp --bench fir -- [PASSES]`, on one CPU (`taskset -c 1`); `benches/fir.sh` builds the
//! driver of zita-convolver, runs this and keeps what it prints. `QUIET_BENCH_FIR_PEERS=NAME=PROGRAM,...` has other
//! engines run in turn (`peers` says how; FILE holds the taps): each is heard before it is timed, and one that fails
//! is a line of the table and an exit code of 1. Their worst is of whole passes, the first third included.
//!
//! A pass plays two seconds of noise through each engine in turn, block after block, each block timed by
//! itself. Passes are repeated; a block's time is its least over the passes, at the same place of the stream
//! (so that what the engine does there is the same, and what the machine did is not counted). From these, after
//! the first third of the pass: the mean, and the worst. `start us` is the worst block of that first third, which
//! begins with cold caches: each engine runs after another one.

mod peers;

use fft_convolver::FFTConvolver;
use peers::{Peer, median};
use quiet_dsp::{
    Block, ProcessSpec, Stage,
    fir::{Fir, Route},
    simd::{Denormals, SimdLevel, peak::gigaflops},
};
use quiet_types::{Frames, SampleRate};
use std::{
    fs,
    hint::black_box,
    path::{Path, PathBuf},
    process::ExitCode,
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

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let passes: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(15);
    let peers = peers::of("QUIET_BENCH_FIR_PEERS");
    let room = std::env::temp_dir().join(format!("quiet-fir-{}", std::process::id()));
    fs::create_dir_all(&room).expect("room for what the peers read");
    let mut well = true;
    let _zero = Denormals::flush();
    let clock = clock();
    println!(
        "{passes} passes of {TIMED} samples; clock {clock:.0} ns; vectors: {:?}",
        SimdLevel::here()
    );
    println!("taps\tblock\tengine\tns/sample\tworst/mean\tworst us\tstart us");
    let sound = noise(TIMED, 1);
    let silence = vec![0.0; TIMED];
    let sound_file = keep(&room, "sound.f32", &sound);
    for taps in TAPS {
        let ir: Vec<f32> = noise(taps, 2).iter().map(|x| x / taps as f32).collect();
        let ir_file = keep(&room, "ir.f32", &ir);
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
            let what = (&*ir_file, block, &*sound_file);
            let mut others: Vec<Other> =
                peers.iter().map(|peer| Other::new(peer, what, ours.last_mut(), &sound)).collect();
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
                for other in others.iter_mut().filter(|_| i < 2) {
                    other.time(what);
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
            for other in &others {
                well &= other.tell(taps, block);
            }
            let cut = ours.last().map(Fir::cut).unwrap_or_default();
            println!("# {taps}@{block}: {cut:?}; peak {peak:.0} Gflop/s");
        }
    }
    let _ = fs::remove_dir_all(&room);
    ExitCode::from(u8::from(!well))
}

/// A peer and its figures.
struct Other<'a> {
    peer: &'a Peer,
    late: Result<usize, String>,
    means: Vec<f64>,
    worst: Vec<f64>,
}

impl<'a> Other<'a> {
    /// Hears it, against what ours makes of the same.
    fn new(
        peer: &'a Peer,
        what: (&Path, usize, &Path),
        ours: Option<&mut Fir>,
        sound: &[f32],
    ) -> Other<'a> {
        let mut heard = sound.to_vec();
        if let Some(fir) = ours {
            fir.reset();
            for part in heard.chunks_mut(what.1) {
                fir.process(&mut Block::new(part, 1));
            }
        }
        let late = peer.check(what, &heard).map(|heard| heard.late);
        Other { peer, late, means: Vec::new(), worst: Vec::new() }
    }

    fn time(&mut self, what: (&Path, usize, &Path)) {
        if self.late.is_ok() {
            match self.peer.time(what, 2) {
                Ok((mean, worst)) => {
                    self.means.push(mean);
                    self.worst.push(worst);
                }
                Err(why) => self.late = Err(why),
            }
        }
    }

    /// Its line; whether there are figures.
    fn tell(&self, taps: usize, block: usize) -> bool {
        let name = &self.peer.name;
        match &self.late {
            Ok(late) => {
                let (mean, worst) = (median(&self.means), median(&self.worst));
                let late = if *late > 0 { format!("\t{late} late") } else { String::new() };
                let us = worst * block as f64 / 1e3;
                println!("{taps}\t{block}\t{name}\t{mean:.1}\t{:.2}\t{us:.2}{late}", worst / mean);
            }
            Err(why) => println!("{taps}\t{block}\t{name}\terror: {why}"),
        }
        self.late.is_ok()
    }
}

/// Numbers in a file.
fn keep(room: &Path, name: &str, numbers: &[f32]) -> PathBuf {
    let file = room.join(name);
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(&file, bytes).expect("room for what the peers read");
    file
}
