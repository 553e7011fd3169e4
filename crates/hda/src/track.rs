//! A position that goes round in a ring, made into one that never does.

/// Where a stream is. The device tells a place within its ring; how often it went round is counted here, and held against the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Bytes of the ring and of a frame.
    ring: u32,
    frame: u32,
    /// How long a ring lasts, ns.
    lasts: u64,
    /// The place that was seen last, bytes; all of them since the start.
    last: u32,
    moved: u64,
    /// When it was looked at last, and when it had moved last, ns.
    looked: u64,
    changed: u64,
}

/// What a look at a position tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is where it was, or further, by less than a ring.
    On,
    /// Nobody looked for as long as a ring lasts: it may have gone round unseen.
    Lapped,
    /// It has not moved for much longer than a ring lasts.
    Stands,
}

/// Times a ring, and at least so long (ns), until a position that does not move is said to stand.
const PATIENCE: u64 = 4;
const LEAST: u64 = 500_000_000;

impl Track {
    /// At its beginning. `ring` and `frame` are bytes, `lasts` the time of a ring.
    pub fn new(ring: u32, frame: u32, lasts: u64, now: u64) -> Track {
        let (ring, frame) = (ring.max(1), frame.max(1));
        Track { ring, frame, lasts: lasts.max(1), last: 0, moved: 0, looked: now, changed: now }
    }

    /// Takes what the device tells. A place beyond the ring is taken as one within it.
    ///
    /// # Real time
    /// Yes: some arithmetic.
    #[inline]
    pub fn see(&mut self, place: u32, now: u64) -> Moved {
        let place = if place < self.ring { place } else { place % self.ring };
        let pause = now.saturating_sub(self.looked);
        self.looked = now;
        if place != self.last {
            let further =
                if place > self.last { place - self.last } else { self.ring - self.last + place };
            (self.last, self.changed) = (place, now);
            self.moved = self.moved.saturating_add(further.into());
        } else if now.saturating_sub(self.changed) > (self.lasts * PATIENCE).max(LEAST) {
            self.changed = now;
            return Moved::Stands;
        }
        if pause >= self.lasts { Moved::Lapped } else { Moved::On }
    }

    /// Whole frames since the start.
    ///
    /// # Real time
    /// Yes.
    #[inline]
    pub fn frames(&self) -> u64 {
        self.moved / u64::from(self.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_looks_too_late_is_told() {
        let mut track = Track::new(512, 4, 1_000, 0);
        assert_eq!((track.see(100, 400), track.frames()), (Moved::On, 25));
        assert_eq!((track.see(40, 900), track.frames()), (Moved::On, 138));
        assert_eq!(track.see(60, 1_900), Moved::Lapped);
        assert_eq!(track.see(60, 2_000), Moved::On);
        let mut track = Track::new(512, 4, 1_000_000_000, 0);
        assert_eq!(track.see(0, 900_000_000), Moved::On);
        assert_eq!(track.see(0, 1_800_000_000), Moved::On);
        assert_eq!(track.see(0, 2_700_000_000), Moved::On);
        assert_eq!(track.see(0, 3_600_000_000), Moved::On);
        assert_eq!(track.see(0, 4_500_000_000), Moved::Stands);
    }

    proptest! {
        #[test]
        fn steps_below_a_ring_add_up(steps in proptest::collection::vec(0u32..4096, 1..200)) {
            let mut track = Track::new(4096, 4, u64::MAX / 8, 0);
            let mut all = 0u64;
            for (n, step) in steps.iter().enumerate() {
                all += u64::from(*step);
                prop_assert_eq!(track.see((all % 4096) as u32, n as u64), Moved::On);
                prop_assert_eq!(track.frames(), all / 4);
            }
        }

        #[test]
        fn anything_may_be_told(places in proptest::collection::vec(any::<(u32, u64)>(), 1..200), ring: u32, frame: u32) {
            let mut track = Track::new(ring, frame, 1_000, 0);
            for (place, now) in places {
                let before = track.frames();
                track.see(place, now);
                prop_assert!(track.frames() >= before);
            }
        }
    }
}
