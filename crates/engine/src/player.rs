//! What sounds: a strip that is changed and swapped while it plays.
//!
//! Three rings cross the border, all of rtrb (wait-free): orders in, spent
//! strips out, events out. The real-time side takes an order only when the ring of spent strips
//! has room for what the order frees, so nothing is ever dropped there.

use quiet_dsp::{Block, Stage};
use quiet_rt::{Cure, LoopEvent, Process, Tell};
use quiet_types::{Frames, SampleRate};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A strip, prepared and ready to sound.
pub type ReadyStrip = Box<dyn Stage>;

/// How one strip gives way to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fade {
    /// Both sound for a while: twice the work meanwhile.
    Cross,
    /// The old one fades out, then the new one in.
    Through,
}

enum Order {
    /// With `newest`, one that is not heard where another swap waits behind it.
    Swap {
        number: u64,
        strip: ReadyStrip,
        fade: Fade,
        newest: bool,
    },
    Set {
        number: u64,
        param: usize,
        value: f32,
    },
    Bypass {
        number: u64,
        on: bool,
    },
    Mute {
        number: u64,
        on: bool,
    },
}

/// Orders that may wait.
const ORDERS: usize = 256;
/// Orders carried out in one block at most, so that a flood of them costs little.
const PER_BLOCK: usize = 8;
/// Strips that may wait to be dropped: all that may be on their way, so that what was ordered is carried out however
/// long nobody collects.
const SPENT: usize = ORDERS + 2;
/// Events that may wait to be heard.
const EVENTS: usize = 1024;

/// Length of fades, ms.
const FADE_MS: u32 = 20;

/// Blocks in a row that a strip may break before its history is forgotten.
const PATIENCE: u32 = 4;
/// How often that is tried before the strip is taken out.
const CURES: u32 = 3;
/// A strip that was whole for so long is trusted anew, s.
const WHOLE: u32 = 10;

struct Fading {
    /// The new one; after [`Fading::turned`] with [`Fade::Through`], the old one.
    other: ReadyStrip,
    number: u64,
    fade: Fade,
    /// Frames since it began.
    at: usize,
    turned: bool,
}

/// The real-time side.
pub struct Player {
    strip: ReadyStrip,
    orders: Consumer<Order>,
    spent: Producer<ReadyStrip>,
    fading: Option<Fading>,
    /// Frames of a fade, one way.
    length: usize,
    channels: usize,
    /// One block of all channels, for what the other strip makes.
    scratch: Vec<f32>,
    /// One block of all channels, as it came in.
    dry: Vec<f32>,
    /// Where the bypass is on its way: 0 the strip alone, [`Player::length`] the input alone.
    bypass: usize,
    bypassed: bool,
    /// Where the silence is on its way: 0 all is heard, [`Player::length`] nothing.
    mute: usize,
    muted: bool,
    /// How often the strip was reset because it broke; the frames that it played since.
    cures: (u32, u64),
    /// Frames after which that is forgotten.
    whole: u64,
    /// The strip is beyond cure: the input is heard until another comes.
    out: bool,
}

/// The other side: gives orders, hears events, drops what is spent.
pub struct Remote {
    orders: Producer<Order>,
    spent: Consumer<ReadyStrip>,
    told: Consumer<LoopEvent>,
    dropped: Arc<AtomicU64>,
    number: u64,
}

/// The ring for events, as the loop sees it. It counts itself what it has no room for, whoever told it.
#[derive(Debug)]
pub struct Told {
    ring: Producer<LoopEvent>,
    dropped: Arc<AtomicU64>,
}

impl Tell for Told {
    fn tell(&mut self, event: LoopEvent) {
        if self.ring.push(event).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

/// A player of `strip`, its remote, and the way out for events. `block` is the longest block.
pub fn player(
    strip: ReadyStrip,
    channels: usize,
    block: Frames,
    rate: SampleRate,
) -> (Player, Remote, Told) {
    let whole = block.0 as usize * channels;
    let (orders_in, orders) = RingBuffer::new(ORDERS);
    let (spent, spent_out) = RingBuffer::new(SPENT);
    let (told, told_out) = RingBuffer::new(EVENTS);
    let player = Player {
        strip,
        orders,
        spent,
        fading: None,
        length: (rate.0 * FADE_MS / 1000).max(1) as usize,
        channels,
        scratch: vec![0.0; whole],
        dry: vec![0.0; whole],
        bypass: 0,
        bypassed: false,
        mute: 0,
        muted: false,
        cures: (0, 0),
        whole: u64::from(rate.0) * u64::from(WHOLE),
        out: false,
    };
    let dropped = Arc::new(AtomicU64::new(0));
    let (orders, spent) = (orders_in, spent_out);
    let remote = Remote { orders, spent, told: told_out, dropped: dropped.clone(), number: 0 };
    (player, remote, Told { ring: told, dropped })
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("number", &self.number).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Remote {
    /// Sends a strip in the place of the one that sounds. Its number comes back as
    /// [`LoopEvent::Done`] when it alone sounds.
    ///
    /// # Errors
    /// The strip itself, when too many orders wait.
    pub fn swap(&mut self, strip: ReadyStrip, fade: Fade) -> Result<u64, ReadyStrip> {
        self.order(strip, fade, false)
    }

    /// The same for one who is quicker than the fades: of several that wait one behind the other the newest alone is
    /// heard; the others are done without.
    ///
    /// # Errors
    /// As [`Remote::swap`].
    pub fn replace(&mut self, strip: ReadyStrip, fade: Fade) -> Result<u64, ReadyStrip> {
        self.order(strip, fade, true)
    }

    fn order(&mut self, strip: ReadyStrip, fade: Fade, newest: bool) -> Result<u64, ReadyStrip> {
        let number = self.number + 1;
        match self.orders.push(Order::Swap { number, strip, fade, newest }) {
            Ok(()) => {
                self.number = number;
                Ok(number)
            }
            Err(rtrb::PushError::Full(Order::Swap { strip, .. })) => Err(strip),
            Err(_) => Ok(number),
        }
    }

    /// Changes a parameter of the strip, by its place in the strip's own list; `None` when too many
    /// orders wait.
    pub fn set(&mut self, param: usize, value: f32) -> Option<u64> {
        let number = self.number + 1;
        self.push(Order::Set { number, param, value })
    }

    /// Lets the input through in place of the strip, or back; `None` when too many orders wait.
    pub fn bypass(&mut self, on: bool) -> Option<u64> {
        let number = self.number + 1;
        self.push(Order::Bypass { number, on })
    }

    /// Silences what is heard, or lets it be heard again; `None` when too many orders wait.
    pub fn mute(&mut self, on: bool) -> Option<u64> {
        let number = self.number + 1;
        self.push(Order::Mute { number, on })
    }

    fn push(&mut self, order: Order) -> Option<u64> {
        self.orders.push(order).ok()?;
        self.number += 1;
        Some(self.number)
    }

    /// Drops the strips that came home; says how many.
    pub fn collect(&mut self) -> usize {
        let mut dropped = 0;
        while self.spent.pop().is_ok() {
            dropped += 1;
        }
        dropped
    }

    /// Events that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// The next event, if any.
    pub fn hear(&mut self) -> Option<LoopEvent> {
        self.told.pop().ok()
    }
}

impl Player {
    /// Carries out what was ordered; one swap at a time, and only with room for what it frees.
    fn obey(&mut self, told: &mut dyn Tell) {
        for _ in 0..PER_BLOCK {
            if self.fading.is_some() || self.spent.is_full() {
                return;
            }
            match self.orders.pop() {
                Ok(Order::Swap { number, strip, newest: true, .. })
                    if matches!(self.orders.peek(), Ok(Order::Swap { .. })) =>
                {
                    told.tell(LoopEvent::Done(number));
                    self.retire(strip);
                }
                Ok(Order::Swap { number, strip, fade, .. }) => {
                    self.fading = Some(Fading { other: strip, number, fade, at: 0, turned: false });
                }
                Ok(Order::Set { number, param, value }) => {
                    let done = self.strip.set(param, value);
                    told.tell(if done {
                        LoopEvent::Done(number)
                    } else {
                        LoopEvent::Refused(number)
                    });
                }
                Ok(Order::Bypass { number, on }) => {
                    self.bypassed = on;
                    told.tell(LoopEvent::Done(number));
                }
                Ok(Order::Mute { number, on }) => {
                    self.muted = on;
                    told.tell(LoopEvent::Done(number));
                }
                Err(_) => return,
            }
        }
    }

    /// The last of all: what the strip or the bypass made, by a ramp to silence and back.
    fn fade_to_silence(&mut self, samples: &mut [f32], frames: usize) {
        let (length, from) = (self.length, self.mute);
        let to = if self.muted { (from + frames).min(length) } else { from.saturating_sub(frames) };
        for channel in samples.chunks_exact_mut(frames) {
            for (n, sample) in channel.iter_mut().enumerate() {
                let at = if self.muted { from + n + 1 } else { from.saturating_sub(n + 1) };
                *sample *= 1.0 - ramp(at, length);
            }
        }
        self.mute = to;
    }

    fn sound_or_bypass(&mut self, samples: &mut [f32], frames: usize, told: &mut dyn Tell) {
        if !self.bypassed && self.bypass == 0 {
            self.sound(samples, frames, told);
            return;
        }
        self.dry[..samples.len()].copy_from_slice(samples);
        // The strip goes on unheard: its history is right when it comes back.
        self.sound(samples, frames, told);
        let (length, from) = (self.length, self.bypass);
        let to =
            if self.bypassed { (from + frames).min(length) } else { from.saturating_sub(frames) };
        let both = samples.chunks_exact_mut(frames).zip(self.dry.chunks_exact(frames));
        for (wet, dry) in both {
            for (n, (wet, dry)) in wet.iter_mut().zip(dry).enumerate() {
                let at = if self.bypassed { from + n + 1 } else { from.saturating_sub(n + 1) };
                *wet += (dry - *wet) * ramp(at, length);
            }
        }
        self.bypass = to;
    }

    fn sound(&mut self, samples: &mut [f32], frames: usize, told: &mut dyn Tell) {
        let channels = self.channels;
        let out = self.out;
        let Some(fading) = &mut self.fading else {
            if !out {
                self.strip.process(&mut Block::new(samples, channels));
            }
            return;
        };
        let length = self.length;
        let over = match fading.fade {
            Fade::Cross => {
                let other = &mut self.scratch[..samples.len()];
                other.copy_from_slice(samples);
                if !out {
                    self.strip.process(&mut Block::new(samples, channels));
                }
                fading.other.process(&mut Block::new(other, channels));
                let at = fading.at;
                let both = samples.chunks_exact_mut(frames).zip(other.chunks_exact(frames));
                for (old, new) in both {
                    for (n, (old, new)) in old.iter_mut().zip(new).enumerate() {
                        let share = ramp(at + n + 1, length);
                        *old += (new - *old) * share;
                    }
                }
                fading.at += frames;
                fading.at >= length
            }
            Fade::Through => {
                if !fading.turned && fading.at >= length {
                    std::mem::swap(&mut self.strip, &mut fading.other);
                    fading.turned = true;
                    fading.at = 0;
                    (self.out, self.cures) = (false, (0, 0));
                }
                if !self.out {
                    self.strip.process(&mut Block::new(samples, channels));
                }
                for channel in samples.chunks_exact_mut(frames) {
                    for (n, sample) in channel.iter_mut().enumerate() {
                        let share = ramp(fading.at + n + 1, length);
                        *sample *= if fading.turned { share } else { 1.0 - share };
                    }
                }
                fading.at += frames;
                fading.turned && fading.at >= length
            }
        };
        if over && let Some(mut done) = self.fading.take() {
            if !done.turned {
                std::mem::swap(&mut self.strip, &mut done.other);
                (self.out, self.cures) = (false, (0, 0));
            }
            told.tell(LoopEvent::Done(done.number));
            self.retire(done.other);
        }
    }

    /// Sends a strip home. There is room: it was there when the order was taken, and nobody else pushes.
    fn retire(&mut self, strip: ReadyStrip) {
        if let Err(rtrb::PushError::Full(strip)) = self.spent.push(strip) {
            debug_assert!(false, "a spent strip finds no room");
            std::mem::forget(strip);
        }
    }
}

/// A share from 0 to 1.
fn ramp(at: usize, length: usize) -> f32 {
    (at as f32 / length as f32).min(1.0)
}

impl Process for Player {
    fn process(&mut self, samples: &mut [f32], frames: usize, told: &mut dyn Tell) {
        // Also when nothing sounds: orders are to be carried out.
        self.obey(told);
        self.cures.1 += frames as u64;
        if self.cures.1 > self.whole {
            self.cures = (0, 0);
        }
        if frames == 0 || samples.len() > self.scratch.len() {
            return;
        }
        self.sound_or_bypass(samples, frames, told);
        if self.muted || self.mute > 0 {
            self.fade_to_silence(samples, frames);
        }
    }

    fn cure(&mut self, blocks: u32) -> Option<Cure> {
        if self.out || !blocks.is_multiple_of(PATIENCE) {
            return None;
        }
        if self.cures.0 == CURES {
            self.out = true;
            return Some(Cure::Bypass);
        }
        self.cures = (self.cures.0 + 1, 0);
        self.strip.reset();
        if let Some(fading) = &mut self.fading {
            fading.other.reset();
        }
        Some(Cure::Reset)
    }
}
