//! Sound cards through ALSA: mapped memory, one card or two.

use super::{Again, Device, bridge::Bridge, format::Format};
use crate::{Error, Result, engine::Setup};
use alsa::{
    Direction, PCM, ValueOr, card,
    ctl::{Ctl, DeviceIter},
    pcm::{Access, Format as AlsaFormat, Frames, HwParams, State},
};
use quiet_linux::sys::clock::monotonic;
use quiet_rt::{Duplex, Look, Xrun};
use serde::Serialize;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Which devices: names of ALSA, such as `hw:USB` or `hw:1,0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// What plays.
    pub playback: String,
    /// What captures; the same where it is not named.
    pub capture: Option<String>,
}

fn alsa_format(format: Format) -> AlsaFormat {
    match format {
        Format::S32 => AlsaFormat::S32LE,
        Format::S24 => AlsaFormat::S24LE,
        Format::S24Packed => AlsaFormat::S243LE,
        Format::F32 => AlsaFormat::FloatLE,
        Format::S16 => AlsaFormat::S16LE,
    }
}

/// One direction.
struct Half {
    pcm: PCM,
    format: Format,
    channels: usize,
    rate: u32,
    period: u32,
    buffer: u32,
}

/// A card that plays and captures, or two of them.
pub struct Alsa {
    names: Names,
    setup: Setup,
    capture: Half,
    playback: Half,
    /// Both start and stop as one.
    linked: bool,
    /// Between two cards.
    bridge: Option<Bridge>,
    /// Frames that found nothing to play, told at the next look.
    dry: bool,
    ratio: Option<Arc<AtomicU64>>,
    started: bool,
    /// Captured frames that waited at the last look, and when there came more, ns.
    waiting: Frames,
    arrived: u64,
}

impl std::fmt::Debug for Alsa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alsa").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Half {
    fn open(name: &str, direction: Direction, setup: &Setup, channels: usize) -> Result<Half> {
        let what = match direction {
            Direction::Capture => "capture",
            Direction::Playback => "playback",
        };
        if name.contains('\0') {
            return Err(Error::new(format!("{what}: the name of a device has no zero byte")));
        }
        let cannot = |doing: &str, e: alsa::Error| {
            Error::new(format!(
                "cannot {doing} of {name} ({what}): {}; `quietcores play --list` shows what each \
                 device can do",
                said(&e)
            ))
        };
        let pcm = PCM::new(name, direction, true).map_err(|e| {
            Error::new(format!(
                "cannot open {name} for {what}: {}; {}",
                said(&e),
                match e.errno() {
                    libc_errno::EBUSY =>
                        "another program holds it: stop the sound server, or play \
                                          through it with --host jack",
                    libc_errno::EACCES => "its user is not in the group `audio`",
                    _ => "`quietcores play --list` shows what there is",
                }
            ))
        })?;
        let (format, there, rate, period, buffer) = {
            let hw = HwParams::any(&pcm).map_err(|e| cannot("read the abilities", e))?;
            hw.set_access(Access::MMapInterleaved).map_err(|e| cannot("map the memory", e))?;
            // The card's own rates alone: a hidden resampler would add latency.
            let _ = hw.set_rate_resample(false);
            let format = Format::ALL
                .into_iter()
                .find(|format| hw.test_format(alsa_format(*format)).is_ok())
                .ok_or_else(|| {
                    let names: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
                    Error::new(format!(
                        "{name} ({what}) has none of the formats {}; play through a `plughw:` device",
                        names.join(", ")
                    ))
                })?;
            hw.set_format(alsa_format(format)).map_err(|e| cannot("set the format", e))?;
            let there =
                hw.set_channels_near(channels as u32).map_err(|e| cannot("set the channels", e))?;
            hw.set_rate(setup.rate, ValueOr::Nearest).map_err(|e| {
                let range = (hw.get_rate_min(), hw.get_rate_max());
                let can = match range {
                    (Ok(least), Ok(most)) => format!("it can {least} to {most}"),
                    _ => "its range is unknown".to_owned(),
                };
                cannot(&format!("set the rate {} ({can})", setup.rate), e)
            })?;
            let period = hw
                .set_period_size_near(Frames::from(setup.period), ValueOr::Nearest)
                .map_err(|e| cannot("set the period", e))?;
            let buffer = hw
                .set_buffer_size_near(Frames::from(setup.buffer))
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
            pcm.sw_params(&sw).map_err(|e| cannot("set the parameters", e))?;
        }
        let small = |n: Frames| u32::try_from(n).unwrap_or(0);
        Ok(Half {
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
    fn map(&self, frames: usize, mut touch: impl FnMut(&mut [u8], usize)) -> usize {
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
        done
    }

    fn silence(&self, frames: usize) {
        // Zero bytes are zero in every one of our formats.
        self.map(frames, |bytes, _| bytes.fill(0));
    }
}

/// Error numbers without the C library's crate.
mod libc_errno {
    use rustix::io::Errno;
    pub(super) const EBUSY: i32 = Errno::BUSY.raw_os_error();
    pub(super) const EACCES: i32 = Errno::ACCESS.raw_os_error();
    pub(super) const EPIPE: i32 = Errno::PIPE.raw_os_error();
    pub(super) const ESTRPIPE: i32 = Errno::STRPIPE.raw_os_error();
}

fn said(e: &alsa::Error) -> String {
    let text = std::io::Error::from_raw_os_error(e.errno()).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl Alsa {
    pub(crate) fn open(names: &Names, setup: &Setup) -> Result<Alsa> {
        let capture_name = names.capture.as_ref().unwrap_or(&names.playback);
        let playback = Half::open(&names.playback, Direction::Playback, setup, setup.outputs)?;
        // The second half follows the first: one period, one ring.
        let follow = Setup { period: playback.period, buffer: playback.buffer, ..setup.clone() };
        let capture = Half::open(capture_name, Direction::Capture, &follow, setup.inputs)?;
        if capture.rate != playback.rate {
            return Err(Error::new(format!(
                "{capture_name} captures at {} and {} plays at {}; choose one rate for both",
                capture.rate, names.playback, playback.rate
            )));
        }
        let linked = capture.pcm.link(&playback.pcm).is_ok();
        let one_card =
            card_of(&capture.pcm) == card_of(&playback.pcm) && capture.period == playback.period;
        let bridge = if linked || one_card {
            None
        } else {
            let period = playback.period as usize;
            Some(Bridge::new(setup.inputs, period, playback.rate)?)
        };
        if bridge.is_none() && capture.period != playback.period {
            return Err(Error::new(format!(
                "{capture_name} has periods of {} frames for capture and {} for playback; choose a \
                 period that both have",
                capture.period, playback.period
            )));
        }
        Ok(Alsa {
            names: names.clone(),
            setup: setup.clone(),
            capture,
            playback,
            linked,
            bridge,
            dry: false,
            ratio: None,
            started: false,
            waiting: 0,
            arrived: 0,
        })
    }

    /// Rate, period, buffer.
    pub(crate) fn sizes(&self) -> (u32, u32, u32) {
        (self.playback.rate, self.playback.period, self.playback.buffer)
    }

    pub(crate) fn about(&self) -> String {
        let one = |half: &Half| format!("{} x {}", half.channels, half.format.name());
        format!(
            "alsa: {} plays {}, {} captures {}{}",
            self.names.playback,
            one(&self.playback),
            self.names.capture.as_ref().unwrap_or(&self.names.playback),
            one(&self.capture),
            match (&self.bridge, self.linked) {
                (Some(_), _) => ", two clocks bridged by a resampler",
                (None, true) => ", linked",
                (None, false) => "",
            }
        )
    }

    /// Where to say the ratio of two clocks.
    pub(crate) fn show_ratio(&mut self, ratio: Arc<AtomicU64>) {
        self.ratio = Some(ratio);
    }

    /// From any state to running, the playback ring full of silence.
    fn start(&mut self) -> alsa::Result<()> {
        let (capture, playback) = (&self.capture.pcm, &self.playback.pcm);
        let _ = playback.drop();
        let _ = capture.drop();
        if capture.state() != State::Prepared {
            capture.prepare()?;
        }
        if playback.state() != State::Prepared {
            playback.prepare()?;
        }
        playback.avail_update()?;
        self.playback.silence(self.playback.buffer as usize);
        if let Some(bridge) = &mut self.bridge {
            bridge.reset();
        }
        capture.start()?;
        // Linked streams have started both.
        if playback.state() != State::Running {
            playback.start()?;
        }
        (self.dry, self.started) = (false, true);
        Ok(())
    }

    /// Moves what was captured into the queue between the cards.
    fn fetch(&mut self) {
        let Some(bridge) = &mut self.bridge else { return };
        let there = self.capture.pcm.avail_update().unwrap_or(0);
        let frames = usize::try_from(there).unwrap_or(0).min(bridge.free());
        let capture = &self.capture;
        bridge.append(|planes, (channels, room, at)| {
            capture.map(frames, |bytes, done| {
                let place = (channels, room, at + done);
                capture.format.take_apart(bytes, capture.channels, planes, place);
            })
        });
    }
}

fn card_of(pcm: &PCM) -> Option<i32> {
    pcm.info().ok().map(|info| info.get_card()).filter(|card| *card >= 0)
}

/// What an error of a pointer means.
fn broken(e: &alsa::Error, xrun: Xrun) -> Look {
    match e.errno() {
        libc_errno::EPIPE | libc_errno::ESTRPIPE => Look::Xrun(Xrun { missed: 1, ..xrun }),
        _ => Look::Gone,
    }
}

impl Duplex for Alsa {
    #[inline]
    fn look(&mut self) -> Look {
        if !self.started && self.start().is_err() {
            return Look::Gone;
        }
        let period = Frames::from(self.playback.period);
        let captured = match self.capture.pcm.avail_update() {
            Ok(frames) => frames,
            Err(e) => return broken(&e, Xrun { capture: true, ..Default::default() }),
        };
        let free = match self.playback.pcm.avail_update() {
            Ok(frames) => frames,
            Err(e) => return broken(&e, Xrun { playback: true, ..Default::default() }),
        };
        if self.dry {
            return Look::Xrun(Xrun { capture: true, playback: false, missed: 1 });
        }
        if self.bridge.is_some() {
            if captured > self.waiting {
                (self.waiting, self.arrived) = (captured, monotonic());
            }
            if free < period { Look::Empty } else { Look::Due(free as u32) }
        } else if free < period || captured < period {
            Look::Empty
        } else {
            Look::Due(captured as u32)
        }
    }

    fn wait(&mut self) {
        let period = Frames::from(self.playback.period);
        let waits = self.bridge.is_none()
            && self.capture.pcm.avail_update().is_ok_and(|there| there < period);
        let half = if waits { &self.capture } else { &self.playback };
        // What goes wrong here is seen at the next look.
        let _ = half.pcm.wait(Some(100));
    }

    fn read(&mut self, samples: &mut [f32]) {
        let period = self.playback.period as usize;
        if self.bridge.is_some() {
            self.fetch();
            self.waiting = 0;
            let since = monotonic().saturating_sub(self.arrived) as f64 / 1e9;
            let since = since * f64::from(self.capture.rate);
            if let Some(bridge) = &mut self.bridge {
                self.dry = !bridge.take(samples, since);
                if let Some(ratio) = &self.ratio {
                    ratio.store(bridge.ratio().to_bits(), Relaxed);
                }
            }
        } else {
            let capture = &self.capture;
            let inputs = self.setup.inputs;
            capture.map(period, |bytes, done| {
                let place = (inputs, period, done);
                capture.format.take_apart(bytes, capture.channels, samples, place);
            });
        }
        let used = self.setup.inputs * period;
        if let Some(rest) = samples.get_mut(used..) {
            rest.fill(0.0);
        }
    }

    fn write(&mut self, samples: &[f32]) {
        let period = self.playback.period as usize;
        let (playback, outputs) = (&self.playback, self.setup.outputs);
        playback.map(period, |bytes, done| {
            let place = (outputs, period, done);
            playback.format.put_together(bytes, playback.channels, samples, place);
        });
    }

    fn resync(&mut self) -> bool {
        if self.dry && self.bridge.is_some() {
            // The cards run on; the queue between them is filled as at the start.
            if let Some(bridge) = &mut self.bridge {
                bridge.reset();
            }
            self.dry = false;
            return true;
        }
        for pcm in [&self.capture.pcm, &self.playback.pcm] {
            if pcm.state() == State::Suspended {
                let _ = pcm.resume();
            }
        }
        self.start().is_ok()
    }
}

impl Device for Alsa {
    fn again(&mut self) -> Again {
        match Alsa::open(&self.names, &self.setup) {
            Ok(new) if new.sizes() == self.sizes() => {
                let ratio = self.ratio.take();
                *self = new;
                self.ratio = ratio;
                Again::Back
            }
            _ => Again::NotYet,
        }
    }

    fn finish(&mut self) -> Result<()> {
        let _ = self.playback.pcm.drop();
        let _ = self.capture.pcm.drop();
        Ok(())
    }
}

/// A device of a card, and what it can do.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// As `--device` takes it.
    pub name: String,
    /// The card's and the device's own words.
    pub about: String,
    /// What it can do when it plays; `None` where it cannot, or another program holds it.
    pub playback: Option<Abilities>,
    /// What it can do when it captures.
    pub capture: Option<Abilities>,
}

/// What one direction can do.
#[derive(Clone, Debug, Serialize)]
pub struct Abilities {
    /// Formats, best first.
    pub formats: Vec<&'static str>,
    /// Least and most channels.
    pub channels: (u32, u32),
    /// Least and most frames a second.
    pub rates: (u32, u32),
    /// Least and most frames a period.
    pub periods: (u32, u32),
    /// Least and most frames in the ring.
    pub buffers: (u32, u32),
}

/// Every device of every card.
pub fn list() -> Vec<Listed> {
    let mut found = Vec::new();
    for card in card::Iter::new().flatten() {
        let Ok(ctl) = Ctl::new(&format!("hw:{}", card.get_index()), false) else { continue };
        let id = ctl.card_info().ok().and_then(|info| info.get_id().ok().map(str::to_owned));
        let id = id.unwrap_or_else(|| card.get_index().to_string());
        for device in DeviceIter::new(&ctl) {
            let name = format!("hw:{id},{device}");
            found.push(Listed {
                about: card.get_name().unwrap_or_default(),
                playback: abilities(&name, Direction::Playback),
                capture: abilities(&name, Direction::Capture),
                name,
            });
        }
    }
    found
}

fn abilities(name: &str, direction: Direction) -> Option<Abilities> {
    let pcm = PCM::new(name, direction, true).ok()?;
    let hw = HwParams::any(&pcm).ok()?;
    let _ = hw.set_rate_resample(false);
    let small = |n: alsa::Result<Frames>| u32::try_from(n.unwrap_or(0)).unwrap_or(u32::MAX);
    let formats = Format::ALL.into_iter().filter(|f| hw.test_format(alsa_format(*f)).is_ok());
    Some(Abilities {
        formats: formats.map(Format::name).collect(),
        channels: (hw.get_channels_min().ok()?, hw.get_channels_max().ok()?),
        rates: (hw.get_rate_min().ok()?, hw.get_rate_max().ok()?),
        periods: (small(hw.get_period_size_min()), small(hw.get_period_size_max())),
        buffers: (small(hw.get_buffer_size_min()), small(hw.get_buffer_size_max())),
    })
}
