//! Timer expiry to thread running.

use crate::{KeptReading, Live, Tally, Timer};

/// The expiries of one run: `start + interval`, `start + 2 interval` ... `periods` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// On the timer's clock, ns.
    pub start: u64,
    /// Time between expiries, ns; at least 1.
    pub interval: u64,
    /// Number of expiries.
    pub periods: u64,
}

/// How the expiries of a run ended: `expected` = `obtained` + `missed`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Expiries that were due.
    pub expected: u64,
    /// Expiries for which the thread woke.
    pub obtained: u64,
    /// Expiries that passed while it was still late from an earlier one.
    pub missed: u64,
}

/// Sleeps from expiry to expiry and counts how late the thread runs.
///
/// One wake-up serves one expiry. Expiries that passed before the thread ran are missed: each is
/// counted, with the time from its own expiry to the moment the thread ran, and none is fired
/// late. The run ends after the last expiry, or when [`Live::stop`] is raised.
///
/// # Real time
/// The stamp is taken before anything is counted. Counting is bounded, also after a stall of any
/// length.
pub fn wakeup<T: Timer>(
    timer: &mut T,
    plan: Wakeup,
    tally: &mut Tally<'_>,
    live: &Live<'_>,
) -> Periods {
    let interval = plan.interval.max(1);
    let mut done = Periods::default();
    let mut due = plan.start;
    while done.expected < plan.periods && !live.stopped() {
        due = due.saturating_add(interval);
        let now = timer.sleep_until(due);
        let late = now.saturating_sub(due);
        let missed = if late < interval {
            0
        } else {
            (late / interval).min(plan.periods - done.expected - 1)
        };
        let at = now.saturating_sub(plan.start);
        tally.record(KeptReading { at, value: late, missed });
        if missed > 0 {
            due += missed * interval;
            // From the newest back: the youngest expiry waited least.
            tally.missed.add_series(now - due, interval, missed);
        }
        done.obtained += 1;
        done.missed += missed;
        done.expected += 1 + missed;
        live.say(done.obtained, done.missed, tally);
    }
    done
}
