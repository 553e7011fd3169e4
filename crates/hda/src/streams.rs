//! Both directions of a card, started together, and where they are.

use crate::{
    codec::{Codec, SoundPath},
    controller::{Controller, Fault, LISTS, POSITIONS, RINGS, wait},
    format::LinkFormat,
    registers::{
        Door, SD_BDPL, SD_BDPU, SD_CBL, SD_CTL, SD_FIFOS, SD_FMT, SD_LPIB, SD_LVI, SD_STS, SD_TAG,
        SSYNC, SSYNC_OLD, STREAM_LENGTH, STREAMS, put_word, word,
    },
    track::{Moved, Track},
};
use std::sync::atomic::{Ordering::Relaxed, fence};

/// What is asked of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardWish {
    /// Frames a second.
    pub rate: u32,
    /// Frames of a period.
    pub period: u32,
    /// Frames of a ring: whole periods, two at least.
    pub buffer: u32,
    /// Whether it is to play, and to capture.
    pub plays: bool,
    /// As above.
    pub captures: bool,
}

/// Why a card does not do what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardError {
    /// The controller or a codec does not answer as it should.
    Fault(Fault),
    /// No jack for this direction: whether it is playing that is missing.
    NoJack(bool),
    /// The rate is not the converter's; those that are.
    Rate(Vec<u32>),
    /// Periods and rings of that size cannot be; why.
    Sizes(&'static str),
}

impl From<Fault> for CardError {
    fn from(fault: Fault) -> CardError {
        CardError::Fault(fault)
    }
}

impl std::fmt::Display for CardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CardError::Fault(fault) => fault.fmt(f),
            CardError::NoJack(true) => f.write_str("no codec of it has a jack that plays"),
            CardError::NoJack(false) => f.write_str(
                "no codec of it has a jack that captures; play alone with --capture none",
            ),
            CardError::Rate(has) => {
                let rates: Vec<String> = has.iter().map(u32::to_string).collect();
                write!(f, "it has not that rate; it has {}", rates.join(", "))
            }
            CardError::Sizes(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CardError {}

/// One direction.
#[derive(Clone, Debug)]
struct Direction {
    codec: Codec,
    path: SoundPath,
    format: LinkFormat,
    /// Its descriptor's index and registers.
    index: u32,
    at: u32,
    tag: u8,
    /// Where its two pieces lie in the shared memory, and bytes of the first one.
    pieces: [usize; 2],
    first: usize,
    /// Bytes of the ring.
    ring: usize,
    track: Track,
}

/// A card that is set up: two directions, or one.
#[derive(Debug)]
pub struct Streams<D> {
    controller: Controller<D>,
    capture: Option<Direction>,
    playback: Option<Direction>,
    wish: CardWish,
    /// Frames taken and handed over since the start.
    read: u64,
    written: u64,
    /// The positions in memory do not move: the registers are read.
    by_register: bool,
    /// Looks in vain.
    idle: u32,
}

/// What a look at both positions finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Less than a period is there.
    Less,
    /// A period can be taken and one handed over; so many frames wait.
    Ready(u32),
    /// Captured frames were lost, or there was nothing to play.
    Over {
        /// Captured frames were lost.
        capture: bool,
        /// There was nothing to play.
        playback: bool,
    },
    /// The controller is gone, or was reset by somebody else.
    Gone,
}

/// Pieces begin at multiples of so many bytes.
const ALIGNED: usize = 128;
/// Looks in vain until the registers are read beside the memory.
const LOOKS: u32 = 1 << 14;

/// Bytes of shared memory that a card needs for rings of so many frames, both ways, of up to two channels of 32 bits.
pub fn room(buffer: u32) -> usize {
    RINGS + 2 * (buffer as usize * 8 + 2 * ALIGNED)
}

impl<D: Door> Streams<D> {
    /// Finds jacks and converters, opens the ways between them, and prepares both streams; nothing moves yet.
    ///
    /// # Errors
    /// What the card cannot do; the controller is given back.
    pub fn open(
        controller: Controller<D>,
        wish: CardWish,
    ) -> Result<Streams<D>, (Controller<D>, CardError)> {
        match directions(&controller, &wish) {
            Err(error) => Err((controller, error)),
            Ok((capture, playback)) => {
                let (read, written, by_register, idle) = (0, 0, false, 0);
                Ok(Streams {
                    controller,
                    capture,
                    playback,
                    wish,
                    read,
                    written,
                    by_register,
                    idle,
                })
            }
        }
    }

    /// Stops it, and gives the controller back.
    pub fn close(self) -> Controller<D> {
        for way in self.capture.iter().chain(&self.playback) {
            halt(self.controller.door(), way.at);
        }
        self.controller
    }

    /// The controller.
    pub fn controller(&self) -> &Controller<D> {
        &self.controller
    }

    /// How it plays and captures, in words.
    pub fn about(&self) -> String {
        let one = |way: &Option<Direction>, does: &str| {
            let Some(way) = way else { return format!("nothing {does}") };
            let pin = way.codec.widgets.get(&way.path.pin).map_or("a jack", |pin| pin.called());
            format!(
                "{pin} (codec {:08x}, pin {:#04x}) {does} {} x {} bits",
                way.codec.vendor, way.path.pin, way.format.channels, way.format.bits
            )
        };
        format!("{}, {}", one(&self.playback, "plays"), one(&self.capture, "captures"))
    }

    /// The format of a direction.
    pub fn format(&self, plays: bool) -> Option<LinkFormat> {
        if plays { &self.playback } else { &self.capture }.as_ref().map(|way| way.format)
    }

    /// Both directions from any state to running: the playback ring full of silence, the capture ring empty.
    ///
    /// # Errors
    /// When a stream does not reset or start.
    pub fn start(&mut self, now: u64) -> Result<(), Fault> {
        let door = self.controller.door();
        for way in self.capture.iter().chain(&self.playback) {
            way.prepare(&self.controller)?;
        }
        let each = || self.capture.iter().chain(&self.playback);
        let both: u32 = each().map(|way| 1 << way.index).sum();
        // Held back together and let go together, where the controller can.
        let sync = [SSYNC, SSYNC_OLD].into_iter().find(|sync| {
            door.write32(*sync, both);
            let held = door.read32(*sync) & both == both;
            if !held {
                door.write32(*sync, 0);
            }
            held
        });
        for way in each() {
            door.write8(way.at + SD_STS, 0x1c);
            door.write8(way.at + SD_CTL, door.read8(way.at + SD_CTL) & !0x1c | 2);
        }
        for way in each() {
            wait(door, 100, || door.read8(way.at + SD_CTL) & 2 != 0).ok_or(Fault::NoStream)?;
        }
        if let Some(sync) = sync {
            // What plays has filled its FIFO by then, or never says so.
            if let Some(playback) = &self.playback {
                wait(door, 100, || door.read8(playback.at + SD_STS) & 0x20 != 0);
            }
            door.write32(sync, door.read32(sync) & !both);
        }
        let lasts = self.lasts();
        for way in self.capture.iter_mut().chain(&mut self.playback) {
            way.track = Track::new(way.ring as u32, way.format.frame_bytes() as u32, lasts, now);
        }
        (self.read, self.written, self.idle) = (0, u64::from(self.wish.buffer), 0);
        Ok(())
    }

    /// How long a ring lasts, ns.
    fn lasts(&self) -> u64 {
        u64::from(self.wish.buffer) * 1_000_000_000 / u64::from(self.wish.rate.max(1))
    }

    /// Looks where both directions are; `now` is any steady clock, ns.
    ///
    /// # Real time
    /// Two reads of memory that the device writes, and arithmetic. After many looks in vain a register is read as well.
    #[inline]
    pub fn look(&mut self, now: u64) -> Found {
        let door = self.controller.door();
        let (mut lost, mut dry, mut stands) = (false, false, false);
        let mut see = |way: &mut Direction, trouble: &mut bool| {
            let place = if self.by_register {
                door.read32(way.at + SD_LPIB)
            } else {
                word(door, POSITIONS + way.index as usize * 8)
            };
            match way.track.see(place, now) {
                Moved::On => {}
                Moved::Lapped => *trouble = true,
                Moved::Stands => stands = true,
            }
            way.track.frames()
        };
        let captured = self.capture.as_mut().map(|way| see(way, &mut lost));
        let played = self.playback.as_mut().map(|way| see(way, &mut dry));
        fence(std::sync::atomic::Ordering::Acquire);
        let (period, buffer) = (u64::from(self.wish.period), u64::from(self.wish.buffer));
        let waits = captured.map(|frames| frames.saturating_sub(self.read));
        lost |= waits.is_some_and(|frames| frames > buffer);
        dry |= played.is_some_and(|frames| frames > self.written);
        if lost || dry {
            return Found::Over { capture: lost, playback: dry };
        }
        let free = played.map(|frames| buffer.saturating_sub(self.written.saturating_sub(frames)));
        let there = |frames: Option<u64>| frames.is_none_or(|frames| frames >= period);
        if there(waits) && there(free) && (waits.is_some() || free.is_some()) {
            self.idle = 0;
            return Found::Ready(waits.or(free).unwrap_or(period) as u32);
        }
        self.idle += 1;
        if stands || self.idle >= LOOKS { self.doubt(stands) } else { Found::Less }
    }

    /// Nothing has come for long: whether the controller is there, and where its registers say that it is.
    #[cold]
    fn doubt(&mut self, stands: bool) -> Found {
        self.idle = 0;
        if self.controller.is_gone() {
            return Found::Gone;
        }
        let door = self.controller.door();
        for way in self.capture.iter().chain(&self.playback) {
            if door.read8(way.at + SD_CTL) & 2 == 0 {
                return Found::Gone;
            }
            let silent = word(door, POSITIONS + way.index as usize * 8) == 0;
            let period = self.wish.period as usize * way.format.frame_bytes();
            // More than a period by the register, nothing in memory: it does not write there.
            if silent && way.track.frames() == 0 && door.read32(way.at + SD_LPIB) as usize > period
            {
                self.by_register = true;
            }
        }
        match stands {
            true => {
                Found::Over { capture: self.capture.is_some(), playback: self.playback.is_some() }
            }
            false => Found::Less,
        }
    }

    /// Takes the period that is there: its bytes, interleaved. What is not captured is nothing.
    ///
    /// # Real time
    /// Yes: a copy.
    #[inline]
    pub fn take(&mut self, bytes: &mut [u8]) {
        if let Some(way) = &self.capture {
            let words = way.period(self.controller.door(), self.read, self.wish.period);
            for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
                to.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
            }
        }
        self.read += u64::from(self.wish.period);
    }

    /// Hands over the next period to be played.
    ///
    /// # Real time
    /// Yes: a copy.
    #[inline]
    pub fn give(&mut self, bytes: &[u8]) {
        if let Some(way) = &self.playback {
            let words = way.period(self.controller.door(), self.written, self.wish.period);
            for (from, word) in bytes.as_chunks::<4>().0.iter().zip(words) {
                word.store(u32::from_ne_bytes(*from), Relaxed);
            }
            fence(std::sync::atomic::Ordering::Release);
        }
        self.written += u64::from(self.wish.period);
    }

    /// Whether what was handed over last came too late: its turn had begun.
    ///
    /// # Real time
    /// Yes.
    #[inline]
    pub fn came_late(&self) -> bool {
        let Some(way) = &self.playback else { return false };
        let begun = self.written.saturating_sub(u64::from(self.wish.period));
        way.track.frames() > begun
    }
}

/// Both directions that are wished, converters and rings found for them.
fn directions<D: Door>(
    controller: &Controller<D>,
    wish: &CardWish,
) -> Result<(Option<Direction>, Option<Direction>), CardError> {
    if wish.period == 0 || wish.rate == 0 || wish.buffer < 2 * wish.period {
        return Err(CardError::Sizes("a ring has two periods at least"));
    }
    if !wish.buffer.is_multiple_of(wish.period) || wish.buffer > 1 << 20 {
        return Err(CardError::Sizes(
            "a ring of this host has whole periods, and 1048576 frames at most",
        ));
    }
    let mut codecs = Vec::new();
    for address in controller.codecs() {
        // One that gives no answer is not used; others may.
        codecs.extend(Codec::read(controller, address).into_iter().flatten());
    }
    if codecs.is_empty() {
        return Err(Fault::NoAnswer.into());
    }
    let mut place = RINGS;
    let mut one = |plays: bool, list: usize| -> Result<Direction, CardError> {
        let found = best(&codecs, plays).ok_or(CardError::NoJack(plays))?;
        Direction::new(controller, found, wish, (list, &mut place))
    };
    let capture = wish.captures.then(|| one(false, 0)).transpose()?;
    let playback = wish.plays.then(|| one(true, 1)).transpose()?;
    if let (Some(one), Some(other)) = (&capture, &playback)
        && one.index == other.index
    {
        return Err(Fault::NoStream.into());
    }
    Ok((capture, playback))
}

/// The most wanted way of all codecs: analogue before digital, codec by codec.
fn best(codecs: &[Codec], plays: bool) -> Option<(&Codec, SoundPath)> {
    let digital = |codec: &Codec, path: &SoundPath| {
        codec.widgets.get(&path.converter).is_some_and(|w| w.abilities & (1 << 9) != 0)
    };
    let all = codecs.iter().filter_map(|codec| {
        let path = codec.paths(plays).into_iter().next()?;
        Some((digital(codec, &path), codec, path))
    });
    all.min_by_key(|(digital, ..)| *digital).map(|(_, codec, path)| (codec, path))
}

impl Direction {
    fn new<D: Door>(
        controller: &Controller<D>,
        (codec, path): (&Codec, SoundPath),
        wish: &CardWish,
        (list, place): (usize, &mut usize),
    ) -> Result<Direction, CardError> {
        let abilities = codec.widgets.get(&path.converter).map_or(0, |w| w.formats);
        let channels = codec.channels(path.converter);
        let format = LinkFormat::best(abilities, wish.rate, channels)
            .ok_or_else(|| CardError::Rate(LinkFormat::rates(abilities)))?;
        let period = wish.period as usize * format.frame_bytes();
        if !period.is_multiple_of(4) {
            return Err(CardError::Sizes("a period of this card has an even number of frames"));
        }
        let ring = wish.buffer as usize * format.frame_bytes();
        let periods = ring / period;
        let first = periods.div_ceil(2) * period;
        let up = |at: usize| at.next_multiple_of(ALIGNED);
        let pieces = [*place, up(*place + first)];
        *place = up(pieces[1] + ring - first);
        let door = controller.door();
        if *place > door.words().len() * 4 {
            return Err(Fault::NoRoom.into());
        }
        let index = controller.stream(path.plays)?;
        let at = STREAMS + index * STREAM_LENGTH;
        let tag = if path.plays { 2 } else { 1 };
        let list = LISTS + list * 0x80;
        for (n, (piece, bytes)) in pieces.iter().zip([first, ring - first]).enumerate() {
            let bus = door.bus() + *piece as u64;
            let entry = [bus as u32, (bus >> 32) as u32, bytes as u32, 0];
            for (m, value) in entry.into_iter().enumerate() {
                put_word(door, list + n * 16 + m * 4, value);
            }
        }
        let track = Track::new(ring as u32, format.frame_bytes() as u32, 1, 0);
        codec.open(controller, &path, format, tag)?;
        let codec = codec.clone();
        Ok(Direction { codec, path, format, index, at, tag, pieces, first, ring, track })
    }

    /// Resets the stream and describes the ring to it; silence where it plays.
    fn prepare<D: Door>(&self, controller: &Controller<D>) -> Result<(), Fault> {
        let door = controller.door();
        halt(door, self.at);
        door.write8(self.at + SD_CTL, 1);
        wait(door, 100, || door.read8(self.at + SD_CTL) & 1 != 0).ok_or(Fault::NoStream)?;
        door.write8(self.at + SD_CTL, 0);
        wait(door, 100, || door.read8(self.at + SD_CTL) & 1 == 0).ok_or(Fault::NoStream)?;
        for (piece, bytes) in self.pieces.into_iter().zip([self.first, self.ring - self.first]) {
            for at in (piece..piece + bytes).step_by(4) {
                put_word(door, at, 0);
            }
        }
        put_word(door, POSITIONS + self.index as usize * 8, 0);
        let both_ways = controller.goes_both_ways(self.index) && self.path.plays;
        let tag = self.tag << 4 | if both_ways { 8 } else { 0 };
        door.write8(self.at + SD_TAG, tag);
        door.write32(self.at + SD_CBL, self.ring as u32);
        door.write16(self.at + SD_LVI, 1);
        door.write16(self.at + SD_FMT, self.format.word());
        // Some decide the size of their FIFO when it is first read after the format.
        let _ = door.read16(self.at + SD_FIFOS);
        let list = door.bus() + (LISTS + if self.path.plays { 0x80 } else { 0 }) as u64;
        door.write32(self.at + SD_BDPU, (list >> 32) as u32);
        door.write32(self.at + SD_BDPL, list as u32);
        Ok(())
    }

    /// The words of the period that begins at that frame.
    #[inline]
    fn period<'a, D: Door>(
        &self,
        door: &'a D,
        frame: u64,
        period: u32,
    ) -> &'a [std::sync::atomic::AtomicU32] {
        let bytes = self.format.frame_bytes();
        let at = (frame.wrapping_mul(bytes as u64) % self.ring as u64) as usize;
        let place = match at.checked_sub(self.first) {
            None => self.pieces[0] + at,
            Some(beyond) => self.pieces[1] + beyond,
        };
        let length = period as usize * bytes;
        door.words().get(place / 4..(place + length) / 4).unwrap_or_default()
    }
}

/// Stops a stream, and waits until it stands.
fn halt(door: &impl Door, at: u32) {
    door.write8(at + SD_CTL, door.read8(at + SD_CTL) & !0x1e);
    wait(door, 1000, || door.read8(at + SD_CTL) & 2 == 0);
}
