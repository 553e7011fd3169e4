//! One strip on two CPUs. Where a split is worth it, the second thread plays some of its branches in the same block, and nothing is
//! later. Else the strip is cut between two stages: its front half is in the thread that plays, its back half in the second one, a
//! block later.
//!
//! Nobody sleeps for the other, and nothing is allocated or freed. What the front makes of a block, the back has for as long as the
//! next block takes to come: so the output is later by one period, whatever the lengths of the blocks are.

mod line;

use crate::{Error, ErrorKind, ReadyStrip, Result, clock::Ticks};
use line::{FarEnd, LineSetting, NearEnd, line};
use quiet_dsp::{
    Block, ProcessSpec, Stage,
    simd::Denormals,
    strip::{Edge, Elsewhere, Fork, Half, Halves, Seam, Strip},
};
use quiet_rt::Clock;
use quiet_types::{Frames, Nanos};
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Parts of strips that the second thread plays at a time.
const STRIPS: usize = 32;
/// Frames, and passes over them, of the measurement that finds where to cut.
const TRIAL: (usize, usize) = (8192, 3);
/// Branches go to the second thread where the worst block then takes at most this part of what it takes on one CPU.
const WORTH: f64 = 0.8;
/// And this part of a period: else a cut may fit that is later.
const ROOMY: f64 = 0.7;
/// Looks that find nothing before a thread that may sleep does so.
const LOOKS: u32 = 2000;

/// Cuts strips in two and hands back halves to the second thread; away from the real-time side.
#[derive(Clone)]
pub struct Cutter(Arc<Mutex<Gate>>);

struct Gate {
    joining: Producer<FarEnd>,
    leaving: Consumer<FarEnd>,
    clock: Ticks,
    patient: bool,
    lost: Arc<AtomicU64>,
}

/// The second thread's side.
pub struct SecondSide {
    joining: Consumer<FarEnd>,
    leaving: Producer<FarEnd>,
    parts: Vec<FarEnd>,
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
    let bench = SecondSide { joining: joins, leaving: leaves, parts: Vec::with_capacity(STRIPS) };
    (Cutter(Arc::new(Mutex::new(gate))), bench)
}

/// A strip that was cut.
pub struct CutStrip {
    /// Plays on both CPUs.
    pub strip: ReadyStrip,
    /// How late it is.
    pub latency: Frames,
    /// The worst block of each CPU's part, as it was measured.
    pub worst: [Nanos; 2],
    /// Where.
    pub at: CutAt,
}

/// Where a strip was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutAt {
    /// Behind so many stages: one period later than in one.
    Stages(usize),
    /// These branches are the second CPU's: no later than in one.
    Branches(Vec<String>),
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
        match &self.at {
            CutAt::Stages(count) => format!(
                "on two CPUs: {count} of {stages} stages in front ({front}), the others behind them ({back}); {} frames ({}) later \
                 than on one",
                setting.block,
                setting.block.lasting(setting.rate)
            ),
            CutAt::Branches(names) => format!(
                "on two CPUs: the second one plays {} ({back}) while the first one plays the rest ({front}); no later than on one",
                names.join(", ")
            ),
        }
    }
}

impl Cutter {
    /// Blocks of which a part was silent because the second thread was too late.
    pub fn lost(&self) -> u64 {
        self.gate().lost.load(Relaxed)
    }

    fn gate(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares a strip out: branches where that is worth it, else two halves that are the most alike.
    ///
    /// # Errors
    /// When it has one stage alone, or the second thread serves too many strips.
    pub fn cut(&self, mut strip: Strip, setting: ProcessSpec) -> Result<CutStrip> {
        let costs = Costs::of(&mut strip, setting, self.gate().clock);
        let halves = best_seam(&strip, &costs);
        let shared = best_fork(&strip, &costs);
        let period = setting.block.lasting(setting.rate).0 as f64;
        let worst = |worst: [Nanos; 2]| worst[0].max(worst[1]).0 as f64;
        let is_worth = |shared: &SharedOut| {
            let takes = worst(shared.worst);
            let is_later = halves.as_ref().is_none_or(|(_, halves)| worst(*halves) >= takes);
            takes <= WORTH * costs.whole() && (takes <= ROOMY * period || is_later)
        };
        match (shared, halves) {
            // Where it cannot be cut in a row, branches are all there is to share out.
            (Some(shared), None) => self.share(strip, shared, setting),
            (Some(shared), Some(_)) if is_worth(&shared) => self.share(strip, shared, setting),
            (_, Some((seam, worst))) => self.halve(strip, seam, worst, setting),
            (None, None) => {
                let why = "the strip has neither two stages in a row nor two branches, so it cannot be cut for two CPUs: play it with --cores 1";
                Err(Error::of(ErrorKind::Asked, why))
            }
        }
    }

    /// Cuts it between two stages.
    fn halve(
        &self,
        strip: Strip,
        seam: Seam,
        worst: [Nanos; 2],
        setting: ProcessSpec,
    ) -> Result<CutStrip> {
        let latency = Frames(strip.latency().0 + setting.block.0);
        let width = strip.width();
        let Halves { front, back, params } = strip.cut(seam);
        let params = params.into_iter().map(|(p, half, n)| (half, n, p.low, p.high)).collect();
        let halves = (Box::new(front) as ReadyStrip, Box::new(back) as ReadyStrip);
        let own = ProcessSpec { channels: width, ..setting };
        let strip = self.join(halves, params, own, latency)?;
        Ok(CutStrip { strip, latency, worst, at: CutAt::Stages(seam.stages) })
    }

    /// Gives some branches to the second thread.
    fn share(&self, strip: Strip, shared: SharedOut, setting: ProcessSpec) -> Result<CutStrip> {
        let SharedOut { fork, lent, worst } = shared;
        let latency = strip.latency();
        let own = ProcessSpec { channels: strip.width(), ..setting };
        let strip = strip.lend(&fork, &lent, |branch| -> Result<Box<dyn Elsewhere>> {
            let ranges = branch.params().iter().map(|param| (param.low, param.high)).collect();
            Ok(Box::new(self.line_to(Box::new(branch), ranges, own)?))
        })?;
        let names = lent.iter().map(|nth| fork.branches[*nth].name.clone()).collect();
        Ok(CutStrip { strip: Box::new(strip), latency, worst, at: CutAt::Branches(names) })
    }

    /// A line to a part of a strip that the second thread plays from now on.
    fn line_to(
        &self,
        part: ReadyStrip,
        ranges: Vec<(f32, f32)>,
        setting: ProcessSpec,
    ) -> Result<NearEnd> {
        let mut gate = self.gate();
        while gate.leaving.pop().is_ok() {}
        let setting = LineSetting {
            width: setting.channels,
            period: setting.block.0 as usize,
            clock: gate.clock,
            patient: gate.patient,
            lost: gate.lost.clone(),
        };
        let (near, far) = line(part, ranges, &setting);
        gate.joining.push(far).map_err(|_| {
            let why = "the second CPU serves too many strips: wait until those that were swapped out are gone";
            Error::of(ErrorKind::Asked, why)
        })?;
        Ok(near)
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
        let behind = params.iter().filter(|(half, ..)| *half == Half::Back);
        let ranges = behind.map(|(_, _, low, high)| (*low, *high)).collect();
        let mut front = FrontHalf {
            strip: halves.0,
            params: params.into_iter().map(|(half, local, ..)| (half, local)).collect(),
            period,
            latency,
            line: self.line_to(halves.1, ranges, setting)?,
            waiting: (0..width).map(|_| VecDeque::with_capacity(3 * period)).collect(),
        };
        front.begin();
        Ok(Box::new(front))
    }
}

/// What each stage takes for each block of a trial, on this machine.
struct Costs {
    /// By stage, then by block.
    least: Vec<u64>,
    blocks: usize,
    stages: usize,
    clock: Ticks,
}

impl Costs {
    fn of(strip: &mut Strip, setting: ProcessSpec, clock: Ticks) -> Costs {
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
        Costs { least, blocks, stages, clock }
    }

    /// The worst block of some stages.
    fn worst(&self, stages: impl Iterator<Item = usize> + Clone) -> Nanos {
        let block = |at| stages.clone().map(|stage| self.least[stage * self.blocks + at]).sum();
        Nanos(self.clock.nanos((0..self.blocks).map(block).max().unwrap_or(0u64)))
    }

    fn whole(&self) -> f64 {
        self.worst(0..self.stages).0 as f64
    }
}

/// The seam that leaves the dearer half the cheapest.
fn best_seam(strip: &Strip, costs: &Costs) -> Option<(Seam, [Nanos; 2])> {
    let halves =
        |seam: Seam| (seam, [costs.worst(0..seam.stages), costs.worst(seam.stages..costs.stages)]);
    strip.seams().into_iter().map(halves).min_by_key(|(_, [front, back])| (*front).max(*back))
}

/// Branches for the second CPU.
struct SharedOut {
    fork: Fork,
    /// Their numbers.
    lent: Vec<usize>,
    worst: [Nanos; 2],
}

/// The split, and the share of its branches, that leaves the first CPU the cheapest: the dearest branch goes first, to whoever has less.
fn best_fork(strip: &Strip, costs: &Costs) -> Option<SharedOut> {
    let share = |fork: Fork| {
        let mut order: Vec<usize> = (0..fork.branches.len()).collect();
        let cost = |nth: &usize| costs.worst(fork.branches[*nth].stages.clone());
        order.sort_by_key(|nth| std::cmp::Reverse(cost(nth)));
        let (mut here, mut there, mut lent) = (0, 0, Vec::new());
        for nth in order {
            if there < here {
                there += cost(&nth).0;
                lent.push(nth);
            } else {
                here += cost(&nth).0;
            }
        }
        if lent.is_empty() {
            return None;
        }
        lent.sort_unstable();
        let is_lent =
            |stage: &usize| lent.iter().any(|nth| fork.branches[*nth].stages.contains(stage));
        let first = costs.worst((0..costs.stages).filter(|stage| !is_lent(stage)));
        let second = costs.worst((0..costs.stages).filter(is_lent));
        // The first one waits for the second one at the sum.
        let all = fork.branches.iter().flat_map(|branch| branch.stages.clone());
        let own = costs.worst(all.filter(|stage| !is_lent(stage)));
        let waits = second.0.saturating_sub(own.0);
        Some(SharedOut { worst: [Nanos(first.0 + waits), second], lent, fork })
    };
    strip.forks().into_iter().filter_map(share).min_by_key(|shared| shared.worst[0])
}

/// The front half, which stands for the whole strip.
struct FrontHalf {
    strip: ReadyStrip,
    /// Of the whole strip: half, number there.
    params: Vec<(Half, usize)>,
    period: usize,
    latency: Frames,
    line: NearEnd,
    /// What was made and is not heard yet, by channel.
    waiting: Vec<VecDeque<f32>>,
}

impl FrontHalf {
    /// One period of silence stands before all.
    fn begin(&mut self) {
        for channel in &mut self.waiting {
            channel.clear();
            channel.extend(std::iter::repeat_n(0.0, self.period));
        }
    }
}

impl Stage for FrontHalf {
    fn process(&mut self, block: &mut Block<'_>) {
        let frames = block.frames();
        if frames == 0 || frames > self.period {
            return;
        }
        self.strip.process(block);
        // The block before this one; silence where it does not come.
        let waiting = &mut self.waiting;
        self.line.collect(|made, frames| match made {
            Some(made) => {
                for (to, from) in waiting.iter_mut().zip(made.chunks_exact(frames)) {
                    to.extend(from);
                }
            }
            None => {
                for channel in waiting {
                    channel.extend(std::iter::repeat_n(0.0, frames));
                }
            }
        });
        self.line.hand_over(block.samples(), frames);
        for (to, from) in block.samples().chunks_exact_mut(frames).zip(&mut self.waiting) {
            to.iter_mut().zip(from.drain(..frames)).for_each(|(to, from)| *to = from);
        }
    }

    fn latency(&self) -> Frames {
        self.latency
    }

    fn reset(&mut self) {
        self.strip.reset();
        self.line.forget();
        self.begin();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        match self.params.get(param) {
            Some((Half::Front, local)) => self.strip.set(*local, value),
            Some((Half::Back, local)) => self.line.set_there(*local, value),
            None => false,
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
}

/// Looks for a while, then sleeps for a moment. Who gives way instead (`sched_yield`) is put behind every busy thread of the machine:
/// beside two of them a hand-over took up to 100 ms.
fn look_or_sleep(looks: &mut u32) {
    *looks += 1;
    if *looks > LOOKS {
        std::thread::sleep(Duration::from_micros(20));
    } else {
        std::hint::spin_loop();
    }
}

impl SecondSide {
    /// Plays parts of strips until `stop` is raised.
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
            match rest {
                SecondRest::Never => std::hint::spin_loop(),
                SecondRest::Sleep => look_or_sleep(&mut idle),
            }
        }
    }

    /// One look at everything; whether there was something to do.
    pub(crate) fn turn(&mut self) -> bool {
        let mut busy = false;
        if self.parts.len() < STRIPS
            && let Ok(part) = self.joining.pop()
        {
            self.parts.push(part);
            busy = true;
        }
        for part in &mut self.parts {
            busy |= part.turn();
        }
        if let Some(at) = self.parts.iter().position(FarEnd::alone)
            && !self.leaving.is_full()
        {
            // Dropped where it was made, not here.
            let part = self.parts.swap_remove(at);
            let _ = self.leaving.push(part);
            busy = true;
        }
        busy
    }
}

#[cfg(test)]
mod tests;
