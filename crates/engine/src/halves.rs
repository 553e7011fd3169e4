//! One strip on two CPUs: its front half in the thread that plays, its back half in a second one, a block later.
//!
//! Blocks cross by value through wait-free rings, in buffers that go round; nobody sleeps for the other, and nothing is
//! allocated or freed. What the front makes of a block, the back has for as long as the next block takes to come: so the
//! output is later by one period, whatever the lengths of the blocks are.

use crate::{Error, ErrorKind, ReadyStrip, Result, clock::Ticks, playing::fault};
use quiet_dsp::{
    Block, ProcessSpec, Stage,
    simd::Denormals,
    strip::{Edge, Half, Halves, Strip},
};
use quiet_rt::Clock;
use quiet_types::{Frames, Nanos};
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Blocks that may be with the second thread: one in work, and more where it is late.
const BLOCKS: usize = 4;
/// Orders for a back half that may wait: the blocks, and changes of parameters between them.
const ORDERS: usize = 512;
/// Strips that the second thread serves at a time.
const STRIPS: usize = 32;
/// After so long without an answer nobody waits for the second thread any more, until it has caught up: its half is
/// silent meanwhile. Longer than any delay in which a card's own xruns say what was lost.
const PATIENCE: Nanos = Nanos::from_millis(250);
/// Frames, and passes over them, of the measurement that finds where to cut.
const TRIAL: (usize, usize) = (8192, 3);
/// Looks that find nothing before a thread that may sleep does so.
const LOOKS: u32 = 2000;

/// What a back half is told, in order.
enum Order {
    Block { number: u64, frames: usize, samples: Box<[f32]> },
    Set { param: usize, value: f32 },
    Reset,
}

/// What a back half made of a block.
struct Made {
    number: u64,
    samples: Box<[f32]>,
}

/// A back half where it sounds.
struct BackHalf {
    strip: ReadyStrip,
    width: usize,
    orders: Consumer<Order>,
    made: Producer<Made>,
    fault: Arc<OnceLock<String>>,
}

impl BackHalf {
    /// Carries out an order, if there is one.
    fn turn(&mut self) -> bool {
        match self.orders.pop() {
            Ok(Order::Block { number, frames, mut samples }) => {
                let block = &mut samples[..self.width * frames];
                let strip = &mut self.strip;
                let width = self.width;
                let work = || strip.process(&mut Block::new(block, width));
                // A fault of a stage shall not end the other strips of this thread.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                    let _ = self.fault.set(fault(&*panic).to_string());
                }
                // There is room for all buffers that go round.
                let _ = self.made.push(Made { number, samples });
                true
            }
            Ok(Order::Set { param, value }) => {
                self.strip.set(param, value);
                true
            }
            Ok(Order::Reset) => {
                self.strip.reset();
                true
            }
            Err(_) => false,
        }
    }

    /// Nobody plays the front half any more.
    fn alone(&self) -> bool {
        self.orders.is_abandoned() && self.orders.is_empty()
    }
}

/// Cuts strips in two and hands back halves to the second thread; away from the real-time side.
#[derive(Clone)]
pub struct Cutter(Arc<Mutex<Gate>>);

struct Gate {
    joining: Producer<BackHalf>,
    leaving: Consumer<BackHalf>,
    clock: Ticks,
    patient: bool,
    lost: Arc<AtomicU64>,
}

/// The second thread's side.
pub struct SecondSide {
    joining: Consumer<BackHalf>,
    leaving: Producer<BackHalf>,
    halves: Vec<BackHalf>,
}

impl std::fmt::Debug for Cutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cutter").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SecondSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecondSide").finish_non_exhaustive()
    }
}

/// Both sides. Who is `patient` waits for the second thread however long it takes, as one that renders files does.
pub fn two_cpus(clock: Ticks, patient: bool) -> (Cutter, SecondSide) {
    let (joining, joins) = RingBuffer::new(STRIPS);
    let (leaves, leaving) = RingBuffer::new(STRIPS);
    let gate = Gate { joining, leaving, clock, patient, lost: Arc::default() };
    let bench = SecondSide { joining: joins, leaving: leaves, halves: Vec::with_capacity(STRIPS) };
    (Cutter(Arc::new(Mutex::new(gate))), bench)
}

/// A strip that was cut.
pub struct CutStrip {
    /// Plays on both CPUs.
    pub strip: ReadyStrip,
    /// How late it is: one period more than in one.
    pub latency: Frames,
    /// The worst block of each half, as it was measured.
    pub worst: [Nanos; 2],
    /// Stages in the front half.
    pub front: usize,
}

impl std::fmt::Debug for CutStrip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CutStrip").field("worst", &self.worst).finish_non_exhaustive()
    }
}

impl CutStrip {
    /// What to know about it, in one sentence.
    pub fn note(&self, stages: usize, setting: ProcessSpec) -> String {
        let [front, back] = self.worst;
        format!(
            "on two CPUs: {} of {stages} stages in front ({front}), the others behind them ({back}); {} frames ({}) later \
             than on one",
            self.front,
            setting.block,
            setting.block.lasting(setting.rate)
        )
    }
}

impl Cutter {
    /// Blocks whose back half was silent because the second thread was too late.
    pub fn lost(&self) -> u64 {
        self.gate().lost.load(Relaxed)
    }

    fn gate(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts a strip where its halves are the most alike.
    ///
    /// # Errors
    /// When it has one stage alone, or the second thread serves too many strips.
    pub fn cut(&self, strip: Strip, setting: ProcessSpec) -> Result<CutStrip> {
        let (strip, best) = best_seam(strip, setting, self.gate().clock);
        let Some((seam, worst)) = best else {
            let why = "the strip has no two stages in a row, so it cannot be cut for two CPUs: play it with --cores 1";
            return Err(Error::of(ErrorKind::Asked, why));
        };
        let latency = Frames(strip.latency().0 + setting.block.0);
        let width = strip.width();
        let Halves { front, back, params } = strip.cut(seam);
        let params = params.into_iter().map(|(p, half, n)| (half, n, p.low, p.high)).collect();
        let halves = (Box::new(front) as ReadyStrip, Box::new(back) as ReadyStrip);
        let own = ProcessSpec { channels: width, ..setting };
        let strip = self.join(halves, params, own, latency)?;
        Ok(CutStrip { strip, latency, worst, front: seam.stages })
    }

    /// A strip of two halves, of which the second thread plays the second one.
    pub(crate) fn join(
        &self,
        halves: (ReadyStrip, ReadyStrip),
        params: Vec<(Half, usize, f32, f32)>,
        setting: ProcessSpec,
        latency: Frames,
    ) -> Result<ReadyStrip> {
        let (width, period) = (setting.channels, setting.block.0 as usize);
        let (orders, orders_out) = RingBuffer::new(ORDERS);
        let (made, made_out) = RingBuffer::new(BLOCKS);
        let fault = Arc::new(OnceLock::new());
        let back =
            BackHalf { strip: halves.1, width, orders: orders_out, made, fault: fault.clone() };
        let mut gate = self.gate();
        while gate.leaving.pop().is_ok() {}
        let clock = gate.clock;
        let patience = if gate.patient { None } else { Some(PATIENCE) };
        let lost = gate.lost.clone();
        gate.joining.push(back).map_err(|_| {
            let why = "the second CPU serves too many strips: wait until those that were swapped out are gone";
            Error::of(ErrorKind::Asked, why)
        })?;
        drop(gate);
        let room = || vec![0.0; width * period].into_boxed_slice();
        let mut front = FrontHalf {
            strip: halves.0,
            params,
            period,
            latency,
            orders,
            made: made_out,
            free: (0..BLOCKS).map(|_| room()).collect(),
            number: 0,
            out: None,
            waiting: (0..width).map(|_| VecDeque::with_capacity(3 * period)).collect(),
            clock,
            patience,
            given_up: false,
            lost,
            fault,
        };
        front.begin();
        Ok(Box::new(front))
    }
}

/// Measures each stage's worst block and finds the seam that leaves the dearer half the cheapest.
fn best_seam(
    mut strip: Strip,
    setting: ProcessSpec,
    clock: Ticks,
) -> (Strip, Option<(quiet_dsp::strip::Seam, [Nanos; 2])>) {
    let seams = strip.seams();
    if seams.is_empty() {
        return (strip, None);
    }
    let _flushed = Denormals::flush();
    let (width, block) = (strip.width(), (setting.block.0 as usize).max(1));
    let blocks = (TRIAL.0 / block).clamp(8, 1024);
    let stages = strip.stages().count();
    let mut work = vec![0.0f32; width * block];
    let mut least = vec![u64::MAX; stages * blocks];
    for _ in 0..TRIAL.1 {
        strip.reset();
        let mut seed = 1u32;
        for at in 0..blocks {
            for sample in &mut work {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *sample = seed as i32 as f32 / i32::MAX as f32 * 0.25;
            }
            let mut begun = 0;
            strip.process_watched(&mut Block::new(&mut work, width), &mut |edge| match edge {
                Edge::Begin(_) => begun = clock.ticks(),
                Edge::End(stage) => {
                    let least = &mut least[stage * blocks + at];
                    *least = (*least).min(clock.ticks().saturating_sub(begun));
                }
            });
        }
    }
    strip.reset();
    let worst = |stages: std::ops::Range<usize>| {
        let block = |at| stages.clone().map(|stage| least[stage * blocks + at]).sum::<u64>();
        Nanos(clock.nanos((0..blocks).map(block).max().unwrap_or(0)))
    };
    let best = seams
        .into_iter()
        .map(|seam| (seam, [worst(0..seam.stages), worst(seam.stages..stages)]))
        .min_by_key(|(_, [front, back])| (*front).max(*back));
    (strip, best)
}

/// The front half, which stands for the whole strip.
struct FrontHalf {
    strip: ReadyStrip,
    /// Of the whole strip: half, number there, least and greatest value.
    params: Vec<(Half, usize, f32, f32)>,
    period: usize,
    latency: Frames,
    orders: Producer<Order>,
    made: Consumer<Made>,
    /// Buffers that are here.
    free: Vec<Box<[f32]>>,
    /// Of the next block.
    number: u64,
    /// The block that is with the second thread: its number, its frames, and whether it was handed over at all.
    out: Option<(u64, usize, bool)>,
    /// What was made and is not heard yet, by channel.
    waiting: Vec<VecDeque<f32>>,
    clock: Ticks,
    /// None: without an end.
    patience: Option<Nanos>,
    /// The second thread did not answer in time, and has not caught up yet.
    given_up: bool,
    lost: Arc<AtomicU64>,
    fault: Arc<OnceLock<String>>,
}

impl FrontHalf {
    /// One period of silence stands before all.
    fn begin(&mut self) {
        for channel in &mut self.waiting {
            channel.clear();
            channel.extend(std::iter::repeat_n(0.0, self.period));
        }
        self.out = None;
    }

    /// Takes what the second thread has made, up to the block before this one: silence where it does not come.
    fn collect(&mut self) {
        let Some((wanted, frames, handed)) = self.out.take() else { return };
        let begun = self.clock.ticks();
        let mut found = false;
        while handed && !found {
            match self.made.pop() {
                Ok(Made { number, samples }) => {
                    if number == wanted {
                        for (to, from) in self.waiting.iter_mut().zip(samples.chunks_exact(frames))
                        {
                            to.extend(from);
                        }
                        (found, self.given_up) = (true, false);
                    }
                    self.free.push(samples);
                }
                Err(_) if self.fault.get().is_some() || self.made.is_abandoned() => self.fail(),
                Err(_) => {
                    let waited = Nanos(self.clock.nanos(self.clock.ticks().saturating_sub(begun)));
                    match self.patience {
                        Some(patience) if self.given_up || waited > patience => {
                            self.given_up = true;
                            break;
                        }
                        // Files are in no hurry: whoever else is to run shall.
                        None => std::thread::yield_now(),
                        Some(_) => std::hint::spin_loop(),
                    }
                }
            }
        }
        if !found {
            self.lost.fetch_add(1, Relaxed);
            for channel in &mut self.waiting {
                channel.extend(std::iter::repeat_n(0.0, frames));
            }
        }
    }

    /// As a stage of the front half that fails.
    #[cold]
    #[allow(clippy::panic, reason = "what a stage does that fails; whoever plays it expects that")]
    fn fail(&self) -> ! {
        match self.fault.get() {
            Some(said) => std::panic::panic_any(said.clone()),
            None => std::panic::panic_any("the thread on the second CPU has ended"),
        }
    }

    /// Hands the block over, if a buffer is here and there is room.
    fn hand(&mut self, block: &[f32], frames: usize) -> bool {
        // What came too late is for nobody, but its buffer is.
        while self.free.is_empty()
            && let Ok(made) = self.made.pop()
        {
            self.free.push(made.samples);
        }
        if self.orders.is_full() {
            return false;
        }
        let Some(mut samples) = self.free.pop() else { return false };
        samples[..block.len()].copy_from_slice(block);
        self.orders.push(Order::Block { number: self.number, frames, samples }).is_ok()
    }
}

impl Stage for FrontHalf {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        if frames == 0 || frames > self.period {
            return;
        }
        self.strip.process(block);
        self.collect();
        let handed = self.hand(block.samples(), frames);
        self.out = Some((self.number, frames, handed));
        self.number += 1;
        for (to, from) in block.samples().chunks_exact_mut(frames).zip(&mut self.waiting) {
            to.iter_mut().zip(from.drain(..frames)).for_each(|(to, from)| *to = from);
        }
    }

    fn latency(&self) -> Frames {
        self.latency
    }

    fn reset(&mut self) {
        self.strip.reset();
        // A block that is on its way is not waited for: its number is nobody's any more.
        let _ = self.orders.push(Order::Reset);
        self.begin();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        let Some((half, local, low, high)) = self.params.get(param) else { return false };
        match half {
            Half::Front => self.strip.set(*local, value),
            Half::Back if !(*low..=*high).contains(&value) => false,
            // Room is kept for blocks.
            Half::Back if self.orders.slots() <= BLOCKS + 1 => false,
            Half::Back => self.orders.push(Order::Set { param: *local, value }).is_ok(),
        }
    }
}

/// How the second thread waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondRest {
    /// Looks again: it never sleeps.
    Never,
    /// Looks for a while, then sleeps for moments.
    Sleep,
    /// Lets others run.
    Yield,
}

impl SecondSide {
    /// Plays back halves until `stop` is raised.
    ///
    /// # Real time
    /// With [`SecondRest::Never`]: no system call, no lock, no allocation.
    pub fn serve(&mut self, stop: &AtomicBool, rest: SecondRest) {
        let _flushed = Denormals::flush();
        let mut idle = 0;
        while !stop.load(Relaxed) {
            if self.turn() {
                idle = 0;
                continue;
            }
            idle += 1;
            match rest {
                SecondRest::Sleep if idle > LOOKS => std::thread::sleep(Duration::from_micros(20)),
                SecondRest::Yield => std::thread::yield_now(),
                SecondRest::Never | SecondRest::Sleep => std::hint::spin_loop(),
            }
        }
    }

    /// One look at everything; whether there was something to do.
    pub(crate) fn turn(&mut self) -> bool {
        let mut busy = false;
        if self.halves.len() < STRIPS
            && let Ok(half) = self.joining.pop()
        {
            self.halves.push(half);
            busy = true;
        }
        for half in &mut self.halves {
            busy |= half.turn();
        }
        if let Some(at) = self.halves.iter().position(BackHalf::alone)
            && !self.leaving.is_full()
        {
            // Dropped where it was made, not here.
            let half = self.halves.swap_remove(at);
            let _ = self.leaving.push(half);
            busy = true;
        }
        busy
    }
}

#[cfg(test)]
mod tests;
