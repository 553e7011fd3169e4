//! Sound cards through ALSA: mapped memory, one card or two.

mod half;
mod list;
mod said;

pub use list::list;
pub(crate) use said::{hush, said};

use super::{Again, Device, bridge::Bridge};
use crate::{
    Error, Result,
    setup::{Names, Setup, Sizes},
};
use alsa::{
    Direction,
    pcm::{Frames as AlsaFrames, State},
};
use half::Half;
use quiet_linux::sys::clock::monotonic;
use quiet_rt::{Duplex, Look, Xrun};
use quiet_types::Nanos;
use said::libc_errno;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// A card that plays and captures, or two of them.
pub struct Alsa {
    names: Names,
    setup: Setup,
    /// None while the card is away: it can only go when nobody holds it.
    pair: Option<Pair>,
    sizes: Sizes,
    about: String,
    ratio: Option<Arc<AtomicU64>>,
}

/// Both directions, open, or the one that is wanted.
struct Pair {
    capture: Option<Half>,
    playback: Option<Half>,
    sizes: Sizes,
    inputs: usize,
    outputs: usize,
    /// Both start and stop as one.
    linked: bool,
    /// Between two cards.
    bridge: Option<Bridge>,
    /// AlsaFrames that found nothing to play, told at the next look.
    dry: bool,
    started: bool,
    /// When a period was seen to be due last, ns, and how long one lasts.
    due: u64,
    period_ns: u64,
    /// How long after that a card stands still, ns.
    stands: u64,
    /// Looks in vain since the state of the card was looked at.
    idle: u32,
    /// A wait failed: the kernel has taken the card from this file, and its state may not say so yet.
    gone: bool,
}

impl std::fmt::Debug for Alsa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alsa").field("names", &self.names).finish_non_exhaustive()
    }
}

/// A card that is pulled out keeps its pointers as they are: its state tells. It is read after so
/// many looks in vain, which is still within a period.
const LOOKS: u32 = 64;

/// How much longer than its ring lasts a card may stand still before it is begun anew, ns.
const STANDS: u64 = 1_000_000_000;

impl Alsa {
    pub(crate) fn open(names: &Names, setup: &Setup) -> Result<Alsa> {
        let pair = Pair::open(names, setup)?;
        Ok(Alsa {
            names: names.clone(),
            setup: setup.clone(),
            sizes: pair.sizes,
            about: pair.about(names),
            pair: Some(pair),
            ratio: None,
        })
    }

    /// What it really has.
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    pub(crate) fn about(&self) -> String {
        self.about.clone()
    }

    /// Where to say the ratio of two clocks.
    pub(crate) fn show_ratio(&mut self, ratio: Arc<AtomicU64>) {
        self.ratio = Some(ratio);
    }
}

impl Pair {
    fn open(names: &Names, setup: &Setup) -> Result<Pair> {
        hush();
        let open = |name: &Option<String>, direction, setup: &Setup, channels| {
            name.as_ref().map(|name| Half::open(name, direction, setup, channels)).transpose()
        };
        let playback = open(&names.playback, Direction::Playback, setup, setup.outputs)?;
        // The second half follows the first: one period, one ring.
        let follow = match &playback {
            Some(first) => Setup { period: first.period, buffer: first.buffer, ..setup.clone() },
            None => setup.clone(),
        };
        let capture = open(&names.capture, Direction::Capture, &follow, setup.inputs)?;
        let Some(first) = playback.as_ref().or(capture.as_ref()) else {
            return Err(Error::new("neither a device that plays nor one that captures is named"));
        };
        let sizes = Sizes { rate: first.rate, period: first.period, buffer: first.buffer };
        let (mut linked, mut bridge) = (false, None);
        if let (Some(playback), Some(capture)) = (&playback, &capture) {
            // The kernel links streams of two cards as well, and they drift apart all the same.
            let one_clock = names.capture == names.playback
                || capture.card().is_some_and(|card| Some(card) == playback.card());
            if one_clock && capture.period != playback.period {
                return Err(Error::new(format!(
                    "{} has periods of {} frames for capture and {} for playback; choose a period \
                     that both have",
                    names.capture.as_deref().unwrap_or_default(),
                    capture.period,
                    playback.period
                )));
            }
            if one_clock {
                linked = capture.pcm.link(&playback.pcm).is_ok();
            } else {
                bridge = Some(Bridge::new(setup.inputs, sizes.period, sizes.buffer, sizes.rate)?);
            }
        }
        let Nanos(period_ns) = sizes.period.lasting(sizes.rate);
        let Nanos(ring) = sizes.buffer.lasting(sizes.rate);
        Ok(Pair {
            capture,
            playback,
            sizes,
            inputs: setup.inputs,
            outputs: setup.outputs,
            linked,
            bridge,
            dry: false,
            started: false,
            due: 0,
            period_ns: period_ns.max(1),
            stands: ring + STANDS,
            idle: 0,
            gone: false,
        })
    }

    fn about(&self, names: &Names) -> String {
        let one = |name: &Option<String>, half: &Option<Half>, does: &str| match (name, half) {
            (Some(name), Some(half)) => {
                format!("{name} {does} {} x {}", half.channels, half.format.name())
            }
            _ => format!("nothing {does}"),
        };
        format!(
            "alsa: {}, {}{}",
            one(&names.playback, &self.playback, "plays"),
            one(&names.capture, &self.capture, "captures"),
            match (&self.bridge, self.linked) {
                (Some(_), _) => ", two clocks bridged by a resampler",
                (None, true) => ", linked",
                (None, false) => "",
            }
        )
    }

    fn halves(&self) -> impl Iterator<Item = &Half> {
        self.capture.iter().chain(&self.playback)
    }

    /// From any state to running, the playback ring full of silence.
    fn start(&mut self) -> alsa::Result<()> {
        for half in self.playback.iter().chain(&self.capture) {
            let _ = half.pcm.drop();
        }
        for half in self.halves() {
            if half.pcm.state() != State::Prepared {
                half.pcm.prepare()?;
            }
        }
        for half in self.capture.iter_mut().chain(&mut self.playback) {
            half.prepared();
        }
        if let Some(playback) = &self.playback {
            playback.pcm.avail_update()?;
            playback.silence(playback.buffer.0 as usize);
        }
        if let Some(bridge) = &mut self.bridge {
            bridge.restart();
        }
        for half in self.halves() {
            // Linked streams are started by the first.
            if half.pcm.state() != State::Running {
                half.pcm.start()?;
            }
        }
        for half in self.capture.iter_mut().chain(&mut self.playback) {
            half.started();
        }
        (self.dry, self.started, self.due) = (false, true, monotonic());
        Ok(())
    }

    fn look(&mut self) -> Look {
        if self.gone || (!self.started && self.start().is_err()) {
            return Look::Gone;
        }
        let period = AlsaFrames::from(self.sizes.period.0);
        let mut captured = None;
        if let Some(capture) = &mut self.capture {
            match capture.there() {
                Ok(Some(frames)) => captured = Some(frames),
                Ok(None) => return self.unseen(),
                Err(e) => return self.broken(&e, Xrun { capture: true, ..Default::default() }),
            }
        }
        let mut free = None;
        if let Some(playback) = &mut self.playback {
            match playback.there() {
                Ok(Some(frames)) => free = Some(frames),
                Ok(None) => return self.unseen(),
                Err(e) => return self.broken(&e, Xrun { playback: true, ..Default::default() }),
            }
        }
        if self.dry {
            return Look::Xrun(Xrun { capture: true, playback: false, missed: 1 });
        }
        let there = |frames: Option<AlsaFrames>| frames.is_none_or(|frames| frames >= period);
        // What comes over a bridge is not waited for.
        if there(free) && (self.bridge.is_some() || there(captured)) {
            let waiting = if self.bridge.is_some() { free } else { captured.or(free) };
            return self.comes(waiting.unwrap_or(period));
        }
        self.idle += 1;
        if self.idle < LOOKS { Look::Empty } else { self.well() }
    }

    fn comes(&mut self, waiting: AlsaFrames) -> Look {
        (self.due, self.idle) = (monotonic(), 0);
        Look::Due(waiting as u32)
    }

    /// Nothing is due: whether that is as it should be.
    fn well(&mut self) -> Look {
        self.idle = 0;
        for (capture, half) in [(true, &self.capture), (false, &self.playback)] {
            let Some(half) = half else { continue };
            match half.pcm.state() {
                State::Running => (),
                State::Disconnected => return Look::Gone,
                _ => {
                    let xrun = Xrun { capture, playback: !capture, missed: self.missed() };
                    return Look::Xrun(xrun);
                }
            }
        }
        // A state can be wrong: a stream that was begun anew while the card went says that it runs. Begun once more, it
        // plays on or the card is gone.
        if monotonic().saturating_sub(self.due) > self.stands { self.unseen() } else { Look::Empty }
    }

    /// A ring went round, and the kernel has not seen it: what one direction has lost, the other has as well.
    fn unseen(&self) -> Look {
        let (capture, playback) = (self.capture.is_some(), self.playback.is_some());
        Look::Xrun(Xrun { capture, playback, missed: self.missed() })
    }

    /// Periods whose turn has passed since the last one that came: a pause while it was processed
    /// counts as well.
    fn missed(&self) -> u32 {
        let since = monotonic().saturating_sub(self.due) / self.period_ns;
        u32::try_from(since.max(1)).unwrap_or(u32::MAX)
    }

    /// What an error of a pointer means.
    fn broken(&self, e: &alsa::Error, xrun: Xrun) -> Look {
        match e.errno() {
            libc_errno::EPIPE | libc_errno::ESTRPIPE => {
                Look::Xrun(Xrun { missed: self.missed(), ..xrun })
            }
            _ => Look::Gone,
        }
    }

    fn wait(&mut self) {
        let period = AlsaFrames::from(self.sizes.period.0);
        let short = |half: &&Half| half.pcm.avail_update().is_ok_and(|there| there < period);
        let capture = self.capture.as_ref().filter(|_| self.bridge.is_none());
        let half = capture.filter(short).or(self.playback.as_ref()).or(capture);
        match half.map(|half| half.pcm.wait(Some(100))) {
            Some(Ok(true)) => (),
            // Every wait for a card that goes away ends at once. To wait again until its state says it would keep the
            // CPU from whoever takes it away, for ever where that thread may not move (files_lock under PREEMPT_RT).
            Some(Err(e)) if !libc_errno::OF_A_STREAM.contains(&e.errno()) => self.gone = true,
            // What went wrong is in the state, which the next look reads.
            _ => self.idle = LOOKS,
        }
    }

    fn read(&mut self, samples: &mut [f32], ratio: Option<&AtomicU64>) {
        let period = self.sizes.period.0 as usize;
        let inputs = if self.capture.is_some() { self.inputs } else { 0 };
        if self.bridge.is_some() {
            self.fetch();
            if let Some(bridge) = &mut self.bridge {
                self.dry = !bridge.take(samples);
                if let Some(ratio) = ratio {
                    ratio.store(bridge.ratio().to_bits(), Relaxed);
                }
            }
        } else if let Some(capture) = &self.capture {
            capture.map(period, |bytes, done| {
                let place = (inputs, period, done);
                capture.format.take_apart(bytes, capture.channels, samples, place);
            });
        }
        if let Some(rest) = samples.get_mut(inputs * period..) {
            rest.fill(0.0);
        }
    }

    /// Moves what was captured into the queue between the cards.
    fn fetch(&mut self) {
        let (Some(bridge), Some(capture)) = (&mut self.bridge, &self.capture) else { return };
        let there = capture.pcm.avail_update().unwrap_or(0);
        let frames = usize::try_from(there).unwrap_or(0).min(bridge.free());
        bridge.append(|planes, (channels, room, at)| {
            capture.map(frames, |bytes, done| {
                let place = (channels, room, at + done);
                capture.format.take_apart(bytes, capture.channels, planes, place);
            })
        });
    }

    fn write(&mut self, samples: &[f32]) {
        let (period, outputs) = (self.sizes.period.0 as usize, self.outputs);
        if let Some(playback) = &self.playback {
            playback.map(period, |bytes, done| {
                let place = (outputs, period, done);
                playback.format.put_together(bytes, playback.channels, samples, place);
            });
        }
        self.observe();
    }

    /// Tells the bridge where both cards are. Last of all in a period: the kernel moves a pointer
    /// before it stamps it.
    fn observe(&mut self) {
        let Some(bridge) = &mut self.bridge else { return };
        if let Some((at, waiting)) = self.capture.as_mut().and_then(Half::moved) {
            bridge.captured(at, waiting);
        }
        if let Some((at, free)) = self.playback.as_mut().and_then(Half::moved) {
            bridge.played(at, free);
        }
    }

    fn resync(&mut self) -> bool {
        let runs = |half: &Half| half.pcm.state() == State::Running;
        if self.dry && self.bridge.is_some() && self.capture.as_ref().is_some_and(runs) {
            // The cards run on; the delay between them will be as at the start.
            if let Some(bridge) = &mut self.bridge {
                bridge.reset();
            }
            self.dry = false;
            return true;
        }
        for half in self.halves() {
            if half.pcm.state() == State::Suspended {
                let _ = half.pcm.resume();
            }
        }
        self.start().is_ok()
    }
}

impl Duplex for Alsa {
    #[inline]
    fn look(&mut self) -> Look {
        self.pair.as_mut().map_or(Look::Gone, Pair::look)
    }

    fn wait(&mut self) {
        if let Some(pair) = &mut self.pair {
            pair.wait();
        }
    }

    fn read(&mut self, samples: &mut [f32]) {
        if let Some(pair) = &mut self.pair {
            pair.read(samples, self.ratio.as_deref());
        }
    }

    fn write(&mut self, samples: &[f32]) {
        if let Some(pair) = &mut self.pair {
            pair.write(samples);
        }
    }

    fn resync(&mut self) -> bool {
        self.pair.as_mut().is_some_and(Pair::resync)
    }
}

impl Device for Alsa {
    fn again(&mut self) -> Again {
        // Closed first: the kernel takes a card away only when nobody holds it any more.
        self.pair = None;
        match Pair::open(&self.names, &self.setup) {
            Ok(pair) if pair.sizes == self.sizes => {
                self.pair = Some(pair);
                Again::Back
            }
            _ => Again::NotYet,
        }
    }

    fn finish(&mut self) -> Result<()> {
        for half in self.pair.iter().flat_map(Pair::halves) {
            let _ = half.pcm.drop();
        }
        Ok(())
    }
}
