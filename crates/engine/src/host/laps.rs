//! Whether a card's ring went round while nobody looked.
//!
//! A card says where in its ring it is, and the kernel adds up what it says: a ring that went round once more between
//! two of its interrupts leaves the pointer as if it had not, and the kernel counts no xrun. The clock knows: what was
//! in the ring when the pointer moved last is played, and what had room is overwritten, when the ring's time has passed.

use quiet_types::{Frames, SampleRate};

/// The pointer of one direction of a card, beside a clock.
#[derive(Clone, Debug)]
pub(crate) struct Laps {
    /// ns a frame, times 2^16, at the rate that the card was set to.
    frame: u64,
    /// Frames.
    ring: u64,
    /// Whether a jump of the clock ahead of the pointer by half a ring means something: with fewer periods a pointer
    /// that moves once a period may lag that far.
    long: bool,
    /// When the pointer was seen to move last, ns, and to where, frames since the start.
    at: u64,
    position: u64,
    /// What passed since the span began: it tells the card's pace: ns, frames.
    span: (u64, u64),
    /// The card's slowness, ns of the clock for each ns of its own, times 2^16: the least of all spans. Emulated cards
    /// play several times too slow and lose nothing by it.
    pace: Option<u64>,
}

/// One, in [`Laps::pace`] and [`Laps::frame`].
const ONE: u64 = 1 << 16;

impl Laps {
    /// Of a ring of `ring` frames in periods of `period`, at `rate` frames a second.
    pub(crate) fn new(rate: SampleRate, period: Frames, ring: Frames) -> Laps {
        Laps {
            frame: 1_000_000_000 * ONE / u64::from(rate.0.max(1)),
            ring: u64::from(ring.0.max(1)),
            long: ring.0 >= 4 * period.0,
            at: 0,
            position: 0,
            span: (0, 0),
            pace: None,
        }
    }

    /// The card begins at `now`, its pointer at `position`. What is known of its pace stays.
    pub(crate) fn start(&mut self, now: u64, position: u64) {
        (self.at, self.position) = (now, position);
    }

    /// Where the pointer was seen last.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The pointer is at `position` at `now`, ns: whether sound was lost that the kernel has not seen.
    ///
    /// # Real time
    /// A few multiplications; called when the pointer has moved, not at each look.
    pub(crate) fn lost(&mut self, now: u64, position: u64) -> bool {
        let passed = now.saturating_sub(self.at);
        let moved = position.saturating_sub(self.position);
        (self.at, self.position) = (now, position);
        // In ns of the card's own.
        let own = (u128::from(passed) * u128::from(ONE)
            / u128::from(self.pace.unwrap_or(ONE).max(ONE))) as u64;
        let (ring, moved_ns) = (self.ns(self.ring), self.ns(moved));
        let ahead = own.saturating_sub(moved_ns) >= ring / 2;
        let lost = own >= ring || self.long && self.pace.is_some() && ahead;
        self.learn(passed, moved);
        lost
    }

    fn learn(&mut self, passed: u64, moved: u64) {
        self.span = (self.span.0 + passed, self.span.1 + moved);
        // Of whole rings: a pointer that moves in jumps is as far ahead at one end as at the other.
        if self.span.1 >= 2 * self.ring {
            let own = self.ns(self.span.1).max(1);
            let pace = (u128::from(self.span.0) * u128::from(ONE) / u128::from(own)) as u64;
            self.pace = Some(self.pace.map_or(pace, |least| least.min(pace)));
            self.span = (0, 0);
        }
    }

    fn ns(&self, frames: u64) -> u64 {
        ((u128::from(frames) * u128::from(self.frame)) >> 16) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 48_000;

    /// A card by the book: the kernel reads its pointer, which knows nothing but its place in the ring, every `step`
    /// frames, and adds it up; it counts an xrun where it sees more than was there.
    struct Card {
        period: u64,
        ring: u64,
        step: u64,
        /// Frames of the card for 1000 of the clock.
        pace: u64,
        /// Where the kernel believes it to be.
        hw: u64,
    }

    impl Card {
        /// Frames that the card has played when the clock says `now`.
        fn truth(&self, now: u64) -> u64 {
            (u128::from(now) * u128::from(RATE) * u128::from(self.pace) / 1_000_000_000_000) as u64
        }

        /// The kernel looks at `now`; whether it sees an xrun when `queued` frames lay in the ring.
        fn update(&mut self, now: u64, queued: u64) -> bool {
            let at = self.truth(now) / self.step * self.step % self.ring;
            let forward = (at + self.ring - self.hw % self.ring) % self.ring;
            self.hw += forward;
            forward > queued
        }
    }

    /// Plays `stalls` (ns at which nobody looks any more, ns for how long), in time otherwise; says how many stalls lost
    /// sound in truth, how many the kernel counts, and how many the clock tells beside.
    fn play(mut card: Card, stalls: &[(u64, u64)], until: u64) -> (u32, u32, u32) {
        let mut laps =
            Laps::new(SampleRate(RATE), Frames(card.period as u32), Frames(card.ring as u32));
        let (mut truly, mut kernel, mut told) = (0, 0, 0);
        // Written, in the kernel's eyes; and the truth that lies behind them.
        let (mut written, mut real) = (card.ring, card.ring);
        let (mut now, mut stalls) = (0, stalls.iter().copied().peekable());
        laps.start(0, 0);
        while now < until {
            now += 50_000;
            if stalls.peek().is_some_and(|stall| stall.0 <= now) {
                now += stalls.next().unwrap_or_default().1;
            }
            let dry = card.truth(now) > real;
            let xrun = card.update(now, written - card.hw);
            let lost = card.hw != laps.position() && laps.lost(now, card.hw);
            (truly, kernel) = (truly + u32::from(dry), kernel + u32::from(xrun));
            told += u32::from(lost && !xrun);
            if dry || xrun || lost {
                // Started anew, the ring full: the place in the ring is 0 again.
                card.hw = card.truth(now) / card.ring * card.ring + card.truth(now) % card.ring;
                written = card.hw + card.ring;
                real = card.truth(now) + card.ring;
                laps.start(now, card.hw);
            } else {
                // A period at a time, where there is room.
                while written + card.period <= card.hw + card.ring {
                    (written, real) = (written + card.period, real + card.period);
                }
            }
        }
        (truly, kernel, told)
    }

    fn card(period: u64, periods: u64, step: u64) -> Card {
        Card { period, ring: period * periods, step, pace: 1000, hw: 0 }
    }

    #[test]
    fn a_ring_that_went_round_unseen_is_told_whatever_the_stall() {
        for (period, periods) in [(1024, 8), (256, 2), (64, 4), (32, 3)] {
            let ring_ns = period * periods * 1_000_000_000 / u64::from(RATE);
            let mut unseen = 0;
            for tenths in 1..60 {
                let stall = (50 * ring_ns, ring_ns * tenths / 10 + 77_000);
                let done = play(card(period, periods, 1), &[stall], 100 * ring_ns);
                let (truly, kernel, told) = done;
                assert_eq!(kernel + told, truly, "{period} x {periods}, {tenths} tenths: {done:?}");
                unseen += told;
            }
            // The kernel alone misses some of them: else this would show nothing.
            assert!(unseen > 0, "{period} x {periods}");
        }
    }

    #[test]
    fn a_pointer_that_jumps_and_a_card_that_is_slow_or_fast_lose_nothing() {
        // By periods as many USB cards do, by 4 ms as snd-aloop does.
        for (period, periods, step) in [(256, 2, 256), (64, 2, 64), (1024, 8, 192), (256, 4, 192)] {
            for pace in [999, 1000, 1001, 800, 1200] {
                let card = Card { pace, ..card(period, periods, step) };
                assert_eq!(play(card, &[], 3_000_000_000), (0, 0, 0), "{period} {pace}");
            }
        }
        // QEMU's USB card plays three to five times too slow.
        for pace in [200, 300] {
            let card = Card { pace, ..card(1024, 8, 1024) };
            assert_eq!(play(card, &[], 3_000_000_000), (0, 0, 0), "{pace}");
        }
    }

    #[test]
    fn a_stall_at_the_start_does_not_make_a_card_slow_for_ever() {
        let stalls = [(1_000_000, 500_000_000), (3_000_000_000, 250_000_000)];
        let (truly, kernel, told) = play(card(1024, 8, 1), &stalls, 4_000_000_000);
        assert_eq!((truly, kernel + told), (2, 2));
    }
}
