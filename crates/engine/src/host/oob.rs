//! A device whose thread the EVL core schedules: it sleeps by the core's timer, and a thread that never sleeps rests now and then.

use super::{Again, Device, Polled};
use crate::{Error, ErrorKind, Result, clock::Ticks};
use quiet_linux::evl::Evl;
use quiet_rt::{Clock, Duplex, Look};

/// A thread out of band keeps the whole kernel from its CPU: its tick, its RCU, the core's watchdog, which ends who does so for 4 s
/// (`CONFIG_EVL_WATCHDOG_TIMEOUT`). So often one that never sleeps lets it go on.
const EVERY: u64 = 100_000_000;
/// How long: 0.2 % of the CPU.
const REST: u64 = 200_000;

/// The device, and who has its thread sleep.
pub(crate) struct OutOfBand<D> {
    device: D,
    evl: Evl,
    clock: Ticks,
    /// When it rests again, ns of `clock`; `None` for a thread that sleeps anyway.
    rests: Option<u64>,
    rest: u64,
}

impl<D: Polled> OutOfBand<D> {
    /// `period` in ns: a rest takes no more than an eighth of it.
    pub(crate) fn new(device: D, evl: Evl, clock: Ticks, never: bool, period: u64) -> OutOfBand<D> {
        let rests = never.then(|| clock.nanos(clock.ticks()) + EVERY);
        OutOfBand { device, evl, clock, rests, rest: REST.min(period / 8) }
    }
}

impl<D: Polled> Duplex for OutOfBand<D> {
    #[inline]
    fn look(&mut self) -> Look {
        self.device.look()
    }

    fn wait(&mut self) {
        self.evl.sleep_until(self.evl.monotonic() + self.device.left());
    }

    #[inline]
    fn read(&mut self, samples: &mut [f32]) {
        self.device.read(samples);
    }

    /// What rests does so here: nothing is due for longest.
    #[inline]
    fn write(&mut self, samples: &[f32]) {
        self.device.write(samples);
        if let Some(due) = self.rests {
            let now = self.clock.nanos(self.clock.ticks());
            if now >= due {
                self.evl.sleep_until(self.evl.monotonic() + self.rest);
                self.rests = Some(now + EVERY);
            }
        }
    }

    fn late(&self) -> bool {
        self.device.late()
    }

    fn resync(&mut self) -> bool {
        self.device.resync()
    }
}

impl<D: Polled> Device for OutOfBand<D> {
    fn again(&mut self) -> Again {
        self.device.again()
    }

    fn finish(&mut self) -> Result<()> {
        self.device.finish()
    }
}

/// The stage that a loop runs on: the core's where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    evl: Option<Evl>,
    /// The core's count when the loop began.
    before: Option<u64>,
    /// Switches in band within loops; `None` where nobody counts.
    in_band: Option<u64>,
}

impl Stage {
    pub(crate) fn of(evl: Option<Evl>) -> Stage {
        Stage { evl, before: None, in_band: None }
    }

    /// Before the loop: what comes before it and belongs in band is not counted.
    ///
    /// # Errors
    /// When the core does not take the thread out of band.
    pub(crate) fn enter(&mut self) -> Result<()> {
        let Some(evl) = self.evl else { return Ok(()) };
        let cannot = |why: String| {
            let sentence =
                format!("the EVL core does not take the playing thread out of band: {why}");
            Error::of(ErrorKind::Machine, sentence)
        };
        evl.enter().map_err(|error| cannot(error.to_string()))?;
        if !evl.is_out_of_band() {
            return Err(cannot("it says that the thread is in band".to_owned()));
        }
        self.before = evl.in_band();
        Ok(())
    }

    /// After it, before anything else.
    pub(crate) fn leave(&mut self) {
        let Some(evl) = self.evl else { return };
        let strayed = !evl.is_out_of_band();
        let Some(now) = evl.in_band() else { return };
        // A core that had counted nothing yet says nothing before, and counts from 0.
        let since = now.saturating_sub(self.before.unwrap_or(0)).max(strayed.into());
        self.in_band = Some(since + self.in_band.unwrap_or(0));
    }

    pub(crate) fn in_band(&self) -> Option<u64> {
        self.in_band
    }
}
