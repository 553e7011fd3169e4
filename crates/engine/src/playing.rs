//! What the thread that plays is given, be it ours or a server's.

use crate::{
    Error, ErrorKind,
    clock::Ticks,
    place::{self, Decision, Placed, SeatWish},
    player::{Player, Told},
};
use quiet_linux::{Root, marks::Marks, state};
use quiet_rt::Board;
use quiet_types::{Nanos, play::Hits};
use std::sync::Arc;

/// What the real-time side needs, made ready beforehand.
pub(crate) struct Playing {
    pub player: Player,
    pub told: Told,
    pub board: Arc<Board>,
    pub clock: Ticks,
    pub channels: usize,
    pub period: usize,
    pub period_ns: u64,
    /// The longest work of a block that is expected.
    pub work: Nanos,
}

/// Where it plays.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub root: Arc<Root>,
    pub wish: SeatWish,
    pub decision: Decision,
}

impl Place {
    /// What any thread may do beforehand.
    pub(crate) fn prepare(&self) -> Placed {
        place::prepare(&self.root, &self.decision)
    }

    /// What the playing thread does for itself.
    pub(crate) fn settle(&self, placed: &mut Placed) {
        place::settle(&self.wish, &self.decision, placed);
    }

    /// The same in a thread of somebody else's, whose policy stays.
    #[cfg(feature = "audio")]
    pub(crate) fn settle_as_it_is(&self, placed: &mut Placed) {
        let decision = Decision { policy: None, ..self.decision.clone() };
        place::settle(&self.wish, &decision, placed);
    }

    /// What hit the CPU since it was placed.
    #[cfg(feature = "audio")]
    pub(crate) fn interrupts(&self, placed: &Placed) -> Hits {
        let mut hits = Hits::default();
        let after = state::read(&self.root, &self.decision.cpu.into_iter().collect());
        place::interrupts(self.decision.cpu, &placed.state, &after, &mut hits);
        hits
    }

    pub(crate) fn hits(&self, marks: Marks, placed: &Placed) -> Hits {
        let mut hits = Hits { thread: marks.since(), ..Default::default() };
        let cpus = self.decision.cpu.into_iter().collect();
        let after = state::read(&self.root, &cpus);
        place::interrupts(self.decision.cpu, &placed.state, &after, &mut hits);
        hits
    }
}

/// What a fault said of itself.
pub(crate) fn fault(panic: &(dyn std::any::Any + Send)) -> Error {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let sentence = format!(
        "a stage of the strip failed by a fault of its own, and all was silent from then on: {}; \
         play another strip, and report this one",
        quiet_types::printable(said.unwrap_or("it said nothing"), 300)
    );
    Error::of(ErrorKind::Fault, sentence)
}
