//! A controller's registers, and the memory that it and we share.
//!
//! All that is known of a device is read through [`Registers`] and [`Pages`]: tests put a controller of their own behind them, a
//! faithful one and one that answers anything.
//!
//! # Source
//! High Definition Audio Specification, revision 1.0a, chapter 3.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// Reads and writes a device's registers by their offset. What lies beyond the device reads as ones, and is not written.
pub trait Registers {
    /// One byte.
    fn read8(&self, at: u32) -> u8;
    /// Two bytes, at an even offset.
    fn read16(&self, at: u32) -> u16;
    /// Four bytes, at a multiple of four.
    fn read32(&self, at: u32) -> u32;
    /// One byte.
    fn write8(&self, at: u32, value: u8);
    /// Two bytes, at an even offset.
    fn write16(&self, at: u32, value: u16);
    /// Four bytes, at a multiple of four.
    fn write32(&self, at: u32, value: u32);
    /// Bytes of registers that there are.
    fn length(&self) -> u32;
    /// Lets the device have some time; never called while sound is moved.
    fn pause(&self, micros: u32) {
        std::thread::sleep(Duration::from_micros(micros.into()));
    }
}

/// Memory that the device reads and writes as well: one piece, at one address of the bus.
pub trait Pages {
    /// The words of it, little-endian as the device sees them. The device changes them at any time.
    fn words(&self) -> &[AtomicU32];
    /// Where the device finds the first byte; a multiple of 4096.
    fn bus(&self) -> u64;
}

/// A device: its registers and its memory.
pub trait Door: Registers + Pages {}

impl<T: Registers + Pages> Door for T {}

/// One word of the shared memory; what lies beyond it is 0.
pub(crate) fn word(pages: &impl Pages, at: usize) -> u32 {
    pages.words().get(at / 4).map_or(0, |word| u32::from_le(word.load(Relaxed)))
}

/// Writes one word of the shared memory; what lies beyond it is not written.
pub(crate) fn put_word(pages: &impl Pages, at: usize, value: u32) {
    if let Some(word) = pages.words().get(at / 4) {
        word.store(value.to_le(), Relaxed);
    }
}

/// Global capabilities: numbers of streams, 64-bit addresses.
pub(crate) const GCAP: u32 = 0x00;
/// Global control: bit 0 leaves reset.
pub(crate) const GCTL: u32 = 0x08;
/// Which codecs have announced themselves.
pub(crate) const STATESTS: u32 = 0x0e;
/// Interrupts: 0 is none.
pub(crate) const INTCTL: u32 = 0x20;
/// Streams held back together, in controllers of the first generation, and since.
pub(crate) const SSYNC_OLD: u32 = 0x34;
/// As above.
pub(crate) const SSYNC: u32 = 0x38;
/// The ring of commands.
pub(crate) const CORBLBASE: u32 = 0x40;
pub(crate) const CORBUBASE: u32 = 0x44;
pub(crate) const CORBWP: u32 = 0x48;
pub(crate) const CORBRP: u32 = 0x4a;
pub(crate) const CORBCTL: u32 = 0x4c;
pub(crate) const CORBSIZE: u32 = 0x4e;
/// The ring of responses.
pub(crate) const RIRBLBASE: u32 = 0x50;
pub(crate) const RIRBUBASE: u32 = 0x54;
pub(crate) const RIRBWP: u32 = 0x58;
pub(crate) const RINTCNT: u32 = 0x5a;
pub(crate) const RIRBCTL: u32 = 0x5c;
pub(crate) const RIRBSTS: u32 = 0x5d;
pub(crate) const RIRBSIZE: u32 = 0x5e;
/// Where the device writes the positions of its streams.
pub(crate) const DPLBASE: u32 = 0x70;
pub(crate) const DPUBASE: u32 = 0x74;
/// The first stream's descriptor; each is [`STREAM_LENGTH`] long.
pub(crate) const STREAMS: u32 = 0x80;
pub(crate) const STREAM_LENGTH: u32 = 0x20;
/// Within a stream's descriptor.
pub(crate) const SD_CTL: u32 = 0x00;
pub(crate) const SD_TAG: u32 = 0x02;
pub(crate) const SD_STS: u32 = 0x03;
pub(crate) const SD_LPIB: u32 = 0x04;
pub(crate) const SD_CBL: u32 = 0x08;
pub(crate) const SD_LVI: u32 = 0x0c;
pub(crate) const SD_FIFOS: u32 = 0x10;
pub(crate) const SD_FMT: u32 = 0x12;
pub(crate) const SD_BDPL: u32 = 0x18;
pub(crate) const SD_BDPU: u32 = 0x1c;
