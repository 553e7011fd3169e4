//! The way of blocks to the second thread and back: by value through wait-free rings, in buffers that go round.

use super::look_or_sleep;
use crate::{ReadyStrip, clock::Ticks, playing::fault};
use quiet_dsp::{Block, Twin, strip::Elsewhere};
use quiet_rt::Clock;
use quiet_types::Nanos;
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Blocks that may be with the second thread: one in work, and more where it is late.
pub const BLOCKS: usize = 4;
/// Orders for the other end that may wait: the blocks, and changes of parameters between them.
const ORDERS: usize = 512;
/// After so long without an answer nobody waits for the second thread any more, until it has caught up: what it plays is
/// silent meanwhile. Longer than any delay in which a card's own xruns say what was lost.
const PATIENCE: Nanos = Nanos::from_millis(250);

/// What the second thread is told, in order.
enum Order {
    Block { number: u64, frames: usize, samples: Box<[f32]> },
    Set { param: usize, value: f32 },
    Reset,
}

/// What it made of a block.
struct Made {
    number: u64,
    samples: Box<[f32]>,
}

/// The end where the second thread plays a part of a strip.
pub struct FarEnd {
    strip: ReadyStrip,
    width: usize,
    orders: Consumer<Order>,
    made: Producer<Made>,
    fault: Arc<OnceLock<String>>,
}

impl FarEnd {
    /// Carries out an order, if there is one.
    pub fn turn(&mut self) -> bool {
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

    /// Nobody hands blocks over any more.
    pub fn alone(&self) -> bool {
        self.orders.is_abandoned() && self.orders.is_empty()
    }
}

/// The end of the thread that plays.
pub struct NearEnd {
    orders: Producer<Order>,
    made: Consumer<Made>,
    /// Buffers that are here.
    free: Vec<Box<[f32]>>,
    /// Of the next block.
    number: u64,
    /// The block that is with the second thread: its number, its frames, and whether it was handed over at all.
    out: Option<(u64, usize, bool)>,
    /// Least and greatest value of each parameter at the far end.
    ranges: Vec<(f32, f32)>,
    /// What refuses as the far end does.
    twin: Option<Box<dyn Twin>>,
    clock: Ticks,
    /// None: without an end.
    patience: Option<Nanos>,
    /// The second thread did not answer in time, and has not caught up yet.
    given_up: bool,
    lost: Arc<AtomicU64>,
    fault: Arc<OnceLock<String>>,
}

/// Whose line it is: for how many channels and frames a block, and how long it is waited for.
#[derive(Clone)]
pub struct LineSetting {
    pub width: usize,
    pub period: usize,
    pub clock: Ticks,
    pub patient: bool,
    /// Counts blocks that came too late.
    pub lost: Arc<AtomicU64>,
}

/// Both ends of a line to `strip`, whose parameters have these ranges.
pub fn line(
    strip: ReadyStrip,
    ranges: Vec<(f32, f32)>,
    setting: &LineSetting,
) -> (NearEnd, FarEnd) {
    let (orders, orders_out) = RingBuffer::new(ORDERS);
    let (made, made_out) = RingBuffer::new(BLOCKS);
    let fault = Arc::new(OnceLock::new());
    let width = setting.width;
    let twin = strip.twin();
    let far = FarEnd { strip, width, orders: orders_out, made, fault: fault.clone() };
    let room = || vec![0.0; width * setting.period].into_boxed_slice();
    let near = NearEnd {
        orders,
        made: made_out,
        free: (0..BLOCKS).map(|_| room()).collect(),
        number: 0,
        out: None,
        ranges,
        twin,
        clock: setting.clock,
        patience: if setting.patient { None } else { Some(PATIENCE) },
        given_up: false,
        lost: setting.lost.clone(),
        fault,
    };
    (near, far)
}

impl NearEnd {
    /// Hands a block over, if a buffer is here and there is room. [`NearEnd::collect`] comes before the next one.
    pub fn hand_over(&mut self, block: &[f32], frames: usize) {
        // What came too late is for nobody, but its buffer is.
        while let Ok(made) = self.made.pop() {
            self.free.push(made.samples);
        }
        // Nothing is with the second thread: it is worth waiting for again.
        if self.free.len() == BLOCKS {
            self.given_up = false;
        }
        let handed = !self.orders.is_full() && self.push(block, frames);
        self.out = Some((self.number, frames, handed));
        self.number += 1;
    }

    fn push(&mut self, block: &[f32], frames: usize) -> bool {
        let Some(mut samples) = self.free.pop() else { return false };
        samples[..block.len()].copy_from_slice(block);
        self.orders.push(Order::Block { number: self.number, frames, samples }).is_ok()
    }

    /// What the second thread made of the block that was handed over last, and its frames; `None` where it does not come. Nothing is
    /// called where none is with it.
    pub fn collect(&mut self, take: impl FnOnce(Option<&[f32]>, usize)) {
        let Some((wanted, frames, handed)) = self.out.take() else { return };
        match if handed { self.wait_for(wanted) } else { None } {
            Some(samples) => {
                take(Some(&samples), frames);
                self.free.push(samples);
                self.given_up = false;
            }
            None => {
                self.lost.fetch_add(1, Relaxed);
                take(None, frames);
            }
        }
    }

    fn wait_for(&mut self, wanted: u64) -> Option<Box<[f32]>> {
        let begun = self.clock.ticks();
        let mut looks = 0;
        loop {
            match self.made.pop() {
                Ok(Made { number, samples }) if number == wanted => return Some(samples),
                Ok(late) => self.free.push(late.samples),
                Err(_) if self.fault.get().is_some() || self.made.is_abandoned() => self.fail(),
                Err(_) => {
                    let waited = Nanos(self.clock.nanos(self.clock.ticks().saturating_sub(begun)));
                    match self.patience {
                        Some(patience) if self.given_up || waited > patience => {
                            self.given_up = true;
                            return None;
                        }
                        None => look_or_sleep(&mut looks),
                        Some(_) => std::hint::spin_loop(),
                    }
                }
            }
        }
    }

    /// Waits for no block any more: one that is on its way is nobody's.
    pub fn forget(&mut self) {
        let _ = self.orders.push(Order::Reset);
        self.out = None;
    }

    /// As a stage here that fails.
    #[cold]
    #[allow(clippy::panic, reason = "what a stage does that fails; whoever plays it expects that")]
    fn fail(&self) -> ! {
        match self.fault.get() {
            Some(said) => std::panic::panic_any(said.clone()),
            None => std::panic::panic_any("the thread on the second CPU has ended"),
        }
    }

    /// Whether the far end will have it, which itself answers nobody.
    pub fn set_there(&mut self, param: usize, value: f32) -> bool {
        let Some((low, high)) = self.ranges.get(param) else { return false };
        // Room is kept for blocks. The twin comes last: it and the far end hold the same values.
        (*low..=*high).contains(&value)
            && self.orders.slots() > BLOCKS + 1
            && self.twin.as_mut().is_none_or(|twin| twin.set(param, value))
            && self.orders.push(Order::Set { param, value }).is_ok()
    }
}

/// A branch at the far end: what is handed over is fetched in the same block.
impl Elsewhere for NearEnd {
    fn hand(&mut self, block: &[f32], frames: usize) {
        if let Some(free) = self.free.first()
            && block.len() > free.len()
        {
            return;
        }
        self.hand_over(block, frames);
    }

    fn fetch(&mut self, into: &mut [f32], _: usize) {
        let mut got = false;
        self.collect(|made, _| {
            if let Some(made) = made {
                into.copy_from_slice(&made[..into.len()]);
                got = true;
            }
        });
        if !got {
            into.fill(0.0);
        }
    }

    fn reset(&mut self) {
        self.forget();
    }

    fn set(&mut self, param: usize, value: f32) -> bool {
        self.set_there(param, value)
    }
}
