//! How a loop waits: it looks, or it sleeps.

/// How long it looks without anything to come. An idle graph is suspended, and need not burn a CPU.
pub(crate) const BUDGET: u64 = 1_000_000_000;
/// How often it asks again whether it may, since a shield may come and go while it plays; and rests for [`REST`].
pub(crate) const ASK: u64 = 100_000_000;
/// How long it leaves its CPU to the kernel's threads each time, in nanoseconds. Without a turn of theirs others wait for ever: who moves a process
/// into another cpuset waits for work on every CPU (`lru_add_drain_all` of `cpuset_migrate_mm`), with real-time throttling off.
pub(crate) const REST: u32 = 50_000;

/// What a wait asks of the kernel.
pub(crate) trait Kernel {
    /// How many files are ready, after at most so many milliseconds; less than 0 for an error, a timeout below 0 for ever.
    fn ready(&mut self, timeout: i32) -> i32;
    /// Nanoseconds of a clock that never steps.
    fn now(&mut self) -> u64;
    /// Whether the thread may poll.
    fn may(&mut self) -> bool;
    /// Sleeps for [`REST`].
    fn rest(&mut self);
}

/// What one thread knows from one wait to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// When it asked, and what came of it.
    last: Option<(u64, bool)>,
}

impl Asked {
    pub(crate) const fn new() -> Asked {
        Asked { last: None }
    }

    fn may(&self) -> bool {
        self.last.is_some_and(|(_, may)| may)
    }

    /// Asks again where the answer is old; rests where it is yes.
    fn ask(&mut self, kernel: &mut impl Kernel, now: u64) {
        if self.last.is_some_and(|(at, _)| now.saturating_sub(at) < ASK) {
            return;
        }
        let may = kernel.may();
        self.last = Some((now, may));
        if may {
            kernel.rest();
        }
    }
}

/// Waits for at most so many milliseconds, for ever where they are below 0. Allocates nothing; real time as far as `kernel` is.
///
/// While it polls it asks and rests only after a look that found nothing: what is due is handed over before.
pub(crate) fn wait(kernel: &mut impl Kernel, asked: &mut Asked, timeout: i32) -> i32 {
    if timeout == 0 {
        return kernel.ready(0);
    }
    let began = kernel.now();
    let end = u64::try_from(timeout).ok().map(|ms| began.saturating_add(ms * 1_000_000));
    let mut now = began;
    if !asked.may() {
        asked.ask(kernel, now);
    }
    while now.saturating_sub(began) < BUDGET && asked.may() {
        let ready = kernel.ready(0);
        if ready != 0 {
            return ready;
        }
        if end.is_some_and(|end| now >= end) {
            return 0;
        }
        asked.ask(kernel, now);
        core::hint::spin_loop();
        now = kernel.now();
    }
    let rest = end.map_or(-1, |end| {
        i32::try_from(end.saturating_sub(now).div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    kernel.ready(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel in which something is ready after a while; each look takes a microsecond.
    struct Fake {
        now: u64,
        comes: u64,
        may: fn(u64) -> bool,
        looks: u64,
        asks: u64,
        rests: u64,
        slept: Vec<i32>,
    }

    impl Fake {
        fn new(comes: u64, may: fn(u64) -> bool) -> Fake {
            Fake { now: 0, comes, may, looks: 0, asks: 0, rests: 0, slept: Vec::new() }
        }
    }

    impl Kernel for Fake {
        fn ready(&mut self, timeout: i32) -> i32 {
            if timeout == 0 {
                self.looks += 1;
                self.now += 1_000;
                return i32::from(self.now >= self.comes);
            }
            self.slept.push(timeout);
            let end = u64::try_from(timeout).map_or(u64::MAX, |ms| self.now + ms * 1_000_000);
            let comes = self.comes <= end;
            self.now = self.comes.min(end).max(self.now);
            i32::from(comes)
        }

        fn now(&mut self) -> u64 {
            self.now
        }

        fn may(&mut self) -> bool {
            self.asks += 1;
            (self.may)(self.now)
        }

        fn rest(&mut self) {
            self.rests += 1;
            self.now += u64::from(REST);
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn what_comes_within_the_budget_is_seen_without_a_sleep() {
        let mut kernel = Fake::new(250 * MS, |_| true);
        assert_eq!(wait(&mut kernel, &mut Asked::new(), -1), 1);
        assert!(kernel.slept.is_empty(), "slept {:?}", kernel.slept);
        assert!(kernel.now < 251 * MS);
        assert_eq!((kernel.asks, kernel.rests), (3, 3), "once at first, then every 100 ms");
    }

    #[test]
    fn what_is_due_is_handed_over_before_it_asks_or_rests() {
        let mut kernel = Fake::new(0, |_| true);
        let mut asked = Asked { last: Some((0, true)) };
        kernel.now = 5 * ASK;
        assert_eq!(wait(&mut kernel, &mut asked, -1), 1);
        assert_eq!((kernel.looks, kernel.asks, kernel.rests), (1, 0, 0));
    }

    #[test]
    fn after_the_budget_it_sleeps_for_what_is_left() {
        let mut kernel = Fake::new(u64::MAX, |_| true);
        assert_eq!(wait(&mut kernel, &mut Asked::new(), 3_000), 0);
        assert_eq!(kernel.slept, [2_000]);
        assert_eq!(kernel.now / MS, 3_000);
        let mut kernel = Fake::new(5_000 * MS, |_| true);
        assert_eq!(wait(&mut kernel, &mut Asked::new(), -1), 1);
        assert_eq!(kernel.slept, [-1]);
    }

    #[test]
    fn where_it_may_not_it_sleeps_at_once_and_asks_seldom() {
        let mut kernel = Fake::new(u64::MAX, |_| false);
        let mut asked = Asked::new();
        for _ in 0..10 {
            assert_eq!(wait(&mut kernel, &mut asked, 20), 0);
        }
        assert_eq!((kernel.looks, kernel.slept.len(), kernel.asks, kernel.rests), (0, 10, 2, 0));
    }

    #[test]
    fn a_shield_that_goes_ends_the_polling() {
        let mut kernel = Fake::new(u64::MAX, |now| now < 300 * MS);
        assert_eq!(wait(&mut kernel, &mut Asked::new(), 900), 0);
        assert!(
            (499..=501).contains(&kernel.slept[0]) || (599..=601).contains(&kernel.slept[0]),
            "{:?}",
            kernel.slept
        );
        assert_eq!(kernel.slept.len(), 1);
    }

    #[test]
    fn a_timeout_is_kept_while_it_polls_and_none_is_no_wait() {
        let mut kernel = Fake::new(u64::MAX, |_| true);
        assert_eq!(wait(&mut kernel, &mut Asked::new(), 7), 0);
        assert_eq!((kernel.now / MS, kernel.slept.len()), (7, 0));
        let mut kernel = Fake::new(u64::MAX, |_| true);
        assert_eq!(wait(&mut kernel, &mut Asked::new(), 0), 0);
        assert_eq!((kernel.looks, kernel.asks, kernel.slept.len()), (1, 0, 0));
    }

    #[test]
    fn an_error_is_handed_on() {
        struct Broken;
        impl Kernel for Broken {
            fn ready(&mut self, _: i32) -> i32 {
                -libc::EBADF
            }
            fn now(&mut self) -> u64 {
                0
            }
            fn may(&mut self) -> bool {
                true
            }
            fn rest(&mut self) {}
        }
        assert_eq!(wait(&mut Broken, &mut Asked::new(), -1), -libc::EBADF);
    }
}
