//! Playing and capturing together, one period after the other, asleep or never.

use crate::{
    Board, Clock,
    board::{LOADS, add, most},
};
use core::{ops::Deref, sync::atomic::Ordering::Relaxed};

/// What a look at a device finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Less than a period is there.
    Empty,
    /// A period can be read and one written; so many frames wait in all.
    Due(u32),
    /// The device ran over or under: it has to be put in order.
    Xrun(Xrun),
    /// The device is gone, or answers with errors.
    Gone,
}

/// How a device ran over or under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xrun {
    /// Whether captured frames were lost.
    pub capture: bool,
    /// Whether there was nothing to play.
    pub playback: bool,
    /// Periods whose sound is lost, where the device can tell; else 1.
    pub missed: u32,
}

/// A device that plays and captures on one clock, a period at a time.
///
/// Samples are planar, in the channels of the strip: the device spreads and gathers its own.
pub trait Duplex {
    /// Reads the device's pointers.
    ///
    /// # Real time
    /// No system call where the pointers are mapped.
    fn look(&mut self) -> Look;

    /// Sleeps until a period may be due, a bounded time. Only the sleeping mode calls it.
    fn wait(&mut self);

    /// Takes the period that is due; called after [`Look::Due`].
    fn read(&mut self, samples: &mut [f32]);

    /// Hands over the period to be played; called after [`Duplex::read`].
    fn write(&mut self, samples: &[f32]);

    /// Whether the period handed over last came too late to be heard, where the device can tell.
    fn late(&self) -> bool {
        false
    }

    /// Puts both directions in order after an xrun: playback and capture are as far apart as when
    /// the device was started, so no latency is added. `false` where that fails.
    fn resync(&mut self) -> bool;
}

/// What sounds: called for every block.
pub trait Process {
    /// Processes `frames` frames in place, planar: channel after channel.
    ///
    /// # Real time
    /// Yes: no allocation, lock or system call.
    fn process(&mut self, samples: &mut [f32], frames: usize, told: &mut dyn Tell);

    /// The last `blocks` blocks in a row all had samples that are no numbers: what is done about it, if anything.
    ///
    /// # Real time
    /// No allocation, lock or system call; it may take longer than a block, for what it mends is silent anyway.
    fn cure(&mut self, blocks: u32) -> Option<Cure> {
        let _ = blocks;
        None
    }
}

/// What is done about a strip that makes samples which are no numbers, block after block: such a number stays in a
/// filter's history for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cure {
    /// Its history is forgotten.
    Reset,
    /// That did not help: the input is heard in its place, until another strip comes.
    Bypass,
}

/// What happened, with its time: ns since the loop began. At most 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoopEvent {
    /// The device ran over or under, and was put in order.
    Xrun {
        /// When it was seen.
        at: u64,
        /// What was lost.
        xrun: Xrun,
    },
    /// An order was carried out: the number that came with it.
    Done(u64),
    /// An order could not be carried out.
    Refused(u64),
    /// Samples came in, or out of the strip, that are not finite; they were silenced.
    Broken {
        /// When it was seen.
        at: u64,
        /// How many, in this block.
        samples: u32,
    },
    /// Something was done about a strip that broke block after block.
    Cured {
        /// When it was done.
        at: u64,
        /// What.
        cure: Cure,
    },
}

const _: () = assert!(size_of::<LoopEvent>() <= 32, "an event is a small thing");

/// The way out for events: a ring, usually.
pub trait Tell {
    /// Hands over an event. Whoever has no room for it counts it: there is no answer that a caller could forget to
    /// look at.
    ///
    /// # Real time
    /// Yes: wait-free.
    fn tell(&mut self, event: LoopEvent);
}

/// What the loop does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopMode {
    /// Looks again: the thread never sleeps.
    NeverSleep,
    /// Waits to be woken by the device.
    Sleep,
}

/// Why a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// The device is gone, or could not be put in order.
    Gone,
}

/// One block, from samples to samples: the same for a loop of our own and for a host's callback.
/// Times it, takes the levels, silences what is not finite, counts.
#[derive(Debug)]
pub struct Cycle<C, B> {
    clock: C,
    board: B,
    channels: usize,
    /// Percent of a period a tick, times 2^32.
    percent: u64,
    start: u64,
    /// End of the last block.
    last: Option<u64>,
    /// Blocks in a row that were broken.
    broken: u32,
}

impl<C: Clock, B: Deref<Target = Board>> Cycle<C, B> {
    /// For blocks that are to be done in `period` ns, of `channels` channels.
    pub fn new(clock: C, board: B, channels: usize, period: u64) -> Cycle<C, B> {
        // ns a tick, times 2^20; then percent.
        let scale = clock.nanos(1 << 20) as u128;
        let percent = ((scale * 100) << 12) / u128::from(period.max(1));
        let start = clock.ticks();
        let percent = u64::try_from(percent).unwrap_or(u64::MAX);
        Cycle { clock, board, channels: channels.max(1), percent, start, last: None, broken: 0 }
    }

    /// ns since this was made.
    pub fn now(&self) -> u64 {
        self.clock.nanos(self.clock.ticks().saturating_sub(self.start))
    }

    /// Forgets when the last block ended: there was a pause that is no fault of this thread.
    pub fn pause(&mut self) {
        self.last = None;
    }

    /// Counts an xrun, and tells it with its time.
    pub fn xrun(&mut self, xrun: Xrun, told: &mut dyn Tell) {
        add(&self.board.xruns, 1);
        add(&self.board.missed, xrun.missed.into());
        told.tell(LoopEvent::Xrun { at: self.now(), xrun });
    }

    /// Processes one block.
    ///
    /// # Real time
    /// Two clock reads, two passes over the samples and a few stores, beside the processing.
    #[inline]
    pub fn run(
        &mut self,
        process: &mut impl Process,
        samples: &mut [f32],
        told: &mut dyn Tell,
    ) -> u64 {
        let begin = self.clock.ticks();
        let frames = samples.len() / self.channels;
        let mut finite = Finite::default();
        for (channel, samples) in planes(samples, frames).enumerate() {
            let peak = peak(samples, &mut finite);
            if peak < f32::INFINITY {
                self.board.say_input(channel, peak);
            }
        }
        // What is no number would stay in the strip's history.
        let came_broken = if finite.all() { 0 } else { silence(samples) };
        process.process(samples, frames, told);
        let mut finite = Finite::default();
        for (channel, samples) in planes(samples, frames).enumerate() {
            let peak = peak(samples, &mut finite);
            if peak < f32::INFINITY {
                self.board.say_output(channel, peak);
            }
        }
        let broken = if finite.all() { 0 } else { silence(samples) };
        self.broken = if broken > 0 { self.broken.saturating_add(1) } else { 0 };
        let cure = if broken > 0 { process.cure(self.broken) } else { None };
        let end = self.clock.ticks();
        let at = self.clock.nanos(end.saturating_sub(self.start));
        let samples = came_broken + broken;
        if samples > 0 {
            add(&self.board.broken, samples.into());
            told.tell(LoopEvent::Broken { at, samples });
        }
        if let Some(cure) = cure {
            add(&self.board.cured, 1);
            self.board.bypassed.store((cure == Cure::Bypass).into(), Relaxed);
            told.tell(LoopEvent::Cured { at, cure });
        }
        self.count(begin, end);
        end
    }

    fn count(&mut self, begin: u64, end: u64) {
        let board = &*self.board;
        // Not wrapping: a counter that was set back must not look like an eternity.
        let took = end.saturating_sub(begin);
        let percent = ((u128::from(took) * u128::from(self.percent)) >> 32) as usize;
        add(&board.loads[percent.min(LOADS - 1)], 1);
        let took = self.clock.nanos(took);
        add(&board.busy, took);
        if most(&board.worst, took) {
            let at = self.clock.nanos(end.saturating_sub(self.start));
            board.worst_at.store(at, Relaxed);
        }
        if let Some(last) = self.last {
            most(&board.between, self.clock.nanos(end.saturating_sub(last)));
        }
        self.last = Some(end);
        add(&board.blocks, 1);
    }
}

/// Channel after channel, of `frames` samples each.
fn planes(samples: &[f32], frames: usize) -> impl Iterator<Item = &[f32]> {
    let mut rest = samples;
    core::iter::from_fn(move || {
        let (plane, others) = rest.split_at_checked(frames.max(1))?;
        rest = others;
        Some(plane)
    })
}

/// Lanes that the compiler turns into vectors.
const LANES: usize = 4;

/// Whether all samples that were looked at are finite: nought times anything else is no number.
#[derive(Default)]
struct Finite([f32; LANES]);

impl Finite {
    fn all(&self) -> bool {
        self.0.iter().sum::<f32>() == 0.0
    }
}

/// The largest finite or infinite magnitude.
#[inline]
fn peak(samples: &[f32], finite: &mut Finite) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (blocks, rest) = samples.as_chunks::<LANES>();
    for block in blocks {
        for n in 0..LANES {
            let size = block[n].abs();
            lanes[n] = larger(size, lanes[n]);
            finite.0[n] += size * 0.0;
        }
    }
    let mut most = lanes.into_iter().fold(0.0, |most, lane| larger(lane, most));
    for sample in rest {
        most = larger(sample.abs(), most);
        finite.0[0] += sample * 0.0;
    }
    most
}

/// One instruction: what is no number loses against `than`.
#[inline(always)]
fn larger(one: f32, than: f32) -> f32 {
    if one > than { one } else { than }
}

#[cold]
fn silence(samples: &mut [f32]) -> u32 {
    let mut broken = 0;
    for sample in samples {
        if !sample.is_finite() {
            *sample = 0.0;
            broken += 1;
        }
    }
    broken
}

/// Moves period after period from the device through `process` and back, until it is told to stop
/// or the device is gone.
///
/// `samples` holds one period of all channels. An xrun is counted with its time, the device put in
/// order, and the loop goes on: no latency is added.
///
/// # Real time
/// One turn without a period is a look at the device, one load and a pause of the processor. It
/// never sleeps in [`LoopMode::NeverSleep`].
pub fn duplex<C: Clock, B: Deref<Target = Board>>(
    cycle: &mut Cycle<C, B>,
    device: &mut impl Duplex,
    process: &mut impl Process,
    told: &mut dyn Tell,
    samples: &mut [f32],
    mode: LoopMode,
) -> End {
    // Each mode has a loop of its own: a look in vain asks nothing but the device and the stop word.
    match mode {
        LoopMode::NeverSleep => {
            turn(cycle, device, process, told, samples, |_| core::hint::spin_loop())
        }
        LoopMode::Sleep => turn(cycle, device, process, told, samples, Duplex::wait),
    }
}

#[inline(always)]
fn turn<C: Clock, B: Deref<Target = Board>, D: Duplex>(
    cycle: &mut Cycle<C, B>,
    device: &mut D,
    process: &mut impl Process,
    told: &mut dyn Tell,
    samples: &mut [f32],
    idle: impl Fn(&mut D),
) -> End {
    let mut empty = 0;
    loop {
        match device.look() {
            Look::Empty => {
                if cycle.board.stopped() {
                    return End::Stopped;
                }
                empty += 1;
                idle(device);
            }
            Look::Due(waiting) => {
                device.read(samples);
                cycle.run(process, samples, told);
                device.write(samples);
                if device.late() {
                    add(&cycle.board.late, 1);
                }
                most(&cycle.board.waiting, waiting.into());
                add(&cycle.board.empty, empty);
                empty = 0;
                // A device that always has something must not keep the loop from ending.
                if cycle.board.stopped() {
                    return End::Stopped;
                }
            }
            Look::Xrun(xrun) => {
                cycle.xrun(xrun, told);
                if cycle.board.stopped() {
                    return End::Stopped;
                }
                if !device.resync() {
                    return End::Gone;
                }
            }
            Look::Gone => return End::Gone,
        }
    }
}
