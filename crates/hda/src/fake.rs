//! Two controllers that are none: a faithful one, which plays and captures, and one that answers anything.
//!
//! Both stand where the device stands, at the far end of registers and memory. The faithful one follows the addresses that the driver
//! has written, and fails the test where one leads outside the shared memory.

use crate::{
    codec::Codec,
    controller::Controller,
    registers::{
        CORBCTL, CORBLBASE, CORBRP, CORBSIZE, CORBWP, DPLBASE, GCAP, GCTL, Pages, RIRBCTL,
        RIRBLBASE, RIRBSIZE, RIRBWP, Registers, SD_BDPL, SD_CBL, SD_CTL, SD_LPIB, SD_LVI, SD_STS,
        SD_TAG, SSYNC, STATESTS, STREAM_LENGTH, STREAMS,
    },
    streams::{CardWish, Streams, room},
};
use std::{
    cell::{Cell, RefCell},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Where the shared memory lies on the fake's bus.
const BUS: u64 = 0x1_0000_0000 - 0x10_0000;

/// Parameters and other answers of a codec: node, verb with its payload, answer.
pub(crate) type Answers = &'static [(u8, u32, u32)];

/// One function of sound, two converters, a jack each way: as simple as a codec can be.
pub(crate) const SIMPLE: Answers = &[
    (0, 0xf0000, 0x1af4_0022),
    (0, 0xf0004, 0x0001_0001),
    (1, 0xf0005, 1),
    (1, 0xf0004, 0x0002_0004),
    (1, 0xf000a, 1 << 17 | 1 << 6 | 1 << 5),
    (1, 0xf0012, 0x8003_4a4a),
    (2, 0xf0009, 0x0000_0015),
    (3, 0xf0009, 0x0040_0101),
    (3, 0xf000c, 0x10),
    (3, 0xf000e, 1),
    (3, 0xf0200, 2),
    (3, 0xf1c00, 0x0101_0010),
    (4, 0xf0009, 0x0010_0111),
    (4, 0xf000e, 1),
    (4, 0xf0200, 5),
    (5, 0xf0009, 0x0040_0001),
    (5, 0xf000c, 0x20),
    (5, 0xf1c00, 0x0181_0020),
];

/// As desktop boards have them: mixers, a selector, ranges in lists of inputs, jacks that tell what is plugged in, amps of their own,
/// S/PDIF, pins that nothing is wired to.
pub(crate) const BOARD: Answers = &[
    (0, 0xf0000, 0x10ec_0892),
    (0, 0xf0004, 0x0001_0002),
    // A modem before the sound.
    (1, 0xf0005, 2),
    (2, 0xf0005, 0x101),
    (2, 0xf0004, 0x0008_0018),
    (2, 0xf000a, 1 << 19 | 1 << 17 | 1 << 6 | 1 << 8),
    // Three converters, one of them digital.
    (0x08, 0xf0009, 0x0000_0005),
    (0x09, 0xf0009, 0x0000_0005),
    (0x0a, 0xf0009, 0x0000_0215),
    (0x0a, 0xf000a, 1 << 20 | 1 << 6),
    // Mixers before two jacks: of a converter and of what comes in.
    (0x0c, 0xf0009, 0x0020_010b),
    (0x0c, 0xf000d, 0x8000_0000),
    (0x0c, 0xf000e, 2),
    (0x0c, 0xf0200, 0x1608),
    (0x0d, 0xf0009, 0x0020_010b),
    (0x0d, 0xf000d, 0x8000_0000),
    (0x0d, 0xf000e, 2),
    (0x0d, 0xf0200, 0x1609),
    // What comes in, mixed: a range of four.
    (0x16, 0xf0009, 0x0020_010b),
    (0x16, 0xf000d, 0x8000_1717),
    (0x16, 0xf000e, 2),
    (0x16, 0xf0200, 0x9b18),
    // Jacks: line out, headphones (plugged in), one that is not wired, S/PDIF.
    (0x10, 0xf0009, 0x0040_018d),
    (0x10, 0xf0012, 0x8000_0000),
    (0x10, 0xf000c, 0x0001_001c),
    (0x10, 0xf000e, 2),
    (0x10, 0xf0200, 0x0d0c),
    (0x10, 0xf1c00, 0x0101_4010),
    (0x11, 0xf0009, 0x0040_018d),
    (0x11, 0xf000c, 0x0001_001c),
    (0x11, 0xf000e, 2),
    (0x11, 0xf0200, 0x0d16),
    (0x11, 0xf1c00, 0x0221_4020),
    (0x11, 0xf0900, 0x8000_0000),
    (0x12, 0xf0009, 0x0040_0181),
    (0x12, 0xf000c, 0x10),
    (0x12, 0xf000e, 1),
    (0x12, 0xf0200, 0x0c),
    (0x12, 0xf1c00, 0x4111_11f0),
    (0x13, 0xf0009, 0x0040_0381),
    (0x13, 0xf000c, 0x10),
    (0x13, 0xf000e, 1),
    (0x13, 0xf0200, 0x0a),
    (0x13, 0xf1c00, 0x0144_6130),
    // Jacks in: a microphone that is not there, line in.
    (0x18, 0xf0009, 0x0040_008b),
    (0x18, 0xf000d, 0x0027_0300),
    (0x18, 0xf000c, 0x1724),
    (0x18, 0xf1c00, 0x01a1_9040),
    (0x19, 0xf0009, 0x0040_0001),
    (0x19, 0xf000c, 0x20),
    (0x19, 0xf1c00, 0x0181_3150),
    (0x1a, 0xf0009, 0x0040_0001),
    (0x1a, 0xf000c, 0x20),
    (0x1a, 0xf1c00, 0x4111_11f0),
    (0x1b, 0xf0009, 0x0040_0001),
    (0x1b, 0xf000c, 0x20),
    (0x1b, 0xf1c00, 0x4111_11f0),
    // A selector, in long entries, and the converter that listens to it.
    (0x1c, 0xf0009, 0x0030_0101),
    (0x1c, 0xf000e, 0x83),
    (0x1c, 0xf0200, 0x0018_0016),
    (0x1c, 0xf0202, 0x0000_0019),
    (0x1d, 0xf0009, 0x0010_011b),
    (0x1d, 0xf000a, 1 << 17 | 1 << 6),
    (0x1d, 0xf000d, 0x8003_1f10),
    (0x1d, 0xf000e, 1),
    (0x1d, 0xf0200, 0x1c),
];

/// A controller that does what the specification says.
pub(crate) struct Faithful {
    words: Vec<AtomicU32>,
    registers: RefCell<Vec<u8>>,
    answers: Answers,
    /// Orders that codecs got: node and verb with its payload.
    pub orders: RefCell<Vec<(u8, u32)>>,
    /// All that was played.
    pub heard: RefCell<Vec<u8>>,
    /// Bytes captured so far: each word is its own number.
    captured: Cell<u32>,
    /// Whether positions are written to memory.
    pub tells: Cell<bool>,
}

impl Faithful {
    pub(crate) fn new(answers: Answers, bytes: usize) -> Faithful {
        let card = Faithful {
            words: (0..bytes / 4).map(|_| AtomicU32::new(0)).collect(),
            registers: RefCell::new(vec![0; 0x400]),
            answers,
            orders: RefCell::default(),
            heard: RefCell::default(),
            captured: Cell::new(0),
            tells: Cell::new(true),
        };
        card.set(GCAP, 2, 0x4401);
        card.set(CORBSIZE, 1, 0x42);
        card.set(RIRBSIZE, 1, 0x42);
        card
    }

    fn get(&self, at: u32, bytes: usize) -> u32 {
        let registers = self.registers.borrow();
        let mut all = [0; 4];
        all[..bytes].copy_from_slice(&registers[at as usize..][..bytes]);
        u32::from_le_bytes(all)
    }

    fn set(&self, at: u32, bytes: usize, value: u32) {
        let mut registers = self.registers.borrow_mut();
        registers[at as usize..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    /// The word at an address of the bus: one outside is a driver's fault.
    fn at(&self, bus: u64) -> &AtomicU32 {
        let at = bus.checked_sub(BUS).expect("an address below the shared memory");
        assert_eq!(at % 4, 0, "an address that is none of a word");
        self.words.get(at as usize / 4).expect("an address beyond the shared memory")
    }

    fn wide(&self, low: u32) -> u64 {
        u64::from(self.get(low, 4)) | u64::from(self.get(low + 4, 4)) << 32
    }

    /// Answers the commands up to the pointer.
    fn commands(&self) {
        if self.get(CORBCTL, 1) & 2 == 0 {
            return;
        }
        while self.get(CORBRP, 2) != self.get(CORBWP, 2) {
            let next = (self.get(CORBRP, 2) + 1) % 256;
            self.set(CORBRP, 2, next);
            let command = self.at(self.wide(CORBLBASE) + u64::from(next) * 4).load(Relaxed);
            let (codec, node, verb) =
                (command >> 28, (command >> 20 & 0xff) as u8, command & 0xf_ffff);
            if codec != 0 || self.get(RIRBCTL, 1) & 2 == 0 {
                continue;
            }
            let found = self.answers.iter().find(|(n, v, _)| (*n, *v) == (node, verb));
            if verb >> 8 < 0xf00 {
                self.orders.borrow_mut().push((node, verb));
            }
            // Something unasked comes first.
            for (answer, about) in [(0xdead_beef, 0x10), (found.map_or(0, |f| f.2), 0)] {
                let place = (self.get(RIRBWP, 2) + 1) % 256;
                let at = self.wide(RIRBLBASE) + u64::from(place) * 8;
                self.at(at).store(answer, Relaxed);
                self.at(at + 4).store(about, Relaxed);
                self.set(RIRBWP, 2, place);
            }
        }
    }

    /// Lets so many bytes pass in every stream that runs.
    pub(crate) fn pass(&self, bytes: u32) {
        let held = self.get(SSYNC, 4);
        for stream in 0..8u32 {
            let at = STREAMS + stream * STREAM_LENGTH;
            if self.get(at + SD_CTL, 1) & 2 == 0 || held & 1 << stream != 0 {
                continue;
            }
            let plays = stream >= 4;
            assert_eq!(self.get(at + SD_TAG, 1), if plays { 0x20 } else { 0x10 });
            let mut place = self.get(at + SD_LPIB, 4);
            for _ in 0..bytes / 4 {
                let word = self.within(at, place);
                if plays {
                    self.heard.borrow_mut().extend(word.load(Relaxed).to_le_bytes());
                } else {
                    let number = self.captured.get();
                    word.store(number, Relaxed);
                    self.captured.set(number + 1);
                }
                place = (place + 4) % self.get(at + SD_CBL, 4);
            }
            self.set(at + SD_LPIB, 4, place);
            let told = self.get(DPLBASE, 4);
            if told & 1 != 0 && self.tells.get() {
                let bus = self.wide(DPLBASE) & !0x7f;
                self.at(bus + u64::from(stream) * 8).store(place, Relaxed);
            }
        }
    }

    /// The word at a place of a stream's ring, by its list of pieces.
    fn within(&self, at: u32, mut place: u32) -> &AtomicU32 {
        let list = self.wide(at + SD_BDPL);
        assert_eq!(list % 128, 0, "a list of pieces lies at a multiple of 128");
        for n in 0..=u64::from(self.get(at + SD_LVI, 2)) {
            let entry = |m: u64| u64::from(self.at(list + n * 16 + m * 4).load(Relaxed));
            let (bus, length) = (entry(0) | entry(1) << 32, entry(2) as u32);
            assert_eq!((bus % 128, entry(3)), (0, 0), "a piece, without an interrupt");
            if place < length {
                return self.at(bus + u64::from(place));
            }
            place -= length;
        }
        panic!("a ring that is longer than its pieces");
    }
}

impl Registers for Faithful {
    fn read8(&self, at: u32) -> u8 {
        self.get(at, 1) as u8
    }
    fn read16(&self, at: u32) -> u16 {
        self.get(at, 2) as u16
    }
    fn read32(&self, at: u32) -> u32 {
        self.get(at, 4)
    }
    fn write8(&self, at: u32, value: u8) {
        self.set(at, 1, value.into());
        if at >= STREAMS && (at - STREAMS) % STREAM_LENGTH == SD_CTL {
            if value & 1 != 0 {
                for n in SD_STS..STREAM_LENGTH {
                    self.set(at + n, 1, 0);
                }
            }
            self.set(at + SD_STS, 1, 0x20);
        }
    }
    fn write16(&self, at: u32, value: u16) {
        match at {
            RIRBWP if value & 1 << 15 != 0 => self.set(RIRBWP, 2, 0),
            _ => self.set(at, 2, value.into()),
        }
        if at == CORBWP {
            self.commands();
        }
    }
    fn write32(&self, at: u32, value: u32) {
        self.set(at, 4, value);
        if at == GCTL {
            self.set(STATESTS, 2, value & 1);
        }
    }
    fn length(&self) -> u32 {
        0x400
    }
    fn pause(&self, _: u32) {}
}

impl Pages for Faithful {
    fn words(&self) -> &[AtomicU32] {
        &self.words
    }
    fn bus(&self) -> u64 {
        BUS
    }
}

/// A controller that answers anything, and writes anything anywhere into the shared memory at any time.
pub(crate) struct Hostile<'a> {
    words: Vec<AtomicU32>,
    bytes: &'a [u8],
    next: Cell<u64>,
    /// Answers so far, of this one and those before it.
    answers: &'a Cell<u64>,
    /// Some answers make sense, or nothing but the beginning would be reached.
    sense: Cell<u8>,
    seen: Cell<u16>,
}

impl<'a> Hostile<'a> {
    pub(crate) fn new(bytes: &'a [u8], answers: &'a Cell<u64>) -> Hostile<'a> {
        let sense = Cell::new(bytes.first().copied().unwrap_or(0));
        let words = (0..room(256) / 4).map(|_| AtomicU32::new(0)).collect();
        Hostile { words, bytes, next: Cell::new(1), answers, sense, seen: Cell::new(0) }
    }

    /// What the bytes say first, then what follows from them.
    fn any(&self) -> u32 {
        let n = self.next.get();
        self.next.set(n + 1);
        self.answers.set(self.answers.get() + 1);
        let from = |at: usize| u64::from(self.bytes.get(at).copied().unwrap_or(0));
        let given = from(n as usize % self.bytes.len().max(1));
        let mut mixed = (n << 8 | given).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 29;
        mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (mixed >> 32) as u32;
        // The memory changes under whoever reads it.
        if let Some(word) = self.words.get(mixed as usize % self.words.len().max(1)) {
            word.store(value.rotate_left(7), Relaxed);
        }
        match given & 3 {
            0 => value & 0xff,
            1 => 0,
            2 if given & 4 != 0 => u32::MAX,
            _ => value,
        }
    }

    fn read(&self, at: u32) -> u32 {
        let sense = self.sense.get();
        let any = self.any();
        if sense & 1 != 0 && any & 7 != 0 {
            // As far as a codec that answers nonsense.
            match at {
                GCTL => return self.seen.get().into(),
                STATESTS => return 1,
                CORBCTL => return 2,
                RIRBWP => return any & 0xff,
                _ => {}
            }
        }
        if sense & 2 != 0 && at >= STREAMS && any & 15 != 0 {
            return any | if (at - STREAMS) % STREAM_LENGTH == SD_CTL { 2 } else { 0 };
        }
        any
    }

    /// Goes through all that a driver does, as far as this controller lets it.
    pub(crate) fn drive(self) {
        let steps = 50 + self.bytes.len() % 100;
        let wish = CardWish { rate: 48_000, period: 32, buffer: 128, plays: true, captures: true };
        let Ok(controller) = Controller::reset(self) else { return };
        for codec in controller.codecs().take(2).collect::<Vec<_>>() {
            for codec in Codec::read(&controller, codec).into_iter().flatten() {
                for path in codec.paths(true).into_iter().chain(codec.paths(false)) {
                    assert!(path.hops.len() <= 12 && codec.widgets.contains_key(&path.pin));
                }
            }
        }
        let Ok(mut streams) = Streams::open(controller, wish) else { return };
        let mut bytes = [0; 32 * 8];
        let mut now = 0;
        for _ in 0..steps {
            if streams.start(now).is_err() {
                break;
            }
            for _ in 0..20 {
                now += u64::from(streams.controller().door().any()) / 64;
                let _ = streams.look(now);
                streams.take(&mut bytes);
                streams.give(&bytes);
                let _ = streams.came_late();
            }
        }
        streams.close().quiet();
    }
}

impl Registers for Hostile<'_> {
    fn read8(&self, at: u32) -> u8 {
        self.read(at) as u8
    }
    fn read16(&self, at: u32) -> u16 {
        self.read(at) as u16
    }
    fn read32(&self, at: u32) -> u32 {
        self.read(at)
    }
    fn write8(&self, _: u32, _: u8) {}
    fn write16(&self, _: u32, _: u16) {}
    fn write32(&self, at: u32, value: u32) {
        if at == GCTL {
            self.seen.set(value as u16 & 1);
        }
    }
    fn length(&self) -> u32 {
        self.any()
    }
    fn pause(&self, _: u32) {}
}

impl Pages for Hostile<'_> {
    fn words(&self) -> &[AtomicU32] {
        &self.words
    }
    fn bus(&self) -> u64 {
        BUS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Found, WidgetKind};
    use proptest::prelude::*;

    fn controller(answers: Answers, buffer: u32) -> Controller<Faithful> {
        Controller::reset(Faithful::new(answers, room(buffer)))
            .unwrap_or_else(|(_, fault)| panic!("{fault}"))
    }

    fn wish(period: u32, buffer: u32) -> CardWish {
        CardWish { rate: 48_000, period, buffer, plays: true, captures: true }
    }

    fn card(answers: Answers, period: u32, buffer: u32) -> Streams<Faithful> {
        let open = Streams::open(controller(answers, buffer), wish(period, buffer));
        let mut card = open.unwrap_or_else(|(_, error)| panic!("{error}"));
        card.start(0).unwrap();
        card
    }

    #[test]
    fn ways_are_found_through_mixers_and_selectors_the_best_jack_first() {
        let controller = controller(BOARD, 128);
        let codecs = Codec::read(&controller, 0).unwrap();
        let [codec] = &codecs[..] else { panic!("{codecs:?}") };
        assert_eq!((codec.vendor, codec.group, codec.widgets.len()), (0x10ec_0892, 2, 24));
        assert_eq!(codec.widgets[&0x16].from, [0x18, 0x19, 0x1a, 0x1b], "a range");
        assert_eq!(codec.widgets[&0x1c].from, [0x16, 0x18, 0x19], "long entries");
        let plays = codec.paths(true);
        let pins: Vec<u8> = plays.iter().map(|path| path.pin).collect();
        // The line out has nothing in it, the headphones have; S/PDIF comes last; what is not wired never.
        assert_eq!(pins, [0x11, 0x10, 0x13]);
        assert_eq!(plays[0].hops, [(0x11, 1), (0x0d, 0), (0x09, 0)]);
        assert_eq!(plays[2].converter, 0x0a);
        let captures = codec.paths(false);
        let pins: Vec<u8> = captures.iter().map(|path| path.pin).collect();
        assert_eq!(pins, [0x19, 0x18]);
        assert_eq!(captures[0].hops, [(0x1d, 0), (0x1c, 2), (0x19, 0)], "past the mixer");
        assert_eq!(codec.widgets[&0x13].kind, WidgetKind::Pin);
    }

    #[test]
    fn a_way_is_opened_and_what_leads_elsewhere_is_mute() {
        let card = card(BOARD, 64, 128);
        let orders = card.controller().door().orders.borrow().clone();
        for wanted in [
            (0x11, 0x707c0),
            (0x11, 0x70101),
            (0x11, 0x70c02),
            // The mixer's other input, which is what comes in, is mute.
            (0x0d, 0x37180),
            (0x0d, 0x37000),
            (0x09, 0x70620),
            (0x09, 0x20031),
            (0x08, 0x70600),
            (0x1c, 0x70102),
            (0x19, 0x70720),
            (0x1d, 0x37010),
            (0x1d, 0x70610),
            (0x1d, 0x20011),
        ] {
            assert!(orders.contains(&wanted), "{wanted:x?} of {orders:x?}");
        }
        assert!(card.about().contains("headphones"), "{}", card.about());
        assert!(card.about().contains("line in"), "{}", card.about());
    }

    /// Frame n of what is captured is the number n; what is handed over is what was taken.
    fn wire(card: &mut Streams<Faithful>, period: usize, steps: &[u32]) -> u64 {
        let mut bytes = vec![0; period * 4];
        let (mut now, mut blocks) = (0, 0u64);
        for step in steps {
            card.controller().door().pass(step * 4);
            now += 1;
            while let Found::Ready(waiting) = card.look(now) {
                assert!(waiting as usize >= period);
                card.take(&mut bytes);
                let first = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                assert_eq!(u64::from(first), blocks * period as u64);
                card.give(&bytes);
                assert!(!card.came_late());
                blocks += 1;
            }
        }
        blocks
    }

    #[test]
    fn what_comes_in_goes_out_a_ring_later_to_the_bit() {
        for (period, buffer) in [(16, 32), (16, 48), (64, 128), (50, 250), (1, 2), (100, 300)] {
            let mut card = card(SIMPLE, period, buffer);
            let steps: Vec<u32> = (0..400).map(|n| n % (buffer - period).max(1) + 1).collect();
            let steps: Vec<u32> = steps.into_iter().map(|n| n.min(period)).collect();
            let all: u32 = steps.iter().sum();
            let blocks = wire(&mut card, period as usize, &steps);
            assert_eq!(blocks, u64::from(all / period));
            let door = card.close().quiet();
            let heard = door.heard.borrow();
            assert_eq!(heard.len() as u32, all * 4);
            for (n, frame) in heard.as_chunks::<4>().0.iter().enumerate() {
                let wanted = (n as u32).saturating_sub(buffer);
                let wanted = if (n as u32) < buffer { 0 } else { wanted };
                assert_eq!(u32::from_le_bytes(*frame), wanted, "frame {n} of {period} {buffer}");
            }
        }
    }

    #[test]
    fn who_comes_too_late_is_told_which_way_and_starts_as_at_first() {
        let mut card = card(SIMPLE, 64, 256);
        card.controller().door().pass(4 * 200);
        assert_eq!(card.look(1), Found::Ready(200));
        card.controller().door().pass(4 * 57);
        assert_eq!(card.look(2), Found::Over { capture: true, playback: true });
        card.start(3).unwrap();
        card.controller().door().pass(4 * 64);
        assert_eq!(card.look(4), Found::Ready(64));
        // Nobody looked for as long as a ring lasts: the place alone would say that all is well.
        assert_eq!(
            card.look(4 + 256 * 1_000_000_000 / 48_000),
            Found::Over { capture: true, playback: true }
        );
    }

    #[test]
    fn a_card_that_writes_no_positions_is_read_by_its_registers() {
        let mut card = card(SIMPLE, 64, 256);
        card.controller().door().tells.set(false);
        let mut found = Found::Less;
        for now in 0..100_000 {
            if now == 10 {
                card.controller().door().pass(4 * 100);
            }
            found = card.look(now);
            if found != Found::Less {
                break;
            }
        }
        assert_eq!(found, Found::Ready(100));
    }

    #[test]
    fn a_card_that_is_reset_by_somebody_else_is_gone_and_comes_back() {
        let mut card = card(SIMPLE, 64, 256);
        card.controller().door().write32(GCTL, 0);
        let gone = (0..100_000).map(|now| card.look(now)).find(|found| *found != Found::Less);
        assert_eq!(gone, Some(Found::Gone));
        let door = card.close().quiet();
        let controller = Controller::reset(door).unwrap_or_else(|(_, fault)| panic!("{fault}"));
        let mut card =
            Streams::open(controller, wish(64, 256)).unwrap_or_else(|(_, e)| panic!("{e}"));
        card.start(0).unwrap();
        card.controller().door().pass(4 * 64);
        assert_eq!(card.look(1), Found::Ready(64));
    }

    #[test]
    fn what_a_card_has_not_is_refused_with_what_it_has() {
        let refused = |answers, wish, bytes| {
            let controller = Controller::reset(Faithful::new(answers, bytes))
                .unwrap_or_else(|(_, fault)| panic!("{fault}"));
            Streams::open(controller, wish).map(|_| ()).unwrap_err().1.to_string()
        };
        let bytes = room(256);
        let other = CardWish { rate: 96_000, ..wish(64, 256) };
        assert!(refused(SIMPLE, other, bytes).contains("it has 44100, 48000"));
        assert!(refused(SIMPLE, wish(64, 1 << 18), bytes).contains("too small"));
        assert!(refused(SIMPLE, wish(64, 100), bytes).contains("two periods"));
        assert!(refused(&SIMPLE[..13], wish(64, 256), bytes).contains("captures"));
        assert!(refused(&[], wish(64, 256), bytes).contains("no answer"));
    }

    #[test]
    fn a_device_that_is_not_there_reads_as_ones_and_is_gone() {
        struct Nothing(Vec<AtomicU32>);
        impl Registers for Nothing {
            fn read8(&self, _: u32) -> u8 {
                u8::MAX
            }
            fn read16(&self, _: u32) -> u16 {
                u16::MAX
            }
            fn read32(&self, _: u32) -> u32 {
                u32::MAX
            }
            fn write8(&self, _: u32, _: u8) {}
            fn write16(&self, _: u32, _: u16) {}
            fn write32(&self, _: u32, _: u32) {}
            fn length(&self) -> u32 {
                0x400
            }
            fn pause(&self, _: u32) {}
        }
        impl Pages for Nothing {
            fn words(&self) -> &[AtomicU32] {
                &self.0
            }
            fn bus(&self) -> u64 {
                BUS
            }
        }
        let words = (0..room(64)).map(|_| AtomicU32::new(0)).collect();
        assert_eq!(
            Controller::reset(Nothing(words)).map(|_| ()).map_err(|e| e.1),
            Err(Fault::Gone)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_controller_that_answers_anything_ends_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            Hostile::new(&bytes, &Cell::new(0)).drive();
        }
    }

    /// No panic, and no loop without an end: what a driver asks of the worst of them is bounded.
    #[test]
    fn a_million_random_registers_and_responses_end_nothing() {
        let answers = Cell::new(0);
        let (mut drives, mut most, mut seed) = (0u64, 0, 0x2545_f491_4f6c_dd1d_u64);
        while answers.get() < 1_000_000 {
            let bytes: Vec<u8> = (0..drives % 200)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    (seed >> 32) as u8
                })
                .collect();
            let before = answers.get();
            Hostile::new(&bytes, &answers).drive();
            most = most.max(answers.get() - before);
            drives += 1;
        }
        assert!(drives > 20 && most < 500_000, "{most} in one of {drives} drives");
        println!("{} answers in {drives} drives, {most} in one", answers.get());
    }
}
