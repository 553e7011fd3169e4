//! The words that the measuring process and the program share.

use quiet_rt::{FACTS, Live};
use std::sync::atomic::AtomicU64;

/// Words of the shared part for the stop flag, and for each thread: two cache lines, as
/// processors fetch them in pairs.
pub(crate) const STRIDE: usize = 16;
/// Where [`live`] would say what there is no room for.
static NOWHERE: [AtomicU64; FACTS] = [const { AtomicU64::new(0) }; FACTS];
const _: () = assert!(4 + FACTS <= STRIDE, "a thread's words hold what it says");

/// The words of thread `index`.
pub(crate) fn live(words: &[AtomicU64], index: usize) -> Live<'_> {
    let own = &words[STRIDE * (index + 1)..][..STRIDE];
    // As many words as are cut out.
    let facts = own[4..].first_chunk().unwrap_or(&NOWHERE);
    Live { stop: &words[0], obtained: &own[0], missed: &own[1], max: &own[2], facts }
}

/// Where thread `index` tells its id.
pub(crate) fn id(words: &[AtomicU64], index: usize) -> &AtomicU64 {
    &words[STRIDE * (index + 1) + 3]
}
