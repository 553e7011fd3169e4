//! One direction of a sound card.

use super::{
    super::{format::SampleFormat, laps::Laps},
    said::{libc_errno, said},
};
use crate::{Error, ErrorKind, Result, setup::Setup};
use alsa::{
    Direction, PCM, ValueOr,
    direct::pcm::Status,
    pcm::{Access, Format, Frames as AlsaFrames, HwParams, TstampType},
};
use quiet_linux::sys::clock::monotonic;
use quiet_types::{Frames, SampleRate};
use std::cell::Cell;

pub(super) fn alsa_format(format: SampleFormat) -> Format {
    match format {
        SampleFormat::S32 => Format::S32LE,
        SampleFormat::S24 => Format::S24LE,
        SampleFormat::S24Packed => Format::S243LE,
        SampleFormat::F32 => Format::FloatLE,
        SampleFormat::S16 => Format::S16LE,
    }
}

/// One direction.
pub(super) struct Half {
    pub pcm: PCM,
    pub format: SampleFormat,
    pub channels: usize,
    pub rate: SampleRate,
    pub period: Frames,
    pub buffer: Frames,
    /// The kernel's page with the pointers, where it can be mapped.
    status: Option<Status>,
    /// The newest stamp, ns, and the pointer where there are no stamps.
    seen: (u64, AlsaFrames),
    /// AlsaFrames that were moved since the start.
    taken: Cell<u64>,
    /// Its pointer beside the clock.
    laps: Laps,
}

impl Half {
    pub(super) fn open(
        name: &str,
        direction: Direction,
        setup: &Setup,
        channels: usize,
    ) -> Result<Half> {
        let what = match direction {
            Direction::Capture => "capture",
            Direction::Playback => "playback",
        };
        if name.contains('\0') {
            return Err(Error::new(format!("{what}: the name of a device has no zero byte")));
        }
        let cannot = |doing: &str, e: alsa::Error| {
            let sentence = format!(
                "cannot {doing} of {name} ({what}): {}; `quietcores play --list` shows what each \
                 device can do",
                said(&e)
            );
            Error::of(ErrorKind::Device, sentence).because(e)
        };
        let pcm = PCM::new(name, direction, true).map_err(|e| {
            let sentence = format!(
                "cannot open {name} for {what}: {}; {}",
                said(&e),
                match e.errno() {
                    libc_errno::EBUSY =>
                        "another program holds it: stop the sound server, or play \
                                          through it with --host jack",
                    libc_errno::EACCES => "its user is not in the group `audio`",
                    _ if direction == Direction::Capture =>
                        "`quietcores play --list` shows what there is; `--capture none` plays \
                         without an input",
                    _ => "`quietcores play --list` shows what there is",
                }
            );
            Error::of(ErrorKind::Device, sentence).because(e)
        })?;
        let (format, there, rate, period, buffer) = {
            let hw = HwParams::any(&pcm).map_err(|e| cannot("read the abilities", e))?;
            hw.set_access(Access::MMapInterleaved).map_err(|e| cannot("map the memory", e))?;
            // The card's own rates alone: a hidden resampler would add latency.
            let _ = hw.set_rate_resample(false);
            let format = SampleFormat::ALL
                .into_iter()
                .find(|format| hw.test_format(alsa_format(*format)).is_ok())
                .ok_or_else(|| {
                    let names: Vec<_> = SampleFormat::ALL.iter().map(|f| f.name()).collect();
                    let sentence = format!(
                        "{name} ({what}) has none of the formats {}; play through a `plughw:` device",
                        names.join(", ")
                    );
                    Error::of(ErrorKind::Device, sentence)
                })?;
            hw.set_format(alsa_format(format)).map_err(|e| cannot("set the format", e))?;
            let there =
                hw.set_channels_near(channels as u32).map_err(|e| cannot("set the channels", e))?;
            hw.set_rate(setup.rate.0, ValueOr::Nearest).map_err(|e| {
                let range = (hw.get_rate_min(), hw.get_rate_max());
                let can = match range {
                    (Ok(least), Ok(most)) => format!("it can {least} to {most}"),
                    _ => "its range is unknown".to_owned(),
                };
                cannot(&format!("set the rate {} ({can})", setup.rate), e)
            })?;
            let period = hw
                .set_period_size_near(AlsaFrames::from(setup.period.0), ValueOr::Nearest)
                .map_err(|e| cannot("set the period", e))?;
            let buffer = hw
                .set_buffer_size_near(AlsaFrames::from(setup.buffer.0))
                .map_err(|e| cannot("set the buffer", e))?;
            pcm.hw_params(&hw).map_err(|e| cannot("set the parameters", e))?;
            (format, there, setup.rate, period, buffer)
        };
        {
            let sw = pcm.sw_params_current().map_err(|e| cannot("read the parameters", e))?;
            sw.set_avail_min(period).map_err(|e| cannot("set the wake-up", e))?;
            // Started by hand, both at once.
            let boundary = sw.get_boundary().map_err(|e| cannot("read the parameters", e))?;
            sw.set_start_threshold(boundary).map_err(|e| cannot("set the start", e))?;
            sw.set_stop_threshold(buffer).map_err(|e| cannot("set the stop", e))?;
            // Without stamps the time of the look takes their place.
            let _ = sw.set_tstamp_mode(true);
            let _ = sw.set_tstamp_type(TstampType::Monotonic);
            pcm.sw_params(&sw).map_err(|e| cannot("set the parameters", e))?;
        }
        let small = |n: AlsaFrames| Frames(u32::try_from(n).unwrap_or(0));
        let status = Status::new(&pcm).ok();
        Ok(Half {
            status,
            seen: (0, 0),
            taken: Cell::new(0),
            laps: Laps::new(setup.rate, small(period), small(buffer)),
            pcm,
            format,
            channels: there as usize,
            rate,
            period: small(period),
            buffer: small(buffer),
        })
    }

    /// Moves up to `frames` frames between the card's ring and `touch`, which is handed the bytes
    /// and how many frames were moved before; says how many were.
    pub(super) fn map(&self, frames: usize, mut touch: impl FnMut(&mut [u8], usize)) -> usize {
        let io = self.pcm.io_bytes();
        let frame = self.format.bytes() * self.channels;
        let mut done = 0;
        // Twice where the ring wraps.
        while done < frames {
            let moved = io.mmap(frames - done, |bytes| {
                let here = bytes.len() / frame;
                touch(&mut bytes[..here * frame], done);
                here
            });
            match moved {
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        self.taken.set(self.taken.get() + done as u64);
        done
    }

    /// The streams were prepared, and nothing is moved yet.
    pub(super) fn prepared(&mut self) {
        self.taken.set(0);
    }

    /// The streams begin.
    pub(super) fn started(&mut self) {
        let at = self.pcm.avail_update().ok().and_then(|there| u64::try_from(there).ok());
        self.laps.start(monotonic(), at.unwrap_or(0) + self.taken.get());
    }

    /// How many frames are there to be taken or filled; `None` where its ring went round and the kernel has not seen it.
    pub(super) fn there(&mut self) -> alsa::Result<Option<AlsaFrames>> {
        let there = self.pcm.avail_update()?;
        let position = u64::try_from(there).unwrap_or(0) + self.taken.get();
        let lost = position != self.laps.position() && self.laps.lost(monotonic(), position);
        Ok((!lost).then_some(there))
    }

    /// Where the pointer stands, if it moved since this was last asked: when the kernel saw it there,
    /// ns of the monotonic clock, and how many frames are there to be taken or filled.
    pub(super) fn moved(&mut self) -> Option<(u64, u64)> {
        let now = monotonic();
        let mut stamp = self.stamp();
        let mut there = self.pcm.avail_update().ok()?;
        // It may have moved between the two.
        if self.stamp() != stamp {
            (stamp, there) = (self.stamp(), self.pcm.avail_update().ok()?);
        }
        // Of this clock, and not of another that the kernel may stamp by.
        let at = if stamp > now || now - stamp > 10_000_000_000 { now } else { stamp };
        let moved = if at == now { there != self.seen.1 } else { at != self.seen.0 };
        self.seen = (at, there);
        moved.then_some((at, u64::try_from(there).unwrap_or(0)))
    }

    /// When the kernel moved the pointer last, ns; 0 where it cannot be read.
    fn stamp(&self) -> u64 {
        self.status.as_ref().map_or(0, |status| {
            let stamp = status.htstamp();
            stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64
        })
    }

    /// Its card; None for what is none.
    pub(super) fn card(&self) -> Option<i32> {
        self.pcm.info().ok().map(|info| info.get_card()).filter(|card| *card >= 0)
    }

    pub(super) fn silence(&self, frames: usize) {
        // Zero bytes are zero in every one of our formats.
        self.map(frames, |bytes, _| bytes.fill(0));
    }
}
