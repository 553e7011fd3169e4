//! Trying again until it is done: for guards, after whom nobody comes.
//!
//! Pauses begin short and grow. There is no last try: what is guarded ends the work, and nothing else.

use std::time::{Duration, Instant};

/// What stood in the way of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Somebody else is at work with the machine: that ends soon, and is cheap to ask.
    Busy,
    /// Nothing could be looked at: no memory, no file, a disk that does not answer.
    Trouble,
    /// All was tried, and a part was refused. Each try writes to the journal, so they become rare.
    Refused,
}

impl Hindrance {
    /// The first pause, and the longest one.
    fn pauses(self) -> (Duration, Duration) {
        let (first, longest) = match self {
            Hindrance::Busy => (5, 200),
            Hindrance::Trouble => (50, 10_000),
            Hindrance::Refused => (200, 600_000),
        };
        (Duration::from_millis(first), Duration::from_millis(longest))
    }

    /// After so long whoever waits for the work is told that it is not done.
    fn patience(self) -> Duration {
        Duration::from_secs(if self == Hindrance::Busy { 60 } else { 2 })
    }
}

/// Tries of one piece of work.
#[derive(Debug, Default)]
pub struct Insist {
    now: Option<Spell>,
}

/// Tries that the same thing stood in the way of.
#[derive(Debug)]
struct Spell {
    of: Hindrance,
    since: Instant,
    pause: Duration,
    until: Instant,
    is_told: bool,
}

impl Insist {
    /// A try failed: the pause before the next one. Another hindrance than before begins anew.
    pub fn failed(&mut self, of: Hindrance) -> Duration {
        self.failed_at(of, Instant::now())
    }

    fn failed_at(&mut self, of: Hindrance, now: Instant) -> Duration {
        let (first, longest) = of.pauses();
        let spell = match self.now.take().filter(|spell| spell.of == of) {
            Some(spell) => Spell { pause: (spell.pause * 2).min(longest), ..spell },
            None => Spell { of, since: now, pause: first, until: now, is_told: false },
        };
        let pause = spell.pause;
        self.now = Some(Spell { until: now + pause, ..spell });
        pause
    }

    /// A try went well.
    pub fn done(&mut self) {
        self.now = None;
    }

    /// Whether the pause is over: for who has something else to look at meanwhile.
    pub fn is_due(&self) -> bool {
        self.now.as_ref().is_none_or(|spell| Instant::now() >= spell.until)
    }

    /// Whether it has lasted too long to say nothing: once for each hindrance.
    pub fn is_to_be_told(&mut self) -> bool {
        self.is_to_be_told_at(Instant::now())
    }

    fn is_to_be_told_at(&mut self, now: Instant) -> bool {
        let Some(spell) = &mut self.now else { return false };
        let is_long = !spell.is_told && now.duration_since(spell.since) >= spell.of.patience();
        spell.is_told |= is_long;
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_never_end() {
        let begun = Instant::now();
        for (of, first, longest, told) in [
            (Hindrance::Busy, 5, 200, 60),
            (Hindrance::Trouble, 50, 10_000, 2),
            (Hindrance::Refused, 200, 600_000, 2),
        ] {
            let (mut insist, mut now, mut last) = (Insist::default(), begun, Duration::ZERO);
            let mut said = Vec::new();
            // Two days.
            while now.duration_since(begun) < Duration::from_secs(172_800) {
                let pause = insist.failed_at(of, now);
                assert!(last.is_zero() || (last..=last * 2).contains(&pause), "{of:?}: {pause:?}");
                assert!(!last.is_zero() || pause == Duration::from_millis(first), "{of:?}");
                if insist.is_to_be_told_at(now) {
                    said.push(now.duration_since(begun).as_secs());
                }
                last = pause;
                now += pause;
            }
            assert_eq!(last, Duration::from_millis(longest), "{of:?}");
            assert_eq!(said.len(), 1, "{of:?}: {said:?}");
            assert!((told..told + 3).contains(&said[0]), "{of:?}: {said:?}");
        }
    }

    #[test]
    fn another_hindrance_begins_anew() {
        let (mut insist, now) = (Insist::default(), Instant::now());
        for _ in 0..20 {
            insist.failed_at(Hindrance::Refused, now);
        }
        assert!(!insist.is_due());
        assert_eq!(insist.failed_at(Hindrance::Busy, now), Duration::from_millis(5));
        insist.done();
        assert!(insist.is_due());
    }
}
