//! What a playing loop tells the rest of the program: words that it alone writes.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Places of the load histogram: one a percent of the period; the last holds all beyond.
pub const LOADS: usize = 201;

/// Channels whose level is told, in each direction.
pub const METERS: usize = 8;

/// The stop word, with room around it: processors fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stop(AtomicU64);

/// Counters of a playing loop. One thread writes them, any may read them.
///
/// Each is a plain relaxed store: nothing here makes the loop wait, and a reader may see one word
/// newer than another.
#[derive(Debug)]
pub struct Board {
    stop: Stop,
    /// Blocks processed.
    pub blocks: AtomicU64,
    /// Looks at the device that found nothing to do.
    pub empty: AtomicU64,
    /// Times that the device ran over or under.
    pub xruns: AtomicU64,
    /// Periods whose sound was lost.
    pub missed: AtomicU64,
    /// Blocks that were processed and came too late to be heard: they are among [`Board::blocks`]
    /// and among [`Board::missed`].
    pub late: AtomicU64,
    /// Longest processing of one block, ns.
    pub worst: AtomicU64,
    /// When that was, ns since the loop began.
    pub worst_at: AtomicU64,
    /// Longest time from the end of one block to the end of the next, ns.
    pub between: AtomicU64,
    /// Time spent in processing, ns.
    pub busy: AtomicU64,
    /// Most frames found waiting when a block began.
    pub waiting: AtomicU64,
    /// Samples that were not finite, and were silenced.
    pub broken: AtomicU64,
    /// Times that something was done about a strip which broke block after block.
    pub cured: AtomicU64,
    /// Not zero: the last such time, the input took the place of the strip.
    pub bypassed: AtomicU64,
    /// Blocks by the share of the period that their processing took, in percent.
    pub loads: [AtomicU64; LOADS],
    /// Peaks of the input since they were last taken, by channel: bits of an `f32`.
    input: [AtomicU32; METERS],
    /// The same of the output.
    output: [AtomicU32; METERS],
}

impl Default for Board {
    fn default() -> Board {
        Board::new()
    }
}

impl Board {
    /// All zero.
    pub const fn new() -> Board {
        Board {
            stop: Stop(AtomicU64::new(0)),
            blocks: AtomicU64::new(0),
            empty: AtomicU64::new(0),
            xruns: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            late: AtomicU64::new(0),
            worst: AtomicU64::new(0),
            worst_at: AtomicU64::new(0),
            between: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            cured: AtomicU64::new(0),
            bypassed: AtomicU64::new(0),
            loads: [const { AtomicU64::new(0) }; LOADS],
            input: [const { AtomicU32::new(0) }; METERS],
            output: [const { AtomicU32::new(0) }; METERS],
        }
    }

    /// Asks the loop to end.
    pub fn stop(&self) {
        self.stop.0.store(1, Relaxed);
    }

    /// Whether the loop was asked to end.
    ///
    /// # Real time
    /// One relaxed load.
    #[inline(always)]
    pub fn stopped(&self) -> bool {
        self.stop.0.load(Relaxed) != 0
    }

    /// The peaks of input and output of `channel` since the last call; full scale is 1.
    pub fn take_peaks(&self, channel: usize) -> (f32, f32) {
        let take = |words: &[AtomicU32]| {
            words.get(channel).map_or(0.0, |word| f32::from_bits(word.swap(0, Relaxed)))
        };
        (take(&self.input), take(&self.output))
    }

    pub(crate) fn say_input(&self, channel: usize, peak: f32) {
        raise(&self.input, channel, peak);
    }

    pub(crate) fn say_output(&self, channel: usize, peak: f32) {
        raise(&self.output, channel, peak);
    }
}

/// A word that this thread raises and another one takes.
trait Word {
    fn load(&self) -> u32;
    fn store(&self, bits: u32);
}

impl Word for AtomicU32 {
    fn load(&self) -> u32 {
        AtomicU32::load(self, Relaxed)
    }

    fn store(&self, bits: u32) {
        AtomicU32::store(self, bits, Relaxed);
    }
}

/// Positive floats compare as their bits do. A reader that takes the word at the same moment may
/// see this peak twice: a meter can live with that, and nothing waits.
fn raise(words: &[impl Word], channel: usize, peak: f32) {
    if let Some(word) = words.get(channel) {
        let bits = peak.to_bits();
        if bits > word.load() {
            word.store(bits);
        }
    }
}

/// Adds to a word that only the calling thread writes.
#[inline(always)]
pub(crate) fn add(word: &AtomicU64, n: u64) {
    word.store(word.load(Relaxed) + n, Relaxed);
}

/// Raises a word that only the calling thread writes; says whether it was raised.
#[inline(always)]
pub(crate) fn most(word: &AtomicU64, value: u64) -> bool {
    let higher = value > word.load(Relaxed);
    if higher {
        word.store(value, Relaxed);
    }
    higher
}

#[cfg(test)]
mod tests {
    use super::{Word, raise};
    use core::cell::{Cell, RefCell};

    /// Peaks that are raised, one after the other.
    const PEAKS: [f32; 4] = [0.5, 0.25, 0.75, 0.5];
    /// Accesses of the writer at most: a load and a store for each peak.
    const PLACES: usize = 2 * PEAKS.len();
    /// Takes of the reader at most: one before each access, and one at the end.
    const TAKES: usize = PLACES + 1;

    /// A word whose reader takes it right before the accesses that `when` names by its bits. All
    /// accesses are to one word, so they have one order, whatever the processor: this is all there
    /// can be.
    struct Taken {
        word: Cell<u32>,
        when: u32,
        access: Cell<u32>,
        took: RefCell<([u32; TAKES], usize)>,
    }

    impl Taken {
        fn take(&self) {
            let (all, count) = &mut *self.took.borrow_mut();
            all[*count] = self.word.replace(0);
            *count += 1;
        }

        fn turn(&self) {
            if self.when >> self.access.get() & 1 == 1 {
                self.take();
            }
            self.access.set(self.access.get() + 1);
        }
    }

    impl Word for Taken {
        fn load(&self) -> u32 {
            self.turn();
            self.word.get()
        }

        fn store(&self, bits: u32) {
            self.turn();
            self.word.set(bits);
        }
    }

    #[test]
    fn no_peak_is_lost_whenever_a_reader_takes_it() {
        for when in 0..1u32 << PLACES {
            let words = [Taken {
                word: Cell::new(0),
                when,
                access: Cell::new(0),
                took: RefCell::new(([0; TAKES], 0)),
            }];
            let mut from = [0; PEAKS.len()];
            for (n, peak) in PEAKS.iter().enumerate() {
                from[n] = words[0].took.borrow().1;
                raise(&words, 0, *peak);
            }
            words[0].take();
            let (all, count) = *words[0].took.borrow();
            for (n, peak) in PEAKS.iter().enumerate() {
                let seen = all[from[n]..count].iter().any(|bits| *bits >= peak.to_bits());
                assert!(seen, "{peak} is lost where the reader comes at {when:#b}");
            }
            let known = |bits: &u32| *bits == 0 || PEAKS.iter().any(|p| p.to_bits() == *bits);
            assert!(all.iter().all(known), "{when:#b}");
        }
    }
}
