//! Intel-HDA cards without the kernel: a polled driver in this process, no interrupt and no system call while it plays.

use super::{Again, Device, Polled, format::SampleFormat, taken::HdaCard};
use crate::{
    Error, ErrorKind, Result,
    clock::Ticks,
    setup::{Setup, Sizes},
};
use quiet_hda::{Card, CardWish, Controller, Fence, Found, LinkFormat, Streams};
use quiet_rt::{Clock, Duplex, Look, Xrun};
use quiet_types::Frames;

/// The card, set up.
pub(crate) struct Hda {
    from: HdaCard,
    wish: CardWish,
    clock: Ticks,
    state: State,
    sizes: Sizes,
    about: String,
    inputs: usize,
    outputs: usize,
    capture: Option<(SampleFormat, usize)>,
    playback: Option<(SampleFormat, usize)>,
    /// One period as the card has it.
    bytes: Vec<u8>,
    started: bool,
    /// When a period was due last, ns, and how long one lasts.
    due: u64,
    period_ns: u64,
}

enum State {
    Playing(Box<Streams<Card>>),
    /// The card does not answer, or is being set up again.
    Away(Option<Card>),
}

/// How samples of a link's format lie in memory.
fn sample_format(format: LinkFormat) -> (SampleFormat, usize) {
    // Those of 20 and 24 bits lie at the upper end of 32.
    let is = if format.bits == 16 { SampleFormat::S16 } else { SampleFormat::S32 };
    (is, usize::from(format.channels))
}

impl Hda {
    pub(crate) fn open(from: &HdaCard, setup: &Setup, clock: Ticks) -> Result<Hda> {
        let cannot = |why: String| {
            Error::of(
                ErrorKind::Device,
                format!("cannot play on the sound card {}: {why}", from.address),
            )
        };
        let card =
            from.lend().ok_or_else(|| cannot("another engine of this program has it".into()))?;
        let period = setup.period.0.max(1);
        let wish = CardWish {
            rate: setup.rate.0,
            period,
            buffer: setup.buffer.0.max(2 * period).next_multiple_of(period),
            plays: from.ways.plays,
            captures: from.ways.captures,
        };
        let streams = match set_up(card, wish) {
            Ok(streams) => streams,
            Err((card, why)) => {
                from.bring(card);
                return Err(cannot(why));
            }
        };
        let (capture, playback) = (streams.format(false), streams.format(true));
        let frame = capture.iter().chain(&playback).map(|f| f.frame_bytes()).max().unwrap_or(4);
        let fence = match from.fence {
            Fence::Iommu => "behind the IOMMU",
            Fence::None => "NOT kept from this machine's memory by any IOMMU",
        };
        let about =
            format!("hda: {}, polled, no interrupts, {fence}: {}", from.address, streams.about());
        let sizes = Sizes { rate: setup.rate, period: setup.period, buffer: Frames(wish.buffer) };
        Ok(Hda {
            from: from.clone(),
            wish,
            clock,
            state: State::Playing(Box::new(streams)),
            sizes,
            about,
            inputs: setup.inputs,
            outputs: setup.outputs,
            capture: capture.map(sample_format),
            playback: playback.map(sample_format),
            bytes: vec![0; frame * period as usize],
            started: false,
            due: 0,
            period_ns: setup.period.lasting(setup.rate).0.max(1),
        })
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    pub(crate) fn about(&self) -> String {
        self.about.clone()
    }

    #[inline]
    fn now(&self) -> u64 {
        self.clock.nanos(self.clock.ticks())
    }

    fn start(&mut self) -> bool {
        let now = self.now();
        let State::Playing(streams) = &mut self.state else { return false };
        self.started = streams.start(now).is_ok();
        self.due = self.now();
        self.started
    }

    fn away(&mut self) {
        self.started = false;
        if let State::Playing(streams) = std::mem::replace(&mut self.state, State::Away(None)) {
            self.state = State::Away(Some(streams.close().quiet()));
        }
    }

    fn missed(&self) -> u32 {
        let since = self.now().saturating_sub(self.due) / self.period_ns;
        u32::try_from(since.max(1)).unwrap_or(u32::MAX)
    }
}

/// Out of reset, jacks found, streams prepared; the card is given back where that fails, with the reason.
fn set_up(card: Card, wish: CardWish) -> std::result::Result<Streams<Card>, (Card, String)> {
    let controller = Controller::reset(card).map_err(|(card, fault)| (card, fault.to_string()))?;
    Streams::open(controller, wish)
        .map_err(|(controller, error)| (controller.quiet(), error.to_string()))
}

impl Duplex for Hda {
    #[inline]
    fn look(&mut self) -> Look {
        if !self.started && !self.start() {
            return Look::Gone;
        }
        let now = self.now();
        let State::Playing(streams) = &mut self.state else { return Look::Gone };
        match streams.look(now) {
            Found::Less => Look::Empty,
            Found::Ready(waiting) => {
                self.due = now;
                Look::Due(waiting)
            }
            Found::Over { capture, playback } => {
                Look::Xrun(Xrun { capture, playback, missed: self.missed() })
            }
            Found::Gone => Look::Gone,
        }
    }

    /// There is nothing that wakes: it sleeps for a part of what is left of the period.
    fn wait(&mut self) {
        let wake = quiet_linux::sys::clock::monotonic() + self.left();
        quiet_linux::sys::clock::sleep_until(wake);
    }

    #[inline]
    fn read(&mut self, samples: &mut [f32]) {
        let State::Playing(streams) = &mut self.state else { return };
        let period = self.wish.period as usize;
        let mut inputs = 0;
        match self.capture {
            Some((format, channels)) => {
                inputs = self.inputs;
                let bytes = &mut self.bytes[..period * channels * format.bytes()];
                streams.take(bytes);
                format.take_apart(bytes, channels, samples, (inputs, period, 0));
            }
            None => streams.take(&mut []),
        }
        if let Some(rest) = samples.get_mut(inputs * period..) {
            rest.fill(0.0);
        }
    }

    #[inline]
    fn write(&mut self, samples: &[f32]) {
        let State::Playing(streams) = &mut self.state else { return };
        let period = self.wish.period as usize;
        match self.playback {
            Some((format, channels)) => {
                let bytes = &mut self.bytes[..period * channels * format.bytes()];
                format.put_together(bytes, channels, samples, (self.outputs, period, 0));
                streams.give(bytes);
            }
            None => streams.give(&[]),
        }
    }

    fn resync(&mut self) -> bool {
        self.start()
    }
}

impl Device for Hda {
    fn again(&mut self) -> Again {
        self.away();
        let State::Away(card) = &mut self.state else { return Again::NotYet };
        let Some(taken) = card.take() else { return Again::Over };
        match set_up(taken, self.wish) {
            Ok(streams) => {
                self.state = State::Playing(Box::new(streams));
                Again::Back
            }
            Err((taken, _)) => {
                self.state = State::Away(Some(taken));
                Again::NotYet
            }
        }
    }
}

impl Polled for Hda {
    fn left(&self) -> u64 {
        let left = (self.due + self.period_ns).saturating_sub(self.now());
        left.clamp(self.period_ns / 8, 100_000_000)
    }
}

impl Drop for Hda {
    fn drop(&mut self) {
        self.away();
        if let State::Away(card) = &mut self.state
            && let Some(card) = card.take()
        {
            self.from.bring(card);
        }
    }
}
