//! Xruns on PipeWire, where the library of JACK is PipeWire's own: it tells its clients of a card's
//! xruns alone (and not of the first), and of a cycle that they were too late for nothing at all.
//! That shows in the frame time, which goes on whether a client is ready or not.
//!
//! Read in PipeWire 0.3.65, 1.4.2 and 1.6: `src/pipewire/impl-node.c` (a cycle begins: who is not
//! ready), `pipewire-jack/src/pipewire-jack.c` (what clients are told), `null-audio-sink.c`.

/// How PipeWire's library counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// Before 1.0. The frame time is read where the server writes it, so it goes on during a block;
    /// and the server takes whatever block ends within a cycle for that cycle's.
    Live,
    /// The frame time is a copy made when a block begins; and a block that ends after its own cycle
    /// counts for none.
    Copied,
}

impl Library {
    /// PipeWire's library among the files that this process has mapped, as `/proc/self/maps` has
    /// them.
    pub(crate) fn mapped(maps: &str) -> Option<Library> {
        let name = "libpipewire-0.3.so";
        let file = maps.lines().find_map(|line| line.rsplit_once('/')?.1.strip_prefix(name))?;
        // libpipewire-0.3.so.0.365.0 is 0.3.65; .0.1402.0 is 1.4.2.
        let version = file.split('.').nth(2).and_then(|n| n.parse::<u32>().ok());
        Some(match version {
            Some(..1000) => Library::Live,
            _ => Library::Copied,
        })
    }
}

/// What the library says of the cycle it is in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    /// Its first frame; runs over.
    pub(crate) frames: u32,
    /// When it began, us: what the server means, not when its thread woke up.
    pub(crate) usecs: u64,
    /// When the next one begins, us.
    pub(crate) next: u64,
    /// How long it lasts, us.
    pub(crate) period: f32,
}

/// Counts the cycles that the server left without a block of ours, as it does itself.
#[derive(Debug)]
pub(crate) struct Unready {
    library: Library,
    last: Option<Times>,
    /// How often the thread had slept when a block ended that may have been late.
    doubt: Option<u64>,
}

impl Unready {
    pub(crate) fn new(library: Library) -> Unready {
        Unready { library, last: None, doubt: None }
    }

    /// A block of `length` frames begins: how many cycles passed without one. `slept` says how often
    /// the thread slept so far.
    ///
    /// # Real time
    /// Yes; `slept` is asked after a block alone that may have been late.
    pub(crate) fn begin(&mut self, now: Times, length: u32, slept: impl Fn() -> u64) -> u64 {
        if self.library == Library::Live {
            return 0;
        }
        // A thread that did not sleep since was called for the next cycle before it was done.
        let late = self.doubt.take().is_some_and(|before| slept() == before);
        self.skipped(now, length) + u64::from(late)
    }

    /// The block is done, at `usecs` by the clock of the times: the same. After this the library
    /// tells the server, so what happens in between is missed: some microseconds.
    ///
    /// # Real time
    /// As [`Unready::begin`].
    pub(crate) fn end(
        &mut self,
        now: Times,
        usecs: u64,
        length: u32,
        slept: impl Fn() -> u64,
    ) -> u64 {
        match self.library {
            Library::Live => self.skipped(now, length),
            Library::Copied => {
                // The next cycle is due; the server's thread may be late for it, too.
                let due = self.last.is_some_and(|last| usecs >= last.next);
                self.doubt = due.then(slept);
                0
            }
        }
    }

    /// Cycles between the last time and this one.
    fn skipped(&mut self, now: Times, length: u32) -> u64 {
        let Some(last) = self.last.replace(now) else { return 0 };
        let by_frames = now.frames.wrapping_sub(last.frames) / length.max(1);
        // Another card may drive now, which counts its frames from elsewhere; time is one.
        let by_time = now.usecs.saturating_sub(last.usecs) as f32 / now.period.max(1.0) + 0.5;
        u64::from(by_frames.min(by_time as u32).saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_its_file() {
        let maps = |file: &str| {
            format!(
                "7f0000000000-7f0000001000 r--p 00000000 fe:00 1 /usr/lib/libjack.so.0.1.0\n\
                 7f0000002000-7f0000003000 r--p 00000000 fe:00 2 /usr/lib/x86_64-linux-gnu/{file}\n"
            )
        };
        let known = |file: &str| Library::mapped(&maps(file));
        assert_eq!(known("libpipewire-0.3.so.0.365.0"), Some(Library::Live));
        assert_eq!(known("libpipewire-0.3.so.0.1402.0"), Some(Library::Copied));
        assert_eq!(known("libpipewire-0.3.so"), Some(Library::Copied));
        assert_eq!(known("libjackserver.so.0.1.0"), None);
        assert_eq!(Library::mapped(""), None);
    }

    const PERIOD: u64 = 1000;

    /// When the server's thread wakes up for a cycle: for some it is late itself.
    fn starts(cycle: u64) -> u64 {
        cycle * PERIOD + [0, 40, 300, 10, 700][cycle as usize % 5]
    }

    /// The cycle that the server is in.
    fn newest(time: u64) -> u64 {
        let due = time / PERIOD;
        if time >= starts(due) { due } else { due.saturating_sub(1) }
    }

    fn times(at: u64) -> Times {
        Times {
            // Runs over on the way.
            frames: (u32::MAX - 100).wrapping_add(at as u32 * 64),
            usecs: at * PERIOD,
            next: (at + 1) * PERIOD,
            period: PERIOD as f32,
        }
    }

    /// A server that looks at each cycle's end for the client's block, and a client that stalls
    /// before and within its block, twice, for every length: both counts are the same.
    #[test]
    fn as_many_as_the_server_counts() {
        for library in [Library::Live, Library::Copied] {
            let mut most = 0;
            for before in (0..5500).step_by(250) {
                for within in (0..5500).step_by(250) {
                    for again in (0..3000).step_by(250) {
                        let stalls =
                            [(0, 0), (0, 0), (before, within), (0, again), (0, 0), (again, 0)];
                        let (ours, theirs) = both(library, &stalls);
                        assert_eq!(ours, theirs, "{library:?}, {stalls:?}");
                        most = theirs.max(most);
                    }
                }
            }
            assert!(most > 10, "{most}");
        }
    }

    fn both(library: Library, stalls: &[(u64, u64)]) -> (u64, u64) {
        let mut unready = Unready::new(library);
        let (mut time, mut ours, mut sleeps) = (0u64, 0, 0u64);
        let mut blocks = Vec::<(u64, u64)>::new();
        for turn in 0.. {
            // The newest cycle calls, once: a client that was told of several reads them as one.
            let mut cycle = newest(time);
            if blocks.last().is_some_and(|(begun, _)| *begun == cycle) {
                cycle += 1;
                sleeps += 1;
            }
            if cycle > 40 {
                break;
            }
            let (before, within) = stalls.get(turn).copied().unwrap_or_default();
            time = time.max(starts(cycle)) + 3 + before;
            let begun = newest(time);
            ours += unready.begin(times(begun), 64, || sleeps);
            time += 100 + within;
            let end = if library == Library::Live { newest(time) } else { begun };
            ours += unready.end(times(end), time, 64, || sleeps);
            blocks.push((begun, newest(time)));
        }
        let served = |n: u64| {
            blocks.iter().any(|(begun, ended)| match library {
                Library::Live => *ended == n,
                Library::Copied => *begun == n && *ended == n,
            })
        };
        let last = blocks.last().map_or(0, |(_, ended)| *ended);
        (ours, (0..last).filter(|n| !served(*n)).count() as u64)
    }

    #[test]
    fn another_driver_is_no_flood_of_xruns() {
        let mut unready = Unready::new(Library::Live);
        let at = |frames, usecs| Times { frames, usecs, next: usecs + 1000, period: 1000.0 };
        assert_eq!(unready.end(at(64, 1000), 0, 64, || 0), 0);
        assert_eq!(unready.end(at(9_000_000, 3000), 0, 64, || 0), 1, "one was lost in the change");
        assert_eq!(unready.end(at(64, 4000), 0, 64, || 0), 0);
    }
}
