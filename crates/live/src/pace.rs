//! How often something that costs is done.

use std::time::{Duration, Instant};

/// What is looked at may cost one part in so many of a CPU.
const PARTS: u32 = 60;
/// However dear it is, it is done so often.
const LONGEST: Duration = Duration::from_secs(30);

/// Something that is done every so often, and less often where it costs much.
#[derive(Debug)]
pub(crate) struct Pace {
    every: Duration,
    due: Option<Instant>,
}

impl Pace {
    pub(crate) fn every(every: Duration) -> Pace {
        Pace { every, due: None }
    }

    /// Whether it is to be done now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// It was done, and took so long.
    pub(crate) fn done(&mut self, began: Instant, took: Duration) {
        let pause = (took * PARTS).clamp(self.every, LONGEST.max(self.every));
        self.due = Some(began + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_much_is_done_less_often() {
        let now = Instant::now();
        let mut pace = Pace::every(Duration::from_secs(1));
        assert!(pace.is_due(now));
        pace.done(now, Duration::from_millis(1));
        assert!(!pace.is_due(now + Duration::from_millis(999)));
        assert!(pace.is_due(now + Duration::from_secs(1)));
        pace.done(now, Duration::from_millis(100));
        assert!(!pace.is_due(now + Duration::from_millis(5_999)));
        assert!(pace.is_due(now + Duration::from_secs(6)));
        pace.done(now, Duration::from_secs(100));
        assert!(pace.is_due(now + LONGEST));
    }
}
