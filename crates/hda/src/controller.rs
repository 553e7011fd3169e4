//! A controller out of reset, and its codecs asked: every wait has an end, no number of the device's is believed.

use crate::registers::{
    CORBCTL, CORBLBASE, CORBRP, CORBSIZE, CORBUBASE, CORBWP, DPLBASE, DPUBASE, Door, GCAP, GCTL,
    INTCTL, RINTCNT, RIRBCTL, RIRBLBASE, RIRBSIZE, RIRBSTS, RIRBUBASE, RIRBWP, SD_CTL, STATESTS,
    STREAM_LENGTH, STREAMS, put_word, word,
};
use std::{
    cell::Cell,
    sync::atomic::{Ordering, fence},
};

/// Where things lie in the shared memory: commands, responses, positions, then the lists of pieces and the rings.
const CORB: usize = 0;
const RIRB: usize = 0x400;
pub(crate) const POSITIONS: usize = 0xc00;
/// Lists of pieces, one a direction.
pub(crate) const LISTS: usize = 0xe00;
/// The rings of sound.
pub(crate) const RINGS: usize = 0x1000;

/// Waits of 10 us for what takes some frames of the link, 20 us each.
const SOON: u32 = 1000;
/// The same for a reset: 100 ms.
const RESET: u32 = 10_000;
const STEP: u32 = 10;

/// Why a device does not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its registers read as ones: it is gone, or has no power.
    Gone,
    /// It does not enter or leave reset.
    NoReset,
    /// No codec has announced itself.
    NoCodec,
    /// A codec gives no answer.
    NoAnswer,
    /// It has too few streams for what is asked.
    NoStream,
    /// The shared memory is too small.
    NoRoom,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Gone => "its registers read as ones: it is gone, or has no power",
            Fault::NoReset => "it does not come out of its reset",
            Fault::NoCodec => "no codec answers on its link",
            Fault::NoAnswer => "a codec gave no answer",
            Fault::NoStream => "it has no stream engine for that direction",
            Fault::NoRoom => "the memory that it shares is too small for this buffer",
        })
    }
}

impl std::error::Error for Fault {}

/// A controller that is out of reset, its rings of commands running, all interrupts off.
#[derive(Debug)]
pub struct Controller<D> {
    door: D,
    /// Input, output and bidirectional streams.
    streams: (u32, u32, u32),
    /// One bit a codec.
    codecs: u16,
    /// The last response that was taken.
    seen: Cell<u16>,
    /// Entries of the rings, as the device has them.
    commands: u16,
    responses: u16,
    /// Waits that are left until nothing is waited for any more: 5 s in all from one reset to the next.
    patience: Cell<u32>,
}

const PATIENCE: u32 = 500_000;

impl<D: Door> Controller<D> {
    /// Resets the controller and starts its rings.
    ///
    /// # Errors
    /// When it does not answer as a controller does; the door is given back.
    pub fn reset(door: D) -> Result<Controller<D>, (D, Fault)> {
        match bring_up(&door) {
            Err(fault) => Err((door, fault)),
            Ok((streams, codecs, commands, responses)) => {
                let (seen, patience) = (Cell::new(0), Cell::new(PATIENCE));
                Ok(Controller { door, streams, codecs, seen, commands, responses, patience })
            }
        }
    }

    /// Its registers and memory.
    pub fn door(&self) -> &D {
        &self.door
    }

    /// Stops everything, and gives the door back.
    pub fn quiet(self) -> D {
        hush(&self.door, self.streams.0 + self.streams.1 + self.streams.2);
        self.door
    }

    /// The addresses of its codecs, 0 to 14.
    pub fn codecs(&self) -> impl Iterator<Item = u8> + use<D> {
        let codecs = self.codecs;
        (0..15).filter(move |n| codecs & (1 << n) != 0)
    }

    /// The index of a stream that captures and of one that plays.
    pub(crate) fn stream(&self, plays: bool) -> Result<u32, Fault> {
        let (inputs, outputs, both) = self.streams;
        match (plays, inputs, outputs) {
            (false, 1.., _) => Ok(0),
            (true, _, 1..) => Ok(inputs),
            // A bidirectional one stands in for one direction.
            _ if both > 0 => Ok(inputs + outputs),
            _ => Err(Fault::NoStream),
        }
    }

    /// Whether a stream can go either way.
    pub(crate) fn goes_both_ways(&self, stream: u32) -> bool {
        stream >= self.streams.0 + self.streams.1
    }

    /// Asks a codec, and waits for its answer, 10 ms at most.
    ///
    /// # Errors
    /// When none comes.
    pub fn ask(&self, codec: u8, node: u8, verb: u32) -> Result<u32, Fault> {
        let command = u32::from(codec & 0xf) << 28 | u32::from(node) << 20 | verb & 0xf_ffff;
        // What came unasked before is passed over.
        self.seen.set(self.door.read16(RIRBWP) & 0xff);
        let next = (self.door.read16(CORBWP) & 0xff).wrapping_add(1) % self.commands;
        put_word(&self.door, CORB + usize::from(next) * 4, command);
        fence(Ordering::Release);
        self.door.write16(CORBWP, next);
        for tries in 0..SOON {
            let newest = self.door.read16(RIRBWP) & 0xff;
            for _ in 0..self.responses {
                if self.seen.get() == newest {
                    break;
                }
                let at = (self.seen.get() + 1) % self.responses;
                self.seen.set(at);
                let place = RIRB + usize::from(at) * 8;
                // Written before the pointer that tells of it.
                fence(Ordering::Acquire);
                let (answer, about) = (word(&self.door, place), word(&self.door, place + 4));
                let unasked = about & 0x10 != 0;
                if !unasked && about & 0xf == u32::from(codec) {
                    self.door.write8(RIRBSTS, 5);
                    return Ok(answer);
                }
            }
            self.door.write8(RIRBSTS, 5);
            // Most answer within two frames of the link.
            if tries > 4 {
                let left = self.patience.get().checked_sub(1).ok_or(Fault::NoAnswer)?;
                self.patience.set(left);
                self.door.pause(STEP);
            }
        }
        Err(if self.is_gone() { Fault::Gone } else { Fault::NoAnswer })
    }

    /// A parameter of a node.
    ///
    /// # Errors
    /// As [`Controller::ask`].
    pub fn parameter(&self, codec: u8, node: u8, which: u8) -> Result<u32, Fault> {
        self.ask(codec, node, 0xf00 << 8 | u32::from(which))
    }

    /// Gives an order with 8 bits.
    ///
    /// # Errors
    /// As [`Controller::ask`].
    pub fn order(&self, codec: u8, node: u8, verb: u16, with: u8) -> Result<(), Fault> {
        self.ask(codec, node, u32::from(verb & 0xfff) << 8 | u32::from(with)).map(drop)
    }

    /// Gives an order with 16 bits: a format (2) or an amp (3).
    ///
    /// # Errors
    /// As [`Controller::ask`].
    pub fn order_long(&self, codec: u8, node: u8, verb: u8, with: u16) -> Result<(), Fault> {
        self.ask(codec, node, u32::from(verb & 0xf) << 16 | u32::from(with)).map(drop)
    }

    /// Whether the device is gone, or has lost its power.
    pub fn is_gone(&self) -> bool {
        let control = self.door.read32(GCTL);
        control == u32::MAX || control & 1 == 0
    }
}

/// Streams, codecs, entries of both rings.
type Up = ((u32, u32, u32), u16, u16, u16);

fn bring_up(door: &impl Door) -> Result<Up, Fault> {
    if door.words().len() * 4 < RINGS {
        return Err(Fault::NoRoom);
    }
    if door.read32(GCTL) == u32::MAX {
        return Err(Fault::Gone);
    }
    let streams = streams(door);
    hush(door, streams.0 + streams.1 + streams.2);
    door.write32(GCTL, 0);
    wait(door, RESET, || door.read32(GCTL) & 1 == 0).ok_or(Fault::NoReset)?;
    door.pause(200);
    door.write32(GCTL, 1);
    wait(door, RESET, || door.read32(GCTL) & 1 == 1).ok_or(Fault::NoReset)?;
    if door.read32(GCTL) == u32::MAX {
        return Err(Fault::Gone);
    }
    // Codecs have 521 us to announce themselves; some take longer after the power was off.
    door.pause(1000);
    wait(door, SOON, || door.read16(STATESTS) & 0x7fff != 0).ok_or(Fault::NoCodec)?;
    door.pause(1000);
    let codecs = door.read16(STATESTS) & 0x7fff;
    door.write32(INTCTL, 0);
    let (commands, responses) = start_rings(door)?;
    let positions = door.bus() + POSITIONS as u64;
    for at in (POSITIONS..LISTS).step_by(4) {
        put_word(door, at, 0);
    }
    door.write32(DPUBASE, (positions >> 32) as u32);
    door.write32(DPLBASE, positions as u32 | 1);
    Ok((streams, codecs, commands, responses))
}

/// Input, output and bidirectional streams, as many as have registers.
fn streams(door: &impl Door) -> (u32, u32, u32) {
    let says = u32::from(door.read16(GCAP));
    let room = door.length().saturating_sub(STREAMS) / STREAM_LENGTH;
    let inputs = (says >> 8 & 0xf).min(room);
    let outputs = (says >> 12 & 0xf).min(room - inputs);
    (inputs, outputs, (says >> 3 & 0x1f).min(room - inputs - outputs))
}

/// No interrupt, no stream, no ring.
fn hush(door: &impl Door, streams: u32) {
    door.write32(INTCTL, 0);
    for n in 0..streams {
        let at = STREAMS + n * STREAM_LENGTH + SD_CTL;
        door.write8(at, door.read8(at) & !0x1e);
        wait(door, SOON, || door.read8(at) & 2 == 0);
    }
    for control in [CORBCTL, RIRBCTL] {
        door.write8(control, 0);
        wait(door, SOON, || door.read8(control) & 2 == 0);
    }
    door.write32(DPLBASE, 0);
}

/// Starts the rings of commands and responses; how many entries each has.
fn start_rings(door: &impl Door) -> Result<(u16, u16), Fault> {
    let commands = entries(door, CORBSIZE);
    let responses = entries(door, RIRBSIZE);
    let bus = door.bus();
    for (low, high, place) in [(CORBLBASE, CORBUBASE, CORB), (RIRBLBASE, RIRBUBASE, RIRB)] {
        door.write32(low, (bus + place as u64) as u32);
        door.write32(high, ((bus + place as u64) >> 32) as u32);
    }
    // Some acknowledge by the same bit, some never show it.
    door.write16(CORBRP, 1 << 15);
    wait(door, 20, || door.read16(CORBRP) & 1 << 15 != 0);
    door.write16(CORBRP, 0);
    wait(door, 20, || door.read16(CORBRP) & 1 << 15 == 0);
    door.write16(CORBWP, 0);
    door.write16(RIRBWP, 1 << 15);
    // The device stops after so many responses until RIRBSTS is cleared; interrupts are off all the same.
    door.write16(RINTCNT, 1);
    door.write8(CORBCTL, 2);
    door.write8(RIRBCTL, 3);
    wait(door, SOON, || door.read8(CORBCTL) & 2 != 0).ok_or(Fault::NoAnswer)?;
    Ok((commands, responses))
}

/// The most entries that a ring can have, chosen.
fn entries(door: &impl Door, size: u32) -> u16 {
    let says = door.read8(size);
    let (choice, entries) = match says >> 4 {
        can if can & 4 != 0 => (2, 256),
        can if can & 2 != 0 => (1, 16),
        can if can & 1 != 0 => (0, 2),
        // Those that can be one size alone may say nothing of it.
        _ => return [2, 16, 256, 256][usize::from(says & 3)],
    };
    door.write8(size, says & !3 | choice);
    entries
}

/// Waits until something holds, `tries` steps at most; `None` where it never does.
pub(crate) fn wait(door: &impl Door, tries: u32, holds: impl Fn() -> bool) -> Option<()> {
    for _ in 0..tries {
        if holds() {
            return Some(());
        }
        door.pause(STEP);
    }
    holds().then_some(())
}
